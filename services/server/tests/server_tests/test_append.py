"""Appends: order, locks, generations, bounds, lost sessions."""

from collections.abc import Sequence

import pytest

from waltz_protocol.messages.client import FeedData, FlushResponse, LockFailure, MountResponse, MountState
from waltz_protocol.types import ReqId
from waltz_server.partition.owned_partition import PartitionError, PartitionSettings
from waltz_server.partition.queue_room import AppendBounds
from waltz_server.store.api import AppendEntry, StoreState
from waltz_testkit.client_peers import FakeClient, make_append
from waltz_testkit.partition_rig import GENERATION, PartitionRig, wire_record


async def test_appends_of_one_turn_are_handed_over_in_one_call_in_order() -> None:
    async with PartitionRig(auto_commit=False) as rig:
        one, two = FakeClient(1), FakeClient(2)
        await rig.mount(one)
        await rig.mount(two)
        sizes: list[int] = []
        hand_over = rig.store.append

        def counted(entries: Sequence[AppendEntry]) -> None:
            sizes.append(len(entries))
            hand_over(entries)

        rig.store.append = counted  # type: ignore[method-assign]
        sent = [rig.append(client) for client in (one, two, one, two)]
        await rig.turns()
        assert sizes == [4]
        rig.store.commit_next()
        assert rig.logged() == sent


async def test_append_without_mount_is_dropped_in_silence() -> None:
    async with PartitionRig() as rig:
        client = FakeClient()
        rig.append(client)
        await rig.turns()
        assert rig.store.log == []
        assert client.stream == b""
        assert rig.count("dropped-not-mounted") == 1


@pytest.mark.parametrize("generation", [GENERATION - 1, GENERATION + 1])
async def test_other_generation_is_dropped_in_silence(generation: int) -> None:
    async with PartitionRig() as rig:
        client = FakeClient()
        await rig.mount(client)
        client.clear()
        rig.append(client, generation=generation)
        await rig.turns()
        assert rig.store.log == []
        assert client.stream == b""


async def test_generation_is_checked_when_the_append_is_processed() -> None:
    """The number can rise between arrival and processing; equality counts at processing."""
    async with PartitionRig(open_at_once=False) as rig:
        client = FakeClient()
        rig.partition.mount(client, rig.req_id(client).pack(), GENERATION, -1)
        rig.append(client, hwm=-1)
        newer = rig.append(client, hwm=-1, generation=GENERATION + 1)
        rig.partition.set_generation(GENERATION + 1)
        rig.store.open_session()
        await rig.turns()
        assert rig.logged() == [newer]
        assert rig.store.generation == GENERATION + 1


@pytest.mark.parametrize("version", range(5))
@pytest.mark.parametrize("view", [3, 10**9, 2**63 - 1])
async def test_safety_d9_a_view_beyond_the_log_is_refused(version: int, view: int) -> None:
    """No lock could ever conflict with it. LOCK_FAILURE with our mark is the refusal that every version
    has."""
    async with PartitionRig(records=3) as rig:
        client = FakeClient(version=version)
        await rig.mount(client)
        client.clear()
        refused = rig.append(client, hwm=view, write=(5,))
        if version >= 1:
            rig.append(client, hwm=view, read=(5,))
        honest = rig.append(client, hwm=2, write=(5,))
        await rig.turns()
        assert rig.logged()[3:] == [honest]
        assert client.of(LockFailure)[0] == LockFailure(refused, 2)
        assert len(client.of(LockFailure)) == rig.count("append-refused-view-ahead") == min(version, 1) + 1
        assert "the log of partition 3 ends at 2" in client.misdeeds[0]


async def test_safety_d9_a_view_is_held_against_the_mark_when_the_append_is_decided() -> None:
    """Not when it arrives: the mark of a recovery, and of the commits before it in the queue, counts."""
    async with PartitionRig(records=3, open_at_once=False) as rig:
        client = FakeClient()
        rig.partition.mount(client, rig.req_id(client).pack(), GENERATION, 2)
        first = rig.append(client, hwm=2, write=(5,))
        ahead = rig.append(client, hwm=3, write=(6,))
        rig.store.open_session()
        await rig.turns()
        assert rig.logged()[3:] == [first]
        assert client.of(LockFailure) == [LockFailure(ahead, 2)]  # nobody can have seen what is not committed


async def test_a_view_that_checks_nothing_may_be_anything() -> None:
    """Without write and read locks the view is not used; tools of 0.13.2 may send what they like."""
    async with PartitionRig() as rig:
        client = FakeClient()
        await rig.mount(client)
        sent = [rig.append(client, hwm=10**9), rig.append(client, hwm=10**9, append=(5,))]
        await rig.turns()
        assert rig.logged() == sent


