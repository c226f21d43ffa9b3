"""APPEND_REQUEST without a message object: the hottest message of the client protocol. Pure.

A server reads thousands of these per second and passes the bytes on: the part behind the locks (`tail`), with
the ReqId and a transaction id in front, is already the wire record that storage nodes keep. The same message
as a plain object is `messages.client.AppendRequest`.
"""

import struct
from collections.abc import Generator, Sequence
from typing import NamedTuple

from waltz_protocol.checksum import crc32
from waltz_protocol.errors import EncodeError, ProtocolError, TooManyLocksError
from waltz_protocol.frame import Magic
from waltz_protocol.messages.client import AppendRequest
from waltz_protocol.types import REQ_ID_SIZE

APPEND_TYPE = AppendRequest.TYPE
LARGE_BYTES = 1024 * 1024
"""From this size of a body on an append is parsed in steps of `STEP_BYTES`: its bytes are copied and
checked."""
STEP_BYTES = 1024 * 1024
MAX_LOCKS = 65_536
"""In one append, of all three kinds together. Release 0.13.2 has no bound, but a lock table: of its 30,000
slots so many locks raise 99.9 %, which already makes every other transaction with a lock fail. Each costs the
server some forty bytes and a few microseconds."""

_MAGIC = Magic.CLIENT
_PREFIX = struct.Struct(">b4xi8xqi")
"""Type, (ReqId: generation), client high-water mark, count of write locks."""
_PREFIX_SIZE = _PREFIX.size
_INT = struct.Struct(">i")
_TAIL_HEAD = struct.Struct(">ii")  # header, data length
_FRAME_HEAD = struct.Struct(">bhib16sq")
# Nearly all appends (version 2 on) carry no lock or one write lock: their whole head goes in one call, up to
# the data. Frame header, type, ReqId, mark, count of write locks, [the lock,] counts of read and append
# locks, header, length.
_pack_no_lock = struct.Struct(">bhib16sqiiiii").pack
_pack_one_lock = struct.Struct(">bhib16sqiiiiii").pack
# The same for reading: type, ReqId, mark, count of write locks and four more integers.
_unpack_common = struct.Struct(">b16sqiiiii").unpack_from
_unpack_int = _INT.unpack_from
_unpack_crc = struct.Struct(">I").unpack_from
_GENERATION_OFFSET = 4  # inside a ReqId
_TAIL_NO_LOCK = 37
_TAIL_ONE_LOCK = 41
FEW_LOCKS = 15
"""Applications' appends have one to ten."""
_FEW_LOCKS_END = (
    _TAIL_NO_LOCK + 4 * FEW_LOCKS
)  # where the header of an append with so many begins, at the latest
_TAIL_OVERHEAD = 12  # header, length and checksum around the data
_make = tuple.__new__
_WRONG_CHECKSUM = "the data of an append does not match its checksum"
_LOCKS = [struct.Struct(f">{n}i") for n in range(9)]


class Append(NamedTuple):
    """What the server needs of an append. Wire record = transaction id (8 bytes) + `req_id` + `tail`."""

    req_id: bytes
    generation: int
    client_high_water_mark: int
    write_locks: tuple[int, ...]
    read_locks: tuple[int, ...]
    append_locks: tuple[int, ...]
    tail: bytes  # i32 header | i32 length | data | i32 crc; the crc is verified


class AppendWithManyLocks(Append):
    """The same with more than `FEW_LOCKS`; a class of its own, so that ordinary appends need no look at their
    number."""

    __slots__ = ()


def _read_locks(body: memoryview, offset: int, count: int, most: int) -> tuple[int, ...]:
    if 0 < count < 9 and count <= most:
        return _LOCKS[count].unpack_from(body, offset)
    # before a format is built from a number that the peer chose
    if count * 4 > len(body) - offset:
        raise ProtocolError(f"an append announces {count} locks that are not there")
    if count > most:
        raise TooManyLocksError(count, most)
    return struct.unpack_from(f">{count}i", body, offset)


