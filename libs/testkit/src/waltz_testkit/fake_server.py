"""A scripted Waltz server without storage: real listener, real frames, logs in memory.

For tests of clients. Behaves like a server of the protocol (docs/protocol.md, *Clients and servers*) unless
configured otherwise: appends can be dropped, delayed or refused; the feed can be held back so that flush
responses and lock failures overtake it; mounts can be answered with anything or not at all; reads can fail;
connections can be cut. `fake_cluster` publishes the servers through an in-memory ZooKeeper, moves
partitions and raises generations.
"""

from __future__ import annotations

import asyncio
import enum
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from waltz_protocol.aio.channel import Channel, ChannelSettings
from waltz_protocol.aio.listener import Listener
from waltz_protocol.aio.tls import ServerTls
from waltz_protocol.codec import CLIENT
from waltz_protocol.frame import Magic
from waltz_protocol.frames.append import APPEND_TYPE, Append, parse_append
from waltz_protocol.frames.feed import pack_feed_frame
from waltz_protocol.messages import client as m
from waltz_protocol.messages.fields import Message
from waltz_protocol.types import Endpoint, ReqId, data_checksum

MIN_CREDIT = 100
FEED_SLICE = 1000
FEED_PAUSE_SECONDS = 0.0002
I64_MIN = -(2**63)
_TAIL_HEAD_BYTES = 8
_TAIL_CHECKSUM_BYTES = 4


class Fate(enum.Enum):
    """What a server does with an append."""

    COMMIT = "commit"
    DROP = "drop"
    HOLD = "hold"


@dataclass(slots=True)
class LogEntry:
    """One committed transaction."""

    req_id: bytes
    header: int
    data: bytes


@dataclass(eq=False, slots=True)
class _Feed:
    connection: _Connection
    req_id: ReqId
    position: int
    credit: int
    is_mount: bool


