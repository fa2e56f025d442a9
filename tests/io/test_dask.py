"""Arrays of dask, by its threads and processes, and on a real cluster of two processes."""

import gc
import operator
import os
import signal
import subprocess
import sys
import threading
import time
from dataclasses import replace
from functools import partial
from itertools import product
from uuid import uuid4

import numpy as np
import pytest

import calipers
from calipers.interop.dask import DaskBlocks

da = pytest.importorskip("dask.array")

import dask  # noqa: E402
from dask.callbacks import Callback  # noqa: E402

LIMIT = 1 << 28
CASES = [
    ((1000,), ((300, 300, 300, 100),)),
    ((37, 41), ((10, 20, 7), (41,))),
    ((13, 11, 17), ((5, 5, 3), (11,), (1, 9, 7))),
    ((6, 5), ((6,), (5,))),
    ((4,), ((0, 3, 0, 1),)),
    ((0,), ((0,),)),
    ((4, 0), ((2, 2), (0,))),
    ((), ()),
]
DTYPES = ["float64", "float32", "float16", "complex128", "int32", "uint8", "bool"]


def pair(shape, dtype, seed=0, amount=0.3):
    """Return an array, and one that differs at random places; NaN and infinities among them."""
    rng = np.random.default_rng(seed)
    x = np.asarray(rng.integers(0, 100, shape)).astype(dtype)
    y, there = x.copy(), rng.random(shape) < amount
    y[there] = (x[there] + rng.integers(1, 3, shape)[there]).astype(dtype)
    if x.dtype.kind in "fc" and x.size > 20:
        for z, special in product((x, y), (np.nan, np.inf, -np.inf)):
            z.reshape(-1)[rng.integers(0, x.size, 4)] = special
    return x, y


def same_reports(found, expected):
    assert found.tally == expected.tally
    assert bool(found) is bool(expected)
    # How arrays were rearranged is told of those in memory only.
    assert str(found) == str(replace(expected, arrangement=None, arrays=None))
    # As text: NaN is there.
    for name in ("differences", "actual_shape", "expected_dtype", "rule", "problems"):
        assert repr(getattr(found, name)) == repr(getattr(expected, name))
    assert found.rms == pytest.approx(expected.rms, rel=1e-14, nan_ok=True)


class Counted:
    """Make blocks of an array, and count how often one is made, in whichever process."""

    def __init__(self, folder, seconds=0.0, fail_at=None):
        self.folder, self.seconds, self.fail_at = str(folder), seconds, fail_at

    def __call__(self, block, block_info=None):
        (index,) = block_info[0]["chunk-location"]
        with open(os.path.join(self.folder, f"{index}-{os.getpid()}-{uuid4().hex}"), "x"):
            time.sleep(self.seconds)
        if index == self.fail_at:
            msg = "the disk is gone"
            raise OSError(msg)
        return block + 1.0

    def array(self, blocks=60, length=10):
        return da.zeros(blocks * length, chunks=length).map_blocks(self, dtype=float)

    def count(self):
        return len(os.listdir(self.folder))

    def wait_for_the_end(self):
        """Return how often a block is made, once no more are."""

        def is_still():
            before = self.count()
            time.sleep(0.5)
            return self.count() == before

        eventually(is_still)
        return self.count()


def eventually(holds, seconds=20.0):
    end = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < end
        time.sleep(0.02)


def differing(x, index):
    """Return x, but for one element."""
    return da.where(da.arange(x.size, chunks=x.chunks) == index, -1.0, x)


class Types(Callback):
    """Types of all results that calipers' own tasks have."""

    def __init__(self):
        self.found, self.graph = set(), {}
        super().__init__(start=self.note_graph, posttask=self.note_type)

    def note_graph(self, graph):
        self.graph = dict(graph)

    def note_type(self, key, result, graph, state, thread):
        self.found.add(type(result))


