"""Feeds of blocks: order, credit, filters, slow clients, caches, failing storage; and all of it at random."""

import functools
import random
from collections.abc import Sequence
from dataclasses import dataclass

import pytest

from waltz_protocol.frames.blocks import (
    FEED_BLOCK,
    LAST_BLOCK,
    MAX_BLOCK_BYTES,
    Block,
    parse_block,
    stored_of_record,
)
from waltz_protocol.frames.compressed_blocks import BlockCompressor, BlockExpander
from waltz_protocol.messages.client import (
    FROM_THE_END,
    WITHOUT_END,
    BlockFailure,
    BlockFailureCode,
    BlockFeedRequest,
)
from waltz_protocol.types import ReqId
from waltz_server.partition.block_feeds import MAX_BLOCK_FEEDS_PER_CLIENT
from waltz_server.partition.compressed_blocks import CompressedBlocks
from waltz_testkit.client_peers import FakeClient, split_frames
from waltz_testkit.partition_rig import GENERATION, PARTITION, PartitionRig, wire_record

MANY = 2**31 - 1
MUCH = 2**62
EXPANDER = BlockExpander("a test")
NO_REQUEST = ReqId(0, 0, 0, 0)


def open_feed(
    rig: PartitionRig,
    client: FakeClient,
    after: int = -1,
    until: int = WITHOUT_END,
    *,
    credit: int = MANY,
    credit_bytes: int = MUCH,
    headers: Sequence[tuple[int, int]] = (),
    seq_num: int = 1,
    flags: int = 0,
) -> ReqId:
    req_id = ReqId(client.client_id, GENERATION, PARTITION, seq_num)
    request = BlockFeedRequest(req_id, after, until, credit, credit_bytes, flags, tuple(headers))
    rig.partition.block_feeds_of(client).open(client, request)
    return req_id


def reader(number: int = 1, *, buffer_bytes: int | None = None) -> FakeClient:
    return FakeClient(number, version=5, buffer_bytes=buffer_bytes)


def blocks(client: FakeClient) -> list[Block]:
    return [parse_block(EXPANDER.expanded(memoryview(body))) for body in bodies(client)]


def bodies(client: FakeClient) -> list[bytes]:
    """Of the blocks, as they were sent."""
    return [body for _, body in split_frames(client.stream) if body[0] == FEED_BLOCK]


def ids(client: FakeClient) -> list[int]:
    """Transactions in the order in which they came; the blocks must follow one another."""
    found: list[int] = []
    covered: int | None = None
    for block in blocks(client):
        assert covered is None or block.first == covered + 1
        covered = block.last
        found += [fields[4] for fields in block.fields()]
    return found


def failures(client: FakeClient) -> list[BlockFailure]:
    return [one for one in client.messages() if isinstance(one, BlockFailure)]


async def test_everything_in_order_and_then_what_is_committed() -> None:
    async with PartitionRig(records=700) as rig:
        writer, client = FakeClient(9), reader()
        await rig.mount(writer)
        open_feed(rig, client)
        await rig.until(lambda: len(ids(client)) == 700)
        for number in range(5):
            rig.append(writer, data=b"new %d" % number)
            await rig.turns()
        assert ids(client) == list(range(705))
        last = blocks(client)[-1]
        assert last.payloads() == [b"new 4"]
        assert last.fields()[0][0] == 9


async def test_safety_d1_nothing_above_the_mark_leaves() -> None:
    async with PartitionRig(records=3, auto_commit=False) as rig:
        writer, client = FakeClient(9), reader()
        await rig.mount(writer)
        open_feed(rig, client)
        rig.append(writer)
        rig.append(writer)
        await rig.until(lambda: len(ids(client)) == 3)
        await rig.turns(50)
        assert ids(client) == [0, 1, 2]
        assert all(block.last <= 2 for block in blocks(client))
        rig.store.commit_next(1)
        await rig.turns()
        assert ids(client) == [0, 1, 2, 3]
        open_feed(rig, client, seq_num=2)
        await rig.turns(50)
        assert max(block.last for block in blocks(client)) == 3


async def test_safety_d1_what_is_cached_above_the_mark_does_not_leave_either() -> None:
    async with PartitionRig(records=3) as rig:
        client = reader()
        for txid in range(4):
            rig.partition._transactions.put(txid, stored_of_record(wire_record(txid)))
        open_feed(rig, client)
        await rig.until(lambda: len(ids(client)) >= 3)
        assert ids(client) == [0, 1, 2]
        assert blocks(client)[-1].last == 2


