"""The Events that a change of status is worth: what was lost and is back, who came and left, what began and
ended. Pure.

Made by comparing the last status with the next one, so nothing is remembered for them. They follow the status
in the plan: who writes it emits them. `at` distinguishes the same loss an hour later.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from waltz_operator.api.cluster_status import (
    Condition,
    ConditionType,
    ServerMoveState,
    WaltzClusterStatus,
)
from waltz_operator.api.migration import MigrationPhase, WaltzMigrationStatus
from waltz_operator.model.actions import EmitEvent
from waltz_operator.model.reasons import Reason
from waltz_operator.model.snapshot import ObjectKey
from waltz_operator.model.task import FINISHED_PHASES

MAX_NAMES = 10
LOUD = frozenset(
    {
        Reason.DISK_LOST,
        Reason.DISK_FULL,
        Reason.METADATA_UNKNOWN,
        Reason.POD_STUCK,
        Reason.VOLUME_BEING_DELETED,
    }
)
"""Reasons of Degraded that are worth an Event; others come and go with planned work, or have their own."""
_UNDER_WAY = frozenset({MigrationPhase.RUNNING, MigrationPhase.CANCELLING})


def cluster_events(
    about: ObjectKey, last: WaltzClusterStatus, status: WaltzClusterStatus
) -> Iterator[EmitEvent]:
    """Available lost and back, what became invalid or broke, a pause and its end, what was scaled."""
    now = {one.type: one for one in status.conditions}
    before = {one.type: one for one in last.conditions}
    if ConditionType.AVAILABLE in now:
        yield from _available(about, before.get(ConditionType.AVAILABLE), now[ConditionType.AVAILABLE])
    for kind, bad in ((ConditionType.VALID, "False"), (ConditionType.DEGRADED, "True")):
        one, was = now.get(kind), before.get(kind)
        if one is None or (was is not None and (was.status, was.reason) == (one.status, one.reason)):
            continue
        loud = kind is ConditionType.VALID or one.reason in LOUD
        if (one.status == bad and loud) or one.reason in (Reason.UNKNOWN_FIELDS, Reason.OTHER_VALUES):
            yield EmitEvent(about, one.reason, one.message, "Warning", one.last_transition_time)
    yield from _paused(about, before.get(ConditionType.PAUSED), now.get(ConditionType.PAUSED))
    if last.conditions:
        yield from _scaled(about, last, status)
    yield from _moved(about, last, status)


def _paused(about: ObjectKey, was: Condition | None, one: Condition | None) -> Iterator[EmitEvent]:
    """A pause that somebody has forgotten is found by who asks why nothing happens."""
    if one is None or one.status == (was.status if was is not None else "False"):
        return
    text = one.message if one.status == "True" else "no longer paused"
    yield EmitEvent(about, Reason.PAUSED.value, text, at=one.last_transition_time)


def _available(about: ObjectKey, was: Condition | None, one: Condition) -> Iterator[EmitEvent]:
    good = one.status == "True"
    if (was is not None and (was.status == "True") == good) or (was is None and not good):
        return
    reason = Reason.AVAILABLE if good else Reason.NOT_AVAILABLE
    text = one.message if good else f"{one.reason}: {one.message}"
    yield EmitEvent(about, reason.value, text, "Normal" if good else "Warning", one.last_transition_time)


def _scaled(about: ObjectKey, last: WaltzClusterStatus, status: WaltzClusterStatus) -> Iterator[EmitEvent]:
    at = status.conditions[0].last_transition_time if status.conditions else "now"
    was, wanted = last.servers.replicas, status.servers.replicas
    if was and wanted and was != wanted:
        yield EmitEvent(about, Reason.SCALED.value, f"servers: from {was} to {wanted}", at=f"{at} {was}")
    old, new = {one.name for one in last.nodes}, {one.name for one in status.nodes}
    for verb, names in (("added", new - old), ("gone", old - new)):
        if old and new and names:
            text = f"storage nodes {verb}: {_listed(sorted(names))}"
            yield EmitEvent(about, Reason.SCALED.value, text, at=f"{at} {len(old)}")


def _moved(about: ObjectKey, last: WaltzClusterStatus, status: WaltzClusterStatus) -> Iterator[EmitEvent]:
    """Partitions that another server has now, because of the load."""
    before = {(one.partition, one.at) for one in last.servers.moves if one.state is ServerMoveState.DONE}
    for one in status.servers.moves:
        if one.state is ServerMoveState.DONE and (one.partition, one.at) not in before:
            text = f"partition {one.partition} moved from server {one.source} to {one.target}: {one.message}"
            yield EmitEvent(about, Reason.PARTITION_MOVED.value, text, at=f"{one.at} {one.partition}")


def _listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - MAX_NAMES} more" if len(names) > MAX_NAMES else ""
    return ", ".join(names[:MAX_NAMES]) + more


def migration_events(
    about: ObjectKey, cluster: ObjectKey, last: WaltzMigrationStatus, status: WaltzMigrationStatus
) -> Iterator[EmitEvent]:
    """Its begin and its end, on the migration and on its cluster."""
    if last.phase == status.phase or last.phase in FINISHED_PHASES:
        return
    if status.phase in _UNDER_WAY and last.phase not in _UNDER_WAY:
        reason, text, kind, at = Reason.MIGRATING.value, "it begins", "Normal", status.started_at
    elif status.phase in FINISHED_PHASES:
        failed = status.phase is MigrationPhase.FAILED
        text = f"it has ended: {status.phase.value}, {status.progress} partitions; {status.message}"
        reason, kind, at = status.reason, "Warning" if failed else "Normal", status.finished_at
    else:
        return
    yield EmitEvent(about, reason, f"{status.what}: {text}", kind, at or "now")
    yield EmitEvent(cluster, reason, f"migration {about.name}: {status.what}: {text}", kind, at or "now")
