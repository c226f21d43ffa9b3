"""A whole server on an in-memory ZooKeeper: start, order, health, leaving, lost sessions."""

import asyncio
import json
import random
import sys
import urllib.request
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from waltz_admin import seeding
from waltz_cluster.memory_store import MemoryStore, MemoryZooKeeper
from waltz_cluster.paths import ClusterPaths
from waltz_cluster.store import Watch, ZnodeStat
from waltz_protocol.aio.tasks import spawn
from waltz_protocol.errors import MissingPackageError
from waltz_protocol.handshake import ZSTD_BLOCKS
from waltz_protocol.messages.client import (
    FlushRequest,
    FlushResponse,
    MountRequest,
    MountResponse,
    MountState,
)
from waltz_protocol.messages.peer import PEER_VERSION
from waltz_protocol.types import ReqId
from waltz_server.server import WaltzServer
from waltz_server.settings import ServerSettings
from waltz_testkit.client_peers import RawPeer
from waltz_testkit.fake_partition_store import FakeBackend, FakeLogs
from waltz_testkit.ports import free_port

ROOT = "/waltz"
PARTITIONS = 4


def settings(jetty_port: int | None, **more: object) -> ServerSettings:
    return ServerSettings.from_mapping(
        {
            "zookeeper.connectString": "memory",
            "zookeeper.sessionTimeout": 1000,
            "cluster.root": ROOT,
            "server.port": free_port(),
            "server.bind.host": "127.0.0.1",
            "server.ssl.enabled": False,
            "server.jetty.port": jetty_port,
            **{f"server.{key}": value for key, value in more.items()},
        }
    )


class Cluster:
    def __init__(self) -> None:
        self.zookeeper = MemoryZooKeeper()
        self.nodes = FakeLogs()

    async def create(self) -> None:
        store = self.zookeeper.session()
        await seeding.create(store, ROOT, "test", PARTITIONS)
        await store.close()

    def make(self, store: MemoryStore, jetty_port: int | None = None) -> tuple[WaltzServer, FakeBackend]:
        backend = FakeBackend(self.nodes)
        server = WaltzServer(
            settings(jetty_port),
            zookeeper=store,
            make_backend=lambda zookeeper, params: backend,
            rng=random.Random(1),
        )
        return server, backend

    @asynccontextmanager
    async def server(
        self, *, session: MemoryStore | None = None, jetty_port: int | None = None
    ) -> AsyncIterator[tuple[WaltzServer, FakeBackend, asyncio.Event]]:
        """A server that is registered; it has left when the block ends."""
        store = session or self.zookeeper.session(1.0)
        server, backend = self.make(store, jetty_port)
        stop = asyncio.Event()
        async with asyncio.timeout(30), asyncio.TaskGroup() as tasks:
            task = tasks.create_task(server.serve(stop))
            ready = tasks.create_task(server.serving.wait())
            await asyncio.wait([task, ready], return_when=asyncio.FIRST_COMPLETED)
            ready.cancel()
            try:
                yield server, backend, stop
            finally:
                stop.set()
        await store.close()


@pytest.fixture
async def cluster() -> Cluster:
    made = Cluster()
    await made.create()
    return made


async def until(condition: object) -> None:
    async with asyncio.timeout(10):
        while not condition():  # type: ignore[operator]
            await asyncio.sleep(0.002)


async def mount(peer: RawPeer, partition: int, generation: int, hwm: int) -> bool:
    req_id = ReqId(1, generation, partition, 1)
    peer.send(MountRequest(req_id, hwm, 0))
    messages = await peer.read_until(lambda m: isinstance(m, MountResponse))
    return messages[-1] == MountResponse(req_id, MountState.READY)


async def test_server_owns_all_partitions_and_serves_them(cluster: Cluster) -> None:
    async with cluster.server() as (server, backend, _):
        await until(lambda: len(server.registry.partitions) == PARTITIONS)
        assert server.endpoint is not None
        peer = await RawPeer.open(server.endpoint.port)
        assert await mount(peer, 2, 1, -1)
        peer.append(ReqId(1, 1, 2, 2))
        peer.send(FlushRequest(ReqId(1, 1, 2, 3)))
        assert await peer.read() == FlushResponse(ReqId(1, 1, 2, 3), 0)
        await peer.close()
    assert backend.closed
    assert len(cluster.nodes.logs[2]) == 1


@pytest.mark.parametrize("registering", [False, True])
async def test_a_server_that_waits_for_zookeeper_at_its_start_leaves_at_once(
    cluster: Cluster, registering: bool
) -> None:
    """It waits for 10 s in reads, and for 30 s when it registers."""
    session = cluster.zookeeper.session(20.0)
    reads = session.get

    async def get(path: str, watch: Watch | None = None) -> tuple[bytes | None, ZnodeStat]:
        if path.startswith(ClusterPaths(ROOT).preferences):
            session.suspend()
        return await reads(path, watch)

    if registering:
        session.get = get  # type: ignore[method-assign]
    else:
        session.suspend()
    server, backend = cluster.make(session)
    stop = asyncio.Event()
    serving = spawn(server.serve(stop), "server")
    await asyncio.sleep(0.3)
    assert not server.serving.is_set()
    stop.set()
    async with asyncio.timeout(5):
        await serving
    assert backend.closed is registering
    await session.close()


