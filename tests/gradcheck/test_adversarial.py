"""gradcheck and gradgradcheck where checkers go wrong: inputs, seeds, order 2, kinks, scales."""

import json

import numba
import numpy as np
import pytest

import calipers
from calipers import gradcheck, gradgradcheck

modes = pytest.mark.parametrize("fast_mode", [False, True])
# torch itself uses what it has deprecated when it is asked for forward mode.
forward_mode = pytest.mark.filterwarnings("ignore::DeprecationWarning")
FLOATS = [np.float32, np.float64]
STEP = 1e-3


@numba.njit
def compiled_cube(x):
    return x * x * x


def cube_vjp(x, w):
    return 3 * x * x * w


def product(x, y):
    return x * y


def product_vjp(x, y, w):
    return w * y, w * x


def product_jvp(x, y, v):
    return v[0] * y + v[1] * x


def counted(f):
    """Return f, and a list that grows by its arguments at each call."""
    seen = []

    def recorded(*given):
        seen.append(given)
        return f(*given)

    return recorded, seen


def quiet(f):
    def silent(*given):
        with np.errstate(all="ignore"):
            return f(*given)

    return silent


def checked(f, inputs, **options):
    return gradcheck(f, inputs, raise_exception=False, **options)


def elementwise(f, slope):
    """Return f, and its vjp from the slope at each element."""
    f, slope = quiet(f), quiet(slope)
    return f, quiet(lambda x, w: (w * slope(x)).astype(x.dtype))


# E. Inputs and side effects.


@pytest.mark.parametrize("raise_exception", [False, True])
@pytest.mark.parametrize("x", [np.arange(3), np.ones(2, bool), 3, (np.arange(3), "text", None)])
@modes
def test_case_35_nothing_differentiable_is_an_error(x, raise_exception, fast_mode):
    with pytest.raises(ValueError, match="differentia"):
        gradcheck(
            lambda *x: x[0],
            x,
            vjp=lambda *x: x[-1],
            fast_mode=fast_mode,
            raise_exception=raise_exception,
        )


@modes
def test_case_35_no_input_chosen_is_an_error(fast_mode):
    with pytest.raises(ValueError, match="argnums is empty"):
        checked(np.sin, np.ones(2), vjp=cube_vjp, argnums=(), fast_mode=fast_mode)


@pytest.mark.parametrize("raise_exception", [False, True])
def test_case_35_torch_tensors_without_gradient_are_an_error(raise_exception):
    torch = pytest.importorskip("torch")
    x = torch.rand(3, dtype=torch.float64)
    with pytest.raises(ValueError, match="require gradient"):
        gradcheck(torch.sin, (x,), raise_exception=raise_exception)


@modes
@pytest.mark.parametrize(
    "f", [lambda x: np.empty(0), lambda x: (), lambda x: np.rint(x).astype(int)]
)
def test_case_35_a_check_of_nothing_says_so(f, fast_mode):
    with pytest.warns(calipers.CalipersWarning, match="nothing"):
        report = checked(f, np.ones(3), vjp=lambda x, w: np.zeros(3), fast_mode=fast_mode)
    assert report.vacuous


@modes
def test_case_35_a_check_by_nothing_says_so(fast_mode):
    with pytest.warns(calipers.CalipersWarning, match="nothing"):
        report = checked(np.sin, np.empty(0), vjp=lambda x, w: w * np.cos(x), fast_mode=fast_mode)
    assert report.vacuous


@modes
@pytest.mark.parametrize("options", [{}, {"atol": 0.1}])
def test_case_36_float32_needs_no_settings(options, fast_mode):
    x = np.linspace(0.5, 3, 10, dtype=np.float32)
    report = gradcheck(np.sin, x, vjp=lambda x, w: w * np.cos(x), fast_mode=fast_mode, **options)
    assert report.verdict == "PASS"


@modes
@pytest.mark.parametrize("options", [{}, {"atol": 0.1}])
def test_case_36_float32_torch_functions_need_no_settings(options, fast_mode):
    torch = pytest.importorskip("torch")
    x = torch.linspace(0.5, 3, 10, dtype=torch.float32, requires_grad=True)
    assert gradcheck(lambda x: x * 2, (x,), fast_mode=fast_mode, **options)
    assert gradcheck(torch.sin, (x,), fast_mode=fast_mode, **options)


def overlapping():
    return np.lib.stride_tricks.as_strided(np.array([0.5, 1, 2, 3]), (3, 2), (8, 8))


@modes
@pytest.mark.parametrize("x", [np.broadcast_to(np.float64(0.5), (2, 3)), overlapping()])
def test_case_37_elements_that_share_memory_are_separate_inputs(x, fast_mode):
    options = {"fast_mode": fast_mode}
    before = x.copy()
    assert gradcheck(compiled_cube, x, vjp=cube_vjp, **options)
    assert checked(compiled_cube, x, vjp=lambda x, w: 2 * x * w, **options).verdict == "FAIL"
    np.testing.assert_array_equal(x, before)


@modes
def test_case_37_inputs_that_share_memory_are_separate(fast_mode):
    base = np.array([0.5, 1, 2, 3])
    for x, y in ((base, base), (base[:3], base[1:]), (base, base[::-1])):
        assert gradcheck(product, (x, y), vjp=product_vjp, fast_mode=fast_mode)
        report = checked(
            product, (x, y), vjp=lambda x, y, w: (w * (x + y), w * (x + y)), fast_mode=fast_mode
        )
        assert report.verdict == "FAIL"


@modes
def test_case_37_torch_tensors_that_share_memory_are_separate(fast_mode):
    torch = pytest.importorskip("torch")
    one = torch.tensor(0.5, dtype=torch.float64)
    base = torch.tensor([0.5, 1, 2, 3], dtype=torch.float64)
    for x in (one.expand(2, 3), torch.as_strided(base, (3, 2), (1, 1))):
        x.requires_grad_()
        assert gradcheck(lambda x: x**3, (x,), fast_mode=fast_mode)
    x, y = base[:3].requires_grad_(), base[1:].requires_grad_()
    assert gradcheck(product, (x, y), fast_mode=fast_mode)


class MidwayError(Exception):
    pass


def failing_after(f, calls):
    left = [calls]

    def failing(*given):
        left[0] -= 1
        if left[0] < 0:
            raise MidwayError
        return f(*given)

    return failing


@modes
@pytest.mark.parametrize("factor", [1, 2])
def test_case_38_the_callers_arrays_stay_what_they_are(factor, fast_mode):
    x, y = np.linspace(0.1, 1, 6).reshape(2, 3).T, np.linspace(1, 2, 6).reshape(3, 2)
    before = x.tobytes(), y.tobytes()

    def vjp(x, y, w):
        return factor * w * y, w * x

    assert bool(checked(product, (x, y), vjp=vjp, fast_mode=fast_mode)) == (factor == 1)
    assert (x.tobytes(), y.tobytes()) == before


@modes
@pytest.mark.parametrize("calls", [0, 1, 2, 3, 5])
def test_case_38_the_callers_arrays_survive_an_exception(calls, fast_mode):
    x = np.array([2.0, 3, 5])
    before = x.tobytes()
    with pytest.raises(MidwayError):
        gradcheck(failing_after(lambda x: x**3, calls), x, vjp=cube_vjp, fast_mode=fast_mode)
    with pytest.raises(MidwayError):
        gradcheck(lambda x: x**3, x, vjp=failing_after(cube_vjp, calls), fast_mode=fast_mode)
    assert x.tobytes() == before


@modes
def test_case_38_torch_tensors_survive_an_exception(fast_mode):
    torch = pytest.importorskip("torch")
    x = torch.tensor([2.0, 3, 5], dtype=torch.float64, requires_grad=True)
    with pytest.raises(MidwayError):
        gradcheck(failing_after(lambda x: x**3, 3), (x,), fast_mode=fast_mode)
    assert x.tolist() == [2.0, 3, 5]
    assert x.grad is None


@modes
@pytest.mark.parametrize("whose", ["f", "vjp", "jvp", "jac"])
def test_case_38_a_function_that_writes_into_its_arguments_is_reported(whose, fast_mode):
    x = np.array([2.0, 3, 5])
    before = x.tobytes()

    def writing(f):
        def written(x, *last):
            y = f(x, *last)
            x += 1
            return y

        return written

    given = {
        "f": lambda x: x**3,
        "vjp": cube_vjp,
        "jvp": cube_vjp,
        "jac": lambda x: np.diag(3 * x * x),
    }
    given[whose] = writing(given[whose])
    report = checked(given.pop("f"), x, fast_mode=fast_mode, **given)
    assert report.verdict == "FAIL"
    assert f"{whose} changes its arguments: input 0" in report.findings[0]
    assert x.tobytes() == before


