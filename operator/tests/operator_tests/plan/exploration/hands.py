"""Carrying out one action in the small world, under its preconditions; Refused when the world has moved on.
Destructive ones are proved once more by the facts of the moment, as the applier does."""

from __future__ import annotations

from dataclasses import dataclass, replace

from waltz_operator.model import actions as do
from waltz_operator.model.desired import Memory
from waltz_operator.model.rendered import template_hash_of
from waltz_operator.model.snapshot import Unknown
from waltz_operator.model.task import Task
from waltz_operator.plan.preconditions import OF_COPIES, still_so
from waltz_operator.plan.safety_gates import Denied, may_change

from .world import DELETING, KEY, OFF, Job, Replica, Universe, World, facts_in, number, put, up, version_of

_UNSEEN = Unknown("it was not read")


class Refused(Exception):
    """The precondition of the write does not hold: the pass ends."""


@dataclass(frozen=True, slots=True)
class Remember:
    """The status of the cluster is written, under its resource version."""

    before: Memory
    spec: int
    after: Memory


@dataclass(frozen=True, slots=True)
class RememberTask:
    """The status of a migration is written, under its resource version."""

    before: Task
    after: Task


Write = do.Action | Remember | RememberTask


def _check(holds: bool) -> None:
    if not holds:
        raise Refused


def carry_out(world: World, universe: Universe, action: Write, spec: int) -> World:
    """The world after the write; `spec`: the specification that it was planned for, which destructive
    actions look at once more."""
    if not isinstance(action, Remember | RememberTask) and action.destructive:
        _check(spec == world.spec)
        facts = facts_in(world, universe)
        if isinstance(action, OF_COPIES):  # the second look shows no more than this
            facts = replace(facts, kube=_UNSEEN, servers={}, leaving=(), tasks=())
        _check(not isinstance(still_so(facts, action), Denied))
    match action:
        case Remember():
            _check(world.memory == action.before and world.spec == action.spec)
            return world._replace(memory=action.after)
        case RememberTask():
            _check(action.before in world.tasks)
            return world._replace(
                tasks=tuple(action.after if task == action.before else task for task in world.tasks)
            )
        case do.EmitEvent():
            return world
        case do.CreateTree():
            _check(not world.tree and action.cluster_key == KEY)
            return world._replace(tree=True)
        case do.DeleteTree():
            _check(world.tree and action.cluster_key == KEY and world.servers is None)
            return world._replace(
                tree=False,
                registered=frozenset(),
                assigned=tuple(frozenset() for _ in world.assigned),
                meta=tuple(None for _ in world.meta),
            )
        case do.RegisterNode():
            _check(world.tree)
            return world._replace(registered=world.registered | {number(action.node)})
        case do.UnregisterNode():
            return _unregister(world, number(action.node))
        case do.AssignInZooKeeper() | do.UnassignInZooKeeper():
            return _change(world, universe, action)
        case do.AssignOnNode() | do.SetAvailability() | do.RemoveOnNode():
            return _on_node(world, universe, action)
        case do.StartCopyJob() | do.DeleteJob():
            return _job(world, action)
        case do.CopyPartition():
            return _copy(world, action)
        case do.MovePartitions():
            return _give(world, action)
        case _:
            return _kubernetes(world, universe, action)


def _unregister(world: World, node: int) -> World:
    _check(node in world.registered and all(node not in held for held in world.assigned))
    _check(all(meta is None or all(one.node != node for one in meta.replicas) for meta in world.meta))
    return world._replace(registered=world.registered - {node})


def _change(world: World, universe: Universe, action: do.AssignInZooKeeper | do.UnassignInZooKeeper) -> World:
    """As `waltz_admin.assignments`: one transaction, version checked, after safety rule A6 with answers of
    this moment."""
    _check(world.tree and action.expect_version == version_of(world))
    assigned = world.assigned
    if isinstance(action, do.AssignInZooKeeper):
        for name, partitions in action.additions.items():
            _check(number(name) in world.registered)
            for partition in partitions:
                assigned = put(assigned, partition, assigned[partition] | {number(name)})
    else:
        left = assigned[action.partition] - {number(action.node)}
        assigned = put(assigned, action.partition, left)
    facts = facts_in(world, universe)
    for partition, held in enumerate(assigned):
        if held != world.assigned[partition]:
            answer = may_change(facts, "", partition, {f"n{node}:1" for node in held})
            _check(not isinstance(answer, Denied))
    return world._replace(assigned=assigned)


