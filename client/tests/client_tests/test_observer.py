"""Observers: what happens inside a client, and what one that raises cannot do."""

import asyncio
import random

import pytest

from client_tests.conftest import ConnectClient
from client_tests.helpers import Application, settings_for, until
from waltz_client import (
    Append,
    AppendError,
    AppendFailedError,
    ClientObserver,
    LockConflictError,
    LockId,
    PendingAppend,
    WaltzClient,
)
from waltz_protocol.types import Endpoint
from waltz_testkit.fake_cluster import FakeCluster
from waltz_testkit.fake_server import Fate


class Notes(ClientObserver):
    """Writes everything down."""

    def __init__(self) -> None:
        self.seen: list[tuple[object, ...]] = []
        self._begun = 0

    def names(self) -> list[object]:
        return [entry[0] for entry in self.seen]

    def _begin(self) -> int:
        self._begun += 1
        return self._begun

    def connected(self, server: Endpoint) -> None:
        self.seen.append(("connected", server))

    def disconnected(self, server: Endpoint, reason: str) -> None:
        self.seen.append(("disconnected", server, reason))

    def connect_failed(self, server: Endpoint, reason: str) -> None:
        self.seen.append(("connect_failed", server, reason))

    def available(self, partition: int, server: Endpoint) -> None:
        self.seen.append(("available", partition, server))

    def unavailable(self, partition: int, reason: str) -> None:
        self.seen.append(("unavailable", partition, reason))

    def append_waited(self, partition: int, seconds: float) -> None:
        self.seen.append(("append_waited", partition, seconds))

    def append_sent(self, partition: int, size_bytes: int) -> object:
        number = self._begin()
        self.seen.append(("append_sent", number, partition, size_bytes))
        return number

    def append_ended(self, sent: object, append: PendingAppend) -> None:
        self.seen.append(("append_ended", sent, append.outcome, append.transaction_id))

    def append_retried(self, partition: int, error: AppendError) -> None:
        self.seen.append(("append_retried", partition, type(error)))

    def apply_started(self, partition: int, transaction_id: int) -> object:
        number = self._begin()
        self.seen.append(("apply_started", number, partition, transaction_id))
        return number

    def apply_ended(
        self, started: object, partition: int, transaction_id: int, error: Exception | None
    ) -> None:
        self.seen.append(("apply_ended", started, transaction_id, type(error).__name__))


class Raising(ClientObserver):
    """Every method raises."""

    def __getattribute__(self, name: str) -> object:
        if name.startswith("_"):
            return object.__getattribute__(self, name)

        def method(*_: object) -> object:
            raise ValueError(f"a mistake in {name}")

        return method


def observed(
    cluster: FakeCluster, *observers: ClientObserver, callbacks: Application | None = None
) -> WaltzClient:
    return WaltzClient.connect(
        settings_for(cluster, longWaitThreshold=250, autoMount=True),
        callbacks,
        store=cluster.session(),
        random=random.Random(7),
        observers=observers,
    )


async def test_connections_partitions_and_appends_are_observed(cluster: FakeCluster) -> None:
    notes = Notes()
    async with observed(cluster, notes) as client:
        partition = cluster.partitions[0]
        fates = iter([Fate.DROP])
        partition.fate = lambda append: next(fates, Fate.COMMIT)
        await client.append(partition=0, data=b"x")
        assert notes.names() == [
            "connected",
            "available",
            "append_waited",
            "append_sent",
            "append_ended",
            "append_retried",
            "append_waited",
            "append_sent",
            "append_ended",
        ]
        server = notes.seen[0][1]
        assert notes.seen[1] == ("available", 0, server)
        assert notes.seen[5] == ("append_retried", 0, AppendFailedError)
        assert [entry[1] for entry in notes.seen if entry[0] == "append_ended"] == [1, 2]
        assert notes.seen[-1][3] == 0
        notes.seen.clear()
        cluster.servers[0].cut_connections()
        await until(lambda: "available" in notes.names())
        assert notes.names() == [
            "disconnected",
            "unavailable",
            "connected",
            "available",
        ] or notes.names() == [
            "unavailable",
            "disconnected",
            "connected",
            "available",
        ]
        notes.seen.clear()
    assert set(notes.names()) == {"disconnected", "unavailable"}
    assert ("unavailable", 0, "the client is closed") in notes.seen