@modes
def test_case_39_f_may_return_its_input(fast_mode):
    x = np.array([0.5, 1, 2])
    identity = {"jac": lambda x: np.eye(3), "vjp": lambda x, w: w, "jvp": lambda x, v: v}
    assert gradcheck(lambda x: x, x, fast_mode=fast_mode, **identity)
    report = checked(lambda x: x, x, vjp=lambda x, w: 0 * w, fast_mode=fast_mode)
    assert report.verdict == "FAIL"

    def twice(x, w):
        return w[0] + w[1]

    assert gradcheck(lambda x: (x, x), x, vjp=twice, fast_mode=fast_mode)


@modes
@pytest.mark.parametrize("eps", [0.0, -1e-6, float("nan")])
def test_case_39_a_step_that_is_not_positive_is_an_error(eps, fast_mode):
    with pytest.raises(ValueError, match="eps must be positive"):
        checked(compiled_cube, np.ones(2), vjp=cube_vjp, eps=eps, fast_mode=fast_mode)


@modes
def test_case_40_other_arguments_are_handed_on_as_they_are(fast_mode):
    counts, weights, flag = np.array([1, 2, 3]), np.array([0.5, 1, 2], np.float32), True

    def f(x, counts, weights, flag, power):
        assert counts.dtype == np.int64
        assert weights.dtype == np.float32
        np.testing.assert_array_equal(counts, [1, 2, 3])
        np.testing.assert_array_equal(weights, [0.5, 1, 2])
        assert flag is True
        assert type(power) is int
        return counts * weights * x**power

    def vjp(x, counts, weights, flag, power, w):
        return w * counts * weights * power * x ** (power - 1)

    x = np.array([0.5, 1, 2])
    given = (x, counts, weights, flag, 3)
    assert gradcheck(f, given, vjp=vjp, argnums=0, fast_mode=fast_mode)


@modes
def test_case_40_an_input_that_is_wrongly_called_constant_fails(fast_mode):
    x, y = np.array([0.5, 1, 2]), np.array([3.0, 4, 5])
    report = checked(product, (x, y), vjp=lambda x, y, w: (w * y, None), fast_mode=fast_mode)
    assert report.verdict == "FAIL"
    assert {(e.output, e.input) for e in report.failures} == {(0, 1)}


# F. Determinism and seeds.


def jittered(f, relative, seed=0):
    random = np.random.default_rng(seed)

    def shaken(*given):
        y = f(*given)
        return y * (1 + relative * random.random(np.shape(y)))

    return shaken


@modes
@pytest.mark.parametrize(
    ("jitter", "tolerance", "right"), [(1e-6, 0, False), (0, 0, True), (1e-6, 1e-5, True)]
)
def test_case_41_a_vjp_with_jitter(jitter, tolerance, right, fast_mode):
    report = checked(
        lambda x: 2 * x,
        np.linspace(0.1, 1, 5),
        vjp=jittered(lambda x, w: 2 * w, jitter),
        nondet_tol=tolerance,
        atol=1e-5,
        rtol=1e-3,
        fast_mode=fast_mode,
    )
    assert bool(report) == right
    assert right or "not reentrant" in report.reason


@pytest.mark.parametrize(("tolerance", "right"), [(0, False), (1e-5, True)])
def test_case_41_a_second_derivative_with_jitter(tolerance, right):
    pull = jittered(lambda x, w, u: -u * w * np.sin(x), 1e-12)
    report = gradgradcheck(
        np.sin,
        np.linspace(0.1, 1, 5),
        vjp=lambda x, w: w * np.cos(x),
        vjp_vjp=lambda x, w, u: (pull(x, w, u), u * np.cos(x)),
        nondet_tol=tolerance,
        raise_exception=False,
    )
    assert bool(report) == right
    assert right or "not reentrant" in report.reason


