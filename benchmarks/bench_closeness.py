"""allclose, isclose, array_equal and allfinite: warm calls, ratios, peak memory."""

from functools import partial

import calipers

from . import common, peers


class Small:
    params = (list(common.small_pairs()),)
    param_names = ("case",)

    def setup(self, case):
        self.a, self.b = common.small_pairs()[case]
        self.time_allclose(case)
        self.time_isclose(case)
        self.time_array_equal(case)

    def time_allclose(self, case):
        calipers.allclose(self.a, self.b)

    def time_isclose(self, case):
        calipers.isclose(self.a, self.b)

    def time_array_equal(self, case):
        calipers.array_equal(self.a, self.b)

    def track_allclose_over_numpy(self, case):
        return common.over_numpy("allclose", self.a, self.b)

    track_allclose_over_numpy.unit = "times numpy"


class Equal:
    params = (common.DTYPES,)
    param_names = ("dtype",)

    def setup(self, dtype):
        self.a, self.b = common.equal_pair(dtype, common.SIZE)
        self.time_allclose(dtype)
        self.time_isclose(dtype)
        self.time_array_equal(dtype)
        self.time_allfinite(dtype)

    def time_allclose(self, dtype):
        calipers.allclose(self.a, self.b)

    def time_isclose(self, dtype):
        calipers.isclose(self.a, self.b)

    def time_array_equal(self, dtype):
        calipers.array_equal(self.a, self.b)

    def time_allfinite(self, dtype):
        calipers.allfinite(self.a)


class Noisy:
    params = (common.DTYPES,)
    param_names = ("dtype",)

    def setup(self, dtype):
        self.a, self.b, self.tolerances = common.noisy_pair(dtype, common.SIZE)
        self.time_allclose(dtype)

    def time_allclose(self, dtype):
        calipers.allclose(self.a, self.b, **self.tolerances)


class AtTheTolerance:
    """Whole numbers that differ by exactly the tolerance, where no rounded test can decide."""

    params = (common.INTEGERS,)
    param_names = ("dtype",)

    def setup(self, dtype):
        self.a, self.b, _ = common.noisy_pair(dtype, common.SIZE)
        self.time_allclose(dtype)

    def time_allclose(self, dtype):
        calipers.allclose(self.a, self.b, rtol=0.0, atol=1.0)


class Mismatch:
    params = (["contiguous", "strided", "transposed", "broadcast"], [0.0, 0.01, 0.5, 0.99])
    param_names = ("layout", "fraction")

    def setup(self, layout, fraction):
        self.mismatch = common.Mismatch(layout, common.SIZE, fraction)
        self.a, self.b = self.mismatch.__enter__()
        self.time_allclose(layout, fraction)

    def teardown(self, layout, fraction):
        self.mismatch.__exit__()

    def time_allclose(self, layout, fraction):
        calipers.allclose(self.a, self.b)


class Layouts:
    params = (list(common.LAYOUTS),)
    param_names = ("layout",)

    def setup(self, layout):
        self.a, self.b = common.layout_pair(layout, common.SIZE)
        # A few elements build the kernels, and leave the peak of memory to the benchmark itself.
        few = common.layout_pair(layout, 100)
        calipers.allclose(*few)
        calipers.isclose(*few)

    def time_allclose(self, layout):
        calipers.allclose(self.a, self.b)

    def time_isclose(self, layout):
        calipers.isclose(self.a, self.b)

    def peakmem_arrays_alone(self, layout):
        """Hold the arrays: what the others exceed is what a call allocates."""

    def peakmem_allclose(self, layout):
        calipers.allclose(self.a, self.b)

    def peakmem_isclose(self, layout):
        calipers.isclose(self.a, self.b)


class Rows:
    params = ([0, 1],)
    param_names = ("axis",)

    def setup(self, axis):
        self.a, self.b = (x.reshape(-1, 100) for x in common.equal_pair("float64", common.SIZE))
        self.time_allclose(axis)

    def time_allclose(self, axis):
        calipers.allclose(self.a, self.b, axis=axis)


class OverNumpy:
    params = (["allclose", "isclose", "array_equal"], ["float64", "float32", "int64"])
    param_names = ("question", "dtype")

    def setup(self, question, dtype):
        self.a, self.b = common.equal_pair(dtype, common.SIZE)

    def track_over_numpy(self, question, dtype):
        return common.over_numpy(question, self.a, self.b)

    track_over_numpy.unit = "times numpy"


class OverTorch:
    params = (["float64", "float32", "int64"],)
    param_names = ("dtype",)

    def setup(self, dtype):
        a, b = common.equal_pair(dtype, common.SIZE)
        self.own = partial(calipers.allclose, a, b)
        self.peer = peers.torch_allclose(a, b)

    def track_allclose_over_torch(self, dtype):
        return common.speedup(self.own, self.peer)

    track_allclose_over_torch.unit = "times torch"


class OverPlainRead:
    params = (["float64", "float32", "int64"],)
    param_names = ("dtype",)

    def setup(self, dtype):
        a, b = common.equal_pair(dtype, common.SIZE)
        self.own = partial(calipers.allclose, a, b)
        self.read = common.plain_read(a, b)

    def track_share_of_plain_read(self, dtype):
        return common.speedup(self.own, self.read)

    track_share_of_plain_read.unit = "share"
