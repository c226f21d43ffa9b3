"""create, delete, show key, list: idempotent after a crash at any write, never over a lost tree."""

from uuid import UUID

import pytest

from waltz_admin import nodes, seeding
from waltz_admin.errors import (
    AdminError,
    ClusterExistsError,
    ClusterInUseError,
    ClusterTreeLostError,
    WrongClusterNameError,
)
from waltz_admin.found_tree import BrokenTree, NoTree
from waltz_admin.lock import AdminLock
from waltz_admin.view import ClusterView, probe, read_view
from waltz_cluster.errors import ClusterNotFoundError, ConnectionLostError
from waltz_cluster.memory_store import Fault, MemoryZooKeeper
from waltz_cluster.paths import ClusterPaths
from waltz_cluster.serializers import ClusterParams, PartitionAssignment, ServerDescriptor, StoreParams
from waltz_cluster.store import ZooKeeperStore
from waltz_protocol.types import Endpoint, PartitionId

KEY = UUID("00112233-4455-6677-8899-aabbccddeeff")
ROOT = "/deep/down/waltz"


def fixed_key() -> UUID:
    return KEY


async def test_a_fresh_cluster(store: ZooKeeperStore, root: str) -> None:
    root = f"{root}/sub/cluster"
    result = await seeding.create(store, root, "demo", 4, new_key=fixed_key)
    assert result == seeding.CreateResult(True, StoreParams(KEY, 4))
    expected: dict[str, tuple[bytes | None, int]] = {
        "": (bytes.fromhex("b4e8734701000464656d6f00000004"), 1),
        "/serverDescriptors": (bytes.fromhex("03ffffffff0000000000000000"), 0),
        "/ids": (None, 0),
        "/ids/client": (bytes(4), 0),
        "/ids/server": (bytes(4), 0),
        "/store": (b"\x01" + KEY.bytes + bytes([0, 0, 0, 4]), 1),
        "/store/partition": (None, 0),
        "/store/group": (bytes.fromhex("0100000000"), 1),
        "/store/assignment": (bytes.fromhex("0100000000"), 1),
        "/store/connection": (bytes.fromhex("0100000000"), 1),
    }
    for path, (data, version) in expected.items():
        found, stat = await store.get(root + path)
        assert (found, stat.version) == (data, version), path
    assert await seeding.show_key(store, root) == KEY


async def test_an_existing_cluster_is_not_touched(store: ZooKeeperStore, root: str) -> None:
    await seeding.create(store, root, "demo", 4, new_key=fixed_key)
    with pytest.raises(ClusterExistsError, match="already a cluster 'demo'"):
        await seeding.create(store, root, "demo", 4)
    for name, count in (("other", 4), ("demo", 5)):
        with pytest.raises(ClusterExistsError, match="already a cluster 'demo' with 4 partitions"):
            await seeding.create(store, root, name, count, exist_ok=True)
    again = await seeding.create(store, root, "demo", 4, exist_ok=True)
    assert again == seeding.CreateResult(False, StoreParams(KEY, 4))
    with pytest.raises(AdminError, match="must be 0 to 1000000, not 1000001"):
        await seeding.create(store, f"{root}/many", "demo", 1_000_001)
    with pytest.raises(AdminError, match="must be 0 to 1000000, not -1"):
        await seeding.create(store, root, "demo", -1)


async def test_something_else_at_the_root_is_not_touched(store: ZooKeeperStore, root: str) -> None:
    await store.create(root, b"precious")
    with pytest.raises(ClusterExistsError, match="not a cluster"):
        await seeding.create(store, root, "demo", 4)
    assert (await store.get(root))[0] == b"precious"


async def test_zookeeper_6_15_create_completes_every_half_made_tree_of_an_older_tool() -> None:
    """0.13.2 creates the znodes one by one, then fills them one by one: die after each of its writes."""
    paths = ClusterPaths(ROOT)
    complete = {
        paths.root: ClusterParams("demo", 4).to_bytes(),
        paths.server_descriptors: PartitionAssignment().to_bytes(),
        paths.ids: None,
        paths.client_ids: bytes(4),
        paths.server_ids: bytes(4),
    }
    steps: list[tuple[str, bytes | None]] = [
        ("/deep", None),
        ("/deep/down", None),
        (paths.root, None),
        *complete.items(),
        *(
            (p, None)
            for p in (paths.store, paths.partitions, paths.group, paths.assignment, paths.connection)
        ),
        (paths.store, StoreParams(KEY, 4).to_bytes()),
        (paths.group, bytes.fromhex("0100000000")),
        (paths.assignment, bytes.fromhex("0100000000")),
    ]
    for crash_after in range(len(steps) + 1):
        store = MemoryZooKeeper().session()
        for path, data in steps[:crash_after]:
            if await store.exists(path) is None:
                await store.create(path, data)
            else:
                await store.set(path, data)
        result = await seeding.create(store, ROOT, "demo", 4)
        assert result.created
        assert (result.params.cluster_key == KEY) == (crash_after >= len(steps) - 2)
        view = await read_view(store, ROOT)
        assert (view.params.name, view.store) == ("demo", result.params)
        with pytest.raises(ClusterExistsError):
            await seeding.create(store, ROOT, "demo", 4)


