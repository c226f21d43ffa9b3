"""What a cluster of one seed looks like: how many of everything, and settings that make rare paths common.
Pure."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from waltz_storage.engine.partition import EngineSettings
from waltz_storage.service.disk_pool import QueueLimits

T = TypeVar("T")

STORAGE_PORT = 6001
ADMIN_PORT = 6002
SERVER_PORT = 5001
KIB = 1024


@dataclass(frozen=True, slots=True)
class Shape:
    """The cluster of one seed. Times in seconds unless named otherwise, sizes in bytes."""

    storage_nodes: int
    servers: int
    partitions: int
    placement: tuple[tuple[int, ...], ...]
    """For each partition the numbers (from 1) of the storage nodes that hold it at the beginning."""
    session_timeout_seconds: float
    latency_seconds: tuple[float, float]
    sync_seconds: tuple[float, float]
    engine: EngineSettings
    queue_limits: QueueLimits
    server_keys: tuple[tuple[str, object], ...]
    store_bounds: tuple[tuple[str, int], ...]
    """Fields of StoreSettings that no key of the configuration reaches."""
    client_keys: tuple[tuple[str, object], ...]
    old_clients: float
    """Share of the clients that speak older versions of the client protocol only."""
    old_servers: float = 0.0
    """Share of the lives of servers in which they speak only the versions of 0.13.2."""
    directory_clients: float = 0.0
    """Share of the clients of the newest version that are given servers, not ZooKeeper. They need a server
    that is never as those of 0.13.2: the first one, where there are such clients."""

    def storage_names(self) -> list[str]:
        """Host names of the storage nodes; also their roles' names."""
        return [f"storage-{number}" for number in range(1, self.storage_nodes + 1)]

    def always_ours(self, server: str) -> bool:
        """Whether this server speaks the newest version in all of its lives."""
        return not self.old_servers or (self.directory_clients > 0 and server == self.server_names()[0])

    def server_names(self) -> list[str]:
        """Host names of the servers."""
        return [f"server-{number}" for number in range(1, self.servers + 1)]


def connect_string(host: str) -> str:
    """What ZooKeeper calls a storage node."""
    return f"{host}:{STORAGE_PORT}"


def host_of(connect: str) -> str:
    """The host of a connect string."""
    return connect.partition(":")[0]


def make_shape(rng: random.Random) -> Shape:
    """Draw a cluster."""
    nodes, copies = _weighted(
        rng, ((3, 3), 52), ((5, 3), 18), ((4, 3), 18), ((5, 5), 8), ((3, 2), 2), ((3, 1), 2)
    )
    partitions = _weighted(rng, (1, 25), (2, 40), (3, 20), (4, 15))
    low = rng.choice((0.00005, 0.0002, 0.001))
    sync = rng.choice((0.0002, 0.001, 0.004))
    shape = Shape(
        storage_nodes=nodes,
        servers=_weighted(rng, (2, 60), (3, 40)),
        partitions=partitions,
        placement=tuple(_replicas(rng, nodes, copies, number) for number in range(partitions)),
        session_timeout_seconds=rng.choice((4.0, 6.0, 10.0)),
        latency_seconds=(low, low * rng.choice((2, 10, 30))),
        sync_seconds=(sync / 2, sync * rng.choice((1, 4))),
        engine=EngineSettings(
            segment_threshold_bytes=_weighted(
                rng, (400, 1), (1 * KIB, 2), (4 * KIB, 3), (16 * KIB, 2), (1_000_000_000, 1)
            ),
            segment_cache_capacity=_weighted(rng, (0, 1), (1, 1), (2, 2), (5, 4)),
        ),
        queue_limits=QueueLimits(
            max_requests=rng.choice((8, 64, 4096)),
            max_bytes=rng.choice((4 * KIB, 64 * KIB, 32 << 20)),
            job_requests=rng.choice((1, 4, 1024)),
            job_bytes=rng.choice((1 * KIB, 4 << 20)),
        ),
        server_keys=_server_keys(rng),
        store_bounds=_store_bounds(rng),
        client_keys=_client_keys(rng),
        old_clients=rng.choice((0.0, 0.2, 0.5, 1.0)),
        old_servers=rng.choice((0.0, 0.0, 0.3, 0.6, 1.0)),
    )
    detector = (
        ("server.peerTimeout", rng.choice((500, 1_000, 2_000))),
        ("server.peerWatch.enabled", rng.random() < 0.9),
    )
    answered = ("client.answeredAppends", rng.random() < 0.6)
    directory_clients = rng.choice((0.0, 0.3, 0.6, 1.0))
    in_flight = ("max_in_flight_records", rng.choice((1, 5, 65_536)))
    return replace(
        shape,
        directory_clients=0.0 if shape.old_servers == 1.0 else directory_clients,
        server_keys=(*shape.server_keys, *detector),
        store_bounds=(*shape.store_bounds, in_flight),
        client_keys=(*shape.client_keys, answered),
    )


