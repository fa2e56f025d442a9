"""Comparisons of dask arrays, block by block, by the scheduler that computes the arrays."""

import pickle
import sys
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing, contextmanager
from functools import partial, reduce
from importlib import import_module
from itertools import accumulate, pairwise, product
from math import isnan, prod
from threading import Condition
from types import NoneType
from typing import Any
from uuid import uuid4

import numpy as np

from .._core.arguments import is_weak
from .._core.arrays import as_block, broadcast_shape, strengthen
from .._core.libraries import kind_of, library_of, require_host
from .._core.protocols import Result
from .._core.threads import as_task

Shape = tuple[int, ...]
Chunks = tuple[tuple[int, ...], ...]
Region = tuple[slice, ...]

# Results that one task merges: few levels of tasks, and none that waits for many blocks.
_MERGED = 8
# Bytes for a task that compares several pairs of small blocks: a task takes dask a millisecond or
# more, in which a worker compares some MiB.
_GATHERED = 1 << 27
_WHERE = "in the block"
# Rows on columns: to cut blocks this often is slower than to move them into those of the smaller
# kind, which takes no more memory in a task.
_SCATTERED = 10


class DaskBlocks:
    """See `ChunkedPair`: one or two arrays, at least one of them dask's."""

    has_shapes = True

    def __init__(self, memory_limit: int, **arrays: Any) -> None:
        self._limit, self._names = memory_limit, tuple(arrays)
        self._arrays = tuple(_operand(x, name) for name, x in arrays.items())
        self._like = next(x for x in self._arrays if _is_dask(x))

    def shapes(self) -> tuple[Shape, ...]:
        return tuple(np.shape(x) for x in self._arrays)

    def dtypes(self) -> tuple[np.dtype[Any], ...]:
        dtype = self._like.dtype
        return tuple(strengthen(x, dtype).dtype if is_weak(x) else x.dtype for x in self._arrays)

    def every(self, test: Callable[..., bool]) -> bool:
        whole = self._whole()
        if 0 in whole:
            return True
        get, client = self._scheduler()
        if client is None:
            with _Gate() as gate:
                try:
                    _computed(get, self._each(whole, _require_true, gate.of(test)))
                except _DifferError:
                    return False
                return True
        parts = self._gathered(client, whole, test) or [self._each(whole, _test_block, test)]
        return all(_all_true(client, tasks) for tasks in parts)

    def reduce(
        self, part: Callable[..., Result], merge: Callable[[Result, Result], Result]
    ) -> Result | None:
        whole = self._whole()
        if 0 in whole:
            return None
        get, client = self._scheduler()
        result: Result
        if client is None:
            with _Gate() as gate:
                (result,) = _computed(get, self._each(whole, _apply, gate.of(part)).merged(merge))
                return result
        parts = self._each(whole, _apply, part)
        total = parts.merged(merge)
        with closing(_finished(client, parts, total)) as batches:
            last = next(f for batch in batches for f in batch if f.key in total.descriptions)
            result = last.result()
            return result

    def _whole(self) -> Shape:
        return broadcast_shape([np.broadcast_to(0, shape) for shape in self.shapes()], self._names)

    def _scheduler(self) -> tuple[Callable[..., Any], Any]:
        """Return the scheduler of the arrays, and its client if it is that of a cluster."""
        try:
            get = import_module("dask.base").get_scheduler(collections=[self._like])
        except RuntimeError as error:
            error.add_note("calipers waits for its answer: call it with a Client that waits, too")
            raise
        distributed, owner = sys.modules.get("distributed"), getattr(get, "__self__", None)
        if distributed is None or not isinstance(owner, distributed.Client):
            return get, None
        for name, x in zip(self._names, self._arrays, strict=True):
            if not (_is_dask(x) or isinstance(x, np.ndarray) or is_weak(x)):
                _require_sendable(name, x)
        return get, owner

    def _each(
        self, whole: Shape, task: Callable[..., Any], function: Callable[..., Any]
    ) -> "_Tasks":
        """Return a task for each pair of blocks, in C order."""
        arrays = self._aligned(whole)
        chunks = _common_chunks(arrays, whole)
        axes = tuple(range(len(whole)))
        operands = [(x, axes[len(axes) - x.ndim :] if _is_dask(x) else None) for x in arrays]
        array = import_module("dask.array")
        pairs = array.blockwise(
            partial(task, function, self._names, self.shapes()),
            axes,
            *(import_module("dask.layers").ArraySliceDep(chunks), axes),
            *(item for operand in operands for item in operand),
            name=_new_name(),
            dtype=object,
            meta=np.empty((0,) * len(axes), object),
            align_arrays=False,
        )
        keys = product([pairs.name], *map(range, pairs.numblocks))
        regions = array.core.slices_from_chunks(chunks)
        return _in_order(
            [pairs], list(keys), [_location(self._names, region) for region in regions]
        )

    def _gathered(self, client: Any, whole: Shape, test: Callable[..., bool]) -> "list[_Tasks]":
        """
        Return tasks for several pairs of blocks that workers hold; none if they hold none.

        The first pair is tested alone, since listing all blocks takes longer than comparing two.
        """
        arrays = self._aligned(whole)
        held = [x for x in arrays if _is_dask(x)]
        together = _GATHERED // sum(map(_block_bytes, held))
        if together < 2:
            return []
        chunks, workers = _common_chunks(arrays, whole), client.who_has(held)
        pairs = [
            [_key(x, index) if _is_dask(x) else x for x in arrays]
            for index in product(*(range(len(c)) for c in chunks))
        ]
        neighbours: dict[Any, list[int]] = {}
        for i, pair in enumerate(pairs):
            owners = [set(workers.get(x, ())) for x in pair if isinstance(x, tuple)]
            if not all(owners):
                return []
            home = min(set.intersection(*owners), default=i)
            neighbours.setdefault(home if i else None, []).append(i)
        groups = sorted(
            some[i : i + together]
            for some in neighbours.values()
            for i in range(0, len(some), together)
        )
        regions = import_module("dask.array").core.slices_from_chunks(chunks)
        tasks, texts = [], []
        for group in groups:
            where = [regions[i] for i in group]
            task = partial(_test_blocks, test, self._names, self.shapes(), where)
            tasks.append((task, [pairs[i] for i in group]))
            texts.append(_location(self._names, *where))
        parts = slice(1), slice(1, None)
        return [_in_order(held, tasks[part], texts[part]) for part in parts if tasks[part]]

    def _aligned(self, whole: Shape) -> list[Any]:
        """Return the arrays with aligned chunks; numbers are returned unchanged."""
        arrays = [self._as_dask(x) for x in self._arrays]
        self._check_limit(arrays)
        common = _common_chunks(arrays, whole)
        most = max(x.npartitions for x in arrays if _is_dask(x))
        if prod(map(len, common)) > _SCATTERED * most and {x.shape for x in arrays} == {whole}:
            common = min(arrays, key=_block_size).chunks
        return [_in_chunks(x, common) if _is_dask(x) else x for x in arrays]

    def _as_dask(self, x: Any) -> Any:
        """Return an array as a dask array with the chunks of the first dask array."""
        if _is_dask(x) or np.shape(x) == ():
            return x
        array = import_module("dask.array")
        chunks_by_axis = {-k: c for k, c in enumerate(reversed(self._like.chunks), 1)}
        cut = [chunks_by_axis.get(k - x.ndim, ()) for k in range(x.ndim)]
        chunks = array.core.normalize_chunks(
            tuple(c if n == sum(c) else "auto" for n, c in zip(x.shape, cut, strict=True)),
            shape=x.shape,
            limit=self._limit // 2,
            dtype=x.dtype,
        )
        if not isinstance(x, np.ndarray):
            return array.from_array(x, chunks)
        # from_array would copy all of it.
        name = _new_name()
        keys = product([name], *(range(len(c)) for c in chunks))
        slices = array.core.slices_from_chunks(chunks)
        blocks = {key: x[region] for key, region in zip(keys, slices, strict=True)}
        return array.Array(blocks, name, chunks, meta=x)

    def _check_limit(self, arrays: Sequence[Any]) -> None:
        largest = [(name, x) for name, x in zip(self._names, arrays, strict=True) if _is_dask(x)]
        needed = sum(_block_bytes(x) for _, x in largest)
        if needed <= self._limit:
            return
        blocks = " and ".join(
            f"{name} has blocks of {_block_shape(x)} ({_block_bytes(x) / 2**20:.4g} MiB)"
            for name, x in largest
        )
        name = max(largest, key=lambda pair: _block_bytes(pair[1]))[0]
        msg = (
            f"{blocks}: comparing them takes more than memory_limit={self._limit}; "
            f"pass {name}.rechunk(...) with smaller blocks, or memory_limit={needed}"
        )
        raise ValueError(msg)


