"""Applies committed transactions through the application's callbacks, one partition, in id order.

The applier is a reader like any other: its buffer is bounded, it may lag behind the stream, and it never
holds up outcomes. A callback that raises is reported through `uncaught_exception` and called again with the
same transaction after a growing, spread delay (10 ms to 10 s); neither the connection nor any other partition
notices. A StopApplyingError is reported the same way and ends the applier.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

from waltz_client._internal.arguments import LAST_ID, whole_number
from waltz_client._internal.observers import Observers
from waltz_client._internal.raised import as_exception, reportable
from waltz_client._internal.stream.feed_cursor import FeedCursor
from waltz_client._internal.stream.readers import Readers
from waltz_client.callbacks import WaltzClientCallbacks
from waltz_client.errors import ClientAheadError, ClientClosedError, StopApplyingError, UsageError
from waltz_client.transaction import FeedFields, Transaction
from waltz_protocol.backoff import Backoff, Random

log = logging.getLogger(__name__)

T = TypeVar("T")

APPLY_BATCH = 64
APPLY_RETRY_INITIAL_SECONDS = 0.01
APPLY_RETRY_MAX_SECONDS = 10.0
LEAVING_SECONDS = 30.0
"""What a callback has to return after it was cancelled, before another applier of the partition calls the
next one."""


async def settle(value: T | Awaitable[T]) -> T:
    """The value of a callback that may be a plain function or a coroutine function."""
    if inspect.isawaitable(value):
        return await value
    return value


class Applier:
    """Delivers one partition to the callbacks. Owner: its task (`run`).

    Invariants: `applied` is the id of the last transaction for which `apply_transaction` returned (it
    starts at what the application says); `apply_transaction` is never concurrent with itself for one
    partition.
    """

    def __init__(
        self,
        readers: Readers,
        callbacks: WaltzClientCallbacks,
        fetch: Callable[[int, int], Awaitable[bytes]],
        random: Random,
        capacity: int,
        observers: Observers | None = None,
        earlier: Sequence[asyncio.Task[None]] = (),
    ) -> None:
        """`earlier`: of appliers of this partition that were cancelled, and may be in a callback yet."""
        self.applied: int | None = None
        self.on_committed: dict[int, Callable[[], Awaitable[None]]] = {}
        self.on_applied: dict[int, Callable[[], Awaitable[None]]] = {}
        self._reporting = 0  # callbacks of contexts under way
        self._readers = readers
        self._partition_id = readers.partition_id
        self._about = {"partition": readers.partition_id}
        self._callbacks = callbacks
        self._fetch = fetch
        self._random = random
        self._capacity = capacity
        self._observers = observers
        self._earlier = earlier
        self._mark: asyncio.Future[int] | None = None
        self._ready = asyncio.Event()
        self._waiters: list[tuple[int, asyncio.Future[None]]] = []
        self._stopped: Exception | None = None

    async def initial_mark(self) -> int:
        """What the application has applied, for the first mount; -1 when a callback has stopped it: the
        partition takes appends all the same. Raises what else the callback raised."""
        try:
            return await self._ask_mark()
        except StopApplyingError:
            return -1

    async def _ask_mark(self) -> int:
        """The application's mark, asked once, however many ask here. Raises what the callback raised."""
        if self._mark is None:
            if self._stopped is not None:
                raise self._stopped
            self._mark = asyncio.get_running_loop().create_future()
            try:
                if self._earlier:
                    await self._wait_for_earlier()
                try:
                    given = await settle(self._callbacks.client_high_water_mark(self._partition_id))
                except Exception:
                    raise
                except BaseException as error:
                    raise reportable(error) from error
                mark = whole_number("what client_high_water_mark returns", given)
                if not -1 <= mark <= LAST_ID:
                    raise UsageError(f"client_high_water_mark returned {mark}, not an id or -1")
            except BaseException as error:
                future, self._mark = self._mark, None
                if isinstance(error, Exception):
                    future.set_exception(error)
                    future.exception()
                else:
                    future.cancel()
                raise
            self.applied = mark
            self._wake(mark)
            self._mark.set_result(mark)
        return await asyncio.shield(self._mark)

    async def _wait_for_earlier(self) -> None:
        """Callbacks of one partition are not concurrent. A callback that waits for what comes after it would
        wait for itself: it is left alone after `LEAVING_SECONDS`."""
        _, left = await asyncio.wait(self._earlier, timeout=LEAVING_SECONDS)
        self._earlier = ()
        if left:
            log.error(
                "partition %d: a callback that was cancelled has not returned for %g s; it is applied again next to it",
                self._partition_id,
                LEAVING_SECONDS,
                extra=self._about,
            )

    def is_stopped(self) -> bool:
        """Whether nothing more is to be applied."""
        return self._stopped is not None

    def stop(self, error: Exception) -> None:
        """Apply nothing more; whoever waits for the application gets this error. The owner cancels
        `run` as well."""
        self._stopped = error
        waiters, self._waiters = self._waiters, []
        for _, future in waiters:
            if not future.done():
                future.set_exception(error)

    async def run(self) -> None:
        """Apply until cancelled, or until a callback stops it."""
        await self._run()
        await self.report_committed()

    async def _run(self) -> None:
        backoff = Backoff(APPLY_RETRY_INITIAL_SECONDS, APPLY_RETRY_MAX_SECONDS, self._random)
        while self.applied is None:
            try:
                await self._ask_mark()
            except StopApplyingError as error:
                log.error("partition %d: it is not applied: %s", self._partition_id, error, extra=self._about)
                self.stop(error)
                return
            except Exception:
                if self._stopped is not None:  # the client was closed, nobody is asked any longer
                    return
                log.exception(
                    "partition %d: client_high_water_mark raised", self._partition_id, extra=self._about
                )
                await asyncio.sleep(backoff.next_seconds())
        while True:
            cursor = FeedCursor(self._partition_id, self.applied, self._capacity, self._ready.set)
            self._readers.add(cursor)
            try:
                await self._follow(cursor)
            finally:
                self._readers.remove(cursor)
            if self.is_stopped():
                return
            # The reader ended with an error: the client is ahead of the log, or a query failed. Try again,
            # slowly.
            await asyncio.sleep(1.0)

    async def _follow(self, cursor: FeedCursor) -> None:
        while not self.is_stopped():
            fields = cursor.take_at_most(APPLY_BATCH)
            if not fields:
                if cursor.error is not None:
                    level = logging.ERROR if isinstance(cursor.error, ClientAheadError) else logging.WARNING
                    log.log(
                        level,
                        "partition %d: applying was interrupted: %s",
                        self._partition_id,
                        cursor.error,
                        extra=self._about,
                    )
                    return
                self._ready.clear()
                self._readers.starves(cursor)
                await self._ready.wait()
                continue
            if cursor.drained:
                self._readers.drained(cursor)
            for one in fields:
                await self._apply(one)
                if self.is_stopped():
                    return
            await asyncio.sleep(0)

    async def _apply(self, fields: FeedFields) -> None:
        txid = fields[4]
        committed = self.on_committed.pop(txid, None)
        if committed is not None:
            await self._inform(committed)
        transaction = Transaction(fields, self._fetch)
        backoff: Backoff | None = None
        while True:
            try:
                if self._observers is None:
                    await settle(self._callbacks.apply_transaction(transaction))
                else:
                    await self._observed(self._observers, transaction)
                break
            except BaseException as error:
                failure = reportable(error)
                if self.is_stopped() and isinstance(failure, ClientClosedError):
                    return  # an orderly end: what the function has asked the client for was refused
                await self._report(txid, failure)
                if isinstance(failure, StopApplyingError):
                    self.stop(failure)
                if self.is_stopped():
                    return
                if backoff is None:
                    backoff = Backoff(APPLY_RETRY_INITIAL_SECONDS, APPLY_RETRY_MAX_SECONDS, self._random)
                await asyncio.sleep(backoff.next_seconds())
        self.applied = txid
        self._wake(txid)
        applied = self.on_applied.pop(txid, None)
        if applied is not None:
            await self._inform(applied)

    async def _observed(self, observers: Observers, transaction: Transaction) -> None:
        txid = transaction.transaction_id
        failure: Exception | None = None
        started = observers.apply_started(self._partition_id, txid)
        try:
            await settle(self._callbacks.apply_transaction(transaction))
        except BaseException as error:
            failure = as_exception(error)
            raise
        finally:
            observers.apply_ended(started, self._partition_id, txid, failure)

    async def _report(self, txid: int, error: Exception) -> None:
        try:
            await settle(self._callbacks.uncaught_exception(self._partition_id, txid, error))
        except BaseException as raised:
            reportable(raised)
            log.exception(
                "partition %d: uncaught_exception raised at transaction %d",
                self._partition_id,
                txid,
                extra={"partition": self._partition_id, "transaction": txid},
            )

    async def report_committed(self) -> None:
        """The end, before everything was applied: at least say what is committed, in order."""
        while self.on_committed:
            await self._inform(self.on_committed.pop(min(self.on_committed)))

    async def _inform(self, callback: Callable[[], Awaitable[None]]) -> None:
        self._reporting += 1
        try:
            await callback()
        finally:
            self._reporting -= 1

    # -- waiting for the application -------------------------------------------------------------------------

    @property
    def owes(self) -> bool:
        """A context is still to be informed of what became of it, or is being informed."""
        return bool(self._reporting or self.on_committed or (self.on_applied and self._stopped is None))

    @property
    def unapplied(self) -> int:
        """Own committed transactions that the application has not applied yet."""
        return len(self.on_applied)

    def _wake(self, applied: int) -> None:
        if self._waiters:
            due = [future for mark, future in self._waiters if mark <= applied]
            self._waiters = [entry for entry in self._waiters if entry[0] > applied]
            for future in due:
                if not future.done():
                    future.set_result(None)

    async def wait_applied(self, mark: int) -> None:
        """Until the application has applied `mark`; the error of `stop`."""
        if self._stopped is not None:
            raise self._stopped
        if self.applied is not None and self.applied >= mark:
            return
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        entry = (mark, future)
        self._waiters.append(entry)
        try:
            await future
        finally:
            if entry in self._waiters:
                self._waiters.remove(entry)

    async def wait_next(self) -> None:
        """Until one more transaction has been applied."""
        await self.wait_applied((self.applied if self.applied is not None else -1) + 1)
