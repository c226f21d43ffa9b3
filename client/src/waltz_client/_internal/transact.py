"""`WaltzClient.transact`: a transaction context whose end can be waited for.

The context is run like any other (`contexts`): once per attempt, on the state that is applied. What this
module adds is the way back: the value of the decision, the id of the commit, and one error for each other
end.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

from waltz_client._internal.append.pending import PendingAppend
from waltz_client._internal.applier import settle
from waltz_client.context import TransactionBuilder, TransactionContext
from waltz_client.errors import (
    DeadlineExceededError,
    NotAppliedError,
    Outcome,
    OutcomeUnknownError,
    WaltzClientError,
)
from waltz_client.transaction import Committed, Transacted

D = TypeVar("D")

Decide = Callable[[TransactionBuilder], D | Awaitable[D]]
"""See `WaltzClient.transact`."""


class Transact(TransactionContext, Generic[D]):
    """One call of `transact`. Invariants: `_ended` is set once, when no further attempt follows; no decision
    begins or is waited for, and nothing is sent, after `_over`; `_sent` is false exactly while nothing of it
    can be in the log."""

    def __init__(self, partition_id: int, decide: Decide[D], deadline_seconds: float) -> None:
        super().__init__()
        self._ends_at = asyncio.get_running_loop().time() + deadline_seconds
        self._partition_id = partition_id
        self._decide = decide
        self._deadline_seconds = deadline_seconds
        self._ended = asyncio.Event()
        self._over = False
        self._sent = False
        self._deciding: asyncio.Timeout | None = None
        self._values: list[D] = []  # of the last attempt
        self._committed: Committed | None = None
        self._error: BaseException | None = None

    def is_expired(self, now_seconds: float, default_seconds: float | None) -> bool:
        """By the loop's clock, which nobody sets, and by nothing else."""
        return self._over or asyncio.get_running_loop().time() >= self._ends_at

    def partition_id(self, num_partitions: int) -> int:
        """As given."""
        return self._partition_id

    async def execute(self, builder: TransactionBuilder) -> bool:
        """Ask for a decision; it is to be appended when it has a payload."""
        if self._over:  # this attempt was waiting for the partition or the application when the end came
            return False
        try:
            async with asyncio.timeout(None) as deciding:
                self._deciding = deciding
                self._values = [await settle(self._decide(builder))]
        except TimeoutError:
            if deciding.expired():  # the end came
                return False
            raise
        finally:
            self._deciding = None
        return builder.data is not None

    def sends(self) -> bool:
        """Asked when nothing is to be waited for before the sending; False when it comes too late for it."""
        self._sent = not self._over
        return self._sent

    def resolved(self, attempt: PendingAppend) -> None:
        """What came of an attempt, before anybody else is informed."""
        if attempt.committed:
            self._committed = Committed(attempt.partition_id, attempt.transaction_id)
        elif attempt.outcome is Outcome.FAILED:
            self._sent = False

    def on_completion(self, committed: bool) -> None:
        """In the log, or nothing was to be appended."""
        self._ended.set()

    def on_expiration(self) -> None:
        """Certainly not in the log."""
        self._fail(self._too_late())

    def on_exception(self, error: BaseException) -> None:
        """As it says."""
        self._fail(error)

    def _fail(self, error: BaseException) -> None:
        self._error = error
        self._ended.set()

    async def result(
        self, submission: Awaitable[None], wait_applied: Callable[[int, int], Awaitable[None]]
    ) -> Transacted[D]:
        """See `WaltzClient.transact`."""
        try:
            async with asyncio.timeout(self._deadline_seconds):
                await submission
                await self._ended.wait()
                if self._error is not None:
                    raise self._error
                if self._committed is not None:
                    await self._applied(wait_applied, self._committed)
        except TimeoutError as error:
            if error is self._error:  # it is the decision's own
                raise
            raise self._too_late() from None
        finally:
            self._over = True
            if self._deciding is not None:  # in a retry worker, which others wait for
                self._deciding.reschedule(0.0)
        return Transacted(self._values[0], self._committed)

    async def _applied(
        self, wait_applied: Callable[[int, int], Awaitable[None]], committed: Committed
    ) -> None:
        try:
            await wait_applied(committed.partition_id, committed.transaction_id)
        except WaltzClientError as error:
            raise NotAppliedError(committed, str(error)) from error

    def _too_late(self) -> WaltzClientError:
        within = f"within {self._deadline_seconds:g} s"
        if self._committed is not None:
            return NotAppliedError(self._committed, f"not {within}")
        if self._sent:
            return OutcomeUnknownError(
                f"partition {self._partition_id}: the transaction has no outcome {within}",
                partition_id=self._partition_id,
            )
        return DeadlineExceededError(
            f"partition {self._partition_id}: the transaction could not be sent {within}",
            partition_id=self._partition_id,
        )
