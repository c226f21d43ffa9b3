"""Whatever a task waits for has an end, and the error says what did not come."""

from __future__ import annotations

import asyncio
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


# -- rows whose view the log does not have -------------------------------------------------------------------

LOCK = LockId("account", 7)


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
