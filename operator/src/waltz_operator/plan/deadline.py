"""The deadline of a migration: how long it may get no further before it is given up. Pure.

It got further when a partition was begun, was done, or came to a step behind its verified copy, or when more
was copied. The steps before that do not count: a copy that fails is made again, and would go through them
without end. While a copy runs nothing is given up: to compare a large partition takes long, and shows
nothing.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from waltz_operator.api.migration import MoveState
from waltz_operator.model.facts import Facts
from waltz_operator.model.snapshot import JobView
from waltz_operator.model.task import Record, Task

_BEHIND_THE_COPY = frozenset(
    {
        MoveState.TARGET_ONLINE,
        MoveState.ASSIGNED,
        MoveState.CAUGHT_UP,
        MoveState.SOURCE_UNASSIGNED,
        MoveState.SOURCE_GONE,
        MoveState.DONE,
    }
)


def expired(facts: Facts, task: Task, jobs: Iterable[JobView | None] = ()) -> bool:
    """Whether it has got no further for too long. `jobs`: the copy jobs of what it has under way."""
    seen = [job for job in jobs if job is not None]
    if any(job.state == "active" and not job.waits for job in seen):
        return False
    since = task.progressed_at
    if since is None or task.deadline_seconds <= 0:
        return False
    # how long the last copy ran does not count either, now that it has ended
    ran = max((job.ended_at - max(job.started_at, since) for job in seen), default=0.0)
    return facts.now - since - max(0.0, ran) >= task.deadline_seconds


def timed(facts: Facts, before: Task, after: Task, *, counts: bool) -> Task:
    """`after` with the time from which the deadline counts; None while `counts` is false: it waits for
    something that is not its own."""
    if not counts or after.deadline_seconds <= 0:
        return replace(after, progressed_at=None)
    if before.progressed_at is None or before.failure != after.failure or _further(before, after):
        return replace(after, progressed_at=facts.now)
    return after


def _further(before: Task, after: Task) -> bool:
    known = {record.move.same: record for record in before.records}
    return any(_is_further(known.get(record.move.same), record) for record in after.records)


def _is_further(before: Record | None, after: Record) -> bool:
    if before is None or not before.in_flight:
        return after.in_flight
    copied = -1 if before.copied_txid is None else before.copied_txid
    more = after.copied_txid is not None and after.copied_txid > copied
    return more or (before.state is not after.state and after.state in _BEHIND_THE_COPY)
