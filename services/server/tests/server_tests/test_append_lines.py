"""Appends that wait for locks: whom they hold up, and whom not."""

import asyncio
from collections.abc import Sequence

from waltz_protocol.frames.append import AppendWithManyLocks
from waltz_protocol.messages.client import FlushResponse, LockFailure
from waltz_server.partition.lock_turns import TURN_SECONDS
from waltz_server.store.api import AppendEntry, StoreNotOpenError
from waltz_testkit.client_peers import FakeClient, make_append
from waltz_testkit.partition_rig import PartitionRig


async def test_nobody_waits_for_the_locks_of_strangers() -> None:
    """An append that waits for a lock holds up those behind it that want the same one, and its own client."""
    async with PartitionRig(auto_commit=False) as rig:
        one, two, three = (FakeClient(number) for number in (1, 2, 3))
        for client in (one, two, three):
            await rig.mount(client)
        holder = rig.append(one, append=(5,))
        waits = rig.append(two, append=(5, 6))
        stranger = rig.append(three, append=(7,))
        without_locks = rig.append(three)
        behind_its_own = rig.append(two)
        behind_the_lock = rig.append(one, append=(6,))  # free, but somebody who came before waits for it
        await rig.turns()
        assert rig.store.pending == 3
        assert rig.partition.undecided == 6
        rig.store.commit_next(1)
        await rig.turns()
        assert rig.store.pending == 4
        rig.store.commit_next()
        await rig.turns()
        rig.store.commit_next()
        expected = [holder, stranger, without_locks, waits, behind_its_own, behind_the_lock]
        assert rig.logged() == expected


async def test_who_waits_for_a_lock_comes_in_the_order_of_arrival() -> None:
    """Each in its turn, one commit after another, readers too; a view that has become too old is refused when
    its turn comes."""
    async with PartitionRig(auto_commit=False) as rig:
        clients = [FakeClient(number) for number in range(1, 6)]
        for client in clients:
            await rig.mount(client)
        holder = rig.append(clients[0], append=(5,))
        appended = [rig.append(client, append=(5,)) for client in clients[1:3]]
        reader = rig.append(clients[3], read=(5,), hwm=-1)
        late = rig.append(clients[4], append=(5,))
        for count in range(1, 5):
            await rig.turns()
            assert rig.store.pending == 1
            rig.store.commit_next(1)
            assert len(rig.store.log) == count
            if count == 3:  # the reader does not use the turn that is kept for it
                await rig.turns()
                await asyncio.sleep(TURN_SECONDS)
        await rig.turns()
        assert rig.logged() == [holder, *appended, late]
        assert clients[3].of(LockFailure) == [LockFailure(reader, 2)]


async def test_of_all_who_wait_each_commit_refuses_the_first_and_it_comes_back_in_its_turn() -> None:
    """So nobody starves, and nobody is asked again in vain."""
    async with PartitionRig(auto_commit=False) as rig:
        clients = [FakeClient(number) for number in range(1, 5)]
        for client in clients:
            await rig.mount(client)
        rig.append(clients[0], write=(5,), hwm=-1)
        for client in clients[1:]:
            rig.append(client, write=(5,), hwm=-1)
        won = []
        await rig.turns()
        for txid, client in enumerate(clients[1:]):
            rig.store.commit_next()
            await rig.turns()
            assert [len(one.of(LockFailure)) for one in clients[1:]] == [1] * (txid + 1) + [0] * (2 - txid)
            late = rig.append(clients[0], write=(5,), hwm=txid)  # a newcomer with the newest view waits
            await rig.turns()
            assert rig.store.pending == 0
            won.append(rig.append(client, write=(5, 5), hwm=txid))
            await rig.turns()
            assert rig.store.pending == 1
        rig.store.commit_next()
        await rig.turns()
        assert rig.logged()[1:] == won
        assert late not in won


async def test_a_turn_holds_up_nobody_but_those_who_want_its_locks() -> None:
    async with PartitionRig(auto_commit=False) as rig:
        one, two, three = (FakeClient(number) for number in (1, 2, 3))
        for client in (one, two, three):
            await rig.mount(client)
        rig.append(one, write=(5,), hwm=-1)
        rig.append(two, write=(5,), hwm=-1)
        await rig.turns()
        rig.store.commit_next()
        await rig.turns()
        assert len(two.of(LockFailure)) == 1
        passing = [rig.append(three), rig.append(three, write=(6,), hwm=0)]
        flushed = rig.flush(three)
        await rig.turns()
        assert rig.store.pending == 2
        rig.store.commit_next(2)
        await rig.turns()
        assert rig.logged()[1:] == passing
        assert [answer.req_id for answer in three.of(FlushResponse)] == [flushed]


async def test_a_turn_ends_when_its_client_sends_something_else_under_locks_or_goes() -> None:
    async with PartitionRig(auto_commit=False) as rig:
        one, two, three = (FakeClient(number) for number in (1, 2, 3))
        for client in (one, two, three):
            await rig.mount(client)
        for ends in ("other locks", "gone"):
            mark = len(rig.store.log) - 1
            rig.append(one, write=(5,), hwm=mark)
            rig.append(two, write=(5,), hwm=mark)
            await rig.turns()
            rig.store.commit_next()
            await rig.turns()
            waits = rig.append(three, write=(5,), hwm=mark + 1)
            await rig.turns()
            assert rig.store.pending == 0
            if ends == "gone":
                rig.partition.client_closed(two)
            else:
                rig.append(two, write=(6,), hwm=mark + 1)
            await rig.turns()
            rig.store.commit_next()
            await rig.turns()
            assert waits in rig.logged()


