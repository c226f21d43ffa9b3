"""Documents are true: links lead somewhere, named files exist, listed targets can be run."""

import re

import pytest

from tests.repo.files import ROOT, text_files

LINK = re.compile(r"\[[^\]]*\]\(([^)#\s]+)(?:#[^)\s]*)?\)")


@pytest.mark.parametrize("document", text_files(".md"), ids=lambda path: str(path.relative_to(ROOT)))
def test_links_lead_to_files(document) -> None:  # type: ignore[no-untyped-def]
    missing = [
        target
        for target in LINK.findall(document.read_text())
        if not target.startswith(("http://", "https://", "mailto:"))
        and not (document.parent / target).exists()
    ]
    assert not missing


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
