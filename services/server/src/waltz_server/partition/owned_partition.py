"""One owned partition: what its clients ask of it, tied to its store.

Client-server protocol, server behaviour. A `Partition` lives from the moment the assignment names this server
until it no longer does, or until its store ends on its own; then the registry makes a new one (weakness
13.12: the reference keeps a dead object that swallows everything). Owner of all its state: the event loop;
`run` owns its tasks: the store, the confirmation of mounts and flushes, and the reads.

Invariants
* The committed mark is one object with one writer, this class; what sends to clients reads that object.
  Nothing above it leaves the partition in any form (safety D1: assigned >= durable >= committed).
* `committed` carries consecutive ids from `high_water_mark` + 1 on; anything else is a fault that ends the
  partition.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain

import structlog

from waltz_protocol.aio.turns import Turns
from waltz_protocol.frames.append import Append
from waltz_protocol.frames.append_batch import Repeated, Verdict
from waltz_protocol.frames.feed import client_of_frame, frames_of_entries
from waltz_protocol.frames.replies import (
    feed_suspended,
    flush_response,
    high_water_mark_response,
    mount_response,
)
from waltz_protocol.messages.client import MountState
from waltz_runtime.metrics import Meter, MetricsRegistry, Timer
from waltz_server.partition.append import AppendQueue
from waltz_server.partition.append_outcomes import AppendOutcomes, refuse
from waltz_server.partition.append_stages import AppendStages
from waltz_server.partition.block_feeds import BlockFeeds
from waltz_server.partition.client import Client
from waltz_server.partition.contention import Contention
from waltz_server.partition.deliveries import Deliveries
from waltz_server.partition.future_requests import FutureRequests
from waltz_server.partition.held_reads import HeldReads
from waltz_server.partition.mark_waiters import MarkWaiters
from waltz_server.partition.metrics import PartitionMetrics
from waltz_server.partition.mounts import MountRegistry, seq_num_of
from waltz_server.partition.pending_answers import Marker, MarkerKind, PendingAnswers
from waltz_server.partition.queue_room import AppendBounds, QueueRoom, WaitingBytes
from waltz_server.partition.repeats import RepeatSearch
from waltz_server.partition.settlement import Settlement
from waltz_server.partition.shared_caches import SharedCaches
from waltz_server.store.api import AppendEntry, PartitionStore, StoreListener
from waltz_server.store.callbacks import Callbacks
from waltz_server.store.committed_mark import CommittedMark

log = structlog.get_logger(__name__)

StoreFactory = Callable[[int, int, StoreListener], PartitionStore]
"""Makes the store of (partition id, generation, listener); it must not call the listener before `run`."""


class PartitionError(Exception):
    """The partition cannot continue with what its store reported; a new object starts over with a
    recovery."""

    retriable = True


@dataclass(frozen=True, slots=True)
class PartitionSettings:
    """Bounds and times of one partition."""

    lock_table_size: int = 30_000
    min_fetch_size: int = 100
    realtime_threshold: int = 1000
    append_bounds: AppendBounds = field(default_factory=AppendBounds)
    repeat_window: int = 10_000
    """Last transactions among which an append that is sent again is looked for."""
    max_markers: int = 10_000
    """Mounts and flushes that wait at the same time; and as many of generations that are still to come."""
    max_high_water_mark_waiters: int = 16
    """Of one connection, while the mark is not known; 0.13.2 has one request outstanding."""
    mount_wait_seconds: float = 5.0
    """A mount that could not be flushed and confirmed by then is answered NOT_READY; data requests wait as
    long for the end of the recovery."""


class Partition:
    """See the module. All methods but `run` are synchronous and called on the loop."""

    def __init__(
        self,
        partition_id: int,
        generation: int,
        *,
        make_store: StoreFactory,
        settings: PartitionSettings,
        caches: SharedCaches,
        metrics: MetricsRegistry,
        turns: Turns | None = None,
        stages: AppendStages | None = None,
        waiting: WaitingBytes | None = None,
    ) -> None:
        """`turns`, `stages`, `waiting`: the server's, which its partitions share."""
        loop = Callbacks(self._unforeseen)
        self.partition_id = partition_id
        self.fault: str | None = None
        self._mark = CommittedMark()
        self._loop = loop
        self._settings = settings
        self._metrics = PartitionMetrics(metrics, partition_id, stages)
        self._mounts = MountRegistry(partition_id)
        self._feed_cache = caches.feed.partition(partition_id)
        self._transactions = caches.transactions.partition()
        self._clients: set[Client] = set()
        """Those that have asked for anything that is remembered."""
        self._mark_waiters = MarkWaiters(settings.max_high_water_mark_waiters)
        self._closed = False
        self._leaving = False
        self.store = make_store(partition_id, generation, self)
        self._deliveries = reads = Deliveries(
            partition_id,
            self.store,
            self._mark,
            self._feed_cache,
            self._transactions,
            caches.blocks.partition(),
            self._metrics,
            settings.realtime_threshold,
            loop,
        )
        self._reader, self._data = reads.reader, reads.data
        self._feeds, self._block_feeds = reads.feeds, reads.block_feeds
        self._pending_answers = self._make_pending_answers()
        self._repeats = RepeatSearch(self.store, self._mark, self._feed_cache, settings.repeat_window)
        self._future = FutureRequests(settings.max_markers, self._give_up, loop)
        self.contention = Contention(self._author)
        self._appends = AppendQueue(
            store=self.store,
            mark=self._mark,
            generation=generation,
            lock_table_size=settings.lock_table_size,
            room=QueueRoom(settings.append_bounds, waiting or WaitingBytes()),
            metrics=self._metrics,
            markers=self._pending_answers,
            loop=loop,
            on_fault=self._fail,
            turns=turns or Turns(),
            contention=self.contention,
            outcomes=AppendOutcomes(self._author),
            repeats=self._repeats,
        )
        self._held_reads = HeldReads(settings.mount_wait_seconds, loop)
        self.settlement = Settlement(self._appends, self.store)
        self._publish_gauges()

    def _make_pending_answers(self) -> PendingAnswers:
        return PendingAnswers(
            store=self.store,
            max_outstanding=self._settings.max_markers,
            resolved_prefix=lambda: self._appends.resolved_prefix,
            answer=self._answer,
            give_up=self._give_up,
            loop=self._loop,
        )

    def _publish_gauges(self) -> None:
        gauge = self._metrics.gauge
        gauge("pending-append", lambda: self._appends.handed - self._appends.resolved_prefix)
        gauge("append-queue-size", lambda: self._appends.room.count)
        gauge("is-closed", lambda: self._closed)
        gauge("generation", lambda: self.generation)
        gauge("high-water-mark", lambda: self._mark.txid)
        gauge("healthy", lambda: self.healthy)
        gauge("session-id", lambda: self.store.session_id)
        gauge("replicas-not-voting", lambda: sum(not one.counts for one in self.store.replicas))
        gauge("feeds", lambda: len(self._feeds) + len(self._block_feeds))
        gauge("waiting-mounts-and-flushes", lambda: len(self._pending_answers) + len(self._future))

    # -- state ---------------------------------------------------------------------------------------------

    @property
    def generation(self) -> int:
        """The generation appends must carry."""
        return self._appends.generation

    @property
    def high_water_mark(self) -> int | None:
        """The committed mark; None before the first recovery, then it only rises."""
        return self._mark.value

    @property
    def closed(self) -> bool:
        return self._closed

    @property
    def healthy(self) -> bool:
        """True only while the store has a session with a quorum that votes and answers."""
        return not self._closed and not self.reason

    @property
    def reason(self) -> str:
        """Why the partition is not healthy, one line; empty when it is."""
        if self.fault is not None:
            return f"fault: {self.fault}"
        return self.store.problem

    @property
    def undecided(self) -> int:
        """Appends queued or in flight."""
        return self._appends.room.count + self._appends.handed - self._appends.resolved_prefix

    @property
    def response_latency(self) -> Timer:
        """From the arrival of an append to its commit."""
        return self._metrics.response_latency

    @property
    def causes(self) -> tuple[Meter, Meter, Meter]:
        """See `PartitionMetrics.causes`."""
        return self._metrics.causes

    def followers(self) -> Iterator[tuple[Client, int, bool]]:
        """See `Feeds.followers`; not to be held over a turn of the loop."""
        return chain(self._feeds.followers(), self._block_feeds.followers())

    def _author(self, transaction_id: int) -> int | None:
        """Whose a recent transaction is; None when it is not known at once."""
        frame = self._feed_cache.slice(transaction_id, 1)
        return None if frame is None else client_of_frame(frame)

    def set_generation(self, generation: int) -> None:
        """The assignment gives the partition to this server again, under a higher generation."""
        if generation > self._appends.generation:
            self._appends.generation = generation
            self.store.set_generation(generation)
            for marker in self._future.due(generation):
                self._accept(marker)

    # -- life ----------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Serve until `close` or cancellation. Raises when the store ends or fails on its own."""
        try:
            async with asyncio.TaskGroup() as tasks:
                helpers = [
                    tasks.create_task(self._pending_answers.run()),
                    tasks.create_task(self._reader.run()),
                    tasks.create_task(self._repeats.run()),
                ]
                await self.store.run()
                for helper in helpers:
                    helper.cancel()
            if not self._closed or self.fault is not None:
                raise PartitionError(self.fault or f"the store ended: {self.store.state_reason}")
        finally:
            self.close()

    def close(self) -> None:
        """Stop serving: mounts get NOT_READY, data requests fail, the rest ends in silence. Idempotent.

        Entries in flight stay undecided; the recovery of the next owner decides them.
        """
        if self._closed:
            return
        self._closed = True
        self.store.close()
        self.settlement.close()
        self._appends.close()
        self._pending_answers.close()
        self._future.close()
        self._deliveries.close()
        self._held_reads.close()
        self._mounts.clear()
        self._mark_waiters.clear()

    def leave_on_session_loss(self) -> None:
        """The server is leaving: when the next owner takes the session, close instead of fighting for it."""
        self._leaving = True

    def remove_metrics(self) -> None:
        """Forget this partition's figures (it has left the server for good)."""
        self._metrics.remove()

    def _fail(self, reason: str, error: Exception | None = None) -> None:
        """End it in this moment: what is in doubt gets no answer from here."""
        if self.fault is None:
            log.critical("partition fault", partition=self.partition_id, reason=reason, exc_info=error)
            self.fault = reason
            self.close()

    def _unforeseen(self, error: Exception) -> None:
        """A callback of one of the parts has failed half way."""
        self._fail(f"internal error: {error!r}", error)

    # -- requests of clients -------------------------------------------------------------------------------

    def mount(
        self, client: Client, req_id: bytes, generation: int, client_high_water_mark: int, epoch: int = 0
    ) -> None:
        """MOUNT_REQUEST: take the place of older connections of the client, then flush, confirm, catch up,
        READY. `epoch`: of a named producer's instance, which also takes the place of all older ones."""
        marker = Marker(MarkerKind.MOUNT, client, req_id, generation, client_high_water_mark, epoch=epoch)
        marker.deadline = self._loop.time() + self._settings.mount_wait_seconds
        self._accept(marker)

    def _accept(self, marker: Marker) -> None:
        """Into the queue, behind everything that has arrived so far; or, for a generation that we have not
        reached, aside."""
        self._clients.add(marker.client)
        if marker.generation > self.generation and not self._closed:
            self._future.add(marker)
            return
        if marker.kind is MarkerKind.MOUNT and not self._take_place(marker):
            self._give_up(marker)
        elif self._pending_answers.accept(marker):
            self._appends.add_marker(marker)
        else:
            self._give_up(marker)

    def _take_place(self, marker: Marker) -> bool:
        if self._closed:
            return False
        seq_num, now = seq_num_of(marker.req_id), self._loop.time()
        marker.mount = self._mounts.offer(marker.client, marker.generation, seq_num, now, marker.epoch)
        return marker.mount is not None

    def append(self, client: Client, append: Append, repeated: Repeated | None = None) -> None:
        """APPEND_REQUEST: queued if this connection holds the mount, else dropped."""
        mount = self._mounts.valid(client)
        if mount is None or self._closed:
            self._metrics.dropped_not_mounted.inc()
            refuse(client, append.req_id, Verdict.NOT_SERVED if self._closed else Verdict.NOT_MOUNTED)
            return
        if mount.elders and not mount.may_use(append.req_id):
            self._metrics.append_dropped_foreign.inc()
            client.misbehaved(
                f"dropped an append to partition {self.partition_id}: its request id is in use by another client of this id"
            )
            refuse(client, append.req_id, Verdict.REQUEST_ID_IN_USE)
            return
        self._appends.add(mount, append, repeated)

    def flush(self, client: Client, req_id: bytes, generation: int) -> None:
        """FLUSH_REQUEST: answered when everything queued before it is resolved and our session confirmed."""
        self._accept(Marker(MarkerKind.FLUSH, client, req_id, generation))

    def feed(self, client: Client, req_id: bytes, generation: int, client_high_water_mark: int) -> None:
        """FEED_REQUEST: at least `min_fetch_size` transactions from `client_high_water_mark` + 1 on."""
        mark = self.high_water_mark
        if mark is None or self._closed or self._mounts.valid(client) is None:
            self._metrics.dropped_not_mounted.inc()
            return
        if client_high_water_mark > mark:
            self._accept(Marker(MarkerKind.FEED_AHEAD, client, req_id, generation, client_high_water_mark))
            return
        self._open_feed(client, req_id, client_high_water_mark, mark)

    def block_feeds_of(self, client: Client) -> BlockFeeds:
        """For BLOCK_FEED_REQUEST and what follows it; what is opened there ends with the connection."""
        self._clients.add(client)
        return self._block_feeds

    def transaction_data(self, client: Client, req_id: bytes, transaction_id: int) -> None:
        """TRANSACTION_DATA_REQUEST: data or a failure text, always, once the recovery is over."""
        self._clients.add(client)
        if self.high_water_mark is None and not self._closed:
            self._held_reads.hold(client, self.partition_id, req_id, transaction_id)
        else:
            self._data.handle(client, req_id, transaction_id)

    def high_water_mark_request(self, client: Client, req_id: bytes) -> None:
        """HIGH_WATER_MARK_REQUEST: answered once the mark is known (weakness 13.17)."""
        mark = self.high_water_mark
        if mark is not None:
            client.send(high_water_mark_response(client.version, req_id, mark))
        else:
            self._clients.add(client)
            self._mark_waiters.add(client, req_id)

    def unmount(self, client: Client) -> None:
        """UNMOUNT_REQUEST: no mount, feed or flush of this connection is left. What it has appended stays."""
        self._mounts.remove(client)
        self._appends.forget(client)
        self._pending_answers.forget(client)
        self._future.forget(client)
        self._feeds.forget(client)

    def client_closed(self, client: Client) -> None:
        """The connection has gone. Its queued appends are still processed, as in the reference."""
        if client in self._clients:
            self._clients.discard(client)
            self._loop.run(self._forget, client)

    def _forget(self, client: Client) -> None:
        self.unmount(client)
        self._block_feeds.forget(client)
        self._data.forget(client)
        self._reader.forget(client)
        self._held_reads.forget(client)
        self._mark_waiters.forget(client)

    # -- answers -------------------------------------------------------------------------------------------

    def _answer(self, marker: Marker) -> None:
        client, mark = marker.client, self.high_water_mark
        if client.answers is not None:
            client.answers.send_now()
        if mark is None:  # cannot be: a confirmed session has a mark
            self._give_up(marker)
        elif marker.kind is MarkerKind.FLUSH:
            client.send(flush_response(client.version, marker.req_id, mark))
        elif marker.client_high_water_mark > mark:
            client.send(mount_response(client.version, marker.req_id, MountState.CLIENT_AHEAD))
        elif marker.kind is MarkerKind.FEED_AHEAD:
            self._open_feed(client, marker.req_id, marker.client_high_water_mark, mark)
        elif self._mounts.valid(client) is not marker.mount:
            self._give_up(marker)
        elif marker.client_high_water_mark == mark:
            self._mounted(client, marker.req_id)
        else:
            gap = mark - marker.client_high_water_mark
            self._feeds.open(client, marker.req_id, marker.client_high_water_mark, gap, self._mounted)

    def _give_up(self, marker: Marker) -> None:
        if marker.kind is MarkerKind.MOUNT:
            client = marker.client
            fenced = self._mounts.is_fenced(client, marker.epoch)
            state = MountState.FENCED if fenced else MountState.NOT_READY
            client.send(mount_response(client.version, marker.req_id, state))

    def _mounted(self, client: Client, req_id: bytes) -> None:
        state = MountState.READY if self._mounts.valid(client) else MountState.NOT_READY
        client.send(mount_response(client.version, req_id, state))
        if state is MountState.READY:  # nobody took its place during the catch-up
            client.note_mount(self.partition_id, self, req_id)

    def _open_feed(self, client: Client, req_id: bytes, position: int, mark: int) -> None:
        credit = max(mark - position, self._settings.min_fetch_size)
        self._feeds.open(client, req_id, position, credit, _suspended, movable=True)

    # -- the store (StoreListener) -------------------------------------------------------------------------

    def session_opened(self, high_water_mark: int) -> None:
        """Recovery complete, leftovers settled; see `AppendQueue.session_opened` for the lock table."""
        self._appends.session_opened(high_water_mark)
        if self.fault is not None:
            return
        log.info(
            "partition open",
            partition=self.partition_id,
            session=self.store.session_id,
            high_water_mark=high_water_mark,
        )
        self._mark.rise_to(high_water_mark)
        self._feeds.advanced()
        self._block_feeds.advanced()
        for client, req_id in self._mark_waiters.take():
            self.high_water_mark_request(client, req_id)
        self._held_reads.release(
            lambda read: self._data.handle(read.client, read.req_id, read.transaction_id)
        )

    def session_lost(self, reason: str) -> None:
        if not self._closed:
            session = self.store.session_id
            log.warning("store session lost", partition=self.partition_id, session=session, reason=reason)
        self._loop.run(self._appends.session_lost)
        if self._leaving:
            self._loop.call_soon(self.close)

    def committed(self, entries: Sequence[AppendEntry]) -> None:
        """Durable on a quorum: locks, caches, mark, feeds, in this order, encoded once for all."""
        if entries and not self._closed:
            self._loop.run(self._committed, entries)

    def _committed(self, entries: Sequence[AppendEntry]) -> None:
        began, first, mark = self._loop.time(), entries[0].transaction_id, self._mark
        if mark.known and first != mark.txid + 1:
            self._fail(f"transaction {first} was committed after {mark.txid}")
            return
        self._appends.committed(entries, began)
        self._transactions.put_committed(entries)
        mark.rise_to(entries[-1].transaction_id)
        risen, count = self._loop.time(), len(entries)
        fed = self._feeds.publish(first, count, frames_of_entries(entries))
        fed |= self._block_feeds.publish(first, entries)
        self._metrics.stages.committed(began, risen, count, fed=fed)

    def failed(self, entries: Sequence[AppendEntry]) -> None:
        if not self._closed:
            self._appends.failed(entries)

    def store_writable(self) -> None:
        self._appends.schedule()


def _suspended(client: Client, req_id: bytes) -> None:
    client.send(feed_suspended(client.version, req_id))
