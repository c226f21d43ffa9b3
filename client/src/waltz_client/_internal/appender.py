"""Appends of the plain face: one with an outcome, one without waiting, many in a pipeline."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Iterable
from typing import NamedTuple

from waltz_client._internal.append.pending import PendingAppend
from waltz_client._internal.append.request import AppendRequest, append_request
from waltz_client._internal.append.transaction_monitor import Cause
from waltz_client._internal.arguments import attempts as attempts_of
from waltz_client._internal.arguments import call_deadline, time_limit
from waltz_client._internal.life import ClientLife
from waltz_client._internal.observers import Observers
from waltz_client._internal.partitions import Partitions
from waltz_client._internal.producer import Producer
from waltz_client._internal.stream.partition import StreamPartition
from waltz_client.errors import (
    AppendError,
    AppendFailedError,
    AttemptsExhaustedError,
    DeadlineExceededError,
    LockConflictError,
    OutcomeUnknownError,
    PartitionUnavailableError,
    ProducerFencedError,
    RequestDeadlineError,
    SequenceInUseError,
    ServerOverloadedError,
    TransactionTooLargeError,
    UsageError,
    ViewAheadError,
    WaltzClientError,
    WindowFullError,
)
from waltz_client.settings import ClientSettings
from waltz_client.transaction import Committed
from waltz_protocol.backoff import Backoff, Random
from waltz_protocol.locks import LockId

YIELD_EVERY = 256
_FINAL = (
    LockConflictError,
    OutcomeUnknownError,
    SequenceInUseError,
    ProducerFencedError,
    TransactionTooLargeError,
)
"""No other attempt can help."""


class Append(NamedTuple):
    """One append of a batch; the fields mean what the parameters of `WaltzClient.append` mean."""

    partition: int
    data: bytes
    header: int = 0
    write_locks: Iterable[LockId] = ()
    read_locks: Iterable[LockId] = ()
    append_locks: Iterable[LockId] = ()
    as_of: int | None = None
    context: object = None
    """Anything; handed back with the result."""
    sequence: int | None = None


class Appender:
    """Stateless but for the partitions it works on."""

    def __init__(
        self,
        settings: ClientSettings,
        partitions: Partitions,
        life: ClientLife,
        random: Random,
        observers: Observers | None = None,
        producer: Producer | None = None,
    ) -> None:
        self._observers = observers
        self._producer = producer
        self._settings = settings
        self._partitions = partitions
        self._life = life
        self._random = random

    def _use(self, request: AppendRequest) -> StreamPartition:
        """Its partition, taking part in it; what no append of this client can be is refused."""
        producer = self._producer
        if producer is not None:
            if request.sequence is None:
                raise UsageError(
                    f"every append of the producer {producer.name} has a sequence number: append(..., sequence=n)"
                )
            producer.check(request.partition_id)
        elif request.sequence is not None:
            raise UsageError(
                "a sequence number needs the name of a producer: WaltzClient.connect(..., producer=name)"
            )
        return self._partitions.use(request.partition_id)

    # -- one -------------------------------------------------------------------------------------------------

    async def append(
        self, request: AppendRequest, deadline_seconds: float | None, max_attempts: int | None
    ) -> Committed:
        """See `WaltzClient.append`."""
        settings = self._settings
        seconds = call_deadline(deadline_seconds, settings.append_deadline_ms)
        limit = attempts_of(max_attempts, settings.append_max_attempts)
        deadline = asyncio.get_running_loop().time() + seconds
        backoff: Backoff | None = None
        attempts = 0
        last: AppendError | None = None
        while True:
            attempts += 1
            outcome, view = await self._attempt(request, deadline, seconds, last)
            if isinstance(outcome, Committed):
                return outcome
            if isinstance(outcome, LockConflictError) and outcome.conflicting_high_water_mark < view:
                raise ViewAheadError(  # the server's own check: no lock it knows can be that far back
                    partition_id=request.partition_id,
                    as_of=view,
                    high_water_mark=outcome.conflicting_high_water_mark,
                ) from outcome
            if isinstance(outcome, _FINAL):
                raise outcome
            if attempts == limit:
                raise AttemptsExhaustedError(
                    f"append to partition {request.partition_id} failed {attempts} times, the last time: {outcome}",
                    partition_id=request.partition_id,
                ) from outcome
            last = outcome
            if self._observers is not None:
                self._observers.append_retried(request.partition_id, outcome)
            if request.write_locks or request.read_locks:
                # The caller decided on the first view: with a newer one the retry would not see a conflict in
                # between.
                request = request._replace(as_of=view)
            if backoff is None:
                backoff = Backoff(
                    settings.retry_initial_backoff_ms / 1000,
                    settings.retry_max_backoff_ms / 1000,
                    self._random,
                )
            seconds_asked = (
                outcome.retry_after_ms / 1000 if isinstance(outcome, ServerOverloadedError) else 0.0
            )
            await self._life.pause(
                min(
                    max(backoff.next_seconds(), seconds_asked),
                    max(0.0, deadline - asyncio.get_running_loop().time()),
                )
            )

    async def _attempt(
        self, request: AppendRequest, deadline: float, seconds: float, last: AppendError | None
    ) -> tuple[Committed | AppendError, int]:
        """Outcome of one sending and the view it was sent with."""
        loop = asyncio.get_running_loop()
        called_at = loop.time()
        partition = self._use(request)
        if request.as_of is not None and request.as_of > self._partitions.known_mark(partition):
            await self._check_view(partition, request.as_of, deadline, seconds)
        if not partition.may_send:
            await self._wait_writable(partition, deadline, seconds, last)
        if loop.time() >= deadline:
            raise self._not_sent(partition, seconds, last) from last
        done: asyncio.Future[bool] = loop.create_future()  # True: resolved, False: the deadline came first

        def on_done(_: PendingAppend) -> None:
            if not done.done():
                done.set_result(True)

        handle = PendingAppend(request.partition_id, on_done, called_at=called_at)
        partition.send_append(handle, request)
        timer = loop.call_at(deadline, _expire, done)
        resolved = False
        try:
            resolved = await done
        finally:
            timer.cancel()
            handle.given_up = not resolved
        if not resolved:
            return handle.no_outcome(f"within {seconds:g} s"), handle.view
        if handle.committed:
            return Committed(request.partition_id, handle.mark), handle.view
        error = handle.error
        if error is None:
            raise RuntimeError("an append ended without an outcome")
        return error, handle.view

    async def _check_view(
        self, partition: StreamPartition, as_of: int, deadline: float, seconds: float
    ) -> None:
        """ViewAheadError, DeadlineExceededError."""
        left = max(0.0, deadline - asyncio.get_running_loop().time())
        try:
            await self._partitions.check_view(partition, as_of, left)
        except RequestDeadlineError as silent:
            raise DeadlineExceededError(
                f"append to partition {partition.partition_id} was not sent within {seconds:g} s: {silent}",
                partition_id=partition.partition_id,
            ) from silent

    async def _wait_writable(
        self, partition: StreamPartition, deadline: float, seconds: float, last: AppendError | None
    ) -> None:
        """Until the append can be sent; DeadlineExceededError."""
        try:
            async with asyncio.timeout_at(deadline):
                await partition.wait_writable()
        except TimeoutError:
            raise self._not_sent(partition, seconds, last) from last

    def _not_sent(
        self, partition: StreamPartition, seconds: float, last: AppendError | None
    ) -> DeadlineExceededError:
        partition_id = partition.partition_id
        if last is not None:
            reason = f"the last attempt: {last}"
        elif seconds <= 0:
            reason = "the deadline had passed at the call"
        elif partition.mounted:
            reason = "too many appends are on their way"
        else:
            reason = self._partitions.why_unavailable(partition_id)
        return DeadlineExceededError(
            f"append to partition {partition_id} was not sent within {seconds:g} s: {reason}",
            partition_id=partition_id,
        )

    # -- without waiting -------------------------------------------------------------------------------------

    def append_nowait(
        self, request: AppendRequest, context: object, on_done: Callable[[PendingAppend], object]
    ) -> PendingAppend:
        """See `WaltzClient.append_nowait`."""
        partition_id, as_of = request.partition_id, request.as_of
        partition = self._use(request)
        if as_of is not None and as_of > (known := self._partitions.known_mark(partition)):
            raise ViewAheadError(
                partition_id=partition_id,
                as_of=as_of,
                high_water_mark=known,
                detail=" as far as this client knows (high_water_mark() asks)",
            )
        if not partition.may_send_now:
            self._life.check_open()
            if not partition.mounted:
                raise PartitionUnavailableError(
                    f"partition {partition_id} is not available: {self._partitions.why_unavailable(partition_id)}"
                )
            raise WindowFullError(f"too many appends to partition {partition_id} are on their way")
        handle = PendingAppend(partition_id, on_done, context)
        partition.send_append(handle, request)
        return handle

    # -- many ------------------------------------------------------------------------------------------------

    async def append_many(
        self,
        appends: Iterable[Append],
        on_result: Callable[[Append, Committed | AppendError], object] | None,
        deadline_seconds: float | None,
    ) -> list[Committed | AppendError]:
        """See `WaltzClient.append_many`."""
        self._life.check_open()
        if deadline_seconds is not None:
            deadline_seconds = time_limit("deadline_seconds", deadline_seconds)
        batch = _Batch(on_result)
        loop = asyncio.get_running_loop()
        deadline = None if deadline_seconds is None else loop.time() + deadline_seconds
        try:
            async with asyncio.timeout_at(deadline) as limit:
                await self._send_all(appends, batch, math.inf if deadline is None else deadline)
                await batch.wait()
        except TimeoutError:
            if not limit.expired():  # of the caller's iterable or function
                batch.abandon()
                raise
            batch.give_up(f"within {deadline_seconds:g} s")
        except BaseException:
            batch.abandon()
            raise
        return batch.results

    async def _send_all(self, appends: Iterable[Append], batch: _Batch, deadline: float) -> None:
        partitions, settings = self._partitions, self._settings
        loop = asyncio.get_running_loop()
        for append in appends:
            index = batch.add(append)
            called_at = loop.time()
            if called_at >= deadline:
                await loop.create_future()  # it is the caller's timer that ends this, at once
            try:
                request = append_request(
                    settings,
                    append.partition,
                    append.data,
                    append.header,
                    append.write_locks,
                    append.read_locks,
                    append.append_locks,
                    append.as_of,
                    append.sequence,
                )
                partition = self._use(request)
                if request.as_of is not None and request.as_of > partitions.known_mark(partition):
                    await partitions.check_view(partition, request.as_of, settings.request_deadline_ms / 1000)
                if not partition.may_send:
                    await partition.wait_writable()
                handle = PendingAppend(request.partition_id, batch.done, index, called_at)
                batch.sent[index] = handle
                partition.send_append(handle, request)
            except AppendError as error:
                batch.settle(index, error)
            except WaltzClientError as error:
                failed = AppendFailedError(f"append was not sent: {error}", partition_id=append.partition)
                failed.__cause__ = error
                batch.settle(index, failed)
            if index % YIELD_EVERY == YIELD_EVERY - 1:
                await asyncio.sleep(0)  # let the socket be written


def _expire(done: asyncio.Future[bool]) -> None:
    if not done.done():
        done.set_result(False)


class _Batch:
    """The results of one `append_many`, in the order of the appends."""

    def __init__(self, on_result: Callable[[Append, Committed | AppendError], object] | None) -> None:
        self.appends: list[Append] = []
        self.sent: list[PendingAppend | None] = []
        self._results: list[Committed | AppendError | None] = []
        self._left = 0
        self._idle: asyncio.Future[None] | None = None
        self._on_result = on_result
        self._abandoned = False

    @property
    def results(self) -> list[Committed | AppendError]:
        return [result for result in self._results if result is not None]

    def add(self, append: Append) -> int:
        self.appends.append(append)
        self.sent.append(None)
        self._results.append(None)
        self._left += 1
        return len(self.appends) - 1

    def done(self, handle: PendingAppend) -> None:
        index = handle.context
        if not isinstance(index, int):
            return
        if handle.cause is Cause.COMMITTED:
            self.settle(index, Committed(handle.partition_id, handle.mark))
        else:
            error = handle.error
            if error is not None:
                self.settle(index, error)

    def settle(self, index: int, result: Committed | AppendError) -> None:
        if self._abandoned or self._results[index] is not None:
            return
        self._results[index] = result
        self._left -= 1
        try:
            if self._on_result is not None:
                self._on_result(self.appends[index], result)
        finally:
            if self._left == 0 and self._idle is not None and not self._idle.done():
                self._idle.set_result(None)

    async def wait(self) -> None:
        if self._left:
            self._idle = asyncio.get_running_loop().create_future()
            await self._idle

    def give_up(self, when: str) -> None:
        """The deadline: what is on its way is unknown, what was not sent failed."""
        for index, append in enumerate(self.appends):
            if self._results[index] is not None:
                continue
            error: AppendError
            handle = self.sent[index]
            if handle is not None:
                handle.given_up = True
                error = handle.no_outcome(when)
            else:
                error = DeadlineExceededError(
                    f"append to partition {append.partition} was not sent {when}",
                    partition_id=append.partition,
                )
            self.settle(index, error)

    def abandon(self) -> None:
        """The caller is gone."""
        self._abandoned = True
        for handle in self.sent:
            if handle is not None:
                handle.given_up = True