class TestVerdicts:
    @pytest.fixture(autouse=True, params=["threads", "sync"])
    def scheduler(self, request):
        with dask.config.set(scheduler=request.param):
            yield

    @pytest.mark.parametrize(("shape", "chunks"), CASES)
    @pytest.mark.parametrize("dtype", DTYPES)
    def test_as_of_numpy(self, shape, chunks, dtype):
        for x, y in (pair(shape, dtype), pair(shape, dtype, amount=0.0)):
            a, b = da.from_array(x, chunks), da.from_array(y, chunks)
            for options in ({}, {"equal_nan": True}, {"rtol": 0.0, "atol": 1.0}):
                verdict = calipers.allclose(x, y, **options)
                assert calipers.allclose(a, b, **options) is verdict
                assert calipers.allclose(a, a, **options) is calipers.allclose(x, x, **options)
            assert calipers.array_equal(a, b) is calipers.array_equal(x, y)
            assert calipers.array_equal(a, a, equal_nan=True)
            assert calipers.allfinite(a) is calipers.allfinite(x)
            assert calipers.first_nonfinite(a) == calipers.first_nonfinite(x)

    @pytest.mark.parametrize(("shape", "chunks"), CASES)
    @pytest.mark.parametrize("dtype", DTYPES)
    def test_reports_as_of_numpy(self, shape, chunks, dtype):
        x, y = pair(shape, dtype)
        other = tuple((n,) for n in shape)
        a, b = da.from_array(x, chunks), da.from_array(y, chunks)
        for options in ({}, {"equal_nan": True}, {"max_ulp": 3}, {"max_mismatch_ratio": 0.9}):
            expected = calipers.compare(x, y, **options)
            same_reports(calipers.compare(a, b, **options), expected)
        same_reports(calipers.compare(a, da.from_array(y, other)), calipers.compare(x, y))
        same_reports(calipers.compare(a, a), calipers.compare(x, x))

    def test_chunks_that_do_not_line_up(self):
        x, y = pair((60, 50), "float64", amount=0.001)
        for rows, columns in (((7, 53), (50,)), ((30, 30), (1, 49)), ((60,), (25, 25))):
            a, b = da.from_array(x, (25, 20)), da.from_array(y, (rows, columns))
            same_reports(calipers.compare(a, b), calipers.compare(x, y))
            assert calipers.allclose(a, da.from_array(x, (rows, columns)), equal_nan=True)
            assert not calipers.allclose(a, b, equal_nan=True)
        assert calipers.allclose(da.ones(4, chunks=((0, 3, 1),)), da.ones(4, chunks=((4, 0),)))

    def test_what_broadcasts(self):
        x = np.arange(60.0).reshape(3, 4, 5)
        a = da.from_array(x, (2, 3, 5))
        for y in (x[:1], x[:, :1], x[0], x[0, 0], x[..., :1], x[1, 2, 3], np.zeros((2, 1, 1, 1))):
            b = da.from_array(y, tuple(min(n, 2) for n in y.shape))
            for other in (b, y):
                options = {"rtol": 0.0, "atol": 59.0}
                assert calipers.allclose(a, other, **options)
                assert calipers.allclose(other, a, **options)
                assert not calipers.allclose(a, other, 0.0, 1.0)
                found = calipers.compare(a, other, check_shape=False)
                same_reports(found, calipers.compare(x, y, check_shape=False))

    @pytest.mark.parametrize("dtype", ["f8", "g", object])
    def test_isclose_answers_at_once_of_any_dtype(self, dtype):
        a = da.from_array(np.array([1, 2, 3]).astype(dtype), 2)
        close = calipers.isclose(a, np.array([1, 2, 4]).astype(dtype))
        assert type(close) is np.ndarray
        assert close.tolist() == [True, True, False]

    def test_numpy_numbers_and_lists_beside_dask(self):
        x = np.linspace(0, 1, 50)
        a = da.from_array(x, 20)
        assert calipers.allclose(a, x)
        assert calipers.allclose(x, a)
        assert calipers.allclose(a, x.tolist())
        assert not calipers.allclose(a, x + 1e-3)
        assert calipers.allclose(a * 0 + 2, 2)
        assert calipers.allclose(2, a * 0 + 2)
        assert not calipers.array_equal(a, 2)
        same_reports(calipers.compare(a, x[::-1]), calipers.compare(x, x[::-1]))
        assert calipers.compare(a, x + 1).arrangement is None

    def test_a_number_takes_the_dtype_it_meets(self):
        a = da.full(6, np.float32(0.1), chunks=2)
        assert calipers.allclose(a, 0.1, rtol=0, atol=0)
        assert not calipers.allclose(a, np.float64(0.1), rtol=0, atol=0)
        report = calipers.compare(a, 0.1, check_shape=False)
        assert report
        assert report.expected_dtype == "float32"

    def test_zarr_beside_dask(self):
        zarr = pytest.importorskip("zarr")
        x = np.arange(100.0)
        stored = zarr.create_array(store=zarr.storage.MemoryStore(), data=x, chunks=7)
        assert calipers.allclose(da.from_array(x, 30), stored)
        assert not calipers.allclose(stored, da.from_array(x + 1, 30))

    def test_masked_blocks_are_numpys_to_compare(self):
        x = np.ma.masked_greater(np.arange(20.0), 15)
        a = da.from_array(x, 5)
        assert calipers.allclose(a, da.where(a > 15, 7.0, a))

    def test_blocks_that_are_masked_as_a_whole(self):
        x = np.ma.masked_greater(np.arange(20.0), 9)
        y = np.where(np.arange(20) > 9, 7.0, np.arange(20))
        for size in 3, 5, 20:
            a, b = da.from_array(x, size), da.from_array(y, 4)
            for ask in calipers.allclose, calipers.compare:
                assert (bool(ask(a, b)), bool(ask(a, b + 1))) == (True, False)
            calipers.assert_close(a, b)
            with pytest.raises(calipers.ClosenessError, match="10 of 20 elements differ"):
                calipers.assert_close(a, b + 1)

    @pytest.mark.parametrize("ask", [calipers.allclose, calipers.array_equal, calipers.compare])
    def test_sparse_blocks_are_named(self, ask):
        sparse = pytest.importorskip("scipy.sparse")
        a = da.ones((4, 4), chunks=2).map_blocks(sparse.csr_array, dtype=float)
        with pytest.raises(TypeError, match=r"is sparse, .*: pass \w+\.toarray\(\)"):
            ask(a, np.ones((4, 4)))

    def test_in_containers(self):
        x = np.arange(10.0)
        calipers.assert_close({"w": [da.from_array(x, 3)]}, {"w": [x]})
        with pytest.raises(calipers.ClosenessError, match=r"\['w'\]\[0\]"):
            calipers.assert_close({"w": [da.from_array(x, 3)]}, {"w": [x + 1]})


