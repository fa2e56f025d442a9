"""What diagnose takes, gives and refuses: containers, None, options, and what sides raise."""

import functools
import random
import subprocess
import sys
from collections import OrderedDict, namedtuple
from importlib.util import find_spec

import numpy as np
import pytest

import calipers

RANDOM = np.random.default_rng(0)
X = RANDOM.standard_normal((8, 16), dtype=np.float32)


def total(x):
    return x.sum(axis=1)


def backwards(x):
    return x[:, ::-1].cumsum(axis=1)[:, -1]


def test_results_of_other_names_are_not_the_same_results():
    found = calipers.diagnose(lambda x: {"a": x, "b": x}, lambda x: {"a": x, "c": x}, X)
    assert (found.kind, found.reason) == (
        "BUG",
        "f returns results named ['a'], ['b'], and g ['a'], ['c']",
    )
    fewer = calipers.diagnose(lambda x: {"a": x, "b": x}, lambda x: {"a": x}, X)
    assert fewer.reason == "f returns results named ['a'], ['b'], and g ['a']"
    # A port may give a tuple where the original gives a dict.
    assert calipers.diagnose(lambda x: {"a": total(x)}, lambda x: (total(x),), X).kind == "EQUAL"
    parts = calipers.diagnose(lambda x: {"a": (x, x)}, lambda x: {"a": x}, X)
    assert "f returns shape (8, 16), (8, 16), and g returns shape (8, 16)" in parts.reason


class Counted:
    """A function of an array and of how often it was called."""

    def __init__(self, f):
        self.f, self.calls = f, 0

    def __call__(self, x):
        self.calls += 1
        return self.f(x, self.calls)


def test_what_a_side_does_when_it_is_called_again():
    late = Counted(lambda x, n: backwards(x) if n < 2 else 1 / 0)
    found = calipers.diagnose(total, late, X)
    assert found.kind == "RAISES"
    assert found.reason == "g raises ZeroDivisionError: division by zero when it is called again"
    grown = Counted(lambda x, n: np.zeros(7 + n, np.float32))
    found = calipers.diagnose(grown, lambda x: np.ones(8, np.float32), X)
    assert found.kind == "BUG"
    assert found.reason == "f returns shape (8,), and shape (9,) when it is called again"


@pytest.mark.parametrize(
    ("message", "told"),
    [
        ("long " * 2000, "ValueError: long long"),
        ("one\n  two\n" * 50, "ValueError: one two one two"),
        ("\x1b[31mred\a", r"ValueError: \x1b[31mred\x07; f does not"),
        ("", "g raises ValueError; f does not"),
    ],
)
def test_what_is_raised_is_told_in_a_sentence(message, told):
    def fails(x):
        raise ValueError(message)

    found = calipers.diagnose(total, fails, X)
    assert told in found.reason
    assert found.reason.isprintable()
    assert len(found.reason) < 400
    trials = calipers.probes.repeat(Counted(lambda x, n: x if n < 2 else fails(x)), X)
    assert str(trials).replace("\n", "").isprintable()


Weights = namedtuple("Weights", "w b")
W = RANDOM.standard_normal((16, 4), dtype=np.float32)


@pytest.mark.parametrize("kind", [dict, OrderedDict, list, tuple, Weights])
def test_arrays_in_containers_are_moved(kind):
    weights = {"w": W, "b": W[0]}
    seen = set()

    def taken(p):
        seen.add(type(p))
        return (p["w"], p["b"]) if isinstance(p, dict) else (p[0], p[1])

    def linear(p, x):
        w, b = taken(p)
        return x @ w + b

    def turned(p, x, factor=1):
        w, b = taken(p)
        return x[:, ::-1] @ w[::-1] * x.dtype.type(factor) + b

    def narrow(p, x):
        w, b = taken(p)
        return x @ calipers.emulate(lambda w: w, "bfloat16")(w) + b

    given = {list: [W, W[0]], tuple: (W, W[0]), Weights: Weights(W, W[0])}
    inputs = given[kind] if kind in given else kind(weights), X
    found = calipers.diagnose(linear, turned, inputs, batch=1)
    assert found.ok({"ROUNDING", "LAYOUT"}), str(found)
    assert found.evidence["measured_from"] == "f"
    assert calipers.diagnose(linear, lambda p, x: turned(p, x, 1.01), inputs).kind == "BUG"
    reduced = calipers.diagnose(linear, narrow, inputs)
    assert (reduced.format, reduced.arguments) == ("bfloat16", (0,))
    place = "0['w']" if kind in (dict, OrderedDict) else "0[0]"
    assert f"rounding argument {place} to" in reduced.reason
    assert seen == {kind}


