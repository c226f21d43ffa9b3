"""The status of a WaltzMigration: how far each partition has come, how far the copy is, when it will be done.
Pure."""

from __future__ import annotations

from collections.abc import Sequence

from waltz_operator.api.cluster_status import Condition, ConditionStatus
from waltz_operator.api.metadata import RETRY
from waltz_operator.api.migration import (
    EarlierPartitions,
    MigrationPhase,
    MoveState,
    PartitionMove,
    WaltzMigration,
    WaltzMigrationStatus,
)
from waltz_operator.model.actions import Blocked
from waltz_operator.model.facts import Facts
from waltz_operator.model.reasons import Reason
from waltz_operator.model.task import FINISHED_PHASES, FINISHED_STATES, Earlier, Record, Task, TaskKind
from waltz_operator.model.texts import fitting
from waltz_operator.model.times import seconds, timestamp
from waltz_operator.plan.move_steps import undoable
from waltz_operator.plan.replica_changes import describe
from waltz_operator.plan.status.conditions import unknown_text

MAX_PLAN_LINES = 100
MAX_LISTED = 100
MAX_LISTED_ENDED = 49
_UNCOPIED = frozenset({MoveState.PENDING, MoveState.STARTED, MoveState.TARGET_OFFLINE, MoveState.COPYING})


def migration_status(
    migration: WaltzMigration,
    facts: Facts,
    task: Task,
    blocked: Sequence[Blocked],
    reason: Reason,
    message: str,
) -> WaltzMigrationStatus:
    """The status to be written."""
    last = migration.status
    begun = task.phase not in (MigrationPhase.PENDING, MigrationPhase.PLANNED)
    started_at = last.started_at or (timestamp(facts.now) if begun else None)
    finished = task.phase in FINISHED_PHASES
    total, copied = last.transactions_total, last.transactions_copied
    if not task.unlisted:
        total, copied = _figures(facts, task)
    shown, earlier, unlisted = listed(task)
    return WaltzMigrationStatus(
        observed_generation=migration.metadata.generation,
        phase=task.phase,
        reason=reason.value,
        message=message,
        what=_what(facts, task),
        conditions=_conditions(migration, facts, task, blocked, reason, message),
        plan=_plan(facts, task),
        partitions=tuple(_partition(facts, record) for record in shown),
        earlier=EarlierPartitions(
            done=earlier.done, cancelled=earlier.cancelled, transactions=earlier.transactions
        ),
        pending=unlisted,
        progress=_progress(task),
        transactions_total=total,
        transactions_copied=copied,
        eta_seconds=None if finished or not begun or blocked else _eta(facts, started_at, total, copied),
        cancellable=not finished and _cancellable(facts, task),
        started_at=started_at,
        finished_at=(last.finished_at or timestamp(facts.now)) if finished else None,
        progressed_at=None if task.progressed_at is None or finished else timestamp(task.progressed_at),
        failure=task.failure,
        retried=last.retried if task.retry else migration.metadata.annotations.get(RETRY, ""),
    )


def _name(facts: Facts, node: str | None) -> str:
    identity = facts.identity(node) if node else None
    return identity.reference if identity is not None else node or ""


def _what(facts: Facts, task: Task) -> str:
    if task.kind is TaskKind.REBALANCE:
        return f"spread {'the bytes' if task.by_bytes else 'the partitions'} of group {task.group} evenly"
    if task.kind is TaskKind.MOVE:
        return f"move partitions from {_name(facts, task.source)} to {_name(facts, task.target)}"
    verb = "drain" if task.kind is TaskKind.DRAIN else "replace"
    return f"{verb} {_name(facts, task.source)}"


def _plan(facts: Facts, task: Task) -> tuple[str, ...]:
    todo = [record for record in task.records if record.state not in FINISHED_STATES]
    lines = [describe(facts, record.move) for record in todo[: MAX_PLAN_LINES - 1]]
    if len(todo) > len(lines):
        lines.append(f"and {len(todo) - len(lines)} more")
    return tuple(lines)


def _partition(facts: Facts, record: Record) -> PartitionMove:
    return PartitionMove(
        partition=record.move.partition,
        source=_name(facts, record.move.source),
        target=_name(facts, record.move.target),
        state=record.state,
        source_txid=record.source_txid,
        copied_txid=record.copied_txid,
        verified_txid=record.verified_through,
        checksum=record.checksum or None,
        message=record.message,
    )


