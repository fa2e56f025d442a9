"""The text of a diagnosis: verdict, errors, worst results, and how to repeat and continue it."""

import hashlib
from collections.abc import Iterable
from itertools import groupby
from typing import TYPE_CHECKING, Any

import numpy as np

from .._core.dtypes import ROUNDOFF
from .._core.report import (
    COMMENT,
    WIDTH,
    brief,
    calls_text,
    field,
    index_text,
    new_figure,
    show_text,
    wrapped,
    wrapped_code,
)
from .arrays import is_perturbable
from .noise_level import ELEMENT, NORM, difference
from .thresholds import THRESHOLDS
from .verdict import ALLOWED, higher_precision

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from .verdict import DiagnosisData, Worst


# Number of results with the largest differences that are shown: a report has at most 25 lines.
_WORST = 3
# The unit of errors in the table.
_TIMES = "x expected"
# Factor by which the suggested budget exceeds one that did not suffice.
_MORE_CALLS = 16


def text_of(diagnosis: "DiagnosisData") -> str:
    """Return the text of a diagnosis, of at most about 25 lines."""
    text_rows = wrapped(headline(diagnosis), rest="  ")
    return "\n".join([*text_rows, details(diagnosis)])


def headline(diagnosis: "DiagnosisData") -> str:
    """Write the verdict and its reason in one line."""
    return f"{diagnosis.kind}: {diagnosis.reason}"


def details(diagnosis: "DiagnosisData") -> str:
    """Write the measured errors, the worst results, the calls and how to repeat the diagnosis."""
    f, g = ("f", "g") if diagnosis.calls else diagnosis.names
    label = "inputs" if diagnosis.calls else "arrays"
    text_rows = field(label, inputs_text(diagnosis)) + _errors(diagnosis, f, g)
    text_rows += _reference(diagnosis, f, g)
    if "compiled_parameters" in diagnosis.evidence:
        names = " and ".join(diagnosis.evidence["compiled_parameters"])
        text_rows += field("parameters", f"arrays compiled into {names} could not be perturbed")
    if "dtypes" in diagnosis.evidence:
        dtypes = diagnosis.evidence["dtypes"]
        text_rows += field("dtypes", "; ".join(f"{k} {_counted(dtypes[k])}" for k in ("f", "g")), 1)
    if "arrays" in diagnosis.evidence:
        text_rows += field("arrays", _arrays(diagnosis.evidence["arrays"], f, g), 1)
    if diagnosis.worst:
        text_rows += _worst(diagnosis, f, g)
    if diagnosis.where:
        text_rows += field("where", diagnosis.where)
    text_rows += field("bool", _truth(diagnosis))
    calls = calls_text(diagnosis.calls)
    spent = [calls] if calls else []
    spent += [f"{diagnosis.seconds:.2g} s", *_setting(diagnosis)]
    text_rows += field("calls" if calls else "environment", "; ".join(spent))
    text_rows += wrapped_code("again", again(diagnosis))
    step = next_step(diagnosis)
    if step is not None:
        text_rows += wrapped_code("next", COMMENT.join(filter(None, step)))
    return "\n".join(text_rows)


def _truth(diagnosis: "DiagnosisData") -> str:
    """Say whether a diagnosis is true, and which verdicts are."""
    *first, last = ("EQUAL", *ALLOWED)
    verdicts = f"{', '.join(first)} and {last}"
    if diagnosis.kind in ("EQUAL", *ALLOWED):
        return f"True, as for {verdicts}"
    return f"False; True for {verdicts}"


def again(diagnosis: "DiagnosisData", **changed: str) -> str:
    """Return the call that makes the same diagnosis, or one with changed arguments."""
    f, g = diagnosis.names
    if not diagnosis.calls:
        return f"calipers.compare_to_reference({f}, {g}, reference)"
    options = diagnosis.options | changed
    if diagnosis.seed:
        options["seed"] = str(diagnosis.seed)
    passed = [f, g, "inputs", *(f"{name}={code}" for name, code in options.items())]
    return f"calipers.diagnose({', '.join(passed)})"


def inputs_text(diagnosis: "DiagnosisData") -> str:
    """Write dtypes and shapes of the inputs, and the hash by which they are recognised."""
    digest = hashlib.sha256()
    kinds = []
    for x in diagnosis.inputs:
        if isinstance(x, np.ndarray):
            if not x.dtype.hasobject:  # references differ from process to process
                digest.update(np.ascontiguousarray(x).tobytes())
            kinds.append(f"{x.dtype} {x.shape}")
        else:
            kinds.append(type(x).__name__)
    return f"{_counted(kinds) or 'none'}; sha256 {digest.hexdigest()[:16]}"