async def test_a_feed_that_begins_ahead_of_the_log_waits_for_it() -> None:
    async with PartitionRig(records=3) as rig:
        writer, client = FakeClient(9), reader()
        await rig.mount(writer)
        open_feed(rig, client, 5)
        await rig.turns()
        for _ in range(5):
            rig.append(writer)
            await rig.turns()
        assert ids(client) == [6, 7]
        assert [block.first for block in blocks(client)] == [6, 6, 7]


async def test_a_feed_at_the_end_whose_client_reads_no_longer_waits_for_it() -> None:
    async with PartitionRig(records=1) as rig:
        writer, client = FakeClient(9), reader(buffer_bytes=0)
        await rig.mount(writer)
        client.drain()
        open_feed(rig, client, 0)
        await rig.turns()
        client.drain()
        await rig.turns()
        client.writable, sent = False, len(client.stream)
        for _ in range(20):
            rig.append(writer, data=b"x" * 100)
            await rig.turns()
        assert len(client.stream) == sent
        while len(ids(client)) < 20:
            client.drain()
            await rig.turns()
        assert ids(client) == list(range(1, 21))


async def test_an_end_is_said_once() -> None:
    async with PartitionRig(records=20) as rig:
        client = reader()
        open_feed(rig, client, 4, 9)
        await rig.until(lambda: len(blocks(client)) >= 1)
        await rig.turns(30)
        assert ids(client) == [5, 6, 7, 8, 9]
        assert [block.flags for block in blocks(client)][-1] == LAST_BLOCK
        assert not len(rig.partition._block_feeds)
        open_feed(rig, client, 9, 9, seq_num=2)
        assert blocks(client)[-1].flags == LAST_BLOCK


async def test_an_end_that_is_not_reached_yet_is_waited_for() -> None:
    async with PartitionRig(records=2) as rig:
        writer, client = FakeClient(9), reader()
        await rig.mount(writer)
        open_feed(rig, client, 0, 3)
        await rig.until(lambda: ids(client) == [1])
        for _ in range(4):
            rig.append(writer)
        await rig.until(lambda: ids(client) == [1, 2, 3])
        await rig.turns()
        assert ids(client) == [1, 2, 3]


async def test_from_the_end_says_where_that_is() -> None:
    async with PartitionRig(records=20, open_at_once=False) as rig:
        writer, client = FakeClient(9), reader()
        open_feed(rig, client, FROM_THE_END)
        await rig.turns()
        assert not blocks(client)  # nothing is known before the recovery is over
        rig.store.open_session()
        await rig.until(lambda: len(blocks(client)) == 1)
        assert (blocks(client)[0].first, blocks(client)[0].last, blocks(client)[0].count) == (20, 19, 0)
        await rig.mount(writer)
        rig.append(writer)
        await rig.until(lambda: ids(client) == [20])


async def test_exactly_the_credit_in_transactions() -> None:
    async with PartitionRig(records=100) as rig:
        client = reader()
        req_id = open_feed(rig, client, credit=7)
        await rig.until(lambda: len(ids(client)) >= 7)
        await rig.turns(50)
        assert ids(client) == list(range(7))
        rig.partition.block_feeds_of(client).credit(client, req_id.pack(), 5, 0)
        await rig.turns(50)
        assert ids(client) == list(range(12))
        rig.partition.block_feeds_of(client).credit(client, ReqId(1, 1, 1, 1).pack(), 5, 5)
        await rig.turns(50)
        assert ids(client) == list(range(12))


async def test_the_credit_in_bytes_is_exceeded_by_less_than_a_transaction() -> None:
    async with PartitionRig(records=100) as rig:
        client = reader()
        req_id = open_feed(rig, client, credit_bytes=100)
        await rig.until(lambda: len(ids(client)) >= 3)
        await rig.turns(50)
        assert ids(client) == [0, 1, 2]  # 43 bytes each: two fit, the third begins inside
        rig.partition.block_feeds_of(client).credit(client, req_id.pack(), 0, 43)
        await rig.turns(50)
        assert ids(client) == [0, 1, 2, 3]


async def test_without_credit_a_feed_is_open_and_silent() -> None:
    async with PartitionRig(records=10) as rig:
        client = reader()
        open_feed(rig, client, 3, credit=0)
        await rig.turns(30)
        (block,) = blocks(client)
        assert (block.first, block.last, block.count) == (4, 3, 0)


async def test_commits_do_not_exceed_the_credit_either() -> None:
    async with PartitionRig() as rig:
        writer, client = FakeClient(9), reader()
        await rig.mount(writer)
        open_feed(rig, client, credit=3)
        for _ in range(8):
            rig.append(writer)
        await rig.turns(50)
        assert ids(client) == [0, 1, 2]