def test_lists_of_numbers_are_moved_at_once():
    seen = set()

    def mean(x, weights):
        seen.add((type(weights), len(weights)))
        return np.dot(x, weights) / sum(weights)

    def turned(x, weights, one=0):
        return np.dot(x[::-1], weights[::-1]) / (sum(weights) - one)

    x = np.random.default_rng(0).random((2, 20_000))
    for kind in (list, tuple):
        given = kind(x[0].tolist()), kind(x[1].tolist())
        found = calipers.diagnose(mean, turned, given)
        assert found.ok({"ROUNDING", "LAYOUT"}), str(found)
        assert found.seconds < 30
        assert calipers.diagnose(mean, lambda x, w: turned(x, w, 1), given).kind == "BUG"
    assert seen == {(list, 20_000), (tuple, 20_000)}


def test_containers_without_arrays_are_handed_on():
    def summed(x, shape):
        assert shape is size
        return x.reshape(shape).sum(axis=1)

    size = (16, 8)
    assert calipers.diagnose(summed, summed, (X, size)).kind == "EQUAL"
    own: list = [X]
    own.append(own)
    with pytest.raises(ValueError, match="does it contain itself"):
        calipers.diagnose(total, total, (own,))
    for inputs in ((x for x in [X]), (X, iter([1]))):
        with pytest.raises(TypeError, match="inputs are used for several calls and cannot be"):
            calipers.diagnose(total, total, inputs)
    with pytest.raises(TypeError, match=r"input 0\['a'\] has dtype float128"):
        calipers.diagnose(total, total, {"a": X.astype(np.longdouble)})


@pytest.mark.parametrize("inputs", [7, np.zeros(3, np.float32), "text"])
def test_what_nothing_moves_is_not_said_to_stay(inputs):
    """That a difference stays at inputs which are where they were tells nothing."""

    def f(x):
        return np.full(20, 0.1, np.float32)

    def g(x):
        return f(x) + 2 * np.spacing(f(x))

    found = calipers.diagnose(f, g, (inputs,), reference=None, batch=())
    assert found.kind == "ROUNDING", str(found)
    assert "a smaller bug would not be seen" in found.reason


@pytest.mark.parametrize(
    ("options", "error", "told"),
    [
        ({"seed": 1.5}, TypeError, "seed must be an integer, got float: 1.5"),
        ({"seed": None}, TypeError, "seed must be an integer, got NoneType"),
        ({"reduction": "n"}, TypeError, "reduction must be an integer, got str: 'n'"),
        (
            {"batch": None},
            TypeError,
            "batch must contain positions of inputs, integers from 0, got None",
        ),
        ({"batch": (1.0,)}, TypeError, r"batch must contain positions .* got \(1.0,\)"),
        ({"reference": ["f"]}, ValueError, r"reference must be .* got \['f'\]"),
        ({"budget": []}, ValueError, r"budget must be .* got \[\]"),
        ({"dtype": "float64"}, ValueError, "dtype is float64, but the inputs are float32: pass"),
        (
            {"reference": lambda x: 1 / 0},
            ValueError,
            "reference raises ZeroDivisionError: divisi",
        ),
        (
            {"reference": lambda x: x},
            ValueError,
            r"reference returns shape \(8, 16\) instead of \(8",
        ),
        (
            {"reference": lambda x: x.sum(1, np.float32)},
            ValueError,
            "reference returns float32: pass f",
        ),
    ],
)
def test_a_bad_option_is_named(options, error, told):
    with pytest.raises(error, match=told):
        calipers.diagnose(total, backwards, X, **options)


def test_the_working_format_is_whatever_numpy_takes_for_it():
    for dtype in ("f4", ">f4", np.float32, np.dtype("float32"), "float32"):
        assert calipers.diagnose(total, backwards, X, dtype=dtype).dtype == "float32"
    assert calipers.diagnose(total, backwards, X, dtype="f2").dtype == "float16"


