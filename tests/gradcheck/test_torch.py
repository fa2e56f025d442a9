"""Right derivatives of torch's own operations, where something else was taken for an error."""

import threading
import time
import warnings
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

import calipers
from tests.data.gradcheck_functions import THREE

torch = pytest.importorskip("torch")
functional = torch.nn.functional
pytestmark = [
    pytest.mark.filterwarnings("ignore:.torch.jit.script:DeprecationWarning"),  # by forward mode
    pytest.mark.filterwarnings("ignore:gradcheck compared nothing"),  # where all slopes are 0
]


def leaf(*numbers, dtype=None):
    return torch.tensor(numbers, dtype=dtype or torch.double).requires_grad_()


def random(*shape, dtype=torch.double):
    return torch.randn(shape, dtype=dtype, generator=torch.Generator().manual_seed(0))


def checked(f, *inputs, **options):
    return calipers.gradcheck(f, inputs, raise_exception=False, **options)


def twice(f, *inputs, **options):
    return calipers.gradgradcheck(f, inputs, raise_exception=False, **options)


class Cube(torch.autograd.Function):
    """x**3, with a rule for batches or a derivative of its own in what is derived from it."""

    generate_vmap_rule = False

    @staticmethod
    def forward(x):
        return x**3

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx, w):
        (x,) = ctx.saved_tensors
        return 3 * x**2 * w


def test_vmap_may_round_otherwise_than_the_function():
    def loss(x):
        target = torch.ones_like(x)
        return functional.binary_cross_entropy_with_logits(x, target, reduction="none")

    x = torch.linspace(-9, 9, 40, dtype=torch.double).requires_grad_()
    assert checked(loss, x).verdict == "PASS"


def test_vmap_that_is_not_the_function():
    # torch 2.13 takes the value of the last of a batch for all of it.
    def fill(x, value):
        return x.index_fill(0, torch.tensor([0]), value)

    x, value = (
        leaf(1j, 2, 3, 4, 5, dtype=torch.complex128),  # so many that they are taken in batches
        torch.tensor(0.5 - 1j, dtype=torch.complex128),
    )
    assert checked(fill, x, value.requires_grad_()).verdict == "PASS"


def test_a_batch_that_is_of_its_last_point():
    class Last(Cube):
        @staticmethod
        def vmap(info, dims, x):
            last = x.movedim(dims[0], 0)[-1:].expand(info.batch_size, *x.shape[1:])
            return last**3, 0

    assert checked(Last.apply, leaf(*range(1, 11))).verdict == "PASS"
    assert twice(Last.apply, leaf(*range(1, 11))).verdict == "PASS"


def test_several_outputs_are_taken_in_batches():
    calls = []

    def f(x, y):
        calls.append(x)
        return x.sin(), (x * y).sum(), torch.complex(x, y)

    report = checked(f, leaf(*range(20)), leaf(*range(20, 40)))
    assert report.verdict == "PASS"
    assert len(calls) < 20


def test_gradients_are_taken_in_batches():
    calls = []

    def f(x, w):
        calls.append(x)
        return torch.tanh(x @ w)

    x, w = 0.3 * random(5, 6), 0.3 * random(6, 4)
    report = twice(f, x.requires_grad_(), w.requires_grad_())
    assert report.verdict == "PASS"
    assert len(calls) < 80  # and not twice for each of 74 numbers, and 30 for others


def test_a_wrong_second_derivative_is_found_in_batches():
    class Constant(Cube):
        generate_vmap_rule = True

        @staticmethod
        def backward(ctx, w):
            (x,) = ctx.saved_tensors
            return 3 * x.detach() ** 2 * w  # which has no slope by x

    report = twice(Constant.apply, leaf(*range(1, 11)))
    assert report.verdict == "FAIL"
    assert "wrong" in report.reason


@pytest.mark.parametrize(
    "f",
    [
        lambda x: functional.normalize(x, dim=1),
        lambda x: functional.cosine_similarity(x, 2 * x, dim=1),
        lambda x: functional.rms_norm(x, (1,)),
    ],
)
def test_a_jacobian_that_is_zero_but_for_rounding_is_linear(f):
    x = leaf([0.7], [-8.3], [3.1])
    assert checked(f, x, check_forward_ad=True).verdict == "PASS"


def test_an_input_that_is_nan_is_no_reason_for_blame():
    assert checked(torch.nansum, leaf(1, float("nan"), 3), check_forward_ad=True).verdict != "FAIL"


@pytest.mark.parametrize("number", [2.9, -4.827])
def test_a_hessian_that_is_zero_but_for_rounding_is_symmetric(number):
    assert twice(torch.linalg.vector_norm, leaf(number)).verdict == "PASS"


def test_none_for_zeros_may_be_rounded_otherwise():
    def decomposed(x):
        values, vectors = torch.linalg.eigh(x + x.mH)
        return values, vectors.abs()

    x = random(5, 5, dtype=torch.complex128)
    assert checked(decomposed, x.requires_grad_()).verdict == "PASS"


def test_what_autograd_knows_to_be_zero():
    assert twice(functional.l1_loss, leaf(0.3, 2), leaf(1, -1)).verdict == "PASS"
    empty = torch.zeros(0, 0, dtype=torch.double).requires_grad_()
    assert checked(torch.linalg.slogdet, empty, check_forward_ad=True).verdict == "PASS"


