"""The report of a diagnosis: one form for all verdicts, and code that repeats and continues it."""

import copy
import io
import sys

import numpy as np
import pytest

import calipers
from calipers._core.report import brief

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
    "BUG of two": (two, two_wrong, {"reference": "f"}),
    "BUG by chance": (linear, dropout, {}),
    "RAISES": (linear, fails, {}),
}


def evaluate(code):
    return eval(code, globals() | {"inputs": (X, W), "f": linear, "g": linear})


def line(report, label):
    """Return what stands behind a label at the left margin, with the lines that continue it."""
    _, found, rest = str(report).partition(f"\n{label}: ")
    return rest.partition("\nnext: ")[0] if found else None


def table(text):
    """Return the rows of the table of errors by their titles, split at spaces."""
    rows = text[text.index("  errors ") :].splitlines()
    end = next(k for k, row in enumerate(rows[1:], 1) if row[2] != " ")
    return {row.split()[0]: row.split()[1:] for row in reversed(rows[:end])}


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


class Model:
    def forward(self, x):
        return np.sin(x)


def test_functions_are_named_as_code_calls_them():
    """A ufunc is np.sin; a method belongs to an object that code may call anything."""
    found = calipers.diagnose(np.sin, Model().forward, X)
    assert line(found, "again") == "calipers.diagnose(np.sin, g, inputs)"


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
        value = evaluate(code.replace("=reference", f"={f.__name__}"))
        worst = found.worst[0] if found.worst else None
        if code.endswith("# the worst result"):
            values = [worst.f, worst.g] if code.startswith("[") else [worst.g]
            assert [float(x) for x in np.atleast_1d(value)] == values
        assert ("reference=reference" in code) == (name == "BUG of two")


def only_in_float32(x, w):
    if x.dtype != np.float32:
        raise ValueError("expected float32")
    return linear(x, w)


def test_a_reference_that_one_function_alone_computes_blames_neither():
    found = calipers.diagnose(only_in_float32, scaled, (X, W))
    text = str(found)
    assert found.kind == "BUG"
    note = "none: f cannot compute in float64, and g alone is one only if asked for: "
    note += 'reference="g"; pass reference=reference, a function that can'
    assert f" reference {note} worst " in " ".join(text.split())
    assert table(text)["errors"] == ["f", "-", "g", "allowed"]
    worst = next(row for row in text.splitlines() if row.startswith("  worst"))
    assert "reference" not in worst
    code = line(found, "next")
    assert code.startswith(
        "calipers.diagnose(only_in_float32, scaled, inputs, reference=reference)"
    )
    assert code.endswith("  # reference: a function that computes in float64")
    again = evaluate(code.replace("=reference", "=linear"))
    assert table(str(again))["errors"] == ["f", "g", "f", "-", "g", "allowed"]
    assert again.evidence["f"]["rms"] < 2
    assert again.evidence["g"]["rms"] > 100
    assert line(again, "next").startswith("scaled(*inputs)[")
    joined = " ".join(str(calipers.diagnose(linear, scaled, (X, W), reference="g")).split())
    assert " reference g in float64 (f is not called in float64): " in joined


def test_functions_that_differ_in_higher_precision_are_not_ranked():
    text = str(calipers.diagnose(linear, scaled, (X, W)))
    assert table(text)["errors"] == ["f", "-", "g", "allowed"]
    assert "\n  reference   f in float64; g in float64 differs from it: either may be wrong" in text
    text = str(calipers.diagnose(linear, turned, (X, W)))
    assert table(text)["errors"] == ["f", "g", "f", "-", "g", "allowed"]
    assert "\n  reference   f in float64; g in float64 agrees with it" in text


def test_the_table_shows_what_was_measured_and_allowed():
    found = calipers.diagnose(linear, turned, (X, W))
    rows = table(str(found))
    for title, key, limit in (("2-norm", "normwise", "12"), ("max", "peak", "96")):
        errors = [brief(found.evidence[name][key]) for name in ("f", "g", "apart")]
        assert rows[title][:4] == [*errors, limit]
    assert rows["2-norm"][4:] == ["x", "expected", "(norm)"]
    assert rows["max"][4:] == ["x", "expected", "(element)"]
    assert rows["in"] == ["float64", brief(found.evidence["wide"]["absolute"])]
    assert found.evidence["wide"]["absolute"] < 1e-12


