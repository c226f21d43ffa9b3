"""What must hold of every write of the operator, judged on the world and not by the planner's own words."""

from __future__ import annotations

from waltz_operator.api.migration import MigrationPhase
from waltz_operator.model import actions as do
from waltz_operator.model.task import TaskKind

from .hands import Remember, RememberTask, Write
from .nature import can_serve, reachable, resolve
from .servers import LIMITS, SERVER_IDS
from .world import DELETING, KEY, READY, STUCK, Replica, Universe, World, number, up


class Violation(AssertionError):
    """A write that must not be."""


def _must(holds: bool, text: str) -> None:
    if not holds:
        raise Violation(text)


def judge(before: World, after: World, universe: Universe, action: Write) -> None:
    """Violation when the write broke a promise."""
    _quorum(before, after, action)
    match action:
        case do.DeletePod():
            _one_down(before, after, action)
            _storage_in_turn(before, universe, action)
        case do.RemoveOnNode():
            _last_copy(before, action.partition, number(action.node), action)
        case do.DeletePVC():
            _volume(before, universe, action)
        case do.AssignOnNode():
            _not_a_lost_disk(before, action)
        case do.AssignInZooKeeper():
            _verified(before, action)
        case do.MovePartitions():
            _moved_in_peace(before, universe, action)
            _moved_for_the_better(before, after, universe, action)
        case do.UnregisterNode():
            node = number(action.node)
            _must(all(not isinstance(row[node], Replica) for row in before.data), f"not empty: {action.line}")
        case do.CreateTree():
            _must(before.memory.cluster_key is None, "a lost tree was seeded again")
            _must(not any(before.claims), "a tree was made over volumes that exist")
        case do.DeleteTree():
            spec = universe.spec(before)
            _must(spec.deleting and spec.reclaim_delete, "the tree was deleted without being asked for")
            _must(not any(before.pods), "the tree was deleted under running nodes")
        case do.DeleteObject():
            if action.key.kind == "StatefulSet":
                _set(before, universe, action)
        case Remember():
            _must(
                before.memory.cluster_key in (None, after.memory.cluster_key)
                and after.memory.cluster_key in (None, KEY),
                "the recorded key changed",
            )
        case _:
            pass


def _quorum(before: World, after: World, action: Write) -> None:
    """Never below quorum by our hand."""
    if isinstance(
        action,
        do.DeletePod | do.AssignInZooKeeper | do.UnassignInZooKeeper | do.RemoveOnNode | do.SetAvailability,
    ):
        for partition in range(len(before.assigned)):
            _must(
                before.meta[partition] is None
                or not can_serve(before, partition)
                or can_serve(after, partition),
                f"partition {partition} lost its quorum by: {action.line}",
            )


def _one_down(before: World, after: World, action: do.DeletePod) -> None:
    if up(before, int(action.name.removesuffix("-0")[1:])):
        _must(len(after.downed) <= 1, f"a second storage node was taken down: {action.line}")


def _storage_in_turn(before: World, universe: Universe, action: do.DeletePod) -> None:
    """A pod that runs is restarted in the window, and behind the servers on the way back."""
    pod, spec = before.pods[int(action.name.removesuffix("-0")[1:])], universe.spec(before)
    if pod is None or pod.phase in (STUCK, DELETING) or spec.deleting:
        return
    _must(not spec.closed, f"outside the window: {action.line}")
    ahead = before.rolling or before.servers not in (None, spec.template)
    _must(not (spec.down and ahead), f"a storage node went back before the servers: {action.line}")


def servers_in_turn(before: World, after: World, universe: Universe, action: Write) -> None:
    """Of a pass in which nothing moved: servers are restarted in the window, and behind the storage nodes
    when these are well and can follow. A write that was planned before a person's change, or before a node
    came back, may come too early; that harms nobody."""
    if not isinstance(action, do.ApplyObject) or before.servers in (None, after.servers):
        return
    spec = universe.spec(before)
    _must(not spec.closed, f"servers outside the window: {action.line}")
    pods = [before.pods[node] for node in spec.nodes]
    if spec.down or spec.refused or before.rolling or any(pod is None or pod.phase != READY for pod in pods):
        return
    well = all(
        meta is not None
        and {one.node for one in meta.replicas if one.closing is None} == held == reachable(before, partition)
        for partition, (meta, held) in enumerate(zip(before.meta, before.assigned, strict=True))
    )
    behind = any(pod is not None and pod.template != spec.template for pod in pods)
    _must(not (well and behind), f"servers before the storage nodes: {action.line}")


def _moved_in_peace(before: World, universe: Universe, action: do.MovePartitions) -> None:
    """Partitions move by load only while nothing else does and all is well."""
    spec = universe.spec(before)
    _must(spec.balance, f"nobody asked for it: {action.line}")
    _must(before.memory.operation is None, f"while a copy changes its node: {action.line}")
    busy = any(not task.over and task.approved for task in before.tasks)
    _must(not busy, f"during a migration: {action.line}")
    pods = [before.pods[node] for node in spec.nodes]
    ready = all(pod is not None and pod.phase == READY for pod in pods)
    _must(ready and not before.rolling, f"while pods restart: {action.line}")
    for partition, meta in enumerate(before.meta):
        _must(
            meta is not None
            and {one.node for one in meta.replicas if one.closing is None} == before.assigned[partition]
            and can_serve(before, partition),
            f"while partition {partition} is not whole: {action.line}",
        )


