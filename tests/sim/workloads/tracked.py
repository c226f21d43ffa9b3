"""A client whose every call is written into the history: what workloads use in place of a bare
`WaltzClient`."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager

from tests.sim.checkers.history import AppendOp, History, Outcome, Violation
from tests.sim.cluster.access import ClusterAccess
from tests.sim.kernel.process import current
from waltz_client import (
    Append,
    AppendError,
    ClientAheadError,
    Committed,
    DeadlineExceededError,
    FeedTransaction,
    LockConflictError,
    PendingAppend,
    TransactionNotFoundError,
    WaltzClient,
    WaltzClientCallbacks,
    WaltzClientError,
)
from waltz_client import Outcome as ClientOutcome
from waltz_cluster.errors import ClusterError

REOPEN_SECONDS = 0.5


class TrackedClient:
    """Calls of one client object. `ops`: its appends, which must all have an outcome once it is closed."""

    def __init__(self, client: WaltzClient, history: History, process: str) -> None:
        self.client = client
        self.history = history
        self.process = process
        self.name = history.client_opened(process, client.client_id)
        self.ops: list[AppendOp] = []
        self.closing = False
        self._seen: dict[int, int] = {}
        self._view: dict[int, int] = {}
        """Partition -> what the outcomes of this client's appends say it has received: rule E1 defers them to
        their feed."""

    # -- appends ---------------------------------------------------------------------------------------------

    async def append(
        self, op: AppendOp, *, deadline_seconds: float | None = None, max_attempts: int | None = None
    ) -> bool:
        """Append what was invoked; whether it is certainly committed. Errors of the append are noted, not
        raised."""
        op.deadline = deadline_seconds
        self._begin(op)
        try:
            done = await self.client.append(
                partition=op.partition,
                data=op.data,
                header=op.header,
                write_locks=op.write_locks,
                read_locks=op.read_locks,
                append_locks=op.append_locks,
                as_of=op.as_of,
                deadline_seconds=deadline_seconds,
                max_attempts=max_attempts,
            )
        except asyncio.CancelledError:
            self.history.unknown(op, "cancelled")
            raise
        except WaltzClientError as error:
            self.note_error(op, error)
            return False
        self.note_committed(op, done)
        return True

    def _begin(self, op: AppendOp, *, at_once: bool = True) -> None:
        """It is handed to the client, which takes what it has received for the caller's view unless the
        caller says it."""
        self.ops.append(op)
        op.client = self.name
        if op.as_of is None:
            op.view_floor = self._view.get(op.partition, -1)
            op.sent_at_once = at_once and self._can_send(op.partition)

    def _can_send(self, partition: int) -> bool:
        """Whether an append would be sent now: then waiting for that ends without having waited."""
        waiting = self.client.writable(partition)
        try:
            future = waiting.send(None)
            future.cancel()  # it is this waiter's own
            waiting.throw(asyncio.CancelledError())
        except StopIteration:
            return True
        except (WaltzClientError, asyncio.CancelledError):
            return False
        return False

    def _has_received(self, partition: int, mark: int) -> None:
        self._view[partition] = max(mark, self._view.get(partition, -1))

    async def writable(self, partition: int, deadline_seconds: float = 10.0) -> bool:
        """Wait until an append can be sent; False when it cannot in time."""
        try:
            await self.client.writable(partition, deadline_seconds=deadline_seconds)
        except WaltzClientError as error:
            self.note_client_ahead(error)
            return False
        return True

    def append_nowait(self, op: AppendOp) -> bool:
        """Send what was invoked, without waiting; whether it was sent."""
        self._begin(op)
        try:
            self.client.append_nowait(
                partition=op.partition,
                data=op.data,
                header=op.header,
                write_locks=op.write_locks,
                read_locks=op.read_locks,
                append_locks=op.append_locks,
                as_of=op.as_of,
                context=op,
                on_done=self._on_done,
            )
        except WaltzClientError as error:
            self.note_error(op, error)
            return False
        return True

    def _on_done(self, pending: PendingAppend) -> None:
        op = pending.context
        if not isinstance(op, AppendOp):
            raise TypeError("the context of an append is its operation")
        if pending.committed:
            self.note_committed(op, pending.result())
        elif pending.error is not None:
            self.note_error(op, pending.error)

    async def append_many(
        self, ops: Sequence[AppendOp], *, deadline_seconds: float | None = None
    ) -> list[AppendOp]:
        """Append what was invoked, in a pipeline; the committed ones."""
        for op in ops:
            self._begin(op, at_once=False)
            op.deadline = deadline_seconds
        taken = 0

        def appends() -> Iterable[Append]:
            nonlocal taken
            for op in ops:
                taken += 1
                locks = (op.write_locks, op.read_locks, op.append_locks)
                yield Append(op.partition, op.data, op.header, *locks, op.as_of, op)

        def on_result(append: Append, result: Committed | AppendError) -> None:
            op = append.context
            if not isinstance(op, AppendOp):
                raise TypeError("the context of an append is its operation")
            if isinstance(result, Committed):
                self.note_committed(op, result)
            else:
                self.note_error(op, result)

        try:
            await self.client.append_many(appends(), on_result=on_result, deadline_seconds=deadline_seconds)
        except asyncio.CancelledError:
            self._leave(ops, taken, "cancelled")
            raise
        except WaltzClientError as error:
            self._leave(ops, taken, type(error).__name__)
        else:
            for op in ops[taken:]:
                self.history.failed(op, "not taken")
        return [op for op in ops if op.outcome is Outcome.COMMITTED]

    def _leave(self, ops: Sequence[AppendOp], taken: int, why: str) -> None:
        for index, op in enumerate(ops):
            if op.outcome is not Outcome.PENDING:
                continue
            if index < taken:
                self.history.unknown(op, why)
            else:
                self.history.failed(op, why)

    def note_committed(self, op: AppendOp, done: Committed) -> None:
        """The client says that it is committed."""
        if done.partition_id != op.partition:
            self.history.report(
                Violation(
                    "acknowledged",
                    f"append {op.uid} to {op.partition} got partition {done.partition_id}",
                )
            )
        self.history.committed(op, done.transaction_id)
        self.saw(op.partition, done.transaction_id)
        self._has_received(op.partition, done.transaction_id)

    def note_error(self, op: AppendOp, error: Exception) -> None:
        """The client says that it is not committed, or that it does not know."""
        self.note_client_ahead(error)
        kind = type(error).__name__
        if isinstance(error, LockConflictError):
            self.history.failed(op, kind, error.conflicting_high_water_mark)
            self._has_received(op.partition, error.conflicting_high_water_mark)
        elif isinstance(error, AppendError) and error.outcome is ClientOutcome.UNKNOWN:
            self._check_not_early(op, kind)
            self.history.unknown(op, kind)
        else:
            if isinstance(error, DeadlineExceededError):
                self._check_not_early(op, kind)
            self.history.failed(op, kind)

    def _check_not_early(self, op: AppendOp, kind: str) -> None:
        """Only a deadline or a close leaves an outcome open. Violation: `outcome_early`."""
        waited = self.history.now() - op.invoked_at
        if not self.closing and (op.deadline is None or waited < op.deadline - 1e-6):
            text = f"{self.name}: append {op.uid} ended as {kind} after {waited:.3f} s of {op.deadline} s"
            self.history.report(Violation("outcome_early", text))

    def note_client_ahead(self, error: BaseException | None) -> None:
        """No log here ever loses a committed transaction, so nobody can be ahead of it."""
        while error is not None:
            if isinstance(error, ClientAheadError):
                self.history.report(Violation("client_ahead", f"{self.name}: {error}"))
                return
            error = error.__cause__

    # -- reads -----------------------------------------------------------------------------------------------

    def seen(self, partition: int) -> int:
        """The largest id that this client was shown as committed."""
        return self._seen.get(partition, -1)

    def saw(self, partition: int, transaction_id: int) -> None:
        """This client was shown a committed transaction."""
        if transaction_id > self._seen.get(partition, -1):
            self._seen[partition] = transaction_id

    async def high_water_mark(self, partition: int, deadline_seconds: float = 10.0) -> int | None:
        """The mark; None when there was no answer."""
        history = self.history
        own, floor, invoked = self._seen.get(partition, -1), history.book.mark(partition), history.tick()
        invoked_at = history.now()
        try:
            value = await self.client.high_water_mark(partition, deadline_seconds=deadline_seconds)
        except WaltzClientError as error:
            self.note_client_ahead(error)
            return None
        history.mark_read(self.process, self.name, partition, invoked, floor, own, value, invoked_at)
        self.saw(partition, value)
        return value

    async def get_data(
        self, partition: int, transaction_id: int, deadline_seconds: float | None = 30.0
    ) -> bytes | None:
        """The payload; None when there was no answer in time, or no such transaction (yet)."""
        own = self._seen.get(partition, -1)
        try:
            data = await self.client.get_data(partition, transaction_id, deadline_seconds=deadline_seconds)
        except TransactionNotFoundError as error:
            if transaction_id <= own:
                self.history.report(
                    Violation(
                        "own_reads",
                        f"{self.name}: was shown {own} in partition {partition}, and gets: {error}",
                    )
                )
            return None
        except WaltzClientError as error:
            self.note_client_ahead(error)
            return None
        self.history.data_read(partition, transaction_id, data, self.name)
        return data

    async def follow(
        self,
        after: Mapping[int, int | None],
        take: Callable[[FeedTransaction], Awaitable[None] | None],
        *,
        with_data: bool = True,
        until: Mapping[int, int] | None = None,
        in_batches: bool = False,
    ) -> None:
        """Hand committed transactions of these partitions to `take`, from after these ids until cancelled
        (or `until`)."""
        name = f"{self.name}/feed-{len(self.history.feeds)}"
        logs = {
            partition: self.history.feed(name, partition, place, self._seen.get(partition, -1))
            for partition, place in after.items()
        }

        process, reading = current(), True
        for partition, log in logs.items():
            log.until = None if until is None else until[partition]
            log.listening = lambda: process is None or not process.paused
            log.gone = lambda: not reading or (process is not None and not process.alive)

        async def deliver(transaction: FeedTransaction) -> None:
            partition = transaction.partition_id
            if partition not in logs:
                self.history.report(
                    Violation("feed_order", f"{name}: partition {partition} was not asked for")
                )
                return
            logs[partition].delivered(
                transaction.transaction_id,
                transaction.req_id,
                transaction.header,
                transaction.data,
                with_data,
            )
            self.saw(partition, transaction.transaction_id)
            waiting = take(transaction)
            if waiting is not None:
                for log in logs.values():
                    log.busy = True
                await waiting
                for log in logs.values():
                    log.busy = False

        try:
            async with self.client.feed(list(after), after=after, with_data=with_data, until=until) as feed:
                if in_batches:
                    async for batch in feed.batches():
                        for transaction in batch:
                            await deliver(transaction)
                else:
                    async for transaction in feed:
                        await deliver(transaction)
        except WaltzClientError as error:
            self.note_client_ahead(error)
            raise
        finally:
            reading = False
        if until is None:
            self.history.report(Violation("feed_end", f"{name}: a feed without an end ended"))
        else:
            for partition, log in logs.items():
                log.ended(until[partition])

    # -- end -------------------------------------------------------------------------------------------------

    def check_ended(self, ops: Sequence[AppendOp]) -> None:
        """The client was flushed or closed: none of these may be left without an outcome. Violation:
        `outcome_given`."""
        for op in ops:
            if op.outcome is Outcome.PENDING:
                self.history.report(Violation("outcome_given", f"{self.name}: append {op.uid} got no answer"))


@asynccontextmanager
async def open_client(
    access: ClusterAccess,
    process: str,
    callbacks: WaltzClientCallbacks | None = None,
    *,
    least_version: int = 0,
    **settings: object,
) -> AsyncIterator[TrackedClient]:
    """A client of this process; tries again while ZooKeeper does not answer."""
    while True:
        client = access.new_client(process, callbacks, least_version=least_version, **settings)
        try:
            await client.__aenter__()
            break
        except ClusterError:
            await asyncio.sleep(REOPEN_SECONDS)
    tracked = TrackedClient(client, access.history, process)
    try:
        yield tracked
    finally:
        tracked.closing = True
        await client.close()
    await asyncio.sleep(0)  # those who were woken by the end run first
    tracked.check_ended(tracked.ops)
