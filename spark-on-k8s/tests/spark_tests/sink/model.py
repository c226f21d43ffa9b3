"""A small world for the sink's protocol: one log partition with its locks, and attempts at a task, stepped
one event at a time.

The attempts are the shipped ones (`waltz_spark.sink.attempt`). The world is meaner than a cluster: what an
attempt has sent may be decided at any later time, after the attempt has given up on it or died, in any order
between the requests it gave up on.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, TypeVar

from waltz_protocol.locks import LockId
from waltz_spark.sink import attempt as protocol
from waltz_spark.sink.attempt import (
    AppendClaim,
    Attempt,
    Committed,
    Conflict,
    OnConflict,
    Outcome,
    OutgoingRow,
    ReadBack,
    SendRows,
    Undecided,
)
from waltz_spark.sink.errors import RowConflictError, StaleBatchError, SupersededError
from waltz_spark.sink.read_back import Header, RowSeen, Sighting, Survey
from waltz_spark.sink.requests import row_request
from waltz_spark.sink.task_claims import CLAIM_HEADER, Claim, TaskKey, claim_lock, fingerprint

KEY = TaskKey("query", 7, 0)
USER_LOCK = LockId("account", 1)

T = TypeVar("T")


def changed(one: T, **changes: object) -> T:
    """As `dataclasses.replace`, in a fifth of the time: it is what the walk does most."""
    new = object.__new__(type(one))
    vars(new).update(vars(one), **changes)
    return new


@dataclass(frozen=True)
class Request:
    """One append on its way. `slot`: which answer of the attempt's action it is."""

    writer: int
    action: int
    slot: int
    header: int
    data: bytes
    write: tuple[LockId, ...]
    read: tuple[LockId, ...]
    as_of: int


@dataclass(frozen=True)
class Logged:
    """One transaction."""

    client_id: int
    header: int
    data: bytes


@dataclass(frozen=True)
class Process:
    """An attempt and where it is in its code. `answers` of the action it waits for; None: it waits for
    none."""

    state: Attempt
    chunks: tuple[tuple[OutgoingRow, ...], ...]
    actions: int = 0
    answers: tuple[Outcome | None, ...] | None = None
    ended: str | None = None


@dataclass(frozen=True)
class World:
    """Everything. `lanes`: requests in order per connection; the first of each lane may be decided next."""

    log: tuple[Logged, ...] = ()
    locks: tuple[tuple[LockId, int], ...] = ()
    base: int = -1
    lanes: tuple[tuple[Request, ...], ...] = ()
    processes: tuple[Process, ...] = ()
    starts: int = 2
    timeouts: int = 0
    drops: int = 0
    resets: int = 0
    crashes: int = 0
    touches: int = 0
    trace: tuple[Any, ...] = field(default=(), compare=False, hash=False)

    @property
    def mark(self) -> int:
        """High-water mark."""
        return len(self.log) - 1

    def said(self, what: str, **changes: object) -> World:
        """The world after an event."""
        return changed(self, trace=(self.trace, what), **changes)

    @property
    def story(self) -> str:
        """All events so far, a line each."""
        lines, trace = [], self.trace
        while trace:
            trace, what = trace
            lines.append(what)
        return "\n".join(reversed(lines))


@dataclass(frozen=True)
class Job:
    """What the task has to write, in chunks as its rows arrive, and where its batch started."""

    chunks: tuple[tuple[OutgoingRow, ...], ...]
    start: int = -1
    on_conflict: OnConflict = OnConflict.FAIL


def identity(world: World) -> object:
    """Worlds with the same identity continue alike."""
    processes = tuple(
        (
            p.state.known,
            p.state.view,
            p.state.claimed,
            p.state.unread,
            p.state.owners,
            p.state.accounted,
            p.state.settled,
            p.state.pending,
            p.state.conflicted,
            tuple(sorted(p.state.spare.items())),
            p.chunks,
            p.actions,
            p.answers,
            p.ended,
        )
        for p in world.processes
    )
    budgets = (world.starts, world.timeouts, world.drops, world.resets, world.crashes, world.touches)
    return (world.log, frozenset(world.locks), world.base, frozenset(world.lanes), processes, budgets)


def successors(world: World, job: Job) -> Iterator[World]:
    """Every event that can happen next."""
    if world.starts:
        yield _start(world, job)
    for number, process in enumerate(world.processes):
        if process.ended is not None:
            continue
        if world.crashes:
            yield _with(
                world, number, changed(process, ended="crashed"), f"{number} dies", crashes=world.crashes - 1
            )
        if process.answers is None:
            yield _act(world, number, process)
        elif None not in process.answers:
            yield _take(world, number, process)
        elif world.timeouts:
            answers = tuple(Undecided() if one is None else one for one in process.answers)
            gave_up = changed(process, answers=answers)
            yield _with(world, number, gave_up, f"{number} gives up waiting", timeouts=world.timeouts - 1)
    for lane in world.lanes:
        yield _decide(world, lane)
        if world.drops:
            yield _answer(_pop(world, lane), lane[0], Undecided()).said(
                "a request is lost", drops=world.drops - 1
            )
    if world.resets and world.base != world.mark:
        yield world.said("the partition moves", locks=(), base=world.mark, resets=world.resets - 1)
    if world.touches:
        touched = world.said("somebody writes the user's lock", touches=world.touches - 1)
        yield _commit(touched, Logged(999, 0, b"foreign"), (USER_LOCK,))


