"""The repository as a release sees it: its members, its version, and where both are written."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parents[1]
VERSION_FILE = Path("libs/protocol/src/waltz_protocol/__init__.py")
"""Where the version is: the build of every member reads it, and so does every `__version__`."""
META = "waltz"
"""The distribution that is nothing but extras."""
_OUTPUT = ("build", "dist")
_PRIVATE = "Private :: Do Not Upload"


class Member(NamedTuple):
    """A folder with a pyproject.toml, of which a distribution is made."""

    folder: Path
    settings: dict[str, Any]

    @property
    def project(self) -> dict[str, Any]:
        """The table `[project]`."""
        return dict(self.settings.get("project", {}))

    @property
    def name(self) -> str:
        return str(self.project.get("name", self.folder.name))

    @property
    def shipped(self) -> bool:
        return _PRIVATE not in self.project.get("classifiers", ())

    @property
    def packages(self) -> list[Path]:
        """Its import packages; the meta package has none."""
        return sorted(path.parent for path in (self.folder / "src").glob("*/__init__.py"))


def members(root: Path = ROOT) -> list[Member]:
    """Every member below the root, the meta package too."""
    found = [*root.glob("[a-z]*/pyproject.toml"), *root.glob("[a-z]*/*/pyproject.toml")]
    files = sorted(file for file in found if file.relative_to(root).parts[0] not in _OUTPUT)
    return [Member(file.parent, tomllib.loads(file.read_text())) for file in files]


def shipped(root: Path = ROOT) -> list[Member]:
    """The members of a release."""
    return [member for member in members(root) if member.shipped]


def version(root: Path = ROOT) -> str:
    """The version of the tree; ValueError where there is none."""
    found = re.search(r'^__version__ = "(.+)"$', (root / VERSION_FILE).read_text(), re.MULTILINE)
    if found is None:
        raise ValueError(f'{VERSION_FILE} has no line __version__ = "…"')
    return found.group(1)
