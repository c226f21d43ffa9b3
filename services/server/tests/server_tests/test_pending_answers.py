"""Mounts and flushes: what they wait for and what they promise (safety D4, D5)."""

import asyncio

import pytest

from waltz_protocol.messages.client import (
    FeedData,
    FlushResponse,
    HighWaterMarkResponse,
    MountResponse,
    MountState,
)
from waltz_server.partition.owned_partition import PartitionSettings
from waltz_server.store.api import StoreState
from waltz_testkit.client_peers import FakeClient
from waltz_testkit.partition_rig import GENERATION, PartitionRig


async def test_mount_at_the_mark_is_ready_without_data() -> None:
    async with PartitionRig(records=5) as rig:
        client = FakeClient()
        req_id = rig.req_id(client)
        rig.partition.mount(client, req_id.pack(), GENERATION, 4)
        await rig.turns()
        assert client.messages() == [MountResponse(req_id, MountState.READY)]
        assert client.mounts[3][1] == req_id.pack()


async def test_mount_behind_gets_exactly_the_gap_and_then_ready() -> None:
    async with PartitionRig(records=5) as rig:
        client = FakeClient()
        req_id = rig.req_id(client)
        rig.partition.mount(client, req_id.pack(), GENERATION, 1)
        await rig.until(lambda: len(client.messages()) == 4)
        assert client.fed() == [2, 3, 4]
        assert client.messages()[-1] == MountResponse(req_id, MountState.READY)
        rig.append(client)
        await rig.turns()
        assert client.fed() == [2, 3, 4]  # nothing before a feed request


async def test_mount_ahead_is_told_so_and_the_connection_stays() -> None:
    async with PartitionRig(records=5) as rig:
        client = FakeClient()
        req_id = rig.req_id(client)
        rig.partition.mount(client, req_id.pack(), GENERATION, 5)
        await rig.turns()
        assert client.messages() == [MountResponse(req_id, MountState.CLIENT_AHEAD)]
        assert not client.closed


async def test_safety_d5_flush_waits_for_earlier_appends_only() -> None:
    async with PartitionRig(auto_commit=False) as rig:
        client = FakeClient()
        await rig.mount(client)
        client.clear()
        rig.append(client, hwm=-1)
        flush = rig.flush(client)
        rig.append(client, hwm=-1)
        await rig.turns()
        assert client.messages() == []
        rig.store.commit_next(1)
        await rig.turns()
        assert client.messages() == [FlushResponse(flush, 0)]
        assert rig.store.pending == 1


async def test_safety_d5_flush_waits_for_all_earlier_appends_whatever_the_order_of_their_outcomes() -> None:
    async with PartitionRig(auto_commit=False) as rig:
        client = FakeClient()
        await rig.mount(client)
        client.clear()
        for _ in range(3):
            rig.append(client, hwm=-1)
        flush = rig.flush(client)
        await rig.turns()
        rig.store.commit_next(1)
        await rig.turns()
        assert client.messages() == []
        rig.store.lose_session("gone")
        first, second = rig.store._pending
        rig.store._pending.remove(second)
        rig.partition.failed([second])
        await rig.turns()
        rig.store.settle(committed=1)
        assert first.transaction_id == 1
        rig.store.open_session()
        await rig.turns()
        assert client.messages() == [FlushResponse(flush, 1)]


async def test_safety_d5_flush_waits_until_a_lost_session_is_settled() -> None:
    async with PartitionRig(auto_commit=False) as rig:
        client = FakeClient()
        await rig.mount(client)
        client.clear()
        rig.append(client, hwm=-1)
        await rig.turns()
        rig.store.lose_session("gone")
        flush = rig.flush(client)
        await rig.turns()
        assert client.messages() == []
        rig.store.settle(committed=1)
        await rig.turns()
        assert client.messages() == []
        rig.store.open_session()
        await rig.turns()
        assert client.messages() == [FlushResponse(flush, 0)]


