"""A WaltzMigration as plain values: what it wants and what its status records. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from waltz_operator.api.migration import MigrationPhase, MoveState, WaltzMigration
from waltz_operator.reconcile.desired import Move, MoveKind


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


@dataclass(frozen=True, slots=True)
class Task:
    """One migration. ``source``/``target``/``group`` as its kind needs; ``partitions`` None = all."""

    name: str
    uid: str
    kind: TaskKind
    created: str
    source: str = ""
    target: str = ""
    group: str = ""
    partitions: tuple[int, ...] | None = None
    dry_run: bool = False
    approved: bool = True
    cancel: bool = False
    deleting: bool = False
    rate_limit_bytes: int = 0
    allow_pause: bool = False
    phase: MigrationPhase = MigrationPhase.PENDING
    records: tuple[Record, ...] = ()
    started_at: str | None = None

    @property
    def in_flight(self) -> Record | None:
        """The one replica change that it has under way."""
        return next((record for record in self.records if record.in_flight), None)

    @property
    def over(self) -> bool:
        """Nothing more is to be done."""
        return self.phase in FINISHED_PHASES


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