@dataclass(eq=False)
class FakePartition:
    """One partition: log, locks and script. Shared by the servers of a cluster; `owner` serves it."""

    partition_id: int
    generation: int = 1
    owner: FakeServer | None = None
    log: list[LogEntry] = field(default_factory=list)
    locks: dict[int, int] = field(default_factory=dict)
    fate: Callable[[Append], Fate] = lambda _append: Fate.COMMIT
    mount_answers: deque[m.MountState | None] = field(default_factory=deque)
    """Answers to the next mounts instead of the true one; None = silence."""
    feed_held: bool = False
    """True: committed transactions are not fed; other answers overtake them."""
    recovering: bool = False
    """True: the high-water mark is i64 minimum, mounts are not answered."""
    failing_reads: dict[int, int] = field(default_factory=dict)
    """Transaction id -> how many more reads of it fail."""
    reads_held: bool = False
    silent_reads: int = 0
    """How many data and high-water mark requests are swallowed from now on."""
    received: list[Append] = field(default_factory=list)
    """Every append that arrived, in order."""
    mounts: list[tuple[int, int, int]] = field(default_factory=list)
    """(high-water mark, connection sequence number, generation) of every mount that arrived."""
    reads: list[int] = field(default_factory=list)
    feed_requests: list[int] = field(default_factory=list)
    moves_feeds: bool = True
    """False: as release 0.13.2, a feed request never ends an earlier one of the same id."""
    fed: int = 0
    """How many FEED_DATA were sent."""
    held: list[tuple[_Connection, Append]] = field(default_factory=list)
    table_mark: int = -1
    _feeds: list[_Feed] = field(default_factory=list)
    _registry: dict[int, tuple[_Connection, int]] = field(default_factory=dict)
    _pump_scheduled: bool = False
    _last_mount: ReqId = field(default_factory=lambda: ReqId(-1, -1, -1, -1))
    _held_answers: list[tuple[_Connection, m.TransactionDataRequest]] = field(default_factory=list)

    @property
    def high_water_mark(self) -> int:
        """Id of the last committed transaction."""
        return len(self.log) - 1

    def fill(self, count: int, *, size_bytes: int = 8) -> None:
        """Commit transactions of a foreign client, before or during a test."""
        for _ in range(count):
            txid = len(self.log)
            req_id = ReqId(999, self.generation, self.partition_id, txid + 1).pack()
            self.log.append(LogEntry(req_id, txid % 1000, str(txid).encode().ljust(size_bytes, b".")))
        self.pump()

    def commit(self, append: Append) -> int:
        """Commit an append now; its id."""
        txid = len(self.log)
        header = int.from_bytes(append.tail[:4], "big", signed=True)
        self.log.append(LogEntry(append.req_id, header, append.tail[_TAIL_HEAD_BYTES:-_TAIL_CHECKSUM_BYTES]))
        for lock in (*append.write_locks, *append.append_locks):
            self.locks[lock] = txid
        self.pump()
        return txid

    def release(self, fate: Fate = Fate.COMMIT) -> None:
        """Decide everything held back."""
        held, self.held = self.held, []
        for _, append in held:
            if fate is Fate.COMMIT:
                self.commit(append)

    def release_feed(self) -> None:
        """Feed again."""
        self.feed_held = False
        self.pump()

    @property
    def feeds(self) -> list[ReqId]:
        """Request ids of the open feeds."""
        return [feed.req_id for feed in self._feeds]

    @property
    def busy(self) -> bool:
        """True while a feed has something to send."""
        return any(feed.position < self.high_water_mark for feed in self._feeds)

    def release_reads(self) -> None:
        """Answer the reads held back, newest first."""
        self.reads_held = False
        held, self._held_answers = self._held_answers, []
        for connection, request in reversed(held):
            self._read(connection, request)

    # -- messages --------------------------------------------------------------------------------------------

    def mount(self, connection: _Connection, request: m.MountRequest) -> None:
        req_id = self._last_mount = request.req_id
        self.mounts.append((request.client_high_water_mark, request.connection_seq_num, req_id.generation))
        entry = self._registry.get(req_id.client_id)
        if connection.connection_seq_num is None:
            connection.connection_seq_num = request.connection_seq_num
        mine = connection.connection_seq_num
        if (
            entry is None
            or req_id.generation > entry[1]
            or (req_id.generation == entry[1] and mine > (entry[0].connection_seq_num or 0))
        ):
            self._registry[req_id.client_id] = (connection, req_id.generation)
        if not self.valid(connection, req_id.client_id):
            return
        if self.mount_answers:
            answer = self.mount_answers.popleft()
            if answer is not None:
                connection.send(m.MountResponse(req_id, answer))
            return
        if self.recovering:
            return
        gap = self.high_water_mark - request.client_high_water_mark
        if gap < 0:
            connection.send(m.MountResponse(req_id, m.MountState.CLIENT_AHEAD))
            return
        self._feeds.append(_Feed(connection, req_id, request.client_high_water_mark, gap, is_mount=True))
        self.pump()

    def valid(self, connection: _Connection, client_id: int) -> bool:
        entry = self._registry.get(client_id)
        return entry is not None and entry[0].connection_seq_num == connection.connection_seq_num

    def feed(self, connection: _Connection, request: m.FeedRequest) -> None:
        self.feed_requests.append(request.client_high_water_mark)
        if not self.valid(connection, request.req_id.client_id):
            return
        gap = self.high_water_mark - request.client_high_water_mark
        if gap < 0:
            connection.close("feed request ahead of the log")
            return
        if self.moves_feeds:
            self._feeds = [
                feed
                for feed in self._feeds
                if feed.is_mount or feed.connection is not connection or feed.req_id != request.req_id
            ]
        self._feeds.append(
            _Feed(
                connection,
                request.req_id,
                request.client_high_water_mark,
                max(gap, MIN_CREDIT),
                is_mount=False,
            )
        )
        self.pump()

    def append(self, connection: _Connection, append: Append) -> None:
        self.received.append(append)
        if not self.valid(connection, int.from_bytes(append.req_id[:4], "big", signed=True)):
            return
        checked = [
            self.locks.get(lock, self.table_mark) for lock in (*append.write_locks, *append.read_locks)
        ]
        estimate = max(checked, default=-1)
        if estimate > append.client_high_water_mark:
            connection.send(m.LockFailure(ReqId.unpack(append.req_id), estimate))
            return
        if append.generation != self.generation:
            return
        fate = self.fate(append)
        if fate is Fate.COMMIT:
            self.commit(append)
        elif fate is Fate.HOLD:
            self.held.append((connection, append))

    def lock_failure(self, connection: _Connection, append: Append, mark: int) -> None:
        """Send a lock failure of our own making."""
        connection.send(m.LockFailure(ReqId.unpack(append.req_id), mark))

    def read(self, connection: _Connection, request: m.TransactionDataRequest) -> None:
        self.reads.append(request.transaction_id)
        if self.silent_reads:
            self.silent_reads -= 1
        elif self.reads_held:
            self._held_answers.append((connection, request))
        else:
            self._read(connection, request)

    def _read(self, connection: _Connection, request: m.TransactionDataRequest) -> None:
        txid = request.transaction_id
        failures = self.failing_reads.get(txid, 0)
        if failures:
            self.failing_reads[txid] = failures - 1
        if failures or not 0 <= txid <= self.high_water_mark:
            connection.send(m.TransactionDataResponse(request.req_id, txid, None, 0, "java.lang.Oops: no"))
            return
        data = self.log[txid].data
        connection.send(m.TransactionDataResponse(request.req_id, txid, data, data_checksum(data), None))

    def pump(self) -> None:
        """Feed what can be fed, some of it in later loop turns: a request may arrive in between."""
        self._pump_scheduled = False
        if self.feed_held:
            return
        for feed in list(self._feeds):
            version = feed.connection.version
            frames: list[bytes] = []
            while feed.credit > 0 and feed.position < self.high_water_mark:
                if len(frames) == FEED_SLICE or not feed.connection.writable:
                    self._pump_later()
                    break
                feed.position += 1
                feed.credit -= 1
                entry = self.log[feed.position]
                frames.append(pack_feed_frame(entry.req_id, feed.position, entry.header, version))
            if frames:
                self.fed += len(frames)
                feed.connection.send_raw(b"".join(frames))
            if feed.credit == 0:
                self._feeds.remove(feed)
                if feed.is_mount:
                    feed.connection.send(m.MountResponse(feed.req_id, m.MountState.READY))
                else:
                    feed.connection.send(m.FeedSuspended(feed.req_id))

    def _pump_later(self) -> None:
        if not self._pump_scheduled:
            self._pump_scheduled = True
            asyncio.get_running_loop().call_later(FEED_PAUSE_SECONDS, self.pump)

    def forget(self, connection: _Connection) -> None:
        """The connection is gone."""
        self._feeds = [feed for feed in self._feeds if feed.connection is not connection]
        for client_id in [c for c, entry in self._registry.items() if entry[0] is connection]:
            del self._registry[client_id]

    def forget_mounts(self) -> tuple[_Connection, ReqId]:
        """Close and reopen the partition on the same server, in silence; a connection and its last mount's
        id."""
        connection, _generation = next(iter(self._registry.values()))
        self._registry.clear()
        self._feeds.clear()
        return connection, self._last_mount

    def closed_by(self, server: FakeServer) -> None:
        """The partition leaves a server: its feeds end silently and it forgets who mounted it."""
        self._feeds.clear()
        self._registry.clear()


