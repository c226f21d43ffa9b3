"""Whatever a task waits for has an end, and the error says what did not come."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

import waltz_client
from waltz_client import LockId
from waltz_client.testing import InProcessLog
from waltz_spark.errors import DataLossError
from waltz_spark.sink import plain_writer, task_writer
from waltz_spark.sink.attempt import OnConflict, Outcome, OutgoingRow, ReadBack, Undecided
from waltz_spark.sink.errors import BadRowError, WriteFailedError
from waltz_spark.sink.plain_writer import PlainWriter
from waltz_spark.sink.read_back import Sighting
from waltz_spark.sink.task_claims import CLAIM_HEADER, Claim, TaskKey
from waltz_spark.sink.task_writer import ClientPort, TaskWriter, WriteSettings

KEY = TaskKey("query", 5, 0)
SETTINGS = WriteSettings(0.4, CLAIM_HEADER, OnConflict.FAIL)
ROW = OutgoingRow(b"row")
LOCK = LockId("account", 7)
AT_MOST_SECONDS = 4.0
"""For a test that would never end."""


def writer(port: ClientPort, client_id: int, start: int, settings: WriteSettings = SETTINGS) -> TaskWriter:
    return TaskWriter(port, Claim(KEY, f"attempt-{client_id}", client_id), {0: start}, settings)


async def test_reading_back_a_partition_that_gives_nothing_ends() -> None:
    log = InProcessLog()
    log.partition(0).commit(b"before")
    async with log.client() as client:
        await writer(ClientPort(client, SETTINGS), client.client_id, 0).write({0: [ROW]})

    class Port(ClientPort):
        async def read_back(
            self, partition: int, key: TaskKey, action: ReadBack
        ) -> tuple[list[Sighting], frozenset[int]]:
            log.go_down()
            return await super().read_back(partition, key, action)

    async with log.client() as client:
        with pytest.raises(WriteFailedError, match=r"partition 0 gave nothing .* within 0\.4 s") as error:
            async with asyncio.timeout(AT_MOST_SECONDS):
                await writer(Port(client, SETTINGS), client.client_id, 0).write({0: [ROW]})
    assert "\n" not in str(error.value)


class Client:
    """Counts claims. `then`: what happens after the first one."""

    def __init__(self, client: waltz_client.WaltzClient, then: Any = None) -> None:
        self._client = client
        self._then = then
        self.claims = 0

    async def append(self, **given: Any) -> waltz_client.Committed:
        self.claims += 1
        try:
            return await self._client.append(**given)
        finally:
            if self.claims == 1 and self._then is not None:
                self._then()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._client, name)


async def test_a_batch_that_started_behind_the_end_of_the_log_is_a_loss_of_data() -> None:
    """A log that was restored to an earlier state, or notes of another one."""
    log = InProcessLog()
    for _ in range(10):
        log.partition(0).commit(b"before")
    async with log.client() as client:
        counting: Any = Client(client)
        with pytest.raises(
            DataLossError,
            match="partition 0: the batch started after transaction 5000, and the log ends at 9",
        ) as error:
            async with asyncio.timeout(AT_MOST_SECONDS):
                await writer(ClientPort(counting, SETTINGS), client.client_id, 5000).write({0: [ROW]})
    assert counting.claims == 2
    assert not error.value.retriable


async def test_an_old_owner_that_knows_less_is_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    log = InProcessLog()
    log.partition(0).commit(b"before")

    def learn() -> None:
        for _ in range(5):
            log.partition(0).commit(b"before")

    monkeypatch.setattr(task_writer, "BEHIND_PAUSE_SECONDS", 0.01)
    async with log.client() as client:
        counting: Any = Client(client, learn)
        settings = WriteSettings(AT_MOST_SECONDS, CLAIM_HEADER, OnConflict.FAIL)
        task = writer(ClientPort(counting, settings), client.client_id, 4, settings)
        await task.write({0: [ROW]})
    assert counting.claims >= 2
    assert task.finish().written == 1


async def test_claims_without_an_answer_follow_each_other_with_a_pause() -> None:
    asked = []

    class Port(ClientPort):
        async def claim(self, partition: int, claim: Claim, as_of: int) -> Outcome:
            asked.append(as_of)
            return Undecided()

    log = InProcessLog()
    async with log.client() as client:
        with pytest.raises(WriteFailedError, match="took none of 1 rows"):
            await writer(Port(client, SETTINGS), client.client_id, -1).write({0: [ROW]})
    assert 2 <= len(asked) <= 10


# -- rows that the log never takes ---------------------------------------------------------------------------


class NeverTaken(ClientPort):
    """A log that takes claims, and none of the rows: one is larger than a frame may be, and its connection
    ends each time. `seconds`: how long that takes."""

    seconds = 0.01
    sent = 0

    async def send(self, appends: Sequence[waltz_client.Append]) -> list[Outcome]:
        self.sent += 1
        await asyncio.sleep(self.seconds)
        return [Undecided()] * len(appends)


async def test_a_row_that_is_never_taken_ends_the_task_and_is_described() -> None:
    log = InProcessLog()
    rows = [ROW, OutgoingRow(b"x" * 4000, append_locks=(LOCK, LockId("account", 8)))]
    async with log.client() as client:
        with pytest.raises(
            WriteFailedError,
            match=r"partition 0 took none of 2 rows within 0\.4 s \(the largest one has 4000 bytes of data, and "
            r"none has more than 2 locks\): .* server\.maxFrameBytes",
        ) as error:
            async with asyncio.timeout(AT_MOST_SECONDS):
                await writer(NeverTaken(client, SETTINGS), client.client_id, -1).write({0: rows})
        with pytest.raises(WriteFailedError) as of_plain:
            await PlainWriter(NeverTaken(client, SETTINGS), SETTINGS).write({0: rows})
    assert "\n" not in str(error.value)
    assert str(of_plain.value) == str(error.value)
    claims = log.partition(0).transactions
    assert {one.header for one in claims} == {CLAIM_HEADER}
    assert 2 <= len(claims) <= 5, "pauses between them, each longer than the one before"


async def test_pauses_between_claims_begin_anew_with_each_row_that_is_taken(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """And so does the time that a task has."""
    monkeypatch.setattr(task_writer, "CLAIM_PAUSE_SECONDS", 0.05)
    log = InProcessLog()
    rows = [OutgoingRow(b"%d" % number) for number in range(8)]

    class Port(NeverTaken):
        async def send(self, appends: Sequence[waltz_client.Append]) -> list[Outcome]:
            nothing = await super().send(appends)
            return nothing if self.sent % 3 else [*await ClientPort.send(self, appends[:1]), *nothing[1:]]

    async with log.client() as client:
        task = writer(Port(client, SETTINGS), client.client_id, -1)
        async with asyncio.timeout(2 * AT_MOST_SECONDS):
            await task.write({0: rows})
    assert task.finish().written == len(rows)


class Busy(ClientPort):
    """Somebody else writes the lock of a row before it comes, the first `times` times."""

    def __init__(self, client: waltz_client.WaltzClient, log: InProcessLog, times: float) -> None:
        super().__init__(client, RETRYING)
        self._log = log
        self._left = times

    async def send(self, appends: Sequence[waltz_client.Append]) -> list[Outcome]:
        if self._left:
            self._left -= 1
            self._log.partition(0).commit(b"of a busy writer", write_locks=(LOCK,))
        return await super().send(appends)


RETRYING = replace(SETTINGS, on_conflict=OnConflict.RETRY)
HOT = [OutgoingRow(b"hot", write_locks=(LOCK,), as_of=0), ROW]


async def test_rows_that_were_refused_for_a_lock_take_no_new_claim() -> None:
    """The last one is still the newest."""
    log = InProcessLog()
    log.partition(0).commit(b"before")
    async with log.client() as client:
        task = writer(Busy(client, log, 20), client.client_id, 0, RETRYING)
        await task.write({0: HOT})
    assert (task.finish().written, task.finish().found) == (2, 0)
    transactions = log.partition(0).transactions
    assert [one.header for one in transactions].count(CLAIM_HEADER) == 1
    assert [one.data for one in transactions if one.data in (b"hot", b"row")] == [b"row", b"hot"]


async def test_a_row_whose_lock_is_touched_each_time_ends_the_task_and_is_described() -> None:
    log = InProcessLog()
    log.partition(0).commit(b"before")
    async with log.client() as client:
        with pytest.raises(
            WriteFailedError,
            match=r"took none of 1 rows within 0\.4 s .*: each was refused because a lock was touched again, the "
            "first one with write locks account:7 and read locks none",
        ) as error:
            async with asyncio.timeout(AT_MOST_SECONDS):
                await writer(Busy(client, log, math.inf), client.client_id, 0, RETRYING).write({0: HOT})
    assert "\n" not in str(error.value)
    assert [one.header for one in log.partition(0).transactions].count(CLAIM_HEADER) == 1


class OneClaim(ClientPort):
    """After the first claim no claim has an answer."""

    claims = 1

    async def claim(self, partition: int, claim: Claim, as_of: int) -> Outcome:
        if not self.claims:
            await asyncio.sleep(SETTINGS.timeout_seconds / 4)
            return Undecided()
        self.claims -= 1
        return await super().claim(partition, claim, as_of)


@pytest.mark.parametrize("policy", [OnConflict.FAIL, OnConflict.SKIP])
async def test_a_claim_that_is_not_taken_is_no_matter_of_locks(policy: OnConflict) -> None:
    """A row conflicts, and the claim that would say so for good gets no answer any longer."""
    log = InProcessLog()
    log.partition(0).commit(b"before")
    log.partition(0).commit(b"of somebody else", write_locks=(LOCK,))
    settings = replace(SETTINGS, on_conflict=policy)

    async with log.client() as client:
        with pytest.raises(WriteFailedError, match="has no server that answers"):
            await writer(OneClaim(client, settings), client.client_id, 0, settings).write({0: HOT[:1]})


async def test_the_last_claim_of_a_task_whose_rows_are_all_there_has_an_end() -> None:
    """Two attempts claimed before: the first claim conflicts with a later one than that of the rows."""
    log = InProcessLog()
    for _ in range(2):
        async with log.client() as client:
            await writer(ClientPort(client, SETTINGS), client.client_id, -1).write({0: [ROW]})
    async with log.client() as client:
        with pytest.raises(
            WriteFailedError, match=r"partition 0 did not take the claim of the task within 0\.4 s"
        ):
            await writer(OneClaim(client, SETTINGS), client.client_id, -1).write({0: [ROW]})


@pytest.mark.parametrize("claimed_before", [False, True])
async def test_reading_back_takes_nothing_of_the_time_that_rows_have(claimed_before: bool) -> None:
    """Also not where there is more than one: behind a claim that conflicts, and behind the next one."""
    log = InProcessLog()
    async with log.client() as client:
        await writer(ClientPort(client, SETTINGS), client.client_id, -1).write({0: [ROW]})
        if claimed_before:
            await ClientPort(client, SETTINGS).claim(0, Claim(KEY, "ended", client.client_id), 1)
        refused = [True, True]

        class Port(ClientPort):
            async def read_back(
                self, partition: int, key: TaskKey, action: ReadBack
            ) -> tuple[list[Sighting], frozenset[int]]:
                await asyncio.sleep(1.5 * SETTINGS.timeout_seconds)
                return await super().read_back(partition, key, action)

            async def send(self, appends: Sequence[waltz_client.Append]) -> list[Outcome]:
                return (
                    [Undecided()] * len(appends) if refused and refused.pop() else await super().send(appends)
                )

    async with log.client() as client:
        task = writer(Port(client, SETTINGS), client.client_id, -1)
        await task.write({0: [ROW, OutgoingRow(b"another")]})
    assert (task.finish().found, task.finish().written) == (1, 1)


# -- rows whose view the log does not have -------------------------------------------------------------------


def ahead(as_of: int) -> OutgoingRow:
    return OutgoingRow(b"ahead", write_locks=(LOCK,), as_of=as_of)


@pytest.mark.parametrize("as_of", [2, 3, 1_000_000])
async def test_a_view_that_the_log_does_not_have_bypasses_no_lock(as_of: int) -> None:
    """The lock was touched by the last transaction, which nobody has read who names a later one. Later rows
    of a task have the claim of the first ones."""
    log = InProcessLog()
    for _ in range(2):
        log.partition(0).commit(b"before", write_locks=(LOCK,))
    async with log.client() as client:
        task = writer(ClientPort(client, SETTINGS), client.client_id, 1)
        with pytest.raises(
            BadRowError, match=f"has as_of {as_of}, and its partition of the log ends"
        ) as error:
            await task.write({0: [ahead(as_of)]})
        later = writer(ClientPort(client, SETTINGS), client.client_id, 1)
        await later.write({0: [ROW]})
        with pytest.raises(BadRowError, match=f"has as_of {as_of + 9}"):
            await later.write({0: [ahead(as_of + 9)]})
    assert "\n" not in str(error.value)
    assert b"ahead" not in [one.data for one in log.partition(0).transactions]


async def test_a_view_that_is_newer_than_the_claim_is_checked_as_of_itself() -> None:
    log = InProcessLog()
    async with log.client() as client:
        task = writer(ClientPort(client, SETTINGS), client.client_id, -1)
        await task.write({0: [ROW]})
        view = log.partition(0).commit(b"of another writer", write_locks=(LOCK,))
        row = OutgoingRow(b"decided on it", write_locks=(LOCK,), as_of=view)
        await task.write({0: [row]})
    assert task.finish().written == 2


async def test_without_claims_a_view_that_the_log_does_not_have_is_named(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(plain_writer, "BEHIND_PAUSE_SECONDS", 0.01)
    log = InProcessLog()
    log.partition(0).commit(b"before")
    async with log.client() as client:
        plain = PlainWriter(ClientPort(client, SETTINGS), SETTINGS)
        with pytest.raises(
            BadRowError, match="partition 0 ends at transaction 1, and the as_of of 1 rows"
        ) as error:
            async with asyncio.timeout(AT_MOST_SECONDS):
                await plain.write({0: [ROW, ahead(1_000_000)]})
    assert "\n" not in str(error.value)
    assert [one.data for one in log.partition(0).transactions] == [b"before", b"row"]
