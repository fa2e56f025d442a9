"""Layers of packages, the names by which they are entered, no circle of imports; constants."""

import ast
import io
import re
import tokenize
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from pathlib import Path

SOURCES = Path(__file__).parents[2] / "src"
FACE = "calipers"  # the public modules: what stands in no package

# What each package may import: of those below it only. `_cuda` is above what it works for, which
# calls it by `device_module`, once an array is on a device. The adapters of libraries and `_core`
# import each other.
LAYERS = {
    FACE: "_cli _gradcheck _probes _diagnose _compare _core interop",
    "_cli": "calipers _gradcheck _files _cuda _compare _kernels _core",
    "_files": "_compare _kernels _core interop",
    "_cuda": "_gradcheck _derivatives _compare _execution _kernels _core",
    "_probes": "_diagnose _compare _execution _kernels _core",
    "_diagnose": "_compare _execution _kernels _core",
    "_gradcheck": "_derivatives _compare _execution _kernels _core interop",
    "_derivatives": "_compare _execution _kernels _core interop",
    "_compare": "_execution _kernels _core interop",
    "_execution": "_core",
    "_kernels": "_core",
    "_core": "interop",
    "interop": "_core",
}
MUTUAL = [{"_core", "interop"}]

# Packages that other packages may use for more than ten names, and for how many: fewer each time.
# What all others stand on is used module by module, by each package for at most so many names.
MOST = 10
WIDE = {"_compare": 22, "_derivatives": 45, "_diagnose": 38, "_execution": 18, "_files": 13}
LIBRARIES = ("_core", "_kernels", "interop")
WIDE_MODULES = {
    "_core.arrays": 19,
    "_core.dtypes": 19,
    "_core.types": 15,
    "_core.arguments": 11,
    "_core.report": 12,
    "_kernels.accumulators": 14,
    "_kernels.coloring": 16,
    "_kernels.differences": 16,
}


@cache
def modules() -> dict[str, Path]:
    """Return the files of all modules by their names."""
    found = {}
    for path in sorted((SOURCES / "calipers").rglob("*.py")):
        parts = path.relative_to(SOURCES).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


@cache
def trees() -> dict[str, ast.Module]:
    return {name: ast.parse(path.read_text()) for name, path in modules().items()}


def absolute(name: str, level: int, package: str) -> str:
    """Return the name of a module that a package imports by `level` dots and a name."""
    above = package.split(".")[: -level + 1 or None] if level else []
    return ".".join([*above, *filter(None, [name])])


def imports(importer: str) -> Iterator[tuple[str, str]]:
    """Yield each module of calipers that a module imports, and the name that it takes from it."""
    known, path = modules(), modules()[importer]
    package = importer if path.name == "__init__.py" else importer.rpartition(".")[0]
    for node in ast.walk(trees()[importer]):
        if isinstance(node, ast.ImportFrom):
            module = absolute(node.module or "", node.level, package)
            for name in (alias.name for alias in node.names):
                submodule = f"{module}.{name}"
                yield (submodule, "*") if submodule in known else (module, name)
        elif isinstance(node, ast.Import):
            yield from ((alias.name, "*") for alias in node.names)
        elif isinstance(node, ast.Call) and ast.unparse(node.func).endswith("import_module"):
            name = getattr(node.args[0], "value", None)
            if isinstance(name, str):
                rest = name.lstrip(".")
                yield absolute(rest, len(name) - len(rest), package), "*"


@cache
def edges() -> list[tuple[str, str, str]]:
    """Return all imports within calipers: importer, module, name."""
    found = {(name, module, taken) for name in modules() for module, taken in imports(name)}
    return sorted(edge for edge in found if edge[1] in modules() and edge[0] != edge[1])


def package_of(module: str) -> str:
    package = module.split(".")[1] if "." in module else FACE
    return package if package in LAYERS else FACE


def test_packages_import_only_those_below():
    assert {package_of(name) for name in modules()} == set(LAYERS)
    wrong = [
        f"{name} imports {module}"
        for name, module, _ in edges()
        if (pair := (package_of(name), package_of(module)))[0] != pair[1]
        and pair[1] not in LAYERS[pair[0]].split()
    ]
    assert not wrong


def test_the_table_is_in_the_order_of_the_layers():
    order = list(LAYERS)
    for package, below in LAYERS.items():
        for other in below.split():
            lower = order.index(other) > order.index(package)
            assert lower or {package, other} in MUTUAL or other == FACE


def used_names() -> tuple[dict[str, set[str]], dict[tuple[str, str], set[str]]]:
    """Return what other packages take from each package, and each from a module of a library."""
    packages, libraries = defaultdict(set), defaultdict(set)
    for name, module, taken in edges():
        user, package = package_of(name), package_of(module)
        if user in (package, FACE) or package == FACE:
            continue
        if package in LIBRARIES:
            libraries[user, module.partition(".")[2]].add(taken)
        else:
            packages[package].add(f"{module}.{taken}")
    return packages, libraries


def test_packages_are_entered_by_few_names():
    packages, libraries = used_names()
    counts = {name: len(taken) for name, taken in packages.items()}
    assert {k: n for k, n in counts.items() if n > WIDE.get(k, MOST)} == {}, packages
    wide = {k: v for k, v in libraries.items() if len(v) > WIDE_MODULES.get(k[1], MOST)}
    assert not wide


def test_no_imports_form_a_circle():
    """Lazy imports and those for type checkers count, too."""
    left = defaultdict(set)
    for name, module, _ in edges():
        left[name].add(module)
    left = {name: set(left[name]) for name in modules()}
    # What imports nothing that is left is in no circle, nor is what nothing left imports.
    while free := [name for name, used in left.items() if not used & left.keys()]:
        for name in free:
            del left[name]
    while free := left.keys() - set().union(*left.values()):
        for name in free:
            del left[name]
    assert not sorted(left)


def is_number(node: ast.AST | None) -> bool:
    """Return True for a number, signed or computed from numbers."""
    if isinstance(node, ast.BinOp):
        return is_number(node.left) and is_number(node.right)
    if isinstance(node, ast.UnaryOp):
        return is_number(node.operand)
    return isinstance(node, ast.Constant) and type(node.value) in (int, float)


def uncommented(source: str) -> Iterator[str]:
    """Yield numeric constants without a comment of four words on their line or above it."""
    tokens = tokenize.generate_tokens(io.StringIO(source).readline)
    comments = {token.start[0]: token for token in tokens if token.type == tokenize.COMMENT}
    constants = {
        node.lineno: node
        for body in ast.walk(ast.parse(source))
        if isinstance(body, ast.Module | ast.ClassDef)
        for node in body.body
        if isinstance(node, ast.Assign | ast.AnnAssign)
        and is_number(node.value)
        and re.match("_*[A-Z]", ast.unparse(node))
    }
    for line, node in constants.items():
        rows = range(line, node.end_lineno + 1)
        text = " ".join(comments[row].string for row in rows if row in comments)
        above = line - 1
        while above in constants:  # one comment may stand above several constants
            above -= 1
        while above in comments and comments[above].line.lstrip().startswith("#"):
            text, above = f"{text} {comments[above].string}", above - 1
        if len(re.findall(r"\w+", text)) < 4:
            yield ast.unparse(node)


def test_numeric_constants_have_a_comment():
    found = {name: [*uncommented(path.read_text())] for name, path in modules().items()}
    assert {name: constants for name, constants in found.items() if constants} == {}
