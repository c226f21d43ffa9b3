"""One partition of an in-process log: what a server does with it, and what a test may do to it.

Appends are decided strictly one after another, in the order of their arrival, by the rules of the server: who
may append (the newest mount of a client), locks against the client's view, generation, commit. Mounts and
flushes wait in the same queue, so they are answered when everything before them is decided.
"""

from __future__ import annotations

import asyncio
import enum
import logging
from collections import deque
from collections.abc import Callable, Iterable
from random import Random
from typing import NamedTuple

from waltz_client.errors import UsageError
from waltz_client.testing.answers import answer
from waltz_client.testing.block_feeds import BlockFeeds
from waltz_client.testing.feeds import MIN_CREDIT, Feeds
from waltz_client.testing.home import Home, on_the_loop
from waltz_client.testing.locks import make_locks
from waltz_client.testing.values import ClientConnection, LoggedTransaction
from waltz_protocol.frames.append import Append
from waltz_protocol.frames.append_batch import Repeated, Verdict
from waltz_protocol.locks import LockId
from waltz_protocol.messages import client as m
from waltz_protocol.messages.producers import ProducerMountRequest
from waltz_protocol.types import ReqId

log = logging.getLogger(__name__)

SOMEBODY_ELSE = -1
"""Client id of transactions committed by `LogPartition.commit`."""


class _Fate(enum.Enum):
    FAIL = "fail"
    CONFLICT = "conflict"


class _Waiting(NamedTuple):
    connection: ClientConnection
    append: Append
    due: float
    repeated: Repeated | None
    dropped: bool = False


