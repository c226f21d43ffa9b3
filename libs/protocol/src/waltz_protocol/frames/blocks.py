"""Blocks of stored records: how version 5 carries transactions with their data (docs/protocol.md, version 5).

Pure. A record is in a block as it is in a segment file (docs/storage-files.md), its checksum covers all of
it, and nobody between the disk and the reader makes it anew: a server encodes a committed transaction once,
whoever reads it; a client cuts a block and checks it once.

    i64 id | ReqId | i32 header | i32 length | i32 CRC of the data | data | i32 CRC of everything before
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Sequence
from itertools import accumulate, pairwise

from waltz_protocol.checksum import crc32
from waltz_protocol.errors import EncodeError, ProtocolError, RecordChecksumError, RecordPartitionError
from waltz_protocol.frame import Magic
from waltz_protocol.messages.client import BlockFailure, FeedBlock

FEED_BLOCK = FeedBlock.TYPE
BLOCK_FAILURE = BlockFailure.TYPE
STORED_HEAD_BYTES = 36
STORED_OVERHEAD_BYTES = STORED_HEAD_BYTES + 4
BLOCK_HEAD_BYTES = 1 + 16 + 8 + 8 + 4 + 4
"""Of a FEED_BLOCK body, before its records."""
MAX_BLOCK_BYTES = 256 * 1024
"""Of records; a block of one transaction may have more."""
LAST_BLOCK = 1
"""Flag of a block: everything up to `until` has been sent, the feed is over."""

_HEAD = struct.Struct(">bhib16sqqii")
_BODY = struct.Struct(">iiqqii")  # behind type, client id and generation
_CHECKED = struct.Struct(">q8xi8xi")  # id, partition, length
_FIELDS = struct.Struct(">qiiiii")
_I32 = struct.Struct(">I")
_LENGTH = struct.Struct(">i")
_LENGTH_AT = 28
_MAX_ALIKE_BYTES = 4096
"""Of data of records that are checked together, each of which is copied for it."""
_LEAST_ALIKE = 4
"""Fewer records are cut one by one: what is done once for all of them is more than that."""
_DATA_CHECKSUM = struct.Struct(">32xi")

Fields = tuple[int, int, int, int, int, int]
"""client id, generation, partition id, seq num, transaction id, header."""


SEAL_BYTES = 4
"""Of the checksum over everything before."""


def _sealed(before: bytes) -> bytes:
    return before + crc32(before).to_bytes(4, "big")


def stored_of_entry(transaction_id: int, req_id: bytes, tail: bytes) -> bytes:
    """The stored form of a transaction just committed; `tail` is i32 header | i32 length | data | i32 crc."""
    id_bytes = transaction_id.to_bytes(8, "big", signed=True)
    return _sealed(b"".join((id_bytes, req_id, tail[:8], tail[-4:], memoryview(tail)[8:-4])))


def stored_of_record(record: bytes) -> bytes:
    """The stored form of a wire record, whose own checksum has been verified."""
    return _sealed(b"".join((record[:32], record[-4:], memoryview(record)[32:-4])))


def record_of_stored(record: bytes) -> bytes:
    """The wire record of a stored one, whose own checksum has been verified."""
    return b"".join((record[:32], memoryview(record)[STORED_HEAD_BYTES:-4], record[32:36]))


def tail_of_stored(record: bytes) -> bytes:
    """What comes behind the ReqId in the wire record of a stored one."""
    return record_of_stored(record)[24:]


def header_of_stored(record: bytes) -> int:
    """The application's header of a stored record."""
    return int.from_bytes(record[24:28], "big", signed=True)


def block_head(
    version: int, req_id: bytes, first: int, last: int, count: int, flags: int, size_bytes: int
) -> bytes:
    """What comes before the `size_bytes` of records in a FEED_BLOCK frame, the header of it included."""
    if len(req_id) != 16:
        raise EncodeError(f"a ReqId has 16 bytes, not {len(req_id)}")
    size = BLOCK_HEAD_BYTES + size_bytes
    try:
        return _HEAD.pack(Magic.CLIENT, version, size, FEED_BLOCK, req_id, first, last, count, flags)
    except struct.error as e:
        raise EncodeError(f"a block cannot be encoded: {e}") from None


