"""Children of a crashed parent must not stay behind."""

import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import psutil
import pytest

from waltz_tools.local import parent_guard

linux_only = pytest.mark.skipif(
    not sys.platform.startswith("linux"), reason="the kernel's parent death signal"
)


def _wait_until_gone(pid: int, timeout_seconds: float = 10.0) -> bool:
    deadline = time.monotonic() + timeout_seconds
    while time.monotonic() < deadline:
        try:
            if psutil.Process(pid).status() == psutil.STATUS_ZOMBIE:
                return True
        except psutil.NoSuchProcess:
            return True
        time.sleep(0.01)
    return False


@linux_only
def test_guarded_program_dies_with_a_killed_parent(tmp_path: Path) -> None:
    script = textwrap.dedent(
        """
        import asyncio, sys
        from pathlib import Path
        from waltz_tools.local.process import ManagedProcess

        async def main():
            child = ManagedProcess("sleeper", ["sleep", "1000"], Path(sys.argv[1]) / "log", {})
            await child.start()
            child_stopped = ManagedProcess("paused", ["sleep", "1000"], Path(sys.argv[1]) / "log", {})
            await child_stopped.start()
            child_stopped.pause()
            print(child.pid, child_stopped.pid, flush=True)
            await asyncio.sleep(1000)

        asyncio.run(main())
        """
    )
    parent = subprocess.Popen(
        [sys.executable, "-c", script, str(tmp_path)], stdout=subprocess.PIPE, text=True
    )
    try:
        if parent.stdout is None:
            raise AssertionError("no pipe")
        children = [int(pid) for pid in parent.stdout.readline().split()]
        assert all(psutil.pid_exists(pid) for pid in children)
    finally:
        parent.send_signal(signal.SIGKILL)
        parent.wait()
        if parent.stdout is not None:
            parent.stdout.close()
    assert all(_wait_until_gone(pid) for pid in children)


@linux_only
def test_guard_ends_at_once_when_the_parent_is_gone_already() -> None:
    answer = subprocess.run(
        [
            sys.executable,
            parent_guard.__file__,
            str(os.getpid() + 1),
            parent_guard.NO_PIPE,
            "echo",
            "started",
        ],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (answer.returncode, answer.stdout) == (1, "")


def test_guard_runs_the_program_in_its_place() -> None:
    with subprocess.Popen(
        [
            sys.executable,
            parent_guard.__file__,
            str(os.getpid()),
            parent_guard.NO_PIPE,
            "sh",
            "-c",
            "echo $$",
        ],
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        out, _ = process.communicate()
    assert int(out) == process.pid


def test_guard_says_in_one_line_that_a_program_is_missing() -> None:
    answer = subprocess.run(
        [sys.executable, parent_guard.__file__, str(os.getpid()), parent_guard.NO_PIPE, "/no/such/program"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert answer.returncode == 1
    assert answer.stderr.strip().splitlines() == [
        "Error: cannot start /no/such/program: No such file or directory"
    ]
