"""Feeds and ranges over blocks: where one continues after anything that can happen to a connection, what it
refuses, and that nothing else changes for the application."""

import asyncio
import random
from collections.abc import Sequence

import pytest

from client_tests.helpers import until
from waltz_client import (
    ClientAheadError,
    HeaderNamespace,
    PartitionInactiveError,
    ServerRequestError,
    UsageError,
    WaltzClient,
    settings,
)
from waltz_client._internal.block_reads import ranges_of, transactions_of
from waltz_client._internal.partitions import Partitions
from waltz_client._internal.req_ids import ReqIdSource
from waltz_client._internal.rpc.block_feed import BlockFeed
from waltz_client._internal.rpc.call import PartitionCall
from waltz_client.ranges import RangeRead
from waltz_client.testing import InProcessLog
from waltz_protocol.codec import CLIENT
from waltz_protocol.errors import ProtocolError
from waltz_protocol.frame import FRAME_HEADER_SIZE
from waltz_protocol.frames.blocks import LAST_BLOCK, Block, block_head, parse_block, stored_of_record
from waltz_protocol.messages import client as m
from waltz_protocol.records import pack_record
from waltz_protocol.types import Record, ReqId, data_checksum

pytestmark = pytest.mark.looptime
LEDGER = HeaderNamespace("ledger")


def record(txid: int, header: int = 0, data: bytes | None = None) -> bytes:
    data = b"%d" % txid if data is None else data
    wire = pack_record(Record(txid, ReqId(9, 1, 0, txid), header, data, data_checksum(data)))
    return stored_of_record(wire)


def block(first: int, last: int, ids: Sequence[int] | None = None, *, flags: int = 0) -> Block:
    records = [record(txid) for txid in (range(first, last + 1) if ids is None else ids)]
    joined = b"".join(records)
    head = block_head(5, ReqId(1, 1, 0, 1).pack(), first, last, len(records), flags, len(joined))
    return parse_block(memoryview(head + joined)[FRAME_HEADER_SIZE:])


class Wire:
    """The RPC client and its connection, as a call sees them."""

    def __init__(self, version: int = 5) -> None:
        self.version = version
        self.takes_zstd = False
        self.calls: dict[tuple[int, int], PartitionCall] = {}
        self.sent: list[object] = []
        self.retries: list[str] = []

    def send_frame(self, frame: bytes) -> bool:
        self.sent.append(CLIENT.decode(frame[FRAME_HEADER_SIZE:], self.version))
        return True

    def retry_later(self, call: PartitionCall, reason: str) -> None:
        self.retries.append(reason)

    def forget(self, call: PartitionCall) -> None:
        pass


def opened(wire: Wire, after: int | None = 9, until: int | None = None, **windows: int) -> BlockFeed:
    windows = {"window_transactions": 10, "window_bytes": 1000} | windows
    feed = BlockFeed(
        wire, 0, after, until, headers=(), on_ready=lambda: None, on_covered=lambda *_: None, **windows
    )
    sent(wire, feed)
    return feed


def sent(wire: Wire, feed: BlockFeed) -> m.BlockFeedRequest:
    source = ReqIdSource(1, 0, random.Random(1))
    source.raise_generation(1)
    assert feed.takes(wire.version)
    wire.send_frame(feed.request(wire, source))
    feed.session = wire
    request = wire.sent[-1]
    assert isinstance(request, m.BlockFeedRequest)
    return request


def test_blocks_are_taken_in_order_and_what_does_not_continue_is_refused() -> None:
    feed = opened(Wire())
    feed.block_received(block(10, 12))
    for wrong in (block(10, 12), block(12, 13), block(14, 15)):
        with pytest.raises(ProtocolError, match="where 13 is expected"):
            feed.block_received(wrong)
    feed.block_received(block(13, 15, [14]))
    taken = [feed.take(), feed.take(), feed.take()]
    assert [one and [f[4] for f in one.fields()] for one in taken] == [[10, 11, 12], [14], None]
    assert feed.position == 15


