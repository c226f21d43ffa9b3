"""What waiting appends may take of the memory: of one partition, and of all partitions of a server."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from waltz_server.partition.owned_partition import PartitionSettings
from waltz_server.partition.queue_room import SHARE, AppendBounds, QueueRoom, WaitingBytes
from waltz_testkit.client_peers import FakeClient
from waltz_testkit.partition_rig import GENERATION, PartitionRig

BOUNDS = AppendBounds(max_count=10, max_bytes=1000 * SHARE)
FULL = "append-dropped-queue-full"


def test_safety_d7_partitions_that_keep_appends_leave_little_to_the_next_one() -> None:
    waiting = WaitingBytes(max_bytes=3000)
    first, second = QueueRoom(BOUNDS, waiting), QueueRoom(BOUNDS, waiting)
    assert first.take(2900)
    assert second.take(600)  # one is always taken
    assert second.take(400)  # and what is within the share of one partition
    assert not second.take(1)
    assert not first.take(1)
    assert (waiting.size_bytes, first.count, second.count) == (3900, 1, 2)
    first.take_off(2900)
    assert second.take(2000)
    assert not second.take(1)


def test_one_partition_alone_has_its_own_bound() -> None:
    room = QueueRoom(BOUNDS, WaitingBytes(max_bytes=BOUNDS.max_bytes))
    assert room.take(BOUNDS.max_bytes - 1)
    assert room.take(1)
    assert not room.take(1)


def test_a_closed_partition_keeps_nothing_of_the_room_of_others() -> None:
    waiting = WaitingBytes(max_bytes=3000)
    room = QueueRoom(BOUNDS, waiting)
    assert room.take(2000)
    assert room.take(500)
    room.close()
    assert (waiting.size_bytes, room.count) == (0, 0)
    room.add(700)  # what was under way when it was closed
    room.take_off(700)
    assert waiting.size_bytes == 0


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(1, 2000), st.booleans()), max_size=60))
def test_what_waits_is_what_all_partitions_keep(steps: list[tuple[int, int, bool]]) -> None:
    waiting = WaitingBytes(max_bytes=5000)
    rooms = [QueueRoom(BOUNDS, waiting) for _ in range(4)]
    kept: list[list[int]] = [[] for _ in rooms]
    for at, size, comes in steps:
        if comes and rooms[at].take(size):
            kept[at].append(size)
        elif not comes and kept[at]:
            rooms[at].take_off(kept[at].pop(0))
        assert waiting.size_bytes == sum(map(sum, kept))
        assert [room.count for room in rooms] == [len(each) for each in kept]
        assert waiting.size_bytes <= waiting.max_bytes + len(rooms) * 2000


async def test_safety_d7_an_open_partition_continues_beside_closed_ones_that_are_full() -> None:
    waiting = WaitingBytes(max_bytes=20_000)
    settings = PartitionSettings(append_bounds=AppendBounds(max_count=100, max_bytes=500 * SHARE))
    async with (
        PartitionRig(settings=settings, waiting=waiting, open_at_once=False) as closed,
        PartitionRig(settings=settings, waiting=waiting) as open_one,
    ):
        client = FakeClient()
        closed.partition.mount(client, closed.req_id(client).pack(), GENERATION, -1)
        while not closed.count(FULL):
            closed.append(client, hwm=-1, data=b"x" * 1000)
        assert 19_000 < waiting.size_bytes <= 20_000
        other = FakeClient()
        await open_one.mount(other)
        for _ in range(50):
            open_one.append(other, hwm=-1, data=b"x" * 100)
            open_one.append(other, hwm=-1, data=b"x" * 100)
            await open_one.turns()
        assert open_one.count(FULL) == 0
        assert len(open_one.logged()) == 100
        closed.store.open_session()
        await closed.turns()
        assert waiting.size_bytes == 0


async def test_a_partition_that_is_closed_with_waiting_appends_gives_their_room_back() -> None:
    waiting = WaitingBytes()
    async with PartitionRig(waiting=waiting, open_at_once=False) as rig:
        client = FakeClient()
        rig.partition.mount(client, rig.req_id(client).pack(), GENERATION, -1)
        for _ in range(3):
            rig.append(client, hwm=-1, data=b"x" * 1000)
        assert waiting.size_bytes > 3000
    assert waiting.size_bytes == 0
