"""Two files compared: arrays matched by name, each pair by `calipers.compare`."""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from .._compare.chunked import MEMORY_LIMIT
from .._compare.compare import compare
from .._compare.reports import Comparison, NestedComparison
from .._compare.statistics import Criteria, has_distances
from .._core.dtypes import DType, kernel_dtype
from .._core.protocols import NDArray
from .._kernels.accumulators import MASKED
from . import FileError, described, printable
from .contents import Contents, Derived, FileArray, Filled, Loaded, joined, size_in_bytes
from .netcdf import MEANING, PACKING
from .opening import opened

# Objects are Python integers that no dtype holds.
_TEXT, _NUMBERS = "UT", "biufcO"
_LIMIT = re.compile(r"memory_limit(?:=(\d+))?")
# The dtype of an array that a file does not have.
MISSING = "none"


@dataclass(frozen=True)
class FileOptions:
    """How pairs are compared."""

    rtol: float | None = None
    atol: float | None = None
    equal_nan: bool = False
    ignore: tuple[str, ...] = ()
    fail_fast: bool = False
    follow_links: bool = False
    memory_limit: int = MEMORY_LIMIT
    plot: bool = False
    """Whether to keep the arrays of what differs most."""


@dataclass
class FileResults:
    """The results of one pair of files, or of many."""

    leaves: list[Comparison] = field(default_factory=list)
    ignored: list[str] = field(default_factory=list)
    left_out: dict[str, str] = field(default_factory=dict)
    stopped: bool = False
    """Whether the comparison stopped at the first difference (fail_fast)."""

    drawn: Comparison | None = None
    """
    The only leaf that keeps its arrays, for a plot: the worst that differs, or the first of all.
    """

    differs: bool = False

    def add(self, path: str, leaf: Comparison) -> None:
        """Add the comparison of a pair of arrays."""
        leaf = replace(leaf, path=printable(path))
        self._draw(leaf, not leaf)
        self.leaves.append(replace(leaf, arrays=None))

    def leave_out(self, path: str, actual: str | None, expected: str | None) -> None:
        """Add a name that was not compared; it is a difference if only one file left it out."""
        if actual and expected:
            self.left_out[path] = actual
        else:
            reason = f"in actual, {actual}" if actual else f"in expected, {expected}"
            self.add(path, unlike(f"not compared: {reason}"))

    def ignores(self, path: str, options: FileOptions) -> bool:
        """Return True, and take the name in, if the options say to ignore it."""
        ignored = is_ignored(path, options.ignore)
        if ignored:
            self.ignored.append(path)
        return ignored

    def merge(self, other: "FileResults") -> None:
        """Add the results of a different pair of files."""
        self._draw(other.drawn, other.differs)
        self.leaves += other.leaves
        self.ignored += other.ignored
        self.left_out |= other.left_out
        self.stopped |= other.stopped

    def _draw(self, leaf: Comparison | None, differs: bool) -> None:
        if differs and not self.differs:
            self.differs, self.drawn = True, None  # which was one that agrees
        if leaf is None or (leaf and self.differs):
            return
        rivals = (leaf,) if self.drawn is None else (self.drawn, leaf)
        self.drawn = NestedComparison(rivals).drawn


def compare_files(
    actual: str,
    expected: str,
    location: str,
    options: FileOptions,
    advance: Callable[[float], None],
) -> FileResults:
    """
    Compare two files; `location` is the path of both in their folders.

    `advance` is called with the fraction of the first file that is done.
    """
    with (
        opened(actual, options.follow_links) as ours,
        opened(expected, options.follow_links) as theirs,
    ):
        try:
            return _compare_contents(ours, theirs, location, options, advance)
        except FileError as error:
            msg = f"{actual} and {expected}: {error}"
            raise FileError(msg) from error


def is_ignored(name: str, patterns: Sequence[str]) -> bool:
    """
    Return True if a pattern matches a name, a trailing part of it, or that of a group it is in.

    Only * is special: names may have brackets, as ['w'][0], which fnmatch takes for sets.
    """
    globs = (".*".join(map(re.escape, pattern.split("*"))) for pattern in patterns)
    return any(re.fullmatch(f"(?s:(.*/)?{glob}(/.*)?)", name) for glob in globs)


def _compare_contents(
    actual: Contents,
    expected: Contents,
    location: str,
    options: FileOptions,
    advance: Callable[[float], None],
) -> FileResults:
    result = FileResults()
    total = sum(map(size_in_bytes, actual.arrays.values())) or 1
    done = 0
    for name in actual.arrays | expected.arrays | actual.left_out | expected.left_out:
        path = joined(location, name)
        if result.ignores(path, options):
            continue
        if options.fail_fast and result.differs:
            result.stopped = True
            break
        reasons = actual.left_out.get(name), expected.left_out.get(name)
        if any(reasons):
            result.leave_out(path, *reasons)
            continue
        try:
            leaf, nulls = _compared_with_nulls(actual, expected, name, options)
        except Exception as error:  # libraries raise anything
            text = _LIMIT.sub(_as_option, described(error))
            msg = f"{name}: {text}" if name else text
            raise FileError(msg) from error
        # Packing may differ between equal values; where values differ, a note names it.
        differing = [
            _attributes_that_differ(actual, expected, name, names, write)
            for names, write in ((MEANING, repr), (() if leaf else PACKING, str))
        ]
        problems, notes = (
            [text for key, text in x.items() if not result.ignores(joined(path, key), options)]
            for x in differing
        )
        result.add(
            path,
            replace(leaf, problems=(*leaf.problems, *problems), notes=(*leaf.notes, *notes)),
        )
        if nulls is not None and not result.ignores(joined(path, "nulls"), options):
            result.add(joined(path, "nulls"), nulls)
        done += size_in_bytes(actual.arrays[name]) if name in actual.arrays else 0
        advance(done / total)
    if not options.plot:
        result.drawn = None
    return result