def _parse_common(body: memoryview) -> Append | None:
    """An append with no lock or one write lock, as version 2 on sends it, complete and with the right
    checksum.

    None for anything else: then the careful way says what it is, or what is wrong with it.
    """
    message_type, req_id, high_water_mark, count, second, third, fourth, length = _unpack_common(body)
    if message_type != APPEND_TYPE:
        return None
    write: tuple[int, ...] = ()
    offset = _TAIL_NO_LOCK
    if count == 0:
        if second or third:  # counts of read and append locks
            return None
    elif count == 1:  # the lock, counts of read and append locks, header; the length comes after them
        if third or fourth or len(body) < _TAIL_ONE_LOCK + _TAIL_OVERHEAD:
            return None
        write = (second,)
        offset = _TAIL_ONE_LOCK
        length = _unpack_int(body, offset + 4)[0]
    else:
        return None
    tail = bytes(body[offset:])
    if len(tail) != length + _TAIL_OVERHEAD or length < 0:
        return None
    if crc32(tail[8:-4]) != _unpack_crc(tail, length + 8)[0]:
        return None
    generation = _unpack_int(req_id, _GENERATION_OFFSET)[0]
    return _make(Append, (req_id, generation, high_water_mark, write, (), (), tail))


def parse_append(body: memoryview, version: int, max_locks: int = MAX_LOCKS) -> Append | None:
    """Parse the body of an APPEND_REQUEST frame (without the 7 bytes of frame header).

    Everything is copied out of `body`. TooManyLocksError for more than `max_locks`, before any is read. Gives
    None for a well-formed request with a null lock array, which is to be dropped without an answer
    (docs/protocol.md). ProtocolError on a checksum mismatch,
    null data, bytes left over or missing: the connection is to be closed.
    """
    if version >= 2 and len(body) >= _TAIL_NO_LOCK + _TAIL_OVERHEAD:
        common = _parse_common(body)
        if common is not None:
            return common
    generation, mark, write, read, append, dropped, offset = _parse_head(body, version, max_locks)
    tail = bytes(body[offset:])
    if crc32(tail[8:-4]) != _unpack_crc(tail, len(tail) - 4)[0]:
        raise ProtocolError(_WRONG_CHECKSUM)
    if dropped:
        return None
    cls = Append if offset <= _FEW_LOCKS_END else AppendWithManyLocks
    return _make(cls, (bytes(body[1:17]), generation, mark, write, read, append, tail))


def parse_large_append(
    body: memoryview, version: int, max_locks: int = MAX_LOCKS
) -> Generator[int, None, Append | None]:
    """The same in steps for a body of megabytes: yields after each the number of bytes that were worked on.
    `body` must stay as it is until the end."""
    generation, mark, write, read, append, dropped, offset = _parse_head(body, version, max_locks)
    tail = bytearray(len(body) - offset)
    for start in range(0, len(tail), STEP_BYTES):
        end = min(start + STEP_BYTES, len(tail))
        tail[start:end] = body[offset + start : offset + end]
        yield end - start
    data, crc = memoryview(tail)[8:-4], 0
    for start in range(0, len(data), STEP_BYTES):
        crc = crc32(data[start : start + STEP_BYTES], crc)
        yield min(STEP_BYTES, len(data) - start)
    if crc != _unpack_crc(tail, len(tail) - 4)[0]:
        raise ProtocolError(_WRONG_CHECKSUM)
    # a bytearray instead of bytes: a copy would take as long as all the steps, and nobody changes it
    if dropped:
        return None
    cls = Append if offset <= _FEW_LOCKS_END else AppendWithManyLocks
    return _make(cls, (bytes(body[1:17]), generation, mark, write, read, append, tail))


