"""A WaltzMigration as plain values: what it wants and what its status records. Pure.

Nodes are named by reference in the resource and by connect string in the planners.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import NamedTuple

from waltz_operator.api.metadata import RETRY
from waltz_operator.api.migration import MigrationPhase, MoveState, PartitionMove, Spread, WaltzMigration
from waltz_operator.model.desired import Move, MoveKind
from waltz_operator.model.times import seconds


class TaskKind(StrEnum):
    """What a migration does."""

    MOVE = "Move"
    DRAIN = "Drain"
    REPLACE = "Replace"
    REBALANCE = "Rebalance"


FINISHED_PHASES = frozenset({MigrationPhase.COMPLETED, MigrationPhase.CANCELLED, MigrationPhase.FAILED})
FINISHED_STATES = frozenset({MoveState.DONE, MoveState.CANCELLED, MoveState.FAILED})


@dataclass(frozen=True, slots=True)
class Record:
    """One partition of a migration as its status records it. Nodes by connect string."""

    move: Move
    state: MoveState = MoveState.PENDING
    verified_through: int | None = None
    checksum: str = ""
    source_txid: int | None = None
    copied_txid: int | None = None
    message: str = ""

    @property
    def in_flight(self) -> bool:
        """Begun and not ended."""
        return self.state is not MoveState.PENDING and self.state not in FINISHED_STATES


class Earlier(NamedTuple):
    """What came of partitions that have ended and whose records the status no longer has: numbers of
    partitions, and of transactions copied for the first ones."""

    done: int = 0
    cancelled: int = 0
    transactions: int = 0


NOTHING_EARLIER = Earlier()


@dataclass(frozen=True, slots=True)
class Task:
    """One migration. `source`/`target`/`group` as its kind needs; `partitions` None = all.
    `by_bytes`: a rebalance spreads bytes, not numbers.

    `parallel`: partitions at a time. `progressed_at`: since when the deadline counts, seconds; None: it does
    not count now. `deadline_seconds`: 0 = none. `failure`: why it is given up, empty when it is not. `retry`:
    a person asks for it anew. `unlisted`: number of partitions that have not begun and are not among the
    records. `finished_at`: when it ended, seconds; 0: it has not.
    """

    name: str
    uid: str
    kind: TaskKind
    created: str
    source: str = ""
    target: str = ""
    group: str = ""
    by_bytes: bool = False
    partitions: tuple[int, ...] | None = None
    dry_run: bool = False
    approved: bool = True
    cancel: bool = False
    deleting: bool = False
    rate_limit_bytes: int = 0
    allow_pause: bool = False
    phase: MigrationPhase = MigrationPhase.PENDING
    records: tuple[Record, ...] = ()
    earlier: Earlier = NOTHING_EARLIER
    unlisted: int = 0
    started_at: str | None = None
    finished_at: float = 0.0
    parallel: int = 1
    deadline_seconds: int = 0
    progressed_at: float | None = None
    failure: str = ""
    retry: str = ""

    @property
    def under_way(self) -> tuple[Record, ...]:
        """The replica changes that it has begun and that have not ended."""
        return tuple(record for record in self.records if record.in_flight)

    @property
    def in_flight(self) -> Record | None:
        """The first of them."""
        return next((record for record in self.records if record.in_flight), None)

    def refills(self, node: str) -> bool:
        """Whether a person wants it to fill this node again, now."""
        stopped = self.over or self.cancel or self.dry_run or bool(self.failure)
        return self.kind is TaskKind.REPLACE and self.source == node and self.approved and not stopped

    @property
    def over(self) -> bool:
        """Nothing more is to be done."""
        return self.phase in FINISHED_PHASES


def closed(records: Iterable[Record]) -> tuple[Record, ...]:
    """With those that have not ended cancelled."""
    return tuple(
        one if one.state in FINISHED_STATES else replace(one, state=MoveState.CANCELLED) for one in records
    )


def with_record(records: Iterable[Record], changed: Record) -> tuple[Record, ...]:
    """With this one in the place of its change's."""
    return tuple(changed if one.move.same == changed.move.same else one for one in records)


def reported_as_over(migration: WaltzMigration) -> bool:
    """Whether its status says that it is over, of the specification as it is now, and nobody asks for it
    anew: then its plan is to do nothing. One with unknown fields may have to be said so, and what another
    release, or the pass in which it ended, has left in the conditions is still to be put right."""
    meta, status = migration.metadata, migration.status
    return (
        status.phase in FINISHED_PHASES
        and status.observed_generation == meta.generation
        and status.retried == meta.annotations.get(RETRY, "")
        and not migration.unknown
        and not any(
            one.type == "Valid" or (one.type == "Blocked" and one.status == "True")
            for one in status.conditions
        )
    )


def kind_of(migration: WaltzMigration) -> TaskKind:
    """Which of the alternatives is given."""
    spec = migration.spec
    if spec.move is not None:
        return TaskKind.MOVE
    if spec.drain is not None:
        return TaskKind.DRAIN
    if spec.replace is not None:
        return TaskKind.REPLACE
    return TaskKind.REBALANCE


def move_kind(kind: TaskKind) -> MoveKind:
    """The replica change that a migration is made of."""
    return MoveKind.REFILL if kind is TaskKind.REPLACE else MoveKind.MOVE


def task_of(migration: WaltzMigration, nodes: Mapping[str, str]) -> Task:
    """The task; `nodes` maps references to connect strings, what is not in there keeps its reference (and
    is no node)."""
    spec, meta, status = migration.spec, migration.metadata, migration.status
    kind = kind_of(migration)
    source = target = group = ""
    by_bytes = False
    partitions: tuple[int, ...] | None = None
    if spec.move is not None:
        source, target, partitions = spec.move.source, spec.move.target, spec.move.partitions
    elif spec.drain is not None:
        source = spec.drain.node
    elif spec.replace is not None:
        source = spec.replace.node
    elif spec.rebalance is not None:
        group, by_bytes = spec.rebalance.group, spec.rebalance.by is Spread.BYTES
    return Task(
        name=meta.name,
        uid=meta.uid,
        kind=kind,
        created=meta.creation_timestamp or "",
        source=nodes.get(source, source),
        target=nodes.get(target, target),
        group=group,
        by_bytes=by_bytes,
        partitions=partitions,
        dry_run=spec.dry_run,
        approved=spec.approve,
        cancel=spec.cancel or meta.deleting,
        deleting=meta.deleting,
        rate_limit_bytes=spec.rate_limit_bytes_per_second,
        allow_pause=spec.allow_pause,
        phase=status.phase,
        records=tuple(_record_of(migration, one, nodes) for one in status.partitions),
        earlier=Earlier(status.earlier.done, status.earlier.cancelled, status.earlier.transactions),
        unlisted=status.pending,
        started_at=status.started_at,
        finished_at=seconds(status.finished_at),
        parallel=spec.concurrent_partitions,
        deadline_seconds=spec.progress_deadline_seconds,
        progressed_at=seconds(status.progressed_at) if status.progressed_at else None,
        failure=status.failure,
        retry=retry if (retry := meta.annotations.get(RETRY, "")) != status.retried else "",
    )


def _record_of(migration: WaltzMigration, one: PartitionMove, nodes: Mapping[str, str]) -> Record:
    move = Move(
        move_kind(kind_of(migration)),
        one.partition,
        nodes.get(one.source, one.source),
        nodes.get(one.target, one.target) or None,
    )
    return Record(
        move, one.state, one.verified_txid, one.checksum or "", one.source_txid, one.copied_txid, one.message
    )