def next_step(diagnosis: "DiagnosisData") -> tuple[str, str] | None:
    """Return code that continues from the verdict, and a comment; None if there is no need."""
    kind, evidence = diagnosis.kind, diagnosis.evidence
    (f, g), disputed = diagnosis.names, _is_disputed(diagnosis)
    if not diagnosis.calls:
        call, comment = (
            "calipers.diagnose(f, g, inputs)",
            "the functions that returned these arrays",
        )
        return (call, f"with {comment}") if kind in ("SUSPECT", "RANGE") else None
    errors = [evidence.get(name, {}).get("rms", 0.0) for name in ("f", "g")]
    less_exact = f if errors[0] > errors[1] else g
    if "budget" in evidence:
        return again(diagnosis, budget=str(_MORE_CALLS * evidence["budget"])), ""
    if kind == "RAISES":
        name = {"f": f, "g": g}.get(diagnosis.reason.partition(" ")[0])
        return None if name is None else (f"{name}({_arguments(diagnosis)})", "shows the traceback")
    if kind == "NONDETERMINISTIC" or (kind == "BUG" and evidence.get("repeats_differ")):
        name = f if evidence["repeats_differ"][0] == "f" else g
        return f"calipers.probes.repeat({name}, inputs, times=100)", "how often"
    if kind == "RANGE":
        return f"calipers.probes.range({less_exact}, inputs)", "where range is lost"
    if "loop_steps" in evidence:
        steps = str(evidence["loop_steps"])
        return again(diagnosis, reduction=steps), "if a loop has these steps"
    if kind in ("BUG", "SUSPECT", "UNSTABLE", "REDUCED") and evidence.get("same_modules"):
        return f"calipers.probes.layers({f}, {g}, inputs)", "the first layer that differs"
    if kind == "AMPLIFIED":
        return f"calipers.probes.condition({f}, inputs)", "digits to expect"
    if kind == "REDUCED":
        return f"{again(diagnosis)}.recommend_tolerance()", "if this is intended"
    if evidence.get("rule") == "undecided" and "compiled_parameters" in evidence:
        names = " and ".join(evidence["compiled_parameters"])
        comment = f"of functions that take the arrays compiled into {names}"
        return f"calipers.diagnose({f}, {g}, (inputs, arrays))", comment
    if disputed and len(evidence.get("higher_precision", ())) == 1:
        comment = f"reference: a function that computes in {higher_precision(diagnosis.dtype)}"
        return again(diagnosis, reference="reference"), comment
    in_one_precision = kind == "SUSPECT" and evidence.get("rule") == "undecided"
    if in_one_precision and "reference" not in diagnosis.options and "drop" in evidence:
        comment = f"if {g} is another implementation in {diagnosis.dtype}"
        return again(diagnosis, reference='"f"'), comment
    if kind in ("BUG", "SUSPECT", "UNSTABLE") and diagnosis.worst:
        worst = diagnosis.worst[0]
        both = f"[{_element(diagnosis, 'h', worst)} for h in ({f}, {g})]"
        return both if disputed else _element(diagnosis, less_exact, worst), "the worst result"
    return None


def compared(diagnosis: "DiagnosisData") -> list[str]:
    """Return the errors to report; not those of f and g if it is unknown which of them is right."""
    names = ("apart",) if _is_disputed(diagnosis) else ("f", "g", "apart")
    return [name for name in names if name in diagnosis.evidence]


def _is_disputed(diagnosis: "DiagnosisData") -> bool:
    """Return True if f and g are different functions, and the reference is one of them or none."""
    source = diagnosis.evidence.get("measured_from")
    return diagnosis.kind in ("BUG", "SUSPECT") and source != "reference"


def _counted(kinds: Iterable[str]) -> str:
    """Join items with commas, and count equal neighbours."""
    counts = [(kind, len([*group])) for kind, group in groupby(kinds)]
    return ", ".join(kind if count == 1 else f"{count} x {kind}" for kind, count in counts)


def _arguments(diagnosis: "DiagnosisData") -> str:
    return "*inputs" if diagnosis.unpacked else "inputs"


