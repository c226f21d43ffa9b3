"""Every program as process 1 of a container, where a signal without a handler is ignored."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

UNSHARE = ("unshare", "--user", "--map-root-user", "--pid", "--fork", "--kill-child")
PROGRAMS = ("waltz_server", "waltz_storage", "waltz_operator", "waltz_tools")
FIRST = "waltz_runtime.early_end"
SECONDS = 60.0


@pytest.fixture(scope="module", autouse=True)
def namespaces() -> None:
    try:
        subprocess.run([*UNSHARE, "true"], check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError) as failure:
        pytest.skip(f"cannot make a process namespace here: {failure}")


@pytest.mark.parametrize("program", PROGRAMS)
def test_a_program_that_is_still_imported_ends_at_sigterm(program: str) -> None:
    """The import of what handles the signal in order takes seconds on a busy machine."""
    command = [*UNSHARE, sys.executable, "-X", "importtime", "-m", program, "--help"]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        imported: list[str] = []
        for line in process.stderr:
            imported.append(line.rpartition("|")[2].strip())
            if imported[-1] == FIRST:
                children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
                os.kill(int(children[0]), signal.SIGTERM)
                break
        assert imported[-1] == FIRST, "it is never imported"
        ours = [one for one in imported if one.startswith("waltz_")]
        known = {"waltz_runtime", "waltz_protocol", program, FIRST}
        assert set(ours) <= known, "and before anything that takes a while"
        process.communicate(timeout=SECONDS)
        assert process.returncode == 128 + signal.SIGTERM
