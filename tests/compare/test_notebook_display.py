"""Reports in notebooks."""

import base64
import copy
import html
import re
import sys
from functools import cache
from html.parser import HTMLParser

import numpy as np
import pytest

import calipers
from calipers import probes
from calipers._core.report import Printable, Report

X = np.linspace(0, 1, 5)


class Page(HTMLParser):
    """What a browser sees: elements that are closed, attributes, and text."""

    def __init__(self, source):
        super().__init__()
        self.open, self.tags, self.styles, self.sources, self.text = [], [], [], [], ""
        self.feed(source)
        self.close()
        assert not self.open

    def handle_starttag(self, tag, attributes):
        self.tags.append(tag)
        given = dict(attributes)
        self.styles.append(given.get("style", ""))
        self.sources += [given["src"]] if "src" in given else []
        if tag != "img":
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text += data + "\n"


def mean(x):
    return x.mean(axis=-1)


REPORTS = {
    "close": lambda: calipers.compare(X, X),
    "not close": lambda: calipers.compare(X, X + 1),
    "other shapes": lambda: calipers.compare(X, X[1:]),
    "other dtypes": lambda: calipers.compare(X, X.astype("f4")),
    "nested": lambda: calipers.compare({"<b>": X}, {"<b>": X + 1}),
    "derivative": lambda: calipers.differentiate(np.sin, X),
    "right derivative": lambda: calipers.gradcheck(np.sin, X, vjp=lambda x, w: w * np.cos(x)),
    "wrong derivative": lambda: calipers.gradcheck(
        np.sin, X, vjp=lambda x, w: w * np.sin(x), raise_exception=False
    ),
    "diagnosis": lambda: calipers.diagnose(mean, lambda x: x.sum(axis=-1) / 5, np.ones((3, 5))),
    "bug": lambda: calipers.diagnose(mean, lambda x: x.sum(axis=-1) / 6, np.ones((3, 5)) / 3),
    "growth": lambda: calipers.growth(
        mean,
        lambda x: x[..., ::-1].mean(axis=-1),
        lambda n: np.ones((4, n), "f4") / 3,
        [8, 64, 512],
    ),
    "denormals": lambda: calipers.denormals(np.array([1e-310])),
    "batch": lambda: probes.batch(mean, np.ones((3, 5))),
    "range": lambda: probes.range(lambda x: np.sqrt(mean(x * x)), np.full(2, 1e20, "f4")),
    "exact": lambda: probes.exact(mean, mean, np.ones((3, 4))),
    "order": lambda: probes.summation_order(np.sum, 8),
    "condition": lambda: probes.condition(np.linalg.inv, np.eye(3) + 1),
    "layers": lambda: probes.layers([("a", mean)], [("a", mean)], np.ones((3, 5))),
}
PICTURES = {"not close", "nested", "wrong derivative", "bug", "growth", "order", "other dtypes"}


@cache
def report_of(name):
    return REPORTS[name]()


@cache
def source_of(name):
    return report_of(name)._repr_html_()


@pytest.mark.parametrize("name", REPORTS)
def test_prompts_show_the_text(name):
    report = report_of(name)
    assert repr(report) == str(report)


@pytest.mark.parametrize("name", REPORTS)
def test_reports_that_are_equal_have_one_hash(name):
    report = report_of(name)
    again = copy.copy(report)
    assert hash(report) == hash(report)
    assert report in {report}
    assert report != again or hash(report) == hash(again)


@pytest.mark.parametrize("name", REPORTS)
def test_reports(name):
    report = report_of(name)
    page_source = source_of(name)
    page = Page(page_source)
    shown = " ".join(page.text.split())
    assert all(" ".join(line.split()) in shown for line in str(report).splitlines())
    assert "div" in page.tags
    assert len(page_source) < 100_000
    # Nothing is fetched, no script is run, and no color of text is set: the page may be dark.
    assert not {"script", "link", "iframe"} & set(page.tags)
    assert not re.search(r"https?:", page_source.replace(page.text, ""))
    assert not any(re.search(r"(^|;)color:(?!inherit)", style) for style in page.styles)


@pytest.mark.parametrize("name", REPORTS)
def test_pictures_are_of_what_is_wrong(name):
    pytest.importorskip("matplotlib")
    report = report_of(name)
    sources = Page(source_of(name)).sources
    assert (
        len(sources) == (name in PICTURES) <= (not (hasattr(report, "__bool__") and bool(report)))
    )
    for source in sources:
        assert base64.b64decode(source.removeprefix("data:image/png;base64,"))[:4] == b"\x89PNG"


def test_the_picture_of_containers_is_that_of_the_worst_leaf():
    pytest.importorskip("matplotlib")
    report = calipers.compare({"good": X, "bad": X}, {"good": X, "bad": X + 1})
    alone = calipers.compare({"bad": X}, {"bad": X + 1})
    assert Page(report._repr_html_()).sources == Page(alone._repr_html_()).sources != []


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("bug", lambda found: f"{found.kind}: {found.reason}"),
        ("wrong derivative", lambda found: f"{found.verdict}: {found.reason}"),
        ("other shapes", lambda found: f"could be compared: {found.problems[0]}"),
        ("other dtypes", lambda found: f"all values agree, but {found.problems[0]}"),
    ],
)
def test_the_bold_line_is_the_whole_sentence(name, sentence):
    """However the text of a terminal is wrapped."""
    report = report_of(name)
    bold = re.search("<b>(.*?)</b>", source_of(name)).group(1)
    assert html.unescape(bold).endswith(sentence(report))


def test_verdicts_have_colors():
    good, bad, none = map(source_of, ("close", "not close", "derivative"))
    colors = [re.findall("solid (#[0-9a-f]+)", source) for source in (good, bad, none)]
    assert len({tuple(x) for x in colors}) == 3
    assert all(len(x) == 1 for x in colors)


def test_without_matplotlib(monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    assert not Page(report_of("not close")._repr_html_()).sources


def test_what_a_text_holds_is_no_html():
    report = calipers.compare({"</pre><script>": X}, {"</pre><script>": X + 1})
    assert "script" not in Page(report._repr_html_()).tags


def test_every_report_is_shown():
    modules = [m for name, m in sys.modules.items() if name.partition(".")[0] == "calipers"]
    classes = {x for m in modules for x in vars(m).values() if isinstance(x, type)}
    reports = {x for x in classes if hasattr(x, "to_dict") and "__str__" in vars(x)}
    assert len(reports) >= 12
    assert not {x.__name__ for x in reports if not issubclass(x, Report)}
    assert issubclass(calipers.Derivative, Printable)
