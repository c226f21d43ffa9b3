"""One server partition on an in-memory store, for tests: `async with PartitionRig() as rig`."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Callable
from types import TracebackType
from typing import Self

from waltz_protocol.aio.turns import Turns
from waltz_protocol.messages.client import MountResponse, MountState
from waltz_protocol.types import ReqId, data_checksum
from waltz_runtime.metrics import Gauge, MetricsRegistry
from waltz_server.partition.compressed_blocks import CompressedBlocks
from waltz_server.partition.feed_cache import FeedCache
from waltz_server.partition.owned_partition import Partition, PartitionSettings
from waltz_server.partition.queue_room import WaitingBytes
from waltz_server.partition.shared_caches import SharedCaches
from waltz_server.partition.transaction_cache import TransactionCache
from waltz_server.store.api import StoreListener
from waltz_testkit.client_peers import FakeClient, make_append
from waltz_testkit.fake_partition_store import GatedStore

PARTITION = 3
GENERATION = 7


def wire_record(
    transaction_id: int, req_id: ReqId | None = None, data: bytes = b"old", header: int = 0
) -> bytes:
    """A committed record as the store returns it."""
    req_id = req_id or ReqId(99, 1, PARTITION, transaction_id)
    return b"".join(
        (
            struct.pack(">q", transaction_id),
            req_id.pack(),
            struct.pack(">ii", header, len(data)),
            data,
            struct.pack(">i", data_checksum(data)),
        )
    )


class PartitionRig:
    """A running partition; `records` is the log it finds, `open_at_once` False leaves it recovering."""

    def __init__(
        self,
        *,
        records: int = 0,
        record_data: bytes = b"old",
        auto_commit: bool = True,
        open_at_once: bool = True,
        settings: PartitionSettings | None = None,
        feed_cache_bytes: int = 1024 * 1024,
        transaction_cache_bytes: int = 1024 * 1024,
        max_in_flight_bytes: int = 16 * 1024 * 1024,
        max_in_flight_records: int = 65_536,
        turns: Turns | None = None,
        compressed: CompressedBlocks | None = None,
        waiting: WaitingBytes | None = None,
    ) -> None:
        self.metrics = MetricsRegistry(lambda: 0.0)
        self._records = [wire_record(n, data=record_data) for n in range(records)]
        self._auto_commit = auto_commit
        self._open_at_once = open_at_once
        self._max_in_flight_bytes = max_in_flight_bytes
        self._max_in_flight_records = max_in_flight_records
        self._turns = turns
        self._waiting = waiting
        self._stores: list[GatedStore] = []
        self.caches = SharedCaches(
            FeedCache(feed_cache_bytes),
            TransactionCache(transaction_cache_bytes),
            compressed or CompressedBlocks(),
        )
        self._settings = settings or PartitionSettings()
        self._tasks = asyncio.TaskGroup()
        self._seq_num = 0

    def _make_store(self, partition_id: int, generation: int, listener: StoreListener) -> GatedStore:
        store = _HeldOpenStore if not self._open_at_once else GatedStore
        made = store(
            partition_id,
            generation,
            listener=listener,
            auto_commit=self._auto_commit,
            records=list(self._records),
            max_in_flight_bytes=self._max_in_flight_bytes,
            max_in_flight_records=self._max_in_flight_records,
        )
        self._stores.append(made)
        return made

    @property
    def store(self) -> GatedStore:
        return self._stores[-1]

    async def __aenter__(self) -> Self:
        self.partition = Partition(
            PARTITION,
            GENERATION,
            make_store=self._make_store,
            settings=self._settings,
            caches=self.caches,
            metrics=self.metrics,
            turns=self._turns,
            waiting=self._waiting,
        )
        await self._tasks.__aenter__()
        self.task = self._tasks.create_task(self.partition.run())
        await self.turns()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.partition.close()
        await self._tasks.__aexit__(kind, error, trace)

    async def turns(self, count: int = 12) -> None:
        """Let everything that needs no time happen."""
        for _ in range(count):
            await asyncio.sleep(0)

    async def until(self, condition: Callable[[], bool]) -> None:
        """Wait for something that takes time (at most 5 s)."""
        async with asyncio.timeout(5.0):
            while not condition():
                await asyncio.sleep(0.002)

    def req_id(self, client: FakeClient, generation: int = GENERATION) -> ReqId:
        """A fresh one."""
        self._seq_num += 1
        return ReqId(client.client_id, generation, PARTITION, self._seq_num)

    async def mount(self, client: FakeClient, high_water_mark: int | None = None) -> ReqId:
        """Mount at the present end (or at `high_water_mark`) and see READY."""
        mark = len(self.store.log) - 1 if high_water_mark is None else high_water_mark
        req_id = self.req_id(client)
        self.partition.mount(client, req_id.pack(), GENERATION, mark)
        await self.turns()
        if MountResponse(req_id, MountState.READY) not in client.messages():
            raise AssertionError(f"not mounted: {client.messages()}")
        return req_id

    def append(
        self,
        client: FakeClient,
        *,
        hwm: int | None = None,
        write: tuple[int, ...] = (),
        read: tuple[int, ...] = (),
        append: tuple[int, ...] = (),
        data: bytes = b"data",
        header: int = 0,
        generation: int = GENERATION,
    ) -> ReqId:
        """Send an append (client high-water mark: the present end unless given)."""
        mark = len(self.store.log) - 1 if hwm is None else hwm
        req_id = self.req_id(client, generation)
        request = make_append(
            req_id,
            client_high_water_mark=mark,
            write=write,
            read=read,
            append=append,
            header=header,
            data=data,
        )
        self.partition.append(client, request)
        return req_id

    def flush(self, client: FakeClient, generation: int = GENERATION) -> ReqId:
        """Send a flush."""
        req_id = self.req_id(client, generation)
        self.partition.flush(client, req_id.pack(), generation)
        return req_id

    def feed(self, client: FakeClient, high_water_mark: int, req_id: ReqId | None = None) -> ReqId:
        """Send a feed request, under a ReqId of its own unless one is given."""
        req_id = req_id or self.req_id(client)
        self.partition.feed(client, req_id.pack(), GENERATION, high_water_mark)
        return req_id

    def read(self, client: FakeClient, transaction_id: int) -> ReqId:
        """Ask for the data of a transaction."""
        req_id = self.req_id(client)
        self.partition.transaction_data(client, req_id.pack(), transaction_id)
        return req_id

    def logged(self) -> list[ReqId]:
        """ReqIds of the log, in order."""
        return [ReqId.unpack(record, 8) for record in self.store.log]

    def count(self, name: str) -> int:
        """A counter, meter or counting gauge of the partition."""
        metric = self.metrics.metrics[f"waltz-server.partition-{PARTITION}.{name}"]
        return int(str(metric.value()[0])) if isinstance(metric, Gauge) else metric.count


class _HeldOpenStore(GatedStore):
    """Starts without a session; the test calls `open_session`."""

    async def run(self) -> None:
        await self._closed.wait()