@pytest.mark.parametrize("kind", ["mount", "ahead", "flush"])
async def test_safety_d4_no_answer_without_confirmation(kind: str) -> None:
    async with PartitionRig(records=1) as rig:
        client = FakeClient()
        rig.store.confirm_error = "a newer session exists"
        if kind == "flush":
            rig.flush(client)
        else:
            rig.partition.mount(client, rig.req_id(client).pack(), GENERATION, 9 if kind == "ahead" else 0)
        await rig.turns()
        assert rig.store.confirm_calls == 1
        assert client.messages() == []
        rig.store.confirm_error = None
        await rig.until(lambda: len(client.messages()) == 1)
        assert rig.store.confirm_calls == 2


async def test_safety_d4_confirmation_starts_after_earlier_appends_are_resolved() -> None:
    async with PartitionRig(auto_commit=False) as rig:
        client = FakeClient()
        await rig.mount(client)
        calls = rig.store.confirm_calls
        rig.append(client, hwm=-1)
        rig.flush(client)
        await rig.turns()
        assert rig.store.confirm_calls == calls
        rig.store.commit_next()
        await rig.turns()
        assert rig.store.confirm_calls == calls + 1


async def test_safety_d4_a_request_that_comes_during_a_confirmation_needs_its_own() -> None:
    async with PartitionRig() as rig:
        one, two = FakeClient(1), FakeClient(2)
        rig.store.confirm_gate.clear()
        first = rig.flush(one)
        await rig.turns()
        second = rig.flush(two)
        await rig.turns()
        rig.store.confirm_gate.set()
        await rig.turns(2)
        assert one.messages() == [FlushResponse(first, -1)]
        await rig.turns()
        assert two.messages() == [FlushResponse(second, -1)]
        assert rig.store.confirm_calls == 2


async def test_safety_d4_higher_generation_waits_until_the_server_has_heard_of_it() -> None:
    async with PartitionRig(records=1) as rig:
        client = FakeClient()
        req_id = rig.req_id(client, GENERATION + 1)
        rig.partition.mount(client, req_id.pack(), GENERATION + 1, 0)
        flush = rig.flush(client, GENERATION + 1)
        await rig.turns()
        assert client.messages() == []
        rig.partition.set_generation(GENERATION + 1)
        await rig.turns()
        assert client.messages() == [MountResponse(req_id, MountState.READY), FlushResponse(flush, 0)]


async def test_client_server_13_11_mount_that_cannot_be_flushed_is_not_ready_in_time() -> None:
    async with PartitionRig(open_at_once=False, settings=PartitionSettings(mount_wait_seconds=0.05)) as rig:
        client = FakeClient()
        req_id = rig.req_id(client)
        rig.partition.mount(client, req_id.pack(), GENERATION, -1)
        flush = rig.flush(client)
        await rig.until(lambda: bool(client.stream))
        assert client.messages() == [MountResponse(req_id, MountState.NOT_READY)]
        rig.store.open_session()
        await rig.turns()
        assert client.messages()[1:] == [FlushResponse(flush, -1)]


async def test_client_server_13_10_loser_of_the_place_is_told_not_ready() -> None:
    async with PartitionRig() as rig:
        first, second = FakeClient(1), FakeClient(1)
        await rig.mount(first)
        req_id = rig.req_id(second)
        rig.partition.mount(second, req_id.pack(), GENERATION, -1)
        assert second.messages() == [MountResponse(req_id, MountState.NOT_READY)]
        rig.partition.client_closed(first)
        await rig.mount(second)


async def test_a_connection_fenced_while_its_mount_waits_is_not_told_ready() -> None:
    async with PartitionRig() as rig:
        old, new = FakeClient(1, seq_num=0), FakeClient(1, seq_num=1)
        rig.store.confirm_gate.clear()
        req_id = rig.req_id(old)
        rig.partition.mount(old, req_id.pack(), GENERATION, -1)
        await rig.turns()
        rig.partition.mount(new, rig.req_id(new).pack(), GENERATION, -1)
        rig.store.confirm_gate.set()
        await rig.turns()
        assert old.messages() == [MountResponse(req_id, MountState.NOT_READY)]
        assert [m.state for m in new.of(MountResponse)] == [MountState.READY]


