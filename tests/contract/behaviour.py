"""Record the answers of calipers in files; `python -m tests.contract.behaviour` rewrites them.

Only public names are used, so that code can move without changes here. Each part is one file: a
JSON object with one record in each line. `near` says how close a new record has to be.
"""

import cmath
import difflib
import hashlib
import inspect
import json
import math
import re
import subprocess
import sys
import types
import warnings
from dataclasses import fields, is_dataclass
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

import numpy as np

import calipers
from tests.contract.texts import same
from tests.data import verdict_cases
from tests.data.derivative_cases import CASES
from tests.data.derivative_mutants import KINDS
from tests.data.gradcheck_models import MISTAKES, MODELS
from tests.data.sparse_derivative_cases import SPARSE_CASES

from . import sweeps
from .exact_functions import EXACT
from .reports import REPORTS, text_of

FOLDER = Path(__file__).with_name("behaviour")
PARTS = {}
# Beginnings of names of records that are left out: their text depends on the processor, on its
# BLAS, or on uninitialised memory.
UNSTEADY = (
    *("CASES linear_einsum", "CASES linear_first_for_float32_alone", "CASES matmul_batched"),
    *("CASES linear_for_float32_alone", "CASES linear_with_reference"),
    *("CASES perceptron_of_eight_layers", "FIELDS grey_of_bytes_at_ties"),
    *("FIELDS likelihood_of_a_process", "FIELDS principal_components"),
    *("FIELDS turns_by_three_angles", "FIELDS wave_of_float32_angles_on_both_sides"),
    *("EVERYDAY pairs_turned_as_complex_numbers", "EVERYDAY shared_keys_by_einsum"),
    *("REVIEWED exp_by_math", "REVIEWED pseudoinverse", "REVIEWED singular_vectors_by_gram"),
    *("REVIEWED unwritten_tile", "TRANSFORMS rows_turned_by_integers_from_8192"),
    *("attention no_scale", "brusselator doubled column", "fixed_point one_step_alone"),
    *("lstm_cell cell_forgotten", "lstm_cell slope_of_sigmoid_for_tanh"),
    *("CASES bfloat16_float32_sums", "FIELDS weights_stored_in_float32"),
    *("EVERYDAY orthogonal_by_classical_projections", "REVIEWED fit_by_normal_equations"),
    *("sinkhorn plan_transposed", "float32_inside"),
)
METHODS = ("2-point", "3-point", "5-point", "adaptive", "cs")


def part(collect):
    """Register a function that returns the records of one file."""
    PARTS[collect.__name__] = collect
    return collect


# diagnose


def diagnosed(groups, libraries=()):
    """Return the verdicts on pairs that need these libraries beyond NumPy and SciPy."""
    records = {}
    for group in groups:
        for case in getattr(verdict_cases, group):
            if set(case.needs) - {"scipy"} != set(libraries):
                continue
            f, g, inputs = case.make(np.random.default_rng(0))
            found = calipers.diagnose(f, g, inputs, **case.options)
            record = {"kind": found.kind, "format": found.format, "allowed": found.allowed}
            # Of slow functions there are fewer calls, as many as time allows.
            reason = re.sub(r"; \d+ calls would miss .*? %$", "", found.reason)
            record |= {"arguments": found.arguments, "reason": reason}
            records[f"{group} {case.name}"] = record
    return records


GROUPS = ("CASES", "HELD_OUT", "REVIEWED", "TRANSFORMS", "FIELDS", "EVERYDAY")


@part
def diagnose_cases():
    return diagnosed(["CASES"])


@part
def diagnose_fields():
    return diagnosed(["FIELDS"])


@part
def diagnose_others():
    return diagnosed([group for group in GROUPS if group not in ("CASES", "FIELDS")])


@part
def diagnose_torch():
    return diagnosed(GROUPS, ["torch"])


# gradcheck

WRONG_ENTRY = re.compile(r"d out\[.*?, tolerance [^\s;,]+")


def checked(f, inputs, **options):
    report = calipers.gradcheck(f, inputs, raise_exception=False, **options)
    return {
        "verdict": report.verdict,
        "reason": report.reason,
        "blocks": report.blocks,
        "counts": {name: count for name, count in report.counts.items() if count},
        "hidden": report.hidden,
    }


def models(fast_mode):
    variants = [(name, None) for name in MODELS] + [(name, which) for name, which, _ in MISTAKES]
    records = {}
    for name, mistake in variants:
        f, inputs, vjp = MODELS[name](mistake)
        record = checked(f, inputs, vjp=vjp, fast_mode=fast_mode)
        if fast_mode and record["reason"]:
            # Which of several wrong entries is named depends on rounding, so on the processor.
            record["reason"] = WRONG_ENTRY.sub("an entry is wrong", record["reason"])
        records[f"{name} {mistake}"] = record
    return records