def _element(diagnosis: "DiagnosisData", name: str, worst: "Worst") -> str:
    """Return the code that evaluates one element of a function's results."""
    result = diagnosis.answers[0]
    key = result.names[worst.output] if result.names else ""
    if not key and len(result.shapes) > 1:
        key = f"[{worst.output}]"
    index = index_text(worst.index) if worst.index else ""
    return f"{name}({_arguments(diagnosis)}){key}{index}"


def _errors(diagnosis: "DiagnosisData", f: str, g: str) -> list[str]:
    """Write the table of errors with their limits, the unit of the errors, and the limits."""
    errors = {name: diagnosis.evidence[name] for name in compared(diagnosis)}
    if not errors:
        return []
    titles = {"f": f, "g": g, "apart": f"{f} - {g}"}
    limit, single = diagnosis.allowed, THRESHOLDS.single * diagnosis.allowed
    table = [["errors", *(titles[name] for name in errors), "allowed", ""]]
    has_limit = _is_rounded(diagnosis)
    for title, key, most, note in (
        (
            ("RMSE", "rms", limit, f" ({NORM})"),
            ("2-norm", "normwise", limit, f" ({NORM})"),
            ("max", "peak", single, f" ({ELEMENT})"),
        )
        if has_limit
        else ()
    ):
        sizes = (brief(x[key]) for x in errors.values())
        table.append([f"  {title}", *sizes, brief(most), _TIMES + note])
    table.append(["  RMSE", *(brief(x["absolute"]) for x in errors.values()), "", ""])
    if "wide" in diagnosis.evidence:
        size = brief(diagnosis.evidence["wide"]["absolute"])
        title = f"  in {higher_precision(diagnosis.dtype)}"
        table.append([title, *[""] * (len(errors) - 1), size, "", ""])
    widths = [max(9, 2 + len(titles[name])) for name in errors]
    text_rows = []
    for title, *cells, last, note in table:
        columns = zip(cells, widths, strict=True)
        row = f"  {title:15}" + "".join(f"{cell:>{width}}" for cell, width in columns)
        text_rows.append(f"{row}{last:>9}  {note}".rstrip())
    if not has_limit:
        return text_rows
    return [
        *text_rows,
        *field("expected", _expected(diagnosis), 3),
        *field("allowed", _limit(diagnosis)),
    ]


def _is_rounded(diagnosis: "DiagnosisData") -> bool:
    """Return True if some results are floating-point, so that rounding errors are expected."""
    return not all(result.integers.all() for result in diagnosis.answers)


def _limit(diagnosis: "DiagnosisData") -> str:
    """Write which of the norms the limit is for, and the length that it follows from."""
    if not diagnosis.calls:
        return f"smaller norm: {brief(diagnosis.allowed)} roundings"
    source = "(longest axis, or reduction=)"
    if "reduction" in diagnosis.options:
        source = "from reduction="
    return f"smaller norm: 4 + sqrt(n), n = {diagnosis.length} {source}"


def _reference(diagnosis: "DiagnosisData", f: str, g: str) -> list[str]:
    """Say whose result in higher precision errors are measured from, or that there is none."""
    evidence, source = diagnosis.evidence, diagnosis.evidence.get("measured_from")
    if not diagnosis.calls or "apart" not in evidence:
        return []
    precision = higher_precision(diagnosis.dtype)
    names = {"f": f, "g": g}
    if source is None:
        if "reference" in diagnosis.options:
            return field("reference", f"none, as reference={diagnosis.options['reference']} says")
        if "higher_precision" not in evidence:
            return []
        text = f"none: {f} cannot compute in {precision}"
        if evidence["higher_precision"]:
            text += f', and {g} alone is one only if asked for: reference="g"'
        return field("reference", f"{text}; pass reference=reference, a function that can", 3)
    if source not in names:
        return field("reference", f"the function reference= in {precision}")
    one, other = names[source], names["g" if source == "f" else "f"]
    text = f"{one} in {precision}"
    if evidence["rounds_inside"] is not None:
        text += f" ({names[evidence['rounds_inside']]} rounds to lower precision inside)"
    elif len(evidence["higher_precision"]) == 1:
        verb = "is not called" if "reference" in diagnosis.options else "cannot compute"
        text += f" ({other} {verb} in {precision}): an error of {one} itself cannot be seen; pass "
        text += "reference=reference"
    elif _is_disputed(diagnosis):
        text += f"; {other} in {precision} differs from it: either may be wrong"
    elif "wide" in evidence:
        text += f"; {other} in {precision} agrees with it"
    return field("reference", text, 3)


