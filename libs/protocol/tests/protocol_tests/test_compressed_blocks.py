"""Compressed blocks: the same block comes out, and whatever is wrong with one is found before it costs
anything."""

import subprocess
import sys
import tracemalloc
from collections.abc import Sequence

import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from protocol_tests.test_blocks import R, stored
from waltz_protocol.errors import MissingPackageError, ProtocolError, RecordChecksumError
from waltz_protocol.frame import FRAME_HEADER_SIZE
from waltz_protocol.frames import compressed_blocks
from waltz_protocol.frames.blocks import LAST_BLOCK, MAX_BLOCK_BYTES, block_head, parse_block
from waltz_protocol.frames.compressed_blocks import (
    LEAST_BYTES,
    ZSTD_BLOCK,
    BlockCompressor,
    BlockExpander,
)

COMPRESSOR, EXPANDER = BlockCompressor("a test"), BlockExpander("a test")
GOOD = [stored(10 + n, b'{"account": %d, "amount": 100}' % n) for n in range(20)]

GOLDEN = bytes.fromhex(
    "21 00000001 00000002 00000003 00000004  000000000000000A 000000000000000B 00000002 00000002  000004B0"
    "28B52FFD 60B003 550300 540400000A000000070000000100000003100000024CFEF6E9486465706F7369742031303020"
    "6F6620616C6963652C20A964260300000B0B147F257EDB626F62626F622A9593C00C00D949A9A0A63796887980AE206377"
    "44BB3AA2CD054D55719306E7A4CE4CF7058005"
)
"""Transactions 10 and 11 of partition 3. Servers that are out there send such bytes: they must decode."""


def body_of(packed: bytes, first: int, count: int, flags: int = ZSTD_BLOCK) -> memoryview:
    head = block_head(5, R.pack(), first, first + count - 1, count, flags, len(packed))
    return memoryview(head + packed)[FRAME_HEADER_SIZE:]


def said(size: int, frame: bytes) -> bytes:
    return size.to_bytes(4, "big", signed=True) + frame


def frame_of(records: bytes, *, with_size: bool = True) -> bytes:
    return zstandard.ZstdCompressor(write_content_size=with_size).compress(records)


def compressed(records: Sequence[bytes], flags: int = 0) -> memoryview:
    packed = COMPRESSOR.packed(b"".join(records))
    assert packed is not None
    return body_of(packed, 10, len(records), flags | ZSTD_BLOCK)


@given(st.lists(st.binary(max_size=40), min_size=1, max_size=20), st.integers(1, 60))
def test_the_same_block_comes_out(parts: list[bytes], times: int) -> None:
    records = [stored(10 + n, part * times + bytes(100)) for n, part in enumerate(parts)]
    packed = COMPRESSOR.packed(b"".join(records))
    if packed is None:
        return
    assert len(packed) < len(b"".join(records))
    body = EXPANDER.expanded(body_of(packed, 10, len(records), LAST_BLOCK | ZSTD_BLOCK))
    block = parse_block(body)
    assert block.data == b"".join(records)
    assert (block.first, block.last, block.count, block.flags) == (10, 9 + len(parts), len(parts), LAST_BLOCK)


def test_golden_bytes() -> None:
    block = parse_block(EXPANDER.expanded(memoryview(GOLDEN)))
    alice, bob = b"deposit 100 of alice, deposit 100 of alice", b"deposit 100 of bob, deposit 100 of bob"
    assert block.data == stored(10, alice * 14) + stored(11, bob * 14)


def test_a_block_without_compression_is_left_alone() -> None:
    body = body_of(b"".join(GOOD), 10, len(GOOD), flags=0)
    assert EXPANDER.expanded(body) is body


