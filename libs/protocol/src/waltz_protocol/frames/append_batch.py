"""Appends of version 5: many in one frame, those that are sent again, and the answers to all. Pure.

Bytes: docs/protocol.md, version 5. A batch is a frame that holds whole frames of appends, so what a client
has encoded goes out alone or with others as it is, and a server reads both by `append.parse_append`.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from enum import IntEnum
from typing import NamedTuple

from waltz_protocol.buffer import Reader, Writer
from waltz_protocol.errors import EncodeError, ProtocolError
from waltz_protocol.frame import FRAME_HEADER_SIZE, Magic
from waltz_protocol.frames.append import APPEND_TYPE

FIRST_VERSION = 5
"""With answers to appends."""
APPEND_BATCH_TYPE = 64
APPEND_ANSWERS_TYPE = 65
REPEATED_APPEND_TYPE = 66

MAX_BATCH_APPENDS = 4096
BATCH_BYTES = 16 * 1024
"""Our clients put no more into a batch; a larger append goes alone. It is what a TLS record carries: a server
works on each batch as it arrives, and needs no larger buffer to put one together."""

_MAGIC = Magic.CLIENT
_HEADER = struct.Struct(">bhi")
_BATCH_HEAD = struct.Struct(">bii")
_BATCH_FRAME_HEAD = struct.Struct(">bhibii")
_REPEATED_HEAD = struct.Struct(">b16siq")
_REPEATED_FRAME_HEAD = struct.Struct(">bhib16siq")
_TYPE_AND_REQ_ID = 17
_ANSWER = struct.Struct(">b3iq")
_COMMITTED_ANSWER = struct.Struct(">b3iqi")
_COMMITTED = 0
_INT = struct.Struct(">i")
_CONFLICT = struct.Struct(">ii")


class Repeated(NamedTuple):
    """What an append that was sent before says about itself."""

    generation: int
    """That the client knows now; the one in the ReqId is that of the first sending."""
    searched: int
    """The client knows that the log up to this id does not hold it."""


class Verdict(IntEnum):
    """What became of an append. `decides` says whether it is the end of a repeated one, too."""

    COMMITTED = _COMMITTED
    LOCK_CONFLICT = 1
    STALE_GENERATION = 2
    NOT_MOUNTED = 3
    NOT_SERVED = 4
    TOO_LARGE = 5
    OVERLOADED = 6
    NO_QUORUM = 7
    REPEAT_TOO_OLD = 8
    VIEW_AHEAD = 9
    REQUEST_ID_IN_USE = 10
    DROPPED = 11
    UNDECIDED = 12

    @property
    def decides(self) -> bool:
        """Whether nothing of the append can be in the log (or COMMITTED: it is), however often it was sent.
        The others say that of a first sending only, and UNDECIDED of none."""
        return self in _DECISIVE


_DECISIVE = frozenset((Verdict.COMMITTED, Verdict.LOCK_CONFLICT, Verdict.VIEW_AHEAD, Verdict.DROPPED))


class Answer(NamedTuple):
    """One answer; of COMMITTED for `appends` appends whose sequence numbers and transaction ids follow each
    other."""

    verdict: Verdict
    generation: int
    partition_id: int
    seq_num: int
    number: int = -1
    """COMMITTED: transaction id; LOCK_CONFLICT, VIEW_AHEAD: the mark to read to, or that of the server;
    STALE_GENERATION: the server's; TOO_LARGE: the limit; OVERLOADED: milliseconds to wait; REPEAT_TOO_OLD:
    the first id that is searched."""
    appends: int = 1
    lock: int = 0
    winner: int = -1
    """LOCK_CONFLICT: the lock that was touched, and the client id of who did; -1 when it is not known."""
    text: str | None = None
    """NOT_SERVED: host and port of the server that serves it; NO_QUORUM: who is missing."""


def encode_batch(frames: Sequence[bytes], version: int) -> bytes:
    """A frame with these frames of appends, all of `version` and of the client of the first."""
    if not 0 < len(frames) <= MAX_BATCH_APPENDS:
        raise EncodeError(f"a batch of {len(frames)} appends")
    size = _BATCH_HEAD.size + sum(map(len, frames))
    client_id = _INT.unpack_from(frames[0], FRAME_HEADER_SIZE + 1)[0]
    head = _BATCH_FRAME_HEAD.pack(_MAGIC, version, size, APPEND_BATCH_TYPE, client_id, len(frames))
    return b"".join((head, *frames))


def split_batch(body: memoryview, version: int) -> Iterator[memoryview]:
    """The bodies of the appends in the body of a batch; ProtocolError when it is not one."""
    try:
        _, _, count = _BATCH_HEAD.unpack_from(body)
        if not 0 < count <= MAX_BATCH_APPENDS:
            raise ProtocolError(f"a batch of {count} appends")
        offset = _BATCH_HEAD.size
        for _ in range(count):
            magic, its_version, length = _HEADER.unpack_from(body, offset)
            start, offset = offset + FRAME_HEADER_SIZE, offset + FRAME_HEADER_SIZE + length
            if magic != _MAGIC or its_version != version or length <= _TYPE_AND_REQ_ID or offset > len(body):
                raise ProtocolError("a batch holds something else than whole appends")
            yield body[start:offset]
    except struct.error:
        raise ProtocolError("a batch of appends is cut short") from None
    if offset != len(body):
        raise ProtocolError(f"{len(body) - offset} bytes follow the last append of a batch")


def encode_repeated(frame: bytes, repeated: Repeated) -> bytes:
    """The frame that sends an append again, given its first one."""
    version = _HEADER.unpack_from(frame)[1]
    body = frame[FRAME_HEADER_SIZE:]
    size = _REPEATED_HEAD.size + len(body)
    req_id = body[1:_TYPE_AND_REQ_ID]
    head = _REPEATED_FRAME_HEAD.pack(_MAGIC, version, size, REPEATED_APPEND_TYPE, req_id, *repeated)
    return head + body


def split_repeated(body: memoryview) -> tuple[Repeated, memoryview]:
    """What a repeated append says about itself, and the body of the append."""
    if len(body) < _REPEATED_HEAD.size + _TYPE_AND_REQ_ID:
        raise ProtocolError("a repeated append is cut short")
    _, req_id, generation, searched = _REPEATED_HEAD.unpack_from(body)
    append = body[_REPEATED_HEAD.size :]
    if append[0] != APPEND_TYPE or append[1:_TYPE_AND_REQ_ID] != req_id:
        raise ProtocolError("a repeated append holds something else than itself")
    return Repeated(generation, max(searched, -1)), append


def encode_answers(client_id: int, answers: Sequence[Answer], version: int) -> bytes:
    """A frame with these answers."""
    writer = Writer()
    for answer in answers:
        verdict, generation, partition_id, seq_num, number, count, lock, winner, text = answer
        if verdict == _COMMITTED:
            writer.raw(_COMMITTED_ANSWER.pack(_COMMITTED, generation, partition_id, seq_num, number, count))
            continue
        writer.raw(_ANSWER.pack(verdict, generation, partition_id, seq_num, number))
        if verdict is Verdict.LOCK_CONFLICT:
            writer.raw(_CONFLICT.pack(lock, winner))
        else:
            writer.text(text)
    entries = writer.bytes()
    size = _BATCH_HEAD.size + len(entries)
    head = _BATCH_FRAME_HEAD.pack(_MAGIC, version, size, APPEND_ANSWERS_TYPE, client_id, len(answers))
    return head + entries


def parse_answers(body: memoryview | bytes) -> tuple[int, list[Answer]]:
    """Client id and answers in the body of their frame; ProtocolError."""
    reader = Reader(body)
    try:
        _, client_id, count = _BATCH_HEAD.unpack(reader.raw(_BATCH_HEAD.size))
        if not 0 < count <= len(body) // _ANSWER.size:
            raise ProtocolError(f"{count} answers")
        answers = []
        for _ in range(count):
            code, generation, partition_id, seq_num, number = _ANSWER.unpack(reader.raw(_ANSWER.size))
            verdict = Verdict(code)
            many, lock, winner, text = 1, 0, -1, None
            if verdict is Verdict.COMMITTED:
                many = reader.i32()
                if not 0 < many < 2**31 or number < 0:
                    raise ProtocolError(f"an answer to {many} appends at transaction {number}")
            elif verdict is Verdict.LOCK_CONFLICT:
                lock, winner = _CONFLICT.unpack(reader.raw(_CONFLICT.size))
            else:
                text = reader.text()
            answers.append(
                Answer(verdict, generation, partition_id, seq_num, number, many, lock, winner, text)
            )
    except (struct.error, ValueError) as error:
        raise ProtocolError(f"answers to appends cannot be read: {error}") from None
    reader.finish()
    return client_id, answers