def test_inputs_that_are_none_or_no_numbers():
    assert calipers.diagnose(lambda: 1.0, lambda: 1.0, ()).kind == "EQUAL"
    records = np.zeros(3, [("a", "f4")])
    assert calipers.diagnose(lambda x: x["a"], lambda x: x["a"], records).kind == "EQUAL"
    words = np.array(["a", None], object)
    assert calipers.diagnose(lambda x: x.size, lambda x: len(x), words).kind == "EQUAL"
    with pytest.raises(TypeError, match="input 1 is a masked array: pass its data and its mask"):
        calipers.diagnose(total, total, (X, np.ma.masked_less(X, 0)))


def test_arrays_that_are_not_compared_to_a_reference():
    exact = X.astype(float)
    for given, error, told in (
        ((None, X, exact), TypeError, "actual must be an array of numbers, got None"),
        ((X, "text", exact), TypeError, "expected must be an array of numbers, got dtype <U4"),
        (
            (X, X + 0j, exact),
            ValueError,
            "all real or all complex, got float32, complex64, float64",
        ),
        ((X, X, np.ma.masked_less(exact, 0)), TypeError, "reference is a masked array"),
    ):
        with pytest.raises(error, match=told):
            calipers.compare_to_reference(*given)
    found = calipers.compare_to_reference(X, np.nextafter(X, 2 * X), exact)
    assert "actual equals the reference" in found.reason


def test_tolerances_and_formats_that_are_none():
    for reduction in (float("inf"), float("nan"), 0):
        with pytest.raises(ValueError, match="reduction must be at least 1 and finite, got"):
            calipers.recommend_tolerance("float32", reduction)
    with pytest.raises(ValueError, match=r"dtype must be one of float64, .* got None"):
        calipers.recommend_tolerance(None)
    for where in (None, 3, (), ["inputs", 3]):
        with pytest.raises(ValueError, match='where must be "inputs", "outputs" or both, got'):
            calipers.emulate(np.sin, "tf32", where=where)
    with pytest.raises(ValueError, match=r"arguments must contain positions .* got 1\.5"):
        calipers.emulate(np.sin, "tf32", arguments=1.5)


def test_a_result_that_is_none_among_others():
    """As of attention that was asked for no weights."""
    found = calipers.diagnose(lambda x: (total(x), None), lambda x: (backwards(x), None), X)
    assert found.ok({"ROUNDING", "LAYOUT"}), str(found)
    other = calipers.diagnose(lambda x: (total(x), None), lambda x: (total(x), x), X)
    assert other.kind == "BUG"
    assert "f returns shape (8,), (0,), and g returns shape (8,), (8, 16)" in other.reason
    with pytest.raises(TypeError, match="f must return numbers, got None"):
        calipers.diagnose(lambda x: None, total, X)


def test_a_list_of_numbers_is_an_array():
    found = calipers.diagnose(lambda x: total(x).tolist(), lambda x: backwards(x).tolist(), X)
    assert found.shapes == ((8,),)
    assert found.ok({"ROUNDING", "LAYOUT"}), str(found)
    several = calipers.diagnose(lambda x: [x.sum(), 3], lambda x: [x.sum(), 3], X)
    assert several.shapes == ((), ())
    whole = calipers.diagnose(lambda x: [2**60, 2], lambda x: [2**60 + 1, 2], X)
    assert whole.kind == "BUG"


@pytest.mark.parametrize("kind", [list, tuple])
def test_numbers_are_an_array_where_the_other_side_gives_one(kind):
    def by_rows(x):
        return kind(row.sum() for row in x)

    for f, g in ((total, by_rows), (by_rows, total)):
        assert calipers.diagnose(f, g, X).kind in ("EQUAL", "ROUNDING", "LAYOUT")
    wrong = calipers.diagnose(total, lambda x: kind(row[1:].sum() for row in x), X)
    assert wrong.kind == "BUG"
    assert wrong.shapes == ((8,),)
    more = calipers.diagnose(total, lambda x: kind(by_rows(x)[1:]), X)
    assert "and g returns shape (), ()" in more.reason
    # Two results on both sides stay two.
    both = calipers.diagnose(lambda x: [x.sum(), x.max()], lambda x: (x.sum(), x.max()), X)
    assert both.kind == "EQUAL"
    assert both.shapes == ((), ())