def test_more_than_the_credit_or_the_end_is_refused() -> None:
    feed = opened(Wire())
    with pytest.raises(ProtocolError, match="beyond the credit"):
        feed.block_received(block(10, 20))
    feed = opened(Wire(), window_bytes=50)
    feed.block_received(block(10, 11))  # a byte of credit is enough for one more
    with pytest.raises(ProtocolError, match="beyond the credit"):
        feed.block_received(block(12, 12))
    feed = opened(Wire(), until=11)
    with pytest.raises(ProtocolError, match="beyond the end"):
        feed.block_received(block(10, 12))


@pytest.mark.parametrize("until", [12, None])
def test_a_last_block_before_the_end_is_refused(until: int | None) -> None:
    """No checksum covers the flag. Before, a range was short without a word, and a feed stood still."""
    feed = opened(Wire(), until=until)
    with pytest.raises(ProtocolError, match="the last block ends at transaction 11"):
        feed.block_received(block(10, 11, flags=LAST_BLOCK))
    assert (feed.position, feed.done, feed.take()) == (9, False, None)


def test_credit_is_renewed_by_what_was_taken() -> None:
    wire = Wire()
    feed = opened(wire)
    feed.block_received(block(10, 13))
    feed.take()
    assert not isinstance(wire.sent[-1], m.BlockCredit)
    feed.block_received(block(14, 15))
    feed.take()
    more = wire.sent[-1]
    assert isinstance(more, m.BlockCredit)
    assert more.transactions == 6
    feed.block_received(block(16, 25))


def test_a_new_connection_continues_from_what_was_accepted() -> None:
    wire = Wire()
    feed = opened(wire)
    feed.block_received(block(10, 13))
    wire.calls.clear()
    feed.lost()
    request = sent(wire, feed)
    assert (request.after, request.credit_transactions) == (13, 6)
    feed.block_received(block(14, 14))
    assert feed.buffered == 5


def test_from_the_end_is_where_the_first_server_says() -> None:
    wire = Wire()
    feed = opened(wire, after=None)
    assert wire.sent[-1].after == m.FROM_THE_END  # type: ignore[attr-defined]
    feed.block_received(block(7, 6, []))
    assert feed.position == 6
    assert sent(wire, feed).after == 6


def test_an_open_feed_is_not_silent_and_one_without_answer_is() -> None:
    feed = opened(Wire())
    assert feed.is_silent()
    feed.block_received(block(10, 9, []))
    assert not feed.is_silent()


def test_failures_are_tried_again_or_end_it() -> None:
    wire = Wire()
    feed = opened(wire)
    feed.failed(m.BlockFailureCode.NOT_SERVED, "gone")
    feed.failed(m.BlockFailureCode.READ_FAILED, "the disk")
    assert wire.retries == ["gone", "the disk"]
    feed.failed(m.BlockFailureCode.TOO_MANY_FEEDS, "too many")
    assert isinstance(feed.error, ServerRequestError)
    assert feed.over


def test_the_last_block_ends_it_and_leaving_early_is_said() -> None:
    wire = Wire()
    feed = opened(wire, until=11)
    feed.block_received(block(10, 11, flags=LAST_BLOCK))
    assert [feed.over, feed.take() is None, feed.over] == [False, False, True]
    assert not wire.calls
    early = opened(wire)
    early.withdraw(wire)
    assert isinstance(wire.sent[-1], m.BlockFeedEnd)


def test_a_namespace_is_a_filter_of_the_server_and_other_tests_are_not() -> None:
    assert ranges_of(LEDGER.owns) == ((LEDGER.header(0), LEDGER.header(255)),)
    for name in ("a", "ledger", "inventory", "orders", "x" * 9):
        ((first, last),) = ranges_of(HeaderNamespace(name).owns)
        assert last - first == 255
    assert ranges_of(None) == ranges_of(lambda header: True) == ()


