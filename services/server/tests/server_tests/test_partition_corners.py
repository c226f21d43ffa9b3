"""A partition whose clients leave, stop reading or ask too early, and whose store changes its mind, at the
worst moment."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from waltz_protocol.messages.client import (
    FeedData,
    FlushResponse,
    HighWaterMarkResponse,
    TransactionDataResponse,
)
from waltz_server.partition import append as append_module
from waltz_server.partition import data_reads
from waltz_server.partition.owned_partition import PartitionError, PartitionSettings
from waltz_server.store.api import AppendEntry, StoreNotOpenError, StoreState
from waltz_server.store.record_run import RecordRun
from waltz_testkit.client_peers import FakeClient
from waltz_testkit.partition_rig import GENERATION, PartitionRig, wire_record

SMALL = PartitionSettings(min_fetch_size=3, realtime_threshold=20)


async def test_a_store_that_closes_between_two_hand_overs_gets_the_rest_in_order_later(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The hand-over in the middle of a turn is refused: its appends go back to the head of the queue, marks
    removed."""
    monkeypatch.setattr(append_module, "_HAND_OVER_BYTES", 1)
    async with PartitionRig(auto_commit=False) as rig:
        client = FakeClient()
        await rig.mount(client)
        taken: list[int] = []
        hand_over = rig.store.append

        def refuses_the_second(entries: Sequence[AppendEntry]) -> None:
            taken.append(len(entries))
            if len(taken) == 2:
                raise StoreNotOpenError("gone just now")
            hand_over(entries)

        rig.store.append = refuses_the_second  # type: ignore[method-assign]
        sent = [rig.append(client, write=(n,)) for n in range(4)]
        await rig.turns()
        assert taken == [1, 1]
        rig.partition.store_writable()
        await rig.turns()
        rig.store.commit_next()
        await rig.turns()
        assert rig.logged() == sent


async def test_entries_without_the_context_they_were_given_are_refused() -> None:
    with pytest.raises(ExceptionGroup) as caught:
        async with PartitionRig(auto_commit=False) as rig:
            client = FakeClient()
            await rig.mount(client)
            rig.append(client)
            await rig.turns()
            rig.partition.committed([AppendEntry(bytes(16), GENERATION, bytes(12), transaction_id=0)])
            closed = rig.partition.closed
            await rig.turns()
    assert closed
    assert caught.group_contains(PartitionError, match="without the context")


async def test_a_session_that_opens_with_appends_unsettled_is_a_fault() -> None:
    with pytest.raises(ExceptionGroup) as caught:
        async with PartitionRig(auto_commit=False) as rig:
            client = FakeClient()
            await rig.mount(client)
            rig.append(client)
            await rig.turns()
            rig.partition.session_opened(-1)
            assert not rig.partition.healthy
            assert "1 appends were left unsettled" in rig.partition.reason
            await rig.turns()
    assert caught.group_contains(PartitionError, match="left unsettled")


async def test_appends_wait_for_the_first_session_and_a_closed_partition_takes_none() -> None:
    async with PartitionRig(open_at_once=False) as rig:
        client = FakeClient()
        rig.partition.mount(client, rig.req_id(client).pack(), GENERATION, -1)
        rig.append(client)
        rig.partition.store_writable()
        await rig.turns()
        assert rig.store.pending == 0
        rig.store.open_session()
        await rig.turns()
        assert len(rig.store.log) == 1
        rig.append(client)
        rig.partition.close()
        await rig.turns()
        rig.partition.session_lost("late news")
        rig.partition.failed([])
        rig.partition.committed([])
        assert len(rig.store.log) == 1


async def test_news_of_an_older_generation_change_nothing() -> None:
    async with PartitionRig() as rig:
        rig.partition.set_generation(GENERATION - 1)
        assert rig.partition.generation == GENERATION


