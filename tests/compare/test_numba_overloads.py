"""allclose and isclose in compiled code give the verdicts of the interpreter."""

import numba
import numpy as np
import pytest
from numba.core.errors import TypingError
from numba.core.runtime import rtsys
from numba.core.runtime._nrt_python import memsys_enable_stats

import calipers
from tests.data.closeness_cases import EDGE


# One function for all that is asked of a pair, and always with all options: what is left out has a
# type of its own, and everything would be compiled for that too.
@numba.njit
def compiled(a, b, rtol, atol, equal_nan):
    together = calipers.allclose(a, b, rtol, atol, equal_nan)
    return together, calipers.isclose(a, b, rtol=rtol, atol=atol, equal_nan=equal_nan)


@numba.njit
def compiled_elements(a, b, rtol, atol, equal_nan):
    together, each = compiled(a, b, rtol, atol, equal_nan)
    x, y = a[0], b[0]
    single = calipers.isclose(x, y, rtol, atol, equal_nan)
    return together, each, single, calipers.allclose(x, y, rtol, atol, equal_nan)


def ask(a, b, rtol=1e-5, atol=1e-8, equal_nan=False, of=compiled):
    return of(a, b, float(rtol), float(atol), equal_nan)


edge_cases = pytest.mark.parametrize(
    ("pair", "kwargs", "expected"),
    [c[1:] for c in EDGE if c[1][0].dtype != np.float16],
    ids=[c[0] for c in EDGE if c[1][0].dtype != np.float16],
)


@pytest.mark.slow
@edge_cases
def test_known_verdicts(pair, kwargs, expected):
    a, b = pair
    together, each, *single = ask(a, b, **kwargs, of=compiled_elements)
    assert together is expected
    assert each.tolist() == [expected]
    assert single == [expected, expected]


@numba.njit
def compiled_defaults(a, b):
    return calipers.allclose(a, b), calipers.isclose(a, b)


@numba.njit
def compiled_integers(a, b):
    return calipers.allclose(a, b, 1, atol=0), calipers.isclose(a, b, 1, atol=0)


def test_options_that_are_left_out_or_integers():
    a = np.array([1.0, 1.0, 1.0, np.nan])
    b = a + [1e-9, 1e-4, 2.0, 0.0]
    for found, options in (
        (compiled_defaults, {}),
        (compiled_integers, {"rtol": 1, "atol": 0}),
    ):
        for n in (1, 2, 3, 4):
            together, each = found(a[:n], b[:n])
            assert together is calipers.allclose(a[:n], b[:n], **options)
            assert each.tolist() == calipers.isclose(a[:n], b[:n], **options).tolist()


@numba.njit
def compiled_allclose(a, b):
    return calipers.allclose(a, b)


@numba.njit
def compiled_isclose(a, b):
    return calipers.isclose(a, b)


SHAPES = [
    ((3, 3), (3, 3)),
    ((2, 3), (3,)),
    ((1, 3), (2, 1)),
    ((2, 3, 4), (3, 1)),
    ((0, 3), (1, 3)),
    ((2, 0), (1,)),
    ((2**40, 0), (1, 1)),
    ((0,), (1,)),
    ((1,), (3,)),
    ((), (2, 2)),
    ((), ()),
    ((2, 1, 3, 2), (2, 1, 1)),
    ((2, 3, 1), (1, 2)),
]


@pytest.mark.slow
@pytest.mark.parametrize(("shape_a", "shape_b"), SHAPES)
def test_shapes_broadcast_where_numba_isclose_fails(shape_a, shape_b):
    a = np.arange(np.prod(shape_a, dtype=int), dtype=float).reshape(shape_a)
    b = np.arange(np.prod(shape_b, dtype=int), dtype=float).reshape(shape_b) % 3
    expected = np.isclose(a, b)
    together, result = ask(a, b)
    assert result.shape == expected.shape
    assert (result == expected).all()
    assert together is bool(expected.all())


@pytest.mark.parametrize(
    ("shape_a", "shape_b"),
    [((2,), (3,)), ((2,), (0,)), ((3, 2), (3,)), ((2, 3), (3, 2)), ((4, 3, 2), (2, 2))],
)
def test_shapes_that_do_not_fit(shape_a, shape_b):
    message = "shape mismatch: objects cannot be broadcast to a single shape"
    for a, b in ((np.zeros(shape_a), np.zeros(shape_b)), (np.zeros(shape_b), np.zeros(shape_a))):
        for question in (compiled_allclose, compiled_isclose):
            with pytest.raises(ValueError, match=message):
                question(a, b)
        with pytest.raises(ValueError, match=message):
            np.broadcast_shapes(a.shape, b.shape)


def test_arrays_in_another_order():
    a = np.arange(12.0).reshape(3, 4)
    b = a.copy("F")
    b[2, 1] += 1
    for x, y in ((a.T, b.T), (a[::-1, ::2], b[::-1, ::2]), (b, a[0]), (b.T, b.T)):
        expected = calipers.isclose(x, y)
        together, each = ask(x, y)
        assert (each == expected).all()
        assert together is bool(expected.all())


