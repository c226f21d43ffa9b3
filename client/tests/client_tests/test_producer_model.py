"""A model of an application that crashes anywhere: whatever it sends again, a number is in the log once."""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import Iterable
from contextlib import AsyncExitStack
from enum import Enum

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from waltz_client import Append, AppendError, Committed, WaltzClient
from waltz_client._internal.append.sequence_window import SequenceMonitor
from waltz_client._internal.append.sequences import MAX_MILESTONES, SequenceMarks, content_checksum
from waltz_client._internal.append.transaction_monitor import NEVER, NOTHING, Cause, MonitorEntry
from waltz_client.testing import InProcessLog
from waltz_cluster.serializers import Checkpoint

NUMBERS = 12


class Event(Enum):
    """What happens between or under two steps of the application."""

    CRASH_UNDER_WAY = "crash"
    UNKNOWN = "deadline"
    DISCONNECT = "disconnect"
    REMOUNT = "remount"
    OTHERS = "others"
    SECOND_INSTANCE = "second"
    FAIL = "fail"
    CHECKPOINT = "checkpoint"
    RESTART = "restart"


STEPS = st.lists(st.tuples(st.sampled_from(Event), st.integers(1, 4), st.integers(0, 3)), max_size=20)


class Crashed(Exception):
    """The process is gone, with what it has not written down."""


def data_of(number: int) -> bytes:
    return b"event %d" % number


class Model:
    """`known`: what an instance has been given, at most; the rest it learns, and sends some of it again."""

    def __init__(self) -> None:
        self.log = InProcessLog()
        self.answers: dict[int, int] = {}

    async def instance(self, steps: Iterable[tuple[Event, int, int]]) -> None:
        """Run until a crash, or the end of the steps."""
        async with AsyncExitStack() as stack:
            client = WaltzClient.connect({"client.mockDriver": self.log}, producer="orders")
            await stack.enter_async_context(client)
            try:
                for event, count, back in steps:
                    await self.step(client, event, count, back)
            except Crashed:
                core = client._core
                if core is not None and core.producer is not None:
                    core.producer._marks.clear()  # no last checkpoint

    async def step(self, client: WaltzClient, event: Event, count: int, back: int) -> None:
        partition = self.log.partition(0)
        first = max(0, await client.last_sequence(0, deadline_seconds=60) + 1 - back)
        sent = [Append(0, data_of(number), sequence=number) for number in range(first, first + count)]
        match event:
            case Event.CRASH_UNDER_WAY | Event.UNKNOWN:
                partition.hold()
                self.note(sent, await client.append_many(sent, deadline_seconds=1))
                partition.release()
                if event is Event.CRASH_UNDER_WAY:
                    raise Crashed
            case Event.DISCONNECT:
                self.log.disconnect()
            case Event.REMOUNT:
                partition.remount()
            case Event.OTHERS:
                partition.commit(b"of somebody else")
            case Event.FAIL:
                partition.fail_next(1)
            case Event.CHECKPOINT:
                await asyncio.sleep(11)
            case Event.RESTART:
                raise Crashed
            case Event.SECOND_INSTANCE:
                async with WaltzClient.connect({"client.mockDriver": self.log}, producer="orders") as newer:
                    both = await asyncio.gather(
                        client.append_many(sent, deadline_seconds=30), newer.append_many(sent)
                    )
                    for results in both:
                        self.note(sent, results)
                raise Crashed
        self.note(sent, await client.append_many(sent, deadline_seconds=60))

    def note(self, sent: list[Append], results: Iterable[Committed | AppendError]) -> None:
        for append, result in zip(sent, results, strict=False):
            assert append.sequence is not None
            if isinstance(result, Committed):
                known = self.answers.setdefault(append.sequence, result.transaction_id)
                assert known == result.transaction_id, "two answers, two ids"

    async def run(self, steps: list[tuple[Event, int, int]]) -> None:
        left = iter(steps)
        for _ in range(len(steps) + 1):
            await self.instance(left)
        async with WaltzClient.connect({"client.mockDriver": self.log}, producer="orders") as client:
            for number in range(NUMBERS):
                done = await client.append(partition=0, data=data_of(number), sequence=number)
                assert self.answers.setdefault(number, done.transaction_id) == done.transaction_id
        own = [one for one in self.log.partition(0).transactions if one.req_id.client_id == 1]
        numbers = [one.req_id.seq_num for one in own]
        assert sorted(numbers) == sorted(set(numbers)), "a number was written twice"
        assert set(range(NUMBERS)) <= set(numbers)
        assert all(one.data == data_of(one.req_id.seq_num) for one in own)
        places = {one.req_id.seq_num: one.transaction_id for one in own}
        assert self.answers.items() <= places.items()