class TestGraphs:
    def test_no_mask_is_made_and_nothing_is_rechunked_where_chunks_line_up(self):
        x = da.ones((40, 40), chunks=(10, 20))
        for ask in (calipers.allclose, calipers.compare):
            with Types() as types, dask.config.set(scheduler="sync"):
                assert ask(x, x + 0)
            # One array for each block: of x + 0, which the graph fuses with its comparison.
            assert not any("rechunk" in str(key) for key in types.graph)
            assert types.found <= {np.ndarray, bool, type(None), calipers.Comparison}
        with Types() as types, dask.config.set(scheduler="sync"):
            assert calipers.allclose(x, np.ones((40, 40)))
        assert not any("rechunk" in str(key) for key in types.graph)

    def test_only_what_does_not_line_up_is_rechunked_and_only_cut(self):
        x, y = da.ones((40, 6), chunks=(10, 6)), da.ones((40, 6), chunks=(20, 6)) * 1
        with Types() as types, dask.config.set(scheduler="sync"):
            assert calipers.allclose(x, y)
        rechunked = [key for key in types.graph if "rechunk" in str(key)]
        assert rechunked
        assert not any("concat" in str(types.graph[key]) for key in rechunked)
        blocks = DaskBlocks(LIMIT, a=x, b=y)
        a, b = blocks._aligned((40, 6))
        assert a is x
        assert b.chunks == x.chunks

    def test_rows_on_columns_are_not_cut_to_pieces(self):
        x, y = pair((60, 60), "float64", amount=0.001)
        a, b = da.from_array(x, (1, 60)), da.from_array(y, (60, 2))
        ours, theirs = DaskBlocks(LIMIT, a=a, b=b)._aligned((60, 60))
        assert ours is a
        assert theirs.chunks == a.chunks
        same_reports(calipers.compare(a, b), calipers.compare(x, y))
        # Those that meet by broadcasting have no chunks in common.
        assert calipers.allclose(a[:1] * 0, da.zeros((60, 60), chunks=(60, 1)))

    def test_what_both_need_is_made_once(self, tmp_path):
        made = Counted(tmp_path)
        x = made.array(8)
        assert calipers.allclose(x + 1, x * 1 + 1)
        assert made.count() == 8
        assert calipers.compare(x + 1, x * 1 + 1)
        assert made.count() == 16

    @pytest.mark.parametrize(("scheduler", "most"), [("sync", 1), ("threads", 12)])
    def test_local_schedulers_stop_at_a_mismatch(self, tmp_path, scheduler, most):
        made = Counted(tmp_path, 0.01)
        x = made.array(200)
        with dask.config.set(scheduler=scheduler, num_workers=4):
            assert not calipers.allclose(differing(x, 3), x)
            assert made.wait_for_the_end() <= most

    def test_processes_stop_at_a_mismatch(self, tmp_path):
        made = Counted(tmp_path, 0.02)
        x = made.array(100)
        with dask.config.set(scheduler="processes", num_workers=2, chunksize=1):
            assert not calipers.allclose(differing(x, 3), x)
        assert made.count() < 50

    def test_parts_are_merged_in_a_tree_and_in_order(self):
        x = da.ones((100, 20), chunks=(10, 2))
        blocks = DaskBlocks(LIMIT, a=x, b=x)
        corners = list(product(range(0, 100, 10), range(0, 20, 2)))
        assert blocks.reduce(corner_alone, operator.add) == corners
        # 7 merges of 8 in each of 3 levels; one after the other it would be 99.
        assert blocks.reduce(no_merge, deeper) <= 21