async def test_who_asks_for_the_mark_too_early_is_told_once_or_forgotten() -> None:
    settings = PartitionSettings(max_high_water_mark_waiters=2)
    async with PartitionRig(open_at_once=False, settings=settings, records=3) as rig:
        stays, leaves, late = FakeClient(1), FakeClient(2), FakeClient(3)
        asked = rig.req_id(stays)
        rig.partition.high_water_mark_request(stays, asked.pack())
        rig.partition.high_water_mark_request(leaves, rig.req_id(leaves).pack())
        for _ in range(3):  # one more than a connection may have waiting; others have their own
            rig.partition.high_water_mark_request(late, rig.req_id(late).pack())
        rig.partition.client_closed(leaves)
        rig.store.open_session()
        assert stays.messages() == [HighWaterMarkResponse(asked, 2)]
        assert leaves.stream == b""
        assert len(late.messages()) == 2


async def test_a_feed_before_the_first_session_is_dropped() -> None:
    async with PartitionRig(open_at_once=False) as rig:
        client = FakeClient()
        rig.feed(client, -1)
        await rig.turns()
        assert client.stream == b""


async def test_a_feed_ahead_of_the_log_waits_for_a_confirmed_mark(monkeypatch: pytest.MonkeyPatch) -> None:
    settings = PartitionSettings(max_markers=1)
    async with PartitionRig(records=3, settings=settings) as rig:
        client = FakeClient()
        await rig.mount(client)
        client.clear()
        rig.store.confirm_gate.clear()
        rig.feed(client, 10)
        rig.feed(client, 11)  # one more than may wait
        await rig.turns()
        assert client.stream == b""
        rig.store.confirm_gate.set()
        await rig.turns()
        assert len(client.messages()) <= 1


async def test_clients_that_left_get_nothing_and_hold_up_nobody() -> None:
    """Closed, but the partition was not told yet: at the tip, in the cache, while storage reads, when it
    drains."""
    async with PartitionRig(records=10, settings=SMALL) as rig:
        stays, tip, reading = FakeClient(1), FakeClient(2), FakeClient(3)
        for client in (stays, tip, reading):
            await rig.mount(client)
            client.clear()
        rig.feed(tip, 9)
        rig.feed(stays, 9)
        rig.store.gate.clear()
        rig.feed(reading, -1)
        await rig.turns()
        for client in (tip, reading):
            client.close("the network is gone")
        rig.store.gate.set()
        rig.append(stays)
        await rig.turns()
        assert stays.fed() == [10]
        assert tip.stream == reading.stream == b""
        rig.feed(tip, 3)  # a request that was read before the connection broke
        await rig.turns()
        assert tip.stream == b""
        assert len(rig.partition._feeds) == 1


async def test_two_feeds_of_a_client_that_does_not_read_wait_together() -> None:
    async with PartitionRig(records=30, settings=SMALL) as rig:
        client = FakeClient()
        await rig.mount(client)
        client.clear()
        rig.feed(client, 20)
        await rig.until(lambda: client.fed() == list(range(21, 30)))  # all of it is in the cache now
        client.clear()
        client.writable = False
        rig.feed(client, 22)
        rig.feed(client, 25)
        await rig.turns()
        assert client.stream == b""
        client.drain()
        await rig.until(lambda: len(client.of(FeedData)) == 7 + 4)


async def test_feeds_at_the_tip_follow_a_log_that_grew_elsewhere() -> None:
    async with PartitionRig(records=3, settings=SMALL) as rig:
        client = FakeClient()
        await rig.mount(client)
        client.clear()
        rig.feed(client, 2)
        await rig.turns()
        rig.store.lose_session("another owner")
        rig.store.log += PartitionRig(records=6)._records[3:]
        rig.store.open_session()
        await rig.until(lambda: client.fed() == [3, 4, 5])


