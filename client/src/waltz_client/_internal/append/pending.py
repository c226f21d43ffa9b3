"""One append that was sent: what its caller holds until, and after, it has an outcome."""

from __future__ import annotations

from collections.abc import Callable

from waltz_client._internal.append.lock_names import lock_of
from waltz_client._internal.append.transaction_monitor import Cause, MonitorEntry
from waltz_client.errors import (
    AppendError,
    AppendFailedError,
    LockConflictError,
    NoQuorumError,
    Outcome,
    OutcomeUnknownError,
    RepeatTooOldError,
    ServerOverloadedError,
    TransactionTooLargeError,
)
from waltz_client.transaction import Committed

_UNKNOWN = frozenset((Cause.CLOSED, Cause.TOO_OLD, Cause.FENCED))


class PendingAppend(MonitorEntry):
    """One append on its way: registered, sent, and in the end resolved once through `on_done(self)`.

    `on_done` runs on the loop inside the handling of a frame: it must be short and must not block. It may
    append again.
    """

    __slots__ = (
        "called_at",
        "cause",
        "context",
        "data",
        "detail",
        "failure",
        "frame",
        "given_up",
        "lock",
        "mark",
        "on_done",
        "partition_id",
        "refusal",
        "searched",
        "sent",
        "size",
        "tick",
        "twins",
        "view",
        "wait_ms",
        "watchers",
        "winner",
    )

    def __init__(
        self,
        partition_id: int,
        on_done: Callable[[PendingAppend], object],
        context: object = None,
        called_at: float | None = None,
    ) -> None:
        """`called_at`: when its caller began to wait, on the loop's clock; None: it did not wait."""
        self.partition_id = partition_id
        self.on_done = on_done
        self.context = context
        self.called_at = called_at
        self.cause: Cause | None = None
        self.mark = -1
        self.tick = 0
        self.size = 0  # bytes of its frame
        self.sent: object = None  # what the observers returned when it was
        self.view = -1  # what it was sent with
        self.watchers: list[Callable[[], None]] | None = None
        self.frame = b""  # as it was sent, until it has an outcome
        self.searched: int | None = None  # see `AppendWindow.position_lost`
        self.given_up = False  # its caller has an unknown outcome: it is not sent again
        self.lock: int | None = None  # the hash that was touched, and by whom
        self.winner: int | None = None
        self.wait_ms = 0
        self.detail = ""
        self.refusal = ""  # why its server did not take it the last time; it is sent again
        self.failure: AppendError | None = None  # in place of what `cause` says
        self.data = b""  # of a named producer's append only, like `twins`: who has joined it
        self.twins: list[PendingAppend] | None = None
        self.pending = False
        self.conflict = -1

    @property
    def outcome(self) -> Outcome | None:
        """None while it is on its way."""
        cause = self.cause
        if cause is None:
            return None
        if cause is Cause.COMMITTED:
            return Outcome.COMMITTED
        if self.failure is not None:
            return self.failure.outcome
        return Outcome.UNKNOWN if cause in _UNKNOWN else Outcome.FAILED

    @property
    def committed(self) -> bool:
        """Whether it is in the log."""
        return self.cause is Cause.COMMITTED

    @property
    def transaction_id(self) -> int:
        """Its id once committed, -1 otherwise."""
        return self.mark if self.cause is Cause.COMMITTED else -1

    @property
    def error(self) -> AppendError | None:
        """The typed error of an append that did not (certainly) commit."""
        if self.failure is not None:
            return self.failure
        match self.cause:
            case None | Cause.COMMITTED:
                return None
            case Cause.LOCK_CONFLICT:
                return LockConflictError(
                    partition_id=self.partition_id,
                    conflicting_high_water_mark=self.mark,
                    lock=None if self.lock is None else lock_of(self.lock),
                    winner=self.winner,
                )
            case Cause.OVERLOADED:
                return ServerOverloadedError(partition_id=self.partition_id, retry_after_ms=self.wait_ms)
            case Cause.NO_QUORUM:
                return NoQuorumError(partition_id=self.partition_id, detail=self.detail)
            case Cause.TOO_LARGE:
                return TransactionTooLargeError(
                    f"append to partition {self.partition_id} was refused: {self.detail}",
                    partition_id=self.partition_id,
                )
            case Cause.TOO_OLD:
                return RepeatTooOldError(
                    f"append to partition {self.partition_id} has no outcome: {Cause.TOO_OLD.value}",
                    partition_id=self.partition_id,
                )
            case Cause.CLOSED:
                return OutcomeUnknownError(
                    f"{self.detail or 'the client was closed'} before the outcome of an append to partition "
                    f"{self.partition_id} was known",
                    partition_id=self.partition_id,
                )
            case cause:
                return AppendFailedError(
                    f"append to partition {self.partition_id} failed: {cause.value}",
                    partition_id=self.partition_id,
                )

    def no_outcome(self, when: str) -> OutcomeUnknownError:
        """For a caller that waits no longer."""
        refusal = f"; the last time its server refused it: {self.refusal}" if self.refusal else ""
        return OutcomeUnknownError(
            f"append to partition {self.partition_id} was sent, but its outcome did not come {when}{refusal}",
            partition_id=self.partition_id,
        )

    def result(self) -> Committed:
        """The place in the log; raises the typed error, or RuntimeError while it is on its way."""
        if self.cause is Cause.COMMITTED:
            return Committed(self.partition_id, self.mark)
        error = self.error
        if error is None:
            raise RuntimeError("the append has no outcome yet")
        raise error
