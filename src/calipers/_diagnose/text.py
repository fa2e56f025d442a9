"""The text of a diagnosis: verdict, errors, worst results, and how to repeat and continue it."""

import hashlib
from collections.abc import Iterable
from dataclasses import replace
from itertools import groupby
from typing import TYPE_CHECKING, Any

import numpy as np

from .._core.dtypes import ROUNDOFF
from .._core.report import (
    COMMENT,
    WIDTH,
    calls_text,
    field,
    index_text,
    name_in_code,
    new_figure,
    show_text,
    wrapped,
    wrapped_code,
)
from .inputs import is_perturbable
from .noise_level import difference
from .verdict import AMPLIFIED, BUG, NONDETERMINISTIC, RAISES, RANGE, REDUCED, SUSPECT, UNSTABLE

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from .verdict import DiagnosisData, Worst


# Number of results with the largest differences that are shown: a report has at most 25 lines.
_WORST = 3
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
    if "dtypes" in diagnosis.evidence:
        dtypes = diagnosis.evidence["dtypes"]
        text_rows += field("dtypes", "; ".join(f"{k} {_counted(dtypes[k])}" for k in ("f", "g")), 1)
    if "arrays" in diagnosis.evidence:
        text_rows += field("arrays", _arrays(diagnosis.evidence["arrays"], f, g), 1)
    if diagnosis.worst:
        text_rows += _worst(diagnosis, f, g)
    if diagnosis.where:
        text_rows += field("where", diagnosis.where)
    calls = calls_text(diagnosis.calls)
    spent = [calls] if calls else []
    spent += [f"{diagnosis.seconds:.2g} s", *_setting(diagnosis)]
    text_rows += field("calls" if calls else "environment", "; ".join(spent))
    text_rows += wrapped_code("again", again(diagnosis))
    step = next_step(diagnosis)
    return "\n".join(text_rows + wrapped_code("next", step) if step else text_rows)


def again(diagnosis: "DiagnosisData") -> str:
    """Return the call that makes the same diagnosis, with the arguments that are not defaults."""
    f, g = diagnosis.names
    if not diagnosis.calls:
        return f"calipers.compare_to_reference({f}, {g}, reference)"
    options = dict(diagnosis.options)
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


def names_in_code(f: Any, g: Any) -> tuple[str, str]:
    """Return the names of both functions in code; "f" and "g" if they have the same one."""
    names = name_in_code(f, "f", ("g",)), name_in_code(g, "g", ("f",))
    return ("f", "g") if names[0] == names[1] else names


def next_step(diagnosis: "DiagnosisData") -> str | None:
    """Return code that continues from the verdict, with a comment; None if there is no need."""
    kind, evidence = diagnosis.kind, diagnosis.evidence
    names = dict(zip(("f", "g"), diagnosis.names, strict=True))
    if not diagnosis.calls:
        call = "calipers.diagnose(f, g, inputs)  # with the functions that returned these arrays"
        return call if kind in (SUSPECT, RANGE) else None
    errors = [evidence.get(name, {}).get("rms", 0.0) for name in ("f", "g")]
    less_exact = diagnosis.names[0 if errors[0] > errors[1] else 1]
    is_disputed = _is_disputed(diagnosis)
    if "budget" in evidence:
        options = diagnosis.options | {"budget": str(_MORE_CALLS * evidence["budget"])}
        return again(replace(diagnosis, options=options))
    if kind == RAISES:
        name = names.get(diagnosis.reason.partition(" ")[0])
        return name and _commented(f"{name}({_arguments(diagnosis)})", "shows the traceback")
    if kind == NONDETERMINISTIC or (kind == BUG and evidence.get("repeats_differ")):
        name = names[evidence["repeats_differ"][0]]
        return _commented(f"calipers.probes.repeat({name}, inputs, times=100)", "how often")
    if kind == RANGE:
        return _commented(f"calipers.probes.range({less_exact}, inputs)", "where range is lost")
    if kind == AMPLIFIED:
        return _commented(f"calipers.probes.condition({names['f']}, inputs)", "digits to expect")
    if kind == REDUCED:
        return _commented(f"{again(diagnosis)}.recommend_tolerance()", "if this is intended")
    if is_disputed and len(evidence.get("higher_precision", ())) == 1:
        options = diagnosis.options | {"reference": "reference"}
        comment = f"reference: a function that computes in {_higher_precision(diagnosis)}"
        return _commented(again(replace(diagnosis, options=options)), comment)
    in_one_precision = kind == SUSPECT and evidence.get("rule") == "undecided"
    if in_one_precision and "reference" not in diagnosis.options and "drop" in evidence:
        options = diagnosis.options | {"reference": '"f"'}
        comment = f"if {diagnosis.names[1]} is another implementation in {diagnosis.dtype}"
        return _commented(again(replace(diagnosis, options=options)), comment)
    if kind in (BUG, SUSPECT, UNSTABLE) and diagnosis.worst:
        worst = diagnosis.worst[0]
        both = f"[{_element(diagnosis, 'h', worst)} for h in ({', '.join(diagnosis.names)})]"
        code = both if is_disputed else _element(diagnosis, less_exact, worst)
        return _commented(code, "the worst result")
    return None


def compared(diagnosis: "DiagnosisData") -> list[str]:
    """Return the errors to report; not those of f and g if it is unknown which of them is right."""
    names = ("apart",) if _is_disputed(diagnosis) else ("f", "g", "apart")
    return [name for name in names if name in diagnosis.evidence]