def torch_jitter(torch, jitter):
    class Doubled(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return 2 * x

        @staticmethod
        def backward(ctx, g):
            return Doubled.apply(g) * (1 + torch.rand_like(g) * jitter)

    return Doubled.apply


@modes
@pytest.mark.parametrize(
    ("jitter", "tolerance", "right"), [(1e-6, 0, False), (0, 0, True), (1e-6, 1e-5, True)]
)
def test_case_41_a_torch_backward_with_jitter(jitter, tolerance, right, fast_mode):
    torch = pytest.importorskip("torch")
    x = torch.linspace(0.1, 1, 5, dtype=torch.float64, requires_grad=True)
    report = checked(
        torch_jitter(torch, jitter),
        (x,),
        nondet_tol=tolerance,
        atol=1e-5,
        rtol=1e-3,
        fast_mode=fast_mode,
    )
    assert bool(report) == right
    assert right or "not reentrant" in report.reason


@pytest.mark.parametrize(
    ("jitter", "tolerance", "right"), [(1e-12, 0, False), (0, 0, True), (1e-12, 1e-5, True)]
)
def test_case_41_a_torch_second_derivative_with_jitter(jitter, tolerance, right):
    torch = pytest.importorskip("torch")
    x = torch.linspace(0.1, 1, 5, dtype=torch.float64, requires_grad=True)
    report = gradgradcheck(
        torch_jitter(torch, jitter), (x,), nondet_tol=tolerance, raise_exception=False
    )
    assert bool(report) == right


@modes
def test_case_42_a_noisy_f_is_called_that(fast_mode):
    random = np.random.default_rng(0)
    report = checked(
        lambda x: x**3 + random.random(x.shape), np.ones(3), vjp=cube_vjp, fast_mode=fast_mode
    )
    assert report.verdict == "FAIL"
    assert "f is not deterministic" in report.reason
    assert not report.failures


@modes
def test_case_42_a_torch_dropout_is_called_that(fast_mode):
    torch = pytest.importorskip("torch")
    x = torch.ones(200, dtype=torch.float64, requires_grad=True)
    report = checked(lambda x: torch.nn.functional.dropout(x, 0.5), (x,), fast_mode=fast_mode)
    assert report.verdict == "FAIL"
    assert "f is not deterministic" in report.reason


@modes
@pytest.mark.parametrize("form", ["jac", "jvp", "vjp"])
def test_case_42_every_form_is_tested_for_determinism(form, fast_mode):
    given = {
        "jac": lambda x: np.diag(3 * x * x),
        "jvp": cube_vjp,
        "vjp": cube_vjp,
    }
    noisy = {form: jittered(given[form], 1e-9)}
    report = checked(lambda x: x**3, np.ones(3), fast_mode=fast_mode, **noisy)
    assert report.verdict == "FAIL"
    assert f"{form} is not reentrant" in report.reason


@modes
@pytest.mark.parametrize("factor", [1, 1.01])
def test_case_43_a_seed_makes_a_report(factor, fast_mode):
    def once(seed):
        report = checked(
            lambda x: x**3,
            np.linspace(0.1, 1, 5),
            vjp=lambda x, w: factor * cube_vjp(x, w),
            seed=seed,
            fast_mode=fast_mode,
        )
        assert report.seed == seed
        return json.dumps(report.to_dict())

    assert once(0) == once(0)
    assert once(7) == once(7)


@modes
def test_case_43_the_global_generator_stays_where_it_is(fast_mode):
    np.random.seed(5)
    before = np.random.get_state()
    gradcheck(compiled_cube, np.ones(3), vjp=cube_vjp, fast_mode=fast_mode)
    gradgradcheck(
        compiled_cube,
        np.ones(3),
        vjp=cube_vjp,
        vjp_vjp=lambda x, w, u: (6 * x * w * u, 3 * x * x * u),
        fast_mode=fast_mode,
    )
    after = np.random.get_state()
    np.testing.assert_array_equal(before[1], after[1])
    assert before[2:] == after[2:]


def test_case_43_torchs_generator_stays_where_it_is():
    torch = pytest.importorskip("torch")
    x = torch.ones(3, dtype=torch.float64, requires_grad=True)
    before = torch.get_rng_state()
    gradgradcheck(torch.sin, (x,))
    assert torch.equal(before, torch.get_rng_state())


@modes
def test_case_43_a_failure_prints_its_seed(fast_mode):
    with pytest.raises(calipers.GradcheckError, match="seed=123"):
        gradcheck(np.sin, np.ones(3), vjp=cube_vjp, seed=123, fast_mode=fast_mode)


# G. Zero, missing and linear cotangents.


@modes
def test_case_44_something_is_not_multiplied_by_the_cotangent(fast_mode):
    report = checked(
        lambda x: x.copy(), np.ones(3), vjp=lambda x, w: w + 1e-2, atol=0.1, fast_mode=fast_mode
    )
    assert report.verdict == "FAIL"
    assert "not multiplied by grad_output" in report.reason


@modes
def test_case_44_torch_something_is_not_multiplied_by_the_cotangent(fast_mode):
    torch = pytest.importorskip("torch")

    class Copied(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x.clone()

        @staticmethod
        def backward(ctx, g):
            return g + 1e-2

    x = torch.ones(3, dtype=torch.float64, requires_grad=True)
    report = checked(Copied.apply, (x,), atol=0.1, fast_mode=fast_mode)
    assert report.verdict == "FAIL"
    assert "not multiplied by grad_output" in report.reason


@modes
@pytest.mark.parametrize("form", ["vjp", "jvp"])
@pytest.mark.parametrize("size", [1, 3, 20])
@pytest.mark.parametrize("bent", ["abs", "square", "positive", "clipped"])
def test_case_44_a_product_must_be_linear(bent, size, form, fast_mode):
    # All of them are right for the unit vectors of an exhaustive check.
    functions = {
        "abs": np.abs,
        "square": np.square,
        "positive": lambda w: np.maximum(w, 0),
        "clipped": lambda w: np.clip(w, -1, 1),
    }
    report = checked(
        lambda x: x.copy(),
        np.ones(size),
        fast_mode=fast_mode,
        **{form: lambda x, w: functions[bent](w)},
    )
    assert report.verdict == "FAIL"
    assert "not linear" in report.reason


def two(x):
    return x**2, x**3


def two_vjp(x, w):
    if w is None:
        return np.zeros_like(x)
    first, second = (0 if g is None else g for g in w)
    return 2 * x * first + 3 * x * x * second


@modes
def test_case_45_no_cotangent_is_one_of_zeros(fast_mode):
    options = {"check_undefined_grad": True, "fast_mode": fast_mode}
    assert gradcheck(two, np.array([0.5, 2]), vjp=two_vjp, **options)

    def one_vjp(x, w):
        return None if w is None else cube_vjp(x, w)

    assert gradcheck(lambda x: x**3, np.array([0.5, 2]), vjp=one_vjp, **options)


@modes
def test_case_45_none_may_stand_for_gradients(fast_mode):
    def vjp(x, y, w):
        first, second = w
        return (
            None if first is None else 2 * x * first,
            None if second is None else 3 * y * y * second,
        )

    assert gradcheck(
        lambda x, y: (x**2, y**3),
        (np.array([0.5, 2]), np.array([1.0, 3])),
        vjp=vjp,
        check_undefined_grad=True,
        fast_mode=fast_mode,
    )


def raising_on_none(x, w):
    if w[1] is None:
        msg = "no second cotangent"
        raise KeyError(msg)
    return two_vjp(x, w)


@modes
def test_case_45_a_vjp_that_raises_on_none_fails(fast_mode):
    report = checked(
        two,
        np.array([0.5, 2]),
        vjp=raising_on_none,
        check_undefined_grad=True,
        fast_mode=fast_mode,
    )
    assert report.verdict == "FAIL"
    assert "None" in report.reason
    assert "no second cotangent" in report.reason


@modes
def test_case_45_an_error_on_none_has_its_cause(fast_mode):
    options = {"check_undefined_grad": True, "fast_mode": fast_mode}
    with pytest.raises(calipers.GradcheckError) as caught:
        gradcheck(two, np.array([0.5, 2]), vjp=raising_on_none, **options)
    assert isinstance(caught.value.__cause__, KeyError)


@modes
@pytest.mark.parametrize("missing", [0, 1, None])
def test_case_45_something_else_for_none_fails(missing, fast_mode):
    def vjp(x, w):
        if missing is None and all(g is None for g in w):
            return np.ones_like(x)
        if missing is not None and w[missing] is None:
            return two_vjp(x, w) + 1
        return two_vjp(x, w)

    report = checked(
        two, np.array([0.5, 2]), vjp=vjp, check_undefined_grad=True, fast_mode=fast_mode
    )
    assert report.verdict == "FAIL"
    assert "None" in report.reason


def torch_undefined(torch, on_none):
    class Pair(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.set_materialize_grads(False)
            return 2 * x, 3 * x

        @staticmethod
        def backward(ctx, first, second):
            if first is None or second is None:
                return on_none(first, second)
            return 2 * first + 3 * second

    return Pair.apply


@modes
def test_case_45_torch_undefined_gradients(fast_mode):
    torch = pytest.importorskip("torch")
    x = torch.ones(3, dtype=torch.float64, requires_grad=True)

    def right(first, second):
        terms = [k * g for k, g in ((2, first), (3, second)) if g is not None]
        return sum(terms) if terms else None

    def raising(first, second):
        msg = "undefined gradient"
        raise KeyError(msg)

    assert gradcheck(torch_undefined(torch, right), (x,), fast_mode=fast_mode)
    for wrong in (raising, lambda first, second: torch.ones(3, dtype=torch.float64)):
        f = torch_undefined(torch, wrong)
        assert checked(f, (x,), fast_mode=fast_mode).verdict == "FAIL"
        assert gradcheck(f, (x,), fast_mode=fast_mode, check_undefined_grad=False)


@modes
def test_case_46_no_tangent_is_one_of_zeros(fast_mode):
    def jvp(x, y, v):
        return 2 * x * v[0], None

    x, y = np.array([0.5, 2]), np.array([1.0, 3])
    assert gradcheck(lambda x, y: (x**2, np.ones(2)), (x, y), jvp=jvp, fast_mode=fast_mode)
    report = checked(lambda x, y: (x**2, y**3), (x, y), jvp=jvp, fast_mode=fast_mode)
    assert report.verdict == "FAIL"


@forward_mode
@modes
def test_case_46_torch_no_tangent_is_one_of_zeros(fast_mode):
    torch = pytest.importorskip("torch")
    x = torch.tensor([0.5, 2], dtype=torch.float64, requires_grad=True)
    y = torch.tensor([1.0, 3], dtype=torch.float64, requires_grad=True)
    for f in (lambda x, y: (x**2, y**3), lambda x, y: x**2):
        assert gradcheck(f, (x, y), check_forward_ad=True, fast_mode=fast_mode)


@modes
@pytest.mark.parametrize("size", [1, 5, 200])
@pytest.mark.parametrize("form", ["jvp", "jac"])
def test_case_47_forms_that_differ_by_more_than_rounding_fail(form, size, fast_mode):
    x = np.linspace(0.1, 1, size)
    other = {"jvp": cube_vjp, "jac": lambda x: np.diag(3 * x * x)}[form]
    options = {"fast_mode": fast_mode, form: other}
    assert gradcheck(lambda x: x**3, x, vjp=cube_vjp, **options)
    report = checked(lambda x: x**3, x, vjp=lambda x, w: (1 + 1e-9) * cube_vjp(x, w), **options)
    assert report.verdict == "FAIL"
    assert report.findings


@modes
def test_case_48_accumulation_into_zeros_is_right(fast_mode):
    def accumulate(out, x, w):
        out += 3 * x * x * w
        return out

    x = np.linspace(0.1, 1, 5)
    assert gradcheck(
        lambda x: x**3,
        x,
        vjp=lambda x, w: accumulate(np.zeros_like(x), x, w),
        fast_mode=fast_mode,
    )
    kept = np.zeros_like(x)
    report = checked(
        lambda x: x**3, x, vjp=lambda x, w: accumulate(kept, x, w), fast_mode=fast_mode
    )
    assert report.verdict == "FAIL"


# H. Batches and counts of calls.


@modes
def test_case_49_a_batch_is_a_loop(fast_mode):
    x, y = np.linspace(0.1, 1, 5), np.linspace(1, 2, 5)
    assert gradcheck(
        product,
        (x, y),
        vjp=product_vjp,
        jvp=product_jvp,
        check_batched_grad=True,
        check_batched_forward_grad=True,
        fast_mode=fast_mode,
    )


@modes
@pytest.mark.parametrize(
    ("form", "option"), [("vjp", "check_batched_grad"), ("jvp", "check_batched_forward_grad")]
)
def test_case_49_a_batch_that_is_not_a_loop_fails(form, option, fast_mode):
    def mixed(x, w):
        return 3 * x * x * (w[::-1] if w.ndim == 2 else w)

    def failing(x, w):
        if w.ndim == 2:
            raise MidwayError
        return 3 * x * x * w

    x = np.linspace(0.1, 1, 5)
    given = {form: mixed, "fast_mode": fast_mode}
    assert gradcheck(lambda x: x**3, x, **given)
    report = checked(lambda x: x**3, x, **given, **{option: True})
    assert report.verdict == "FAIL"
    assert "batch" in report.reason
    with pytest.raises(MidwayError) as caught:
        gradcheck(lambda x: x**3, x, fast_mode=fast_mode, **{form: failing, option: True})
    assert any("batch" in note for note in caught.value.__notes__)


@modes
def test_case_49_torch_batches(fast_mode):
    torch = pytest.importorskip("torch")

    class Unbatched(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return 2 * x

        @staticmethod
        def backward(ctx, g):
            return 2 * torch.from_numpy(g.numpy().copy())

    x = torch.linspace(0.1, 1, 5, dtype=torch.float64, requires_grad=True)
    assert gradcheck(torch.sin, (x,), check_batched_grad=True, fast_mode=fast_mode)
    assert gradcheck(Unbatched.apply, (x,), fast_mode=fast_mode)
    report = checked(Unbatched.apply, (x,), check_batched_grad=True, fast_mode=fast_mode)
    assert report.verdict == "FAIL"
    assert "vjp raises for a batch of directions" in report.reason
    with pytest.raises(RuntimeError, match="batch of directions") as caught:
        gradcheck(Unbatched.apply, (x,), check_batched_grad=True, fast_mode=fast_mode)
    assert isinstance(caught.value.__cause__, RuntimeError)


@forward_mode
def test_case_49_torch_forward_batches():
    torch = pytest.importorskip("torch")
    x = torch.linspace(0.1, 1, 5, dtype=torch.float64, requires_grad=True)
    assert gradcheck(torch.sin, (x,), check_forward_ad=True, check_batched_forward_grad=True)


@pytest.mark.parametrize(
    ("options", "calls"),
    [
        ({}, 5),
        ({"check_batched_forward_grad": True}, 8),
        ({"argnums": 0}, 4),
        ({"argnums": 0, "check_batched_forward_grad": True}, 7),
    ],
)
def test_case_50_calls_of_jvp(options, calls):
    def push(x, y, v):
        return v * y if "argnums" in options else product_jvp(x, y, v)

    jvp, seen = counted(push)
    report = gradcheck(product, (2.0, 3.0), jvp=jvp, **options)
    # One for each number, of a small, a large and a zero tangent, and three for a batch.
    assert report.calls["jvp"] == len(seen) == calls


@modes
@pytest.mark.parametrize("form", ["jac", "vjp", "jvp"])
def test_case_50_the_report_counts_calls(form, fast_mode):
    given = {"jac": lambda x: np.diag(3 * x * x), "vjp": cube_vjp, "jvp": cube_vjp}
    f, seen = counted(lambda x: x**3)
    derivative, calls = counted(given[form])
    report = gradcheck(f, np.linspace(0.1, 1, 5), fast_mode=fast_mode, **{form: derivative})
    assert report.calls == {"f": len(seen), form: len(calls)}


REAL = {"jac": lambda x: np.diag(3 * x * x), "vjp": cube_vjp, "jvp": cube_vjp}
COMPLEX = {"vjp": lambda x, w: np.conj(3 * x * x) * w, "jvp": cube_vjp}


@pytest.mark.parametrize("forms", [["vjp"], ["vjp", "jvp"], ["jac", "vjp", "jvp"]])
@pytest.mark.parametrize("size", [1, 20])
def test_case_51_a_real_f_is_called_twice_for_each_number_and_once(forms, size):
    f, seen = counted(lambda x: x**3)
    gradcheck(f, np.linspace(0.1, 1, size), **{name: REAL[name] for name in forms})
    assert len(seen) <= 2 * size + 2  # one more, to see that f is deterministic


@pytest.mark.parametrize("forms", [["vjp"], ["vjp", "jvp"]])
@pytest.mark.parametrize("size", [1, 20])
def test_case_51_a_complex_f_is_called_four_times_for_each_number_and_once(forms, size):
    f, seen = counted(lambda x: x**3)
    x = np.linspace(0.1, 1, size) * (1 + 0.5j)
    gradcheck(f, x, **{name: COMPLEX[name] for name in forms})
    assert len(seen) <= 4 * size + 2


def seen_by(x):
    return type(x), x.dtype, x.shape, x.flags.c_contiguous, x.flags.f_contiguous, x.flags.writeable


@modes
@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.complex128])
@pytest.mark.parametrize("order", ["C", "F"])
def test_case_52_derivatives_see_the_arrays_that_f_sees(order, dtype, fast_mode):
    seen = {"f": set(), "vjp": set(), "jvp": set()}

    def f(x):
        seen["f"].add(seen_by(x))
        return x**2

    def vjp(x, w):
        seen["vjp"].add(seen_by(x))
        return np.conj(2 * x) * w

    def jvp(x, v):
        seen["jvp"].add(seen_by(x))
        return 2 * x * v

    x = np.asarray(np.linspace(0.5, 1, 6).reshape(2, 3), dtype, order=order)
    assert gradcheck(f, x, vjp=vjp, jvp=jvp, fast_mode=fast_mode)
    assert len(seen["f"]) == 1
    assert seen["f"] == seen["vjp"] == seen["jvp"]
    assert next(iter(seen["f"]))[:3] == (np.ndarray, dtype, (2, 3))


@pytest.mark.parametrize("x", [2.0, np.float32(2), np.array(2.0)])
def test_case_52_derivatives_see_the_numbers_that_f_sees(x):
    types = {"f": set(), "vjp": set()}

    def f(x):
        types["f"].add(type(x))
        return x * x

    def vjp(x, w):
        types["vjp"].add(type(x))
        return 2 * x * w

    assert gradcheck(f, x, vjp=vjp)
    assert types["f"] == types["vjp"]


# J. Second order.


@modes
@pytest.mark.parametrize("second", [48.0, 47.9])
def test_case_57_the_second_derivative_of_a_fourth_power(second, fast_mode):
    options = {"fast_mode": fast_mode, "raise_exception": False}
    for given in (
        {"hess": lambda x: np.full((1, 1), second)},
        {"hvp": lambda x, v: second * v},
        {
            "vjp": lambda x, w: 4 * x**3 * w,
            "vjp_vjp": lambda x, w, u: (second * w * u, 4 * x**3 * u),
        },
        {
            "vjp": lambda x, w: 4 * x**3 * w,
            "vjp_jvp": lambda x, w, v: second * w * v[0] + 4 * x**3 * v[1],
        },
    ):

        def f(x, several="vjp" in given):
            return x**4 if several else np.sum(x**4)

        report = gradgradcheck(f, np.array([2.0]), **given, **options)
        assert report.verdict == ("PASS" if second == 48 else "FAIL")


@modes
def test_case_57_a_linear_function_has_no_second_derivative(fast_mode):
    x = np.linspace(0.1, 1, 10)
    assert gradgradcheck(
        lambda x: 5 * x,
        x,
        vjp=lambda x, w: 5 * w,
        vjp_vjp=lambda x, w, u: (np.zeros_like(x), 5 * u),
        fast_mode=fast_mode,
    )
    assert gradgradcheck(
        lambda x: 5 * x.sum(), x, hess=lambda x: np.zeros((10, 10)), fast_mode=fast_mode
    )


@modes
def test_case_57_torch_second_derivatives(fast_mode):
    torch = pytest.importorskip("torch")
    x = torch.linspace(0.1, 1, 10, dtype=torch.float64, requires_grad=True)
    for f in (lambda x: 5 * x, lambda x: x**4):
        assert gradgradcheck(f, (x,), fast_mode=fast_mode)
        assert gradgradcheck(f, x, fast_mode=fast_mode)


def squares(x, y):
    return (x + y) ** 2, (x + 2 * y) ** 2


def squares_vjp(x, y, w):
    first, second = 2 * (x + y) * w[0], 2 * (x + 2 * y) * w[1]
    return first + second, first + 2 * second


def squares_vjp_vjp(x, y, w, u):
    first, second = 2 * (u[0] + u[1]), 2 * (u[0] + 2 * u[1])
    return (
        first * w[0] + second * w[1],
        first * w[0] + 2 * second * w[1],
        (first * (x + y), second * (x + 2 * y)),
    )


@modes
@pytest.mark.parametrize("dtype", FLOATS)
def test_case_58_two_inputs_and_two_outputs(dtype, fast_mode):
    x = np.ones((2, 3), dtype)
    given = {"vjp": squares_vjp, "vjp_vjp": squares_vjp_vjp}
    assert gradgradcheck(squares, (x, x), fast_mode=fast_mode, **given)

    def wrong(x, y, w, u):
        by_x, by_y, by_w = squares_vjp_vjp(x, y, w, u)
        return by_x, 1.5 * by_y, by_w

    report = gradgradcheck(
        squares,
        (x, x),
        vjp=squares_vjp,
        vjp_vjp=wrong,
        fast_mode=fast_mode,
        raise_exception=False,
    )
    assert report.verdict == "FAIL"
    assert {e.input for e in report.failures} == {1}


@modes
def test_case_59_a_wrong_first_derivative_fails_at_second_order(fast_mode):
    x = np.linspace(0.1, 1, 3)
    given = {"vjp": lambda x, w: 3 * w, "vjp_vjp": lambda x, w, u: (np.zeros_like(x), 3 * u)}
    options = {"raise_exception": False, "fast_mode": fast_mode}
    assert gradgradcheck(lambda x: 2 * x, x, **given, **options).verdict == "FAIL"
    assert gradgradcheck(lambda x: 2 * x, x, first_order=False, **given, **options)


@modes
def test_case_59_a_wrong_torch_backward_fails_at_second_order(fast_mode):
    torch = pytest.importorskip("torch")

    class Doubled(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return 2 * x

        @staticmethod
        def backward(ctx, g):
            return 3 * g

    x = torch.linspace(0.1, 1, 3, dtype=torch.float64, requires_grad=True)
    options = {"raise_exception": False, "fast_mode": fast_mode}
    assert gradgradcheck(Doubled.apply, (x,), **options).verdict == "FAIL"
    assert gradgradcheck(Doubled.apply, (x,), first_order=False, **options)


MATRIX = np.array([[2.0, 1, 0], [1, 3, -1], [0, -1, 4]])


def quadratic(x):
    return 0.5 * x @ MATRIX @ x + x[0] * x[1] * x[2]


def quadratic_hessian(x):
    a, b, c = x
    return MATRIX + np.array([[0, c, b], [c, 0, a], [b, a, 0]])


def quadratic_gradient(x, w):
    a, b, c = x
    return w * (MATRIX @ x + np.array([b * c, a * c, a * b]))


@modes
@pytest.mark.parametrize("vjp", [None, quadratic_gradient])
def test_case_60_an_asymmetric_hessian_is_called_that(vjp, fast_mode):
    def skewed(x):
        return quadratic_hessian(x) + np.array([[0, 0.5, 0], [0, 0, 0], [0, 0, 0]])

    options = {"vjp": vjp, "fast_mode": fast_mode, "raise_exception": False}
    x = np.array([0.5, 1, 2])
    assert gradgradcheck(quadratic, x, hess=quadratic_hessian, **options)
    report = gradgradcheck(quadratic, x, hess=skewed, **options)
    assert report.verdict == "FAIL"
    assert "not symmetric" in report.reason


@modes
@pytest.mark.parametrize("vjp", [None, quadratic_gradient])
def test_case_60_products_with_the_hessian(vjp, fast_mode):
    options = {"vjp": vjp, "fast_mode": fast_mode, "raise_exception": False}
    x = np.array([0.5, 1, 2])
    assert gradgradcheck(quadratic, x, hvp=lambda x, v: quadratic_hessian(x) @ v, **options)
    report = gradgradcheck(quadratic, x, hvp=lambda x, v: MATRIX @ v, **options)
    assert report.verdict == "FAIL"


@modes
def test_case_60_a_hessian_is_checked_without_the_first_derivative(fast_mode):
    def wrong_gradient(x, w):
        return w * (MATRIX @ x)

    options = {"hess": lambda x: MATRIX, "fast_mode": fast_mode, "raise_exception": False}
    x = np.array([0.5, 1, 2])
    assert gradgradcheck(quadratic, x, vjp=wrong_gradient, first_order=False, **options)
    assert gradgradcheck(quadratic, x, **options).verdict == "FAIL"


def sine_pull(x, w, u):
    return -u * w * np.sin(x), u * np.cos(x)


def drawn_cotangent(seed, **options):
    vjp, seen = counted(lambda x, w: w * np.cos(x))
    assert gradgradcheck(
        np.sin,
        np.linspace(0.1, 1, 200).reshape(2, 100),
        vjp=vjp,
        vjp_vjp=sine_pull,
        first_order=False,
        fast_mode=True,
        seed=seed,
        **options,
    )
    return seen[0][1]


def test_case_61_cotangents_are_drawn_by_the_seed():
    w = drawn_cotangent(0)
    assert w.shape == (2, 100)
    assert np.all((-1 <= w) & (w < 1))
    assert w.min() < -0.8
    assert w.max() > 0.8
    np.testing.assert_array_equal(w, drawn_cotangent(0))
    assert np.any(w != drawn_cotangent(1))


def test_case_61_cotangents_that_are_not_contiguous_have_the_same_values():
    w = drawn_cotangent(0, gen_non_contig_grad_outputs=True)
    np.testing.assert_array_equal(w, drawn_cotangent(0))


@pytest.mark.parametrize(
    "w", [np.linspace(1, 2, 6).reshape(2, 3), np.linspace(1, 2, 12).reshape(2, 6)[:, ::2]]
)
@modes
def test_case_61_cotangents_may_be_given(w, fast_mode):
    vjp, seen = counted(lambda x, w: w * np.cos(x))
    x = np.linspace(0.1, 1, 6).reshape(2, 3)
    before = w.copy()
    assert gradgradcheck(
        np.sin, x, w, vjp=vjp, vjp_vjp=sine_pull, first_order=False, fast_mode=fast_mode
    )
    np.testing.assert_array_equal(seen[0][1], before)
    np.testing.assert_array_equal(w, before)


@modes
@pytest.mark.parametrize("several", [False, True])
def test_case_61_torch_cotangents(several, fast_mode):
    torch = pytest.importorskip("torch")
    x = torch.linspace(0.1, 1, 6, dtype=torch.float64).reshape(2, 3).requires_grad_()
    w = torch.linspace(1, 2, 12, dtype=torch.float64).reshape(2, 6)[:, ::2]
    given = (w,) if several else w
    assert gradgradcheck(torch.sin, (x,), given, fast_mode=fast_mode)
    assert gradgradcheck(torch.sin, (x,), gen_non_contig_grad_outputs=True, fast_mode=fast_mode)


def test_case_61_tests_of_backward_mode_need_it():
    x = np.ones(3)
    with pytest.raises(ValueError, match="check_batched_grad"):
        gradcheck(compiled_cube, x, jvp=cube_vjp, check_batched_grad=True)
    both = {"jvp": cube_vjp, "vjp": cube_vjp, "check_backward_ad": False}
    with pytest.raises(ValueError, match="check_batched_grad"):
        gradcheck(compiled_cube, x, **both, check_batched_grad=True)


def test_case_61_undefined_tangents_need_no_backward_mode():
    def jvp(x, v):
        return np.zeros_like(x) if v is None else 3 * x**2 * v

    def wrong(x, v):
        return x if v is None else jvp(x, v)

    x = np.linspace(1, 2, 3)
    assert gradcheck(compiled_cube, x, jvp=jvp, check_undefined_grad=True)
    both = {"vjp": jvp, "check_backward_ad": False, "check_undefined_grad": True}
    assert gradcheck(compiled_cube, x, jvp=jvp, **both)
    with pytest.raises(calipers.WrongDerivativeError, match="a tangent of None"):
        gradcheck(compiled_cube, x, jvp=wrong, **both)


@pytest.mark.parametrize("option", ["check_undefined_grad", "check_batched_grad"])
def test_case_61_tests_of_reverse_over_reverse_need_it(option):
    def push(x, w, v):
        return -np.sin(x) * w * v[0] + np.cos(x) * v[1]

    def vjp(x, w):
        return np.zeros_like(x) if w is None else w * np.cos(x)

    given = {"vjp": vjp, "vjp_jvp": push, "check_rev_over_rev": False, option: True}
    with pytest.raises(ValueError, match=option):
        gradgradcheck(np.sin, np.ones(3), **given)


# K. Where there is no derivative.


def both(f, slope):
    """Return a function of two outputs, and its vjp."""
    f, slope = quiet(f), quiet(slope)

    def vjp(x, w):
        with np.errstate(all="ignore"):
            return (slope(x) * (w[0] + 2 * w[1])).astype(x.dtype)

    return lambda x: (f(x), 2 * f(x)), vjp


def verdict_at(name, x, outputs, dtype, step):
    f, slope = SHAPES[name]
    f, vjp = (elementwise if outputs == 1 else both)(f, slope)
    return checked(f, np.asarray(x, dtype), vjp=vjp, step=step).verdict


SHAPES = {
    "abs": (np.abs, np.sign),
    "step": (lambda x: np.where(x > 0, x.dtype.type(1), x.dtype.type(0)), np.zeros_like),
    "clip": (lambda x: np.clip(x, 0, 1), lambda x: ((0 < x) & (x < 1)).astype(x.dtype)),
    "floor": (np.floor, np.zeros_like),
    "zero": (np.zeros_like, np.zeros_like),
    "linear": (lambda x: 2 * x + 1, lambda x: np.full_like(x, 2)),
    "quadratic": (lambda x: x * x, lambda x: 2 * x),
    "cubic": (lambda x: x * x * x, lambda x: 3 * x * x),
    "exp": (np.exp, np.exp),
    "log": (np.log, lambda x: 1 / x),
    "tan": (np.tan, lambda x: 1 + np.tan(x) ** 2),
    "gap": (lambda x: np.where((1 < x) & (x < 3), x.dtype.type(np.nan), x), np.ones_like),
}
each_dtype = pytest.mark.parametrize("dtype", FLOATS)
one_or_two = pytest.mark.parametrize("outputs", [1, 2])


@each_dtype
@one_or_two
@pytest.mark.parametrize(
    ("name", "x"),
    [
        ("abs", 0),
        ("abs", [[3, 1], [0, 2]]),
        ("step", 0),
        ("clip", 0),
        ("clip", 1),
        ("floor", 0),
    ],
)
def test_case_62_a_kink_is_flagged(name, x, outputs, dtype):
    assert verdict_at(name, x, outputs, dtype, STEP) == "NONSMOOTH"


@each_dtype
@one_or_two
@pytest.mark.parametrize(
    ("name", "x"),
    [
        ("abs", 0.8 * STEP),
        ("abs", -0.8 * STEP),
        ("step", 0.8 * STEP),
        ("step", -0.8 * STEP),
        ("floor", 100 + 0.8 * STEP),
        ("floor", 100 - 0.8 * STEP),
    ],
)
def test_case_62_beside_a_kink_what_is_right_may_pass(name, x, outputs, dtype):
    assert verdict_at(name, x, outputs, dtype, STEP) in ("PASS", "NONSMOOTH")


@each_dtype
@one_or_two
@pytest.mark.parametrize(
    ("name", "x"),
    [
        ("abs", 1.2 * STEP),
        ("abs", -1.2 * STEP),
        ("abs", 100),
        ("abs", -100),
        ("step", 1.2 * STEP),
        ("step", -1.2 * STEP),
        ("clip", 0.5),
        ("floor", 100 + 1.2 * STEP),
        ("floor", 100 - 1.2 * STEP),
    ],
)
def test_case_62_a_kink_beyond_a_step_is_not_flagged(name, x, outputs, dtype):
    assert verdict_at(name, x, outputs, dtype, STEP) == "PASS"


@modes
@pytest.mark.parametrize("x", [0.0, 0.8 * STEP, 1.2 * STEP])
@pytest.mark.parametrize("name", ["abs", "step"])
def test_case_62_a_kink_is_never_called_wrong(name, x, fast_mode):
    f, vjp = elementwise(*SHAPES[name])
    report = checked(f, np.array([x]), vjp=vjp, step=STEP, fast_mode=fast_mode)
    assert report.verdict != "FAIL"


@each_dtype
@one_or_two
@pytest.mark.parametrize(
    ("name", "x", "step"),
    [
        *((name, x, STEP) for name in ("zero", "linear", "quadratic") for x in (0, 100, -100)),
        *(("cubic", x, STEP) for x in (0, 100, -100)),
        ("cubic", 0, 0.1),
        ("exp", -100, STEP),
        ("exp", 0, STEP),
        ("exp", 13, STEP),
        ("log", 100, STEP),
        ("log", 1e-3, 1e-5),
    ],
)
def test_case_63_a_smooth_function_is_not_flagged(name, x, step, outputs, dtype):
    verdict = verdict_at(name, x, outputs, dtype, step)
    assert verdict in (("PASS",) if dtype is np.float64 else ("PASS", "INCONCLUSIVE"))


@each_dtype
@one_or_two
@pytest.mark.parametrize(
    ("name", "x"),
    [
        ("log", 0),
        ("tan", np.pi / 2),
        ("tan", -np.pi / 2),
        ("gap", 1),
        ("gap", 3),
    ],
)
def test_case_64_a_pole_is_flagged(name, x, outputs, dtype):
    assert verdict_at(name, x, outputs, dtype, STEP) == "NONSMOOTH"


@each_dtype
def test_case_64_a_pole_is_flagged_for_a_jacobian(dtype):
    f, slope = map(quiet, SHAPES["log"])
    assert checked(f, np.zeros((), dtype), jac=slope, step=STEP).verdict == "NONSMOOTH"
    assert checked(f, np.zeros((), dtype), jac=slope).verdict == "NONSMOOTH"


@each_dtype
@one_or_two
@pytest.mark.parametrize(
    ("name", "x"),
    [
        ("tan", 1.5 * np.pi + 0.8 * STEP),
        ("tan", 1.5 * np.pi - 0.8 * STEP),
        ("gap", 1 - 0.8 * STEP),
        ("gap", 3 + 0.8 * STEP),
    ],
)
def test_case_64_a_pole_within_a_step_is_no_failure(name, x, outputs, dtype):
    # Shorter steps may still find the slope at x itself, and then it is right.
    assert verdict_at(name, x, outputs, dtype, STEP) != "FAIL"


@each_dtype
@one_or_two
@pytest.mark.parametrize("x", [1 + 0.8 * STEP, 3 - 0.8 * STEP])
def test_case_64_in_a_gap_nothing_is_confirmed(x, outputs, dtype):
    assert verdict_at("gap", x, outputs, dtype, STEP) in ("NONSMOOTH", "INCONCLUSIVE")


@each_dtype
@one_or_two
@pytest.mark.parametrize(
    ("name", "x"), [("log", -10), ("linear", np.inf), ("linear", -np.inf), ("gap", 2)]
)
def test_case_64_what_is_nowhere_finite_is_not_flagged(name, x, outputs, dtype):
    assert verdict_at(name, x, outputs, dtype, STEP) != "NONSMOOTH"


@each_dtype
@one_or_two
def test_case_64_beside_a_gap_all_is_right(outputs, dtype):
    for x in (0.5, 1 - 3 * STEP, 3 + 3 * STEP, 5):
        assert verdict_at("gap", x, outputs, dtype, STEP) == "PASS"


def max_jacobian(x):
    ties = x == x.max()
    return ties / ties.sum()


def pooled(x):
    return x.reshape(-1, 2).max(axis=1)


def pooled_vjp(x, w):
    pairs = x.reshape(-1, 2)
    taken = np.eye(2)[np.argmax(pairs, axis=1)]
    return (taken * w[:, None]).reshape(x.shape)


KINKS = {
    "relu at 0": (lambda x: np.maximum(x, 0), [0.0], {"vjp": lambda x, w: w * (x > 0)}),
    "max of ties": (np.max, [2.0, 2, 2], {"jac": max_jacobian}),
    "max_pool": (pooled, [1.0, 1, 1, 8], {"vjp": pooled_vjp}),
    "abs at 0": (np.abs, [0.0], {"jac": lambda x: np.zeros((1, 1))}),
}


@pytest.mark.parametrize("name", KINKS)
def test_case_65_a_kink_is_flagged_by_default(name):
    f, x, given = KINKS[name]
    report = checked(f, np.array(x), **given)
    assert report.verdict == "NONSMOOTH"
    assert "kink" in report.reason
    assert gradcheck(f, np.array(x), allow=("NONSMOOTH",), **given)
    with pytest.raises(calipers.NonsmoothError):
        gradcheck(f, np.array(x), **given)


@pytest.mark.parametrize("name", KINKS)
def test_case_65_a_kink_is_not_called_wrong_by_projections(name):
    f, x, given = KINKS[name]
    assert checked(f, np.array(x), fast_mode=True, **given).verdict != "FAIL"


def test_case_65_beside_a_kink_what_is_right_passes():
    for x in (5e-7, -5e-7):
        f, given = lambda x: np.maximum(x, 0), {"vjp": lambda x, w: w * (x > 0)}
        assert checked(f, np.array([x]), **given).verdict == "PASS"
    near = np.array([1.0, 1 + 5e-7, 3])
    given = {"jac": lambda x: np.eye(len(x))[np.argsort(x)]}
    assert checked(np.sort, near, **given).verdict in ("PASS", "NONSMOOTH")


def test_case_65_torch_kinks_are_flagged():
    torch = pytest.importorskip("torch")
    pool = torch.nn.MaxPool1d(2)
    for f, x in (
        (torch.relu, [0.0]),
        (torch.abs, [0.0]),
        (torch.amax, [2.0, 2, 2]),
        (lambda x: pool(x[None])[0], [1.0, 1, 1, 8]),
    ):
        given = torch.tensor(x, dtype=torch.float64, requires_grad=True)
        assert checked(f, (given,)).verdict == "NONSMOOTH"


@pytest.mark.parametrize(
    ("slope", "right"),
    [(0.0, True), (0.5, True), (1.0, True), (-0.5, False), (1.5, False), (np.nan, False)],
)
def test_case_65_any_slope_between_the_two_may_be_allowed(slope, right):
    report = checked(
        lambda x: np.maximum(x, 0),
        np.array([0.0]),
        jac=lambda x: np.array([[slope]]),
        allow=("NONSMOOTH",),
    )
    assert bool(report) == right
    assert report.verdict == ("NONSMOOTH" if right else "FAIL")


# L. Scales, precisions and what is not finite.


@pytest.mark.slow
@modes
@pytest.mark.parametrize("x", [1e8, 1e9, 1e10, 1e12, 1e-12, -1e10])
@pytest.mark.parametrize("factor", [1, 1.001])
def test_case_66_the_identity_of_any_size(x, factor, fast_mode):
    report = checked(
        numba.njit(lambda x: 1.0 * x),
        np.array([x]),
        vjp=lambda x, w: factor * w,
        fast_mode=fast_mode,
    )
    assert report.verdict == ("PASS" if factor == 1 else "FAIL")


@modes
@pytest.mark.parametrize("x", [1e-6, 1e-7, 1e-9])
@pytest.mark.parametrize("factor", [1, 1.001])
def test_case_66_a_logarithm_near_0(x, factor, fast_mode):
    f, vjp = elementwise(np.log, lambda x: factor / x)
    report = checked(f, np.array([x]), vjp=vjp, fast_mode=fast_mode)
    assert report.verdict == ("PASS" if factor == 1 else "FAIL")


@modes
def test_case_66_inputs_of_unlike_sizes(fast_mode):
    a, b = np.array([2e10]), np.array([1.0])
    options = {"fast_mode": fast_mode, "raise_exception": False}

    def f(a, b):
        return 1e-4 * a + b

    assert gradcheck(f, (a, b), vjp=lambda a, b, w: (1e-4 * w, w), **options)
    for wrong in ((1.01e-4, 1), (1e-4, 1.01)):
        report = gradcheck(f, (a, b), vjp=lambda a, b, w, k=wrong: (k[0] * w, k[1] * w), **options)
        assert report.verdict == "FAIL"


@modes
def test_case_66_torch_inputs_of_any_size(fast_mode):
    torch = pytest.importorskip("torch")
    x = torch.tensor([1e8, 1e10, 1e12, 1e-12], dtype=torch.float64, requires_grad=True)
    assert gradcheck(lambda x: x * 1, (x,), fast_mode=fast_mode)
    x = torch.tensor([1e-6, 1e-7, 1e-9], dtype=torch.float64, requires_grad=True)
    assert gradcheck(torch.log, (x,), fast_mode=fast_mode)


SINGLE = [
    (name, x)
    for name in ("identity", "sin", "exp")
    for x in (0.5, 1, 10, 100)
    if (name, x) != ("exp", 100)  # too large for float32
]
SLOPES = {
    "identity": (lambda x: x.copy(), np.ones_like),
    "sin": (np.sin, np.cos),
    "exp": (np.exp, np.exp),
}


def single(name, x, factor, fast_mode):
    f, slope = SLOPES[name]
    f, vjp = elementwise(f, lambda x: np.float32(factor) * slope(x))
    return checked(f, np.array([x], np.float32), vjp=vjp, fast_mode=fast_mode).verdict


@modes
@pytest.mark.parametrize(("name", "x"), SINGLE)
def test_case_67_float32_passes_with_default_settings(name, x, fast_mode):
    assert single(name, x, 1, fast_mode) == "PASS"


@modes
@pytest.mark.parametrize("factor", [0.97, 1.03])
@pytest.mark.parametrize(("name", "x"), SINGLE)
def test_case_67_three_percent_are_wrong_in_float32(name, x, factor, fast_mode):
    assert single(name, x, factor, fast_mode) == "FAIL"


@modes
@pytest.mark.parametrize("name", SLOPES)
def test_case_67_one_percent_is_wrong_in_float32(name, fast_mode):
    found = [single(name, x, 1.01, fast_mode) for other, x in SINGLE if other == name]
    assert set(found) == {"FAIL"}


def test_case_67_float16_is_checked_at_what_it_resolves():
    f, vjp = elementwise(np.sin, np.cos)
    x = np.array([0.5], np.float16)
    assert gradcheck(f, x, vjp=vjp).verdict == "PASS"
    wrong = gradcheck(f, x, vjp=lambda x, w: 2 * vjp(x, w), raise_exception=False)
    assert wrong.verdict == "FAIL"


def missing_row(x):
    y = 2 * x
    y[1] = np.nan
    return y


@modes
@pytest.mark.parametrize("equal_nan", [False, True])
def test_case_68_nan_in_both(equal_nan, fast_mode):
    jacobian = np.diag([2.0, np.nan, 2])
    jacobian[1] = np.nan
    report = checked(
        missing_row,
        np.ones(3),
        jac=lambda x: jacobian,
        equal_nan=equal_nan,
        fast_mode=fast_mode,
    )
    assert report.verdict == ("PASS" if equal_nan else "FAIL")


@modes
@pytest.mark.parametrize("equal_nan", [False, True])
@pytest.mark.parametrize("form", ["jac", "vjp", "jvp"])
def test_case_68_nan_where_f_is_finite(form, equal_nan, fast_mode):
    slope = np.array([2.0, np.nan, 2])
    given = {
        "jac": lambda x: np.diag([2.0, np.nan, 2]),
        "vjp": lambda x, w: slope * w,
        "jvp": lambda x, v: slope * v,
    }
    report = checked(
        lambda x: 2 * x,
        np.ones(3),
        equal_nan=equal_nan,
        fast_mode=fast_mode,
        **{form: given[form]},
    )
    assert report.verdict == "FAIL"
    assert "nan" in str(report).lower()


@modes
@pytest.mark.parametrize("size", [1, 3, 50])
@pytest.mark.parametrize("form", ["jac", "vjp", "jvp"])
def test_case_68_one_nan_is_found(form, size, fast_mode):
    slope = np.full(size, 2.0)
    slope[size // 2] = np.nan

    def product(x, w):
        return np.where(w == 0, 0, slope * w)

    given = product if form != "jac" else lambda x: np.where(np.eye(size) == 0, 0, slope)
    report = checked(lambda x: 2 * x, np.ones(size), fast_mode=fast_mode, **{form: given})
    assert report.verdict == "FAIL"
    assert "nan" in report.reason


@modes
def test_case_68_infinity_where_f_is_finite(fast_mode):
    report = checked(
        lambda x: 2 * x,
        np.ones(2),
        jac=lambda x: np.array([[2.0, 0], [0, np.inf]]),
        fast_mode=fast_mode,
    )
    assert report.verdict == "FAIL"
    assert "inf" in str(report)


@modes
@pytest.mark.parametrize("factor", [1, 1.01])
def test_case_69_a_step_for_each_element(factor, fast_mode):
    x = np.array([1e-3, 1.0, 1e6])
    report = checked(
        np.sin if fast_mode else compiled_cube,
        x,
        vjp=lambda x, w: factor * w * (np.cos(x) if fast_mode else 3 * x * x),
        step=np.array([1e-7, 1e-4, 1e-3 if fast_mode else 1e2]),
        fast_mode=fast_mode,
    )
    assert report.verdict == ("PASS" if factor == 1 else "FAIL")


@modes
def test_case_69_an_element_with_a_step_of_0_is_not_tested(fast_mode):
    x = np.array([0.5, 1, 2])

    def vjp(x, w):
        return w * np.array([1, 7, 1]) * 3 * x * x

    options = {"vjp": vjp, "fast_mode": fast_mode}
    assert checked(compiled_cube, x, **options).verdict == "FAIL"
    assert gradcheck(compiled_cube, x, step=np.array([1e-4, 0, 1e-4]), **options)


def test_case_69_f_is_not_called_at_another_place_along_a_step_of_0():
    f, seen = counted(lambda x: x**3)
    x = np.array([0.5, 1, 2])
    gradcheck(f, x, vjp=cube_vjp, step=np.array([1e-4, 0, 1e-4]))
    assert {float(given[0][1]) for given in seen} == {1.0}


@modes
@pytest.mark.parametrize("x", [[0.0, 0.5, 1], [1e-9, 1 - 1e-9, 1], [0.0, 0, 0]])
@pytest.mark.parametrize("factor", [1, 1.01])
def test_case_69_f_is_not_called_outside_bounds(x, factor, fast_mode):
    f, seen = counted(np.exp)
    report = checked(
        f,
        np.array(x),
        vjp=lambda x, w: factor * w * np.exp(x),
        bounds=(0.0, 1.0),
        fast_mode=fast_mode,
    )
    points = np.array([given[0] for given in seen])
    assert np.all((points >= 0) & (points <= 1))
    assert report.verdict == ("PASS" if factor == 1 else "FAIL")


def noisy(x):
    """Return a smooth function with a relative noise of 1e-9 that x alone determines."""
    return np.exp(x) * (1 + 1e-9 * np.sin(1e13 * x))


@modes
@pytest.mark.parametrize("x", [0.3, 1.0, 2.7])
def test_case_70_noise_does_not_make_a_right_gradient_wrong(x, fast_mode):
    given = x + np.linspace(0, 0.1, 20)
    report = checked(noisy, given, vjp=lambda x, w: w * np.exp(x), fast_mode=fast_mode)
    assert report.verdict in ("PASS", "INCONCLUSIVE")
    if not fast_mode:
        assert report.fd_error > 1e-9


@modes
@pytest.mark.parametrize("x", [0.3, 1.0, 2.7])
def test_case_70_noise_does_not_hide_a_wrong_gradient(x, fast_mode):
    given = x + np.linspace(0, 0.1, 20)
    report = checked(noisy, given, vjp=lambda x, w: 1.03 * w * np.exp(x), fast_mode=fast_mode)
    # At 0.3 the waves are longer than the spacing of x: the slope at x is 1e4, that of no claim.
    assert report.verdict in (("FAIL", "INCONCLUSIVE") if x < 1 else ("FAIL",))


@pytest.mark.slow
@pytest.mark.parametrize("compiled", [True, False])
@pytest.mark.parametrize("largest", [1e3, 1e6, 1e9])
@pytest.mark.parametrize("n", [3, 8, 30])
def test_a_linear_system_has_no_kinks_at_its_root(n, largest, compiled):
    """There f is 0, and its rounding that of terms that are not."""
    matrix = np.random.default_rng(0).standard_normal((n, n)) * np.geomspace(1, largest, n)
    right = matrix @ np.ones(n)

    def residual(x):
        return matrix @ x - right

    f = numba.njit(residual) if compiled else residual
    assert calipers.gradcheck(f, np.ones(n), jac=lambda x: matrix)
    jvp = numba.njit(lambda x, v: matrix @ v)
    assert calipers.gradcheck(f, np.ones(n), vjp=lambda x, w: matrix.T @ w, jvp=jvp)


@pytest.mark.parametrize("seed", [0, 30, 52, 59])
def test_rounding_of_terms_in_float32_is_no_kink_at_a_root(seed):
    random = np.random.default_rng(seed)
    matrix = (random.standard_normal((3, 3)) * [1, 31.622776, 1000]).astype(np.float32)
    ones = np.ones(3, np.float32)
    right = matrix @ ones
    assert calipers.gradcheck(
        lambda x: matrix @ x - right, ones, jac=lambda x: matrix.astype(float)
    )


@pytest.mark.parametrize(
    ("slope", "options", "verdict"),
    [
        (0.3, {}, "NONSMOOTH"),
        (1 + 5e-7, {}, "NONSMOOTH"),  # one of its slopes, within the tolerance
        (1 + 5e-4, {"atol": 1e-3}, "NONSMOOTH"),
        (1.05, {}, "FAIL"),
        (1.25, {}, "FAIL"),
    ],
)
def test_only_what_is_clearly_outside_of_the_slopes_at_a_kink_is_wrong(slope, options, verdict):
    for sign in (1, -1):
        claimed = np.array([[sign * slope]])
        report = checked(np.abs, np.zeros(1), jac=lambda x, a=claimed: a, **options)
        assert report.verdict == verdict


def test_a_kink_that_is_nothing_beside_other_slopes_is_none():
    claimed = np.array([[1e6, 0.0]])
    for slope, verdict in ((1e-3, "PASS"), (1.0, "NONSMOOTH")):

        def f(x, slope=slope):
            return np.array([1e6 * x[0] + slope * np.abs(x[1])])

        assert checked(f, np.zeros(2), jac=lambda x: claimed).verdict == verdict


def test_a_kink_at_a_root_is_seen_beside_terms_that_cancel():
    matrix = np.array([[1.0, 1e3], [3.0, -1e3]])
    right = matrix @ np.ones(2)

    def f(x):
        return matrix @ x - right + np.abs(x[0] - 1)

    report = calipers.gradcheck(f, np.ones(2), jac=lambda x: matrix, raise_exception=False)
    assert report.verdict == "NONSMOOTH"
    assert report.counts["NONSMOOTH"] == 2


def test_kinks_beside_each_other_are_judged_by_their_own_steps():
    at = np.array([1.0, 1e6])
    report = calipers.gradcheck(
        lambda x: np.abs(x - at), at, jac=lambda x: np.diag([0.0, 5.0]), raise_exception=False
    )
    assert [(e.verdict, e.column) for e in report.failures] == [("FAIL", 1), ("NONSMOOTH", 0)]


def test_a_slope_of_one_side_of_a_kink_is_no_mistake_beside_larger_terms():
    x = np.array([0.75, 0.75, 0.8, 2], np.float32)
    matrix = np.array([[-0.012, -0.79, -0.088, 5e-4]], np.float32)
    right = matrix @ x

    def f(x):
        return np.maximum(matrix @ x - right, np.float32(0))

    options = {"jac": lambda x: matrix.astype(float), "raise_exception": False}
    assert calipers.gradcheck(f, x, **options).verdict == "NONSMOOTH"


def test_a_slope_that_rounding_hides_is_not_called_wrong():
    x, matrix = np.array([1.0, 1e-5]), np.array([[1e4, 1e-5]])
    right = matrix @ (x * x)

    def f(x):
        return matrix @ (x * x) - right

    options = {"raise_exception": False}
    report = calipers.gradcheck(f, x, jac=lambda x: matrix * 2 * x, **options)
    assert report.verdict != "FAIL"
    too_large = np.array([[2e4, 2e-5]])
    assert calipers.gradcheck(f, x, jac=lambda x: too_large, **options).verdict == "FAIL"


@pytest.mark.parametrize("wrong", [False, True])
@pytest.mark.parametrize("shut", [2, 6])
def test_calls_are_counted_where_bounds_leave_no_room(shut, wrong):
    calls = [0]

    def f(x):
        calls[0] += 1
        return x * x

    x = np.linspace(1, 2, 6)
    low, high = x - 1, x + 1
    low[:shut] = high[:shut] = x[:shut]
    jac = lambda x: np.diag((2 + wrong) * x)  # noqa: E731
    report = calipers.gradcheck(f, x, jac=jac, bounds=(low, high), raise_exception=False)
    assert report.calls["f"] == calls[0]


@pytest.mark.parametrize("logits", [[1.0, 2.0, -40.0], [1.0, 2.0, -20.0], [0.0, -100.0, -700.0]])
def test_masked_logits_of_softmax_are_no_doubt(logits):
    def softmax(x):
        e = np.exp(x - x.max())
        return e / e.sum()

    def jac(x):
        p = softmax(x)
        return np.diag(p) - np.outer(p, p)

    assert calipers.gradcheck(softmax, np.array(logits), jac=jac)


def test_a_small_entry_that_is_off_is_no_slight_one():
    x = np.array([1.0, 2.0, -20.0])
    e = np.exp(x - 2)
    p = e / e.sum()
    wrong = np.diag(p) - np.outer(p, p)
    wrong[0, 2] *= 1.01
    report = calipers.gradcheck(
        lambda x: np.exp(x - 2) / np.exp(x - 2).sum(), x, jac=lambda x: wrong, raise_exception=False
    )
    assert [(f.row, f.column) for f in report.failures] == [(0, 2)]
    assert report.verdict == "FAIL"


def test_a_derivative_at_nan_is_told_as_such():
    x = np.array([np.nan, 1.0])
    report = calipers.gradcheck(np.sin, x, jac=lambda x: np.diag(np.cos(x)), raise_exception=False)
    assert "d out[0][0] / d in[0][0] is NaN, analytic and numerical" in report.reason
    assert "equal_nan=True" in report.reason


@pytest.mark.parametrize("compiled", [True, False])
@pytest.mark.parametrize("power", [0.5, 0.9, 1.0])
def test_a_cusp_has_no_derivative(power, compiled):
    def f(x):
        return np.abs(x) ** power

    d = calipers.differentiate(numba.njit(f) if compiled else f, np.zeros(1))
    assert d.status.tolist() == ["NONSMOOTH"]
    assert d.error > 0.9
    report = calipers.gradcheck(
        numba.njit(f) if compiled else f, np.zeros(1), jac=lambda x: [[0.0]], raise_exception=False
    )
    assert report.verdict != "PASS"
