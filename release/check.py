"""`python -m release.check [DIST]`: what disagrees in a release, one sentence each (make release-check).

Held together are the version, the heading of CHANGELOG.md, the images (tags in manifests, labels in
Dockerfiles), the metadata of all members, and what was built of them. Exit code 1 when something disagrees.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Iterator
from pathlib import Path

from packaging.requirements import InvalidRequirement, Requirement
from packaging.version import InvalidVersion, Version

from release.built import built_problems
from release.tree import META, ROOT, VERSION_FILE, Member, members, shipped, version

_SHARED = ("dynamic", "readme", "license", "license-files", "requires-python", "classifiers")
"""In each pyproject.toml, as the back end takes only the version from elsewhere, and alike in all."""
_LABELS = ("title", "description", "licenses", "version", "revision")
_IMAGE = re.compile(r"\b(waltz-(?:storage|server|operator|zookeeper|spark)):([0-9A-Za-z][\w.-]*)")
_WHEEL = re.compile(r"\b(waltz)-([0-9][0-9A-Za-z.]*)-py3-none-any\.whl")
_NAMED_IN = ("manifests", "docs", "spark-on-k8s/deploy", "README.md")
"""Where images are named with the tag of this release."""


def problems(root: Path = ROOT) -> list[str]:
    """What disagrees in the sources at any time; the changelog only at a release."""
    try:
        found = version(root)
        Version(found)
    except (OSError, ValueError) as error:
        unusable = (
            f"{VERSION_FILE}: {found} is no version" if isinstance(error, InvalidVersion) else str(error)
        )
        return [unusable]
    return [*_metadata(root), *_dependencies(root, found), *_tags(root, found), *_builds_of_images(root)]


def changelog_problems(root: Path = ROOT) -> list[str]:
    """What disagrees between the version and the first heading of CHANGELOG.md."""
    wanted, text = version(root), (root / "CHANGELOG.md").read_text()
    first = next((line[3:].strip() for line in text.splitlines() if line.startswith("## ")), "no heading")
    if re.fullmatch(rf"{re.escape(wanted)} \(\d{{4}}-\d\d-\d\d\)", first):
        return []
    return [
        f"CHANGELOG.md begins with “{first}”; the release of {wanted} needs “## {wanted} (YYYY-MM-DD)” there"
    ]


def _metadata(root: Path) -> Iterator[str]:
    everyone = members(root)
    model = next((member for member in everyone if member.name == META), None)
    if model is None:
        yield f"there is no distribution named {META}"
        return
    license_text = (root / "LICENSE").read_bytes()
    for member in everyone:
        where = member.folder.relative_to(root)
        alike = _SHARED if member.shipped else tuple(key for key in _SHARED if key != "classifiers")
        for key in alike:
            if member.project.get(key) != model.project.get(key):
                yield (
                    f"{where}/pyproject.toml: {key} is {member.project.get(key)!r}, "
                    f"and {model.project.get(key)!r} in {model.folder.relative_to(root)}"
                )
        if member.settings.get("build-system") != model.settings.get("build-system"):
            yield f"{where}/pyproject.toml: [build-system] is not that of {model.folder.relative_to(root)}"
        source = member.settings.get("tool", {}).get("hatch", {}).get("version", {}).get("path", "")
        if (member.folder / source).resolve() != (root / VERSION_FILE).resolve():
            yield f"{where}/pyproject.toml: the version is read from {source or 'nowhere'}, not from {VERSION_FILE}"
        copy = member.folder / "LICENSE"
        if not copy.is_file() or copy.read_bytes() != license_text:
            yield f"{where}/LICENSE is not a copy of LICENSE: without one the wheel has no license"
        for name in ("description", "name"):
            if not member.project.get(name):
                yield f"{where}/pyproject.toml has no {name}"
        yield from _packages(root, member)


def _packages(root: Path, member: Member) -> Iterator[str]:
    for package in member.packages:
        where = package.relative_to(root)
        if not (package / "py.typed").is_file():
            yield f"{where} has no py.typed: type checkers would ignore its annotations"
        if "__version__" not in (package / "__init__.py").read_text():
            yield f"{where}/__init__.py has no __version__ (from waltz_protocol import __version__ as __version__)"


def _dependencies(root: Path, found: str) -> Iterator[str]:
    """Ours are of exactly this release; the others have a lower bound, the same one everywhere."""
    everyone, bounds = members(root), dict[str, tuple[str, Path]]()
    own = {member.name for member in everyone}
    for member in everyone:
        where = member.folder.relative_to(root) / "pyproject.toml"
        for line in _requirements(member):
            try:
                wanted = Requirement(line)
            except InvalidRequirement as error:
                yield f"{where}: “{line}” is no requirement: {error}"
                continue
            if wanted.name in own:
                if str(wanted.specifier) != f"=={found}":
                    yield f"{where}: “{line}” has to be {wanted.name}=={found}, as all parts are released together"
                continue
            if not any(one.operator in (">=", "==", "~=") for one in wanted.specifier):
                yield f"{where}: “{line}” has no lower bound: write the oldest release that was tried"
            known, first = bounds.setdefault(wanted.name, (str(wanted.specifier), where))
            if known != str(wanted.specifier):
                yield f"{where}: “{line}” has other bounds than {first} ({wanted.name}{known})"


def _requirements(member: Member) -> Iterator[str]:
    yield from member.project.get("dependencies", ())
    for extra in member.project.get("optional-dependencies", {}).values():
        yield from extra


def _tags(root: Path, found: str) -> Iterator[str]:
    """Every image and wheel that manifests and pages name."""
    for name in _NAMED_IN:
        start = root / name
        for file in [start] if start.is_file() else sorted(start.rglob("*")):
            if not file.is_file() or file.suffix == ".pyc":
                continue
            text = file.read_text(errors="replace")
            named = [(f"{name}:{tag}", tag) for name, tag in _IMAGE.findall(text)]
            named += [(f"the wheel of {name} {tag}", tag) for name, tag in _WHEEL.findall(text)]
            for what, tag in named:
                if tag != found:
                    yield f"{file.relative_to(root)} names {what}; the release is {found}"


def _builds_of_images(root: Path) -> Iterator[str]:
    makefile = (root / "Makefile").read_text()
    if str(VERSION_FILE) not in makefile:
        yield f"Makefile does not take VERSION from {VERSION_FILE}, so images would have another version"
    files = [
        file for pattern in ("Dockerfile.*", "*/Dockerfile", "*/*/Dockerfile") for file in root.glob(pattern)
    ]
    for file in sorted(files):
        labels = dict(re.findall(r'org\.opencontainers\.image\.(\w+)="([^"]*)"', file.read_text()))
        where = file.relative_to(root)
        for name in _LABELS:
            if not labels.get(name):
                yield f"{where} gives the image no label {name}"
        for name in ("version", "revision"):
            if labels.get(name) and labels[name] != f"${{{name.upper()}}}":
                yield f"{where}: the label {name} is {labels[name]!r}; it has to come from the build (${{{name.upper()}}})"
        title = labels.get("title")
        if title and f"-t {title}:$(TAG)" not in makefile:
            yield f"{where} is the image {title}, and Makefile builds none of that name"


def main() -> int:
    """The command line; the exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m release.check", description="Does a release agree with itself?"
    )
    parser.add_argument("dist", type=Path, nargs="?", help="what was built (make wheels)")
    dist = parser.parse_args().dist
    found = problems()
    if not found:
        found += changelog_problems()
        if dist is not None:
            found += built_problems(dist, shipped(), version())
    for problem in found:
        sys.stdout.write(f"{problem}\n")
    sys.stdout.write(f"disagreements: {len(found)}\n" if found else f"everything is of release {version()}\n")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
