"""Every public name: what `dir` lists, and what docstrings and annotations say."""

import ast
import doctest
import inspect
import re
import subprocess
import sys
import types
import typing
from dataclasses import fields, is_dataclass

import numpy.testing
import pytest

import calipers
from calipers import golden, probes, testing
from calipers._compare.statistics import Criteria
from calipers._compare.tolerances import CheckedOptions
from calipers._core import types as option_types
from calipers._core.types import (
    AllJacobianOptions,
    CompareOptions,
    EmulateOptions,
    GradcheckOptions,
    PlanOptions,
    SecondOptions,
)
from calipers._derivatives.options import Options
from calipers._derivatives.prepared import JacobianFunction
from calipers._gradcheck.options import Settings
from calipers._gradcheck.report_data import Entry, Scale, ScaleTable
from tests.contract.private_words import pattern

MODULES = [calipers, golden, probes, testing]
SECTION = re.compile(r"^(\w[\w ]*)\n-+$", re.M)
PRIVATE = pattern("what is", "own", "narrow(?:er)?")
# Calls that raise nothing.
WITHOUT_RAISES = {"warmup"}


def public():
    """Yield the name and the object of each public function and class of calipers."""
    for module in MODULES:
        for name in module.__all__:
            value = getattr(module, name)
            if isinstance(value, types.ModuleType):
                continue
            if getattr(value, "__module__", "").startswith("calipers"):
                yield f"{module.__name__}.{name}".removeprefix("calipers."), value


def methods(name, value):
    """Yield the public methods, and the properties, that a class of calipers defines."""
    for cls in value.__mro__:
        if cls.__module__.startswith("calipers"):
            for key, member in vars(cls).items():
                if not key.startswith("_") and not isinstance(member, types.MemberDescriptorType):
                    yield f"{name}.{key}", member


OBJECTS = dict(public())
# Classes that no module exports, but that results are made of.
PARTS = {
    "Criteria": Criteria,
    "Entry": Entry,
    "JacobianFunction": JacobianFunction,
    "Scale": Scale,
    "ScaleTable": ScaleTable,
}
CLASSES = {name: x for name, x in OBJECTS.items() if isinstance(x, type)} | PARTS
METHODS = {
    key: member
    for name, x in CLASSES.items()
    for key, member in methods(name, x)
    if inspect.isfunction(member)
}
FUNCTIONS = {name: x for name, x in OBJECTS.items() if name not in CLASSES}


def sections(text):
    """Return the summary of a numpydoc docstring as section "", and the text of each section."""
    parts = SECTION.split(inspect.cleandoc(text))
    return {"": parts[0], **dict(zip(parts[1::2], parts[2::2], strict=True))}


def parameters(section):
    """Return the type of each parameter of a section, by name; stars belong to the name."""
    found = {}
    for names, kind in re.findall(r"^(\S[^:\n]*?)(?: : (.*))?$", section, re.M):
        found |= dict.fromkeys(names.split(", "), kind)
    return found


def names_default(kind, default):
    """Return True if the type of a documented parameter names its default."""
    if default is None:
        return "optional" in kind.split(", ")
    stated = re.search(r"default (.*)$", kind)
    if not stated:
        return False
    text = stated[1]
    if text.endswith(" MiB"):
        return float(text.split()[0]) * 2**20 == default
    if text.startswith("numpy."):
        return getattr(numpy, text.removeprefix("numpy.")) is default
    return ast.literal_eval(text) == default


def problems(name, function):
    """List what the docstring of a function lacks."""
    text = function.__doc__ or ""
    signature = inspect.signature(function)
    found = sections(text)
    documented = parameters(found.get("Parameters", ""))
    said = []
    expected = {}
    for key, p in signature.parameters.items():
        stars = {p.VAR_POSITIONAL: "*", p.VAR_KEYWORD: "**"}.get(p.kind, "")
        if key != "self":
            expected[stars + key] = p
    if documented.keys() != expected.keys():
        said.append(f"parameters {sorted(documented.keys() ^ expected.keys())}")
    for key, p in expected.items():
        kind = documented.get(key) or ""
        if not kind and not key.startswith("**"):
            said.append(f"no type of {key}")
        if p.default is not p.empty and not names_default(kind, p.default):
            said.append(f"default of {key}: {p.default!r}")
    if signature.return_annotation not in (None, "None") and not {"Returns", "Yields"} & {*found}:
        said.append("no Returns")
    if name not in WITHOUT_RAISES and "Raises" not in found:
        said.append("no Raises")
    if ">>> " not in found.get("Examples", ""):
        said.append("no Examples")
    return said + form(text)


def form(text):
    """List what is wrong with the first line and the words of a docstring."""
    summary, _, rest = inspect.cleandoc(text).partition("\n")
    said = [f"private word {word[0]!r}" for word in PRIVATE.finditer(text)]
    if not summary.endswith(".") or rest[:1] not in ("", "\n"):
        said.append("no summary of one line")
    return said


@pytest.mark.parametrize("name", FUNCTIONS)
def test_docstring_of_a_function(name):
    assert problems(name, FUNCTIONS[name]) == []


# Parameters that may be Any, each with a reason: none today.
ANY = {}


@pytest.mark.parametrize("name", [*FUNCTIONS, *METHODS])
def test_types_of_parameters_are_named(name):
    function = (FUNCTIONS | METHODS)[name]
    parameters = [x for x in inspect.signature(function).parameters.values() if x.name != "self"]
    assert all(x.annotation is not x.empty for x in parameters)
    vague = {x.name for x in parameters if x.annotation in ("Any", typing.Any)}
    assert vague == set(ANY.get(name, ()))