class _Tasks:
    """A dask collection: a layer of tasks on other collections, and the location of each task."""

    def __init__(
        self, beneath: Sequence[Any], name: str, layer: dict[Any, Any], descriptions: dict[Any, str]
    ) -> None:
        graphs = import_module("dask.highlevelgraph").HighLevelGraph
        self.dask = graphs.from_collections(name, layer, dependencies=beneath)
        self.descriptions, self._name = descriptions, name
        self.__dask_optimize__ = import_module("dask.array").Array.__dask_optimize__

    def __dask_graph__(self) -> Any:
        return self.dask

    def __dask_keys__(self) -> list[Any]:
        return list(self.descriptions)

    def __dask_layers__(self) -> tuple[str, ...]:
        return (self._name,)

    def __dask_postcompute__(self) -> tuple[Callable[..., Any], tuple[()]]:
        return list, ()

    def __dask_postpersist__(self) -> tuple[Callable[..., Any], tuple[()]]:
        return dict, ()

    def merged(self, merge: Callable[..., Any]) -> "_Tasks":
        """Return the task at the root of a tree that merges all results, in their order."""
        name = _new_name()
        layer: dict[Any, Any] = {}
        level = list(self.descriptions)
        while True:
            groups = [level[i : i + _MERGED] for i in range(0, len(level), _MERGED)]
            above = {(name, len(layer) + i): keys for i, keys in enumerate(groups)}
            layer |= {key: (partial(reduce, merge), keys) for key, keys in above.items()}
            level = list(above)
            if len(level) == 1:
                return _Tasks(
                    [self], name, layer, dict.fromkeys(level, "at the merge of all blocks")
                )