def test_a_gradient_that_is_constant():
    assert twice(torch.copysign, leaf(0.3, 2), leaf(1, -1)).verdict == "PASS"
    assert twice(torch.nextafter, leaf(0.3, 2), leaf(1, -1)).verdict == "PASS"


def test_eigenvalues_of_real_matrices_are_complex_numbers():
    x = random(5, 5).requires_grad_()
    assert checked(torch.linalg.eigvals, x, check_forward_ad=True).verdict == "PASS"


def test_a_diagonal_that_is_real_in_a_complex_matrix():
    x = random(5, 5, dtype=torch.complex128).requires_grad_()

    def factor(x):
        return torch.linalg.cholesky(x @ x.mH + torch.eye(5))

    assert checked(factor, x, check_forward_ad=True).verdict == "PASS"


@pytest.mark.slow
def test_a_jump_within_rounding_is_no_kink_where_the_derivative_is_right():
    # Of logits of 8, rounded to eps*8 within, the loss of a sure answer is 1e-4.
    for seed in range(40):
        torch.manual_seed(seed)
        x = (torch.rand(8, 5, dtype=torch.double) * 18 - 9).requires_grad_()
        assert checked(lambda x: functional.log_softmax(x, 1), x).verdict == "PASS"


def test_columns_in_doubt_are_asked_for_in_the_same_batches():
    called = []

    def f(x):
        called.append(x.shape)
        return functional.log_softmax(x, 1)

    torch.manual_seed(3)
    x = (torch.rand(8, 5, dtype=torch.double) * 18 - 9).requires_grad_()
    report = checked(f, x)
    assert report.verdict == "PASS"
    assert report.calls["f"] > 400
    assert len(called) < 40


@pytest.mark.parametrize(
    "f",
    [
        lambda x: x**2 * torch.exp(x),
        lambda x: x * x.abs(),
        lambda x: x * functional.gelu(x),
        lambda x: x * functional.mish(x),
    ],
)
def test_a_double_root(f):
    assert checked(f, leaf(0, 0, 0)).verdict == "PASS"
    assert checked(f, leaf(0, 1, 2)).verdict == "PASS"


def test_a_kink_at_a_root_is_one():
    assert checked(torch.abs, leaf(0, 1)).verdict == "NONSMOOTH"


class Scaled(torch.autograd.Function):
    """Its gradient is wrong for cotangents that are not contiguous."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x.sin()

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return (g if g.is_contiguous() else 1.5 * g) * x.cos()


def test_gradients_do_not_depend_on_how_cotangents_lie():
    x = torch.rand(4, dtype=torch.float64, requires_grad=True)
    options = {"gen_non_contig_grad_outputs": True, "raise_exception": False}
    report = calipers.gradgradcheck(Scaled.apply, (x,), first_order=False, **options)
    assert report.verdict == "FAIL"
    assert "a cotangent that is not contiguous differs by" in report.reason
    assert calipers.gradgradcheck(torch.sin, (x,), **options)
    report = calipers.gradcheck(Scaled.apply, (x,), raise_exception=False)
    assert "as if it were contiguous" in report.reason


def test_so_it_is_without_a_library():
    def vjp(x, w):
        return (w if w.flags.c_contiguous else 1.5 * w) * np.cos(x)

    def vjp_vjp(x, w, u):
        k = 1 if w.flags.c_contiguous else 1.5
        return -k * u * w * np.sin(x), k * u * np.cos(x)

    forms = {"vjp": vjp, "vjp_vjp": vjp_vjp, "raise_exception": False}
    assert calipers.gradgradcheck(np.sin, np.ones(3), **forms)
    report = calipers.gradgradcheck(np.sin, np.ones(3), **forms, gen_non_contig_grad_outputs=True)
    assert "a cotangent that is not contiguous differs by" in report.reason


def test_complex_directions_lie_where_torch_may_read_them():
    x, y = leaf(1, 2, 3), leaf(1, 2j, 3, dtype=torch.cdouble)
    for f in (torch.mul, lambda x, y: (x, x * y)):
        assert twice(f, x, y, check_fwd_over_rev=True).verdict == "PASS"
        assert checked(f, x, y, check_forward_ad=True).verdict == "PASS"


class SlopeOfSine(torch.autograd.Function):
    """The gradient of sin, with one of its own that is wrong by 0.1 %."""

    @staticmethod
    def forward(ctx, x, g):
        ctx.save_for_backward(x, g)
        return g * x.cos()

    @staticmethod
    def backward(ctx, u):
        x, g = ctx.saved_tensors
        return -1.001 * u * g * x.sin(), u * x.cos()


class Sine(torch.autograd.Function):
    """sin, of which a second derivative is wrong."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x.sin()

    @staticmethod
    def backward(ctx, g):
        return SlopeOfSine.apply(*ctx.saved_tensors, g)


@pytest.mark.parametrize("dtype", [torch.double, torch.float32, torch.bfloat16, torch.int64])
def test_cotangents_are_taken_in_the_dtypes_of_outputs(dtype):
    x, w = leaf(1, 2, 3), torch.ones(3, dtype=dtype)
    assert twice(torch.sin, x, grad_outputs=w).verdict == "PASS"
    assert twice(torch.sin, leaf(1, 2, 3, dtype=torch.cdouble), grad_outputs=w).verdict == "PASS"
    report = twice(Sine.apply, x, grad_outputs=w)
    assert report.verdict == "FAIL"
    assert report.resolution == 1e-6


