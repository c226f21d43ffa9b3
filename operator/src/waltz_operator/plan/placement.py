"""Where copies belong: one of each partition per group, spread evenly over the group's nodes. Pure and
deterministic."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from heapq import heapify, heappop, heappush

from waltz_cluster.replica_rules import NeverStarted
from waltz_operator.api.migration import MoveState
from waltz_operator.model.desired import Move, MoveKind
from waltz_operator.model.facts import Facts
from waltz_operator.model.snapshot import (
    NodeView,
    TreeView,
    Unknown,
)
from waltz_operator.model.task import Task, TaskKind, move_kind
from waltz_operator.plan.cordons import closed_to_copies
from waltz_operator.plan.safety_gates import Denied, may_change

WORTH = 20
"""What a rebalance by bytes moves is at least this part of a node's share: small differences come and go."""


def group_nodes(facts: Facts, group: str) -> tuple[str, ...]:
    """The nodes of a group, in the order of the specification."""
    return tuple(node.connect_string for node in facts.desired.nodes if node.group == group)


def group_names(facts: Facts) -> tuple[str, ...]:
    """The groups, in the order of the specification."""
    return tuple(dict.fromkeys(node.group for node in facts.desired.nodes))


def copies_in(facts: Facts, group: str | None, partition: int) -> tuple[str, ...]:
    """Holders of the partition in a group, leaving nodes included."""
    return tuple(node for node in facts.holders(partition) if facts.group(node) == group)


def _groups_with(facts: Facts, partition: int) -> Counter[str | None]:
    """Number of copies in each group, leaving nodes included."""
    return Counter(facts.group(node) for node in facts.holders(partition))


class Targets:
    """The nodes of a group that may get copies, for all partitions of a pass: which one each goes to. One
    that has part of it already comes first, then those that answer, then those with the fewest partitions, in
    the order of the specification."""

    def __init__(self, facts: Facts, nodes: Sequence[str]) -> None:
        assignments = facts.tree.assignments if isinstance(facts.tree, TreeView) else {}
        self._facts = facts
        self._order = {node: at for at, node in enumerate(nodes)}
        self._counts = {node: len(assignments.get(node, ())) for node in nodes}
        self._silent = {node: not isinstance(facts.node(node), NodeView) for node in nodes}
        self._having: dict[int, list[str]] = {}
        for node in nodes:
            view = facts.node(node)
            for partition in view.partitions if isinstance(view, NodeView) else ():
                self._having.setdefault(partition, []).append(node)
        self._heap = [self._entry(node) for node in nodes]
        heapify(self._heap)

    def __contains__(self, node: str) -> bool:
        return node in self._order

    def __bool__(self) -> bool:
        return bool(self._order)

    def pick(self, partition: int) -> str | None:
        """The node for a copy of the partition; None when each has one, or there is none."""
        holders = self._facts.holders(partition)
        having = [self._entry(node) for node in self._having.get(partition, ()) if node not in holders]
        if having:
            return min(having)[-1]
        passed = []
        while self._heap:
            node = self._heap[0][-1]
            if self._heap[0] == self._entry(node) and node not in holders:
                break
            entry = heappop(self._heap)
            if entry == self._entry(node):
                passed.append(entry)
        found = self._heap[0][-1] if self._heap else None
        for entry in passed:
            heappush(self._heap, entry)
        return found

    def take(self, node: str) -> None:
        """A partition was promised to the node: it counts."""
        if node in self._counts:
            self._counts[node] += 1
            heappush(self._heap, self._entry(node))

    def _entry(self, node: str) -> tuple[bool, int, int, str]:
        return self._silent[node], self._counts[node], self._order[node], node


def targets(facts: Facts, groups: Iterable[str]) -> dict[str, Targets]:
    """By group."""
    closed = closed_to_copies(facts)
    return {
        group: Targets(facts, [node for node in group_nodes(facts, group) if node not in closed])
        for group in groups
    }


def seeds(facts: Facts) -> dict[str, tuple[int, ...]]:
    """What each node is to get of the partitions that were never started: a copy in every group that lacks
    one."""
    found: dict[str, list[int]] = {}
    open_nodes = targets(facts, group_names(facts))
    for partition, group in _never_placed(facts, open_nodes):
        node = open_nodes[group].pick(partition)
        if node is not None:
            open_nodes[group].take(node)
            found.setdefault(node, []).append(partition)
    return {node: tuple(given) for node, given in found.items()}