@pytest.mark.filterwarnings("ignore::PendingDeprecationWarning")
def test_a_matrix_is_no_array():
    with pytest.raises(TypeError, match=r"input 0 is a numpy\.matrix: pass an array"):
        calipers.diagnose(lambda x: x * x, lambda x: x @ x, np.matrix(np.ones((2, 2))))


def test_results_of_other_dtypes_are_told():
    found = calipers.diagnose(total, lambda x: backwards(x).astype(float), X)
    assert found.ok({"ROUNDING", "LAYOUT"}), str(found)
    assert found.evidence["dtypes"] == {"f": ["float32"], "g": ["float64"]}
    assert "  dtypes      f float32; g float64\n" in str(found)
    assert "dtypes" not in calipers.diagnose(total, backwards, X).evidence
    many = calipers.diagnose(lambda x: (x,) * 9, lambda x: (x.astype(float),) * 9, X)
    assert all(len(line) <= 88 for line in str(many).splitlines())


@pytest.mark.parametrize("dtype", [object, np.dtypes.StringDType()])
def test_arrays_of_references_are_handed_on(dtype):
    """They lie nowhere else in memory, and their bytes are of this process alone."""

    def named(f):
        return lambda x, names: f(x) if names[1] == "b" * 20 else None

    found = [
        calipers.diagnose(named(total), named(backwards), (X, np.array(["a", "b" * 20], dtype)))
        for _ in range(2)
    ]
    assert found[0].kind == calipers.diagnose(total, backwards, X).kind == "ROUNDING"
    assert found[0].reproducer == found[1].reproducer
    assert calipers.probes.layout(named(np.exp), (X, np.array(["a", "b" * 20], dtype))).equal


@pytest.mark.parametrize(
    "make", [np.random.default_rng, np.random.RandomState, random.Random], ids=lambda f: f.__name__
)
def test_what_draws_random_numbers_stays_where_it_stands(make):
    def noisy(x, source):
        return x + source.random()

    source = make(5)
    found = calipers.diagnose(noisy, lambda x, source: x + source.random(), (X, source))
    assert found.kind == "EQUAL"
    assert source.random() == make(5).random()
    assert calipers.probes.repeat(noisy, (X, source)).equal


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_functions_of_integers_are_judged_in_the_format_of_their_results(dtype):
    torch = pytest.importorskip("torch")
    own = getattr(torch, dtype)
    table, w = (torch.from_numpy(RANDOM.standard_normal((50, 50))).to(own) for _ in range(2))

    def f(tokens):
        return table[tokens].mean(1) @ w

    def g(tokens):
        return (table[tokens].float().mean(1) @ w.float()).to(own)

    tokens = torch.from_numpy(RANDOM.integers(0, 50, (20, 30)))
    found = calipers.diagnose(f, g, tokens)
    assert (found.kind, found.dtype) == ("ROUNDING", dtype)
    assert "dtypes" not in found.evidence
    wide = calipers.diagnose(f, lambda x: g(x).float(), tokens)
    assert wide.evidence["dtypes"] == {"f": [dtype], "g": ["float32"]}


def test_padding_of_long_doubles_is_no_bit_of_theirs():
    long = np.longdouble
    for f in (lambda x: x.astype(long) / 3, lambda x: (x / long(3)).astype(np.clongdouble)):
        for x in (np.arange(50), RANDOM.random(50)):
            assert calipers.diagnose(f, f, x).kind == "EQUAL"
    moved = calipers.diagnose(lambda x: x / long(3), lambda x: x * (1 / long(3)), np.arange(50))
    assert moved.kind == "ROUNDING"


def test_a_generator_of_torch_stays_where_it_stands():
    torch = pytest.importorskip("torch")
    source = torch.Generator().manual_seed(5)

    def noisy(x, source):
        return x + torch.rand(16, generator=source)

    assert calipers.diagnose(noisy, noisy, (torch.from_numpy(X), source)).kind == "EQUAL"
    first = torch.rand(1, generator=torch.Generator().manual_seed(5))
    assert torch.equal(torch.rand(1, generator=source), first)