def corner_alone(corner, a, b):
    return [corner]


def no_merge(corner, a, b):
    return 0


def deeper(left, right):
    return max(left, right) + 1


class TestErrors:
    def test_shapes(self):
        x = da.ones(4, chunks=2)
        with pytest.raises(ValueError, match=r"shapes are a \(4,\), b \(3,\)"):
            calipers.allclose(x, da.ones(3, chunks=1))
        assert not calipers.array_equal(x, da.ones((1, 4), chunks=2))
        report = calipers.compare(x, np.ones(3))
        assert not report
        assert "shapes differ" in str(report)

    def test_unknown_chunks(self):
        x = da.arange(10, chunks=5)
        with pytest.raises(ValueError, match=r"expected has .* expected\.compute_chunk_sizes"):
            calipers.compare(x, x[x > 2])
        with pytest.raises(ValueError, match=r"a has chunks of unknown sizes"):
            calipers.allfinite(x[x > 2])
        known = x[x > 2]
        known.compute_chunk_sizes()
        assert calipers.allclose(known, np.arange(3, 10))

    def test_blocks_beyond_the_limit(self):
        def refused():
            raise AssertionError

        x = da.map_blocks(refused, chunks=((1000, 10), (100,)), dtype=float, meta=np.empty((0, 0)))
        message = (
            r"a has blocks of \(1000, 100\) \(0\.7629 MiB\) and b has blocks of \(5, 100\).*"
            r"memory_limit=500000; pass a\.rechunk\(\.\.\.\).*or memory_limit=804000"
        )
        for y in (da.ones((1010, 100), chunks=(5, 100)),):
            with pytest.raises(ValueError, match=message):
                calipers.allclose(x, y, memory_limit=500_000)
        with pytest.raises(ValueError, match=r"actual has blocks.*actual\.rechunk"):
            calipers.compare(x, x, memory_limit=500_000)
        big = da.ones((1000, 100), chunks=1000)
        assert calipers.allclose(big, big, memory_limit=1_600_000)
        # What dask's own chunks take by default is within the default.
        whole = da.ones(1 << 30, chunks="128 MiB")
        DaskBlocks(LIMIT, a=whole, b=whole)._aligned(whole.shape)

    def test_numpy_beside_a_short_axis_is_cut_within_the_limit(self):
        x, y = da.ones((1, 50), chunks=25), np.ones((4000, 50))
        assert calipers.allclose(x, y, memory_limit=1_000_000)

    def test_blocks_that_are_not_what_they_say(self):
        x = da.ones((8, 3), chunks=(2, 3))
        y = x.map_blocks(lambda block: block[:1], dtype=float, meta=np.empty((0, 0)))
        with pytest.raises(
            ValueError, match=r"b has a block of shape \(1, 3\).*says \(2, 3\)"
        ) as e:
            calipers.allclose(x, y)
        assert e.value.__notes__ == ["in the block [0:2, 0:3] of a and b"]

    def test_iterators_and_axes(self):
        x = da.ones(4, chunks=2)
        with pytest.raises(TypeError, match="b is an iterator, but the other is a dask array"):
            calipers.allclose(x, iter([np.ones(4)]))
        with pytest.raises(TypeError, match="axis"):
            calipers.allclose(x, x, axis=0)

    def test_what_has_no_distance(self):
        x = da.from_array(np.array(["a", "b"]), 1)
        with pytest.raises(TypeError, match="no distance"):
            calipers.allclose(x, x)
        assert calipers.array_equal(x, x)

    @pytest.mark.parametrize("scheduler", ["threads", "sync"])
    def test_errors_in_tasks(self, tmp_path, scheduler):
        made = Counted(tmp_path, 0.01, fail_at=2)
        x = made.array(100)
        with dask.config.set(scheduler=scheduler, num_workers=2):
            with pytest.raises(OSError, match="the disk is gone"):
                calipers.allclose(x, x + 0)
            assert made.wait_for_the_end() < 30
            with pytest.raises(OSError, match="the disk is gone"):
                calipers.compare(x, x + 0)

    def test_dask_is_not_imported(self):
        code = (
            "import sys, calipers; calipers.allclose([1.0], [1.0]); calipers.compare([1], [1]);"
            "assert not any(name.partition('.')[0] == 'dask' for name in sys.modules)"
        )
        subprocess.run([sys.executable, "-c", code], check=True)


