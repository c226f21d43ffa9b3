"""Visiting states: every write, crash, fault and old answer may come next. The order is drawn from a seeded
source, so runs repeat.

A state is the world and the writes that the pass under way still has to make. After each of them the pass may
go on, the operator may crash (the rest is dropped), or anything of `nature` may happen in between.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

from waltz_operator.model.desired import Memory

from . import nature
from .hands import Refused, Remember, RememberTask, Write, carry_out
from .invariants import judge
from .operator_turn import cluster_pass, old_cluster_pass, old_task_pass, task_pass
from .scenario import Scenario, requests
from .world import CLEAR, Sight, World


class State(NamedTuple):
    """`seen`: the world as it was at the last pass, for an operator that reads old answers; no part of the
    identity. `spec`: what the pending writes were planned for."""

    world: World
    pending: tuple[Write, ...]
    seen: World
    spec: int

    @property
    def identity(self) -> tuple[World, tuple[object, ...], int]:
        return self.world, tuple(_key(action) for action in self.pending), self.spec


def _key(action: Write) -> object:
    if isinstance(action, Remember | RememberTask):
        return action
    return (
        type(action).__name__,
        action.line,
        getattr(action, "expect_version", None),
        getattr(action, "uid", None),
    )


def _forgetful(writes: tuple[Write, ...]) -> tuple[Write, ...]:
    """Times would multiply the states."""
    return tuple(
        Remember(_timeless(one.before), one.spec, _timeless(one.after)) if isinstance(one, Remember) else one
        for one in writes
    )


def _timeless(memory: Memory) -> Memory:
    move = memory.operation
    return memory if move is None else replace(memory, operation=move._replace(started_at=0.0))


def passes(world: World, seen: World, scenario: Scenario) -> Iterator[tuple[int, tuple[Write, ...]]]:
    """What an operator may set out to do, and for which specification: with everything seen, something not
    seen, or an old look."""
    universe = scenario.universe
    sights = [CLEAR, Sight(tree=False), Sight(kube=False), Sight(partition=0)]
    sights += [Sight(node=node) for node, pod in enumerate(world.pods) if pod is not None]
    for sight in sights:
        yield world.spec, _forgetful(cluster_pass(world, universe, sight))
        for task in world.tasks:
            yield world.spec, _forgetful(task_pass(world, universe, task, sight))
    if seen != world:
        yield seen.spec, _forgetful(old_cluster_pass(world, seen, universe))
        for task in seen.tasks:
            yield seen.spec, _forgetful(old_task_pass(world, seen, universe, task))


def successors(state: State, scenario: Scenario) -> Iterator[State]:
    """All states that may be next; Violation or RecordLost when one must not be."""
    world, pending, seen, spec = state
    universe = scenario.universe
    if pending:
        try:
            after = carry_out(world, universe, pending[0], spec)
        except Refused:
            pass
        else:
            judge(world, after, universe, pending[0])
            yield _state(after, pending[1:], seen, spec)
        yield _state(world, (), seen, spec)  # refused, or a crash before the write
    else:
        for planned_for, writes in passes(world, seen, scenario):
            if writes:
                yield State(world, writes, world, planned_for)
    for after in nature.peaceful(world, universe):
        yield _state(after, pending, seen, spec)
    for after in nature.accidents(world, universe):
        yield _state(after, pending, seen, spec)
    for after in requests(world, scenario):
        yield _state(after, pending, seen, spec)


def _state(world: World, pending: tuple[Write, ...], seen: World, spec: int) -> State:
    """Between two passes nothing of the last one is kept."""
    return State(world, pending, seen, spec) if pending else State(world, (), seen, world.spec)


class Found(NamedTuple):
    """What an exploration found: distinct states, and worlds to let come to rest: each accident of each world
    it began with, and a sample."""

    states: int
    sample: tuple[World, ...]


def explore(
    scenario: Scenario, starts: Sequence[World], limit: int, *, seed: int = 0, sample_every: int = 0
) -> Found:
    """Visit up to `limit` distinct states from these on, depth and breadth mixed."""
    source = random.Random(seed)
    first = {State(start, (), start, start.spec).identity: start for start in starts}
    known = set(first)
    frontier = [State(start, (), start, start.spec) for start in first.values()]
    sample = [after for start in starts for after in nature.accidents(start, scenario.universe)]
    while frontier and len(known) < limit:
        index = -1 if source.random() < 0.7 else source.randrange(len(frontier))
        frontier[index], frontier[-1] = frontier[-1], frontier[index]
        state = frontier.pop()
        nexts = list(successors(state, scenario))
        source.shuffle(nexts)  # else what is named last, the accidents, would always come first
        for following in nexts:
            identity = following.identity
            if identity in known:
                continue
            known.add(identity)
            frontier.append(following)
            if sample_every and len(known) % sample_every == 0:
                sample.append(following.world)
            if len(known) >= limit:
                break
    return Found(len(known), tuple(sample))
