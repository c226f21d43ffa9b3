"""Two clusters, one below the other: neither made that way, nor deleted with each other, but used."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import replace
from uuid import UUID

import pytest

from waltz_admin import nodes, seeding
from waltz_admin.errors import AdminError, ClusterExistsError
from waltz_admin.nested_roots import is_below
from waltz_admin.subtree import read_subtree
from waltz_admin.tree_copy import read_tree, write_tree
from waltz_admin.tree_file import ClusterTree, Znode, decode, encode
from waltz_cluster.memory_store import MemoryStore, MemoryZooKeeper
from waltz_cluster.paths import ClusterPaths
from waltz_cluster.serializers import ClusterParams
from waltz_cluster.store import CreateOp, Watch, ZnodeStat, ZooKeeperStore

KEY = UUID(int=7)
OUTER = "/waltz"
PATHS = ClusterPaths(OUTER)
BELOW = [
    "/waltz/test",
    "/waltz/deep/test",
    "/waltz/store/test",
    "/waltz/ids/test",
    PATHS.producer("test"),
    PATHS.preference("test"),
    PATHS.challenge("test"),
    PATHS.server_descriptor("test"),
    f"{PATHS.client_ids}/test",
    f"{PATHS.server_ids}/deep/test",
    f"{PATHS.partitions}/test",
    f"{PATHS.partition(0)}/test",
    f"{PATHS.group}/test",
    f"{PATHS.assignment}/test",
    f"{PATHS.connection}/test",
]


async def tree_of(name: str) -> ClusterTree:
    """An export of a cluster of this name."""
    elsewhere = MemoryZooKeeper().session()
    await seeding.create(elsewhere, OUTER, name, 1)
    return await read_tree(elsewhere, OUTER, "now")


async def nested(store: ZooKeeperStore, inner: str) -> None:
    """As an earlier release made it: the inner one first, and then the outer one around it."""
    await seeding.create(store, inner, "inner", 1)
    ops = []
    for path, znode in (await tree_of("outer")).znodes.items():
        if await store.exists(OUTER + path) is None:
            ops.append(CreateOp(OUTER + path, znode.data))
        else:
            await store.set(OUTER + path, znode.data)
    await store.transaction(ops)


@pytest.mark.parametrize("inner", BELOW)
async def test_none_is_created_below_another_one(store: ZooKeeperStore, root: str, inner: str) -> None:
    outer, inner = root + OUTER, root + inner
    await seeding.create(store, outer, "outer", 1)
    tree = await tree_of("inner")
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
    with pytest.raises(ClusterExistsError, match=f"above the root of another cluster, {inner}"):
        await seeding.create_exactly(store, outer, "outer", 1, KEY)
    with pytest.raises(ClusterExistsError, match=f"above the root of another cluster, {inner}"):
        await write_tree(store, outer, await tree_of("outer"))
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
    """With data that can be read as the name of a cluster and its partitions: those of other records can."""
    store = MemoryZooKeeper().session()
    await seeding.create(store, OUTER, "outer", 1)
    await nodes.add_storage_node(store, OUTER, "n:1", 2, 0)
    name = ClusterParams("", 1).to_bytes()
    for path in (PATHS.preference("h:1"), PATHS.producer("p"), PATHS.challenge("s_1"), PATHS.partition(0)):
        await store.create(path, name, make_parents=True)
    await store.create(PATHS.admin_lock, None)
    await seeding.delete(store, OUTER, "outer")
    assert await store.exists(OUTER) is None


@pytest.mark.parametrize("inner", BELOW)
async def test_an_export_has_one_cluster(inner: str) -> None:
    """Also the import of a file that an earlier release made of both."""
    store = MemoryZooKeeper().session()
    await nested(store, inner)
    tree = await read_tree(store, OUTER, "now")
    assert tree.nested == (inner.removeprefix(OUTER),)
    assert not [path for path in tree.znodes if is_below(path, tree.nested)]
    assert (await read_tree(store, inner, "now")).cluster.name == "inner"
    both = {
        path: Znode(data, stat.version > 0)
        for path, (data, stat) in (await read_subtree(store, OUTER)).items()
    }
    old = decode(encode(replace(tree, znodes=both)))
    assert (old.nested, old.znodes) == (tree.nested, tree.znodes)
    assert not await write_tree(store, OUTER, old), "it is there already, whatever is below it"
    other = MemoryZooKeeper().session()
    assert await write_tree(other, OUTER, old)
    assert await other.exists(inner) is None


async def test_what_is_written_below_does_not_disturb_an_export() -> None:
    inner = PATHS.producer("test")
    store = MemoryZooKeeper().session()
    await nested(store, inner)
    get, number = store.get, 0

    async def busy(path: str, watch: Watch | None = None) -> tuple[bytes | None, ZnodeStat]:
        nonlocal number
        if path == OUTER:
            number += 1
            await store.create(f"{inner}/producers/p{number}", None, make_parents=True)
        return await get(path, watch)

    store.get = busy  # type: ignore[method-assign]
    await read_tree(store, OUTER, "now")


# ---- at the same time


async def at_step(step: int, first: MemoryStore, mine: Awaitable[object], other: Awaitable[object]) -> bool:
    """`other` runs whole just before operation `step` of `mine`; False when `mine` has fewer. Either may be
    refused."""
    reached, resume = asyncio.Event(), asyncio.Event()
    steps, real = 0, first._call

    async def call(name: str, path: str, action: Callable[[], object]) -> object:
        nonlocal steps
        steps += 1
        if steps == step:
            reached.set()
            await resume.wait()
        return await real(name, path, action)

    first._call = call  # type: ignore[method-assign,assignment]

    async def run() -> None:
        with suppress(ClusterExistsError):
            await mine
        reached.set()

    async with asyncio.TaskGroup() as group:
        group.create_task(run())
        await reached.wait()
        with suppress(ClusterExistsError):
            await other
        resume.set()
    return steps >= step


@pytest.mark.parametrize("there", [None, "/waltz", "/waltz/deep"])
@pytest.mark.parametrize("outer_is_first", [True, False])
@pytest.mark.parametrize("how", ["create", "exactly", "import"])
async def test_two_at_the_same_time_are_not_made_below_each_other_unnoticed(
    how: str, outer_is_first: bool, there: str | None
) -> None:
    """At whatever step of the one the other one is made: there is one, or whoever made the outer one is
    informed that there are two."""
    tree = await tree_of("x")
    for step in range(1, 200):
        zookeeper = MemoryZooKeeper()
        first, second = zookeeper.session(), zookeeper.session()
        if there is not None:
            await second.create(there, None, make_parents=True)
        reports: list[str] = []

        async def made(store: MemoryStore, root: str, way: str, reports: list[str] = reports) -> None:
            try:
                if way == "import":
                    await write_tree(store, root, tree)
                elif way == "exactly":
                    await seeding.create_exactly(store, root, "x", 1, KEY)
                else:
                    await seeding.create(store, root, "x", 1)
            except ClusterExistsError as error:
                reports.append(str(error))
                raise

        roots = (OUTER, "/waltz/deep/x") if outer_is_first else ("/waltz/deep/x", OUTER)
        ended = not await at_step(step, first, made(first, roots[0], how), made(second, roots[1], "create"))
        both = [root for root in roots if await is_cluster(second, root)]
        assert reports, f"step {step}: {both} without a word"
        assert len(both) == 1 or (len(both) == 2 and "at the same time another one" in reports[0])
        if ended:
            assert step > 5
            return
    raise AssertionError("it never ends")


async def is_cluster(store: MemoryStore, root: str) -> bool:
    return await store.exists(root) is not None and bool((await store.get(root))[0])
