"""What happens on its own: pods come and go, servers start store sessions and append, copy jobs run, nodes
crash, disks are lost."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from .servers import LIMITS, Shares
from .world import (
    BAD,
    DELETING,
    NOW,
    READY,
    STARTING,
    STUCK,
    Job,
    Listed,
    Meta,
    Pod,
    Replica,
    Universe,
    World,
    put,
    up,
)

MAX_RECORDS = 2


class RecordLost(AssertionError):
    """A committed record is gone."""


def _replica(world: World, partition: int, node: int) -> Replica | None:
    found = world.data[partition][node]
    return found if isinstance(found, Replica) else None


def reachable(world: World, partition: int) -> frozenset[int]:
    """Assigned nodes that a server can work with."""
    return frozenset(
        node
        for node in world.assigned[partition]
        if up(world, node) and (replica := _replica(world, partition, node)) is not None and replica.available
    )


def _present(world: World, partition: int, meta: Meta, nodes: frozenset[int]) -> list[int]:
    """Lengths of the old replicas that vote; one that is set back is absent (safety rule A1)."""
    found = []
    for listed in meta.replicas:
        replica = _replica(world, partition, listed.node)
        if listed.node not in nodes or replica is None:
            continue
        if listed.closing is not None:
            found.append(min(replica.length, listed.closing))
        elif replica.session >= listed.session:
            found.append(replica.length)
    return found


def resolve(world: World, partition: int, nodes: frozenset[int]) -> int | None:
    """What a new session would take as committed; None: not decidable, or no quorum of the new replicas."""
    assigned, meta = world.assigned[partition], world.meta[partition]
    if not assigned or len(nodes) < len(assigned) // 2 + 1:
        return None
    if meta is None:
        return 0
    lengths = sorted(_present(world, partition, meta, nodes), reverse=True)
    needed = len(meta.replicas) // 2 + 1
    absent = len(meta.replicas) - len(lengths)
    if len(lengths) < needed:
        return None
    for height in sorted(set(lengths), reverse=True):
        support = sum(length >= height for length in lengths)
        if support >= needed:
            return height
        if support + absent >= needed:
            return lengths[0]  # undecidable as it is: the others copy upwards, which decides it
    return None


def can_serve(world: World, partition: int) -> bool:
    """Whether the partition takes writes, or would after a new session, with the nodes that are up."""
    return resolve(world, partition, reachable(world, partition)) is not None


def session_wanted(world: World, partition: int) -> bool:
    """Whether the servers have a reason for a new session."""
    meta, assigned = world.meta[partition], world.assigned[partition]
    if meta is None:
        return bool(assigned)
    if {one.node for one in meta.replicas} != assigned:
        return True
    members = {one.node for one in meta.replicas if one.closing is None and one.session == meta.session}
    near = reachable(world, partition)
    return any(
        (one in near) != (one in members) or (one in near and _session(world, partition, one) != meta.session)
        for one in assigned
    )


def _session(world: World, partition: int, node: int) -> int:
    replica = _replica(world, partition, node)
    return replica.session if replica is not None else -1


def new_session(world: World, partition: int, nodes: frozenset[int]) -> World | None:
    """The servers start a session with these nodes; RecordLost when that forgets a committed record."""
    resolved = resolve(world, partition, nodes)
    if resolved is None:
        return None
    if resolved < world.committed[partition]:
        raise RecordLost(
            f"partition {partition}: {world.committed[partition]} committed, {resolved} resolved"
        )
    meta = world.meta[partition]
    session = meta.session + 1 if meta is not None else 0
    old = {one.node: one for one in meta.replicas} if meta is not None else {}
    listed = []
    for node in sorted(world.assigned[partition]):
        if node in nodes:
            listed.append(Listed(node, session, None))
        elif node not in old:
            listed.append(Listed(node, -1, resolved))
        elif old[node].closing is None:
            listed.append(Listed(node, old[node].session, resolved))
        else:
            listed.append(old[node])
    row = world.data[partition]
    for node in nodes:
        row = put(row, node, Replica(True, session, resolved, resolved))
    made = world._replace(
        meta=put(world.meta, partition, Meta(session, tuple(listed))),
        data=put(world.data, partition, row),
        committed=put(world.committed, partition, resolved),
    )
    return _renumbered(made, partition)


def _renumbered(world: World, partition: int) -> World:
    """Sessions as 0, 1, 2 … in their order."""
    meta = world.meta[partition]
    if meta is None:
        return world
    used = {meta.session, *(one.session for one in meta.replicas)}
    used |= {one.session for one in world.data[partition] if isinstance(one, Replica)}
    rank = {session: i for i, session in enumerate(sorted(s for s in used if s >= 0))}
    rank[-1] = -1
    listed = tuple(one._replace(session=rank[one.session]) for one in meta.replicas)
    row = tuple(
        one._replace(session=rank[one.session]) if isinstance(one, Replica) else one
        for one in world.data[partition]
    )
    return world._replace(
        meta=put(world.meta, partition, Meta(rank[meta.session], listed)),
        data=put(world.data, partition, row),
    )


def append(world: World, partition: int, without: int | None = None) -> World | None:
    """One record, acknowledged by the members of the session that are up, or all but one of them."""
    meta = world.meta[partition]
    if meta is None or world.committed[partition] >= MAX_RECORDS:
        return None
    if {one.node for one in meta.replicas} != world.assigned[partition]:
        return None  # the servers have noticed the change: a new session comes first
    near = reachable(world, partition)
    members = [
        one.node
        for one in meta.replicas
        if one.closing is None
        and one.session == meta.session
        and one.node in near
        and _session(world, partition, one.node) == meta.session
    ]
    voters = [node for node in members if node != without]
    if len(voters) < len(meta.replicas) // 2 + 1 or (without is not None and without not in members):
        return None
    row = world.data[partition]
    for node in voters:
        replica = row[node]
        if isinstance(replica, Replica):
            row = put(row, node, replica._replace(length=world.committed[partition] + 1))
    return world._replace(
        data=put(world.data, partition, row),
        committed=put(world.committed, partition, world.committed[partition] + 1),
    )


# ------------------------------------------------------------------------------------------------- Kubernetes


def pod_steps(world: World, universe: Universe) -> Iterator[World]:
    """One pod gets one step further."""
    for node in range(len(universe.groups)):
        pod, template = world.pods[node], world.sets[node]
        if pod is None:
            if template is not None and world.claims[node] is not None:
                yield world._replace(pods=put(world.pods, node, Pod(STARTING, template)))
        elif pod.phase == DELETING or template is None:
            yield world._replace(pods=put(world.pods, node, None))
        elif pod.phase == STARTING:
            phase = STUCK if pod.template == BAD else READY
            yield world._replace(
                pods=put(world.pods, node, pod._replace(phase=phase)), downed=world.downed - {node}
            )


def job_steps(world: World) -> Iterator[World]:
    """Copy jobs end."""
    for index, job in enumerate(world.jobs):
        if job.state != "active":
            continue
        done = _copied(world, index, job)
        if done is not None:
            yield done
        if world.luck.jobs:
            yield world._replace(
                jobs=put(world.jobs, index, job._replace(state="failed")),
                luck=world.luck._replace(jobs=world.luck.jobs - 1),
            )


def _copied(world: World, index: int, job: Job) -> World | None:
    source, target = _replica(world, job.partition, job.source), _replica(world, job.partition, job.target)
    if source is None or target is None or not up(world, job.source) or not up(world, job.target):
        return None
    if target.available:
        return world._replace(jobs=put(world.jobs, index, job._replace(state="failed")))
    filled = target._replace(length=source.mark, mark=source.mark, compared=True)
    return world._replace(
        jobs=put(world.jobs, index, job._replace(state="succeeded", verified=source.mark)),
        data=put(world.data, job.partition, put(world.data[job.partition], job.target, filled)),
    )


def session_steps(world: World) -> Iterator[World]:
    """Servers start sessions: with all that can be reached, or before a newcomer is ready."""
    if world.servers is None:
        return
    for partition in range(len(world.assigned)):
        if not session_wanted(world, partition):
            continue
        near = reachable(world, partition)
        meta = world.meta[partition]
        known = {one.node for one in meta.replicas} if meta is not None else set(near)
        for nodes in {near, frozenset(near & known)}:
            made = new_session(world, partition, nodes)
            if made is not None and made != world:
                yield made


def append_steps(world: World) -> Iterator[World]:
    """Clients write."""
    if world.servers is None:
        return
    for partition in range(len(world.assigned)):
        for without in (None, max(world.assigned[partition], default=None)):
            made = append(world, partition, without)
            if made is not None:
                yield made


def accidents(world: World, universe: Universe) -> Iterator[World]:
    """Crashes, lost disks, a lost tree."""
    if world.luck.trees and world.tree:
        yield world._replace(
            tree=False,
            registered=frozenset(),
            assigned=tuple(frozenset() for _ in world.assigned),
            meta=tuple(None for _ in world.meta),
            luck=world.luck._replace(trees=world.luck.trees - 1),
        )
    yield from _of_servers(world, universe)
    for node in range(len(universe.groups)):
        pod = world.pods[node]
        if pod is None or pod.phase != READY:
            continue
        if world.luck.crashes:
            yield world._replace(
                pods=put(world.pods, node, pod._replace(phase=STARTING)),
                luck=world.luck._replace(crashes=world.luck.crashes - 1),
            )
        if world.luck.disks and world.claims[node] is not None:
            yield world._replace(
                pods=put(world.pods, node, pod._replace(phase=STARTING)),
                data=tuple(put(row, node, None) for row in world.data),
                luck=world.luck._replace(disks=world.luck.disks - 1),
            )


def _of_servers(world: World, universe: Universe) -> Iterator[World]:
    """Another load, and a restart after which they share by number again."""
    shares, luck = world.shares, world.luck
    if shares is None or world.servers is None:
        return
    for load in range(len(universe.loads)):
        if luck.loads and load != shares.load:
            yield world._replace(shares=shares._replace(load=load), luck=luck._replace(loads=luck.loads - 1))
    if luck.servers:
        yield world._replace(
            shares=Shares(shares.owners[::-1], shares.load, served=False, warm=shares.warm),
            luck=luck._replace(servers=luck.servers - 1),
        )


LONG_AGO = -1e9
"""When something was decided that nothing has to wait for any longer."""


def time_steps(world: World) -> Iterator[World]:
    """Servers have restarted; a window passes; then a cool-down."""
    shares = world.shares
    if shares is None or world.servers is None:
        return
    records = world.memory.server_moves
    if not shares.served:
        yield world._replace(shares=shares._replace(served=True))
    elif not shares.measured or any(one.at > NOW - LIMITS.window_seconds for one in records):
        at = NOW - LIMITS.window_seconds
        yield _aged(world, at, shares._replace(measured=True, window=0))
    elif shares.warm or any(one.at > LONG_AGO for one in records):
        yield _aged(world, LONG_AGO, shares._replace(warm=frozenset()))


def _aged(world: World, at: float, shares: Shares) -> World:
    records = tuple(one._replace(at=min(one.at, at)) for one in world.memory.server_moves)
    return world._replace(memory=replace(world.memory, server_moves=records), shares=shares)


def progress(world: World, universe: Universe) -> Iterator[World]:
    """What comes sooner or later when faults have stopped."""
    yield from pod_steps(world, universe)
    yield from job_steps(world)
    yield from session_steps(world)
    if world.rolling:
        yield world._replace(rolling=False)
    gone = world.shares is not None and not world.shares.served
    if gone or not any(one.due for one in world.memory.server_moves):  # the operator is faster than a window
        yield from time_steps(world)


def peaceful(world: World, universe: Universe) -> Iterator[World]:
    """Everything that may happen next without an accident."""
    yield from progress(world, universe)
    yield from time_steps(world)
    yield from append_steps(world)