# A cluster.


@pytest.fixture(scope="module")
def client():
    distributed = pytest.importorskip("distributed")
    with (
        # A scheduler may take a task, and its blocks, to a worker that is idle: not where tests
        # ask who has what.
        dask.config.set({"distributed.scheduler.work-stealing": False}),
        distributed.LocalCluster(
            n_workers=2, threads_per_worker=2, dashboard_address=":0", silence_logs=50
        ) as cluster,
        distributed.Client(cluster) as client,
    ):
        yield client


@pytest.fixture
def tidy(client):
    """Check that nothing is left on the cluster."""
    before = client.run_on_scheduler(known_tasks)
    yield client
    # What raised may keep the caller's arrays until its cycles are collected.
    eventually(lambda: gc.collect() >= 0 and not client.futures)
    eventually(lambda: client.run_on_scheduler(known_tasks) == before)
    # Tasks that were running end, and are forgotten.
    eventually(lambda: not any(client.run(own_tasks).values()))


def known_tasks(dask_scheduler):
    return sorted(map(str, dask_scheduler.tasks))


def own_tasks(dask_worker):
    return len(dask_worker.state.tasks)


def block_and_worker(corner, a, b):
    from distributed import get_worker

    return [(corner, get_worker().address)]


def on_workers(client, addresses, homes):
    """Return an array of a block of ten times its number on each worker that is named."""
    futures = [
        client.submit(of_block, i, 10, workers=[addresses[int(home)]], pure=False)
        for i, home in enumerate(homes)
    ]
    blocks = [da.from_delayed(f, (10,), dtype=float) for f in futures]
    return da.concatenate(blocks).persist()


def note_block_and_worker(folder, stop, a, b):
    from distributed import get_worker

    folder.mkdir(exist_ok=True)
    (folder / f"block{a[0]:.0f}").write_text(get_worker().address)
    return a[0] != stop


def notes(folder):
    return [(int(path.name[5:]), path.read_text()) for path in folder.glob("block*")]


def slowly(corner, a, b):
    time.sleep(0.02 * (corner[0] % 3))
    return [corner]


def ask_in_a_task(n):
    x = da.ones(n, chunks=10)
    return calipers.allclose(x, x + 1e-12), bool(calipers.compare(x, x + 1))


def ask_in_a_seceded_task(n):
    from distributed import worker_client

    with worker_client():
        return ask_in_a_task(n)


def interrupt_after(made, count):
    eventually(lambda: made.count() >= count)
    os.kill(os.getpid(), signal.SIGINT)


def end_own_process(block, flag):
    os.kill(os.getpid(), signal.SIGKILL)


def of_block(i, n):
    return np.full(n, float(i))


