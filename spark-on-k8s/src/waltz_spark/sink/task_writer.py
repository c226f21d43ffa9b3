"""Performs what `attempt` decides: one attempt of a Spark task, with the client of the log.

`TaskWriter` has one `Attempt` per log partition that rows of the task go
to; it claims a partition when its first row comes. A `LogPort` is the log as one attempt uses it; tests put
failures in its place.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import waltz_client
from waltz_client import (
    Append,
    AppendError,
    FeedTransaction,
    LockConflictError,
    TransactionTooLargeError,
    ViewAheadError,
    WaltzClient,
    WaltzClientError,
)
from waltz_spark.errors import DataLossError
from waltz_spark.sink import attempt as protocol
from waltz_spark.sink.attempt import (
    AppendClaim,
    Attempt,
    Committed,
    Conflict,
    OnConflict,
    Outcome,
    OutgoingRow,
    ReadBack,
    SendRows,
    Undecided,
    lock_names,
)
from waltz_spark.sink.errors import BadRowError, WriteFailedError
from waltz_spark.sink.read_back import Header, RowSeen, Sighting, Survey
from waltz_spark.sink.requests import row_request
from waltz_spark.sink.task_claims import Claim, TaskKey, claim_lock, fingerprint

ROWS_AT_ONCE = 4096
"""Rows of a partition that are on their way together: what has to be read back after a failure."""
_PAYLOADS_AT_ONCE = 256
BEHIND_SECONDS = 30.0
"""How long a log that ends before the start of the batch is asked again, at most."""
BEHIND_PAUSE_SECONDS = 0.5
CLAIM_PAUSE_SECONDS = 0.1
"""Between a claim that was not decided, or after which no row was taken, and the next one; twice as long each
time, until a row is taken."""
MAX_CLAIM_PAUSE_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class WriteSettings:
    """How to write. Seconds; `claim_header` is the header of claims."""

    timeout_seconds: float
    claim_header: int
    on_conflict: OnConflict


@dataclass(frozen=True, slots=True)
class TaskResult:
    """What an attempt did. `found`: rows that earlier attempts had written. `marks`: by partition, a
    transaction id that everything of this task is at or below."""

    written: int
    found: int
    skipped: int
    marks: Mapping[int, int]


class LogPort(Protocol):
    """The log as one attempt uses it. What is raised ends the attempt."""

    async def claim(self, partition: int, claim: Claim, as_of: int) -> Outcome: ...

    async def read_back(
        self, partition: int, key: TaskKey, action: ReadBack
    ) -> tuple[list[Sighting], frozenset[int]]: ...

    async def send(self, appends: Sequence[Append]) -> list[Outcome]: ...


class ClientPort:
    """A `LogPort` on a client. Failures that leave the outcome open become `Undecided`."""

    def __init__(self, client: WaltzClient, settings: WriteSettings) -> None:
        self._client = client
        self._settings = settings

    async def claim(self, partition: int, claim: Claim, as_of: int) -> Outcome:
        """One claim; a conflict where somebody has touched the task's lock. DataLossError when the log ends
        before `as_of`: it is asked again for a while before, because an old owner may not know yet that it
        is one."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + min(BEHIND_SECONDS, self._settings.timeout_seconds)
        while True:
            try:
                done = await self._client.append(
                    partition=partition,
                    data=claim.encode(),
                    header=self._settings.claim_header,
                    write_locks=(claim_lock(claim.key),),
                    as_of=as_of,
                    deadline_seconds=self._settings.timeout_seconds,
                )
            except ViewAheadError as error:
                if loop.time() >= deadline:
                    raise DataLossError(
                        f"partition {partition}: the batch started after transaction {as_of}, and the log ends at "
                        f"{error.high_water_mark}: it was restored to an earlier state, or stateLocation belongs to another log"
                    ) from None
                await asyncio.sleep(BEHIND_PAUSE_SECONDS)
            except AppendError as error:
                return _outcome(error)
            else:
                return Committed(done.transaction_id)

    async def send(self, appends: Sequence[Append]) -> list[Outcome]:
        """All of them, pipelined."""
        results = await self._client.append_many(appends, deadline_seconds=self._settings.timeout_seconds)
        outcomes = [_outcome(result) for result in results]
        return outcomes + [Undecided()] * (len(appends) - len(outcomes))

    async def read_back(
        self, partition: int, key: TaskKey, action: ReadBack
    ) -> tuple[list[Sighting], frozenset[int]]:
        """Headers of the stretch, and payloads of what may be claims and rows of the task. WriteFailedError
        when the next ones do not come in time."""
        survey = Survey(key, action.owners, self._settings.claim_header)
        found: list[Sighting] = []
        feed = self._client.feed(partition, after=action.after, until=action.until, headers_only=True)
        async with feed:
            batches = feed.batches()
            while batch := await self._next(partition, batches):
                headers = [Header(t.transaction_id, t.req_id.client_id, t.header) for t in batch]
                payloads = await self._payloads(partition, [h for h in headers if survey.may_be_claim(h)])
                claims, rows = survey.walk(headers, payloads)
                found += claims
                payloads = await self._payloads(partition, rows)
                found += [
                    RowSeen(
                        row.transaction_id,
                        row.client_id,
                        fingerprint(row.header, payloads[row.transaction_id]),
                    )
                    for row in rows
                ]
        found.sort(key=lambda seen: seen.transaction_id)
        return found, frozenset(survey.owners)

    async def _next(
        self, partition: int, batches: AsyncIterator[list[FeedTransaction]]
    ) -> list[FeedTransaction] | None:
        """None at the end of the stretch."""
        try:
            async with asyncio.timeout(self._settings.timeout_seconds):
                return await anext(batches, None)
        except TimeoutError:
            raise WriteFailedError(
                f"partition {partition} gave nothing of what earlier attempts have written within "
                f"{self._settings.timeout_seconds:g} s: it has no server, or none that answers"
            ) from None

    async def _payloads(self, partition: int, headers: Sequence[Header]) -> dict[int, bytes]:
        found: dict[int, bytes] = {}
        for start in range(0, len(headers), _PAYLOADS_AT_ONCE):
            ids = [header.transaction_id for header in headers[start : start + _PAYLOADS_AT_ONCE]]
            payloads = await asyncio.gather(
                *(
                    self._client.get_data(partition, one, deadline_seconds=self._settings.timeout_seconds)
                    for one in ids
                )
            )
            found.update(zip(ids, payloads, strict=True))
        return found


