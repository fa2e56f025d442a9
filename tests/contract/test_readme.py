"""README: its examples run as pasted, its links lead somewhere, its numbers were measured."""

import contextlib
import io
import re
import shlex
import subprocess
import sys
import traceback
from pathlib import Path

import numpy as np
import pytest

from tests.contract.texts import same

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text("utf-8")
RESULTS = (ROOT / "benchmarks" / "results.md").read_text("utf-8")
NUMBER = re.compile(r"\d[\d.]*")


def blocks(language, text=README):
    return re.findall(rf"^```{language}\n(.*?)^```", text, re.M | re.S)


def pasted(code, namespace):
    """Return what an interpreter prints: output, and the last line of an error with its message."""
    output = io.StringIO()
    with contextlib.redirect_stdout(output):
        try:
            exec(compile(code, "<README>", "exec"), namespace)
        except AssertionError as error:
            output.write("".join(traceback.format_exception_only(error)))
    return output.getvalue()


def shown_next_to_code(text=README):
    """Return each example with the output that follows it."""
    return re.findall(r"^```python\n(.*?)^```\n+```text\n(.*?)^```", text, re.M | re.S)


def test_texts_are_the_same_but_for_last_digits():
    assert same("is 1.2e-13, not 3", "is 1.3e-13, not 3")
    assert not same("is 1.2e-13", "is 1.2e-11")
    assert not same("is 1", "was 1")
    assert not same("is 1", "is 1 1")
    assert same("f 3; 0.1 s; numpy 2", "f 3; 9 s; numpy 1, torch 2")


def test_it_is_short():
    assert len(README.split()) <= 900


def test_every_example_runs_as_pasted_and_prints_what_is_shown():
    namespace = {}
    examples = shown_next_to_code()
    assert len(examples) == len(blocks("python")) == 3
    for code, output in examples:
        assert len(code.strip().splitlines()) <= 10
        assert same(pasted(code, namespace), output), code
    assert {"assert_close", "gradcheck", "diagnose"} <= set(re.findall(r"calipers\.(\w+)", README))


def test_the_command_prints_what_is_shown(tmp_path):
    pytest.importorskip("click")
    ((command, output),) = re.findall(r"^```console\n\$ (.*?)\n(.*?)^```", README, re.M | re.S)
    weight = np.linspace(0, 1, 12).reshape(3, 4)
    np.savez(tmp_path / "before.npz", weight=weight, bias=np.zeros(4), step=100)
    weight[1, 2] += 1e-3
    np.savez(tmp_path / "after.npz", weight=weight, bias=np.zeros(4), step=100)
    words = [sys.executable, "-m", *shlex.split(command)]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, check=False)
    beginning, dots, rest = output.partition("...\n")
    assert (dots, rest) == ("...\n", "")
    assert done.stdout.startswith(beginning)
    assert len(beginning.splitlines()) >= 3
    assert done.returncode == 1


def test_every_link_leads_somewhere():
    links = re.findall(r"\]\(([^)]+)\)", README)
    assert len(links) > 15
    for link in links:
        assert not re.match(r"https?:", link)  # nothing is published yet
        path, _, anchor = link.partition("#")
        assert (ROOT / path).exists(), link
        if anchor:
            titles = re.findall(r"^#+ (.*)$", (ROOT / path).read_text("utf-8"), re.M)
            slugs = {re.sub(r"[^\w -]", "", t).strip().lower().replace(" ", "-") for t in titles}
            assert anchor in slugs, link


def test_each_feature_is_linked_to_its_page():
    section = README.partition("## Features\n")[2].partition("\n## ")[0]
    features = re.findall(r"^- .*(?:\n  .*)*", section, re.M)
    assert len(features) == 10
    assert all("](docs/" in feature for feature in features)


def table_of_results(text=README):
    section = text.partition("## Results\n")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| (.+?) \| (.+?) \|$", section, re.M)
    return [(name, values) for name, values in rows if NUMBER.search(values)]


def invented(rows, results=RESULTS):
    """Return the numbers of rows that results.md does not have for the measurement they name."""
    measured = {}
    for name, values in re.findall(r"^\| (.+?) \| (.+) \|$", results, re.M):
        if numbers := NUMBER.findall(values):
            measured.setdefault(name, set()).update(numbers)
    wrong = []
    for cell, values in rows:
        name = max((name for name in measured if name in cell), key=len, default=None)
        numbers = measured.get(name, set())
        wrong += [f"{cell}: {n}" for n in NUMBER.findall(values) if n not in numbers]
    return wrong


def test_every_number_of_the_results_was_measured():
    rows = table_of_results()
    assert 5 <= len(rows) <= 8
    assert not invented(rows)


def test_a_number_that_was_not_measured_is_seen():
    ((name, values), *_) = table_of_results()
    assert invented([(name, f"{values}, 12345 x NumPy")]) == [f"{name}: 12345"]
    assert invented([("unheard of", "1 x NumPy")])


def test_requirements_are_those_of_the_project():
    project = (ROOT / "pyproject.toml").read_text("utf-8")
    extras = set(re.findall(r"^(\w+) = \[", project.partition("optional-dependencies]")[2], re.M))
    table = README.partition("| extra |")[2].partition("\n\n")[0]
    named = set(re.findall(r"`(\w+)`", table))
    assert named
    assert named <= extras
    assert re.search(r'requires-python = ">=([\d.]+)"', project).group(1) in README