def _compared_with_nulls(
    actual: Contents, expected: Contents, name: str, options: FileOptions
) -> tuple[Comparison, Comparison | None]:
    """Compare two arrays where both have a value, and their masks of missing values, if any."""
    a, b = actual.arrays.get(name), expected.arrays.get(name)
    exact = replace(options, rtol=0.0, atol=0.0)
    rule = exact if name in actual.structure | expected.structure else options
    masks = [x.nulls.get(name) for x in (actual, expected)]
    if not any(masks) or a is None or b is None or a.shape != b.shape:
        return _compared(a, b, rule), None
    none = Loaded(np.broadcast_to(np.False_, a.shape))
    nulls = [none if mask is None else mask for mask in masks]
    counters = _Counter(), _Counter()
    x, y = (
        Derived(mask, counter, none.dtype, a.shape)
        for mask, counter in zip(nulls, counters, strict=True)
    )
    report = _compared(x, y, exact)
    counts = [counter.count for counter in counters]
    if not any(counts):
        return _compared(a, b, rule), None
    if not report:  # else the elements without a value are equal
        a, b = (Filled(entry, tuple(nulls)) for entry in (a, b))
    in_both = (sum(counts) - report.mismatches) // 2
    masked = in_both, *(count - in_both for count in counts)
    leaf = _with_masked(_compared(a, b, rule), dict(zip(MASKED, masked, strict=True)))
    if options.plot and leaf.arrays is not None and has_distances(leaf.arrays[0]):
        pairs = zip(leaf.arrays, nulls, strict=True)
        first, second = (np.ma.array(values, mask=mask.load()) for values, mask in pairs)
        leaf = replace(leaf, arrays=(first, second))
    return leaf, report


def _with_masked(report: Comparison, masked: dict[str, int]) -> Comparison:
    """Return a report that counts pairs without a value, which were equal, as masked."""
    if report.tally is None:
        return report
    record = report.tally.record.copy()
    for equal in record["finite"], record["histogram"][:, 0]:  # 0 of text
        equal -= np.minimum(equal, sum(masked.values()))
    for name, count in masked.items():
        record[name] = count
    return replace(report, tally=replace(report.tally, record=record))


class _Counter:
    """A function that returns masks unchanged, and counts their True elements."""

    def __init__(self) -> None:
        self.count = 0

    def __call__(self, mask: NDArray) -> NDArray:
        """Add the True elements of a mask to the count."""
        self.count += int(np.count_nonzero(mask))
        return mask


def _attributes_that_differ(
    actual: Contents,
    expected: Contents,
    name: str,
    names: Sequence[str],
    write: Callable[[str], str],
) -> dict[str, str]:
    """Return the attributes that differ, if both files are of a format that has them."""
    a, b = actual.attributes.get(name), expected.attributes.get(name)
    if a is None or b is None:
        return {}
    texts = {key: [write(x[key]) if key in x else "none" for x in (a, b)] for key in names}
    return {key: f"{key} differs: {x:.60} and {y:.60}" for key, (x, y) in texts.items() if x != y}


def _compared(a: FileArray | None, b: FileArray | None, options: FileOptions) -> Comparison:
    if a is None or b is None:
        return unlike("only in expected" if a is None else "only in actual", a, b)
    if not _comparable(a.dtype, b.dtype):
        return unlike(f"dtypes differ: {a.dtype} and {b.dtype}", a, b)
    # Headers tell of shapes without the elements; calipers holds two of them at a time.
    if a.shape != b.shape:
        x, y = _stand_in(a), _stand_in(b)
    elif size_in_bytes(a) + size_in_bytes(b) <= options.memory_limit:
        x, y = a.load(), b.load()
    else:
        x, y = (entry.spread(options.memory_limit) for entry in (a, b))
    report: Comparison = compare(
        x,
        y,
        rtol=options.rtol,
        atol=options.atol,
        equal_nan=options.equal_nan,
        check_dtype=a.typed and b.typed,
        memory_limit=options.memory_limit,
    )
    return replace(report, problems=tuple(map(_without_advice, report.problems)))


def unlike(problem: str, a: FileArray | None = None, b: FileArray | None = None) -> Comparison:
    """Return the comparison of entries that cannot be compared, with the reason."""
    first, second = (((), MISSING) if x is None else (x.shape, str(x.dtype)) for x in (a, b))
    rule = Criteria(0.0, 0.0)
    return Comparison("", first[0], second[0], first[1], second[1], rule, (problem,))


def _comparable(a: DType, b: DType) -> bool:
    """Return True if elements can be equal: numbers to numbers, text to text, dates to dates."""
    if all(kernel_dtype(x) is not None or x.kind in _NUMBERS for x in (a, b)):
        return True
    if a.kind in _TEXT and b.kind in _TEXT:
        return True
    return a.kind == b.kind and (a.kind != "V" or a == b)


def _stand_in(entry: FileArray) -> NDArray:
    """Return an array of a shape and a dtype that takes no memory."""
    return np.broadcast_to(np.empty((), entry.dtype), entry.shape)


def _without_advice(problem: str) -> str:
    """Remove advice on broadcasting and arguments, which the command line does not have."""
    return problem.partition(";")[0]


def _as_option(limit: re.Match[str]) -> str:
    """Write a memory limit as an option of the command line, in MiB."""
    size = limit[1] and f" {-(-int(limit[1]) // 2**20)}"
    return f"--memory-limit{size or ''}"
