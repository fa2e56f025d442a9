"""calipers.testing for numpy.testing and torch.testing: the same verdicts, and what is said."""

import collections
import contextlib
import gc
import importlib
import inspect
import math
import subprocess
import sys
import warnings
from fractions import Fraction
from pathlib import Path

import numpy as np
import numpy.testing
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import calipers
from calipers import testing as npt
from tests.compare.numpy_suite_plugin import ASSERTIONS
from tests.compare.test_random_pairs import as_values, elements
from tests.data import oracles
from tests.data.closeness_cases import EDGE

INF, NAN = np.inf, np.nan


def verdict(function, *args, **kwargs):
    """Return "passes", or the kind of the error."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            function(*args, **kwargs)
        except AssertionError:
            return "AssertionError"
        except Exception as error:
            return type(error).__name__
    return "passes"


def assert_same_verdict(name, *args, **kwargs):
    expected = verdict(getattr(numpy.testing, name), *args, **kwargs)
    here = verdict(getattr(npt, name), *args, **kwargs)
    if not (has_a_verdict_here_alone(name, *args) and expected not in ("passes", "AssertionError")):
        assert here == expected, (name, args, kwargs)
    return expected


def has_a_verdict_here_alone(name, *args):
    """Return True for integers beyond all dtypes, and for spacings of longdouble."""
    if any(type(x) is int and x >= 2**64 for x in args):
        return True
    longs = any(getattr(x, "dtype", None) == np.longdouble for x in args)
    return longs and name == "assert_array_almost_equal_nulp"


# The names


def test_every_name_of_numpy_is_there():
    names = [name for name in dir(numpy.testing) if not name.startswith("_")]
    assert len(names) > 50
    for name in names:
        if name in ASSERTIONS:
            assert getattr(npt, name).__module__ == "calipers.testing"
        else:
            assert getattr(npt, name) is getattr(numpy.testing, name)
    assert set(numpy.testing.__all__) <= set(npt.__all__) <= set(dir(npt))
    assert set(names) <= set(dir(npt))


def test_every_assertion_about_arrays_is_ours():
    ours = {f"assert_{x}" for x in ("equal", "approx_equal", "almost_equal", "allclose")}
    ours |= {name for name in numpy.testing.__all__ if name.startswith("assert_array")}
    assert ours == set(ASSERTIONS)


@pytest.mark.parametrize("name", ASSERTIONS)
def test_signatures_are_numpys(name):
    def parameters(function):
        found = inspect.signature(function).parameters.values()
        return [(x.name, x.kind, x.default) for x in found]

    assert parameters(getattr(npt, name)) == parameters(getattr(numpy.testing, name))


def test_what_is_not_there():
    with pytest.raises(AttributeError, match="assert_nothing"):
        _ = npt.assert_nothing


def test_star_import_and_lazy_libraries():
    """Torch is imported for make_tensor alone, and NumPy for nothing in calipers itself."""
    lines = [
        "import sys, calipers",
        "assert 'numpy' not in sys.modules",
        "from calipers.testing import *",
        "assert assert_allclose.__module__ == 'calipers.testing'",
        "assert_raises(AssertionError, assert_close, 1.0, 2.0)",
        "assert 'torch' not in sys.modules",
    ]
    subprocess.run([sys.executable, "-c", "\n".join(lines)], check=True)


def test_make_tensor_is_torchs():
    torch = pytest.importorskip("torch")
    assert npt.make_tensor is torch.testing.make_tensor
    assert "make_tensor" in dir(npt)


def test_the_page_tells_which_names_of_torch_are_not_there():
    torch = pytest.importorskip("torch")
    names = {name for name in dir(torch.testing) if not name.startswith("_")}
    page = (Path(__file__).parents[2] / "docs/testing.md").read_text("utf-8")
    for name in names - {"assert_close", "make_tensor"}:
        assert f"| `{name}` |" in page


# Verdicts, where every number and tolerance is exact in every dtype


class Measured(np.ndarray):
    pass


SPECIAL = {
    "masked": lambda x: np.ma.array(x, mask=np.arange(x.size).reshape(x.shape) % 2 == 0),
    "subclass": lambda x: x.view(Measured),
    "structured": lambda x: np.rec.fromarrays([x, x], names="width, height"),
    "str": lambda x: x.astype("U8"),
    "bytes": lambda x: x.astype("S8"),
    "StringDType": lambda x: x.astype("U8").astype(np.dtypes.StringDType()),
    "object": lambda x: x.astype(object),
    "dates": lambda x: np.array([_date(v) for v in x.ravel()], "M8[D]").reshape(x.shape),
    "times": lambda x: np.array([_date(v) for v in x.ravel()], "m8[D]").reshape(x.shape),
}


def _date(value):
    return int(value) if np.isfinite(value) else "NaT"


FLOATS = ["f2", "f4", "f8", "g", ">f4", "c8", "c16", "G"]
INTEGERS = ["?", "i1", "u1", "i4", "u8", "i8"]
shapes = st.sampled_from([(), (1,), (2,), (2, 1), (2, 2), (0,), (4,)])
values = st.sampled_from([0.0, -0.0, 0.5, 1.0, -1.0, 1.5, 2.0, 3.0, INF, -INF, NAN])
usual = st.sampled_from([0.0, 1.0, 1.5, 2.0])


@st.composite
def operands(draw):
    """Draw two arrays, of which the second is often the first or nearly so."""
    kinds = draw(st.sampled_from([FLOATS, INTEGERS, FLOATS + INTEGERS, list(SPECIAL)]))
    shape = draw(shapes)
    drawn = values if draw(st.booleans()) else usual
    first = draw(_arrays(shape, drawn))
    second = first.copy()
    what = draw(st.sampled_from(["same", "one element", "another", "another shape"]))
    if what == "one element" and second.size:
        second.flat[draw(st.integers(0, second.size - 1))] = draw(values)
    elif what == "another":
        second = draw(_arrays(shape, drawn))
    elif what == "another shape":
        second = draw(_arrays(draw(shapes), drawn))
    kind = draw(st.sampled_from(kinds))
    other = kind if draw(st.booleans()) else draw(st.sampled_from(kinds))
    return _as_kind(first, kind), _as_kind(second, other)


@st.composite
def _arrays(draw, shape, drawn):
    count = int(np.prod(shape))
    return np.array(draw(st.lists(drawn, min_size=count, max_size=count))).reshape(shape)


def _as_kind(x, kind):
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        if kind in SPECIAL:
            return SPECIAL[kind](x)
        dtype = np.dtype(kind)
        if dtype.kind in "biu":
            return np.where(np.isfinite(x), abs(x), 0).astype(dtype)
        if dtype.kind == "c":
            # Of finite ones the size is exact: NumPy rounds it in complex64, and meets bounds so.
            mixed = x + 1j * x[::-1] if x.ndim else x + 2j
            return np.where(np.isfinite(x), x * (3 + 4j), mixed).astype(dtype)
        return x.astype(dtype)


def _as_given(x, form):
    """Return an array as a list, a number or what it is."""
    return x.tolist() if form == "list" and type(x) is np.ndarray else x


forms = st.sampled_from(["array", "array", "list"])


@settings(max_examples=300, deadline=None)
@given(operands(), forms, st.booleans(), st.booleans(), st.data())
def test_verdicts_are_numpys(pair, form, strict, equal_nan, data):
    a, b = (_as_given(x, form) for x in pair)
    rtol, atol = (data.draw(st.sampled_from([0, 0.25, 0.5, 1])) for _ in range(2))
    assert_same_verdict("assert_array_equal", a, b, strict=strict)
    assert_same_verdict("assert_equal", a, b, strict=strict)
    assert_same_verdict("assert_equal", {"x": [a]}, {"x": [b]})
    assert_same_verdict("assert_array_less", a, b, strict=strict)
    assert_same_verdict("assert_allclose", a, b, rtol, atol, equal_nan, strict=strict)
    decimal = data.draw(st.sampled_from([0, 1, 2, -1]))
    assert_same_verdict("assert_array_almost_equal", a, b, decimal)
    assert_same_verdict("assert_almost_equal", a, b, decimal)
    steps = data.draw(st.sampled_from([0, 1, 2**20]))
    assert_same_verdict("assert_array_almost_equal_nulp", a, b, steps)
    assert_same_verdict("assert_array_max_ulp", a, b, steps)


@settings(max_examples=200, deadline=None)
@given(st.data())
def test_verdicts_are_exact(data):
    """For any bits and tolerances, where NumPy rounds: the oracle's, which is exact."""
    dtype = np.dtype(data.draw(st.sampled_from(["f8", "f4", "f2", "c16", "i8", "u8", "i1"])))
    numbers = st.lists(elements(dtype), min_size=2, max_size=2)
    a, b = (as_values(data.draw(numbers), dtype) for _ in range(2))
    b[0] = a[0]
    rtol, atol = (data.draw(st.sampled_from([0.0, 1e-8, 0.5, 1.0, 2.0, 1e300])) for _ in range(2))
    for equal_nan in (True, False):
        close = oracles.isclose(a, b, rtol, atol, equal_nan).all()
        found = verdict(npt.assert_allclose, a, b, rtol, atol, equal_nan)
        assert found == ("passes" if close else "AssertionError")


