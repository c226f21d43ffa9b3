"""Appends with many locks: bounded in number, looked up in slices, in order, and nobody else waits for them.
Counted, never timed."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Iterator

import pytest

from waltz_protocol import locks
from waltz_protocol.aio.turns import SLICE_UNITS, TURN_UNITS, Turns
from waltz_protocol.frames.append import MAX_LOCKS, encode_append
from waltz_protocol.frames.append_batch import Answer, Verdict
from waltz_protocol.messages.client import (
    FlushRequest,
    FlushResponse,
    LockFailure,
    MountRequest,
    MountResponse,
)
from waltz_protocol.types import ReqId
from waltz_server.partition import queued_append
from waltz_server.partition.append import APPEND_UNITS, LOCK_UNITS
from waltz_server.partition.contention import MAX_LOOKED_UP
from waltz_server.partition.owned_partition import PartitionSettings
from waltz_server.partition.queue_room import AppendBounds
from waltz_testkit.client_peers import FakeClient
from waltz_testkit.loopback_server import LoopbackServer
from waltz_testkit.partition_rig import GENERATION, PARTITION, PartitionRig, wire_record

MANY = 20_000
INLINE_LOCKS = 15


class Turn:
    """Counts look-ups of locks, by turn of the loop."""

    def __init__(self) -> None:
        self.number = 0
        self.by_turn: dict[int, int] = {}
        self._handle: asyncio.Handle | None = None

    def start(self) -> None:
        self.number += 1
        self._handle = asyncio.get_running_loop().call_soon(self.start)

    def stop(self) -> None:
        if self._handle is not None:
            self._handle.cancel()

    def count(self) -> None:
        self.by_turn[self.number] = self.by_turn.get(self.number, 0) + 1


@pytest.fixture
def turn(monkeypatch: pytest.MonkeyPatch) -> Iterator[Turn]:
    turn, real = Turn(), locks.slots_of

    def counted(lock_hash: int, size: int) -> tuple[int, int, int]:
        turn.count()
        return real(lock_hash, size)

    monkeypatch.setattr(locks, "slots_of", counted)
    yield turn
    turn.stop()


def some_locks(count: int, first: int = 0) -> tuple[int, ...]:
    return tuple(range(first, first + count))


async def test_no_turn_looks_up_more_locks_than_fit_it(turn: Turn) -> None:
    """Of several partitions, each with an append of 20,000 locks at its head; other appends go on in
    between."""
    shared = Turns()
    async with (
        PartitionRig(turns=shared) as one,
        PartitionRig(turns=shared) as two,
        PartitionRig(turns=shared) as calm,
    ):
        clients = [FakeClient(1), FakeClient(2), FakeClient(3)]
        for rig, client in zip((one, two, calm), clients, strict=True):
            await rig.mount(client)
        turn.start()
        numbers = itertools.count()
        sent = one.append(clients[0], write=some_locks(MANY))
        after = one.append(clients[0])
        other = two.append(clients[1], read=some_locks(MANY // 2), append=some_locks(MANY // 2, MANY))
        while not one.store.log or not two.store.log:
            calm.append(clients[2], write=(next(numbers),))
            await asyncio.sleep(0)
        await one.turns()
        assert one.logged() == [sent, after]
        assert two.logged() == [other]
        most = TURN_UNITS // LOCK_UNITS + SLICE_UNITS // LOCK_UNITS + 10
        assert max(turn.by_turn.values()) <= most
        assert len(turn.by_turn) >= 2 * MANY // most
        assert len(calm.store.log) >= len(turn.by_turn) - 2  # one in each turn, but for the last ones


async def test_many_locks_conflict_and_rise_like_few(turn: Turn) -> None:
    async with PartitionRig() as rig:
        client = FakeClient()
        await rig.mount(client)
        rig.append(client, write=(5,))
        await rig.turns()
        conflicting = rig.append(client, read=some_locks(MANY), hwm=-1)
        await rig.until(lambda: bool(client.of(LockFailure)))
        assert client.of(LockFailure) == [LockFailure(conflicting, 0)]
        taken = rig.append(client, write=some_locks(MANY), hwm=0)
        await rig.until(lambda: len(rig.store.log) == 2)
        assert rig.logged()[1] == taken
        late = rig.append(client, write=(MANY - 1,), hwm=0)
        await rig.until(lambda: len(client.of(LockFailure)) == 2)
        assert client.of(LockFailure)[1] == LockFailure(late, 1)
        assert rig.partition._appends._many_locks_in_flight == 0


async def test_a_refused_append_with_many_locks_is_looked_up_once(turn: Turn) -> None:
    """The answer of version 5 names the lock that was met on the way: it costs no turn of its own."""
    async with PartitionRig(records=1) as rig:
        writer, client = FakeClient(1, version=4), FakeClient(2, version=5)
        await rig.mount(writer)
        await rig.mount(client)
        rig.append(writer, write=(MANY,))
        rig.append(writer, write=(MANY + 1,))
        await rig.turns()
        turn.by_turn.clear()
        turn.start()
        lost = rig.append(client, write=(*some_locks(MANY), MANY, MANY + 1), hwm=0)
        await rig.until(lambda: bool(client.answered()))
        assert client.answered() == [
            Answer(Verdict.LOCK_CONFLICT, GENERATION, PARTITION, lost.seq_num, 2, lock=MANY + 1, winner=1)
        ]
        assert sum(turn.by_turn.values()) <= MANY + 2 + MAX_LOOKED_UP
        assert max(turn.by_turn.values()) <= TURN_UNITS // LOCK_UNITS + SLICE_UNITS // LOCK_UNITS + 10


async def test_safety_d9_a_view_beyond_the_log_is_refused_with_many_locks_too() -> None:
    """Held against the mark when the last lock has been looked up, like one that is decided at once."""
    async with PartitionRig(records=3) as rig:
        client = FakeClient()
        await rig.mount(client)
        refused = [rig.append(client, hwm=10**9, write=some_locks(MANY))]
        refused.append(rig.append(client, hwm=10**9, read=some_locks(MANY)))
        honest = rig.append(client, hwm=2, write=some_locks(MANY))
        await rig.until(lambda: len(rig.store.log) == 4)
        assert rig.logged()[3:] == [honest]
        assert client.of(LockFailure) == [LockFailure(req_id, 2) for req_id in refused]
        assert rig.count("append-refused-view-ahead") == 2


async def test_a_conflict_that_commits_before_the_last_slice_is_seen() -> None:
    """The append waits for the mark first; only then is anything looked up."""
    async with PartitionRig(auto_commit=False) as rig:
        first, second = FakeClient(1), FakeClient(2)
        await rig.mount(first)
        await rig.mount(second)
        rig.append(first, write=(0,), hwm=-1)
        await rig.turns()
        late = rig.append(second, write=some_locks(MANY), hwm=-1)
        await rig.turns(2)
        rig.store.commit_next()
        await rig.until(lambda: bool(second.of(LockFailure)))
        assert second.of(LockFailure) == [LockFailure(late, 0)]


async def test_a_new_lock_table_begins_the_look_up_anew(turn: Turn) -> None:
    """Another owner numbered transactions meanwhile: nobody knows their locks."""
    async with PartitionRig(turns=Turns(300, 300)) as rig:
        client = FakeClient()
        await rig.mount(client)
        sent = rig.append(client, write=some_locks(2000), hwm=-1)
        await rig.turns(5)
        assert sum(turn.by_turn.values()) > 0
        rig.store.lose_session("another owner")
        rig.store.settle(foreign=[wire_record(0)])
        rig.store.open_session()
        await rig.until(lambda: bool(client.of(LockFailure)))
        assert client.of(LockFailure) == [LockFailure(sent, 0)]


async def test_locks_in_flight_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """What one turn's commits may have to raise; an append that is larger than the bound goes alone."""
    monkeypatch.setattr(queued_append, "MAX_LOCKS_IN_FLIGHT", 250)
    settings = PartitionSettings(lock_table_size=1_000_000)  # so that they share no slots
    async with PartitionRig(auto_commit=False, settings=settings) as rig:
        client = FakeClient()
        await rig.mount(client)
        sent = [rig.append(client, write=some_locks(100, 1000 * n)) for n in range(4)]
        sent.append(rig.append(client, write=some_locks(400, 9000)))
        sent.append(rig.append(client, write=some_locks(INLINE_LOCKS, 20_000)))
        pending = []
        while len(rig.store.log) < len(sent):
            await rig.turns()
            pending.append(rig.store.pending)
            assert len(rig.partition._appends._marked) <= 400 + INLINE_LOCKS
            rig.store.commit_next()
        assert rig.logged() == sent
        assert pending == [2, 2, 2]  # 200; 200; 400 and the small one behind it


