"""A `FakePartitionStore` whose reads can be held up and counted, and a backend of such stores for whole
servers."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from waltz_server.store.api import ReadFailedError, StoreListener, StoreState
from waltz_server.store.record_run import RecordRun
from waltz_testkit.fake_store import FakePartitionStore


class GatedStore(FakePartitionStore):
    """`gate` holds up reads while cleared; `bad_ids` cannot be read; `reads` are the ranges that were asked
    for."""

    def __init__(
        self,
        partition_id: int,
        generation: int,
        *,
        listener: StoreListener,
        auto_commit: bool = True,
        records: list[bytes] | None = None,
        max_in_flight_bytes: int = 16 * 1024 * 1024,
        max_in_flight_records: int = 65_536,
    ) -> None:
        super().__init__(
            partition_id,
            generation,
            listener=listener,
            auto_commit=auto_commit,
            records=records or (),
            max_in_flight_bytes=max_in_flight_bytes,
            max_in_flight_records=max_in_flight_records,
        )
        self.gate = asyncio.Event()
        self.gate.set()
        self.confirm_gate = asyncio.Event()
        self.confirm_gate.set()
        self.bad_ids: set[int] = set()
        self.reads: list[tuple[int, int]] = []
        self.max_records_per_read = 1_000_000

    async def read(self, first: int, max_count: int, max_bytes: int = 1024 * 1024) -> RecordRun:
        self.reads.append((first, max_count))
        await self.gate.wait()
        if self.bad_ids.intersection(range(first, first + max_count)):
            raise ReadFailedError(f"records from {first} are not readable")
        return await super().read(first, min(max_count, self.max_records_per_read), max_bytes)

    async def confirm_current(self) -> None:
        await self.confirm_gate.wait()
        await super().confirm_current()


class FakeLogs:
    """The storage nodes of a cluster, as far as fakes need them: one log and one owner per partition."""

    def __init__(self) -> None:
        self.logs: dict[int, list[bytes]] = {}
        self.owners: dict[int, GatedStore] = {}


class _FencedStore(GatedStore):
    """Opens on the shared log; the session of the owner before it is lost at that moment."""

    nodes: FakeLogs
    opening_seconds: float = 0.0

    async def run(self) -> None:
        await asyncio.sleep(self.opening_seconds)
        previous = self.nodes.owners.get(self.partition_id)
        self.nodes.owners[self.partition_id] = self
        if previous is not None and previous.state is StoreState.OPEN:
            previous.auto_commit = False
            previous.lose_session("fenced by a newer session")
        await super().run()


class FakeBackend:
    """Stores on logs that outlive them; servers of one cluster share `nodes`."""

    def __init__(self, nodes: FakeLogs | None = None) -> None:
        self.nodes = nodes if nodes is not None else FakeLogs()
        self.stores: dict[int, GatedStore] = {}
        self.replicas: dict[int, tuple[str, ...]] = {}
        self.connectivity: dict[str, bool] = {"st1:55280": True}
        self.start_error: Exception | None = None
        self.opening_seconds = 0.0
        self.closed = False
        self.on_replicas_changed: Callable[[], None] | None = None

    def make_store(self, partition_id: int, generation: int, listener: StoreListener) -> GatedStore:
        """A store on the shared log."""
        store = _FencedStore(partition_id, generation, listener=listener)
        store.nodes = self.nodes
        store.opening_seconds = self.opening_seconds
        store.log = self.nodes.logs.setdefault(partition_id, [])
        self.stores[partition_id] = store
        return store

    def replicas_of(self, partition_id: int) -> tuple[str, ...]:
        return self.replicas.get(partition_id, ())

    async def check_connectivity(self) -> dict[str, bool]:
        return dict(self.connectivity)

    async def start(self, on_replicas_changed: Callable[[], None]) -> None:
        if self.start_error is not None:
            raise self.start_error
        self.on_replicas_changed = on_replicas_changed

    async def run(self) -> None:
        await asyncio.Event().wait()

    async def close(self) -> None:
        self.closed = True