async def test_a_filter_covers_what_it_leaves_out_and_nothing_more() -> None:
    async with PartitionRig() as rig:
        writer, client = FakeClient(9), reader()
        await rig.mount(writer)
        open_feed(rig, client, headers=[(5, 6), (-1, -1)], credit=4)
        for header in (0, 5, 6, 7, -1, 0, 0, 5, 5, 0):
            rig.append(writer, data=b"x", header=header)
            await rig.turns()
        await rig.turns(50)
        assert ids(client) == [1, 2, 4, 7]
        assert blocks(client)[-1].last == 7  # the next one that passes is not paid for: it is not passed over
        rig.partition.block_feeds_of(client).credit(client, ReqId(1, GENERATION, PARTITION, 1).pack(), 10, 0)
        await rig.turns(50)
        assert ids(client) == [1, 2, 4, 7, 8]
        assert blocks(client)[-1].last == 9


async def test_the_same_request_id_begins_again() -> None:
    async with PartitionRig(records=30) as rig:
        client = reader()
        open_feed(rig, client, credit=2)
        await rig.until(lambda: len(blocks(client)) >= 1)
        client.clear()
        open_feed(rig, client, 20)
        await rig.until(lambda: len(ids(client)) == 9)
        assert ids(client) == list(range(21, 30))
        assert len(rig.partition._block_feeds) == 1


@pytest.mark.parametrize("state", ["tip", "dry", "parked", "reading"])
async def test_a_feed_ends_wherever_it_is(state: str) -> None:
    async with PartitionRig(records=50, transaction_cache_bytes=0) as rig:
        client = reader()
        client.writable = state != "parked"
        if state == "reading":
            rig.store.gate.clear()
        req_id = open_feed(rig, client, 49 if state == "tip" else 3, credit=0 if state == "dry" else MANY)
        await rig.turns(4)
        rig.partition.block_feeds_of(client).end(client, req_id.pack())
        feeds = rig.partition._block_feeds
        assert not len(feeds)
        assert not (feeds._tip)
        assert not (feeds._dry)
        assert not (feeds._queue)
        assert not (feeds._reading)
        assert not (any(feeds._parked.values()))
        client.clear()
        client.drain()
        if state == "reading":
            rig.store.gate.set()
        await rig.turns(30)
        assert not client.stream


async def test_a_client_that_grants_everything_and_reads_nothing_costs_one_buffer() -> None:
    async with PartitionRig(records=5000) as rig:
        client = reader(buffer_bytes=20_000)
        open_feed(rig, client)
        await rig.turns(400)
        assert client.most_waiting_bytes <= 20_000 + MAX_BLOCK_BYTES + 1000
        while len(ids(client)) < 5000:
            client.drain()
            await rig.turns(20)
        assert ids(client) == list(range(5000))


async def test_a_turn_sends_a_bounded_number_of_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    async with PartitionRig(records=1) as rig:
        writer, clients = FakeClient(9), [reader(number) for number in range(1, 41)]
        await rig.mount(writer)
        for _ in range(3):
            rig.append(writer, data=bytes(200_000))
            await rig.turns()
        feeds = rig.partition.block_feeds_of(clients[0])
        for client in clients:
            open_feed(rig, client, after=0)
        feeds._pump()
        assert sum(len(client.stream) for client in clients) < 3 << 20
        await rig.until(lambda: all(ids(client) == [1, 2, 3] for client in clients))


async def test_many_feeds_of_many_clients_all_get_there() -> None:
    async with PartitionRig(records=60) as rig:
        clients = [reader(number) for number in range(100)]
        for client in clients:
            for number in range(MAX_BLOCK_FEEDS_PER_CLIENT):
                open_feed(rig, client, 49 + number % 5, credit=3, seq_num=number)
        assert len(rig.partition._block_feeds) == 100 * MAX_BLOCK_FEEDS_PER_CLIENT
        open_feed(rig, clients[0], seq_num=1000)
        assert failures(clients[0])[0].code == BlockFailureCode.TOO_MANY_FEEDS
        await rig.until(
            lambda: not rig.partition._block_feeds._queue and not rig.partition._block_feeds._reading
        )
        for client in clients:
            per_feed: dict[int, list[int]] = {}
            for block in blocks(client):
                per_feed.setdefault(block.seq_num, []).extend(f[4] for f in block.fields())
            for number, got in per_feed.items():
                begin = 50 + number % 5
                assert got == [begin, begin + 1, begin + 2]


@pytest.mark.parametrize("after", [-3, 2**63 - 1])
async def test_an_absurd_beginning_is_refused(after: int) -> None:
    async with PartitionRig(records=5) as rig:
        client = reader()
        open_feed(rig, client, after)
        assert failures(client)[0].code == BlockFailureCode.WRONG_REQUEST
        assert not len(rig.partition._block_feeds)


