"""gradcheck against torch's, of the same functions."""

from functools import partial

import numba
import numpy as np

import calipers

from . import common, peers


@numba.njit
def cubic(x):
    return x * x * x - x


def cubic_vjp(x, w):
    return w * (3 * x * x - 1)


def cubic_jac(x):
    return np.diag(3 * x * x - 1)


compiled_vjp = numba.njit(cubic_vjp)

# The derivative that the caller passes, and the vjp that torch takes. The Jacobian is diagonal, so
# that a vjp is a jvp, too.
FORMS = {
    "jac": ("jac", cubic_jac, compiled_vjp),
    "vjp": ("vjp", cubic_vjp, cubic_vjp),
    "compiled vjp": ("vjp", compiled_vjp, compiled_vjp),
    "compiled jvp": ("jvp", compiled_vjp, compiled_vjp),
}


class Compiled:
    """An elementwise compiled function, whose derivative the caller gives."""

    params = ([10, 1000], list(FORMS))
    param_names = ("n", "form")

    def setup(self, n, form):
        self.x = np.random.default_rng(0).random(min(n, common.SIZE))
        name, call, _ = FORMS[form]
        self.own = partial(calipers.gradcheck, cubic, self.x, **{name: call})
        self.own()

    def time_gradcheck(self, n, form):
        self.own()

    def track_over_torch(self, n, form):
        return common.speedup(self.own, self._torch(form), repeat=7)

    def track_over_torch_in_a_row(self, n, form):
        """Repeated checks find their memory in the caches; after torch's they do not."""
        return common.speedup_in_a_row(self.own, self._torch(form))

    def _torch(self, form):
        return peers.torch_gradcheck(cubic, FORMS[form][2], self.x)

    track_over_torch.unit = track_over_torch_in_a_row.unit = "times torch"


class Torch:
    """A torch function on a tensor: both derive the gradient by autograd."""

    params = ([10, 1000],)
    param_names = ("n",)

    def setup(self, n):
        x = np.random.default_rng(0).random(min(n, common.SIZE))
        self.own, self.peer = peers.torch_function_checks(x)
        self.own()

    def time_gradcheck(self, n):
        self.own()

    def track_over_torch(self, n):
        return common.speedup(self.own, self.peer, repeat=7)

    track_over_torch.unit = "times torch"


class Layer:
    """A small torch layer, as in a test: what it takes is more than the calls of f."""

    params = (["gradcheck", "gradgradcheck"],)
    param_names = ("check",)

    def setup(self, check):
        self.own, self.peer = peers.torch_layer_checks(check)
        self.own()

    def time_check(self, check):
        self.own()

    def track_over_torch(self, check):
        return common.speedup(self.own, self.peer, repeat=15)

    track_over_torch.unit = "times torch"


class FastMode:
    def setup(self):
        self.x = np.random.default_rng(0).random(min(100_000, common.SIZE))
        self.own = partial(calipers.gradcheck, cubic, self.x, vjp=cubic_vjp, fast_mode=True)

    def time_fast_mode(self):
        self.own()

    def track_calls_of_f(self):
        return max(self.own(seed=seed).calls["f"] for seed in range(9))

    track_calls_of_f.unit = "calls of f"


class Memory:
    """The Jacobian of 1500 by 1500 takes 18 MB: more than that is what a check allocates."""

    def setup(self):
        self.x = np.random.default_rng(0).random(1500)
        calipers.gradcheck(cubic, self.x[:10], vjp=cubic_vjp)

    def peakmem_jacobian_alone(self):
        np.ones((1500, 1500))

    def peakmem_gradcheck(self):
        calipers.gradcheck(cubic, self.x, vjp=cubic_vjp)
