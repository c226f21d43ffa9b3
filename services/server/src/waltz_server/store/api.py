"""The seam between the partition layer and the replication core.

The partition layer talks to one `PartitionStore` per owned partition and implements `StoreListener`.
The shipped implementation is `waltz_server.store.quorum_store.QuorumPartitionStore`, which is constructed as

    QuorumPartitionStore(partition_id, generation, directory=ReplicaDirectory(...), metadata=StoreMetadata(...),
                         settings=StoreSettings(...), listener=listener, rng=random.Random(...))

(`ReplicaDirectory` lives in `waltz_server.store.replica_connection`).
`waltz_testkit.fake_store.FakePartitionStore` is an in-memory substitute with the same face for tests of the
partition layer.

Everything that is not `async` here is synchronous and runs on the event loop of the server.
"""

from __future__ import annotations

import enum
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from waltz_protocol.codec import NEWEST_STORAGE_VERSION
from waltz_server.store.record_run import RecordRun

RECORD_OVERHEAD_BYTES = 36
"""Bytes of a wire record besides its data: transaction id, ReqId, header, data length, checksum."""

_TAIL_TO_RECORD_BYTES = 24


class StoreError(Exception):
    """Base of all errors of the replication core."""

    retriable = False


class StoreNotOpenError(StoreError):
    """The store has no open session (recovering, no quorum, closed), or its session is no longer
    current."""

    retriable = True


class ReadFailedError(StoreError):
    """No replica could deliver the records asked for within the time limit."""

    retriable = True


class StoreState(enum.Enum):
    """What a partition store is doing; `PartitionStore.state_reason` says why in one line."""

    RECOVERING = "recovering"
    """A session is being established (or drained before the next one); reads wait for it."""
    OPEN = "open"
    """Appends flow."""
    NO_QUORUM = "no_quorum"
    """Fewer than a majority of the replicas can be reached; retried with back-off."""
    UNDECIDABLE = "undecidable"
    """Enough replicas answer, but the absent ones could hold acknowledged records; the reason names them."""
    FAULT = "fault"
    """The recorded state contradicts what the replicas hold (for example lost metadata); an operator is
    needed."""
    CLOSED = "closed"
    """`close` was called or the owner task ended."""


class ReplicaPhase(enum.StrEnum):
    """How far one replica is in one session; the text is what reports show.

    CONNECTING -> RECOVERING -> VOTING is the way in. ABSENT is left by the next attempt that succeeds, while
    REFUSED and FAILED last as long as the session. (`waltz_cluster.serializers.ReplicaState` is another
    thing: what ZooKeeper holds about a replica.)
    """

    CONNECTING = "connecting"
    """No attempt has ended yet."""
    RECOVERING = "recovering"
    """It has answered; it is compared, filled, cut and marked, or waits until ZooKeeper lists it."""
    VOTING = "voting"
    """ZooKeeper lists it in this session, and it takes part: what it stores counts."""
    CATCHING_UP = "catching_up"
    """In reports only: one that votes and is behind the frames that are kept."""
    REFUSED = "refused"
    """Its log contradicts what is resolved: nothing is written to it in this session."""
    ABSENT = "absent"
    """The last attempt failed. It may hold anything; the next attempt follows."""
    FAILED = "failed"
    """It is out of this session: it was listed and failed, or a change of it is in doubt, or it takes later
    sessions only."""


@dataclass(slots=True, eq=False)
class AppendEntry:
    """One transaction on its way; made by the partition layer, owned by the store until the listener is
    called.

    `tail` is the wire record without its first 24 bytes: i32 header, i32 length, data, i32 checksum
    (verified). `context` belongs to the partition layer (lock slots, waiting connection) and is never looked
    at by the store.
    """

    req_id: bytes
    generation: int
    tail: bytes
    transaction_id: int = -1
    context: object = None
    stored: bytes | None = None
    """The stored record, where one was made for the storage nodes."""

    @property
    def size_bytes(self) -> int:
        """Size of the wire record: 36 bytes plus the data."""
        return _TAIL_TO_RECORD_BYTES + len(self.tail)


class StoreListener(Protocol):
    """What the partition layer implements; every method is synchronous and called on the loop.

    None of them is ever called from inside `PartitionStore.append`. Order of calls for one store:
    `session_opened`, then any number of `committed`, then `session_lost`; between `session_lost` and the next
    `session_opened` the entries in flight are settled by `committed` and `failed`.
    """

    def session_opened(self, high_water_mark: int) -> None:
        """Recovery is complete, metadata written, leftovers settled; appends flow from `high_water_mark` +
        1."""

    def session_lost(self, reason: str) -> None:
        """The session ended. Entries in flight stay pending (their lock marks too) until settled or
        released."""

    def committed(self, entries: Sequence[AppendEntry]) -> None:
        """These entries are durable on a quorum: consecutive ids, in order, `transaction_id` set."""

    def failed(self, entries: Sequence[AppendEntry]) -> None:
        """These entries were never committed and never will be (decided by the resolved log)."""

    def store_writable(self) -> None:
        """The bounds on what is in flight are no longer reached."""


@dataclass(frozen=True, slots=True)
class ReplicaStatus:
    """A line of the health report: one replica of one partition.

    `acked_txid` is the durable prefix the replica voted for in this session (-1: none) and `lag` the
    committed transactions behind it.
    """

    connect_string: str
    state: ReplicaPhase
    acked_txid: int
    lag: int
    latency_ms: float
    reason: str

    @property
    def counts(self) -> bool:
        """It votes and keeps up, and answered when it was last asked."""
        return self.state is ReplicaPhase.VOTING and not self.reason


