"""The simulated disk: what survives a kill, what a power cut takes, and handles of the dead."""

from __future__ import annotations

import asyncio
import errno
import random
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from tests.sim.kernel.disk import DATA_DIRECTORY, SimDisk
from tests.sim.kernel.loop import SimLoop
from tests.sim.kernel.process import Process, ProcessKilled, current
from waltz_testkit.faulty_disk import CrashMode, FaultyDisk, LostWrite

Main = Callable[[], Coroutine[Any, Any, None]]
FILE = f"{DATA_DIRECTORY}/file"


def in_world(main: Callable[[SimLoop, SimDisk], Coroutine[Any, Any, None]], seed: int = 1) -> SimLoop:
    loop = SimLoop(seed)
    loop.run(main(loop, SimDisk(loop.rng("disk"))))
    assert loop.errors == []
    return loop


async def forever() -> None:
    await asyncio.Event().wait()


def idle(loop: SimLoop, host: str = "storage-1") -> Process:
    return loop.spawn_process(host, loop.host(host), forever)


def test_what_was_written_survives_a_kill_but_its_handles_and_locks_do_not() -> None:
    async def main(loop: SimLoop, disk: SimDisk) -> None:
        first = idle(loop)
        file = disk.mount(first).open(FILE, create=True)
        assert file.lock(128)
        assert file.pwrite(b"unsynced", 0) == 8
        first.kill()
        for use in (lambda: file.pread(8, 0), file.sync, file.size, lambda: file.pwrite(b"x", 0)):
            with pytest.raises(ProcessKilled):
                use()
        again = disk.mount(idle(loop)).open(FILE)
        assert again.pread(8, 0) == b"unsynced"
        assert again.lock(128)

    in_world(main)


def test_a_lock_has_one_holder() -> None:
    async def main(loop: SimLoop, disk: SimDisk) -> None:
        assert disk.mount(idle(loop)).open(FILE, create=True).lock(128)
        assert not disk.mount(idle(loop)).open(FILE).lock(128)

    in_world(main)


def test_a_power_cut_keeps_what_was_synced_and_any_part_of_the_rest() -> None:
    outcomes = set()
    for seed in range(40):

        async def main(loop: SimLoop, disk: SimDisk) -> None:
            fs = disk.mount(idle(loop))
            file = fs.open(FILE, create=True)
            file.pwrite(b"s" * 2048, 0)
            file.sync()
            fs.sync_dir(DATA_DIRECTORY)
            file.pwrite(b"n" * 2048, 1024)
            fs.open(FILE + "2", create=True)
            loop.host("storage-1").power_off()
            content = disk.content(FILE)
            assert content[:1024] == b"s" * 1024
            outcomes.add((content, disk.exists(FILE + "2")))
            assert not disk.unsynced()
            assert disk.torn == 1

        in_world(main, seed)
    contents = {content for content, _ in outcomes}
    assert b"s" * 2048 in contents
    assert b"s" * 1024 + b"n" * 2048 in contents
    assert any(b"s" in content[1024:] and b"n" in content for content in contents)
    assert {present for _, present in outcomes} == {True, False}


def test_a_file_synced_without_its_directory_may_vanish() -> None:
    found = set()
    for seed in range(20):

        async def main(loop: SimLoop, disk: SimDisk) -> None:
            file = disk.mount(idle(loop)).open(FILE, create=True)
            file.pwrite(b"data", 0)
            file.sync()
            loop.host("storage-1").power_off()
            found.add(disk.exists(FILE))

        in_world(main, seed)
    assert found == {True, False}


@pytest.mark.parametrize("drops", [False, True])
def test_after_a_failed_sync_the_data_is_lost_at_once_or_at_the_next_crash(drops: bool) -> None:
    async def main(loop: SimLoop, disk: SimDisk) -> None:
        fs = disk.mount(idle(loop))
        file = fs.open(FILE, create=True)
        file.pwrite(b"old old", 0)
        file.sync()
        fs.sync_dir(DATA_DIRECTORY)
        disk.failed_sync_drops_pages, disk.fail_sync_once = drops, "file"
        file.pwrite(b"new", 0)
        file.pwrite(b"more", 7)
        with pytest.raises(OSError) as raised:
            file.sync()
        assert raised.value.errno == errno.EIO
        assert file.pread(20, 0) == (b"old old\0\0\0\0" if drops else b"new oldmore")
        file.sync()  # says yes, and has written nothing
        loop.host("storage-1").power_off()
        assert disk.content(FILE) == b"old old"

    in_world(main)


def test_a_full_disk_takes_a_part_then_nothing_and_room_comes_back() -> None:
    async def main(loop: SimLoop, disk: SimDisk) -> None:
        file = disk.mount(idle(loop)).open(FILE, create=True)
        file.pwrite(b"x" * 100, 0)
        disk.fill(10)
        assert file.pwrite(b"y" * 30, 100) == 10
        with pytest.raises(OSError) as raised:
            file.pwrite(b"y", 110)
        assert raised.value.errno == errno.ENOSPC
        assert file.pwrite(b"z" * 50, 0) == 50  # in place
        disk.heal()
        assert file.pwrite(b"y" * 30, 110) == 30

    in_world(main)