def _progress(task: Task) -> str:
    earlier = task.earlier
    done = earlier.done + sum(record.state is MoveState.DONE for record in task.records)
    return f"{done}/{earlier.done + earlier.cancelled + len(task.records) + task.unlisted}"


def listed(task: Task) -> tuple[tuple[Record, ...], Earlier, int]:
    """The records that the status lists, what came of the ended ones that it lists no longer, and how many
    have not begun and are not listed. A status with all 4,096 would be a megabyte, written at every step."""
    records = task.records
    if len(records) <= MAX_LISTED:
        return records, task.earlier, task.unlisted
    ended = [one for one in records if one.state in FINISHED_STATES]
    ended.sort(key=lambda one: one.state is MoveState.FAILED)  # these are begun again, and never dropped
    begun = [one for one in records if one.in_flight]
    waiting = [one for one in records if one.state is MoveState.PENDING]
    last = ended[max(0, len(ended) - MAX_LISTED_ENDED) :]
    dropped = ended[: len(ended) - len(last)]
    next_ones = waiting[: MAX_LISTED - len(last) - len(begun)]
    done = [one for one in dropped if one.state is MoveState.DONE]
    before = task.earlier
    earlier = Earlier(
        before.done + len(done),
        before.cancelled + len(dropped) - len(done),
        before.transactions + sum(one.source_txid + 1 for one in done if one.source_txid is not None),
    )
    unlisted = task.unlisted + len(waiting) - len(next_ones)
    return (*last, *begun, *next_ones), earlier, unlisted


def _figures(facts: Facts, task: Task) -> tuple[int | None, int | None]:
    """Transactions to copy and copied; None as long as a partition does not report it."""
    total = copied = task.earlier.transactions
    for record in task.records:
        if record.state is MoveState.CANCELLED:
            continue
        size = record.source_txid
        if size is None:
            size = facts.highest(record.move.partition)
        if size is None:
            return None, None
        total += size + 1
        if record.state not in _UNCOPIED:
            copied += size + 1
        elif record.state is MoveState.COPYING:
            copied += min(size, record.copied_txid if record.copied_txid is not None else -1) + 1
    return total, copied


def _eta(facts: Facts, started_at: str | None, total: int | None, copied: int | None) -> int | None:
    """From the pace so far; None before anything was copied."""
    elapsed = facts.now - seconds(started_at)
    if not total or not copied or elapsed <= 0:
        return None
    return round((total - copied) * elapsed / copied)


def _cancellable(facts: Facts, task: Task) -> bool:
    return all(undoable(facts, record.move) for record in task.under_way)


def _conditions(
    migration: WaltzMigration,
    facts: Facts,
    task: Task,
    blocked: Sequence[Blocked],
    reason: Reason,
    message: str,
) -> tuple[Condition, ...]:
    first = blocked[0] if blocked else None
    running = task.phase in (MigrationPhase.RUNNING, MigrationPhase.CANCELLING)
    facts_now: dict[str, tuple[bool, str, str]] = {
        "Planned": (task.phase is not MigrationPhase.PENDING or bool(task.records), reason.value, ""),
        "Running": (running, reason.value, message if running else ""),
        "Complete": (task.phase is MigrationPhase.COMPLETED, reason.value, message),
        "Failed": (task.phase is MigrationPhase.FAILED, reason.value, task.failure),
        "Blocked": (
            first is not None,
            Reason(first.reason).value if first is not None else Reason.AS_WANTED.value,
            first.text if first is not None else "",
        ),
    }
    if migration.unknown:
        facts_now["Valid"] = (True, Reason.UNKNOWN_FIELDS.value, unknown_text(migration.unknown))
    before = {one.type: one for one in migration.status.conditions}
    found = []
    for kind, (holds, why, text) in facts_now.items():
        status: ConditionStatus = "True" if holds else "False"
        known = before.get(kind)
        since = (
            known.last_transition_time
            if known is not None and known.status == status
            else timestamp(facts.now)
        )
        found.append(
            Condition(
                type=kind,
                status=status,
                reason=why,
                message=fitting(text),
                last_transition_time=since,
                observed_generation=migration.metadata.generation,
            )
        )
    return tuple(found)