async def test_conflicts_and_batches_are_observed(cluster: FakeCluster) -> None:
    notes = Notes()
    async with observed(cluster, notes) as client:
        lock = LockId("account", 1)
        await client.append(partition=0, data=b"x", write_locks=[lock])
        with pytest.raises(LockConflictError):
            await client.append(partition=0, data=b"y", write_locks=[lock], as_of=-1)
        await client.append_many([Append(0, b"z")] * 3)
    sent = [entry[1] for entry in notes.seen if entry[0] == "append_sent"]
    ended = [entry[1] for entry in notes.seen if entry[0] == "append_ended"]
    assert sent == [1, 2, 3, 4, 5]
    assert set(ended) == set(sent)
    assert len(ended) == 5
    assert "append_retried" not in notes.names()


async def test_the_application_is_observed_and_the_status_shows_its_lag(cluster: FakeCluster) -> None:
    notes, application = Notes(), Application()
    application.fail[(0, 0)] = 1
    async with observed(cluster, notes, callbacks=application) as client:
        await client.append(partition=0, data=b"x")
        await until(lambda: application.applied)
        applies = [entry for entry in notes.seen if str(entry[0]).startswith("apply")]
        assert [entry[0] for entry in applies] == ["apply_started", "apply_ended"] * 2
        assert [entry[3] for entry in applies[1::2]] == ["ValueError", "NoneType"]
        assert applies[0][1] == applies[1][1]
        await until(lambda: client.status().partitions[0].lag == 0)
        status = client.status()
        assert [one.partition for one in status.partitions] == [0, 1]
        first = status.partitions[0]
        assert (first.available, first.reason, first.appends, first.append_bytes) == (True, "", 0, 0)
        assert (first.received, first.applied, first.known_mark) == (0, 0, 0)
        assert (status.retrying, status.closing) == (0, False)


async def test_the_status_says_why_a_partition_is_not_available(
    cluster: FakeCluster, connect: ConnectClient
) -> None:
    client = await connect()
    partition = cluster.partitions[0]
    partition.fate = lambda append: Fate.HOLD
    append = asyncio.gather(client.append(partition=0, data=b"four"), return_exceptions=True)
    await until(lambda: partition.held)
    (status,) = client.status().partitions
    assert (status.appends, status.lag) == (1, None)
    assert status.append_bytes > 4
    await cluster.servers[0].kill()
    await until(lambda: not client.status().partitions[0].available)
    assert client.status().partitions[0].reason
    await client.close()
    await append


async def test_a_connection_that_cannot_be_made_is_observed_once_per_reason(cluster: FakeCluster) -> None:
    notes = Notes()
    async with observed(cluster, notes) as client:
        await client.writable(0)
        await cluster.servers[0].kill()
        await until(lambda: "connect_failed" in notes.names())
        await asyncio.sleep(0.3)
    assert 1 <= notes.names().count("connect_failed") <= 2


async def test_an_observer_that_raises_touches_nobody_and_is_logged_once_per_method(
    cluster: FakeCluster, caplog: pytest.LogCaptureFixture
) -> None:
    notes, application = Notes(), Application()
    async with observed(cluster, Raising(), notes, callbacks=application) as client:
        await client.append_many([Append(0, b"x")] * 20)
        await until(lambda: len(application.applied) == 20)
    assert notes.names().count("append_ended") == notes.names().count("apply_ended") == 20
    messages = [record.getMessage() for record in caplog.records if "of the observer" in record.getMessage()]
    assert len(messages) == len(set(messages)) == 9, messages
    assert "append_sent of the observer Raising raised; it is not logged again" in messages