TOLERANCES = [0, 1e-7, True, np.float32(0.5), np.int8(1), np.longdouble(0.5), INF, NAN, -1.0, -INF]
ODD = [None, "0.1", Fraction(1, 2), 1j, np.array(0.5), np.array([0.5]), np.array([0.5, 1]), [0.5]]


@pytest.mark.parametrize("tolerance", TOLERANCES + ODD, ids=repr)
@pytest.mark.parametrize("b", [1.0, 1.25, 2.0, INF, NAN])
def test_tolerances_of_any_kind(tolerance, b):
    a, b = np.array([1.0, 1.0]), np.array([1.0, b])
    assert_same_verdict("assert_allclose", a, b, rtol=tolerance)
    assert_same_verdict("assert_allclose", a, b, rtol=0, atol=tolerance)


@pytest.mark.parametrize("decimal", [0, 3, 7.5, -2, 400, -400, True, None, "3", NAN, INF, -INF])
def test_decimals_of_any_kind(decimal):
    # From NumPy 2.5 on NaN is found before a decimal that is no number.
    nan = () if decimal in (None, "3") else (NAN,)
    for b in (1.0, 1.000999, 1.1, 2.499, 2.5, 100.0, *nan):
        for a, c in ((1.0, b), ([1.0], [b]), (1j, b * 1j), ([1j], [b * 1j]), ([2], [b])):
            assert_same_verdict("assert_almost_equal", a, c, decimal)
            assert_same_verdict("assert_array_almost_equal", a, c, decimal)


@pytest.mark.parametrize("significant", [1, 5, 7])
def test_significant_digits(significant):
    for b in (1234.22, 1234.23, -1234.22, 0.0, INF, NAN):
        assert_same_verdict("assert_approx_equal", 1234.22, b, significant)
    assert_same_verdict("assert_approx_equal", [1.0, 2.0], [1.0, 2.0], significant)


THINGS = [
    *(None, 0, 0.0, -0.0, 1, 1.0, True, NAN, INF, 1j, complex(NAN, 1), complex(1, NAN), "a", b"a"),
    *(
        2**70,
        np.float32(1),
        np.str_("a"),
        np.datetime64("NaT", "s"),
        np.timedelta64("NaT", "s"),
        {1},
        int,
    ),
    *([], [1], (1,), [1, 2], [[1], [1, 2]], [NAN], [0.0], [-0.0], ["a"], [None], range(2)),
    *({}, {"a": 1}, {"a": 2}, {"b": 1}, {"a": 1, "b": 2}, {"a": np.ones(2)}, collections.Counter()),
    *(np.ones(2), np.ones(1), np.array(1), np.zeros(0), [np.ones(2)], [np.array(1)], np.array("a")),
    *(np.array([None, 1]), np.array({"a": 1}), np.ma.masked, np.array([0.0])),
]


