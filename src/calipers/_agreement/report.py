"""The text of a diagnosis: verdict, errors, worst results, and how to repeat and continue it."""

import hashlib
import textwrap
from collections.abc import Iterable
from dataclasses import replace
from itertools import groupby
from typing import TYPE_CHECKING, Any

import numpy as np

from .verdicts import AMPLIFIED, BUG, NONDETERMINISTIC, RAISES, RANGE, REDUCED, SUSPECT, UNSTABLE

if TYPE_CHECKING:
    from .diagnosis import Diagnosis, Worst

_WIDTH = 80
_CODE_WIDTH = 88  # characters; a comment that makes a line of code longer is left out
_MORE_CALLS = 4  # factor by which a budget that did not suffice is raised


def text_of(diagnosis: "Diagnosis") -> str:
    """Write a diagnosis in at most some 25 lines."""
    lines = textwrap.wrap(headline(diagnosis), _WIDTH, subsequent_indent="  ")
    return "\n".join([*lines, details(diagnosis)])


def headline(diagnosis: "Diagnosis") -> str:
    """Write the verdict and its reason in one line."""
    return f"{diagnosis.kind}: {diagnosis.reason}"


def details(diagnosis: "Diagnosis") -> str:
    """Write the measured errors, the worst results, the calls and how to repeat the diagnosis."""
    f, g = ("f", "g") if diagnosis.calls else diagnosis.names
    label = "inputs" if diagnosis.calls else "arrays"
    lines = field(label, inputs_text(diagnosis)) + _errors(diagnosis, f, g)
    if "dtypes" in diagnosis.evidence:
        dtypes = diagnosis.evidence["dtypes"]
        lines += field("dtypes", "; ".join(f"{k} {_counted(dtypes[k])}" for k in ("f", "g")), 1)
    if "arrays" in diagnosis.evidence:
        arrays = diagnosis.evidence["arrays"]
        lines += field("arrays", f"{f} is called with {arrays['f']}'s, {g} with {arrays['g']}'s", 1)
    if diagnosis.worst:
        lines += _worst(diagnosis, f, g)
    if diagnosis.where:
        lines += field("where", diagnosis.where)
    calls = ", ".join(f"{name} {count}" for name, count in diagnosis.calls.items())
    spent = [calls] if calls else []
    spent += [f"{diagnosis.seconds:.2g} s", *_setting(diagnosis)]
    lines += field("calls" if calls else "environment", "; ".join(spent))
    lines += code_lines("again", again(diagnosis))
    step = next_step(diagnosis)
    return "\n".join(lines + code_lines("next", step) if step else lines)


def field(label: str, text: str, most: int = 2) -> list[str]:
    """Write a label and its text, in at most so many lines."""
    return textwrap.wrap(
        text,
        _WIDTH,
        initial_indent=f"  {label:<12}",
        subsequent_indent=" " * 14,
        max_lines=most,
        placeholder=" ...",
    )


def again(diagnosis: "Diagnosis") -> str:
    """Return the call that makes the same diagnosis, with the arguments that are not defaults."""
    f, g = diagnosis.names
    if not diagnosis.calls:
        return f"calipers.compare_to_reference({f}, {g}, reference)"
    options = dict(diagnosis.options)
    if diagnosis.seed:
        options["seed"] = str(diagnosis.seed)
    passed = [f, g, "inputs", *(f"{name}={code}" for name, code in options.items())]
    return f"calipers.diagnose({', '.join(passed)})"


def inputs_text(diagnosis: "Diagnosis") -> str:
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
    """Return what both are called in code; f and g, where one has no name of its own."""
    both = getattr(f, "__name__", ""), getattr(g, "__name__", "")
    names = both[0] if both[0].isidentifier() else "f", both[1] if both[1].isidentifier() else "g"
    return ("f", "g") if names[0] == names[1] else names


def next_step(diagnosis: "Diagnosis") -> str | None:
    """Return code that continues from the verdict, with a comment; None if there is no need."""
    kind, evidence = diagnosis.kind, diagnosis.evidence
    names = dict(zip(("f", "g"), diagnosis.names, strict=True))
    if not diagnosis.calls:
        call = "calipers.diagnose(f, g, inputs)  # with the functions that returned these arrays"
        return call if kind in (SUSPECT, RANGE) else None
    errors = [evidence.get(name, {}).get("rms", 0.0) for name in ("f", "g")]
    less_exact = diagnosis.names[0 if errors[0] > errors[1] else 1]
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
    if kind in (BUG, SUSPECT, UNSTABLE) and diagnosis.worst:
        code = _element(diagnosis, less_exact, diagnosis.worst[0])
        return _commented(code, "the worst result; calipers.probes.layers finds the step")
    return None


