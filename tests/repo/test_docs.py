"""Documents are true: links lead somewhere, named files exist, listed targets can be run."""

import re
from pathlib import Path

import pytest

from tests.repo.files import ROOT, text_files

LINK = re.compile(r"\[[^\]]*\]\(([^)#\s]+)(?:#[^)\s]*)?\)")
TO_A_HEADING = re.compile(r"\[[^\]]*\]\(([^)#\s:]*)#([^)\s]+)\)")
FENCED = re.compile(r"^ *```.*?^ *```", re.DOTALL | re.MULTILINE)


def anchors(document: Path) -> set[str]:
    """What a link can name behind `#`: the headings as GitHub and MkDocs write them."""
    headings = re.findall(r"^#+ (.+)$", FENCED.sub("", document.read_text()), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("document", text_files(".md"), ids=lambda path: str(path.relative_to(ROOT)))
def test_links_lead_to_files(document) -> None:  # type: ignore[no-untyped-def]
    missing = [
        target
        for target in LINK.findall(document.read_text())
        if not target.startswith(("http://", "https://", "mailto:"))
        and not (document.parent / target).exists()
    ]
    assert not missing


def test_links_to_a_heading_lead_to_one() -> None:
    missing = [
        f"{document.relative_to(ROOT)}: {page}#{anchor}"
        for document in text_files(".md")
        for page, anchor in TO_A_HEADING.findall(document.read_text())
        if anchor not in anchors(document.parent / page if page else document)
    ]
    assert not missing


def test_a_row_of_a_table_is_one_line() -> None:
    """A row that is broken over lines ends the table there."""
    broken = [
        f"{document.relative_to(ROOT)}: {line}"
        for document in text_files(".md")
        for line in FENCED.sub("", document.read_text()).splitlines()
        if line.startswith("|") != line.rstrip().endswith("|")
    ]
    assert not broken


def test_the_glossary_is_in_order_and_each_term_has_one_sentence_and_a_page() -> None:
    rows = [line.split(" | ") for line in (ROOT / "docs/glossary.md").read_text().splitlines()]
    terms = [row for row in rows if len(row) == 3][2:]
    assert len(terms) > 40
    names = [term.strip("| `").replace("_", " ").lower() for term, _, _ in terms]
    assert names == sorted(set(names))
    assert not [term for term, meaning, page in terms if not re.fullmatch(r"[A-Z`][^.]*\.", meaning)]
    assert not [term for term, _, page in terms if not TO_A_HEADING.search(page) and not LINK.search(page)]


def test_component_table_of_the_architecture_is_true() -> None:
    text = (ROOT / "ARCHITECTURE.md").read_text()
    table = text.split("## Components and files", 1)[1]
    paths = re.findall(r"`([\w./-]+/[\w./-]*)`", table)
    assert len(paths) > 20
    assert not [path for path in paths if not (ROOT / path).exists()]


def test_documented_make_targets_exist_and_each_is_in_contributing() -> None:
    targets = set(re.findall(r"^([a-z][a-z0-9-]*):", (ROOT / "Makefile").read_text(), flags=re.MULTILINE))
    for name in ("README.md", "CONTRIBUTING.md"):
        named = set(re.findall(r"`(?:\w+=\S+ )?make ([a-z0-9-]+)", (ROOT / name).read_text()))
        assert named, name
        assert named <= targets, name
    assert named == targets
