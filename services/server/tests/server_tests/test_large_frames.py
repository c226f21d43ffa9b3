"""Frames above `server.maxFrameBytes`: an append has an answer, whatever else it is ends the connection."""

from __future__ import annotations

import pytest

from waltz_protocol.frame import FRAME_HEADER_SIZE, HEAD_BYTES
from waltz_protocol.frames.append import encode_append
from waltz_protocol.frames.append_batch import (
    APPEND_ANSWERS_TYPE,
    Answer,
    Repeated,
    Verdict,
    encode_batch,
    encode_repeated,
    parse_answers,
)
from waltz_protocol.messages.client import CloseCode, CloseNotice, MountRequest, MountResponse
from waltz_protocol.types import ReqId
from waltz_testkit.loopback_server import LoopbackServer
from waltz_testkit.partition_rig import GENERATION, PARTITION


@pytest.mark.parametrize("again", [False, True])
async def test_an_append_above_the_limit_of_a_frame_is_answered_and_nothing_else_is_held_up(
    again: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """The connection stays: its client would send the append again on the next one, which would end too."""
    async with LoopbackServer({PARTITION: GENERATION}) as server:
        peer = await server.peer(version=5)
        peer.send(MountRequest(_req_id(1), -1, 0))
        await peer.read_until(lambda message: isinstance(message, MountResponse))
        sizes = []
        for number in range(2, 6):
            frame = encode_append(_req_id(number).pack(), -1, (), (), (), 0, bytes(number % 2 << 20), 5)
            frame = encode_repeated(frame, Repeated(GENERATION, -1)) if again else frame
            sizes.append(len(frame) - FRAME_HEADER_SIZE)
            peer.write(frame)
        answers: list[Answer] = []
        while sum(one.appends for one in answers) < 4:
            body = (await peer.read_frame())[2]
            if body[0] == APPEND_ANSWERS_TYPE:
                answers += parse_answers(body)[1]
        refused = [one for one in answers if one.verdict is not Verdict.COMMITTED]
        assert [
            (one.verdict, one.generation, one.partition_id, one.seq_num, one.number) for one in refused
        ] == [(Verdict.TOO_LARGE, GENERATION, PARTITION, number, 1 << 20) for number in (3, 5)]
        said = f"its frame has {sizes[1]} bytes, and the server takes {1 << 20} (server.maxFrameBytes)"
        assert {one.text for one in refused} == {said}
        taken = [ReqId.unpack(record, 8).seq_num for record in server.backend.stores[PARTITION].log]
        assert taken == [2, 4]
        assert len([text for text in caplog.messages if said in text]) == 1


@pytest.mark.parametrize("version", [4, 5])
async def test_any_other_frame_above_the_limit_ends_the_connection(version: int) -> None:
    """An append of an older version, too: there is no answer to it."""
    async with LoopbackServer({PARTITION: GENERATION}) as server:
        peer = await server.peer(version=version)
        append = encode_append(_req_id(1).pack(), -1, (), (), (), 0, bytes(1 << 20), version)
        sent = append if version == 4 else encode_batch([append], version)
        peer.write(sent[: FRAME_HEADER_SIZE + HEAD_BYTES])
        if version == 5:
            notice = await peer.read()
            assert isinstance(notice, CloseNotice)
            assert (notice.code, notice.text) == (
                CloseCode.PROTOCOL_ERROR,
                f"a frame of {len(append) + 9} bytes exceeds the limit of {1 << 20} bytes",
            )
        assert await peer.closed_by_server()


def _req_id(number: int) -> ReqId:
    return ReqId(1, GENERATION, PARTITION, number)