def _outcome(result: waltz_client.Committed | AppendError) -> Outcome:
    if isinstance(result, waltz_client.Committed):
        return Committed(result.transaction_id)
    if isinstance(result, LockConflictError):
        return Conflict(result.conflicting_high_water_mark)
    cause = result.__cause__
    if isinstance(result, TransactionTooLargeError) or (
        isinstance(cause, WaltzClientError) and cause.user_error
    ):
        raise BadRowError(str(result)) from None
    return Undecided(result.high_water_mark if isinstance(result, ViewAheadError) else None)


def not_taken(
    partition: int, rows: Sequence[OutgoingRow], seconds: float, *, refused: bool = False
) -> WriteFailedError:
    """Which rows a partition did not take, and what to do; without rows it is the claim that it did not take.
    `refused`: each of them was refused for a lock at last. Without an answer to each append nobody knows
    which of the others it is."""
    silent = "the partition has no server that answers (waltz doctor says why)"
    if not rows:
        return WriteFailedError(
            f"partition {partition} did not take the claim of the task within {seconds:g} s: {silent}"
        )
    size = max(len(row.data) for row in rows)
    locks = max(len(row.write_locks) + len(row.read_locks) + len(row.append_locks) for row in rows)
    what = (
        f"partition {partition} took none of {len(rows)} rows within {seconds:g} s (the largest one has {size} bytes of data, and none "
        f"has more than {locks} locks)"
    )
    if refused:
        return WriteFailedError(
            f"{what}: each was refused because a lock was touched again, the first one with write locks "
            f"{lock_names(rows[0].write_locks)} and read locks {lock_names(rows[0].read_locks)}; let fewer writers use these locks, "
            "raise writeTimeoutMs, or, where the rows have none, server.optimisticLockTableSize: other locks share a slot with that "
            "of the task"
        )
    return WriteFailedError(
        f"{what}: {silent}, or a row is larger than server.maxFrameBytes or has "
        "more locks than server.maxLocksPerAppend; make it smaller or raise the setting of the servers, and set client.answeredAppends "
        "= true to have such a row named"
    )