def _moved_for_the_better(before: World, after: World, universe: Universe, action: do.MovePartitions) -> None:
    was, now = before.shares, after.shares
    if was is None or now is None:
        raise Violation("there is nothing to share")
    _must(was.measured, f"before the window was over: {action.line}")
    again = was.warm & {move.partition for move in action.moves}
    _must(not again, f"partition {sorted(again)} moves again within the cool-down: {action.line}")
    _must(now.window <= LIMITS.moves, f"more moves than a window may have: {action.line}")
    counts = sorted(now.owners.count(server) for server in SERVER_IDS)
    _must(counts[-1] - counts[0] <= 1, f"more than a fair share: {now.owners}")
    lower = any(  # the load may have changed since it was decided
        busiest(now.owners, loads) <= busiest(was.owners, loads) * (1 - LIMITS.improvement) + 1e-9
        for loads in universe.loads
    )
    _must(lower, f"the busiest server gains nothing: {action.line}")


def busiest(owners: tuple[int, ...], loads: tuple[float, ...]) -> float:
    """The load of the busiest server."""
    return max(
        sum(load for load, owner in zip(loads, owners, strict=True) if owner == server)
        for server in SERVER_IDS
    )


def ended_in_truth(world: World, action: Write) -> None:
    """Of a pass in which nothing moved: a drain that is said to be completed has left nothing on the node."""
    if not isinstance(action, RememberTask) or action.after.kind is not TaskKind.DRAIN:
        return
    if action.after.phase is MigrationPhase.COMPLETED:
        node = number(action.after.source)
        _must(all(node not in held for held in world.assigned), f"completed, and n{node} has partitions")


def _last_copy(before: World, partition: int, node: int, action: do.Action) -> None:
    """A copy is only deleted when nothing counts on it."""
    meta = before.meta[partition]
    _must(node not in before.assigned[partition], f"still assigned: {action.line}")
    if meta is None:
        return
    _must(all(one.node != node for one in meta.replicas), f"still counted on: {action.line}")
    kept = resolve(before, partition, reachable(before, partition) - {node})
    _must(
        kept is not None and kept >= before.committed[partition],
        f"what is left does not hold all that was committed: {action.line}",
    )


def _volume(before: World, universe: Universe, action: do.DeletePVC) -> None:
    node = int(action.name.removeprefix("data-").removesuffix("-0")[1:])
    spec = universe.spec(before)
    _must(spec.reclaim_delete, f"volumes are to be kept: {action.line}")
    if spec.deleting:
        _must(not before.tree, f"the tree is still there: {action.line}")
        return
    _must(node not in spec.nodes, f"the node is wanted: {action.line}")
    _must(node not in before.registered, f"the node is registered: {action.line}")
    for partition in range(len(before.assigned)):
        _last_copy(before, partition, node, action)


def _not_a_lost_disk(before: World, action: do.AssignOnNode) -> None:
    node = number(action.node)
    for partition in action.partitions:
        meta = before.meta[partition]
        if meta is None or isinstance(before.data[partition][node], Replica):
            continue
        listed = next((one for one in meta.replicas if one.node == node), None)
        _must(listed is None or listed.session < 0, f"an empty disk became a member again: {action.line}")


def _verified(before: World, action: do.AssignInZooKeeper) -> None:
    """A started partition is assigned only where a copy stands that its copy job has compared; and one change
    at a time."""
    started = [
        (number(name), partition)
        for name, partitions in action.additions.items()
        for partition in partitions
        if before.meta[partition] is not None
    ]
    _must(len(started) <= 1, f"more than one replica is moved: {action.line}")
    for node, partition in started:
        replica = before.data[partition][node]
        _must(isinstance(replica, Replica) and replica.available, f"there is no copy yet: {action.line}")
        good = [job for job in before.jobs if (job.partition, job.target) == (partition, node)]
        nothing = before.committed[partition] == 0
        if isinstance(replica, Replica):
            _must(replica.compared or nothing, f"the copy was never verified: {action.line}")
            marks = [job.verified for job in good if job.state == "succeeded"]
            _must(replica.length >= max(marks, default=0), f"what was verified is gone: {action.line}")


def _set(before: World, universe: Universe, action: do.DeleteObject) -> None:
    node, spec = int(action.key.name[1:]), universe.spec(before)
    if spec.deleting:
        return
    _must(node not in spec.nodes, f"the node is wanted: {action.line}")
    _must(node not in before.registered, f"the node is registered: {action.line}")
    pod = before.pods[node]
    if pod is not None and pod.phase == READY:
        _must(all(node not in reachable(before, p) for p in range(len(before.assigned))), action.line)