def test_a_frozen_set_is_a_filter_of_the_server() -> None:
    assert ranges_of(frozenset({7, -2, 5, 6, -1}).__contains__) == ((-2, -1), (5, 7))
    assert ranges_of(frozenset(range(0, 128, 2)).__contains__) == tuple((n, n) for n in range(0, 128, 2))
    assert ranges_of(frozenset(range(0, 130, 2)).__contains__) == ranges_of(frozenset().__contains__) == ()
    assert ranges_of({7}.__contains__) == ()


def test_transactions_are_those_of_the_block() -> None:
    found = transactions_of(block(10, 13), lambda header: header == 0, None)
    assert [(one.transaction_id, one.data) for one in found] == [(n, b"%d" % n) for n in range(10, 14)]
    assert not transactions_of(block(10, 13), lambda header: header == 1, None)
    assert [one.data for one in transactions_of(block(10, 11), None, lambda header: False)] == [None, None]


def filled(count: int) -> InProcessLog:
    log = InProcessLog()
    for number in range(count):
        log.partition().commit(b"%d" % number, header=LEDGER.header(1) if number % 3 == 0 else 5)
    return log


async def read_all(client: WaltzClient, until: int) -> list[tuple[int, bytes | None]]:
    return [(t.transaction_id, t.data) async for t in client.feed(0, after=-1, until=until)]


@pytest.mark.parametrize("newest", [4, 5])
async def test_a_client_reads_the_same_with_either_version(newest: int) -> None:
    log = filled(3_000)
    async with log.client(settings={"client.maxProtocolVersion": newest}) as client:
        assert await read_all(client, 2_999) == [(n, b"%d" % n) for n in range(3_000)]
        owned = [t.transaction_id async for t in client.feed(0, after=-1, until=2_999, where=LEDGER.owns)]
        assert owned == list(range(0, 3_000, 3))
        ranges = [batch async for batch in client.read_range(0, 100, 2_000, batch_transactions=300)]
        assert [txid for batch in ranges for txid in batch.transaction_ids] == list(range(100, 2_001))
        assert ranges[0].data[: ranges[0].offsets[1]] == b"100"
        with pytest.raises(ClientAheadError):
            async for _ in client.feed(0, after=5_000):
                pass


@pytest.mark.parametrize("with_data", [True, False])
@pytest.mark.parametrize("odd", [3, 2_500])
async def test_a_header_test_that_raises_ends_a_range(with_data: bool, odd: int) -> None:
    """What was taken when it raised is gone; a range that continued would lack it without a word."""
    log = InProcessLog()
    for number in range(3_000):
        log.partition().commit(b"%d" % number, header=777 if number == odd else number % 2)
    known = {0: True, 1: False}
    async with log.client() as client:
        reader = client.read_range(
            0, 0, 2_999, with_data=with_data, where=known.__getitem__, batch_transactions=100
        )
        got: list[int] = []
        with pytest.raises(KeyError, match="777"):
            async for batch in reader:
                got += batch.transaction_ids
        assert got == list(range(0, 2 * len(got), 2))
        assert [batch async for batch in reader] == []


