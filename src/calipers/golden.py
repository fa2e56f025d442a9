"""
Regression tests against recorded results: record and check.

A record is a .npz file that `numpy.load` reads without pickle. Its array ``about`` is a JSON text
with versions, threads, precision settings and hashes.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

import numpy as np

from ._core.arguments import warn
from ._core.containers import as_tuple
from ._core.environment import changes, fingerprint
from ._core.libraries import library_of
from ._core.protocols import NDArray
from ._core.report import Report, index_text, labelled
from ._core.types import PyTree
from ._diagnose.arrays import Result, as_inputs
from ._diagnose.noise_level import difference, finite_rms
from ._gradcheck.report import CalipersWarning
from ._probes.trials import (
    ProbedFunction,
    Trial,
    describe_difference,
    trial,
    unlimited_implementation,
)

__all__ = ["GoldenCheck", "check", "record"]


def __dir__() -> list[str]:
    return __all__


_MARK = "calipers golden record"
_VERSION = 1  # version of the format of golden records
_KEYS = {"version", "inputs", "stored", "results", "allowed", "environment"}
# Inputs of more bytes are recorded by their hash only.
_STORED_BYTES = 1 << 24
# Number of changes of the environment that the text shows.
_MAX_CHANGES = 12


@dataclass(frozen=True, repr=False)
class GoldenCheck(Report):
    """
    The result of a comparison with a record; it is true if the results agree within rounding.

    It is returned by `check`.

    Attributes
    ----------
    kind : {"EQUAL", "ROUNDING", "DIFFERENT", "RAISES"}
        Bitwise equal, equal within rounding, different, or an exception.
    reason : str
        One sentence.
    trial : Trial
        The difference, in units of the rounding error that was measured when the record was made.
    changes : tuple of str
        Versions, thread counts and precision settings that have changed since.

    Examples
    --------
    >>> import os, tempfile
    >>> import numpy as np
    >>> from calipers import golden
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = os.path.join(folder, "exp.npz")
    ...     golden.record(path, np.exp, np.arange(3.0))
    ...     found = golden.check(path, np.exp)
    >>> found.kind, bool(found)
    ('EQUAL', True)
    """

    kind: str
    reason: str
    trial: Trial
    changes: tuple[str, ...]

    def __bool__(self) -> bool:
        """Return True if the results are equal within rounding."""
        return self.kind in ("EQUAL", "ROUNDING")

    def __str__(self) -> str:
        """Return the verdict, the reason, and the changes since."""
        text_rows = [f"{self.kind}: {self.reason}"]
        text_rows += [labelled("changed", text[:72]) for text in self.changes[:_MAX_CHANGES]]
        if len(self.changes) > _MAX_CHANGES:
            text_rows.append(
                labelled("changed", f"{len(self.changes) - _MAX_CHANGES} more: see .changes")
            )
        return "\n".join(text_rows)

    def _contents(self) -> dict[str, Any]:
        return super()._contents() | {"passed": bool(self), "trial": self.trial.to_dict()}


def record(path: str | os.PathLike[str], f: Callable[..., Any], inputs: PyTree) -> None:
    """
    Record the results of a function in a file, with the versions and settings they may depend on.

    Parameters
    ----------
    path : str or path
        The file, which has the format .npz whatever its name is. An existing file is replaced when
        the new one is complete.
    f : callable
        A function of the inputs. It is called about ten times, to measure the effect of rounding.
    inputs : array or number, or a tuple or list of them
        Arguments of f. NumPy arrays and numbers of up to 16 MB are stored, so that `check` needs no
        inputs. Of larger ones, and of arrays of other libraries, only a hash is stored: pass a
        tensor as ``x.numpy()`` to store it.

    Warns
    -----
    CalipersWarning
        If a second call of f returns a different result, by more than rounding.

    Raises
    ------
    TypeError
        If an input is neither an array of numbers nor a number, string or None.
    Exception
        Whatever f raises at the inputs.
    FileNotFoundError
        If the folder of the file does not exist.

    See Also
    --------
    check : Compare with the record.

    Examples
    --------
    >>> import os, tempfile
    >>> import numpy as np
    >>> from calipers import golden
    >>> folder = tempfile.TemporaryDirectory()
    >>> path = os.path.join(folder.name, "norms.npz")
    >>> golden.record(path, lambda x: np.linalg.norm(x, axis=1), np.ones((5, 3)))
    >>> golden.check(path, lambda x: np.sqrt((x * x).sum(1))).kind
    'EQUAL'
    >>> golden.check(path, lambda x: np.abs(x).sum(1)).kind
    'DIFFERENT'
    >>> folder.cleanup()
    """
    path = os.path.realpath(os.fsdecode(path))  # so that a link is not replaced
    if not os.path.isdir(os.path.dirname(path)):
        msg = f"path is {path!r}, but its folder does not exist: create it first"
        raise FileNotFoundError(msg)
    described, stored = _described(inputs), _is_stored(inputs)
    probed = ProbedFunction(f, inputs)
    again = probed.compare("second call", probed.implementation(probed.inputs))
    if not again:
        warn(f"f is not deterministic ({again}): the first result is recorded", CalipersWarning)
    arrays = {f"result{k}": x for k, x in enumerate(probed.result.arrays)}
    arrays["unit"] = probed.evidence.steady_scale
    if stored:
        arrays |= {f"input{k}": x for k, x in enumerate(probed.inputs) if isinstance(x, np.ndarray)}
    about = {
        "mark": _MARK,
        "version": _VERSION,
        "inputs": described,
        "stored": stored,
        "results": len(probed.result.arrays),
        "names": probed.result.names,
        "dtypes": probed.result.dtypes,
        "allowed": probed.evidence.allowed,
        "environment": fingerprint(),
    }
    arrays["about"] = np.array(json.dumps(about, indent=1))
    # An existing record is replaced only by a complete new one, also with concurrent writers.
    part = f"{path}.{uuid4().hex}.part"
    try:
        with open(part, "wb") as file:
            np.savez_compressed(file, allow_pickle=False, **arrays)
        if os.path.exists(path):
            shutil.copymode(path, part)
        os.replace(part, path)
    finally:
        if os.path.exists(part):
            os.remove(part)


def check(
    path: str | os.PathLike[str], f: Callable[..., Any], inputs: PyTree | None = None
) -> GoldenCheck:
    """
    Compare the results of a function with a record.

    Parameters
    ----------
    path : str or path
        A file that `record` wrote.
    f : callable
        The function. It is called once.
    inputs : array or number, or a tuple or list of them, optional
        The recorded arguments, if the record has only their hash. By default those of the record.

    Returns
    -------
    GoldenCheck
        True if the results agree within rounding.

    Raises
    ------
    ValueError
        If the file is not a complete record, inputs are missing, or they are not the recorded ones.
    OSError
        If the file cannot be read.

    See Also
    --------
    record : Write the file.

    Examples
    --------
    >>> import os, tempfile
    >>> import numpy as np
    >>> from calipers import golden
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = os.path.join(folder, "sums.npz")
    ...     golden.record(path, np.sum, np.arange(10.0))
    ...     bool(golden.check(path, lambda x: x.cumsum()[-1]))
    True
    """
    about, arrays = _read(path)
    arguments = _inputs(path, about, arrays) if inputs is None else as_tuple(inputs)
    if inputs is not None:
        _require_same(path, about["inputs"], _described(inputs))
    result = unlimited_implementation("f", f, arguments)(as_inputs(arguments))
    results = tuple(arrays[f"result{k}"] for k in range(about["results"]))
    # Old records have no names, and no dtypes of results stored in higher precision.
    names, dtypes = (tuple(about.get(*x)) for x in (("names", result.names), ("dtypes", ())))
    expected = Result(results, names=names, native_dtypes=dtypes or result.dtypes)
    comparison = trial("f", result, expected, lambda: arrays["unit"], about["allowed"])
    since = tuple(changes(about["environment"], fingerprint()))
    kind, reason = _kind(result, comparison), _reason(comparison)
    if kind == "DIFFERENT" and comparison.problem is None:
        reason += f"; {_worst(result, expected, arrays['unit'])}"
    return GoldenCheck(kind, reason, comparison, since)


def _kind(result: Result, comparison: Trial) -> str:
    if result.error is not None:
        return "RAISES"
    return "EQUAL" if comparison.equal else "ROUNDING" if comparison else "DIFFERENT"


def _reason(comparison: Trial) -> str:
    if comparison.problem is not None:
        return comparison.problem
    if comparison.equal:
        return f"all {comparison.size} elements are equal to the last bit"
    return describe_difference(comparison, comparison.allowed)


def _worst(result: Result, expected: Result, unit: NDArray) -> str:
    """Name the element with the largest difference, in units of the expected rounding error."""
    units = np.concatenate([np.maximum(u, finite_rms(u)) for u in expected.split(unit)])
    with np.errstate(all="ignore"):
        errors = np.abs(difference(result, expected)) / units
    errors[np.isnan(errors)] = np.where(units > 0, np.inf, 0.0)[np.isnan(errors)]
    k = int(np.argmax(errors))
    output, index = expected.locate(k)
    key = expected.names[output] if expected.names else ""
    if not key and len(expected.arrays) > 1:
        key = f"[{output}]"
    element = index_text(index) if index else ""
    now, then = (x.arrays[output][index] for x in (result, expected))
    texts = [f"{x:.6g}" if x.dtype.kind in "fc" else str(x) for x in (now, then)]
    return f"out{key}{element} is {texts[0]}, and was {texts[1]}"


# Inputs


def _described(inputs: Any) -> list[Any]:
    """Describe inputs by hashes of arrays and by other values, which identify them."""
    described: list[Any] = []
    for k, x in enumerate(as_inputs(inputs)):
        if isinstance(x, np.ndarray):
            if x.dtype.kind not in "biufc" and x.dtype.isbuiltin != 2:
                msg = f"inputs[{k}] must be an array of numbers, got dtype {x.dtype}"
                raise TypeError(msg)
            native = np.ascontiguousarray(x, x.dtype.newbyteorder("="))
            digest = hashlib.sha256(native.tobytes()).hexdigest()
            described.append({"dtype": native.dtype.name, "shape": [*x.shape], "sha256": digest})
        elif x is None or isinstance(x, bool | int | str):
            described.append({"value": x})
        else:
            msg = (
                f"inputs[{k}] must be an array, a number, a string or None, "
                f"got {type(x).__name__}; bind it to f, for example with functools.partial"
            )
            raise TypeError(msg)
    return described


def _is_stored(inputs: Any) -> bool:
    """Return True if inputs are stored: NumPy arrays, within the limit, of NumPy's dtypes."""
    likes, arrays = as_tuple(inputs), as_inputs(inputs)
    return not any(map(library_of, likes)) and (
        sum(x.nbytes for x in arrays if isinstance(x, np.ndarray)) <= _STORED_BYTES
        and not any(isinstance(x, np.ndarray) and x.dtype.isbuiltin == 2 for x in arrays)
    )