async def test_the_partitions_of_a_server_share_the_room_of_appends_that_wait(cluster: Cluster) -> None:
    """`server.appendQueueTotalBytes`: one each would be no bound of the server."""
    server = WaltzServer(
        settings(None, appendQueueTotalBytes=2000, appendQueueBytes=1280),
        zookeeper=cluster.zookeeper.session(),
        make_backend=lambda zookeeper, params: FakeBackend(cluster.nodes),
        rng=random.Random(1),
    )
    server._backend = FakeBackend(cluster.nodes)
    rooms = [server._make_partition(number, 1)._appends.room for number in range(3)]
    assert rooms[0].take(1200)
    assert rooms[1].take(700)
    assert rooms[2].take(500)  # one always
    assert not rooms[1].take(100)
    rooms[0].take_off(1200)
    assert rooms[1].take(100)


async def test_clients_may_stop_reading_for_long(cluster: Cluster) -> None:
    """`peer_watch` tells them from those that vanished; its own tests show how."""
    async with cluster.server() as (server, _, _):
        settings = server._channel_settings()
        assert settings.peers_may_pause
        assert settings.not_reading_seconds == 900
        assert settings.tcp_user_timeout_ms == 30_000


@pytest.mark.parametrize("newest", [4, 5])
async def test_a_server_offers_the_versions_up_to_its_newest(cluster: Cluster, newest: int) -> None:
    async with cluster.server() as (server, _, _):
        server._settings = server._settings.model_copy(update={"max_protocol_version": newest})
        assert server._channel_settings().versions == (*range(newest + 1), PEER_VERSION)
        server._detector = None
        assert server._channel_settings().versions == tuple(range(newest + 1))


@pytest.mark.parametrize(
    ("newest", "compression", "offered"), [(5, "zstd", True), (5, "none", False), (4, "zstd", False)]
)
async def test_compressed_blocks_are_offered_where_they_can_be_made(
    newest: int, compression: str, offered: bool
) -> None:
    server = WaltzServer(
        settings(None, maxProtocolVersion=newest, feedCompression=compression),
        zookeeper=MemoryZooKeeper().session(1.0),
        make_backend=lambda zookeeper, params: FakeBackend(FakeLogs()),
        rng=random.Random(1),
    )
    assert server._channel_settings().features == ((ZSTD_BLOCKS,) if offered else ())
    assert (server._caches.blocks.compressor is not None) is offered


async def test_a_server_without_the_package_says_so_at_its_start(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "zstandard", None)
    with pytest.raises(MissingPackageError, match=r"or set server\.feedCompression: none") as found:
        settings(None).block_compressor()
    assert found.value.user_error
    assert settings(None, feedCompression="none").block_compressor() is None


async def test_zookeeper_6_10_port_is_open_before_the_registration(cluster: Cluster) -> None:
    session = cluster.zookeeper.session(1.0)
    create, seen = session.create, []
    descriptors = ClusterPaths(ROOT).server_descriptors

    async def watched(path: str, data: bytes | None, **how: bool) -> str:
        if path.startswith(descriptors + "/"):
            port = int.from_bytes(data[-8:-4], "big") if data else 0
            _, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.close()
            await writer.wait_closed()
            seen.append(port)
        return await create(path, data, **how)

    session.create = watched  # type: ignore[method-assign]
    async with cluster.server(session=session) as (server, _, _):
        assert server.endpoint is not None
        assert seen == [server.endpoint.port]


async def test_zookeeper_6_06_orderly_leave_pauses_writers_less_than_half_a_second(cluster: Cluster) -> None:
    async with cluster.server() as (staying, _, _), cluster.server() as (leaving, _, stop):
        await until(lambda: len(staying.registry.owned_ids()) == len(leaving.registry.owned_ids()) == 2)
        partition = leaving.registry.owned_ids()[0]
        generation = leaving.registry.partitions[partition].generation
        assert leaving.endpoint is not None
        assert staying.endpoint is not None
        old = await RawPeer.open(leaving.endpoint.port)
        assert await mount(old, partition, generation, -1)
        old.append(ReqId(1, generation, partition, 2))
        old.send(FlushRequest(ReqId(1, generation, partition, 3)))
        await old.read()
        stop.set()
        new = await RawPeer.open(staying.endpoint.port)
        assert await mount(new, partition, generation + 1, 0)  # one attempt: it is held until the take-over
        new.append(ReqId(1, generation + 1, partition, 4))
        new.send(FlushRequest(ReqId(1, generation + 1, partition, 5)))
        assert await new.read() == FlushResponse(ReqId(1, generation + 1, partition, 5), 1)
        assert await old.closed_by_server()
        await old.close()
        await new.close()
    assert len(cluster.nodes.logs[partition]) == 2