@pytest.mark.parametrize("fault", list(Fault))
async def test_zookeeper_6_15_create_and_delete_after_a_crash_at_any_write(fault: Fault) -> None:
    for crash_at in range(16):
        store = MemoryZooKeeper().session()
        writes = 0

        def crash(name: str, path: str) -> Fault | None:
            nonlocal writes
            writes += name in ("create", "set", "delete", "transaction")
            return fault if writes == crash_at + 1 and not name.startswith("get") else None  # noqa: B023

        async def until_done(action: str) -> None:
            try:
                if action == "create":
                    await seeding.create(store, ROOT, "demo", 4, exist_ok=True)  # noqa: B023
                elif await store.exists(ROOT) is not None:  # noqa: B023
                    await seeding.delete(store, ROOT, "demo")  # noqa: B023
            except ConnectionLostError:
                store.fault = None  # noqa: B023
                await until_done(action)

        store.fault = crash
        await until_done("create")
        assert (await read_view(store, ROOT)).params == ClusterParams("demo", 4)
        await until_done("delete")
        assert await store.exists(ROOT) is None
        assert await store.exists("/deep/down") is not None


async def test_safety_a7_a_missing_tree_is_never_seeded_again_once_a_key_was_recorded() -> None:
    store = MemoryZooKeeper().session()
    with pytest.raises(ClusterTreeLostError, match="never seeded again"):
        await seeding.create(store, ROOT, "demo", 4, recorded_cluster_key=KEY)
    assert await store.exists("/deep") is None
    await seeding.create(store, ROOT, "demo", 4, new_key=fixed_key)
    with pytest.raises(ClusterTreeLostError, match="was recorded"):
        await seeding.create(store, ROOT, "demo", 4, recorded_cluster_key=UUID(int=1))
    same = await seeding.create(store, ROOT, "demo", 4, recorded_cluster_key=KEY, exist_ok=True)
    assert not same.created
    await store.delete(f"{ROOT}/store/assignment")
    with pytest.raises(ClusterTreeLostError, match="not \\(completely\\)"):
        await seeding.create(store, ROOT, "demo", 4, recorded_cluster_key=KEY)


async def test_safety_a7_a_used_cluster_that_lost_a_znode_is_never_completed() -> None:
    for evidence in ("/ids/server", "/ids/client", "partition"):
        store = MemoryZooKeeper().session()
        await seeding.create(store, ROOT, "demo", 4)
        if evidence == "partition":
            await store.create(f"{ROOT}/store/partition/0", b"\x01")
            await store.delete(f"{ROOT}/store/partition/0")
        else:
            await store.set(ROOT + evidence, bytes([0, 0, 0, 1]))
        await store.delete(f"{ROOT}/store/assignment")
        with pytest.raises(ClusterTreeLostError, match="was in use"):
            await seeding.create(store, ROOT, "demo", 4)
        assert await store.exists(f"{ROOT}/store/assignment") is None


async def test_zookeeper_6_19_delete_checks_the_name_and_says_so(store: ZooKeeperStore, root: str) -> None:
    await seeding.create(store, root, "demo", 4)
    with pytest.raises(WrongClusterNameError, match="is 'demo', not 'dmeo'"):
        await seeding.delete(store, root, "dmeo")
    assert await store.exists(root) is not None
    await seeding.delete(store, root, "demo")
    assert await store.exists(root) is None
    with pytest.raises(AdminError, match="there is no cluster"):
        await seeding.delete(store, root, "demo")
    await seeding.create(store, root, "demo", 4)
    await seeding.delete(store, root, "", force=True)
    assert await store.exists(root) is None


@pytest.mark.parametrize("fault", list(Fault))
async def test_safety_a7_a_deletion_that_was_cut_is_known_by_its_key_and_completed(fault: Fault) -> None:
    """After each of its writes: what is left has the key, or nothing is left."""
    cut_at = 0
    while True:
        store = MemoryZooKeeper().session()
        await seeding.create(store, ROOT, "demo", 4, new_key=fixed_key)
        await store.create(f"{ROOT}/store/partition/0", b"\x01")
        await store.create(f"{ROOT}/ids/more", b"")
        writes = 0

        def cut(name: str, path: str) -> Fault | None:
            nonlocal writes
            writes += name in ("create", "set", "delete", "transaction")
            return fault if writes > cut_at and name in ("delete", "transaction") else None  # noqa: B023

        store.fault = cut
        try:
            await seeding.delete(store, ROOT, "demo", cluster_key=KEY)
        except ConnectionLostError:
            store.fault = None
        else:
            break
        left = await probe(store, ROOT)
        if isinstance(left, ClusterView):
            assert left.store.cluster_key == KEY
        elif isinstance(left, BrokenTree):
            assert (left.name, left.cluster_key, left.bare) == ("demo", KEY, False)
        if not isinstance(left, NoTree):
            with pytest.raises(WrongClusterNameError):
                await seeding.delete(store, ROOT, "demo", cluster_key=UUID(int=1))
            await seeding.delete(store, ROOT, "demo", cluster_key=KEY)
        assert await store.exists(ROOT) is None
        assert await store.exists("/deep/down") is not None
        cut_at += 1
    assert cut_at == 11