class _DifferError(Exception):
    """Raised in a task to stop a local scheduler: two blocks differ."""


class _Gate:
    """
    A gate that blocks its owner on exit until no task of this process compares any more.

    A scheduler that is stopped leaves its threads running, and the caller may close, cut or change
    what they read.
    """

    def __init__(self) -> None:
        self._closed, self._inside, self._changed = False, 0, Condition()

    def __reduce__(self) -> tuple[Any, ...]:
        return _Gate, ()  # tasks of another process keep nobody

    def __enter__(self) -> "_Gate":
        return self

    def __exit__(self, *error: object) -> None:
        with self._changed:
            self._closed = True
            self._changed.wait_for(lambda: not self._inside)

    def of(self, function: Callable[..., Result]) -> Callable[..., Result]:
        """Return the function, which raises once the gate is closed."""
        return partial(_through, self, function)

    @contextmanager
    def passed(self) -> Iterator[None]:
        with self._changed:
            if self._closed:
                raise _DifferError
            self._inside += 1
        try:
            yield
        finally:
            with self._changed:
                self._inside -= 1
                self._changed.notify_all()


def _through(gate: _Gate, function: Callable[..., Result], *args: Any) -> Result:
    with gate.passed():
        return function(*args)


def _in_order(beneath: Sequence[Any], tasks: Sequence[Any], texts: Sequence[str]) -> _Tasks:
    """Name tasks so that they start in order: among equals, dask starts the last name first."""
    name, count = _new_name(), len(tasks)
    keys = [(name, f"{count - i:0{len(str(count))}}") for i in range(count)]
    layer = dict(zip(keys, tasks, strict=True))
    return _Tasks(beneath, name, layer, dict(zip(keys, texts, strict=True)))


