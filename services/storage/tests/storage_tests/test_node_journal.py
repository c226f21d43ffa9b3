"""A node with a journal over real sockets: batches over all partitions, one commit each, failures, sizes."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from waltz_protocol.aio.storage_connection import StorageConnection
from waltz_protocol.aio.tasks import spawn
from waltz_protocol.errors import RequestFailedError
from waltz_protocol.types import SessionInfo
from waltz_storage.engine.journal.log import JournalSettings
from waltz_storage.engine.storage_manager import StorageManager
from waltz_storage.service.inline import InlineLimits
from waltz_storage.service.server import StorageNode
from waltz_testkit.faulty_disk import CrashMode, FaultyDisk

from .node_support import GatedExecutor, admin_connected, connected, records, running_node
from .support import (
    JOURNAL,
    KEY,
    ROOT,
    assert_holds,
    empty_disk,
    now_ms,
    open_manager,
)


def syncs_since(disk: FaultyDisk, start: int, part: str) -> int:
    return sum(call[0] == "sync" and part in str(call[1]) for call in disk.calls[start:])


@pytest.mark.parametrize("inline", [None, InlineLimits()], ids=["threads", "inline"])
async def test_what_was_answered_is_there_after_a_crash(tmp_path: Path, inline: InlineLimits | None) -> None:
    """Real files and threads; the journal rotates and its files are settled beside the jobs."""
    directory = tmp_path / "node"
    directory.mkdir()
    settings = JournalSettings(None, 64 << 10, 3)
    pool = ThreadPoolExecutor(2)
    async with running_node(
        directory, journal=settings, executor=pool, assign=(0, 1, 2), inline_limits=inline
    ) as node:
        async with connected(node) as one, connected(node) as other:
            await asyncio.gather(_fill(one, 0), _fill(other, 1), _fill(one, 2))
            copied = tmp_path / "crashed"
            await asyncio.to_thread(_copy, directory, copied)
        assert not node.manager.problems()
    for place in (copied, directory):
        manager = StorageManager.open(str(place), cluster_key=KEY, num_partitions=4, now_ms=now_ms)
        for partition in (0, 1, 2):
            assert_holds(manager.get(partition), 300)
        manager.close()


async def _fill(connection: StorageConnection, partition: int) -> None:
    for txid in range(0, 300, 3):
        await connection.append(1, partition, records(txid, 3))


def _copy(source: Path, target: Path) -> None:
    """As a crash of the process leaves it: nothing runs that changes files, for all requests are answered."""
    for path in sorted(source.rglob("*")):
        place = target / path.relative_to(source)
        if path.is_dir():
            place.mkdir(parents=True, exist_ok=True)
        else:
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_bytes(path.read_bytes())


async def test_requests_of_one_moment_share_a_sync() -> None:
    """Four partitions, one commit: no partition syncs a file of its own."""
    disk, executor = empty_disk(), GatedExecutor()
    async with (
        running_node(ROOT, fs=disk, journal=JOURNAL, executor=executor, assign=(0, 1, 2, 3)) as node,
        connected(node) as server,
    ):
        for partition in range(4):
            await server.append(1, partition, records(0, 1))
        executor.open = False
        first = spawn(server.append(1, 0, records(1, 1)), "append")
        while not executor.waiting:
            await asyncio.sleep(0)
        rest = [spawn(server.append(1, p, records(1, 1)), "append") for p in (1, 2, 3)]
        await _arrived(node, (1, 2, 3))
        start = len(disk.calls)
        executor.step()
        await first
        assert not any(task.done() for task in rest)
        while not executor.waiting:
            await asyncio.sleep(0)
        executor.step()
        await asyncio.gather(*rest)
        assert syncs_since(disk, start, "/waltz-journal/") == 2
        assert syncs_since(disk, start, "/0/") == syncs_since(disk, start, "/1/") == 0
        executor.release()


async def test_safety_c7_a_node_ends_after_what_is_written_into_its_files_beside_the_requests() -> None:
    """Else the files are synced, and the journal is given up, while another thread still writes to them."""
    disk, executor = empty_disk(), GatedExecutor()
    async with (
        running_node(ROOT, fs=disk, journal=JOURNAL, executor=executor, assign=(0,)) as node,
        connected(node) as server,
    ):
        await server.append(1, 0, records(0, 1))
        await server.append(1, 0, records(1, 1))
        assert node.manager.unmade
        executor.open = False
        node.pool.flush()
        drained = spawn(node.pool.drained(), "drained")
        for _ in range(10):
            await asyncio.sleep(0)
        assert not drained.done()
        executor.release()
        await drained
        assert not node.manager.unmade


async def test_safety_c7_a_node_does_not_end_between_two_writes_into_its_files(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """On a full disk something is left after each: a second one that was asked for meanwhile would run beside
    the end, which takes what it has in hand for written."""
    executor = GatedExecutor()
    async with (
        running_node(ROOT, fs=empty_disk(), journal=JOURNAL, executor=executor, assign=(0,)) as node,
        connected(node) as server,
    ):
        await server.append(1, 0, records(0, 1))
        await server.append(1, 0, records(1, 1))
        assert node.manager.unmade
        executor.open = False
        make = node.manager.make
        monkeypatch.setattr(node.manager, "make", lambda: None)  # it finds no space
        node.pool.flush()
        node.pool.flush()
        drained = spawn(node.pool.drained(), "drained")
        executor.step()
        await drained
        assert not executor.waiting
        monkeypatch.setattr(node.manager, "make", make)
        executor.release()


async def test_what_is_to_be_written_into_the_files_while_a_batch_runs_is_written_after_it() -> None:
    """A node that is always busy would write it when 8 MiB wait. It also ends after it."""
    executor = GatedExecutor()
    async with (
        running_node(ROOT, fs=empty_disk(), journal=JOURNAL, executor=executor, assign=(0,)) as node,
        connected(node) as server,
    ):
        await server.append(1, 0, records(0, 1))
        executor.open = False
        append = spawn(server.append(1, 0, records(1, 1)), "append")
        while not executor.waiting:
            await asyncio.sleep(0)
        node.pool.flush()
        assert len(executor.waiting) == 1
        drained = spawn(node.pool.drained(), "drained")
        executor.step()
        await append
        for _ in range(10):
            await asyncio.sleep(0)
        assert not drained.done()
        assert len(executor.waiting) == 1
        executor.step()
        await drained
        assert not node.manager.unmade
        assert not executor.waiting
        executor.release()


async def test_safety_c7_memory_answers_what_no_commit_changes_while_one_is_on_its_way() -> None:
    """A question about a partition that is not in the batch passes it. One about a partition that is in it
    waits for the commit, and so does one that raises a fence."""
    disk, executor = empty_disk(), GatedExecutor()
    async with (
        running_node(ROOT, fs=disk, journal=JOURNAL, executor=executor, assign=(0, 1)) as node,
        connected(node) as server,
        connected(node) as other,
    ):
        for partition in (0, 1):
            await server.append(1, partition, records(0, 2))
        executor.open = False
        append = spawn(server.append(1, 0, records(2, 1)), "append")
        while not executor.waiting:
            await asyncio.sleep(0)
        own = spawn(other.max_transaction_id(1, 0), "own")
        start = len(disk.calls)
        assert await other.last_session_and_end(1, 1) == (SessionInfo(-1, -1, -1), 1)
        await other.append(1, 1, [])
        assert disk.calls[start:] == [], "memory answers"
        raised = spawn(other.max_transaction_id(2, 1), "raised")
        for _ in range(20):
            await asyncio.sleep(0)
        assert not own.done()
        assert not raised.done(), "the fence is not durable yet"
        disk.fail_sync_once = "waltz-journal"
        executor.release()
        for task in (append, own, raised):
            with pytest.raises(RequestFailedError):
                await task
        with pytest.raises(RequestFailedError, match="out of service"):
            await other.max_transaction_id(1, 0)
        with pytest.raises(RequestFailedError, match="out of service"):  # it was not in the batch
            await other.append(1, 1, [])


async def _arrived(node: StorageNode, partitions: tuple[int, ...]) -> None:
    """Their requests are in jobs of the next batch."""
    while any(node.pool.queue(partition).idle for partition in partitions):
        await asyncio.sleep(0.001)


async def test_safety_c7_nothing_is_answered_with_success_before_its_commit() -> None:
    """A failed sync of the journal: everything in the batch fails, also a read of what was just written, and
    after it all partitions; health says so."""
    disk, executor = empty_disk(), GatedExecutor()
    async with (
        running_node(ROOT, fs=disk, journal=JOURNAL, executor=executor, assign=(0, 1)) as node,
        connected(node) as server,
        connected(node) as reader,
    ):
        await server.append(1, 0, records(0, 2))
        executor.open = False
        first = spawn(server.append(1, 0, records(2, 2)), "append")
        while not executor.waiting:
            await asyncio.sleep(0)
        read = spawn(reader.max_transaction_id(1, 0), "read")
        mark = spawn(server.set_low_water_mark(1, 1, -1), "mark")
        disk.fail_sync_once = "waltz-journal"
        executor.step()
        with pytest.raises(RequestFailedError, match="journal"):
            await first
        executor.release()
        with pytest.raises(RequestFailedError):
            await read
        with pytest.raises(RequestFailedError):
            await mark
        with pytest.raises(RequestFailedError, match="out of service"):
            await server.append(1, 1, records(0, 1))
        assert len(await server.record_list(1, 0, 0, 9)) == 2, "what is durable can be read"
        healthy, body = node.health()
        assert not healthy
        assert set(body["storage-health-check"]["partitions"]) == {"0", "1"}  # type: ignore[index]
        assert node.manager.get(0).max_txid == 1, "what was not durable is not shown"
    disk.restart(CrashMode.LOSE)
    manager = open_manager(disk)
    assert_holds(manager.get(0), 2)
    manager.close()


async def test_a_node_without_partitions_says_that_its_journal_has_failed() -> None:
    """No partition is there that could be out of service, and each assignment is refused."""
    disk = empty_disk()
    async with running_node(ROOT, fs=disk, journal=JOURNAL) as node, admin_connected(node) as admin:
        assert node.health()[0]
        disk.fail_sync_once = "waltz-journal"
        for _ in range(2):
            with pytest.raises(RequestFailedError, match="journal"):
                await admin.assign([0], True)
        healthy, body = node.health()
        assert not healthy
        check = body["storage-health-check"]
        assert isinstance(check, dict)
        assert "partitions" not in check
        assert "until it has been started again" in check["journal"]


async def test_safety_c7_a_fence_whose_commit_failed_is_none() -> None:
    """After a power loss it is not there, so nobody may be answered as if it were."""
    disk = empty_disk()
    async with (
        running_node(ROOT, fs=disk, journal=JOURNAL, executor=GatedExecutor(), assign=(0,)) as node,
        connected(node) as server,
        connected(node) as again,
    ):
        await server.append(6, 0, records(0, 2))
        disk.fail_sync_once = "waltz-journal"
        with pytest.raises(RequestFailedError, match="journal"):
            await server.max_transaction_id(7, 0)
        for ask in (again.max_transaction_id(7, 0), again.record_list(7, 0, 0, 9)):
            with pytest.raises(RequestFailedError, match="out of service"):
                await ask
        assert node.manager.get(0).durable_fence == 6
        assert node.manager.get(0).info.session_id <= 6
    disk.restart(CrashMode.LOSE)
    manager = open_manager(disk)
    assert manager.get(0).durable_fence == 6
    manager.close()


async def test_administration_waits_for_its_commit() -> None:
    disk = empty_disk()
    async with (
        running_node(ROOT, fs=disk, journal=JOURNAL, executor=GatedExecutor(), assign=(0,)) as node,
        admin_connected(node) as tool,
    ):
        await tool.assign([1], True)
        disk.fail_sync_once = "waltz-journal"
        with pytest.raises(RequestFailedError, match="journal"):
            await tool.set_available([0], False)
    disk.restart(CrashMode.LOSE)
    manager = open_manager(disk)
    assert sorted(manager.partitions) == [0, 1]
    manager.close()


async def test_room_on_the_disk_is_looked_for_again() -> None:
    """What the journal holds goes into the files when there is room, without a request."""
    disk, executor = empty_disk(), GatedExecutor()
    async with (
        running_node(ROOT, fs=disk, journal=JOURNAL, executor=executor, assign=(0,)) as node,
        connected(node) as server,
    ):
        await server.append(1, 0, records(0, 2))
        disk.capacity_bytes = disk.used_bytes()
        await server.append(1, 0, records(2, 2))  # it is durable
        await node.disk.look()
        with pytest.raises(RequestFailedError, match="disk is full"):
            await server.append(1, 0, records(4, 1))
        assert node.disk.full is not None
        assert await server.max_transaction_id(1, 0) == 3
        disk.capacity_bytes = None
        await node.disk.look()
        held, full = node.manager.room.held, node.manager.room.full
        assert held is full is None
        await server.append(1, 0, records(4, 1))
    manager = open_manager(disk)
    assert_holds(manager.get(0), 5)
    manager.close()