def _is_disputed(diagnosis: "DiagnosisData") -> bool:
    """Return True if f and g are different functions, and the reference is one of them or none."""
    source = diagnosis.evidence.get("measured_from")
    return diagnosis.kind in (BUG, SUSPECT) and source != "reference"


def _counted(kinds: Iterable[str]) -> str:
    """Join items with commas, and count equal neighbours."""
    counts = [(kind, len([*group])) for kind, group in groupby(kinds)]
    return ", ".join(kind if count == 1 else f"{count} x {kind}" for kind, count in counts)


def _commented(code: str, comment: str) -> str:
    return code + COMMENT + comment


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
    """Write the table of errors, the unit in which they are measured, and its limit."""
    sizes = [(name, diagnosis.evidence[name]) for name in compared(diagnosis)]
    if not sizes:
        return []
    titles = {"f": f, "g": g, "apart": f"{f} - {g}"}
    width = max(12, *(2 + len(title) for title in titles.values()))
    columns = {"rms": "RMSE/unit", "largest": "max/unit", "normwise": "2-norm/unit"}
    columns["absolute"] = "RMSE"
    rows = [["errors", *columns.values()]]
    rows += [[f"  {titles[name]}", *(_brief(size[k]) for k in columns)] for name, size in sizes]
    text_rows = [
        f"  {title:{width}} {rms:>9} {largest:>9} {norm:>11} {absolute:>9}"
        for title, rms, largest, norm, absolute in rows
    ]
    return [*text_rows, *field("unit", _unit(diagnosis), 3), *field("limit", _limit(diagnosis), 3)]


def _limit(diagnosis: "DiagnosisData") -> str:
    """Write the limit, which errors it applies to, and the length that it follows from."""
    errors = "for the smaller of RMSE/unit and 2-norm/unit"
    limit, n = _brief(diagnosis.allowed), diagnosis.length
    if not diagnosis.calls:
        return f"{limit} {errors}"
    source = "from reduction="
    if "reduction" not in diagnosis.options:
        source = "the longest axis of the inputs; reduction= changes it"
    return f"{limit} = 4 + sqrt(n) {errors}; n={n}, {source}"


def _reference(diagnosis: "DiagnosisData", f: str, g: str) -> list[str]:
    """Say which implementation is the reference, if its own errors cannot be seen."""
    source = diagnosis.evidence.get("measured_from")
    if source is None and "higher_precision" in diagnosis.evidence:
        text = f"none: {f} cannot compute in {_higher_precision(diagnosis)}"
        if diagnosis.evidence["higher_precision"]:
            text += f', and {g} alone is one only if asked for: reference="g"'
        return field("reference", f"{text}; pass reference=reference, a function that can", 3)
    if source not in ("f", "g"):
        return []
    one, other = (f, g) if source == "f" else (g, f)
    precision = _higher_precision(diagnosis)
    if len(diagnosis.evidence["higher_precision"]) == 1:
        verb = "is not called" if "reference" in diagnosis.options else "cannot compute"
        text = f"{one} in {precision} ({other} {verb} in {precision}): an error of {one} itself "
        return field("reference", f"{text}cannot be seen; pass reference=reference", 3)
    if not _is_disputed(diagnosis):
        return []
    text = f"{one} in {precision}; {other} in {precision} differs from it: either may be wrong"
    return field("reference", text)


def _higher_precision(diagnosis: "DiagnosisData") -> str:
    return "longdouble" if diagnosis.dtype == "float64" else "float64"


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
    text_rows = [f"  {'worst':14} {f:>14} {second:>17}{reference} {'error/unit':>10}"]
    for worst in diagnosis.worst[:_WORST]:
        index = index_text(worst.index)
        if len(diagnosis.shapes) > 1:
            index = f"{diagnosis.answers[0].title(worst.output)}{index}"
        other = f"{worst.f - worst.g:.3g}" if alike else f"{worst.g:.6g}"
        exact = f" {worst.reference:>13.6g}" if has_reference else ""
        row = f"    {index:12} {worst.f:>14.6g} {other:>17}{exact} {_brief(worst.units):>10}"
        text_rows.append(row[:WIDTH])
    return text_rows


def _unit(diagnosis: "DiagnosisData") -> str:
    if not diagnosis.calls:
        return f"one rounding of the reference to {diagnosis.dtype}"
    kappa = diagnosis.evidence.get("kappa")
    form = diagnosis.dtype
    perturbed = dict.fromkeys(x.dtype.name for x in diagnosis.inputs if is_perturbable(x))
    integers = diagnosis.evidence.get("integers_as_numbers", False)
    if not (perturbed or integers):
        text = f"expected rounding error: one rounding of each result to {form}; no input is "
        return f"{text}floating-point, so none is perturbed"
    inputs = "inputs, also integers," if integers else f"{' and '.join(perturbed)} inputs"
    ulp = "1 ulp" if [*perturbed] == [form] and not integers else f"1 ulp of {form}"
    text = f"expected rounding error: the change of each result when the {inputs} change by {ulp}"
    condition = "" if kappa is None or kappa != kappa else f"; condition number {_brief(kappa)}"
    return text + condition


def _brief(x: Any) -> str:
    return f"{x:.3g}" if isinstance(x, float) else str(x)


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
