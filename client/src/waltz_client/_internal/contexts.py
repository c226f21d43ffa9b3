"""Transaction contexts: submit, retry, expire (docs/applications.md).

An attempt waits for the mount (and for the application to have caught up with it), takes the view, runs
`execute` and sends. One whose locks another context of this client has on the way is not sent, but made again
when that has an outcome (`append.own_locks`). A certain failure leads to another attempt: after a growing,
spread delay, not before the application has applied the conflicting transaction, not after expiry, and not
beyond the attempt limit. Neither an unknown outcome is retried nor what its server never takes.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

from waltz_client._internal.append.own_locks import OwnLocks
from waltz_client._internal.append.pending import PendingAppend
from waltz_client._internal.append.request import append_request
from waltz_client._internal.append.transaction_monitor import Cause
from waltz_client._internal.applier import Applier, settle
from waltz_client._internal.life import ClientLife
from waltz_client._internal.observers import Observers
from waltz_client._internal.partitions import Partitions
from waltz_client._internal.raised import is_exit, raisable, reportable
from waltz_client._internal.stream.partition import StreamPartition
from waltz_client._internal.transact import D, Decide, Transact
from waltz_client.context import TransactionBuilder, TransactionContext
from waltz_client.errors import (
    AppendFailedError,
    AttemptsExhaustedError,
    ClientClosedError,
    PartitionUnavailableError,
    WaltzClientError,
)
from waltz_client.settings import ClientSettings
from waltz_client.transaction import Transacted
from waltz_protocol.backoff import Backoff, Random

log = logging.getLogger(__name__)

CONFLICTS_AT_ONCE = 8
CONFLICT_PAUSE_SECONDS = 0.01
"""A context that has lost a lock is tried again at once, so often, and then after this pause at most: one
that waits for longer loses to those who do not. One that was sent without regard to others of this client, of
which any number may be on their way, is tried again at once only the first time."""
ENDINGS_SECONDS = 5.0
"""How long a close waits for the last callbacks of contexts."""


class Submission:
    """One submitted context on its way to its end."""

    __slots__ = ("after", "attempts", "backoff", "conflict", "conflicts", "context", "ended", "partition_id")

    def __init__(self, context: TransactionContext, backoff: Backoff) -> None:
        self.context = context
        self.backoff = backoff
        self.attempts = 0
        self.conflict: int | None = None
        self.conflicts = 0
        self.after = -1  # the application has to have applied this before the next decision
        self.ended = False
        self.partition_id: int | None = None  # of its latest attempt


def _pause_after_conflict(submission: Submission, keeps_turn: bool) -> float:
    """Seconds. What it lost to has been received, and a server of ours keeps its turn for a moment."""
    submission.conflicts += 1
    if submission.conflicts <= (CONFLICTS_AT_ONCE if keeps_turn else 1):
        return 0.0
    pause = submission.backoff.next_seconds()
    return min(pause, CONFLICT_PAUSE_SECONDS) if keeps_turn else pause


class Submissions:
    """All contexts of a client. Owner: the client; callbacks of one context are never concurrent.

    Invariant: each context ends exactly once: `on_completion`, `on_expiration` or `on_exception`.
    """

    def __init__(
        self,
        settings: ClientSettings,
        partitions: Partitions,
        life: ClientLife,
        random: Random,
        wall_clock: Callable[[], float],
        observers: Observers | None = None,
    ) -> None:
        self._settings = settings
        self._partitions = partitions
        self._life = life
        self._random = random
        self._wall_clock = wall_clock
        self._observers = observers
        self._retries: asyncio.Queue[Submission] = asyncio.Queue()
        self._retrying = 0
        self._delayed: dict[Submission, asyncio.TimerHandle] = {}
        self._workers: list[asyncio.Task[None]] = []
        self._endings: set[asyncio.Task[None]] = set()
        self._own_locks: dict[int, OwnLocks[Submission]] = {}
        self._turns: dict[asyncio.Task[None], Submission] = {}

    @property
    def retrying(self) -> int:
        """Contexts between two attempts."""
        return self._retrying

    @property
    def busy(self) -> bool:
        """A context has not ended: it waits for another attempt, or for being applied, or its end is being
        reported."""
        appliers = self._partitions.appliers.values()
        return bool(self._retrying or self._endings or any(applier.owes for applier in appliers))

    def start(self) -> None:
        """Start the retry workers (`client.numTransactionRetryThreads`)."""
        for number in range(self._settings.retry_workers):
            self._workers.append(self._life.spawn(self._retry_worker(), f"retry worker {number}"))

    async def submit(self, context: TransactionContext) -> None:
        """First attempt; returns once it is sent (or the context ended). Its error goes to on_exception and
        is raised."""
        await self._attempt(self._submission(context))

    def _submission(self, context: TransactionContext) -> Submission:
        settings = self._settings
        backoff = Backoff(
            settings.retry_initial_backoff_ms / 1000, settings.retry_max_backoff_ms / 1000, self._random
        )
        return Submission(context, backoff)

    async def transact(self, partition_id: int, decide: Decide[D], deadline_seconds: float) -> Transacted[D]:
        """See `WaltzClient.transact`."""
        context = Transact(partition_id, decide, deadline_seconds)
        submission = self._submission(context)
        try:
            return await context.result(self._attempt(submission), self._partitions.wait_applied)
        finally:
            locks = self._own_locks.get(partition_id)
            if locks is not None and locks.give_up(submission):  # its turn may be far away
                submission.ended = True
                self._retrying -= 1

    # -- one attempt -----------------------------------------------------------------------------------------

    async def _attempt(self, submission: Submission) -> None:
        context = submission.context
        submission.attempts += 1
        if self._expired(context):
            await self._last(submission, context.on_expiration)
            return
        try:
            await self._execute_and_send(submission)
        except BaseException as error:
            self._withdraw(submission)  # also when its caller was cancelled: nothing was sent
            failure = raisable(error)
            await self._last(submission, lambda: context.on_exception(failure))
            raise failure from failure.__cause__

    def _expired(self, context: TransactionContext) -> bool:
        limit_ms = self._settings.transaction_expiration_ms
        return context.is_expired(self._wall_clock(), limit_ms / 1000 if limit_ms else None)

    async def _execute_and_send(self, submission: Submission) -> None:
        partitions = self._partitions
        context = submission.context
        partition_id = partitions.check(context.partition_id(partitions.count))
        if submission.partition_id != partition_id:
            self._withdraw(submission)
            submission.partition_id = partition_id
            submission.conflict, submission.after = None, -1  # ids of the one before
        try:
            async with asyncio.timeout(self._settings.mount_wait_ms / 1000):
                partition = partitions.use(partition_id)
                await partition.wait_mounted()
                await self._wait_caught_up(partition, submission)
                view = partition.view
        except TimeoutError:
            raise PartitionUnavailableError(self._unavailable(partition_id)) from None
        builder = TransactionBuilder(view)
        if not await settle(context.execute(builder)):
            await self._last(submission, lambda: context.on_completion(False))
            return
        request = append_request(
            self._settings,
            partition_id,
            builder.payload(),
            builder.header,
            builder.write_locks,
            builder.read_locks,
            builder.append_locks,
            view,
        )
        locks = self._own_locks.get(partition_id)
        if locks is None:
            locks = self._own_locks[partition_id] = OwnLocks(self._has_its_turn)
        # who calls `transact` waits itself
        most = None if isinstance(context, Transact) else self._settings.max_concurrent_transactions
        if not locks.enter(submission, request.write_locks, request.read_locks, request.append_locks, most):
            submission.attempts -= 1
            submission.conflict = None
            self._retrying += 1
            return
        called_at = asyncio.get_running_loop().time()
        try:
            async with asyncio.timeout(self._settings.mount_wait_ms / 1000):
                await partition.wait_writable()
        except TimeoutError:
            raise PartitionUnavailableError(self._unavailable(partition_id)) from None
        if isinstance(context, Transact) and not context.sends():
            await self._last(submission, context.on_expiration)
            return
        submission.conflict = None
        handle = PendingAppend(partition_id, self._resolved, submission, called_at)
        partition.send_append(handle, request)

    async def _wait_caught_up(self, partition: StreamPartition, submission: Submission) -> None:
        applier = self._partitions.appliers.get(partition.partition_id)
        if applier is None:
            return
        conflict = -1 if submission.conflict is None else submission.conflict
        await applier.wait_applied(max(partition.ready_mark, conflict, submission.after))
        while applier.unapplied >= self._settings.max_concurrent_transactions:
            await applier.wait_next()

    def _unavailable(self, partition_id: int) -> str:
        seconds, partitions = self._settings.mount_wait_ms / 1000, self._partitions
        partition, applier = partitions.streams.get(partition_id), partitions.appliers.get(partition_id)
        why = partitions.why_unavailable(partition_id)
        if partition is not None and applier is not None and partition.can_send:
            applied = -1 if applier.applied is None else applier.applied
            why = (
                f"the callbacks have applied it up to transaction {applied}, and it was received up to "
                f"transaction {partition.received}"
            )
        return f"partition {partition_id} was not available within {seconds:g} s: {why}"

    # -- outcomes --------------------------------------------------------------------------------------------

    def _resolved(self, handle: PendingAppend) -> None:
        submission = handle.context
        if not isinstance(submission, Submission):
            return
        context = submission.context
        if isinstance(context, Transact):
            context.resolved(handle)
        locks = self._own_locks[handle.partition_id]
        if handle.committed:
            locks.settled(submission, handle.transaction_id)
            self._committed(handle.partition_id, handle.transaction_id, context)
            return
        error = handle.error
        if error is None:
            return
        conflicted = handle.cause is Cause.LOCK_CONFLICT
        limit = self._settings.max_transaction_attempts
        if not error.retriable or self._settings.retry_workers == 0:
            locks.settled(submission)
            self._end(handle.partition_id, context, error, conflicted)
        elif limit and submission.attempts >= limit:
            exhausted = AttemptsExhaustedError(
                f"transaction failed {submission.attempts} times, the last time: {error}",
                partition_id=handle.partition_id,
            )
            exhausted.__cause__ = error
            locks.settled(submission)
            self._end(handle.partition_id, context, exhausted, conflicted)
        else:
            if self._observers is not None:
                self._observers.append_retried(handle.partition_id, error)
            submission.conflict = handle.mark if conflicted else None
            self._retrying += 1
            if conflicted:
                delay = _pause_after_conflict(submission, locks.lost(submission))
            else:
                locks.settled(submission)
                delay = submission.backoff.next_seconds()
            if delay:
                loop = asyncio.get_running_loop()
                self._delayed[submission] = loop.call_later(delay, self._due, submission)
            else:
                self._due(submission)

    def _due(self, submission: Submission) -> None:
        self._delayed.pop(submission, None)
        self._retries.put_nowait(submission)

    def _committed(self, partition_id: int, transaction_id: int, context: TransactionContext) -> None:
        async def completed() -> None:
            await self._call(partition_id, lambda: context.on_completion(True))

        async def applied() -> None:
            await self._call(partition_id, context.on_application)

        applier = self._partitions.appliers.get(partition_id)
        if applier is not None and applier.is_stopped():
            self._spawn(completed(), "completion of a transaction that is not applied")
            return
        if applier is not None:
            applier.on_committed[transaction_id] = completed
            applier.on_applied[transaction_id] = applied
            return

        async def both() -> None:
            await completed()
            await applied()

        self._spawn(both(), "completion of a transaction")

    def _end(
        self, partition_id: int, context: TransactionContext, error: WaltzClientError, conflicted: bool
    ) -> None:
        async def ending() -> None:
            if conflicted:
                await self._call(partition_id, context.on_lock_failure)
            await self._call(partition_id, lambda: context.on_exception(error))

        self._spawn(ending(), "end of a transaction")

    def _spawn(self, coro: Coroutine[Any, Any, None], name: str) -> None:
        task = self._life.spawn(coro, name)
        self._endings.add(task)
        task.add_done_callback(self._endings.discard)

    async def _retry_worker(self) -> None:
        while not self._life.closed:
            await self._again(await self._retries.get())

    async def _again(self, submission: Submission) -> None:
        """Another attempt."""
        try:
            if submission.conflict is not None:
                await self._call(submission.partition_id, submission.context.on_lock_failure)
            await self._attempt(submission)
        except asyncio.CancelledError:
            self._abandon(submission)
            raise
        except BaseException as error:
            if is_exit(error):
                raise
            log.warning(
                "the retry of a transaction ended: %s",
                error,
                extra={"partition": submission.partition_id},
            )
        finally:
            self._retrying -= 1

    def _has_its_turn(self, submission: Submission, mark: int) -> None:
        """It waited for another context of this client; that takes nobody's place among the retries."""
        submission.after = mark
        task = self._life.spawn(self._again(submission), "turn of a transaction")
        self._turns[task] = submission
        task.add_done_callback(self._turns.pop)

    async def _call(self, partition_id: int | None, function: Callable[[], Awaitable[None] | None]) -> None:
        try:
            await settle(function())
        except BaseException as error:
            reportable(error)
            log.exception("a callback of a transaction context raised", extra={"partition": partition_id})

    async def _last(self, submission: Submission, function: Callable[[], Awaitable[None] | None]) -> None:
        self._withdraw(submission)
        if not submission.ended:
            submission.ended = True
            await self._call(submission.partition_id, function)

    def _withdraw(self, submission: Submission) -> None:
        """It waits for no lock, and nobody waits for its locks, any longer."""
        locks = None if submission.partition_id is None else self._own_locks.get(submission.partition_id)
        if locks is not None:
            locks.withdraw(submission)

    def _abandon(self, submission: Submission) -> None:
        error = AppendFailedError("the client was closed before another attempt", partition_id=-1)
        error.__cause__ = ClientClosedError("the client is closed")
        self._spawn(
            self._last(submission, lambda: submission.context.on_exception(error)), "end of a transaction"
        )

    def report_committed(self, applier: Applier) -> None:
        """The applier ends: contexts whose transaction it has not come to are informed that it is
        committed."""
        self._spawn(applier.report_committed(), "completion of transactions that were not applied")

    async def close(self) -> None:
        """End what waits for a retry (certainly not in the log), report what is committed, wait for endings
        under way."""
        for locks in self._own_locks.values():
            for submission in locks.dissolve():
                self._abandon(submission)
        turns = dict(self._turns)
        workers = [task for task in (*self._workers, *turns) if task is not asyncio.current_task()]
        for task in workers:
            task.cancel()
        if workers:
            await asyncio.wait(workers, timeout=ENDINGS_SECONDS)
        for task, submission in turns.items():
            if task.cancelled() and not submission.ended:  # it may not have begun
                self._abandon(submission)
        for timer in self._delayed.values():
            timer.cancel()
        for submission in self._delayed:
            self._abandon(submission)
        self._delayed.clear()
        while not self._retries.empty():
            self._abandon(self._retries.get_nowait())
        for applier in self._partitions.appliers.values():
            self.report_committed(applier)
        if self._endings:
            await asyncio.wait(set(self._endings), timeout=ENDINGS_SECONDS)