@dataclass(frozen=True, slots=True)
class StoreSettings:
    """Bounds and times of the replication core (all durations and sizes carry their unit in the name)."""

    newest_version: int = NEWEST_STORAGE_VERSION
    """Of the storage protocol, that is offered to storage nodes."""
    max_batch_size: int = 100
    """0.13.2's bound on transactions per Append frame; a larger value here raises `max_batch_records`."""
    max_batch_bytes: int = 1024 * 1024
    """An Append frame holds at most this many bytes of records, or one record."""
    max_batch_records: int = 4096
    """An Append frame never holds more transactions than the larger of this and `max_batch_size`."""
    max_in_flight_frames: int = 32
    """Append frames without an answer per replica (the queue of a 0.13.2 storage node holds 100 requests)."""
    max_in_flight_bytes: int = 16 * 1024 * 1024
    """Bytes assigned and undecided; from it on `writable` is false."""
    max_in_flight_records: int = 65_536
    """Transactions assigned and undecided; from it on `writable` is false. With less than 256 bytes a record
    it is reached before the bytes. It bounds what is done with all of them in one turn of the loop: the
    settlement after a lost session, and the index of what is sent again. Like the bytes it is exceeded by
    what one call of `append` brings, which is never refused for it; so nothing waits for a part of it."""
    replica_backlog_bytes: int = 32 * 1024 * 1024
    """Bytes kept for one slow replica; beyond it the replica goes back to catching up from committed
    records."""
    initial_retry_interval_ms: int = 100
    max_retry_interval_ms: int = 20_000
    checkpoint_interval: int = 250_000
    """A session is replaced after this many transactions, so that no recovery has to look at more."""
    request_timeout_seconds: float = 2.0
    idle_check_interval_ms: int = 3_000
    """Pause between two questions to a storage node that find out whether it answers while nobody appends; an
    answer that takes longer than `request_timeout_seconds` is none."""
    connect_timeout_seconds: float = 5.0
    read_timeout_seconds: float = 5.0
    """Limit for one `read` including the tries on other replicas."""
    catch_up_batch_records: int = 4096
    catch_up_batch_bytes: int = 1024 * 1024
    copy_budget_bytes: int = 8 * 1024 * 1024
    """Bytes of copies on the connection to one storage node, of all partitions together: they take turns. As
    much again may be read from the node; one batch always may."""
    recovery_grace_seconds: float = 0.5
    """How long a recovery that already has a quorum waits for the remaining replicas before it continues
    without."""


class PartitionStore(Protocol):
    """One per owned partition: store sessions one after another, appends, reads.

    `before_fence`, set before `run`, is awaited once, when the first session id is taken and nothing has been
    sent under it: an older owner still serves.
    """

    before_fence: Callable[[], Awaitable[None]] | None

    @property
    def partition_id(self) -> int: ...

    @property
    def state(self) -> StoreState: ...

    @property
    def state_reason(self) -> str:
        """One line saying why the store is in its state; names the absent replicas when undecidable."""

    @property
    def problem(self) -> str:
        """Why no write can be taken: the state and the reason, one line. Empty only while a session is open
        and a quorum of its replicas votes and answers."""

    @property
    def session_id(self) -> int:
        """Id of the current (or last) store session; -1 before the first."""

    @property
    def high_water_mark(self) -> int | None:
        """The committed mark; None before the first recovery. Never goes down."""

    @property
    def pending(self) -> int:
        """Entries accepted and undecided (also those of a lost session waiting for settlement)."""

    @property
    def pending_bytes(self) -> int: ...

    @property
    def writable(self) -> bool:
        """False while `max_in_flight_bytes` or `max_in_flight_records` is reached;
        `StoreListener.store_writable` follows."""

    @property
    def replicas(self) -> list[ReplicaStatus]: ...

    async def run(self) -> None:
        """Own the partition until `close` or cancellation: sessions one after another. Call once."""

    def close(self) -> None:
        """End `run` soon; entries in flight stay undecided and are not reported."""

    def set_generation(self, generation: int) -> None:
        """Give the store a (higher) generation of the partition assignment; lower ones are ignored."""

    def set_replicas(self, connect_strings: Sequence[str]) -> None:
        """Inform the store that its assigned replicas changed; a change restarts the session of this
        partition only."""

    def append(self, entries: Sequence[AppendEntry]) -> None:
        """Accept one loop turn's entries, in order.

        Raises `StoreNotOpenError` unless `state` is OPEN (no entry is taken then). It never calls the
        listener and never refuses for size: callers look at `writable` before they read more from their
        clients.
        """

    async def read(self, first: int, max_count: int, max_bytes: int = 1024 * 1024) -> RecordRun:
        """Consecutive committed records from `first`, checksums verified.

        At least one record when `first` <= `high_water_mark`, else none; never beyond it. Raises
        `ReadFailedError`. Safe to cancel.
        """

    async def confirm_current(self) -> None:
        """Return once a quorum of the session's voters answered a request sent after this call.

        Raises `StoreNotOpenError` when the session is lost meanwhile or cannot be confirmed. Concurrent
        callers share rounds. Safe to cancel.
        """
