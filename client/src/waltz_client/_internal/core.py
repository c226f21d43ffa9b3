"""The client behind the public face: discovery, partitions, connections, timers, lifecycle.

Owner of everything that lives as long as the client; runs on one loop. Discovery says who owns which
partition in which generation; the stream and RPC sides follow. A placement with a generation below one
already seen is stale and not followed.
"""

from __future__ import annotations

import asyncio
import functools
import logging
import time
from collections.abc import Callable, Coroutine, Iterable, Mapping
from typing import Any, Protocol

from waltz_client._internal.append.window import LockHashes
from waltz_client._internal.applier import Applier
from waltz_client._internal.contexts import Submissions
from waltz_client._internal.link import LinkSettings
from waltz_client._internal.req_ids import ReqIdSource
from waltz_client._internal.rpc.client import RpcClient
from waltz_client._internal.stream.links import StreamLinks
from waltz_client._internal.stream.partition import StreamPartition
from waltz_client.callbacks import WaltzClientCallbacks
from waltz_client.errors import (
    ClientAheadError,
    ClientClosedError,
    PartitionInactiveError,
    PartitionNotFoundError,
    TransactionNotFoundError,
    TransactionTooLargeError,
    UsageError,
    ViewAheadError,
    WaltzClientError,
)
from waltz_client.settings import ClientSettings
from waltz_protocol.aio.tasks import spawn
from waltz_protocol.backoff import Random
from waltz_protocol.locks import LockId
from waltz_protocol.types import Endpoint, Generation, PartitionId

log = logging.getLogger("waltz_client")

TICK_SECONDS = 0.25
START_MARK_DEADLINE_SECONDS = 5.0

Endpoints = Mapping[Endpoint, Mapping[PartitionId, Generation]]
AppendRequest = tuple[bytes, int, int, LockHashes, LockHashes, LockHashes]
"""data, header, high-water mark, write, read and append lock hashes."""


class ClusterInfo(Protocol):
    """What discovery says about the cluster."""

    @property
    def name(self) -> str:
        """Name of the cluster."""
        ...

    @property
    def num_partitions(self) -> int:
        """How many partitions it has."""
        ...


class Discovery(Protocol):
    """The part of ``waltz_cluster.manager.ClusterManager`` a client uses."""

    @property
    def cluster_params(self) -> ClusterInfo:
        """Name and number of partitions."""
        ...

    async def new_client_id(self) -> int:
        """An id no client ever had."""
        ...

    def add_endpoints_listener(
        self, listener: Callable[[dict[Endpoint, dict[PartitionId, Generation]]], None]
    ) -> Callable[[], None]:
        """Call the listener now and on every change; returns a function that removes it."""
        ...


@functools.lru_cache(maxsize=65536)
def _lock_hash(lock: LockId) -> int:
    return lock.hash


def lock_hashes(locks: Iterable[LockId]) -> LockHashes:
    """Wire hashes of locks, in order, duplicates kept. UsageError for anything that is not a lock."""
    try:
        return tuple(_lock_hash(lock) for lock in locks)
    except (AttributeError, TypeError):
        raise UsageError("locks must be LockId(name, id) values") from None