def _inputs(path: Any, about: dict[str, Any], arrays: dict[str, NDArray]) -> tuple[Any, ...]:
    if not about["stored"]:
        msg = f"{path} has only a hash of its inputs; pass the same inputs again"
        raise ValueError(msg)
    # Scalars are returned as scalars, as the function got them.
    return tuple(
        x["value"] if "value" in x else arrays[f"input{k}"][()]
        for k, x in enumerate(about["inputs"])
    )


def _require_same(path: Any, expected: Sequence[Any], inputs: Sequence[Any]) -> None:
    if len(expected) != len(inputs):
        msg = f"{path} was recorded with {len(expected)} inputs, got {len(inputs)}"
        raise ValueError(msg)
    for k, (one, other) in enumerate(zip(expected, inputs, strict=True)):
        if one != other:
            texts = [
                f"{x['dtype']} of shape {tuple(x['shape'])} and hash {x['sha256'][:8]}"
                if "sha256" in x
                else repr(x["value"])
                for x in (one, other)
            ]
            msg = f"inputs[{k}] must be as recorded in {path}: {texts[0]}, got {texts[1]}"
            raise ValueError(msg)


# Files


def _read(path: Any) -> tuple[dict[str, Any], dict[str, NDArray]]:
    """Read and validate a record; raise ValueError for any other file."""
    try:
        # Opened here, since NumPy would not close a file that it cannot read.
        with open(path, "rb") as stream, np.load(stream, allow_pickle=False) as file:
            arrays = dict(file)
        about = json.loads(str(arrays["about"]))
        if about["mark"] != _MARK or not _KEYS <= about.keys():
            raise ValueError
    except OSError:
        raise
    except Exception as error:  # from the readers of zip files, arrays and JSON
        kind = type(error).__name__
        msg = f"{path} is not a golden record, or incomplete ({kind}); record it again"
        raise ValueError(msg) from error
    if about["version"] != _VERSION:
        msg = f"{path} has format version {about['version']}, and this calipers reads {_VERSION}"
        raise ValueError(msg + "; record it again")
    needed = [f"result{k}" for k in range(about["results"])] + ["unit"]
    if about["stored"]:
        needed += [f"input{k}" for k, x in enumerate(about["inputs"]) if "sha256" in x]
    missing = [name for name in needed if name not in arrays]
    if missing:
        msg = f"{path} is incomplete: it has no {', '.join(missing)}; record it again"
        raise ValueError(msg)
    return about, arrays