@pytest.mark.parametrize(
    ("held", "write"),
    [
        ([1, 2], lambda held: held.append(3)),
        ({"n": 1, "more": [2]}, lambda held: held["more"].append(3)),
        ({1, 2}, lambda held: held.add(3)),
        (bytearray(b"ab"), lambda held: held.append(3)),
        ({"draws": random.Random(5)}, lambda held: held["draws"].random()),
    ],
    ids=lambda x: type(x).__name__,
)
def test_what_is_written_into_other_inputs_does_not_reach_the_callers(held, write):
    def f(x, held):
        write(held)
        return x + len(repr(held))

    def state():
        return (
            held["draws"].getstate() if isinstance(held, dict) and "draws" in held else repr(held)
        )

    before = state()
    assert calipers.diagnose(f, f, (X, held)).kind == "EQUAL"
    assert state() == before


@pytest.mark.parametrize("first", ["f", "g"])
def test_what_is_written_in_the_wider_format_alone_reaches_nobody(first):
    """A conversion to float64 copies float32, and hands on float64 as it is."""

    def f(x):
        y = np.asarray(x, np.float64)
        np.exp(y, out=y)
        return y.sum(axis=1)

    sides = (f, lambda x: np.exp(x).sum(axis=1))
    found = calipers.diagnose(*sides[:: 1 if first == "f" else -1], X)
    assert found.kind == "ROUNDING", str(found)


def test_what_tensors_cannot_be_is_told_of_which_input():
    torch = pytest.importorskip("torch")
    for x, told in (
        (torch.ones(3, device="meta"), "a meta tensor has no elements: pass a tensor on a device"),
        (torch.ones(3, 3).to_sparse(), r"a torch\.sparse_coo tensor has no array of elements"),
    ):
        with pytest.raises(TypeError, match=f"^input 1: {told}"):
            calipers.diagnose(total, total, (X, x))
        with pytest.raises(TypeError, match=rf"^inputs\[1\]: {told}"):
            calipers.probes.repeat(total, (X, x))


def test_keys_of_jax_are_handed_on():
    jax = pytest.importorskip("jax")

    def noisy(x, key):
        return x + jax.random.normal(key, (16,))

    inputs = jax.numpy.asarray(X), jax.random.key(3)
    assert calipers.diagnose(noisy, lambda x, key: noisy(x, key), inputs).kind == "EQUAL"
    assert calipers.probes.repeat(noisy, inputs).equal


class Late:
    """A result that is computed when it is asked for, as on a device."""

    def __array__(self, *args, **kwargs):
        raise RuntimeError("too late")


def test_what_is_raised_when_a_result_is_asked_for_is_raised_by_its_side():
    found = calipers.diagnose(total, lambda x: Late(), X)
    assert (found.kind, found.reason) == (
        "RAISES",
        "g raises RuntimeError: too late; f does not",
    )


@pytest.mark.parametrize("allow", [None, 5, [None], [["BUG"]], "rounding"])
def test_kinds_that_are_none_are_named(allow):
    found = calipers.diagnose(total, total, X)
    with pytest.raises(ValueError, match=r"allow must contain only EQUAL, .* got "):
        found.ok(allow)


def test_a_masked_array_beside_a_reference_has_no_f():
    with pytest.raises(TypeError, match=r"actual is a masked array: pass actual\.filled"):
        calipers.compare_to_reference(np.ma.masked_less(X, 0), X, X.astype(float))


def test_float8_is_known_by_the_name_that_torch_has_for_it():
    names = ["float8_e4m3fn"]
    if find_spec("torch"):
        names.append(__import__("torch").float8_e4m3fn)
    for name in names:
        expected = calipers.recommend_tolerance("float8_e4m3", 10)
        assert calipers.recommend_tolerance(name, 10) == expected
    assert calipers.diagnose(total, backwards, X, dtype="float8_e4m3fn").dtype == "float8_e4m3"