class _Connection:
    """One accepted connection (channel handler)."""

    def __init__(self, server: FakeServer) -> None:
        self.server = server
        self.channel: Channel | None = None
        self.connection_seq_num: int | None = None
        self.version = 0

    def send(self, message: Message) -> None:
        self.send_raw(CLIENT.encode(message, self.version))

    def send_raw(self, frames: bytes) -> None:
        if self.channel is not None:
            self.channel.send(frames)

    @property
    def writable(self) -> bool:
        return self.channel is not None and self.channel.writable

    def close(self, reason: str) -> None:
        if self.channel is not None:
            self.channel.close(reason)

    def channel_ready(self, channel: Channel) -> None:
        self.channel = channel
        self.version = channel.version
        self.server.connections.append(self)
        self.server.accepted += 1

    def frame_received(self, channel: Channel, body: memoryview) -> None:
        if body[0] == APPEND_TYPE:
            append = parse_append(body, channel.version)
            if append is not None:
                partition = self.server.owned(ReqId.unpack(append.req_id).partition_id)
                if partition is not None:
                    partition.append(self, append)
            return
        self._message(CLIENT.decode(body, channel.version))

    def _message(self, message: object) -> None:
        server = self.server
        match message:
            case m.MountRequest():
                partition = server.owned(message.req_id.partition_id)
                if partition is None:
                    self.send(m.MountResponse(message.req_id, m.MountState.NOT_READY))
                else:
                    partition.mount(self, message)
            case m.FeedRequest():
                partition = server.owned(message.req_id.partition_id)
                if partition is not None:
                    partition.feed(self, message)
            case m.FlushRequest():
                partition = server.owned(message.req_id.partition_id)
                server.flushes.append(message.req_id)
                if partition is not None and not partition.held and not partition.recovering:
                    self.send(m.FlushResponse(message.req_id, partition.high_water_mark))
            case m.TransactionDataRequest():
                partition = server.owned(message.req_id.partition_id)
                if partition is None:
                    text = "partition not ready"
                    self.send(
                        m.TransactionDataResponse(message.req_id, message.transaction_id, None, 0, text)
                    )
                else:
                    partition.read(self, message)
            case m.HighWaterMarkRequest():
                partition = server.owned(message.req_id.partition_id)
                if partition is not None and partition.silent_reads:
                    partition.silent_reads -= 1
                elif partition is not None:
                    mark = I64_MIN if partition.recovering else partition.high_water_mark
                    self.send(m.HighWaterMarkResponse(message.req_id, mark))
            case _:
                server.admin(self, message)

    def frames_ended(self, channel: Channel) -> None:
        pass

    def writable_changed(self, channel: Channel, writable: bool) -> None:
        pass

    def channel_closed(self, channel: Channel, reason: str) -> None:
        if self in self.server.connections:
            self.server.connections.remove(self)
        for partition in self.server.partitions.values():
            partition.forget(self)