async def test_data_requests_of_a_client_that_does_not_read_are_put_aside_in_order(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(data_reads, "MAX_WAITING", 3)
    async with PartitionRig(records=10) as rig:
        slow, gone, greedy = FakeClient(1, buffer_bytes=10), FakeClient(2), FakeClient(3)
        for n in range(3):
            rig.read(slow, n)
        gone.writable = greedy.writable = False
        rig.read(gone, 1)
        gone.close("the network is gone")
        rig.read(gone, 2)
        for n in range(4):
            rig.read(greedy, n)
        assert greedy.closed
        await rig.turns()
        while len(slow.of(TransactionDataResponse)) < 3:
            slow.drain()
            await rig.turns()
        assert [m.transaction_id for m in slow.of(TransactionDataResponse)] == [0, 1, 2]
        slow.drain()
        parked: list[object] = []
        monkeypatch.setattr(slow, "park", parked.append)
        slow.writable = False
        await rig.turns()
        assert parked == [], "nothing of it is put aside any longer"
        rig.partition.client_closed(gone)
        gone.drain()
        assert gone.stream == b""


async def test_who_waits_for_data_when_the_partition_leaves_is_told_so() -> None:
    async with PartitionRig(records=10) as rig:
        reads, aside = FakeClient(1), FakeClient(2)
        aside.writable = False
        rig.store.gate.clear()
        rig.read(reads, 1)
        rig.read(aside, 2)
        await rig.turns()
        rig.partition.close()
        for client in (reads, aside):
            (answer,) = client.of(TransactionDataResponse)
            assert answer.error is not None
        rig.store.gate.set()


async def test_a_closed_reader_leaves_those_who_wait_for_the_same_record() -> None:
    async with PartitionRig(records=10) as rig:
        one, two = FakeClient(1), FakeClient(2)
        rig.store.gate.clear()
        for client in (one, two):
            rig.read(client, 4)
            rig.read(client, 5)
        rig.partition.client_closed(one)
        rig.store.gate.set()
        await rig.until(lambda: len(two.of(TransactionDataResponse)) == 2)
        assert one.stream == b""


async def test_a_flush_of_a_store_that_cannot_confirm_is_answered_by_the_next_session() -> None:
    async with PartitionRig() as rig:
        client = FakeClient()
        await rig.mount(client)
        client.clear()
        rig.store.confirm_error = "fenced"
        asked = rig.flush(client)
        await asyncio.sleep(0.05)
        assert client.messages() == []
        rig.store.confirm_error = None
        await rig.until(lambda: client.messages() == [FlushResponse(asked, -1)])
        assert rig.store.state is StoreState.OPEN


@pytest.mark.parametrize("first", [1, 3])
async def test_safety_d1_commits_that_do_not_follow_the_mark_are_a_fault(first: int) -> None:
    """Twice the same id, or one left out: nothing of it is shown."""
    rig = PartitionRig(records=2, auto_commit=False)
    with pytest.raises(ExceptionGroup) as ended:
        async with rig:
            client = FakeClient()
            await rig.mount(client)
            client.clear()
            entry = AppendEntry(rig.req_id(client).pack(), GENERATION, wire_record(first)[24:])
            entry.transaction_id = first
            rig.partition.committed([entry])
            await rig.turns()
            assert rig.partition.high_water_mark == 1
            assert client.of(FeedData) == []
    assert ended.group_contains(PartitionError, match=f"transaction {first} was committed after 1")


async def test_safety_d1_a_read_that_brings_more_than_is_committed_shows_no_more() -> None:
    """The store says less than its nodes hold; should it not, neither feeds nor caches pass it on."""
    async with PartitionRig(records=5, feed_cache_bytes=1, transaction_cache_bytes=100_000) as rig:
        client = FakeClient()
        await rig.mount(client)
        client.clear()
        read = rig.store.read

        async def too_much(first: int, max_count: int, max_bytes: int = 1 << 20) -> RecordRun:
            records = (await read(first, max_count, max_bytes)).records
            more = [wire_record(first + len(records) + n) for n in range(3)]
            return RecordRun.of_records(first, records + more)

        rig.store.read = too_much  # type: ignore[method-assign]
        rig.feed(client, 0)
        asked = rig.read(client, 4)
        await rig.turns()
        assert client.fed() == [1, 2, 3, 4]
        assert [answer.req_id for answer in client.of(TransactionDataResponse)] == [asked]
        client.clear()
        rig.read(client, 5)
        await rig.turns()
        assert [answer.data for answer in client.of(TransactionDataResponse)] == [None]