# -- processes -----------------------------------------------------------------------------------------------


def _start(world: World, job: Job) -> World:
    number = len(world.processes)
    state = Attempt(Claim(KEY, f"attempt-{number}", 100 + number), job.start, job.on_conflict)
    state = protocol.offer(protocol.admit(state, 0, job.chunks[0]), job.chunks[0])
    process = Process(state, job.chunks[1:])
    return world.said(f"{number} starts", processes=(*world.processes, process), starts=world.starts - 1)


def _act(world: World, number: int, process: Process) -> World:
    """The next action: reading back is done at once, appends go onto their way."""
    action = protocol.next_action(process.state)
    if action is None:
        if not process.chunks:
            protocol.finish(process.state)
            return _with(world, number, changed(process, ended="done"), f"{number} is done")
        more = process.chunks[0]
        state = protocol.offer(protocol.admit(process.state, 0, more), more)
        return _with(
            world, number, changed(process, state=state, chunks=process.chunks[1:]), f"{number} has more rows"
        )
    if isinstance(action, ReadBack):
        try:
            state = protocol.after_reading(process.state, *_read_back(world, action))
        except (SupersededError, StaleBatchError, RowConflictError) as error:
            return _with(world, number, changed(process, ended=type(error).__name__), f"{number}: {error}")
        return _with(world, number, changed(process, state=state), f"{number} reads up to {action.until}")
    requests = _requests(number, process, action)
    waiting = changed(process, actions=process.actions + 1, answers=(None,) * len(requests))
    what = (
        f"{number} claims as of {action.as_of}"
        if isinstance(action, AppendClaim)
        else f"{number} sends {len(requests)} rows"
    )
    return _with(world, number, waiting, what, lanes=(*world.lanes, requests))


def _requests(number: int, process: Process, action: AppendClaim | SendRows) -> tuple[Request, ...]:
    me = process.state.me
    if isinstance(action, AppendClaim):
        lock = (claim_lock(me.key),)
        return (Request(number, process.actions, 0, CLAIM_HEADER, me.encode(), lock, (), action.as_of),)
    made = [row_request(0, me.key, row, action.as_of) for row in action.rows]
    return tuple(
        Request(
            number,
            process.actions,
            slot,
            one.header,
            one.data,
            tuple(one.write_locks),
            tuple(one.read_locks),
            -1 if one.as_of is None else one.as_of,
        )
        for slot, one in enumerate(made)
    )


def _take(world: World, number: int, process: Process) -> World:
    answers = tuple(one for one in process.answers or () if one is not None)
    if protocol.next_action(process.state).__class__ is AppendClaim:
        state = protocol.after_claim(process.state, answers[0])
    else:
        state = protocol.after_sending(process.state, answers)
    return _with(world, number, changed(process, state=state, answers=None), f"{number} learns {answers}")


def _read_back(world: World, action: ReadBack) -> tuple[list[Sighting], frozenset[int]]:
    survey = Survey(KEY, action.owners, CLAIM_HEADER)
    span = range(action.after + 1, action.until + 1)
    headers = [Header(i, world.log[i].client_id, world.log[i].header) for i in span]
    claims, rows = survey.walk(headers, {i: world.log[i].data for i in span})
    seen = [
        RowSeen(r.transaction_id, r.client_id, fingerprint(r.header, world.log[r.transaction_id].data))
        for r in rows
    ]
    return sorted([*claims, *seen], key=lambda one: one.transaction_id), frozenset(survey.owners)


# -- the server ----------------------------------------------------------------------------------------------


def _decide(world: World, lane: tuple[Request, ...]) -> World:
    request = lane[0]
    world = _pop(world, lane)
    locks = dict(world.locks)
    mark = max((locks.get(lock, world.base) for lock in (*request.write, *request.read)), default=-1)
    if mark > request.as_of:
        return _answer(world, request, Conflict(mark)).said(
            f"refused: {request.data[:20]!r} of {request.writer}"
        )
    world = _commit(world, Logged(100 + request.writer, request.header, request.data), request.write)
    return _answer(world, request, Committed(world.mark)).said(
        f"{world.mark}: {request.data[:20]!r} of {request.writer}"
    )


def _commit(world: World, entry: Logged, locks: tuple[LockId, ...]) -> World:
    log = (*world.log, entry)
    touched = {**dict(world.locks), **dict.fromkeys(locks, len(log) - 1)}
    return changed(world, log=log, locks=tuple(sorted(touched.items())))


def _pop(world: World, lane: tuple[Request, ...]) -> World:
    lanes = list(world.lanes)
    lanes.remove(lane)
    return changed(world, lanes=(*lanes, lane[1:]) if len(lane) > 1 else tuple(lanes))


def _answer(world: World, request: Request, outcome: Outcome) -> World:
    process = world.processes[request.writer]
    answers = process.answers
    waits = answers is not None and process.actions == request.action + 1 and process.ended is None
    if not waits or answers is None or answers[request.slot] is not None:
        return world
    told = (*answers[: request.slot], outcome, *answers[request.slot + 1 :])
    return _with(world, request.writer, changed(process, answers=told), None)


def _with(world: World, number: int, process: Process, what: str | None, **changes: object) -> World:
    processes = (*world.processes[:number], process, *world.processes[number + 1 :])
    after = changed(world, processes=processes, **changes)
    return after if what is None else after.said(what)
