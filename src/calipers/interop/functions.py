"""Which library a function belongs to: that of the arrays it takes."""

from collections.abc import Sequence
from typing import Any

from .._protocols import FunctionLibrary
from .jax_functions import JaxFunctions
from .torch_functions import TorchFunctions

_LIBRARIES: tuple[FunctionLibrary, ...] = (TorchFunctions(), JaxFunctions())


def function_library(inputs: Sequence[Any]) -> FunctionLibrary | None:
    """Return the library that differentiates functions of these inputs, if there is one."""
    for library in _LIBRARIES:
        if any(library.owns(x) for x in inputs):
            return library
    return None
