"""A dry run makes every check and no write."""

import pytest

from waltz_admin import assignments, nodes, seeding
from waltz_admin.dry_run import DryRunStore
from waltz_admin.errors import AssignmentError, StorageNodeError, WrongClusterNameError
from waltz_admin.tree import read_maps
from waltz_cluster.errors import NodeExistsError, NoNodeError
from waltz_cluster.paths import ClusterPaths
from waltz_cluster.store import CheckOp, CreateOp, DeleteOp, SetOp, ZooKeeperStore


async def test_changes_are_checked_and_remembered_and_nothing_is_written(
    store: ZooKeeperStore, root: str
) -> None:
    await seeding.create(store, root, "demo", 2)
    await nodes.add_storage_node(store, root, "h1:6000", 6001, 1)
    before = await read_maps(store, ClusterPaths(root))
    dry = DryRunStore(store)
    assert await assignments.assign(dry, root, [0], "h1:6000") == (0,)
    await nodes.remove_storage_node(dry, root, "h1:6000")
    assert await nodes.add_storage_node(dry, root, "h2:6000", 6001, 1)
    await seeding.delete(dry, root, "demo")
    verbs = {verb for verb, _ in dry.writes}
    assert verbs == {"set", "delete"}
    assert ("set", ClusterPaths(root).assignment) in dry.writes
    for refused, error in (
        (assignments.assign(dry, root, [0], "h9:6000"), AssignmentError),
        (nodes.remove_storage_node(dry, root, "h9:6000"), StorageNodeError),
        (seeding.delete(dry, root, "other"), WrongClusterNameError),
    ):
        with pytest.raises(error):
            await refused
    assert await read_maps(store, ClusterPaths(root)) == before
    assert await store.exists(ClusterPaths(root).admin_lock) is None


async def test_every_write_is_left_out(store: ZooKeeperStore, root: str) -> None:
    await seeding.create(store, root, "demo", 2)
    dry = DryRunStore(store)
    assert (dry.epoch, dry.session_id, dry.state) == (store.epoch, store.session_id, store.state)
    assert dry.session_timeout_seconds == store.session_timeout_seconds
    assert dry.last_contact <= store.last_contact
    dry.add_session_listener(lambda event: None)()
    assert await dry.create(f"{root}/new", b"x") == f"{root}/new"
    assert await dry.create(f"{root}/lock", None, ephemeral=True) == f"{root}/lock"
    with pytest.raises(NodeExistsError):
        await dry.create(root, None)
    await dry.set(root, b"other")
    with pytest.raises(NoNodeError):
        await dry.set(f"{root}/absent", b"")
    await dry.delete(root)
    await dry.transaction([CheckOp(root), CreateOp(f"{root}/a"), SetOp(root, b""), DeleteOp(root)])
    await dry.close()
    assert dry.writes == [
        ("create", f"{root}/new"),
        ("set", root),
        ("delete", root),
        ("create", f"{root}/a"),
        ("set", root),
        ("delete", root),
    ]
    assert await store.exists(f"{root}/new") is None
    assert (await dry.get(root))[0] == (await store.get(root))[0]
    assert (await dry.get_children(root))[0] == (await store.get_children(root))[0]