def _parse_head(
    body: memoryview, version: int, max_locks: int
) -> tuple[int, int, tuple[int, ...], tuple[int, ...], tuple[int, ...], bool, int]:
    """Generation, high-water mark, the three kinds of locks, whether one is null, and where the header and
    the data begin."""
    try:
        message_type, generation, high_water_mark, count = _PREFIX.unpack_from(body)
        if message_type != APPEND_TYPE:
            raise ProtocolError(f"message type {message_type} is not an append")
        offset = _PREFIX_SIZE
        dropped = count < 0
        write: tuple[int, ...] = ()
        read: tuple[int, ...] = ()
        append: tuple[int, ...] = ()
        if count > 0:
            write = _read_locks(body, offset, count, max_locks)
            offset += 4 * count
        if version >= 1:
            (count,) = _INT.unpack_from(body, offset)
            offset += 4
            if count:
                dropped = dropped or count < 0
                if count > 0:
                    read = _read_locks(body, offset, count, max_locks - len(write))
                    offset += 4 * count
            if version >= 2:
                (count,) = _INT.unpack_from(body, offset)
                offset += 4
                if count:
                    dropped = dropped or count < 0
                    if count > 0:
                        append = _read_locks(body, offset, count, max_locks - len(write) - len(read))
                        offset += 4 * count
        length = _TAIL_HEAD.unpack_from(body, offset)[1]
    except struct.error:
        raise ProtocolError("an append is cut short") from None
    if length < 0 or len(body) - offset != length + _TAIL_OVERHEAD:
        raise ProtocolError("an append without data" if length < 0 else "an append has the wrong length")
    return generation, high_water_mark, write, read, append, dropped, offset


def encode_append(
    req_id: bytes,
    client_high_water_mark: int,
    write_locks: Sequence[int],
    read_locks: Sequence[int],
    append_locks: Sequence[int],
    header: int,
    data: bytes | bytearray | memoryview,
    version: int,
) -> bytes:
    """The whole APPEND_REQUEST frame, checksum computed. Locks are hashes, in the order given.

    EncodeError when `version` cannot carry the locks (read locks since 1, append locks since 2), when a value
    does not fit, or when `req_id` is not 16 bytes.
    """
    if len(req_id) != REQ_ID_SIZE:
        raise EncodeError(f"a ReqId has {REQ_ID_SIZE} bytes, not {len(req_id)}")
    if (read_locks and version < 1) or (append_locks and version < 2):
        kind = "read" if read_locks and version < 1 else "append"
        raise EncodeError(f"{kind} locks cannot be sent with protocol version {version}")
    if version >= 2 and not read_locks and not append_locks and len(write_locks) < 2:
        return _encode_common(req_id, client_high_water_mark, write_locks, header, data, version)
    arrays = (write_locks, read_locks, append_locks)[: min(version, 2) + 1]
    size = 25 + sum(4 + 4 * len(locks) for locks in arrays) + 12 + len(data)
    try:
        parts: list[bytes | bytearray | memoryview] = [
            _FRAME_HEAD.pack(_MAGIC, version, size, APPEND_TYPE, req_id, client_high_water_mark)
        ]
        for locks in arrays:
            parts.append(struct.pack(f">i{len(locks)}i", len(locks), *locks))
        parts += (_TAIL_HEAD.pack(header, len(data)), data, crc32(data).to_bytes(4, "big"))
    except struct.error as e:
        raise EncodeError(f"an append cannot be encoded: {e}") from None
    return b"".join(parts)


def _encode_common(
    req_id: bytes,
    client_high_water_mark: int,
    write_locks: Sequence[int],
    header: int,
    data: bytes | bytearray | memoryview,
    version: int,
) -> bytes:
    """The frame of an append with no lock or one write lock, version 2 on."""
    length = len(data)
    try:
        if write_locks:
            size = length + (_TAIL_ONE_LOCK + _TAIL_OVERHEAD)
            head = _pack_one_lock(
                _MAGIC, version, size, APPEND_TYPE, req_id, client_high_water_mark,
                1, write_locks[0], 0, 0, header, length,
            )  # fmt: skip
        else:
            size = length + (_TAIL_NO_LOCK + _TAIL_OVERHEAD)
            head = _pack_no_lock(
                _MAGIC, version, size, APPEND_TYPE, req_id, client_high_water_mark, 0, 0, 0, header, length
            )
    except struct.error as e:
        raise EncodeError(f"an append cannot be encoded: {e}") from None
    return b"".join((head, data, crc32(data).to_bytes(4, "big")))


def frame_for_version(frame: bytes, version: int) -> bytes | None:
    """The same append in another version; None when their bytes differ (before version 2)."""
    before = int.from_bytes(frame[1:3], "big")
    if before == version:
        return frame
    return None if before < 2 or version < 2 else frame[:1] + version.to_bytes(2, "big") + frame[3:]