def unplaced(facts: Facts) -> dict[str, list[int]]:
    """By group, the partitions that `seeds` finds no node for."""
    full = [group for group, nodes in targets(facts, group_names(facts)).items() if not nodes]
    found: dict[str, list[int]] = {}
    for partition, group in _never_placed(facts, full):
        found.setdefault(group, []).append(partition)
    return found


def seeded(facts: Facts) -> bool:
    """Whether every partition that was never started has a copy in every group."""
    return isinstance(facts.tree, TreeView) and next(_never_placed(facts, group_names(facts)), None) is None


def _never_placed(facts: Facts, groups: Collection[str]) -> Iterator[tuple[int, str]]:
    """Partitions that were never started, each with each of these groups that has no copy of it."""
    for partition in range(facts.desired.partitions if groups else 0):
        if isinstance(facts.record(partition), NeverStarted):
            having = _groups_with(facts, partition)
            yield from ((partition, group) for group in groups if group not in having)


def wanted(facts: Facts) -> Iterator[Move]:
    """The replica changes that the specification asks for, in the order in which they are tried.

    First missing copies are added, then partitions leave nodes that are no longer in the specification, to
    another node of their group, and groups that are not in the specification are emptied. A copy that still
    serves is given up only when every group of the specification has one; one that does not may be given up
    before, since a dead replica can keep the others from being changed.
    """
    if not isinstance(facts.tree, TreeView):
        return
    started = [p for p in range(facts.desired.partitions) if not isinstance(facts.record(p), NeverStarted)]
    open_nodes = targets(facts, group_names(facts))
    having = {partition: _groups_with(facts, partition) for partition in started}
    for group, nodes in open_nodes.items():
        for partition in started:
            if group not in having[partition]:
                yield Move(MoveKind.ADD, partition, None, nodes.pick(partition))
    for node in _leaving(facts):
        for partition in sorted({*facts.tree.assignments.get(node, ()), *_surplus(facts, node)}):
            yield from _leave(facts, node, partition, open_nodes)


def _leaving(facts: Facts) -> list[str]:
    registered = facts.tree.groups if isinstance(facts.tree, TreeView) else {}
    known = {node.connect_string for node in facts.leaving}
    return sorted(node for node in known if node in registered or not isinstance(facts.node(node), Unknown))


def _surplus(facts: Facts, node: str) -> tuple[int, ...]:
    view = facts.node(node)
    return () if isinstance(view, Unknown) else tuple(view.partitions)


def _leave(facts: Facts, node: str, partition: int, open_nodes: Mapping[str, Targets]) -> Iterator[Move]:
    drop = Move(MoveKind.DROP, partition, node, None)
    if node not in facts.holders(partition):
        yield drop
        return
    group, having = facts.group(node), _groups_with(facts, partition)
    nodes = open_nodes.get(group or "")
    if nodes is not None and having[group] < 2:
        yield Move(MoveKind.MOVE, partition, node, nodes.pick(partition))
    dead = bool(facts.not_current(partition, node))
    complete = all(having[one] for one in open_nodes)
    other = nodes is None or having[group] > 1
    if dead or (complete and other):
        yield drop


def still_wanted(facts: Facts, move: Move) -> bool:
    """Whether a change that was begun for the specification is still one of those it asks for."""
    if move.kind is MoveKind.DROP:
        return move.source is not None and not facts.staying(move.source)
    target = move.target
    if target is None or not facts.staying(target):
        return False
    others = [
        n for n in copies_in(facts, facts.group(target), move.partition) if n not in (target, move.source)
    ]
    if others and target not in facts.holders(move.partition):
        return False
    if move.kind is MoveKind.ADD:
        return True
    return move.source is not None and (
        not facts.staying(move.source) or target in facts.holders(move.partition)
    )


# ------------------------------------------------------------------------------------------------- migrations


