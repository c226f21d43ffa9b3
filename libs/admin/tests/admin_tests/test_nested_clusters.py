"""Two clusters, one below the other: neither made that way, nor deleted with each other, but used."""

from uuid import UUID

import pytest

from waltz_admin import nodes, seeding
from waltz_admin.errors import AdminError, ClusterExistsError
from waltz_admin.tree_copy import read_tree, write_tree
from waltz_cluster.memory_store import MemoryZooKeeper
from waltz_cluster.paths import ClusterPaths
from waltz_cluster.serializers import ClusterParams
from waltz_cluster.store import CreateOp, ZooKeeperStore

KEY = UUID(int=7)
OUTER = "/waltz"
BELOW = ["/waltz/test", "/waltz/deep/test", "/waltz/store/test", "/waltz/ids/test"]


async def nested(store: ZooKeeperStore, inner: str) -> None:
    """As an earlier release made it: the inner one first, and then the outer one around it."""
    await seeding.create(store, inner, "inner", 1)
    elsewhere = MemoryZooKeeper().session()
    await seeding.create(elsewhere, OUTER, "outer", 1)
    ops = []
    for path, znode in (await read_tree(elsewhere, OUTER, "")).znodes.items():
        if await store.exists(OUTER + path) is None:
            ops.append(CreateOp(OUTER + path, znode.data))
        else:
            await store.set(OUTER + path, znode.data)
    await store.transaction(ops)


@pytest.mark.parametrize("inner", BELOW)
async def test_none_is_created_below_another_one(store: ZooKeeperStore, root: str, inner: str) -> None:
    outer, inner = root + OUTER, root + inner
    await seeding.create(store, outer, "outer", 1)
    elsewhere = MemoryZooKeeper().session()
    await seeding.create(elsewhere, inner, "inner", 1)
    tree = await read_tree(elsewhere, inner, "now")
    for attempt in (
        seeding.create(store, inner, "inner", 1),
        seeding.create_exactly(store, inner, "inner", 1, KEY),
        write_tree(store, inner, tree),
    ):
        with pytest.raises(ClusterExistsError, match=f"below the root of another cluster, {outer}"):
            await attempt
    assert await store.exists(inner) is None


@pytest.mark.parametrize("inner", BELOW)
async def test_none_is_created_above_another_one(store: ZooKeeperStore, root: str, inner: str) -> None:
    outer, inner = root + OUTER, root + inner
    await seeding.create(store, inner, "inner", 1)
    with pytest.raises(ClusterExistsError, match=f"above the root of another cluster, {inner}"):
        await seeding.create(store, outer, "outer", 1)
    with pytest.raises(ClusterExistsError):
        await seeding.create_exactly(store, outer, "outer", 1, KEY)
    assert not (await store.get(outer))[0]


@pytest.mark.parametrize("force", [False, True])
@pytest.mark.parametrize("inner", BELOW)
async def test_none_is_deleted_with_another_one(inner: str, force: bool) -> None:
    store = MemoryZooKeeper().session()
    await nested(store, inner)
    with pytest.raises(ClusterExistsError, match=f"another cluster at {inner}"):
        await seeding.delete(store, OUTER, "outer", force=force)
    for root, name in ((OUTER, "outer"), (inner, "inner")):  # both are used as before
        await nodes.add_storage_node(store, root, "n:1", 2, 0)
        assert not (await seeding.create(store, root, name, 1, exist_ok=True)).created
    await seeding.delete(store, inner, "inner")
    await seeding.delete(store, OUTER, "outer", force=True)
    assert await store.exists(OUTER) is None


async def test_what_is_no_part_of_a_cluster_is_deleted_with_force_alone() -> None:
    store = MemoryZooKeeper().session()
    await seeding.create(store, OUTER, "outer", 1)
    await store.create("/waltz/notes", b"of somebody else")
    with pytest.raises(AdminError, match="/waltz/notes is not part of a Waltz cluster"):
        await seeding.delete(store, OUTER, "outer")
    assert (await store.get("/waltz"))[0] == ClusterParams("outer", 1).to_bytes()
    await seeding.delete(store, OUTER, "outer", force=True)
    assert await store.exists(OUTER) is None


async def test_all_that_a_cluster_may_have_is_deleted_without_force() -> None:
    store, paths = MemoryZooKeeper().session(), ClusterPaths(OUTER)
    await seeding.create(store, OUTER, "outer", 1)
    for path in (paths.preference("h:1"), paths.producer("p"), paths.challenge("s_1"), paths.partition(0)):
        await store.create(path, b"?", make_parents=True)
    await store.create(paths.admin_lock, None)
    await seeding.delete(store, OUTER, "outer")
    assert await store.exists(OUTER) is None