def test_integers_have_no_expected_rounding_error():
    above, from_0 = (lambda x: x > 0), (lambda x: x >= 0)
    text = str(calipers.diagnose(above, from_0, np.array([0.0, 1, -1], np.float32)))
    assert "expected" not in text
    assert table(text)["RMSE"] == ["0.577"]


def test_the_norm_or_the_element_that_decided_is_named():
    x = np.random.default_rng(0).uniform(0.5, 1, (200, 50))

    def g(x):
        y = x.copy()
        y[3, 7] += 4e-14
        return y

    found = calipers.diagnose(np.copy, g, x, reference=None)
    assert "(element; allowed 145)" in found.reason
    assert "(norm; allowed 12)" in calipers.diagnose(linear, scaled, (X, W)).reason


@pytest.mark.parametrize("name", CASES)
def test_the_report_says_whether_the_diagnosis_is_true(name):
    f, g, options = CASES[name]
    found = calipers.diagnose(f, g, (X, W), **options)
    (row,) = (row for row in str(found).splitlines() if row.startswith("  bool "))
    assert row.split()[1].rstrip(",;") == str(bool(found))
    assert row.endswith(" for EQUAL, ROUNDING, LAYOUT and AMPLIFIED")


def test_a_comment_stays_where_a_line_is_long():
    a_function_with_a_name_that_leaves_no_room = lambda x, w: scaled(x, w)  # noqa: E731
    found = calipers.diagnose(linear, a_function_with_a_name_that_leaves_no_room, (X, W))
    assert line(found, "next").endswith("# the worst result")
    other = type("F", (), {"__call__": staticmethod(scaled), "__name__": "a" * 78})()
    code = line(calipers.diagnose(linear, other, (X, W)), "next")
    assert code.endswith("\n  # the worst result")
    assert eval(code, {"linear": linear, "a" * 78: scaled, "inputs": (X, W)})


def test_the_limit_says_what_it_is_for_and_whence():
    joined = " ".join(str(calipers.diagnose(linear, turned, (X, W))).split())
    assert " allowed smaller norm: 4 + sqrt(n), n = 64 (longest axis, or reduction=) " in joined
    joined = " ".join(str(calipers.diagnose(linear, turned, (X, W), reduction=100)).split())
    assert " allowed smaller norm: 4 + sqrt(n), n = 100 from reduction= " in joined
    assert " 14 x expected (norm) " in joined


def test_the_unit_says_which_inputs_are_perturbed():
    def unit(f, g, inputs, **options):
        text = " ".join(str(calipers.diagnose(f, g, inputs, **options)).split())
        return text.partition(" expected rounding error: ")[2].partition(" allowed ")[0]

    table = np.random.default_rng(0).standard_normal(50).astype(np.float32)
    places = np.arange(40).reshape(8, 5)
    wrong = lambda i: table[i] * np.float32(1.001)  # noqa: E731
    assert unit(lambda i: table[i], wrong, places).startswith(
        "one rounding of each result to float32; no input is floating-point, so none is perturbed"
    )
    mixed = lambda x, i: x[i]  # noqa: E731
    wrong = lambda x, i: x[i] * x.dtype.type(1.001)  # noqa: E731
    text = "the change of each result when the float32 inputs change by 1 ulp"
    assert unit(mixed, wrong, (table, places)).startswith(text)
    assert unit(mixed, wrong, (table, places), dtype="bfloat16").startswith(f"{text} of bfloat16")


def test_a_bug_below_the_limit_says_why_it_is_one():
    x = X.astype(np.float16)
    found = calipers.diagnose(lambda x: x, lambda x: x * np.float16(1.004), x, reference=None)
    assert found.kind == "BUG"
    assert found.reason.partition(" (cosine ")[0].endswith(
        "(norm; allowed 12), but the difference is nearly the same"
    )
    assert found.reason.endswith("of the inputs by a few ulps, as rounding would not be")


def test_results_above_the_limit_are_counted_once():
    x = np.linspace(1, 2, 400, dtype=np.float32)
    some = np.arange(400) < 120
    some[7] = False
    g = lambda x: np.where(some, x.dtype.type(1.01) * np.sqrt(x), np.sqrt(x))  # noqa: E731
    found = calipers.diagnose(np.sqrt, g, x, batch=())
    assert found.where == "119 of 400 results are above the limit: elements 0:120"
    found = calipers.diagnose(np.sqrt, lambda x: np.sqrt(x) * x.dtype.type(1.01), x)
    assert found.where == "all 400 results are above the limit"


