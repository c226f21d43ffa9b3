"""Storage nodes in memory with the semantics that matter here: fence, marks, consecutive records, one queue
per node.

A `FakeLink` stands in for a connection. Requests of one link are executed in order after the node's delay; a
node that is down refuses connections and breaks those it has; a node that hangs executes but never answers
(the link's own time limit fires), and `drop_requests` loses them.
"""

from __future__ import annotations

import asyncio
import random
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TypeVar

from waltz_cluster.memory_store import MemoryStore, MemoryZooKeeper
from waltz_cluster.partition_metadata import StoreMetadata
from waltz_cluster.serializers import PartitionMetadata
from waltz_protocol.errors import ChannelClosedError, ConnectError, RequestFailedError, RequestTimeoutError
from waltz_protocol.fence_refusal import fenced_off
from waltz_protocol.frames.blocks import cut_stored, record_of_stored, stored_of_record
from waltz_protocol.records import pack_record, split_records, unpack_record
from waltz_protocol.types import Endpoint, Record, RecordHeader, ReqId, SessionInfo, data_checksum
from waltz_server.store.api import AppendEntry, StoreSettings, StoreState
from waltz_server.store.list_request_size import ListRequestSize
from waltz_server.store.quorum_store import QuorumPartitionStore
from waltz_server.store.replica_connection import ReplicaDirectory, ReplicaLink

T = TypeVar("T")
ROOT = "/waltz"
PARTITION = 0
NAMES = ("a:1", "b:1", "c:1")


