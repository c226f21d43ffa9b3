"""Configuration of a storage node: the keys of release 0.13.2 and a few more (docs/configuration.md).

Ours: `storage.bind.host` (default: the address this machine's own host name resolves to, as 0.13.2),
`storage.disk.threads`, `storage.journal.enabled` (one sync for all partitions), `storage.journal.directory`
(of its own; default: inside the storage directory), `storage.journal.files` and `storage.journal.fileBytes`
(their number and size), `storage.disk.inline` (a single append that is alone runs without a thread while the
disk is fast), `storage.disk.reserveBytes` (kept free: appends that would touch it are refused),
`storage.maxFrameBytes`, `storage.maxProtocolVersion` (newest version of the protocol with servers that is
offered; 0 is that of 0.13.2), `storage.queue.maxBytes` (per partition), `storage.queue.totalBytes` (of all
partitions), `storage.maxConnections` and `storage.maxHandshakes` (of each port), `storage.receiveBytes`
(requests that have not arrived completely, over all connections), `storage.ssl.allowedPeers` and
`storage.admin.ssl.allowedPeers` (names of client certificates that may connect to the port),
`storage.log.level` and `storage.log.json`.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from typing import Any, ClassVar

from pydantic import Field, field_validator

from waltz_cluster.config.allowed_peers import AllowedPeers, unverified_peers
from waltz_cluster.config.settings import LOG_LEVELS, ZOOKEEPER_TLS, Conflict, ZooKeeperSettings
from waltz_cluster.errors import ConfigError
from waltz_protocol.aio.listener import DEFAULT_MAX_CONNECTIONS, DEFAULT_MAX_HANDSHAKES, Limits
from waltz_protocol.aio.receive_budget import DEFAULT_RECEIVE_BYTES
from waltz_protocol.codec import NEWEST_STORAGE_VERSION, STORAGE_OF_0_13_2
from waltz_runtime.graphite import GraphiteSettings
from waltz_storage.engine.journal.log import JournalSettings
from waltz_storage.engine.partition import EngineSettings
from waltz_storage.service.disk_pool import QueueLimits
from waltz_storage.service.inline import InlineLimits

_MAX_PORT = 65535


class StorageSettings(ZooKeeperSettings):
    """Settings of the role `storage`. Sizes in bytes."""

    TLS_PREFIXES: ClassVar[tuple[str, ...]] = ("storage.ssl", ZOOKEEPER_TLS)

    port: int = Field(alias="storage.port", gt=0, le=_MAX_PORT)
    admin_port: int = Field(alias="storage.admin.port", gt=0, le=_MAX_PORT)
    http_port: int | None = Field(default=None, alias="storage.jetty.port", gt=0, le=_MAX_PORT)
    directory: str = Field(alias="storage.directory", min_length=1)
    segment_threshold_bytes: int = Field(default=1_000_000_000, alias="storage.segment.size.threshold", gt=0)
    segment_cache_capacity: int = Field(default=5, alias="storage.segment.cache.capacity", ge=0)
    bind_host: str | None = Field(
        default=None, alias="storage.bind.host", json_schema_extra={"format": "hostname"}
    )
    disk_threads: int = Field(default=4, alias="storage.disk.threads", gt=0, le=256)
    disk_inline: bool = Field(default=True, alias="storage.disk.inline")
    journal_enabled: bool = Field(default=False, alias="storage.journal.enabled")
    journal_directory: str | None = Field(default=None, alias="storage.journal.directory", min_length=1)
    journal_files: int = Field(default=4, alias="storage.journal.files", ge=3, le=64)
    journal_file_bytes: int = Field(
        default=32 << 20, alias="storage.journal.fileBytes", ge=1 << 20, le=1 << 30
    )
    disk_reserve_bytes: int | None = Field(default=None, alias="storage.disk.reserveBytes", ge=0)
    max_frame_bytes: int = Field(default=64 << 20, alias="storage.maxFrameBytes", ge=1024)
    max_protocol_version: int = Field(
        default=NEWEST_STORAGE_VERSION,
        alias="storage.maxProtocolVersion",
        ge=STORAGE_OF_0_13_2,
        le=NEWEST_STORAGE_VERSION,
    )
    max_connections: int = Field(default=DEFAULT_MAX_CONNECTIONS, alias="storage.maxConnections", ge=1)
    max_handshakes: int = Field(default=DEFAULT_MAX_HANDSHAKES, alias="storage.maxHandshakes", ge=1)
    receive_bytes: int = Field(default=DEFAULT_RECEIVE_BYTES, alias="storage.receiveBytes", ge=1024 * 1024)
    allowed_peers: AllowedPeers = Field(default=None, alias="storage.ssl.allowedPeers")
    admin_allowed_peers: AllowedPeers = Field(default=None, alias="storage.admin.ssl.allowedPeers")
    queue_bytes: int = Field(default=32 << 20, alias="storage.queue.maxBytes", ge=1024)
    queue_total_bytes: int = Field(default=512 << 20, alias="storage.queue.totalBytes", ge=1 << 20)
    log_level: str = Field(
        default="INFO", alias="storage.log.level", json_schema_extra={"enum": [*LOG_LEVELS]}
    )
    log_json: bool = Field(default=False, alias="storage.log.json")
    graphite_host: str | None = Field(
        default=None, alias="storage.graphite.hostname", json_schema_extra={"format": "hostname"}
    )
    graphite_port: int = Field(default=2003, alias="storage.graphite.port", gt=0, le=_MAX_PORT)
    graphite_prefix: str = Field(default="waltz", alias="storage.graphite.prefix")
    graphite_interval_seconds: float = Field(default=60.0, alias="storage.graphite.reportIntervalMs", gt=0)
    graphite_udp: bool = Field(default=False, alias="storage.graphite.useUdp")

    @field_validator("journal_directory")
    @classmethod
    def _absolute(cls, path: str | None) -> str | None:
        """Its parent is synced, which a name alone, or a slash at the end, does not show."""
        return None if path is None else os.path.abspath(path)

    def conflicts(self) -> Iterator[Conflict]:
        keys = ("storage.port", "storage.admin.port", "storage.jetty.port")
        ports = [port for port in (self.port, self.admin_port, self.http_port) if port is not None]
        if len(set(ports)) < len(ports):
            yield Conflict(keys, "storage.port, storage.admin.port and storage.jetty.port must differ")
        tls = self.tls_settings("storage.ssl")
        yield from unverified_peers("storage.ssl.allowedPeers", self.allowed_peers, tls)
        yield from unverified_peers("storage.admin.ssl.allowedPeers", self.admin_allowed_peers, tls)

    def host(self) -> str:
        """Address to bind to. `ConfigError` when the machine's own name does not resolve."""
        if self.bind_host is not None:
            return self.bind_host
        name = socket.gethostname()
        try:
            return socket.gethostbyname(name)
        except OSError:
            raise ConfigError(
                f"this machine's host name {name} does not resolve: set storage.bind.host"
            ) from None

    def engine(self) -> EngineSettings:
        """Bounds of the engine."""
        return EngineSettings(self.segment_threshold_bytes, self.segment_cache_capacity)

    def journal(self) -> JournalSettings | None:
        """The node journal; `None` = every partition syncs its own files."""
        if not self.journal_enabled:
            return None
        return JournalSettings(self.journal_directory, self.journal_file_bytes, self.journal_files)

    def queue_limits(self) -> QueueLimits:
        """Bounds of each partition's queue and of all together."""
        return QueueLimits(max_bytes=self.queue_bytes, total_bytes=self.queue_total_bytes)

    def port_limits(self) -> tuple[Limits, Limits]:
        """Of the storage port and of the admin port; each has so many connections."""
        counts = self.max_connections, self.max_handshakes
        return (
            Limits(*counts, self.allowed_peers, "storage.ssl.allowedPeers"),
            Limits(*counts, self.admin_allowed_peers, "storage.admin.ssl.allowedPeers"),
        )

    def inline_limits(self) -> InlineLimits | None:
        """What may run on the loop; `None` = nothing."""
        return InlineLimits() if self.disk_inline else None

    def graphite(self) -> GraphiteSettings:
        """Where metrics are reported to."""
        fields: dict[str, Any] = {
            "hostname": self.graphite_host,
            "port": self.graphite_port,
            "prefix": self.graphite_prefix,
            "interval_seconds": self.graphite_interval_seconds,
            "use_udp": self.graphite_udp,
        }
        return GraphiteSettings(**fields)