@pytest.mark.slow
def test_plots_without_matplotlib_say_what_to_install(monkeypatch):
    layers = [("exp", np.exp)]
    gradient = calipers.gradcheck(lambda x: x**2, (np.ones(3),), jac=lambda x: np.diag(2 * x))
    reports = [
        calipers.diagnose(linear, scaled, (X, W)),
        calipers.compare(X, X + 1),
        calipers.growth(np.sum, np.sum, lambda n: np.ones(n, np.float32), [2, 4]),
        calipers.probes.layers(layers, layers, X),
        calipers.probes.condition(np.eye(3)),
        calipers.probes.summation_order(np.sum, 8),
        gradient,
    ]
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    for report in reports:
        with pytest.raises(ImportError, match=r"^plot\(\) needs matplotlib: pip install "):
            report.plot()


def test_next_after_a_budget_that_is_spent_reaches_a_verdict():
    found = calipers.diagnose(linear, scaled, (X, W), budget=6)
    assert evaluate(line(found, "next")).kind == "BUG"


def test_one_argument_is_passed_as_it_is():
    found = calipers.diagnose(np.sin, lambda x: np.sin(x) * x.dtype.type(1.01), X)
    assert line(found, "next").startswith("[h(inputs)[")


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
    fields = {"inputs", "errors", "expected", "allowed", "worst", "dtypes", "where", "calls"}
    assert {"inputs", "calls", "bool"} <= labels <= fields | {"bool", "reference"}
    for word in ("units of rounding", "sides", "wider", "last place", "apart"):
        assert word not in text


def test_what_six_digits_hide_is_in_the_difference():
    text = str(calipers.diagnose(linear, turned, (X, W)))
    rows = text[text.index("  worst") :].splitlines()
    assert rows[0].split() == ["worst", "f", "f", "-", "g", "reference", "error/expected"]
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

    figure = calipers.diagnose(lambda x: x @ x.T, in_tf32, x, reference=None).plot()
    figure.savefig(io.BytesIO(), format="png")
    axes = figure.axes[2]
    assert axes.get_xlabel() == "relative perturbation of the inputs"
    boxes = [text.get_window_extent() for text in axes.texts]
    assert len(boxes) >= 3
    assert not any(a.overlaps(b) for k, a in enumerate(boxes) for b in boxes[:k])
    assert "tf32 = float16" in {text.get_text() for text in axes.texts}


def test_next_of_two_modules_finds_the_layer():
    torch = pytest.importorskip("torch")
    torch.manual_seed(0)
    f = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.LayerNorm(16), torch.nn.Linear(16, 4))
    g = copy.deepcopy(f)
    g[1].eps = 1e-2
    x = torch.randn(5, 8)
    found = calipers.diagnose(f, g, x)
    assert found.kind == "BUG", str(found)
    code = line(found, "next")
    assert code == "calipers.probes.layers(f, g, inputs)  # the first layer that differs"
    layers = eval(code, {"calipers": calipers, "f": f, "g": g, "inputs": x})
    assert layers.first.name == "1"
    alone = calipers.diagnose(f, lambda x: g(x), x)
    assert "layers" not in line(alone, "next")


def test_next_of_a_loop_passes_its_steps():
    x = np.random.default_rng(0).standard_normal((3, 10)) + [[1], [1], [20]]

    def steps(state, summed):
        x, y, z = state
        h = x.dtype.type(0.01)
        for _ in range(300):
            dx = 10 * (y - x) if summed else 10 * y - 10 * x
            dy = x * (28 - z) - y if summed else 28 * x - x * z - y
            x, y, z = x + h * dx, y + h * dy, z + h * (x * y - z)
        return np.stack([x, y, z])

    f, g = (lambda x: steps(x, summed=True)), (lambda x: steps(x, summed=False))
    found = calipers.diagnose(f, g, x.astype(np.float32))
    code = line(found, "next")
    assert f"reduction={found.evidence['loop_steps']})" in code
    assert f"reduction={found.evidence['loop_steps']}" in found.reason
    names = {"calipers": calipers, "f": f, "g": g, "inputs": x.astype(np.float32)}
    assert eval(code, names).length == found.evidence["loop_steps"]