@pytest.mark.parametrize("a", THINGS, ids=repr)
def test_things_of_any_kind(a):
    found = set()
    for b in THINGS:
        found.add(assert_same_verdict("assert_equal", a, b))
        found.add(assert_same_verdict("assert_equal", [a, {"x": b}], (a, {"x": b})))
        for name in ("assert_array_equal", "assert_almost_equal", "assert_allclose"):
            found.add(assert_same_verdict(name, a, b))
    assert {"passes", "AssertionError"} <= found


@pytest.mark.parametrize("compare", [np.equal, np.less_equal, np.greater], ids=lambda f: f.__name__)
def test_comparisons_of_the_callers(compare):
    for b in ([1.0, 2.0], [1.0, 3.0], [0.0, 1.0], [1.0, NAN], [1.0], 1.0, [1.0, INF]):
        for options in ({}, {"strict": True}, {"equal_nan": False, "equal_inf": False}):
            assert_same_verdict("assert_array_compare", compare, [1.0, 2.0], b, **options)
    with pytest.raises(calipers.ClosenessError, match="Arrays, LEFT"):
        npt.assert_array_compare(
            np.equal, [1], [2], header="Arrays, LEFT and RIGHT", names=("LEFT", "RIGHT")
        )


# What differs, and why: the list of docs/testing.md

DIFFERENT = {
    "rtol*|b| overflows": (
        ("assert_allclose", *(np.array([x], "f2") for x in (40000, -40000)), 1.99),
        "AssertionError",
    ),
    "the modulus overflows": (
        ("assert_allclose", np.array([0j]), np.array([1.5e308 * (1 + 1j)])),
        "AssertionError",
    ),
    "integers beyond 2**53": (("assert_allclose", [2**53], [2**53 + 1], 0), "AssertionError"),
    "integers beyond 2**53, decimals": (
        ("assert_array_almost_equal", [2**53], [2**53 + 1], 1),
        None,
    ),
    "a limit below float16's numbers": (
        ("assert_array_almost_equal", np.ones(1, "f2"), np.ones(1, "f2"), 8),
        "passes",
    ),
    "a tolerance that is rounded to float32": (
        ("assert_allclose", np.array([1], "f4"), np.array([0], "f4"), 0, 1 - 2**-53),
        "AssertionError",
    ),
}


@pytest.mark.parametrize("what", DIFFERENT)
def test_what_differs(what):
    (name, *args), ours = DIFFERENT[what]
    if ours is None:  # 1 < 0.15 is False, and NumPy says 0 < 0.15
        ours = "AssertionError"
    assert verdict(getattr(npt, name), *args) == ours
    assert verdict(getattr(numpy.testing, name), *args) not in (ours, "TypeError")


def test_nan_of_foreign_formats():
    ml_dtypes = pytest.importorskip("ml_dtypes")
    x = np.array([1, NAN], ml_dtypes.bfloat16)
    npt.assert_array_equal(x, x)
    assert verdict(numpy.testing.assert_array_equal, x, x) == "AssertionError"


@pytest.mark.parametrize(("name", "pair", "options", "close"), EDGE, ids=[x[0] for x in EDGE])
def test_edges(name, pair, options, close):
    options = {"rtol": 1e-5, "atol": 1e-8, "equal_nan": False} | options
    assert verdict(npt.assert_allclose, *pair, **options) == (
        "passes" if close else "AssertionError"
    )


# What is said


def error_of(function, *args, **kwargs):
    with pytest.raises(calipers.ClosenessError) as caught:
        function(*args, **kwargs)
    return caught.value


def test_the_report_follows_numpys_head():
    error = error_of(npt.assert_allclose, [1.0, 2.0], [1.0, 2.5], atol=0.25, err_msg="of widths")
    lines = str(error).split("\n")
    assert lines[:3] == [
        "",
        "Not equal to tolerance rtol=1e-07, atol=0.25 of widths",
        "Not close: 1 of 2 elements differs (50 %)",
    ]
    assert str(error.report) == "\n".join(lines[2:])
    assert error.report.first_mismatches[0].index == (1,)
    assert error.report.rule.atol == 0.25
    assert error.report.rule.equal_nan


def test_long_messages_have_lines_of_their_own():
    error = error_of(npt.assert_array_equal, [1], [2], "first\nsecond")
    assert str(error).startswith("\nArrays are not equal\nfirst\nsecond\nNot close: ")
    assert str(error_of(npt.assert_array_equal, [1], [2], err_msg=3)).startswith(
        "\nArrays are not equal 3\n"
    )


def test_decimals_are_named():
    error = error_of(npt.assert_array_almost_equal, [1.0], [1.1], 3)
    assert str(error).startswith("\nArrays are not almost equal to 3 decimals\nNot close: 1 of 1")


def test_without_verbose_only_the_verdict():
    for function in (npt.assert_allclose, npt.assert_array_equal, npt.assert_almost_equal):
        error = error_of(function, np.arange(4), np.ones(4), verbose=False)
        assert str(error).endswith("\nNot close: 3 of 4 elements differ (75 %)")
        assert error.report.mismatches == 3


def test_the_way_to_an_element_is_said():
    a, b = {"w": [np.ones(2), np.ones(3)]}, {"w": [np.ones(2), np.zeros(3)]}
    text = str(error_of(npt.assert_equal, a, b, "weights"))
    assert text.index("item=1") < text.index("key='w'") < text.index("weights")
    assert text.index("weights") < text.index("Not close: 3 of 3")