class FakeNode:
    """One storage node holding one partition."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.log: list[bytes] = []
        self.info = SessionInfo(-1, -1, -1)
        self.fence = -1
        self.up = True
        self.answers = True
        self.delay_seconds = 0.0
        self.refuse: Callable[[str, int], str | None] | None = None
        self.links: list[FakeLink] = []
        self.calls: list[str] = []
        self.largest_append = 0
        self.largest_frame: int | None = None  # what its peers accept; a longer answer ends the connection
        self.overlong = 0
        self.version = 0  # of the storage protocol
        self.committed = -1  # the mark that requests of version 1 carried
        self.of_0_13_2 = False  # its fence is in memory only, and a refusal does not say where it is

    @property
    def max_txid(self) -> int:
        return len(self.log) - 1

    def txids(self) -> list[ReqId]:
        return [unpack_record(raw)[0].req_id for raw in self.log]

    def kill(self) -> None:
        self.up = False
        for link in list(self.links):
            link.break_off("the node died")

    def start(self) -> None:
        self.up = True
        if self.of_0_13_2:
            self.fence = self.info.session_id

    def wipe(self) -> None:
        self.log, self.info, self.fence = [], SessionInfo(-1, -1, -1), -1

    def rebuild(self) -> None:
        """An administrator removes the partition, files included, and assigns it again."""
        fence = max(self.fence, self.info.session_id + 1) if self.info.session_id >= 0 else self.fence
        self.wipe()
        self.fence = fence

    def check(self, kind: str, session_id: int) -> None:
        self.calls.append(kind)
        self.fence = max(self.fence, session_id)
        if self.refuse is not None:
            reason = self.refuse(kind, session_id)
            if reason is not None:
                raise RequestFailedError(reason)
        if session_id != self.fence:
            if self.of_0_13_2:
                raise RequestFailedError(f"ConcurrentUpdateException: session {session_id}")
            raise RequestFailedError(fenced_off(session_id, self.fence))

    def set_lwm(self, session_id: int, lwm: int) -> None:
        old = self.info
        if self.max_txid > lwm or old.session_id > session_id or lwm < old.low_water_mark:
            raise RequestFailedError(f"low-water mark {lwm} refused: {old}, max {self.max_txid}")
        if self.max_txid < old.local_low_water_mark:
            raise RequestFailedError("below the local low-water mark")
        self.info = SessionInfo(session_id, lwm, self.max_txid)

    def append(self, count: int, wire: bytes) -> None:
        self.largest_append = max(self.largest_append, count)
        for view in split_records(memoryview(wire), count):
            txid = int.from_bytes(view[:8], "big", signed=True)
            if txid != self.max_txid + 1:
                raise RequestFailedError(f"record {txid} is out of order, max {self.max_txid}")
            self.log.append(bytes(view))


class FakeLink:
    """A connection to a `FakeNode`."""

    def __init__(self, node: FakeNode, timeout_seconds: float) -> None:
        self.node = node
        self.closed = False
        self.on_closed: list[Callable[[str], None]] = []
        self._timeout_seconds = timeout_seconds
        self._pending: set[Callable[[Exception | None], None]] = set()
        self._ready_at = 0.0
        self._queue: deque[Callable[[], None]] = deque()
        node.links.append(self)

    @property
    def stored_records(self) -> bool:
        return self.node.version >= 1

    def close(self) -> None:
        self.break_off("closed by its owner")

    def break_off(self, reason: str) -> None:
        if self.closed:
            return
        self.closed = True
        self.node.links.remove(self)
        loop = asyncio.get_running_loop()
        for callback in list(self._pending):
            loop.call_soon(self._finish, callback, ChannelClosedError(reason))
        for listener in list(self.on_closed):
            loop.call_soon(listener, reason)

    def _finish(self, callback: Callable[[Exception | None], None], error: Exception | None) -> None:
        if callback in self._pending:
            self._pending.discard(callback)
            callback(error)

    def submit(self, action: Callable[[], None], callback: Callable[[Exception | None], None]) -> None:
        loop = asyncio.get_running_loop()
        if self.closed:
            loop.call_soon(callback, ChannelClosedError("closed"))
            return
        self._pending.add(callback)
        late = RequestTimeoutError("no answer in time")
        loop.call_later(self._timeout_seconds, self._finish, callback, late)

        def execute() -> None:
            if not self.node.up:
                return
            error: Exception | None = None
            try:
                action()
            except RequestFailedError as failure:
                error = failure
            if self.node.answers and not self.closed:
                self._finish(callback, error)

        self._ready_at = max(self._ready_at, loop.time()) + self.node.delay_seconds
        self._queue.append(execute)  # timers of the same moment fire in any order; requests must not
        loop.call_at(self._ready_at, self._execute_next)

    def _execute_next(self) -> None:
        self._queue.popleft()()

    async def call(self, kind: str, session_id: int, action: Callable[[], T]) -> T:
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        result: list[T] = []

        def run() -> None:
            self.node.check(kind, session_id)
            result.append(action())

        def finished(error: Exception | None) -> None:
            if done.done():
                return
            if error is None:
                done.set_result(None)
            else:
                done.set_exception(error)

        self.submit(run, finished)
        await done
        return result[0]

    async def last_session_and_end(self, session_id: int, partition_id: int) -> tuple[SessionInfo, int]:
        asked = self.call("info", session_id, lambda: self.node.info)
        info, last = await asyncio.gather(asked, self.max_transaction_id(session_id, partition_id))
        return info, last

    async def last_session_end_and_headers(
        self, session_id: int, partition_id: int, first: int, max_count: int
    ) -> tuple[SessionInfo, int, list[RecordHeader]]:
        asked = self.last_session_and_end(session_id, partition_id)
        listed = self.record_header_list(session_id, partition_id, first, max_count)
        known, headers = await asyncio.gather(asked, listed, return_exceptions=True)
        if isinstance(known, BaseException):
            raise known
        return *known, [] if isinstance(headers, BaseException) else headers

    async def max_transaction_id(self, session_id: int, partition_id: int, *, offline: bool = False) -> int:
        return await self.call("max", session_id, lambda: self.node.max_txid)

    async def set_low_water_mark_and_ask(
        self, session_id: int, partition_id: int, low_water_mark: int
    ) -> int:
        done = self.call("set_lwm", session_id, lambda: self.node.set_lwm(session_id, low_water_mark))
        _, last = await asyncio.gather(done, self.max_transaction_id(session_id, partition_id))
        return last

    async def truncate(
        self, session_id: int, partition_id: int, transaction_id: int, *, offline: bool = False
    ) -> int:
        def cut() -> int:
            del self.node.log[transaction_id + 1 :]
            return self.node.max_txid

        return await self.call("truncate", session_id, cut)

    async def record_header(
        self, session_id: int, partition_id: int, transaction_id: int
    ) -> RecordHeader | None:
        found = await self.record_header_list(session_id, partition_id, transaction_id, 1)
        return found[0] if found else None

    async def record_header_list(
        self, session_id: int, partition_id: int, first: int, max_count: int
    ) -> list[RecordHeader]:
        records = await self.record_list_raw(session_id, partition_id, first, max_count)
        return [RecordHeader(*unpack_record(raw)[0][:3]) for raw in records]

    async def record_list_raw(
        self, session_id: int, partition_id: int, first: int, max_count: int
    ) -> list[bytes]:
        def read() -> list[bytes]:
            node = self.node
            records = node.log[first : first + max_count]
            if node.largest_frame is not None and sum(map(len, records)) > node.largest_frame:
                node.overlong += 1
                self.break_off("a frame exceeds the limit")
            return records

        return await self.call("list", session_id, read)

    async def stored_range(
        self,
        session_id: int,
        partition_id: int,
        first: int,
        last: int,
        *,
        committed: int,
        max_bytes: int,
        unresolved: bool = False,
    ) -> tuple[int, int, bytes]:
        def read() -> tuple[int, int, bytes]:
            node = self.node
            node.committed = max(node.committed, committed)
            end = last if unresolved else min(last, node.committed)
            found: list[bytes] = []
            for record in node.log[first : end + 1]:
                size = sum(map(len, found)) + len(record) + 4
                if found and size > max_bytes:
                    break
                found.append(stored_of_record(record))
            return first, len(found), b"".join(found)

        return await self.call("range", session_id, read)

    def submit_stored_append(
        self,
        session_id: int,
        partition_id: int,
        committed: int,
        first: int,
        count: int,
        records: bytes,
        callback: Callable[[Exception | None], None],
    ) -> None:
        def run() -> None:
            self.node.check("append", session_id)
            starts = cut_stored(records, 0, partition_id, first, first + count - 1, count)
            wire = [record_of_stored(records[start:end]) for start, end in pairwise(starts)]
            self.node.append(count, b"".join(wire))
            self.node.committed = max(self.node.committed, committed)

        self.submit(run, callback)

    def submit_append(
        self,
        session_id: int,
        partition_id: int,
        count: int,
        wire_records: bytes,
        callback: Callable[[Exception | None], None],
    ) -> None:
        def run() -> None:
            self.node.check("append", session_id)
            self.node.append(count, wire_records)

        self.submit(run, callback)


@dataclass
class Listener:
    """Records what the store reports, and checks the order of it."""

    events: list[str] = field(default_factory=list)
    committed_entries: list[AppendEntry] = field(default_factory=list)
    failed_entries: list[AppendEntry] = field(default_factory=list)
    opened: int = 0
    writable_calls: int = 0

    def session_opened(self, high_water_mark: int) -> None:
        self.opened += 1
        self.events.append(f"opened {high_water_mark}")

    def session_lost(self, reason: str) -> None:
        self.events.append(f"lost {reason}")

    def committed(self, entries: Sequence[AppendEntry]) -> None:
        for entry in entries:
            if self.committed_entries and entry.transaction_id <= self.committed_entries[-1].transaction_id:
                raise AssertionError("commits out of order")
            self.committed_entries.append(entry)
        self.events.append(f"committed {entries[0].transaction_id}..{entries[-1].transaction_id}")

    def failed(self, entries: Sequence[AppendEntry]) -> None:
        self.failed_entries += entries
        self.events.append(f"failed {len(entries)}")

    def store_writable(self) -> None:
        self.writable_calls += 1


def practised_size() -> ListRequestSize:
    """What a partition of small records has learnt after ten answers: it asks for as many as there are."""
    size = ListRequestSize()
    for _ in range(10):
        size.answered(size.ask(10_000, 1 << 20), 1, 8)
    return size


_numbers = iter(range(1, 10**9))


def entry(size_bytes: int = 8, client: int = 7) -> AppendEntry:
    data = b"x" * size_bytes
    req_id = ReqId(client, 1, PARTITION, next(_numbers))
    record = Record(0, req_id, 0, data, data_checksum(data))
    return AppendEntry(req_id.pack(), 1, pack_record(record)[24:])


def entries(count: int, size_bytes: int = 8) -> list[AppendEntry]:
    return [entry(size_bytes) for _ in range(count)]


async def until(condition: Callable[[], bool], seconds: float = 30.0, step_seconds: float = 0.01) -> None:
    """Wait on the loop's (virtual) clock; fails loudly."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + seconds
    while not condition():
        if loop.time() > deadline:
            raise AssertionError("the condition did not come true")
        await asyncio.sleep(step_seconds)


