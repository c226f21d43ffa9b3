"""Lines of the documents, found by what they have and run as a shell does."""

import os
import re
import subprocess
from pathlib import Path

from tests.integration.cli.blocks import blocks
from tests.integration.cli.live import SECONDS
from tests.repo.files import ROOT


def lines_of(name: str, pattern: str) -> list[str]:
    found = [
        command
        for block in blocks(ROOT / name, ROOT)
        for command in block.commands
        if re.search(pattern, command)
    ]
    assert found
    return found


def shell(
    command: str, directory: Path, seconds: float, **environment: str
) -> subprocess.CompletedProcess[str]:
    """`environment`: what is added to that of the tests."""
    return subprocess.run(
        ["bash", "-c", command],
        cwd=directory,
        env={**os.environ, **environment},
        check=False,
        capture_output=True,
        text=True,
        timeout=seconds,
    )


def here(command: str, directory: Path, seconds: float = 2 * SECONDS) -> subprocess.CompletedProcess[str]:
    """A line of a document, in a directory that may be written to, with the modules of the repository in
    reach."""
    python = ROOT / ".venv" / "bin" / "python"
    line = re.sub(r"^(?:\.venv/bin/)?python\b", str(python), command)
    return shell(line, directory, seconds, PYTHONPATH=str(ROOT))