@part
def gradcheck_models():
    return models(fast_mode=False)


@part
def gradcheck_models_fast_mode():
    return models(fast_mode=True)


def mutants(cases, kinds, check):
    """Return verdicts on the right Jacobian at the first point, and on its mutants."""
    records = {}
    for number, case in enumerate(cases):
        x = case.points[0]
        if x.dtype.kind != "f":
            continue
        jac = np.asarray(case.jac(x), float)
        jac = jac.reshape(np.shape(case.f(x)) + x.shape)
        records[f"{case.name} right"] = check(case.f, x, jac)
        for kind in kinds:
            wrong = KINDS[kind](jac.reshape(-1, x.size), np.random.default_rng([number, 0]))
            if wrong is not None:
                records[f"{case.name} {kind}"] = check(case.f, x, wrong.reshape(jac.shape))
    return records


@part
def gradcheck_mutants():
    return mutants(CASES, KINDS, lambda f, x, jac: checked(f, x, jac=lambda x: jac))


@part
def gradcheck_sparse_mutants():
    kinds = ("1e-04", "sign", "permuted")
    return mutants(SPARSE_CASES, kinds, lambda f, x, jac: checked(f, x, vjp=lambda x, w: w @ jac))


# Derivatives


def differentiated(f, x, is_exact=False, **options):
    """Return the record of a derivative: all bits if `is_exact`, else rounded sums of columns."""
    try:
        found = calipers.differentiate(f, x, **options)
    except ValueError as error:
        return {"raises": f"{type(error).__name__}: {error}"}
    record = {"status": " ".join(found.status.ravel().tolist()), "colors": found.colors}
    pairs = found.value, found.error
    if found.colors is not None:
        pairs = tuple(x.data for x in pairs)
    value, error = (np.atleast_1d(x) for x in pairs)
    if is_exact:
        record |= {"value": bits(value), "error": bits(error), "step": bits(found.step)}
        return record | {"nfev": found.nfev}
    columns = value.reshape(-1, x.size if value.ndim > 1 or value.size == x.size else 1)
    sums = np.arange(1, len(columns) + 1) @ columns
    largest = error[np.isfinite(error)].max(initial=0)
    record["values"] = [f"{v:.6e}" for v in sums[:20].tolist()]
    return record | {"largest_error": f"{largest:.0e}"}


def bits(x):
    """Return the numbers of an array in hexadecimal; of a large one the hash and the largest."""
    x = np.ascontiguousarray(x).view(x.real.dtype).ravel()
    if x.size <= 4:
        return [float(v).hex() for v in x]
    digest = hashlib.sha256(x.tobytes()).hexdigest()[:16]
    return [digest, float(x[np.abs(x).argmax()]).hex()]


@part
def derivative_cases():
    records = {}
    for case in CASES:
        for number, x in enumerate(case.points):
            for method in METHODS:
                name = f"{case.name} {number} {method}"
                records[name] = differentiated(case.f, x, method=method)
    for case in SPARSE_CASES:
        records[f"{case.name} dense"] = differentiated(case.f, case.points[0])
        pattern = np.asarray(case.jac(case.points[0])) != 0
        sparse = differentiated(case.f, case.points[0], sparsity=pattern, method="3-point")
        records[f"{case.name} sparse"] = sparse
    return records


@part
def derivative_bits():
    """Functions of arithmetic alone, whose results do not depend on the processor."""
    records = {}
    for name, (f, x, options) in EXACT.items():
        for method in METHODS if "method" not in options else (options["method"],):
            found = differentiated(f, x, is_exact=True, **options | {"method": method})
            records[f"{name} {method}"] = found
    return records


@part
def threshold_sweeps():
    return sweeps.records()


# Reports and public names


@part
def reports():
    return {name: {"text": text_of(make())} for name, make in REPORTS.items()}


@part
def command_line():
    """Run commands in another process, since pytest imports the package in its own way."""
    words = [sys.executable, "-m", "tests.contract.reports"]
    done = subprocess.run(words, capture_output=True, check=True, cwd=FOLDER.parents[2])
    return json.loads(done.stdout)


@part
def public_names():
    records = {}
    for path in ("calipers", "calipers.testing", "calipers.probes", "calipers.golden"):
        module = import_module(path)
        for name in module.__all__:
            x = getattr(module, name)
            if not isinstance(x, types.ModuleType) and _is_of_calipers(x):
                records[f"{path}.{name}"] = described(x)
    return records


def _is_of_calipers(x):
    return getattr(x, "__module__", "").partition(".")[0] == "calipers"


