"""Memory for frames that have not arrived completely: shared, bounded, and nobody waits forever."""

import asyncio
import contextlib
from collections.abc import Iterator
from types import SimpleNamespace
from unittest.mock import patch

import pytest

from protocol_tests.peers import HOST, VERSIONS, RawPeer, Recorder, settings
from waltz_protocol.aio import receive_budget
from waltz_protocol.aio.listener import Listener
from waltz_protocol.aio.receive_budget import ReceiveBudget
from waltz_protocol.frame import Magic, frame

MIB = 1024 * 1024


class FakeHolder:
    """A connection that only counts."""

    def __init__(self, budget: ReceiveBudget, frame_bytes: int) -> None:
        self.budget = budget
        self.frame_bytes = frame_bytes
        self.size = 0
        self.waiting = False
        self.cut: str | None = None

    @property
    def missing_bytes(self) -> int:
        return self.frame_bytes - self.size

    def wait_for_memory(self, waiting: bool) -> None:
        self.waiting = waiting

    def cut_for_memory(self, reason: str) -> None:
        self.cut = reason
        self.size = 0
        self.budget.hold(self, 0)

    def receive(self, size: int) -> None:
        """So many more bytes, unless it is not read from; a frame that is whole is done with."""
        if not self.waiting and self.cut is None:
            self.size += size
            self.budget.hold(self, 0 if self.size >= self.frame_bytes else self.size)


async def test_the_sum_is_bounded_and_everybody_finishes() -> None:
    budget = ReceiveBudget(100, 1, 0)
    holders = [FakeHolder(budget, 20) for _ in range(50)]
    most = 0
    for _ in range(2000):
        for holder in holders:
            if holder.size < holder.frame_bytes:
                holder.receive(1)
            most = max(most, budget.total_bytes)
    assert all(holder.size == 20 and holder.cut is None for holder in holders)
    assert most <= 150 + len(holders)
    assert budget.total_bytes == 0


async def test_a_frame_above_the_limit_arrives_when_it_is_alone() -> None:
    budget = ReceiveBudget(100, 1, 0)
    alone = FakeHolder(budget, 1000)
    for _ in range(100):
        alone.receive(10)
    assert alone.size == 1000
    assert not alone.waiting
    assert budget.total_bytes == 0


async def test_when_all_wait_and_none_is_near_its_end_the_largest_is_cut() -> None:
    budget = ReceiveBudget(100, 1, 0)
    holders = [FakeHolder(budget, 1000) for _ in range(4)]
    for _ in range(300):
        for number, holder in enumerate(holders):
            holder.receive(number + 1)
            assert budget.total_bytes <= 160 or sum(h.cut is None for h in holders) == 1
    assert holders[3].cut is not None
    assert "may take 100 bytes together" in holders[3].cut
    assert sum(holder.cut is None for holder in holders) >= 1


async def test_a_closed_connection_lets_the_others_go_on() -> None:
    budget = ReceiveBudget(100, 1, 0)
    first, second = FakeHolder(budget, 1000), FakeHolder(budget, 1000)
    first.receive(90)
    second.receive(20)
    assert [first.waiting, second.waiting] == [False, True]
    budget.hold(first, 0)
    assert [first.waiting, second.waiting] == [False, False]
    budget.hold(second, 0)
    assert budget.total_bytes == 0


async def test_who_holds_and_sends_nothing_is_cut_while_others_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(receive_budget, "STALLED_SECONDS", 0.02)
    monkeypatch.setattr(receive_budget, "_LOOK_SECONDS", 0.01)
    budget = ReceiveBudget(100, 1, 0)
    stalled, waiting = FakeHolder(budget, 1000), FakeHolder(budget, 30)
    stalled.receive(90)
    waiting.receive(20)
    assert waiting.waiting
    async with asyncio.timeout(10):
        while stalled.cut is None:
            await asyncio.sleep(0.005)
    assert not waiting.waiting


@pytest.mark.parametrize("count", [1, 6])
async def test_large_frames_of_several_peers_arrive_within_the_budget(count: int) -> None:
    recorders: list[Recorder] = []

    def handler() -> Recorder:
        recorders.append(Recorder())
        return recorders[-1]

    budget = ReceiveBudget(2 * MIB)
    async with Listener(budget) as listener:
        await listener.start(HOST, 0, settings(), handler, None)
        peers = [await RawPeer.to(listener.port) for _ in range(count)]
        body = b"x" * (MIB + 12_345)
        for peer in peers:
            peer.hello()
            peer.say(frame(Magic.CLIENT, VERSIONS[-1], body))
        for recorder in list(recorders):
            await recorder.until(lambda recorder=recorder: bool(recorder.bodies))  # type: ignore[misc]
        assert all(recorder.bodies == [body] for recorder in recorders)
        assert len(recorders) == count
        assert budget.total_bytes == 0
        for peer in peers:
            await peer.close()


