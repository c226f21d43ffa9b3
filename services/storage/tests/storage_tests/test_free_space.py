"""A full disk: the reserve, running out in any write, the way back without a restart, and the figures about
it."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from waltz_protocol.errors import RequestFailedError
from waltz_runtime.metrics import MetricsRegistry
from waltz_storage.__main__ import free_space_of
from waltz_storage.engine.control_file import ControlFile
from waltz_storage.engine.errors import (
    DiskFullError,
    DiskWriteError,
    PartitionDamagedError,
    PartitionFailedError,
    StorageError,
)
from waltz_storage.engine.files import disk_usage
from waltz_storage.engine.free_space import DiskUsage, FreeSpace, default_reserve
from waltz_storage.engine.partition import EngineSettings, Partition
from waltz_storage.engine.partition_info import FLAG_AVAILABLE
from waltz_storage.engine.storage_manager import StorageManager
from waltz_storage.service.growth import SAMPLE_SECONDS, WINDOW_SECONDS, Growth
from waltz_storage.service.metrics import GROUP
from waltz_storage.settings import StorageSettings
from waltz_testkit.faulty_disk import CrashMode, FaultyDisk

from .node_support import admin_connected, connected, records, running_node
from .support import KEY, ROOT, append, assert_holds, empty_disk, now_ms, refusal, segment_path

RESERVE = 4000
ENOUGH = RESERVE + RESERVE // 4
DAY = 86_400.0


class Copying(FaultyDisk):
    """A disk that needs room for every write, also in place; `full_at`: the write that finds none, and all
    after it."""

    def __init__(self) -> None:
        super().__init__()
        self.add_dir(ROOT)
        self.writes = 0
        self.full_at: int | None = None
        self.sync_finds_no_room = False

    def call(self, *what: object) -> None:
        super().call(*what)
        needs_room = what[0] in ("pwrite", "create", "make_dir")
        self.writes += needs_room
        if self.full_at is None or self.writes <= self.full_at:
            return
        if needs_room or (what[0] == "sync" and self.sync_finds_no_room):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(what[1]))


def opened(disk: FaultyDisk, room: FreeSpace | None = None, threshold: int = 1_000_000_000) -> StorageManager:
    return StorageManager.open(
        ROOT,
        cluster_key=KEY,
        num_partitions=4,
        now_ms=now_ms,
        settings=EngineSettings(threshold),
        fs=disk,
        room=room,
    )


def room_of(disk: FaultyDisk, reserve: int = RESERVE) -> FreeSpace:
    def look() -> DiskUsage:
        size = disk.capacity_bytes if disk.capacity_bytes is not None else 1 << 40
        return DiskUsage(size, size - disk.used_bytes())

    return FreeSpace(look, reserve)


def test_the_reserve_is_never_written_by_appends_and_room_ends_the_refusal() -> None:
    disk = empty_disk()
    room = room_of(disk)
    manager = opened(disk, room)
    partition = manager.assign(0)
    disk.capacity_bytes = disk.used_bytes() + RESERVE + 10_000
    error: StorageError | None = None
    while error is None:
        before = disk.files()
        try:
            append(partition, partition.max_txid + 1, 3, 200)
        except DiskFullError as refused:
            error = refused
    assert disk.files() == before, "a refusal changes nothing"
    assert RESERVE <= disk.capacity_bytes - disk.used_bytes() < RESERVE + 2000
    assert error.retriable
    assert "4,000 bytes" in str(error)
    held = partition.max_txid + 1
    assert held > 30
    # Everything that is not an append goes on.
    partition.raise_fence(7)
    partition.set_low_water_mark(7, partition.max_txid)
    partition.set_flags(FLAG_AVAILABLE, True)
    assert manager.status() == {0: False}, "a replica without room is not available"
    assert partition.failed is None
    # More is needed to go on than to be refused: a quarter of the reserve.
    disk.capacity_bytes = disk.used_bytes() + ENOUGH - 1
    room.refresh()
    assert isinstance(refusal(lambda: append(partition, held, 1, 200)), DiskFullError)
    disk.capacity_bytes = disk.used_bytes() + ENOUGH + 500
    append(partition, held, 1, 200)
    assert manager.status() == {0: True}
    assert_holds(partition, held + 1, 200)
    manager.close()


def test_a_large_request_is_refused_where_a_small_one_fits() -> None:
    disk = empty_disk()
    manager = opened(disk, room_of(disk))
    partition = manager.assign(0)
    disk.capacity_bytes = disk.used_bytes() + ENOUGH + 3000
    assert isinstance(refusal(lambda: append(partition, 0, 20, 1000)), DiskFullError)
    append(partition, 0, 1, 500)
    manager.close()


def test_a_look_does_not_end_a_refusal_that_the_same_append_would_meet_again() -> None:
    """Otherwise a node of large transactions says "full" and "has room" in turn, and takes none."""
    disk = empty_disk()
    room = room_of(disk)
    manager = opened(disk, room)
    partition = manager.assign(0)
    disk.capacity_bytes = disk.used_bytes() + ENOUGH + 3000
    refused = str(refusal(lambda: append(partition, 0, 20, 1000)))
    needed = int(refused.rpartition("continue when ")[2].split()[0].replace(",", ""))
    assert needed > ENOUGH + 3000
    for free in (ENOUGH + 3000, needed - 1):
        disk.capacity_bytes = disk.used_bytes() + free
        room.refresh()
        assert room.full is not None
        assert manager.status() == {0: False}
    disk.capacity_bytes = disk.used_bytes() + needed
    room.refresh()
    assert manager.status() == {0: True}
    append(partition, 0, 20, 1000)
    manager.close()


def _workload(partition: Partition, session: int) -> None:
    """A bit of everything that writes. The first error ends it."""
    partition.raise_fence(session)
    partition.set_low_water_mark(session, partition.max_txid)
    for _ in range(4):
        append(partition, partition.max_txid + 1, 5, 100)
    partition.truncate(partition.max_txid - 3)
    partition.set_flags(FLAG_AVAILABLE, True)
    append(partition, partition.max_txid + 1, 2, 100)


def _runs_out(number: int) -> bool:
    """The disk is full from the `number`-th write of the workload on, and later has room; False: it was not
    reached."""
    disk = Copying()
    manager = opened(disk, threshold=700)
    partition = manager.assign(0)
    append(partition, 0, 3, 100)
    disk.full_at = disk.writes + number
    error: StorageError | None = None
    try:
        _workload(partition, 5)
    except StorageError as caught:
        error = caught
    reached = disk.writes > disk.full_at
    assert error is None or isinstance(error, DiskWriteError), f"write {number}: {error!r}"
    assert partition.failed is None, f"write {number}: {partition.failed}"
    held = partition.max_txid + 1
    assert held >= 3
    assert_holds(partition, held, 100)
    disk.full_at = None
    partition.set_low_water_mark(6, partition.max_txid)
    append(partition, held, 4, 100)
    assert_holds(partition, held + 4, 100)
    # What the next life finds, after a power cut, is the same.
    disk.restart(CrashMode.LOSE)
    again = opened(disk, threshold=700)
    assert again.problems() == {}, f"write {number}"
    assert again.get(0).max_txid == held + 3
    assert_holds(again.get(0), held + 4, 100)
    again.close()
    return reached


def test_safety_c_running_out_in_any_write_loses_nothing_and_needs_no_restart() -> None:
    number = 0
    while _runs_out(number):
        number += 1
    assert number > 40


def test_safety_c3_a_sync_that_finds_no_room_is_a_failed_sync() -> None:
    disk = Copying()
    manager = opened(disk)
    partition = manager.assign(0)
    append(partition, 0, 3)
    disk.full_at, disk.sync_finds_no_room = disk.writes + 1, True
    assert isinstance(refusal(lambda: append(partition, 3, 2)), PartitionFailedError)
    disk.full_at = None
    assert isinstance(refusal(lambda: append(partition, 3, 2)), PartitionFailedError)
    assert manager.status() == {0: False}
    assert_holds(partition, 3)
    manager.close()


def test_a_partition_that_had_no_room_to_be_opened_is_opened_later() -> None:
    disk = Copying()
    manager = opened(disk)
    append(manager.assign(0), 0, 3)
    manager.close()
    disk.remove(segment_path(0, 0, ".idx"))  # has to be written again at the start
    manager = opened(disk)
    manager.close()
    disk.remove(segment_path(0, 0, ".idx"))
    control_writes = disk.writes
    ControlFile.open(disk, ROOT, KEY, 4, now_ms).close()
    disk.full_at = disk.writes + (disk.writes - control_writes)
    manager = opened(disk)
    assert "No space left" in str(refusal(lambda: manager.get(0)))
    assert isinstance(refusal(lambda: manager.get(0)), PartitionDamagedError)
    assert manager.reopen(0) is False
    disk.full_at = None
    assert manager.reopen(0) is True
    assert manager.problems() == {}
    assert_holds(manager.get(0), 3)
    assert manager.reopen(0) is True
    assert manager.reopen(1) is False
    manager.close()


def test_the_default_reserve_is_a_share_of_the_file_system(tmp_path: Path) -> None:
    assert default_reserve(DiskUsage(1 << 40, 1 << 39)) == 1 << 30
    assert default_reserve(DiskUsage(100 << 20, 0)) == 2 << 20
    usage = disk_usage(str(tmp_path))
    assert 0 < usage.free_bytes <= usage.size_bytes
    values = {
        "zookeeper.connectString": "h:1",
        "zookeeper.sessionTimeout": 1000,
        "cluster.root": "/w",
        "storage.port": 1,
        "storage.admin.port": 2,
        "storage.directory": str(tmp_path),
        "storage.ssl.allowUnverified": True,
    }
    assert free_space_of(StorageSettings.from_mapping(values)).reserve_bytes == default_reserve(usage)
    chosen = StorageSettings.from_mapping(values | {"storage.disk.reserveBytes": 12})
    assert free_space_of(chosen).reserve_bytes == 12
    missing = StorageSettings.from_mapping(values | {"storage.directory": str(tmp_path / "none")})
    assert free_space_of(missing).usage() is None


def test_without_a_reserve_only_the_disk_itself_refuses() -> None:
    disk = empty_disk()
    room = room_of(disk, 0)
    manager = opened(disk, room)
    partition = manager.assign(0)
    disk.capacity_bytes = disk.used_bytes() + 300
    assert type(refusal(lambda: append(partition, 0, 5, 100))) is DiskWriteError
    room.refresh()
    assert manager.status() == {0: False}
    disk.capacity_bytes += 2 << 20
    room.refresh()
    assert manager.status() == {0: True}
    append(partition, 0, 5, 100)
    manager.close()


def test_growth_is_what_was_added_and_the_faster_pace_fills_the_disk() -> None:
    growth = Growth()
    assert (growth.bytes_per_day, growth.days_to_full(0), growth.window_seconds) == (None, None, 0.0)
    growth.look(0.0, 1000, 10_000)
    growth.look(30.0, 1100, 9_900)
    assert growth.bytes_per_day is None, "too early to say"
    growth.look(100.0, 1100, 9_900)
    assert growth.bytes_per_day == pytest.approx(100 * DAY / 100)
    growth.look(200.0, 0, 11_000)  # files deleted: nothing is taken off
    growth.look(400.0, 300, 10_700)
    assert growth.bytes_per_day == pytest.approx(400 * DAY / 400)
    assert growth.days_to_full(700) is None, "a few busy minutes are no prophecy"
    assert growth.days_to_full(10_700) == 0.0
    growth.look(4000.0, 3900, 7_100)
    assert growth.days_to_full(700) == pytest.approx(6_400 / DAY)
    others = Growth()  # somebody else fills the disk, twice as fast
    others.look(0.0, 0, 10_000)
    others.look(4000.0, 100, 9_800)
    assert others.days_to_full(0) == pytest.approx(9_800 * 4000 / 200 / DAY)
    still = Growth()
    still.look(0.0, 5, 100)
    still.look(4000.0, 5, 100)
    assert (still.bytes_per_day, still.days_to_full(0)) == (0.0, None)


def test_growth_forgets_what_is_older_than_a_day() -> None:
    growth = Growth()
    fast = int(WINDOW_SECONDS / 10)
    size = 0
    for at in range(0, 3 * int(WINDOW_SECONDS), 10):
        size += 1000 if at < fast else 1
        growth.look(float(at), size, 1 << 40)
    assert growth.bytes_per_day == pytest.approx(DAY / 10, rel=0.01)
    assert WINDOW_SECONDS <= growth.window_seconds <= WINDOW_SECONDS + SAMPLE_SECONDS


def _gauges(registry: MetricsRegistry) -> Callable[[str], object]:
    def value(name: str) -> object:
        metric = registry.metrics[f"{GROUP}.{name}"]
        return metric.value()[0]  # type: ignore[union-attr]

    return value


async def test_a_node_with_a_full_disk_says_so_everywhere_and_comes_back_by_itself() -> None:
    disk = empty_disk()
    room = room_of(disk)
    async with running_node("/data", fs=disk, assign=(0, 1), room=room) as node, connected(node) as server:
        gauge = _gauges(node.registry)
        assert (gauge("disk-size-bytes"), gauge("disk-free-bytes"), gauge("disk-days-to-full")) == (None,) * 3
        await server.append(4, 0, records(0, 3))
        disk.capacity_bytes = disk.used_bytes() + RESERVE + 100
        with pytest.raises(RequestFailedError, match="the disk is full"):
            await server.append(4, 0, records(3, 3))
        await node.disk.look()
        healthy, body = node.health()
        assert not healthy
        assert "the disk is full" in str(body)
        assert gauge("disk-full") is True
        assert gauge("disk-size-bytes") == disk.capacity_bytes
        assert gauge("disk-free-bytes") == RESERVE + 100
        assert gauge("disk-reserve-bytes") == RESERVE
        assert gauge("log-bytes") == sum(node.manager.get(p).log_bytes for p in (0, 1))
        assert gauge("partition-0.log-bytes") == sum(
            len(content) for name, content in disk.files().items() if name.startswith("/data/0/0")
        )
        async with admin_connected(node) as admin:
            assert await admin.partition_status() == {0: False, 1: False}
        assert await server.record_list(4, 0, 0, 10) == records(0, 3), "reading goes on"
        assert await server.max_transaction_id(4, 0) == 2
        disk.capacity_bytes = None
        await node.disk.look()
        assert node.health()[0]
        assert gauge("disk-full") is False
        await server.append(4, 0, records(3, 3))
        async with admin_connected(node) as admin:
            assert await admin.partition_status() == {0: True, 1: True}


async def test_a_node_opens_what_had_no_room_once_there_is_some() -> None:
    disk = Copying()
    manager = opened(disk)
    append(manager.assign(0), 0, 3)
    manager.close()
    disk.remove(segment_path(0, 0, ".idx"))
    writes = disk.writes
    ControlFile.open(disk, ROOT, KEY, 4, now_ms).close()
    disk.full_at = disk.writes + (disk.writes - writes)
    async with running_node("/data", fs=disk, room=room_of(disk)) as node, connected(node) as server:
        with pytest.raises(RequestFailedError, match="No space left"):
            await server.max_transaction_id(4, 0)
        await node.disk.look()
        assert not node.health()[0]
        disk.full_at = None
        await node.disk.look()
        assert node.health()[0]
        assert await server.max_transaction_id(4, 0) == 2
        assert f"{GROUP}.partition-0.log-bytes" in node.registry.metrics


def test_a_file_system_that_cannot_be_asked_lets_the_write_say() -> None:
    """Unknown is not full and not broken: appends go on, and nobody asks again before the next regular
    look."""
    disk = empty_disk()
    looks = [0]
    problem: list[OSError] = []

    def look() -> DiskUsage:
        looks[0] += 1
        if problem:
            raise problem[0]
        return DiskUsage(1 << 40, free[0])

    free = [1 << 39]
    room = FreeSpace(look, RESERVE)
    manager = opened(disk, room)
    partition = manager.assign(0)
    append(partition, 0)
    for code in (errno.ESTALE, errno.EIO, errno.EACCES):
        problem[:] = [OSError(code, os.strerror(code))]
        before = looks[0]
        for _ in range(5):
            append(partition, partition.max_txid + 1)
        assert looks[0] == before + 1
        assert (partition.failed, room.full, manager.status()) == (None, None, {0: True})
        with pytest.raises(OSError, match=os.strerror(code)):
            room.refresh()  # the regular look tells it
        append(partition, partition.max_txid + 1)
        assert looks[0] == before + 2
        problem.clear()
        room.refresh()
        append(partition, partition.max_txid + 1)
        assert looks[0] == before + 4
    free[0] = 0
    with pytest.raises(DiskFullError):
        append(partition, partition.max_txid + 1)
    problem[:] = [OSError(errno.EIO, os.strerror(errno.EIO))]
    append(partition, partition.max_txid + 1)
    assert manager.status() == {0: True}
    disk.capacity_bytes = disk.used_bytes()
    with pytest.raises(DiskWriteError):
        append(partition, partition.max_txid + 1)
    assert manager.status() == {0: False}
    disk.capacity_bytes = None
    manager.close()
