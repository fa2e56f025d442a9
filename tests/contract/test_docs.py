"""Examples of the documentation run, its text is plain, the reference has every public name."""

import doctest
import importlib.util
import os
import re
import subprocess
import sys
import textwrap
from contextlib import contextmanager
from dataclasses import fields
from pathlib import Path

import numpy as np
import pytest

import calipers
from tests.contract.private_words import pattern

DOCS = Path(__file__).parents[2] / "docs"
PAGES = sorted(DOCS.rglob("*.md"))
NEEDS = {
    "comparing_arrays": ("torch",),
    "derivatives": ("scipy",),
    "differences": ("torch",),
    "gpu": ("numba_cuda", "torch"),
    "howto/jax_custom_vjp": ("jax",),
    "index": ("matplotlib",),
    "howto/porting": ("torch",),
    "howto/scipy_optimisers": ("scipy",),
    "howto/torch_extensions": ("torch",),
}
SIMULATED = {"gpu"}  # pages whose examples need a CUDA device, or Numba's simulator
WITHOUT_EXAMPLES = {"comparing_files", "limitations", "reference/index"}
FLAGS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE

LINES = 5  # the most that a paragraph has, of WIDTH columns
WIDTH = 120
PRIVATE = pattern("after this page")


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


def failures_in_the_simulator(page):
    """Run the examples of a page in a process in which Numba simulates a CUDA device."""
    code = "import sys, tests.cuda.device.conftest; from pathlib import Path; "
    code += "from tests.contract.test_docs import failures; "
    code += "sys.exit(failures(Path(sys.argv[1]).read_text()) or 0)"
    environment = {**os.environ, "NUMBA_ENABLE_CUDASIM": "1", "NUMBA_OPT": "0"}
    done = subprocess.run(
        [sys.executable, "-c", code, page],
        env=environment,
        cwd=DOCS.parent,
        capture_output=True,
        text=True,
        check=False,
    )
    return done.stderr if done.returncode else ""


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
    if name_of(page) in SIMULATED:
        said = failures_in_the_simulator(page)
    else:
        with settings_kept():
            said = failures(page.read_text(), page.name)
    assert not said, said


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_python_is_shown_as_examples_that_run(page):
    text = page.read_text()
    assert not re.findall(r"^ *```py(?!con$).*", text, re.M)
    assert text.count("```pycon") == len(re.findall(r"```pycon\n *>>> ", text))


def test_pages_that_are_named_are_there():
    assert set(NEEDS) | SIMULATED | WITHOUT_EXAMPLES <= set(map(name_of, PAGES))


def without_blocks(text):
    """Return the lines of a page outside of its code blocks."""
    lines, inside = [], False
    for line in text.splitlines():
        if line.lstrip().startswith("```"):
            inside = not inside
            lines.append("")
        else:
            lines.append("" if inside else line)
    return lines


def paragraphs(text):
    """Return the paragraphs and list items of a page, each as one line; no headings and tables."""
    found = [""]
    for line in without_blocks(text):
        plain = line.strip()
        item = re.match(r"([-*]|\d+\.) ", plain)
        if not plain or item or plain.startswith(("#", "|", "!")):
            found.append("")
        if not plain.startswith(("#", "|", "!")):
            found[-1] = f"{found[-1]} {plain}".strip()
    return [paragraph for paragraph in found if paragraph]


def long_paragraphs(text):
    return [x for x in paragraphs(text) if len(textwrap.wrap(x, WIDTH)) > LINES]


def private_words(text):
    prose = re.sub("`[^`]*`", "", " ".join(without_blocks(text)))
    return PRIVATE.findall(prose)


def anchors(page):
    """Return the anchors that Sphinx makes of the headings of a page."""
    headings = [x.lstrip("# ") for x in without_blocks(page.read_text()) if x.startswith("#")]
    return {re.sub(r"[^\w -]", "", x.lower()).replace(" ", "-") for x in headings}


def broken_links(page):
    """Return what a page links to that is not there: files, pages and headings."""
    broken = []
    prose = re.sub("`[^`]*`", "", "\n".join(without_blocks(page.read_text())))
    included = re.findall(r"^```{literalinclude} (\S+)", page.read_text(), re.M)
    for target in [*re.findall(r"\]\(([^)\s]+)\)", prose), *included]:
        path, _, anchor = target.partition("#")
        there = (page.parent / path) if path else page
        if ":" not in path and not (
            there.exists() and (not anchor or there.suffix != ".md" or anchor in anchors(there))
        ):
            broken.append(target)
    return broken


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_text_of_a_page(page):
    text = page.read_text()
    assert not long_paragraphs(text)
    assert not private_words(text)
    assert "MISSED" not in text
    assert ("```pycon" in text) != (name_of(page) in WITHOUT_EXAMPLES)
    assert not re.search(r"""pip install ["']?calipers""", text)  # it is on no index


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_links_of_a_page(page):
    assert not broken_links(page)


def test_every_page_is_in_a_table_of_contents():
    listed = {"index"}
    for page in PAGES:
        for block in re.findall(r"```{toctree}\n(.*?)```", page.read_text(), re.S):
            names = [x.strip() for x in block.splitlines() if x.strip() and x[0] != ":"]
            listed |= {name_of((page.parent / f"{x}.md").resolve()) for x in names}
    assert set(map(name_of, PAGES)) <= listed