def _is_dask(x: Any) -> bool:
    return isinstance(x, sys.modules["dask.array"].Array)


def _operand(x: Any, name: str) -> Any:
    """Return an array of known shape, or a number."""
    if _is_dask(x):
        if any(map(isnan, x.shape)):
            msg = f"{name} has chunks of unknown sizes; call {name}.compute_chunk_sizes() first"
            raise ValueError(msg)
        return x
    if isinstance(x, Iterator):
        msg = f"{name} is an iterator, but the other is a dask array: pass two of a kind"
        raise TypeError(msg)
    require_host(**{name: x})
    if is_weak(x) or (library_of(x) is None and hasattr(x, "shape") and hasattr(x, "dtype")):
        return x
    return as_block(x, name)


def _require_sendable(name: str, x: Any) -> None:
    """Raise if x cannot be pickled, such as an open file of h5py."""
    try:
        pickle.dumps(x)
    except Exception as error:
        msg = (
            f"{name} is of type {kind_of(x)}, which cannot be sent to the workers ({error}): pass "
            f"a dask array whose tasks open it, or a zarr array"
        )
        raise TypeError(msg) from error


def _new_name() -> str:
    """
    Return a name that is unique to a call, so that cancelling it affects no other call.

    With one prefix for all, dask fuses layers without a task for the new name.
    """
    return f"calipers-{uuid4().hex}"


def _block_shape(x: Any) -> Shape:
    return tuple(map(max, x.chunks))


def _block_size(x: Any) -> int:
    return prod(_block_shape(x))


def _block_bytes(x: Any) -> int:
    return _block_size(x) * int(x.dtype.itemsize)


def _key(x: Any, index: tuple[int, ...]) -> tuple[Any, ...]:
    """Return the key of the block of x at an index of the broadcast blocks."""
    pairs = zip(index[len(index) - x.ndim :], x.numblocks, strict=True)
    return (x.name, *(0 if count == 1 else i for i, count in pairs))


def _common_chunks(arrays: Sequence[Any], whole: Shape) -> Chunks:
    """Return the coarsest chunks whose boundaries include those of each array."""
    common: list[tuple[int, ...]] = []
    for axis in range(-len(whole), 0):
        cuts = {
            x.chunks[axis]
            for x in arrays
            if np.ndim(x) >= -axis and x.shape[axis] == whole[axis] and _is_dask(x)
        }
        if len(cuts) > 1:
            ends = {0}.union(*map(accumulate, cuts))
            cuts = {tuple(stop - start for start, stop in pairwise(sorted(ends)))}
        common.extend(cuts)
    return tuple(common)


def _in_chunks(x: Any, common: Chunks) -> Any:
    pairs = zip(x.shape, common[len(common) - x.ndim :], strict=True)
    chunks = tuple(c if n == sum(c) else (1,) for n, c in pairs)
    # A shuffle would wait for all blocks before the first is compared.
    return x if chunks == x.chunks else x.rechunk(chunks, method="tasks")


def _computed(get: Callable[..., Any], tasks: _Tasks) -> list[Any]:
    """Return the results of tasks from a local scheduler."""
    keys = tasks.__dask_keys__()
    graph = tasks.__dask_optimize__(tasks.dask, keys)
    return list(get(dict(graph), keys))