ROOMY_SERVER = {"server.appendQueueCount": 20_000, "server.appendQueueBytes": 32 << 20}
ROOMY_NODE = QueueLimits(max_requests=4096, max_bytes=32 << 20)


def roomy(shape: Shape) -> Shape:
    """The same cluster with queues that hold hundreds of appends: with smaller ones a crowd is turned
    away."""
    limits = shape.queue_limits._replace(max_requests=ROOMY_NODE.max_requests, max_bytes=ROOMY_NODE.max_bytes)
    keys = tuple((key, ROOMY_SERVER.get(key, value)) for key, value in shape.server_keys)
    return replace(shape, server_keys=keys, queue_limits=limits)


LONG_SESSION_SECONDS = 30.0
QUICK_LATENCY_SECONDS = (0.0002, 0.002)


def watched(shape: Shape, rng: random.Random) -> Shape:
    """The same cluster with servers that watch each other, and sessions that last so long that only their
    detector is fast. Now and then some of them are as those of release 0.13.2 and do not watch."""
    keys = {**dict(shape.server_keys), "server.peerWatch.enabled": True}
    keys["server.peerTimeout"] = rng.choice((1_000, 2_000))
    return replace(
        shape,
        servers=_weighted(rng, (2, 30), (3, 50), (4, 20)),
        session_timeout_seconds=LONG_SESSION_SECONDS,
        latency_seconds=QUICK_LATENCY_SECONDS,
        server_keys=tuple(keys.items()),
        old_servers=rng.choice((0.0, 0.0, 0.3)),
    )


def peer_timeout_seconds(shape: Shape) -> float:
    """`server.peerTimeout` of all servers."""
    return float(str(dict(shape.server_keys)["server.peerTimeout"])) / 1000


def _replicas(rng: random.Random, nodes: int, copies: int, partition: int) -> tuple[int, ...]:
    first = rng.randrange(nodes) if rng.random() < 0.3 else partition
    return tuple(sorted((first + step) % nodes + 1 for step in range(copies)))


def _server_keys(rng: random.Random) -> tuple[tuple[str, object], ...]:
    return (
        ("server.optimisticLockTableSize", rng.choice((3, 50, 1000, 30_000))),
        ("server.feedCacheSize", _weighted(rng, (0, 1), (500, 1), (4 * KIB, 2), (64 << 20, 4))),
        ("server.transactionDataCacheSize", _weighted(rng, (0, 1), (500, 1), (4 * KIB, 2), (64 << 20, 4))),
        *rng.choice(
            (
                (("server.minFetchSize", 2), ("server.realtimeThreshold", 5)),
                (("server.minFetchSize", 10), ("server.realtimeThreshold", 20)),
                (),
            )
        ),
        ("server.appendQueueCount", rng.choice((2, 5, 100, 20_000))),
        ("server.appendQueueBytes", rng.choice((300, 4 * KIB, 32 << 20))),
        ("storage.maxBatchSize", rng.choice((1, 2, 10, 100))),
        ("storage.initialRetryInterval", rng.choice((20, 100))),
        ("storage.maxRetryInterval", rng.choice((500, 2_000, 5_000))),
        ("storage.checkpointInterval", _weighted(rng, (7, 1), (20, 1), (50, 2), (200, 3), (250_000, 3))),
    )


def _store_bounds(rng: random.Random) -> tuple[tuple[str, int], ...]:
    return (
        ("max_batch_bytes", rng.choice((200, 2 * KIB, 1024 * KIB))),
        ("max_batch_records", rng.choice((1, 5, 4096))),
        ("max_in_flight_frames", rng.choice((1, 3, 32))),
        ("max_in_flight_bytes", rng.choice((500, 8 * KIB, 16 * 1024 * KIB))),
        ("replica_backlog_bytes", rng.choice((500, 8 * KIB, 32 * 1024 * KIB))),
        ("catch_up_batch_records", rng.choice((2, 20, 1000))),
        ("catch_up_batch_bytes", rng.choice((200, 1024 * KIB))),
    )


def _client_keys(rng: random.Random) -> tuple[tuple[str, object], ...]:
    return (
        ("client.maxConcurrentTransactions", rng.choice((1, 2, 5, 50))),
        ("client.longWaitThreshold", rng.choice((500, 2_000, 5_000))),
        ("client.requestResend", rng.choice((500, 2_000))),
        ("client.retryMaxBackoff", rng.choice((100, 1_000))),
        ("client.prefetchBytes", rng.choice((1, 200, 8 << 20))),
        ("client.prefetchTransactions", rng.choice((1, 3, 512))),
        ("client.connectTimeout", rng.choice((1_000, 3_000, 10_000))),
    )


def _weighted(rng: random.Random, *choices: tuple[T, int]) -> T:
    values: Sequence[T] = [value for value, _ in choices]
    return rng.choices(values, [weight for _, weight in choices])[0]