def test_shapes_and_dtypes_are_said():
    error = error_of(npt.assert_array_equal, np.ones(2), np.ones((2, 1)), "of rows")
    assert "Arrays are not equal\nof rows\n(shapes (2,), (2, 1) mismatch)" in str(error)
    error = error_of(npt.assert_allclose, np.ones(2), np.ones(2, "f4"), strict=True)
    assert "(dtypes float64, float32 mismatch)" in str(error)
    error = error_of(npt.assert_allclose, np.ones(2), 1.0, strict=True, verbose=False)
    assert str(error).endswith("(shapes (2,), () mismatch)")


def test_numpys_errors_are_ours_too():
    for function, args in (
        (npt.assert_equal, (1, 2)),
        (npt.assert_equal, ({"a": 1}, {"b": 1})),
        (npt.assert_equal, ([1], [1, 2])),
        (npt.assert_almost_equal, (1.0, 2.0)),
        (npt.assert_approx_equal, (1.0, 2.0)),
        (npt.assert_array_less, ([1, 2], [2, 2])),
        (npt.assert_array_equal, (np.array(["a"]), np.array(["b"]))),
    ):
        with pytest.raises(AssertionError) as theirs:
            getattr(numpy.testing, function.__name__)(*args)
        assert str(error_of(function, *args)) == str(theirs.value)


def test_steps_are_counted():
    a = np.array([1.0, 2.0, 4.0], "f4")
    b = np.nextafter(np.nextafter(a, np.float32(9)), np.float32(9))
    for function in (npt.assert_array_almost_equal_nulp, npt.assert_array_max_ulp):
        function(a, b, 2)
        error = error_of(function, a, b, 1)
        assert "ULP" in str(error).partition("\n")[0]
        assert error.report.rule.max_ulp == 1
        assert str(error).endswith(str(error.report))
    returned = npt.assert_array_max_ulp(a, b, 2)
    np.testing.assert_array_equal(returned, numpy.testing.assert_array_max_ulp(a, b, 2))
    assert error_of(npt.assert_array_max_ulp, a, b, 1.5).report.mismatches == 3
    # As NumPy has it: NaN are no steps apart by one of the two, and never near by the other.
    x, y = np.array([1.0, NAN]), np.array([2.0, NAN])
    assert error_of(npt.assert_array_max_ulp, x, y).report.mismatches == 1
    assert error_of(npt.assert_array_almost_equal_nulp, x, y).report.mismatches == 2
    # Other steps: those of float16, of which the two are none apart; and those of float64.
    npt.assert_array_max_ulp(a, b, 0, "f2")
    assert error_of(npt.assert_array_max_ulp, a, b, 2, "f8").report.actual_dtype == "float64"


def test_spacings_of_longdouble_are_counted():
    """NumPy's own raises ValueError instead of the message."""
    x = np.ones(3, np.longdouble)
    y = x + 5 * np.finfo(np.longdouble).eps
    npt.assert_array_almost_equal_nulp(x, y, nulp=5)
    for a, b in ((x, y), (x[0], y[0])):
        with pytest.raises(AssertionError, match=r"not equal to 4 ULP \(max is 5\)"):
            npt.assert_array_almost_equal_nulp(a, b, nulp=4)


def test_integers_beyond_all_dtypes_are_compared():
    """NumPy's own raises TypeError: its isfinite takes no objects."""
    factorial = math.factorial(100)
    npt.assert_allclose(9.332621544394415e157, factorial)
    npt.assert_array_equal([factorial], [factorial])
    with pytest.raises(AssertionError, match="rtol=1e-20"):
        npt.assert_allclose(float(factorial), factorial, rtol=1e-20)
    with pytest.raises(AssertionError, match="not equal"):
        npt.assert_array_equal([factorial], [factorial + 1])


class Subclass(np.ndarray):
    pass


with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # of NumPy 2.5
    CHARACTERS = np.char.array(["a", "b"])

SUBCLASSES = {
    "masked number": np.ma.array(1.0),
    "masked number, hidden": np.ma.array(1.0, mask=True),
    "masked": np.ma.masked,
    "masked array": np.ma.array([1.0, 2.0], mask=[False, True]),
    "masked complex number": np.ma.array(1 + 0j),
    "subclass, 0-d": np.array(1.0).view(Subclass),
    "subclass": np.array([1.0, 2.0]).view(Subclass),
    "matrix": np.ones((1, 1)).view(np.matrix),
    "record": np.rec.array([(1.0, 2.0)])[0],
    "characters": CHARACTERS,
}
PLAIN = {"1": 1, "1.0": 1.0, "0-d": np.array(1.0), "1-d": np.array([1.0, 2.0]), "text": "a"}


@pytest.mark.parametrize("strict", [False, True])
@pytest.mark.parametrize("b", SUBCLASSES | PLAIN)
@pytest.mark.parametrize("a", SUBCLASSES)
def test_subclasses_pass_where_they_pass_with_numpy(a, b, strict):
    pairs = [[(SUBCLASSES | PLAIN)[x] for x in names] for names in ((a, b), (b, a))]
    names = ("assert_allclose", "assert_array_equal", "assert_equal")
    if not strict:
        names += ("assert_almost_equal", "assert_array_almost_equal", "assert_array_less")
    options = {"strict": True} if strict else {}
    for name in names:
        for x, y in pairs:
            outcomes = []
            for module in (np.testing, npt):
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    try:
                        outcomes.append(getattr(module, name)(x, y, **options))
                    except Exception as error:  # NumPy's own may raise anything
                        kinds = AssertionError, type(error)
                        outcomes.append(next(k for k in kinds if isinstance(error, k)))
            assert outcomes[0] == outcomes[1], f"{name}({x!r}, {y!r}): {outcomes}"