def test_text_that_is_not_plain_is_seen(tmp_path):
    line = "word " * (WIDTH // 5)
    assert not long_paragraphs(
        f"# Title\n\n{line * LINES}\n\n- {line}\n\n```text\n{line * 9}\n```\n"
    )
    assert long_paragraphs(f"- {line}\n- {line * LINES} word")
    assert not private_words("A last\n`last place`\n```text\nbeside\n```\n")
    text = "A row beside it; last\nplaces. Tell whether"
    assert private_words(text) == ["beside", "last places", "Tell whether"]
    page = tmp_path / "page.md"
    page.write_text(
        "# One word\n[a](#one-word) [b](#two) [c](page.md#one-word) [d](none.md) [e](https://x.y)"
    )
    assert broken_links(page) == ["#two", "none.md"]


def test_examples_that_fail_are_seen():
    page = "Text\n\n```pycon\n>>> 1 + 1\n{}\n```\n\n- in a list\n\n  ```pycon\n  >>> {}\n  ```\n"
    assert not failures(page.format(2, "x = 3"))
    assert "line 4" in failures(page.format(3, "x = 3"))
    assert "NameError" in failures(page.format(2, "y"))
    assert not failures("```\n>>> 1 + 1\n3\n```\n")


def listed_in_the_reference():
    """Return the full names in the tables of the reference, which have a page each."""
    names = []
    for page in sorted(DOCS.glob("reference/*.rst")):
        text = page.read_text()
        (module,) = re.findall(r"^\.\. (?:current)?module:: (\S+)$", text, re.M)
        for table in re.findall(r"^\.\. autosummary::\n((?: .*\n|\n)*)", text, re.M):
            assert ":toctree: generated" in table
            names += [f"{module}.{x}" for x in re.findall(r"^ +(\w+)$", table, re.M)]
    return names


def test_reference_has_a_page_for_each_public_name():
    expected = {f"calipers.{name}" for name in calipers.__all__}
    for name in ("golden", "probes", "testing"):
        module = getattr(calipers, name)
        expected -= {module.__name__}
        public = {x: getattr(module, x) for x in module.__all__}
        expected |= {
            f"{module.__name__}.{x}"
            for x, value in public.items()
            if getattr(value, "__module__", "").startswith("calipers")
        }
    names = listed_in_the_reference()
    assert len(names) == len(set(names))
    assert set(names) == expected


def rows(text):
    """Return the rows of tables of percentages, by the name of the derivative and the columns."""
    return re.findall(r"^\| .+? \| [\d.]+ % \|.* % \|$", text, re.M)


def test_validation_shows_the_measured_shares():
    page = rows((DOCS / "validation.md").read_text())
    assert len(page) > 20
    measured = rows((DOCS.parent / "benchmarks/results.md").read_text())
    several = "one entry off by 1e-3, 1e-4 or 1e-5"  # in one row of the page
    expected = [row.replace(several, "one entry off by 1e-3") for row in page]
    assert set(expected) <= set(measured)


def test_the_table_of_thresholds_is_that_of_the_code():
    from docs import thresholds

    (shown,) = thresholds.PLACE.findall(thresholds.PAGE.read_text())
    assert shown == thresholds.table(), "python -m docs.thresholds"
    names = re.findall(r"\w+", " ".join(re.findall(r"^\| `(.+?)` \|", shown, re.M)))
    assert names == [field.name for field in fields(thresholds.THRESHOLDS)]
    assert len(names) <= 25


def test_figures_of_the_results_find_them():
    pytest.importorskip("matplotlib")
    from docs import figures

    dtypes, positions, sizes = figures.speed().axes
    assert len(dtypes.patches) >= 15
    assert {"float64", "bfloat16", "strided"} <= {x.get_text() for x in dtypes.get_yticklabels()}
    for axes, least in ((positions, 3), (sizes, 5)):
        assert max(len(line.get_xdata()) for line in axes.lines) >= least
    (relative,) = figures.relative().axes
    shown = {label.get_text().rpartition(" vs ")[0] for label in relative.get_yticklabels()}
    assert shown == set(figures.COMPARED)


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


def test_validation_counts_the_pairs_and_functions_of_the_tests():
    for library in ("jax", "ml_dtypes", "scipy", "torch"):
        pytest.importorskip(library, reason=f"some of the pairs need {library}")
    from tests.data import verdict_cases
    from tests.data.derivative_cases import CASES
    from tests.data.sparse_derivative_cases import SPARSE_CASES
    from tests.diagnose import test_diagnose, test_pairs_by_field, test_swapped_implementations

    text = (DOCS / "validation.md").read_text()
    smooth = sum(case.kind == "smooth" for case in CASES)
    for count, noun in (
        (smooth, "smooth functions"),
        (len(CASES) - smooth, "difficult functions"),
        (len(SPARSE_CASES), "compiled functions"),
        (len(verdict_cases.CASES), "development pairs"),
        (len(verdict_cases.HELD_OUT), "pairs added after"),
        (len(verdict_cases.TRANSFORMS), "transforms"),
        (len(verdict_cases.FIELDS), "of other fields"),
        (len(verdict_cases.EVERYDAY), "everyday ports"),
        (len(verdict_cases.REVIEWED), "pairs are tests"),
    ):
        assert f"{count} {noun}" in text
    wrong = {
        *test_diagnose.KNOWN_WRONG,
        *test_diagnose.REVIEWED_WRONG,
        *test_pairs_by_field.KNOWN_WRONG,
        *test_swapped_implementations.KNOWN_WRONG,
    }
    rows = text.partition("**diagnose**")[2].splitlines()[4:]
    pairs = [int(re.search(r"\((\d+) pairs\)", row)[1]) if " pairs)" in row else 1 for row in rows]
    assert sum(pairs) == len(wrong)