def described(x):
    if not inspect.isclass(x):
        return {"signature": signature(x)}
    bases = [base for base in x.__mro__[1:-1] if base.__module__ == "builtins"]
    bases += [base for base in x.__mro__[1:-1] if base.__name__ in calipers.__all__]
    names = [f.name for f in fields(x)] if is_dataclass(x) else list(getattr(x, "_fields", ()))
    inherited = {name for base in bases for name in dir(base)}
    members = {name: inspect.getattr_static(x, name) for name in dir(x) if name[0] != "_"}
    return {
        "bases": [base.__name__ for base in bases],
        "fields": names,
        "members": {
            name: signature(member) if callable(member) else "attribute"
            for name, member in members.items()
            if name not in inherited and name not in names
        },
    }


def signature(x):
    """Return the names, kinds and defaults of parameters; annotations may name private types."""
    found = inspect.signature(x)
    plain = [p.replace(annotation=inspect.Parameter.empty) for p in found.parameters.values()]
    text = str(inspect.Signature(plain))
    unpacked = re.search(r"Unpack\[(\w+)\]", str(found).partition(") -> ")[0])
    return f"{text} of {', '.join(sorted(keywords(unpacked[1])))}" if unpacked else text


def keywords(name):
    """Return the keys of the TypedDict that a signature unpacks."""
    for path in Path(calipers.__file__).parent.rglob("*.py"):
        if re.search(rf"^class {name}\(", path.read_text("utf-8"), re.M):
            parts = path.relative_to(Path(calipers.__file__).parent).with_suffix("").parts
            return getattr(import_module(".".join(("calipers", *parts))), name).__annotations__
    raise LookupError(name)


# Files


def collected(name):
    """Return the records of a part as they are after a file was read."""
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        records = PARTS[name]()
    return json.loads(json.dumps({k: v for k, v in records.items() if not k.startswith(UNSTEADY)}))


def stored(name):
    return json.loads((FOLDER / f"{name}.json").read_text("utf-8"))


def write(name):
    """Write the records of a part, one in each line."""
    records = sorted(collected(name).items())
    lines = [f"{json.dumps(key)}: {json.dumps(x, sort_keys=True)}" for key, x in records]
    text = "{\n" + ",\n".join(lines) + "\n}\n"
    (FOLDER / f"{name}.json").write_text(text, "utf-8")


def differences(before, after):
    """Return what differs in records, as lines: each name, what was before, and what is now."""
    lines = []
    for name in sorted({*before, *after}):
        old, new = (fields_of(records.get(name)) for records in (before, after))
        for field in sorted({*old, *new}):
            if field not in old or field not in new or not near(field, old[field], new[field]):
                texts = (str(fields.get(field, "nothing")).splitlines() for fields in (old, new))
                changes = difflib.unified_diff(*texts, n=0, lineterm="")
                lines += [f"{name}, {field}", *list(changes)[3:]]
    return lines


def fields_of(record, prefix=""):
    """Return the fields of nested records by their paths."""
    if not isinstance(record, dict):
        return {} if record is None and not prefix else {prefix: record}
    found = {}
    for name, value in record.items():
        found |= fields_of(value, f"{prefix}.{name}" if prefix else name)
    return found


def near(field, old, new):
    """Return True if two values are equal, except for what depends on the processor.

    Sums of derivatives agree to 5 digits, error estimates within a factor of 10, numbers in reasons
    within a factor of 4, and other numbers within a factor of 1.5, unless they are integers.
    """
    if isinstance(old, list) and isinstance(new, list):
        return len(old) == len(new) and all(
            near(field, *pair) for pair in zip(old, new, strict=True)
        )
    if field == "allowed":
        return bool(old == new)
    if field == "values" and old != new:
        return cmath.isclose(complex(old), complex(new), rel_tol=1e-5)
    if field == "reason":  # errors in units of rounding, with three digits
        return same(old, new, factor=4, largest_count=99)
    if field == "largest_error":
        small, large = sorted((float(old), float(new)))
        return large <= 10 * small + 1e-18
    if isinstance(old, str) and isinstance(new, str):
        return same(old, new)
    if isinstance(old, float) and isinstance(new, float):
        return math.isclose(old, new, rel_tol=0.5) or (math.isnan(old) and math.isnan(new))
    return type(old) is type(new) and old == new


def available(name):
    """Return True if what a part needs is installed."""
    needs = {"diagnose_torch": "torch", "command_line": "click"}.get(name)
    return needs is None or find_spec(needs) is not None


if __name__ == "__main__":
    for part_name in sys.argv[1:] or PARTS:
        if available(part_name):
            write(part_name)
