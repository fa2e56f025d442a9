"""The report of a diagnosis: one form for all verdicts, and code that repeats and continues it."""

import io

import numpy as np
import pytest

import calipers

random = np.random.default_rng(0)
X = random.standard_normal((8, 64)).astype(np.float32)
W = random.standard_normal((5, 64)).astype(np.float32)
DRAWS = np.random.default_rng(1)


def linear(x, w):
    return x @ w.T


def turned(x, w):
    return x[:, ::-1] @ w[:, ::-1].T


def scaled(x, w):
    return x @ w.T * x.dtype.type(1.001)


def halves(x, w):
    return x.astype(np.float16).astype(x.dtype) @ w.T


def fails(x, w):
    raise KeyError("no")


def shuffled(x, w):
    order = DRAWS.permutation(x.shape[1])
    return x[:, order] @ w[:, order].T


def dropout(x, w):
    return x @ w.T * (DRAWS.random(5) < 0.5)


def overflows(x, w):
    return x @ (w * x.dtype.type(1e38)).T * x.dtype.type(1e-38)


def steep(x, w):
    return np.sin(1e5 * x)


def steep_in_two_steps(x, w):
    return np.sin(x * x.dtype.type(100) * x.dtype.type(1000))


def spread(x, w):
    return (100 + x).var(axis=1)


def spread_by_squares(x, w):
    return ((100 + x) ** 2).mean(axis=1) - (100 + x).mean(axis=1) ** 2


def named(x, w):
    return {"sum": x.sum(axis=1), "product": x @ w.T}


def wrong_by_name(x, w):
    return named(x, w) | {"product": scaled(x, w)}


def two(x, w):
    return x.sum(axis=1), x @ w.T


def two_wrong(x, w):
    return x.sum(axis=1), scaled(x, w)


CASES = {
    "EQUAL": (linear, linear, {}),
    "ROUNDING": (linear, turned, {"seed": 5}),
    "AMPLIFIED": (steep, steep_in_two_steps, {}),
    "RANGE": (linear, overflows, {"batch": ()}),
    "NONDETERMINISTIC": (linear, shuffled, {}),
    "REDUCED": (linear, halves, {"reduction": 64, "seed": 2}),
    "UNSTABLE": (spread, spread_by_squares, {}),
    "SUSPECT": (linear, scaled, {"budget": 6}),
    "BUG": (linear, scaled, {}),
    "BUG of a name": (named, wrong_by_name, {}),
    "BUG of two": (two, two_wrong, {"float64": "f"}),
    "BUG by chance": (linear, dropout, {}),
    "RAISES": (linear, fails, {}),
}


def evaluate(code):
    return eval(code, globals() | {"inputs": (X, W), "f": linear, "g": linear})


def line(report, label):
    """Return what stands behind a label at the left margin, with the lines that continue it."""
    _, found, rest = str(report).partition(f"\n{label}: ")
    return rest.partition("\nnext: ")[0] if found else None


@pytest.mark.parametrize("name", CASES)
def test_again_repeats_the_diagnosis(name):
    f, g, options = CASES[name]
    found = calipers.diagnose(f, g, (X, W), **options)
    assert found.kind == name.partition(" ")[0], str(found)
    code = line(found, "again")
    again = evaluate(code)
    assert (again.kind, again.options, again.seed) == (found.kind, found.options, found.seed)
    assert ("seed" in code) == ("seed" in options)
    assert "..." not in code


@pytest.mark.parametrize("name", CASES)
def test_next_is_code_that_runs(name):
    f, g, options = CASES[name]
    found = calipers.diagnose(f, g, (X, W), **options)
    code = line(found, "next")
    assert (code is None) == (name in ("EQUAL", "ROUNDING"))
    if name == "RAISES":
        with pytest.raises(KeyError):
            evaluate(code)
    elif code is not None:
        value = evaluate(code)
        if code.startswith(g.__name__):  # the worst element
            assert np.ndim(value) == 0
            worst = found.worst[0]
            assert float(value) == (worst.g if found.evidence["measured_from"] else worst.f)


def test_next_after_a_budget_that_is_spent_reaches_a_verdict():
    found = calipers.diagnose(linear, scaled, (X, W), budget=6)
    assert evaluate(line(found, "next")).kind == "BUG"


def test_one_argument_is_passed_as_it_is():
    found = calipers.diagnose(np.sin, lambda x: np.sin(x) * x.dtype.type(1.01), X)
    assert line(found, "next").startswith("g(inputs)[")


@pytest.mark.parametrize("name", CASES)
def test_fields_have_labels_of_twelve_columns(name):
    f, g, options = CASES[name]
    text = str(calipers.diagnose(f, g, (X, W), **options))
    lines = text.splitlines()
    assert lines[0].startswith(name.partition(" ")[0] + ": ")
    assert len(lines) <= 26
    assert max(map(len, lines)) <= 88
    details = text[text.index("\n  inputs ") + 1 : text.index("\nagain: ")].splitlines()
    labels = {x[2:14].strip() for x in details if x.startswith("  ") and x[2] != " "}
    fields = {"inputs", "errors", "unit", "limit", "worst", "dtypes", "where", "calls"}
    assert {"inputs", "calls"} <= labels <= fields
    for word in ("units of rounding", "sides", "wider", "last place", "apart"):
        assert word not in text


def test_what_six_digits_hide_is_in_the_difference():
    text = str(calipers.diagnose(linear, turned, (X, W)))
    rows = text[text.index("  worst") :].splitlines()
    assert rows[0].split() == ["worst", "f", "f", "-", "g", "reference", "error/unit"]
    assert all(len(cell.lstrip("-").replace(".", "")) <= 9 for cell in rows[1].split()[2:])


@pytest.mark.parametrize("name", CASES)
def test_pictures_have_labels_and_titles_that_fit(name):
    pytest.importorskip("matplotlib")
    f, g, options = CASES[name]
    found = calipers.diagnose(f, g, (X, W), **options)
    figure = found.plot()
    figure.savefig(io.BytesIO(), format="png")
    title = figure._suptitle.get_window_extent()
    assert title.x0 >= 0
    assert title.x1 <= figure.bbox.width
    drawn = [axes for axes in figure.axes if axes.axison]
    assert all(axes.get_xlabel() or axes.get_xticklabels() for axes in drawn)
    assert all(axes.get_ylabel() for axes in drawn)
    assert bool(drawn) == (name not in ("EQUAL", "RAISES"))
    for axes in figure.axes if not drawn else ():
        assert axes.texts or figure.texts[1:]


def test_a_picture_of_perturbed_inputs_names_formats_without_overlap():
    pytest.importorskip("matplotlib")
    x = np.random.default_rng(0).standard_normal((64, 256)).astype(np.float32)

    def in_tf32(x):
        bits = x.astype(np.float32).view(np.uint32) & np.uint32(0xFFFFE000)
        return bits.view(np.float32) @ x.T.astype(np.float32)

    figure = calipers.diagnose(lambda x: x @ x.T, in_tf32, x, float64=None).plot()
    figure.savefig(io.BytesIO(), format="png")
    axes = figure.axes[2]
    assert axes.get_xlabel() == "relative perturbation of the inputs"
    boxes = [text.get_window_extent() for text in axes.texts]
    assert len(boxes) >= 3
    assert not any(a.overlaps(b) for k, a in enumerate(boxes) for b in boxes[:k])
    assert "tf32 = float16" in {text.get_text() for text in axes.texts}
