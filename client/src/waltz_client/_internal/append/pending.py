"""One append that was sent: what its caller holds until, and after, it has an outcome."""

from __future__ import annotations

from collections.abc import Callable

from waltz_client._internal.append.transaction_monitor import Cause, MonitorEntry
from waltz_client.errors import (
    AppendError,
    AppendFailedError,
    LockConflictError,
    Outcome,
    OutcomeUnknownError,
)
from waltz_client.transaction import Committed


class PendingAppend(MonitorEntry):
    """One append on its way: registered, sent, and in the end resolved once through `on_done(self)`.

    `on_done` runs on the loop inside the handling of a frame: it must be short and must not block. It may
    append again.
    """

    __slots__ = (
        "called_at",
        "cause",
        "context",
        "mark",
        "on_done",
        "partition_id",
        "sent",
        "size",
        "tick",
        "view",
        "watchers",
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
        return Outcome.UNKNOWN if cause is Cause.CLOSED else Outcome.FAILED

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
        match self.cause:
            case None | Cause.COMMITTED:
                return None
            case Cause.LOCK_CONFLICT:
                return LockConflictError(
                    partition_id=self.partition_id, conflicting_high_water_mark=self.mark
                )
            case Cause.CLOSED:
                return OutcomeUnknownError(
                    f"the client was closed before the outcome of an append to partition {self.partition_id} was known",
                    partition_id=self.partition_id,
                )
            case cause:
                return AppendFailedError(
                    f"append to partition {self.partition_id} failed: {cause.value}",
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