async def test_locks_count_as_bytes_of_the_queue() -> None:
    async with PartitionRig(
        open_at_once=False, settings=PartitionSettings(append_bounds=AppendBounds(1000, 100_000))
    ) as rig:
        client = FakeClient()
        rig.partition.mount(client, rig.req_id(client).pack(), GENERATION, -1)
        for _ in range(20):
            rig.append(client, write=some_locks(1000), hwm=-1)
        assert rig.partition._appends.room.count == 2
        assert rig.count("append-dropped-queue-full") == 18


async def test_what_was_queued_while_there_was_no_session_is_handed_over_in_slices() -> None:
    async with PartitionRig(open_at_once=False, auto_commit=False) as rig:
        client = FakeClient()
        rig.partition.mount(client, rig.req_id(client).pack(), GENERATION, -1)
        sent = [rig.append(client, hwm=-1) for _ in range(9_000)]
        rig.store.open_session()
        handed = [0]
        while rig.store.pending < len(sent):
            await asyncio.sleep(0)
            handed.append(rig.store.pending)
        steps = [after - before for before, after in itertools.pairwise(handed)]
        assert max(steps) <= TURN_UNITS // APPEND_UNITS + SLICE_UNITS // APPEND_UNITS
        rig.store.commit_next()
        assert rig.logged() == sent


async def test_too_many_locks_are_dropped_and_named_once(caplog: pytest.LogCaptureFixture) -> None:
    """Nothing of them is kept, the connection stays, and its other appends are taken."""
    async with LoopbackServer({3: 2}) as server:
        peer = await server.peer()
        peer.send(MountRequest(ReqId(1, 2, 3, 1), -1, 0))
        await peer.read_until(lambda message: isinstance(message, MountResponse))
        for seq in range(2, 6):  # the odd ones are one too large
            locks_of_it = some_locks(MAX_LOCKS + seq % 2)
            view = (-1, 0)[seq == 4]  # when its turn has come, the one before has committed as 0
            peer.write(encode_append(ReqId(1, 2, 3, seq).pack(), view, locks_of_it, (), (), 0, b"data", 4))
        peer.send(FlushRequest(ReqId(1, 2, 3, 5)))
        flushed = await peer.read_until(lambda message: isinstance(message, FlushResponse))
        assert flushed[-1] == FlushResponse(ReqId(1, 2, 3, 5), 1)
        taken = [ReqId.unpack(record, 8).seq_num for record in server.backend.stores[3].log]
        assert taken == [2, 4]
    named = [text for text in caplog.messages if "maxLocksPerAppend" in text]
    assert len(named) == 1
    assert named[0].startswith("127.0.0.1:")
    assert f"{MAX_LOCKS + 1} locks" in named[0]