class Block:
    """Checked transactions of one partition in the order of their ids: `count` of those from `first` to
    `last`, the rest left out by a filter. Made by `parse_block`; immutable.

    The record of place i begins at `starts[i]` in `data` and ends at `starts[i + 1]`; `data` may have more
    before the first and after the last.
    """

    __slots__ = ("data", "first", "flags", "last", "partition_id", "seq_num", "starts")

    def __init__(
        self,
        partition_id: int,
        seq_num: int,
        first: int,
        last: int,
        flags: int,
        data: bytes,
        starts: Sequence[int],
    ) -> None:
        self.partition_id = partition_id
        self.seq_num = seq_num
        self.first = first
        self.last = last
        self.flags = flags
        self.data = data
        self.starts = starts

    @property
    def count(self) -> int:
        """How many transactions are in it."""
        return len(self.starts) - 1

    def payload_bytes(self, start: int, end: int) -> int:
        """Bytes of data of the transactions of places `start` to `end` (not included)."""
        return self.starts[end] - self.starts[start] - STORED_OVERHEAD_BYTES * (end - start)

    def part(self, start: int, end: int) -> Block:
        """The transactions of places `start` to `end` (not included); the bytes are not copied."""
        if start == 0 and end == self.count:
            return self
        starts = self.starts[start : end + 1]
        return Block(self.partition_id, self.seq_num, self.first, self.last, self.flags, self.data, starts)

    def only(self, where: Callable[[int], bool]) -> Block:
        """The transactions whose header passes."""
        data = self.data
        chosen = [
            data[a:b]
            for a, b in pairwise(self.starts)
            if where(int.from_bytes(data[a + 24 : a + 28], "big", signed=True))
        ]
        if len(chosen) == self.count:
            return self
        starts = list(accumulate(map(len, chosen), initial=0))
        joined = b"".join(chosen)
        return Block(self.partition_id, self.seq_num, self.first, self.last, self.flags, joined, starts)

    def fields(self) -> list[Fields]:
        """The headers of the transactions."""
        unpack, data = _FIELDS.unpack_from, self.data
        found = []
        for at in self.starts[:-1]:
            txid, client_id, generation, partition_id, seq_num, header = unpack(data, at)
            found.append((client_id, generation, partition_id, seq_num, txid, header))
        return found

    def payloads(self) -> list[bytes]:
        """The data of the same transactions."""
        data, starts = self.data, self.starts
        if isinstance(starts, range) and starts:
            size = starts.step - STORED_OVERHEAD_BYTES
            records = memoryview(data)[starts[0] : starts[-1]]
            return [
                one for (one,) in struct.iter_unpack(f"{STORED_HEAD_BYTES}x{size}s{SEAL_BYTES}x", records)
            ]
        return [data[a + STORED_HEAD_BYTES : b - 4] for a, b in pairwise(self.starts)]

    def checksums(self) -> list[int]:
        """The CRC-32 of the data of the same transactions, as signed numbers."""
        unpack, data = _DATA_CHECKSUM.unpack_from, self.data
        return [unpack(data, at)[0] for at in self.starts[:-1]]


BlockHead = tuple[int, int, int, int, int, int]
"""partition id, seq num, first, last, count, flags."""


def feed_of_block(body: memoryview) -> tuple[int, int]:
    """Partition and sequence number of the feed that a FEED_BLOCK body is of."""
    if len(body) < BLOCK_HEAD_BYTES:
        raise ProtocolError("a block is cut short")
    partition_id, seq_num, *_ = _BODY.unpack_from(body, 9)
    return partition_id, seq_num


def parse_block_head(body: memoryview) -> BlockHead:
    """Decode and check what comes before the records in a FEED_BLOCK body."""
    if len(body) < BLOCK_HEAD_BYTES:
        raise ProtocolError("a block is cut short")
    partition_id, seq_num, first, last, count, flags = _BODY.unpack_from(body, 9)
    if first < 0 or last < first - 1 or not 0 <= count <= last - first + 1:
        raise ProtocolError(f"a block of {count} transactions from {first} to {last}")
    if flags & ~LAST_BLOCK:
        raise ProtocolError(f"a block with the unknown flags {flags}")
    return partition_id, seq_num, first, last, count, flags