def test_rows_are_found_by_the_steps_of_each_array():
    a = np.arange(2.0 * 3 * 4 * 5).reshape(2, 3, 4, 5)
    b = a.copy()
    b[1, 2, 3, 4] += 1
    for order in ((0, 1, 2, 3), (3, 1, 0, 2), (2, 3, 1, 0)):
        x, y = a.transpose(order)[::-1, :, ::-2], b.transpose(order).copy()[::-1, :, ::-2]
        expected = calipers.isclose(x, y)
        assert np.count_nonzero(~expected) == 1
        together, each = ask(x, y)
        assert (each == expected).all()
        assert not together
        assert ask(x, x)[0]


@pytest.mark.slow
def test_memory_of_others():
    """Arrays that may not be written, and such as begin at an odd address."""
    given = np.arange(6.0)
    locked = given.copy()
    locked.flags.writeable = False
    fields = np.zeros(6, dtype=[("tag", "i1"), ("value", "f8")])
    fields["value"] = given
    odd = np.zeros(given.nbytes + 1, dtype="i1")[1:].view("f8")
    odd[:] = given
    apart = given.copy()
    apart[4] = 0
    for x in (locked, fields["value"], odd):
        for a, b in ((x, apart), (apart, x)):
            together, each = ask(a, b)
            assert together is False
            assert each.tolist() == [True] * 4 + [False, True]
        together, each = ask(x, x)
        assert together
        assert each.all()


@numba.njit
def of_temporaries(a, b):
    for _ in range(100):
        if not calipers.allclose(a + 1, (b + 1)[:, ::1]):
            return False
        if calipers.isclose(a + 1, b.T.copy().T + 2).any():
            return False
    return calipers.allclose(a + 1, b[0] + 1, rtol=9.0) and not calipers.allclose(b[0] + 1, 9.0)


def test_arrays_that_only_the_call_holds():
    a = np.arange(12.0).reshape(3, 4)
    memsys_enable_stats()
    of_temporaries(a, a)
    before = rtsys.get_allocation_stats()
    assert of_temporaries(a, a)
    after = rtsys.get_allocation_stats()
    assert after.alloc > before.alloc
    assert after.alloc - before.alloc == after.free - before.free


def test_large_arrays_take_the_blocked_loop():
    a = np.random.default_rng(0).random((40, 50))
    b = a.copy()
    assert ask(a, b)[0]
    b[-1, -1] += 1
    assert not ask(a, b)[0]
    assert ask(np.eye(3), np.zeros((3, 3)))[1].tolist() == (np.eye(3) == 0).tolist()


def test_scalars_are_weak_beside_binary32():
    x = np.full(3, 0.1, dtype=np.float32)
    for y in (0.1, 1e300, float("inf")):
        expected = calipers.allclose(x, y, rtol=0.0, atol=0.0)
        assert ask(x, y, rtol=0.0, atol=0.0)[0] is expected
        assert ask(y, x, rtol=0.0, atol=0.0)[0] is expected
    assert ask(x.astype(np.complex64), 0.1 + 0j, rtol=0.0, atol=0.0)[0]
    assert not ask(x, np.array([0.1]), rtol=0.0, atol=0.0)[0]


INTEGER, LONG = np.int32(3), np.arange(4)


# All beside those of binary32, where numbers are weak; of the others, each rule that there is.
@pytest.mark.slow
@pytest.mark.parametrize(
    ("dtype", "other"),
    [(dtype, other) for dtype in ("f4", "c8") for other in (INTEGER, True, 3.0, 3 + 0j, LONG)]
    + [("f8", True), ("f8", 3.0), ("f8", LONG), ("c16", INTEGER), ("c16", 3 + 0j), ("c16", LONG)]
    + [("i1", INTEGER), ("i1", 3 + 0j), ("i1", LONG), ("i8", True), ("u8", INTEGER), ("u8", 3.0)]
    + [("?", INTEGER), ("?", True), ("?", LONG), ("?", 3.0)],
)
def test_mixed_kinds(dtype, other):
    x = np.array([0, 1, 3, 2]).astype(dtype)
    expected = calipers.isclose(x, other)
    together, each = ask(x, other)
    assert (each == expected).all()
    assert together is bool(expected.all())


def test_what_compiled_code_cannot_do_is_said():
    rows = numba.njit(lambda a, b: calipers.allclose(a, b, axis=1))
    with pytest.raises(TypingError, match="axis is not supported in compiled code"):
        rows(np.eye(2), np.eye(2))
    with pytest.raises(TypingError, match="rtol must be a number in compiled code"):
        compiled(np.eye(2), np.eye(2), np.eye(2), 0.0, False)
    with pytest.raises(ValueError, match="broadcast"):
        ask(np.zeros(2), np.zeros(3))
