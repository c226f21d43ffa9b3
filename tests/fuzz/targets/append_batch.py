"""Appends of version 5: whatever the bytes are, a ProtocolError, or what is the same when it is encoded
again."""

from __future__ import annotations

from collections.abc import Iterator

from tests.fuzz.target import Target
from waltz_protocol.errors import ProtocolError
from waltz_protocol.frame import FRAME_HEADER_SIZE
from waltz_protocol.frames.append import encode_append
from waltz_protocol.frames.append_batch import (
    APPEND_ANSWERS_TYPE,
    FIRST_VERSION,
    REPEATED_APPEND_TYPE,
    Answer,
    Repeated,
    Verdict,
    encode_answers,
    encode_batch,
    encode_repeated,
    parse_answers,
    split_batch,
    split_repeated,
)
from waltz_protocol.types import ReqId


def check(data: bytes) -> None:
    """The type, which is the first byte, says who decodes it."""
    body = memoryview(data)
    kind = data[0] if data else 0
    try:
        if kind == APPEND_ANSWERS_TYPE:
            client_id, answers = parse_answers(body)
            again = encode_answers(client_id, answers, FIRST_VERSION)
            # not the same bytes: those of a text that are not UTF-8 are replaced
            assert parse_answers(again[FRAME_HEADER_SIZE:]) == (client_id, answers)
            return
        elif kind == REPEATED_APPEND_TYPE:
            repeated, append = split_repeated(body)
            assert repeated.searched >= -1
            again = encode_repeated(_framed(append), repeated)
            if repeated.searched == -1:  # all that is below means this
                return
        else:
            frames = [_framed(one) for one in split_batch(body, FIRST_VERSION)]
            again = encode_batch(frames, FIRST_VERSION)
            # the head names a client for those who read no further
            assert again[FRAME_HEADER_SIZE + 5 :] == data[5:]
            return
    except ProtocolError:
        return
    assert again[FRAME_HEADER_SIZE:] == data


def _framed(body: memoryview) -> bytes:
    return b"".join((b"L", FIRST_VERSION.to_bytes(2, "big"), len(body).to_bytes(4, "big"), body))


def seeds() -> Iterator[bytes]:
    frames = [
        encode_append(
            ReqId(1, 2, 3, number).pack(), 7, range(number), (), (), 5, b"x" * number, FIRST_VERSION
        )
        for number in range(4)
    ]
    answers = [
        Answer(Verdict.COMMITTED, 2, 3, 4, 100, 7),
        Answer(Verdict.LOCK_CONFLICT, 2, 3, 5, 90, lock=77, winner=9),
        *(Answer(verdict, 2, 3, 6, -1, text="é") for verdict in Verdict if verdict > Verdict.LOCK_CONFLICT),
    ]
    for frame in (
        encode_batch(frames, FIRST_VERSION),
        encode_batch(frames[:1], FIRST_VERSION),
        encode_repeated(frames[2], Repeated(8, 77)),
        encode_repeated(frames[0], Repeated(-1, -1)),
        encode_answers(1, answers, FIRST_VERSION),
        encode_answers(1, answers[:1], FIRST_VERSION),
    ):
        yield frame[FRAME_HEADER_SIZE:]


TARGET = Target(check, seeds)