class FakeServer:
    """One listening server of a fake cluster."""

    def __init__(self, partitions: Mapping[int, FakePartition], server_id: int) -> None:
        self.partitions = partitions
        self.server_id = server_id
        self.connections: list[_Connection] = []
        self.accepted = 0
        self.flushes: list[ReqId] = []
        self.preferred: set[int] = set()
        self.held_admin: list[Callable[[], None]] | None = None
        self.endpoint = Endpoint("127.0.0.1", 0)
        self._listener: Listener | None = None

    async def start(
        self, *, port: int = 0, versions: tuple[int, ...] = (0, 1, 2, 3, 4), tls: ServerTls | None = None
    ) -> None:
        """Listen on 127.0.0.1; a fixed port lets a killed server come back where it was."""
        listener = Listener()
        settings = ChannelSettings(magic=Magic.CLIENT, versions=versions, hello_text="Fake Waltz Server")
        await listener.start("127.0.0.1", port, settings, lambda: _Connection(self), tls)
        self._listener = listener
        self.endpoint = Endpoint("127.0.0.1", listener.port)

    async def kill(self) -> None:
        """Stop listening and cut every connection; the logs stay."""
        for connection in list(self.connections):
            if connection.channel is not None:
                connection.channel.abort("killed")
        listener, self._listener = self._listener, None
        if listener is not None:
            await listener.close()

    def cut_connections(self) -> None:
        """Cut every connection; continue to listen."""
        for connection in list(self.connections):
            if connection.channel is not None:
                connection.channel.abort("cut")

    def owned(self, partition_id: int) -> FakePartition | None:
        """The partition, if this server serves it."""
        partition = self.partitions.get(partition_id)
        return partition if partition is not None and partition.owner is self else None

    def admin(self, connection: _Connection, message: object) -> None:
        """Answer an administrative request, or keep it in `held_admin`."""
        answer: Message
        mine = [p.partition_id for p in self.partitions.values() if p.owner is self]
        match message:
            case m.CheckStorageConnectivityRequest():
                answer = m.CheckStorageConnectivityResponse(message.req_id, {"st1:55280": True})
            case m.ServerPartitionsAssignmentRequest():
                answer = m.ServerPartitionsAssignmentResponse(message.req_id, tuple(mine))
            case m.ServerPartitionsHealthStatRequest():
                answer = m.ServerPartitionsHealthStatResponse(message.req_id, dict.fromkeys(mine, True))
            case m.AddPreferredPartitionRequest():
                known = all(p in self.partitions for p in message.partitions)
                self.preferred |= set(message.partitions)
                answer = m.AddPreferredPartitionResponse(
                    message.req_id, known and 13 not in message.partitions
                )
            case m.RemovePreferredPartitionRequest():
                self.preferred -= set(message.partitions)
                answer = m.RemovePreferredPartitionResponse(message.req_id, True)
            case _:
                raise TypeError(f"unexpected {message!r}")
        if self.held_admin is None:
            connection.send(answer)
        else:
            self.held_admin.append(lambda: connection.send(answer))
