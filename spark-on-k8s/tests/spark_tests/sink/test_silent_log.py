"""Whatever a task waits for has an end, and the error says what did not come."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

import waltz_client
from waltz_client.testing import InProcessLog
from waltz_spark.errors import DataLossError
from waltz_spark.sink import task_writer
from waltz_spark.sink.attempt import OnConflict, Outcome, OutgoingRow, ReadBack, Undecided
from waltz_spark.sink.errors import WriteFailedError
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
