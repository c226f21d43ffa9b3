"""Storage nodes and their partitions in ZooKeeper: atomic, repeatable, deterministic; the recorded trees of
0.13.2."""

from collections.abc import Mapping
from typing import Any

import pytest

from admin_tests import golden
from waltz_admin import assignments, nodes, seeding
from waltz_admin.errors import (
    AdminError,
    AdminLockBusyError,
    AdminLockLostError,
    AssignmentError,
    StorageNodeError,
)
from waltz_admin.found_tree import BrokenTree
from waltz_admin.lock import AdminLock
from waltz_admin.tree import read_maps
from waltz_admin.view import probe, read_view
from waltz_cluster import serializers as s
from waltz_cluster.errors import ClusterNotFoundError, ConnectionLostError, VersionConflictError
from waltz_cluster.memory_store import Fault, MemoryStore, MemoryZooKeeper
from waltz_cluster.paths import ClusterPaths
from waltz_cluster.store import SetOp, ZooKeeperStore
from waltz_protocol.types import PartitionId

ROOT = "/waltz"
PATHS = ClusterPaths(ROOT)


async def cluster(num_partitions: int = 4, **groups: int) -> MemoryStore:
    store = MemoryZooKeeper().session()
    await seeding.create(store, ROOT, "demo", num_partitions)
    for host, group in groups.items():
        await nodes.add_storage_node(store, ROOT, f"{host}:6000", 6001, group)
    return store


async def placement(store: ZooKeeperStore, root: str = ROOT) -> dict[str, tuple[PartitionId, ...]]:
    return dict((await read_maps(store, ClusterPaths(root))).partitions)


async def test_add_and_remove(store: ZooKeeperStore, root: str) -> None:
    await seeding.create(store, root, "demo", 4)
    assert await nodes.add_storage_node(store, root, "h1:6000", 6001, 1)
    assert not await nodes.add_storage_node(store, root, "h1:6000", 6001, 1)
    maps = await read_maps(store, ClusterPaths(root))
    assert (maps.groups, maps.partitions, maps.admin_ports) == (
        {"h1:6000": 1},
        {"h1:6000": ()},
        {"h1:6000": 6001},
    )
    for port, group, text in ((6001, 2, "is in group 1 already"), (6002, 1, "admin port 6001 already")):
        with pytest.raises(StorageNodeError, match=text):
            await nodes.add_storage_node(store, root, "h1:6000", port, group)
    assert await assignments.assign(store, root, [0, 2], "h1:6000") == (0, 2)
    with pytest.raises(StorageNodeError, match="still has partitions 0, 2"):
        await nodes.remove_storage_node(store, root, "h1:6000")
    assert await assignments.unassign(store, root, [0, 2], "h1:6000", keep_group_copy=False) == (0, 2)
    await nodes.remove_storage_node(store, root, "h1:6000")
    assert await placement(store, root) == {}
    with pytest.raises(StorageNodeError, match="is not a storage node"):
        await nodes.remove_storage_node(store, root, "h1:6000")


@pytest.mark.parametrize("text", ["h1", "h1:", ":6000", "h1:port", "h1:0", "::1:6000", "h1:70000"])
async def test_wrong_connect_strings_are_refused(text: str) -> None:
    store = await cluster()
    with pytest.raises(StorageNodeError, match="is not a connect string"):
        await nodes.add_storage_node(store, ROOT, text, 6001, 0)


async def test_wrong_admin_ports_are_refused() -> None:
    store = await cluster()
    for port in (0, 70000, 6000):
        with pytest.raises(StorageNodeError, match="admin port"):
            await nodes.add_storage_node(store, ROOT, "h1:6000", port, 0)


async def test_zookeeper_6_25_ipv6_connect_strings_in_brackets() -> None:
    store = await cluster()
    await nodes.add_storage_node(store, ROOT, "[2001:db8::1]:6000", 6001, 0)
    assert list(await placement(store)) == ["[2001:db8::1]:6000"]


