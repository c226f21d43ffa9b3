"""A stream connection that sends committed appends again, late, and compares answers with the feed.

The shipped client sends nothing again that its feed has shown to be committed. Others may: so each connection
of version 5 in a simulation does it for a part of its appends, whatever has become of their server since, and
from how far back it likes. The answer has to be the id that the append has, or that this is too long ago;
the checkers of the log find a second record. And each answer *committed* has to be what the feed shows.
"""

from __future__ import annotations

import asyncio
import random
from collections import OrderedDict
from typing import Any

import waltz_client._internal.stream.links as links_module
from waltz_client._internal.stream.partition import StreamPartition
from waltz_client._internal.stream.session import StreamSession
from waltz_protocol.frame import FRAME_HEADER_SIZE
from waltz_protocol.frames.append_batch import (
    FIRST_VERSION,
    Repeated,
    Verdict,
    encode_repeated,
    parse_answers,
)
from waltz_protocol.frames.feed import FEED_DATA, unpack_feed_data
from waltz_protocol.types import ReqId

REPEATED_SHARE = 0.1
LATEST_SECONDS = 30.0
REMEMBERED = 2000


class RepeatingSession(StreamSession):
    """See the module."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._draw = random.Random(self.connection_seq_num)
        self._sent: OrderedDict[ReqId, tuple[bytes, int]] = OrderedDict()
        """Frame, and what its client had received when it was sent."""
        self._known: OrderedDict[tuple[int, int], int] = OrderedDict()
        """(partition, sequence number) -> transaction id, by the feed."""
        self._claimed: OrderedDict[tuple[int, int], int] = OrderedDict()
        """(partition, transaction id) -> sequence number, by an answer."""

    def send_append(self, frame: bytes) -> bool:
        """And remember some."""
        if frame[FRAME_HEADER_SIZE] == 2 and self._draw.random() < REPEATED_SHARE:
            req_id = ReqId.unpack(frame, FRAME_HEADER_SIZE + 1)
            partition = self._partitions.get(req_id.partition_id)
            if isinstance(partition, StreamPartition):
                _remember(self._sent, req_id, (frame, partition.received))
        return super().send_append(frame)

    def frame_received(self, channel: Any, body: memoryview) -> None:
        """And judge."""
        if body[0] == FEED_DATA:
            self._fed(unpack_feed_data(body, 1))
        super().frame_received(channel, body)

    def _fed(self, fields: tuple[int, ...]) -> None:
        client_id, generation, partition_id, seq_num, transaction_id, _ = fields
        claimed = self._claimed.pop((partition_id, transaction_id), None)
        partition = self._partitions.get(partition_id)
        if not isinstance(partition, StreamPartition):
            return
        if claimed is not None and (client_id, seq_num) != (partition.client_id, claimed):
            _wrong(f"transaction {transaction_id} of partition {partition_id} was answered to {claimed}")
        sent = self._sent.pop(ReqId(client_id, generation, partition_id, seq_num), None)
        if sent is not None:
            _remember(self._known, (partition_id, seq_num), transaction_id)
            delay = self._draw.random() ** 2 * LATEST_SECONDS
            asyncio.get_running_loop().call_later(delay, _again, partition, *sent, seq_num, transaction_id)

    def expect(self, partition_id: int, seq_num: int, transaction_id: int) -> None:
        """An append that is sent again here is in the log at this id."""
        _remember(self._known, (partition_id, seq_num), transaction_id)

    def _answers(self, body: memoryview) -> None:
        for answer in parse_answers(body)[1]:
            if answer.verdict is not Verdict.COMMITTED:
                continue
            for offset in range(answer.appends):
                seq_num = (answer.seq_num + offset + 2**31) % 2**32 - 2**31
                key, number = (answer.partition_id, seq_num), answer.number + offset
                if self._known.get(key, number) != number:
                    _wrong(f"{key} was answered with {number}, and is at {self._known[key]}")
                partition = self._partitions.get(answer.partition_id)
                if isinstance(partition, StreamPartition) and number > partition.received:
                    _remember(self._claimed, (answer.partition_id, number), seq_num)
        super()._answers(body)


def _again(
    partition: StreamPartition, frame: bytes, searched: int, seq_num: int, transaction_id: int
) -> None:
    session = partition.session
    if isinstance(session, RepeatingSession) and partition.mounted and session.version >= FIRST_VERSION:
        session.expect(partition.partition_id, seq_num, transaction_id)
        version = session.version.to_bytes(2, "big")
        repeated = Repeated(partition.req_ids.generation, searched)
        session.send_append(encode_repeated(frame[:1] + version + frame[3:], repeated))


def _remember(memory: OrderedDict[Any, Any], key: object, value: object) -> None:
    memory[key] = value
    if len(memory) > REMEMBERED:
        memory.popitem(last=False)


def _wrong(text: str) -> None:
    message = f"an answer to an append is wrong: {text}"
    asyncio.get_running_loop().call_exception_handler({"message": message})


def install() -> None:
    """For all clients of this process."""
    vars(links_module)["StreamSession"] = RepeatingSession
