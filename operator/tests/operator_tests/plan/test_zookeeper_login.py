"""A managed ZooKeeper is closed to others, and opened again: explored, with pods that die at any moment,
looks that are old, wishes that change, and an operator that dies after any write.

The judge takes what is there: nobody without credentials runs beside a closed znode, the mark CLOSED leaves
no znode open, and the mark OPEN none closed.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import NamedTuple

import pytest

from operator_tests.plan.cluster import desired, facts, identity, kube
from waltz_operator.api.parts import ZooKeeperAuthentication as Wish
from waltz_operator.api.topology import NodeIdentity
from waltz_operator.model.desired import Memory
from waltz_operator.model.login import LoginState
from waltz_operator.model.reasons import Reason
from waltz_operator.model.snapshot import Closure, DeploymentView, KubeView, PodView, StatefulSetView
from waltz_operator.plan.builder import Decision
from waltz_operator.plan.zookeeper_login import mark_zookeeper
from waltz_operator.resources.login import Level

SECRET = "digest"
EXTERNAL = identity(0)._replace(name="old", connect_string="old-machine:55280", external=True)


class Workload(NamedTuple):
    """Of one kind of role: the template as it was written, as its controller has seen it, and the levels of
    its pods."""

    template: Level
    seen: Level
    pods: frozenset[Level]


class World(NamedTuple):
    """`open_znodes`, `closed_znodes`: whether there is any. `login`: of the last status. `luck`: wishes and
    mishaps left."""

    wish: Wish
    mark: Closure
    open_znodes: bool
    closed_znodes: bool
    login: Level
    credentials: str
    storage: Workload
    servers: Workload
    luck: int


def running(level: Level) -> Workload:
    return Workload(level, level, frozenset({level}))


BEFORE = World(
    Wish.NONE, Closure.OPEN, True, False, Level.NONE, "", running(Level.NONE), running(Level.NONE), 3
)


def state(world: World) -> LoginState:
    """What an observer sees. The mark is asked for with credentials only."""
    pods = {
        f"{kind}-{level}": PodView("u", kind, "t", True, login=level)
        for kind, work in (("storage", world.storage), ("server", world.servers))
        for level in work.pods
    }
    one, other = world.storage, world.servers
    settled = one.seen == one.template
    sets = {"s": StatefulSetView("u", "1", "0", "t", 1, 1, settled, login=one.template)}
    calm = other.seen == other.template and other.pods == {other.template}
    kube = KubeView({}, sets, DeploymentView("d", "t", 1, 1, calm, login=other.template), pods)
    wanted = replace(desired(), own_login=True, authentication=world.wish)
    memory = Memory(None, None, world.wish, world.credentials, world.login)
    return LoginState(wanted, memory, kube, SECRET, world.mark, external=False)


Decide = Callable[[LoginState], tuple[Level, Closure | None]]


def decided(found: LoginState) -> tuple[Level, Closure | None]:
    return found.level, found.mark


def operator(world: World, seen: World, decide: Decide) -> Iterator[World]:
    """Each write of a pass that was planned on a look at `seen`, as if the operator died after it."""
    level, mark = decide(state(seen))
    if mark is not None:
        if mark is not Closure.CHANGING:
            closed = mark is Closure.CLOSED  # first it dies half-way
            yield world._replace(closed_znodes=True) if closed else world._replace(open_znodes=True)
            world = world._replace(open_znodes=not closed, closed_znodes=closed)
        world = world._replace(mark=mark)
        yield world
    for kind in ("storage", "servers"):
        before: Workload = getattr(world, kind)
        if before.template is not level:
            world = put(world, kind, before._replace(template=level))
            yield world
    old = seen.storage.pods - {seen.storage.template}
    if old and world.storage.seen is world.storage.template:
        world = world._replace(storage=world.storage._replace(pods=world.storage.pods - old))
        yield world
    used = "" if level is Level.NONE else SECRET
    yield world._replace(login=level, credentials=used)


def put(world: World, kind: str, work: Workload) -> World:
    return world._replace(storage=work) if kind == "storage" else world._replace(servers=work)


def creates(world: World, level: Level) -> World:
    if level is Level.OWN:
        return world._replace(closed_znodes=True)
    return world._replace(open_znodes=True)


def nature(world: World) -> Iterator[World]:
    """Controllers see templates and make pods of them, roles and the operator create znodes; for luck: a pod
    dies, a person wants something else, ZooKeeper loses its data and an open copy is put back."""
    for kind in ("storage", "servers"):
        work: Workload = getattr(world, kind)
        if work.seen is not work.template:
            yield put(world, kind, work._replace(seen=work.template))
        if not work.pods:
            yield put(world, kind, work._replace(pods=frozenset({work.seen})))
        elif kind == "servers" and work.pods != {work.seen}:
            yield world._replace(servers=work._replace(pods=work.pods | {work.seen}))
            if work.seen in work.pods:
                yield world._replace(servers=work._replace(pods=frozenset({work.seen})))
        for level in work.pods:
            yield creates(world, level)
    yield creates(world, world.login)
    if not world.luck:
        return
    less = world._replace(luck=world.luck - 1)
    for kind in ("storage", "servers"):
        work = getattr(world, kind)
        for level in work.pods:
            yield put(less, kind, work._replace(pods=work.pods - {level}))
    for wish in Wish:
        yield less._replace(wish=wish)
    if world.storage == world.servers == running(world.login):
        # nothing is changed while the tree is lost, so whoever imports it finds everybody alike
        yield less._replace(mark=Closure.OPEN, open_znodes=True, closed_znodes=False)


def judge(world: World) -> None:
    levels = world.storage.pods | world.servers.pods
    if world.closed_znodes:
        assert Level.NONE not in levels, f"a role is locked out: {world}"
    if world.mark is Closure.CLOSED:
        assert not world.open_znodes, f"something is open that is said to be closed: {world}"
    known = {*levels, world.login, world.storage.template, world.servers.template}
    if world.mark is Closure.OPEN and Level.OWN not in known:
        assert not world.closed_znodes, f"something is closed that is said to be open: {world}"


@functools.cache
def explore(decide: Decide = decided) -> frozenset[World]:
    """Every state that can be reached; each is judged. A pass may be planned on the look of a moment
    before."""
    found, todo = {BEFORE}, [(BEFORE, BEFORE)]
    while todo:
        world, before = todo.pop()
        after = {*nature(world), *operator(world, world, decide)}
        if before is not world and before.wish is world.wish and before.login is world.login:
            after |= set(operator(world, before, decide))
        for one in after - found:
            judge(one)
            found.add(one)
            todo.append((one, world))
    return frozenset(found)


def test_nobody_is_locked_out_and_nothing_is_left_open() -> None:
    found = explore()
    assert len(found) > 1000
    assert {world.mark for world in found} == set(Closure)
    assert any(world.mark is Closure.CLOSED and world.wish is Wish.DIGEST for world in found)
    assert any(world.login is Level.NONE and not world.luck for world in found)


def closes_before_all_have_credentials(found: LoginState) -> tuple[Level, Closure | None]:
    level, mark = decided(found)
    if found.wanted is Wish.DIGEST and found.closure is Closure.CHANGING:
        return Level.OWN, Closure.CLOSED
    return level, mark


def gives_up_credentials_at_once(found: LoginState) -> tuple[Level, Closure | None]:
    level, mark = decided(found)
    return (Level.NONE, mark) if found.wanted is Wish.NONE else (level, mark)


def marks_after_the_level(found: LoginState) -> tuple[Level, Closure | None]:
    """The way back begins with the roles, not with the mark."""
    level, mark = decided(found)
    if found.wanted is not Wish.DIGEST and found.closure is Closure.CLOSED:
        return Level.SHARED, None
    return level, mark


def forgets_itself(found: LoginState) -> tuple[Level, Closure | None]:
    """What the operator itself creates is not as the last status says."""
    return decided(replace(found, memory=replace(found.memory, login=found.level)))


@pytest.mark.parametrize(
    "planted",
    [
        closes_before_all_have_credentials,
        gives_up_credentials_at_once,
        marks_after_the_level,
        forgets_itself,
    ],
)
def test_a_planted_bug_is_found(planted: Decide) -> None:
    with pytest.raises(AssertionError, match=r"locked out|is open that|is closed that"):
        explore(planted)


def settled(world: World) -> World:
    """Nothing fails and nobody changes his mind: where it ends."""
    for _ in range(100):
        before = world
        world = [*operator(world, world, decided)][-1]
        for one in ("storage", "servers"):
            work: Workload = getattr(world, one)
            world = put(world, one, running(work.template))
        if world == before:
            return world
    raise AssertionError(f"no end: {world}")


@pytest.mark.parametrize("wish", list(Wish))
def test_every_wish_is_reached_from_every_state(wish: Wish) -> None:
    end = {
        Wish.NONE: (Closure.OPEN, Level.NONE),
        Wish.OPTIONAL: (Closure.OPEN, Level.SHARED),
        Wish.DIGEST: (Closure.CLOSED, Level.OWN),
    }[wish]
    for world in explore():
        there = settled(world._replace(wish=wish))
        assert (there.mark, there.login) == end, world


@pytest.mark.parametrize(("level", "closure"), [(Level.SHARED, Closure.OPEN), (Level.OWN, Closure.CHANGING)])
@pytest.mark.parametrize(
    ("there", "left", "closes"), [((), (), True), ((EXTERNAL,), (), False), ((), (EXTERNAL,), False)]
)
def test_it_stays_open_while_an_external_node_holds_partitions(
    there: tuple[NodeIdentity, ...],
    left: tuple[NodeIdentity, ...],
    closes: bool,
    level: Level,
    closure: Closure,
) -> None:
    """Nobody knows whether it has the credentials. Closed out, it could not be drained when it has left the
    specification."""
    view = kube()
    deployment = None if view.deployment is None else replace(view.deployment, login=level)
    view = replace(
        view,
        pods={name: replace(one, login=level) for name, one in view.pods.items()},
        statefulsets={name: replace(one, login=level) for name, one in view.statefulsets.items()},
        deployment=deployment,
    )
    found = facts(view)
    nodes = (*found.desired.nodes, *there)
    found = replace(
        found,
        desired=replace(found.desired, own_login=True, authentication=Wish.DIGEST, nodes=nodes),
        memory=Memory(found.memory.cluster_key, None, Wish.DIGEST, SECRET, level),
        leaving=left,
        credentials=SECRET,
        closure=closure,
    )
    decision = Decision(found.memory)
    mark_zookeeper(found, decision)
    assert bool(decision.actions) is closes
    assert [one.reason for one in decision.blocked] == ([] if closes else [Reason.EXTERNAL_NODE])