def test_second_derivatives_none_of_which_is_checked():
    with pytest.raises(ValueError, match="pass check_rev_over_rev= with vjp_vjp=, or"):
        twice(torch.sin, leaf(1), check_rev_over_rev=False)


def test_complex_cotangents_of_real_outputs():
    with pytest.raises(
        TypeError, match="grad_outputs have an array of dtype complex64, but its output"
    ):
        twice(torch.sin, leaf(1), grad_outputs=torch.ones(1, dtype=torch.cfloat))


class Overwriting(torch.autograd.Function):
    """Its derivatives are right, and stored where their directions were."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        ctx.save_for_forward(x)
        return x.sin()

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return g.mul_(x.cos())

    jvp = backward


@pytest.mark.parametrize("fast_mode", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.double])
def test_directions_that_are_written_into(dtype, fast_mode):
    x = leaf(1, 2, 3, dtype=dtype)
    report = checked(Overwriting.apply, x, fast_mode=fast_mode)
    assert report.reason.startswith("vjp changes its arguments: its cotangent")
    forward = {"check_forward_ad": True, "check_backward_ad": False}
    report = checked(Overwriting.apply, x, fast_mode=fast_mode, **forward)
    assert report.reason.startswith("jvp changes its arguments: its tangent")


@pytest.mark.parametrize(
    ("f", "told"),
    [
        (lambda x: {"a": "x"}, r"output \['a'\] of f must be an array of numbers, got str"),
        (lambda x: None, "output 0 of f must be an array of numbers, got None"),
        (lambda x: (x, {x}), "output 1 of f must be an array of numbers, got set"),
    ],
)
def test_results_that_are_no_tensors(f, told):
    x = torch.ones(2, dtype=torch.float64, requires_grad=True)
    with pytest.raises(TypeError, match=told):
        calipers.gradcheck(f, (x,))


def test_inputs_that_are_not_checked():
    x = torch.ones(2, dtype=torch.float64, requires_grad=True)
    with pytest.raises(ValueError, match="to require gradient"):
        calipers.gradcheck(lambda both: both[0] * both[1], ([x.detach(), x.detach()],))
    coarse = x.detach().to(torch.float8_e5m2).requires_grad_()
    with pytest.raises(TypeError, match=r"input 0 has dtype torch.float8_e5m2, which is not"):
        calipers.gradcheck(lambda x: x.float(), (coarse,))
    with torch.inference_mode(), pytest.raises(ValueError, match="outside of it"):
        calipers.gradcheck(torch.sin, (x,))


COARSE = [torch.bfloat16, torch.float16, torch.float8_e5m2]


@pytest.mark.parametrize("dtype", COARSE)
@pytest.mark.parametrize("check", [checked, twice])
def test_coarse_inputs_that_are_not_differentiated(check, dtype):
    pytest.importorskip("ml_dtypes")
    x, scale = leaf(1, 2, 3), torch.tensor([1.0, 2.0, 4.0]).to(dtype)
    assert check(lambda x, scale: torch.sin(x) * scale.double(), x, scale).verdict == "PASS"
    report = check(lambda x, held: torch.sin(x) * held["scale"].double(), x, {"scale": scale})
    assert report.verdict == "PASS"


@pytest.mark.filterwarnings("ignore:Sparse invariant checks:UserWarning")
def test_a_coarse_sparse_input_that_is_not_differentiated():
    pytest.importorskip("ml_dtypes")
    x, scale = leaf(1, 2, 3), torch.tensor([1.0, 0.0, 4.0]).bfloat16().to_sparse()
    report = checked(lambda x, scale: torch.sin(x) * scale.to_dense().double(), x, scale)
    assert report.verdict == "PASS"


@pytest.mark.parametrize("dtype", COARSE)
@pytest.mark.parametrize("check", [checked, twice])
def test_coarse_outputs_that_are_not_differentiated(check, dtype):
    pytest.importorskip("ml_dtypes")
    report = check(lambda x: (torch.sin(x), x.detach().to(dtype)), leaf(1, 2, 3))
    assert report.verdict == "PASS"
    if dtype is not torch.float8_e5m2:  # of which torch has no derivative
        report = check(
            lambda x: (x.to(dtype), torch.sin(x)), leaf(1, 2, 3), nondifferentiable_outputs=[0]
        )
        assert report.verdict == "PASS"


def test_a_function_of_tensors_beside_an_array_is_told_what_it_was_called_with():
    x = np.ones(2)
    for call in (
        lambda: calipers.jacobian(torch.sin, x),
        lambda: calipers.hessian(lambda x: torch.sin(x).sum(), x),
        lambda: calipers.gradcheck(torch.sin, x, vjp=lambda x, w: w * np.cos(x)),
    ):
        with pytest.raises(TypeError, match="must be Tensor") as caught:
            call()
        (note,) = caught.value.__notes__
        assert note.endswith("were passed: pass tensors")


@pytest.mark.parametrize(
    "f",
    [
        lambda x: torch.sin(x.detach()),
        lambda x: torch.from_numpy(np.sin(x.detach().numpy())),
        lambda x: x.sum().item(),
    ],
)
def test_results_that_carry_no_graph_are_said_to(f):
    report = checked(f, leaf(1, 2, 3))
    assert report.verdict == "FAIL"
    assert report.reason.endswith(
        "no output has an autograd graph: f detaches it, or leaves torch by .numpy() or .item()"
    )
    assert "graph" not in checked(lambda x: (f(x), x.detach() + x), leaf(1, 2, 3)).reason
    noisy = checked(lambda x: torch.dropout(x.detach(), 0.5, True), leaf(*range(1, 30)))
    assert str(noisy).count("f is not deterministic") == 1


def test_no_output_but_a_coarse_one_that_is_not_differentiated():
    pytest.importorskip("ml_dtypes")
    for dtype in COARSE:
        assert checked(lambda x, dtype=dtype: x.detach().to(dtype), leaf(1, 2, 3)).vacuous
    report = checked(lambda x: (x.detach().bfloat16(), x.detach()), leaf(1, 2, 3))
    assert report.verdict == "FAIL"
    assert "d out[1][0] / d in[0][0]" in report.reason


def test_coarse_outputs_that_are_differentiated_are_refused_with_advice():
    pytest.importorskip("ml_dtypes")
    told = r"output 1 of f has dtype float8_e5m2, .* 64, or name it in nondifferentiable_outputs"
    with pytest.raises(TypeError, match=told):
        checked(lambda x: (torch.sin(x), x.to(torch.float8_e5m2)), leaf(1, 2, 3))


@pytest.mark.filterwarnings("ignore:ComplexHalf support:UserWarning")
def test_tensors_without_a_dtype_in_numpy_are_named():
    x, half = leaf(1, 2, 3), torch.ones(3, dtype=torch.complex32)
    assert checked(lambda x, half: torch.sin(x), x, half).verdict == "PASS"  # as torch's
    assert checked(lambda both: torch.sin(both["a"]), {"b": half, "a": x}).verdict == "PASS"
    with pytest.raises(TypeError, match=r"^output 1 of f: complex32 tensors have no dtype in"):
        checked(lambda x: (torch.sin(x), half), x)
    coarse = {"a": x, "b": leaf(1).detach().to(torch.float8_e5m2).requires_grad_()}
    told = r"input 0\['b'\] has dtype torch.float8_e5m2, which is not"
    with pytest.raises(TypeError, match=told):
        checked(lambda both: torch.sin(both["a"]) * both["b"].float(), coarse)


def test_inputs_of_torch_functions_that_there_are_not():
    x = torch.tensor(THREE, requires_grad=True)
    with pytest.raises(ValueError, match="argnums names input 3"):
        calipers.gradcheck(torch.sin, (x,), argnums=(0, 3))


def test_several_inputs_that_are_no_tuple():
    x = torch.tensor(THREE, requires_grad=True)
    for check in (calipers.gradcheck, calipers.gradgradcheck):
        with pytest.raises(TypeError) as raised:
            check(lambda x, y: x * y, x)
        assert "several inputs go in a tuple" in raised.value.__notes__[0]
    assert calipers.gradcheck(lambda x, y: x * y, (x, x.detach().clone().requires_grad_()))


def test_other_arguments_of_torch_functions():
    x = torch.tensor(THREE, requires_grad=True)
    assert calipers.gradcheck(lambda x, power: x**power, (x,), args=(3,))


def test_torch_parameters_that_are_captured_are_told_of():
    w = torch.tensor(THREE, requires_grad=True)
    with pytest.warns(calipers.CalipersWarning, match="does not depend on the inputs"):
        report = calipers.gradcheck(lambda *given: w * w, (w.clone(),))
    assert report.vacuous


@pytest.mark.parametrize(
    "f",
    [
        lambda x: ((x - 1) ** 2).sum(),
        lambda x: torch.relu(-x),
        lambda x: torch.cos(x - 1),
    ],
)
def test_a_stationary_point_is_not_said_to_be_independence(f):
    x = torch.ones(2, dtype=torch.float64, requires_grad=True)
    with pytest.warns(calipers.CalipersWarning, match="though f depends on them"):
        report = calipers.gradcheck(f, x)
    assert "does not depend" not in report.reason
    with pytest.warns(calipers.CalipersWarning, match="does not depend on the inputs"):
        calipers.gradcheck(lambda x: 0 * f(x), x)


def cubes(x):
    return x**3


@pytest.mark.filterwarnings("error::UserWarning")
def test_a_kink_that_is_allowed_is_no_stationary_point():
    x = torch.zeros(2, dtype=torch.float64, requires_grad=True)
    for check in (calipers.gradcheck, calipers.gradgradcheck):
        report = check(torch.relu, (x,), allow={"NONSMOOTH"})
        assert report.verdict == "NONSMOOTH"
        assert not report.vacuous
        assert "stationary" not in report.reason


def test_a_warning_names_the_order():
    x = torch.zeros(2, dtype=torch.float64, requires_grad=True)
    with pytest.warns(calipers.CalipersWarning) as caught:
        calipers.gradgradcheck(lambda x: x**4, (x,))
    first, second = (str(w.message) for w in caught)
    assert first.startswith("gradcheck compared nothing: every derivative is 0")
    assert second.startswith("gradcheck compared nothing of second order: every derivative is 0")


class Cubes(torch.autograd.Function):
    """The third power."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x**3

    @staticmethod
    def backward(ctx, w):
        (x,) = ctx.saved_tensors
        return 3 * w * x.detach() ** 2