class TaskWriter:
    """One attempt of a task. `start`: by partition, the last transaction from before the first attempt at
    the batch. `has_views`: whether rows can have user locks; if not, their content is not looked at.

    Not for use by two coroutines at once. Every error ends the attempt; the next one continues where it was.
    """

    def __init__(
        self,
        port: LogPort,
        claim: Claim,
        start: Mapping[int, int],
        settings: WriteSettings,
        *,
        has_views: bool = True,
    ) -> None:
        self._port = port
        self._claim = claim
        self._start = start
        self._settings = settings
        self._has_views = has_views
        self._attempts: dict[int, Attempt] = {}

    async def write(self, rows: Mapping[int, Sequence[OutgoingRow]]) -> None:
        """Rows by partition; returns when they are in the log. BadRowError before any of them is sent."""
        for partition, its_rows in rows.items():
            self._attempts[partition] = protocol.admit(self._attempt(partition), partition, its_rows)
        try:
            async with asyncio.TaskGroup() as group:
                for partition, its_rows in rows.items():
                    group.create_task(self._write_partition(partition, its_rows))
        except BaseExceptionGroup as errors:
            raise errors.exceptions[0] from None

    async def _write_partition(self, partition: int, rows: Sequence[OutgoingRow]) -> None:
        state = self._attempts[partition]
        for first in range(0, len(rows), ROWS_AT_ONCE):
            state = protocol.offer(state, rows[first : first + ROWS_AT_ONCE])
            state = await self._settle(partition, state)
        self._attempts[partition] = state

    def _attempt(self, partition: int) -> Attempt:
        state = self._attempts.get(partition)
        if state is None:
            start = self._start.get(partition, -1)
            state = Attempt(self._claim, start, self._settings.on_conflict, self._has_views)
        return state

    async def _settle(self, partition: int, state: Attempt) -> Attempt:
        """Until everything offered is in the log, or was skipped. WriteFailedError when none of the rows was
        written, found or skipped for `timeout_seconds` of claims, sends and pauses. A claim is no progress:
        an attempt can make them forever. Reading back takes nothing of that time, because the log may be
        long; each step of it has an end of its own."""
        loop = asyncio.get_running_loop()
        spent, pause = 0.0, CLAIM_PAUSE_SECONDS
        while (action := protocol.next_action(state)) is not None:
            began, left = loop.time(), len(state.pending)
            state = await self._perform(partition, state, action)
            if len(state.pending) < left:
                spent, pause = 0.0, CLAIM_PAUSE_SECONDS
                continue
            if isinstance(action, ReadBack):
                continue
            if isinstance(action, SendRows) or state.view is None:
                if spent + loop.time() - began > self._settings.timeout_seconds:
                    refused = isinstance(action, SendRows) and state.view is not None
                    raise not_taken(partition, state.pending, self._settings.timeout_seconds, refused=refused)
                if state.view is None and state.unread is None:  # the next claim may be one more in the log
                    await asyncio.sleep(pause)
                    pause = min(2 * pause, MAX_CLAIM_PAUSE_SECONDS)
            spent += loop.time() - began
        return state

    async def _perform(
        self, partition: int, state: Attempt, action: AppendClaim | ReadBack | SendRows
    ) -> Attempt:
        if isinstance(action, AppendClaim):
            return protocol.after_claim(state, await self._port.claim(partition, self._claim, action.as_of))
        if isinstance(action, ReadBack):
            return protocol.after_reading(
                state, *await self._port.read_back(partition, self._claim.key, action)
            )
        appends = [row_request(partition, self._claim.key, row, action.as_of) for row in action.rows]
        return protocol.after_sending(state, await self._port.send(appends))

    def finish(self) -> TaskResult:
        """The task has no more rows. NotRepeatableError."""
        for state in self._attempts.values():
            protocol.finish(state)
        states = self._attempts
        return TaskResult(
            written=sum(state.written for state in states.values()),
            found=sum(state.found for state in states.values()),
            skipped=sum(state.skipped for state in states.values()),
            marks={partition: max(state.known, state.accounted) for partition, state in states.items()},
        )
