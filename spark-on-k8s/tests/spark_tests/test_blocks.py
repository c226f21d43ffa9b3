"""Blocks as columns: the same rows as by transactions, and the same errors for whatever is wrong with one."""

import asyncio
import struct
import zlib
from array import array
from collections.abc import Callable, Sequence

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import waltz_spark.blocks
from waltz_client import RangeBatch
from waltz_client.testing import InProcessLog
from waltz_protocol.errors import ProtocolError
from waltz_protocol.frame import FRAME_HEADER_SIZE
from waltz_protocol.frames.blocks import (
    BLOCK_HEAD_BYTES,
    Block,
    block_head,
    parse_block,
    stored_of_entry,
)
from waltz_protocol.types import ReqId, data_checksum
from waltz_spark.blocks import cut_block
from waltz_spark.errors import WaltzSparkError
from waltz_spark.schema import arrow_batch, arrow_schema

PARTITION = 3
FEED = ReqId(1, 2, PARTITION, 4)
NUMBERS = st.integers(-(2**31), 2**31 - 1)
PAYLOADS = st.one_of(st.binary(max_size=50), st.just(b""), st.integers(0, 5).map(bytes), st.just(bytes(700)))
Parsed = Callable[[memoryview], Block]


def stored(txid: int, data: bytes, header: int = 16, partition: int = PARTITION, seq_num: int = 5) -> bytes:
    tail = struct.pack(">ii", header, len(data)) + data + struct.pack(">i", data_checksum(data))
    return stored_of_entry(txid, ReqId(7, 1, partition, seq_num).pack(), tail)


def body(records: Sequence[bytes], first: int, last: int, count: int | None = None) -> memoryview:
    joined = b"".join(records)
    count = len(records) if count is None else count
    head = block_head(5, FEED.pack(), first, last, count, 0, len(joined))
    return memoryview(head + joined)[FRAME_HEADER_SIZE:]


def outcome(parse: Parsed, made: memoryview) -> object:
    """Everything that a reader learns of a block, or the error."""
    try:
        block = parse(made)
    except ProtocolError as error:
        return str(error)
    return (
        block.partition_id, block.seq_num, block.first, block.last, block.flags, list(block.starts), block.fields(),
        block.payloads(), block.checksums(),
    )  # fmt: skip


def by_transactions(blocks: Sequence[Block]) -> RangeBatch:
    """The batch that a server of an older version gives."""
    return RangeBatch(
        PARTITION,
        [fields for block in blocks for fields in block.fields()],
        [payload for block in blocks for payload in block.payloads()],
        [checksum for block in blocks for checksum in block.checksums()],
    )


