"""What one client's scattered reads cost the loop, and others: look-ups, reads and answers are counted, never
timed."""

from __future__ import annotations

import asyncio
import itertools
import random
from typing import Any

import pytest

from server_tests.test_block_feeds import ids, open_feed
from server_tests.test_block_feeds import reader as block_reader
from waltz_protocol.messages.client import TransactionDataResponse
from waltz_server.partition import data_reads
from waltz_server.partition.reads import Range, RangeReader
from waltz_server.store.api import ReadFailedError
from waltz_server.store.record_run import RecordRun
from waltz_testkit.client_peers import FakeClient
from waltz_testkit.partition_rig import PartitionRig


class Counted(int):
    """A transaction id that counts how often it is compared."""

    comparisons = 0

    def __lt__(self, other: int) -> bool:
        Counted.comparisons += 1
        return int(self) < int(other)

    def __le__(self, other: int) -> bool:
        Counted.comparisons += 1
        return int(self) <= int(other)

    def __gt__(self, other: int) -> bool:
        Counted.comparisons += 1
        return int(self) > int(other)

    def __ge__(self, other: int) -> bool:
        Counted.comparisons += 1
        return int(self) >= int(other)


class Store:
    """Answers when it is told to, in the order of the requests."""

    def __init__(self) -> None:
        self.asked: list[tuple[int, int]] = []
        self.gate = asyncio.Semaphore(0)

    async def read(self, first: int, max_count: int, max_bytes: int = 0) -> RecordRun:
        self.asked.append((first, max_count))
        await self.gate.acquire()
        return RecordRun.of_records(first, [b"record"] * max_count)


def reader_of(store: Any) -> RangeReader:
    def delivered(wanted: Range, run: RecordRun) -> None: ...

    def failed(wanted: Range, failure: ReadFailedError) -> None: ...

    return RangeReader(store, on_records=delivered, on_failure=failed)


def test_look_ups_among_scattered_ranges_do_not_grow_with_their_number() -> None:
    """20,000 ranges: each new one is found by halving, not by looking at all of them."""
    reader, number = reader_of(None), 20_000
    Counted.comparisons = 0
    for place in range(number):
        first = Counted(place * 7919 % number * 40)  # in no order
        assert not reader.join(first, "client")
        reader.request(first, 16, "client")
    assert reader.outstanding == number
    assert Counted.comparisons <= 4 * 16 * number  # quadratic: 200 million


@pytest.mark.parametrize("seed", range(20))
def test_ranges_never_overlap_and_are_found(seed: int) -> None:
    """Against a plain set of transactions."""
    rng = random.Random(seed)
    reader, wanted = reader_of(None), set[int]()
    for _ in range(300):
        first, count = rng.randrange(500), rng.randrange(1, 40)
        assert reader.covers(first) == (first in wanted)
        if first not in wanted:
            end = next((n for n in range(first, first + count) if n in wanted), first + count)
            wanted.update(range(first, end))
        reader.request(first, count, rng.randrange(3))
    for gone in range(3):
        reader.forget(gone)
    assert reader.outstanding == 0
    assert not any(reader.covers(n) for n in range(600))


async def test_clients_take_turns_at_the_storage_nodes() -> None:
    """One asks for a thousand transactions far apart; another one, later, for three: it waits for three
    turns, not for all."""
    store = Store()
    reader = reader_of(store)
    for place in range(1000):
        reader.request(place * 100, 1, "many")
    for place in range(3):
        reader.request(50 + place * 100, 1, "few")
    async with asyncio.timeout(10), asyncio.TaskGroup() as tasks:
        task = tasks.create_task(reader.run())
        while len(store.asked) < 20:
            store.gate.release()
            await asyncio.sleep(0)
        task.cancel()
    few = [number for number, (first, _) in enumerate(store.asked) if first % 100 == 50]
    assert few == [1, 3, 5]


async def test_what_only_a_client_that_has_gone_wanted_is_not_read() -> None:
    store = Store()
    reader = reader_of(store)
    for place in range(1000):
        reader.request(place * 100, 10, "gone")
    assert reader.join(40_005, "here")
    reader.forget("gone")
    assert reader.outstanding == 1
    async with asyncio.TaskGroup() as tasks:
        task = tasks.create_task(reader.run())
        for _ in range(20):
            store.gate.release()
            await asyncio.sleep(0)
        task.cancel()
    assert store.asked == [(40_000, 10)]
    assert reader.outstanding == 0


async def test_the_other_reader_of_a_range_is_served_when_the_first_one_goes() -> None:
    async with PartitionRig(records=200, transaction_cache_bytes=0) as rig:
        first, second = FakeClient(1), FakeClient(2)
        rig.store.gate.clear()
        for n in range(0, 200, 20):
            rig.read(first, n)
        asked = rig.read(second, 183)
        rig.partition.client_closed(first)
        rig.store.gate.set()
        await rig.until(lambda: bool(second.messages()))
        assert second.of(TransactionDataResponse)[0].req_id == asked
        assert second.of(TransactionDataResponse)[0].data == b"old"