async def test_leaving_server_serves_on_until_it_is_taken_over(cluster: Cluster) -> None:
    async with cluster.server() as (staying, successor, _), cluster.server() as (leaving, _, stop):
        await until(lambda: len(staying.registry.owned_ids()) == len(leaving.registry.owned_ids()) == 2)
        successor.opening_seconds = 0.3
        partition = leaving.registry.owned_ids()[0]
        generation = leaving.registry.partitions[partition].generation
        assert leaving.endpoint is not None
        peer = await RawPeer.open(leaving.endpoint.port)
        assert await mount(peer, partition, generation, -1)
        stop.set()
        await until(lambda: partition in staying.registry.owned_ids())
        peer.append(ReqId(1, generation, partition, 2))
        peer.send(FlushRequest(ReqId(1, generation, partition, 3)))
        assert await peer.read() == FlushResponse(ReqId(1, generation, partition, 3), 0)
        await peer.close()


async def test_safety_d8_lost_session_closes_partitions_and_they_come_back(cluster: Cluster) -> None:
    session = cluster.zookeeper.session(1.0)
    async with cluster.server(session=session) as (server, _, _):
        await until(lambda: len(server.registry.partitions) == PARTITIONS)
        assert server.endpoint is not None
        peer = await RawPeer.open(server.endpoint.port)
        assert await mount(peer, 0, 1, -1)
        closed = list(server.registry.partitions.values())
        session.expire()
        await until(lambda: all(partition.closed for partition in closed))
        await until(lambda: len(server.registry.partitions) == PARTITIONS)
        # the client never saw it go: it is told to mount again
        assert await peer.read() == MountResponse(ReqId(1, 1, 0, 1), MountState.NOT_READY)
        assert await mount(peer, 0, server.registry.partitions[0].generation, -1)
        await peer.close()


async def test_safety_d8_suspended_session_keeps_serving_until_the_timeout(cluster: Cluster) -> None:
    session = cluster.zookeeper.session(1.0)
    async with cluster.server(session=session) as (server, _, _):
        await until(lambda: len(server.registry.partitions) == PARTITIONS)
        partitions = list(server.registry.partitions.values())
        session.suspend()
        await asyncio.sleep(0.2)
        assert not any(partition.closed for partition in partitions)
        await until(lambda: all(partition.closed for partition in partitions))
        session.resume()
        await until(lambda: len(server.registry.partitions) == PARTITIONS)


async def test_replica_changes_reach_the_stores(cluster: Cluster) -> None:
    async with cluster.server() as (server, backend, _):
        await until(lambda: len(server.registry.partitions) == PARTITIONS)
        backend.replicas = {0: ("st1:1", "st2:1")}
        assert backend.on_replicas_changed is not None
        backend.on_replicas_changed()
        assert backend.stores[0].replica_set == ["st1:1", "st2:1"]


async def test_health_and_metrics_tell_the_truth(cluster: Cluster) -> None:
    async with cluster.server(jetty_port=free_port()) as (server, backend, _):
        await until(lambda: all(ok for ok, _ in server.registry.health().values()))
        status, body = await get(f"http://127.0.0.1:{server.http_port}/health")
        report = json.loads(body)["server-health-check"]
        assert (status, report["healthy"], report["zookeeper"]) == (200, True, True)
        assert report["partitions"] == {str(n): True for n in range(PARTITIONS)}
        backend.stores[1].lose_session("2 of 3 replicas do not answer")
        status, body = await get(f"http://127.0.0.1:{server.http_port}/health")
        report = json.loads(body)["server-health-check"]
        assert status == 500
        assert report["partitions"]["1"] is False
        assert report["reasons"] == {"1": "recovering: 2 of 3 replicas do not answer"}
        assert report["summary"] == [
            "partition 1 cannot take a write: recovering: 2 of 3 replicas do not answer"
        ]
        _, body = await get(f"http://127.0.0.1:{server.http_port}/metrics", "application/json")
        metrics = json.loads(body)
        for name in (
            "is-closed",
            "cluster-name",
            "server-id",
            "endpoint",
            "replica-info",
            "waltz-version-id",
        ):
            assert f"waltz-server.{name}" in metrics["gauges"]
        assert metrics["gauges"]["waltz-server.waltz-server-num-partitions"]["value"] == PARTITIONS
        group = "waltz-server.partition-0."
        for name in ("pending-append", "is-closed", "generation", "append-queue-size", "high-water-mark"):
            assert group + name in metrics["gauges"]
        for kind in ("real-time", "catchup"):
            for what in ("added", "removed"):
                assert f"{group}total-{kind}-feed-context-{what}" in metrics["gauges"]
        for name in ("transaction", "successful-append", "rejected-append"):
            assert group + name in metrics["meters"]
        for name in ("feed-cache-miss", "transaction-cache-miss"):
            assert f"waltz-server.{name}" in metrics["meters"]
        assert group + "response-latency" in metrics["timers"]


async def get(url: str, accept: str = "*/*") -> tuple[int, str]:
    def fetch() -> tuple[int, str]:
        try:
            with urllib.request.urlopen(urllib.request.Request(url, headers={"Accept": accept})) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read().decode()

    return await asyncio.to_thread(fetch)