X = np.arange(1.0, 11.0)
SMALL = {
    "array and number": ("assert_allclose", X * 0 + 2, 2.0),
    "array and NumPy's number": ("assert_allclose", X * 0 + 2, np.float64(2)),
    "float32 and float64": ("assert_allclose", X.astype("f4"), X),
    "integers and floats": ("assert_array_equal", X.astype(int), X),
    "zeros": ("assert_array_equal", X * 0, 0),
    "list": ("assert_array_equal", X.tolist(), X),
    "almost": ("assert_array_almost_equal", X.astype("f4"), X),
    "almost, number": ("assert_almost_equal", X * 0, 0),
    "complex and real": ("assert_allclose", X + 0j, X),
    "equal": ("assert_equal", X.astype(int), X),
    "equal, number": ("assert_equal", X * 0, 0),
    "numbers": ("assert_equal", 3, 3.0),
    "lists": ("assert_equal", [1, 2, 3], [1, 2, 3]),
    "floats": ("assert_almost_equal", 1.0, 1.0),
}


def calls_of(function, *args):
    """Return how many functions of Python a call enters, the second time."""
    count = 0

    def note(frame, event, _):
        nonlocal count
        count += event == "call"

    function(*args)
    gc.disable()  # finalizers of other objects would count
    sys.setprofile(note)
    try:
        function(*args)
    finally:
        sys.setprofile(None)
        gc.enable()
    return count


@pytest.mark.parametrize("name", SMALL)
def test_small_arrays_take_few_calls(name):
    """Their time is that of Python's calls: some 290 of them, once, for an array and a number."""
    assertion, a, b = SMALL[name]
    of_numpy = calls_of(getattr(np.testing, assertion), a, b)
    assert calls_of(getattr(npt, assertion), a, b) <= max(of_numpy, 40)


def test_libraries_that_are_imported_add_few_calls():
    for library in "pandas", "polars", "pyarrow", "astropy.table", "dask.dataframe":
        with contextlib.suppress(ImportError):
            importlib.import_module(library)
    assertion, a, b = SMALL["almost, number"]
    assert calls_of(getattr(npt, assertion), a, b) <= 40


@pytest.mark.parametrize("function", [calipers.isclose, calipers.allclose])
@pytest.mark.parametrize("b", [X, np.float32(1), 1.0, 2], ids=repr)
def test_small_arrays_of_other_dtypes_take_few_calls(function, b):
    assert calls_of(lambda: function(X.astype("f4"), b, rtol=10.0)) <= 30


@pytest.mark.parametrize("zero", [0.0, np.float64(0), 0])
def test_signs_of_zeros_count_as_in_numpy(zero):
    for a, b in ((zero, -0.0), (-0.0, zero), ([zero], [-0.0])):
        with pytest.raises(AssertionError):
            npt.assert_equal(a, b)
    npt.assert_equal(zero, 0)


def test_steps_without_a_report():
    """NumPy says no, and calipers' count of steps would say yes, or has no say."""
    for a, b, steps in (
        (np.array([INF]), np.array([INF]), 1),
        (np.array([1 + 1j]), np.array([1 + 2j]), 1),
        (np.array([1 + 1j]), np.array([True]), 1),
        (np.array([1.0]), np.array([2.0]), -1),
        (np.array([NAN]), np.array([1.0]), INF),
        (np.array([NAN]), np.array([1.0]), 1e300),
    ):
        with np.errstate(all="ignore"):
            error = error_of(npt.assert_array_almost_equal_nulp, a, b, steps)
        assert error.report is None
        assert str(error).startswith("Arrays are not equal to")


def test_messages_are_bounded():
    x = np.random.default_rng(0).random((300, 300, 3))
    for function in (npt.assert_allclose, npt.assert_array_equal, npt.assert_equal):
        text = str(error_of(function, x, x + 1))
        assert len(text.splitlines()) < 35
        assert len(text) < 3000
    assert len(str(error_of(npt.assert_array_equal, x, x[:-1]))) < 3000


# Arrays of others


def test_arrays_of_torch():
    torch = pytest.importorskip("torch")
    x = torch.ones(3, requires_grad=True)
    y = torch.tensor([1.0, 1.0, 2.0])
    for name in ASSERTIONS:
        if name in ("assert_array_less", "assert_array_compare", "assert_approx_equal"):
            continue
        getattr(npt, name)(x, x)
        assert "ClosenessError" in repr(error_of(getattr(npt, name), x, y))
    npt.assert_equal([x, {"x": x}], [x, {"x": x.detach().numpy()}])
    npt.assert_array_less(x, y + 1)
    npt.assert_array_compare(np.equal, x, x)
    bfloat16 = torch.ones(3, dtype=torch.bfloat16)
    npt.assert_array_equal(bfloat16, x)
    error_of(npt.assert_array_equal, bfloat16, x, strict=True)
    error_of(npt.assert_array_equal, x, torch.ones(2))
    nan = torch.tensor([complex(1, NAN)], requires_grad=True)
    npt.assert_almost_equal(nan, nan)
    error_of(npt.assert_almost_equal, nan, torch.tensor([complex(2, NAN)]))


def test_arrays_of_jax():
    jnp = pytest.importorskip("jax.numpy")
    x = jnp.ones(3)
    npt.assert_allclose(x, np.ones(3))
    npt.assert_equal((x,), [x])
    assert error_of(npt.assert_array_equal, x, x + 1).report.mismatches == 3


def test_arrays_in_chunks():
    array = pytest.importorskip("dask.array")
    x = array.ones((4, 4), chunks=2)
    npt.assert_allclose(x, np.ones((4, 4)))
    npt.assert_array_equal(x, 1)
    report = error_of(npt.assert_array_almost_equal, x, x + 1).report
    assert report.mismatches == 16
    assert report.arrays is None  # no whole was made of them
    error_of(npt.assert_array_equal, x, np.ones(4))


def test_a_traceback_of_pytests_ends_with_the_test():
    a, b = np.ones(2), np.zeros(2)
    calls = [(getattr(npt, name), a, b) for name in ASSERTIONS if "approx" not in name]
    calls = [(f, np.equal, *pair) if "compare" in f.__name__ else (f, *pair) for f, *pair in calls]
    for function, *args in [*calls, (npt.assert_close, a, b), (calipers.assert_close, a, b)]:
        with pytest.raises(AssertionError) as caught:
            function(*args)
        assert len(caught.traceback.filter(caught)) == 1, function


