"""Faults stop: does the cluster become what was asked for, and does the operator then leave it alone?"""

from __future__ import annotations

from dataclasses import replace

from waltz_operator.api.migration import MigrationPhase
from waltz_operator.model.task import Task, TaskKind

from . import nature
from .hands import Refused, carry_out
from .invariants import Violation, busiest, ended_in_truth, judge, servers_in_turn
from .operator_turn import cluster_pass, task_pass
from .scenario import Scenario, empty
from .servers import LIMITS
from .world import READY, UNFIT, Luck, Replica, Universe, World, connect, number, put, up

MAX_ROUNDS = 400


class NotReached(AssertionError):
    """The fixed point is not the desired cluster, or there is none."""


def one_pass(world: World, universe: Universe) -> World:
    """The operator looks and does all of what it finds, for the cluster and then for each migration."""
    for turn in (None, *(task.name for task in world.tasks)):
        tasks = [task for task in world.tasks if task.name == turn]
        writes = task_pass(world, universe, tasks[0]) if tasks else cluster_pass(world, universe)
        for action in writes:
            try:
                after = carry_out(world, universe, action, world.spec)
            except Refused:
                break
            judge(world, after, universe, action)
            servers_in_turn(world, after, universe, action)
            ended_in_truth(world, action)
            world = after
    return world


def settle(
    world: World, universe: Universe, *, lazy: bool = False, trail: list[World] | None = None
) -> World:
    """Run to the fixed point without faults; NotReached when it never rests. `lazy`: nothing else moves as
    long as the operator has something to do. `trail` gets the worlds on the way."""
    world = world._replace(luck=Luck())
    for _ in range(MAX_ROUNDS):
        if trail is not None:
            trail.append(world)
        after = one_pass(world, universe)
        if not lazy or after == world:
            after = next(nature.progress(after, universe), after)
        if after == world:
            return world
        world = after
    raise NotReached(f"no rest after {MAX_ROUNDS} rounds: {cluster_pass(world, universe)} {world}")


def lost_nodes(world: World) -> list[int]:
    """Nodes whose disk is lost although a session counts on it."""
    found = set()
    for partition, meta in enumerate(world.meta):
        for listed in meta.replicas if meta is not None else ():
            replica = world.data[partition][listed.node]
            if listed.session >= 0 and (not isinstance(replica, Replica) or replica.session < listed.session):
                found.add(listed.node)
    return sorted(found)


def beyond_repair(world: World) -> bool:
    """A partition whose records more disks were lost of than its replicas bear: only a person may go on."""
    calm = world._replace(
        pods=tuple(pod._replace(phase=READY) if pod is not None else None for pod in world.pods)
    )
    return any(
        meta is not None and not nature.can_serve(calm, partition)
        for partition, meta in enumerate(world.meta)
    )


def check_reached(world: World, universe: Universe, *, lazy: bool = False) -> None:
    """Come to rest; lost disks are replaced by a person's migration, as the condition tells; then compare
    with what was asked for."""
    world = settle(world, universe, lazy=lazy)
    if universe.spec(world).deleting:
        _check_deleted(world, universe)
        return
    if not world.tree:
        _check_lost_tree(world, universe)
        return
    for repairs in range(2):
        lost = [node for node in lost_nodes(world) if up(world, node)]
        if not lost or beyond_repair(world):
            break
        repair = Task(
            name=f"repair{repairs}", uid="r", kind=TaskKind.REPLACE, created="9", source=connect(lost[0])
        )
        world = settle(world._replace(tasks=(*world.tasks, repair)), universe, lazy=lazy)
    if beyond_repair(world):
        return
    world = settle(_begun_again(world), universe, lazy=lazy)
    _check_as_asked(world, universe)


def _begun_again(world: World) -> World:
    """A person has the failed migrations begun again."""
    tasks = (
        replace(task, retry="1") if task.phase is MigrationPhase.FAILED else task for task in world.tasks
    )
    return world._replace(tasks=tuple(tasks))


def _check_lost_tree(world: World, universe: Universe) -> None:
    """Only a person may go on; the operator leaves everything as it is."""
    if world.memory.cluster_key is None and not any(world.sets) and not any(world.claims):
        raise NotReached(f"the tree was never made: {world}")
    if cluster_pass(world, universe):
        raise NotReached(f"it does not leave a lost tree alone: {cluster_pass(world, universe)}")


def _check_deleted(world: World, universe: Universe) -> None:
    if any(world.pods) or any(world.sets) or world.servers is not None or world.jobs:
        raise NotReached(f"something is left: {world}")
    kept = not universe.spec(world).reclaim_delete
    if (world.tree or any(claim is not None for claim in world.claims)) and not kept:
        raise NotReached(f"data is left: {world}")