def _arrays(libraries: dict[str, str], f: str, g: str) -> str:
    """Say which arrays f and g are called with."""
    kinds = {
        name: f"{library} {'tensors' if library == 'torch' else 'arrays'}"
        for name, library in libraries.items()
    }
    if kinds["f"] == kinds["g"]:
        return f"{f} and {g} both get {kinds['f']}"
    return f"{f} gets {kinds['f']}, {g} gets {kinds['g']}"


def _worst(diagnosis: "DiagnosisData", f: str, g: str) -> list[str]:
    """Write the results that differ most; where 6 digits hide that, f and the difference."""
    alike = any(f"{worst.f:.6g}" == f"{worst.g:.6g}" for worst in diagnosis.worst)
    has_reference = diagnosis.worst[0].reference is not None and not _is_disputed(diagnosis)
    reference = f" {'reference':>13}" if has_reference else ""
    second = f"{f} - {g}" if alike else g
    is_rounded = _is_rounded(diagnosis)
    last = f" {'error/expected':>14}" if is_rounded else ""
    text_rows = [f"  {'worst':14} {f:>14} {second:>17}{reference}{last}"]
    for worst in diagnosis.worst[:_WORST]:
        index = index_text(worst.index) if worst.index else ""
        if len(diagnosis.shapes) > 1:
            index = f"{diagnosis.answers[0].title(worst.output)}{index}"
        other = f"{worst.f - worst.g:.3g}" if alike else f"{worst.g:.6g}"
        exact = f" {worst.reference:>13.6g}" if has_reference else ""
        units = f" {brief(worst.units):>14}" if is_rounded else ""
        row = f"    {index or 'result':12} {worst.f:>14.6g} {other:>17}{exact}{units}"
        text_rows.append(row[:WIDTH])
    return text_rows


def _expected(diagnosis: "DiagnosisData") -> str:
    if not diagnosis.calls:
        return f"rounding error: one rounding of the reference to {diagnosis.dtype}"
    kappa = diagnosis.evidence.get("kappa")
    form = diagnosis.dtype
    perturbed = dict.fromkeys(x.dtype.name for x in diagnosis.inputs if is_perturbable(x))
    integers = diagnosis.evidence.get("integers_as_numbers", False)
    if not (perturbed or integers):
        text = f"rounding error: one rounding of each result to {form}; no input is "
        return f"{text}floating-point, so none is perturbed"
    inputs = "inputs, also integers," if integers else f"{' and '.join(perturbed)} inputs"
    ulp = "1 ulp" if [*perturbed] == [form] and not integers else f"1 ulp of {form}"
    text = f"rounding error: the change of each result when the {inputs} change by {ulp}"
    is_known = kappa is not None and kappa > 0
    return f"{text}; condition number {kappa:.3g}" if is_known else text


def _setting(diagnosis: "DiagnosisData") -> list[str]:
    """Write the versions and settings that decide how numbers are rounded."""
    environment = diagnosis.environment
    versions = environment.get("versions", {})
    loaded = [f"{name} {versions[name]}" for name in ("numpy", "torch", "jax") if name in versions]
    settings = [", ".join(loaded)]
    if diagnosis.format == "tf32":
        flags = {name: value for name, value in environment.items() if "tf32" in name}
        settings += [f"{name.rpartition('backends.')[2]}={value}" for name, value in flags.items()]
    if environment.get("flushes_subnormals"):
        settings.append("subnormal numbers are flushed to 0")
    return settings


_F, _G, _BOUND = "#3b6ea5", "#c1272d", "0.4"
# Errors in the plot are clipped to this range, relative to the expected rounding error.
_SHOWN = 1e-3, 1e15
# Numbers in the plot are limited to this range, since axes reach beyond them.
_RANGE = 1e-290, 1e290


