"""Options of derivatives, and their validation."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from .._core.arguments import brief, require_bytes, unexpected_keyword
from .._core.types import (
    ArrayLike,
    BoundsLike,
    Method,
    ProgressLike,
    SparsityLike,
    Target,
    WorkersLike,
)
from .._execution.checkpoint import require_folder
from .steps import ADAPTIVE, require_method


@dataclass(frozen=True, kw_only=True)
class Options:
    """
    The keywords of `jacobian`, with their types and defaults.

    Its signature is made from them. Other derivatives take those that their TypedDict lists.
    """

    method: Method = "3-point"
    step: ArrayLike | None = None
    scale: ArrayLike | None = None
    bounds: BoundsLike | None = None
    sparsity: SparsityLike | None = None
    args: tuple[Any, ...] = ()
    kwargs: dict[str, Any] | None = None
    argnums: int | tuple[int, ...] = 0
    out_like: ArrayLike | None = None
    rowwise: bool = False
    batched: bool = False
    holomorphic: bool = False
    workers: WorkersLike | None = None
    progress: ProgressLike = False
    checkpoint: str | os.PathLike[str] | None = None
    memory_limit: float | None = None
    target: Target | None = None

    def __post_init__(self) -> None:
        require_method(self.method)
        if self.target not in (None, "cpu", "cuda"):
            msg = f"target must be None, 'cpu' or 'cuda', got {self.target!r}"
            raise ValueError(msg)
        if self.rowwise and self.out_like is None:
            msg = "rowwise=True needs out_like=, the shape of f's results or an array like them"
            raise ValueError(msg)
        if self.batched and (self.rowwise or self.out_like is not None):
            msg = "batched=True is for y = f(x): omit rowwise and out_like"
            raise ValueError(msg)
        if self.kwargs is not None:
            require_named(self.kwargs)
        if self.memory_limit is not None:
            require_bytes(self.memory_limit)
        if self.checkpoint is not None:
            require_folder(self.checkpoint)
        if type(self.args) is not tuple:
            object.__setattr__(self, "args", others_of(self.args))

    @property
    def has_defaults(self) -> bool:
        """Whether all options but the method are the defaults."""
        others = (field for field in fields(self) if field.name != "method")
        return all(getattr(self, field.name) is field.default for field in others)

    @property
    def adaptive(self) -> bool:
        return self.method == ADAPTIVE


def options_of(
    function: str, accepted: type[Any], named: tuple[str, ...] = (), /, **options: Any
) -> Options:
    """
    Return the options of a call of a public function, or raise if it does not accept one of them.

    It accepts args, argnums and the keys of the TypedDict `accepted`. The error lists them and
    `named`, the other keywords of the function.
    """
    keys = [field.name for field in fields(Options) if field.name in accepted.__optional_keys__]
    names = dict.fromkeys(("args", "argnums", *named, *keys))
    for name in options:
        if name not in names:
            raise unexpected_keyword(function, name, names)
    return Options(**options)


def others_of(args: Any) -> tuple[Any, ...]:
    """Return the other arguments of f as a tuple."""
    if not isinstance(args, (tuple, list)):
        msg = f"args must be a tuple of the other arguments of f, got {brief(args)}: write (value,)"
        raise TypeError(msg)
    return tuple(args)


def require_named(kwargs: Any) -> None:
    """Raise if kwargs is not a dict with str keys."""
    if not isinstance(kwargs, Mapping) or not all(isinstance(name, str) for name in kwargs):
        msg = f"kwargs must be a dict of f's arguments by name, got {brief(kwargs)}"
        raise TypeError(msg)
