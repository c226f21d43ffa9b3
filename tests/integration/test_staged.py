"""A stage that has failed fails the rest of its file at once, with the first cause; and a wait on it ends
with the process it waits for."""

import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.integration import conftest
from tests.integration.cli.stage import Stage

_FILE = """
import time, pytest
pytestmark = pytest.mark.staged
def test_one(): pass
def test_two(): raise ValueError("the disk of s2 is gone")
def test_three(): time.sleep(60)
@pytest.mark.parametrize("n", range(3))
def test_four(n): time.sleep(60)
"""


def test_the_rest_of_a_staged_file_fails_with_the_first_cause(tmp_path: Path) -> None:
    (tmp_path / "conftest.py").write_text(Path(conftest.__file__).read_text())
    (tmp_path / "test_steps.py").write_text(_FILE)
    (tmp_path / "test_others.py").write_text("def test_fine(): pass\n")
    (tmp_path / "pytest.ini").write_text("[pytest]\nmarkers = staged\n")
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        "-p",
        "no:asyncio",
        str(tmp_path),
    ]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=50, check=False)
    assert "1 failed, 2 passed, 4 errors" in done.stdout, done.stdout
    assert done.stdout.count("test_two failed before (call): ValueError: the disk of s2 is gone") >= 4


def test_a_wait_on_the_stage_ends_with_the_process_that_ended(tmp_path: Path) -> None:
    stage = Stage.__new__(Stage)
    stage.directory = tmp_path
    with (tmp_path / "s1.log").open("wb") as log:
        dead = subprocess.Popen(
            [sys.executable, "-c", "print('port 7 is in use'); raise SystemExit(1)"], stdout=log
        )
    dead.wait(30)
    stage.processes = {"s1": dead}
    started = time.monotonic()
    with pytest.raises(AssertionError, match=r"^s1 has ended with 1:\nport 7 is in use"):
        stage.until(lambda: False, "an append")
    assert time.monotonic() - started < 30
    stage.processes = {}
    with pytest.raises(AssertionError, match=r"^an append: not after 0.2 s"):
        stage.until(lambda: False, "an append", seconds=0.2)