async def test_who_lets_a_turn_pass_gets_the_next_one_after_it_has_come_back_in_time() -> None:
    async with PartitionRig(auto_commit=False) as rig:
        one, two, three = (FakeClient(number) for number in (1, 2, 3))
        for client in (one, two, three):
            await rig.mount(client)

        async def lose() -> bool:
            """`two` loses; whether its turn is kept."""
            mark = len(rig.store.log) - 1
            rig.append(one, write=(5,), hwm=mark)
            rig.append(two, write=(5,), hwm=mark)
            await rig.turns()
            rig.store.commit_next()
            await rig.turns()
            rig.append(three, write=(5,), hwm=mark + 1)
            await rig.turns()
            return not rig.store.pending

        assert await lose()
        await asyncio.sleep(TURN_SECONDS)
        await rig.turns()
        rig.store.commit_next()  # of the third, which waited
        await rig.turns()
        assert not await lose()  # and it comes back in time, but behind the third, which has not waited
        rig.append(two, write=(5,), hwm=len(rig.store.log))
        await rig.turns()
        rig.store.commit_next()
        await rig.turns()
        rig.store.commit_next()
        await rig.turns()
        assert await lose()


async def test_safety_d5_a_flush_waits_for_its_own_client_in_a_line_and_for_nobody_elses() -> None:
    async with PartitionRig(auto_commit=False) as rig:
        one, two, three = (FakeClient(number) for number in (1, 2, 3))
        for client in (one, two, three):
            await rig.mount(client)
        rig.append(one, append=(5,))
        rig.append(two, append=(5,))
        waits = rig.flush(two)
        passes = rig.flush(three)
        rig.store.commit_next(0)
        await rig.turns()
        assert (two.of(FlushResponse), three.of(FlushResponse)) == ([], [])  # the first is in flight
        rig.store.commit_next(1)
        await rig.turns()
        assert [answer.req_id for answer in three.of(FlushResponse)] == [passes]
        assert two.of(FlushResponse) == []  # the second of its client is in flight now
        rig.store.commit_next()
        await rig.turns()
        assert two.of(FlushResponse) == [FlushResponse(waits, 1)]


async def test_locks_of_an_append_that_failed_go_to_whoever_waits() -> None:
    async with PartitionRig(auto_commit=False) as rig:
        one, two = FakeClient(1), FakeClient(2)
        await rig.mount(one)
        await rig.mount(two)
        rig.append(one, append=(5, 5))
        await rig.turns()
        after = rig.append(two, append=(5,))
        await rig.turns()
        rig.store.lose_session("a test")
        rig.store.settle(committed=0)
        rig.store.open_session()
        await rig.turns()
        rig.store.commit_next()
        assert rig.logged() == [after]


async def test_safety_d6_an_append_with_many_locks_comes_after_those_in_lines_and_nobody_passes_it() -> None:
    """Its locks are looked up while nobody is admitted who writes one of them."""
    async with PartitionRig(auto_commit=False) as rig:
        one, two, three = (FakeClient(number) for number in (1, 2, 3))
        for client in (one, two, three):
            await rig.mount(client)
        holder = rig.append(one, append=(5,))
        waits = rig.append(two, append=(5, 99))
        many = rig.req_id(three)
        locks = tuple(range(99, 119))
        request = make_append(many, client_high_water_mark=-1, append=locks)
        rig.partition.append(three, AppendWithManyLocks(*request))
        behind = rig.append(one, append=(6,))
        for _ in range(2):
            await rig.turns()
            assert rig.store.pending == 1
            rig.store.commit_next()
        await rig.turns()
        rig.store.commit_next()
        assert rig.logged() == [holder, waits, many, behind]


async def test_who_waited_in_lines_goes_back_in_the_order_of_arrival() -> None:
    """When the store takes nothing: what was admitted came before some in lines, and after others."""
    async with PartitionRig(auto_commit=False) as rig:
        one, two, three = (FakeClient(number) for number in (1, 2, 3))
        for client in (one, two, three):
            await rig.mount(client)
        holder = rig.append(one, append=(5,))
        await rig.turns()
        sent = [rig.append(two, append=(5,)), rig.append(three, append=(6,)), rig.append(one, append=(6,))]
        sent.append(rig.append(three))
        take = rig.store.append

        def refuse(entries: Sequence[AppendEntry]) -> None:
            rig.store.append = take  # type: ignore[method-assign]
            rig.store.lose_session("between the check and the call")
            raise StoreNotOpenError(f"{len(entries)} were not taken")

        rig.store.append = refuse  # type: ignore[method-assign]
        await rig.turns()
        rig.store.settle(committed=1)
        rig.store.open_session()
        for _ in range(4):
            await rig.turns()
            rig.store.commit_next()
        assert rig.logged() == [holder, sent[0], sent[1], sent[3], sent[2]]


async def test_no_turn_is_kept_before_an_append_with_many_locks() -> None:
    """Who would come back for it is behind that append."""
    async with PartitionRig(auto_commit=False) as rig:
        one, two, three = (FakeClient(number) for number in (1, 2, 3))
        for client in (one, two, three):
            await rig.mount(client)
        for kept_first in (True, False):
            mark = len(rig.store.log) - 1
            rig.append(one, write=(5,), hwm=mark)
            rig.append(two, write=(5,), hwm=mark)
            await rig.turns()
            if kept_first:
                rig.store.commit_next()
                await rig.turns()
            many = rig.req_id(three)
            request = make_append(many, client_high_water_mark=-1, append=tuple(range(99, 119)))
            rig.partition.append(three, AppendWithManyLocks(*request))
            await rig.turns()
            rig.store.commit_next()
            await rig.turns()
            rig.store.commit_next()
            await rig.turns()
            assert many in rig.logged()
