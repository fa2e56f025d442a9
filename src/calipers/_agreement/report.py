"""The text of a diagnosis: a headline, both sides, the worst elements, and how to see it again."""

import textwrap
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .diagnosis import Diagnosis

_WIDTH = 80


def text_of(found: "Diagnosis") -> str:
    """Write a diagnosis in at most some 25 lines."""
    lines = textwrap.wrap(headline(found), _WIDTH, subsequent_indent="  ")
    return "\n".join([*lines, details(found)])


def headline(found: "Diagnosis") -> str:
    """Write the verdict and its reason in one line."""
    return f"{found.kind}: {found.reason}"


def details(found: "Diagnosis") -> str:
    """Write what the verdict rests on: errors, the worst results, calls and how to repeat it."""
    lines = []
    evidence = found.evidence
    sides = [(name, evidence[name]) for name in ("f", "g", "apart") if name in evidence]
    f, g = ("f", "g") if found.calls else found.names
    if sides:
        titles = {"f": f"error of {f}", "g": f"error of {g}", "apart": f"{f} - {g}"}
        width = max(12, *map(len, titles.values()))
        lines.append(f"  {'':{width}} {'rms':>9} {'largest':>9} {'normwise':>9} {'absolute':>9}")
        for name, size in sides:
            cells = (size[k] for k in ("rms", "largest", "normwise", "absolute"))
            lines.append(f"  {titles[name]:{width}}" + "".join(f" {_brief(x):>9}" for x in cells))
        unit = f"  in units of rounding ({_unit(found)}); allowed: {_brief(found.allowed)}"
        lines += textwrap.wrap(unit, _WIDTH, subsequent_indent="    ")
    if "dtypes" in evidence:
        of_f, of_g = (", ".join(evidence["dtypes"][name]) for name in ("f", "g"))
        told = f"{f} gives {of_f}, and {g} {of_g}" if found.calls else f"{of_f} and {of_g}"
        lines += textwrap.wrap(f"  dtypes: {told}", _WIDTH, max_lines=1, placeholder=" ...")
    if "arrays" in evidence:
        given = evidence["arrays"]
        lines.append(
            f"  {f} is called with arrays of {given['f']}, and {g} of {given['g']}"[:_WIDTH]
        )
    if found.worst:
        lines += _worst(found, f, g)
    if found.where:
        lines += textwrap.wrap(f"  where: {found.where}", _WIDTH, subsequent_indent="    ")
    calls = " and ".join(
        f"{count} call{'' if count == 1 else 's'} of {name}" for name, count in found.calls.items()
    )
    calls = calls or "arrays alone"
    lines += textwrap.wrap(
        f"  {calls}, {found.seconds:.2g} s; {_setting(found.environment)}",
        _WIDTH,
        subsequent_indent="    ",
        max_lines=2,
        placeholder=" ...",
    )
    for line in found.reproducer.splitlines():
        more = "  # " if line.startswith("#") else "      "  # it can be run as it stands
        lines += textwrap.wrap(f"  {line}", _WIDTH, subsequent_indent=more, break_long_words=False)
    return "\n".join(lines)


def _worst(found: "Diagnosis", f: str, g: str) -> list[str]:
    """Write what is farthest apart; where digits do not show that, one side and the difference."""
    alike = any(f"{worst.f:.7g}" == f"{worst.g:.7g}" for worst in found.worst)
    named = "" if found.worst[0].reference is None else f" {'reference':>13}"
    other = f"{f} - {g}" if alike else g
    lines = [f"  {'worst':14} {f:>14} {other:>14}{named} {'units':>9}"]
    for worst in found.worst:
        index = f"[{', '.join(map(str, worst.index))}]"
        if len(found.shapes) > 1:
            index = f"{found.answers[0].title(worst.output)}{index}"
        second = f"{worst.f - worst.g:.3g}" if alike else f"{worst.g:.7g}"
        reference = "" if worst.reference is None else f" {worst.reference:>13.7g}"
        values = f"{worst.f:>14.7g} {second:>14}{reference}"
        lines.append(f"  {index:14} {values} {_brief(worst.units):>9}"[:_WIDTH])
    return lines


def _unit(found: "Diagnosis") -> str:
    if not found.calls:
        return f"what {found.dtype} rounds by"
    kappa = found.evidence.get("kappa")
    told = f"what a last place of {found.dtype} inputs does"
    return (
        told if kappa is None or kappa != kappa else f"{told}; {_brief(kappa)} of the result's own"
    )


def _brief(x: Any) -> str:
    return f"{x:.3g}" if isinstance(x, float) else str(x)


def _setting(environment: dict[str, Any]) -> str:
    """Write what of the environment decides how numbers are rounded."""
    versions = environment.get("versions", {})
    told = [f"{name} {versions[name]}" for name in ("numpy", "torch", "jax") if name in versions]
    told += [f"{name}={value}" for name, value in environment.items() if "tf32" in name]
    if environment.get("flushes_subnormals"):
        told.append("subnormal numbers are flushed to 0")
    return ", ".join(told)
