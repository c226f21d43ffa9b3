"""Connections of a process: shared, kept between uses, closed when idle, and errors at their one door."""

import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AsyncExitStack
from typing import Any

import pytest

from waltz_client import PartitionNotFoundError, RequestDeadlineError
from waltz_cluster.errors import ConnectError
from waltz_spark import connection as module
from waltz_spark.connection import ClusterIdentity, Connection, close_all, give_back, lease, take
from waltz_spark.errors import ClusterAccessError, UnavailableError
from waltz_spark.options import ClientKeys

KEYS = ClientKeys(
    {"zookeeper.connectString": "zk:2181", "cluster.root": "/l", "zookeeper.sessionTimeout": "1000"}
)
IDENTITY = ClusterIdentity("key", "fake", 1)


class FakeClient:
    """Opened and closed by the connection; answers with the thread it runs in."""

    def __init__(self) -> None:
        self.closed = False

    async def where(self) -> str:
        await asyncio.sleep(0)
        return threading.current_thread().name


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[FakeClient]]:
    """Every client that was opened."""
    clients: list[FakeClient] = []

    async def open_fake(self: Connection, stack: AsyncExitStack) -> tuple[FakeClient, ClusterIdentity]:
        client = FakeClient()
        clients.append(client)
        stack.callback(lambda: setattr(client, "closed", True))
        return client, IDENTITY

    monkeypatch.setattr(Connection, "_open", open_fake)
    yield clients
    close_all()
    assert not [thread.name for thread in threading.enumerate() if thread.name == "waltz-spark"]


def until(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.005)


async def where(client: Any) -> str:
    found: str = await client.where()
    return found


def test_a_connection_is_shared_kept_and_closed_when_idle(
    opened: list[FakeClient], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "IDLE_SECONDS", 0.05)
    with lease(KEYS) as first, lease(ClientKeys(dict(KEYS._flat))) as second:
        assert first is second
        assert first.identity == IDENTITY
        assert first.call(where) == "waltz-spark"
        time.sleep(0.2)
        assert not opened[0].closed
    until(lambda: opened[0].closed)
    with lease(KEYS) as third:
        assert third is not first
        third.call(where)
    assert len(opened) == 2


def test_a_connection_outlives_a_use(opened: list[FakeClient]) -> None:
    for _ in range(3):
        with lease(KEYS) as connection:
            connection.call(where)
    assert len(opened) == 1
    connection.close_now()
    assert opened[0].closed
    with pytest.raises(UnavailableError, match="the connection was closed"):
        connection.call(where)


def test_the_last_user_closes(opened: list[FakeClient]) -> None:
    one, other = take(KEYS), take(KEYS)
    one.call(where)
    give_back(one)
    one.close_now()
    assert not opened[0].closed
    give_back(other)
    other.close_now()
    assert opened[0].closed


def test_errors_come_out_with_their_line_and_their_handling(opened: list[FakeClient]) -> None:
    async def late(client: Any) -> None:
        raise RequestDeadlineError("no answer")

    async def wrong(client: Any) -> None:
        raise PartitionNotFoundError(9, 4)

    with lease(KEYS) as connection:
        with pytest.raises(UnavailableError, match="waltz: no answer"):
            connection.call(late)
        with pytest.raises(ClusterAccessError, match="waltz: partition 9 does not exist"):
            connection.call(wrong)
        assert connection.call(where) == "waltz-spark"


def test_a_cluster_that_cannot_be_reached_is_asked_again_by_the_next_use(
    opened: list[FakeClient], monkeypatch: pytest.MonkeyPatch
) -> None:
    works = Connection._open

    async def fails(self: Connection, stack: AsyncExitStack) -> Any:
        raise ConnectError("ZooKeeper at zk:2181 does not answer")

    monkeypatch.setattr(Connection, "_open", fails)
    with lease(KEYS) as connection, pytest.raises(UnavailableError, match="zk:2181 does not answer"):
        connection.call(where)
    until(lambda: connection.ended)
    monkeypatch.setattr(Connection, "_open", works)
    with lease(KEYS) as connection:
        assert connection.call(where) == "waltz-spark"
