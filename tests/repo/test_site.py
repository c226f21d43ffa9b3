"""The pages as one site (`make docs`): each is listed and can be reached, and each public name has its entry.

That the site builds, with each link and anchor, is shown by `make docs`, a part of `make test-long`.
"""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

import waltz_client
from tests.repo.files import ROOT, text_files

SITE = ROOT / "docs" / "site" / "mkdocs.yml"
PAGES = {str(path.relative_to(ROOT)) for path in text_files(".md")}
INNER = {"waltz_spark.sink"}
"""Packages with an `__all__` that only their own distribution imports."""
LINK = re.compile(r"\]\(([^)#\s:]+\.md)(?:#[^)\s]*)?\)")


def listed(nav: object) -> Iterator[str]:
    if isinstance(nav, str):
        yield nav
    elif isinstance(nav, dict):
        nav = list(nav.values())
    if isinstance(nav, list):
        for entry in nav:
            yield from listed(entry)


def test_the_navigation_lists_every_page_once() -> None:
    found = list(listed(yaml.safe_load(SITE.read_text())["nav"]))
    pages = sorted(page for page in PAGES if page.startswith("docs/") or "/" not in page)
    assert sorted(found) == pages, "list it in docs/site/mkdocs.yml, where a reader needs it"


def test_every_page_is_reached_from_the_readme() -> None:
    reached: set[Path] = set()
    ahead = [ROOT / "README.md"]
    while ahead:
        page = ahead.pop()
        if page not in reached:
            reached.add(page)
            ahead += [(page.parent / link).resolve() for link in LINK.findall(page.read_text())]
    lost = {page for page in PAGES if (ROOT / page).parent == ROOT / "docs" and ROOT / page not in reached}
    assert not lost, "link to it from a page that its reader meets first"


def test_every_public_name_of_the_client_is_in_the_reference_once() -> None:
    named = re.findall(r"^::: waltz_client\.(\w+)$", (ROOT / "docs/api/client.md").read_text(), re.MULTILINE)
    assert sorted(named) == sorted(set(waltz_client.__all__) - {"__version__"}), (
        "give it a line in docs/api/client.md"
    )


@pytest.mark.parametrize("package", ["client", "spark-on-k8s"])
def test_every_public_package_has_a_page(package: str) -> None:
    """Those with an `__all__`, and the module that is the client without an event loop."""
    public = {
        ".".join(path.parent.relative_to(ROOT / package / "src").parts)
        for path in (ROOT / package / "src").rglob("__init__.py")
        if "_internal" not in path.parts and "\n__all__ = " in path.read_text()
    }
    text = "".join(path.read_text() for path in (ROOT / "docs" / "api").glob("*.md"))
    assert public
    assert not {
        name for name in public - INNER if not re.search(rf"^::: {name}(\.\w+)?$", text, re.MULTILINE)
    }


def test_nothing_of_the_site_is_fetched() -> None:
    """Neither when it is built nor when it is read."""
    assert yaml.safe_load(SITE.read_text())["theme"]["highlightjs"] is False


def test_the_site_is_built_so_that_a_lost_link_fails() -> None:
    """`--quiet` hides warnings from `--strict` too: seen to pass with a link to a page that is not there."""
    (line,) = re.findall(r"mkdocs build .*", (ROOT / "Makefile").read_text())
    assert "--strict" in line
    assert "--quiet" not in line