class Server:
    """One server's store of the partition with its own connections and ZooKeeper session."""

    def __init__(
        self, cluster: Cluster, generation: int, replicas: Sequence[str], settings: StoreSettings, seed: int
    ) -> None:
        self.zk: MemoryStore = cluster.zk.session()
        self.settings = settings
        self.listener = Listener()
        self.blocked: set[str] = set()
        self._cluster = cluster
        rng = random.Random(seed)
        self.directory = ReplicaDirectory(self._open, settings=settings, rng=rng)
        self.store = QuorumPartitionStore(
            PARTITION,
            generation,
            directory=self.directory,
            metadata=StoreMetadata(self.zk, ROOT),
            settings=settings,
            listener=self.listener,
            rng=rng,
            replicas=replicas,
        )
        self.task: asyncio.Task[None] | None = None
        self.asking = asyncio.get_running_loop().create_task(self.directory.idle_check.run())

    async def _open(self, endpoint: Endpoint) -> ReplicaLink:
        node = self._cluster.nodes[str(endpoint)]
        await asyncio.sleep(0.001)
        if not node.up or str(endpoint) in self.blocked:
            raise ConnectError("connection refused")
        return FakeLink(node, self.settings.request_timeout_seconds)

    async def crash(self) -> None:
        """The process dies: its connections break, nothing is reported."""
        if self.task is not None:
            self.task.cancel()
            self.asking.cancel()
            await asyncio.gather(self.task, self.asking, return_exceptions=True)
        await self.directory.close()

    async def opened(self) -> None:
        await until(lambda: self.store.state is StoreState.OPEN)

    async def append(self, batch: Sequence[AppendEntry]) -> None:
        """Append and wait until all of it is committed."""
        self.store.append(batch)
        await until(lambda: batch[-1] in self.listener.committed_entries)