async def test_stale_generation_can_still_fail_on_a_lock() -> None:
    async with PartitionRig() as rig:
        client = FakeClient()
        await rig.mount(client)
        rig.append(client, write=(5,))
        await rig.turns()
        stale = rig.append(client, write=(5,), hwm=-1, generation=GENERATION - 1)
        await rig.turns()
        assert client.of(LockFailure) == [LockFailure(stale, 0)]


async def test_lock_failure_names_a_committed_transaction_and_equal_mark_passes() -> None:
    async with PartitionRig() as rig:
        client = FakeClient()
        await rig.mount(client)
        rig.append(client, write=(5,))
        rig.append(client, append=(6,))
        await rig.turns()
        by_write = rig.append(client, write=(5,), hwm=-1)
        by_read = rig.append(client, read=(6,), hwm=0)
        appended = rig.append(client, append=(5, 6), hwm=-1)
        passed = rig.append(client, write=(5,), hwm=rig.store.high_water_mark or 0)
        await rig.turns()
        assert client.of(LockFailure)[:2] == [LockFailure(by_write, 0), LockFailure(by_read, 1)]
        assert rig.logged()[2] == appended
        assert passed not in rig.logged()  # its lock was appended to by transaction 2 meanwhile
        assert client.of(LockFailure)[2] == LockFailure(passed, 2)
        accepted = rig.append(client, write=(5,), hwm=2)
        await rig.turns()
        assert rig.logged()[3] == accepted


async def test_overlapping_locks_wait_for_the_commit_and_others_go_together() -> None:
    async with PartitionRig(auto_commit=False) as rig:
        client = FakeClient()
        await rig.mount(client)
        first = rig.append(client, write=(5,), hwm=-1)
        second = rig.append(client, write=(6,), hwm=-1)
        third = rig.append(client, append=(5,), hwm=-1)
        fourth = rig.append(client, hwm=-1)
        await rig.turns()
        assert rig.store.pending == 2  # the fourth has no locks, and waits behind the third of its client
        rig.store.commit_next(1)
        await rig.turns()
        assert rig.store.pending == 3
        rig.store.commit_next()
        assert rig.logged() == [first, second, third, fourth]


async def test_locks_that_merely_share_slots_do_not_wait_for_each_other() -> None:
    async with PartitionRig(auto_commit=False, settings=PartitionSettings(lock_table_size=1)) as rig:
        client = FakeClient()
        await rig.mount(client)
        for lock in range(5):
            rig.append(client, write=(lock,), hwm=-1)
        await rig.turns()
        assert rig.store.pending == 5
        rig.store.commit_next()
        await rig.turns()
        spurious = rig.append(client, write=(9,), hwm=3)
        await rig.turns()
        assert client.of(LockFailure) == [LockFailure(spurious, 4)]  # a collision costs a retry, nothing else


async def test_safety_d6_read_locks_wait_for_marks_but_set_none() -> None:
    async with PartitionRig(auto_commit=False) as rig:
        client = FakeClient()
        await rig.mount(client)
        rig.append(client, read=(5,), hwm=-1)
        rig.append(client, read=(5,), hwm=-1)
        rig.append(client, write=(5,), hwm=-1)
        await rig.turns()
        assert rig.store.pending == 3
        reader = rig.append(client, read=(5,), hwm=-1)
        await rig.turns()
        assert rig.store.pending == 3
        rig.store.commit_next()
        await rig.turns()
        assert client.of(LockFailure) == [LockFailure(reader, 2)]


async def test_safety_d7_full_queue_drops_and_later_appends_are_accepted() -> None:
    bounds = PartitionSettings(append_bounds=AppendBounds(max_count=3, max_bytes=10_000))
    async with PartitionRig(settings=bounds, open_at_once=False) as rig:
        client = FakeClient()
        rig.partition.mount(client, rig.req_id(client).pack(), GENERATION, -1)
        kept = [rig.append(client, hwm=-1) for _ in range(3)]
        dropped = rig.append(client, hwm=-1)
        assert rig.count("append-dropped-queue-full") == 1
        rig.store.open_session()
        await rig.turns()
        later = rig.append(client, hwm=-1)
        flush = rig.flush(client)
        await rig.turns()
        assert rig.logged() == [*kept, later]
        assert dropped not in rig.logged()
        assert FlushResponse(flush, 3) in client.messages()


