"""The recorded ZooKeeper trees: put into an in-memory ZooKeeper, and taken out of any ZooKeeper for
comparison."""

from collections.abc import Mapping
from dataclasses import dataclass

from tests.interop.recordings import zookeeper_tree
from waltz_cluster.memory_store import MemoryZooKeeper
from waltz_cluster.store import ZooKeeperStore

ROOT = "/waltz_gold"


@dataclass(frozen=True)
class Znode:
    """What of a znode is compared. An empty znode and one without data are the same."""

    data: bytes
    version: int
    cversion: int
    ephemeral: bool
    children: tuple[str, ...]


def golden_tree(stage: str) -> dict[str, Znode]:
    return {
        path: Znode(
            bytes.fromhex(znode["hex"] or ""),
            znode["version"],
            znode["cversion"],
            znode["ephemeral"],
            tuple(sorted(znode["children"])),
        )
        for path, znode in zookeeper_tree(stage).items()
    }


async def read_tree(store: ZooKeeperStore, path: str = ROOT) -> dict[str, Znode]:
    """Everything at and below a path."""
    data, stat = await store.get(path)
    names, _ = await store.get_children(path)
    tree = {
        path: Znode(
            data or b"", stat.version, stat.cversion, bool(stat.ephemeral_owner), tuple(sorted(names))
        )
    }
    for name in names:
        tree.update(await read_tree(store, f"{path}/{name}"))
    return tree


async def load_tree(
    memory: MemoryZooKeeper, stage: str, ephemeral: Mapping[str, bytes] | None = None
) -> ZooKeeperStore:
    """Make the tree of a stage, with its data and child versions, and return the session that did it.

    Of the ephemeral znodes only those in `ephemeral` are made, with that content; they live as long as the
    session.
    """
    store = memory.session()
    owned = ephemeral or {}
    golden = {
        path: znode for path, znode in golden_tree(stage).items() if not znode.ephemeral or path in owned
    }
    for path, znode in sorted(golden.items()):
        await store.create(path, owned.get(path, znode.data), ephemeral=znode.ephemeral, make_parents=True)
    for path, znode in golden.items():
        node = memory.node(path)
        node.version, node.creations, node.deletions = znode.version, znode.cversion, 0
    return store