IN_ANOTHER_PROCESS = """
import multiprocessing
import numpy as np
import calipers

class Own(TypeError):
    def __init__(self, one, two):
        super().__init__(one)

class Unlike:
    def __array__(self, *args, **kwargs):
        raise Own("of no kind", 2)

def told(f):
    try:
        calipers.diagnose(f, np.sin, np.ones(3), isolate=True)
    except Exception as error:
        print(type(error).__name__, error, flush=True)

if __name__ == "__main__":
    told(lambda x: Unlike())
    daemon = multiprocessing.get_context("fork").Process(target=told, args=(np.sin,), daemon=True)
    daemon.start()
    daemon.join()
"""


@pytest.mark.skipif(sys.platform == "win32", reason="needs fork")
def test_what_isolation_cannot_do_is_told():
    done = subprocess.run(
        [sys.executable, "-c", IN_ANOTHER_PROCESS], capture_output=True, text=True
    )
    assert done.stdout.splitlines() == [
        "TypeError Own: of no kind",
        "RuntimeError isolate=True starts a process, which this daemonic process is not allowed "
        "to: pass isolate=False",
    ], done.stderr


def test_tensors_that_index_are_handed_over_as_the_other_library_has_them():
    """The other library says that as an index: it raises IndexError, and no TypeError."""
    torch, jax = (pytest.importorskip(name) for name in ("torch", "jax"))
    table, places = torch.from_numpy(X), torch.arange(5)

    def of_jax(table, places):
        return 2 * jax.numpy.asarray(table)[places]

    found = calipers.diagnose(lambda table, places: 2 * table[places], of_jax, (table, places))
    assert found.kind == "EQUAL", str(found)


class TestTheLineThatAsksAgain:
    @staticmethod
    def line(f, g):
        found = calipers.diagnose(f, g, X)
        return next(line for line in str(found).splitlines() if line.startswith("again: "))

    def test_names_functions_as_code_would(self):
        assert self.line(total, backwards) == "again: calipers.diagnose(total, backwards, inputs)"

    @pytest.mark.parametrize(
        ("f", "g"),
        [
            (lambda x: x.sum(), lambda x: x[::-1].sum()),
            (functools.partial(np.sum, axis=1), total),
            (total, total),
        ],
    )
    def test_has_letters_where_it_cannot(self, f, g):
        own = "total" if g is total and f is not total else "g"
        assert self.line(f, g) == f"again: calipers.diagnose(f, {own}, inputs)"


@pytest.mark.parametrize("rows", [1, 3])
@pytest.mark.parametrize("seed", range(3))
def test_a_few_results_of_integers_are_told_to_be_float32(rows, seed):
    n = np.random.default_rng(seed).integers(0, 100, (rows, 50))
    f, bessel = (lambda n: n.std(1)), (lambda n: n.std(1, ddof=1))
    for port in (lambda n: n.std(1).astype(np.float32), lambda n: n.astype(np.float32).std(1)):
        found = calipers.diagnose(f, port, n)
        assert (found.kind, found.format) == ("REDUCED", "float32"), str(found)
    assert calipers.diagnose(f, lambda n: bessel(n).astype(np.float32), n).kind == "BUG"
    # Numbers of a few bits are of any format, and no excuse.
    assert calipers.diagnose(f, lambda n: np.floor(f(n)) + 0.5, n).kind in ("BUG", "SUSPECT")
    assert calipers.diagnose(f, lambda n: (f(n) * 1.00001).astype(np.float32), n).kind == "BUG"


@pytest.mark.parametrize(
    ("given", "told"),
    [
        (None, "got None, as from a function that only writes to an array: return an array"),
        (map(float, [1]), "got map: return"),
        (np.array([1, None]), "got ndarray of dtype object: return"),
        (7**50, "got an integer of more than 64 bits: return"),
    ],
)
def test_what_is_no_array_of_numbers_is_named(given, told):
    with pytest.raises(TypeError, match=told):
        calipers.diagnose(lambda x: given, total, X)


def test_nothing_to_compare_is_said_to_be_nothing():
    found = calipers.diagnose(total, backwards, X[:0])
    assert found.kind == "EQUAL"
    assert found.reason == "f and g return no elements: shape (0,)"


def test_several_arguments_are_a_tuple_of_inputs():
    found = calipers.diagnose(lambda x, w: x @ w, lambda x, w: (w.T @ x.T).T, X)
    assert found.kind == "RAISES"
    assert found.reason.endswith("called with 1 argument: pass several as a tuple, inputs=(a, b)")