def _on_node(
    world: World, universe: Universe, action: do.AssignOnNode | do.SetAvailability | do.RemoveOnNode
) -> World:
    node = number(action.node)
    _check(up(world, node))
    data = world.data
    if isinstance(action, do.AssignOnNode):
        for partition in action.partitions:
            held = data[partition][node]
            if not isinstance(held, Replica):
                data = put(data, partition, put(data[partition], node, Replica(held != OFF, -1, 0, 0)))
    elif isinstance(action, do.SetAvailability):
        row = data[action.partition]
        held = row[node]
        now: Replica | str | None = None if action.online else OFF
        if isinstance(held, Replica):
            now = held._replace(available=action.online)
        data = put(data, action.partition, put(row, node, now))
    else:
        data = put(data, action.partition, put(data[action.partition], node, None))
    return world._replace(data=data)


def _job(world: World, action: do.StartCopyJob | do.DeleteJob) -> World:
    names = [job.name for job in world.jobs]
    if isinstance(action, do.DeleteJob):
        _check(action.name in names)
        return world._replace(jobs=tuple(job for job in world.jobs if job.name != action.name))
    _check(action.name not in names)
    job = Job(action.name, action.migration, action.partition, number(action.source), number(action.target))
    return world._replace(jobs=tuple(sorted((*world.jobs, job))))


def _copy(world: World, action: do.CopyPartition) -> World:
    """At once, and compared."""
    row, node = world.data[action.partition], number(action.target)
    source, target = row[number(action.source)], row[node]
    _check(up(world, number(action.source)) and up(world, node))
    if not isinstance(source, Replica) or not isinstance(target, Replica) or target.available:
        raise Refused
    filled = target._replace(length=source.mark, mark=source.mark, compared=True)
    return world._replace(data=put(world.data, action.partition, put(row, node, filled)))


def _give(world: World, action: do.MovePartitions) -> World:
    """As `waltz_cluster.moving`: under the version of the assignment that the moves are read with."""
    shares = world.shares
    if shares is None or not shares.served:
        raise Refused
    owners = shares.owners
    for move in action.moves:
        _check(owners[move.partition] == move.source)
        owners = put(owners, move.partition, move.target)
    moved = {move.partition for move in action.moves}
    return world._replace(
        shares=shares._replace(
            owners=owners, measured=False, warm=shares.warm | moved, window=shares.window + len(moved)
        )
    )


def _kubernetes(world: World, universe: Universe, action: Write) -> World:
    match action:
        case do.ApplyObject():
            kind, name = action.key
            if kind == "Deployment":
                found = template_hash_of(action.body)
                rolling = world.rolling or world.servers not in (None, found)
                return world._replace(servers=found, rolling=rolling)
            node = int(name.removeprefix("data-").removesuffix("-0")[1:])
            if kind == "StatefulSet":
                _check(node not in universe.spec(world).refused)
                return world._replace(sets=put(world.sets, node, str(action.body["template"])))
            _check(world.claims[node] is None)
            return world._replace(claims=put(world.claims, node, 1))
        case do.DeleteObject():
            if action.key.kind == "Deployment":
                _check(world.servers is not None)
                return world._replace(servers=None, rolling=False)
            node = int(action.key.name[1:])
            _check(world.sets[node] is not None)
            return world._replace(sets=put(world.sets, node, None))
        case do.DeletePod():
            node = int(action.name.removesuffix("-0")[1:])
            pod = world.pods[node]
            if pod is None or pod.template != action.uid:
                raise Refused
            downed = world.downed | {node} if up(world, node) else world.downed
            gone = pod._replace(phase=DELETING)
            return world._replace(pods=put(world.pods, node, gone), downed=downed)
        case do.DeletePVC():
            node = int(action.name.removeprefix("data-").removesuffix("-0")[1:])
            claim = world.claims[node]
            _check(claim is not None and str(claim) == action.uid)
            return world._replace(
                claims=put(world.claims, node, None),
                data=tuple(put(row, node, None) for row in world.data),
            )
    raise TypeError(action)


__all__ = ["Refused", "Remember", "RememberTask", "Write", "carry_out"]
