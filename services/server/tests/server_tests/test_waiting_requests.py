"""Mounts and flushes behind an append that cannot go on: what waits in the queue stays bounded."""

from __future__ import annotations

from waltz_protocol.messages.client import FlushResponse, MountResponse, MountState
from waltz_server.partition.feed import MAX_FEEDS_PER_CLIENT
from waltz_server.partition.future_requests import MAX_PER_CLIENT
from waltz_server.partition.owned_partition import PartitionSettings
from waltz_testkit.client_peers import FakeClient
from waltz_testkit.partition_rig import GENERATION, PartitionRig

MAX_MARKERS = 10


async def _blocked(rig: PartitionRig) -> FakeClient:
    """An append at the head of the queue of a partition without a session."""
    client = FakeClient(1)
    rig.partition.mount(client, rig.req_id(client).pack(), GENERATION, -1)
    rig.append(client, hwm=-1)
    await rig.turns()
    return client


async def test_requests_of_connections_that_have_gone_do_not_pile_up() -> None:
    """Clients that connect, ask and go while the partition has no quorum: for hours, perhaps."""
    async with PartitionRig(open_at_once=False, settings=PartitionSettings(max_markers=MAX_MARKERS)) as rig:
        await _blocked(rig)
        for number in range(100):
            client = FakeClient(100 + number)
            for _ in range(5):
                rig.flush(client)
            await rig.turns(2)
            rig.partition.client_closed(client)
        assert len(rig.partition._appends._queue) <= 1 + MAX_MARKERS
        rig.store.open_session()
        await rig.turns()
        late = [FakeClient(90 + number) for number in range(MAX_MARKERS)]  # all places are free again
        asked = [rig.flush(client) for client in late]
        await rig.turns()
        assert [client.messages() for client in late] == [[FlushResponse(flush, 0)] for flush in asked]


async def test_mounts_that_expired_do_not_pile_up() -> None:
    settings = PartitionSettings(max_markers=MAX_MARKERS, mount_wait_seconds=0.01)
    async with PartitionRig(open_at_once=False, settings=settings) as rig:
        await _blocked(rig)
        client = FakeClient(2)
        for _ in range(3):
            asked = [rig.req_id(client) for _ in range(8)]
            for req_id in asked:
                rig.partition.mount(client, req_id.pack(), GENERATION, -1)
            await rig.until(lambda asked=asked: len(client.messages()) >= len(asked))  # type: ignore[misc]
            answers = {MountResponse(req_id, MountState.NOT_READY) for req_id in asked}
            assert answers.issubset(client.messages())
            client.clear()
        assert len(rig.partition._appends._queue) <= 2 + MAX_MARKERS
        rig.store.open_session()
        await rig.turns()
        await rig.mount(client)


async def test_a_client_cannot_open_feeds_without_end() -> None:
    """Each one is served for itself; one that goes on asking is cut off, as one that does not read is."""
    async with PartitionRig(records=5, settings=PartitionSettings(min_fetch_size=2)) as rig:
        client = FakeClient()
        await rig.mount(client)
        for _ in range(MAX_FEEDS_PER_CLIENT):
            rig.feed(client, 4)
        assert client.close_reason == ""
        for _ in range(10 * MAX_FEEDS_PER_CLIENT):
            rig.feed(client, 4)
        assert "feeds" in client.close_reason
        assert len(rig.partition._feeds) <= MAX_FEEDS_PER_CLIENT
        rig.partition.client_closed(client)
        other = FakeClient(2)
        await rig.mount(other)
        for _ in range(2 * MAX_FEEDS_PER_CLIENT):  # those that have ended do not count
            rig.feed(other, len(rig.store.log) - 1)
            for _ in range(2):
                rig.append(other)
            await rig.turns(4)
            other.clear()
        assert not other.closed
        assert len(rig.partition._feeds) == 0