def test_a_process_dies_at_the_chosen_system_call() -> None:
    async def main(loop: SimLoop, disk: SimDisk) -> None:
        done: list[str] = []

        async def write() -> None:
            process = current()
            assert process is not None
            file = disk.mount(process).open(FILE, create=True)
            disk.crash_after_calls(2, process.kill)
            try:
                for number in range(5):
                    file.pwrite(b"x", number)
                    done.append("write")
            finally:
                done.append("cleaning up")
                file.close()

        process = loop.spawn_process("writer", loop.host("storage-1"), write)
        await process.wait_ended()
        assert done == ["write", "write", "cleaning up"]
        assert disk.content(FILE) == b"xx"

    in_world(main)


def test_power_can_fail_inside_a_system_call() -> None:
    async def main(loop: SimLoop, disk: SimDisk) -> None:
        host = loop.host("storage-1")
        process = idle(loop)
        fs = disk.mount(process)
        file = fs.open(FILE, create=True)
        file.sync()
        fs.sync_dir(DATA_DIRECTORY)
        disk.crash_after_calls(0, host.power_off)
        with pytest.raises(ProcessKilled):
            file.pwrite(b"x", 0)
        assert not process.alive
        assert disk.content(FILE) == b""
        host.power_on()
        disk.mount(idle(loop)).open(FILE).pwrite(b"y", 0)

    in_world(main)


def test_an_older_copy_can_be_put_back() -> None:
    async def main(loop: SimLoop, disk: SimDisk) -> None:
        fs = disk.mount(idle(loop))
        fs.make_dir(f"{DATA_DIRECTORY}/0")
        fs.open(f"{DATA_DIRECTORY}/0/a", create=True).pwrite(b"1", 0)
        copy = disk.snapshot()
        fs.open(f"{DATA_DIRECTORY}/0/a").pwrite(b"2", 0)
        fs.make_dir(f"{DATA_DIRECTORY}/1")
        fs.open(f"{DATA_DIRECTORY}/1/b", create=True)
        loop.host("storage-1").power_off()
        disk.wipe()
        assert disk.files() == {}
        assert disk.listdir(DATA_DIRECTORY) == []
        disk.restore(copy)
        assert disk.files() == {f"{DATA_DIRECTORY}/0/a": b"1"}
        disk.power_cut()
        assert disk.files() == {f"{DATA_DIRECTORY}/0/a": b"1"}

    in_world(main)


def test_the_kernel_writes_old_changes_back_by_itself() -> None:
    async def main(loop: SimLoop, disk: SimDisk) -> None:
        fs = disk.mount(idle(loop))
        file = fs.open(FILE, create=True)
        fs.sync_dir(DATA_DIRECTORY)
        for number in range(1000):
            file.pwrite(b"x", number)
        assert 0 < disk.durable_size(FILE) < 1000
        assert file.size() == 1000

    in_world(main)


def test_system_calls_take_time() -> None:
    async def main(loop: SimLoop, disk: SimDisk) -> None:
        file = disk.mount(idle(loop)).open(FILE, create=True)
        disk.charged = 0.0
        file.sync()
        fast = disk.charged
        assert fast > 0
        disk.sync_seconds = disk.sync_seconds._replace(low=1.0, high=2.0)
        file.sync()
        assert 1.0 <= disk.charged - fast <= 2.0

    in_world(main)


# -- lost writes ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("evicted", [True, False])
def test_a_lost_write_leaves_the_old_sector_and_says_nothing(evicted: bool) -> None:
    disk = FaultyDisk()
    disk.add_dir("/d")
    file = disk.open("/d/f", create=True)
    file.pwrite(b"a" * 1200, 0)
    file.sync()
    disk.sync_dir("/d")
    lost: list[tuple[str, int]] = []
    disk.lose_write = LostWrite(
        lambda path: path.endswith("f"),
        random.Random(1),
        evicted,
        lambda path, start: lost.append((path, start)),
    )
    file.pwrite(b"b" * 2000, 0)
    file.sync()
    ((path, start),) = lost
    assert path == "/d/f"
    end = min(start + 512, 2000)
    old = (b"a" * 1200).ljust(2000, b"\0")[start:end]
    hurt = b"b" * start + old + b"b" * (2000 - end)
    assert file.pread(2000, 0) == (hurt if evicted else b"b" * 2000)
    file.pwrite(b"c", 2000)  # what is written later arrives
    file.sync()
    disk.restart(CrashMode.LOSE)
    assert disk.open("/d/f").pread(3000, 0) == hurt + b"c"
