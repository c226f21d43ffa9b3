"""Appends of version 5: batches, repeated appends, answers. Golden bytes, and what is not one."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from waltz_protocol.errors import EncodeError, ProtocolError
from waltz_protocol.frame import FRAME_HEADER_SIZE
from waltz_protocol.frames.append import encode_append, frame_for_version, parse_append
from waltz_protocol.frames.append_batch import (
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

REQ_ID = ReqId(1, 2, 3, 4)
FIRST = encode_append(REQ_ID.pack(), 9, (5,), (), (), 6, b"ab", 5)
SECOND = encode_append(ReqId(1, 2, 7, 5).pack(), -1, (), (), (), 0, b"", 5)
FIRST_BYTES = (
    "4c0005000000" + "37" + "02" + "00000001000000020000000300000004" + "0000000000000009"
    "0000000100000005" + "00000000" + "00000000" + "00000006" + "00000002" + "6162" + "9e83486d"
)


def _body(frame: bytes) -> memoryview:
    assert int.from_bytes(frame[3:7], "big") == len(frame) - FRAME_HEADER_SIZE
    return memoryview(frame)[FRAME_HEADER_SIZE:]


def test_golden_bytes_of_a_batch() -> None:
    assert FIRST.hex() == FIRST_BYTES
    batch = encode_batch([FIRST, SECOND], 5)
    size = 9 + len(FIRST) + len(SECOND)
    assert (
        batch.hex() == "4c0005" + f"{size:08x}" + "40" + "00000001" + "00000002" + FIRST.hex() + SECOND.hex()
    )
    assert [bytes(one) for one in split_batch(_body(batch), 5)] == [bytes(_body(FIRST)), bytes(_body(SECOND))]


def test_golden_bytes_of_a_repeated_append() -> None:
    frame = encode_repeated(FIRST, Repeated(8, 77))
    head = "42" + REQ_ID.pack().hex() + "00000008" + "000000000000004d"
    assert frame.hex() == "4c0005" + f"{29 + 55:08x}" + head + FIRST.hex()[14:]
    repeated, body = split_repeated(_body(frame))
    assert repeated == Repeated(8, 77)
    assert parse_append(body, 5) == parse_append(_body(FIRST), 5)


def test_golden_bytes_of_answers() -> None:
    answers = [
        Answer(Verdict.COMMITTED, 2, 3, 4, 100, 7),
        Answer(Verdict.LOCK_CONFLICT, 2, 3, 11, 99, lock=5, winner=-1),
        Answer(Verdict.NOT_SERVED, 2, 3, 12, text="a:1"),
    ]
    frame = encode_answers(1, answers, 5)
    assert frame.hex() == (
        "4c00050000005b" + "41" + "00000001" + "00000003"
        "00" + "00000002" + "00000003" + "00000004" + "0000000000000064" + "00000007"
        "01" + "00000002" + "00000003" + "0000000b" + "0000000000000063" + "00000005" + "ffffffff"
        "04" + "00000002" + "00000003" + "0000000c" + "ffffffffffffffff" + "00000003" + "613a31"
    )  # fmt: skip
    assert parse_answers(_body(frame)) == (1, answers)


@given(st.data())
def test_a_batch_or_answers_cut_or_changed_anywhere_are_refused_or_read(data: st.DataObject) -> None:
    """Never anything else than ProtocolError."""
    frames = (
        encode_batch([FIRST, SECOND], 5),
        encode_answers(1, [Answer(Verdict.NOT_SERVED, 2, 3, 4, text="ab")] * 2, 5),
        encode_repeated(FIRST, Repeated(1, 1)),
    )
    which = data.draw(st.integers(0, 2))
    body = bytearray(_body(frames[which]))
    if data.draw(st.booleans()):
        del body[data.draw(st.integers(1, len(body) - 1)) :]
    else:
        body[data.draw(st.integers(0, len(body) - 1))] ^= data.draw(st.integers(1, 255))
    read = (lambda view: list(split_batch(view, 5)), parse_answers, split_repeated)[which]
    try:
        read(memoryview(body))
    except ProtocolError:
        pass


@pytest.mark.parametrize("cut", [1, 9, 20, len(FIRST) + 9])
def test_a_batch_that_is_cut_short_is_refused(cut: int) -> None:
    with pytest.raises(ProtocolError):
        list(split_batch(_body(encode_batch([FIRST, SECOND], 5))[:-cut], 5))


def test_a_batch_holds_whole_appends_of_its_version_only() -> None:
    older = encode_append(REQ_ID.pack(), 9, (), (), (), 6, b"ab", 4)
    for frames in ([older], [FIRST + b"x"], [FIRST[:-1]]):
        with pytest.raises(ProtocolError):
            list(split_batch(_body(encode_batch(frames, 5)), 5))
    with pytest.raises(EncodeError):
        encode_batch([], 5)


def test_a_repeated_append_holds_itself() -> None:
    frame = bytearray(encode_repeated(FIRST, Repeated(8, 77)))
    frame[FRAME_HEADER_SIZE + 16] ^= 1
    with pytest.raises(ProtocolError, match="something else than itself"):
        split_repeated(_body(bytes(frame)))


def test_an_append_changes_its_version_where_the_bytes_are_alike() -> None:
    older = encode_append(REQ_ID.pack(), 9, (5,), (), (), 6, b"ab", 4)
    assert frame_for_version(older, 5) == FIRST
    assert frame_for_version(FIRST, 5) is FIRST
    for version in (0, 1):
        oldest = encode_append(REQ_ID.pack(), 9, (5,), (), (), 6, b"ab", version)
        assert frame_for_version(oldest, 5) is None
    assert frame_for_version(FIRST, 1) is None


def test_only_some_answers_are_the_end_of_an_append_that_is_sent_again() -> None:
    assert {one for one in Verdict if one.decides} == {
        Verdict.COMMITTED,
        Verdict.LOCK_CONFLICT,
        Verdict.VIEW_AHEAD,
        Verdict.DROPPED,
    }