async def test_a_cluster_that_is_not_there() -> None:
    store = MemoryZooKeeper().session()
    with pytest.raises(Exception, match="create") as error:
        await nodes.add_storage_node(store, ROOT, "h1:6000", 6001, 0)
    assert getattr(error.value, "user_error", False)


@pytest.mark.parametrize(
    "missing", [("group",), ("assignment",), ("connection",), ("assignment", "connection")]
)
async def test_zookeeper_6_15_partial_entries_are_completed_or_removed(missing: tuple[str, ...]) -> None:
    store = await cluster(4, h1=1)
    for name in missing:
        await store.set(f"{ROOT}/store/{name}", bytes.fromhex("0100000000"))
    assert await nodes.add_storage_node(store, ROOT, "h1:6000", 6001, 1)
    maps = await read_maps(store, PATHS)
    assert (maps.groups, maps.partitions, maps.admin_ports) == (
        {"h1:6000": 1},
        {"h1:6000": ()},
        {"h1:6000": 6001},
    )
    for name in missing:
        await store.set(f"{ROOT}/store/{name}", bytes.fromhex("0100000000"))
    await nodes.remove_storage_node(store, ROOT, "h1:6000")
    maps = await read_maps(store, PATHS)
    assert [*maps.groups, *maps.partitions, *maps.admin_ports] == []


@pytest.mark.parametrize("fault", list(Fault))
async def test_zookeeper_6_15_nothing_is_half_done_after_a_crash_at_any_write(fault: Fault) -> None:
    async def add(store: MemoryStore) -> None:
        await nodes.add_storage_node(store, ROOT, "h1:6000", 6001, 1)

    async def assign(store: MemoryStore) -> None:
        await assignments.assign(store, ROOT, [0, 1], "h0:6000")

    async def unassign(store: MemoryStore) -> None:
        await assignments.unassign(store, ROOT, [3], "h0:6000", keep_group_copy=False)

    for action in (add, assign, unassign):
        for crash_at in range(1, 4):
            store = await cluster(4, h0=0)
            await assignments.assign(store, ROOT, [3], "h0:6000")
            await action(store)
            wanted = (await read_maps(store, PATHS)).partitions
            store = await cluster(4, h0=0)
            await assignments.assign(store, ROOT, [3], "h0:6000")
            before = await read_maps(store, PATHS)
            writes = 0

            def crash(name: str, path: str) -> Fault | None:
                nonlocal writes
                writes += name in ("create", "set", "delete", "transaction")
                return fault if writes == crash_at and name in ("create", "delete", "transaction") else None  # noqa: B023

            store.fault = crash
            try:
                await action(store)
            except ConnectionLostError:
                found = await read_maps(store, PATHS)
                assert found.partitions in (before.partitions, wanted)
                assert set(found.groups) == set(found.partitions) == set(found.admin_ports)
            store.fault = None
            await action(store)
            assert (await read_maps(store, PATHS)).partitions == wanted


async def test_assign_and_unassign_check_what_they_are_told() -> None:
    store = await cluster(4, h1=1, h2=1)
    with pytest.raises(AssignmentError, match="there is no partition 4"):
        await assignments.assign(store, ROOT, [0, 4], "h1:6000")
    with pytest.raises(AssignmentError, match="is not a storage node"):
        await assignments.assign(store, ROOT, [0], "h9:6000")
    assert await assignments.assign(store, ROOT, [2, 0, 2], "h1:6000") == (0, 2)
    assert await assignments.assign(store, ROOT, [0, 1], "h1:6000") == (1,)
    assert await placement(store) == {"h1:6000": (0, 1, 2), "h2:6000": ()}
    with pytest.raises(AssignmentError, match="group 1 would hold no other copy"):
        await assignments.unassign(store, ROOT, [0], "h1:6000")
    await assignments.assign(store, ROOT, [0], "h2:6000")
    assert await assignments.unassign(store, ROOT, [0, 3], "h1:6000") == (0,)
    assert await placement(store) == {"h1:6000": (1, 2), "h2:6000": (0,)}


