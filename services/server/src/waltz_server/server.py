"""The server process, put together: port, partitions, ZooKeeper, HTTP, and the way out.

Owner of everything: `WaltzServer.serve`, one structured scope. Order at the start: settings that can be wrong
by themselves (keys), cluster and store parameters, port, HTTP, and only then the registration (ZooKeeper
layout, weakness 6.10: clients never see a server whose port is not open; 13.6: a port that cannot be bound
ends the process).

Order at the end (SIGTERM): unregister, so that the others take over at once; serve on until they have (the
fence of the new owner ends our sessions), which keeps the pause of writers to recovery plus remount; close
partitions, wait a moment for clients to leave by themselves, close the port.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from contextlib import AsyncExitStack
from uuid import UUID

import structlog

from waltz_cluster.cluster_params import patiently, read_params
from waltz_cluster.eviction import Challenges
from waltz_cluster.manager import ClusterManager, Endpoints, Picture
from waltz_cluster.quorum import alike, said_once
from waltz_cluster.registration import ServerRegistration
from waltz_cluster.serializers import ClusterParams, StoreParams
from waltz_cluster.store import SessionState, ZooKeeperStore
from waltz_protocol.aio.channel import ChannelSettings
from waltz_protocol.aio.listener import Listener
from waltz_protocol.aio.receive_budget import ReceiveBudget
from waltz_protocol.aio.tls import ServerTls, client_context, server_context
from waltz_protocol.aio.turns import Turns
from waltz_protocol.aio.unsent import UnsentReplies
from waltz_protocol.codec import CLIENT, client_versions
from waltz_protocol.directory import Directory
from waltz_protocol.errors import TlsSettingsError
from waltz_protocol.frame import DEFAULT_MAX_FRAME_BYTES
from waltz_protocol.handshake import ZSTD_BLOCKS
from waltz_protocol.messages.peer import PEER_VERSION
from waltz_protocol.types import Endpoint
from waltz_runtime.certificates import follow, publish_expiry
from waltz_runtime.graphite import GraphiteReporter
from waltz_runtime.http import HttpEndpoints
from waltz_runtime.metrics import MetricsRegistry
from waltz_runtime.process import CutShortBy
from waltz_server import __version__
from waltz_server.addresses import advertised_endpoint, bind_host
from waltz_server.admin_rpc import AdminDesk
from waltz_server.backend import StoreBackend
from waltz_server.connection import UNREAD_BYTES, ClientConnection
from waltz_server.directory import DirectoryDesk
from waltz_server.metric_meanings import BUILD, MEANINGS
from waltz_server.partition.append_stages import AppendStages
from waltz_server.partition.compressed_blocks import CompressedBlocks
from waltz_server.partition.feed_cache import FeedCache
from waltz_server.partition.metrics import GROUP, cpu_rates
from waltz_server.partition.owned_partition import Partition
from waltz_server.partition.queue_room import WaitingBytes
from waltz_server.partition.shared_caches import SharedCaches
from waltz_server.partition.transaction_cache import TransactionCache
from waltz_server.peers.detector import PeerDetector
from waltz_server.peers.protocol import AcceptedConnection
from waltz_server.producers import ProducerDesk
from waltz_server.registry import PartitionRegistry
from waltz_server.settings import ServerSettings

log = structlog.get_logger(__name__)

HELLO_TEXT = "Waltz Server"
UNREGISTER_SECONDS = 3.0
DRAIN_SECONDS = 1.0
CLIENTS_LEAVE_SECONDS = 1.0
MAX_CLIENT_FRAME_BYTES = DEFAULT_MAX_FRAME_BYTES - 64
"""An append grows a little on its way; a storage node closes the connection, which all partitions share, over
a frame that is too large."""
LEAVE_POLL_SECONDS = 0.02

MakeBackend = Callable[[ZooKeeperStore, StoreParams], StoreBackend]
Desks = tuple[AdminDesk, DirectoryDesk, ProducerDesk]


class WaltzServer:
    """One server. `zookeeper` is connected by the caller and closed by it, after `serve` has returned."""

    def __init__(
        self,
        settings: ServerSettings,
        *,
        zookeeper: ZooKeeperStore,
        make_backend: MakeBackend,
        rng: random.Random,
        metrics: MetricsRegistry | None = None,
    ) -> None:
        loop = asyncio.get_running_loop()
        self.metrics = metrics if metrics is not None else MetricsRegistry(loop.time, MEANINGS, BUILD)
        self.serving = asyncio.Event()
        """Set once the server is registered."""
        self.endpoint: Endpoint | None = None
        self.http_port: int | None = None
        self._loop = loop
        self._settings = settings
        self._zookeeper = zookeeper
        self._rng = rng
        self._make_backend = make_backend
        self._backend: StoreBackend | None = None
        self._caches = SharedCaches(
            FeedCache(settings.feed_cache_size_bytes),
            TransactionCache(settings.transaction_cache_size_bytes),
            CompressedBlocks(settings.block_compressor()),
        )
        self._partition_settings = settings.partition_settings()
        self._turns = Turns()
        self._stages = AppendStages(self.metrics, GROUP)
        self._waiting = WaitingBytes(settings.append_queue_total_bytes)
        self._registry: PartitionRegistry | None = None
        self._registration: ServerRegistration | None = None
        self._others: set[Endpoint] = set()
        self._detector: PeerDetector | None = None
        self._directory: DirectoryDesk | None = None
        self._params = ClusterParams("", 0)

    @property
    def registry(self) -> PartitionRegistry:
        """The partitions; RuntimeError before `serve` has made them."""
        if self._registry is None:
            raise RuntimeError("the server is not running")
        return self._registry

    @property
    def backend(self) -> StoreBackend:
        """The stores; RuntimeError before `serve` has made them."""
        if self._backend is None:
            raise RuntimeError("the server is not running")
        return self._backend

    @property
    def evictions(self) -> int:
        """Other servers that this one has evicted."""
        return self._detector.evictions if self._detector is not None else 0

    async def serve(self, stop: asyncio.Event) -> None:
        """Serve until `stop` is set, then leave in order. Errors of configuration carry `user_error`."""
        opened = None
        async with AsyncExitStack() as stack:
            async with CutShortBy(stop):
                opened = await self._open(stack)
            if opened is not None:
                await self._run(stop, *opened)

    async def _open(self, stack: AsyncExitStack) -> tuple[ClusterManager, Desks, ServerTls | None]:
        """Everything that is there before others hear of this server; `stack` ends it."""
        settings = self._settings
        tls = server_context(settings.client_facing_tls())
        host = await bind_host(settings)
        zookeeper, root = self._zookeeper, settings.cluster_root
        self._params, store_params = await patiently(lambda: read_params(zookeeper, root))
        backend = self._backend = self._make_backend(self._zookeeper, store_params)
        registry = self._registry = PartitionRegistry(
            self._params.num_partitions, self._make_partition, self._turns
        )
        admin = AdminDesk(registry, backend.check_connectivity, cpu_rates(self.metrics))
        manager = ClusterManager(self._zookeeper, settings.cluster_root, rng=self._rng)
        directory = self._directory = DirectoryDesk(self._turns, manager.new_client_ids)
        manager.set_picture_listener(
            lambda picture: directory.update(self._as_directory(picture, store_params))
        )
        producers = ProducerDesk(manager.producers, self._params.num_partitions)
        detector = self._detector = self._make_detector(manager, store_params.cluster_key)
        stack.push_async_callback(backend.close)
        if detector is not None:
            registry.old_owners = detector.old_owners
            stack.push_async_callback(detector.old_owners.close)
        await backend.start(self._replicas_changed)
        budget, unread = ReceiveBudget(settings.receive_bytes), UnsentReplies(UNREAD_BYTES)

        def client() -> ClientConnection:
            return ClientConnection(
                registry,
                admin,
                max_locks=settings.max_locks,
                unread=unread,
                directory=directory,
                producers=producers,
            )

        listener = await stack.enter_async_context(Listener(budget, self._turns))
        await listener.start(
            host,
            settings.port,
            self._channel_settings(),
            client if detector is None else lambda: AcceptedConnection(client, detector.accepted),
            tls,
            settings.limits(),
        )
        self.endpoint = await advertised_endpoint(settings, host, listener.port)
        await self._start_http(stack, host)
        self._publish_gauges()
        publish_expiry(self.metrics, f"{GROUP}.tls", tls)
        stack.callback(directory.close)
        await stack.enter_async_context(manager)
        await stack.enter_async_context(registry)
        return manager, (admin, directory, producers), tls

    def _as_directory(self, picture: Picture, store_params: StoreParams) -> Directory:
        return Directory(
            picture.number,
            self._params.name,
            store_params.cluster_key,
            self._params.num_partitions,
            picture.endpoints,
            picture.in_contact,
        )

    async def _run(
        self,
        stop: asyncio.Event,
        manager: ClusterManager,
        desks: Desks,
        tls: ServerTls | None,
    ) -> None:
        """Everything is open: register, serve, leave."""
        reporter = GraphiteReporter(self.metrics, self._settings.graphite_settings())
        async with asyncio.TaskGroup() as tasks:
            owners = (*desks, self.backend, reporter)
            helpers = [tasks.create_task(owner.run()) for owner in owners]
            if tls is not None:
                helpers.append(tasks.create_task(follow(tls)))
            if self._detector is not None:
                helpers.append(tasks.create_task(self._detector.run()))
            async with CutShortBy(stop):
                await self._register(manager, desks[0])
            await stop.wait()
            await self._leave(self.registry)
            for helper in helpers:
                helper.cancel()

    def _channel_settings(self) -> ChannelSettings:
        versions = client_versions(self._settings.max_protocol_version)
        return ChannelSettings(
            magic=CLIENT.magic,
            versions=versions if self._detector is None else (*versions, PEER_VERSION),
            hello_text=HELLO_TEXT,
            features=(ZSTD_BLOCKS,) if self._caches.blocks.compressor is not None else (),
            max_frame_bytes=min(self._settings.max_frame_bytes, MAX_CLIENT_FRAME_BYTES),
            peers_may_pause=True,
        )

    def _make_detector(self, manager: ClusterManager, cluster: UUID) -> PeerDetector | None:
        """None when it is switched off, or no other server could be verified."""
        settings = self._settings
        if not settings.peer_watch:
            return None
        try:
            tls = client_context(settings.client_facing_tls())
        except TlsSettingsError as error:
            log.warning("other servers are not watched", reason=str(error))
            return None
        return PeerDetector(
            settings.peer_timeout_ms / 1000,
            hello_text=HELLO_TEXT,
            tls=tls,
            challenges=Challenges(self._zookeeper, settings.cluster_root),
            manager=manager,
            cluster=cluster,
            hand_over=self.registry.hand_over,
        )

    def _make_partition(self, partition_id: int, generation: int) -> Partition:
        return Partition(
            partition_id,
            generation,
            make_store=self.backend.make_store,
            settings=self._partition_settings,
            caches=self._caches,
            metrics=self.metrics,
            turns=self._turns,
            stages=self._stages,
            waiting=self._waiting,
        )

    def _replicas_changed(self) -> None:
        """The assignment of replicas changed: partitions concerned start a new session (others notice
        nothing)."""
        if self._registry is not None:
            for partition_id, partition in self._registry.partitions.items():
                partition.store.set_replicas(self.backend.replicas_of(partition_id))

    async def _start_http(self, stack: AsyncExitStack, host: str) -> None:
        if self._settings.jetty_port is None:
            log.warning("server.jetty.port is not set: no health and metrics over HTTP")
            return
        http = HttpEndpoints(
            "Waltz",
            __version__,
            self._health,
            self.metrics,
            health_name="server-health-check",
        )
        await http.start(host, self._settings.jetty_port)
        stack.push_async_callback(http.close)
        self.http_port = http.port

    async def _register(self, manager: ClusterManager, admin: AdminDesk) -> None:
        if self.endpoint is None:
            raise RuntimeError("registration before the port is open")
        manager.add_endpoints_listener(self._endpoints_changed)
        registry = self.registry
        registry.address = str(self.endpoint)
        self._registration = await manager.register_server(
            self.endpoint,
            lambda wanted: registry.adopt(
                {int(pid): int(generation) for pid, generation in wanted.items()},
                settle=bool(wanted) and self._zookeeper.state is SessionState.CONNECTED,
            ),
        )
        admin.preferences = self._registration
        if self._detector is not None:
            server_id, detector = self._registration.server_id, self._detector
            manager.set_members_listener(
                lambda znodes: detector.members(znodes, server_id, self._zookeeper.session_id)
            )
        self.serving.set()
        log.info(
            "ready",
            endpoint=str(self.endpoint),
            http_port=self.http_port,
            server_id=self._registration.server_id,
            cluster=self._params.name,
        )

    def _endpoints_changed(self, endpoints: Endpoints) -> None:
        self._others = {endpoint for endpoint in endpoints if endpoint != self.endpoint}
        self.registry.owners = {
            int(partition_id): str(endpoint)
            for endpoint, owned in endpoints.items()
            for partition_id in owned
        }

    # -- leaving -------------------------------------------------------------------------------------------

    async def _leave(self, registry: PartitionRegistry) -> None:
        """See the module. Bounded: five seconds when everything hangs."""
        log.info("leaving", partitions=registry.owned_ids(), connections=registry.connection_count)
        registry.begin_leaving()
        if self._registration is not None:
            await self._registration.unregister(timeout_seconds=UNREGISTER_SECONDS)
        await registry.drain(DRAIN_SECONDS, wait_for_successor=bool(self._others))
        registry.close()
        if self._directory is not None:
            self._directory.dismiss()
        deadline = self._loop.time() + CLIENTS_LEAVE_SECONDS
        while self._others and registry.connection_count and self._loop.time() < deadline:
            await asyncio.sleep(LEAVE_POLL_SECONDS)  # clients leave when discovery informs them

    # -- reports -------------------------------------------------------------------------------------------

    def _zookeeper_healthy(self) -> bool:
        """Connected, or without contact for less than two session timeouts (as 0.13.2 counts it)."""
        if self._zookeeper.state is SessionState.CONNECTED:
            return True
        silent_seconds = self._loop.time() - self._zookeeper.last_contact
        return silent_seconds < 2 * self._zookeeper.session_timeout_seconds

    def _health(self) -> tuple[bool, dict[str, object]]:
        """The body of /health: the 0.13.2 members, and why which partitions are not healthy, each reason
        once."""
        partitions = self.registry.health()
        zookeeper = self._zookeeper_healthy()
        healthy = zookeeper and all(ok for ok, _ in partitions.values())
        report: dict[str, object] = {
            "healthy": healthy,
            "zookeeper": zookeeper,
            "partitions": {str(partition_id): ok for partition_id, (ok, _) in partitions.items()},
        }
        reasons = {partition_id: reason for partition_id, (ok, reason) in partitions.items() if not ok}
        if reasons:
            report["summary"] = said_once(reasons, len(partitions))
            report["reasons"] = alike(reasons)
        return healthy, {"server-health-check": report}

    def _publish_gauges(self) -> None:
        registry = self.registry

        def gauge(name: str, read: Callable[[], object]) -> None:
            self.metrics.gauge(f"{GROUP}.{name}", read)

        gauge("is-closed", lambda: False)
        gauge("cluster-name", lambda: self._params.name)
        gauge("server-id", lambda: self._registration.server_id if self._registration else -1)
        gauge("endpoint", lambda: str(self.endpoint))
        gauge("waltz-server-num-partitions", lambda: self._params.num_partitions)
        gauge("waltz-version-id", lambda: __version__)
        gauge("connections", lambda: registry.connection_count)
        detector = self._detector
        gauge("peers-watched", lambda: detector.watched if detector is not None else 0)
        gauge("peers-suspected", lambda: detector.suspected if detector is not None else 0)
        gauge("peers-evicted", lambda: detector.evictions if detector is not None else 0)
        directory = self._directory
        gauge("directory-watchers", lambda: directory.watchers if directory is not None else 0)
        gauge("feed-cache-bytes", lambda: self._caches.feed.used_bytes)
        gauge("transaction-cache-bytes", lambda: self._caches.transactions.used_bytes)
        gauge(
            "replica-info",
            lambda: {str(pid): list(self.backend.replicas_of(pid)) for pid in registry.owned_ids()},
        )
