"""What was built, held against the sources: every wheel and sdist, their metadata and their files."""

from __future__ import annotations

import zipfile
from collections.abc import Iterable, Iterator
from email import message_from_bytes
from email.message import Message
from pathlib import Path

from packaging.requirements import Requirement

from release.tree import Member


def built_problems(directory: Path, members: Iterable[Member], version: str) -> list[str]:
    """What is missing in the directory, left over there, or of another version or kind than the sources."""
    members = list(members)
    own = {member.name for member in members}
    expected = {f"waltz_spark-{version}-py-files.zip"}
    found: list[str] = []
    for member in members:
        stem = f"{member.name.replace('-', '_')}-{version}"
        wheel, sdist = directory / f"{stem}-py3-none-any.whl", directory / f"{stem}.tar.gz"
        expected |= {wheel.name, sdist.name}
        if wheel.is_file():
            found += _wheel_problems(wheel, member, version, own)
    there = {path.name for path in directory.glob("waltz*")}
    found += [f"{directory} has no {name}: run make wheels" for name in sorted(expected - there)]
    found += [
        f"{directory} has {name}, which is not of release {version}" for name in sorted(there - expected)
    ]
    return found


def _wheel_problems(wheel: Path, member: Member, version: str, own: set[str]) -> Iterator[str]:
    with zipfile.ZipFile(wheel) as archive:
        files = set(archive.namelist())
        information = f"{member.name.replace('-', '_')}-{version}.dist-info"
        if f"{information}/METADATA" not in files:
            yield f"{wheel.name} has no metadata of {member.name} {version}"
            return
        metadata = message_from_bytes(archive.read(f"{information}/METADATA"))
    yield from _metadata_problems(wheel.name, metadata, member, version, own)
    if f"{information}/licenses/LICENSE" not in files:
        yield f"{wheel.name} has no LICENSE"
    for package in member.packages:
        for name in ("__init__.py", "py.typed"):
            if f"{package.name}/{name}" not in files:
                yield f"{wheel.name} has no {package.name}/{name}"


def _metadata_problems(
    name: str, metadata: Message, member: Member, version: str, own: set[str]
) -> Iterator[str]:
    wanted = {
        "Version": version,
        "License-Expression": member.project.get("license"),
        "Requires-Python": member.project.get("requires-python"),
        "Summary": member.project.get("description"),
    }
    for key, value in wanted.items():
        if metadata[key] != value:
            yield f"{name}: {key} is {metadata[key]!r}, and {value!r} in the sources: run make wheels"
    if sorted(metadata.get_all("Classifier", [])) != sorted(member.project.get("classifiers", ())):
        yield f"{name} has other classifiers than the sources: run make wheels"
    if not str(metadata.get_payload()).strip():
        yield f"{name} has no description: README.md is missing or empty"
    for line in metadata.get_all("Requires-Dist", []):
        requirement = Requirement(line)
        if requirement.name in own and str(requirement.specifier) != f"=={version}":
            yield f"{name} needs {line}, which is not of release {version}"
