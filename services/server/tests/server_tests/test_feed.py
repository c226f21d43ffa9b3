"""Feeds: credit, suspension, versions, slow clients, caches, failing storage; and all of it at random."""

import asyncio
import random
import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from waltz_protocol.frames.feed import FRAME_BYTES
from waltz_protocol.messages.client import FeedData, FeedSuspended, MountResponse, MountState
from waltz_protocol.types import ReqId
from waltz_server.partition import awaited_reads, feed
from waltz_server.partition.owned_partition import PartitionSettings
from waltz_testkit.client_peers import FakeClient, split_frames
from waltz_testkit.partition_rig import GENERATION, PartitionRig

SMALL = PartitionSettings(min_fetch_size=3, realtime_threshold=20)


async def test_exactly_credit_transactions_then_suspended() -> None:
    async with PartitionRig(settings=SMALL) as rig:
        client = FakeClient()
        await rig.mount(client)
        client.clear()
        request = rig.feed(client, -1)
        for _ in range(5):
            rig.append(client)
        await rig.turns()
        assert client.fed() == [0, 1, 2]
        assert client.messages()[-1] == FeedSuspended(request)
        rig.feed(client, 2)
        await rig.turns()
        assert client.fed() == [0, 1, 2, 3, 4]


async def test_gap_larger_than_the_minimum_is_the_credit() -> None:
    async with PartitionRig(records=10, settings=SMALL) as rig:
        client = FakeClient()
        await rig.mount(client)
        client.clear()
        request = rig.feed(client, 2)
        await rig.until(lambda: len(client.messages()) == 8)
        assert client.fed() == [3, 4, 5, 6, 7, 8, 9]
        assert client.messages()[-1] == FeedSuspended(request)


async def test_client_server_13_22_credit_beyond_32_bits() -> None:
    async with PartitionRig(settings=SMALL) as rig:
        client = FakeClient()
        await rig.mount(client)
        client.clear()
        gap = 2**31 + 5
        rig.partition._mark.rise_to(gap - 1)  # a log of that size, none of it cached
        rig.partition._open_feed(client, rig.req_id(client).pack(), -1, gap - 1)
        await rig.turns()
        (opened,) = rig.partition._feeds._all()
        assert opened.credit == gap
        rig.partition._feeds.forget(client)


@pytest.mark.parametrize("version", range(5))
async def test_every_version_gets_its_own_stamp(version: int) -> None:
    async with PartitionRig(records=30, settings=SMALL) as rig:
        client = FakeClient(version=version)
        await rig.mount(client, 29)
        client.clear()
        rig.feed(client, -1)
        await rig.until(lambda: len(client.stream) >= 30 * FRAME_BYTES)
        assert {stamped for stamped, _ in split_frames(client.stream)} == {version}
        assert client.fed() == list(range(30))


async def test_commit_is_encoded_once_and_written_to_all_realtime_feeds() -> None:
    async with PartitionRig(settings=SMALL) as rig:
        clients = [FakeClient(n, version=v) for n, v in enumerate((4, 4, 2, 0))]
        for client in clients:
            await rig.mount(client)
            client.clear()
            rig.feed(client, -1)
        sent = rig.append(clients[0])
        await rig.turns()
        for client in clients:
            assert client.of(FeedData) == [FeedData(sent, 0, 0)]


async def test_slow_client_is_parked_and_bounded() -> None:
    async with PartitionRig(records=5000, settings=SMALL) as rig:
        slow = FakeClient(buffer_bytes=10_000)
        await rig.mount(slow, 4999)
        slow.clear()
        slow.drain()
        rig.feed(slow, -1)
        await rig.until(lambda: not slow.writable)
        await rig.turns()
        assert len(rig.partition._feeds) == 1
        limit = 10_000 + feed.READ_AHEAD_RECORDS * FRAME_BYTES
        for _ in range(1000):
            if len(slow.fed()) == 5000:
                break
            slow.drain()
            await rig.turns(4)
        assert slow.fed() == list(range(5000))
        assert slow.most_waiting_bytes <= limit


async def test_other_clients_go_on_while_one_is_slow() -> None:
    async with PartitionRig(settings=SMALL) as rig:
        slow, quick = FakeClient(1, buffer_bytes=0), FakeClient(2)
        for client in (slow, quick):
            await rig.mount(client)
            client.clear()
            client.drain()
            rig.feed(client, -1)
        for _ in range(3):
            rig.append(quick)
            await rig.turns()
        assert slow.fed() == [0]
        assert quick.fed() == [0, 1, 2]
        slow.drain()
        await rig.turns()
        assert slow.fed() == [0, 1, 2]


async def test_client_server_13_19_failing_storage_is_asked_again_with_pauses() -> None:
    async with PartitionRig(records=10, settings=SMALL) as rig:
        client = FakeClient()
        await rig.mount(client, 9)
        client.clear()
        rig.store.read_error = "no replica answers"
        rig.feed(client, -1)
        await asyncio.sleep(0.15)
        assert 1 <= len(rig.store.reads) <= 3
        rig.store.read_error = None
        await rig.until(lambda: len(client.fed()) == 10)
        assert rig.count("read-failures") >= 1