def _check_as_asked(world: World, universe: Universe) -> None:
    spec = universe.spec(world)
    wanted = frozenset(spec.nodes)
    problems = []
    if world.registered != wanted:
        problems.append(f"registered {sorted(world.registered)}")
    if {node for node, template in enumerate(world.sets) if template is not None} != wanted:
        problems.append(f"sets {world.sets}")
    if world.memory.operation is not None or world.jobs:
        problems.append("an operation is left")
    if spec.template not in UNFIT:  # else a lost copy can't be refilled before a good template comes
        if any(not task.over and not _nowhere_to_go(task, universe, wanted) for task in world.tasks):
            problems.append(f"a migration is left: {world.tasks}")
        problems += _pods(world, universe, wanted)
        problems += _copies(world, universe, wanted)
    if spec.reclaim_delete and any(
        claim is not None and n not in wanted for n, claim in enumerate(world.claims)
    ):
        problems.append("volumes are left")
    problems += _shares(world, universe)
    if cluster_pass(world, universe):
        problems.append(f"there is still something to write: {cluster_pass(world, universe)}")
    if problems:
        raise NotReached(f"{'; '.join(problems)} in {world}")


def _shares(world: World, universe: Universe) -> list[str]:
    """No exchange of two partitions, and no move to who has fewer, would do the busiest server much good."""
    shares = world.shares
    if shares is None or not universe.spec(world).balance or any(not task.over for task in world.tasks):
        return []
    loads, owners = universe.loads[shares.load], shares.owners
    now = busiest(owners, loads)
    others = [put(owners, p, 3 - owner) for p, owner in enumerate(owners)]
    others += [put(one, q, 3 - owners[q]) for one in others for q in range(len(owners))]
    fair = [one for one in others if abs(one.count(1) - one.count(2)) <= 1]
    best = min(busiest(one, loads) for one in fair)
    if now >= LIMITS.minimum_cores and best <= now * (1 - LIMITS.improvement):
        return [f"the busiest server has {now}, and could have {best}"]
    return []


def _nowhere_to_go(task: Task, universe: Universe, wanted: frozenset[int]) -> bool:
    """Whether it is a drain that waits for a node that nobody has added."""
    if task.kind is not TaskKind.DRAIN or task.under_way:
        return False
    node = number(task.source)
    return all(universe.groups[one] != universe.groups[node] or one == node for one in wanted)


def _pods(world: World, universe: Universe, wanted: frozenset[int]) -> list[str]:
    """All run, and what may be restarted has the template that is wanted."""
    spec = universe.spec(world)
    wrong = [
        node
        for node in wanted
        if (pod := world.pods[node]) is None
        or pod.phase != READY
        or (pod.template != spec.template and not spec.closed and node not in spec.refused)
    ]
    if world.servers is None or (world.servers != spec.template and not spec.closed):
        wrong.append(-1)
    return [f"not as wanted: pods of {wrong}"] if wrong else []


def _copies(world: World, universe: Universe, wanted: frozenset[int]) -> list[str]:
    problems = []
    groups = sorted({universe.groups[node] for node in wanted})
    for partition, held in enumerate(world.assigned):
        if sorted(universe.groups[node] for node in held) != groups or not held <= wanted:
            problems.append(f"partition {partition} is on {sorted(held)}")
        meta = world.meta[partition]
        if meta is None or any(
            one.closing is not None or one.session != meta.session for one in meta.replicas
        ):
            problems.append(f"partition {partition} is not caught up: {meta}")
        surplus = [
            n for n, one in enumerate(world.data[partition]) if isinstance(one, Replica) and n not in held
        ]
        if any(node in wanted and up(world, node) for node in surplus):
            problems.append(f"partition {partition} is left on {surplus}")
    return problems


def running(universe: Universe, empty: World) -> World:
    """A cluster of the first specification that has come to rest, with a record in each partition."""
    world = settle(empty, universe)
    for partition in range(universe.partitions):
        world = nature.append(world, partition) or world
    return settle(world, universe)._replace(luck=empty.luck)


def undisturbed(scenario: Scenario) -> list[World]:
    """Worlds on the way through the scenario when nothing goes wrong, each with all the bad luck still to
    come: from these an exploration gets to the end of long changes, too."""
    universe, world = scenario.universe, empty(scenario.universe, scenario.luck)
    trail: list[World] = []
    if scenario.fresh:
        settle(world, universe, trail=trail)
    world = running(universe, world)
    trail.append(world)
    if scenario.task is not None:
        settle(world._replace(tasks=(scenario.task,)), universe, trail=trail)
    for spec, following in scenario.changes.items():
        at_rest = settle(world._replace(spec=spec), universe)
        for other in following:
            settle(at_rest._replace(spec=other), universe, lazy=True, trail=trail)
    if scenario.fresh:
        trail.insert(0, empty(universe, scenario.luck))
    return [one._replace(luck=scenario.luck) for one in trail]


__all__ = ["NotReached", "Violation", "check_reached", "running", "settle", "undisturbed"]
