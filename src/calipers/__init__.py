"""
Compiled answers to three questions of numerical code; the first: do two arrays agree?

The public names and the modules they come from are listed once, in ``__init__.pyi`` beside this
file, where type checkers and editors look for them too. A name's module is imported when the name
is first used (PEP 562), so that ``import calipers`` loads neither NumPy nor Numba.
"""

import pkgutil
import re
from importlib import import_module

_stub = (pkgutil.get_data(__name__, "__init__.pyi") or b"").decode()
_homes = {name: home for home, name in re.findall(r"^from (\S+) import (\w+) as", _stub, re.M)}

__all__ = sorted(_homes)
__version__ = "0.1.0"


def __getattr__(name: str) -> object:
    if name not in _homes:
        msg = f"module {__name__!r} has no attribute {name!r}"
        raise AttributeError(msg)
    home = _homes[name]
    # From "." come modules themselves.
    module = import_module(home + name if home == "." else home, __name__)
    value = module if home == "." else getattr(module, name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_homes})
