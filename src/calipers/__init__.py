"""
Comparisons of arrays, checks of derivatives, and diagnosis of numerical differences.

- Do two arrays agree? `allclose`, `compare`, `assert_close`
- Is a derivative right? `jacobian`, `differentiate`, `gradcheck`
- Rounding error or bug? `diagnose`

`calipers.probes`, `calipers.golden` and `calipers.testing` are modules with more functions.
"""

import logging  # noqa: F401
import os
import pkgutil
import re
from _thread import RLock, get_ident
from importlib import import_module

# The public names and their modules are listed once, in the stub that type checkers read. A name's
# module is imported when the name is first used (PEP 562), so that `import calipers` loads neither
# NumPy nor Numba.
_stub = (pkgutil.get_data(__name__, "__init__.pyi") or b"").decode()
_homes = {name: home for home, name in re.findall(r"^from (\S+) import (\w+) as", _stub, re.M)}

# Who imports a module or compiles a kernel holds it, and a fork waits for it: the child would wait
# forever for what another thread of its parent has begun. Hooks that run before a fork are called
# in reverse order. logging's takes a lock that imports need, so it is registered before.
_first_use = RLock()
_importer = 0  # the thread that imports a module
if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=_first_use.acquire,
        after_in_parent=_first_use.release,
        after_in_child=_first_use.release,
    )

__all__ = sorted(_homes)
__version__ = "0.1.0"


def __getattr__(name: str) -> object:
    if name not in _homes:
        msg = f"module {__name__!r} has no attribute {name!r}"
        raise AttributeError(msg)
    home = _homes[name]
    # From "." come modules themselves.
    module = _imported(home + name if home == "." else home)
    value = module if home == "." else getattr(module, name)
    globals()[name] = value
    return value


def _imported(module: str) -> object:
    """Import a module of this package, which no fork cuts off and nothing on its thread enters."""
    global _importer
    if _importer == get_ident():
        msg = (
            "calipers was called by a signal handler or a finalizer while this thread imports it: "
            "call calipers.warmup() before, or compare after"
        )
        raise RuntimeError(msg)
    with _first_use:
        _importer = get_ident()
        try:
            return import_module(module, __name__)
        finally:
            _importer = 0


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__"])