def _all_true(client: Any, tasks: _Tasks) -> bool:
    """Run tests on a cluster until one fails; return True if none does."""
    with closing(_finished(client, tasks)) as batches:
        for batch in batches:
            # The scheduler tells the type of a result; the result itself is some ms away.
            if any(future.type is NoneType for future in batch):
                return False
            untyped = [future for future in batch if future.type is not bool]
            if untyped and not all(client.gather(untyped)):
                return False
    return True


def _finished(client: Any, *collections: _Tasks) -> Generator[list[Any], None, None]:
    """Run tasks on a cluster, yield batches of finished futures, and release all futures."""
    distributed = sys.modules["distributed"]
    texts = {key: text for tasks in collections for key, text in tasks.descriptions.items()}
    with _seceded(distributed):
        persisted = client.persist(list(collections))
        futures = [future for of_keys in persisted for future in of_keys.values()]
        try:
            for batch in distributed.as_completed(futures, loop=client.loop).batches():
                for future in batch:
                    if future.status != "finished":
                        with _noted(texts[future.key]):
                            future.result()
                yield batch
                for future in batch:
                    future.release()
        finally:
            for future in futures:
                future.release()


@contextmanager
def _seceded(distributed: Any) -> Iterator[None]:
    """Free the thread of a task that waits for other tasks."""
    try:
        distributed.secede()
    except Exception:  # not in a task, or in one that has seceded already
        yield
        return
    try:
        yield
    finally:
        distributed.rejoin()


def _location(names: Sequence[str], *regions: Region) -> str:
    """Return the location of a block, or of a range of blocks, for an error note."""
    ends = (regions[0], regions[-1])[: len(regions)]
    where = " to ".join(
        f"[{', '.join(f'{part.start}:{part.stop}' for part in region)}]" for region in ends
    )
    return f"{_WHERE}{'s' * (len(ends) > 1)} {where} of {' and '.join(names)}"


@contextmanager
def _noted(text: str) -> Iterator[None]:
    """Add the location of a block to an error, unless the task has added it."""
    try:
        yield
    except Exception as error:
        if not any(note.startswith(_WHERE) for note in getattr(error, "__notes__", ())):
            error.add_note(text)
        raise


# Functions of tasks. Their arguments are the function that is applied to the blocks, the names and
# shapes of the arrays, the region of the block in the broadcast shape, and the blocks.


def _apply(
    function: Callable[..., Any],
    names: Sequence[str],
    shapes: Sequence[Shape],
    region: Region,
    *blocks: Any,
) -> Any:
    with as_task(), _noted(_location(names, region)):
        for name, shape, block in zip(names, shapes, blocks, strict=True):
            trailing = region[len(region) - len(shape) :]
            promised = tuple(
                1 if n == 1 else part.stop - part.start
                for n, part in zip(shape, trailing, strict=True)
            )
            if np.shape(block) != promised:  # it might even broadcast
                msg = f"{name} has a block of shape {np.shape(block)}, but .chunks says {promised}"
                raise ValueError(msg)
        return function(tuple(part.start for part in region), *blocks)


def _test_block(function: Callable[..., Any], *args: Any) -> bool | None:
    """Return True, or None for False: the scheduler knows the type of a result before its value."""
    return bool(_apply(lambda _, *blocks: function(*blocks), *args)) or None


def _test_blocks(
    function: Callable[..., Any],
    names: Sequence[str],
    shapes: Sequence[Shape],
    regions: Sequence[Region],
    pairs: Sequence[Sequence[Any]],
) -> bool | None:
    """Test pairs of blocks until one test fails."""
    for region, blocks in zip(regions, pairs, strict=True):
        if not _test_block(function, names, shapes, region, *blocks):
            return None
    return True


def _require_true(function: Callable[..., Any], *args: Any) -> None:
    if not _test_block(function, *args):
        raise _DifferError