def parse_block(body: memoryview) -> Block:
    """Decode and check a FEED_BLOCK body, which is copied. ProtocolError when anything in it is not what its
    head says: a record cut short or changed, of another partition, out of order or outside of the block."""
    partition_id, seq_num, first, last, count, flags = parse_block_head(body)
    data = bytes(body[BLOCK_HEAD_BYTES:])
    starts = cut_stored(data, 0, partition_id, first, last, count)
    if starts[-1] != len(data):
        raise ProtocolError(f"{len(data) - starts[-1]} bytes follow the last record of a block")
    return Block(partition_id, seq_num, first, last, flags, data, starts)


def cut_stored(
    data: bytes | memoryview, at: int, partition_id: int, first: int, last: int, count: int
) -> Sequence[int]:
    """Where `count` stored records from `at` on begin, and the end of the last one; each is checked as a
    whole. RecordChecksumError for one that is changed, RecordPartitionError for one of another partition that
    is in order otherwise, ProtocolError for anything else that is wrong."""
    size = len(data)
    if count * STORED_OVERHEAD_BYTES > size - at:
        raise ProtocolError(f"a block of {size} bytes cannot hold {count} transactions")
    whole = count == last - first + 1
    if whole and count >= _LEAST_ALIKE:
        alike = _cut_alike(data, at, partition_id, first, count)
        if alike is not None:
            return alike
    view = memoryview(data)
    head, checksum = _CHECKED.unpack_from, _I32.unpack_from
    starts = [at]
    least = first
    for _ in range(count):
        if at + STORED_OVERHEAD_BYTES > size:
            raise ProtocolError("a record in a block is cut short")
        transaction_id, found_partition, length = head(data, at)
        end = at + STORED_HEAD_BYTES + length
        if length < 0 or end + 4 > size:
            raise ProtocolError(f"transaction {transaction_id} in a block is cut short")
        if crc32(view[at:end]) != checksum(data, end)[0]:
            raise RecordChecksumError(f"the checksum of transaction {least} in a block does not match it")
        if (transaction_id != least) if whole else not least <= transaction_id <= last:
            raise ProtocolError(f"transaction {transaction_id} in a block where {least} is expected")
        if found_partition != partition_id:
            raise RecordPartitionError(
                f"a transaction of partition {found_partition} in a block of {partition_id}"
            )
        least = transaction_id + 1
        at = end + 4
        starts.append(at)
    return starts


def _cut_alike(
    data: bytes | memoryview, at: int, partition_id: int, first: int, count: int
) -> Sequence[int] | None:
    """The same of records of one length with the ids from `first` on, by a few calls for all of them. None
    unless they are that, and nothing is wrong with them: whoever looks at them one by one says what."""
    length = _LENGTH.unpack_from(data, at + _LENGTH_AT)[0]
    each = STORED_OVERHEAD_BYTES + length
    end = at + each * count
    if not 0 <= length <= _MAX_ALIKE_BYTES or end > len(data):
        return None
    if _LENGTH.unpack_from(data, end - each + _LENGTH_AT)[0] != length:
        return None  # as nearly always when lengths differ
    records = memoryview(data)[at:end]
    heads = struct.iter_unpack(f">q8xi8xi{each - STORED_HEAD_BYTES}xI", records)
    ids, partitions, lengths, sums = zip(*heads, strict=True)
    found = [crc32(before) for (before,) in struct.iter_unpack(f"{each - SEAL_BYTES}s{SEAL_BYTES}x", records)]
    if (
        lengths.count(length) != count
        or list(sums) != found
        or ids != tuple(range(first, first + count))
        or partitions.count(partition_id) != count
    ):
        return None
    return range(at, end + 1, each)


def data_parts(record: bytes) -> tuple[bytes, memoryview, bytes]:
    """The data of a stored record as TRANSACTION_DATA_RESPONSE has it: i32 length, data, i32 CRC."""
    return record[28:32], memoryview(record)[STORED_HEAD_BYTES:-4], record[32:36]


def total_bytes(records: Iterable[bytes]) -> int:
    """Of records back to back."""
    return sum(map(len, records))
