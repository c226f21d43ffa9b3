"""What a server asks of a node that speaks version 1 of the storage protocol."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from protocol_tests.peers import HOST, Recorder, listening, settings
from protocol_tests.vectors import KEY, STORED_RECORD
from waltz_protocol.aio.channel import Channel
from waltz_protocol.aio.stored_connection import StoredConnection
from waltz_protocol.codec import STORAGE
from waltz_protocol.errors import EncodeError, ProtocolError, RequestFailedError
from waltz_protocol.messages import storage
from waltz_protocol.messages.fields import Message, RpcError
from waltz_protocol.types import Endpoint


class Node(Recorder):
    """A storage node whose answers are a function of the request."""

    def __init__(self, answer: Callable[[Any], Message]) -> None:
        super().__init__()
        self.answer = answer
        self.requests: list[Any] = []

    def frame_received(self, channel: Channel, body: memoryview) -> None:
        request: Any = STORAGE.decode(body, channel.version)
        self.requests.append(request)
        opening = isinstance(request, storage.OpenRequest)
        reply = storage.SuccessResponse(-1, -1, -1) if opening else self.answer(request)
        channel.send(STORAGE.encode(reply, channel.version))
        super().frame_received(channel, body)


@contextlib.asynccontextmanager
async def node(
    answer: Callable[[Any], Message], versions: tuple[int, ...] = (0, 1)
) -> AsyncIterator[tuple[Node, StoredConnection]]:
    handler = Node(answer)
    async with listening(lambda: handler, settings(magic=STORAGE.magic, versions=versions)) as listener:
        connection = await StoredConnection.open(
            Endpoint(HOST, listener.port), cluster_key=KEY, num_partitions=4, tls=None, newest_version=1
        )
        yield handler, connection
        connection.close()
        await connection.wait_closed()
        await handler.until_closed()


def ranged(connection: StoredConnection) -> Any:
    return connection.stored_range(5, 3, 42, 50, committed=49, max_bytes=1000, unresolved=True)


async def test_a_range_is_asked_for_and_taken() -> None:
    def answer(m: Any) -> Message:
        return storage.StoredRangeResponse(m.session_id, m.seq_num, m.partition_id, m.first, 1, STORED_RECORD)

    async with node(answer) as (handler, connection):
        assert connection.stored_records
        assert await ranged(connection) == (42, 1, STORED_RECORD)
        assert handler.requests[-1] == storage.StoredRangeRequest(
            5, 0, 3, 42, 50, 49, 1000, storage.UNRESOLVED
        )


async def test_a_refusal_is_no_end() -> None:
    def answer(m: Any) -> Message:
        return storage.FailureResponse(m.session_id, m.seq_num, m.partition_id, RpcError("no"))

    async with node(answer) as (_, connection):
        with pytest.raises(RequestFailedError, match="no"):
            await ranged(connection)
        assert not connection.closed


@pytest.mark.parametrize("change", [(1, 0), (0, 1)])
async def test_safety_b1_a_range_of_another_session_or_partition_ends_the_connection(
    change: tuple[int, int],
) -> None:
    def answer(m: Any) -> Message:
        session, partition = m.session_id + change[0], m.partition_id + change[1]
        return storage.StoredRangeResponse(session, m.seq_num, partition, m.first, 1, STORED_RECORD)

    async with node(answer) as (_, connection):
        with pytest.raises(ProtocolError, match="a reply for session"):
            await ranged(connection)
        assert connection.closed


async def test_a_node_of_version_0_is_asked_for_no_stored_records() -> None:
    def answer(m: Any) -> Message:
        return storage.SuccessResponse(m.session_id, m.seq_num, m.partition_id)

    async with node(answer, (0,)) as (_, connection):
        assert not connection.stored_records
        with pytest.raises(EncodeError, match="version 0"):
            await ranged(connection)


async def test_stored_records_are_appended_with_the_mark() -> None:
    def answer(m: Any) -> Message:
        return storage.SuccessResponse(m.session_id, m.seq_num, m.partition_id)

    ends: list[Exception | None] = []
    async with node(answer) as (handler, connection):
        connection.submit_stored_append(5, 3, 41, 42, 1, STORED_RECORD, ends.append)
        await connection.set_low_water_mark(5, 3, 41)
        assert ends == [None]
        assert handler.requests[1] == storage.StoredAppendRequest(5, 0, 3, 41, 42, 1, STORED_RECORD)