async def test_client_server_13_19_feeds_of_dead_connections_are_counted_as_removed() -> None:
    async with PartitionRig(records=50, settings=SMALL) as rig:
        near, far = FakeClient(1), FakeClient(2)
        rig.store.gate.clear()
        for client, mark in ((near, 49), (far, 0)):
            await rig.mount(client, 49)
            rig.feed(client, mark)
        await rig.turns()
        for client in (near, far):
            client.closed = True
            rig.partition.client_closed(client)
        added = rig.count("total-real-time-feed-context-added") + rig.count(
            "total-catchup-feed-context-added"
        )
        removed = rig.count("total-real-time-feed-context-removed") + rig.count(
            "total-catchup-feed-context-removed"
        )
        assert added == removed > 0
        assert len(rig.partition._feeds) == 0


async def test_mount_catch_up_precedes_ready_also_when_commits_come_meanwhile() -> None:
    async with PartitionRig(records=30, settings=SMALL) as rig:
        writer, late = FakeClient(1), FakeClient(2)
        await rig.mount(writer)
        rig.store.gate.clear()
        req_id = rig.req_id(late)
        rig.partition.mount(late, req_id.pack(), GENERATION, -1)
        await rig.turns()
        rig.append(writer)
        await rig.turns()
        assert late.messages() == []
        rig.store.gate.set()
        await rig.until(lambda: MountResponse(req_id, MountState.READY) in late.messages())
        assert late.fed() == list(range(30))
        assert late.messages()[-1] == MountResponse(req_id, MountState.READY)


async def test_safety_d1_uncommitted_transactions_are_never_fed() -> None:
    async with PartitionRig(auto_commit=False, settings=SMALL) as rig:
        client = FakeClient()
        await rig.mount(client)
        client.clear()
        rig.feed(client, -1)
        rig.append(client)
        await rig.turns()
        assert client.fed() == []
        rig.store.commit_next()
        assert client.fed() == [0]


@pytest.mark.parametrize("place", ["tip", "queue", "parked", "reading"])
async def test_the_same_request_again_moves_its_feed_wherever_it_is(place: str) -> None:
    """Before, a second feed was opened, and the first one ran on to the end of the log for nobody."""
    async with PartitionRig(records=5000, settings=SMALL) as rig:
        client = FakeClient(buffer_bytes=10_000 if place == "parked" else None)
        await rig.mount(client, 4999)
        client.drain()
        client.clear()
        if place == "reading":
            rig.store.gate.clear()
        request = rig.feed(client, 4999 if place == "tip" else -1)
        await rig.turns(0 if place == "queue" else 12)
        feeds = rig.partition._feeds
        if place == "parked":
            assert not client.writable
        if place == "queue":
            assert feeds._far
        if place == "reading":
            assert feeds._reading
        before = len(client.fed())
        rig.feed(client, 4989, request)
        assert len(feeds) == 1
        rig.store.gate.set()
        client.drain()
        await rig.until(lambda: bool(client.of(FeedSuspended)))
        assert client.fed()[before:] == list(range(4990, 5000))
        assert client.messages()[-1] == FeedSuspended(request)
        assert len(feeds) == 0
        rig.append(client)
        await rig.turns()
        assert len(client.fed()) == before + 10


@pytest.mark.parametrize("place", ["queue", "parked"])
async def test_a_feed_that_is_moved_to_the_end_has_the_least_credit_left(place: str) -> None:
    async with PartitionRig(records=5000, settings=SMALL) as rig:
        client = FakeClient(buffer_bytes=10_000)
        await rig.mount(client, 4999)
        client.drain()
        client.clear()
        request = rig.feed(client, -1)
        if place == "parked":
            await rig.until(lambda: not client.writable)
        sent = len(client.fed())
        rig.feed(client, 4999, request)
        client.drain()
        for _ in range(5):
            rig.append(client)
        await rig.turns()
        assert client.fed()[sent:] == [5000, 5001, 5002]
        assert client.messages()[-1] == FeedSuspended(request)


async def test_a_feed_request_does_not_end_the_catch_up_of_the_mount_it_names() -> None:
    async with PartitionRig(records=30, settings=SMALL) as rig:
        client = FakeClient()
        await rig.mount(client, 29)
        client.clear()
        rig.store.gate.clear()
        req_id = rig.req_id(client)
        for _ in range(2):
            rig.partition.mount(client, req_id.pack(), GENERATION, -1)
        await rig.turns()
        rig.feed(client, 29, req_id)
        await rig.turns()
        assert len(rig.partition._feeds) == 3
        rig.store.gate.set()
        ready = MountResponse(req_id, MountState.READY)
        await rig.until(lambda: client.messages().count(ready) == 2)


