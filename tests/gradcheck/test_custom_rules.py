"""Custom rules of torch and jax, right ones and such as people write; operations of torch's own."""

import numpy as np
import pytest

import calipers

torch = pytest.importorskip("torch")
functional = torch.nn.functional
linalg = torch.linalg
pytestmark = [
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:Sparse"),  # checks, and the state of torch's layouts
]


def random(*shape, dtype=torch.double, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(shape, dtype=dtype, generator=generator).requires_grad_()


def checked(f, inputs, **options):
    return calipers.gradcheck(f, inputs, raise_exception=False, **options)


def rule(forward, backward, push=None, materialize=True):
    """Return a torch function with rules that take what was saved: the inputs, then the output."""

    class Rule(torch.autograd.Function):
        @staticmethod
        def forward(ctx, *inputs):
            ctx.set_materialize_grads(materialize)
            found = forward(*inputs)
            outputs = found if isinstance(found, tuple) else (found,)
            ctx.save_for_backward(*inputs, *outputs)
            ctx.save_for_forward(*inputs, *outputs)
            return found

        @staticmethod
        def backward(ctx, *w):
            return backward(*ctx.saved_tensors, *w)

        if push is not None:

            @staticmethod
            def jvp(ctx, *v):
                return push(*ctx.saved_tensors, *v)

    return Rule.apply


X, Y = random(4), random(4, seed=1)
MATRIX, OTHER = random(6, 3), random(4, 3, seed=1)
Z = random(4, dtype=torch.cdouble)


def untracked(x):
    with torch.no_grad():
        size = x.norm()
    return x / size


def hooked(x):
    y = x.tanh()
    y.register_hook(lambda w: w.clamp(-0.1, 0.1))
    return y


def writing(w):
    return w.mul_(2)


class Growing(torch.autograd.Function):
    """Saves what its backward changes."""

    @staticmethod
    def forward(ctx, x):
        ctx.state = x.detach().clone()
        return x**2

    @staticmethod
    def backward(ctx, w):
        gradient = 2 * ctx.state * w
        ctx.state += 0.1
        return gradient


class LastOne(torch.autograd.Function):
    """Saves its input where the next call finds another one."""

    seen = None

    @staticmethod
    def forward(ctx, x):
        LastOne.seen = x.detach()
        return x**2

    @staticmethod
    def backward(ctx, w):
        return 2 * LastOne.seen * w


class Doubled(torch.autograd.Function):
    """Changes what it has saved."""

    @staticmethod
    def forward(ctx, x):
        ctx.x = x.clone()
        y = ctx.x**2
        ctx.x.mul_(2)
        return y

    @staticmethod
    def backward(ctx, w):
        return 2 * ctx.x * w


WRONG = {
    "detached": (lambda x, y: x * y.detach() + y, (X, Y), "/ d in[1]"),
    "untracked": (untracked, (X,), "a mean or sum term is probably missing"),
    "through numpy": (
        lambda x, y: x * torch.from_numpy(np.sin(y.detach().numpy())),
        (X, Y),
        "d in[1][2] is wrong: analytic 0",
    ),
    "an item": (lambda x: x * x.max().item(), (X,), "analytic 0"),
    "data": (lambda x: x.data * x, (X,), "half of what it should be"),
    "clipped": (hooked, (X,), "not linear in its cotangent"),
    "grown": (Growing.apply, (X,), "not reentrant"),
    "the last one": (LastOne.apply, (X,), "depends on the last call of f"),
    "changed": (Doubled.apply, (X,), "twice too large"),
    "written": (rule(lambda x: 2 * x, lambda x, y, w: writing(w)), (X,), "its cotangent"),
    "reversed": (rule(lambda x: x + 0, lambda x, y, w: -w), (X,), "of the opposite sign"),
    "straight through": (rule(torch.round, lambda x, y, w: w), (X,), ""),
    "twice": (
        rule(lambda x: x**2, lambda x, y, w: 2 * x * w + 2 * x * w),
        (X,),
        "twice too large",
    ),
    "bias by mean": (
        rule(lambda x, a, b: x @ a.T + b, lambda x, a, b, y, w: (w @ a, w.T @ x, w.mean(0))),
        (MATRIX, OTHER, X),
        "1/6: a mean over an axis of length 6",
    ),
    "not summed": (
        rule(lambda x, s: x * s, lambda x, s, y, w: (w * s, (w * x)[0, :1])),
        (MATRIX, random(1)),
        "not summed over all broadcast axes",
    ),
    "gathered": (
        rule(lambda x: x.sort().values, lambda x, y, w: w.gather(0, x.sort().indices)),
        (random(6, seed=3),),
        "is wrong: analytic 1, numerical 0",
    ),
    "not conjugated": (
        rule(lambda a, b: a * b, lambda a, b, y, w: (w * b.conj(), w * a)),
        (Z, random(4, dtype=torch.cdouble, seed=1)),
        "/ d in[1]",
    ),
    "sign conjugated": (
        rule(torch.abs, lambda z, y, w: w * z.sgn().conj()),
        (Z,),
        "it is the conjugate of the right one",
    ),
    "in single": (
        rule(lambda x: (50 * x).sin() / 50, lambda x, y, w: (50 * x.float()).cos().double() * w),
        (random(40),),
        "is wrong: ",
    ),
    "second output": (
        rule(lambda a, b: (a * b, a + b), lambda a, b, y, z, v, w: (v * b + w, v * a)),
        (X, Y),
        "d out[1][0] / d in[1][0]",
    ),
    "None for ones": (
        rule(
            lambda x: (x.sin(), x.cos()),
            lambda x, y, z, v, w: (1 if v is None else v) * z - (0 if w is None else w) * y,
            materialize=False,
        ),
        (X,),
        "a cotangent of None",
    ),
    "None is not taken": (
        rule(lambda x: (x.sin(), x.cos()), lambda x, y, z, v, w: v * z - w * y, materialize=False),
        (X,),
        "raises for a cotangent of None",
    ),
    "ctc without log_softmax": (
        lambda x: functional.ctc_loss(
            x, torch.tensor([[1, 2], [3, 3]]), torch.tensor([6, 6]), torch.tensor([2, 2])
        ),
        (random(6, 2, 4),),
        "is wrong: ",
    ),
    "forward mode": (
        rule(torch.sin, lambda x, y, w: x.cos() * w, lambda x, y, v: -x.cos() * v),
        (X,),
        "is wrong in jvp: ",
    ),
}


@pytest.mark.parametrize("fast_mode", [False, True])
@pytest.mark.parametrize("name", WRONG)
def test_wrong_rules(name, fast_mode):
    f, inputs, told = WRONG[name]
    before = [x.detach().clone() for x in inputs]
    forward = name == "forward mode"
    report = checked(f, inputs, fast_mode=fast_mode, check_forward_ad=forward)
    if name == "straight through":  # round may as well be (2**52 + x) - 2**52, whose slope is 1
        assert report.verdict in ("FAIL", "INCONCLUSIVE")
        return
    assert report.verdict == "FAIL"
    if not fast_mode:  # which looks at one column
        assert told in " ".join(str(report).split())
    assert all(map(torch.equal, inputs, before))


LEFT_OUT = {
    "detached": lambda x, y, w: 3 * x.detach() ** 2 * w,
    "of the output": lambda x, y, w: 3 * (y.detach() / x) * w,
}


@pytest.mark.parametrize("backward", LEFT_OUT.values(), ids=LEFT_OUT)
def test_wrong_second_derivatives(backward):
    f = rule(lambda x: x**3, backward)
    assert checked(f, X).verdict == "PASS"
    report = calipers.gradgradcheck(f, X, raise_exception=False)
    assert report.verdict == "FAIL"
    assert "second order: d grad[0]" in report.reason


def test_second_derivatives_that_torch_has_not_are_found():
    """Autograd stops at a sparse layout, and gradgradcheck of torch's asks no further."""
    where = torch.tensor([[0, 1], [1, 2]])

    def f(values, x):
        return torch.sparse.mm(torch.sparse_coo_tensor(where, values, (3, 3)), x)

    inputs = random(2), random(3, 3)
    assert checked(f, inputs).verdict == "PASS"
    report = calipers.gradgradcheck(f, inputs, raise_exception=False)
    assert report.verdict == "FAIL"
    assert "not symmetric" in report.reason
    missing = {(e.output, e.input) for e in report.failures if e.verdict == "FAIL"}
    assert missing == {(0, 1), (0, 2)}
    assert "the whole block is zero" in str(report)


def test_torch_loses_the_tangent_of_a_lower_factor():
    """Backward, cholesky_inverse is right; forward it is wrong, which torch's own test passes."""
    x = (torch.eye(4, dtype=torch.double) + 0.1 * random(4, 4).tril()).detach().requires_grad_()

    def f(x):
        return torch.cholesky_inverse(x.tril())

    assert checked(f, x).verdict == "PASS"
    report = checked(f, x, check_forward_ad=True)
    right = torch.func.jacfwd(lambda x: linalg.inv(x.tril() @ x.tril().T))(x.detach())
    theirs = torch.func.jacfwd(f)(x.detach())
    if (theirs - right).abs().max() < 1e-9:
        pytest.skip("this torch has it right")
    assert report.verdict == "FAIL"
    assert "is wrong in jvp: " in report.reason


def lstsq(a, b):
    return linalg.lstsq(a, b).solution


@pytest.mark.parametrize("fast_mode", [False, True])
@pytest.mark.parametrize("shape", [(5, 3), (3, 5), (4, 4)])
def test_least_squares_round_otherwise_from_call_to_call(shape, fast_mode):
    a, b = random(*shape), random(shape[0], 2, seed=1)
    assert checked(lstsq, (a, b), fast_mode=fast_mode).verdict == "PASS"
    report = checked(lambda a, b: lstsq(a, b) * a.detach().norm(), (a, b), fast_mode=fast_mode)
    assert report.verdict == "FAIL"
    assert "deterministic" not in report.reason


def test_gradients_are_of_the_point_that_they_are_asked_for_at():
    from calipers._gradcheck.adapt import function_library

    x = torch.zeros(2, dtype=torch.double, requires_grad=True)
    library = function_library((x,))
    found = library.differentiated(torch.sin, (x,), False, None, (), ("0",))
    for point in (0.0, 1.5, 0.0):
        (gradient,) = found.vjp(np.full(2, point), np.ones(2))
        np.testing.assert_allclose(gradient, np.cos(point))


TARGET = torch.tensor([0, 2, 1, 2, 0, 1])
SQUARE = random(4, 4)
IMAGE = random(1, 2, 4, 4)
GRID = (0.4 * random(1, 3, 3, 2, seed=2)).detach().requires_grad_()
BAG = torch.tensor([[0, 1], [1, 1]])
RIGHT = {
    "eigh": (lambda a: (linalg.eigh(a + a.mT)[0], linalg.eigh(a + a.mT)[1].abs()), (SQUARE,)),
    "svd": (lambda a: linalg.svd(a, full_matrices=False).S, (OTHER,)),
    "qr": (linalg.qr, (OTHER,)),
    "cholesky": (lambda a: linalg.cholesky(a @ a.mT + torch.eye(4, dtype=a.dtype)), (SQUARE,)),
    "solve": (lambda a, b: linalg.solve(a, b), (SQUARE, OTHER)),
    "triangular": (lambda a, b: linalg.solve_triangular(a, b, upper=True), (SQUARE, OTHER)),
    "pinv": (linalg.pinv, (OTHER,)),
    "matrix_exp": (torch.matrix_exp, (SQUARE,)),
    "slogdet": (lambda a: linalg.slogdet(a)[1], (SQUARE,)),
    "eigvals": (lambda a: linalg.eigvals(a).abs(), (SQUARE,)),
    "fftn": (lambda x: torch.fft.fftn(x, norm="ortho"), (Z.reshape(2, 2),)),
    "irfft": (lambda x: torch.fft.irfft(torch.fft.rfft(x) ** 2), (X,)),
    "logcumsumexp": (lambda x: x.logcumsumexp(1), (MATRIX,)),
    "cumprod": (lambda x: x.cumprod(0), (MATRIX,)),
    "special": (
        lambda x: tuple(getattr(torch.special, n)(x) for n in ("erf", "i0e", "log_ndtr", "sinc")),
        (X,),
    ),
    "lgamma": (lambda x: (torch.lgamma(x.exp()), torch.digamma(x.exp())), (X,)),
    "conv1d": (
        lambda x, k: functional.conv1d(x, k, stride=2, padding=1, groups=2),
        (random(1, 4, 7), random(2, 2, 3)),
    ),
    "conv_transpose2d": (
        lambda x, k: functional.conv_transpose2d(x, k, stride=2, output_padding=1),
        (random(1, 2, 2, 3), random(2, 2, 2, 2)),
    ),
    "max_pool2d": (lambda x: functional.max_pool2d(x, 2), (IMAGE,)),
    "adaptive_avg_pool": (lambda x: functional.adaptive_avg_pool2d(x, 3), (IMAGE,)),
    "interpolate": (lambda x: functional.interpolate(x, scale_factor=2, mode="bicubic"), (IMAGE,)),
    "grid_sample": (
        lambda x, g: functional.grid_sample(x, g, align_corners=False),
        (IMAGE, GRID),
    ),
    "group_norm": (lambda x: functional.group_norm(x, 2), (random(2, 4, 3),)),
    "cross_entropy": (
        lambda x: functional.cross_entropy(x, TARGET, label_smoothing=0.1, ignore_index=1),
        (MATRIX,),
    ),
    "kl_div": (
        lambda x, y: functional.kl_div(x, y.softmax(1), reduction="batchmean"),
        (MATRIX, random(6, 3, seed=2)),
    ),
    "ctc_loss": (
        lambda x: functional.ctc_loss(
            x.log_softmax(-1),
            torch.tensor([[1, 2], [3, 3]]),
            torch.tensor([6, 6]),
            torch.tensor([2, 2]),
        ),
        (random(6, 2, 4),),
    ),
    "embedding_bag": (lambda w: functional.embedding_bag(BAG, w, mode="mean"), (random(5, 3),)),
    "scatter": (
        lambda x, v: x.scatter_reduce(0, torch.tensor([0, 0, 3]), v, "mean"),
        (X, random(3, seed=2)),
    ),
    "index_add": (
        lambda x, v: x.index_add(0, torch.tensor([0, 0, 3]), v, alpha=2),
        (X, random(3, seed=2)),
    ),
    "index_put": (
        lambda x, v: x.index_put((torch.tensor([0, 0, 3]),), v, accumulate=True),
        (X, random(3, seed=2)),
    ),
    "topk": (lambda x: (x.topk(2).values, x.median(), x.kthvalue(2).values), (MATRIX,)),
    "attention": (
        functional.scaled_dot_product_attention,
        (random(2, 3, 4), random(2, 5, 4, seed=1), random(2, 5, 4, seed=2)),
    ),
    "stft": (
        lambda x: torch.stft(
            x, 8, return_complex=True, window=torch.hann_window(8, dtype=torch.double)
        ),
        (random(24),),
    ),
    "complex power": (lambda z: (z**2.5, z.log(), torch.polar(z.abs(), z.angle())), (Z,)),
    "sparse": (
        lambda v, x: torch.sparse.mm(
            torch.sparse_coo_tensor(torch.tensor([[0, 1], [1, 2]]), v, (3, 3)), x
        ),
        (random(2), random(3, 3)),
    ),
    "csr": (lambda x: x.to_sparse_csr() @ torch.ones(3, 2, dtype=x.dtype), (random(3, 3),)),
}


@pytest.mark.parametrize("fast_mode", [False, True])
@pytest.mark.parametrize("name", RIGHT)
def test_right_operations(name, fast_mode):
    f, inputs = RIGHT[name]
    report = checked(f, inputs, fast_mode=fast_mode, check_grad_dtypes=True)
    assert report.verdict == "PASS", str(report)


TWICE = ["qr", "pinv", "matrix_exp", "conv1d", "group_norm", "index_put", "logcumsumexp", "scatter"]


@pytest.mark.parametrize("name", TWICE)
def test_right_second_derivatives(name):
    f, inputs = RIGHT[name]
    report = calipers.gradgradcheck(f, inputs, raise_exception=False)
    assert report.verdict == "PASS", str(report)


@pytest.mark.slow
def test_second_derivatives_of_attention_that_is_all_but_saturated():
    def drawn(seed):
        generator = torch.Generator().manual_seed(seed)
        return (18 * torch.rand(1, 2, 8, dtype=torch.double, generator=generator) - 9).detach()

    def attention(q, k, v):
        weights = (q @ k.mT / 8**0.5).masked_fill(torch.ones(2, 2).triu(1).bool(), -torch.inf)
        return weights.softmax(-1) @ v

    inputs = [drawn(seed).requires_grad_() for seed in (0, 9, 20)]
    report = calipers.gradgradcheck(attention, inputs, raise_exception=False)
    assert report.verdict != "FAIL"