class TestCluster:
    @pytest.mark.parametrize(("shape", "chunks"), CASES)
    def test_as_of_numpy(self, tidy, shape, chunks):
        for dtype in ("float64", "int32"):
            x, y = pair(shape, dtype)
            a, b = da.from_array(x, chunks), da.from_array(y, chunks)
            assert calipers.allclose(a, b) is calipers.allclose(x, y)
            assert calipers.allclose(a, a, equal_nan=True)
            assert calipers.array_equal(a, b) is calipers.array_equal(x, y)
            assert calipers.first_nonfinite(a) == calipers.first_nonfinite(x)
            same_reports(calipers.compare(a, b), calipers.compare(x, y))
        del a, b

    def test_other_kinds_of_sides(self, tidy):
        x = np.arange(60.0).reshape(6, 10)
        a = da.from_array(x, (4, 3)) + 0
        assert calipers.allclose(a, x)
        assert not calipers.allclose(a, x[:1])
        assert calipers.allclose(a * 0, 0)
        assert calipers.allclose(a, da.from_array(x, (3, 4)))
        calipers.assert_close(a, x)
        with pytest.raises(calipers.ClosenessError):
            calipers.assert_close(a, x + 1)

    def test_a_mismatch_cancels_what_is_left(self, tidy, tmp_path):
        made = Counted(tmp_path, 0.02)
        x = made.array(300)
        assert not calipers.allclose(differing(x, 3), x)
        assert made.wait_for_the_end() < 150

    def test_pairs_are_compared_where_they_live(self, tidy):
        from distributed import futures_of, wait

        addresses = sorted(tidy.scheduler_info()["workers"])
        # Blocks of both arrays on either worker in turns: neighbours are never together.
        arrays = []
        for _ in range(2):
            futures = [
                tidy.submit(of_block, i, 1_000_000, workers=[addresses[i % 2]], pure=False)
                for i in range(12)
            ]
            blocks = [da.from_delayed(f, (1_000_000,), dtype=float) for f in futures]
            arrays.append(da.concatenate(blocks).persist())
            del futures, blocks
        x, y = arrays
        wait([x, y])
        held = tidy.who_has([*futures_of(x), *futures_of(y)])
        found = DaskBlocks(LIMIT, a=x, b=y).reduce(block_and_worker, operator.add)
        assert [corner for corner, _ in found] == [(i * 1_000_000,) for i in range(12)]
        assert [address for _, address in found] == [addresses[i % 2] for i in range(12)]
        # Nothing has moved, or been copied.
        assert tidy.who_has([*futures_of(x), *futures_of(y)]) == held
        del x, y, arrays

    def test_small_pairs_are_compared_together_where_they_live(self, tidy, tmp_path):
        from distributed import wait

        addresses = sorted(tidy.scheduler_info()["workers"])
        x, y, far = (on_workers(tidy, addresses, homes) for homes in ("010101", "010101", "000111"))
        wait([x, y, far])
        every = DaskBlocks(LIMIT, a=x, b=y).every
        assert every(partial(note_block_and_worker, tmp_path / "all", None))
        noted = notes(tmp_path / "all")
        assert sorted(noted) == [(i, addresses[i % 2]) for i in range(6)]
        parts = DaskBlocks(LIMIT, a=x, b=y)._gathered(tidy, (60,), note_block_and_worker)
        names = [
            [place.partition(" of ")[0] for place in tasks.descriptions.values()] for tasks in parts
        ]
        assert names == [
            ["in the block [0:10]"],  # alone
            ["in the blocks [10:20] to [50:60]", "in the blocks [20:30] to [40:50]"],
        ]
        # What would have to be moved is not gathered: it might not fit.
        parts = DaskBlocks(LIMIT, a=x, b=far)._gathered(tidy, (60,), note_block_and_worker)
        assert [len(tasks.descriptions) for tasks in parts] == [1, 4]
        assert DaskBlocks(LIMIT, a=x, b=far).every(partial(note_block_and_worker, tmp_path, None))
        assert sorted(i for i, _ in notes(tmp_path)) == list(range(6))
        # No block is asked after the answer is known, in a task.
        assert not every(partial(note_block_and_worker, tmp_path / "early", 2))
        assert {0, 2} <= {i for i, _ in notes(tmp_path / "early")} <= {0, 1, 2, 3, 5}
        assert not every(partial(note_block_and_worker, tmp_path / "first", 0))
        assert [i for i, _ in notes(tmp_path / "first")] == [0]
        assert DaskBlocks(LIMIT, a=x, b=y + 0)._gathered(tidy, (60,), bool) == []
        del x, y, far, every, parts

    @pytest.mark.parametrize("shape", [(4, 6), (6,), (1, 6), (4, 1), (1,), ()])
    def test_small_blocks_broadcast(self, tidy, shape):
        from distributed import wait

        x = np.arange(24.0).reshape(4, 6) % 5
        y = np.arange(float(np.prod(shape, dtype=int))).reshape(shape)
        a = da.from_array(x, (2, 3)).persist()
        chunks = tuple(map(min, shape, (2, 3)[2 - len(shape) :]))
        b = da.from_array(y, chunks).persist()
        wait([a, b])
        assert DaskBlocks(LIMIT, a=b, b=a)._gathered(tidy, (4, 6), bool)
        for rtol in (0.0, 1.0, 1e9):
            assert calipers.allclose(a, b, rtol) is calipers.allclose(x, y, rtol)
            assert calipers.allclose(b, a, rtol) is calipers.allclose(y, x, rtol)
        assert calipers.allclose(a, 0.0) is False
        assert calipers.allclose(a, 2.0, 0, 2)
        del a, b

    def test_an_error_among_small_blocks(self, tidy):
        from distributed import wait

        x = da.ones(60, chunks=10).persist()
        y = x.map_blocks(lambda block: block[:1], dtype=float, meta=np.empty(0)).persist()
        wait([x, y])
        try:
            calipers.allclose(x, y)
        except ValueError as error:  # what pytest.raises keeps would keep the arrays
            text, (place,) = str(error), error.__notes__
        assert "b has a block of shape (1,), but .chunks says (10,)" in text
        assert place.startswith("in the block [")
        del x, y

    def test_what_is_persisted_stays(self, tidy):
        from distributed import wait

        x = da.ones(100, chunks=10).persist()
        wait(x)
        before = tidy.run_on_scheduler(known_tasks)
        y = differing(x, 5)
        assert not calipers.allclose(x, y)
        assert calipers.allclose(x, x)
        eventually(lambda: tidy.run_on_scheduler(known_tasks) == before)
        assert float(x.sum().compute()) == 100.0
        del x, y

    def test_the_tree_does_not_depend_on_timing(self, tidy):
        x = da.ones(100, chunks=1)
        blocks = DaskBlocks(LIMIT, a=x, b=x)
        assert blocks.reduce(slowly, operator.add) == [(i,) for i in range(100)]

    def test_questions_at_once_do_not_cancel_each_other(self, tidy, tmp_path):
        x = Counted(tmp_path, 0.02).array(60)
        other, answers = differing(x, 3), []
        ask = threading.Thread(target=lambda: answers.append(calipers.allclose(x, x + 0)))
        ask.start()
        assert not calipers.allclose(x, other)
        ask.join()
        assert answers == [True]

    def test_an_error_in_making_a_block(self, tidy, tmp_path):
        made = Counted(tmp_path, 0.02, fail_at=2)
        x = made.array(300)
        for ask in (calipers.allclose, calipers.compare):
            with pytest.raises(OSError, match="the disk is gone") as caught:
                ask(x, x + 0)
            (note,) = caught.value.__notes__
            assert note.startswith("in the block [20:30] of a")
            del caught
        assert made.wait_for_the_end() < 500

    def test_an_error_in_comparing_a_block(self, tidy):
        x = da.from_array(np.array(["a", "b"]), 1)
        with pytest.raises(TypeError, match="no distance") as caught:
            calipers.allclose(x, x)
        (note,) = caught.value.__notes__
        assert note in ("in the block [0:1] of a and b", "in the block [1:2] of a and b")

    def test_errors_before_anything_is_sent(self, tidy):
        x = da.ones((1000, 10), chunks=(100, 10))
        with pytest.raises(ValueError, match="memory_limit=10"):
            calipers.allclose(x, x, memory_limit=10)
        with pytest.raises(ValueError, match="shapes are"):
            calipers.allclose(x, da.ones(11, chunks=1))

    def test_a_file_that_is_open_here_alone_is_not_sent(self, tidy, tmp_path):
        h5py = pytest.importorskip("h5py")
        with h5py.File(tmp_path / "x.h5", "w") as file:
            stored = file.create_dataset("x", data=np.ones(100))
            x = da.ones(100, chunks=10)
            with pytest.raises(TypeError, match="b is of type h5py Dataset, which cannot be sent"):
                calipers.allclose(x, stored)
            with dask.config.set(scheduler="threads"):
                assert calipers.allclose(x, stored)

    def test_an_interrupt_cancels_what_is_left(self, tidy, tmp_path):
        made = Counted(tmp_path, 0.02)
        x = made.array(300)
        for ask in (calipers.allclose, calipers.compare):
            before = made.count()
            user = threading.Thread(target=interrupt_after, args=(made, before + 20))
            user.start()
            with pytest.raises(KeyboardInterrupt):
                ask(x, x + 0)
            user.join()
            assert made.wait_for_the_end() - before < 250

    def test_in_a_task_of_the_cluster(self, tidy):
        # More tasks that wait than there are threads.
        for ask in (ask_in_a_task, ask_in_a_seceded_task):
            futures = [tidy.submit(ask, 100 + i, pure=False) for i in range(6)]
            assert tidy.gather(futures) == [(True, False)] * 6
            del futures

    def test_a_client_that_does_not_wait_is_refused(self, tidy):
        import asyncio

        from distributed import Client

        async def ask():
            async with Client(tidy.scheduler.address, asynchronous=True):
                x = da.ones(4, chunks=2)
                with pytest.raises(RuntimeError, match="asynchronous") as caught:
                    calipers.allclose(x, x)
                assert "a Client that waits" in caught.value.__notes__[0]

        asyncio.run(ask())


