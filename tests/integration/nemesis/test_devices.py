"""The faults of disks: a small one fills and empties; syncs fail when asked to; where a machine can't, one
line says so."""

import asyncio
import errno
import os
import shutil
import sys
from pathlib import Path

import pytest

from tests.integration.nemesis.devices import failing_syncs, small_disk

SYNC_UNTIL_IT_FAILS = """
import os, sys, time
fd = os.open(sys.argv[1], os.O_CREAT | os.O_WRONLY)
print("ready", flush=True)
deadline = time.monotonic() + 30
while time.monotonic() < deadline:
    try:
        os.fdatasync(fd)
    except OSError as error:
        sys.exit(error.errno)
    time.sleep(0.01)
"""


async def test_a_small_disk_fills_up_and_gets_room_again(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with small_disk(tmp_path / "disk") as disk:
        if disk is None:
            pytest.skip(capsys.readouterr().out.strip())
        await disk.fill()
        with pytest.raises(OSError, match=os.strerror(errno.ENOSPC)):
            (disk.path / "more").write_bytes(bytes(8192))
        disk.free()
        (disk.path / "more").write_bytes(bytes(8192))
    assert not (tmp_path / "disk").is_mount()


async def test_sync_calls_fail_when_told_to(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    syncs = failing_syncs(tmp_path)
    if syncs is None:
        pytest.skip(capsys.readouterr().out.strip())
    command = [*syncs.wrapper, sys.executable, "-c", SYNC_UNTIL_IT_FAILS, str(tmp_path / "file")]
    process = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
    assert process.stdout is not None
    assert await process.stdout.readline() == b"ready\n"
    assert await syncs.begin(process.pid)
    assert await process.wait() == errno.EIO


def test_what_is_missing_is_said_in_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(shutil, "which", lambda name: None)
    assert failing_syncs(tmp_path) is None
    with small_disk(tmp_path / "disk") as disk:
        assert disk is None
    lines = capsys.readouterr().out.splitlines()
    assert [line.split(":")[0] for line in lines] == ["no failing sync calls", "no full disks"]
