"""Compressed blocks of a feed: who gets them, that each is made once, and that nothing else depends on it."""

import random
from collections.abc import Iterator
from typing import Any

import pytest

from server_tests.test_block_feeds import blocks, bodies, failures, ids, open_feed, reader
from waltz_protocol.frames.blocks import BLOCK_HEAD_BYTES, parse_block
from waltz_protocol.frames.compressed_blocks import TAKES_ZSTD, ZSTD_BLOCK, BlockCompressor
from waltz_protocol.messages.client import BlockFailureCode
from waltz_server.partition import compressed_blocks
from waltz_server.partition.compressed_blocks import LEFT_AS_THEY_ARE, CompressedBlocks
from waltz_testkit.client_peers import FakeClient
from waltz_testkit.partition_rig import PartitionRig

MATCHING = b'{"account": 1, "owner": "alice"}' * 20


class Counted(BlockCompressor):
    """How often it was asked, and what it made."""

    def __init__(self) -> None:
        super().__init__("a test")
        self.asked = 0

    def packed(self, records: bytes) -> bytes | None:
        self.asked += 1
        return super().packed(records)


def compressed(client: FakeClient) -> list[bool]:
    """Of each block."""
    return [bool(body[BLOCK_HEAD_BYTES - 1] & ZSTD_BLOCK) for body in bodies(client)]


async def written(rig: PartitionRig, writer: FakeClient, count: int, data: bytes = MATCHING) -> None:
    for number in range(count):
        rig.append(writer, data=data, header=number % 2)
    await rig.turns()


async def test_who_asks_for_compressed_blocks_gets_the_same_transactions() -> None:
    async with PartitionRig(records=600, compressed=CompressedBlocks(Counted())) as rig:
        writer, asks, plain = FakeClient(9), reader(1), reader(2)
        await rig.mount(writer)
        open_feed(rig, asks, flags=TAKES_ZSTD)
        open_feed(rig, plain)
        await rig.until(lambda: len(ids(asks)) == len(ids(plain)) == 600)
        await written(rig, writer, 5)
        assert ids(asks) == ids(plain) == list(range(605))
        assert b"".join(one.data for one in blocks(asks)) == b"".join(one.data for one in blocks(plain))
        assert compressed(asks)[-1]
        assert not any(compressed(plain))
        assert len(asks.stream) * 3 < len(plain.stream)
        before, after = (
            rig.metrics.meter(f"waltz-server.feed-bytes-{side}-compression") for side in ("before", "after")
        )
        assert before.count == sum(len(one.data) for one in blocks(asks))
        assert after.count == sum(len(body) - BLOCK_HEAD_BYTES for body in bodies(asks))


async def test_a_block_is_compressed_once_for_all_who_take_it() -> None:
    compressor = Counted()
    shared = CompressedBlocks(compressor)
    async with PartitionRig(compressed=shared) as rig:
        writer, clients = FakeClient(9), [reader(number) for number in range(1, 21)]
        await rig.mount(writer)
        for client in clients:
            open_feed(rig, client, flags=TAKES_ZSTD)
        await rig.turns()
        for count in range(1, 6):
            await written(rig, writer, 4)
            assert compressor.asked == count, "at the end of the log"
        late = [reader(number) for number in range(21, 31)]
        for client in late:
            open_feed(rig, client, flags=TAKES_ZSTD)
        await rig.until(lambda: all(len(ids(client)) == 20 for client in late))
        assert compressor.asked == 6, "and side by side"
        assert all(compressed(client)[-1] for client in (*clients, *late))
        assert shared.recent
    assert not shared.recent, "the partition has left"


async def test_a_filter_has_blocks_of_its_own() -> None:
    async with PartitionRig(compressed=CompressedBlocks(Counted())) as rig:
        writer, clients = FakeClient(9), [reader(number) for number in (1, 2, 3)]
        await rig.mount(writer)
        await written(rig, writer, 20)
        for client, headers in zip(clients, ((), ((0, 0),), ((1, 1),)), strict=True):
            open_feed(rig, client, until=19, headers=headers, flags=TAKES_ZSTD)
        await rig.until(lambda: all(client.stream for client in clients))
        everything, even, odd = (ids(client) for client in clients)
        assert everything == list(range(20))
        assert even == list(range(0, 20, 2))
        assert odd == list(range(1, 20, 2))


async def test_the_credit_is_in_bytes_of_records() -> None:
    async with PartitionRig(compressed=CompressedBlocks(Counted())) as rig:
        writer, asks, plain = FakeClient(9), reader(1), reader(2)
        await rig.mount(writer)
        await written(rig, writer, 40)
        open_feed(rig, asks, credit_bytes=7000, flags=TAKES_ZSTD)
        open_feed(rig, plain, credit_bytes=7000)
        await rig.turns(50)
        assert ids(asks) == ids(plain)
        assert 7000 - len(MATCHING) <= sum(len(one.data) for one in blocks(asks)) < 7000 + len(MATCHING)
        assert len(asks.stream) < 2000