class TestWorkersThatDie:
    @pytest.fixture
    def cluster(self):
        distributed = pytest.importorskip("distributed")
        with (
            distributed.LocalCluster(
                n_workers=2, threads_per_worker=1, dashboard_address=":0", silence_logs=60
            ) as cluster,
            distributed.Client(cluster) as client,
        ):
            yield client

    def test_the_answer_is_right(self, cluster, tmp_path):
        made = Counted(tmp_path, 0.02)
        x = made.array(60)
        held = da.arange(600, chunks=10).persist()
        expected = calipers.compare(
            np.arange(600.0), np.arange(600) + 1.0 + (np.arange(600) == 590)
        )
        questions = (
            (lambda: calipers.allclose(x, da.ones(600, chunks=10)), True),
            (lambda: calipers.allclose(x, differing(x, 590)), False),
            (lambda: calipers.compare(held * 1.0, held + x + (held == 590)), expected),
        )
        for ask, answer in questions:
            before = made.count()
            killer = threading.Thread(target=self.kill_one, args=(cluster, made, before + 10))
            killer.start()
            found = ask()
            assert found is answer or same_reports(found, answer) is None
            killer.join()
            assert made.count() > before + 30
            cluster.wait_for_workers(2)

    @staticmethod
    def kill_one(client, made, count):
        eventually(lambda: made.count() >= count)
        os.kill(next(iter(client.run(os.getpid).values())), signal.SIGKILL)

    def test_a_block_that_kills_is_named(self, cluster):
        from distributed import KilledWorker

        cluster.run_on_scheduler(give_up_at_once)
        x = da.ones(40, chunks=10)
        y = differing(x, 5).map_blocks(end_own_process, True, dtype=float, meta=np.empty(0))
        with pytest.raises(KilledWorker) as caught:
            calipers.allclose(x, y)
        (note,) = caught.value.__notes__
        assert note.startswith("in the block [")
        del caught
        eventually(lambda: not cluster.futures)
        eventually(lambda: not cluster.run_on_scheduler(known_tasks))


def give_up_at_once(dask_scheduler):
    dask_scheduler.allowed_failures = 0


@pytest.mark.parametrize("way", ["differs", "raises", "reduced raises"])
def test_no_thread_compares_any_more_when_the_answer_is_there(way):
    together, inside = threading.Barrier(2), []

    def test(x, y):
        inside.append(x)
        try:
            if x[0] < 2:
                together.wait(10)
            if x[0] == 1:
                if way != "differs":
                    raise KeyError("a block")
                return False
            time.sleep(0.2)
            return True
        finally:
            inside.pop()

    x = da.from_array(np.arange(8.0), chunks=1)
    spread = DaskBlocks(LIMIT, a=x, b=x)
    with dask.config.set(scheduler="threads", num_workers=2):
        if way == "differs":
            assert not spread.every(test)
        elif way == "raises":
            with pytest.raises(KeyError):
                spread.every(test)
        else:
            with pytest.raises(KeyError):
                spread.reduce(lambda _, x, y: test(x, y), max)
    assert not inside