class LogPartition:
    """See the module. Get it with `log.partition(number)`. What a test uses may be called from any thread.

    Invariants: ids are dense from `first_transaction_id` on, Python integers of any size up to 63 bits; a
    transaction, once committed, never changes.
    """

    def __init__(
        self,
        partition_id: int,
        lock_table_size: int | None,
        first_transaction_id: int,
        random: Random,
        on_change: Callable[[], None],
        home: Home,
    ) -> None:
        self.partition_id = partition_id
        self.home = home
        self.generation = 0
        self.served = True
        self._first_id = first_transaction_id
        self._log: list[LoggedTransaction] = []
        self._lock_table_size = lock_table_size
        self._locks = make_locks(lock_table_size, self.high_water_mark)
        self._feeds = Feeds()
        self._block_feeds = BlockFeeds(self._read_fails)
        self._mounts: dict[int, tuple[int, int, ClientConnection]] = {}
        self._epochs: dict[int, int] = {}  # of named producers
        self._queue: deque[_Waiting | Callable[[], None]] = deque()
        self._timer: asyncio.TimerHandle | None = None
        self._held = False
        self._delay_seconds = 0.0
        self._fates: deque[_Fate] = deque()
        self._failing_rate = 0.0
        self._failing_reads = 0
        self._unsaid: list[tuple[ClientConnection, bytes, int]] = []
        self._random = random
        self._on_change = on_change

    # -- what is in the log ----------------------------------------------------------------------------------

    @property
    def high_water_mark(self) -> int:
        """Id of the last committed transaction, -1 for an empty log."""
        return self._first_id + len(self._log) - 1

    @property
    def transactions(self) -> list[LoggedTransaction]:
        """Everything committed, in order."""
        return list(self._log)

    @property
    @on_the_loop
    def waiting(self) -> int:
        """Appends that have arrived and are not decided."""
        return sum(isinstance(one, _Waiting) for one in self._queue)

    @on_the_loop
    def commit(
        self,
        data: bytes,
        *,
        header: int = 0,
        write_locks: Iterable[LockId] = (),
        append_locks: Iterable[LockId] = (),
    ) -> int:
        """Commit a transaction of somebody else, now; its id."""
        req_id = ReqId(SOMEBODY_ELSE, self.generation, self.partition_id, len(self._log) & 0x7FFFFFFF)
        hashes = tuple(lock.hash for lock in (*write_locks, *append_locks))
        return self._commit(req_id, header, data, hashes, ())

    # -- failures on demand ----------------------------------------------------------------------------------

    def fail_next(self, count: int = 1) -> None:
        """The next appends fail for certain, as if their server had dropped them: AppendFailedError, or
        another attempt."""
        self._fates.extend([_Fate.FAIL] * count)

    def conflict_next(self, count: int = 1) -> None:
        """The next appends fail by a lock, whatever their locks: LockConflictError at the present high-water
        mark."""
        self._fates.extend([_Fate.CONFLICT] * count)

    def fail_at_random(self, rate: float) -> None:
        """Of the appends from now on this part (0 to 1) fails as with `fail_next`; the same ones in
        every run."""
        if not 0 <= rate <= 1:
            raise UsageError("a rate is between 0 and 1")
        self._failing_rate = rate

    def hold(self) -> None:
        """Decide nothing: appends wait until `release` or `drop`. Their deadline makes them
        OutcomeUnknownError."""
        self._held = True

    @on_the_loop
    def release(self) -> None:
        """Decide what was held back, as usual, and hold no more."""
        self._held = False
        self._work()

    @on_the_loop
    def drop(self) -> None:
        """Everything held back fails, and nothing is held any longer. A repetition of what is in the log is
        answered with its id."""
        self._held = False
        self._queue = deque(
            one._replace(dropped=True) if isinstance(one, _Waiting) else one for one in self._queue
        )
        self._work()

    def delay(self, seconds: float) -> None:
        """Decide each append so long after it has arrived; 0 = at once."""
        self._delay_seconds = seconds

    def pause_feed(self) -> None:
        """Clients hear of no more commits, their own included."""
        self._feeds.paused = self._block_feeds.paused = True

    @on_the_loop
    def resume_feed(self) -> None:
        """Undo `pause_feed`."""
        self._feeds.paused = self._block_feeds.paused = False
        self._pump()
        unsaid, self._unsaid = self._unsaid, []
        for connection, req_id, transaction_id in unsaid:
            answer(connection, req_id, Verdict.COMMITTED, transaction_id)

    def fail_next_reads(self, count: int) -> None:
        """The next requests for payload fail (the client asks again)."""
        self._failing_reads = count

    @on_the_loop
    def remount(self) -> None:
        """As if the partition moved to another server: a new generation, clients mount again and send what is
        undecided again, and the lock table starts anew at the high-water mark (older views conflict)."""
        self._reset()
        self.served = True
        self.generation += 1
        self._on_change()

    @on_the_loop
    def withdraw(self) -> None:
        """No server serves the partition, until `remount`."""
        self._reset()
        self.served = False
        self._on_change()

    def _reset(self) -> None:
        self._mounts.clear()
        self._feeds.clear()
        self._block_feeds.clear()
        self._queue.clear()
        self._locks = make_locks(self._lock_table_size, self.high_water_mark)

    # -- requests --------------------------------------------------------------------------------------------

    def mount_received(
        self, connection: ClientConnection, request: m.MountRequest | ProducerMountRequest
    ) -> None:
        """The newest connection of a client, or of the newest instance of a named producer, may append;
        answered when everything before it is decided."""
        req_id = request.req_id
        offer = (req_id.generation, connection.seq_num or 0, connection)
        if isinstance(request, ProducerMountRequest):
            newest = self._epochs.get(req_id.client_id, 0)
            if request.epoch < newest:
                connection.send(m.MountResponse(req_id, m.MountState.FENCED))
                return
            if request.epoch > newest:
                self._epochs[req_id.client_id] = request.epoch
                older = self._mounts.pop(req_id.client_id, None)
                if older is not None and older[2] is not connection:
                    self.unmounted(older[2])
        current = self._mounts.get(req_id.client_id)
        if current is None or current[2] is connection or offer[:2] > current[:2]:
            self._mounts[req_id.client_id] = offer
        elif current[2] is not connection:
            connection.send(m.MountResponse(req_id, m.MountState.NOT_READY))
            return
        self._enqueue(lambda: self._mount(connection, request))

    def _mount(self, connection: ClientConnection, request: m.MountRequest | ProducerMountRequest) -> None:
        req_id, position = request.req_id, request.client_high_water_mark
        gap = self.high_water_mark - position
        if gap < 0:
            connection.send(m.MountResponse(req_id, m.MountState.CLIENT_AHEAD))
        elif gap == 0:
            connection.send(m.MountResponse(req_id, m.MountState.READY))
        else:
            self._open_feed(
                connection,
                position,
                gap,
                lambda: connection.send(m.MountResponse(req_id, m.MountState.READY)),
            )

    def feed_received(self, connection: ClientConnection, request: m.FeedRequest) -> None:
        """Transactions after the client's mark; a mark beyond the log closes the connection, as a server
        does."""
        if not self._may_append(connection, request.req_id.client_id):
            return
        gap = self.high_water_mark - request.client_high_water_mark
        if gap < 0:
            connection.close("a feed request is ahead of the log")
            return
        self._open_feed(
            connection,
            request.client_high_water_mark,
            max(gap, MIN_CREDIT),
            lambda: connection.send(m.FeedSuspended(request.req_id)),
        )

    def _open_feed(
        self, connection: ClientConnection, position: int, credit: int, done: Callable[[], None]
    ) -> None:
        if position < self._first_id - 1:
            self._begins_later(position)
            return
        self._feeds.open(connection, position, credit, done)
        self._pump()

    def _begins_later(self, position: int) -> None:
        log.error(
            "partition %d: it begins at transaction %d, nothing can be read after %d",
            self.partition_id,
            self._first_id,
            position,
            extra={"partition": self.partition_id},
        )

    def flush_received(self, connection: ClientConnection, request: m.FlushRequest) -> None:
        """Answered when everything before it is decided."""
        self._enqueue(lambda: connection.send(m.FlushResponse(request.req_id, self.high_water_mark)))

    def append_received(
        self, connection: ClientConnection, append: Append, repeated: Repeated | None = None
    ) -> None:
        """Into the queue, if the connection may append; dropped otherwise."""
        if self._may_append(connection, ReqId.unpack(append.req_id).client_id):
            due = asyncio.get_running_loop().time() + self._delay_seconds
            self._enqueue(_Waiting(connection, append, due, repeated))
        else:
            answer(connection, append.req_id, Verdict.NOT_MOUNTED)

    def read(self, transaction_id: int) -> tuple[bytes | None, str | None]:
        """The payload, or why not."""
        if self._read_fails():
            return None, "the read was made to fail"
        if not self._first_id <= transaction_id <= self.high_water_mark:
            return None, f"there is no transaction {transaction_id}"
        return self._log[transaction_id - self._first_id].data, None

    def _read_fails(self) -> bool:
        if not self._failing_reads:
            return False
        self._failing_reads -= 1
        return True

    def blocks_received(
        self, connection: ClientConnection, message: m.BlockFeedRequest | m.BlockCredit | m.BlockFeedEnd
    ) -> None:
        """What concerns feeds of blocks. They need no mount."""
        match message:
            case m.BlockFeedRequest() if m.FROM_THE_END < message.after < self._first_id - 1:
                self._begins_later(message.after)
            case m.BlockFeedRequest():
                self._block_feeds.open(connection, message, self.high_water_mark)
            case m.BlockCredit():
                self._block_feeds.credit(connection, message)
            case m.BlockFeedEnd():
                self._block_feeds.end(connection, message.req_id)
        self._pump()

    def connection_lost(self, connection: ClientConnection) -> None:
        """What it has sent is still decided; nothing is sent to it."""
        self._block_feeds.forget(connection)
        self.unmounted(connection)

    def unmounted(self, connection: ClientConnection) -> None:
        """The connection takes no part any longer."""
        self._feeds.forget(connection)
        for client_id in [c for c, mount in self._mounts.items() if mount[2] is connection]:
            del self._mounts[client_id]

    def _may_append(self, connection: ClientConnection, client_id: int) -> bool:
        mount = self._mounts.get(client_id)
        return mount is not None and mount[2] is connection

    # -- decisions -------------------------------------------------------------------------------------------

    def _enqueue(self, item: _Waiting | Callable[[], None]) -> None:
        self._queue.append(item)
        self._work()

    def _work(self) -> None:
        queue = self._queue
        while queue:
            head = queue[0]
            if isinstance(head, _Waiting):
                if self._held or not self._is_due(head):
                    return
                queue.popleft()
                self._decide(head)
            else:
                queue.popleft()
                head()

    def _is_due(self, head: _Waiting) -> bool:
        loop = asyncio.get_running_loop()
        if loop.time() >= head.due:
            return True
        if self._timer is None:
            self._timer = loop.call_at(head.due, self._timer_due)
        return False

    def _timer_due(self) -> None:
        self._timer = None
        self._work()

    def _decide(self, waiting: _Waiting) -> None:
        connection, append, repeated = waiting.connection, waiting.append, waiting.repeated
        req_id = ReqId.unpack(append.req_id)
        generation = append.generation
        if repeated is not None:
            generation = repeated.generation
            there = self._find(req_id, repeated.searched)
            if there is not None:
                one = self._log[there - self._first_id]
                same = one.data == append.tail[8:-4] and one.header == _header(append)
                if same:
                    self._say_committed(connection, append.req_id, there)
                else:
                    answer(connection, append.req_id, Verdict.REQUEST_ID_IN_USE, there)
                return
        fate = self._fate(waiting.dropped)
        conflict = self._locks.estimate(append.write_locks, append.read_locks)
        if fate is _Fate.CONFLICT:
            self._refuse(connection, append, self.high_water_mark)
        elif conflict > append.client_high_water_mark:
            self._refuse(connection, append, conflict)
        elif fate is _Fate.FAIL:
            # Before version 5 a server says nothing and lets the client ask; the same answer unasked spares
            # tests the waiting.
            if not answer(connection, append.req_id, Verdict.DROPPED):
                connection.send(m.FlushResponse(req_id, self.high_water_mark))
        elif generation == self.generation:
            locks = append.write_locks, append.append_locks
            transaction_id = self._commit(req_id, _header(append), append.tail[8:-4], *locks)
            self._say_committed(connection, append.req_id, transaction_id)
        else:
            answer(connection, append.req_id, Verdict.STALE_GENERATION, self.generation)

    def _fate(self, dropped: bool) -> _Fate | None:
        """What a test wants to become of the next append that is decided."""
        if dropped:
            return _Fate.FAIL
        if self._fates:
            return self._fates.popleft()
        if self._failing_rate and self._random.random() < self._failing_rate:
            return _Fate.FAIL
        return None

    def _say_committed(self, connection: ClientConnection, req_id: bytes, transaction_id: int) -> None:
        if self._feeds.paused:
            self._unsaid.append((connection, req_id, transaction_id))
        else:
            answer(connection, req_id, Verdict.COMMITTED, transaction_id)

    def _refuse(self, connection: ClientConnection, append: Append, mark: int) -> None:
        checked = append.write_locks + append.read_locks
        lock = next((one for one in checked if self._locks.estimate((one,), ()) >= mark), 0)
        index = mark - self._first_id
        winner = self._log[index].req_id.client_id if 0 <= index < len(self._log) else -1
        verdict = Verdict.LOCK_CONFLICT
        if not answer(connection, append.req_id, verdict, mark, lock=lock, winner=winner):
            connection.send(m.LockFailure(ReqId.unpack(append.req_id), mark))

    def _find(self, req_id: ReqId, searched: int) -> int | None:
        """What has the request id of an append that is sent again: its id, if it is in the log."""
        for one in self._log[max(0, searched + 1 - self._first_id) :]:
            its = one.req_id
            if (its.client_id, its.seq_num) == (req_id.client_id, req_id.seq_num):
                return one.transaction_id
        return None

    def _commit(
        self,
        req_id: ReqId,
        header: int,
        data: bytes,
        write_locks: tuple[int, ...],
        append_locks: tuple[int, ...],
    ) -> int:
        transaction_id = self.high_water_mark + 1
        self._log.append(LoggedTransaction(transaction_id, req_id, header, data))
        self._locks.commit(write_locks, append_locks, transaction_id)
        self._pump()
        return transaction_id

    def _pump(self) -> None:
        self._feeds.pump(self._log, self._first_id)
        self._block_feeds.pump(self._log, self._first_id)


def _header(append: Append) -> int:
    return int.from_bytes(append.tail[:4], "big", signed=True)