def test_blocks_that_would_gain_nothing_are_left_alone() -> None:
    noise = bytes((n * n * 7919 + n // 3) * 2654435761 >> 7 & 0xFF for n in range(5000))
    assert COMPRESSOR.packed(noise) is None
    assert COMPRESSOR.packed(bytes(LEAST_BYTES - 1)) is None
    assert COMPRESSOR.packed(bytes(LEAST_BYTES)) is not None
    assert COMPRESSOR.packed(bytes(MAX_BLOCK_BYTES)) is not None
    assert COMPRESSOR.packed(bytes(MAX_BLOCK_BYTES + 1)) is None


def test_records_are_checked_behind_the_compression() -> None:
    """A server, or the memory of one, that compresses what is damaged: nothing in the frame says so."""
    for place in range(0, len(b"".join(GOOD)), 7):
        broken = bytearray(b"".join(GOOD))
        broken[place] ^= 1
        packed = COMPRESSOR.packed(bytes(broken))
        assert packed is not None
        with pytest.raises(ProtocolError):
            parse_block(EXPANDER.expanded(body_of(packed, 10, len(GOOD))))
    broken = bytearray(b"".join(GOOD))
    broken[40] ^= 1
    with pytest.raises(RecordChecksumError):
        parse_block(EXPANDER.expanded(body_of(said(len(broken), frame_of(bytes(broken))), 10, len(GOOD))))


def test_a_damaged_frame_is_found() -> None:
    made = bytes(compressed(GOOD))
    whole = parse_block(EXPANDER.expanded(memoryview(made))).data
    for place in range(45, len(made)):
        broken = bytearray(made)
        broken[place] ^= 0x41
        try:
            block = parse_block(EXPANDER.expanded(memoryview(broken)))
        except ProtocolError:
            continue
        assert block.data == whole  # a bit that means nothing
    assert parse_block(EXPANDER.expanded(memoryview(made))).data == whole, "the context survives"


@pytest.mark.parametrize("cut", range(1, 80))
def test_a_block_that_is_cut_short_is_found(cut: int) -> None:
    made = compressed(GOOD)
    for part in (made[: len(made) - cut], made[:cut]):
        with pytest.raises(ProtocolError):
            parse_block(EXPANDER.expanded(part))


RECORDS = b"".join(GOOD)
SIZE = len(RECORDS)
FRAME = frame_of(RECORDS)
PADDED = b"".join(
    (
        bytes.fromhex("28B52FFD A0"),
        SIZE.to_bytes(4, "little"),
        bytes(3) * SIZE,  # as many blocks of zstd without content
        (SIZE << 3 | 1).to_bytes(3, "little"),
        RECORDS,
    )
)
assert zstandard.ZstdDecompressor().decompress(PADDED) == RECORDS
SKIPPABLE = bytes.fromhex("502A4D18 00000004 00000000")
BOMB = frame_of(bytes(32 * 1024 * 1024))
WRONG = {
    "nothing": b"",
    "only a size": said(SIZE, b""),
    "a size below that of the frame": said(SIZE - 1, FRAME),
    "a size above that of the frame": said(SIZE + 1, FRAME),
    "a negative size": said(-SIZE, FRAME),
    "no size": said(0, FRAME),
    "a frame that does not say its size": said(SIZE, frame_of(RECORDS, with_size=False)),
    "a byte behind the frame": said(SIZE, FRAME + b"\x00"),
    "a second frame": said(SIZE, FRAME + frame_of(b"x")),
    "a skippable frame behind": said(SIZE, FRAME + SKIPPABLE),
    "a skippable frame before": said(SIZE, SKIPPABLE + FRAME),
    "no frame": said(SIZE, b"no frame at all"),
    "the records as they are": said(SIZE, RECORDS),
    "a bomb that is honest": said(32 * 1024 * 1024, BOMB),
    "a bomb that is not": said(MAX_BLOCK_BYTES, BOMB),
    "one byte above the bound": said(MAX_BLOCK_BYTES + 1, frame_of(bytes(MAX_BLOCK_BYTES + 1))),
    "more frame than records": said(SIZE, PADDED),
}


@pytest.mark.parametrize("what", WRONG)
def test_anything_wrong_is_found(what: str) -> None:
    with pytest.raises(ProtocolError):
        EXPANDER.expanded(body_of(WRONG[what], 10, len(GOOD)))


@pytest.mark.parametrize("what", [one for one in WRONG if "bomb" in one or "bound" in one])
def test_a_bomb_costs_no_memory(what: str) -> None:
    body = body_of(WRONG[what], 10, len(GOOD))
    tracemalloc.start()
    try:
        with pytest.raises(ProtocolError):
            EXPANDER.expanded(body)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < MAX_BLOCK_BYTES // 4 + 2 * len(body), "the size is looked at before memory is taken"


def test_a_frame_with_a_dictionary_is_refused() -> None:
    dictionary = zstandard.ZstdCompressionDict(
        b"account amount " * 100, dict_type=zstandard.DICT_TYPE_RAWCONTENT
    )
    frame = zstandard.ZstdCompressor(dict_data=dictionary).compress(RECORDS)
    with pytest.raises(ProtocolError):
        parse_block(EXPANDER.expanded(body_of(said(SIZE, frame), 10, len(GOOD))))


def test_without_the_package_one_sentence_says_what_is_missing() -> None:
    """The import of the module does not need it."""
    program = """
import sys
sys.modules["zstandard"] = None
from waltz_protocol.errors import MissingPackageError
from waltz_protocol.frames.compressed_blocks import BlockCompressor, BlockExpander
for needs in (BlockCompressor, BlockExpander):
    try:
        needs("client.feedCompression zstd", "install it so")
    except MissingPackageError as error:
        print(error)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    line = "client.feedCompression zstd needs the package zstandard, which is not installed: install it so\n"
    assert done.stdout == 2 * line
    assert MissingPackageError.user_error
    assert compressed_blocks.LEVEL == 1
