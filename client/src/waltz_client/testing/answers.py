"""Answers to appends of version 5, one frame each: the log of a test is in no hurry."""

from __future__ import annotations

from waltz_client.testing.values import ClientConnection
from waltz_protocol.frames.append_batch import FIRST_VERSION, Answer, Verdict, encode_answers
from waltz_protocol.types import ReqId


def answer(
    connection: ClientConnection,
    req_id: bytes,
    verdict: Verdict,
    number: int = -1,
    *,
    lock: int = 0,
    winner: int = -1,
) -> bool:
    """Whether the connection hears it; before version 5 it does not."""
    if connection.version < FIRST_VERSION:
        return False
    client_id, generation, partition_id, seq_num = ReqId.unpack(req_id)
    one = Answer(verdict, generation, partition_id, seq_num, number, lock=lock, winner=winner)
    connection.send_frame(encode_answers(client_id, [one], connection.version))
    return True
