"""What torch.testing compares of PyTorch tensors beside their elements, and which elements."""

import sys
from collections.abc import Iterable, Iterator
from typing import Any

# Where a compressed layout keeps the places of its values.
_INDICES = {
    "torch.sparse_csr": ("crow_indices", "col_indices"),
    "torch.sparse_csc": ("ccol_indices", "row_indices"),
    "torch.sparse_bsr": ("crow_indices", "col_indices"),
    "torch.sparse_bsc": ("ccol_indices", "row_indices"),
}


def require_known_layout(x: Any, name: str) -> None:
    """Refuse a tensor whose elements cannot be had; the name is for the error."""
    torch = sys.modules["torch"]
    if x.layout not in (torch.strided, torch.jagged, torch.sparse_coo) and (
        str(x.layout) not in _INDICES
    ):
        msg = f"{name} has layout {x.layout}, which is not compared: pass {name}.to_dense()"
        raise ValueError(msg)


def difference(actual: Any, expected: Any, names: Iterable[str]) -> str | None:
    """Describe the first difference in quantization or these attributes; None if there is none."""
    if actual.is_quantized != expected.is_quantized:
        return f"is_quantized differs: {actual.is_quantized} and {expected.is_quantized}"
    if actual.is_quantized and actual.qscheme() != expected.qscheme():
        return f"qscheme differs: {actual.qscheme()} and {expected.qscheme()}"
    strided = actual.layout == expected.layout == sys.modules["torch"].strided
    for name in names:
        if name == "stride" and not strided:
            continue
        first, second = (_attribute(x, name) for x in (actual, expected))
        if first != second:
            return f"{name} differs: {first} and {second}; check_{name}=False allows it"
    return None


def _attribute(x: Any, name: str) -> Any:
    return x.stride() if name == "stride" else getattr(x, name)


def members(actual: Any, expected: Any) -> Iterator[tuple[str, Any, Any, str | None]]:
    """
    Yield the strided tensors that two tensors consist of, as suffixes of a path and both sides.

    Or what is wrong with them, if indices differ. Meta tensors have none.
    """
    if "meta" in (actual.device.type, expected.device.type):
        return
    if actual.device != expected.device or actual.device.type not in ("cpu", "cuda"):
        actual, expected = actual.cpu(), expected.cpu()
    torch = sys.modules["torch"]
    strided = torch.strided
    if actual.layout != expected.layout:
        actual, expected = (x if x.layout == strided else x.to_dense() for x in (actual, expected))
    if actual.is_quantized:
        yield ".dequantize()", actual.dequantize(), expected.dequantize(), None
    elif actual.layout == strided:
        yield "", actual, expected, None
    elif actual.layout == torch.jagged:
        yield ".values()", actual.values(), expected.values(), None
    elif problem := _sparse_difference(actual, expected):
        yield "", actual, expected, problem
    elif actual.is_sparse:
        yield "._values()", actual._values(), expected._values(), None
    else:
        yield ".values()", actual.values(), expected.values(), None


def _sparse_difference(actual: Any, expected: Any) -> str | None:
    """Say how the places of the specified values differ, if they do."""
    coo = actual.is_sparse
    kind = str(actual.layout).removeprefix("torch.sparse_").upper()
    if coo and actual.sparse_dim() != expected.sparse_dim():
        numbers = f"{actual.sparse_dim()} and {expected.sparse_dim()}"
        return f"the number of sparse dimensions in sparse COO tensors differs: {numbers}"
    if actual._nnz() != expected._nnz():
        numbers = f"{actual._nnz()} and {expected._nnz()}"
        return f"the number of specified values in sparse {kind} tensors differs: {numbers}"
    for name in ("_indices",) if coo else _INDICES[str(actual.layout)]:
        # The dtype of indices may differ.
        a, b = (getattr(x, name)().long() for x in (actual, expected))
        if not a.equal(b):
            return f"Sparse {kind} {name.lstrip('_')} differ"
    return None
