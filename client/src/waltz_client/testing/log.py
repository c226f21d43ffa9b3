"""InProcessLog: in place of a cluster."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from random import Random

from waltz_client.callbacks import WaltzClientCallbacks
from waltz_client.client import WaltzClient
from waltz_client.errors import UsageError
from waltz_client.testing.connection import LogConnection
from waltz_client.testing.home import Home, on_the_loop
from waltz_client.testing.locks import SERVER_LOCK_TABLE_SIZE
from waltz_client.testing.partition import LogPartition
from waltz_client.testing.producers import LogProducers
from waltz_client.testing.transport import MemoryTransport
from waltz_protocol.aio.channel import Channel, ChannelHandler, ChannelSettings
from waltz_protocol.aio.tls import ClientTls
from waltz_protocol.codec import CLIENT, NEWEST_CLIENT_VERSION, client_versions
from waltz_protocol.errors import ChannelClosedError, ConnectError, HandshakeError
from waltz_protocol.types import Endpoint, Generation, PartitionId

ENDPOINT = Endpoint("in-process", 1)

EndpointsListener = Callable[[dict[Endpoint, dict[PartitionId, Generation]]], None]


@dataclass(frozen=True)
class _Cluster:
    name: str
    num_partitions: int


class InProcessLog:
    """A cluster with one server and no storage. All clients of one log belong to one event loop; a test may
    work on the log from another thread.

    Nothing is random and nothing waits: the same test does the same every time. Two ways to a client of it:
    `client`, or the object as `client.mockDriver` in the settings that the application gives to
    `WaltzClient.connect`.
    """

    def __init__(
        self,
        num_partitions: int = 1,
        *,
        name: str = "in-process",
        lock_table_size: int | None = SERVER_LOCK_TABLE_SIZE,
        first_transaction_id: int = 0,
        seed: int = 0,
    ) -> None:
        """`lock_table_size`: slots of the server's lock table, in which locks may collide; None = no
        collisions. `first_transaction_id`: where ids begin, for tests of large ones (read such a log after
        the one before it). `seed`: of the clients' retry delays and of `fail_at_random`."""
        if num_partitions < 1:
            raise UsageError("a log has at least one partition")
        self._cluster = _Cluster(name, num_partitions)
        self._seed = seed
        self.home = Home()
        self._partitions = {
            number: LogPartition(
                number,
                lock_table_size,
                first_transaction_id,
                Random(f"{seed}/{number}"),
                self._announce,
                self.home,
            )
            for number in range(num_partitions)
        }
        self._listeners: dict[object, EndpointsListener] = {}
        self._connections: dict[LogConnection, None] = {}
        self._last_client_id = 0
        self._producers = LogProducers()
        self._reachable = True
        self._newest_version = NEWEST_CLIENT_VERSION

    # -- what tests use --------------------------------------------------------------------------------------

    def client(
        self, callbacks: WaltzClientCallbacks | None = None, settings: Mapping[str, object] | None = None
    ) -> WaltzClient:
        """A client of this log, to be entered with `async with`. `settings`: keys as of any client, all
        of them optional."""
        return WaltzClient.connect({**(settings or {}), "client.mockDriver": self}, callbacks)

    def partition(self, number: int = 0) -> LogPartition:
        """What is in one partition, and failures on demand."""
        try:
            return self._partitions[number]
        except KeyError:
            raise UsageError(f"the log has no partition {number}") from None

    @on_the_loop
    def disconnect(self) -> None:
        """Cut every connection; clients come back by themselves. What they have sent and is not decided yet
        is decided later."""
        for connection in list(self._connections):
            if connection.channel is not None:
                connection.channel.abort("the test cut the connection")

    @on_the_loop
    def go_down(self) -> None:
        """Cut every connection and accept none, until `come_up`."""
        self._reachable = False
        self.disconnect()

    @on_the_loop
    def come_up(self) -> None:
        """Undo `go_down`."""
        self._reachable = True

    # -- what a client uses (MockDriver) ---------------------------------------------------------------------

    def client_settings(self, settings: Mapping[str, object]) -> dict[str, object]:
        """The settings of a client of this log: the keys it is given, and those that need a cluster."""
        other = ("client.ssl.", "servers", "client.clusterKey")
        own = {key: value for key, value in settings.items() if not key.startswith(other)}
        return {
            "zookeeper.connectString": "in-process:1",
            "zookeeper.sessionTimeout": 10_000,
            "cluster.root": "/in-process",
            **own,
            "client.ssl.enabled": False,
        }

    @property
    def random(self) -> Random:
        """The source of a new client's retry delays."""
        return Random(f"{self._seed}/client/{self._last_client_id}")

    @property
    def cluster_params(self) -> _Cluster:
        """Name and number of partitions."""
        return self._cluster

    @property
    def cluster_key(self) -> None:
        """There are no storage nodes."""

    @property
    def producers(self) -> LogProducers:
        """The named producers."""
        return self._producers

    async def new_client_id(self) -> int:
        """1, 2, ..."""
        self.home.enter()
        self._last_client_id += 1
        return self._last_client_id

    def add_endpoints_listener(self, listener: EndpointsListener) -> Callable[[], None]:
        """Inform it which partitions are served, now and on every change."""
        key = object()
        self._listeners[key] = listener
        listener(self._endpoints())
        return lambda: self._listeners.pop(key, None) and None

    def _endpoints(self) -> dict[Endpoint, dict[PartitionId, Generation]]:
        served = {
            PartitionId(number): Generation(partition.generation)
            for number, partition in self._partitions.items()
            if partition.served
        }
        return {ENDPOINT: served}

    def _announce(self) -> None:
        for listener in list(self._listeners.values()):
            listener(self._endpoints())

    def _served(self, number: int) -> LogPartition | None:
        partition = self._partitions.get(number)
        return partition if partition is not None and partition.served else None

    async def connect(
        self,
        endpoint: Endpoint,
        settings: ChannelSettings,
        handler: ChannelHandler,
        tls: ClientTls | None,
        connect_timeout_seconds: float = 10.0,
    ) -> Channel:
        """A channel to the in-process log: what `waltz_protocol.aio.connector.connect` gives for a socket."""
        if not self._reachable:
            raise ConnectError(f"cannot connect to {endpoint}: the test took it down")
        connection = LogConnection(
            self._served, lambda: list(self._partitions), lambda gone: self._connections.pop(gone, None)
        )
        self._connections[connection] = None
        accepting = ChannelSettings(
            CLIENT.magic, client_versions(self._newest_version), "Waltz in-process log"
        )
        client = Channel(settings, handler, connecting=True)
        server = Channel(accepting, connection, connecting=False)
        MemoryTransport.join(MemoryTransport(client), MemoryTransport(server))
        try:
            await client.wait_ready()
        except (HandshakeError, ChannelClosedError) as error:
            raise ConnectError(f"cannot connect to {endpoint}: {error}") from None
        except BaseException:
            client.abort("cancelled while connecting")
            raise
        return client
