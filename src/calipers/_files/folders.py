"""Two files, or two folders of files, compared pair by pair."""

import filecmp
import os
import stat
from collections.abc import Callable
from dataclasses import dataclass, field

from .._core.arguments import reader_of
from . import FileError, described
from .compare import FileOptions, FileResults, compare_files, is_ignored, unlike
from .contents import joined, leads_out
from .opening import is_foreign
from .worker import Worker

_KINDS = {stat.S_IFIFO: "a pipe", stat.S_IFSOCK: "a socket"}


@dataclass
class Listing:
    """The files below a folder."""

    files: dict[str, str] = field(default_factory=dict)
    """Paths of files, by what follows the folder's name."""
    links: dict[str, str] = field(default_factory=dict)
    """The folders that links within the folder lead to, which are listed in their own place."""
    left_out: dict[str, str] = field(default_factory=dict)
    unread: dict[str, str] = field(default_factory=dict)
    """Why folders cannot be read, by what follows the folder's name."""


def listing(root: str, follow_links: bool) -> Listing:
    """List the files below a folder in the order of their names."""
    listing = Listing()
    _walk(listing, root, root, "", (os.path.realpath(root),), follow_links)
    return listing


def _walk(
    listing: Listing, root: str, folder: str, prefix: str, above: tuple[str, ...], follow: bool
) -> None:
    try:
        names = sorted(os.listdir(folder))
    except OSError as error:
        listing.unread[prefix] = described(error)
        return
    for name in names:
        path, relative = os.path.join(folder, name), joined(prefix, name)
        reason = _left_out(path, root, above, follow)
        if reason is not None:
            listing.left_out[relative] = reason
        elif not os.path.isdir(path) or reader_of(path) is not None:
            listing.files[relative] = path
        elif os.path.islink(path) and not leads_out(path, root):
            listing.links[relative] = os.path.relpath(
                os.path.realpath(path), os.path.realpath(root)
            )
        else:
            _walk(listing, root, path, relative, (*above, os.path.realpath(path)), follow)


def _left_out(path: str, root: str, above: tuple[str, ...], follow: bool) -> str | None:
    """Return the reason why a path is not compared; None if it is."""
    out = os.path.islink(path) and leads_out(path, root)
    if out and not follow:
        return "it links out of the folder; --follow-links reads it"
    try:
        mode = os.stat(path).st_mode
    except OSError:
        return "it is a broken link"
    if stat.S_ISDIR(mode):
        if out and os.path.realpath(path) in above:
            return "it links to a folder above it"
        return None
    return None if stat.S_ISREG(mode) else f"it is {_KINDS.get(stat.S_IFMT(mode), 'a device')}"


@dataclass
class FilesOutcome:
    """The results of all pairs of files, and the errors of those that were not compared."""

    results: FileResults = field(default_factory=FileResults)
    troubles: list[str] = field(default_factory=list)
    unread: list[str] = field(default_factory=list)
    """Of the troubles, why files and folders below the two folders cannot be read."""
    notes: list[str] = field(default_factory=list)

    def leave_unread(self, reason: str) -> None:
        """Add the reason why a file or a folder below the two folders cannot be read."""
        self.troubles.append(reason)
        self.unread.append(reason)


@dataclass(frozen=True)
class Pair:
    """Two files of one name; None stands for one that is missing."""

    location: str
    actual: str | None
    expected: str | None

    @property
    def size(self) -> int:
        """The bytes that the first has, of a store that is a folder those of all its files."""
        if self.actual is None or self.expected is None:
            return 0
        if not os.path.isdir(self.actual):
            return os.path.getsize(self.actual) if os.path.exists(self.actual) else 0
        return sum(
            os.lstat(os.path.join(folder, name)).st_size
            for folder, _, names in os.walk(self.actual)
            for name in names
        )


def pairs_of(actual: str, expected: str, options: FileOptions) -> tuple[list[Pair], FilesOutcome]:
    """Return the files to compare, and an outcome that tells of those that will not be."""
    folders = [os.path.isdir(path) and reader_of(path) is None for path in (actual, expected)]
    if not any(folders):
        return [Pair("", actual, expected)], FilesOutcome()
    if not all(folders):
        kinds = ["a folder" if folder else "a file" for folder in folders]
        msg = f"{actual} is {kinds[0]} and {expected} is {kinds[1]}: pass two files or two folders"
        raise FileError(msg)
    first, second = (listing(path, options.follow_links) for path in (actual, expected))
    outcome = FilesOutcome()
    unread = []
    for name, reason in (*first.unread.items(), *second.unread.items()):
        if is_ignored(name, options.ignore):
            outcome.results.ignored.append(name)
        else:
            outcome.leave_unread(reason)
        # What is below may be on both sides.
        unread.append(name and f"{name}/")
    pairs = []
    names = first.files | second.files | first.links | second.links
    for name in sorted(names | first.left_out | second.left_out):
        reasons = first.left_out.get(name), second.left_out.get(name)
        links = first.links.get(name), second.links.get(name)
        if name.startswith(tuple(unread)) or outcome.results.ignores(name, options):
            continue
        if any(reasons):
            outcome.results.leave_out(name, *reasons)
        elif any(links):
            if links[0] != links[1]:
                outcome.results.add(name, unlike(f"links differ: to {links[0]} and {links[1]}"))
        else:
            pairs.append(Pair(name, first.files.get(name), second.files.get(name)))
    return pairs, outcome


def compare_pairs(
    pairs: list[Pair], outcome: FilesOutcome, options: FileOptions, advance: Callable[[int], None]
) -> None:
    """Compare files, and add the results to the outcome; `advance` is called with bytes."""
    with Worker() as worker:
        for pair in pairs:
            if options.fail_fast and outcome.results.differs:
                outcome.results.stopped = True
                return
            _compare_pair(pair, outcome, worker, options, advance)


def _compare_pair(
    pair: Pair,
    outcome: FilesOutcome,
    worker: Worker,
    options: FileOptions,
    advance: Callable[[int], None],
) -> None:
    if pair.actual is None or pair.expected is None:
        problem = "only in expected" if pair.actual is None else "only in actual"
        outcome.results.add(pair.location, unlike(problem))
        return
    size, reported = pair.size, 0

    def tell(share: float) -> None:
        nonlocal reported
        advance(round(share * size) - reported)
        reported = round(share * size)

    try:
        if pair.location and reader_of(pair.actual) is None:
            _compare_bytes(pair.location, pair.actual, pair.expected, outcome.results)
        else:
            foreign = is_foreign(pair.actual) or is_foreign(pair.expected)
            compare = worker.compare_files if foreign else compare_files
            outcome.results.merge(compare(pair.actual, pair.expected, pair.location, options, tell))
    except (
        Exception
    ) as error:  # a file that cannot be read does not keep others from being compared
        add = outcome.leave_unread if pair.location else outcome.troubles.append
        add(described(error))
    tell(1.0)


def _compare_bytes(name: str, actual: str, expected: str, results: FileResults) -> None:
    """Compare two files of an unknown format, which agree only if their bytes are equal."""
    if not filecmp.cmp(actual, expected, shallow=False):
        reason = "its bytes differ, and its format is not known"
        results.leave_out(name, reason, reason)
