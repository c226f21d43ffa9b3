"""One partition of the stream side alone, between a session that notes what is sent and frames given one by
one.

Against a whole server the order in which frames arrive is the loop's; here it is the test's.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Coroutine
from typing import Any, cast

import pytest

from waltz_client._internal.append.pending import PendingAppend
from waltz_client._internal.append.request import AppendRequest
from waltz_client._internal.append.transaction_monitor import Cause
from waltz_client._internal.append.window import AppendWindow
from waltz_client._internal.req_ids import ReqIdSource
from waltz_client._internal.stream.feed_cursor import CursorState, FeedCursor
from waltz_client._internal.stream.mount_state import MountState
from waltz_client._internal.stream.partition import StreamPartition
from waltz_client._internal.stream.session import StreamSession
from waltz_client.errors import ClientAheadError, ClientClosedError, Outcome, PartitionInactiveError
from waltz_client.transaction import FeedFields
from waltz_protocol.aio.tasks import spawn
from waltz_protocol.messages.client import MountState as MountAnswer
from waltz_protocol.types import ReqId

OWN, STRANGER = 7, 99
REQUEST = AppendRequest(0, b"data", 0, (), (), (), None)
WINDOW_BYTES = 10_000


class Host:
    """What a partition asks of its client; what is spawned runs when the test awaits it."""

    def __init__(self) -> None:
        self.mark = -1
        self.spawned: list[Coroutine[Any, Any, None]] = []

    async def start_mark(self, partition_id: int) -> int:
        return self.mark

    async def server_high_water_mark(self, partition_id: int) -> int:
        return self.mark

    def mark_named(self, partition_id: int, mark: int) -> None:
        """Nobody here has a view of his own."""

    def need_ticks(self) -> None:
        """The tests make the ticks."""

    def spawn(self, coro: Coroutine[Any, Any, None], name: str) -> asyncio.Task[None]:
        self.spawned.append(coro)
        return cast("asyncio.Task[None]", None)


class Session:
    """A connection to a server; what is sent stays here."""

    endpoint = "server:1"
    version = 4
    writable = True
    paused = False

    def __init__(self) -> None:
        self.mounts: list[tuple[ReqId, int]] = []
        self.flushes: list[ReqId] = []
        self.appends: list[bytes] = []
        self.feeds: list[tuple[ReqId, int]] = []
        self.unmounts: list[ReqId] = []
        self.closed = False

    def send_append(self, frame: bytes) -> bool:
        if not self.closed:
            self.appends.append(frame)
        return not self.closed

    def send_mount(self, req_id: ReqId, mark: int, epoch: int = 0) -> bool:
        self.mounts.append((req_id, mark))
        return True

    def send_flush(self, req_id: ReqId) -> bool:
        self.flushes.append(req_id)
        return True

    def send_unmount(self, req_id: ReqId) -> None:
        self.unmounts.append(req_id)

    def send_feed_request(self, req_id: ReqId, mark: int) -> bool:
        self.feeds.append((req_id, mark))
        return True

    def reconsider_reading(self) -> None:
        """The tests bring the frames whether they are wanted or not."""


def mounted(received: int = 4, host: Host | None = None) -> tuple[StreamPartition, Session]:
    """A partition that has seen everything up to `received` and is mounted there, in generation 1."""
    ids = ReqIdSource(OWN, 0, random.Random(1))
    ids.raise_generation(1)
    window = AppendWindow(ids, 10, WINDOW_BYTES)
    partition, session = StreamPartition(ids, host or Host(), window, random.Random(1)), Session()
    partition.activate()
    partition.start_at(received)
    partition.session_ready(cast(StreamSession, session))
    answer(partition, session)
    return partition, session


async def in_line(partition: StreamPartition) -> asyncio.Task[None]:
    """A writer that waits behind those that wait already."""
    line = partition.window.line
    writer = spawn(line.wait(line.ticket()), "writer")
    await asyncio.sleep(0)
    return writer


def answer(partition: StreamPartition, session: Session) -> None:
    """The server says READY to the newest mount."""
    partition.mount_response(session.mounts[-1][0].seq_num, MountAnswer.READY)
    assert partition.mounted


def append(partition: StreamPartition) -> PendingAppend:
    handle = PendingAppend(0, lambda _: None)
    partition.send_append(handle, REQUEST)
    return handle


def outcome(handle: PendingAppend) -> Outcome | None:
    return handle.outcome


def feed(client_id: int, seq_num: int, transaction_id: int) -> FeedFields:
    return (client_id, 1, 0, seq_num, transaction_id, 0)


@pytest.mark.parametrize("before", [0, 1, 2])
async def test_safety_e1_a_flush_takes_effect_at_its_mark_and_not_one_before(before: int) -> None:
    """The answer to a flush has overtaken the feed by some transactions, the last of which is the append
    itself."""
    partition, _ = mounted(4)
    handle = append(partition)
    mark = 5 + before
    partition.flush_response(handle.seq_num, mark)
    for transaction_id in range(5, mark):
        partition.feed_data(feed(STRANGER, handle.seq_num, transaction_id))
        assert outcome(handle) is None
    partition.feed_data(feed(OWN, handle.seq_num, mark))
    assert outcome(handle) is Outcome.COMMITTED
    assert handle.transaction_id == mark


@pytest.mark.parametrize("before", [0, 1, 2])
async def test_safety_e1_a_flush_fails_an_append_as_soon_as_the_feed_is_at_its_mark(before: int) -> None:
    partition, _ = mounted(4)
    handle = append(partition)
    partition.flush_response(handle.seq_num, 4 + before)
    for transaction_id in range(5, 5 + before):
        assert outcome(handle) is None
        partition.feed_data(feed(STRANGER, handle.seq_num, transaction_id))
    assert outcome(handle) is Outcome.FAILED


@pytest.mark.parametrize("before", [0, 1, 2])
async def test_safety_e1_a_lock_failure_takes_effect_at_its_mark_and_not_one_before(before: int) -> None:
    """A server of 0.13.2 may answer so to an append that it has taken: the feed decides, up to the mark
    itself."""
    partition, _ = mounted(4)
    handle = append(partition)
    mark = 5 + before
    partition.lock_failure(ReqId(OWN, 1, 0, handle.seq_num), mark)
    for transaction_id in range(5, mark):
        partition.feed_data(feed(STRANGER, handle.seq_num, transaction_id))
        assert outcome(handle) is None
    partition.feed_data(feed(OWN, handle.seq_num, mark))
    assert outcome(handle) is Outcome.COMMITTED


async def test_who_asks_for_the_outcome_of_all_that_was_sent_sends_a_flush_at_once() -> None:
    partition, session = mounted(4)
    await partition.flush()
    assert session.flushes == [], "nothing is outstanding"
    handles = [append(partition), append(partition)]
    asking = spawn(partition.flush(), "flush")
    await asyncio.sleep(0)
    assert [req_id.seq_num for req_id in session.flushes] == [handles[-1].seq_num]
    partition.flush_response(handles[-1].seq_num, 4)
    await asking
    assert [outcome(handle) for handle in handles] == [Outcome.FAILED] * 2


async def test_safety_e1_a_flush_decides_everything_sent_before_it() -> None:
    """It names the newest append, so that its answer settles the older ones as well and needs no second
    round."""
    partition, session = mounted()
    handles = [append(partition) for _ in range(3)]
    partition.window.flush(cast(StreamSession, session))
    assert [asked.seq_num for asked in session.flushes] == [handles[-1].seq_num]
    partition.flush_response(session.flushes[-1].seq_num, partition.received)
    assert [outcome(handle) for handle in handles] == [Outcome.FAILED] * 3


async def test_safety_e2_a_raised_generation_mounts_again_with_the_new_number() -> None:
    """What was sent under the old one may have been dropped in silence: nothing more is sent before a new
    mount."""
    partition, session = mounted()
    handle = append(partition)
    partition.req_ids.raise_generation(2)
    partition.generation_raised()
    assert len(session.mounts) == 2
    assert session.mounts[-1][0].generation == 2
    assert session.mounts[-1][1] == partition.received
    assert not partition.can_send
    answer(partition, session)
    assert session.flushes[-1].seq_num == handle.seq_num
    assert outcome(handle) is None


async def test_safety_e2_a_partition_that_was_let_go_starts_from_the_end_of_the_log_again() -> None:
    """Nothing was received meanwhile: with the old place, a later mount would feed everything missed in
    between."""
    host = Host()
    partition, left = mounted(host=host)
    waiter = await in_line(partition)
    used = partition.req_ids.next_seq_num()
    partition.deactivate()
    assert partition.state is MountState.INACTIVE
    assert left.unmounts == [ReqId(OWN, 1, 0, 0)]
    with pytest.raises(PartitionInactiveError):
        await waiter
    assert partition.req_ids.next_seq_num() == used + 1
    session = Session()
    partition.activate()
    partition.session_ready(cast(StreamSession, session))
    assert session.mounts == []
    host.mark = 9
    await host.spawned.pop()
    assert [mark for _, mark in session.mounts] == [9]


async def test_a_partition_that_was_let_go_while_it_was_ahead_is_not_ahead_when_it_is_used_again() -> None:
    partition, session = mounted()
    partition.session_lost(cast(StreamSession, session))
    partition.session_ready(cast(StreamSession, session))
    partition.mount_response(session.mounts[-1][0].seq_num, MountAnswer.CLIENT_AHEAD)
    with pytest.raises(ClientAheadError):
        await partition.wait_writable()
    partition.session_lost(cast(StreamSession, session))
    with pytest.raises(ClientAheadError):  # no other server has said anything yet
        await partition.wait_writable()
    partition.deactivate()
    with pytest.raises(PartitionInactiveError):
        await partition.wait_writable()
    partition.activate()
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0):
            await partition.wait_writable()
    partition.close()
    with pytest.raises(ClientClosedError):
        await partition.wait_writable()


async def test_safety_e1_a_transaction_behind_a_gap_is_not_received() -> None:
    """What it would have decided is decided when the feed gets there."""
    partition, _ = mounted(4)
    handle = append(partition)
    partition.feed_data(feed(OWN, handle.seq_num, 6))
    assert (partition.received, outcome(handle)) == (4, None)
    partition.feed_data(feed(STRANGER, 1, 5))
    partition.feed_data(feed(OWN, handle.seq_num, 6))
    assert (partition.received, outcome(handle)) == (6, Outcome.COMMITTED)


async def test_safety_e2_only_the_answer_to_a_mount_of_this_connection_mounts() -> None:
    partition, first = mounted()
    partition.session_lost(cast(StreamSession, first))
    second, third = Session(), Session()
    partition.session_ready(cast(StreamSession, second))
    unanswered = second.mounts[-1][0].seq_num
    partition.mount_response(unanswered + 100, MountAnswer.READY)
    assert not partition.can_send
    partition.session_lost(cast(StreamSession, second))
    partition.session_ready(cast(StreamSession, third))
    partition.mount_response(unanswered, MountAnswer.READY)
    assert not partition.can_send
    answer(partition, third)
    assert partition.can_send


@pytest.mark.looptime
@pytest.mark.parametrize(("mark", "fails"), [(9, True), (10, False), (11, False)])
async def test_a_reader_is_ahead_only_of_a_log_that_ends_before_its_place(mark: int, fails: bool) -> None:
    host = Host()
    partition, _ = mounted(4, host)
    host.mark = mark
    cursor = FeedCursor(0, 10, 100, lambda: None)
    partition.readers.add(cursor)
    await host.spawned.pop()
    assert isinstance(cursor.error, ClientAheadError) == fails
    assert (cursor.state is CursorState.LIVE) != fails


@pytest.mark.looptime
async def test_safety_d8_a_reader_is_not_ahead_because_an_owner_that_is_replaced_says_so() -> None:
    """An owner that does not know it yet answers with its own mark."""
    host = Host()
    partition, _ = mounted(4, host)
    host.mark = 9
    cursor = FeedCursor(0, 10, 100, lambda: None)
    partition.readers.add(cursor)
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(host.spawned.pop())
        await asyncio.sleep(1)
        host.mark = 12
    assert cursor.error is None
    assert cursor.state is CursorState.LIVE


async def test_safety_e1_an_append_that_met_a_closed_connection_has_failed_at_once() -> None:
    partition, session = mounted()
    session.closed = True
    handle = append(partition)
    assert handle.cause is Cause.NOT_SENT
    assert outcome(handle) is Outcome.FAILED
    assert session.appends == []


async def test_a_silent_append_is_flushed_once_per_threshold() -> None:
    partition, session = mounted()
    append(partition)
    flushes = []
    for _ in range(9):
        partition.on_tick(3)
        flushes.append(len(session.flushes))
    assert flushes == [0, 0, 1, 1, 1, 2, 2, 2, 3]


async def test_the_chance_of_a_writer_that_gave_up_goes_to_the_next_one() -> None:
    partition, _ = mounted()
    line = partition.window.line
    first, second, third = [await in_line(partition) for _ in range(3)]
    line.wake(1)
    first.cancel()
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert [waiter.done() for waiter in (first, second, third)] == [True, True, False]
    third.cancel()
    await asyncio.sleep(0)
    assert (len(line), line.woken) == (0, 0)


async def test_who_comes_while_one_is_woken_is_sent_behind_it_at_once() -> None:
    """There is free space for both: the second waits for no outcome and for no tick."""
    partition, _ = mounted()
    sent: list[int] = []

    async def write(number: int) -> None:
        await partition.wait_writable()
        append(partition)
        sent.append(number)

    partition.window.max_outstanding = 0
    writers = [spawn(write(1), "writer")]
    await asyncio.sleep(0)
    partition.window.max_outstanding = 2
    writers.append(spawn(write(2), "writer"))  # it runs before the one that is woken now
    partition.window.line.wake(1)
    for _ in range(2):
        await asyncio.sleep(0)
    assert sent == [1, 2]
    await asyncio.gather(*writers)


async def test_safety_e1_a_closed_window_sends_nothing_more() -> None:
    partition, _ = mounted()
    handle = append(partition)
    partition.window.close()
    assert outcome(handle) is Outcome.UNKNOWN
    assert not partition.can_send
    assert partition.window.room == 0


async def test_safety_e1_an_outcome_reaches_the_others_when_one_caller_raises(
    caplog: pytest.LogCaptureFixture,
) -> None:
    partition, _ = mounted()

    def raising(_: PendingAppend) -> None:
        raise ValueError("a mistake of the application")

    first, second = PendingAppend(0, raising), PendingAppend(0, lambda _: None)
    for handle in (first, second):
        partition.send_append(handle, REQUEST)
    partition.flush_response(second.seq_num, 4)
    assert [outcome(handle) for handle in (first, second)] == [Outcome.FAILED] * 2
    assert "raised" in caplog.text


async def test_the_window_holds_as_many_bytes_as_its_setting_says_and_any_single_append() -> None:
    partition, session = mounted()
    large = REQUEST._replace(data=bytes(3_000))
    for _ in range(4):  # the fourth begins below the limit
        assert partition.can_send
        partition.send_append(PendingAppend(0, lambda _: None), large)
    assert not partition.can_send
    assert partition.window.room == 0
    assert partition.window.outstanding_bytes == sum(map(len, session.appends)) > WINDOW_BYTES
    newest = partition.window.monitor.newest
    assert newest is not None
    partition.flush_response(newest.seq_num, 4)
    assert partition.window.outstanding_bytes == 0
    assert partition.window.room == 4  # as many as were sent
    partition.send_append(PendingAppend(0, lambda _: None), REQUEST._replace(data=bytes(20_000)))
    assert not partition.can_send


async def test_as_many_writers_are_woken_as_fit_by_their_size() -> None:
    partition, _ = mounted()
    window = partition.window
    partition.send_append(PendingAppend(0, lambda _: None), REQUEST._replace(data=bytes(2_500)))
    assert 3 <= window.room <= 4  # of ten by number
    window.close()
    assert window.outstanding_bytes == 0


async def test_the_window_holds_as_many_appends_as_its_setting_says() -> None:
    partition, session = mounted()
    for sent in range(10):
        assert partition.window.room == 10 - sent
        assert partition.can_send
        append(partition)
    assert not partition.can_send
    assert len(session.appends) == 10


def taken(cursor: FeedCursor) -> list[int]:
    found: list[int] = []
    while fields := cursor.take():
        found += [one[4] for one in fields]
    return found


async def test_a_reader_follows_the_stream_only_when_it_has_everything_before_it() -> None:
    """One transaction is missing when its own feed pauses; then the stream goes on."""
    partition, session = mounted(4)
    cursor = FeedCursor(0, 0, 100, lambda: None)
    partition.readers.add(cursor)
    assert session.feeds[-1][1] == 0
    for turn in ((1, 2, 3), (5,), (4,), (5,), (6,)):
        for transaction_id in turn:
            partition.feed_data(feed(STRANGER, 1, transaction_id))
        partition.end_turn()
    assert taken(cursor) == [1, 2, 3, 4, 5, 6]
    assert cursor.state is CursorState.LIVE


async def test_a_reader_that_is_full_has_its_own_feed_cut_short() -> None:
    partition, session = mounted(500)
    cursor = FeedCursor(0, 0, 10, lambda: None)
    partition.readers.add(cursor)
    own = session.feeds[-1][0]
    for transaction_id in range(1, 21):
        partition.feed_data(feed(STRANGER, 1, transaction_id))
    partition.end_turn()
    assert cursor.state is CursorState.PARKED
    assert session.feeds[-1] == (own, 500)  # under the same number: instead of what is left of it
    assert taken(cursor) == list(range(1, 11))
