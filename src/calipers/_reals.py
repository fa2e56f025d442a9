"""Arrays as vectors of real numbers: a complex one is two of them."""

from ._dtypes import DType
from ._protocols import NDArray


def reals(x: NDArray) -> NDArray:
    """View a contiguous array as the vector of its real numbers."""
    flat = x.reshape(-1)
    return flat.view(flat.real.dtype) if flat.dtype.kind == "c" else flat


def real_parts(dtype: DType) -> int:
    """Return how many real numbers an element is."""
    return 2 if dtype.kind == "c" else 1
