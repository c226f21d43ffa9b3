"""The figures: those with a text next to them are made from it (WALTZ_WRITE_DOCS=1 writes them); all say what
they show."""

import os
import re
from pathlib import Path
from xml.etree import ElementTree

import pytest

from tests.repo.files import ROOT, text_files
from tests.repo.sequence import FigureError, drawn, parsed, too_long

FIGURES = ROOT / "docs" / "figures"
TEXTS = sorted(FIGURES.glob("*.txt"))
WORDS = "{http://www.w3.org/2000/svg}"


@pytest.mark.parametrize("text", TEXTS, ids=lambda path: path.name)
def test_a_figure_is_what_its_text_says(text: Path) -> None:
    svg = text.with_suffix(".svg")
    if os.environ.get("WALTZ_WRITE_DOCS") == "1":
        svg.write_text(drawn(text.read_text()))
    assert svg.read_text() == drawn(text.read_text()), "run with WALTZ_WRITE_DOCS=1 to write it"
    assert too_long(text.read_text()) == []


@pytest.mark.parametrize("svg", sorted(FIGURES.glob("*.svg")), ids=lambda path: path.name)
def test_a_figure_says_what_it_shows_and_is_shown(svg: Path) -> None:
    root = ElementTree.fromstring(svg.read_text())
    assert root.get("role") == "img"
    assert all(root.findtext(f"{WORDS}{name}") for name in ("title", "desc"))
    assert "prefers-color-scheme: dark" in svg.read_text()
    assert 'class="paper"' in svg.read_text(), "it has a background of its own"
    shown = re.compile(rf"!\[[^\]]+\]\([\w./-]*figures/{svg.name}\)")
    assert [page for page in text_files(".md") if shown.search(page.read_text())]


@pytest.mark.parametrize("line", ["a b: words", "a -> c: words", "note c: words", "a -> b:", "note a"])
def test_a_line_that_says_nothing_is_refused(line: str) -> None:
    with pytest.raises(FigureError, match="line 2"):
        parsed(f"lanes: a | b\n{line}")


def test_words_that_leave_the_paper_are_found() -> None:
    assert too_long(f"lanes: a | b\na -> b: {'x' * 90}\nnote a: short") == ["x" * 90]
