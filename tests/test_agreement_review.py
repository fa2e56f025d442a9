"""What a hostile review of diagnose found: each was wrong, or told so that none could mend it."""

import numpy as np

import calipers

RANDOM = np.random.default_rng(0)
X = RANDOM.standard_normal((8, 16), dtype=np.float32)


def total(x):
    return x.sum(axis=1)


def backwards(x):
    return x[:, ::-1].cumsum(axis=1)[:, -1]


def test_results_of_other_names_are_not_the_same_results():
    found = calipers.diagnose(lambda x: {"a": x, "b": x}, lambda x: {"a": x, "c": x}, X)
    assert (found.kind, found.reason) == (
        "BUG",
        "f gives results called ['a'], ['b'], and g ['a'], ['c']",
    )
    fewer = calipers.diagnose(lambda x: {"a": x, "b": x}, lambda x: {"a": x}, X)
    assert fewer.reason == "f gives results called ['a'], ['b'], and g ['a']"
    # A port may give a tuple where the original gives a dict.
    assert calipers.diagnose(lambda x: {"a": total(x)}, lambda x: (total(x),), X).kind == "EQUAL"
    parts = calipers.diagnose(lambda x: {"a": (x, x)}, lambda x: {"a": x}, X)
    assert "of shape (8, 16), (8, 16), and g (8, 16)" in parts.reason
