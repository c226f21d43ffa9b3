"""The partitions of one client: which it takes part in, where they are, and how much of each it has seen.

Discovery says who owns which partition in which generation; the stream and RPC sides follow. A placement with
a generation below one already seen is stale and not followed.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Iterable, Mapping
from contextlib import ExitStack
from typing import Any

from waltz_client._internal.append.sequence_window import SequenceWindow
from waltz_client._internal.append.window import AppendWindow
from waltz_client._internal.applier import Applier
from waltz_client._internal.arguments import call_deadline, partition_number, whole_number
from waltz_client._internal.life import ClientLife
from waltz_client._internal.observers import Observers
from waltz_client._internal.producer import Producer
from waltz_client._internal.req_ids import ReqIdSources
from waltz_client._internal.rpc.client import RpcClient
from waltz_client._internal.stream.links import StreamLinks
from waltz_client._internal.stream.partition import StreamPartition
from waltz_client._internal.stream.readers import Readers
from waltz_client.callbacks import WaltzClientCallbacks
from waltz_client.errors import (
    ClientClosedError,
    PartitionInactiveError,
    PartitionNotFoundError,
    RequestDeadlineError,
    TransactionNotFoundError,
    UsageError,
    ViewAheadError,
    WaltzClientError,
)
from waltz_client.observer import PartitionStatus
from waltz_client.settings import ClientSettings
from waltz_protocol.backoff import Random
from waltz_protocol.types import Endpoint, Generation, PartitionId

log = logging.getLogger(__name__)

TICK_SECONDS = 0.25
START_MARK_DEADLINE_SECONDS = 5.0

Endpoints = Mapping[Endpoint, Mapping[PartitionId, Generation]]


class Partitions:
    """See the module. Owner of every StreamPartition and Applier of a client, on its loop.

    Invariant: one StreamPartition per partition for the life of the client.
    """

    def __init__(
        self,
        settings: ClientSettings,
        count: int,
        life: ClientLife,
        req_ids: ReqIdSources,
        links: StreamLinks,
        rpc: RpcClient,
        callbacks: WaltzClientCallbacks | None,
        random: Random,
        observers: Observers | None,
        on_stopped_applier: Callable[[Applier], None],
        producer: Producer | None = None,
    ) -> None:
        """`callbacks`: each partition is applied through them; `on_stopped_applier` is called when a
        partition is no longer applied."""
        self.count = count
        self.streams: dict[int, StreamPartition] = {}
        self.appliers: dict[int, Applier] = {}
        self.endpoints: dict[int, Endpoint] = {}
        self.servers: set[Endpoint] = set()
        self._settings = settings
        self._life = life
        self._req_ids = req_ids
        self._links = links
        self._rpc = rpc
        self._callbacks = callbacks
        self._random = random
        self._observers = observers
        self._on_stopped_applier = on_stopped_applier
        self._producer = producer
        self._applier_tasks: dict[int, list[asyncio.Task[None]]] = {}
        """Of each partition the newest last; those before it were cancelled."""
        self._chosen: set[int] = set()
        self._choosing = asyncio.Lock()
        self._named_marks: dict[int, int] = {}
        """Partition to the highest mark that a server has named in an answer."""
        self._waiting = asyncio.Event()
        """Set while time must be watched; an idle client sleeps."""

    # -- life ------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """With callbacks and auto-mount: take part in all partitions."""
        if self._callbacks is not None and self._settings.auto_mount:
            for partition_id in range(self.count):
                self._activate(partition_id)

    def close(self) -> None:
        """Pending appends are unknown; readers, writers and appliers get ClientClosedError."""
        with ExitStack() as stack:  # whatever one raises, the others end too
            for applier in reversed(self.appliers.values()):
                stack.callback(applier.stop, ClientClosedError("the client is closed"))
            for partition in reversed(self.streams.values()):
                stack.callback(partition.close)

    def spawn(self, coro: Coroutine[Any, Any, None], name: str) -> asyncio.Task[None]:
        """See `PartitionHost`."""
        return self._life.spawn(coro, name)

    async def run_ticks(self) -> None:
        """Time passes for the partitions that wait for something; runs as long as the client."""
        nudge_ticks = max(1, round(self._settings.long_wait_threshold_ms / 1000 / TICK_SECONDS))
        while True:
            await self._waiting.wait()
            await asyncio.sleep(TICK_SECONDS)
            self._waiting.clear()
            for partition in list(self.streams.values()):
                try:
                    partition.on_tick(nudge_ticks)
                except Exception:
                    log.exception(
                        "partition %d: the timer tick failed",
                        partition.partition_id,
                        extra={"partition": partition.partition_id},
                    )
                if partition.needs_ticks:
                    self._waiting.set()

    def need_ticks(self) -> None:
        """See `PartitionHost`."""
        self._waiting.set()

    # -- placement -------------------------------------------------------------------------------------------

    def follow(self, endpoints: Endpoints) -> None:
        """Discovery says who owns what now."""
        placement: dict[int, Endpoint] = {}
        raised: set[int] = set()
        for endpoint, owned in endpoints.items():
            for partition_id, generation in owned.items():
                source = self._req_ids.of(partition_id)
                if source.raise_generation(generation):
                    raised.add(partition_id)
                elif generation < source.generation:
                    log.warning(
                        "partition %d: stale generation %d is ignored",
                        partition_id,
                        generation,
                        extra={"partition": partition_id, "generation": generation, "server": str(endpoint)},
                    )
                    continue
                placement[partition_id] = endpoint
        self.endpoints = placement
        self.servers = set(endpoints)
        self._links.keep_only(self.servers)
        for partition in list(self.streams.values()):
            owner = placement.get(partition.partition_id)
            if owner is None:
                self._links.detach(partition)
            elif owner != self._links.place_of(partition.partition_id):
                if partition.active:
                    self._links.attach(partition, owner)
            elif partition.partition_id in raised:
                partition.generation_raised()
        self._rpc.set_endpoints(placement, self.servers)

    def why_unavailable(self, partition_id: int) -> str:
        """For messages: what a partition is waiting for."""
        partition = self.streams.get(partition_id)
        if partition is not None and partition.mounted:
            return "its server sends nothing" if partition.can_send else "too many appends are on their way"
        error = self._links.last_error(partition_id)
        if error is not None:
            return error
        if partition_id not in self.endpoints:
            return "no server owns it"
        return partition.why_unavailable if partition is not None else "it is not in use"

    # -- taking part -----------------------------------------------------------------------------------------

    def check(self, partition_id: int) -> int:
        """The number as an int, of whatever type it is; UsageError for what is none, PartitionNotFoundError,
        one line, for one that the cluster does not have."""
        number = partition_number(partition_id)
        if not 0 <= number < self.count:
            raise PartitionNotFoundError(number, self.count)
        return number

    def use(self, partition_id: int) -> StreamPartition:
        """The partition, taking part in it. PartitionInactiveError when the choice was left to
        `set_partitions`."""
        partition = self.streams.get(partition_id)
        if partition is not None and partition.active:
            return partition
        self._life.check_open()
        self.check(partition_id)
        if not self._settings.auto_mount and partition_id not in self._chosen:
            raise PartitionInactiveError(partition_id)
        return self._activate(partition_id)

    def readers(self, partition_id: int) -> Readers:
        """Those of a partition, taking part in it; errors as `use`."""
        return self.use(partition_id).readers

    def _activate(self, partition_id: int) -> StreamPartition:
        partition = self.streams.get(partition_id)
        if partition is None:
            partition = self.streams[partition_id] = self._new_stream(partition_id)
        was_active = partition.active
        partition.activate()  # also one that was about to leave
        if not was_active:
            if self._callbacks is not None:
                self._apply(partition, self._callbacks)
            endpoint = self.endpoints.get(partition_id)
            if endpoint is not None:
                self._links.attach(partition, endpoint)
        return partition

    def _new_stream(self, partition_id: int) -> StreamPartition:
        settings, req_ids, observers = self._settings, self._req_ids.of(partition_id), self._observers
        most, most_bytes = settings.max_concurrent_transactions, settings.max_concurrent_bytes
        if self._producer is None:
            window = AppendWindow(req_ids, most, most_bytes, self.need_ticks, observers)
            return StreamPartition(req_ids, self, window, self._random, observers)
        numbered = SequenceWindow(req_ids, most, most_bytes, self.need_ticks, observers, self._producer)
        stream = StreamPartition(req_ids, self, numbered, self._random, observers)
        numbered.received, numbered.session = lambda: stream.received, lambda: stream.mounted_on
        return stream

    def _numbered(self) -> list[SequenceWindow]:
        windows = [stream.window for stream in self.streams.values()]
        return [window for window in windows if isinstance(window, SequenceWindow)]

    def note_marks(self) -> None:
        """Of a named producer: how far each partition was received."""
        for window in self._numbered():
            window.catch_up()

    def fence(self) -> None:
        """Of a named producer: a newer instance has begun."""
        for window in self._numbered():
            window.fence()

    async def last_sequence(self, producer: Producer, partition_id: int, deadline_seconds: float) -> int:
        """See `WaltzClient.last_sequence`."""
        partition_id = self.check(partition_id)
        partition = self.use(partition_id)
        try:
            async with asyncio.timeout(deadline_seconds):
                await partition.wait_mounted()
        except TimeoutError:
            raise RequestDeadlineError(
                f"the last sequence number of producer {producer.name} in partition {partition_id} was not found within "
                f"{deadline_seconds:g} s: its log was read up to transaction {max(partition.received, -1)}, "
                f"{self.why_unavailable(partition_id)}"
            ) from None
        return producer.marks_of(partition_id).last

    async def all_marks(self, deadline_seconds: float) -> list[int]:
        """The high-water mark of each partition now; -1 where nobody answers in time."""

        async def mark(partition_id: int) -> int:
            try:
                return await self.server_high_water_mark(partition_id, deadline_seconds)
            except WaltzClientError as error:
                log.warning(
                    "partition %d: its high-water mark is not known: %s",
                    partition_id,
                    error,
                    extra={"partition": partition_id},
                )
                return -1

        return await asyncio.gather(*(mark(partition_id) for partition_id in range(self.count)))

    def _apply(self, partition: StreamPartition, callbacks: WaltzClientCallbacks) -> None:
        partition_id = partition.partition_id
        earlier = [task for task in self._applier_tasks.get(partition_id, ()) if not task.done()]
        applier = Applier(
            partition.readers,
            callbacks,
            self._rpc.data,
            self._random,
            self._settings.feed_buffer_transactions,
            self._observers,
            earlier,
        )
        self.appliers[partition_id] = partition.application = applier
        task = self.spawn(applier.run(), f"apply partition {partition_id}")
        self._applier_tasks[partition_id] = [*earlier, task]

    async def choose(self, wanted: Iterable[int], deadline_seconds: float) -> None:
        """Take part in exactly these. Others are flushed, then let go; what has no outcome by then ends as
        unknown. Cancellation: those that have not been let go by then stay in use."""
        self._life.check_open()
        if self._settings.auto_mount:
            raise UsageError("set_partitions needs client.autoMount: false")
        chosen = {self.check(partition_id) for partition_id in wanted}
        async with self._choosing:
            self._chosen = set(chosen)
            leaving = [p for p in self.streams.values() if p.active and p.partition_id not in chosen]
            stopped = [p for p in leaving if not p.window.stopped]
            for partition in leaving:
                partition.window.stopped = True
            try:
                for partition in leaving:
                    await self._leave(partition, deadline_seconds)
            except BaseException:  # who has not left stays, and takes appends again
                self._chosen = set(self.active())
                for partition in stopped:
                    if partition.active and partition.window.ended_by is None:
                        partition.window.stopped = False
                        partition.wake_writers()
                raise
            self._life.check_open()
            for partition_id in sorted(chosen):
                self._activate(partition_id)

    async def _leave(self, partition: StreamPartition, deadline_seconds: float) -> None:
        partition_id = partition.partition_id
        try:
            async with asyncio.timeout(deadline_seconds):
                await partition.flush()
        except TimeoutError:
            log.warning(
                "partition %d: some appends had no outcome when it was deactivated",
                partition_id,
                extra={"partition": partition_id},
            )
            partition.window.close("the partition was let go")
        partition.deactivate()  # says so to the server, so it comes before the detachment
        self._links.detach(partition)
        partition.application = None
        applier = self.appliers.pop(partition_id, None)
        if applier is not None:
            applier.stop(PartitionInactiveError(partition_id))
            self._on_stopped_applier(applier)
            self._applier_tasks[partition_id][-1].cancel()  # the next applier waits until it has left

    async def wait_applied(self, partition_id: int, transaction_id: int) -> None:
        """Until the callbacks, if there are any, have applied a transaction. PartitionInactiveError when the
        partition was let go, the error that has stopped it."""
        if self._callbacks is None:
            return
        applier = self.appliers.get(partition_id)
        if applier is None:
            raise PartitionInactiveError(partition_id)
        await applier.wait_applied(transaction_id)

    def active(self) -> list[int]:
        """The partitions this client takes part in, ascending."""
        return sorted(p.partition_id for p in list(self.streams.values()) if p.active)

    def status(self) -> tuple[PartitionStatus, ...]:
        """Those that it takes part in, ascending."""
        return tuple(self._status(self.streams[partition_id]) for partition_id in self.active())

    def _status(self, partition: StreamPartition) -> PartitionStatus:
        partition_id = partition.partition_id
        application = partition.application
        return PartitionStatus(
            partition=partition_id,
            server=self.endpoints.get(partition_id),
            available=partition.mounted,
            reason="" if partition.mounted else self.why_unavailable(partition_id),
            appends=partition.pending,
            append_bytes=partition.window.outstanding_bytes,
            received=max(partition.received, -1),
            applied=None if application is None else application.applied,
            known_mark=max(self.known_mark(partition), -1),
        )

    def has_pending(self) -> bool:
        """Whether an append is on its way."""
        return any(partition.pending for partition in self.streams.values())

    # -- marks and data --------------------------------------------------------------------------------------

    def mark_named(self, partition_id: int, mark: int) -> None:
        """See `PartitionHost`."""
        if mark > self._named_marks.get(partition_id, -1):
            self._named_marks[partition_id] = mark

    def known_mark(self, partition: StreamPartition) -> int:
        """The highest transaction of the partition that this client has received or a server has named."""
        return max(partition.received, self._named_marks.get(partition.partition_id, -1))

    async def check_view(self, partition: StreamPartition, as_of: int, deadline_seconds: float) -> None:
        """Ask the server about a view beyond `known_mark`; ViewAheadError when the log ends before
        it, RequestDeadlineError."""
        mark = await self.server_high_water_mark(partition.partition_id, deadline_seconds)
        if as_of > mark:
            raise ViewAheadError(partition_id=partition.partition_id, as_of=as_of, high_water_mark=mark)

    async def server_high_water_mark(self, partition_id: int, deadline_seconds: float | None = None) -> int:
        """The server's high-water mark; RequestDeadlineError."""
        seconds = call_deadline(deadline_seconds, self._settings.request_deadline_ms)
        mark = await self._rpc.high_water_mark(partition_id, seconds)
        self.mark_named(partition_id, mark)
        return mark

    async def start_mark(self, partition_id: int) -> int:
        """Where the first mount begins: the end of the log, or beyond it what the application says it has
        applied. Of a named producer: where its numbers are known up to."""
        if self._producer is not None:
            return self._producer.marks_of(partition_id).mark
        applier = self.appliers.get(partition_id)
        applied = -1 if applier is None else await applier.initial_mark()
        mark = await self.server_high_water_mark(partition_id, START_MARK_DEADLINE_SECONDS)
        return max(mark, applied)

    async def get_data(self, partition_id: int, transaction_id: int, deadline_seconds: float | None) -> bytes:
        """The payload of any transaction. An id above the high-water mark is never asked for: some servers
        would remember the failure for good. TransactionNotFoundError, RequestDeadlineError."""
        self._life.check_open()
        partition_id = self.check(partition_id)
        transaction_id = whole_number("transaction_id", transaction_id)
        if transaction_id < 0:
            raise UsageError(f"{transaction_id} is not a transaction id")
        seconds = call_deadline(deadline_seconds, self._settings.request_deadline_ms)
        loop = asyncio.get_running_loop()
        deadline = loop.time() + seconds
        partition = self.streams.get(partition_id)
        if partition is None or partition.received < transaction_id:
            mark = await self.server_high_water_mark(partition_id, seconds)
            if transaction_id > mark:
                raise TransactionNotFoundError(
                    f"partition {partition_id} has no transaction {transaction_id} yet: its high-water mark is {mark}"
                )
        return await self._rpc.data(partition_id, transaction_id, max(deadline - loop.time(), 0.0))
