"""compare and assert_close: warm calls, ratios to the peers, peak memory."""

from functools import partial

import numpy as np

import calipers

from . import common, peers


class Compare:
    params = (common.DIFFERENCES, ["float64", "float32"])
    param_names = ("difference", "dtype")

    def setup(self, difference, dtype):
        self.a, self.b = common.differing_pair(difference, dtype, common.SIZE)
        calipers.compare(self.a[:10], self.b[:10])

    def time_compare(self, difference, dtype):
        calipers.compare(self.a, self.b)

    def time_text(self, difference, dtype):
        str(calipers.compare(self.a[:1000], self.b[:1000]))

    def track_share_of_numpy_allclose_on_one_thread(self, difference, dtype):
        own = partial(calipers.compare, self.a, self.b)
        with calipers.num_threads(1):
            return common.speedup(partial(np.allclose, self.a, self.b), own)

    track_share_of_numpy_allclose_on_one_thread.unit = "of numpy.allclose"

    def peakmem_arrays_alone(self, difference, dtype):
        """Hold the arrays: what the other exceeds is what a call allocates."""

    def peakmem_compare(self, difference, dtype):
        calipers.compare(self.a, self.b)


class AssertClose:
    params = ([10, 1000, common.SIZE], ["float64", "float32"])
    param_names = ("n", "dtype")

    def setup(self, n, dtype):
        self.a, self.b = common.equal_pair(dtype, min(n, common.SIZE))
        self.own = partial(calipers.assert_close, self.a, self.b)
        self.own()

    def time_assert_close(self, n, dtype):
        self.own()

    def track_over_numpy(self, n, dtype):
        return common.speedup(self.own, peers.numpy_assert_allclose(self.a, self.b))

    def track_over_torch(self, n, dtype):
        return common.speedup(self.own, peers.torch_assert_close(self.a, self.b))

    track_over_numpy.unit = "times numpy.testing"
    track_over_torch.unit = "times torch.testing"


class Nested:
    def setup(self):
        self.state = {f"layer{i}": [np.ones((8, 8)), np.zeros(8)] for i in range(100)}
        self.other = {name: [x.copy() for x in pair] for name, pair in self.state.items()}

    def time_assert_close_of_200_leaves(self):
        calipers.assert_close(self.state, self.other)


class Approx:
    """What a test writes after ``==``."""

    params = (["float", "array", "dict"],)
    param_names = ("case",)

    def setup(self, case):
        x = np.linspace(1.0, 2.0, 10)
        pairs = {
            "float": (0.1 + 0.2, 0.3),
            "array": (x, x.copy()),
            "dict": ({"loss": 0.1 + 0.2, "weights": x}, {"loss": 0.3, "weights": x.copy()}),
        }
        self.actual, self.expected = pairs[case]
        self.time_approx(case)

    def time_approx(self, case):
        assert self.actual == calipers.approx(self.expected)

    def track_over_pytest(self, case):
        if case == "dict":
            raise NotImplementedError("pytest.approx takes no arrays in dicts")
        peer = peers.pytest_approx(self.actual, self.expected)
        return common.speedup(partial(self.time_approx, case), peer, repeat=21)

    track_over_pytest.unit = "times pytest.approx"


class Tensors:
    """Small tensors of torch, as they come to a test."""

    params = (["allclose", "isclose", "assert_close"],)
    param_names = ("question",)

    def setup(self, question):
        pair = peers.torch_tensors(*common.small_pairs()["10 float64"])
        self.own = partial(getattr(calipers, question), *pair)
        self.peer = partial(peers.torch_function(question), *pair)
        self.own()

    def time_own(self, question):
        self.own()

    def track_over_torch(self, question):
        return common.speedup(self.own, self.peer, repeat=21)

    track_over_torch.unit = "times torch"
