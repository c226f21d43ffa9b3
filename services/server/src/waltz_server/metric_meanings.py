"""What the metrics of a server mean (docs/metrics.md is made from this). Pure."""

from __future__ import annotations

from collections.abc import Mapping

from waltz_runtime.meanings import Meaning
from waltz_server import __version__

_STAGES = ("queue", "storage", "commit", "feed")
_STAGE = Meaning(
    "Time of appends in one stage: queue (until they are handed to the store), storage (until a majority has "
    "them), commit (until the committed mark has risen), feed (until they are written to clients that follow).",
    "waltz_server_append_stage",
)

MEANINGS: Mapping[str, Meaning] = {
    # -- of the process
    **{f"append-stage-{stage}": _STAGE._replace(labels={"stage": stage}) for stage in _STAGES},
    "cluster-name": Meaning("Name of the cluster.", text=True),
    "endpoint": Meaning("Address at which clients reach the server.", text=True),
    "server-id": Meaning("Number of the server in ZooKeeper; -1 before it is registered."),
    "waltz-version-id": Meaning("Version of the server.", "waltz_server_version", text=True),
    "waltz-server-num-partitions": Meaning("Partitions of the cluster."),
    "connections": Meaning("Connections of clients."),
    "is-closed": Meaning("1 when the server, or this partition on it, has been closed."),
    "replica-info": Meaning("Partitions that the server owns.", "waltz_server_owned_partitions"),
    "tls-certificate-expiry-timestamp-seconds": Meaning(
        "When the certificate shown to clients expires, Unix time."
    ),
    "storage-tls-certificate-expiry-timestamp-seconds": Meaning(
        "When the certificate shown to storage nodes expires, Unix time."
    ),
    "peers-watched": Meaning("Other servers that answer this one, which watches them."),
    "peers-suspected": Meaning("Other servers that this one watches and does not hear from."),
    "peers-evicted": Meaning(
        "Servers that this one has evicted since it started.", "waltz_server_peer_evictions", counts=True
    ),
    "directory-watchers": Meaning(
        "Connections of clients that learn from this server who serves what, not from ZooKeeper."
    ),
    "feed-cache-bytes": Meaning("Memory that the headers of recent transactions take."),
    "transaction-cache-bytes": Meaning("Memory that recent transactions take."),
    "feed-cache-miss": Meaning("Headers that had to be read from a storage node."),
    "transaction-cache-miss": Meaning("Transactions that had to be read from a storage node."),
    "feed-bytes-before-compression": Meaning(
        "Bytes of records in the blocks of feeds that take compressed ones."
    ),
    "feed-bytes-after-compression": Meaning("What was sent of these, compressed where that saves an eighth."),
    # -- of a partition that the server owns
    "generation": Meaning("Number of the assignment of the partition to this server; it grows with each."),
    "session-id": Meaning("Number of the store session in which the partition is written; -1 without one."),
    "replicas-not-voting": Meaning(
        "Replicas of the partition that are away or silent, refused, being filled, or behind what is sent to them."
    ),
    "healthy": Meaning("1 while the partition takes appends, else 0."),
    "high-water-mark": Meaning("Id of the last committed transaction; -1 for an empty log."),
    "transaction": Meaning("Appends that arrived.", "waltz_server_appends_received"),
    "append-bytes": Meaning("Bytes of the appends that arrived.", "waltz_server_appends_received_bytes"),
    "fed-transaction": Meaning("Transactions that were sent to clients that follow."),
    "successful-append": Meaning("Appends that were committed."),
    "rejected-append": Meaning("Appends that were refused because of a lock."),
    "response-latency": Meaning("From the arrival of an append to its commit."),
    "pending-append": Meaning("Appends that were sent to the storage nodes and are not committed yet."),
    "append-queue-size": Meaning("Appends that wait for their locks or for the store."),
    "append-dropped-queue-full": Meaning(
        "Appends dropped because the queue was full; clients send them again."
    ),
    "append-dropped-fenced": Meaning("Appends dropped because a newer connection of their client exists."),
    "append-dropped-foreign-req-id": Meaning(
        "Appends dropped because they named another client's request id."
    ),
    "append-dropped-generation": Meaning("Appends dropped because they were sent under another generation."),
    "append-refused-view-ahead": Meaning(
        "Appends refused because their view lies beyond the end of the log."
    ),
    "dropped-not-mounted": Meaning("Requests dropped because their client had not mounted the partition."),
    "waiting-mounts-and-flushes": Meaning("Mounts and flushes that wait for their answer."),
    "read-failures": Meaning("Reads from storage nodes that failed and were answered with an error."),
    "feeds": Meaning("Feeds of clients."),
    "total-real-time-feed-context-added": Meaning(
        "Feeds that began to follow the end of the log.", "waltz_server_realtime_feeds_begun", counts=True
    ),
    "total-real-time-feed-context-removed": Meaning(
        "Feeds that ended, or fell behind, while they followed the end of the log.",
        "waltz_server_realtime_feeds_ended",
        counts=True,
    ),
    "total-catchup-feed-context-added": Meaning(
        "Feeds that began to read older transactions.", "waltz_server_catchup_feeds_begun", counts=True
    ),
    "total-catchup-feed-context-removed": Meaning(
        "Feeds that ended, or caught up, while they read older transactions.",
        "waltz_server_catchup_feeds_ended",
        counts=True,
    ),
}

BUILD: Mapping[str, str] = {"role": "server", "version": __version__}
"""Of `waltz_build_info`."""