async def test_safety_d7_queue_is_bounded_in_bytes_but_takes_one_large_append() -> None:
    bounds = PartitionSettings(append_bounds=AppendBounds(max_count=100, max_bytes=1000))
    async with PartitionRig(settings=bounds, open_at_once=False) as rig:
        client = FakeClient()
        rig.partition.mount(client, rig.req_id(client).pack(), GENERATION, -1)
        large = rig.append(client, hwm=-1, data=b"x" * 5000)
        rig.append(client, hwm=-1)
        assert rig.count("append-dropped-queue-full") == 1
        rig.store.open_session()
        await rig.turns()
        assert rig.logged() == [large]


async def test_store_back_pressure_keeps_the_rest_in_the_queue() -> None:
    async with PartitionRig(auto_commit=False, max_in_flight_bytes=400) as rig:
        client = FakeClient()
        await rig.mount(client)
        sent = []
        for _ in range(3):
            sent.append(rig.append(client, hwm=-1, data=b"x" * 300))
            await rig.turns()
        assert rig.store.pending == 2
        rig.store.commit_next()
        await rig.turns()
        assert rig.store.pending == 1
        rig.store.commit_next()
        assert rig.logged() == sent


async def test_the_bound_on_records_in_flight_holds_nothing_up_for_good() -> None:
    """Whatever becomes of those in flight: committed one by one, or settled with more than the bound."""
    async with PartitionRig(auto_commit=False, max_in_flight_records=2) as rig:
        client = FakeClient()
        await rig.mount(client)
        sent = [rig.append(client, hwm=-1) for _ in range(5)]  # one hand-over may exceed it
        await rig.turns()
        sent += [rig.append(client, hwm=-1, write=(number,)) for number in range(4)]
        await rig.turns()
        assert (rig.store.pending, rig.store.writable) == (5, False)
        rig.store.commit_next(3)
        await rig.turns()
        assert rig.store.pending == 2
        rig.store.lose_session("a fail-over")
        rig.store.settle(committed=2)
        await rig.turns()
        assert rig.store.pending == 0
        rig.store.open_session()
        await rig.turns()
        assert rig.store.pending == 4
        sent.append(rig.append(client, hwm=-1))
        rig.store.commit_next(3)
        await rig.turns()
        rig.store.commit_next()
        assert rig.logged() == sent
        assert rig.partition._appends.room.count == 0


async def test_safety_d5_marks_of_a_lost_session_stay_until_settled() -> None:
    async with PartitionRig(auto_commit=False) as rig:
        client = FakeClient()
        await rig.mount(client)
        first = rig.append(client, write=(5,), hwm=-1)
        second = rig.append(client, write=(6,), hwm=-1)
        await rig.turns()
        rig.store.lose_session("the nodes went away")
        waiting = rig.append(client, write=(5,), hwm=-1)
        behind = rig.append(client, write=(6,), hwm=-1)
        await rig.turns()
        assert client.of(LockFailure) == []
        rig.store.settle(committed=1)
        rig.store.open_session()
        await rig.turns()
        assert client.of(LockFailure) == [LockFailure(waiting, 0)]
        rig.store.commit_next()
        assert rig.logged() == [first, behind]
        assert second not in rig.logged()


async def test_safety_d5_table_starts_at_the_mark_after_settlement() -> None:
    async with PartitionRig(records=10) as rig:
        client = FakeClient()
        await rig.mount(client)
        behind = rig.append(client, write=(5,), hwm=8)
        accepted = rig.append(client, write=(5,), hwm=9)
        await rig.turns()
        assert client.of(LockFailure) == [LockFailure(behind, 9)]
        assert rig.logged()[-1] == accepted


async def test_safety_d5_transactions_of_another_owner_raise_the_whole_table() -> None:
    """The partition went to another server and came back before this one noticed: nobody knows those
    locks."""
    async with PartitionRig(auto_commit=False) as rig:
        client = FakeClient()
        await rig.mount(client)
        rig.store.lose_session("fenced by another owner")
        rig.store.settle(foreign=[wire_record(0), wire_record(1)])
        rig.store.open_session()
        blind = rig.append(client, write=(5,), hwm=-1)
        knowing = rig.append(client, write=(5,), hwm=1)
        await rig.turns()
        assert client.of(LockFailure) == [LockFailure(blind, 1)]
        rig.store.commit_next()
        assert rig.logged()[2:] == [knowing]


async def test_session_lost_between_check_and_hand_over_puts_appends_back_in_order() -> None:
    async with PartitionRig(auto_commit=False) as rig:
        client = FakeClient()
        await rig.mount(client)
        sent = [rig.append(client, write=(n,), hwm=-1) for n in range(3)]
        hand_over = rig.store.append

        def gone(entries: object) -> None:
            rig.store.state = StoreState.RECOVERING
            hand_over([])

        rig.store.append = gone  # type: ignore[method-assign]
        await rig.turns()
        rig.store.append = hand_over  # type: ignore[method-assign]
        assert rig.store.pending == 0
        rig.store.open_session()
        await rig.turns()
        rig.store.commit_next()
        assert rig.logged() == sent