async def test_zookeeper_6_20_auto_assign_is_deterministic_and_repeatable_and_extends() -> None:
    store = await cluster(5, b=1, a=1, c=2)
    got = await assignments.auto_assign(store, ROOT, 1)
    assert got == {"a:6000": (0, 2, 4), "b:6000": (1, 3)}
    assert await assignments.auto_assign(store, ROOT, 1) == {}
    assert await assignments.auto_assign(store, ROOT, 2) == {"c:6000": (0, 1, 2, 3, 4)}
    await assignments.unassign(store, ROOT, [4, 2], "a:6000", keep_group_copy=False)
    await nodes.add_storage_node(store, ROOT, "d:6000", 6001, 1)
    assert await assignments.auto_assign(store, ROOT, 1) == {"a:6000": (4,), "d:6000": (2,)}
    with pytest.raises(AssignmentError, match="group 7 has no storage node"):
        await assignments.auto_assign(store, ROOT, 7)


async def test_zookeeper_6_15_the_lock_is_waited_for_and_its_owner_named() -> None:
    zookeeper = MemoryZooKeeper()
    first, second = zookeeper.session(), zookeeper.session()
    await seeding.create(first, ROOT, "demo", 4)
    async with AdminLock(first, PATHS):
        with pytest.raises(AdminLockBusyError, match="another tool has held"):
            await nodes.add_storage_node(second, ROOT, "h1:6000", 6001, 0, lock_wait_seconds=0.05)
    assert await nodes.add_storage_node(second, ROOT, "h1:6000", 6001, 0, lock_wait_seconds=5.0)
    assert await first.exists(PATHS.admin_lock) is None


async def test_zookeeper_6_15_losing_the_lock_is_noticed() -> None:
    zookeeper = MemoryZooKeeper()
    first, second = zookeeper.session(), zookeeper.session()
    await seeding.create(first, ROOT, "demo", 4)
    change = [SetOp(PATHS.group, s.GroupDescriptor({"x:1": 1}).to_bytes())]
    async with AdminLock(first, PATHS) as lock:
        first.expire()
        with pytest.raises(AdminLockLostError):
            lock.check()
        async with AdminLock(second, PATHS, wait_seconds=1.0):
            with pytest.raises(AdminLockLostError):
                await lock.transaction(change)
    async with AdminLock(second, PATHS) as lock:
        await first.delete(PATHS.admin_lock)  # somebody's heavy hand
        with pytest.raises(AdminLockLostError, match="taken away"):
            await lock.transaction(change)
    assert (await read_maps(second, PATHS)).groups == {}


async def test_the_lock_of_another_is_not_released() -> None:
    zookeeper = MemoryZooKeeper()
    first, second = zookeeper.session(), zookeeper.session()
    await seeding.create(first, ROOT, "demo", 4)
    async with AdminLock(first, PATHS):
        await first.delete(PATHS.admin_lock)
        other = AdminLock(second, PATHS)
        await other.__aenter__()
    assert await first.exists(PATHS.admin_lock) is not None
    await other.__aexit__(None, None, None)


async def test_a_rival_change_inside_the_lock_is_a_conflict_and_tried_again() -> None:
    store = await cluster(4, h1=1)
    times = 2

    def rival(name: str, path: str) -> Fault | None:
        nonlocal times
        if name == "transaction" and times:
            times -= 1
            zookeeper = store._server
            zookeeper.set(PATHS.assignment, zookeeper.tree()[PATHS.assignment][0], -1)
        return None

    store.fault = rival
    assert await assignments.assign(store, ROOT, [1], "h1:6000") == (1,)
    times = 99
    with pytest.raises(VersionConflictError):
        await assignments.assign(store, ROOT, [2], "h1:6000")
    assert await placement(store) == {"h1:6000": (1,)}


async def test_an_incomplete_cluster_says_so() -> None:
    store = await cluster()
    for data, text in (
        (b"\x02junk", "cannot be read"),
        (b"", "if the cluster was never used, `waltz zk create`"),
    ):
        await store.set(PATHS.connection, data)
        with pytest.raises(AdminError, match=f"{PATHS.connection} .*{text}.*waltz zk rebuild") as raised:
            await assignments.auto_assign(store, ROOT, 0)
        assert ("waltz zk create" in str(raised.value)) is not bool(data), "it does nothing where data are"
    await store.delete(PATHS.connection)
    with pytest.raises(AdminError, match=f"is not complete, {PATHS.connection} is missing"):
        await assignments.auto_assign(store, ROOT, 0)


