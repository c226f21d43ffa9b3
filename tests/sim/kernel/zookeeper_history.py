"""What the tree was a moment ago: followers of an ensemble answer reads with it."""

from __future__ import annotations

import copy
from bisect import bisect_right
from collections.abc import Callable, Iterable

from waltz_cluster.memory_tree import Node

Find = Callable[[str], Node | None]
_KEEP = 200
"""Changes of one znode that are remembered; who wants an older state gets the oldest of these."""


class History:
    """Numbers every change (as ZooKeeper's zxid does) and keeps the states of changed znodes. Owner: the
    server."""

    def __init__(self) -> None:
        self.zxid = 0
        self._times: list[float] = [0.0]  # when the change of that number was made
        self._states: dict[str, list[tuple[int, Node | None]]] = {"/": [(0, Node())]}

    def changed(self, paths: Iterable[str], find: Find, now: float) -> None:
        """One change has been made to these znodes."""
        self.zxid += 1
        self._times.append(now)
        for path in dict.fromkeys(paths):
            states = self._states.setdefault(path, [(0, None)])
            node = find(path)
            states.append((self.zxid, None if node is None else copied(node)))
            del states[:-_KEEP]

    def newest_at(self, seconds: float) -> int:
        """Number of the last change made by then."""
        return max(0, bisect_right(self._times, seconds) - 1)

    def at(self, path: str, zxid: int) -> Node | None:
        """The znode after the change of this number."""
        states = self._states.get(path)
        if states is None:
            return None
        index = bisect_right(states, zxid, key=_number) - 1
        return states[max(0, index)][1]

    def changed_at(self, path: str, zxid: int) -> float:
        """When the first change after the one of this number touched the znode (`changed_since` holds)."""
        later = [number for number, _ in self._states[path] if number > zxid]
        return self._times[later[0]]

    def changed_since(self, path: str, zxid: int) -> bool:
        """Whether a later change has touched the znode."""
        states = self._states.get(path)
        return states is not None and states[-1][0] > zxid


def copied(node: Node) -> Node:
    """A copy that later changes do not reach."""
    twin = copy.copy(node)
    twin.children = set(node.children)
    return twin


def _number(state: tuple[int, Node | None]) -> int:
    return state[0]