async def test_a_server_that_does_not_compress_sends_blocks_as_they_are() -> None:
    async with PartitionRig(records=600) as rig:
        client = reader()
        open_feed(rig, client, flags=TAKES_ZSTD)
        await rig.until(lambda: len(ids(client)) == 600)
        assert not any(compressed(client))
        assert [parse_block(memoryview(body)).last for body in bodies(client)][-1] == 599


@pytest.mark.parametrize(("flags", "until"), [(TAKES_ZSTD | 4, -1), (4, -1), (TAKES_ZSTD, -2)])
async def test_another_request_is_refused(flags: int, until: int) -> None:
    async with PartitionRig(records=1) as rig:
        client = reader()
        open_feed(rig, client, until=until, flags=flags)
        await rig.turns()
        assert [one.code for one in failures(client)] == [BlockFailureCode.WRONG_REQUEST]


async def test_blocks_that_do_not_shrink_are_sent_as_they_are_and_seldom_tried() -> None:
    compressor, noise = Counted(), random.Random(1)
    async with PartitionRig(compressed=CompressedBlocks(compressor)) as rig:
        writer, clients = FakeClient(9), [reader(1), reader(2)]
        await rig.mount(writer)
        for client in clients:
            open_feed(rig, client, flags=TAKES_ZSTD)
        for _ in range(2 * LEFT_AS_THEY_ARE + 2):
            await written(rig, writer, 1, noise.randbytes(3000))
        assert compressor.asked == 2
        for client in clients:
            assert ids(client) == list(range(2 * LEFT_AS_THEY_ARE + 2))
            assert not any(compressed(client))
        await written(rig, writer, 1)
        for _ in range(LEFT_AS_THEY_ARE):
            await written(rig, writer, 3)
        assert compressed(clients[0])[-1], "and it is tried again"


async def test_a_turn_compresses_a_bounded_number_of_bytes() -> None:
    compressor = Counted()
    async with PartitionRig(records=1, compressed=CompressedBlocks(compressor)) as rig:
        writer, clients = FakeClient(9), [reader(number) for number in range(1, 41)]
        await rig.mount(writer)
        for _ in range(3):
            await written(rig, writer, 1, MATCHING * 300)
        feeds = rig.partition.block_feeds_of(clients[0])
        for number, client in enumerate(clients):  # each with a filter of its own, so a block of its own
            open_feed(rig, client, after=0, headers=((0, 9), (-number - 1, -1)), flags=TAKES_ZSTD)
        feeds._pump()
        assert 1 <= compressor.asked <= 3
        await rig.until(lambda: all(ids(client) == [1, 2, 3] for client in clients))


async def test_what_is_kept_is_bounded_and_ends_with_its_partition(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compressed_blocks, "RECENT_BYTES", 1000)
    monkeypatch.setattr(compressed_blocks, "RECENT_BLOCKS", 30)
    full = CompressedBlocks()
    parts = [full.partition() for _ in range(40)]
    for part in parts:
        full.keep((part, 0, 0, ()), bytes(100))
    assert [key[0] for key in full.recent] == parts[-10:], "the oldest gives way"
    assert full.used_bytes == 1000
    for part in parts:
        full.keep((part, 1, 1, ()), None)
    assert [key[:2] for key in full.recent] == [(part, 1) for part in parts[-30:]]
    assert full.used_bytes == 0
    compressor = Counted()
    shared = CompressedBlocks(compressor)
    one, other = shared.partition(), shared.partition()
    for first in range(100):
        for part in (one, other):
            packed = part.packed(first, first, (), bytes((first,)) * 2000)
            assert packed is not None
            assert shared.used_bytes == sum(len(kept or b"") for kept in shared.recent.values()) <= 1000
            assert len(shared.recent) <= 30
    asked = compressor.asked
    assert one.packed(99, 99, (), bytes((99,)) * 2000) == other.packed(99, 99, (), bytes((99,)) * 2000)
    assert compressor.asked == asked
    one.drop()
    assert shared.recent
    assert all(key[0] is other for key in shared.recent)
    other_history = b"another history" * 200
    assert one.packed(99, 99, (), other_history) == BlockCompressor("a test").packed(other_history)
    other.drop()
    one.drop()
    assert not shared.recent
    assert not shared.used_bytes


def test_dropping_a_partition_looks_at_no_block_of_the_others() -> None:
    class Closed(dict[Any, Any]):
        def __iter__(self) -> Iterator[Any]:
            raise AssertionError("all blocks are looked at")

    shared = CompressedBlocks()
    one, other = shared.partition(), shared.partition()
    for first in range(20):
        for part in (one, other):
            shared.keep((part, first, first, ()), bytes(100))
    shared.recent = Closed(shared.recent)
    one.drop()
    assert len(shared.recent) == 20
    assert shared.used_bytes == 2000
