"""Writes that travel together: one transaction, an outcome for each."""

import asyncio

import pytest

from waltz_cluster import joined_writes
from waltz_cluster.errors import ConnectionLostError, NoNodeError, VersionConflictError
from waltz_cluster.joined_writes import JoinedWrites
from waltz_cluster.memory_store import Fault, MemoryStore, MemoryZooKeeper
from waltz_cluster.store import ZnodeStat, ZooKeeperStore


async def made(store: ZooKeeperStore, root: str, count: int) -> list[str]:
    await store.create(root, None, make_parents=True)
    return [await store.create(f"{root}/{number}", b"old") for number in range(count)]


def watched(store: MemoryStore) -> list[str]:
    """The operations from now on."""
    operations: list[str] = []
    store.fault = lambda operation, _path: operations.append(operation)
    return operations


async def test_all_writes_are_made_and_each_gets_its_version(store: ZooKeeperStore, root: str) -> None:
    paths = await made(store, root, 5)
    writes = JoinedWrites(store)
    assert await asyncio.gather(*(writes.set(path, path.encode(), 0) for path in paths)) == [1] * 5
    assert await asyncio.gather(*(writes.set(path, b"newer", 1) for path in paths[:2])) == [2] * 2
    assert [await store.get(path) for path in paths[:1]] == [(b"newer", (await store.get(paths[0]))[1])]
    assert [(await store.get(path))[0] for path in paths[2:]] == [path.encode() for path in paths[2:]]
    assert [(await store.get(path))[1].version for path in paths] == [2, 2, 1, 1, 1]


async def test_a_conflict_is_that_of_its_own_write_only(store: ZooKeeperStore, root: str) -> None:
    paths = await made(store, root, 4)
    await store.set(paths[1], b"theirs")
    writes = JoinedWrites(store)
    asked = [writes.set(path, b"ours", 0) for path in (*paths, f"{root}/none")]
    first, conflict, third, fourth, missing = await asyncio.gather(*asked, return_exceptions=True)
    assert [first, third, fourth] == [1, 1, 1]
    assert isinstance(conflict, VersionConflictError)
    assert isinstance(missing, NoNodeError)
    assert (await store.get(paths[1]))[0] == b"theirs"


async def test_writes_of_one_turn_are_one_transaction_and_a_lone_one_is_none() -> None:
    store = MemoryZooKeeper().session()
    paths = await made(store, "/w", 3)
    operations, writes = watched(store), JoinedWrites(store)
    await asyncio.gather(*(writes.set(path, b"new", 0) for path in paths))
    assert operations == ["transaction"]
    await writes.set(paths[0], b"newer", 1)
    assert operations == ["transaction", "set"]


async def test_many_writes_are_several_transactions(monkeypatch: pytest.MonkeyPatch) -> None:
    store = MemoryZooKeeper().session()
    paths = await made(store, "/w", 5)
    operations, writes = watched(store), JoinedWrites(store)
    monkeypatch.setattr(joined_writes, "MAX_WRITES", 2)
    assert await asyncio.gather(*(writes.set(path, b"new", 0) for path in paths)) == [1] * 5
    assert sorted(operations) == ["set", "transaction", "transaction"]
    monkeypatch.setattr(joined_writes, "BATCH_BYTES", 7)
    operations.clear()
    assert await asyncio.gather(*(writes.set(path, b"5byte", 1) for path in paths)) == [2] * 5
    assert operations == ["set"] * 5


async def test_what_is_asked_for_while_zookeeper_is_busy_waits_and_goes_together(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    store = MemoryZooKeeper().session()
    paths = await made(store, "/w", 6)
    monkeypatch.setattr(joined_writes, "MAX_IN_FLIGHT", 1)
    operations, writes = watched(store), JoinedWrites(store)
    slow, go_on = store.set, asyncio.Event()

    async def waits(path: str, data: bytes | None, *, version: int = -1) -> ZnodeStat:
        await go_on.wait()
        return await slow(path, data, version=version)

    monkeypatch.setattr(store, "set", waits)
    async with asyncio.TaskGroup() as tasks:
        asked = [tasks.create_task(writes.set(paths[0], b"new", 0))]
        for path in paths[1:]:
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            asked.append(tasks.create_task(writes.set(path, b"new", 0)))
        await asyncio.sleep(0)
        assert operations == []
        go_on.set()
    assert [one.result() for one in asked] == [1] * 6
    assert operations == ["set", "transaction"]


@pytest.mark.parametrize("fault", [Fault.LOSE_REPLY, Fault.LOSE_REQUEST])
async def test_safety_a7_an_unknown_outcome_is_that_of_all_and_nothing_is_repeated(fault: Fault) -> None:
    """Whoever takes session ids burns them all: some of the writes may have happened."""
    store = MemoryZooKeeper().session()
    paths = await made(store, "/w", 3)
    operations: list[str] = []

    def lose(operation: str, _path: str) -> Fault:
        operations.append(operation)
        return fault

    store.fault = lose
    writes = JoinedWrites(store)
    found = await asyncio.gather(*(writes.set(path, b"new", 0) for path in paths), return_exceptions=True)
    assert [type(each) for each in found] == [ConnectionLostError] * 3
    assert operations == ["transaction"]


async def test_a_write_that_is_given_up_before_it_left_is_not_made() -> None:
    store = MemoryZooKeeper().session()
    paths = await made(store, "/w", 2)
    writes = JoinedWrites(store)
    async with asyncio.TaskGroup() as tasks:
        given_up, other = (tasks.create_task(writes.set(path, b"new", 0)) for path in paths)
        await asyncio.sleep(0)
        given_up.cancel()
    assert other.result() == 1
    assert given_up.cancelled()
    assert (await store.get(paths[0]))[0] == b"old"


async def test_an_unexpected_error_leaves_nobody_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    store = MemoryZooKeeper().session()
    paths = await made(store, "/w", 2)

    async def broken(_operations: object) -> None:
        raise asyncio.CancelledError

    monkeypatch.setattr(store, "transaction", broken)
    writes = JoinedWrites(store)
    asked = [writes.set(path, b"new", 0) for path in paths]
    outcomes = await asyncio.gather(*asked, return_exceptions=True)
    assert [type(outcome) for outcome in outcomes] == [ConnectionLostError] * 2
