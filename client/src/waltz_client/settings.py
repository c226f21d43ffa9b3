"""Settings of a client: the keys of release 0.13.2, and ours. Times are milliseconds, sizes bytes.

A file may also hold the keys of the command line (`ssl.` and `cli.`), so that one file can serve both;
unknown keys are refused.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from typing import ClassVar, Literal, Self
from uuid import UUID

from pydantic import Field, field_validator

from waltz_client._internal.edge import client_errors
from waltz_client.errors import ConfigError
from waltz_cluster.config.files import flatten
from waltz_cluster.config.settings import ZOOKEEPER_TLS, Conflict, ZooKeeperSettings
from waltz_protocol.codec import NEWEST_CLIENT_VERSION, NEWEST_OF_0_13_2
from waltz_protocol.directory import FIRST_VERSION as DIRECTORY_VERSION
from waltz_protocol.errors import MissingPackageError
from waltz_protocol.extras import with_extra
from waltz_protocol.frames.append import MAX_LOCKS
from waltz_protocol.frames.compressed_blocks import BlockExpander
from waltz_protocol.messages.client import BlockFeedRequest
from waltz_protocol.messages.fields import PART_BYTES
from waltz_protocol.types import Endpoint

__all__ = ["ClientSettings", "ConfigError"]

MAX_SERVERS = 1000
"""Named in the settings; the others are found."""
LEAST_FRAME_BYTES = 4 * PART_BYTES
"""`client.maxFrameBytes`: what a part of a directory takes, with room for long names."""
MAX_NUMBER = 2**63 - 1
"""Of any time, size or count in the settings."""
OF_ZOOKEEPER = ("zookeeper.connectString", "zookeeper.sessionTimeout", "cluster.root")


class ClientSettings(ZooKeeperSettings):
    """Settings of a client. Required: `servers`; or `zookeeper.connectString`, `zookeeper.sessionTimeout` and
    `cluster.root`, and none of these with `servers`."""

    TLS_PREFIXES: ClassVar[tuple[str, ...]] = ("client.ssl", ZOOKEEPER_TLS)
    NO_EFFECT: ClassVar[frozenset[str]] = frozenset({"client.numConsumerThreads", "client.mockDriver"})
    FOREIGN_PREFIXES: ClassVar[tuple[str, ...]] = ("ssl.", "cli.")

    servers: tuple[Endpoint, ...] = Field(default=(), alias="servers")
    """Some servers of the cluster, `[host:port, ...]`, in place of ZooKeeper's keys: the client learns from
    any of them who serves what, and finds the others; needs a server of this release."""
    cluster_key: UUID | None = Field(default=None, alias="client.clusterKey")
    """With `servers`: the key of the cluster (that of its storage nodes). A server of another cluster is not
    followed; none = the cluster of the server that answers first."""
    zookeeper_connect_string: str = Field(default="", alias="zookeeper.connectString", min_length=1)
    zookeeper_session_timeout_ms: int = Field(default=0, alias="zookeeper.sessionTimeout", gt=0)
    cluster_root: str = Field(default="", alias="cluster.root")
    auto_mount: bool = Field(default=True, alias="client.autoMount")
    """With callbacks: take part in all partitions. Without: in those that are used. False: in those of
    `set_partitions`."""
    retry_workers: int = Field(default=1, alias="client.numTransactionRetryThreads", ge=0, le=1000)
    """Retries of transaction contexts that may run at the same time; 0 = failed contexts end with an
    error."""
    long_wait_threshold_ms: int = Field(default=5000, alias="client.longWaitThreshold", gt=0)
    """An append without an outcome for this long makes the client ask (flush)."""
    max_concurrent_transactions: int = Field(
        default=1000, alias="client.maxConcurrentTransactions", gt=0, le=100_000
    )
    """Appends without an outcome, per partition (0.13.2: 5)."""
    max_concurrent_bytes: int = Field(default=4 * 1024 * 1024, alias="client.maxConcurrentBytes", gt=0)
    """Bytes of the appends without an outcome, per partition: nothing more is sent from there on. A single
    append may be larger."""
    mount_wait_ms: int = Field(default=10_000, alias="client.mountWait", gt=0)
    """How long an attempt of a transaction context waits for its partition."""
    append_deadline_ms: int = Field(default=30_000, alias="client.appendDeadline", gt=0)
    """Deadline of `append` when the call gives none."""
    request_deadline_ms: int = Field(default=30_000, alias="client.requestDeadline", gt=0)
    """Deadline of data, high-water mark and administrative requests when the call gives none."""
    request_resend_ms: int = Field(default=2_000, alias="client.requestResend", gt=0)
    """A request without an answer for this long is sent again (later each time)."""
    append_max_attempts: int = Field(default=0, alias="client.appendMaxAttempts", ge=0)
    """Attempts of `append` that failed for certain, other than by a lock; 0 = as many as the deadline
    allows."""
    max_transaction_attempts: int = Field(default=0, alias="client.maxTransactionAttempts", ge=0)
    """Attempts of a transaction context; 0 = no limit."""
    transaction_expiration_ms: int = Field(default=0, alias="client.transactionExpirationMs", ge=0)
    """A transaction context older than this is not tried again; 0 = never expires."""
    retry_initial_backoff_ms: int = Field(default=5, alias="client.retryInitialBackoff", gt=0)
    """Delay before the second attempt; it doubles and is spread at random. After a lock conflict the first
    eight are made at once, later ones after 10 ms at most."""
    retry_max_backoff_ms: int = Field(default=1_000, alias="client.retryMaxBackoff", gt=0)
    """Largest delay between attempts."""
    connect_timeout_ms: int = Field(default=10_000, alias="client.connectTimeout", gt=0)
    """TCP and TLS together; the Hello has as much again."""
    max_frame_bytes: int = Field(default=64 * 1024 * 1024, alias="client.maxFrameBytes", gt=1024)
    """Largest frame accepted from a server; a feed or call that needs a larger one ends with an error."""
    max_protocol_version: int = Field(
        default=NEWEST_CLIENT_VERSION,
        alias="client.maxProtocolVersion",
        ge=NEWEST_OF_0_13_2,
        le=NEWEST_CLIENT_VERSION,
    )
    """Newest version of the client-server protocol that is offered; 4 is that of 0.13.2."""
    answered_appends: bool = Field(default=False, alias="client.answeredAppends")
    """Whether version 5 is offered for appends too: the server answers each, and what a broken connection or
    a moved partition interrupts is sent again. Without it reads alone use version 5."""
    feed_compression: Literal["none", "zstd"] = Field(default="none", alias="client.feedCompression")
    """`zstd`: servers that can are asked to compress the transactions that feeds and ranges read, others send
    them as they are. It takes processor time of both sides, needs the extra `zstd` of `waltz-client`, and
    version 5."""
    producer_checkpoint_ms: int = Field(default=10_000, alias="client.producerCheckpointInterval", gt=0)
    """How often a named producer writes to ZooKeeper how far it has searched the log, if it has got further:
    the next instance reads the request ids from there on. Over `servers` at most once a second."""
    max_transaction_bytes: int = Field(default=32 * 1024 * 1024, alias="client.maxTransactionBytes", gt=0)
    """Largest payload sent."""
    max_locks: int = Field(default=MAX_LOCKS, alias="client.maxLocksPerAppend", ge=1)
    """Most locks of one append, all kinds together; the servers' `server.maxLocksPerAppend`."""
    feed_buffer_transactions: int = Field(default=32_768, alias="client.feedBufferTransactions", ge=1024)
    """Headers buffered per reader and partition; with a server of version 5 transactions with their data."""
    prefetch_bytes: int = Field(default=8 * 1024 * 1024, alias="client.prefetchBytes", gt=0)
    """Payload bytes a feed fetches ahead of its reader."""
    prefetch_transactions: int = Field(default=512, alias="client.prefetchTransactions", gt=0)
    """Transactions whose payload a feed fetches ahead of its reader, from servers older than version 5."""

    @field_validator("*")
    @classmethod
    def _of_63_bits(cls, given: object) -> object:
        """As in 0.13.2; more cannot be counted with as a time."""
        if isinstance(given, int) and given > MAX_NUMBER:
            raise ValueError(f"at most {MAX_NUMBER}")
        return given

    @field_validator("servers", mode="before")
    @classmethod
    def _addresses(cls, given: object) -> object:
        """A list of `host:port`, or the same in one text with commas."""
        if isinstance(given, str):
            given = [part for part in given.split(",") if part.strip()]
        if not isinstance(given, list | tuple) or not given or len(given) > MAX_SERVERS:
            raise ValueError(f"give a list of 1 to {MAX_SERVERS} addresses, [host:port, ...]")
        return tuple(one if isinstance(one, Endpoint) else Endpoint.parse(str(one)) for one in given)

    @classmethod
    def lacking(cls, fields: Mapping[str, object]) -> list[str]:
        """Without `servers` ZooKeeper's keys are needed."""
        if "servers" in fields:
            return []
        needed = [key for key in OF_ZOOKEEPER if key not in fields]
        instead = ", or servers in place of ZooKeeper's keys" if len(needed) == len(OF_ZOOKEEPER) else ""
        return [f"{key} is required{instead}" for key in needed]

    def conflicts(self) -> Iterator[Conflict]:
        newest = "client.maxProtocolVersion"
        if self.servers:
            yield from self._with_servers(newest)
        elif self.cluster_key is not None:
            yield Conflict(
                ("servers", "client.clusterKey"), "client.clusterKey has a meaning with servers only"
            )
        since = BlockFeedRequest.SINCE
        if self.feed_compression != "none" and self.max_protocol_version < since:
            yield Conflict(
                ("client.feedCompression", newest),
                f"client.feedCompression zstd needs {newest} {since} or more",
            )

    def _with_servers(self, newest: str) -> Iterator[Conflict]:
        wrong = [
            str(field.alias)
            for name, field in type(self).model_fields.items()
            if name in self.model_fields_set and str(field.alias).startswith(("zookeeper.", "cluster."))
        ]
        if ZOOKEEPER_TLS in self.tls:
            wrong.append(ZOOKEEPER_TLS)
        if wrong:
            yield Conflict(
                ("servers",),
                f"give servers, or the keys of ZooKeeper, not both: {', '.join(wrong)} "
                "has no meaning with servers",
            )
        if self.max_protocol_version < DIRECTORY_VERSION:
            yield Conflict(("servers", newest), f"servers needs {newest} {DIRECTORY_VERSION} or more")
        if self.max_frame_bytes < LEAST_FRAME_BYTES:
            yield Conflict(
                ("servers", "client.maxFrameBytes"),
                f"servers needs client.maxFrameBytes {LEAST_FRAME_BYTES} or more",
            )

    def block_expander(self) -> BlockExpander | None:
        """What makes blocks out of compressed ones, where they are asked for; ConfigError."""
        if self.feed_compression == "none":
            return None
        try:
            return BlockExpander("client.feedCompression zstd", with_extra("waltz-client", "zstd"))
        except MissingPackageError as error:
            raise ConfigError(str(error)) from None

    @classmethod
    @client_errors()
    def from_mapping(cls, flat: Mapping[str, object], *, source: str = "settings") -> Self:
        """As that of every role, with the client's ConfigError."""
        return super().from_mapping(flat, source=source)

    @classmethod
    @client_errors()
    def from_file(cls, path: str | os.PathLike[str]) -> Self:
        """`from_mapping` of a YAML file."""
        return super().from_file(os.fspath(path))

    @client_errors()
    def credentials(self) -> tuple[str, str] | None:
        """As that of every role, with the client's ConfigError."""
        return super().credentials()

    @classmethod
    @client_errors()
    def load(cls, source: ClientSettings | Mapping[str, object] | str | os.PathLike[str]) -> Self:
        """Settings from settings, a mapping (flat or nested keys) or the path of a YAML file; ConfigError,
        one line."""
        if isinstance(source, cls):
            return source
        if isinstance(source, Mapping):
            keys: dict[object, object] = {str(key): value for key, value in source.items()}
            return cls.from_mapping(flatten(keys, source="settings"))
        if isinstance(source, (str, os.PathLike)):
            return cls.from_file(source)
        raise ConfigError(
            f"client settings must be ClientSettings, a mapping or a path, not {type(source).__name__}"
        )
