"""Entries that are nothing but rounding of f, or of its derivative, and so not wrong."""

from functools import partial

import numpy as np

from .._protocols import NDArray
from .analytic import GivenDerivative
from .beside import all_rounding, entries_of, hides, scattered
from .columns import Sizes
from .entries import Entries
from .flatten import largest_by_part, moduli
from .point import Subject
from .rule import FAIL, PASS, SURE, Rule, few_roundings

_NONE = np.empty(0, np.int64)


def excused(
    entries: Entries,
    subject: Subject,
    derivatives: list[GivenDerivative],
    rule: Rule,
    sizes: Sizes | None,
    eps: float,
    random: np.random.Generator,
) -> NDArray:
    """Return the positions of `entries` that are all rounding, if no other entry is wrong."""
    verdicts, forms = np.array(entries.verdicts), np.array(entries.forms)
    if not 0 < len(verdicts) == sum(entries.count.values()) - entries.count[PASS]:
        return _NONE  # if not all are kept
    columns, rows = np.array(entries.columns), np.array(entries.rows)
    own, value, error = np.array(entries.values).T
    failed, apart = verdicts == FAIL, np.abs(own - value)
    zero = (np.abs(value) <= SURE * error) | rule.is_still(own, value, error)
    if not (zero.any() and zero[failed].all()):
        return _NONE
    nothing = apart <= few_roundings(eps) * subject.natural[rows]
    if sizes is not None:
        nothing |= rule.is_nothing(apart, np.fmax(sizes.rows[rows], sizes.columns[columns]))
    largest = largest_by_part(moduli([p.example for p in subject.active]), subject.active)
    rounding = all_rounding(subject, random)[rows]
    hidden = hides(rounding, own, largest[columns])
    hidden &= rule.is_nothing(rounding, np.fmax(subject.sizes[rows], subject.units.max()))
    passed = hidden | (nothing & failed)
    if not passed[failed].all():  # then scattered entries need not be asked for
        return _NONE
    for d in derivatives:
        (which,) = np.nonzero(passed & (forms == d.name))
        if len(which):
            ask = partial(entries_of, rows=rows[which], columns=columns[which])
            passed[which] = np.abs(own[which]) <= scattered(d, ask, random)
    return np.flatnonzero(passed)
