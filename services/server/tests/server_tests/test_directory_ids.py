"""Ids that a server takes for clients: from a ZooKeeper that is frozen, from a counter that is wrong."""

from __future__ import annotations

import asyncio
from random import Random
from typing import Any, cast

import pytest

from server_tests.test_directory import NEW_ID
from waltz_cluster.errors import ConnectionLostError
from waltz_cluster.ids import take_ids
from waltz_cluster.serializers import Counter
from waltz_cluster.store import ZooKeeperStore
from waltz_protocol.aio.tasks import spawn
from waltz_protocol.aio.turns import Turns
from waltz_protocol.messages.directory import ClientIdResponse
from waltz_server import directory as directory_module
from waltz_server.directory import DirectoryDesk, WatchingClient
from waltz_testkit.client_peers import FakeClient


class Frozen:
    """A ZooKeeper that is frozen: the connection is there until the session timeout, no answer comes."""

    async def get(self, path: str) -> Any:
        await asyncio.Event().wait()


async def test_a_client_hears_in_time_that_a_frozen_zookeeper_gave_no_id(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(directory_module, "ID_SECONDS", 0.2)
    store = cast("ZooKeeperStore", Frozen())

    async def take(count: int, seconds: float) -> range:
        return await take_ids(store, "/ids/client", Random(1), count, timeout_seconds=seconds)

    desk, client = DirectoryDesk(Turns(), take), FakeClient(version=5)
    task = spawn(desk.run(), "ids")
    desk.handle(cast("WatchingClient", client), NEW_ID)
    await asyncio.sleep(1)
    task.cancel()
    assert [one.client_id for one in client.of(ClientIdResponse)] == [-1]


class Negative:
    def __init__(self) -> None:
        self.data = Counter(-3).to_bytes()

    async def get(self, path: str) -> Any:
        class Stat:
            version = 0

        return self.data, Stat

    async def set(self, path: str, data: bytes, version: int) -> None:
        self.data = data


async def test_no_id_below_one_is_given_out() -> None:
    store = cast("ZooKeeperStore", Negative())
    with pytest.raises(Exception, match="counter"):
        print(await take_ids(store, "/ids/client", Random(1), 2, timeout_seconds=1))


async def test_who_asks_while_others_wait_hears_in_time_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """Clients wait 7 s for an answer, servers 5 s for ZooKeeper."""
    monkeypatch.setattr(directory_module, "ID_SECONDS", 0.5)

    async def away(count: int, seconds: float) -> range:
        await asyncio.sleep(seconds)
        raise ConnectionLostError("ZooKeeper is away")

    desk, one, two = DirectoryDesk(Turns(), away), FakeClient(version=5), FakeClient(version=5)
    task = spawn(desk.run(), "ids")
    desk.handle(cast("WatchingClient", one), NEW_ID)
    await asyncio.sleep(0.1)
    desk.handle(cast("WatchingClient", two), NEW_ID)
    await asyncio.sleep(0.7)
    task.cancel()
    assert one.of(ClientIdResponse)
    assert two.of(ClientIdResponse)
