"""Every example of the documentation runs, and every public name has its place in the reference."""

import doctest
import importlib.util
import re
import sys
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

import calipers

DOCS = Path(__file__).parents[1] / "docs"
PAGES = sorted(DOCS.rglob("*.md"))
NEEDS = {
    "comparing_arrays": ("torch",),
    "differences": ("torch",),
    "howto/jax_custom_vjp": ("jax",),
    "howto/porting": ("torch",),
    "howto/scipy_optimisers": ("scipy",),
    "howto/torch_extensions": ("torch",),
}
FLAGS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE


def name_of(page):
    return page.relative_to(DOCS).with_suffix("").as_posix()


def examples(text):
    """Blank all lines but those of pycon blocks, so that line numbers stay."""
    lines, inside = [], False
    for line in text.splitlines():
        fence = line.lstrip().startswith("```")
        lines.append(line if inside and not fence else "")
        if fence:
            inside = line.strip() == "```pycon"
    return "\n".join(lines) + "\n"


def failures(text, name="a page"):
    """Run the examples of a page one after the other, and return what doctest says."""
    said = []
    test = doctest.DocTestParser().get_doctest(examples(text), {}, name, name, 0)
    doctest.DocTestRunner(optionflags=FLAGS).run(test, out=said.append)
    return "".join(said)


@contextmanager
def settings_kept():
    """Restore what pages may switch for all of a process."""
    with np.errstate():
        yield
    if "jax" in sys.modules:
        sys.modules["jax"].config.update("jax_enable_x64", False)


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_examples_of_a_page(page, tmp_path, monkeypatch):
    for library in NEEDS.get(name_of(page), ()):
        if importlib.util.find_spec(library) is None:
            pytest.skip(f"{library} is not installed")
    monkeypatch.chdir(tmp_path)
    with settings_kept():
        said = failures(page.read_text(), page.name)
    assert not said, said


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_python_is_shown_as_examples_that_run(page):
    text = page.read_text()
    assert not re.findall(r"^ *```py(?!con$).*", text, re.M)
    assert text.count("```pycon") == len(re.findall(r"```pycon\n *>>> ", text))


def test_pages_that_need_a_library_are_there():
    assert set(NEEDS) <= set(map(name_of, PAGES))


def test_examples_that_fail_are_seen():
    page = "Text\n\n```pycon\n>>> 1 + 1\n{}\n```\n\n- in a list\n\n  ```pycon\n  >>> {}\n  ```\n"
    assert not failures(page.format(2, "x = 3"))
    assert "line 4" in failures(page.format(3, "x = 3"))
    assert "NameError" in failures(page.format(2, "y"))
    assert not failures("```\n>>> 1 + 1\n3\n```\n")


def test_reference_has_every_public_name():
    text = "\n".join(page.read_text() for page in DOCS.glob("reference/*.rst"))
    here = set(re.findall(r"^\.\. auto(?:function|class):: (\w+)$", text, re.M))
    modules = {"golden", "probes", "testing"}
    assert set(calipers.__all__) - modules <= here
    for name in modules:
        assert f"module:: calipers.{name}\n" in text
        public = vars(getattr(calipers, name)).items()
        own = {x for x, value in public if getattr(value, "__module__", "") == f"calipers.{name}"}
        assert {x for x in own if not x.startswith("_")} <= here


def test_figure_of_the_results_finds_them():
    pytest.importorskip("matplotlib")
    from docs import figures

    dtypes, places, sizes = figures.speed().axes
    assert len(dtypes.patches) >= 15
    assert {"float64", "bfloat16", "strided"} <= {x.get_text() for x in dtypes.get_yticklabels()}
    for axes, least in ((places, 3), (sizes, 5)):
        assert max(len(line.get_xdata()) for line in axes.lines) >= least


def test_settings_are_kept():
    before = np.geterr()
    with settings_kept():
        np.seterr(all="raise")
    assert np.geterr() == before
    if importlib.util.find_spec("jax") is None:
        pytest.skip("jax is not installed")
    import jax

    with settings_kept():
        jax.config.update("jax_enable_x64", True)
    assert not jax.config.jax_enable_x64
