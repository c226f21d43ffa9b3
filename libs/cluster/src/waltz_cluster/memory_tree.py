"""ZooKeeper's tree in memory: znodes, versions, watches, sessions and transactions, as its server keeps them.

No time and no connections: `memory_store` and the simulator put those around it.

Server-side rules kept (ZooKeeper): data version counts sets; child version counts creations plus deletions of
children; the number of a sequential znode is the number of creations so far under its parent; watches are
one-shot; a transaction is all or nothing; ephemeral znodes go with their session and have no children.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

from waltz_cluster import errors
from waltz_cluster.session import OneShotWatch
from waltz_cluster.store import CheckOp, CreateOp, DeleteOp, Op, SetOp, ZnodeStat


class Watcher(Protocol):
    """Who set a watch."""

    def deliver_watch(self, watch: OneShotWatch) -> None:
        """The watch has been triggered; the server no longer knows it."""
        ...


@dataclass(slots=True)
class Node:
    """One znode as the server keeps it."""

    data: bytes | None = None
    version: int = 0
    creations: int = 0
    deletions: int = 0
    owner: int = 0
    children: set[str] = field(default_factory=set)

    def stat(self) -> ZnodeStat:
        return ZnodeStat(self.version, self.creations + self.deletions, self.owner, len(self.children))


def _parent(path: str) -> str:
    return path.rpartition("/")[0] or "/"


class MemoryTree:
    """Znodes, watches and live sessions. One writer: the loop."""

    def __init__(self) -> None:
        self._nodes: dict[str, Node] = {"/": Node()}
        self._watches: dict[tuple[str, str], list[tuple[Watcher, OneShotWatch]]] = {}
        self._live: set[int] = set()
        self._last_session = 0x1000
        self._before: dict[str, Node | None] | None = None  # in a transaction: what it has changed

    def tree(self) -> dict[str, tuple[bytes | None, ZnodeStat]]:
        """Everything below `/`, for tests."""
        return {path: (node.data, node.stat()) for path, node in sorted(self._nodes.items()) if path != "/"}

    # -- sessions

    def open_session(self) -> int:
        self._last_session += 1
        self._live.add(self._last_session)
        return self._last_session

    def is_live(self, session_id: int) -> bool:
        return session_id in self._live

    def end_session(self, session_id: int) -> None:
        self._live.discard(session_id)
        mine = sorted(path for path, node in self._nodes.items() if session_id and node.owner == session_id)
        for path in mine:
            self._delete(path, -1)

    # -- operations, each atomic

    def node(self, path: str) -> Node:
        node = self._nodes.get(path)
        if node is None:
            raise errors.NoNodeError(f"{path}: no such znode")
        return node

    def find(self, path: str) -> Node | None:
        return self._nodes.get(path)

    def create(self, path: str, data: bytes | None, owner: int, sequential: bool) -> str:
        parent_path = _parent(path)
        parent = self.node(parent_path)
        if parent.owner:
            raise errors.NoChildrenForEphemeralsError(f"{parent_path}: the parent is ephemeral")
        if sequential:
            path = f"{path}{parent.creations:010d}"
        if path in self._nodes:
            raise errors.NodeExistsError(f"{path}: the znode exists already")
        self._remember(path, parent_path)
        self._nodes[path] = Node(data=data, owner=owner)
        parent.children.add(path.rpartition("/")[2])
        parent.creations += 1
        self._fire("data", path)
        self._fire("children", parent_path)
        return path

    def set(self, path: str, data: bytes | None, version: int) -> ZnodeStat:
        node = self.check(path, version)
        self._remember(path)
        node.data = data
        node.version += 1
        self._fire("data", path)
        return node.stat()

    def check(self, path: str, version: int) -> Node:
        node = self.node(path)
        if version not in (-1, node.version):
            raise errors.VersionConflictError(f"{path}: the znode was changed by someone else")
        return node

    def delete(self, path: str, version: int) -> None:
        if self.check(path, version).children:
            raise errors.NotEmptyError(f"{path}: the znode has children")
        self._delete(path, version)

    def _delete(self, path: str, version: int) -> None:
        self.check(path, version)
        parent = self.node(_parent(path))
        self._remember(path, _parent(path))
        del self._nodes[path]
        parent.children.discard(path.rpartition("/")[2])
        parent.deletions += 1
        self._fire("data", path)
        self._fire("children", path)
        self._fire("children", _parent(path))

    def transaction(self, ops: Sequence[Op], owner: int) -> None:
        before: dict[str, Node | None] = {}
        self._before = before
        watches, self._watches = self._watches, {}
        touched: list[tuple[str, str]] = []
        try:
            for op in ops:
                touched += self._apply(op, owner)
        except errors.StoreError:
            self._take_back(before)
            raise
        finally:
            self._before = None
            self._watches = watches
        for kind, path in touched:
            self._fire(kind, path)

    def _remember(self, *paths: str) -> None:
        """Before a change: what the paths hold, in case the transaction fails."""
        if self._before is None:
            return
        for path in paths:
            if path not in self._before:
                node = self._nodes.get(path)
                self._before[path] = None if node is None else replace(node, children=set(node.children))

    def _take_back(self, before: dict[str, Node | None]) -> None:
        for path, node in before.items():
            if node is None:
                self._nodes.pop(path, None)
            else:
                self._nodes[path] = node

    def _apply(self, op: Op, owner: int) -> list[tuple[str, str]]:
        """Apply one operation (without its watches) and say which watches it concerns."""
        match op:
            case CreateOp():
                self.create(op.path, op.data, owner if op.ephemeral else 0, False)
                return [("data", op.path), ("children", _parent(op.path))]
            case SetOp():
                self.set(op.path, op.data, op.version)
                return [("data", op.path)]
            case DeleteOp():
                self.delete(op.path, op.version)
                return [("data", op.path), ("children", op.path), ("children", _parent(op.path))]
            case CheckOp():
                self.check(op.path, op.version)
                return []

    # -- watches

    def watch(self, kind: str, path: str, store: Watcher, watch: OneShotWatch) -> None:
        self._watches.setdefault((kind, path), []).append((store, watch))

    def _fire(self, kind: str, path: str) -> None:
        for store, watch in self._watches.pop((kind, path), []):
            store.deliver_watch(watch)

    def drop_watches(self, store: Watcher) -> list[OneShotWatch]:
        """The outstanding watches of a store whose connection is gone."""
        dropped = []
        for key, entries in list(self._watches.items()):
            dropped += [watch for owner, watch in entries if owner is store]
            self._watches[key] = [entry for entry in entries if entry[0] is not store]
            if not self._watches[key]:
                del self._watches[key]
        return dropped