def test_nothing_is_changed():
    a, b = np.array([1.0, NAN, -INF]), np.array([2.0, NAN, INF])
    kept = a.copy(), b.copy()
    for x in (a, b):
        x.flags.writeable = False
    for name in ("assert_allclose", "assert_array_almost_equal_nulp", "assert_array_max_ulp"):
        error_of(getattr(npt, name), a, b)
    np.testing.assert_array_equal((a, b), kept)


# torch.testing.assert_close


def containers(a, b):
    """Return two things as they are and in containers of several kinds."""
    return [
        (a, b),
        ((a,), [b]),
        ({"t": a}, collections.OrderedDict(t=b)),
        ([{"t": (a,)}], ({"t": [b]},)),
        ([0, a], [0, b]),
    ]


def _coo(torch, indices=((0, 1), (1, 0)), values=(1.0, 2.0), size=(2, 2)):
    return torch.sparse_coo_tensor(
        torch.tensor(indices), torch.tensor(values), size, check_invariants=False
    )


def _compressed(torch, layout, crow=(0, 1, 2), col=(1, 0), values=(1.0, 2.0), dtype="int64"):
    if layout.startswith("sparse_bs"):
        values = torch.tensor(values).reshape(-1, 1, 1)
    crow, col = (torch.tensor(x, dtype=getattr(torch, dtype)) for x in (crow, col))
    return torch.sparse_compressed_tensor(
        crow, col, torch.as_tensor(values), (2, 2), layout=getattr(torch, layout)
    )


def torch_cases(torch):
    """Yield two things, and options: what torch.testing's own tests ask about, and more."""
    ones, two = torch.ones(2), torch.tensor([1.0, 2.0])
    yield ones, ones.clone(), {}
    yield ones, two, {}
    yield ones, ones + 1e-6, {}
    yield ones, ones + 1e-4, {}
    for rtol, atol in ((0.0, 0.0), (0.6, 0.0), (0.0, 0.5), (0.0, 1.0), (0.5, 0.0), (0.4, 0.0)):
        yield ones, two, {"rtol": rtol, "atol": atol}
        yield two, ones, {"rtol": rtol, "atol": atol}
        yield 1, 2, {"rtol": rtol, "atol": atol}
        yield 1, 2.0, {"rtol": rtol, "atol": atol, "check_dtype": False}
        yield True, False, {"rtol": rtol, "atol": atol}
    for options in ({"rtol": 0.0}, {"atol": 0.0}):
        yield ones, ones, options
        yield 1.0, 1.0, options
    # types
    parameter = torch.nn.Parameter(ones.clone())
    for options in ({}, {"allow_subclasses": False}):
        yield ones, parameter, options
        yield parameter, ones, options
        yield parameter, parameter, options
        yield ones, ones.numpy(), options
        yield np.ones(2), np.ones(2), options
        yield np.ones(2), np.ma.ones(2), options
    for a, b in (("0", "0"), ("0", "1"), (object(), object()), (ones, 1.0), (ones, [1.0, 1.0])):
        yield a, b, {}
    yield np.float64(1), np.ones(()), {}
    yield [1, 2], ones, {}
    for x in (False, 0, NAN, torch.tensor(NAN), "None", None, [], {}):
        yield x, None, {}
        yield None, x, {}
    # numbers
    numbers = [1, 1.0, 1 + 0j, np.int8(1), np.float32(1), np.complex64(1), 2, NAN, INF, -INF, 2**70]
    for a in numbers:
        for b in numbers:
            for options in ({}, {"check_dtype": False}, {"equal_nan": True}):
                yield a, b, options
    for a, b in ((True, True), (True, False), (True, np.bool(True)), (np.bool(False), False)):
        yield a, b, {}
    # shapes
    for a, b in ((ones, ones[:1]), (ones, ones[None]), (ones[0], ones[:1]), (ones, ones[:0])):
        yield a, b, {}
    yield ones[:0], ones[:0], {}
    yield torch.ones(()), torch.ones(()), {}
    yield torch.tensor(1), torch.tensor(2), {}
    # dtypes
    names = "bool uint8 int8 int32 int64 uint16 uint32 uint64 float16 bfloat16 float32 float64"
    dtypes = [getattr(torch, name) for name in [*names.split(), "complex64", "complex128"]]
    for own in dtypes:
        for other in dtypes:
            yield ones.to(own), ones.to(other), {}
            yield ones.to(own), ones.to(other), {"check_dtype": False}
        yield ones.to(own), two.to(own), {}
    yield (
        torch.tensor(0.99, dtype=torch.bfloat16),
        torch.ones((), dtype=torch.float64),
        {"check_dtype": False},
    )
    for dtype in (torch.float8_e4m3fn, torch.float8_e5m2):
        yield ones.to(dtype), ones.to(dtype), {}
        yield ones.to(dtype), two.to(dtype), {}
    # values that are not finite
    part = [NAN, INF, -INF, 1.0]
    for a in part:
        for b in part:
            for options in ({}, {"equal_nan": True}):
                yield torch.tensor(a), torch.tensor(b), options
                yield torch.tensor(complex(a, 1)), torch.tensor(complex(1, b)), options
                yield complex(a, 1), complex(1, b), options
    # strides, views
    square = torch.arange(4.0).reshape(2, 2)
    for options in ({}, {"check_stride": True}):
        yield square, square.t().contiguous().t(), options
        yield square, square.clone(), options
        yield square.numpy(), np.asfortranarray(square.numpy()), options
        yield square.to_sparse(), square.to_sparse(), options
        yield square.to_sparse_csr(), square.to_sparse_csr(), options
        yield square, square.to_sparse_csr(), options | {"check_layout": False}
        yield (
            square,
            square.to(torch.float64).t().contiguous().t(),
            options | {"check_dtype": False},
        )
    turned = torch.tensor([1 + 1j, 2 - 3j])
    yield turned.conj(), turned.conj().resolve_conj(), {}
    yield turned.conj(), turned, {}
    yield turned.conj().imag, -turned.imag, {}
    yield ones.clone().requires_grad_(), ones, {}
    # devices
    meta = torch.ones(2, device="meta")
    for options in ({}, {"check_device": False}):
        yield meta, meta, options
        yield meta, ones, options
        yield ones, meta, options
        yield meta, torch.ones(2, dtype=torch.int32, device="meta"), options
        yield meta, torch.ones(3, device="meta"), options
        yield meta, torch.ones(2, 1, device="meta").t()[0], options | {"check_stride": True}
    # layouts
    layouts = [
        square,
        square.to_sparse(),
        square.to_sparse_csr(),
        square.to_sparse_csc(),
        square.to_sparse_bsr((1, 1)),
        square.to_sparse_bsc((1, 1)),
    ]
    for a in layouts:
        for b in layouts:
            for options in ({}, {"check_layout": False}):
                yield a, b, options
                yield a, b * 2, options
    coo = _coo(torch)
    for b in (
        _coo(torch),
        coo.coalesce(),
        _coo(torch, values=(1.0, 3.0)),
        _coo(torch, values=(1.0, 2 + 1e-6)),
        _coo(torch, indices=((0, 1), (1, 1))),
        _coo(torch, indices=((0, 1, 1), (1, 0, 0)), values=(1.0, 1.0, 1.0)),
        _coo(torch, indices=((0, 1),), values=((0.0, 1.0), (2.0, 0.0))),
        _coo(torch, values=(1, 2)),
        _coo(torch, size=(2, 3)),
        _coo(torch).requires_grad_(),
    ):
        for options in ({}, {"rtol": 1.0, "atol": 1.0}, {"check_dtype": False}):
            yield coo, b, options
    for layout in ("sparse_csr", "sparse_csc", "sparse_bsr", "sparse_bsc"):
        a = _compressed(torch, layout)
        for changes in (
            {},
            {"values": (1.0, 3.0)},
            {"col": (1, 1)},
            {"crow": (0, 0, 2), "col": (0, 1)},
            {"crow": (0, 1, 1), "col": (1,), "values": (1.0,)},
            {"dtype": "int32"},
            {"values": (1, 2)},
        ):
            for options in ({}, {"rtol": 1.0, "atol": 1.0}):
                yield a, _compressed(torch, layout, **changes), options
    mkldnn = ones.reshape(1, 2).to_mkldnn()
    for a, b in ((mkldnn, mkldnn), (mkldnn, ones.reshape(1, 2)), (ones.reshape(1, 2), mkldnn)):
        yield a, b, {}
        yield a, b, {"check_layout": False}
    jagged = torch.nested.nested_tensor([ones, ones[:1]], layout=torch.jagged)
    for b in (jagged, jagged + 1, jagged * 1, torch.nested.nested_tensor([ones, ones[:1]])):
        yield jagged, b, {}
    # structure
    for a, b in (
        ([], []),
        ({}, {}),
        ([], ()),
        ([ones], []),
        ([ones], [ones, ones]),
        ({"a": ones}, {}),
        ({"a": ones}, {"b": ones}),
        ({"a": ones}, [ones]),
        ([ones, two], [ones, ones]),
        ([1, 2], [1.0, 2.0]),
        ([1, 2], (1, 2)),
        ([[1], [1, 2]], [[1], [1, 2]]),
        ({1: ones, "a": two}, {"a": two, 1: ones}),
        ([None, ones], [None, ones]),
        (b"ab", b"ab"),
        (range(2), [0, 1]),
        (collections.namedtuple("Point", "x y")(1, 2), (1, 2)),
    ):
        yield a, b, {}


