"""Arrays in files, chunked stores and iterators, compared chunk by chunk."""

import gc
import os
import re
import subprocess
import sys
import textwrap
import threading
from unittest.mock import MagicMock

import numpy as np
import pytest

import calipers
from calipers._compare.chunked import Grid, block_shape
from calipers._compare.chunked.sources import Blocks, MemmapSource, StoreSource
from calipers._compare.chunked.streams import overlapped
from tests.data.peak_memory import PEAK

SHAPES = [(1000,), (37, 41), (5, 1, 300), (13, 11, 17), (1,), (0,), (4, 0)]


def chunks_of(x, rows):
    return (x[i : i + rows] for i in range(0, len(x), rows))


def cut(shape, divisor):
    return tuple(max(1, n // divisor) for n in shape)


class Places:
    """Ways to keep an array out of memory, each with its own chunks."""

    def __init__(self, folder):
        self.folder, self.count, self.open = folder, 0, []

    def path(self):
        self.count += 1
        return os.path.join(self.folder, f"{self.count}")

    def memmap(self, x):
        path = self.path()
        # An empty file cannot be mapped.
        out = np.memmap(path, x.dtype, "w+", shape=x.shape) if x.size else x
        out[...] = x
        return out

    def zarr(self, x, divisor=3):
        zarr = pytest.importorskip("zarr")
        shape = tuple(max(1, n) for n in cut(x.shape, divisor))
        out = zarr.create_array(
            store=self.path(), shape=x.shape, chunks=shape, dtype=x.dtype.newbyteorder("=")
        )
        out[...] = x
        return out

    def other_zarr(self, x):
        return self.zarr(x, 2)

    def h5py(self, x):
        h5py = pytest.importorskip("h5py")
        file = h5py.File(self.path(), "w")
        self.open.append(file)
        chunks = cut(x.shape, 4) if x.size else None
        return file.create_dataset("x", data=x, chunks=chunks, maxshape=x.shape)

    def contiguous_h5py(self, x):
        h5py = pytest.importorskip("h5py")
        file = h5py.File(self.path(), "w")
        self.open.append(file)
        return file.create_dataset("x", data=x)

    def iterator(self, x):
        return chunks_of(x, 7)

    def other_iterator(self, x):
        return chunks_of(x, 10)

    def array(self, x):
        return x


@pytest.fixture
def places(tmp_path):
    places = Places(tmp_path)
    yield places
    for file in places.open:
        file.close()


LIMIT = 240_000


@pytest.fixture
def _small_blocks(monkeypatch):
    monkeypatch.setattr("calipers._compare.chunked.sources._BLOCK_BYTES", 2000)
    monkeypatch.setattr("calipers._compare.chunked.streams._BLOCK_BYTES", 2000)


KINDS = [
    ("memmap", "memmap"),
    ("memmap", "zarr"),
    ("zarr", "other_zarr"),
    ("zarr", "array"),
    ("array", "h5py"),
    ("h5py", "other_zarr"),
    ("contiguous_h5py", "memmap"),
    ("iterator", "other_iterator"),
    ("iterator", "array"),
    ("zarr", "iterator"),
    ("memmap", "other_iterator"),
]


def pair(shape, dtype, seed=0):
    """Return two arrays that differ here and there."""
    rng = np.random.default_rng(seed)
    dtype = np.dtype(dtype)
    x = (100 * rng.standard_normal(shape)).astype(dtype)
    y = x.copy()
    flat = y.reshape(-1)
    if flat.size:
        for place in rng.integers(0, flat.size, 5):
            flat[place] = flat[place] + np.ones((), dtype)
    if dtype.kind in "fc" and flat.size > 20:
        flat[17] = np.nan
        flat[flat.size // 2] = np.inf
    return x, y


@pytest.mark.slow
@pytest.mark.usefixtures("_small_blocks")
@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("kinds", KINDS, ids="-".join)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_reports_are_those_of_arrays_in_memory(places, shape, kinds, threads):
    # How threads share out the blocks does not depend on the dtype.
    for dtype in ("f8", "f4", "c16", "i4", ">f8") if threads == 2 else ("f8", "c16"):
        x, y = pair(shape, dtype)
        for other in (x, y):
            in_memory = calipers.compare(x, other, check_dtype=False)
            a, b = (getattr(places, kind)(z) for kind, z in zip(kinds, (x, other), strict=True))
            with calipers.num_threads(threads):
                found = calipers.compare(a, b, check_dtype=False, memory_limit=LIMIT)
            if not x.size:
                assert found.size == 0
                continue
            assert found.tally == in_memory.tally
            assert repr(found.differences) == repr(in_memory.differences)  # NaN is not itself
            assert found.problems == in_memory.problems
            assert bool(found) == bool(in_memory)
            assert (found.actual_shape, found.expected_shape) == (shape, shape)


@pytest.mark.usefixtures("_small_blocks")
@pytest.mark.parametrize("kinds", KINDS, ids="-".join)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_verdicts_are_those_of_arrays_in_memory(places, shape, kinds):
    x, y = pair(shape, "f8", 1)

    def ask(question, other, **options):
        a, b = (getattr(places, kind)(z) for kind, z in zip(kinds, (x, other), strict=True))
        return question(a, b, memory_limit=LIMIT, **options)

    for other in (x, y, x + 1e-9):
        assert ask(calipers.allclose, other) == np.allclose(x, other)
        assert ask(calipers.array_equal, other) == np.array_equal(x, other)
    assert ask(calipers.allclose, x + 1e-3, rtol=0.0, atol=1e-2)
    if x.size:
        assert not ask(calipers.allclose, x + 1e-3, rtol=0.0, atol=1e-4)


@pytest.mark.usefixtures("_small_blocks")
@pytest.mark.parametrize("kind", ["memmap", "zarr", "h5py", "iterator"])
def test_what_is_not_finite_is_found_where_it_comes_first(places, kind):
    x = np.zeros((40, 50))
    assert calipers.allfinite(getattr(places, kind)(x), memory_limit=LIMIT)
    assert calipers.first_nonfinite(getattr(places, kind)(x), memory_limit=LIMIT) is None
    x[3, 48] = np.nan  # in a later block of the same rows
    x[4, 1] = np.inf  # in an earlier block
    assert not calipers.allfinite(getattr(places, kind)(x), memory_limit=LIMIT)
    assert calipers.first_nonfinite(getattr(places, kind)(x), memory_limit=LIMIT) == (3, 48)


@pytest.mark.parametrize("kind", ["memmap", "zarr", "h5py"])
def test_one_array_whose_chunks_do_not_fit_is_told_what_they_take(places, kind):
    x = np.ones((100, 30))
    x[70, 3] = np.nan
    for question in calipers.allfinite, calipers.first_nonfinite:
        stored = getattr(places, kind)(x)
        with pytest.raises(
            ValueError, match=r"more than memory_limit=1: pass memory_limit="
        ) as told:
            question(stored, memory_limit=1)
        enough = int(re.search(r"pass memory_limit=(\d+)", str(told.value))[1])
        assert question(stored, memory_limit=enough) in (False, (70, 3))


def test_an_array_without_rows_beside_chunks_has_the_dtype_that_it_has():
    rows = np.zeros((2, 3), np.uint8)
    report = calipers.compare(rows[:0], iter([rows]))
    assert (report.actual_dtype, report.expected_dtype) == ("uint8", "uint8")
    assert [problem[:12] for problem in report.problems] == ["shapes diffe"]
    assert calipers.compare(rows[:0], iter([rows[:0]]))


def test_an_array_of_no_axes_is_a_block(places):
    x = np.array(3.5)
    assert calipers.allclose(places.zarr(x), x)
    assert calipers.compare(places.zarr(x), x + 1).worst().index == ()
    assert calipers.first_nonfinite(places.zarr(np.array(np.nan))) == ()


@pytest.mark.usefixtures("_small_blocks")
@pytest.mark.parametrize("kind", ["memmap", "zarr", "h5py", "iterator"])
def test_numbers_and_broadcast_arrays_meet_every_block(places, kind):
    make = getattr(places, kind)
    x = np.arange(60.0).reshape(20, 3) % 3
    limit = LIMIT
    assert calipers.allclose(make(x), [0.0, 1.0, 2.0], memory_limit=limit)
    assert calipers.allclose([[0.0, 1.0, 2.0]], make(x), memory_limit=limit)
    assert not calipers.allclose(make(x), 1.0, memory_limit=limit)
    assert calipers.allclose(make(x), 1.0, atol=1.0, memory_limit=limit)
    # A Python number takes the dtype that it meets: float32(0.1) is not 0.1.
    single = np.full(9, 0.1, np.float32)
    assert calipers.allclose(make(single), 0.1, 0.0, 0.0, memory_limit=limit)
    assert not calipers.allclose(make(single), np.float64(0.1), 0.0, 0.0, memory_limit=limit)


@pytest.mark.usefixtures("_small_blocks")
def test_two_stores_are_broadcast(places):
    x = np.arange(60.0).reshape(20, 3)
    row, column = places.zarr(x[:1]), places.h5py(x[:, :1])
    assert calipers.allclose(row, places.zarr(x), atol=57.0, memory_limit=LIMIT)
    assert not calipers.allclose(row, places.zarr(x), atol=56.0, rtol=0.0, memory_limit=LIMIT)
    assert calipers.allclose(column, places.memmap(x), atol=2.0, memory_limit=LIMIT)
    with pytest.raises(ValueError, match=r"their shapes are a \(20, 3\), b \(20, 2\)"):
        calipers.allclose(places.zarr(x), places.zarr(x[:, :2]))
    assert not calipers.array_equal(row, places.zarr(x))


@pytest.mark.usefixtures("_small_blocks")
def test_strings_and_long_doubles_are_left_to_numpy(places):
    words = np.array(["a", "bc", "d"] * 5)
    assert calipers.array_equal(places.memmap(words), places.iterator(words), memory_limit=LIMIT)
    assert not calipers.array_equal(places.memmap(words), chunks_of(words[::-1], 4))
    wide = np.linspace(0, 1, 50, dtype=np.longdouble)
    assert calipers.allclose(places.memmap(wide), chunks_of(wide, 8), memory_limit=1000)
    calipers.assert_close(places.memmap(wide), places.memmap(wide), memory_limit=1000)
    assert not calipers.compare(places.memmap(wide), wide + 1, memory_limit=1000)


# How blocks are cut


@pytest.mark.parametrize(
    ("shape", "units", "enough", "largest", "expected"),
    [
        ((1000, 700), [(100, 70), (100, 70)], 7000, 10**9, (100, 70)),
        ((1000, 700), [(100, 70), (100, 70)], 21000, 10**9, (100, 210)),
        ((1000, 700), [(100, 70), (100, 70)], 10**6, 10**9, (1000, 700)),
        ((1000, 700), [(100, 70), (100, 70)], 10**5, 10**9, (100, 700)),
        ((1000, 700), [(100, 70), (50, 140)], 1, 10**9, (100, 140)),
        ((1000, 700), [(100, 70), (30, 140)], 1, 10**9, (300, 140)),
        ((1000, 700), [(100, 70), (30, 140)], 1, 20000, (100, 140)),
        ((1000, 700), [(1, 1), (1, 1)], 7000, 10**9, (10, 700)),
        ((10**9,), [(1,), (1,)], 1 << 20, 1 << 24, (1 << 20,)),
        ((), [(), ()], 10, 10, ()),
        ((5, 0), [(2, 1), (1, 1)], 10, 10, (5, 1)),
    ],
)
def test_blocks_hold_whole_chunks_and_grow_along_rows(shape, units, enough, largest, expected):
    ones = [tuple(1 for _ in shape)]
    assert (
        block_shape(shape, units, ones, enough, lambda block: np.prod(block) <= largest) == expected
    )


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_blocks_cover_each_element_once(shape):
    seen = np.zeros(shape, int)
    grid = Grid(shape, tuple(max(1, n // 3) for n in shape))
    for number in range(len(grid)):
        seen[grid.region(number)] += 1
        assert grid.corner(number) == tuple(part.start for part in grid.region(number))
    assert (seen == 1).all()


def test_chunks_that_line_up_are_read_once(places, monkeypatch):
    x = np.zeros((60, 60))
    a, b = places.zarr(x, 3), places.zarr(x, 6)  # 20 and 10 to a side
    read = []
    original = StoreSource.read
    monkeypatch.setattr(
        StoreSource, "read", lambda self, region, _: read.append(region) or original(self, region)
    )
    calipers.allclose(a, b, memory_limit=20 * 20 * 8 * 4)
    assert len(read) == 2 * 9
    assert {part.start % 20 for region in read for part in region} == {0}


# Early stop, overlap, memory


def test_nothing_is_read_beyond_a_mismatch(places):
    x = np.zeros(1000)
    y = x.copy()
    y[105] = 1
    taken = []

    def counted(z):
        for i in range(100):
            taken.append(i)
            yield z[10 * i : 10 * i + 10]

    assert not calipers.allclose(counted(x), y)
    assert len(taken) <= 13  # the 11th differs, and one is read ahead
    taken.clear()
    y[105] = np.nan
    assert not calipers.allfinite(counted(y))
    assert len(taken) <= 13
    taken.clear()
    assert not calipers.array_equal(counted(y), places.zarr(x))
    assert len(taken) <= 13


@pytest.mark.parametrize("kind", ["memmap", "zarr", "h5py"])
def test_no_block_is_read_beyond_a_mismatch(places, kind, monkeypatch):
    x = np.zeros((100, 100))
    y = x.copy()
    y[25, 3] = 1
    a, b = getattr(places, kind)(x), places.memmap(y)
    read = []
    original = MemmapSource._fill
    monkeypatch.setattr(
        MemmapSource, "_fill", lambda self, *given: read.append(1) or original(self, *given)
    )
    limit = 60_000 if kind == "memmap" else 1 << 18
    monkeypatch.setattr("calipers._compare.chunked.sources._BLOCK_BYTES", 1600)
    assert calipers.allclose(a, x, memory_limit=limit)
    read.clear()
    with calipers.num_threads(1):  # a second thread reads on until the first one runs again
        assert not calipers.allclose(a, b, memory_limit=limit)
    sides = 2 if kind == "memmap" else 1
    assert len(read) <= sides * 40  # of 100 rows, or of fewer chunks
    monkeypatch.undo()


def test_the_next_chunk_is_read_while_one_is_compared():
    read = [threading.Event() for _ in range(5)]

    def blocks():
        for event in read:
            event.set()
            yield (event,)

    seen = []

    def work(event):
        number = read.index(event)
        if number + 1 < len(read):
            assert read[number + 1].wait(10), "the next block waits for this one"
        seen.append(number)
        return threading.current_thread()

    with calipers.num_threads(2):
        threads = set(overlapped(blocks(), work))
    assert seen == [0, 1, 2, 3, 4]
    assert threading.current_thread() not in threads


def test_a_block_is_read_while_another_is_compared(places, monkeypatch):
    a = places.memmap(np.zeros(1000))
    reads, second, waits = [], threading.Event(), []
    original = MemmapSource.read

    def noted(self, *given):
        reads.append(1)
        if len(reads) == 2:
            second.set()
        return original(self, *given)

    monkeypatch.setattr(MemmapSource, "read", noted)
    monkeypatch.setattr("calipers._compare.chunked.sources._BLOCK_BYTES", 800)

    def test(block):
        waits.append(second.wait(10))
        return True

    with calipers.num_threads(2):
        assert Blocks(80_000, a=a).every(test)
    assert all(waits)


def test_an_iterator_is_asked_by_the_thread_of_its_owner():
    own = threading.get_ident()

    def chunks():
        for _ in range(5):
            assert threading.get_ident() == own
            yield np.zeros(3)

    assert calipers.allclose(chunks(), np.zeros(15))


SCRIPT = """
    import os, sys, tempfile
    import numpy as np
    import calipers

    size, limit = 1 << 30, 48 << 20
    with tempfile.TemporaryDirectory() as folder:
        maps = []
        for name in "ab":
            path = os.path.join(folder, name)
            with open(path, "wb") as file:
                file.truncate(size)  # a hole: no disk is taken
            maps.append(np.memmap(path, np.float64, "r"))
        a, b = maps
        # Kernels are loaded, and the pages of the interpreter are there.
        small = np.zeros(3)
        for question in (calipers.allclose, calipers.array_equal, calipers.compare):
            question(a[:1000], b[:1000], memory_limit=4000)
        calipers.allfinite(a[:1000], memory_limit=4000)
        before = peak()
        assert calipers.allclose(a, b, memory_limit=limit)
        assert calipers.array_equal(a, b, memory_limit=limit)
        assert calipers.allfinite(a, memory_limit=limit)
        assert calipers.compare(a, b, memory_limit=limit).size == size // 8
        # Views that are no runs of the file are copied from the map.
        gaps = [x.reshape(-1, 1024)[: 1 << 15, 1:] for x in maps]
        assert calipers.allclose(*gaps, memory_limit=limit)
        print((peak() - before) / limit)
"""


@pytest.mark.slow
def test_maps_of_two_gibibytes_stay_within_48_mebibytes():
    run = subprocess.run(
        [sys.executable, "-c", PEAK + textwrap.dedent(SCRIPT)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    assert float(run.stdout) <= 1.0


ZARR_SCRIPT = """
    import sys, tempfile
    import numpy as np, zarr, h5py
    import calipers

    limit = 32 << 20
    shape = (4000, 4000)
    with tempfile.TemporaryDirectory() as folder:
        z = zarr.create_array(store=f"{folder}/z", shape=shape, chunks=(500, 500), dtype="f8")
        file = h5py.File(f"{folder}/h", "w")
        h = file.create_dataset("x", shape, "f8", chunks=(400, 800))
        rng = np.random.default_rng(0)
        for i in range(0, 4000, 1000):
            rows = rng.standard_normal((1000, 4000))
            z[i : i + 1000], h[i : i + 1000] = rows, rows
            del rows
        tiny = z[:10, :10]
        assert calipers.allclose(zarr.array(tiny), tiny)
        before = peak()
        assert calipers.allclose(z, h, memory_limit=limit)
        assert calipers.compare(z, h, memory_limit=limit).size == 16_000_000
        print((peak() - before) / limit)
        file.close()
"""


@pytest.mark.slow
def test_stores_stay_within_the_limit():
    pytest.importorskip("zarr")
    pytest.importorskip("h5py")
    run = subprocess.run(
        [sys.executable, "-c", PEAK + textwrap.dedent(ZARR_SCRIPT)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    assert float(run.stdout) <= 1.0


# Maps in all their forms


@pytest.mark.parametrize("limit", [1000, 1 << 28])
def test_views_of_maps_are_compared_as_what_they_show(tmp_path, limit):
    x = np.arange(3000.0).reshape(60, 50)
    path = tmp_path / "x"
    with open(path, "wb") as file:
        file.write(b"a header")
        x.tofile(file)
    for mode in ("r", "r+", "c"):
        a = np.memmap(path, "f8", mode, offset=8, shape=x.shape)
        for view in (
            lambda z: z,
            lambda z: z[10:],
            lambda z: z[3:40, 5:9],
            lambda z: z[::2],
            lambda z: z.T,
            lambda z: z[::-1],
            lambda z: z[7],
        ):
            assert calipers.array_equal(view(a), view(x), memory_limit=limit)
            other = view(x).copy()
            other.flat[-1] += 1
            assert not calipers.array_equal(view(a), other, memory_limit=limit)
        if mode == "c":
            a[0, 0] = -1.0  # in memory alone
            assert not calipers.array_equal(a, x, memory_limit=limit)
            assert a[0, 0] == -1.0
        del a


@pytest.mark.parametrize("orders", ["FF", "FC", "CF"])
@pytest.mark.parametrize("shape", [(300, 200), (40, 30, 20)], ids=str)
@pytest.mark.usefixtures("_small_blocks")
def test_maps_of_other_orders_are_read_in_runs(tmp_path, orders, shape, monkeypatch):
    x, y = pair(shape, "f8")
    monkeypatch.setattr(MemmapSource, "_drop_pages", lambda _: pytest.fail("copied from the map"))
    maps = []
    for order, z in zip(orders, (x, y), strict=True):
        path = tmp_path / f"{len(maps)}.npy"
        np.save(path, np.asarray(z, order=order))
        maps.append(np.load(path, mmap_mode="r"))
    found = calipers.compare(*maps, memory_limit=LIMIT)
    in_memory = calipers.compare(x, y)
    assert found.tally == in_memory.tally
    assert repr(found.differences) == repr(in_memory.differences)
    assert calipers.allclose(maps[0], x, memory_limit=LIMIT)
    assert calipers.allclose(maps[0].T, x.T, memory_limit=LIMIT)
    monkeypatch.undo()
    assert calipers.array_equal(maps[1][::2, 3:], y[::2, 3:], equal_nan=True, memory_limit=20_000)


def test_a_map_of_no_axes_is_read(tmp_path, places):
    path = tmp_path / "x"
    np.array(5.0).tofile(path)
    a = np.memmap(path, "f8", "r", shape=())
    assert calipers.allclose(places.zarr(np.full(100, 5.0)), a)
    assert not calipers.allclose(places.zarr(np.zeros(100)), a)


def test_a_column_of_a_large_map_is_large(tmp_path, monkeypatch):
    path = tmp_path / "x"
    x = np.random.default_rng(0).standard_normal((300, 1024))
    x.tofile(path)
    a = np.memmap(path, "f8", "r", shape=x.shape)
    read = []
    original = MemmapSource._fill
    monkeypatch.setattr(MemmapSource, "_fill", lambda *given: read.append(1) or original(*given))
    # 2400 bytes, and a page for each.
    assert calipers.array_equal(a[:, 5], x[:, 5], memory_limit=100_000)
    assert read


def test_a_map_is_its_file_even_if_another_took_the_name(tmp_path):
    x = np.arange(1000.0)
    path = tmp_path / "x"
    x.tofile(path)
    a = np.memmap(path, "f8", "r")
    (x + 1).tofile(tmp_path / "y")
    os.replace(tmp_path / "y", path)
    assert calipers.array_equal(a, x, memory_limit=1000)
    os.unlink(path)
    assert calipers.array_equal(a, x, memory_limit=1000)


def test_what_was_written_to_a_map_is_seen_before_it_is_flushed(tmp_path):
    a = np.memmap(tmp_path / "x", "f8", "w+", shape=1000)
    a[500] = 7
    assert calipers.compare(a, np.zeros(1000), memory_limit=1000).worst().index == (500,)


def test_a_map_that_fits_is_read_in_place(places, monkeypatch):
    monkeypatch.setattr(MemmapSource, "__init__", lambda *_: pytest.fail("read through its file"))
    a = places.memmap(np.zeros(1000))
    assert calipers.allclose(a, a, memory_limit=16_000)
    assert calipers.compare(a, a, memory_limit=16_000)


# What goes wrong


def opened():
    """Return the files that are open; sockets and the like come and go with other tests."""
    gc.collect()
    with os.scandir("/proc/self/fd") as entries:
        paths = [os.readlink(entry) for entry in entries]
    return sorted(path for path in paths if os.path.isfile(path))


@pytest.mark.parametrize("limit", [1000, 1 << 28])
def test_a_file_that_was_cut_is_named(tmp_path, limit):
    path = tmp_path / "x"
    np.zeros(10_000).tofile(path)
    a = np.memmap(path, "f8", "r")
    os.truncate(path, 50_000)
    with pytest.raises(OSError, match=r"/x.* ends at byte 50000.* was truncated; write it again"):
        calipers.allclose(a, np.zeros(10_000), memory_limit=limit)


def test_files_that_cannot_be_read_are_not_unequal(tmp_path):
    path = tmp_path / "x.bin"
    np.ones(5000).tofile(path)
    cut = np.memmap(path, dtype=float)
    with open(path, "r+b") as file:
        file.truncate(800)
    with pytest.raises(OSError, match="was truncated"):
        calipers.array_equal(cut, np.ones(5000))


@pytest.mark.parametrize("view", [lambda a: a.T, lambda a: a[:, ::2], lambda a: a[::-1, ::-1]])
def test_a_file_of_another_order_that_was_cut_is_named(tmp_path, view):
    path = tmp_path / "x"
    np.zeros((100, 100)).tofile(path)
    a = np.memmap(path, "f8", "r", shape=(100, 100))
    os.truncate(path, 50_000)
    with pytest.raises(OSError, match="it was truncated; write it again"):
        calipers.allclose(view(a), np.zeros(view(a).shape), memory_limit=20_000)


def test_a_file_that_is_cut_while_it_is_read_is_named(tmp_path, monkeypatch):
    path = tmp_path / "x"
    np.zeros(100_000).tofile(path)
    a = np.memmap(path, "f8", "r")
    monkeypatch.setattr("calipers._compare.chunked.sources._BLOCK_BYTES", 8000)
    original, count = MemmapSource._fill, []

    def cutting(self, *given):
        count.append(1)
        if len(count) == 20:
            os.truncate(path, 100_000)
        return original(self, *given)

    monkeypatch.setattr(MemmapSource, "_fill", cutting)
    files = opened()
    with pytest.raises(OSError, match=r"a is mapped from .*x up to byte 800000, but the file ends"):
        calipers.allclose(a, np.zeros(100_000), memory_limit=20_000)
    assert opened() == files


def test_a_truncated_hdf5_file_is_named(tmp_path):
    h5py = pytest.importorskip("h5py")
    path = str(tmp_path / "x.h5")
    with h5py.File(path, "w") as file:
        file.create_dataset("x", data=np.arange(1e5), chunks=(1000,), shuffle=True)
    with h5py.File(path, "r") as file:
        os.truncate(path, 400_000)
        with pytest.raises(OSError, match=r"a, the h5py dataset /x of .*x.h5, could not be read"):
            calipers.allclose(file["x"], np.arange(1e5))
    dataset = file  # closed
    assert not dataset


def test_a_closed_dataset_is_named(places):
    pytest.importorskip("h5py")
    dataset = places.h5py(np.zeros(30))
    places.open[-1].close()
    with pytest.raises(OSError, match="a, the closed h5py dataset, could not be opened"):
        calipers.allclose(dataset, np.zeros(30))


@pytest.mark.parametrize("change", ["resize", "delete"])
def test_a_zarr_store_that_shrinks_while_it_is_read_is_named(places, change, monkeypatch):
    zarr = pytest.importorskip("zarr")
    x = np.ones(10_000)
    a = places.zarr(x, 100)
    monkeypatch.setattr("calipers._compare.chunked.sources._BLOCK_BYTES", 1600)
    original, count = StoreSource.read, []

    def shrinking(self, *given):
        count.append(1)
        if len(count) == 20:
            other = zarr.open_array(a.store, path=a.path)
            if change == "resize":
                other.resize((5000,))
            else:
                os.unlink(os.path.join(str(a.store.root), "c", "99"))
        return original(self, *given)

    monkeypatch.setattr(StoreSource, "read", shrinking)
    with pytest.raises(OSError, match=r"a, the zarr array .* changed while it was read"):
        calipers.allclose(a, x, memory_limit=4000)


def test_an_hdf5_dataset_that_shrinks_while_it_is_read_is_named(places, monkeypatch):
    h5py = pytest.importorskip("h5py")
    file = h5py.File(places.path(), "w")
    places.open.append(file)
    a = file.create_dataset("x", data=np.ones(10_000), chunks=(100,), maxshape=(None,))
    monkeypatch.setattr("calipers._compare.chunked.sources._BLOCK_BYTES", 1600)
    original, count = StoreSource.read, []

    def shrinking(self, *given):
        count.append(1)
        if len(count) == 20:
            a.resize((5000,))
        return original(self, *given)

    monkeypatch.setattr(StoreSource, "read", shrinking)
    message = r"a, the h5py dataset .*(truncated|changed) while it was read"
    with pytest.raises(OSError, match=message):
        calipers.allclose(a, np.ones(10_000), memory_limit=4000)


def test_chunks_beyond_the_limit_are_named(places):
    x = np.zeros((100, 100))
    a, b = places.zarr(x, 1), places.h5py(x)
    with pytest.raises(
        ValueError, match=r"a in chunks of \(100, 100\) and b in chu.* pass memory_limit="
    ) as e:
        calipers.allclose(a, b, memory_limit=1 << 16)
    enough = int(str(e.value).split("pass memory_limit=")[1].split(",")[0])
    # Two blocks of 80 kB, and the chunks of one side at a time, packed and unpacked.
    assert enough == 2 * 80_000 + 2 * 80_000
    assert calipers.allclose(a, b, memory_limit=enough)
    with pytest.raises(ValueError, match=r"chunk 0 of b has 0.076.* MiB, and"):
        calipers.allclose(a, chunks_of(x, 100), memory_limit=1 << 16)


@pytest.mark.parametrize("limit", [0, -1, np.nan, "1GB", None, True, 1j])
def test_a_limit_is_a_number_of_bytes(limit):
    error = ValueError if type(limit) in (int, float) else TypeError
    told = f"memory_limit must be a positive number of bytes, got {re.escape(repr(limit))}"
    with pytest.raises(error, match=told):
        calipers.allclose(iter([np.zeros(3)]), np.zeros(3), memory_limit=limit)
    if limit is not None:
        with pytest.raises(error, match=told):
            calipers.jacobian(np.sin, np.zeros(3), memory_limit=limit)


@pytest.mark.parametrize("limit", [1e9, np.float64(1e9), np.int64(2**30), 2.0**28, np.inf, 2**80])
def test_a_limit_is_any_number_of_bytes(limit):
    x = np.arange(3.0)
    assert calipers.allclose(x, x, memory_limit=limit)
    assert calipers.allclose(iter([x]), x, memory_limit=limit)
    assert calipers.compare(iter([x]), x, memory_limit=limit)
    assert calipers.allfinite(x, memory_limit=limit)
    assert calipers.jacobian(np.sin, x, memory_limit=limit).shape == (3, 3)


@pytest.mark.parametrize(
    ("chunks", "message"),
    [
        ([np.zeros(3), np.zeros((3, 2))], r"chunk 1 of a has rows of shape \(2,\) and dtype"),
        ([np.zeros(3), np.zeros(3, "f4")], r"dtype float32 after rows of shape \(\) and dtype f"),
        ([1.0, 2.0], "chunk 0 of a has no axis"),
    ],
)
def test_chunks_that_are_no_parts_of_one_array_are_named(chunks, message):
    with pytest.raises(ValueError, match=message):
        calipers.allclose(iter(chunks), np.zeros(6))


def test_chunks_that_do_not_line_up_are_named():
    a, b = (np.zeros((6, n)) for n in (2, 3))
    with pytest.raises(
        ValueError, match=r"chunks of a and b do not line up: .*\(4, 2\), b \(4, 3\)"
    ):
        calipers.allclose(chunks_of(a, 4), chunks_of(b, 5))
    with pytest.raises(ValueError, match="they have 2 and 1 axes"):
        calipers.allclose(chunks_of(np.zeros((6, 6)), 6), chunks_of(np.zeros(6), 6))
    report = calipers.compare(chunks_of(a, 4), chunks_of(b, 5))
    assert not report
    assert "shapes differ" in str(report)
    assert not calipers.array_equal(chunks_of(a, 4), chunks_of(b, 5))


def test_reports_of_chunks_that_do_not_line_up_have_the_whole_shapes():
    a, b = (np.zeros((6, n)) for n in (2, 3))
    report = calipers.compare(chunks_of(a, 4), chunks_of(b, 5))
    assert (report.actual_shape, report.expected_shape) == ((6, 2), (6, 3))
    assert "nothing could be compared" in str(report)
    report = calipers.compare(chunks_of(np.zeros(6), 4), a)
    assert (report.actual_shape, report.expected_shape) == ((6,), (6, 2))
    assert "nothing could be compared" in str(report)


def test_an_iterator_that_ends_too_soon_is_named():
    x = np.arange(20.0)
    with pytest.raises(ValueError, match="a has 15 rows and b has more"):
        calipers.allclose(chunks_of(x[:15], 4), chunks_of(x, 3))
    with pytest.raises(ValueError, match="a has more and b has 15 rows"):
        calipers.allclose(chunks_of(x, 4), x[:15])
    assert not calipers.array_equal(chunks_of(x, 4), chunks_of(x[:15], 3))
    report = calipers.compare(chunks_of(x, 4), chunks_of(x[:15], 3))
    assert report.problems == ("shapes differ: (20,) and (15,); they cannot be broadcast",)
    assert report.mismatches == 0


@pytest.mark.skipif(not os.path.isdir("/proc/self/fd"), reason="open files are listed on Linux")
def test_a_map_is_not_read_on_where_chunks_have_ended(tmp_path, monkeypatch):
    np.save(tmp_path / "x.npy", np.zeros(3 << 20))
    x = np.load(tmp_path / "x.npy", mmap_mode="r")
    read, rows = MemmapSource.read, []

    def counted(self, region, memory=None):
        rows.append(region[0].stop)
        return read(self, region, memory)

    monkeypatch.setattr(MemmapSource, "read", counted)
    before = len(os.listdir("/proc/self/fd"))
    report = calipers.compare(iter([np.zeros(10)]), x)
    assert (report.actual_shape, report.expected_shape) == ((10,), x.shape)
    assert max(rows) < len(x)
    assert len(os.listdir("/proc/self/fd")) == before


def test_an_array_of_more_axes_meets_no_chunks():
    row = np.arange(100.0)
    with pytest.raises(ValueError, match=r"b has shape \(5, 100\), but chunks of the other"):
        calipers.allclose(iter([row, row]), np.tile(row, (5, 1)))
    assert not calipers.array_equal(iter([row, row]), np.tile(row, (5, 1)))
    assert "shapes differ" in str(calipers.compare(iter([row]), np.tile(row, (5, 1))))


def test_one_iterator_is_not_two():
    chunks = iter([np.zeros(3)] * 4)
    with pytest.raises(ValueError, match="a1 and a2 are one iterator"):
        calipers.array_equal(chunks, chunks)


@pytest.mark.parametrize("late", [False, True])
def test_chunks_in_memory_that_is_used_again(late):
    x = np.random.default_rng(0).standard_normal(500_000)

    def chunks(step=50_000):
        memory = np.empty(step)
        for i in range(0, len(x), step):
            if not late or i >= 3 * step:
                memory[:] = x[i : i + step]
                yield memory
            else:
                yield x[i : i + step].copy()

    if late:
        with pytest.raises(ValueError, match="chunk 4 of a uses the memory of the chunk before it"):
            calipers.allclose(chunks(), x)
    else:
        for _ in range(5):
            assert calipers.allclose(chunks(), x)
            assert calipers.compare(chunks(), x)
    single = x.astype("f4")
    buffered = np.nditer(
        single, flags=["external_loop", "buffered"], op_dtypes="f8", casting="safe"
    )
    assert calipers.allclose(buffered, single.astype("f8"))


def test_an_array_that_can_be_iterated_is_an_array():
    x = np.arange(6.0).reshape(2, 3)
    assert calipers.allclose(x.flat, x.ravel())


@pytest.mark.parametrize(
    ("chunks", "message"),
    [
        ([np.zeros(3), None], "chunk 1 of a has no axis"),
        ([np.zeros(3), [1, [2]]], "chunk 1 of a is not an array: setting an array element"),
    ],
)
def test_chunks_that_are_no_arrays_are_named(chunks, message):
    with pytest.raises(ValueError, match=message):
        calipers.allfinite(iter(chunks))


def test_sparse_chunks_are_named():
    sparse = pytest.importorskip("scipy.sparse")
    with pytest.raises(TypeError, match="chunk 1 of actual is sparse"):
        calipers.compare(iter([np.eye(3), sparse.eye_array(3)]), np.zeros((6, 3)))


def test_wide_rows_beside_an_iterator_are_refused_before_they_are_read(places, monkeypatch):
    x = np.zeros((40, 30_000))
    a = places.zarr(x, 10)
    monkeypatch.setattr(StoreSource, "read", lambda *_: pytest.fail("was read"))
    with pytest.raises(ValueError, match="b is compared with an iterator, so it is read by rows"):
        calipers.allclose(iter([x[:5]]), a, memory_limit=5_000_000)


def test_isclose_refuses_iterators():
    with pytest.raises(TypeError, match="b is an iterator, but isclose takes whole arrays"):
        calipers.isclose(np.zeros(3), iter([np.zeros(3)]))


def test_empty_iterators_agree():
    assert calipers.allclose(iter([]), iter([]))
    assert calipers.array_equal(iter([]), np.zeros(0))
    assert calipers.compare(iter([]), iter([]))
    assert not calipers.array_equal(iter([]), np.zeros(3))


def test_questions_that_need_the_whole_are_refused(places):
    a = places.zarr(np.zeros((4, 5)))
    with pytest.raises(TypeError, match="axis is not supported for arrays in chunks"):
        calipers.allclose(a, a, axis=0)
    with pytest.raises(TypeError, match="rtol must be a number for arrays in chunks"):
        calipers.allclose(a, a, rtol=np.full(5, 1e-3))


@pytest.mark.parametrize("error", [ZeroDivisionError, KeyboardInterrupt])
def test_what_an_iterator_raises_arrives_and_leaves_nothing(places, error):
    before = threading.active_count()

    def chunks():
        yield np.zeros(5)
        yield np.zeros(5)
        raise error

    a = places.memmap(np.zeros(20))
    files = opened()
    with pytest.raises(error):
        calipers.allclose(chunks(), a)
    assert threading.active_count() <= before + 1  # calipers' own thread stays
    assert opened() == files


# Where people meet it


def test_assert_close_reads_a_stream_once_and_reports(places):
    x, y = pair((50, 6), "f8")
    calipers.assert_close(places.iterator(x), places.other_iterator(x))
    calipers.assert_close(places.zarr(x), places.h5py(x))
    for a, b in (
        (places.iterator(x), places.other_iterator(y)),
        (places.zarr(x), places.h5py(y)),
    ):
        with pytest.raises(calipers.ClosenessError) as caught:
            calipers.assert_close(a, b)
        assert str(caught.value) == str(calipers.compare(x, y))


def test_containers_of_stores_are_walked(places):
    x, y = pair((30,), "f8")
    report = calipers.compare({"p": places.zarr(x), "q": x}, {"p": places.h5py(y), "q": x})
    assert [leaf.path for leaf in report.failing] == ["['p']"]
    assert report.failing[0].tally == calipers.compare(x, y).tally


def test_groups_of_zarr_are_containers(places):
    zarr = pytest.importorskip("zarr")
    groups = [zarr.open_group(places.path(), mode="w") for _ in range(2)]
    for k, group in enumerate(groups):
        layer = group.create_group("layer")
        for parent, name, values in (
            (layer, "w", np.arange(6.0) + k),
            (group, "b", np.arange(3.0)),
        ):
            parent.create_array(name, shape=values.shape, dtype=values.dtype)[:] = values
    report = calipers.compare(*groups)
    assert [leaf.path for leaf in report.failing] == ["['layer']['w']"]
    assert len(report.leaves) == 2
    with pytest.raises(TypeError, match="a1 is a zarr group: pass its arrays"):
        calipers.array_equal(*groups)


def test_strings_in_stores_are_compared_for_equality(places):
    h5py = pytest.importorskip("h5py")
    words = np.array([b"ab", b"cd"] * 50)
    calipers.assert_close(places.contiguous_h5py(words), places.memmap(words))
    with pytest.raises(calipers.ClosenessError):
        calipers.assert_close(places.contiguous_h5py(words), places.memmap(words[::-1]))
    file = h5py.File(places.path(), "w")
    places.open.append(file)
    with pytest.raises(OSError, match="it is a null dataset, which has no elements"):
        calipers.allclose(file.create_dataset("x", data=h5py.Empty("f8")), 1.0)


def test_numbers_have_the_dtype_that_they_meet(places):
    x = np.ones(20, np.float32)
    for number in (1.0, 1, 1 + 0j, True):
        found = calipers.compare(places.zarr(x), number, check_shape=False)
        in_memory = calipers.compare(x, number, check_shape=False)
        assert found.expected_dtype == in_memory.expected_dtype
        assert found.rule == in_memory.rule


def test_zarr_in_an_archive(tmp_path):
    zarr = pytest.importorskip("zarr")
    with zarr.storage.ZipStore(tmp_path / "x.zip", mode="w") as store:
        a = zarr.create_array(store=store, shape=(50,), chunks=(10,), dtype="f8")
        a[:] = np.arange(50.0)
        assert calipers.allclose(a, np.arange(50.0))


def test_groups_of_hdf5_are_containers(places):
    h5py = pytest.importorskip("h5py")
    files = [h5py.File(places.path(), "w") for _ in range(2)]
    places.open += files
    for k, file in enumerate(files):
        file["layer/w"] = np.arange(6.0)
        file["layer/b"] = np.arange(3.0) + k
    report = calipers.compare(*files)
    assert [leaf.path for leaf in report.failing] == ["['layer']['b']"]


def test_dtypes_and_shapes_are_checked_without_reading(places, monkeypatch):
    x = np.zeros((6, 4))
    a, b, c = places.zarr(x), places.zarr(x.astype("f4")), places.zarr(x[:5])
    report = calipers.compare(a, b)
    assert report.problems[0].startswith("dtypes differ: float64 and float32")
    assert calipers.compare(a, b, check_dtype=False)
    monkeypatch.setattr(StoreSource, "read", lambda *_: pytest.fail("was read"))
    assert "shapes differ" in str(calipers.compare(a, c))
    assert not calipers.array_equal(a, c)


def test_reports_of_chunks_have_a_picture_of_distances_alone(places):
    pytest.importorskip("matplotlib")
    x, y = pair((30,), "f8")
    figure = calipers.compare(places.zarr(x), y).plot()
    elements, distances = figure.axes
    assert elements.texts[0].get_text() == "compared in chunks: no elements to draw"
    assert distances.patches


def test_a_map_is_compared_in_the_background(places):
    a = places.memmap(np.zeros(5000))
    assert calipers.allclose_async(a, a).result()


def test_many_threads_ask_at_once(places):
    x, y = pair((400, 30), "f8")
    a, b, c = places.memmap(x), places.zarr(x, 5), places.memmap(y)
    found = []

    def ask():
        for _ in range(5):
            found.append(calipers.allclose(a, b, memory_limit=1 << 16))
            found.append(not calipers.allclose(a, c, memory_limit=1 << 16))

    threads = [threading.Thread(target=ask) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 40
    assert all(found)


@pytest.mark.parametrize("other", [1.0, np.ones(3)])
def test_an_iterator_of_iterators_is_refused(other):
    # A MagicMock is one, and it never ends.
    for nested in (MagicMock(), iter([iter([1.0])])):
        with pytest.raises(TypeError, match="chunk 0 of a is itself an iterator"):
            calipers.allclose(nested, other)


def test_an_iterator_without_chunks_is_named():
    with pytest.raises(ValueError, match=r"broadcast together: a has no chunk and b has more$"):
        calipers.allclose(iter([]), np.ones(3))


def test_the_memory_that_is_missing_is_in_one_unit(tmp_path):
    path = tmp_path / "x.npy"
    np.save(path, np.ones(100))
    x = np.load(path, mmap_mode="r")
    with pytest.raises(ValueError, match=r"takes 16 bytes, more than memory_limit=10: pass memory"):
        calipers.allclose(x, x, memory_limit=10)
