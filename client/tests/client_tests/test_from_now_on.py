"""A feed from now on whose server hears of it later: nothing that was appended meanwhile is left out."""

from __future__ import annotations

import asyncio

import pytest

from client_tests.helpers import until
from client_tests.producers import crashing, orders
from client_tests.test_blocks import Wire, block, opened, sent
from client_tests.test_stream_partition import answer, mounted
from waltz_client.errors import WaltzClientError
from waltz_client.testing import InProcessLog
from waltz_client.testing.values import ClientConnection
from waltz_protocol.messages import client as m


@pytest.mark.parametrize("known_before_the_refusal", [True, False])
def test_safety_e1_a_feed_from_now_on_begins_at_the_end_that_was_known_first(
    known_before_the_refusal: bool,
) -> None:
    wire = Wire()
    feed = opened(wire, after=None)
    if known_before_the_refusal:
        feed.end_known(12)
    feed.failed(m.BlockFailureCode.NOT_SERVED, "opening")
    if not known_before_the_refusal:
        feed.end_known(12)
    feed.end_known(14)
    assert sent(wire, feed).after == 12
    feed.block_received(block(13, 15))
    assert feed.position == 15


def test_safety_e1_a_feed_from_now_on_that_was_opened_later_is_opened_again() -> None:
    wire = Wire()
    feed = opened(wire, after=None)
    feed.end_known(12)
    feed.block_received(block(15, 14, []))
    assert [type(one) for one in wire.sent] == [m.BlockFeedRequest, m.BlockFeedEnd]
    assert len(wire.retries) == 1
    assert sent(wire, feed).after == 12
    feed.block_received(block(13, 14))
    assert feed.position == 14


@pytest.mark.parametrize("first", [12, 13])
def test_a_feed_from_now_on_that_was_opened_in_time_continues(first: int) -> None:
    wire = Wire()
    feed = opened(wire, after=None)
    feed.end_known(12)
    feed.block_received(block(first, first - 1, []))
    assert (feed.position, wire.retries) == (first - 1, [])


def test_a_feed_from_now_on_names_its_place_when_an_older_server_has_the_partition() -> None:
    feed = opened(Wire(), after=None)
    feed.failed(m.BlockFailureCode.NOT_SERVED, "opening")
    feed.end_known(12)
    assert not feed.takes(4)
    assert feed.position == 12


class Reader:
    """A reader of blocks that notes where the log ends."""

    position: int | None = None

    def __init__(self) -> None:
        self.ends: list[int] = []

    def end_known(self, mark: int) -> None:
        self.ends.append(mark)

    def fail(self, error: WaltzClientError) -> None:
        self.ends.clear()


async def test_readers_of_blocks_hear_where_the_log_ends_at_the_start_and_at_each_mount() -> None:
    partition, session = mounted(4)
    reader = Reader()
    partition.readers.blocks.add(reader)
    partition.generation_raised()
    answer(partition, session)
    assert reader.ends == [4]
    partition.deactivate()
    assert reader.ends == []
    partition.readers.blocks.add(reader)
    partition.activate()
    partition.start_at(9)
    assert reader.ends == [9]


async def test_safety_e1_what_a_client_appends_is_in_its_feed_from_now_on() -> None:
    """The new owner of the partition is still opening it when the feed begins."""
    log = InProcessLog()
    partition = log.partition(0)
    partition.commit(b"old")
    take, refusals = partition.blocks_received, 5

    def refuse(
        connection: ClientConnection, message: m.BlockFeedRequest | m.BlockCredit | m.BlockFeedEnd
    ) -> None:
        nonlocal refusals
        if isinstance(message, m.BlockFeedRequest) and refusals:
            refusals -= 1
            connection.send(m.BlockFailure(message.req_id, m.BlockFailureCode.NOT_SERVED, "opening"))
        else:
            take(connection, message)

    partition.blocks_received = refuse  # type: ignore[method-assign]
    async with log.client() as client, asyncio.timeout(10):
        feed = client.feed(0, after=None)
        appended = [(await client.append(partition=0, data=b"mine")).transaction_id for _ in range(3)]
        assert refusals, "the feed began before the appends: the test shows nothing"
        assert [(await anext(feed)).transaction_id for _ in range(3)] == appended


@pytest.mark.parametrize("let_go", [False, True])
@pytest.mark.parametrize("headers_only", [False, True])
async def test_a_feed_from_now_on_of_a_producer_that_catches_up_leaves_out_what_was_there(
    headers_only: bool, let_go: bool
) -> None:
    """Its stream begins at its checkpoint."""
    log = InProcessLog()
    partition = log.partition(0)
    async with crashing(log) as client:
        await client.append(partition=0, data=b"0", sequence=0)
    async with orders(log, autoMount=False) as client, asyncio.timeout(10):
        await client.set_partitions([0])
        if let_go:
            await client.last_sequence(0)
            await client.set_partitions([])
        partition.pause_feed()
        for _ in range(10):
            partition.commit(b"old")
        await client.set_partitions([0])
        stream = client._open.partitions.streams[0]
        await until(lambda: stream.received == (0 if let_go else -1))
        feed = client.feed(0, after=None, headers_only=headers_only)
        assert not stream.mounted
        assert (await client.high_water_mark(0)) == 10
        partition.resume_feed()
        await until(lambda: stream.mounted)
        assert partition.commit(b"new") == 11
        assert (await anext(feed)).transaction_id == 11


@pytest.mark.parametrize("headers_only", [False, True])
async def test_a_feed_from_now_on_of_a_client_that_is_cut_off_leaves_nothing_out(headers_only: bool) -> None:
    """Where the log ends at the call nobody can say: it begins after what was received."""
    log = InProcessLog()
    async with log.client() as client, asyncio.timeout(10):
        await client.append(partition=0, data=b"0")
        log.go_down()
        await until(lambda: not client.status().partitions[0].available)
        feed = client.feed(0, after=None, headers_only=headers_only)
        log.partition(0).commit(b"1")
        log.come_up()
        await until(lambda: client.status().partitions[0].available)
        log.partition(0).commit(b"2")
        assert [(await anext(feed)).transaction_id for _ in range(2)] == [1, 2]