async def test_one_connection_may_not_keep_everybody_from_mounting() -> None:
    async with PartitionRig(open_at_once=False, settings=PartitionSettings(max_markers=100)) as rig:
        await _blocked(rig)
        flood = FakeClient(2)
        for _ in range(1000):
            rig.flush(flood)
        others = [FakeClient(100 + number) for number in range(50)]
        asked = {client: rig.req_id(client) for client in others}
        for client, req_id in asked.items():
            rig.partition.mount(client, req_id.pack(), GENERATION, -1)
        rig.store.open_session()
        await rig.until(lambda: all(client.stream for client in others))
        for client, req_id in asked.items():
            assert client.messages()[-1] == MountResponse(req_id, MountState.READY)
        flood.clear()
        flush = rig.flush(flood)  # what has been answered counts no more
        await rig.turns()
        assert flood.messages() == [FlushResponse(flush, 0)]


async def test_requests_of_a_generation_that_never_comes_hold_up_nobody() -> None:
    """10,000 flushes kept every client from mounting for as long as their connection lived."""
    async with PartitionRig(settings=PartitionSettings(max_markers=100)) as rig:
        flood = FakeClient(2)
        for _ in range(1000):
            rig.flush(flood, 2**31 - 1)
            rig.partition.mount(flood, rig.req_id(flood, 2**31 - 1).pack(), 2**31 - 1, -1)
        assert len(rig.partition._future) == MAX_PER_CLIENT
        await rig.mount(FakeClient(1))
        for number in range(200):
            rig.flush(FakeClient(100 + number), 2**31 - 1)
        assert len(rig.partition._future) == 100
        await rig.mount(FakeClient(3))
        rig.partition.client_closed(flood)
        assert len(rig.partition._future) == 100 - MAX_PER_CLIENT


async def test_requests_that_are_early_are_answered_when_their_generation_comes() -> None:
    async with PartitionRig() as rig:
        client, later = FakeClient(1), FakeClient(2)
        mounted = rig.req_id(client, GENERATION + 1)
        rig.partition.mount(client, mounted.pack(), GENERATION + 1, -1)
        flush = rig.flush(client, GENERATION + 1)
        rig.flush(later, GENERATION + 2)
        await rig.turns()
        assert client.messages() == []
        assert rig.partition._mounts.valid(client) is None
        rig.partition.set_generation(GENERATION + 1)
        await rig.turns()
        assert client.messages() == [MountResponse(mounted, MountState.READY), FlushResponse(flush, -1)]
        assert later.messages() == []
        rig.partition.set_generation(GENERATION + 3)  # one was skipped
        await rig.turns()
        assert len(later.messages()) == 1
        assert len(rig.partition._future) == 0


async def test_of_too_many_early_requests_of_a_client_the_newest_are_kept() -> None:
    """The newest flush is the one that covers the others."""
    async with PartitionRig() as rig:
        client = FakeClient(1)
        flushes = [rig.flush(client, GENERATION + 1) for _ in range(MAX_PER_CLIENT + 3)]
        rig.partition.set_generation(GENERATION + 1)
        await rig.turns()
        assert client.messages() == [FlushResponse(flush, -1) for flush in flushes[3:]]


async def test_a_mount_of_a_generation_that_does_not_come_is_not_ready() -> None:
    async with PartitionRig(settings=PartitionSettings(mount_wait_seconds=0.01)) as rig:
        client = FakeClient(1)
        req_id = rig.req_id(client, GENERATION + 1)
        rig.partition.mount(client, req_id.pack(), GENERATION + 1, -1)
        rig.flush(client, GENERATION + 1)
        await rig.until(lambda: bool(client.stream))
        assert client.messages() == [MountResponse(req_id, MountState.NOT_READY)]
        assert len(rig.partition._future) == 1
        last = rig.req_id(client, GENERATION + 1)
        rig.partition.mount(client, last.pack(), GENERATION + 1, -1)
        rig.partition.close()
        assert client.messages()[-1] == MountResponse(last, MountState.NOT_READY)