async def test_an_unfinished_frame_is_given_back_with_its_connection() -> None:
    budget = ReceiveBudget(2 * MIB)
    recorder = Recorder()
    async with Listener(budget) as listener:
        await listener.start(HOST, 0, settings(), lambda: recorder, None)
        peer = await RawPeer.to(listener.port)
        peer.hello()
        peer.say(frame(Magic.CLIENT, VERSIONS[-1], bytes(3 * MIB))[:MIB])
        async with asyncio.timeout(10):
            while not budget.total_bytes:
                await asyncio.sleep(0)
        await peer.close()
        await recorder.until_closed()
        assert budget.total_bytes == 0


def crowd(budget: ReceiveBudget, count: int, size: int) -> list[FakeHolder]:
    """Peers that send the beginning of a frame and stop."""
    holders = [FakeHolder(budget, 60_000) for _ in range(count)]
    for holder in holders:
        holder.receive(size)
    return holders


async def test_beginnings_of_small_frames_are_counted_and_those_that_stopped_are_cut() -> None:
    """2,000 peers with 60 KB each; one that is slow and goes on sending, and one that has just begun, are
    kept."""
    with looptime() as clock:
        budget = ReceiveBudget(24 * MIB)
        slow = FakeHolder(budget, 60_000)
        slow.receive(20_000)
        half = crowd(budget, 100, 59_000)
        most = 0
        for second in range(19):
            clock.now += 1.0
            slow.receive(2_000)
            half += crowd(budget, 100, 59_000)
            most = max(most, budget.total_bytes)
            assert slow.cut is None, second
        slow.receive(2_000)
        assert slow.size >= slow.frame_bytes
        assert slow.cut is None
        assert most <= 12 * MIB
        assert len(half) == 2000
        cut = [holder for holder in half if holder.cut is not None]
        assert len(cut) >= 2000 - 12 * MIB // 59_000
        assert all(holder.cut is not None for holder in half[:1700])  # the oldest went first
        assert "59000 bytes of an unfinished frame" in str(cut[0].cut)


async def test_who_holds_most_for_longest_is_cut_first() -> None:
    with looptime() as clock:
        budget = ReceiveBudget(1000, 1, 300)
        small, large, late = (FakeHolder(budget, 10_000) for _ in range(3))
        small.receive(10)
        clock.now += 60.0
        large.receive(250)
        clock.now += 1.0
        late.receive(100)
        rest = crowd(budget, 2, 90)
        assert large.cut is not None
        assert (small.cut, late.cut) == (None, None)
        assert all(holder.cut is None for holder in rest)


async def test_small_beginnings_hold_up_no_large_frame() -> None:
    """They may take half of the limit; who waits for memory goes on when they have finished."""
    budget = ReceiveBudget(1000, 1, 100)
    small = crowd(budget, 5, 90)
    first, second = FakeHolder(budget, 700), FakeHolder(budget, 700)
    first.receive(500)
    second.receive(200)
    assert [first.waiting, second.waiting] == [False, True]
    for holder in small:
        budget.hold(holder, 0)
    assert [first.waiting, second.waiting] == [False, False]
    second.receive(500)
    first.receive(200)
    assert budget.total_bytes == 0
    assert budget._small_bytes == 0


async def test_half_frames_on_real_connections_stay_within_the_budget() -> None:
    budget = ReceiveBudget(2 * MIB)
    async with Listener(budget) as listener:
        await listener.start(HOST, 0, settings(), Recorder, None)
        peers = []
        most = 0
        for _ in range(200):
            peer = await RawPeer.to(listener.port)
            peer.hello()
            peer.say(frame(Magic.CLIENT, VERSIONS[-1], bytes(65_000))[:60_000])
            await asyncio.sleep(0.002)
            peers.append(peer)
            most = max(most, sum(channel._splitter.capacity_bytes for channel in listener.channels))
        async with asyncio.timeout(10):
            while budget.total_bytes > MIB or len(listener.channels) > 100:
                await asyncio.sleep(0.01)
        assert most <= 2 * MIB
        assert 0 < len(listener.channels) < 40
        for peer in peers:
            await peer.close()
    assert budget.total_bytes == 0


class Clock:
    now = 0.0


@contextlib.contextmanager
def looptime() -> Iterator[Clock]:
    """The running loop's clock in the test's own hand."""
    clock = Clock()
    with patch.object(asyncio, "get_running_loop", lambda: SimpleNamespace(time=lambda: clock.now)):
        yield clock
