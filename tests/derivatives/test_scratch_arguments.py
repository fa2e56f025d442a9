"""Compiled functions that write into their other arguments, called from several threads."""

import gc
import weakref
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

import numba
import numpy as np
import pytest
import scipy.sparse

import calipers
from calipers._derivatives.compiled import copy_writeable, only_reads, size_of
from tests.data.gradcheck_functions import checked

SIZE = 100


@numba.njit(nogil=True)
def through(x, waves):
    """Return sums of sines that are stored on the way."""
    for i in range(x.size):
        waves[i] = np.sin(x[i])
    sums = np.zeros(x.size)
    for i in range(x.size):
        for k in range(x.size):
            sums[i] += waves[k] * np.cos(1.0 * i * k)
    return sums


class Room(NamedTuple):
    waves: np.ndarray
    scale: float


@numba.njit(nogil=True)
def in_tuples(x, room):
    return through(x, room.waves) * room.scale


@numba.njit(nogil=True)
def filled(x, waves, out):
    out[:] = through(x, waves)


@numba.njit(nogil=True)
def by_row(i, x, waves):
    for k in range(x.size):
        waves[k] = np.sin(x[k])
    return np.sum(waves * np.cos(1.0 * i * np.arange(x.size)))


@numba.njit(nogil=True)
def overlapping(x, left, right):
    through(x, left)
    sums = np.zeros(x.size)
    for i in range(x.size):
        for k in range(x.size):
            sums[i] += (left[k] if k == 0 else right[k - 1]) * np.cos(1.0 * i * k)
    return sums


@numba.njit(nogil=True)
def in_list(x, waves):
    for i in range(x.size):
        waves[i] = np.sin(x[i])
    sums = np.zeros(x.size)
    for i in range(x.size):
        for k in range(x.size):
            sums[i] += waves[k] * np.cos(1.0 * i * k)
    return sums


@pytest.fixture
def x():
    return np.random.default_rng(0).standard_normal(SIZE)


@pytest.fixture
def exact(x):
    k = np.arange(SIZE)
    return np.cos(1.0 * k[:, None] * k) * np.cos(x)


def room_of(kind):
    if kind == "strided":
        return np.zeros((SIZE, 2))[:, 1]
    if kind == "large":  # is not copied if f only reads
        return np.zeros(40_000)
    return np.zeros(SIZE)


@pytest.mark.slow
@pytest.mark.parametrize("method", ["3-point", "5-point", "adaptive"])
@pytest.mark.parametrize("kind", ["contiguous", "strided", "large"])
def test_threads_have_scratch_of_their_own(x, exact, kind, method):
    with calipers.num_threads(2):
        for _ in range(2):
            found = calipers.jacobian(through, x, args=(room_of(kind),), method=method)
            assert np.allclose(found, exact, rtol=0, atol=1e-8)


@pytest.mark.slow
def test_whatever_holds_the_scratch(x, exact):
    both = np.zeros(SIZE + 1)
    typed = numba.typed.List(np.zeros(SIZE))
    with calipers.num_threads(2):
        for f, given, options in (
            (in_tuples, (Room(np.zeros(SIZE), 1.0),), {}),
            (filled, (np.zeros(SIZE),), {"out_like": SIZE}),
            (by_row, (np.zeros(SIZE),), {"out_like": SIZE, "rowwise": True}),
            (overlapping, (both[:-1], both[1:]), {}),
            (in_list, (typed,), {}),
            (through, (np.zeros(SIZE),), {"workers": 2}),
        ):
            found = calipers.jacobian(f, x, args=given, **options)
            assert np.allclose(found, exact, rtol=0, atol=1e-8), f


@pytest.mark.slow
def test_a_planned_function_and_a_sparse_one(x, exact):
    pattern = scipy.sparse.csc_array(np.ones((SIZE, SIZE)))
    with calipers.num_threads(2):
        for options in ({}, {"sparsity": pattern}, {"sparsity": pattern, "method": "adaptive"}):
            jac = calipers.jacobian_function(through, x, args=(np.zeros(SIZE),), **options)
            for _ in range(4):
                found = jac(x, np.zeros(SIZE))
                found = found if isinstance(found, np.ndarray) else found.toarray()
                assert np.allclose(found, exact, rtol=0, atol=1e-8)


