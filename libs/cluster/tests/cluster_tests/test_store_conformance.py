"""One suite for all stores: whatever the in-memory one and the simulated one do, real ZooKeeper does too.

The simulator runs the cases of this file on its own (`tests/sim`), so they use nothing but their arguments.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from waltz_cluster.errors import (
    ClusterError,
    NoChildrenForEphemeralsError,
    NodeExistsError,
    NoNodeError,
    NotEmptyError,
    SessionLostError,
    VersionConflictError,
    ZnodeTooLargeError,
)
from waltz_cluster.request_size import MAX_REQUEST_BYTES, size_of
from waltz_cluster.store import CheckOp, CreateOp, DeleteOp, SessionState, SetOp, ZooKeeperStore

if TYPE_CHECKING:
    from cluster_tests.conftest import NewSession


async def test_a_new_session_is_connected(store: ZooKeeperStore) -> None:
    assert store.state is SessionState.CONNECTED
    assert store.epoch == 1
    assert store.session_timeout_seconds == 4.0
    assert store.session_id != 0
    assert store.last_contact <= asyncio.get_running_loop().time()


@pytest.mark.parametrize("data", [None, b"", b"x", bytes(range(256)) * 20])
async def test_create_and_get(store: ZooKeeperStore, root: str, data: bytes | None) -> None:
    assert await store.create(root, data) == root
    found, stat = await store.get(root)
    assert found == data
    assert (stat.version, stat.cversion, stat.ephemeral_owner, stat.num_children) == (0, 0, 0, 0)


async def test_create_twice(store: ZooKeeperStore, root: str) -> None:
    await store.create(root, b"1")
    with pytest.raises(NodeExistsError):
        await store.create(root, b"2")
    assert (await store.get(root))[0] == b"1"


async def test_missing_znodes(store: ZooKeeperStore, root: str) -> None:
    for call in (store.get(root), store.get_children(root), store.set(root, b""), store.delete(root)):
        with pytest.raises(NoNodeError):
            await call
    with pytest.raises(NoNodeError):
        await store.create(f"{root}/child", None)
    assert await store.exists(root) is None


async def test_after_a_sync_the_writes_of_other_sessions_are_seen(
    store: ZooKeeperStore, new_session: NewSession, root: str
) -> None:
    await store.create(root, b"0")
    other = await new_session()
    for number in range(1, 20):
        await store.set(root, str(number).encode())
        await other.sync(root)
        assert (await other.get(root))[0] == str(number).encode()
    await other.sync(f"{root}/nobody")
    await other.close()


async def test_make_parents(store: ZooKeeperStore, root: str) -> None:
    await store.create(f"{root}/a/b", b"x", make_parents=True)
    assert (await store.get(f"{root}/a"))[0] is None
    assert (await store.get(f"{root}/a/b"))[0] == b"x"


async def test_versions(store: ZooKeeperStore, root: str) -> None:
    await store.create(root, b"0")
    assert (await store.set(root, b"1", version=0)).version == 1
    with pytest.raises(VersionConflictError):
        await store.set(root, b"2", version=0)
    assert (await store.set(root, None)).version == 2
    assert (await store.get(root))[0] is None
    with pytest.raises(VersionConflictError):
        await store.delete(root, version=1)
    await store.delete(root, version=2)
    assert await store.exists(root) is None


async def test_children_and_child_versions(store: ZooKeeperStore, root: str) -> None:
    await store.create(root, None)
    for name in ("b", "a", "c"):
        await store.create(f"{root}/{name}", None)
    await store.delete(f"{root}/b")
    names, stat = await store.get_children(root)
    assert names == ["a", "c"]
    assert (stat.cversion, stat.num_children) == (4, 2)
    with pytest.raises(NotEmptyError):
        await store.delete(root)


async def test_numbers_of_sequential_znodes_count_creations(store: ZooKeeperStore, root: str) -> None:
    await store.create(root, None)
    first = await store.create(f"{root}/s_", b"", ephemeral=True, sequential=True)
    assert first == f"{root}/s_0000000000"
    await store.delete(first)
    assert await store.create(f"{root}/s_", None, sequential=True) == f"{root}/s_0000000001"


async def test_ephemeral_znodes_go_with_the_session(new_session: NewSession, root: str) -> None:
    first, second = await new_session(), await new_session()
    await first.create(root, None)
    await first.create(f"{root}/e", b"x", ephemeral=True)
    stat = await second.exists(f"{root}/e")
    assert stat is not None
    assert stat.ephemeral_owner == first.session_id != second.session_id
    with pytest.raises(NoChildrenForEphemeralsError):
        await first.create(f"{root}/e/child", None)
    gone = asyncio.Event()
    await second.exists(f"{root}/e", gone.set)
    await first.close()
    async with asyncio.timeout(10):
        await gone.wait()
    assert await second.exists(f"{root}/e") is None
    assert await second.exists(root) is not None


async def test_a_closed_store_refuses(store: ZooKeeperStore, root: str) -> None:
    await store.close()
    await store.close()
    with pytest.raises(SessionLostError):
        await store.get(root)


async def test_transaction_is_all_or_nothing(store: ZooKeeperStore, root: str) -> None:
    await store.transaction(
        [
            CreateOp(root),
            SetOp(root, b"data", 0),
            CreateOp(f"{root}/a", b"1"),
            CreateOp(f"{root}/b", b""),
        ]
    )
    assert (await store.get(root))[0] == b"data"
    for failing, error in (
        (SetOp(f"{root}/a", b"", 7), VersionConflictError),
        (CheckOp(f"{root}/nobody"), NoNodeError),
        (CreateOp(f"{root}/b"), NodeExistsError),
        (DeleteOp(root), NotEmptyError),
        (DeleteOp(f"{root}/a", 3), VersionConflictError),
    ):
        with pytest.raises(error):
            await store.transaction([SetOp(f"{root}/a", b"new"), CreateOp(f"{root}/c"), failing])
    assert (await store.get(f"{root}/a"))[0] == b"1"
    assert (await store.get_children(root))[0] == ["a", "b"]
    assert (await store.get(root))[1].cversion == 2
    await store.transaction([CheckOp(f"{root}/a", 0), DeleteOp(f"{root}/b"), DeleteOp(f"{root}/a")])
    assert (await store.get_children(root))[0] == []
    await store.transaction([])


async def test_ephemeral_in_a_transaction(store: ZooKeeperStore, root: str) -> None:
    await store.transaction([CreateOp(root), CreateOp(f"{root}/e", None, ephemeral=True)])
    assert (await store.get(f"{root}/e"))[1].ephemeral_owner == store.session_id


async def test_watches_fire_once_on_the_loop(new_session: NewSession, root: str) -> None:
    watcher, writer = await new_session(), await new_session()
    await writer.create(root, b"0")
    fired: list[str] = []
    data, children, absent = asyncio.Event(), asyncio.Event(), asyncio.Event()

    def note(name: str, event: asyncio.Event) -> None:
        assert asyncio.get_running_loop() is not None
        fired.append(name)
        event.set()

    await watcher.get(root, lambda: note("data", data))
    await watcher.get_children(root, lambda: note("children", children))
    assert await watcher.exists(f"{root}/new", lambda: note("absent", absent)) is None
    await writer.set(root, b"1")
    async with asyncio.timeout(5):
        await data.wait()
    assert fired == ["data"]
    await writer.set(root, b"2")
    await writer.create(f"{root}/new", None)
    async with asyncio.timeout(5):
        await children.wait()
    async with asyncio.timeout(5):
        await absent.wait()
    await writer.create(f"{root}/another", None)
    await watcher.get(root)  # whatever was to come has come before this answer
    await asyncio.sleep(0)
    assert sorted(fired) == ["absent", "children", "data"]


async def test_watches_fire_on_deletion(new_session: NewSession, root: str) -> None:
    watcher, writer = await new_session(), await new_session()
    await writer.create(root, None)
    events = [asyncio.Event() for _ in range(3)]
    await watcher.get(root, events[0].set)
    await watcher.get_children(root, events[1].set)
    await watcher.exists(root, events[2].set)
    await writer.delete(root)
    for event in events:
        async with asyncio.timeout(5):
            await event.wait()


async def test_a_transaction_fires_watches(new_session: NewSession, root: str) -> None:
    watcher, writer = await new_session(), await new_session()
    await writer.create(root, b"0")
    data, children = asyncio.Event(), asyncio.Event()
    await watcher.get(root, data.set)
    await watcher.get_children(root, children.set)
    with pytest.raises(ClusterError):
        await writer.transaction([SetOp(root, b"1"), CreateOp(f"{root}/a"), CheckOp(f"{root}/nobody")])
    await watcher.get(root)
    await asyncio.sleep(0)
    assert not data.is_set()
    assert not children.is_set()
    await writer.transaction([SetOp(root, b"1"), CreateOp(f"{root}/a")])
    async with asyncio.timeout(5):
        await data.wait()
    async with asyncio.timeout(5):
        await children.wait()


async def test_a_failed_read_leaves_no_watch(store: ZooKeeperStore, root: str) -> None:
    fired: list[int] = []
    with pytest.raises(NoNodeError):
        await store.get(root, lambda: fired.append(1))
    await store.create(root, None)
    await store.set(root, b"x")
    await store.get(root)
    await asyncio.sleep(0)
    assert fired == []


async def test_many_operations_at_once(store: ZooKeeperStore, root: str) -> None:
    await store.create(root, b"")
    await asyncio.gather(*(store.create(f"{root}/{i}", str(i).encode()) for i in range(50)))
    answers = await asyncio.gather(*(store.get(f"{root}/{i}") for i in range(50)))
    assert [data for data, _ in answers] == [str(i).encode() for i in range(50)]


async def test_cancelled_calls_leave_the_store_usable(store: ZooKeeperStore, root: str) -> None:
    async with asyncio.TaskGroup() as group:
        task = group.create_task(store.create(root, b""))
        await asyncio.sleep(0)
        task.cancel()
    assert store.state is SessionState.CONNECTED
    await store.exists(root)


async def test_what_a_request_cannot_carry_is_refused_before_it_is_sent(
    store: ZooKeeperStore, root: str
) -> None:
    """ZooKeeper drops the connection of whoever sends it, so no other request may suffer."""
    most = MAX_REQUEST_BYTES - size_of([SetOp(root, b"")])
    await store.create(root, b"")
    await store.set(root, bytes(most))
    for write in (
        store.set(root, bytes(2 * MAX_REQUEST_BYTES)),
        store.set(root, bytes(most + 1)),
        store.create(f"{root}/any/below", bytes(most + 1), make_parents=True),
        store.transaction([SetOp(root, bytes(most // 2)), CreateOp(f"{root}/one", bytes(most // 2 + 2))]),
    ):
        with pytest.raises(ZnodeTooLargeError, match=f"{MAX_REQUEST_BYTES} bytes"):
            await write
    data, stat = await store.get(root)
    assert (data, stat.version, stat.num_children) == (bytes(most), 1, 0)
    # A change of the replicas of many partitions looks whether each is still as it was read.
    await store.transaction([SetOp(root, b""), *([CheckOp(root, 2)] * 10_000)])
    with pytest.raises(ZnodeTooLargeError, match=r"60001 changes, .* for fewer partitions at a time"):
        await store.transaction([SetOp(root, b""), *([CheckOp(root, 3)] * 60_000)])
    assert store.state is SessionState.CONNECTED
    assert store.epoch == 1
