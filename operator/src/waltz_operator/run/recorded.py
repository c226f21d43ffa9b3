"""A look with what a pass has written into statuses and finalizers since, as the API server answered.

What only waits for a record (a change that is begun or over, our finalizer) is planned on such a look, in the
same pass: a look of its own would show nothing else. So it is only used while it is young, and no step that
needs a proof depends on it, for the applier looks again before those.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Set
from dataclasses import replace
from typing import NamedTuple, TypeGuard

from waltz_operator.api.errors import ResourceError
from waltz_operator.api.parse import stored_cluster, stored_migration
from waltz_operator.kube import kinds
from waltz_operator.model.actions import Action, ApplyObject, EmitEvent, Plan, SetStatus
from waltz_operator.model.snapshot import ObjectKey, Snapshot
from waltz_operator.plan.builder import AT_ONCE
from waltz_operator.run.apply import Outcome
from waltz_operator.run.observe import Observation

Planned = Callable[[Snapshot], Plan]

MAX_AGE_SECONDS = 2.0
"""An older look is not used again. It is as old as the first of its answers: a silent storage node holds up
the last one for seconds."""
MAX_RECORDS = 4
"""So many records one turn writes: one change is over, the next one is begun, and it steps aside."""


class Applied(NamedTuple):
    """What was carried out of which plan, and the observation that it was made from in the end (with the
    rejected objects)."""

    outcome: Outcome
    plan: Plan
    observation: Observation
    unsure: bool = False


def is_budget(step: Action) -> TypeGuard[ApplyObject]:
    """A disruption budget follows every change of the copies, and nothing is decided on it."""
    return isinstance(step, ApplyObject) and step.key.kind == kinds.POD_DISRUPTION_BUDGET.kind


def recorded(observation: Observation, now: float) -> Observation | None:
    """The same look with the objects that were written since. None: it is too old, or one of them cannot be
    read."""
    snapshot, look = observation.snapshot, observation.look
    if look is None or not 0.0 <= now - look.at <= MAX_AGE_SECONDS:
        return None
    written = observation.written
    try:
        body = written.get(snapshot.cluster.metadata.uid)
        cluster = snapshot.cluster if body is None else stored_cluster(body)
        migrations = tuple(
            stored_migration(written[uid]) if (uid := one.metadata.uid) in written else one
            for one in snapshot.migrations
        )
    except ResourceError:
        return None
    return replace(
        observation,
        snapshot=replace(snapshot, cluster=cluster, migrations=migrations),
        body=observation.body if body is None else body,
    )


def awaits_record(applied: Applied) -> bool:
    """Whether the plan only reported, and what comes next waits for nothing but that."""
    plan, outcome = applied.plan, applied.outcome
    if outcome.failed is not None or applied.unsure or plan.requeue_seconds > AT_ONCE:
        return False
    reports = [one for one in plan.actions if isinstance(one, SetStatus)]
    return bool(reports) and all(
        isinstance(one, SetStatus | EmitEvent) or is_budget(one) for one in plan.actions
    )


async def with_records(
    plan: Plan,
    planned: Planned,
    apply: Callable[[Plan, Planned, Observation], Awaitable[Applied]],
    observation: Observation,
    clock: Callable[[], float],
) -> Applied:
    """Carry out a plan (`apply`), and while it was a record alone the next one (`planned`), on the same look
    with the record in it. That look does not show the disruption budgets that were written since, so they are
    left out of the next one."""
    applied = await apply(plan, planned, observation)
    for _ in range(MAX_RECORDS):
        look = recorded(applied.observation, clock()) if awaits_record(applied) else None
        if look is None:
            break
        written = {one.key for one in applied.outcome.done if is_budget(one)}

        def without_written(seen: Snapshot, written: Set[ObjectKey] = written) -> Plan:
            made = planned(seen)
            left = (one for one in made.actions if not (is_budget(one) and one.key in written))
            return replace(made, actions=tuple(left))

        following = await apply(without_written(look.snapshot), without_written, look)
        done = (*applied.outcome.done, *following.outcome.done)
        applied = following._replace(outcome=replace(following.outcome, done=done))
    return applied
