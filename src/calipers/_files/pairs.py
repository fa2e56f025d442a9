"""Two files compared: arrays matched by name, each pair by `calipers.compare`."""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from .._dtypes import DType, kernel_dtype
from .._protocols import NDArray
from .._spread import MEMORY_LIMIT
from .._tally import Rule
from ..comparison import compare
from ..reports import Comparison, NestedComparison
from .conventions import MEANING, PACKING
from .entries import Contents, Derived, Entry, Loaded, joined, size_in_bytes
from .errors import FileError, described, printable
from .opening import opened

# Objects are Python integers that no dtype holds.
_TEXT, _NUMBERS = "UT", "biufcO"
_LIMIT = re.compile(r"memory_limit(?:=(\d+))?")


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
class Found:
    """What was found of one pair of files, or of many."""

    leaves: list[Comparison] = field(default_factory=list)
    ignored: list[str] = field(default_factory=list)
    left_out: dict[str, str] = field(default_factory=dict)
    stopped: bool = False
    """Whether a difference kept what follows from being compared."""

    drawn: Comparison | None = None
    """Of the leaves, that which a plot shows: the only one that keeps its arrays."""

    differs: bool = False

    def add(self, path: str, leaf: Comparison) -> None:
        """Take in what was found of a pair of arrays."""
        leaf = replace(leaf, path=printable(path))
        self._draw(leaf)
        self.leaves.append(replace(leaf, arrays=None))
        self.differs |= not leaf

    def leave_out(self, path: str, actual: str | None, expected: str | None) -> None:
        """Take in why something was left out, which is a difference if only one side was."""
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

    def merge(self, other: "Found") -> None:
        """Take in what was found of another pair of files."""
        if other.drawn is not None:
            self._draw(other.drawn)
        self.leaves += other.leaves
        self.ignored += other.ignored
        self.left_out |= other.left_out
        self.stopped |= other.stopped
        self.differs |= other.differs

    def _draw(self, leaf: Comparison) -> None:
        rivals = (leaf,) if self.drawn is None else (self.drawn, leaf)
        self.drawn = NestedComparison(rivals).drawn


def compare_files(
    actual: str,
    expected: str,
    place: str,
    options: FileOptions,
    advance: Callable[[float], None],
) -> Found:
    """
    Compare two files; `place` is the path of both in their folders.

    `advance` is called with the fraction of the first file that is done.
    """
    with (
        opened(actual, options.follow_links) as ours,
        opened(expected, options.follow_links) as theirs,
    ):
        try:
            return _compare_contents(ours, theirs, place, options, advance)
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
    place: str,
    options: FileOptions,
    advance: Callable[[float], None],
) -> Found:
    result = Found()
    total = sum(map(size_in_bytes, actual.arrays.values())) or 1
    done = 0
    for name in actual.arrays | expected.arrays | actual.left_out | expected.left_out:
        path = joined(place, name)
        if result.ignores(path, options):
            continue
        if options.fail_fast and result.differs:
            result.stopped = True
            break
        reasons = actual.left_out.get(name), expected.left_out.get(name)
        if any(reasons):
            result.leave_out(path, *reasons)
            continue
        a, b = actual.arrays.get(name), expected.arrays.get(name)
        try:
            is_structure = name in actual.structure | expected.structure
            leaf = _compared(a, b, _exact(options) if is_structure else options)
            nulls = _compared_nulls(actual, expected, name, options)
        except Exception as error:  # libraries raise anything
            text = _LIMIT.sub(_as_option, described(error))
            msg = f"{name}: {text}" if name else text
            raise FileError(msg) from error
        names = MEANING if leaf else (*MEANING, *PACKING)
        problems = list(leaf.problems)
        for key, problem in _attributes_that_differ(actual, expected, name, names).items():
            if not result.ignores(joined(path, key), options):
                problems.append(problem)
        result.add(path, replace(leaf, problems=tuple(problems)))
        if nulls is not None and not result.ignores(joined(path, "nulls"), options):
            result.add(joined(path, "nulls"), nulls)
        done += size_in_bytes(a) if a is not None else 0
        advance(done / total)
    if not options.plot:
        result.drawn = None
    return result


def _compared_nulls(
    actual: Contents, expected: Contents, name: str, options: FileOptions
) -> Comparison | None:
    """Compare where two arrays lack values; None if they lack none, or their shapes differ."""
    a, b = actual.arrays.get(name), expected.arrays.get(name)
    masks = actual.nulls.get(name), expected.nulls.get(name)
    if not any(masks) or a is None or b is None or a.shape != b.shape:
        return None
    none = Loaded(np.broadcast_to(np.False_, a.shape))
    watches = _Watch(), _Watch()
    x, y = (
        Derived(none if mask is None else mask, watch, none.dtype, a.shape)
        for mask, watch in zip(masks, watches, strict=True)
    )
    report = _compared(x, y, _exact(options))
    return report if any(watch.seen for watch in watches) else None


def _exact(options: FileOptions) -> FileOptions:
    return replace(options, rtol=0.0, atol=0.0)


class _Watch:
    """A function that returns masks as they are, and records if anything was masked."""

    def __init__(self) -> None:
        self.seen = False

    def __call__(self, mask: NDArray) -> NDArray:
        """Look at a mask."""
        self.seen = self.seen or bool(np.any(mask))
        return mask


def _attributes_that_differ(
    actual: Contents, expected: Contents, name: str, names: Sequence[str]
) -> dict[str, str]:
    """Return the attributes that differ, if both files are of a format that has them."""
    a, b = actual.attributes.get(name), expected.attributes.get(name)
    if a is None or b is None:
        return {}
    texts = {key: [repr(x[key]) if key in x else "none" for x in (a, b)] for key in names}
    return {key: f"{key} differs: {x:.60} and {y:.60}" for key, (x, y) in texts.items() if x != y}


def _compared(a: Entry | None, b: Entry | None, options: FileOptions) -> Comparison:
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


def unlike(problem: str, a: Entry | None = None, b: Entry | None = None) -> Comparison:
    """Return the comparison of what cannot be compared."""
    first, second = (((), "none") if x is None else (x.shape, str(x.dtype)) for x in (a, b))
    rule = Rule(0.0, 0.0)
    return Comparison("", first[0], second[0], first[1], second[1], rule, (problem,))


def _comparable(a: DType, b: DType) -> bool:
    """Return True if elements can be equal: numbers to numbers, text to text, dates to dates."""
    if all(kernel_dtype(x) is not None or x.kind in _NUMBERS for x in (a, b)):
        return True
    if a.kind in _TEXT and b.kind in _TEXT:
        return True
    return a.kind == b.kind and (a.kind != "V" or a == b)


def _stand_in(entry: Entry) -> NDArray:
    """Return an array of a shape and a dtype that takes no memory."""
    return np.broadcast_to(np.empty((), entry.dtype), entry.shape)


def _without_advice(problem: str) -> str:
    """Drop what speaks of broadcasting and of arguments, which only the function has."""
    return problem.partition(";")[0]


def _as_option(limit: re.Match[str]) -> str:
    """Write a limit of memory as the command line takes it, in MiB."""
    size = limit[1] and f" {-(-int(limit[1]) // 2**20)}"
    return f"--memory-limit{size or ''}"