@pytest.mark.looptime
@settings(max_examples=150)
@given(STEPS)
async def test_safety_e8_each_number_is_in_the_log_once_whatever_crashes(
    steps: list[tuple[Event, int, int]],
) -> None:
    await Model().run(steps)


@given(
    st.integers(-1, 3),
    st.lists(st.tuples(st.integers(1, 3), st.integers(0, 9), st.booleans()), max_size=30),
)
def test_safety_e8_a_mark_is_searched_for_a_number_only_if_the_log_does_not_hold_it(
    start: int, feed: list[tuple[int, int, bool]]
) -> None:
    """`feed`: how far it advances, a number, whether that is the producer's."""
    marks, log, mark = SequenceMarks(Checkpoint(start, start)), dict[int, int](), start
    for step, number, own in feed:
        mark += step
        if own:
            log[mark] = number
            marks.note(mark, number)
        else:
            marks.received(mark)
        assert marks.last == max(log.values(), default=-1)
        written = marks.checkpoint
        assert start <= written.origin <= written.mark <= mark
        assert all(at > written.origin for at in log)
        assert written.sequence == max((one for at, one in log.items() if at <= written.mark), default=-1)
        for wanted in range(10):
            searched = marks.searched(wanted)
            assert start <= searched <= mark
            assert wanted not in [number for place, number in log.items() if place <= searched]
    later = SequenceMarks(marks.checkpoint)
    for place, number in log.items():
        if place > later.mark:
            later.note(place, number)
    later.received(mark)
    assert [later.searched(wanted) for wanted in range(10)] == [
        marks.searched(wanted) for wanted in range(10)
    ]


def test_the_places_that_are_known_are_bounded() -> None:
    marks = SequenceMarks(Checkpoint(-1, -1))
    for number in range(2 * MAX_MILESTONES):
        marks.note(number, number)
    assert marks.searched(2 * MAX_MILESTONES - 1) == 2 * MAX_MILESTONES - 2
    assert marks.searched(3) == -1


def test_safety_e8_a_commit_takes_effect_when_the_feed_has_reached_it() -> None:
    """An answer may overtake the feed, and the caller's next view is what was received."""
    monitor = SequenceMonitor()
    for number in (4, 5, 6):
        assert monitor.register(MonitorEntry(number, 9))
    assert monitor.committed(4, 9, 0, 0) == NOTHING, "the feed alone decides nothing"
    assert monitor.committed_by_answer(5, 9, 2) == NOTHING
    assert monitor.committed_by_answer(6, 8, 3) == NOTHING, "of another content"
    assert [one.seq_num for one in monitor.undecided()] == [4, 6]
    assert monitor.next_release == 2
    assert monitor.advance(1) == []
    (done,) = monitor.advance(2)
    assert (done.entry.seq_num, done.cause, done.mark) == (5, Cause.COMMITTED, 2)
    assert monitor.next_release == NEVER
    assert [one.cause for one in monitor.committed_by_answer(4, 9, 0)] == [Cause.COMMITTED]
    assert [one.cause for one in monitor.close()] == [Cause.CLOSED]


def test_a_content_has_a_checksum_of_its_own() -> None:
    found = {
        content_checksum(header, data)
        for header in (-1, 0, 2**31 - 1)
        for data in (b"", b"a", b"\0", b"\0\0", b"\xff" * 4)
    }
    assert len(found) == 15
    own = [data + zlib.crc32(data).to_bytes(4, "little") for data in (b"abc", b"xyz")]
    assert len({content_checksum(0, data) for data in own}) == 2
    assert all(-(2**31) <= one < 2**31 for one in found)
