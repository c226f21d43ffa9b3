"""The directory that a server keeps for clients without ZooKeeper: who gets it when, in which bytes; ids."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import cast
from uuid import UUID

import pytest

from server_tests.test_server import PARTITIONS, ROOT, Cluster
from waltz_cluster.errors import ConnectionLostError
from waltz_cluster.paths import ClusterPaths
from waltz_cluster.serializers import Counter
from waltz_protocol.aio.tasks import spawn
from waltz_protocol.aio.turns import Turns
from waltz_protocol.codec import CLIENT
from waltz_protocol.directory import EVERYBODY, Directory, DirectoryParts, encode_directory
from waltz_protocol.messages.client import CloseCode, CloseNotice
from waltz_protocol.messages.directory import (
    ClientIdRequest,
    ClientIdResponse,
    DirectoryPart,
    DirectoryRequest,
)
from waltz_protocol.types import Endpoint, Generation, PartitionId, ReqId
from waltz_server.directory import COALESCE_SECONDS, DirectoryDesk, WatchingClient
from waltz_server.server import WaltzServer
from waltz_testkit.client_peers import FakeClient, RawPeer
from waltz_testkit.loopback_server import LoopbackServer

ASK = ReqId(-1, 0, 0, 1)
WATCH = memoryview(CLIENT.encode_body(DirectoryRequest(ASK), 5))
NEW_ID = memoryview(CLIENT.encode_body(ClientIdRequest(ASK), 5))


def directory(version: int, generation: int = 1, partitions: int = 2) -> Directory:
    owned = {PartitionId(number): Generation(generation) for number in range(partitions)}
    return Directory(version, "c", UUID(int=1), partitions, {Endpoint("a", 1): owned})


async def no_ids(count: int, seconds: float) -> range:
    raise ConnectionLostError("planted")


def shown(client: FakeClient) -> list[Directory]:
    parts = DirectoryParts()
    found = [parts.add(message) for message in client.of(DirectoryPart)]
    return [one for one in found if one is not None]


def watch(desk: DirectoryDesk, client: FakeClient) -> None:
    desk.handle(cast("WatchingClient", client), WATCH)


async def settled() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


async def test_who_watches_gets_what_is_known_and_each_change() -> None:
    desk, client = DirectoryDesk(Turns(), no_ids), FakeClient(version=5)
    watch(desk, client)
    await settled()
    assert not shown(client)  # nothing is known yet
    desk.update(directory(1))
    await settled()
    assert shown(client) == [directory(1)]
    assert client.of(DirectoryPart)[0].req_id == EVERYBODY
    await asyncio.sleep(2 * COALESCE_SECONDS)
    desk.update(directory(2))
    desk.update(directory(2))
    await settled()
    assert shown(client) == [directory(1), directory(2)]
    watch(desk, client)  # asked again: the same again
    await settled()
    assert shown(client)[2:] == [directory(2)]
    desk.forget(cast("WatchingClient", client))
    await asyncio.sleep(2 * COALESCE_SECONDS)
    desk.update(directory(3))
    await settled()
    assert len(shown(client)) == 3
    assert desk.watchers == 0


async def test_changes_that_follow_each_other_are_sent_as_one() -> None:
    desk, client = DirectoryDesk(Turns(), no_ids), FakeClient(version=5)
    watch(desk, client)
    for number in range(1, 100):
        desk.update(directory(number))
    await asyncio.sleep(3 * COALESCE_SECONDS)
    assert [one.version for one in shown(client)] == [1, 99]
    assert desk.encoded == 2
    desk.update(directory(100))
    desk.close()


async def test_a_client_that_does_not_read_is_owed_the_newest_alone() -> None:
    desk, slow = DirectoryDesk(Turns(), no_ids), FakeClient(version=5, buffer_bytes=1)
    watch(desk, slow)
    for number in range(1, 6):
        desk.update(directory(number))
        await asyncio.sleep(1.2 * COALESCE_SECONDS)
    assert [one.version for one in shown(slow)] == [1]
    slow.drain()
    await settled()
    assert [one.version for one in shown(slow)] == [1, 5]


class _Counting:
    """A client that only counts; ten thousand of these fit."""

    version, writable, closed = 5, True, False

    def __init__(self) -> None:
        self.sent: list[bytes] = []

    def send(self, *parts: bytes) -> None:
        self.sent += parts


async def test_ten_thousand_clients_get_the_same_bytes_encoded_once_in_short_turns() -> None:
    turns = Turns()
    desk, clients = DirectoryDesk(turns, no_ids), [_Counting() for _ in range(10_000)]
    desk.update(directory(1, partitions=1000))
    for client in clients:
        desk.handle(cast("WatchingClient", client), WATCH)
    while not clients[-1].sent:
        await asyncio.sleep(0)
    await asyncio.sleep(2 * COALESCE_SECONDS)
    most, before = 0, sum(len(client.sent) for client in clients)
    desk.update(directory(2, partitions=1000))
    while len(clients[-1].sent) < 2:
        await asyncio.sleep(0)
        now = sum(len(client.sent) for client in clients)
        most, before = max(most, now - before), now
    assert desk.encoded == 2
    assert len({id(frame) for client in clients for frame in client.sent}) == 2
    assert most < 1000  # of ten thousand in one turn of the loop
    assert sum(map(len, clients[0].sent)) < 2 * 9 * 1024


async def test_hostile_bytes_end_the_connection() -> None:
    async with LoopbackServer({0: 1}) as server:
        for kind in (DirectoryRequest.TYPE, ClientIdRequest.TYPE):
            for version, body in (
                (5, WATCH.tobytes() + b"x"),
                (5, WATCH.tobytes()[:9]),
                (4, WATCH.tobytes()),
            ):
                peer = await server.peer(version=version)
                peer.write(struct.pack(">bhi", CLIENT.magic, version, len(body)), bytes([kind]), body[1:])
                if version == 5:
                    assert isinstance(await peer.read(), CloseNotice)
                assert await peer.closed_by_server()


async def test_an_id_per_connection_from_one_write_for_all_who_ask() -> None:
    asked: list[int] = []

    async def take(count: int, seconds: float) -> range:
        first = 7 + sum(min(earlier, 2) for earlier in asked)
        asked.append(count)
        return range(first, first + min(count, 2))  # never more than two

    desk, clients = DirectoryDesk(Turns(), take), [FakeClient(version=5) for _ in range(3)]
    for client in clients:
        desk.handle(cast("WatchingClient", client), NEW_ID)
    task = spawn(desk.run(), "ids")
    await settled()
    desk.handle(cast("WatchingClient", clients[0]), NEW_ID)
    await settled()
    assert asked == [3, 1]
    assert clients[0].of(ClientIdResponse) == [ClientIdResponse(ASK, 7, None)] * 2
    assert clients[1].of(ClientIdResponse) == [ClientIdResponse(ASK, 8, None)]
    assert clients[2].of(ClientIdResponse) == [ClientIdResponse(ASK, 9, None)]
    task.cancel()


async def test_without_zookeeper_there_is_no_id_and_a_reason() -> None:
    desk, client = DirectoryDesk(Turns(), no_ids), FakeClient(version=5)
    desk.handle(cast("WatchingClient", client), NEW_ID)
    task = spawn(desk.run(), "ids")
    await settled()
    assert client.of(ClientIdResponse) == [ClientIdResponse(ASK, -1, "ZooKeeper gave no client id: planted")]
    task.cancel()


async def test_too_many_who_wait_for_ids_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("waltz_server.directory.MAX_ASKING", 1)
    desk, clients = DirectoryDesk(Turns(), no_ids), [FakeClient(version=5) for _ in range(2)]
    for client in clients:
        desk.handle(cast("WatchingClient", client), NEW_ID)
    assert [len(client.of(ClientIdResponse)) for client in clients] == [0, 1]
    desk.forget(cast("WatchingClient", clients[0]))
    desk.handle(cast("WatchingClient", clients[1]), NEW_ID)
    assert len(clients[1].of(ClientIdResponse)) == 1


# -- whole servers -------------------------------------------------------------------------------------------


class Watcher:
    """A raw connection that keeps the newest directory."""

    def __init__(self, peer: RawPeer) -> None:
        self.peer = peer
        self.parts = DirectoryParts()

    async def until(self, wanted: Callable[[Directory], bool]) -> Directory:
        while True:
            message = await self.peer.read()
            assert isinstance(message, DirectoryPart)
            whole = self.parts.add(message)
            if whole is not None and wanted(whole):
                return whole


@asynccontextmanager
async def watching(server: WaltzServer) -> AsyncIterator[Watcher]:
    assert server.endpoint is not None
    peer = await RawPeer.open(server.endpoint.port, version=5)
    peer.send(DirectoryRequest(ASK))
    try:
        yield Watcher(peer)
    finally:
        await peer.close()


@pytest.fixture
async def cluster() -> Cluster:
    made = Cluster()
    await made.create()
    return made


def _complete(servers: int) -> Callable[[Directory], bool]:
    def complete(one: Directory) -> bool:
        return len(one.servers) == servers and sum(map(len, one.servers.values())) == PARTITIONS

    return complete


async def test_all_servers_say_the_same_of_one_version_and_push_each_change(cluster: Cluster) -> None:
    async with cluster.server() as (one, _, _), watching(one) as first:
        alone = await first.until(_complete(1))
        assert (alone.cluster_name, alone.num_partitions, alone.in_contact) == ("test", PARTITIONS, True)
        async with cluster.server() as (two, _, _), watching(two) as second:
            both = await first.until(_complete(2))
            assert await second.until(lambda each: each.version == both.version) == both
            assert both.version > alone.version
            assert set(both.servers) == {one.endpoint, two.endpoint}
        again = await first.until(_complete(1))
        assert again.version > both.version
        generations = [min(each.servers[one.endpoint or Endpoint("", 0)].values()) for each in (alone, again)]
        assert generations[1] >= generations[0]


async def test_a_server_that_lost_zookeeper_says_so_and_serves_what_it_knows(cluster: Cluster) -> None:
    session = cluster.zookeeper.session(1.0)
    async with cluster.server(session=session) as (server, _, _), watching(server) as watcher:
        known = await watcher.until(_complete(1))
        session.suspend()
        lost = await watcher.until(lambda one: not one.in_contact)
        assert (lost.version, lost.servers) == (known.version, known.servers)
        async with watching(server) as late:  # who comes now hears the same
            assert await late.until(lambda _: True) == lost
        session.resume()
        assert (await watcher.until(lambda one: one.in_contact)).version >= known.version


async def test_who_watches_does_not_hold_up_a_server_that_leaves(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("waltz_server.server.CLIENTS_LEAVE_SECONDS", 3600.0)
    async with cluster.server() as (staying, _, _), cluster.server() as (leaving, _, stop):
        assert staying.endpoint is not None
        async with watching(leaving) as watcher:
            await watcher.until(_complete(2))
            stop.set()
            while not isinstance(message := await watcher.peer.read(), CloseNotice):
                assert isinstance(message, DirectoryPart)
            assert (message.code, message.text) == (CloseCode.LEAVING, "the server leaves")
            assert await watcher.peer.closed_by_server()


async def test_ids_come_from_the_counter_that_all_releases_use(cluster: Cluster) -> None:
    store = cluster.zookeeper.session()
    path = ClusterPaths(ROOT).client_ids
    await store.set(path, Counter(40).to_bytes())
    async with cluster.server() as (server, _, _):
        assert server.endpoint is not None
        given = []
        for _ in range(2):
            peer = await RawPeer.open(server.endpoint.port, version=5)
            peer.send(ClientIdRequest(ASK))
            answer = await peer.read()
            assert isinstance(answer, ClientIdResponse)
            given.append(answer.client_id)
            await peer.close()
        assert given == [41, 42]
        assert Counter.from_bytes((await store.get(path))[0]).value == 42
    await store.close()


def test_a_thousand_partitions_are_one_frame() -> None:
    assert [len(frame) for frame in encode_directory(directory(1, partitions=1000))] == [
        7 + 1 + 16 + 8 + 12 + 5 + 16 + 4 + 4 + 13 + 8 * 1000
    ]
