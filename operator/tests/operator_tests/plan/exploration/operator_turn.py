"""One pass of the operator in the small world: what it plans from what it sees."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from functools import lru_cache

from waltz_operator.model.actions import Action, EmitEvent
from waltz_operator.model.facts import Facts
from waltz_operator.model.task import Record, Task
from waltz_operator.plan.builder import AT_ONCE
from waltz_operator.plan.cluster import decide
from waltz_operator.plan.migration import decide_task
from waltz_operator.run.recorded import MAX_RECORDS

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
    writes: list[Write] = []
    memory = world.memory
    for _ in range(1 + MAX_RECORDS):
        decision = decide(facts, objects, rejections(world, universe))
        writes += decision.actions
        moves = tuple(one._replace(message="") for one in decision.memory.server_moves)
        after = replace(decision.memory, server_moves=moves)
        if after == memory:
            break
        writes.append(Remember(memory, world.spec, after))
        if not _records_only(decision.actions, decision.requeue_seconds):
            break
        memory = after
        facts = replace(facts, memory=after)
    return tuple(writes)


def _records_only(actions: Iterable[Action], requeue_seconds: float) -> bool:
    """As `run.recorded`: what comes next waits for the record alone, and is planned on the same look."""
    return requeue_seconds <= AT_ONCE and all(isinstance(one, EmitEvent) for one in actions)


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
    writes: list[Write] = []
    for _ in range(1 + MAX_RECORDS):
        decision = decide_task(facts, task)
        writes += decision.actions
        told = _essential(decision.task)
        if told == task:
            break
        writes.append(RememberTask(task, told))
        if not _records_only(decision.actions, decision.requeue_seconds):
            break
        facts = replace(facts, tasks=tuple(told if one.name == task.name else one for one in facts.tasks))
        task = told
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