async def test_connections_that_come_ask_and_go_leave_nothing_to_be_read() -> None:
    async with PartitionRig(records=3000, transaction_cache_bytes=0) as rig:
        rig.store.gate.clear()
        for number in range(20):
            client = FakeClient(number)
            for n in range(number, 3000, 40):
                rig.read(client, n)
            await rig.turns(2)
            rig.partition.client_closed(client)
        assert rig.partition._reader.outstanding <= 5  # those under way
        assert rig.partition._data._total == 0
        assert rig.partition._data._waiting == {}
        rig.store.gate.set()
        await rig.turns()


async def test_feeds_of_blocks_that_have_ended_leave_nothing_to_be_read() -> None:
    async with PartitionRig(records=30_000, transaction_cache_bytes=0) as rig:
        rig.store.gate.clear()
        client, other = block_reader(1), block_reader(2)
        feeds = rig.partition.block_feeds_of(client)
        for number in range(20):
            ended = open_feed(rig, client, number * 1400, credit=1)
            await rig.turns(2)
            if number == 10:
                open_feed(rig, other, 10 * 1400 + 300, 10 * 1400 + 310)
                await rig.turns(2)
            feeds.end(client, ended.pack())
        reading, of_the_other = 4 + 1, 4
        assert rig.partition._reader.outstanding <= reading + of_the_other
        rig.store.gate.set()
        await rig.until(lambda: len(ids(other)) == 10)
        assert len(rig.store.reads) <= reading + of_the_other


async def test_a_feed_that_is_moved_leaves_nothing_to_be_read_at_its_old_places() -> None:
    async with PartitionRig(records=200_000, feed_cache_bytes=0) as rig:
        client = FakeClient(1)
        await rig.mount(client)
        rig.store.gate.clear()
        moved = rig.feed(client, 0)
        for place in range(1, 40):
            await rig.turns(2)
            rig.feed(client, place * 4_500, moved)
        await rig.turns(2)
        assert rig.partition._reader.outstanding <= 4 + 2  # being read, and at the last place
        rig.partition.unmount(client)
        assert rig.partition._reader.outstanding <= 4 + 1
        rig.store.gate.set()
        await rig.turns()


async def test_requests_of_all_connections_together_are_bounded_and_a_small_one_has_its_place(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(data_reads, "MAX_WAITING_TOGETHER", 90)
    async with PartitionRig(records=400, transaction_cache_bytes=0) as rig:
        rig.store.gate.clear()
        greedy = [FakeClient(number) for number in range(3)]
        for client in greedy:
            for n in range(200):
                rig.read(client, n)
        assert rig.partition._data._total <= 90 + 90 // 2 + 90 // 3  # each later one has its share
        modest = FakeClient(9)
        rig.read(modest, 300)
        assert modest.messages() == []  # it waits
        refused = [message.error for client in greedy for message in client.of(TransactionDataResponse)]
        assert set(refused) == {"too many requests"}
        rig.store.gate.set()
        await rig.until(lambda: bool(modest.messages()))
        assert modest.of(TransactionDataResponse)[0].data == b"old"
        await rig.until(lambda: all(len(client.messages()) == 200 for client in greedy))


async def test_a_connection_that_drains_is_answered_in_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(data_reads, "ANSWERS_PER_TURN", 10)
    async with PartitionRig(records=1) as rig:
        client = FakeClient()
        rig.read(client, 0)
        await rig.until(lambda: bool(client.messages()))
        client.clear()
        client.writable = False
        for _ in range(95):
            rig.read(client, 0)
        client.drain()
        seen = [len(client.messages())]
        while seen[-1] < 95:
            await asyncio.sleep(0)
            seen.append(len(client.messages()))
            assert len(seen) < 100
        assert max(after - before for before, after in itertools.pairwise(seen)) <= 10


async def test_a_partition_that_leaves_refuses_in_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(data_reads, "ANSWERS_PER_TURN", 10)
    async with PartitionRig(records=400, transaction_cache_bytes=0) as rig:
        rig.store.gate.clear()
        client = FakeClient()
        for n in range(95):
            rig.read(client, n)
        rig.partition.close()
        assert len(client.messages()) == 10
        await rig.turns()
        assert [m.error for m in client.of(TransactionDataResponse)] == ["partition not ready"] * 95


async def test_a_range_ends_where_the_next_one_begins() -> None:
    async with PartitionRig(records=100) as rig:
        reader = rig.partition._reader
        rig.store.gate.clear()
        reader.request(50, 20)
        reader.request(40, 30)
        assert [(wanted.first, wanted.end) for wanted in reader._ranges] == [(40, 50), (50, 70)]
        rig.store.gate.set()
        await rig.until(lambda: reader.outstanding == 0)


async def test_who_has_gone_is_not_answered_where_somebody_else_waits_for_the_same() -> None:
    async with PartitionRig(records=3) as rig:
        gone, here = FakeClient(1), FakeClient(2)
        rig.store.gate.clear()
        rig.read(gone, 1)
        rig.read(here, 1)
        rig.partition.client_closed(gone)
        rig.store.gate.set()
        await rig.until(lambda: bool(here.stream))
        assert gone.stream == b""
