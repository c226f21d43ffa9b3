"""Version 5: one answer to every append, and appends that are sent again."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest

from waltz_protocol.frame import FRAME_HEADER_SIZE
from waltz_protocol.frames.append import Append, encode_append
from waltz_protocol.frames.append_batch import (
    Answer,
    Repeated,
    Verdict,
    encode_batch,
    encode_repeated,
    parse_answers,
)
from waltz_protocol.types import ReqId
from waltz_server.connection import APPENDS_PER_STEP, ClientConnection
from waltz_server.partition import append_outcomes, append_waits
from waltz_server.partition.append_outcomes import MAX_COPIES
from waltz_server.partition.owned_partition import PartitionSettings
from waltz_server.partition.queue_room import AppendBounds
from waltz_server.partition.queued_append import QueuedAppend
from waltz_server.store.api import ReadFailedError
from waltz_server.store.record_run import RecordRun
from waltz_testkit.client_peers import FakeClient, make_append
from waltz_testkit.partition_rig import GENERATION, PARTITION, PartitionRig


async def _mounted(rig: PartitionRig, *numbers: int) -> list[FakeClient]:
    clients = [FakeClient(number, version=5) for number in numbers]
    for client in clients:
        await rig.mount(client)
    return clients


def _verdicts(client: FakeClient) -> list[tuple[Verdict, int, int, int]]:
    return [(one.verdict, one.seq_num, one.number, one.appends) for one in client.answered()]


async def test_what_is_committed_in_a_turn_is_one_answer_behind_the_feed() -> None:
    async with PartitionRig(auto_commit=False) as rig:
        one, two = await _mounted(rig, 1, 2)
        sent = [rig.append(one) for _ in range(3)]
        rig.append(two)
        await rig.turns()
        assert one.answered() == []  # nothing is said before it is durable on a quorum
        rig.store.commit_next()
        await rig.turns()
        first = sent[0].seq_num
        assert one.answered() == [Answer(Verdict.COMMITTED, GENERATION, PARTITION, first, 0, 3)]
        assert _verdicts(two) == [(Verdict.COMMITTED, first + 3, 3, 1)]


async def test_a_lock_conflict_names_the_lock_and_the_winner() -> None:
    async with PartitionRig() as rig:
        one, two = await _mounted(rig, 1, 2)
        rig.append(one, write=(5,), hwm=-1)
        await rig.turns()
        lost = rig.append(two, write=(4, 5), hwm=-1)
        await rig.turns()
        assert two.answered() == [
            Answer(Verdict.LOCK_CONFLICT, GENERATION, PARTITION, lost.seq_num, 0, lock=5, winner=1)
        ]


async def test_every_refusal_is_answered() -> None:
    bounds = PartitionSettings(append_bounds=AppendBounds(max_count=1))
    async with PartitionRig(auto_commit=False, settings=bounds) as rig:
        (client,) = await _mounted(rig, 1)
        stranger = FakeClient(2, version=5)
        rig.append(stranger)
        stale = rig.req_id(client, GENERATION - 1)
        rig.partition.append(client, make_append(stale))
        full = rig.append(client)
        await rig.turns()
        ahead = rig.append(client, write=(5,), hwm=7)
        await rig.turns()
        assert [one.verdict for one in stranger.answered()] == [Verdict.NOT_MOUNTED]
        assert sorted((one.verdict, one.seq_num, one.number) for one in client.answered()) == [
            (Verdict.STALE_GENERATION, stale.seq_num, GENERATION),
            (Verdict.OVERLOADED, full.seq_num, 50),
            (Verdict.VIEW_AHEAD, ahead.seq_num, -1),
        ]


async def test_a_partition_that_leaves_says_what_is_undecided() -> None:
    async with PartitionRig(auto_commit=False) as rig:
        one, two = await _mounted(rig, 1, 2)
        in_flight = rig.append(one, write=(5,), hwm=-1)
        await rig.turns()
        waits = rig.append(two, write=(5,), hwm=-1)
        await rig.turns()
        rig.partition.close()
        await rig.turns()
        assert [(a.verdict, a.seq_num) for a in one.answered()] == [(Verdict.UNDECIDED, in_flight.seq_num)]
        assert [(a.verdict, a.seq_num) for a in two.answered()] == [(Verdict.NOT_SERVED, waits.seq_num)]


async def test_who_waits_for_a_lock_while_no_session_is_open_hears_who_is_missing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(append_waits, "MAX_WAIT_SECONDS", 0.0)
    monkeypatch.setattr(append_waits, "_CHECK_SECONDS", 0.001)
    async with PartitionRig(auto_commit=False) as rig:
        one, two = await _mounted(rig, 1, 2)
        rig.append(one, write=(5,), hwm=-1)
        await rig.turns()
        waits = rig.append(two, write=(5,), hwm=-1)
        behind = rig.append(two)
        await rig.turns()
        rig.store.lose_session("storage-2 and storage-3 are missing")
        await rig.until(lambda: len(two.answered()) == 2)
        assert [(a.verdict, a.seq_num, a.text) for a in two.answered()] == [
            (Verdict.NO_QUORUM, sent.seq_num, "recovering: storage-2 and storage-3 are missing")
            for sent in (waits, behind)
        ]
        assert one.answered() == []  # it is in flight: recovery says
        rig.store.settle(committed=1)
        rig.store.open_session()
        rig.append(two, write=(6,), hwm=0)
        await rig.turns()
        rig.store.commit_next()
        await rig.turns()
        assert [a.verdict for a in two.answered()[2:]] == [Verdict.COMMITTED]


async def test_what_waited_for_a_lock_has_the_whole_time_for_the_next_session(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(append_waits, "_CHECK_SECONDS", 0.001)
    async with PartitionRig(auto_commit=False) as rig:
        one, two = await _mounted(rig, 1, 2)
        rig.append(one, write=(5,), hwm=-1)
        await rig.turns()
        waits = rig.append(two, write=(5,), hwm=-1)
        await rig.turns()
        (waiter,) = rig.partition._appends._lines.everybody()
        assert isinstance(waiter, QueuedAppend)
        waiter.arrived_at -= 2 * append_waits.MAX_WAIT_SECONDS
        rig.store.lose_session("a fail-over")
        await asyncio.sleep(0.05)
        assert two.answered() == []  # the session has not been gone for long
        rig.store.settle(committed=1)
        rig.store.open_session()
        await rig.turns()
        assert [(a.verdict, a.seq_num) for a in two.answered()] == [(Verdict.LOCK_CONFLICT, waits.seq_num)]


async def test_what_comes_behind_a_flush_in_the_same_turn_has_not_waited_since_the_last_append(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(append_waits, "_CHECK_SECONDS", 0.001)
    long = 2 * append_waits.MAX_WAIT_SECONDS
    async with PartitionRig() as rig:
        (client,) = await _mounted(rig, 1)
        rig.append(client)
        await rig.turns()
        rig.store.lose_session("a long one")
        rig.partition._appends._waits._lost_at -= long
        rig.partition._appends._turn_time -= long
        rig.flush(client)
        rig.append(client)
        await asyncio.sleep(0.05)
        assert len(client.answered()) == 1
        rig.store.open_session()
        await rig.turns()
        assert [a.verdict for a in client.answered()] == [Verdict.COMMITTED] * 2


async def test_a_refusal_names_the_server_that_has_the_partition() -> None:
    registry: Any = SimpleNamespace(
        partitions={},
        connection_opened=lambda _: None,
        address_of=lambda partition_id: f"other:{partition_id}",
    )
    connection = ClientConnection(registry, cast(Any, None))
    sent: list[bytes] = []
    channel: Any = SimpleNamespace(
        version=5, closed=False, writable=True, send=sent.append, failed=None, pass_over=id
    )
    connection.channel_ready(channel)
    frame = encode_append(ReqId(1, 2, PARTITION, 4).pack(), -1, (), (), (), 0, b"", 5)
    connection.frame_received(channel, memoryview(frame)[FRAME_HEADER_SIZE:])
    await asyncio.sleep(0)
    (answer,) = parse_answers(sent[0][FRAME_HEADER_SIZE:])[1]
    assert (answer.verdict, answer.text) == (Verdict.NOT_SERVED, f"other:{PARTITION}")


async def test_what_recovery_did_not_find_is_dropped_and_what_it_found_is_committed() -> None:
    async with PartitionRig(auto_commit=False) as rig:
        (client,) = await _mounted(rig, 1)
        rig.append(client)
        await rig.turns()
        rig.append(client)
        await rig.turns()
        rig.store.lose_session("a test")
        rig.store.settle(committed=1)
        rig.store.open_session()
        await rig.turns()
        assert [one.verdict for one in client.answered()] == [Verdict.COMMITTED, Verdict.DROPPED]


async def test_safety_e6_nobody_decides_what_another_owner_may_have_committed_under_the_same_request_id() -> (
    None
):
    """The partition was away for a while (its generation is higher), and its client may have sent the append
    to the owner in between, who numbered it otherwise."""
    async with PartitionRig(auto_commit=False) as rig:
        (client,) = await _mounted(rig, 1)
        rig.append(client)
        await rig.turns()
        rig.store.lose_session("another owner")
        rig.partition.set_generation(GENERATION + 2)
        rig.store.settle(committed=0)
        rig.store.open_session()
        await rig.turns()
        assert [one.verdict for one in client.answered()] == [Verdict.UNDECIDED]


async def test_versions_before_5_hear_what_they_always_did() -> None:
    async with PartitionRig() as rig:
        client = FakeClient(1, version=4)
        await rig.mount(client)
        rig.append(client)
        rig.partition.append(client, make_append(rig.req_id(client, GENERATION - 1)))
        await rig.turns()
        assert client.answered() == []


# -- sent again ----------------------------------------------------------------------------------------------


def _again(rig: PartitionRig, client: FakeClient, append: Append, searched: int = -1) -> None:
    rig.partition.append(client, append, Repeated(GENERATION, searched))


async def test_safety_e6_a_repeated_append_is_answered_with_the_id_that_it_has() -> None:
    async with PartitionRig(records=5) as rig:
        (client,) = await _mounted(rig, 1)
        append = make_append(rig.req_id(client), data=b"once")
        rig.partition.append(client, append)
        await rig.turns()
        for _ in range(3):
            _again(rig, client, append)
            await rig.turns()
        answers = _verdicts(client)
        assert answers == [(Verdict.COMMITTED, ReqId.unpack(append.req_id).seq_num, 5, 1)] * 4
        assert len(rig.store.log) == 6


async def test_safety_e6_the_window_is_the_log_whoever_wrote_it() -> None:
    """A new owner finds what an earlier one has committed; nothing has to be remembered for it."""
    async with PartitionRig(records=50, feed_cache_bytes=0) as rig:
        (client,) = await _mounted(rig, 99)
        found = make_append(ReqId(99, 1, PARTITION, 7), data=b"old")
        _again(rig, client, found)
        other = make_append(ReqId(99, 1, PARTITION, 7), data=b"another")
        await rig.turns(30)
        _again(rig, client, other)
        fresh = make_append(ReqId(99, 1, PARTITION, 77), data=b"old")
        await rig.turns(30)
        _again(rig, client, fresh)
        await rig.turns(30)
        assert _verdicts(client) == [
            (Verdict.COMMITTED, 7, 7, 1),
            (Verdict.REQUEST_ID_IN_USE, 7, 7, 1),
            (Verdict.COMMITTED, 77, 50, 1),
        ]


async def test_safety_e6_a_repeated_append_joins_its_first_copy_while_that_is_pending() -> None:
    async with PartitionRig(auto_commit=False) as rig:
        one, two = await _mounted(rig, 1, 2)
        append = make_append(rig.req_id(one), write=(5,))
        rig.append(two, write=(5,), hwm=-1)
        rig.partition.append(one, append)  # waits in a line
        await rig.turns()
        _again(rig, one, append)
        rig.store.commit_next()
        await rig.turns()
        assert [a.verdict for a in one.answered()] == [Verdict.LOCK_CONFLICT] * 2
        append = make_append(rig.req_id(one), write=(6,), client_high_water_mark=0)
        rig.partition.append(one, append)
        _again(rig, one, append)  # in the queue
        await rig.turns()
        _again(rig, one, append)  # in flight
        await rig.turns()
        assert rig.store.pending == 1
        rig.store.commit_next()
        await rig.turns()
        assert [(a.verdict, a.number) for a in one.answered()[2:]] == [(Verdict.COMMITTED, 1)] * 3
        assert len(rig.store.log) == 2


async def test_safety_e6_what_may_be_older_than_the_window_is_never_taken_as_new() -> None:
    async with PartitionRig(records=20, settings=PartitionSettings(repeat_window=10)) as rig:
        (client,) = await _mounted(rig, 1)
        for searched in (8, 9):
            _again(rig, client, make_append(ReqId(1, 1, PARTITION, searched)), searched)
            await rig.turns(30)
        assert _verdicts(client) == [(Verdict.REPEAT_TOO_OLD, 8, 10, 1), (Verdict.COMMITTED, 9, 20, 1)]


async def test_safety_e6_an_older_generation_is_that_of_the_first_sending_only() -> None:
    async with PartitionRig() as rig:
        (client,) = await _mounted(rig, 1)
        append = make_append(rig.req_id(client, GENERATION - 3))
        rig.partition.append(client, append, Repeated(GENERATION - 1, -1))
        await rig.turns(30)
        _again(rig, client, append)
        await rig.turns(30)
        assert [a.verdict for a in client.answered()] == [Verdict.STALE_GENERATION, Verdict.COMMITTED]


def _held_reads(rig: PartitionRig) -> asyncio.Event:
    """Reads of the store wait until the event is set."""
    release, read = asyncio.Event(), rig.store.read

    async def slow(first: int, max_count: int, max_bytes: int = 1024 * 1024) -> RecordRun:
        await release.wait()
        return await read(first, max_count, max_bytes)

    rig.store.read = slow  # type: ignore[method-assign]
    return release


async def test_what_comes_behind_a_search_keeps_its_order_and_strangers_pass() -> None:
    async with PartitionRig(records=30, feed_cache_bytes=0) as rig:
        one, two = await _mounted(rig, 1, 2)
        release = _held_reads(rig)
        again = make_append(rig.req_id(one))
        _again(rig, one, again)
        behind = rig.append(one)
        passes = rig.append(two)
        await rig.turns()
        assert rig.logged()[30:] == [passes]
        release.set()
        await rig.turns(30)
        assert rig.logged()[30:] == [passes, ReqId.unpack(again.req_id), behind]


@pytest.mark.parametrize("problem", [ReadFailedError("nobody answers")])
async def test_a_search_that_cannot_read_says_to_try_later(problem: Exception) -> None:
    async with PartitionRig(records=30, feed_cache_bytes=0) as rig:
        (client,) = await _mounted(rig, 1)

        async def fails(first: int, max_count: int, max_bytes: int = 1024 * 1024) -> RecordRun:
            raise problem

        rig.store.read = fails  # type: ignore[method-assign]
        append = make_append(rig.req_id(client))
        _again(rig, client, append)
        await rig.turns(30)
        assert [(a.verdict, a.number) for a in client.answered()] == [(Verdict.OVERLOADED, 100)]
        assert len(rig.store.log) == 30


async def test_safety_e6_another_append_under_a_pending_request_id_is_not_taken_for_a_copy() -> None:
    async with PartitionRig(auto_commit=False) as rig:
        (client,) = await _mounted(rig, 1)
        first = make_append(rig.req_id(client), data=b"one")
        other = make_append(ReqId.unpack(first.req_id), data=b"another")
        rig.partition.append(client, first)
        _again(rig, client, other)
        await rig.turns()
        rig.store.commit_next()
        await rig.turns()
        assert [one.verdict for one in client.answered()] == [Verdict.REQUEST_ID_IN_USE, Verdict.COMMITTED]
        assert len(rig.store.log) == 1


async def test_safety_e6_copies_are_answered_however_long_their_first_one_is_pending(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(append_outcomes, "INDEX_SECONDS", -1.0)
    async with PartitionRig(auto_commit=False) as rig:
        one, two = await _mounted(rig, 1, 2)
        rig.append(two)
        append = make_append(rig.req_id(one))
        rig.partition.append(one, append)
        await rig.turns()
        _again(rig, one, append)
        rig.store.commit_next(1)
        await rig.turns()
        assert one.answered() == []
        rig.store.commit_next()
        await rig.turns()
        assert _verdicts(one) == [(Verdict.COMMITTED, ReqId.unpack(append.req_id).seq_num, 1, 1)] * 2
        _again(rig, one, append)
        await rig.turns(30)
        assert len(one.answered()) == 3
        assert len(rig.store.log) == 2


async def test_safety_e6_nothing_joins_an_append_that_an_older_version_was_refused() -> None:
    for view in (-1, 70):  # a lock conflict, a view beyond the log
        async with PartitionRig(auto_commit=False) as rig:
            old, other = FakeClient(1), FakeClient(2, version=5)
            await rig.mount(old)
            await rig.mount(other)
            rig.append(other, write=(5,), hwm=-1)
            await rig.turns()
            refused = make_append(rig.req_id(old), write=(5,), client_high_water_mark=view)
            rig.partition.append(old, refused)  # waits in a line
            await rig.turns()
            _again(rig, other, make_append(rig.req_id(other)))
            rig.store.commit_next(1)
            await rig.turns()
            new = FakeClient(1, version=5, seq_num=1)
            rig.store.commit_next()
            await rig.mount(new)
            _again(rig, new, refused)
            await rig.turns(30)
            assert len(new.answered()) == 1, view


async def test_appends_of_several_clients_are_answered_in_runs_of_each() -> None:
    async with PartitionRig(auto_commit=False) as rig:
        one, two = await _mounted(rig, 1, 2)
        old = FakeClient(3, version=4)
        await rig.mount(old)
        sent = [rig.append(client).seq_num for client in (one, one, old, two, two, one)]
        await rig.turns()
        rig.store.commit_next()
        await rig.turns()
        assert _verdicts(one) == [
            (Verdict.COMMITTED, sent[0], 0, 2),
            (Verdict.COMMITTED, sent[5], 5, 1),
        ]
        assert _verdicts(two) == [(Verdict.COMMITTED, sent[3], 3, 2)]


async def test_copies_of_a_pending_append_are_bounded() -> None:
    async with PartitionRig(auto_commit=False) as rig:
        (client,) = await _mounted(rig, 1)
        append = make_append(rig.req_id(client))
        rig.partition.append(client, append)
        for _ in range(MAX_COPIES + 1):
            _again(rig, client, append)
        await rig.turns()
        assert [a.verdict for a in client.answered()] == [Verdict.OVERLOADED]
        rig.store.commit_next()
        await rig.turns()
        assert len(client.answered()) == MAX_COPIES + 2


async def test_one_that_is_looked_for_does_not_hold_up_others_in_the_turn_of_its_client() -> None:
    async with PartitionRig(records=5, auto_commit=False, feed_cache_bytes=0) as rig:
        one, two, three = await _mounted(rig, 1, 2, 3)
        rig.append(one, write=(5,), hwm=4)
        lost = rig.append(two, write=(5,), hwm=4)
        await rig.turns()
        rig.store.commit_next()
        await rig.turns()
        assert [(a.verdict, a.seq_num) for a in two.answered()] == [(Verdict.LOCK_CONFLICT, lost.seq_num)]
        release = _held_reads(rig)
        _again(rig, two, make_append(rig.req_id(two), write=(5,), client_high_water_mark=5))
        await rig.turns()
        rig.append(three)
        await rig.turns()
        assert rig.store.pending == 1
        release.set()
        await rig.turns(30)
        assert rig.store.pending == 2


async def test_what_is_taken_in_steps_does_not_change_when_its_buffer_is_used_again() -> None:
    """All connections read into one buffer: while the steps of a batch pause, others are read."""
    taken: list[tuple[ReqId, bytes]] = []

    def take(client: object, append: Append, repeated: Repeated | None) -> None:
        taken.append((ReqId.unpack(append.req_id), append.tail))

    registry: Any = SimpleNamespace(
        partitions={PARTITION: SimpleNamespace(append=take)},
        connection_opened=lambda _: None,
        address_of=lambda _: None,
    )
    connection = ClientConnection(registry, cast(Any, None))
    channel: Any = SimpleNamespace(version=5, closed=False, failed=None, pass_over=id)
    connection.channel_ready(channel)
    ids = [ReqId(1, GENERATION, PARTITION, number) for number in range(3 * APPENDS_PER_STEP)]
    frames = [encode_append(one.pack(), -1, (), (), (), 0, b"%d" % one.seq_num, 5) for one in ids]
    sent = [make_append(one, data=b"%d" % one.seq_num) for one in ids]
    again = encode_repeated(frames[0], Repeated(GENERATION, -1))
    for frame in (encode_batch(frames, 5), again):
        buffer = bytearray(frame[FRAME_HEADER_SIZE:])
        steps = connection.frame_received(channel, memoryview(buffer))
        assert steps is not None
        next(steps)
        buffer[:] = bytes(len(buffer))
        for _ in steps:
            pass
    assert taken == [(ReqId.unpack(one.req_id), one.tail) for one in (*sent, sent[0])]
