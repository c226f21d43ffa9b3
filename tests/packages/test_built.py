"""What is built: complete, alike from sources and from an sdist, and buildable from what an image gets."""

import re
import shutil
import zipfile
from pathlib import Path

import pytest
from release.built import built_problems
from release.tree import Member, shipped, version
from release.wheels import from_tree

from tests.repo.files import ROOT

DOCKERFILES = (
    "Dockerfile.server",
    "Dockerfile.storage",
    "operator/Dockerfile",
    "spark-on-k8s/deploy/Dockerfile",
)


def _contents(archive: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(archive) as opened:
        return {name: opened.read(name) for name in opened.namelist()}


def test_nothing_is_missing_left_over_or_of_another_version(dist: Path) -> None:
    assert built_problems(dist, shipped(), version()) == []


@pytest.mark.parametrize("member", shipped(), ids=lambda member: member.name)
def test_a_wheel_from_the_sdist_is_the_wheel_from_the_sources(
    member: Member, dist: Path, tmp_path: Path
) -> None:
    here = from_tree(member.folder, tmp_path)
    assert _contents(here) == _contents(dist / here.name)


def test_wheels_hold_nothing_but_packages_and_metadata(dist: Path) -> None:
    own = {package.name for member in shipped() for package in member.packages}
    own |= {module.name for member in shipped() for module in (member.folder / "src").glob("*.py")}
    for wheel in dist.glob("*.whl"):
        for name in _contents(wheel):
            top = name.partition("/")[0]
            assert top in own or top.endswith(".dist-info"), (wheel.name, name)
            assert not name.endswith((".pyc", ".pyi")), (wheel.name, name)


def test_the_archive_for_spark_is_pure_and_the_same_each_time(dist: Path, tmp_path: Path) -> None:
    from release import pyfiles

    (archive,) = dist.glob("*.zip")
    assert {name.rpartition(".")[2] for name in _contents(archive)} <= {
        "py",
        "typed",
        "dist-info/METADATA",
    } | {name.rpartition(".")[2] for name in _contents(archive) if ".dist-info/" in name}
    for wheel in dist.glob("*.whl"):
        shutil.copy(wheel, tmp_path)
    assert pyfiles.build(tmp_path).read_bytes() == archive.read_bytes()


@pytest.mark.parametrize("dockerfile", DOCKERFILES)
def test_an_image_gets_every_file_that_its_wheels_are_built_from(dockerfile: str, tmp_path: Path) -> None:
    """The COPY lines, with what .dockerignore lets through, then each folder that `pip wheel` is given."""
    text = (ROOT / dockerfile).read_text()
    allowed = [line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")]
    for line in re.findall(r"^COPY ((?!--from).*)$", text, re.MULTILINE):
        *sources, target = line.split()
        for source in sources:
            for name in allowed:
                if name == source or name.startswith(f"{source}/") or source.startswith(f"{name}/"):
                    place = (
                        tmp_path / target.strip("/") / Path(name).relative_to(source)
                        if name != source
                        else None
                    )
                    _copy(ROOT / name, place or _under(tmp_path / target.strip("/"), ROOT / source, target))
    folders = re.findall(r"/src/[\w/-]+", text.split("--wheel-dir /wheels", 1)[1].split("&&", 1)[0])
    if "spark" in dockerfile:
        folders = re.findall(r"/src/[\w/-]+", text.rsplit("--wheel-dir /wheels", 1)[1].split("&&", 1)[0])
    assert folders
    (tmp_path / "wheels").mkdir()
    for folder in folders:
        wheel = from_tree(tmp_path / folder.strip("/"), tmp_path / "wheels")
        assert any(name.endswith("licenses/LICENSE") for name in _contents(wheel)), wheel.name


def _under(target: Path, source: Path, written: str) -> Path:
    return target / source.name if written.endswith("/") else target


def _copy(source: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    if source.is_dir():
        shutil.copytree(source, target, dirs_exist_ok=True, ignore=shutil.ignore_patterns("__pycache__"))
    elif source.is_file():
        shutil.copy(source, target)