def test_gradcheck_refuses_scratch_unless_it_holds_what_f_writes(x, exact):
    def told(waves):
        with calipers.num_threads(2):
            return checked(through, x, args=(waves,), jac=lambda x, waves: exact)

    report = told(np.zeros(SIZE))
    assert "f changes its arguments: input 1" in report.findings[0]
    assert told(np.sin(x)).verdict == "PASS"


def test_this_thread_writes_where_it_was_told(x):
    waves = np.zeros(SIZE)
    with calipers.num_threads(1):
        calipers.jacobian(through, x, args=(waves,))
    assert np.any(waves)


def test_what_can_be_copied():
    a, b = np.zeros(4), np.zeros((3, 2))
    still = np.zeros(5)
    still.flags.writeable = False
    assert size_of(()) == size_of((1.0, "a", None, still)) == 0
    assert size_of((a, (b, a))) == a.nbytes + b.nbytes
    assert size_of((a, numba.typed.List([1.0]))) == np.inf
    assert size_of((a, a[1:])) == np.inf
    assert size_of((b[:, 0], b[:, 1])) == 24 * 2
    one, (two, scalar), strided, kept = copy_writeable((a, (a, 2.0), b[:, 0], still), {})
    assert one is two is not a
    assert scalar == 2.0
    assert kept is still
    assert numba.typeof(strided) == numba.typeof(b[:, 0])


def test_what_only_reads():
    array = numba.types.Array(numba.float64, 1, "C")
    given = numba.types.Tuple((array, numba.float64))

    @numba.njit
    def reads(x, others):
        return others[0] * x

    @numba.njit
    def writes(x, others):
        others[0][:] = x
        return x

    @numba.njit((array, given))
    def told(x, others):
        return x

    assert only_reads(reads, (array, given), {0})
    assert not only_reads(writes, (array, given), {0})
    assert not only_reads(told, (array, given), {0})
    assert not only_reads(reads, (array, numba.types.ListType(numba.float64)), {0})


def test_nothing_keeps_the_arguments(x):
    waves = np.zeros(SIZE)
    gone = weakref.ref(waves)
    calipers.jacobian(through, x, args=(waves,))
    del waves
    gc.collect()
    assert gone() is None


@numba.njit(nogil=True)
def scaled(x, factor):
    return x * factor[0]


RUNS = {
    "threads": ({}, lambda jac, x: jac(x)),
    "2-point": ({"method": "2-point"}, lambda jac, x: jac(x)),
    "adaptive": ({"method": "adaptive"}, lambda jac, x: jac(x)),
    "sparse": ({"sparsity": scipy.sparse.eye_array(400)}, lambda jac, x: jac(x).toarray()),
    "workers": ({"workers": 2}, lambda jac, x: jac(x)),
    "another thread": ({}, lambda jac, x: in_a_thread(jac, x)),
}


def in_a_thread(jac, x):
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(jac, x).result()


@pytest.mark.parametrize("way", RUNS)
def test_arguments_that_the_caller_changes_are_those_of_the_next_run(way):
    options, ask = RUNS[way]
    x, factor = np.linspace(1, 2, 400), np.ones(1)
    jac = calipers.jacobian_function(scaled, x, kwargs={"factor": factor}, **options)
    with calipers.num_threads(4):
        for k in range(1, 9):
            factor[0] = k
            assert np.allclose(ask(jac, x), k * np.eye(400), rtol=1e-6, atol=0)


def test_so_they_are_for_operators_and_blocks():
    x, factor = np.linspace(1, 2, 400), np.ones(1)
    operator = calipers.linear_operator(scaled, x, args=(factor,))
    blocks = calipers.jacobian_blocks(scaled, x, args=(factor,), block=100)
    with calipers.num_threads(4):
        for k in range(1, 5):
            factor[0] = k
            assert np.allclose(operator.rmatvec(x), k * x)
            columns, part = next(blocks)
            assert np.allclose(part[columns].diagonal(), k)


FROZEN = np.ones(1)


@numba.njit
def with_default(x, factor=FROZEN):
    return x * factor[0]


@pytest.mark.parametrize("method", ["2-point", "3-point", "adaptive"])
def test_an_array_that_is_a_default_is_what_numba_takes_it_for(method):
    x = np.linspace(1, 2, 400)
    expected = with_default(x) / x
    FROZEN[0] += 1
    found = calipers.jacobian(with_default, x, method=method)
    assert np.allclose(found.diagonal(), expected, rtol=1e-6)