@pytest.mark.parametrize("count", [-1, 1_000_001, 2**31 - 1])
async def test_a_number_of_partitions_that_no_cluster_has_is_refused_before_they_are_counted(
    count: int,
) -> None:
    """0.13.2 makes a cluster with any; each of our tools would ask for as many znodes."""
    store = await cluster()
    key = s.StoreParams.from_bytes((await store.get(PATHS.store))[0]).cluster_key
    await store.set(PATHS.store, s.StoreParams(key, count).to_bytes())
    with pytest.raises(ClusterNotFoundError, match=f"{PATHS.store} has {count} partitions, and a cluster"):
        await read_view(store, ROOT)
    await store.set(ROOT, s.ClusterParams("demo", count).to_bytes())
    with pytest.raises(ClusterNotFoundError, match=f"{ROOT} has {count} partitions, and a cluster"):
        await read_view(store, ROOT)
    assert isinstance(await probe(store, ROOT), BrokenTree)


CLASSES: dict[str, Any] = {
    "": s.ClusterParams,
    "/ids/client": s.Counter,
    "/ids/server": s.Counter,
    "/serverDescriptors": s.PartitionAssignment,
    "/store": s.StoreParams,
    "/store/assignment": s.ReplicaAssignments,
    "/store/group": s.GroupDescriptor,
    "/store/connection": s.ConnectionMetadata,
}


def in_order_of(found: bytes, recorded: bytes, cls: Any) -> bytes:
    """Our bytes with the maps in the order the recorded ones happen to have."""
    ours, theirs = cls.from_bytes(found), cls.from_bytes(recorded)
    for field in ("nodes", "groups", "admin_ports"):
        if isinstance(getattr(ours, field, None), Mapping):
            order = list(getattr(theirs, field))
            mine = getattr(ours, field)
            return bytes(cls({key: mine[key] for key in sorted(mine, key=order.index)}).to_bytes())
    return found


async def check_tree(store: ZooKeeperStore, name: str) -> None:
    root = "/waltz_gold"
    recorded = golden.tree(name)
    for path, entry in recorded.items():
        data, stat = await store.get(path)
        if entry["hex"] is None:
            assert data is None, (name, path)
        else:
            expected = bytes.fromhex(entry["hex"])
            assert data is not None
            assert in_order_of(data, expected, CLASSES[path.removeprefix(root)]) == expected, (name, path)
        assert stat.version == entry["version"], (name, path)
        assert (await store.get_children(path))[0] == sorted(entry["children"]), (name, path)
        # 0.13.2 takes the admin lock four times to create a cluster: eight child changes ours does without
        missing = 8 if path == f"{root}/store" else 0
        assert stat.cversion == entry["cversion"] - missing, (name, path)


async def test_the_recorded_trees_of_0_13_2_are_reproduced(store: ZooKeeperStore) -> None:
    root = "/waltz_gold"
    final = golden.tree("03-assigned-storage2")
    key = s.StoreParams.from_bytes(bytes.fromhex(final[f"{root}/store"]["hex"])).cluster_key
    groups = s.GroupDescriptor.from_bytes(bytes.fromhex(final[f"{root}/store/group"]["hex"])).groups
    ports = s.ConnectionMetadata.from_bytes(
        bytes.fromhex(final[f"{root}/store/connection"]["hex"])
    ).admin_ports
    await seeding.create(store, root, "gold", 4, new_key=lambda: key)
    await check_tree(store, "01-created")
    for index, node in enumerate(sorted(groups, key=lambda node: groups[node])):
        await nodes.add_storage_node(store, root, node, ports[node], groups[node])
        await check_tree(store, f"02-added-storage{index}")
        await assignments.assign(store, root, range(4), node)
        await check_tree(store, f"03-assigned-storage{index}")
    await seeding.delete(store, root, "gold")
