"""Configuration of the server: the keys of release 0.13.2 and our own, each with its default (protocol,
configuration)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import ClassVar, Literal

from pydantic import Field, field_validator

from waltz_cluster.config.allowed_peers import AllowedPeers, unverified_peers
from waltz_cluster.config.settings import LOG_LEVELS, ZOOKEEPER_TLS, Conflict, ZooKeeperSettings
from waltz_protocol.aio.listener import DEFAULT_MAX_HANDSHAKES, Limits
from waltz_protocol.aio.receive_budget import DEFAULT_RECEIVE_BYTES
from waltz_protocol.aio.tls import TlsSettings
from waltz_protocol.codec import (
    NEWEST_CLIENT_VERSION,
    NEWEST_OF_0_13_2,
    NEWEST_STORAGE_VERSION,
    STORAGE_OF_0_13_2,
)
from waltz_protocol.frames.append import MAX_LOCKS
from waltz_protocol.frames.compressed_blocks import BlockCompressor
from waltz_protocol.messages.client import BlockFeedRequest
from waltz_runtime.graphite import GraphiteSettings
from waltz_server.partition.owned_partition import PartitionSettings
from waltz_server.partition.queue_room import AppendBounds
from waltz_server.store.api import StoreSettings

MIB = 1024 * 1024


class ServerSettings(ZooKeeperSettings):
    """All settings of one server. Sizes are bytes, times as the key says."""

    TLS_PREFIXES: ClassVar[tuple[str, ...]] = ("server.ssl", "storage.ssl", ZOOKEEPER_TLS)
    NO_EFFECT: ClassVar[frozenset[str]] = frozenset({"server.region"})

    port: int = Field(alias="server.port", ge=1, le=65535)
    jetty_port: int | None = Field(default=None, alias="server.jetty.port", ge=1, le=65535)
    """HTTP port; none = no HTTP."""
    bind_host: str | None = Field(
        default=None, alias="server.bind.host", json_schema_extra={"format": "hostname"}
    )
    """Address both ports listen on; default: what the machine's own host name resolves to, as 0.13.2."""
    advertised_host: str | None = Field(default=None, alias="server.advertised.host", min_length=1)
    """Host name that clients get; default: the canonical name of the bound address, or `server.bind.host`.
    `{dashed-address}` in it is replaced by this machine's own address, such as 10-1-2-3, `{address}` for
    10.1.2.3."""
    advertised_port: int | None = Field(default=None, alias="server.advertised.port", ge=1, le=65535)
    lock_table_size: int = Field(default=30_000, alias="server.optimisticLockTableSize", ge=1)
    feed_cache_size_bytes: int = Field(default=64 * MIB, alias="server.feedCacheSize", ge=0)
    min_fetch_size: int = Field(default=100, alias="server.minFetchSize", ge=1)
    realtime_threshold: int = Field(default=1000, alias="server.realtimeThreshold", ge=1)
    transaction_cache_size_bytes: int = Field(
        default=128 * MIB, alias="server.transactionDataCacheSize", ge=0
    )
    transaction_cache_allocation: str = Field(
        default="heap",
        alias="server.transactionDataCacheAllocation",
        json_schema_extra={"enum": ["HEAP", "DIRECT"]},
    )
    """`heap` or `direct`; Python has one kind of memory, so both mean the same."""
    max_frame_bytes: int = Field(default=64 * MIB, alias="server.maxFrameBytes", ge=1024)
    max_protocol_version: int = Field(
        default=NEWEST_CLIENT_VERSION,
        alias="server.maxProtocolVersion",
        ge=NEWEST_OF_0_13_2,
        le=NEWEST_CLIENT_VERSION,
    )
    """Newest version of the client-server protocol that is offered; 4 is that of 0.13.2."""
    feed_compression: Literal["none", "zstd"] = Field(default="zstd", alias="server.feedCompression")
    """`zstd`: blocks of transactions are compressed for the clients that ask for it
    (`client.feedCompression`); `none`: for nobody."""
    max_connections: int = Field(default=10_000, alias="server.maxConnections", ge=1)
    max_handshakes: int = Field(default=DEFAULT_MAX_HANDSHAKES, alias="server.maxHandshakes", ge=1)
    """Connections that have not finished TLS and Hello; beyond it the slowest give way."""
    receive_bytes: int = Field(default=DEFAULT_RECEIVE_BYTES, alias="server.receiveBytes", ge=1024 * 1024)
    """Memory for requests that have not arrived completely, over all connections; beyond it peers are held
    back, and those that stopped in the midst of a small request (up to 64 KiB; half of the memory is for
    these) are cut."""
    allowed_peers: AllowedPeers = Field(default=None, alias="server.ssl.allowedPeers")
    """Names of client certificates that may connect; none = every one the trust store verifies, as 0.13.2."""
    append_queue_bytes: int = Field(default=32 * MIB, alias="server.appendQueueBytes", ge=1)
    """Bytes of appends one partition keeps waiting; what does not fit is dropped (the client retries it)."""
    append_queue_count: int = Field(default=20_000, alias="server.appendQueueCount", ge=1)
    append_queue_total_bytes: int = Field(default=256 * MIB, alias="server.appendQueueTotalBytes", ge=1)
    """Bytes of appends that all partitions of a server keep waiting together; beyond it each one keeps a
    128th of `server.appendQueueBytes`."""
    max_locks: int = Field(default=MAX_LOCKS, alias="server.maxLocksPerAppend", ge=1)
    """Locks of one append, all kinds together; one with more is dropped, and the log names its sender."""
    peer_watch: bool = Field(default=True, alias="server.peerWatch.enabled")
    """Whether this server watches other servers that do so too, and takes part when one is evicted."""
    peer_timeout_ms: int = Field(default=2_000, alias="server.peerTimeout", ge=200)
    """A server that watches and is silent for this many milliseconds is evicted by the others; eight pings
    are sent in that time. Set it alike on all servers."""
    repeat_window: int = Field(default=10_000, alias="server.repeatWindow", ge=1)
    """Last transactions of a partition among which an append that is sent again is looked for."""
    max_storage_version: int = Field(
        default=NEWEST_STORAGE_VERSION,
        alias="storage.maxProtocolVersion",
        ge=STORAGE_OF_0_13_2,
        le=NEWEST_STORAGE_VERSION,
    )
    max_batch_size: int = Field(default=100, alias="storage.maxBatchSize", ge=1)
    initial_retry_interval_ms: int = Field(default=100, alias="storage.initialRetryInterval", ge=1)
    max_retry_interval_ms: int = Field(default=20_000, alias="storage.maxRetryInterval", ge=1)
    checkpoint_interval: int = Field(default=250_000, alias="storage.checkpointInterval", ge=1)
    idle_check_interval_ms: int = Field(default=3_000, alias="storage.idleCheckInterval", ge=100)
    """Pause between two questions to a storage node whether it answers while nobody appends; health says what
    comes of it."""
    graphite_hostname: str | None = Field(
        default=None, alias="server.graphite.hostname", json_schema_extra={"format": "hostname"}
    )
    graphite_port: int = Field(default=2003, alias="server.graphite.port", ge=1, le=65535)
    graphite_prefix: str = Field(default="waltz", alias="server.graphite.prefix")
    graphite_interval_seconds: int = Field(default=60, alias="server.graphite.reportIntervalMs", ge=1)
    """The key says milliseconds, 0.13.2 takes it as seconds, and so do we (weakness 13.22)."""
    graphite_use_udp: bool = Field(default=False, alias="server.graphite.useUdp")
    log_level: str = Field(
        default="INFO", alias="server.log.level", json_schema_extra={"enum": [*LOG_LEVELS]}
    )
    log_json: bool = Field(default=False, alias="server.log.json")

    @field_validator("transaction_cache_allocation")
    @classmethod
    def _heap_or_direct(cls, value: str) -> str:
        if value.lower() not in ("heap", "direct"):
            raise ValueError("must be heap or direct")
        return value.lower()

    def conflicts(self) -> Iterator[Conflict]:
        if self.port == self.jetty_port:
            yield Conflict(
                ("server.port", "server.jetty.port"), "server.port and server.jetty.port must differ"
            )
        if self.min_fetch_size >= self.realtime_threshold:
            yield Conflict(
                ("server.minFetchSize", "server.realtimeThreshold"),
                "server.minFetchSize must be less than server.realtimeThreshold",
            )
        yield from unverified_peers("server.ssl.allowedPeers", self.allowed_peers, self.client_facing_tls())

    def limits(self) -> Limits:
        """Of the port clients connect to."""
        return Limits(
            self.max_connections, self.max_handshakes, self.allowed_peers, "server.ssl.allowedPeers"
        )

    def client_facing_tls(self) -> TlsSettings:
        """TLS of the port clients connect to."""
        return replace(self.tls_settings("server.ssl"), prefix="server.ssl")

    def storage_facing_tls(self) -> TlsSettings:
        """TLS of connections to storage nodes: `storage.ssl.*` as documented, or else `server.ssl.*`, which
        is what 0.13.2 really uses (weakness 13.21)."""
        prefix = "storage.ssl" if "storage.ssl" in self.tls else "server.ssl"
        return replace(self.tls_settings(prefix), prefix=prefix)

    def block_compressor(self) -> BlockCompressor | None:
        """What compresses the blocks of feeds, where a client can ask for it; MissingPackageError."""
        if self.feed_compression == "none" or self.max_protocol_version < BlockFeedRequest.SINCE:
            return None
        remedy = "install what waltz-server requires, or set server.feedCompression: none"
        return BlockCompressor("server.feedCompression zstd", remedy)

    def partition_settings(self) -> PartitionSettings:
        """What a partition needs to know."""
        return PartitionSettings(
            lock_table_size=self.lock_table_size,
            min_fetch_size=self.min_fetch_size,
            realtime_threshold=self.realtime_threshold,
            append_bounds=AppendBounds(self.append_queue_count, self.append_queue_bytes),
            repeat_window=self.repeat_window,
        )

    def store_settings(self) -> StoreSettings:
        """What the replication core needs to know."""
        return StoreSettings(
            max_batch_size=self.max_batch_size,
            initial_retry_interval_ms=self.initial_retry_interval_ms,
            max_retry_interval_ms=self.max_retry_interval_ms,
            checkpoint_interval=self.checkpoint_interval,
            idle_check_interval_ms=self.idle_check_interval_ms,
            newest_version=self.max_storage_version,
        )

    def graphite_settings(self) -> GraphiteSettings:
        """Where to report to; off without a host name."""
        return GraphiteSettings(
            hostname=self.graphite_hostname,
            port=self.graphite_port,
            prefix=self.graphite_prefix,
            interval_seconds=float(self.graphite_interval_seconds),
            use_udp=self.graphite_use_udp,
        )
