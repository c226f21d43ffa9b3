"""What `make release-check` says of trees that disagree with themselves: one sentence each."""

import re
import shutil
from pathlib import Path

import pytest
from release import check, tree
from release.built import built_problems

FILES = ("Makefile", "CHANGELOG.md", "LICENSE", "README.md", "Dockerfile.server", "Dockerfile.storage")
FOLDERS = (
    "manifests",
    "operator/Dockerfile",
    "spark-on-k8s/deploy/Dockerfile",
    "docs/spark.md",
    "docs/install.md",
)
SERVER = "services/server/pyproject.toml"


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the check reads, copied from the repository."""
    root = tmp_path_factory.mktemp("tree")
    for name in (*FILES, *FOLDERS):
        _copy(tree.ROOT / name, root / name)
    for member in tree.members():
        where = member.folder.relative_to(tree.ROOT)
        for name in ("pyproject.toml", "LICENSE", "README.md"):
            _copy(member.folder / name, root / where / name)
        for package in member.packages:
            for name in ("__init__.py", "py.typed"):
                _copy(package / name, root / package.relative_to(tree.ROOT) / name)
    return root


@pytest.fixture
def copy(original: Path, tmp_path: Path) -> Path:
    shutil.copytree(original, tmp_path / "tree")
    return tmp_path / "tree"


def _copy(source: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    if source.is_dir():
        shutil.copytree(source, target)
    else:
        shutil.copy(source, target)


def _change(file: Path, pattern: str, replacement: str) -> None:
    text = file.read_text()
    changed, count = re.subn(pattern, replacement, text, count=1)
    assert count == 1, (file, pattern)
    file.write_text(changed)


def test_a_tree_that_agrees_has_nothing_to_say(copy: Path) -> None:
    assert check.problems(copy) == []


@pytest.mark.parametrize(
    ("name", "pattern", "replacement", "sentence"),
    [
        (SERVER, r'">=3\.11"', '">=3.12"', r"services/server/pyproject\.toml: requires-python is '>=3\.12', and"),
        (SERVER, r"    \"Topic :: Database\",\n", "", r"services/server/pyproject\.toml: classifiers is"),
        (SERVER, r"hatchling>=", "hatchling==", r"\[build-system\] is not that of release/waltz"),
        (SERVER, r"waltz-cluster==[\d.]+", "waltz-cluster", r"“waltz-cluster” has to be waltz-cluster=="),
        (SERVER, r"structlog>=", "structlog<", r"“structlog<.*” has no lower bound"),
        (SERVER, r"structlog>=[\d.]+", "structlog>=1", r"has other bounds than libs/runtime/pyproject\.toml"),
        (SERVER, r"structlog>=", "structlog >> ", r"is no requirement"),
        (SERVER, r"\.\./libs/protocol/src", "libs", r"the version is read from"),
        (SERVER, r"description = \".*\"", 'description = ""', r"has no description"),
        ("client/LICENSE", r"Apache", "Another", r"client/LICENSE is not a copy of LICENSE"),
        ("client/src/waltz_client/__init__.py", r"(?s).*", "", r"waltz_client/__init__\.py has no __version__"),
        ("manifests/examples/ledger.yaml", r"waltz-server:[\d.]+", "waltz-server:0.0.9",
         r"manifests/examples/ledger\.yaml names waltz-server:0\.0\.9; the release is"),
        ("docs/install.md", r"waltz-[\d.]+-py3", "waltz-0.0.9-py3", r"docs/install\.md names the wheel of waltz 0\.0\.9"),
        ("docs/spark.md", r"waltz-spark:[\d.]+", "waltz-spark:latest", r"docs/spark\.md names waltz-spark:latest"),
        ("Dockerfile.server", r"image\.version=\"[^\"]*\"", 'image.version="0.1.0"', r"has to come from the build"),
        ("Dockerfile.server", r"image\.licenses=\"[^\"]*\"", 'image.other="x"', r"gives the image no label licenses"),
        ("Makefile", r"-t waltz-server:", "-t other:", r"the image waltz-server, and Makefile builds none"),
        ("Makefile", r"libs/protocol/src/waltz_protocol/__init__\.py", "operator/pyproject.toml",
         r"Makefile does not take VERSION from"),
        (str(tree.VERSION_FILE), r"__version__ = \"[\d.]+\"", '__version__ = "one"', r"one is no version"),
        (str(tree.VERSION_FILE), r"__version__ = \"[\d.]+\"", "VERSION = 1", r"has no line __version__"),
        ("release/waltz/pyproject.toml", r'name = "waltz"', 'name = "other"', r"no distribution named waltz"),
    ],
)  # fmt: skip
def test_each_disagreement_is_one_sentence(
    copy: Path, name: str, pattern: str, replacement: str, sentence: str
) -> None:
    _change(copy / name, pattern, replacement)
    found = check.problems(copy)
    assert len([one for one in found if re.search(sentence, one)]) == 1, found
    assert len(found) <= 2, found


def test_a_missing_marker_of_types_is_named(copy: Path) -> None:
    (copy / "client/src/waltz_client/py.typed").unlink()
    assert check.problems(copy) == [
        "client/src/waltz_client has no py.typed: type checkers would ignore its annotations"
    ]


def test_a_version_that_only_one_place_knows_is_found_everywhere(copy: Path) -> None:
    """The version was raised and nothing else."""
    _change(copy / tree.VERSION_FILE, r"\"[\d.]+\"", '"7.7.7"')
    found = "\n".join(check.problems(copy))
    assert "release/waltz/pyproject.toml: “waltz-client==" in found
    assert "manifests/common/operator.yaml names waltz-operator:" in found


def test_the_changelog_begins_with_the_release(copy: Path) -> None:
    version = tree.version(copy)
    for heading, right in (
        (f"## {version} (2026-11-23)", True),
        (f"## {version}", False),
        ("## Unreleased", False),
        ("## 0.0.9 (2026-11-23)", False),
    ):
        (copy / "CHANGELOG.md").write_text(f"# Changelog\n\n{heading}\n\nText.\n")
        found = check.changelog_problems(copy)
        assert bool(found) is not right, heading
        if found:
            assert heading.removeprefix("## ") in found[0]
            assert f"## {version} (YYYY-MM-DD)" in found[0]


@pytest.mark.long
def test_what_was_built_of_another_tree_is_named(copy: Path, dist: Path, tmp_path: Path) -> None:
    shutil.copytree(dist, tmp_path / "dist")
    dist, version = tmp_path / "dist", tree.version()
    (dist / f"waltz_client-{version}.tar.gz").rename(dist / "waltz_client-0.0.9.tar.gz")
    _change(copy / SERVER, r"description = \".*\"", 'description = "Something else"')
    _change(copy / "client/pyproject.toml", r'    "Topic :: Database",\n', "")
    found = built_problems(dist, tree.shipped(copy), version)
    assert len(found) == 4
    assert f"{dist} has no waltz_client-{version}.tar.gz: run make wheels" in found
    assert f"{dist} has waltz_client-0.0.9.tar.gz, which is not of release {version}" in found
    server, client = (f"waltz_{name}-{version}-py3-none-any.whl" for name in ("server", "client"))
    assert any(one.startswith(f"{server}: Summary is ") for one in found)
    assert f"{client} has other classifiers than the sources: run make wheels" in found
