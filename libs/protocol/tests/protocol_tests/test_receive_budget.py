"""Memory for frames that have not arrived completely: shared, bounded, and nobody waits for ever."""

import asyncio

import pytest

from protocol_tests.peers import HOST, RawPeer, Recorder, settings
from waltz_protocol.aio import receive_budget
from waltz_protocol.aio.listener import Listener
from waltz_protocol.aio.receive_budget import ReceiveBudget
from waltz_protocol.codec import CLIENT
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
    budget = ReceiveBudget(100, 1)
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
    budget = ReceiveBudget(100, 1)
    alone = FakeHolder(budget, 1000)
    for _ in range(100):
        alone.receive(10)
    assert alone.size == 1000
    assert not alone.waiting
    assert budget.total_bytes == 0


async def test_when_all_wait_and_none_is_near_its_end_the_largest_is_cut() -> None:
    budget = ReceiveBudget(100, 1)
    holders = [FakeHolder(budget, 1000) for _ in range(4)]
    for _ in range(300):
        for number, holder in enumerate(holders):
            holder.receive(number + 1)
            assert budget.total_bytes <= 160 or sum(h.cut is None for h in holders) == 1
    assert holders[3].cut is not None
    assert "may take 100 bytes together" in holders[3].cut
    assert sum(holder.cut is None for holder in holders) >= 1


async def test_a_closed_connection_lets_the_others_go_on() -> None:
    budget = ReceiveBudget(100, 1)
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
    budget = ReceiveBudget(100, 1)
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
            peer.say(frame(Magic.CLIENT, CLIENT.versions[-1], body))
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
        peer.say(frame(Magic.CLIENT, CLIENT.versions[-1], bytes(3 * MIB))[:MIB])
        async with asyncio.timeout(10):
            while not budget.total_bytes:
                await asyncio.sleep(0)
        await peer.close()
        await recorder.until_closed()
        assert budget.total_bytes == 0