async def test_client_server_13_09_old_append_never_lands_behind_the_flush_of_a_newer_mount() -> None:
    """An append that was valid when it arrived, stalled, and is looked at again when its turn comes."""
    async with PartitionRig(open_at_once=False) as rig:
        old, new = FakeClient(1, seq_num=0), FakeClient(1, seq_num=1)
        rig.partition.mount(old, rig.req_id(old).pack(), GENERATION, -1)
        before = rig.append(old, hwm=-1)
        rig.partition.mount(new, rig.req_id(new).pack(), GENERATION, -1)
        rig.append(old, hwm=-1)
        rig.store.open_session()
        await rig.turns()
        rig.append(old, hwm=-1)
        await rig.turns()
        assert rig.logged() == [before]
        assert rig.count("dropped-not-mounted") == 2


async def test_client_server_13_09_append_validated_under_a_fenced_mount_is_dropped() -> None:
    """The second look itself, forced by an append that slipped behind the flush of the newer mount."""
    async with PartitionRig() as rig:
        old, new = FakeClient(1, seq_num=0), FakeClient(1, seq_num=1)
        await rig.mount(old)
        validated_under = rig.partition._mounts.valid(old)
        assert validated_under is not None
        await rig.mount(new)
        rig.partition._appends.add(validated_under, make_append(ReqId(1, GENERATION, 3, 999)))
        await rig.turns()
        assert rig.store.log == []
        assert rig.count("append-dropped-fenced") == 1


async def test_queued_appends_of_a_dead_connection_are_still_processed() -> None:
    async with PartitionRig(open_at_once=False) as rig:
        client = FakeClient()
        rig.partition.mount(client, rig.req_id(client).pack(), GENERATION, -1)
        sent = rig.append(client, hwm=-1)
        client.close("gone")
        rig.partition.client_closed(client)
        rig.store.open_session()
        await rig.turns()
        assert rig.logged() == [sent]


async def test_client_server_13_15_settled_failure_releases_its_marks() -> None:
    async with PartitionRig(auto_commit=False) as rig:
        client = FakeClient()
        await rig.mount(client)
        rig.append(client, write=(5,), hwm=-1)
        await rig.turns()
        rig.store.lose_session("gone")
        rig.store.settle(committed=0)
        rig.store.open_session()
        again = rig.append(client, write=(5,), hwm=-1)
        await rig.turns()
        rig.store.commit_next()
        assert rig.logged() == [again]
        assert client.of(LockFailure) == []


async def test_client_server_13_23_commit_reaches_the_realtime_feed_with_the_req_id_of_the_append() -> None:
    async with PartitionRig() as rig:
        client = FakeClient()
        await rig.mount(client)
        rig.feed(client, -1)
        sent = rig.append(client)
        await rig.turns()
        assert client.of(FeedData) == [FeedData(sent, 0, 0)]


async def test_partition_with_a_mark_that_went_back_is_a_fault() -> None:
    with pytest.raises(ExceptionGroup) as caught:
        async with PartitionRig(records=3) as rig:
            rig.store.lose_session("gone")
            rig.store.log.pop()
            rig.store.open_session()
            assert rig.partition.fault is not None
            assert not rig.partition.healthy
            await rig.turns()
    assert caught.group_contains(PartitionError, match="went back from 2 to 1")


async def test_closing_answers_mounts_not_ready() -> None:
    async with PartitionRig(open_at_once=False) as rig:
        client = FakeClient()
        req_id = rig.req_id(client)
        rig.partition.mount(client, req_id.pack(), GENERATION, -1)
        rig.partition.close()
        assert client.messages() == [MountResponse(req_id, MountState.NOT_READY)]


async def test_the_bytes_of_the_queue_are_free_again_when_appends_have_left_it() -> None:
    settings = PartitionSettings(append_bounds=AppendBounds(max_count=10, max_bytes=2000))
    async with PartitionRig(settings=settings) as rig:
        client = FakeClient()
        await rig.mount(client)
        sent = []
        for _ in range(10):  # in pairs: one alone is taken whatever the queue is believed to hold
            sent += [rig.append(client, data=b"x" * 900) for _ in range(2)]
            await rig.turns()
        assert rig.logged() == sent
        assert rig.count("append-dropped-queue-full") == 0
        large = rig.append(client, data=b"x" * 5000)  # alone it is taken, whatever its size
        await rig.turns()
        assert rig.logged()[-1] == large
