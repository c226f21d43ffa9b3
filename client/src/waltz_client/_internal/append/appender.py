"""Appends of the plain face: one with an outcome, one without waiting, many in a pipeline."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, NamedTuple

from waltz_client._internal.append.transaction_monitor import Cause
from waltz_client._internal.append.window import PendingAppend
from waltz_client._internal.core import AppendRequest
from waltz_client.errors import (
    AppendError,
    AppendFailedError,
    AttemptsExhaustedError,
    DeadlineExceededError,
    LockConflictError,
    OutcomeUnknownError,
    PartitionUnavailableError,
    RequestDeadlineError,
    ViewAheadError,
    WaltzClientError,
    WindowFullError,
)
from waltz_client.transaction import Committed
from waltz_protocol.backoff import Backoff
from waltz_protocol.locks import LockId

if TYPE_CHECKING:
    from waltz_client._internal.core import ClientCore
    from waltz_client._internal.stream.partition import StreamPartition

YIELD_EVERY = 256


class Append(NamedTuple):
    """One append of a batch; the fields mean what the parameters of ``WaltzClient.append`` mean."""

    partition: int
    data: bytes
    header: int = 0
    write_locks: Iterable[LockId] = ()
    read_locks: Iterable[LockId] = ()
    append_locks: Iterable[LockId] = ()
    as_of: int | None = None
    context: object = None
    """Anything; handed back with the result."""


class Appender:
    """Stateless but for the client core it works on."""

    def __init__(self, core: ClientCore) -> None:
        self._core = core

    def prepare(self, append: Append) -> tuple[StreamPartition, AppendRequest]:
        """Check the arguments and take the view; raises what is wrong with them."""
        core = self._core
        partition = core.use_partition(append.partition)
        view = core.view_of(partition) if append.as_of is None else append.as_of
        request = core.checked_append(
            append.partition,
            append.data,
            append.header,
            append.write_locks,
            append.read_locks,
            append.append_locks,
            view,
        )
        return partition, request

    # -- one -------------------------------------------------------------------------------------------------

    async def append(
        self, append: Append, deadline_seconds: float | None, max_attempts: int | None
    ) -> Committed:
        """See ``WaltzClient.append``."""
        core = self._core
        core.check_open()
        settings = core.settings
        seconds = settings.append_deadline_ms / 1000 if deadline_seconds is None else deadline_seconds
        limit = settings.append_max_attempts if max_attempts is None else max_attempts
        deadline = asyncio.get_running_loop().time() + seconds
        backoff: Backoff | None = None
        attempts = 0
        last: AppendError | None = None
        while True:
            attempts += 1
            outcome, view = await self._attempt(append, deadline, seconds, last)
            if isinstance(outcome, Committed):
                return outcome
            if isinstance(outcome, LockConflictError) and outcome.conflicting_high_water_mark < view:
                raise ViewAheadError(  # the server's own check: no lock it knows can be that far back
                    partition_id=append.partition,
                    as_of=view,
                    high_water_mark=outcome.conflicting_high_water_mark,
                ) from outcome
            if isinstance(outcome, (LockConflictError, OutcomeUnknownError)):
                raise outcome
            if attempts == limit:
                raise AttemptsExhaustedError(
                    f"append to partition {append.partition} failed {attempts} times, the last time: {outcome}",
                    partition_id=append.partition,
                ) from outcome
            last = outcome
            if append.write_locks or append.read_locks:
                # The caller decided on the first view: with a newer one the retry would not see a conflict in
                # between.
                append = append._replace(as_of=view)
            if backoff is None:
                backoff = Backoff(
                    settings.retry_initial_backoff_ms / 1000,
                    settings.retry_max_backoff_ms / 1000,
                    core.random,
                )
            await core.pause(
                min(backoff.next_seconds(), max(0.0, deadline - asyncio.get_running_loop().time()))
            )

    async def _attempt(
        self, append: Append, deadline: float, seconds: float, last: AppendError | None
    ) -> tuple[Committed | AppendError, int]:
        """Outcome of one sending and the view it was sent with."""
        core = self._core
        loop = asyncio.get_running_loop()
        partition, request = self.prepare(append)
        if append.as_of is not None and append.as_of > core.known_mark(partition):
            try:
                await core.check_view(partition, append.as_of, max(0.0, deadline - loop.time()))
            except RequestDeadlineError as silent:
                raise DeadlineExceededError(
                    f"append to partition {append.partition} was not sent within {seconds:g} s: {silent}",
                    partition_id=append.partition,
                ) from silent
        if not partition.can_send:
            await self._wait_writable(partition, append, deadline, seconds, last)
            if append.as_of is None:
                # The view may have moved while waiting for room; without as_of the view is that of the
                # sending.
                request = (*request[:2], core.view_of(partition), *request[3:])
        if loop.time() >= deadline:
            raise self._not_sent(partition, append, seconds, last) from last
        done: asyncio.Future[bool] = loop.create_future()  # True: resolved, False: the deadline came first

        def on_done(_: PendingAppend) -> None:
            if not done.done():
                done.set_result(True)

        handle = PendingAppend(append.partition, on_done)
        partition.send_append(handle, *request)
        timer = loop.call_at(deadline, _expire, done)
        try:
            resolved = await done
        finally:
            timer.cancel()
        if not resolved:
            unknown = OutcomeUnknownError(
                f"append to partition {append.partition} was sent, but its outcome did not come within {seconds:g} s",
                partition_id=append.partition,
            )
            return unknown, request[2]
        if handle.committed:
            return Committed(append.partition, handle.mark), request[2]
        error = handle.error
        if error is None:
            raise RuntimeError("an append ended without an outcome")
        return error, request[2]

    async def _wait_writable(
        self,
        partition: StreamPartition,
        append: Append,
        deadline: float,
        seconds: float,
        last: AppendError | None,
    ) -> None:
        """Until the append can be sent; DeadlineExceededError."""
        try:
            async with asyncio.timeout_at(deadline):
                await self._core.wait_writable(partition)
        except TimeoutError:
            raise self._not_sent(partition, append, seconds, last) from last

    def _not_sent(
        self, partition: StreamPartition, append: Append, seconds: float, last: AppendError | None
    ) -> DeadlineExceededError:
        reason = (
            f"the last attempt: {last}" if last is not None else self._core.why_unavailable(append.partition)
        )
        if partition.mounted and last is None:
            reason = "too many appends are on their way"
        return DeadlineExceededError(
            f"append to partition {append.partition} was not sent within {seconds:g} s: {reason}",
            partition_id=append.partition,
        )

    # -- without waiting -------------------------------------------------------------------------------------

    def append_nowait(
        self,
        partition_id: int,
        data: bytes,
        header: int,
        locks: tuple[Iterable[LockId], Iterable[LockId], Iterable[LockId]],
        as_of: int | None,
        context: object,
        on_done: Callable[[PendingAppend], object],
    ) -> PendingAppend:
        """See ``WaltzClient.append_nowait``. `locks`: write, read and append locks."""
        core = self._core
        partition = core.use_partition(partition_id)
        view = core.view_of(partition) if as_of is None else as_of
        request = core.checked_append(partition_id, data, header, *locks, view)
        if as_of is not None and as_of > (known := core.known_mark(partition)):
            raise ViewAheadError(
                partition_id=partition_id,
                as_of=as_of,
                high_water_mark=known,
                detail=" as far as this client knows (high_water_mark() asks)",
            )
        if not partition.can_send:
            core.check_open()
            if not partition.mounted:
                raise PartitionUnavailableError(
                    f"partition {partition_id} is not available: {core.why_unavailable(partition_id)}"
                )
            raise WindowFullError(f"too many appends to partition {partition_id} are on their way")
        handle = PendingAppend(partition_id, on_done, context)
        partition.send_append(handle, *request)
        return handle

    # -- many ------------------------------------------------------------------------------------------------

    async def append_many(
        self,
        appends: Iterable[Append],
        on_result: Callable[[Append, Committed | AppendError], object] | None,
        deadline_seconds: float | None,
    ) -> list[Committed | AppendError]:
        """See ``WaltzClient.append_many``."""
        self._core.check_open()
        batch = _Batch(on_result)
        loop = asyncio.get_running_loop()
        deadline = None if deadline_seconds is None else loop.time() + deadline_seconds
        try:
            async with asyncio.timeout_at(deadline):
                await self._send_all(appends, batch)
                await batch.wait()
        except TimeoutError:
            batch.give_up(f"within {deadline_seconds:g} s" if deadline_seconds is not None else "in time")
        except BaseException:
            batch.abandon()
            raise
        return batch.results

    async def _send_all(self, appends: Iterable[Append], batch: _Batch) -> None:
        core = self._core
        for append in appends:
            index = batch.add(append)
            try:
                partition, request = self.prepare(append)
                if append.as_of is not None and append.as_of > core.known_mark(partition):
                    await core.check_view(partition, append.as_of, core.settings.request_deadline_ms / 1000)
                if not partition.can_send:
                    await core.wait_writable(partition)
                    if append.as_of is None:
                        request = (*request[:2], core.view_of(partition), *request[3:])
                batch.sent[index] = True
                partition.send_append(PendingAppend(append.partition, batch.done, index), *request)
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
    """The results of one ``append_many``, in the order of the appends."""

    def __init__(self, on_result: Callable[[Append, Committed | AppendError], object] | None) -> None:
        self.appends: list[Append] = []
        self.sent: list[bool] = []
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
        self.sent.append(False)
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
            where = f"append to partition {append.partition}"
            error: AppendError
            if self.sent[index]:
                error = OutcomeUnknownError(
                    f"{where} was sent, but its outcome did not come {when}", partition_id=append.partition
                )
            else:
                error = DeadlineExceededError(f"{where} was not sent {when}", partition_id=append.partition)
            self.settle(index, error)

    def abandon(self) -> None:
        """The caller is gone."""
        self._abandoned = True
