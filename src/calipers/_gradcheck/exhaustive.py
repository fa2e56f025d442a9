"""Every entry against differences: a first look at all, a second one where they differ."""

from collections.abc import Sequence

import numpy as np

from .._differences.run import WORTH_SHARING
from .._kernels.marks import DOUBTED, LEFT_OUT
from .._protocols import NDArray
from .._threads import in_parts
from .columns import Jacobian, Products, Pulled, Sizes
from .doubtful import look_again
from .entries import Entries
from .numerical import Looks
from .rule import PASS, Rule
from .screening import Screening, first_look, settle
from .slopes import SLOPE_CALLS

_SEEN_BYTES = 1 << 22  # of what a second look sees at a time
_SEEN = 22  # numbers of an entry


def examine(
    whole: Sequence[Looks],
    jacobians: dict[str, Jacobian],
    rule: Rule,
    found: Entries,
    random: np.random.Generator,
    vouched: bool = False,
) -> Sizes:
    """
    Judge the entries of inputs, in every form in which their derivatives were given.

    Return the largest magnitudes in rows and columns. Of `jacobians` those that are asked for their
    rows are exchanged.
    """
    one = next(iter(jacobians.values()))
    rows, columns = one.shape
    covered = sum(look.problem.coordinates for look in whole) == columns
    unknown = covered and all(look.compiled for look in whole)
    if unknown and isinstance(one, Pulled):
        sizes = _by_products(whole, one, rule, found, random)
        if sizes is not None:
            return sizes
    for name, jacobian in jacobians.items():
        jacobians[name] = jacobian.whole if isinstance(jacobian, Pulled) else jacobian
    if unknown:
        sizes = Sizes(np.zeros(rows), np.zeros(columns), known=False)
    else:
        sizes = Sizes.of(jacobians, rows, columns)
    screenings = [Screening(look, jacobians, sizes, rule) for look in whole]
    marks = [first_look(screening) for screening in screenings]
    for screening in screenings:
        screening.measure()
    sizes.known = True
    for screening, marked in zip(screenings, marks, strict=True):
        settle(screening, marked)
        screening.looks.calls += SLOPE_CALLS * screening.taken
        _judge(screening, marked, found, vouched)
    return sizes


def _by_products(
    whole: Sequence[Looks],
    pulled: Pulled,
    rule: Rule,
    found: Entries,
    random: np.random.Generator,
) -> Sizes | None:
    """Do as `examine` by a few products, if they tell that all entries are right; else None."""
    rows, columns = pulled.shape
    sizes = Sizes(np.zeros(rows), np.zeros(columns), known=False)
    products = Products.of(pulled, random)
    if products is None:
        return None
    screenings = [Screening(look, {pulled.d.name: pulled}, sizes, rule, products) for look in whole]
    marks = [first_look(screening) for screening in screenings]
    for screening in screenings:
        screening.measure()
        screening.looks.calls += SLOPE_CALLS * screening.taken
    if not all(map(Screening.is_clear, screenings, marks)):
        return None
    taken = np.concatenate([marked != LEFT_OUT for marked in marks])
    least = max(screening.least for screening in screenings)
    sums = np.sum([screening.sums for screening in screenings], axis=0)
    if not products.confirm(sizes.rows, least, sums, taken, rule):
        return None
    for screening, marked in zip(screenings, marks, strict=True):
        _judge(screening, marked, found, vouched=False)
    # Of columns that are left out nothing else is known.
    images = np.abs(products.images[:, ~taken]).max(axis=0, initial=0.0)
    sizes.columns[~taken] = np.where(np.isfinite(images), images, 0.0)
    sizes.known, found.products = True, len(products.images)
    return sizes


def _judge(screening: Screening, marks: NDArray, found: Entries, vouched: bool) -> None:
    """Count the columns of one input that are clear, and look again at those that are not."""
    looks = screening.looks
    marks[looks.small & (marks != LEFT_OUT)] = DOUBTED
    taken = len(marks) - int(np.count_nonzero(marks == LEFT_OUT))
    found.left_out += len(marks) - taken
    doubtful = np.flatnonzero(marks == DOUBTED)
    found.count[PASS] += (
        (taken - len(doubtful)) * looks.problem.base.size * len(screening.jacobians)
    )

    if looks.way.plain:
        step = max(1, _SEEN_BYTES // (8 * _SEEN * looks.problem.base.size))
        for first in range(0, len(doubtful), step):
            columns = doubtful[first : first + step]
            seen = _seen(looks, columns)
            look_again(screening, columns, seen, found, vouched)
    elif len(doubtful):
        _second_look(screening, doubtful, found, vouched)


def _seen(looks: Looks, columns: NDArray) -> tuple[NDArray, ...]:
    """Look again at columns: at some in each thread, if f is compiled and that is worth it."""
    second, count = looks.second, len(columns)
    seen = second.results(count)

    def look(first: int, last: int) -> None:
        second.at(columns[first:last], tuple(array[first:last] for array in seen))

    seconds = count * second.calls * looks.subject.seconds  # at most
    threads = looks.threads if seconds > WORTH_SHARING else 1
    in_parts(look, range(0, count, -(-count // threads)), count)
    return seen


def _second_look(screening: Screening, doubtful: NDArray, found: Entries, vouched: bool) -> None:
    """Look again at columns, and judge them in their order, whenever they come."""
    looks = screening.looks
    waiting = dict.fromkeys(doubtful.tolist())
    wanted = np.zeros(looks.problem.coordinates, bool)
    wanted[doubtful] = True
    early: dict[int, tuple[NDArray, ...]] = {}

    def store(first: int, seen: tuple[NDArray, ...]) -> None:
        for k in range(len(seen[0])):
            early[first + k] = tuple(array[k : k + 1] for array in seen)
        while waiting and (column := next(iter(waiting))) in early:
            del waiting[column]
            look_again(screening, np.array([column]), early.pop(column), found, vouched)

    looks.have_done(looks.second, "second-look", wanted, store)