def quantized_cases(torch):
    t = torch.tensor([1.0, 2.0])

    def per_tensor(x, dtype=torch.qint32, scale=1.0):
        return torch.quantize_per_tensor(x, scale=scale, zero_point=0, dtype=dtype)

    def per_channel(x):
        scales, points = torch.ones(2), torch.zeros(2, dtype=torch.int64)
        return torch.quantize_per_channel(x, scales, points, axis=0, dtype=torch.qint32)

    a = per_tensor(t)
    others = [t, a.clone(), per_tensor(t + 1), per_tensor(t, torch.qint8), per_channel(t)]
    for b in [*others, per_tensor(t, scale=0.5)]:
        yield a, b, {}
    for b in [a, per_tensor(t + 1), per_tensor(t, scale=0.5), t]:
        yield a, b, {"check_dtype": False}
    yield per_channel(t), per_channel(t), {}
    yield per_channel(t), per_channel(t + 1), {}


def differs_from_torch(torch, a, b, options):
    """Return the two verdicts where they differ."""
    theirs = verdict(torch.testing.assert_close, a, b, **options)
    ours = verdict(npt.assert_close, a, b, **options)
    return None if ours == theirs else (ours, theirs)


def test_torchs_verdicts():
    torch = pytest.importorskip("torch")
    pytest.importorskip("ml_dtypes")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        cases = [*torch_cases(torch), *quantized_cases(torch)]
    found = collections.Counter()
    differences = []
    for i, (a, b, options) in enumerate(cases):
        alone, *held = containers(a, b)
        for x, y in (alone, held[i % len(held)]):
            found[verdict(npt.assert_close, x, y, **options)] += 1
            difference = differs_from_torch(torch, x, y, options)
            if difference:
                differences.append((f"{x!r:.90}", f"{y!r:.90}", options, difference))
    assert not differences, (len(differences), differences[:10])
    assert found["passes"] > 500
    assert found["AssertionError"] > 500
    assert found["TypeError"] > 20
    assert found["ValueError"] >= 20