@pytest.mark.parametrize("cut", [True, False])
async def test_a_request_that_does_not_fit_the_wire_ends_alone(
    cut: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whether it was there before the connection or not: every other request to that server is answered."""
    monkeypatch.setattr(settings, "MAX_NUMBER", 2**80)  # the settings refuse it otherwise
    log = filled(100)
    async with log.client(settings={"client.prefetchBytes": 2**70}) as client:
        if not cut:
            assert await client.high_water_mark(0) == 99
        with pytest.raises(UsageError, match="partition 0: a request that cannot be sent"):
            async for _ in client.feed(0, after=-1, until=99):
                pass
        log.disconnect()
        assert await client.high_water_mark(0, deadline_seconds=5) == 99


async def test_arguments_beyond_the_wire_are_refused_or_mean_what_they_say() -> None:
    log = filled(100)
    async with log.client() as client:
        with pytest.raises(UsageError, match="after is a transaction id"):
            client.feed(0, after=2**63)
        with pytest.raises(UsageError, match="until is a transaction id"):
            client.feed(0, after=-1, until=2**63)
        wanted = frozenset({5, 2**31, -(2**31) - 1})
        among = [
            t.transaction_id async for t in client.feed(0, after=-1, until=99, where=wanted.__contains__)
        ]
        assert among == [n for n in range(100) if n % 3]
        batches = [batch async for batch in client.read_range(0, 0, 99, batch_transactions=2**63)]
        assert [len(batch) for batch in batches] == [100]


@pytest.mark.parametrize("versions", [(5, 4), (4, 5), (5, 4, 5, 4)])
async def test_a_reconnect_may_change_the_version_in_the_middle(versions: tuple[int, ...]) -> None:
    log = filled(4_000)
    log._newest_version = versions[0]
    settings = {"client.feedBufferTransactions": 1024, "client.prefetchTransactions": 50}
    changes = iter(versions[1:])
    async with log.client(settings=settings) as client:
        got: list[int] = []
        async for transaction in client.feed(0, after=-1, until=3_999):
            got.append(transaction.transaction_id)
            if len(got) % 700 == 500 and (newest := next(changes, None)) is not None:
                log._newest_version = newest
                log.disconnect()
        assert got == list(range(4_000))


@pytest.mark.parametrize("versions", [(5, 4), (4, 5), (5, 5)])
async def test_a_range_goes_on_with_another_version(versions: tuple[int, int]) -> None:
    log = filled(4_000)
    log._newest_version = versions[0]
    async with log.client() as client:
        got: list[int] = []
        async for batch in client.read_range(0, 0, 3_999, batch_transactions=100):
            got += batch.transaction_ids
            if len(got) == 1_000:
                log._newest_version = versions[1]
                log.disconnect()
        assert got == list(range(4_000))


@pytest.mark.parametrize("newest", [4, 5])
async def test_a_batch_is_bounded_by_its_transactions_and_its_bytes(newest: int) -> None:
    """At least one transaction, however large."""
    sizes = [10, 95, 30, 500, 0, 0, 100, 1, 99, 98]
    log = InProcessLog()
    for size in sizes:
        log.partition().commit(bytes(size))
    async with log.client(settings={"client.maxProtocolVersion": newest}) as client:
        reading = client.read_range(0, 0, 9, batch_transactions=3, batch_bytes=100)
        found = [[len(t.data or b"") for t in batch.transactions()] async for batch in reading]
    assert [size for batch in found for size in batch] == sizes
    assert all(len(batch) <= 3 and (sum(batch) <= 100 or len(batch) == 1) for batch in found)


async def test_a_range_whose_filter_leaves_everything_out_for_long_goes_on() -> None:
    """The server looks, and says how far it is: that is progress, also without a transaction."""
    log = filled(100)
    log.partition()._block_feeds.paused = True
    async with log.client() as client:
        reading = client.read_range(0, 0, 99, where=LEDGER.owns, timeout_seconds=1.0)
        await reading._start()
        feed = reading._blocks
        assert feed is not None
        loop = asyncio.get_running_loop()
        for number in range(10):
            last, flags = 10 * number + 9, LAST_BLOCK if number == 9 else 0
            loop.call_later(0.7 * number + 0.5, feed.block_received, block(last - 9, last, [], flags=flags))
        assert [batch async for batch in reading] == []


async def test_a_reader_of_a_range_wakes_for_each_batch_and_not_for_each_block(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    log = filled(100)
    log.partition()._block_feeds.paused = True
    waits, wait = 0, RangeRead._wait

    async def counted(reading: RangeRead) -> None:
        nonlocal waits
        waits += 1
        await wait(reading)

    monkeypatch.setattr(RangeRead, "_wait", counted)
    async with log.client() as client:
        reading = client.read_range(0, 0, 99, batch_transactions=40)
        await reading._start()
        feed = reading._blocks
        assert feed is not None
        loop = asyncio.get_running_loop()
        for number in range(20):
            made = block(5 * number, 5 * number + 4, flags=LAST_BLOCK if number == 19 else 0)
            loop.call_later(0.1 * number + 0.1, feed.block_received, made)
        assert [len(batch) async for batch in reading] == [40, 40, 20]
        assert waits == 3


@pytest.mark.parametrize("newest", [4, 5])
async def test_from_now_on_is_the_moment_at_which_the_feed_was_made(newest: int) -> None:
    """Also if a transaction is committed before the server hears of the feed."""
    log = filled(10)
    log._newest_version = newest
    async with log.client() as client:
        await client.append(partition=0, data=b"10")
        async with client.feed(0, after=None) as feed:
            log.partition().commit(b"11")
            async with asyncio.timeout(5):
                found = await anext(feed)
        assert (found.transaction_id, found.data) == (11, b"11")


@pytest.mark.parametrize("newest", [4, 5])
async def test_a_reader_at_the_end_is_not_ahead_of_what_comes_while_it_is_checked(
    newest: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The answer says where the log ended when it was asked for, and the reader is further by then."""
    answered = Partitions.server_high_water_mark

    async def late(self: Partitions, partition_id: int, deadline_seconds: float | None = None) -> int:
        mark = await answered(self, partition_id, deadline_seconds)
        await asyncio.sleep(1)
        return mark

    monkeypatch.setattr(Partitions, "server_high_water_mark", late)
    log = filled(10)
    log._newest_version = newest
    async with log.client() as client, client.feed(0, after=9) as feed:
        async with asyncio.timeout(30):
            first = asyncio.ensure_future(anext(feed))  # noqa: TID251
            await asyncio.sleep(0.5)
            log.partition().commit(b"10")
            assert (await first).transaction_id == 10
            await asyncio.sleep(5)
            log.partition().commit(b"11")
            assert (await anext(feed)).transaction_id == 11


async def test_failed_reads_and_moves_leave_no_gap() -> None:
    log = filled(3_000)
    async with log.client() as client:
        log.partition().fail_next_reads(3)
        got = []
        async for transaction in client.feed(0, after=-1, until=2_999):
            got.append(transaction.transaction_id)
            if len(got) % 1_000 == 10:
                log.partition().fail_next_reads(1)
                log.partition().remount()
        assert got == list(range(3_000))


async def test_what_is_committed_meanwhile_comes_and_letting_go_ends_it() -> None:
    log = filled(10)
    async with log.client(settings={"client.autoMount": False}) as client:
        await client.set_partitions([0])
        got = []
        with pytest.raises(PartitionInactiveError):
            async for transaction in client.feed(0, after=8):
                got.append(transaction.data)
                if len(got) == 4:
                    await client.set_partitions([])
                else:
                    log.partition().commit(b"new %d" % len(got))
        assert got == [b"9", b"new 1", b"new 2", b"new 3"]


async def test_a_slow_reader_gets_what_has_piled_up_as_one_batch() -> None:
    """At the end of the log each commit is a block of its own."""
    log = InProcessLog(2)
    async with log.client() as client, client.feed((0, 1), after=-1) as feed:
        await until(
            lambda: all(one.blocks is not None and one.blocks.position == -1 for one in feed._partitions)
        )
        for number in range(30):
            log.partition(number % 2).commit(b"%d" % number)
            await asyncio.sleep(0)
        blocks = [one.blocks for one in feed._partitions]
        await until(lambda: sum(one.buffered for one in blocks if one is not None) == 30)
        assert len(await anext(aiter(feed.batches()))) == 30