def task_moves(facts: Facts, task: Task) -> Iterator[Move]:
    """The replica changes that a migration asks for, as the cluster is now."""
    if not isinstance(facts.tree, TreeView):
        return
    kind = move_kind(task.kind)
    held = facts.tree.assignments.get(task.source, ())
    if task.kind is TaskKind.REPLACE:
        if not facts.staying(task.source):
            return  # a node that leaves is emptied, not filled
        lost = [p for p in held if facts.data_lost(p, task.source)]
        for partition in sorted(lost):
            yield Move(kind, partition, task.source, task.source)
        return
    if task.kind is TaskKind.REBALANCE:
        yield from _rebalance(facts, task)
        return
    chosen = [p for p in held if task.partitions is None or p in task.partitions]
    group = facts.group(task.source) or ""
    nodes = targets(facts, (group,))[group]
    for partition in sorted(chosen):
        target: str | None = task.target
        if task.kind is TaskKind.DRAIN:
            second = _second_copy(facts, partition, task.source, nodes)
            target = second or nodes.pick(partition)
        if target is not None:
            nodes.take(target)
        yield Move(kind, partition, task.source, target)


def _second_copy(facts: Facts, partition: int, node: str, nodes: Targets) -> str | None:
    """Another one of these nodes of its group that has a copy already: what a migration that failed has
    left."""
    found = copies_in(facts, facts.group(node), partition)
    return next((one for one in found if one != node and one in nodes), None)


def _rebalance(facts: Facts, task: Task) -> Iterator[Move]:
    """From the fullest to the emptiest node of the group, the heaviest partition first that makes them more
    alike; what is under way counts as done."""
    weights = weights_of(facts, task)
    if not isinstance(facts.tree, TreeView) or weights is None:
        return
    closed = closed_to_copies(facts)
    held = {
        node: set(facts.tree.assignments.get(node, ()))
        for node in group_nodes(facts, task.group)
        if node not in closed
    }
    moved: set[int] = set()
    for _, partition, source, target, _ in (record.move for record in task.under_way):
        moved.add(partition)
        if source in held:
            held[source].discard(partition)
        if target in held:
            held[target].add(partition)
    if task.by_bytes:  # sizes change meanwhile: each partition moves once
        moved.update(record.move.partition for record in task.records if record.state is MoveState.DONE)
    load = {node: sum(weights[p] for p in there) for node, there in held.items()}
    least = max(1, sum(load.values()) // (len(load) * WORTH) if task.by_bytes and load else 1)
    while held:
        fullest = max(held, key=lambda node: (load[node], node))
        emptiest = min(held, key=lambda node: (load[node], node))
        most = (load[fullest] - load[emptiest]) // 2
        free = [p for p in held[fullest] - held[emptiest] - moved if least <= weights[p] <= most]
        if not free:
            return
        partition = max(free, key=lambda p: (weights[p], p))
        held[fullest].remove(partition)
        held[emptiest].add(partition)
        load[fullest] -= weights[partition]
        load[emptiest] += weights[partition]
        moved.add(partition)
        yield Move(MoveKind.MOVE, partition, fullest, emptiest)


def weights_of(facts: Facts, task: Task) -> Mapping[int, int] | None:
    """What each partition of a rebalanced group weighs: 1, or the bytes of its largest copy there. None while
    a node of the group does not say how large one is."""
    assignments = facts.tree.assignments if isinstance(facts.tree, TreeView) else {}
    found: dict[int, int] = {}
    for node in group_nodes(facts, task.group):
        view = facts.node(node)
        for partition in assignments.get(node, ()):
            copy = view.partitions.get(partition) if isinstance(view, NodeView) else None
            size = 1 if not task.by_bytes else None if copy is None else copy.size_bytes
            if size is None:
                return None
            found[partition] = max(size, found.get(partition, 0))
    return found


def unknown_node(facts: Facts, task: Task) -> str | None:
    """What a migration names and nobody knows; None when there is no such thing."""
    if task.kind is TaskKind.REBALANCE:
        known = any(node.group == task.group for node in facts.desired.nodes)
        return None if known else f"there is no group {task.group}"
    nodes = [task.source, *([task.target] if task.kind is TaskKind.MOVE else [])]
    missing = next((node for node in nodes if facts.identity(node) is None), None)
    if missing is not None:
        return f"there is no storage node {missing}"
    if task.kind is TaskKind.MOVE and facts.group(task.source) != facts.group(task.target):
        return "both nodes must be of the same group"
    return None


def able_first(facts: Facts, moves: Sequence[Move], *, allow_pause: bool) -> list[Move]:
    """Those whose copies prove the change first: what holds up many others must not hide them."""

    def denied(move: Move) -> bool:
        new = {*facts.holders(move.partition), *([move.target] if move.target else [])}
        return isinstance(may_change(facts, "", move.partition, new, allow_pause=allow_pause), Denied)

    return sorted(moves, key=denied)
