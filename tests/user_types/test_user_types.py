"""The client as its users type-check it: the built wheel in an environment of its own, mypy and pyright, both
strict.

`make types-as-user` makes the environment, `.venv-types`; basedpyright is pyright with the program that it
runs on, so nothing is fetched when it runs.
"""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.repo.files import ROOT

BIN = ROOT / ".venv-types" / "bin"
EXAMPLES = ROOT / "examples"

pytestmark = [
    pytest.mark.long,
    pytest.mark.timeout(600),
    pytest.mark.skipif(
        not (BIN / "basedpyright").exists(), reason="no .venv-types: run this with make types-as-user"
    ),
]


def run(*command: str, cwd: Path) -> None:
    done = subprocess.run(command, cwd=cwd, text=True, capture_output=True, check=False, timeout=500)
    assert not done.returncode, done.stdout + done.stderr


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A user's directory: outside of this tree, so that only the installed wheel is found."""
    (tmp_path / "program.py").write_text((Path(__file__).parent / "program.py").read_text())
    blocks = re.findall(
        r"^```python\n(.*?)^```", (ROOT / "docs" / "applications.md").read_text(), re.DOTALL | re.MULTILINE
    )
    assert len(blocks) > 3
    for number, block in enumerate(blocks):
        before = "".join(re.findall(r"^(?:from|import) .*\n", "".join(blocks[:number]), re.MULTILINE))
        (tmp_path / f"page_{number}.py").write_text(before + block)
    configuration = {
        "typeCheckingMode": "strict",
        "include": ["."],
        "venvPath": str(ROOT),
        "venv": ".venv-types",
        # A block of the page comes after all imports before it; views of Flask are used by their decorator.
        "reportUnusedImport": False,
        "reportDuplicateImport": False,
        "reportUnusedFunction": False,
    }
    (tmp_path / "pyrightconfig.json").write_text(json.dumps(configuration))
    return tmp_path


def test_what_is_checked_is_the_wheel() -> None:
    found = subprocess.run(
        [BIN / "python", "-c", "import waltz_client, pytest_waltz; print(waltz_client.__file__)"],
        text=True,
        capture_output=True,
        check=True,
    )
    assert Path(found.stdout).is_relative_to(ROOT / ".venv-types")


def test_mypy_strict(project: Path) -> None:
    run(
        str(BIN / "mypy"),
        "--strict",
        "--python-executable",
        str(BIN / "python"),
        *_sources(project),
        cwd=project,
    )


def test_pyright_strict(project: Path) -> None:
    run(str(BIN / "basedpyright"), "--project", str(project), "--level", "error", cwd=project)


@pytest.mark.parametrize("name", ["ledger", "inventory"])
def test_mypy_strict_on_an_example(name: str) -> None:
    run(
        *(
            str(BIN / "mypy"),
            "--strict",
            "--explicit-package-bases",
            "--python-executable",
            str(BIN / "python"),
        ),
        *("--config-file", "", name),
        cwd=EXAMPLES / name,
    )


def test_a_wrong_program_is_refused(project: Path) -> None:
    """Otherwise the checks above would show nothing."""
    (project / "program.py").write_text(
        "from waltz_client import WaltzClient\n"
        "async def wrong(client: WaltzClient) -> None:\n"
        "    await client.append(partition='0', data=b'')\n"
        "    async for one in client.feed(0, headers_only=True):\n"
        "        one.data.decode()\n"
    )
    for command in (
        [str(BIN / "mypy"), "--strict", "--python-executable", str(BIN / "python"), "program.py"],
        [str(BIN / "basedpyright"), "--project", str(project), "--level", "error"],
    ):
        done = subprocess.run(command, cwd=project, text=True, capture_output=True, check=False, timeout=500)
        assert done.returncode == 1, done.stderr
        assert len(re.findall(r"program\.py:[35]", done.stdout)) == 2, done.stdout


def _sources(project: Path) -> list[str]:
    assert sys.version_info >= (3, 11)
    return sorted(path.name for path in project.glob("*.py"))