class WithoutSlope(Cubes):
    """The third power, with a backward that returns 0."""

    @staticmethod
    def backward(ctx, w):
        return 0 * w


class MixedCubes(Cubes):
    """The third power of a product, with a part of the backward detached."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return (x[0] * x[1] * x[2]) ** 2

    @staticmethod
    def backward(ctx, w):
        (x,) = ctx.saved_tensors
        y = x[0] * x[1] * x[2]
        return 2 * w * y * torch.stack([x[1] * x[2].detach(), x[0] * x[2], x[0] * x[1]])


def test_a_detached_backward_is_named():
    x = torch.tensor(THREE, requires_grad=True)
    report = calipers.gradgradcheck(Cubes.apply, (x,), raise_exception=False)
    assert report.verdict == "FAIL"
    assert "the whole block is zero: the backward may be detached or once_differ" in report.reason
    mixed = calipers.gradgradcheck(MixedCubes.apply, (x,), raise_exception=False)
    assert (
        "second order: differentiating the vjp (backward) gives a second derivative that is "
        in (mixed.reason)
    )
    # A first derivative of 0 has another cause.
    lost = calipers.gradcheck(WithoutSlope.apply, (x,), raise_exception=False)
    assert lost.reason.endswith("the whole block is zero")
    assert "once_differentiable" not in str(lost)


def test_a_first_derivative_that_was_not_checked_is_said_to_be_unchecked():
    x = torch.tensor(THREE, requires_grad=True)
    note = "; the first derivative was not checked (first_order=False)"
    report = calipers.gradgradcheck(cubes, (x,), first_order=False)
    assert report.reason.endswith(note)
    assert note not in calipers.gradgradcheck(cubes, (x,)).reason
    skewed = calipers.gradgradcheck(
        MixedCubes.apply, (x,), first_order=False, raise_exception=False
    )
    assert " ".join(str(skewed).split()).count("is not symmetric") == 1
    assert skewed.reason.endswith(note)


class WithoutRuleForVmap(torch.autograd.Function):
    """sin, with a jvp that takes what an operation takes, by a factor."""

    factor = 1.0

    @staticmethod
    def forward(x):
        return x.sin()

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)
        ctx.save_for_forward(*inputs)

    @staticmethod
    def backward(ctx, w):
        return w * ctx.saved_tensors[0].cos()

    @staticmethod
    def jvp(ctx, v):
        batched = v.dim() > 1 or torch._C._functorch.is_legacy_batchedtensor(v)
        scale = WithoutRuleForVmap.factor if batched else 1.0
        return scale * v * ctx.saved_tensors[0].cos()


@pytest.mark.parametrize("size", [2, 9])
def test_batches_of_tangents_need_no_rule_for_vmap(size, monkeypatch):
    x = torch.linspace(0.5, 2, size, dtype=torch.float64, requires_grad=True)
    options = {"check_forward_ad": True, "check_batched_forward_grad": True}
    assert torch.autograd.gradcheck(WithoutRuleForVmap.apply, (x,), **options)
    assert calipers.gradcheck(WithoutRuleForVmap.apply, (x,), **options)
    monkeypatch.setattr(WithoutRuleForVmap, "factor", 2.0)
    report = calipers.gradcheck(WithoutRuleForVmap.apply, x, raise_exception=False, **options)
    assert "of a batch differs" in report.reason


class Doubled(torch.autograd.Function):
    """2*x, with a gradient that is wrong by a factor."""

    @staticmethod
    def forward(ctx, x, factor):
        ctx.factor = factor
        return 2 * x

    @staticmethod
    def backward(ctx, g):
        return 2 * ctx.factor * g, None


@pytest.mark.parametrize("check", [checked, twice])
@pytest.mark.parametrize("factor", [1, 1.1])
def test_parameters_that_a_module_uses_itself_are_checked(check, factor):
    layer = torch.nn.Linear(3, 2, dtype=torch.double)
    held = [(p, p.detach().clone(), p._version) for p in layer.parameters()]

    def f(x, *parameters):
        return torch.tanh(x @ Doubled.apply(layer.weight, factor).mT) + layer.bias

    x = random(4, 3).requires_grad_()
    report = check(f, x, *layer.parameters())
    assert report.verdict == ("PASS" if factor == 1 else "FAIL")
    report = check(f, x.detach(), *layer.parameters())
    assert report.verdict == ("PASS" if factor == 1 else "FAIL")
    assert not report.vacuous
    for parameter, value, version in held:
        assert torch.equal(parameter, value)
        assert parameter._version == version
        assert parameter.grad is None


def test_parameters_that_a_module_uses_itself_are_checked_in_threads():
    layer = torch.nn.Linear(6, 4, dtype=torch.double)
    x = random(5, 6)

    def f(*given):
        time.sleep(1e-3)  # in which others are called
        return torch.tanh(layer(x))

    with ThreadPoolExecutor(4) as threads:
        assert checked(f, *layer.parameters(), workers=threads).verdict == "PASS"


def test_parameters_are_as_they_were_where_f_raises():
    layer, calls = torch.nn.Linear(3, 2, dtype=torch.double), []
    before = layer.weight.detach().clone()

    def f(*given):
        calls.append(given)
        if len(calls) > 4:
            raise RuntimeError("enough")
        return layer(torch.ones(3, dtype=torch.double))

    with pytest.raises(RuntimeError, match="enough"):
        checked(f, *layer.parameters())
    assert torch.equal(layer.weight, before)


def test_an_input_that_f_returns_without_asking_for_it():
    x = random(3).requires_grad_()
    assert checked(lambda given: x, x).verdict == "PASS"
    assert checked(lambda given: {"a": x, "b": x.sin()}, x).verdict == "PASS"
    assert twice(lambda given: (x, x.sin()), x).verdict == "PASS"


def test_what_is_captured_and_given_twice_is_told_of():
    x = random(3).requires_grad_()
    with pytest.warns(calipers.CalipersWarning) as caught:
        assert checked(lambda *given: x.sin(), x, x).vacuous
    assert "f uses input 0 and 1 itself" in str(caught[0].message)


@pytest.mark.parametrize("check", [checked, twice])
def test_what_is_captured_and_no_leaf_is_told_of(check):
    """It was held constant without a word."""
    x, w = random(3).requires_grad_(), 2 * random(3).requires_grad_()
    with pytest.warns(calipers.CalipersWarning, match="uses input 1 itself") as caught:
        assert check(lambda x, _: (w * x).sin(), x, w).verdict == "PASS"
    assert "held constant and is not checked" in str(caught[0].message)


def test_of_tensors_that_are_no_leaves_only_the_captured_ones_are_told_of():
    first, second = (3 * random(2, 3).requires_grad_()).unbind()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert checked(lambda x, y: x * y, first, second).verdict == "PASS"
        assert checked(lambda x: x * second, first).verdict == "PASS"


def test_parameters_stay_parameters():
    layer = torch.nn.Linear(3, 2, dtype=torch.double)

    def f(x, weight):
        layer.weight = weight  # which torch refuses of other tensors
        return torch.tanh(layer(x))

    inputs = random(4, 3).requires_grad_(), layer.weight
    assert checked(f, *inputs).verdict == "PASS"
    assert twice(f, *inputs).verdict == "PASS"


@pytest.mark.parametrize("dtype", [torch.double, torch.float32, torch.cdouble])
@pytest.mark.parametrize("forward", [False, True])
def test_a_constant_is_tested_as_everything_is(dtype, forward):
    def f(x):
        return torch.ones(2, dtype=dtype)

    tests = {"check_batched_grad": True, "check_grad_dtypes": True}
    report = checked(f, leaf(1, 2, 3, dtype=dtype), check_forward_ad=forward, **tests)
    assert report.verdict == "PASS"
    report = twice(f, leaf(1, 2, 3, dtype=dtype), check_fwd_over_rev=forward, **tests)
    assert report.verdict == "PASS"
    assert report.vacuous


def test_batches_of_tangents_of_a_gradient_are_of_no_constant():
    x = random(10).requires_grad_()
    assert twice(lambda x: 5 * x, x, check_fwd_over_rev=True).verdict == "PASS"


def test_an_output_that_is_constant_beside_x():
    def f(x):
        return x.sin(), x.cos() if x[0] == 1 else torch.ones(3, dtype=torch.double)

    with pytest.raises(calipers.GradcheckError):
        calipers.gradgradcheck(f, leaf(1, 2, 3), first_order=False)


class Centered(torch.nn.Module):
    """Its running mean is another tensor after each call."""

    def __init__(self):
        super().__init__()
        self.register_buffer("mean", torch.zeros(3, dtype=torch.double))
        self.history = {"last": self.mean}

    def forward(self, x):
        self.mean = 0.9 * self.mean + 0.1 * x.detach().mean(0)
        self.history["last"] = 0.5 * self.history["last"] + x.detach().mean(0)
        return torch.tanh(x - x.mean(0))


@pytest.mark.parametrize("options", [{}, {"check_fwd_over_rev": True}])
@pytest.mark.parametrize("wrapped", [False, True])
def test_means_that_a_module_keeps_are_of_no_batch(options, wrapped):
    module = Centered()
    f = (lambda x: module(x)) if wrapped else module
    x = random(4, 3).requires_grad_()
    assert twice(f, x, **options).verdict == "PASS"
    forward = {"check_forward_ad": True, "check_batched_forward_grad": True}
    assert checked(f, x, **forward).verdict == "PASS"
    assert torch.isfinite(module.mean + module.history["last"]).all()


def test_variables_that_f_writes_are_of_no_batch():
    mean, modules = torch.zeros(3, dtype=torch.double), (Centered(),)

    def f(x, held=modules):
        nonlocal mean
        mean = 0.9 * mean + x.detach().mean(0)
        f.last = f.last + mean
        return held[0](x)

    f.last = torch.zeros(3, dtype=torch.double)
    assert checked(f, random(4, 3).requires_grad_()).verdict == "PASS"
    assert torch.isfinite(mean + f.last).all()


def test_lists_that_f_appends_to_hold_no_batch():
    seen, means = [], {}

    def f(x):
        seen.append(x.detach().mean())
        means[len(seen)] = seen[-1]
        return x.sin()

    assert checked(f, random(10).requires_grad_()).verdict == "PASS"
    assert torch.isfinite(torch.stack(seen)).all()
    assert torch.isfinite(torch.stack([*means.values()])).all()


LAST = torch.zeros(10, dtype=torch.double)


def test_global_variables_are_of_no_batch():
    def f(x):
        global LAST
        LAST = LAST + x.detach()
        return x.sin()

    assert checked(f, random(10).requires_grad_()).verdict == "PASS"
    assert torch.isfinite(LAST).all()


def test_checks_in_threads_leave_the_filters_of_warnings_as_they_were():
    before, met = list(warnings.filters), [threading.Event() for _ in range(2)]

    def check(position):
        calls = []

        def f(x):
            calls.append(x)
            if len(calls) == 6:  # the first check begins before the second, and ends within it
                met[position].set()
                if position:
                    first.join()
                else:
                    met[1].wait()
            return x.sin()

        assert checked(f, leaf(1.0, 2.0)).verdict == "PASS"

    first, second = (threading.Thread(target=check, args=(k,)) for k in range(2))
    first.start()
    met[0].wait()
    second.start()
    second.join()
    assert warnings.filters == before


def test_functions_are_not_called_outside_bounds():
    seen = []

    def f(x):
        seen.append(x.detach().clone())
        return x.sqrt()

    x = leaf(1.0, 2.0)
    assert calipers.gradcheck(f, (x,), bounds=(1.0, 2.0), raise_exception=False)
    for point in seen:
        assert bool(((point >= 1) & (point <= 2)).all())


def test_a_tensor_that_is_named_is_differentiated_in_any_case():
    x, y = random(3).requires_grad_(), random(3)
    assert checked(torch.mul, x, y).shape == (3, 3)
    assert checked(torch.mul, x, y, argnums=(0, 1)).shape == (3, 6)
    assert checked(torch.mul, x, y, argnums=1).shape == (3, 3)


def test_nobody_is_warned_of_batches_that_nobody_asked_for():
    lower = lambda x: torch.linalg.lu(x)[1]  # noqa: E731, whose rule for batches is a loop
    x = (random(4, 4) + 4 * torch.eye(4, dtype=torch.double)).requires_grad_()
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        assert twice(lower, x, check_fwd_over_rev=True).verdict == "PASS"
        assert checked(lower, x, check_forward_ad=True).verdict == "PASS"
    # torch tells of its own parts as it loads them.
    assert [w for w in told if "`torch.jit.script` is deprecated" not in str(w.message)] == []


def test_what_f_warns_of_is_shown():
    def f(x):
        warnings.warn("of f", stacklevel=1)
        return x.sin(), x

    with pytest.warns(UserWarning, match="of f"):
        assert checked(f, leaf(*range(10))).verdict == "PASS"


@pytest.mark.parametrize("wrong", [False, True])
def test_batches_that_fail_where_they_are_larger(wrong):
    class Small(Cube):
        @staticmethod
        def backward(ctx, w):
            (x,) = ctx.saved_tensors
            return (2 if wrong else 3) * x**2 * w

        @staticmethod
        def vmap(info, dims, x):
            if info.batch_size > 2:
                raise RuntimeError("too many")
            return x**3, dims[0]

    report = checked(lambda x: (Small.apply(x), x.sin()), leaf(*range(1, 11)))
    assert report.verdict == ("FAIL" if wrong else "PASS")


def test_what_f_writes_behind_autograds_back_is_told():
    def f(x, y):
        z = x * y
        y.data.mul_(1.5)
        return z

    report = checked(f, leaf(0.5, 1.0), leaf(1.0, 2.0))
    assert report.reason == "f changes its arguments: input 1; make it work on a copy"


def test_keyword_arguments_that_f_writes_into_stay_as_they_were():
    count, array, held = torch.zeros(2), np.zeros(2), [torch.zeros(2)]

    def f(x, count, array, held):
        for each in (count, array, held[0]):
            each += 1
        return x.sin()

    kwargs = {"count": count, "array": array, "held": held}
    assert checked(f, leaf(0.5, 1.0), kwargs=kwargs).verdict == "PASS"
    for each in (count, array, held[0]):
        np.testing.assert_array_equal(each, np.zeros(2))


@pytest.mark.parametrize("dtype", [torch.int64, torch.bfloat16, torch.bool])
def test_given_derivatives_get_arrays_in_the_place_of_all_tensors(dtype):
    if dtype == torch.bfloat16:
        pytest.importorskip("ml_dtypes")
    seen = []

    def f(x, one, held, *, named):
        seen.extend((one, held[0], named))
        one += one.dtype.type(1)
        return np.sin(x)

    one, other, named = (torch.ones(2, dtype=dtype) for _ in range(3))
    inputs = leaf(0.5, 1.0), one, [other, "a"]
    report = checked(
        f, *inputs, kwargs={"named": named}, vjp=lambda x, *_, named: _[-1] * np.cos(x)
    )
    assert report.reason == "f changes its arguments: input 1; make it work on a copy" or (
        dtype == torch.bool and report.verdict == "PASS"  # true stays true
    )
    assert {type(x) for x in seen} == {np.ndarray}
    assert torch.equal(one, torch.ones(2, dtype=dtype))


def test_tensors_without_numbers_of_their_own_are_refused():
    empty = torch.zeros(2, dtype=torch.double, device="meta", requires_grad=True)
    with pytest.raises(ValueError, match="input 0 is on the meta device"):
        checked(torch.sin, empty)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch calls them a prototype
        nested = torch.nested.nested_tensor([random(2), random(3)], requires_grad=True)
    with pytest.raises(TypeError, match="input 1 is a nested tensor: pass the tensors in it"):
        checked(lambda x, y: x.sin(), leaf(1.0), nested)
    # As its advice has it:
    assert checked(lambda x, y: x * y[0].sum(), leaf(1.0), nested.unbind()).verdict == "PASS"


def constants_without_an_array():
    single = random(2, dtype=torch.float32)
    return {
        "mkldnn": (single.to_mkldnn(), lambda x, c: x * c.to_dense()),
        "quantized": (
            torch.quantize_per_tensor(single, 0.1, 0, torch.qint8),
            lambda x, c: x * c.dequantize(),
        ),
        "complex32": (
            single.to(torch.complex32),
            lambda x, c: x * c.to(torch.complex128).abs(),
        ),
        "nested": (
            torch.nested.nested_tensor([single, single]),
            lambda x, c: x * c.unbind()[1],
        ),
        "meta": (torch.zeros(2, device="meta"), lambda x, c: x * c.numel()),
    }


# torch calls the making of most of these deprecated, a prototype or experimental.
@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("name", ["mkldnn", "quantized", "complex32", "nested", "meta"])
def test_constants_that_numpy_has_no_array_for_are_passed_as_they_are(name):
    if name == "mkldnn" and not torch.backends.mkldnn.is_available():
        pytest.skip("torch is built without MKLDNN")
    constant, f = constants_without_an_array()[name]
    x = leaf(0.5, 1.5)
    assert torch.autograd.gradcheck(f, (x, constant))
    assert checked(f, x, constant).verdict == "PASS"
    assert checked(f, x, constant, fast_mode=True).verdict == "PASS"
    assert twice(f, x, constant).verdict == "PASS"


@pytest.mark.filterwarnings("ignore:Input #. requires gradient:UserWarning")  # torch's, of float32
@pytest.mark.skipif(not torch.backends.mkldnn.is_available(), reason="torch is without MKLDNN")
@pytest.mark.parametrize("fast_mode", [False, True])
def test_inputs_of_the_mkldnn_layout(fast_mode):
    class Off(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x.to_dense()

        @staticmethod
        def backward(ctx, w):
            return (1.5 * w).to_mkldnn()

    x = random(4, dtype=torch.float32).to_mkldnn().requires_grad_()
    y = random(4, dtype=torch.float32).requires_grad_()

    def f(x, y):
        return x.to_dense() * y

    assert torch.autograd.gradcheck(f, (x, y), eps=1e-2, atol=1e-2, fast_mode=fast_mode)
    assert checked(f, x, y, fast_mode=fast_mode).verdict == "PASS"
    assert checked(Off.apply, x, fast_mode=fast_mode).verdict == "FAIL"


@pytest.mark.parametrize("fast_mode", [False, True])
def test_undefined_tangents_are_tested_where_forward_mode_alone_is_checked(fast_mode):
    options = {
        "check_undefined_grad": True,
        "check_forward_ad": True,
        "check_backward_ad": False,
        "fast_mode": fast_mode,
    }
    x = leaf(0.5, 1.5), leaf(2.0, 3.0)
    assert torch.autograd.gradcheck(torch.mul, x, **options)
    assert checked(torch.mul, *x, **options).verdict == "PASS"


def test_fast_mode_warns_of_a_function_that_does_not_depend_on_its_inputs():
    with pytest.warns(calipers.CalipersWarning, match="does not depend on the inputs"):
        report = checked(lambda x: 0 * x, leaf(0.5, 1.5), fast_mode=True)
    assert report.vacuous


def test_a_convention_of_another_library_is_refused():
    with pytest.raises(ValueError, match="convention='jax' applies to derivatives that are passed"):
        checked(torch.sin, leaf(1.0), convention="jax")


def test_a_function_of_tensors_stores_no_results_in_arrays():
    with pytest.raises(ValueError, match="out_like= is for functions that store"):
        checked(torch.sin, leaf(1.0), out_like=np.ones(1))


def test_forms_that_round_a_large_input_each_in_its_way():
    x = (random(5) + 1e6).requires_grad_()
    assert checked(torch.logcumsumexp, x, 0, check_forward_ad=True).verdict == "PASS"


@pytest.mark.parametrize("factor", [1 + 1e-7, 1 + 1e-9])
def test_forms_that_are_apart_by_more_than_rounding(factor):
    class Scaled(torch.autograd.Function):
        @staticmethod
        def forward(x):
            return torch.logsumexp(x, 0)

        @staticmethod
        def setup_context(ctx, inputs, output):
            ctx.save_for_backward(*inputs)
            ctx.save_for_forward(*inputs)

        @staticmethod
        def backward(ctx, w):
            return w * torch.softmax(ctx.saved_tensors[0], 0)

        @staticmethod
        def jvp(ctx, v):
            return factor * (v * torch.softmax(ctx.saved_tensors[0], 0)).sum()

    told = checked(Scaled.apply, random(5).requires_grad_(), check_forward_ad=True).reason
    assert "are not derivatives of one function" in told


def test_a_tangent_of_zeros_that_gives_what_is_rounded():
    x = (random(1, 6, 3) + 2).requires_grad_()
    only = {"check_forward_ad": True, "check_backward_ad": False}
    f, fixed = torch.native_group_norm, (None, None, 1, 6, 3, 2, 1e-5)
    assert checked(f, x, *fixed, **only).verdict == "PASS"
