"""One pass of the operator in the small world: what it plans from what it sees."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache

from waltz_operator.model.facts import Facts
from waltz_operator.model.task import Record, Task
from waltz_operator.plan.cluster import decide
from waltz_operator.plan.migration import decide_task

from .hands import Remember, RememberTask, Write
from .world import CLEAR, Luck, Sight, Universe, World, facts_in, old_facts, rejections, rendered_objects


@lru_cache(maxsize=50_000)
def _planned(world: World, universe: Universe, sight: Sight) -> tuple[Write, ...]:
    return _cluster(world, universe, facts_in(world, universe, sight))


def cluster_pass(world: World, universe: Universe, sight: Sight = CLEAR) -> tuple[Write, ...]:
    """The writes that the planner of the cluster asks for."""
    return _planned(unseen_cut(world), universe, sight)


def old_cluster_pass(world: World, old: World, universe: Universe) -> tuple[Write, ...]:
    """The same with an old look at Kubernetes and ZooKeeper; storage nodes are always asked."""
    return _cluster(old, universe, old_facts(world, old, universe))


def _cluster(world: World, universe: Universe, facts: Facts) -> tuple[Write, ...]:
    deleting = facts.desired.deleting
    objects = () if deleting else rendered_objects(universe, universe.spec(world))
    decision = decide(facts, objects, rejections(world, universe))
    writes: list[Write] = list(decision.actions)
    moves = tuple(one._replace(message="") for one in decision.memory.server_moves)
    memory = replace(decision.memory, server_moves=moves)
    if memory != world.memory:
        writes.append(Remember(world.memory, world.spec, memory))
    return tuple(writes)


@lru_cache(maxsize=50_000)
def _task_planned(world: World, universe: Universe, task: Task, sight: Sight) -> tuple[Write, ...]:
    return _task(facts_in(world, universe, sight), task)


def task_pass(world: World, universe: Universe, task: Task, sight: Sight = CLEAR) -> tuple[Write, ...]:
    """The writes that the planner of a migration asks for."""
    return _task_planned(unseen_cut(world), universe, task, sight)


def old_task_pass(world: World, old: World, universe: Universe, task: Task) -> tuple[Write, ...]:
    """The same with an old look at Kubernetes and ZooKeeper; storage nodes are always asked."""
    return _task(old_facts(world, old, universe), task)


def _task(facts: Facts, task: Task) -> tuple[Write, ...]:
    decision = decide_task(facts, task)
    writes: list[Write] = list(decision.actions)
    told = _essential(decision.task)
    if told != task:
        writes.append(RememberTask(task, told))
    return tuple(writes)


def unseen_cut(world: World) -> World:
    """Without what no observer sees."""
    shares = world.shares
    if shares is not None:
        shares = shares._replace(warm=frozenset(), window=0)
    return world._replace(luck=Luck(), committed=(), downed=frozenset(), shares=shares)


def _essential(task: Task) -> Task:
    """Without what is only told to people: it would multiply the states."""
    return replace(
        task, records=tuple(Record(one.move._replace(started_at=0.0), one.state) for one in task.records)
    )
