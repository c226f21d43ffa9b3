"""The way of an append through a partition: queue, locks, generation, hand-over to the store, outcome.

Client-server protocol, server behaviour, append. Owner: the partition, on the event loop; no task, no future.

Model. One FIFO per partition holds appends and *markers* (mounts and flushes). Whatever arrives during a loop
turn is enqueued at once; one `call_soon` per turn then works the queue off and hands everything admitted to
the store in one call. The head of the queue waits, and with it all behind it, while

* the store has no open session, or has too many bytes or transactions in flight,
* it has many locks, and one of them is marked by an append in flight, or they have not all been looked up, or
  too many are in flight, or anybody waits in a line.

An append with few locks of which one is marked, or that somebody waits for, holds up nobody but its own
client: it leaves the queue for the lines of its locks (`lock_lines`), as does whatever its client sends
behind it. Those in lines come before the queue when their time has come; one that is refused then keeps its
turn for what its client sends next (`lock_turns`). A marker is passed on, with the number of appends handed
over before it, when nothing of its client is before it: mounts and flushes wait for *earlier* appends only
(safety D5).

What one turn of the loop does is bounded (`aio.turns`). The locks of an append that has many are looked up
while it is at the head, slice by slice. Nothing is admitted meanwhile, and it begins when none of its locks
is marked, so what the first slice found still holds when the last one is done.

Rules kept here
* Check and enqueue are one step on the loop, and the mount under which an append was validated is looked at
  again when it is processed: an append of an old connection never lands behind the flush of a newer mount
  (13.9).
* The queue is bounded by count and bytes; an append that does not fit is dropped and counted (safety D7: it
  must not stop the connection, which carries other partitions). Later ones of it may be accepted, in order.
* Lock marks are set when an append is admitted and cleared only by its outcome. A lost session has no
  outcome: marks stay until the next session settles the entries (safety D5).
* Read locks wait for marks but set none (safety D6).
* An append that has locks to check against a view beyond the log's end is refused: nothing could conflict.
* Marks are lock hashes, not slots of the lock table, a tenth of which would be marked with a thousand appends
  in flight. A hash is marked by one append at a time, because the next one waits.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence

from waltz_protocol.aio.turns import QUEUED, Turns
from waltz_protocol.frames.append import Append
from waltz_protocol.frames.append_batch import Repeated, Verdict
from waltz_protocol.locks import LockTable
from waltz_server.partition.append_outcomes import (
    OVERLOADED_WAIT_MS,
    AppendOutcomes,
    begin_search,
    refuse,
)
from waltz_server.partition.append_waits import AppendWaits
from waltz_server.partition.contention import Contention
from waltz_server.partition.hand_over import LockHandOver, first_table
from waltz_server.partition.lock_lines import LockLines, Waiter
from waltz_server.partition.lock_turns import LockTurns
from waltz_server.partition.metrics import PartitionMetrics
from waltz_server.partition.mounts import Mount
from waltz_server.partition.pending_answers import Marker, MarkerSink
from waltz_server.partition.queue_room import QueueRoom
from waltz_server.partition.queued_append import (
    Again,
    QueuedAppend,
    back_in_the_queue,
    item_of,
    lock_count,
    look_up,
    size_of,
)
from waltz_server.partition.repeats import RepeatSearch
from waltz_server.store.api import AppendEntry, PartitionStore, StoreNotOpenError, StoreState
from waltz_server.store.callbacks import Callbacks
from waltz_server.store.committed_mark import ReadableMark

APPEND_UNITS = 20
LOCK_UNITS = 3
"""Of work, see `aio.turns`."""
_HAND_OVER_BYTES = 1024 * 1024
_STORE_OPEN = StoreState.OPEN  # a look-up by name takes as long as a call


class AppendQueue:
    """Queue and lock table of one partition.

    `room`: counts the appends in the queue and in lines; `handed`: to the store so far; `resolved_prefix`:
    of these, all up to the first whose outcome is not known.
    """

    def __init__(
        self,
        *,
        store: PartitionStore,
        mark: ReadableMark,
        generation: int,
        lock_table_size: int,
        room: QueueRoom,
        metrics: PartitionMetrics,
        markers: MarkerSink,
        loop: Callbacks,
        on_fault: Callable[[str], None],
        turns: Turns,
        contention: Contention,
        outcomes: AppendOutcomes,
        repeats: RepeatSearch,
    ) -> None:
        self.generation = generation
        self.resolved_prefix = self.handed = 0
        self._store = store
        self._mark = mark
        self._lock_table_size = lock_table_size
        self.locks: LockTable | None = None
        self.handed_over: LockHandOver | None = None
        self._sealed: bool = False
        self._settled: Callable[[], None] | None = None
        self._marked: set[int] = set()
        self._lines: LockLines[QueuedAppend | Marker] = LockLines(self._marked)
        self._lock_turns = LockTurns(self._lines, loop, self.schedule)
        self.forget = self._lock_turns.forget  # a connection that has gone
        self._arrivals = 0
        self.room = room
        self._metrics = metrics
        self._markers = markers
        self._loop = loop
        self._on_fault = on_fault
        self._turns = turns
        self._contention = contention
        self._outcomes = outcomes
        self._repeats = repeats
        self._in_line = False
        self._many_locks_in_flight = 0
        self._queue: deque[QueuedAppend | Marker] = deque()
        self._waits = AppendWaits(self._queue, store, outcomes, loop, self._take_off)
        self._in_flight: deque[QueuedAppend] = deque()
        contention.follow(self._lines, self._in_flight)
        outcomes.follow(lambda: (*self._queue, *self._lines.everybody(), *self._in_flight))
        self._open = self._closed = self._scheduled = False
        self._turn_time = 0.0

    # -- input ---------------------------------------------------------------------------------------------

    def add(self, mount: Mount, append: Append, repeated: Repeated | None = None) -> None:
        """Enqueue an append that is valid now, unless the queue is full."""
        size = size_of(append)
        if repeated is not None and self._outcomes.joins(mount.client, append):
            return
        if not self.room.take(size):
            self._metrics.append_dropped_full.inc()
            refuse(mount.client, append.req_id, Verdict.OVERLOADED, OVERLOADED_WAIT_MS)
            return
        self.schedule()
        self._arrivals += 1
        again = repeated and Again(repeated)
        item = QueuedAppend(mount, append, self._turn_time, self._arrivals, size, again)
        self._queue.append(item)
        if not self._open:
            self._waits.begin()
        if self._outcomes.index is not None:
            self._outcomes.begins(item)
        self._metrics.arrived(size)

    def add_marker(self, marker: Marker) -> None:
        """Enqueue a mount or flush behind everything that has arrived so far."""
        self._arrivals += 1
        marker.number = self._arrivals
        self._queue.append(marker)
        self.schedule()

    def schedule(self) -> None:
        """Work the queue off later in this loop turn."""
        if not self._scheduled and not self._closed:
            self._scheduled = True
            self._turn_time = self._loop.time()
            self._loop.call_soon(self._run_now)

    # -- processing ----------------------------------------------------------------------------------------

    def _run_now(self) -> None:
        """As much as this turn has room for."""
        self._scheduled = False
        turns = self._turns
        if self._in_line:
            return
        if turns.free_for_queued:
            turns.spend(self._run(turns.left // APPEND_UNITS + 1) * APPEND_UNITS)
        elif self._queue or self._lines.ready:
            self._get_in_line()

    def _get_in_line(self) -> None:
        self._in_line = True
        self._turns.join(self, QUEUED)

    def work(self, units: int) -> int:
        """Called by `turns`: look up more locks of the head, or work off more appends."""
        return self._loop.run(self._work, units) or 0

    def _work(self, units: int) -> int:
        self._in_line, spent = False, 0
        head = self._queue[0] if self._queue else None
        check = head.check if isinstance(head, QueuedAppend) else None
        if check is not None and not check.done:
            spent = check.advance(units // LOCK_UNITS + 1) * LOCK_UNITS
            if not check.done:
                self._get_in_line()
                return spent
        return spent + self._run((units - spent) // APPEND_UNITS + 1) * APPEND_UNITS

    def _run(self, limit: int) -> int:
        """Work off those who are ready, and the head of the queue, at most about `limit` appends, with one
        hand-over per stretch between markers. Returns how many it were."""
        if self._closed:
            return 0
        queue, marked, lines, ready = self._queue, self._marked, self._lines, self._lines.ready
        done = batch_bytes = 0
        batch: list[AppendEntry] = []
        passed_marker = more = False
        while done < limit:
            waiter = None
            if ready:
                waiter = ready[0]
                head = waiter.item
            elif queue:
                head = queue[0]
            else:
                break
            if batch and (batch_bytes >= _HAND_OVER_BYTES or isinstance(head, Marker)):
                if not self._hand_over(batch):
                    batch = []
                    break
                batch, batch_bytes = [], 0
            if isinstance(head, Marker):
                done += 1
                if self._comes_up(head, waiter):
                    self._markers.passed(head, self.handed)
                    passed_marker = True
                continue
            if not batch and not self._can_append():
                break
            if waiter is None and (marked or lines.waiting or head.again) and self._lines_up(head):
                queue.popleft()
                done += 1
                continue
            if not self._admit(head, batch):
                break
            done += 1
            if waiter is None:
                queue.popleft()
            else:
                ready.popleft()
                if not head.lost or self._many_locks_next() or not self._lock_turns.keep(waiter, head.mount):
                    lines.leave(waiter)
            self._take_off(head)
            batch_bytes += head.size_bytes
        else:
            more = bool(queue or ready)
        if batch:
            self._hand_over(batch)
        if passed_marker:
            self._markers.advanced()
        if more and not self._in_line:
            self._get_in_line()
        return done

    def _take_off(self, item: QueuedAppend) -> None:
        self.room.take_off(item.size_bytes)

    def _comes_up(self, marker: Marker, waiter: Waiter[QueuedAppend | Marker] | None) -> bool:
        """Whether nothing of the marker's client is before it; else it joins the line."""
        lines, client_id = self._lines, marker.client.client_id
        if waiter is not None:
            lines.ready.popleft()
            lines.leave(waiter)
            return True
        self._queue.popleft()
        if not lines.waiting or not lines.concern(client_id):
            return True
        lines.join(marker, client_id)
        return False

    def _lines_up(self, item: QueuedAppend) -> bool:
        """Whether the head of the queue has to wait in lines, which it joins."""
        append, lines = item.append, self._lines
        _, _, _, write, read, extra, _ = append
        held = item.searched_for
        if held:
            begin_search(item, self._repeats, self._lines, self.schedule)
        if append.__class__ is not Append:
            return False
        client_id = item.mount.client.client_id
        locks = write + read + extra
        if lines.turns and lines.come_back(item, client_id, () if held else locks):
            return True
        waited_for = lines.waiting and lines.concern(client_id, write, read, extra)
        if not held and not waited_for and not self._is_marked(append):
            return False
        if locks:
            self._lock_turns.came(item.mount)
            self._contention.lines_up(locks, self._marked)
        waiter = lines.join(item, client_id, locks, held=held)
        if held and item.again is not None:
            item.again.waiter = waiter
        return True

    def _many_locks_next(self) -> bool:
        head = self._queue[0] if self._queue else None
        return isinstance(head, QueuedAppend) and head.append.__class__ is not Append

    def _can_append(self) -> bool:
        store = self._store
        return self._open and not self._sealed and store.state is _STORE_OPEN and store.writable

    def _is_marked(self, append: Append) -> bool:
        """Whether an append in flight writes or appends one of these locks."""
        return not all(map(self._marked.isdisjoint, append[3:6]))

    def _admit(self, item: QueuedAppend, batch: list[AppendEntry]) -> bool:
        """Check one append, none of whose few locks is marked; False = it has to wait."""
        append = item.append
        req_id, generation, view, write, read, extra, tail = append
        locks = self.locks
        if locks is None:
            return False
        if item.mount.fenced:
            self._metrics.append_dropped_fenced.inc()
            self._outcomes.refused(item, Verdict.NOT_MOUNTED)
            return True
        again = item.again
        if again is not None and again.repeated is not None:
            if again.found is None:
                return False
            if self._outcomes.known(item, again.found):
                return True
            generation = again.repeated.generation
        if write or read or extra:
            if append.__class__ is Append:
                conflict = locks.estimate(write, read)
            else:
                self._lock_turns.end_all()  # who comes back for one is behind this append
                if self._lines.waiting or self._is_marked(append):
                    return False
                check = look_up(item, locks, self._many_locks_in_flight)
                if check is None or not check.done:
                    if check is not None and not self._in_line:
                        self._get_in_line()
                    return False
                conflict = check.conflict
            if conflict > view:
                self._outcomes.conflict(item, conflict, locks)
                self._contention.refused(item, locks, conflict)
                self._metrics.rejected.mark()
                return True
        if generation != self.generation:
            self._metrics.append_dropped_generation.inc()
            self._outcomes.refused(item, Verdict.STALE_GENERATION, self.generation)
            return True
        if view > self._mark.txid and (write or read):
            self._metrics.append_refused_view.inc()
            self._outcomes.view_ahead(item, self._mark.txid)
            return True
        if write or extra:
            item.marked = write + extra
            self._marked.update(item.marked)
            if item.check is not None:
                self._many_locks_in_flight += lock_count(append)
        batch.append(AppendEntry(req_id, generation, tail, context=item))
        return True

    def _hand_over(self, batch: list[AppendEntry]) -> bool:
        now = self._loop.time()
        try:
            self._store.append(batch)
        except StoreNotOpenError:  # since the check: everything goes back in order
            self._queue_again(map(self._put_back, map(item_of, batch)))
            return False
        except Exception:
            self._in_flight += map(item_of, batch)  # some may be on their way: a recovery decides
            raise
        self._in_flight += self._metrics.stages.handed_over(batch, now)
        self.handed += len(batch)
        return True

    def _queue_again(self, others: Iterable[QueuedAppend] = ()) -> None:
        """Those in lines and these others, each at its place in the order of arrival."""
        head = self._queue[0] if self._queue else None
        if isinstance(head, QueuedAppend):
            head.check = None  # others are before it now
        back_in_the_queue(self._queue, [*self._lines.dissolve(), *others])

    def _put_back(self, item: QueuedAppend) -> QueuedAppend:
        self._unmark(item)
        item.check = None
        self.room.add(item.size_bytes)
        return item

    def _unmark(self, item: QueuedAppend) -> None:
        if item.marked:
            self._marked.difference_update(item.marked)
            if self._lines.waiting:
                self._lines.unmarked(dict.fromkeys(item.marked))
            item.marked = ()
            if item.check is not None:
                self._many_locks_in_flight -= lock_count(item.append)

    # -- outcomes ------------------------------------------------------------------------------------------

    def session_opened(self, high_water_mark: int) -> None:
        """Appends flow again; the partition raises its mark to `high_water_mark` right after this call.

        On the first session, and if the log has grown by transactions this server did not number (another
        owner in between), nobody here knows their locks: see `first_table`.
        """
        if high_water_mark < self._mark.txid:
            self._on_fault(f"high-water mark went back from {self._mark.txid} to {high_water_mark}")
            return
        if self._in_flight:
            self._on_fault(f"{len(self._in_flight)} appends were left unsettled by recovery")
            return
        if self.locks is None or high_water_mark != self._mark.txid:
            given, self.handed_over = self.handed_over, None
            store, size = self._store, self._lock_table_size
            self.locks = first_table(given, store.partition_id, store.session_id, high_water_mark, size)
        self._open = True
        self.schedule()
        self._markers.advanced()

    def session_lost(self) -> None:
        """Nothing is handed over until the next session; marks stay, and all wait in the queue."""
        self._open = False
        self._queue_again()
        self._waits.session_lost()

    def committed(self, entries: Sequence[AppendEntry], now: float) -> None:
        """Slots of write and append locks rise to the id, marks go. `now`: when the majority was known."""
        locks, items = self.locks, list(map(item_of, entries))
        arrived_at, handed_at, same = items[0].arrived_at, items[0].handed_at, 0
        for item, entry in zip(items, entries, strict=True):
            item.resolved = True
            if item.marked and locks is not None:
                slots: Iterable[int]
                if item.check is None:
                    slots = locks.slots_to_raise(item.append.write_locks, item.append.append_locks)
                else:
                    slots = item.check.slots
                    self._many_locks_in_flight -= lock_count(item.append)
                locks.commit(slots, entry.transaction_id)
                self._marked.difference_update(item.marked)
                if self._lines.waiting:
                    self._lines.unmarked(dict.fromkeys(item.marked))
            if item.arrived_at != arrived_at or item.handed_at != handed_at:
                self._metrics.stored(now, arrived_at, handed_at, same)
                arrived_at, handed_at, same = item.arrived_at, item.handed_at, 0
            same += 1
        self._metrics.stored(now, arrived_at, handed_at, same)
        self._outcomes.committed(entries, items, now)
        self._settle()

    def failed(self, entries: Sequence[AppendEntry]) -> None:
        """Not committed as handed over, perhaps by an owner since: marks go; before version 5 no answer."""
        for entry in entries:
            item = item_of(entry)
            item.resolved = True
            self._unmark(item)
            alone = entry.generation == self.generation
            self._outcomes.refused(item, Verdict.DROPPED if alone else Verdict.UNDECIDED)
        self._settle()

    def _settle(self) -> None:
        in_flight = self._in_flight
        while in_flight and in_flight[0].resolved:
            in_flight.popleft()
            self.resolved_prefix += 1
        if self._queue or self._lines.ready:
            self.schedule()
        self._markers.advanced()
        settled = self._settled
        if settled is not None and not in_flight:
            self._settled = None
            settled()

    def seal(self, settled: Callable[[], None]) -> None:
        """Admit nothing from now on, and call `settled` once nothing is undecided."""
        self._sealed, self._settled = True, settled
        self._settle()

    def close(self) -> None:
        """Drop everything queued; the next owner decides what is in flight."""
        self._closed, self._open = True, False
        self._lock_turns.close()
        self._waits.close()
        self._outcomes.closed((*self._queue, *self._lines.dissolve()), self._in_flight)
        self._queue.clear()
        self.room.close()
