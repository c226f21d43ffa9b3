"""Blocks of stored records: what is made is read back, and whatever is wrong with one is found before
anything of it is used."""

import struct
import zlib
from collections.abc import Sequence
from itertools import accumulate

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol_tests.vectors import STORED_RECORD
from waltz_protocol.codec import CLIENT
from waltz_protocol.errors import ProtocolError
from waltz_protocol.frame import FRAME_HEADER_SIZE
from waltz_protocol.frames.blocks import (
    BLOCK_HEAD_BYTES,
    LAST_BLOCK,
    Block,
    block_head,
    cut_stored,
    parse_block,
    stored_of_entry,
    stored_of_record,
)
from waltz_protocol.messages.client import FeedBlock
from waltz_protocol.records import pack_record
from waltz_protocol.types import Record, ReqId, data_checksum

R = ReqId(1, 2, 3, 4)
PARTITION = 3


def record(txid: int, data: bytes = b"hello", header: int = 16, partition: int = PARTITION) -> Record:
    return Record(txid, ReqId(7, 1, partition, txid & 0x7FFF), header, data, data_checksum(data))


def stored(txid: int, data: bytes = b"hello", header: int = 16, partition: int = PARTITION) -> bytes:
    return stored_of_record(pack_record(record(txid, data, header, partition)))


def body(
    records: Sequence[bytes], first: int, last: int, count: int | None = None, flags: int = 0
) -> memoryview:
    joined = b"".join(records)
    head = block_head(5, R.pack(), first, last, len(records) if count is None else count, flags, len(joined))
    return memoryview(head + joined)[FRAME_HEADER_SIZE:]


def test_a_record_is_that_of_a_segment_file() -> None:
    tail = bytes.fromhex("00000010 00000005 68656C6C6F 3610A686")
    assert stored_of_entry(42, ReqId(7, 1, 3, 1).pack(), tail) == STORED_RECORD
    wire = pack_record(Record(42, ReqId(7, 1, 3, 1), 16, b"hello", data_checksum(b"hello")))
    assert stored_of_record(wire) == STORED_RECORD


@given(
    first=st.integers(0, 2**60),
    parts=st.lists(
        st.tuples(st.binary(max_size=60), st.integers(-(2**31), 2**31 - 1), st.booleans()), max_size=12
    ),
)
def test_what_is_made_is_read_back(first: int, parts: list[tuple[bytes, int, bool]]) -> None:
    records = [record(first + n, data, header) for n, (data, header, _) in enumerate(parts)]
    kept = [one for one, (_, _, keep) in zip(records, parts, strict=True) if keep]
    raws = [stored_of_record(pack_record(one)) for one in kept]
    made = body(raws, first, first + len(parts) - 1, flags=LAST_BLOCK)
    block = parse_block(made)
    assert (block.partition_id, block.seq_num, block.first, block.last) == (
        3,
        4,
        first,
        first + len(parts) - 1,
    )
    assert block.flags == LAST_BLOCK
    assert block.count == len(kept)
    assert block.payloads() == [one.data for one in kept]
    assert block.checksums() == [one.checksum for one in kept]
    assert [(ReqId(*f[:4]), f[4], f[5]) for f in block.fields()] == [
        (one.req_id, one.transaction_id, one.header) for one in kept
    ]
    message = CLIENT.decode(made, 5)
    assert message == FeedBlock(R, first, first + len(parts) - 1, len(kept), LAST_BLOCK, b"".join(raws))


@given(
    first=st.integers(0, 2**60),
    data=st.lists(st.binary(min_size=9, max_size=9), min_size=1, max_size=12),
    before=st.binary(max_size=100),
    behind=st.lists(st.binary(max_size=100), max_size=3),
)
def test_records_of_one_length_are_cut_at_once(
    first: int, data: list[bytes], before: bytes, behind: list[bytes]
) -> None:
    raws = [stored(first + n, one) for n, one in enumerate([*data, *behind])]
    count, begins = len(data), len(before)
    joined = before + b"".join(raws)
    starts = cut_stored(joined, begins, PARTITION, first, first + count - 1, count)
    assert isinstance(starts, range) == (count >= 4)
    assert list(starts) == list(range(begins, begins + 49 * count + 1, 49))
    block = Block(PARTITION, 1, first, first + count - 1, 0, joined, starts)
    assert block.count == count
    assert block.payloads() == data
    assert block.part(1, count).payloads() == data[1:]
    assert block.part(count, count).payloads() == []
    assert [fields[4] for fields in block.fields()] == list(range(first, first + count))
    every = cut_stored(joined, begins, PARTITION, first, first + len(raws) - 1, len(raws))
    assert list(every) == list(accumulate(map(len, raws), initial=begins))