class Cluster:
    """Storage nodes, ZooKeeper and any number of servers."""

    def __init__(self, names: Sequence[str] = NAMES) -> None:
        self.names = tuple(names)
        self.nodes = {name: FakeNode(name) for name in names}
        self.zk = MemoryZooKeeper()
        self.admin = self.zk.session()
        self.metadata = StoreMetadata(self.admin, ROOT)
        self.servers: list[Server] = []

    async def __aenter__(self) -> Cluster:
        await self.admin.create(f"{ROOT}/store/partition", None, make_parents=True)
        return self

    async def __aexit__(self, *exc: object) -> None:
        for server in self.servers:
            await server.crash()

    def server(
        self,
        generation: int = 1,
        replicas: Sequence[str] | None = None,
        settings: StoreSettings | None = None,
    ) -> Server:
        names = self.names if replicas is None else replicas
        server = Server(self, generation, names, settings or StoreSettings(), len(self.servers))
        self.servers.append(server)
        server.task = asyncio.get_running_loop().create_task(server.store.run())
        return server

    async def stored(self) -> PartitionMetadata:
        found, _ = await self.metadata.read_partition(PARTITION)
        if found is None:
            raise AssertionError("no metadata")
        return found

    async def write(self, change: Callable[[PartitionMetadata], PartitionMetadata]) -> None:
        found, version = await self.metadata.read_partition(PARTITION)
        if found is None:
            raise AssertionError("no metadata")
        await self.metadata.write_partition(PARTITION, change(found), version)

    def check_equal(self, up_to: int, names: Sequence[str] | None = None) -> None:
        """The same records on every node, up to the mark."""
        logs = [self.nodes[name].log[: up_to + 1] for name in (names or self.names)]
        assert all(log == logs[0] for log in logs)
        assert len(logs[0]) == up_to + 1


Waiter = Callable[[], Awaitable[None]]