async def test_a_failing_read_is_tried_again_and_leaves_no_gap() -> None:
    async with PartitionRig(records=600) as rig:
        rig.store.bad_ids.add(300)
        client = reader()
        open_feed(rig, client)
        await rig.until(lambda: len(ids(client)) == 256)
        await rig.turns(50)
        assert len(ids(client)) == 256
        rig.store.bad_ids.clear()
        await rig.until(lambda: len(ids(client)) == 600)
        assert ids(client) == list(range(600))


async def test_the_clients_hear_that_the_partition_leaves() -> None:
    async with PartitionRig(records=5) as rig:
        clients = [reader(number) for number in range(3)]
        for client in clients:
            open_feed(rig, client)
        await rig.turns(30)
        rig.partition.close()
        for client in clients:
            assert [one.code for one in failures(client)] == [BlockFailureCode.NOT_SERVED]
        late = reader(7)
        open_feed(rig, late)
        assert [one.code for one in failures(late)] == [BlockFailureCode.NOT_SERVED]


async def test_a_connection_that_has_gone_leaves_nothing() -> None:
    async with PartitionRig(records=500) as rig:
        client = reader()
        for number in range(5):
            open_feed(rig, client, number * 100, seq_num=number)
        client.closed = True
        rig.partition.client_closed(client)
        await rig.turns(50)
        feeds = rig.partition._block_feeds
        assert not len(feeds)
        assert not (feeds._tip)
        assert not (feeds._dry)
        assert not (feeds._queue)
        assert not (feeds._reading)
        assert not (feeds._parked)


@dataclass
class Reading:
    """A reader of `test_at_random`."""

    client: FakeClient
    headers: Sequence[tuple[int, int]]
    after: int
    granted: int
    flags: int
    req_id: ReqId = NO_REQUEST

    def open(self, rig: PartitionRig) -> None:
        self.req_id = open_feed(
            rig, self.client, self.after, credit=self.granted, headers=self.headers, flags=self.flags
        )

    def grant(self, rig: PartitionRig, more: int) -> None:
        self.granted += more
        rig.partition.block_feeds_of(self.client).credit(self.client, self.req_id.pack(), more, 0)

    def wanted(self, log: Sequence[bytes]) -> list[int]:
        headers = [int.from_bytes(record[24:28], "big", signed=True) for record in log]
        return [
            txid
            for txid in range(self.after + 1, len(log))
            if not self.headers or any(first <= headers[txid] <= last for first, last in self.headers)
        ]

    def is_done(self, log: Sequence[bytes]) -> bool:
        self.client.drain()
        return ids(self.client) == self.wanted(log) and blocks(self.client)[-1].last == len(log) - 1


@pytest.mark.parametrize("seed", range(12))
async def test_at_random(seed: int) -> None:
    """Whatever the credits, buffers, filters and caches are: no gap, no repetition, nothing that is not paid
    for, and everything in the end; compressed or not."""
    rng = random.Random(seed)
    filters: tuple[Sequence[tuple[int, int]], ...] = ((), ((0, 1),), ((2, 2), (0, 0)))
    cache = rng.choice((0, 2_000, 1 << 20))
    compressed = CompressedBlocks(BlockCompressor("a test")) if seed % 3 else None
    async with PartitionRig(
        records=rng.randrange(900), transaction_cache_bytes=cache, compressed=compressed
    ) as rig:
        writer = FakeClient(9)
        await rig.mount(writer)
        readings = []
        for number in range(6):
            client = reader(number, buffer_bytes=rng.choice((None, 300, 5_000)))
            after = rng.randrange(-1, len(rig.store.log))
            readings.append(Reading(client, rng.choice(filters), after, rng.randrange(50), number % 2))
            readings[-1].open(rig)
        for _ in range(60):
            if rng.random() < 0.6:
                for _ in range(rng.randrange(4)):
                    rig.append(writer, data=rng.randbytes(rng.choice((0, 10, 500))), header=rng.randrange(4))
            one = rng.choice(readings)
            one.grant(rig, rng.randrange(80))
            if rng.random() < 0.5:
                one.client.drain()
            rig.store.bad_ids = {rng.randrange(len(rig.store.log) + 1)} if rng.random() < 0.2 else set()
            await rig.turns(rng.randrange(10))
            assert all(len(ids(one.client)) <= one.granted for one in readings)
        rig.store.bad_ids = set()
        for one in readings:
            one.grant(rig, MANY)
        for one in readings:
            await rig.until(functools.partial(one.is_done, rig.store.log))
            assert not failures(one.client)