def test_no_record_or_fewer_begin_nowhere() -> None:
    """A node may claim any number of records."""
    for count in (0, -1, -5):
        assert list(cut_stored(b"", 0, PARTITION, 10, 9 + count, count)) == [0]


GOOD = [stored(10), stored(11, b""), stored(12, b"x" * 100)]
ALIKE = [stored(10), stored(11), stored(12)]


@pytest.mark.parametrize("records", [GOOD, ALIKE])
def test_a_flipped_bit_anywhere_in_a_record_is_found(records: list[bytes]) -> None:
    made = bytes(body(records, 10, 12))
    for place in range(BLOCK_HEAD_BYTES, len(made)):
        for bit in (1, 0x80):
            broken = bytearray(made)
            broken[place] ^= bit
            with pytest.raises(ProtocolError):
                parse_block(memoryview(broken))


@pytest.mark.parametrize("records", [GOOD, ALIKE])
@pytest.mark.parametrize("cut", range(1, 60))
def test_a_block_that_is_cut_short_is_found(records: list[bytes], cut: int) -> None:
    made = body(records, 10, 12)
    with pytest.raises(ProtocolError):
        parse_block(made[: len(made) - cut])
    with pytest.raises(ProtocolError):
        parse_block(made[:cut])


WRONG: dict[str, memoryview] = {
    "fewer than it says": body(GOOD, 10, 13, count=4),
    "more than it says": body(GOOD, 10, 11, count=2),
    "left-over bytes": body([*GOOD, b"\x00"], 10, 12, count=3),
    "more than fit between its ends": body(GOOD, 10, 11, count=3),
    "a negative count": body([], 10, 12, count=-1),
    "an end before its beginning": body([], 10, 8, count=0),
    "a negative beginning": body([], -1, 3, count=0),
    "an unknown flag": body(GOOD, 10, 12, flags=2),
    "a gap": body([stored(10), stored(12), stored(13)], 10, 12),
    "a repetition": body([stored(10), stored(10), stored(12)], 10, 12),
    "the wrong order": body([stored(11), stored(10), stored(12)], 10, 12),
    "a repetition among what a filter leaves": body([stored(11), stored(11)], 10, 15),
    "the wrong order among what a filter leaves": body([stored(13), stored(11)], 10, 15),
    "a transaction before its beginning": body([stored(9)], 10, 15),
    "a transaction behind its end": body([stored(16)], 10, 15),
    "left-over bytes behind records of one length": body([*ALIKE, b"\x00"], 10, 12, count=3),
    "a gap between records of other lengths": body([stored(10), stored(12, b""), stored(13)], 10, 12),
    "a foreign partition": body([stored(10), stored(11, partition=4), stored(12)], 10, 12),
    "a foreign partition of another length": body([stored(10), stored(11, b"", partition=4)], 10, 11),
}


@pytest.mark.parametrize("what", WRONG)
def test_a_block_with_anything_wrong_is_found(what: str) -> None:
    with pytest.raises(ProtocolError):
        parse_block(WRONG[what])


def test_a_length_beyond_the_block_is_found_before_anything_is_read() -> None:
    for length in (-1, 2**31 - 1, 6):
        raw = bytearray(stored(10))
        raw[28:32] = struct.pack(">i", length)
        raw[-4:] = zlib.crc32(raw[:-4]).to_bytes(4, "big")
        with pytest.raises(ProtocolError):
            parse_block(body([bytes(raw)], 10, 10))


@given(st.binary(max_size=300))
def test_random_bytes_are_refused_or_are_a_block(data: bytes) -> None:
    try:
        block = parse_block(memoryview(b"\x21" + data))
    except ProtocolError:
        return
    assert isinstance(block, Block)
    assert block.count == len(block.fields())