def _counted(kinds: Iterable[str]) -> str:
    """Write a list, in which neighbours that are the same are counted."""
    counts = [(kind, len([*group])) for kind, group in groupby(kinds)]
    return ", ".join(kind if count == 1 else f"{count} x {kind}" for kind, count in counts)


def code_lines(label: str, code: str) -> list[str]:
    """Write code at the left margin; what has no room is continued, so that it can be pasted."""
    width = _CODE_WIDTH
    return textwrap.wrap(f"{label}: {code}", width, subsequent_indent="  ", break_long_words=False)


def _commented(code: str, comment: str) -> str:
    line = f"{code}  # {comment}"
    return line if len(f"next: {line}") <= _CODE_WIDTH else code


def _arguments(diagnosis: "Diagnosis") -> str:
    return "*inputs" if diagnosis.unpacked else "inputs"


def _element(diagnosis: "Diagnosis", name: str, worst: "Worst") -> str:
    """Return the code that evaluates one element of a function's results."""
    result = diagnosis.answers[0]
    key = result.names[worst.output] if result.names else ""
    if not key and len(result.shapes) > 1:
        key = f"[{worst.output}]"
    index = f"[{', '.join(map(str, worst.index))}]" if worst.index else ""
    return f"{name}({_arguments(diagnosis)}){key}{index}"


def _errors(diagnosis: "Diagnosis", f: str, g: str) -> list[str]:
    """Write the table of errors, the unit in which they are measured, and its limit."""
    sizes = [(k, diagnosis.evidence[k]) for k in ("f", "g", "apart") if k in diagnosis.evidence]
    if not sizes:
        return []
    titles = {"f": f, "g": g, "apart": f"{f} - {g}"}
    width = max(12, *(2 + len(title) for title in titles.values()))
    lines = [f"  {'errors':{width}} {'RMSE':>9} {'max':>9} {'2-norm':>9} {'abs. RMSE':>9}"]
    for name, size in sizes:
        cells = (size[k] for k in ("rms", "largest", "normwise", "absolute"))
        lines.append(
            f"  {f'  {titles[name]}':{width}}" + "".join(f" {_brief(x):>9}" for x in cells)
        )
    n = diagnosis.length
    limit = f"{_brief(diagnosis.allowed)} = 4 + sqrt(n), with n = {n} the length of reductions"
    return [*lines, *field("unit", _unit(diagnosis), 3), *field("limit", limit)]


def _worst(diagnosis: "Diagnosis", f: str, g: str) -> list[str]:
    """Write the results that differ most; where 6 digits hide that, f and the difference."""
    alike = any(f"{worst.f:.6g}" == f"{worst.g:.6g}" for worst in diagnosis.worst)
    reference = "" if diagnosis.worst[0].reference is None else f" {'reference':>13}"
    second = f"{f} - {g}" if alike else g
    lines = [f"  {'worst':14} {f:>14} {second:>17}{reference} {'error/unit':>10}"]
    for worst in diagnosis.worst:
        index = f"[{', '.join(map(str, worst.index))}]"
        if len(diagnosis.shapes) > 1:
            index = f"{diagnosis.answers[0].title(worst.output)}{index}"
        other = f"{worst.f - worst.g:.3g}" if alike else f"{worst.g:.6g}"
        exact = "" if worst.reference is None else f" {worst.reference:>13.6g}"
        row = f"    {index:12} {worst.f:>14.6g} {other:>17}{exact} {_brief(worst.units):>10}"
        lines.append(row[:_WIDTH])
    return lines


def _unit(diagnosis: "Diagnosis") -> str:
    if not diagnosis.calls:
        return f"one rounding of the reference to {diagnosis.dtype}"
    kappa = diagnosis.evidence.get("kappa")
    text = f"expected rounding error: the change of each result when the {diagnosis.dtype} inputs "
    text += "change by 1 ulp"
    condition = "" if kappa is None or kappa != kappa else f"; condition number {_brief(kappa)}"
    return text + condition


def _brief(x: Any) -> str:
    return f"{x:.3g}" if isinstance(x, float) else str(x)


def _setting(diagnosis: "Diagnosis") -> list[str]:
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