class ClientCore:
    """See the module. Invariants: one StreamPartition and one ReqIdSource per partition for the life of the
    client."""

    def __init__(
        self,
        settings: ClientSettings,
        discovery: Discovery,
        client_id: int,
        callbacks: WaltzClientCallbacks | None,
        link_settings: LinkSettings,
        random: Random,
        wall_clock: Callable[[], float] = time.time,
    ) -> None:
        self.settings = settings
        self.client_id = client_id
        self.num_partitions = discovery.cluster_params.num_partitions
        self.cluster_name = discovery.cluster_params.name
        self.callbacks = callbacks
        self.random = random
        self.wall_clock = wall_clock
        self.closed = False
        self._ended = asyncio.Event()
        self._waiting = asyncio.Event()
        """Set while time must be watched; an idle client sleeps."""
        self.partitions: dict[int, StreamPartition] = {}
        self.appliers: dict[int, Applier] = {}
        self.endpoints: dict[int, Endpoint] = {}
        self.servers: set[Endpoint] = set()
        self._applier_tasks: dict[int, asyncio.Task[None]] = {}
        self._chosen: set[int] = set()
        self._choosing = asyncio.Lock()
        self._req_ids: dict[int, ReqIdSource] = {}
        self._told: dict[int, int] = {}
        """Partition to the highest mark that a server has named in an answer."""
        self._tasks: dict[asyncio.Task[None], None] = {}  # ended in the order of their start
        self._discovery = discovery
        self._remove_listener: Callable[[], None] | None = None
        self.links = StreamLinks(link_settings, self.spawn, random)
        self.rpc = RpcClient(
            self.req_ids, link_settings, self.spawn, random, resend_seconds=settings.request_resend_ms / 1000
        )
        self.submissions = Submissions(self)

    # -- life ------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Begin to follow discovery; with callbacks and auto-mount, take part in all partitions."""
        self.spawn(self.rpc.run_timer(), "rpc deadlines")
        self.spawn(self._run_ticks(), "nudges")
        self.submissions.start()
        self._remove_listener = self._discovery.add_endpoints_listener(self._on_endpoints)
        if self.callbacks is not None and self.settings.auto_mount:
            for partition_id in range(self.num_partitions):
                self._activate(partition_id)

    def spawn(self, coro: Coroutine[Any, Any, None], name: str) -> asyncio.Task[None]:
        """A task that ends with the client at the latest."""
        task = spawn(coro, f"waltz client {self.client_id}: {name}")
        self._tasks[task] = None
        task.add_done_callback(self._tasks.pop)
        return task

    async def close(self) -> None:
        """End everything: pending appends are unknown, readers and waiters get ClientClosedError.
        Idempotent."""
        if self.closed:
            return
        self.closed = True
        self._ended.set()
        if self._remove_listener is not None:
            self._remove_listener()
        for partition in self.partitions.values():
            partition.close()
        for applier in self.appliers.values():
            applier.stop(ClientClosedError("the client is closed"))
        self.rpc.close()
        await self.submissions.close()
        tasks = [task for task in self._tasks if task is not asyncio.current_task()]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    async def _run_ticks(self) -> None:
        nudge_ticks = max(1, round(self.settings.long_wait_threshold_ms / 1000 / TICK_SECONDS))
        while True:
            await self._waiting.wait()
            await asyncio.sleep(TICK_SECONDS)
            self._waiting.clear()
            for partition in list(self.partitions.values()):
                try:
                    partition.on_tick(nudge_ticks)
                except Exception:
                    log.exception("looking after partition %d failed", partition.partition_id)
                if partition.needs_ticks:
                    self._waiting.set()

    def need_ticks(self) -> None:
        """See ``PartitionHost``."""
        self._waiting.set()

    # -- discovery -------------------------------------------------------------------------------------------

    def req_ids(self, partition_id: int) -> ReqIdSource:
        """The one source of request ids of a partition."""
        source = self._req_ids.get(partition_id)
        if source is None:
            source = self._req_ids[partition_id] = ReqIdSource(self.client_id, partition_id, self.random)
        return source

    def _on_endpoints(self, endpoints: Endpoints) -> None:
        placement: dict[int, Endpoint] = {}
        raised: set[int] = set()
        for endpoint, owned in endpoints.items():
            for partition_id, generation in owned.items():
                source = self.req_ids(partition_id)
                if source.raise_generation(generation):
                    raised.add(partition_id)
                elif generation < source.generation:
                    log.warning("partition %d: stale generation %d is ignored", partition_id, generation)
                    continue
                placement[partition_id] = endpoint
        self.endpoints = placement
        self.servers = set(endpoints)
        self.links.keep_only(self.servers)
        for partition in list(self.partitions.values()):
            place = placement.get(partition.partition_id)
            if place is None:
                self.links.detach(partition)
            elif place != self.links.place_of(partition.partition_id):
                if partition.active:
                    self.links.attach(partition, place)
            elif partition.partition_id in raised:
                partition.generation_raised()
        self.rpc.set_endpoints(placement, self.servers)

    # -- partitions ------------------------------------------------------------------------------------------

    def check_partition(self, partition_id: int) -> None:
        """PartitionNotFoundError, one line, for a number the cluster does not have."""
        if isinstance(partition_id, bool) or not isinstance(partition_id, int):
            raise UsageError(f"a partition is a number, not {partition_id!r}")
        if not 0 <= partition_id < self.num_partitions:
            raise PartitionNotFoundError(partition_id, self.num_partitions)

    def check_open(self) -> None:
        """ClientClosedError after close."""
        if self.closed:
            raise ClientClosedError("the client is closed")

    def use_partition(self, partition_id: int) -> StreamPartition:
        """The partition, taking part in it. PartitionInactiveError when the choice was left to
        ``set_partitions``."""
        partition = self.partitions.get(partition_id)
        if partition is not None and partition.active:
            return partition
        self.check_open()
        self.check_partition(partition_id)
        if not self.settings.auto_mount and partition_id not in self._chosen:
            raise PartitionInactiveError(partition_id)
        return self._activate(partition_id)

    def _activate(self, partition_id: int) -> StreamPartition:
        partition = self.partitions.get(partition_id)
        if partition is None:
            partition = StreamPartition(
                self.req_ids(partition_id), self, self.settings.max_concurrent_transactions, self.random
            )
            self.partitions[partition_id] = partition
        was_active = partition.active
        partition.activate()  # also one that was about to leave
        if not was_active:
            if self.callbacks is not None:
                applier = Applier(
                    partition, self.callbacks, self.fetch, self.random, self.settings.feed_buffer_transactions
                )
                self.appliers[partition_id] = applier
                self._applier_tasks[partition_id] = self.spawn(
                    applier.run(), f"apply partition {partition_id}"
                )
            endpoint = self.endpoints.get(partition_id)
            if endpoint is not None:
                self.links.attach(partition, endpoint)
        return partition

    async def set_partitions(self, chosen: set[int], deadline_seconds: float) -> None:
        """Take part in exactly these. Others are flushed, then let go; what has no outcome by then ends as
        unknown."""
        self.check_open()
        if self.settings.auto_mount:
            raise UsageError("set_partitions needs client.autoMount: false")
        for partition_id in chosen:
            self.check_partition(partition_id)
        async with self._choosing:
            self._chosen = set(chosen)
            leaving = [p for p in self.partitions.values() if p.active and p.partition_id not in chosen]
            for partition in leaving:
                partition.window.stopped = True
            for partition in leaving:
                await self._flush_before_leaving(partition, deadline_seconds)
                self.links.detach(partition)
                partition.deactivate()
                applier = self.appliers.pop(partition.partition_id, None)
                if applier is not None:
                    applier.stop(PartitionInactiveError(partition.partition_id))
                    self.submissions.tell_committed(applier)
                task = self._applier_tasks.pop(partition.partition_id, None)
                if task is not None:
                    task.cancel()
            self.check_open()
            for partition_id in sorted(chosen):
                self._activate(partition_id)

    async def _flush_before_leaving(self, partition: StreamPartition, deadline_seconds: float) -> None:
        try:
            async with asyncio.timeout(deadline_seconds):
                await self.flush_partition(partition)
        except TimeoutError:
            log.warning("partition %d: appends without an outcome when it was let go", partition.partition_id)
            partition.window.close()

    def active_partitions(self) -> list[int]:
        """The partitions this client takes part in, ascending."""
        return sorted(p.partition_id for p in self.partitions.values() if p.active)

    def why_unavailable(self, partition_id: int) -> str:
        """For messages: what a partition is waiting for."""
        partition = self.partitions.get(partition_id)
        error = self.links.last_error(partition_id)
        if error is not None:
            return error
        if partition_id not in self.endpoints:
            return "no server owns it"
        return partition.why_unavailable if partition is not None else "it is not in use"

    def view_of(self, partition: StreamPartition) -> int:
        """The mark the application's view is at: applied by the callbacks, or received when there are
        none."""
        applier = self.appliers.get(partition.partition_id)
        if applier is not None:
            return -1 if applier.applied is None else applier.applied
        return max(partition.received, -1)

    def mark_told(self, partition_id: int, mark: int) -> None:
        """See ``PartitionHost``."""
        if mark > self._told.get(partition_id, -1):
            self._told[partition_id] = mark

    def known_mark(self, partition: StreamPartition) -> int:
        """The highest transaction of the partition that this client has received or been told of."""
        return max(partition.received, self._told.get(partition.partition_id, -1))

    async def check_view(self, partition: StreamPartition, as_of: int, deadline_seconds: float) -> None:
        """ViewAheadError when the log ends before ``as_of``; the server is asked when this client has not
        seen that much."""
        if as_of > self.known_mark(partition):
            mark = await self.server_high_water_mark(partition.partition_id, deadline_seconds)
            if as_of > mark:
                raise ViewAheadError(partition_id=partition.partition_id, as_of=as_of, high_water_mark=mark)

    # -- waiting ---------------------------------------------------------------------------------------------

    async def pause(self, seconds: float) -> None:
        """Between two attempts of a caller; ClientClosedError as soon as the client is closed."""
        try:
            async with asyncio.timeout(seconds):
                await self._ended.wait()
        except TimeoutError:
            return
        self.check_open()

    async def wait_mounted(self, partition: StreamPartition) -> None:
        """Until the partition is mounted; PartitionInactiveError, ClientAheadError, ClientClosedError."""
        while not partition.mounted:
            await self._wait(partition)

    async def wait_writable(self, partition: StreamPartition) -> None:
        """Until an append can be sent to the partition; errors as :meth:`wait_mounted`."""
        while not partition.can_send:
            await self._wait(partition)

    async def _wait(self, partition: StreamPartition) -> None:
        self.check_open()
        if not partition.active:
            raise PartitionInactiveError(partition.partition_id)
        if partition.client_ahead:
            raise ClientAheadError(partition.partition_id, partition.received)
        window = partition.window
        waiter = window.add_waiter()
        try:
            await waiter
        except asyncio.CancelledError:
            window.drop_waiter(waiter)
            raise

    async def flush_partition(self, partition: StreamPartition) -> None:
        """Ask for the outcome of everything sent so far to this partition, and wait for it."""
        pending = partition.window.monitor.pending_entries()
        if not pending:
            return
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        left = len(pending)

        def one_done() -> None:
            nonlocal left
            left -= 1
            if left == 0 and not done.done():
                done.set_result(None)

        partition.window.watch(pending, one_done)
        if partition.session is not None and partition.mounted:
            partition.window.flush(partition.session)
        try:
            await done
        finally:
            partition.window.unwatch(pending, one_done)

    # -- requests --------------------------------------------------------------------------------------------

    def checked_append(
        self,
        partition_id: int,
        data: bytes | bytearray | memoryview,
        header: int,
        write_locks: Iterable[LockId],
        read_locks: Iterable[LockId],
        append_locks: Iterable[LockId],
        high_water_mark: int,
    ) -> AppendRequest:
        """Check one append's arguments: UsageError, TransactionTooLargeError."""
        if not isinstance(data, bytes):
            if not isinstance(data, (bytearray, memoryview)):
                raise UsageError(f"data must be bytes, not {type(data).__name__}")
            data = bytes(data)
        if len(data) > self.settings.max_transaction_bytes:
            raise TransactionTooLargeError(
                f"transaction of {len(data)} bytes is larger than client.maxTransactionBytes "
                f"({self.settings.max_transaction_bytes})",
                partition_id=partition_id,
            )
        if not -(2**31) <= header < 2**31:
            raise UsageError(f"header {header} is not a signed 32-bit number")
        if not -1 <= high_water_mark < 2**63:
            raise UsageError(f"as_of {high_water_mark} is not a transaction id or -1")
        if not write_locks and not read_locks and not append_locks:
            return data, header, high_water_mark, (), (), ()
        hashes = (lock_hashes(write_locks), lock_hashes(read_locks), lock_hashes(append_locks))
        count, most = sum(map(len, hashes)), self.settings.max_locks
        if count > most:
            raise TransactionTooLargeError(
                f"transaction with {count} locks: more than client.maxLocksPerAppend ({most})",
                partition_id=partition_id,
            )
        return data, header, high_water_mark, *hashes

    async def server_high_water_mark(self, partition_id: int, deadline_seconds: float | None = None) -> int:
        """The server's high-water mark; RequestDeadlineError."""
        seconds = self.settings.request_deadline_ms / 1000 if deadline_seconds is None else deadline_seconds
        value = await self.rpc.request(partition_id, None, seconds)
        if not isinstance(value, int):
            raise WaltzClientError("the server answered a high-water mark request with data")
        self.mark_told(partition_id, value)
        return value

    async def start_mark(self, partition_id: int) -> int:
        """Where the first mount begins: the end of the log, or beyond it what the application says it has
        applied."""
        applier = self.appliers.get(partition_id)
        applied = -1 if applier is None else await applier.initial_mark()
        mark = await self.server_high_water_mark(partition_id, START_MARK_DEADLINE_SECONDS)
        return max(mark, applied)

    async def fetch(self, partition_id: int, transaction_id: int) -> bytes:
        """The payload of a transaction known to be committed: retried until there is an answer."""
        value = await self.rpc.request(partition_id, transaction_id, None)
        if not isinstance(value, bytes):
            raise WaltzClientError("the server answered a data request with a number")
        return value

    async def get_data(self, partition_id: int, transaction_id: int, deadline_seconds: float | None) -> bytes:
        """The payload of any transaction. An id above the high-water mark is never asked for: some servers
        would remember the failure for good. TransactionNotFoundError, RequestDeadlineError."""
        self.check_open()
        self.check_partition(partition_id)
        if transaction_id < 0:
            raise UsageError(f"{transaction_id} is not a transaction id")
        seconds = self.settings.request_deadline_ms / 1000 if deadline_seconds is None else deadline_seconds
        deadline = asyncio.get_running_loop().time() + seconds
        partition = self.partitions.get(partition_id)
        if partition is None or partition.received < transaction_id:
            mark = await self.server_high_water_mark(partition_id, seconds)
            if transaction_id > mark:
                raise TransactionNotFoundError(
                    f"partition {partition_id} has no transaction {transaction_id} yet: its high-water mark is {mark}"
                )
        left = max(deadline - asyncio.get_running_loop().time(), 0.0)
        value = await self.rpc.request(partition_id, transaction_id, left)
        if not isinstance(value, bytes):
            raise WaltzClientError("the server answered a data request with a number")
        return value