async def test_what_is_at_the_root_is_told_apart_though_it_is_no_complete_cluster() -> None:
    store = MemoryZooKeeper().session()
    await seeding.create(store, ROOT, "demo", 4, new_key=fixed_key)
    await store.delete(f"{ROOT}/store/assignment")
    found = await probe(store, ROOT)
    assert isinstance(found, BrokenTree)
    assert (found.name, found.cluster_key, found.bare) == ("demo", KEY, False)
    await store.set(f"{ROOT}/store", b"else")
    found = await probe(store, ROOT)
    assert isinstance(found, BrokenTree)
    assert (found.name, found.cluster_key, found.bare) == ("demo", None, False)
    await store.create("/bare", ClusterParams("demo", 4).to_bytes())
    found = await probe(store, "/bare")
    assert isinstance(found, BrokenTree)
    assert (found.name, found.cluster_key, found.bare) == ("demo", None, True)
    await store.create("/else", b"precious")
    found = await probe(store, "/else")
    assert isinstance(found, BrokenTree)
    assert (found.name, found.cluster_key, found.bare) == (None, None, True)


async def test_zookeeper_6_19_the_key_of_nothing_is_an_error(store: ZooKeeperStore, root: str) -> None:
    with pytest.raises(ClusterNotFoundError):
        await seeding.show_key(store, root)


async def test_zookeeper_6_15_half_made_clusters_can_be_deleted() -> None:
    store = MemoryZooKeeper().session()
    await store.create("/half", None)
    await store.create("/half/ids", None)
    await seeding.delete(store, "/half", "whatever")
    assert await store.exists("/half") is None
    await store.create("/lost", None)
    await store.create("/lost/store", StoreParams(KEY, 4).to_bytes())
    with pytest.raises(WrongClusterNameError, match="lost its name"):
        await seeding.delete(store, "/lost", "demo")


async def test_the_real_name_is_known_before_a_cluster_is_deleted_whatever_its_name(
    store: ZooKeeperStore, root: str
) -> None:
    with pytest.raises(AdminError, match="there is no cluster at"):
        await seeding.name_of(store, root)
    await seeding.create(store, root, "demo", 4)
    assert await seeding.name_of(store, root) == "demo"
    for lost in (None, b"\x07"):
        await store.set(root, lost)
        assert await seeding.name_of(store, root) == ""
    await seeding.delete(store, root, "other", force=True)


async def test_nothing_advises_to_create_a_cluster_that_lost_its_store(
    store: ZooKeeperStore, root: str
) -> None:
    await seeding.create(store, root, "demo", 4)
    await seeding.delete(store, root, "demo")
    with pytest.raises(ClusterNotFoundError, match="`waltz zk import` or `waltz zk rebuild`"):
        await seeding.show_key(store, root)
    with pytest.raises(AdminError, match="`waltz zk import` or `waltz zk rebuild`"):
        async with AdminLock(store, ClusterPaths(root)):
            pass


async def test_a_cluster_with_servers_is_not_deleted(store: ZooKeeperStore, root: str) -> None:
    await seeding.create(store, root, "demo", 4)
    descriptor = ServerDescriptor(1, Endpoint("h", 1)).to_bytes()
    path = await store.create(f"{root}/serverDescriptors/s_", descriptor, ephemeral=True, sequential=True)
    for name, force in (("demo", False), ("demo", True), ("other", True)):
        with pytest.raises(ClusterInUseError, match="1 servers are registered"):
            await seeding.delete(store, root, name, force=force)
    await store.delete(path)
    await seeding.delete(store, root, "other", force=True)
    assert await store.exists(root) is None


async def test_zookeeper_6_12_the_number_of_partitions_stays() -> None:
    """It is in the control file of every storage node and in every session of the log: no tool changes it,
    and a second create with another number is refused."""
    store = MemoryZooKeeper().session()
    await seeding.create(store, ROOT, "demo", 4)
    with pytest.raises(ClusterExistsError):
        await seeding.create(store, ROOT, "demo", 8, exist_ok=True)


async def test_the_view_changes_nothing() -> None:
    zookeeper = MemoryZooKeeper()
    store = zookeeper.session()
    await seeding.create(store, ROOT, "demo", 2, new_key=fixed_key)
    await nodes.add_storage_node(store, ROOT, "h1:6000", 6001, 0)
    before = zookeeper.tree()
    view = await read_view(store, ROOT)
    assert zookeeper.tree() == before
    assert (view.params.num_partitions, view.store.cluster_key) == (2, KEY)
    assert view.nodes.admin_ports == {"h1:6000": 6001}
    assert view.metadata == {0: None, 1: None}
    assert not view.assignment_current
    await store.create(f"{ROOT}/store/partition/1", b"broken")
    broken = (await read_view(store, ROOT)).metadata[PartitionId(1)]
    assert isinstance(broken, str)