@pytest.fixture
def only_fast(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever is not found good at once is an error."""

    def refused(_: memoryview) -> Block:
        raise AssertionError("a good block was handed to parse_block")

    monkeypatch.setattr(waltz_spark.blocks, "parse_block", refused)


@given(
    first=st.integers(0, 2**60),
    parts=st.lists(st.tuples(PAYLOADS, NUMBERS, NUMBERS, st.booleans()), min_size=1, max_size=12),
    filtered=st.booleans(),
    cut=st.tuples(st.integers(0, 12), st.integers(0, 12)),
)
def test_columns_of_blocks_are_those_of_the_transactions(
    first: int, parts: list[tuple[bytes, int, int, bool]], filtered: bool, cut: tuple[int, int]
) -> None:
    records = [
        stored(first + n, data, header, seq_num=seq_num)
        for n, (data, header, seq_num, keep) in enumerate(parts)
        if keep or not filtered
    ]
    made = body(records, first, first + len(parts) - 1)
    assert outcome(cut_block, made) == outcome(parse_block, made)
    block = cut_block(made)
    assert isinstance(block.starts, array)  # it was the fast way
    a, b = sorted(min(at, block.count) for at in cut)
    blocks = [one for one in (block.part(0, a), block.part(a, b), block.part(b, block.count)) if one.count]
    if not blocks:
        return
    batch, schema = RangeBatch.of_blocks(PARTITION, tuple(blocks)), arrow_schema("binary")
    found = arrow_batch(batch, schema)
    found.validate(full=True)
    assert found.equals(arrow_batch(by_transactions(blocks), schema))
    assert batch.transactions() == by_transactions(blocks).transactions()
    assert (batch.data, batch.offsets) == (by_transactions(blocks).data, by_transactions(blocks).offsets)


@pytest.mark.parametrize("sizes", [(5, 5, 5, 5), (0, 0, 0), (1, 2, 700, 0), (0,), (3_000_000,)])
@pytest.mark.usefixtures("only_fast")
def test_a_good_block_is_never_read_record_by_record(sizes: tuple[int, ...]) -> None:
    block = cut_block(body([stored(10 + n, bytes(size)) for n, size in enumerate(sizes)], 10, 9 + len(sizes)))
    assert list(map(len, block.payloads())) == list(sizes)


@pytest.mark.usefixtures("only_fast")
def test_blocks_without_transactions_are_good() -> None:
    assert [cut_block(body([], 10, last)).count for last in (9, 10, 500)] == [0, 0, 0]


SAME_SIZE = [stored(10, b"abc"), stored(11, b"def"), stored(12, b"ghi"), stored(13, b"jkl")]
MIXED = [stored(10, b"a" * 9), stored(11, b""), stored(12, b"g" * 3), stored(13, b"x" * 40)]
WRONG: dict[str, memoryview] = {
    "fewer than it says": body(MIXED, 10, 14, count=5),
    "more than it says": body(SAME_SIZE, 10, 12, count=3),
    "left-over bytes": body([*MIXED, b"\x00"], 10, 13, count=4),
    "left-over bytes without transactions": body([b"\x00"], 10, 9, count=0),
    "a gap": body([stored(10, b"a"), stored(12, b"a"), stored(13, b"a")], 10, 12),
    "a gap that the end hides": body([stored(10, b"a"), stored(10, b"a"), stored(12, b"a")], 10, 12),
    "the wrong order": body([stored(11, b"a"), stored(10, b"a"), stored(12, b"a")], 10, 12),
    "a repetition among what a filter leaves": body([stored(11, b"a"), stored(11, b"a")], 10, 15),
    "the wrong order among what a filter leaves": body([stored(13, b"a"), stored(11, b"a")], 10, 15),
    "a transaction before its beginning": body([stored(9, b"a"), stored(11, b"a")], 10, 15),
    "a transaction behind its end": body([stored(11, b"a"), stored(16, b"a")], 10, 15),
    "a foreign partition": body([stored(10, b"a"), stored(11, b"a", partition=4)], 10, 11),
    "an end before its beginning": body([], 10, 8, count=0),
    "a negative length": body([stored(10, b"abcd"), stored(11, b"")[:28] + b"\xff" * 12], 10, 11),
}


@pytest.mark.parametrize("what", WRONG)
def test_what_is_wrong_with_a_block_is_the_same_error(what: str) -> None:
    found = outcome(cut_block, WRONG[what])
    assert isinstance(found, str)
    assert found == outcome(parse_block, WRONG[what])


@pytest.mark.parametrize("records", [SAME_SIZE, MIXED], ids=["of one size", "of different sizes"])
def test_a_flipped_bit_anywhere_is_the_same_error(records: list[bytes]) -> None:
    made = bytes(body(records, 10, 13))
    for place in range(BLOCK_HEAD_BYTES, len(made)):
        broken = bytearray(made)
        broken[place] ^= 1 << place % 8
        with pytest.raises(ProtocolError) as slow:
            parse_block(memoryview(broken))
        with pytest.raises(ProtocolError) as fast:
            cut_block(memoryview(broken))
        assert str(fast.value) == str(slow.value)


@given(data=st.binary(max_size=200), end=st.integers(0, 300))
def test_random_and_cut_bytes_are_judged_alike(data: bytes, end: int) -> None:
    for made in (memoryview(b"\x21" + data), body(MIXED, 10, 13)[:end]):
        assert outcome(cut_block, made) == outcome(parse_block, made)


@given(wrong=st.dictionaries(st.integers(0, 3), st.integers(0, 30), min_size=1))
def test_lengths_with_the_right_checksum_are_judged_alike(wrong: dict[int, int]) -> None:
    records = []
    for number, record in enumerate(MIXED):
        raw = record[:28] + struct.pack(">i", wrong.get(number, len(record) - 40)) + record[32:-4]
        records.append(raw + zlib.crc32(raw).to_bytes(4, "big"))
    made = body(records, 10, 13)
    assert outcome(cut_block, made) == outcome(parse_block, made)


def test_text_is_checked_and_the_error_names_the_transaction() -> None:
    block = cut_block(body([stored(10, b"caf\xc3\xa9"), stored(11, b""), stored(12, b"\xff!")], 10, 12))
    schema = arrow_schema("utf8")
    good = arrow_batch(RangeBatch.of_blocks(PARTITION, (block.part(0, 2),)), schema)
    assert good.column("data").to_pylist() == ["café", ""]
    with pytest.raises(WaltzSparkError, match="transaction 12 of partition 3 is not UTF-8 text"):
        arrow_batch(RangeBatch.of_blocks(PARTITION, (block,)), schema)


def test_more_than_a_binary_array_can_hold_is_read_by_transactions(monkeypatch: pytest.MonkeyPatch) -> None:
    batch = RangeBatch.of_blocks(PARTITION, (cut_block(body(MIXED, 10, 13)),))
    expected = arrow_batch(batch, arrow_schema("binary"))
    monkeypatch.setattr(waltz_spark.blocks, "_MAX_BYTES", 100)
    assert arrow_batch(batch, arrow_schema("binary")).equals(expected)


@settings(max_examples=25, deadline=None)
@given(
    parts=st.lists(st.tuples(PAYLOADS, st.integers(-3, 3)), min_size=1, max_size=60),
    span=st.tuples(st.integers(0, 59), st.integers(0, 59)),
    batch_transactions=st.integers(1, 30),
    batch_bytes=st.integers(1, 2_000),
    headers=st.none() | st.frozensets(st.integers(-3, 3)),
)
def test_a_range_has_the_same_rows_with_either_version(
    parts: list[tuple[bytes, int]],
    span: tuple[int, int],
    batch_transactions: int,
    batch_bytes: int,
    headers: frozenset[int] | None,
) -> None:
    """Whatever is empty, larger than a batch or cut by the end of the range."""
    first, last = sorted(min(at, len(parts) - 1) for at in span)
    log = InProcessLog()
    for data, header in parts:
        log.partition().commit(data, header=header)

    async def read(version: int) -> list[RangeBatch]:
        async with log.client(settings={"client.maxProtocolVersion": version}) as client:
            reading = client.read_range(
                0,
                first,
                last,
                where=None if headers is None else headers.__contains__,
                batch_transactions=batch_transactions,
                batch_bytes=batch_bytes,
            )
            return [batch async for batch in reading.cut_blocks_with(cut_block)]

    schema = arrow_schema("binary")
    old, new = (asyncio.run(read(version)) for version in (4, 5))
    assert all(batch.blocks is None for batch in old)
    assert all(batch.blocks is not None for batch in new)
    tables = [
        pa.Table.from_batches([arrow_batch(one, schema) for one in found], schema) for found in (old, new)
    ]
    assert tables[0].equals(tables[1])
    for batch in new:
        assert len(batch) <= batch_transactions
        assert len(batch) == 1 or len(batch.data or b"") <= batch_bytes
    expected = [n for n in range(first, last + 1) if headers is None or parts[n][1] in headers]
    assert tables[1].column("transaction_id").to_pylist() == expected
