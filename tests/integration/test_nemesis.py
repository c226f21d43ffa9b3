"""`make nemesis` in short: one minute of overlapping faults on real processes, under checked load; and no
orphans after it."""

import asyncio
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from tests.integration.journals import Journals
from tests.integration.nemesis.run import Settings, run
from tests.integration.nemesis.table import table

pytestmark = [pytest.mark.long, pytest.mark.timeout(300)]

MINUTES = 1.0
START_SECONDS = 90.0
END_SECONDS = 60.0
REPOSITORY = Path(__file__).parents[2]


async def test_a_minute_of_faults_loses_nothing(tmp_path: Path) -> None:
    seed = random.SystemRandom().randrange(1_000_000)
    journal = random.Random(seed).choice(list(Journals))
    print(
        f"again: python -m tests.integration.nemesis --minutes {MINUTES:g} --seed {seed} --journal {journal}"
    )
    started = time.monotonic()
    result = await run(Settings(tmp_path, seed, MINUTES, journals=journal))
    print(table(result, seed, time.monotonic() - started))
    assert not result.violations, "\n".join(result.violations)
    assert sum(result.faults.values()) >= 10
    assert result.acknowledged > 100


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
async def test_nothing_is_left_running(tmp_path: Path, number: signal.Signals) -> None:
    command = ["-m", "tests.integration.nemesis", "--minutes", "5", "--no-tls", "--keep", str(tmp_path)]
    process = await asyncio.create_subprocess_exec(
        sys.executable, *command, cwd=REPOSITORY, stdout=subprocess.PIPE
    )
    assert process.stdout is not None
    try:
        async with asyncio.timeout(START_SECONDS):
            while not (await process.stdout.readline()).startswith(b"round 1"):
                pass
        assert len(_descendants_of(tmp_path)) > 10
        await asyncio.sleep(2.0)  # into the faults: some processes are stopped
        process.send_signal(number)
        async with asyncio.timeout(END_SECONDS):
            await process.wait()
            while _descendants_of(tmp_path) and number is signal.SIGKILL:
                await asyncio.sleep(0.1)  # the kernel ends them
        assert _descendants_of(tmp_path) == []
        assert process.returncode == (-signal.SIGKILL if number is signal.SIGKILL else 128 + signal.SIGINT)
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
        # After SIGKILL nobody was there to unmount. Nothing stays mounted, or pytest cannot clear up either.
        mounted = (disk := tmp_path / "cluster" / "storage-2").is_mount()
        async with asyncio.timeout(END_SECONDS):
            while disk.is_mount():  # busy while the kernel closes the files of who was killed
                subprocess.run(["umount", str(disk)], check=False)
                await asyncio.sleep(0.1)
    assert not mounted or number is signal.SIGKILL


def _descendants_of(directory: Path) -> list[str]:
    """Command lines of running processes that name the directory, the nemesis itself left out."""
    found = []
    for process in psutil.process_iter(["cmdline", "status"]):
        line = " ".join(process.info["cmdline"] or [])
        if str(directory) in line and "--keep" not in line and process.info["status"] != psutil.STATUS_ZOMBIE:
            found.append(line)
    return found