def test_what_differs_from_torch():
    torch = pytest.importorskip("torch")
    t = torch.ones(2)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        quantized = [
            torch.quantize_per_tensor(t, scale=1.0, zero_point=0, dtype=x)
            for x in (torch.qint8, torch.qint32)
        ]
    big = torch.tensor([2**24 + 1]), torch.tensor([2.0**24])
    float8 = t.to(torch.float8_e4m3fn)
    for a, b, options, found in (
        # torch calls these unexpected, of each other kind
        (True, 1, {}, ("AssertionError", "RuntimeError")),
        (*quantized, {"check_dtype": False}, ("passes", "RuntimeError")),
        (t, t, {"rtol": -1.0, "atol": 0.0}, ("ValueError", "RuntimeError")),
        # no tolerance
        (t, t + 1, {"rtol": 0.0, "atol": INF}, ("ValueError", "passes")),
        # torch rounds 2**24 + 1 to float32
        (*big, {"check_dtype": False, "rtol": 0.0, "atol": 0.5}, ("AssertionError", "passes")),
        # torch computes in the format itself: 1.0014e-5 is not within 1e-5 + 1e-3*1.0014e-5
        (torch.zeros(1).half(), torch.tensor([1.0014e-5]).half(), {}, ("AssertionError", "passes")),
        # torch compares float8 by bits alone
        (float8, float8, {"rtol": 0.1, "atol": 0.1}, ("passes", "AssertionError")),
        # torch drops the mask, and has no such dtypes
        (np.ma.array([1, 2], mask=[0, 1]), np.ma.array([1, 3], mask=[0, 1]), {},
         ("passes", "AssertionError")),
        (np.array(["a"]), np.array(["a"]), {}, ("passes", "TypeError")),
    ):  # fmt: skip
        assert differs_from_torch(torch, a, b, options) == found, (a, b)


def test_without_torch_arrays_of_numpy():
    lines = [
        "import sys",
        "sys.modules['torch'] = None",
        "import numpy as np",
        "from calipers.testing import assert_close, assert_raises",
        "assert_close([np.ones(2), 1.0], (np.ones(2), 1.0))",
        "assert_raises(AssertionError, assert_close, np.ones(2), np.zeros(2))",
        "assert_raises(AssertionError, assert_close, np.ones(2), np.ones(2, 'f4'))",
    ]
    subprocess.run([sys.executable, "-c", "\n".join(lines)], check=True)


def test_what_assert_close_says():
    torch = pytest.importorskip("torch")
    x = torch.ones(2, 2)
    error = error_of(npt.assert_close, {"w": [x, x], "b": 1}, {"w": [x, x + 1], "b": 1.0})
    assert str(error).startswith("Not close: 2 of 3 items differ\n")
    assert "\n  ['w'][1]  4 of 4 elements" in str(error)
    assert "['b']     types differ: int and float; check_dtype=False allows it" in str(error)
    assert [leaf.path for leaf in error.report.failing] == ["['w'][1]", "['b']"]
    # A report of one pair of arrays is about them alone.
    assert str(error_of(npt.assert_close, x, x + 1)).startswith("Not close: 4 of 4 elements")
    for a, b, options, words in (
        (x, x.to_sparse(), {}, "layout differs: torch.strided and torch.sparse_coo; check_layout="),
        (x, x.int(), {}, "dtype differs: torch.float32 and torch.int32; check_dtype=False"),
        (x, x.to("meta"), {}, "device differs: cpu and meta; check_device=False allows it"),
        (x, x[:, :1].expand(2, 2), {"check_stride": True}, "stride differs: (2, 1) and (2, 0)"),
        (x.numpy(), x.numpy()[::-1], {"check_stride": True}, "strides differ: (8, 4) and (-8, 4)"),
        (x, x[:1], {}, "shapes differ: (2, 2) and (1, 2)"),
        (None, x, {}, "None is not a Tensor"),
        (True, np.bool(False), {}, "True is not False"),
        ([x], [], {}, "actual has 1 items, expected has 0"),
        ({"a": x}, {"b": x}, {}, "only in actual"),
        ({"a": x}, {"b": x}, {}, "only in expected"),
        (_coo(torch), _coo(torch, indices=((0, 1), (1, 1))), {}, "Sparse COO indices differ"),
        (_coo(torch), _coo(torch, ((0,), (1,)), (1.0,)), {}, "specified values in sparse COO"),
        (_coo(torch), _coo(torch, values=(1.0, 3.0)), {}, "._values()  1 of 2 elements differs"),
        (
            _coo(torch),
            _coo(torch, ((0, 1),), ((0.0, 1.0), (2.0, 0.0))),
            {},
            "the number of sparse dimensions in sparse COO tensors differs: 2 and 1",
        ),
    ):
        assert words in " ".join(
            str(error_of(npt.assert_close, a, b, **options)).split("\n    ")
        ), a
    assert str(error_of(npt.assert_close, x, x + 1, msg="weights")) == "weights"
    said = str(error_of(npt.assert_close, x, x + 1, msg=lambda text: f"In w: {text}"))
    assert said.startswith("In w: Not close")


def test_containers_that_differ_may_hold_what_is_not_related():
    torch = pytest.importorskip("torch")
    x = torch.ones(2)
    for a, b, words in (
        ([x, 1.0], [[x]], "actual has 2 items, expected has 1"),
        ([x + 1, x, 1.0], [x, "x"], "[0]  2 of 2 elements differ"),
        ({"a": x, "b": 1}, {"a": 1, "c": 1}, "only in expected"),
        ({"a": {"b": x}}, {"a": {"b": 1}, "c": 1}, "only in expected"),
    ):
        assert differs_from_torch(torch, a, b, {}) is None
        assert words in str(error_of(npt.assert_close, a, b))
    assert verdict(npt.assert_close, [x, 1.0], [[x], 1.0]) == "TypeError"


@pytest.mark.parametrize(
    ("a", "b", "kind", "words"),
    [
        (np.ones(1), [1.0], TypeError, "related types, got <class 'numpy.ndarray'> and <class"),
        ("a", "a", TypeError, "must be arrays or numbers, got <class 'str'>"),
    ],
    ids=["unrelated", "no array"],
)
def test_what_assert_close_refuses(a, b, kind, words):
    with pytest.raises(kind, match=words):
        npt.assert_close(a, b)