def diagnosis_figure(diagnosis: "DiagnosisData") -> "Figure":
    """Plot differences by size, errors of f and g, and the similarity under perturbations."""
    alike = diagnosis.evidence.get("likeness_by_move")
    figure = new_figure(figsize=(12 if alike else 9, 4), layout="constrained")
    figure.suptitle(f"{diagnosis.kind}: {diagnosis.reason}", fontsize=9, wrap=True)
    panels = figure.subplots(1, 3 if alike else 2)
    if not diagnosis.answers:
        for axes in panels:
            axes.set_axis_off()
        figure.text(0.5, 0.5, "there are no results to draw", ha="center", va="center")
        return figure
    _difference_panel(panels[0], diagnosis)
    _error_panel(panels[1], diagnosis)
    if alike:
        _similarity_panel(panels[2], alike, diagnosis.dtype)
    return figure


def _difference_panel(axes: Any, diagnosis: "DiagnosisData") -> None:
    from matplotlib.ticker import LogLocator

    f, g = diagnosis.answers
    size, errors = np.abs(g.numbers(np.float64)), np.abs(difference(f, g))
    shown = np.flatnonzero(_drawn(errors) & _drawn(size))
    if not shown.size:
        text = "there are no finite differences" if errors.any() else "all results are equal"
        show_text(axes, text)
        return
    if shown.size > 20000:
        shown = shown[:: shown.size // 20000 + 1]
    axes.loglog(size[shown], errors[shown], ".", markersize=2, color=_G, label="|f - g|")
    scale = float(np.clip(diagnosis.evidence.get("scale") or 1.0, *_RANGE))
    grid = np.geomspace(*_limits(size, scale), 100)
    roundoff = ROUNDOFF[diagnosis.dtype]
    bound = diagnosis.allowed * roundoff * np.hypot(grid, scale)
    axes.loglog(grid, bound, color=_BOUND, label=f"{diagnosis.allowed:.3g} x unit roundoff")
    axes.xaxis.set_minor_locator(LogLocator(subs=(2, 5)))  # a decade has no space for nine labels
    axes.set_xlabel("|g|, the size of a result")
    axes.set_ylabel("|f - g|")
    axes.legend(fontsize=8)


def _drawn(x: Any) -> Any:
    return (x > _RANGE[0]) & (x < _RANGE[1])


def _limits(size: Any, scale: float) -> tuple[float, float]:
    finite = size[_drawn(size)]
    low = float(finite.min()) if finite.size else scale
    high = float(finite.max()) if finite.size else scale
    return low, max(high, 10 * low)


def _error_panel(axes: Any, diagnosis: "DiagnosisData") -> None:
    names = compared(diagnosis) + ["wide"] * ("wide" in diagnosis.evidence)
    if not names:
        show_text(axes, "no errors were measured")
        return
    titles = {"f": "error of f", "g": "error of g", "apart": "f - g"}
    titles["wide"] = "f - g in higher\nprecision"
    sizes = [min(diagnosis.evidence[name][k] for k in ("rms", "normwise")) for name in names]
    values = [float(np.clip(size, *_SHOWN)) for size in sizes]
    colors = {"f": _F, "g": _G, "apart": "0.5", "wide": "0.75"}
    axes.bar([titles[n] for n in names], values, color=[colors[n] for n in names])
    axes.axhline(
        diagnosis.allowed, color=_BOUND, linestyle="--", label=f"limit {diagnosis.allowed:.3g}"
    )
    axes.set_yscale("log")
    axes.set_ylim(min(0.1, *values) / 2, 5 * max(diagnosis.allowed, *values))
    axes.set_xlim(-0.6, max(2, len(names)) - 0.4)
    axes.set_ylabel("error / expected rounding error")
    axes.tick_params(axis="x", labelsize=8)
    axes.legend(fontsize=8)


def _similarity_panel(axes: Any, alike: list[tuple[float, float]], dtype: str) -> None:
    perturbations, cosines = zip(*alike, strict=True)
    axes.semilogx(perturbations, cosines, "o-", color=_F, base=2)
    names: dict[float, list[str]] = {}
    for name, roundoff in ROUNDOFF.items():
        if min(perturbations) / 2 <= roundoff <= 2 * max(perturbations) and name != dtype:
            names.setdefault(roundoff, []).append(name)
    for roundoff, same in names.items():
        axes.axvline(roundoff, color=_BOUND, linewidth=0.7)
        text = " = ".join(same)
        axes.text(roundoff, -0.95, text, rotation=90, fontsize=7, va="bottom", ha="right")
    axes.axhline(0.5, color=_BOUND, linestyle="--", linewidth=0.7)
    axes.set_ylim(-1.0, 1.1)
    axes.set_xlabel("relative perturbation of the inputs")
    axes.set_ylabel("cosine of f - g before and after")