@pytest.mark.parametrize(
    "name", sorted(set(FUNCTIONS) - {"linear_operator"})
)  # returns one of SciPy's
def test_types_can_be_evaluated(name):
    assert typing.get_type_hints(FUNCTIONS[name])


@pytest.mark.parametrize("name", CLASSES)
def test_docstring_of_a_class(name):
    found = sections(CLASSES[name].__doc__)
    assert ">>> " in found.get("Examples", "")
    assert form(CLASSES[name].__doc__) == []
    attributes = parameters(found.get("Attributes", ""))
    assert all(attributes.values())
    if is_dataclass(CLASSES[name]):
        assert {*attributes} == {field.name for field in fields(CLASSES[name])}


@pytest.mark.parametrize("name", CLASSES)
def test_docstrings_of_special_methods(name):
    for key, member in vars(CLASSES[name]).items():
        if key.startswith("__") and inspect.isfunction(member) and member.__doc__:
            assert not PRIVATE.findall(member.__doc__), key


@pytest.mark.parametrize("name", METHODS)
def test_docstring_of_a_method(name):
    method = METHODS[name]
    assert form(method.__doc__) == []
    if set(inspect.signature(method).parameters) - {"self"}:
        assert problems(name, method) == []


@pytest.mark.parametrize("name", [name for name in CLASSES if "Error" in name or "Warning" in name])
def test_examples_of_errors(name):
    """Their module is named `calipers`, so that pytest does not find them."""
    for test in doctest.DocTestFinder().find(CLASSES[name], name, globs={}):
        runner = doctest.DocTestRunner(verbose=False)
        assert runner.run(test).failed == 0


def defaults(function):
    """Return the default of each parameter that has one."""
    parameters = inspect.signature(function).parameters.values()
    return {p.name: p.default for p in parameters if p.default is not p.empty}


# What the keywords of each TypedDict are: fields of a dataclass, or parameters of a function.
KEYWORDS = {
    CompareOptions: CheckedOptions,
    GradcheckOptions: Settings,
    SecondOptions: Settings,
    EmulateOptions: calipers.emulate,
}
WITH_ALL = (CompareOptions, GradcheckOptions, AllJacobianOptions, EmulateOptions)
# Keywords with fewer types than in the dataclass, by TypedDict: a Tolerance is a tuple.
NARROWER = {CompareOptions: {"tolerance"}, PlanOptions: {"argnums"}}


@pytest.mark.parametrize(
    "accepted", [x for x in vars(option_types).values() if typing.is_typeddict(x)]
)
def test_type_checkers_know_the_types_of_the_options(accepted):
    options = KEYWORDS.get(accepted, Options)
    types = typing.get_type_hints(options)
    checked = typing.get_type_hints(accepted)
    if accepted in WITH_ALL:
        assert checked.keys() == defaults(options).keys()
    differ = {name for name, kind in checked.items() if types[name] != kind}
    assert differ == NARROWER.get(accepted, set())


@pytest.mark.parametrize(
    ("function", "options", "changes"),
    [
        (calipers.compare, CheckedOptions, {}),
        (calipers.assert_close, CheckedOptions, {"msg": None}),
        (calipers.jacobian, Options, {}),
        (calipers.differentiate, Options, {"method": "adaptive"}),
        (
            calipers.gradcheck,
            Settings,
            dict.fromkeys(("jac", "vjp", "jvp", "value_and_jac", "kwargs", "argnums"))
            | {"args": (), "nondifferentiable_outputs": (), "convention": "torch"},
        ),
    ],
)
def test_signatures_have_the_options_in_the_order_of_the_docstring(function, options, changes):
    assert defaults(function) == defaults(options) | changes
    documented = parameters(sections(function.__doc__)["Parameters"])
    assert [*inspect.signature(function).parameters] == [*documented]
    types = inspect.signature(options).parameters
    shown = inspect.signature(function).parameters
    assert all(shown[name].annotation == p.annotation for name, p in types.items())


def test_first_and_second_gradient_checks_have_the_same_defaults():
    first, second = defaults(calipers.gradcheck), defaults(calipers.gradgradcheck)
    assert all(second[name] == first[name] for name in second.keys() & first)


def test_problems_are_found():
    def bad(a, b=1, c=None, *args):
        """
        Tell whether a is b.

        Parameters
        ----------
        a : float
        b : int, default 2
        c : str
        """
        return a == b

    said = problems("bad", bad)
    for problem in (
        "parameters ['*args']",
        "default of b: 1",
        "default of c: None",
        "no Returns",
        "no Raises",
        "no Examples",
        "private word 'Tell whether'",
    ):
        assert problem in said
    assert len(said) == 8  # no type of *args, too


@pytest.mark.parametrize("module", [calipers, golden, probes], ids=lambda m: m.__name__)
def test_dir_lists_public_names_only(module):
    expected = {*module.__all__, *(["__version__"] if module is calipers else [])}
    assert set(dir(module)) == expected
    assert all(hasattr(module, name) for name in dir(module))


def test_dir_of_testing_lists_public_names_only():
    of_numpy = {name for name in dir(numpy.testing) if not name.startswith("_")}
    assert set(dir(testing)) == of_numpy | {*testing.__all__, "make_tensor"}


def test_dir_lists_no_submodule_that_was_imported():
    code = (
        "import calipers._compare.closeness, calipers._diagnose.diagnose; "
        "print('closeness' in dir(calipers))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"