async def test_too_many_markers_are_refused() -> None:
    async with PartitionRig(open_at_once=False, settings=PartitionSettings(max_markers=2)) as rig:
        client = FakeClient()
        rig.flush(client)
        rig.flush(client)
        req_id = rig.req_id(client)
        rig.partition.mount(client, req_id.pack(), GENERATION, -1)
        rig.flush(client)
        assert client.messages() == [MountResponse(req_id, MountState.NOT_READY)]


async def test_markers_of_a_dead_connection_are_forgotten() -> None:
    async with PartitionRig(open_at_once=False) as rig:
        client = FakeClient()
        rig.flush(client)
        rig.partition.mount(client, rig.req_id(client).pack(), GENERATION, -1)
        rig.partition.client_closed(client)
        rig.store.open_session()
        await rig.turns()
        assert client.stream == b""
        assert rig.store.confirm_calls == 0


async def test_client_server_13_17_high_water_mark_waits_until_it_is_known() -> None:
    settings = PartitionSettings(max_high_water_mark_waiters=2)
    async with PartitionRig(records=4, open_at_once=False, settings=settings) as rig:
        client = FakeClient()
        asked = [rig.req_id(client) for _ in range(3)]
        for req_id in asked:
            rig.partition.high_water_mark_request(client, req_id.pack())
        assert client.messages() == []
        rig.store.open_session()
        assert client.messages() == [HighWaterMarkResponse(req_id, 3) for req_id in asked[:2]]
        client.clear()
        rig.partition.high_water_mark_request(client, asked[2].pack())
        assert client.messages() == [HighWaterMarkResponse(asked[2], 3)]


async def test_client_server_13_20_feed_request_ahead_is_answered_and_closes_nothing() -> None:
    async with PartitionRig(records=2) as rig:
        client = FakeClient()
        await rig.mount(client)
        client.clear()
        req_id = rig.feed(client, 5)
        await rig.turns()
        assert client.messages() == [MountResponse(req_id, MountState.CLIENT_AHEAD)]
        assert not client.closed


async def test_feed_request_ahead_opens_the_feed_when_the_appends_before_it_bring_the_mark_up() -> None:
    async with PartitionRig(auto_commit=False) as rig:
        client = FakeClient()
        await rig.mount(client)
        client.clear()
        sent = rig.append(client, hwm=-1)
        rig.feed(client, 0)
        await rig.turns()
        rig.store.commit_next()
        await rig.turns()
        second = rig.append(client, hwm=0)
        await rig.turns()
        rig.store.commit_next()
        await rig.turns()
        assert sent in rig.logged()
        assert client.messages() == [FeedData(second, 1, 0)]


async def test_feed_request_without_mount_is_dropped() -> None:
    async with PartitionRig(records=2) as rig:
        client = FakeClient()
        rig.feed(client, -1)
        await rig.turns()
        assert client.stream == b""


async def test_stale_owner_answers_no_flush() -> None:
    """Its session is lost for good: the flush of a client stays without an answer, its mount is refused in
    time."""
    async with PartitionRig(settings=PartitionSettings(mount_wait_seconds=0.05)) as rig:
        client = FakeClient()
        await rig.mount(client)
        rig.append(client)
        await rig.turns()
        client.clear()
        rig.store.lose_session("fenced", StoreState.FAULT)
        rig.flush(client)
        req_id = rig.req_id(client)
        rig.partition.mount(client, req_id.pack(), GENERATION, 0)
        await rig.until(lambda: bool(client.stream))
        await asyncio.sleep(0)
        assert client.messages() == [MountResponse(req_id, MountState.NOT_READY)]