async def test_a_poller_that_keeps_its_request_id_is_never_cut() -> None:
    async with PartitionRig(records=10, settings=SMALL) as rig:
        client = FakeClient()
        await rig.mount(client)
        request = rig.req_id(client)
        for _ in range(3 * feed.MAX_FEEDS_PER_CLIENT):
            rig.feed(client, 8, request)
            await rig.turns(2)
        assert not client.closed
        assert len(rig.partition._feeds) == 1


async def test_what_is_committed_is_written_once_to_a_client_with_many_feeds() -> None:
    """Each feed is charged for it, and is suspended right after the last transaction of its credit."""
    async with PartitionRig(settings=SMALL) as rig:
        client, other = FakeClient(1), FakeClient(2)
        for mounted in (client, other):
            await rig.mount(mounted)
            mounted.clear()
        first = rig.feed(client, -1)
        rig.append(client)
        await rig.turns()
        second, third = rig.feed(client, 0), rig.feed(client, 0)
        rig.feed(other, -1)
        await rig.turns()
        for _ in range(4):  # one commit of four
            rig.append(client)
        await rig.turns()
        assert client.fed() == [0, 1, 2, 3]
        suspended = [message.req_id for message in client.messages() if isinstance(message, FeedSuspended)]
        assert suspended == [first, second, third]
        assert client.messages()[3] == FeedSuspended(first)  # its credit was three
        assert other.fed() == [0, 1, 2]


class _Reader:
    """A client at random: asks for a feed, reads slowly or not, asks again when it is suspended, and
    sometimes before, under the same ReqId, from the place it has reached."""

    def __init__(self, client: FakeClient) -> None:
        self.client = client
        self.suspended = True
        self.request: ReqId | None = None

    def step(self, rig: PartitionRig, rng: random.Random) -> None:
        fed = self.client.fed()
        self.suspended = self.suspended or bool(self.client.of(FeedSuspended))
        if self.suspended and rng.random() < 0.5:
            self.suspended = False
            self.client.stream = b"".join(
                frame for frame in _frames(self.client.stream) if len(frame) == FRAME_BYTES
            )
            self.request = rig.feed(self.client, len(fed) - 1)
        elif not self.suspended and rng.random() < 0.1:
            rig.feed(self.client, len(fed) - 1, self.request)
        if rng.random() < 0.5:
            self.client.drain()


def _frames(stream: bytes) -> list[bytes]:
    return [struct.pack(">bhi", 0x4C, version, len(body)) + body for version, body in split_frames(stream)]


@settings(max_examples=60)
@given(st.integers(0, 2**32), st.integers(0, 60), st.booleans())
def test_every_feed_gets_each_transaction_once_in_order(seed: int, records: int, tiny_caches: bool) -> None:
    """Random credits, slow channels, evictions, short reads, failing reads, lost sessions, interleaved
    commits."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(awaited_reads, "FIRST_RETRY_SECONDS", 0.0)
        asyncio.run(_random_feeds(seed, records, tiny_caches))


async def _random_feeds(seed: int, records: int, tiny_caches: bool) -> None:
    rng = random.Random(seed)
    size = 1 if tiny_caches else 1024 * 1024
    async with PartitionRig(
        records=records,
        auto_commit=False,
        settings=PartitionSettings(min_fetch_size=rng.randint(1, 7), realtime_threshold=9),
        feed_cache_bytes=size,
        transaction_cache_bytes=size,
    ) as rig:
        readers = []
        for n in range(4):
            client = FakeClient(
                n, version=rng.choice((4, 3, 0)), buffer_bytes=rng.choice((None, 0, 80, 2000))
            )
            await rig.mount(client)
            client.clear()
            client.drain()
            readers.append(_Reader(client))
        await _play(rig, readers, rng)
        expected = list(range(len(rig.store.log)))
        for reader in readers:
            assert reader.client.fed() == expected


async def _play(rig: PartitionRig, readers: list[_Reader], rng: random.Random) -> None:
    """Random steps, then a quiet end in which everybody gets everything."""
    writer = readers[0].client
    for _ in range(60):
        for _ in range(rng.randint(0, 3)):
            rig.append(writer)
        if rng.random() < 0.5:
            rig.store.commit_next(rng.randint(0, rig.store.pending))
        if rng.random() < 0.05:
            rig.store.lose_session("at random")
            rig.store.settle(committed=rng.randint(0, rig.store.pending))
            rig.store.open_session()
        if rng.random() < 0.1:
            rig.caches.feed.drop(rig.partition.partition_id)
        rig.store.max_records_per_read = rng.choice((1, 5, 1000))
        rig.store.read_error = "at random" if rng.random() < 0.1 else None
        for reader in readers:
            reader.step(rig, rng)
        await rig.turns(rng.randint(0, 4))
    rig.store.read_error = None
    await rig.turns()
    rig.store.commit_next()
    for _ in range(400):
        await asyncio.sleep(0.0001)
        for reader in readers:
            reader.step(rig, rng)
        if all(len(reader.client.fed()) == len(rig.store.log) for reader in readers):
            return
