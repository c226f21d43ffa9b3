"""Connections to storage nodes: requests, replies, time limits, and everything that ends a request."""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from protocol_tests.peers import HOST, Recorder, listening, settings
from protocol_tests.vectors import INFO, KEY, RECORD, RECORD_HEADER
from waltz_protocol.aio import requester as requester_module
from waltz_protocol.aio.channel import Channel
from waltz_protocol.aio.storage_connection import StorageAdminConnection, StorageConnection
from waltz_protocol.aio.stored_connection import StoredConnection
from waltz_protocol.codec import ADMIN, STORAGE
from waltz_protocol.errors import (
    ChannelClosedError,
    ConnectError,
    ProtocolError,
    RequestFailedError,
    RequestTimeoutError,
    WaltzProtocolError,
)
from waltz_protocol.messages import admin, storage
from waltz_protocol.messages.fields import Message, RpcError
from waltz_protocol.records import pack_record
from waltz_protocol.types import Endpoint

Answer = Callable[[Any], "Message | list[Message] | None"]
_WIRE = pack_record(RECORD)


def _ok(m: Any) -> Message:
    return storage.SuccessResponse(m.session_id, m.seq_num, m.partition_id)


class Node(Recorder):
    """A storage node whose answers are a function of the request; None answers nothing."""

    def __init__(self, answer: Answer) -> None:
        super().__init__()
        self.answer = answer
        self.requests: list[Any] = []

    def frame_received(self, channel: Channel, body: memoryview) -> None:
        protocol = ADMIN if channel.settings.magic == ADMIN.magic else STORAGE
        request: Any = protocol.decode(body, 0)
        self.requests.append(request)
        if isinstance(request, storage.OpenRequest):
            replies: Any = storage.SuccessResponse(-1, -1, -1)
        elif isinstance(request, admin.OpenRequest):
            replies = admin.SuccessResponse(-1)
        else:
            replies = self.answer(request)
        for reply in replies if isinstance(replies, list) else [replies]:
            if reply is not None:
                channel.send(protocol.encode(reply, 0))
        super().frame_received(channel, body)


@contextlib.asynccontextmanager
async def node(
    answer: Answer, request_timeout_seconds: float = 5.0
) -> AsyncIterator[tuple[Node, StoredConnection]]:
    handler = Node(answer)
    storage_settings = settings(magic=STORAGE.magic, versions=(0,))
    async with listening(lambda: handler, storage_settings) as listener:
        connection = await StoredConnection.open(
            Endpoint(HOST, listener.port),
            cluster_key=KEY,
            num_partitions=4,
            tls=None,
            request_timeout_seconds=request_timeout_seconds,
        )
        yield handler, connection
        connection.close()
        await connection.wait_closed()
        await handler.until_closed()


class Outcome:
    """Collects the one call of an append's callback."""

    def __init__(self) -> None:
        self.calls: list[WaltzProtocolError | None] = []
        self._done = asyncio.Event()

    def __call__(self, error: WaltzProtocolError | None) -> None:
        self.calls.append(error)
        self._done.set()

    async def result(self) -> WaltzProtocolError | None:
        async with asyncio.timeout(10):
            await self._done.wait()
        return self.calls[0]


def _answer_all(m: Any) -> Message:
    prefix = (m.session_id, m.seq_num, m.partition_id)
    answers: dict[type, Callable[[], Message]] = {
        storage.LastSessionInfoRequest: lambda: storage.LastSessionInfoResponse(*prefix, INFO),
        storage.TruncateRequest: lambda: storage.MaxTransactionIdResponse(*prefix, m.transaction_id),
        storage.MaxTransactionIdRequest: lambda: storage.MaxTransactionIdResponse(*prefix, 42),
        storage.RecordRequest: lambda: storage.RecordResponse(
            *prefix, RECORD if m.transaction_id == 42 else None
        ),
        storage.RecordHeaderRequest: lambda: storage.RecordHeaderResponse(*prefix, RECORD_HEADER),
        storage.RecordHeaderListRequest: lambda: storage.RecordHeaderListResponse(*prefix, (RECORD_HEADER,)),
        storage.RecordListRequest: lambda: storage.RecordListResponse(*prefix, (RECORD, RECORD)),
    }
    return answers.get(type(m), lambda: storage.SuccessResponse(*prefix))()


async def test_every_request_gets_its_answer() -> None:
    async with node(_answer_all) as (handler, connection):
        assert await connection.last_session_info(5, 3) == INFO
        assert await connection.set_low_water_mark(5, 3, 41, offline=True) is None  # type: ignore[func-returns-value]
        assert await connection.truncate(5, 3, 41) == 41
        assert await connection.max_transaction_id(5, 3) == 42
        assert await connection.record(5, 3, 42) == RECORD
        assert await connection.record(5, 3, 43) is None
        assert await connection.record_header(5, 3, 42) == RECORD_HEADER
        assert await connection.record_header_list(5, 3, 42, 20) == [RECORD_HEADER]
        assert await connection.record_list(5, 3, 42, 20) == [RECORD, RECORD]
        assert await connection.record_list_raw(5, 3, 42, 20) == [_WIRE, _WIRE]
        await connection.append(5, 3, [RECORD, RECORD], offline=True)
        assert connection.pending == 0
    assert handler.requests[0] == storage.OpenRequest(-1, -1, -1, KEY, 4)
    assert [m.seq_num for m in handler.requests] == [-1, *range(11)]
    assert handler.requests[2] == storage.SetLowWaterMarkRequest(5, 1, 3, 41, True)
    assert handler.requests[-1] == storage.AppendRequest(5, 10, 3, (RECORD, RECORD), True)


async def test_what_belongs_together_is_sent_together() -> None:
    """The second question does not wait for the first answer, and comes behind it."""
    held: list[Any] = []

    def answer_in_pairs(m: Any) -> list[Message]:
        held.append(m)
        if len(held) < 2:
            return []
        answers = [_answer_all(one) for one in held]
        held.clear()
        return answers

    async with node(answer_in_pairs) as (handler, connection), asyncio.timeout(10):
        assert await connection.last_session_and_end(5, 3) == (INFO, 42)
        assert await connection.set_low_water_mark_and_ask(5, 3, 42) == 42
    assert [type(m) for m in handler.requests[1:]] == [
        storage.LastSessionInfoRequest,
        storage.MaxTransactionIdRequest,
        storage.SetLowWaterMarkRequest,
        storage.MaxTransactionIdRequest,
    ]


async def test_of_two_requests_sent_together_the_first_refusal_counts() -> None:
    def refuse(m: Any) -> Message:
        return storage.FailureResponse(m.session_id, m.seq_num, m.partition_id, RpcError(f"no {m.seq_num}"))

    async with node(refuse) as (_, connection):
        with pytest.raises(RequestFailedError, match="no 0"):
            await connection.last_session_and_end(5, 3)
        with pytest.raises(RequestFailedError, match="no 2"):
            await connection.set_low_water_mark_and_ask(5, 3, 42)
        with pytest.raises(RequestFailedError, match="no 4"):
            await connection.last_session_end_and_headers(5, 3, 40, 3)
        assert connection.pending == 0


async def test_a_refused_list_of_headers_leaves_the_answers_before_it() -> None:
    def answer(m: Any) -> Message:
        if isinstance(m, storage.RecordHeaderListRequest):
            return storage.FailureResponse(m.session_id, m.seq_num, m.partition_id, RpcError("no list"))
        return _answer_all(m)

    async with node(answer) as (handler, connection):
        assert await connection.last_session_end_and_headers(5, 3, 40, 3) == (INFO, 42, [])
    assert [type(m) for m in handler.requests[1:]] == [
        storage.LastSessionInfoRequest,
        storage.MaxTransactionIdRequest,
        storage.RecordHeaderListRequest,
    ]


async def test_submitted_appends_call_back_once_each_in_order() -> None:
    async with node(_ok) as (handler, connection):
        order: list[int] = []
        batches: list[int] = []
        connection.on_batch_ended.append(lambda: batches.append(len(order)))
        last = Outcome()

        def done(i: int, error: WaltzProtocolError | None) -> None:
            assert error is None
            order.append(i)
            if i == 99:
                last(error)

        for i in range(100):
            connection.submit_append(5, i % 4, 1, _WIRE, lambda e, i=i: done(i, e))  # type: ignore[misc]
        assert order == [], "never inside submit"
        assert connection.pending == 100
        await last.result()
        assert order == list(range(100))
        await asyncio.sleep(0)
        assert batches[-1] == 100
        assert len(batches) < 100, "many votes, few batch ends"
    assert handler.requests[1] == storage.AppendRequest(5, 0, 0, (RECORD,))


async def test_a_refusal_is_an_error_with_the_nodes_text() -> None:
    def refuse(m: Any) -> Message:
        return storage.FailureResponse(m.session_id, m.seq_num, m.partition_id, RpcError("no", ()))

    async with node(refuse) as (_, connection):
        with pytest.raises(RequestFailedError, match=r"^no$"):
            await connection.max_transaction_id(5, 3)
        with pytest.raises(RequestFailedError, match=r"^no$"):
            await connection.record_list_raw(5, 3, 0, 1)
        outcome = Outcome()
        connection.submit_append(5, 3, 1, _WIRE, outcome)
        error = await outcome.result()
        assert isinstance(error, RequestFailedError)
        assert error.message == "no"
        assert not connection.closed


async def test_replies_may_overtake_each_other() -> None:
    held: list[Any] = []

    def answer(m: Any) -> list[Message]:
        held.append(m)
        return [_answer_all(m) for m in reversed(held)] if len(held) == 3 else []

    async with node(answer) as (_, connection):
        results = await asyncio.gather(
            connection.truncate(5, 1, 10), connection.truncate(5, 2, 20), connection.truncate(5, 3, 30)
        )
        assert list(results) == [10, 20, 30]


async def test_safety_d2_a_request_that_timed_out_is_never_counted_later() -> None:
    late: list[Message] = []

    def answer(m: Any) -> Message | list[Message]:
        if isinstance(m, storage.AppendRequest):
            late.append(_ok(m))
            return []
        return [*late, _answer_all(m)]

    async with node(answer, request_timeout_seconds=0.1) as (_, connection):
        outcome = Outcome()
        connection.submit_append(5, 3, 1, _WIRE, outcome)
        assert isinstance(await outcome.result(), RequestTimeoutError)
        assert not connection.closed
        # The late reply comes first, then the answer of this one.
        assert await connection.max_transaction_id(5, 3) == 42
        assert len(outcome.calls) == 1
        assert not connection.closed


async def test_a_second_reply_to_the_same_request_ends_the_connection() -> None:
    async with node(lambda m: [_answer_all(m), _answer_all(m)]) as (_, connection):
        assert await connection.max_transaction_id(5, 3) == 42
        await connection.wait_closed()
        assert "unknown sequence number" in (connection.close_reason or "")


async def test_one_timer_serves_all_requests() -> None:
    async with node(lambda m: None, request_timeout_seconds=0.1) as (_, connection):
        outcomes = [Outcome() for _ in range(50)]
        for i, outcome in enumerate(outcomes):
            connection.submit_append(5, 3, 1, _WIRE, outcome)
            if i == 25:
                await asyncio.sleep(0.03)
        for outcome in outcomes:
            assert isinstance(await outcome.result(), RequestTimeoutError)
        assert connection._requester._timer is None
        assert [len(o.calls) for o in outcomes] == [1] * 50


async def test_a_node_that_never_answers_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(requester_module, "MAX_LATE_REPLIES", 5)
    async with node(lambda m: None, request_timeout_seconds=0.05) as (_, connection):
        for _ in range(6):
            connection.submit_append(5, 3, 1, _WIRE, Outcome())
        await connection.wait_closed()
        assert "without a reply" in (connection.close_reason or "")


async def test_a_lost_connection_fails_everything_outstanding() -> None:
    async with node(lambda m: None) as (handler, connection):
        reasons: list[str] = []
        outcomes = [Outcome() for _ in range(3)]
        connection.on_closed.append(reasons.append)
        for outcome in outcomes:
            connection.submit_append(5, 3, 1, _WIRE, outcome)
        waiting = asyncio.get_running_loop().create_task(connection.max_transaction_id(5, 3))
        await handler.until(lambda: len(handler.requests) == 5)
        if handler.channel is not None:
            handler.channel.abort("killed")
        for outcome in outcomes:
            assert isinstance(await outcome.result(), ChannelClosedError)
        with pytest.raises(ChannelClosedError):
            await waiting
        await connection.wait_closed()
        assert connection.closed
        assert len(reasons) == 1
        after = Outcome()
        connection.submit_append(5, 3, 1, _WIRE, after)
        assert after.calls == [], "never inside submit"
        assert isinstance(await after.result(), ChannelClosedError)
        with pytest.raises(ChannelClosedError):
            await connection.max_transaction_id(5, 3)


def _other_session(m: Any) -> Message:
    return storage.SuccessResponse(m.session_id + 1, m.seq_num, m.partition_id)


def _other_partition(m: Any) -> Message:
    return storage.SuccessResponse(m.session_id, m.seq_num, m.partition_id + 1)


def _wrong_type(m: Any) -> Message:
    return storage.MaxTransactionIdResponse(m.session_id, m.seq_num, m.partition_id, 1)


def _unknown_seq_num(m: Any) -> Message:
    return storage.SuccessResponse(m.session_id, m.seq_num + 1000, m.partition_id)


@pytest.mark.parametrize("answer", [_other_session, _other_partition, _wrong_type, _unknown_seq_num])
async def test_a_reply_that_does_not_belong_ends_the_connection(answer: Answer) -> None:
    async with node(answer) as (_, connection):
        outcome = Outcome()
        connection.submit_append(5, 3, 1, _WIRE, outcome)
        assert type(await outcome.result()) in (ProtocolError, ChannelClosedError)
        await connection.wait_closed()
        assert len(outcome.calls) == 1
    async with node(answer) as (_, connection):
        with pytest.raises((ProtocolError, ChannelClosedError)):
            await connection.set_low_water_mark(5, 3, 1)
        await connection.wait_closed()


async def test_cancelling_stops_the_waiting_only() -> None:
    held: list[Any] = []

    def answer(m: Any) -> list[Message]:
        held.append(m)
        return [_answer_all(m) for m in held] if len(held) == 2 else []

    async with node(answer) as (handler, connection):
        waiting = asyncio.get_running_loop().create_task(connection.truncate(5, 1, 10))
        await handler.until(lambda: len(held) == 1)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        assert await connection.truncate(5, 1, 20) == 20
        assert not connection.closed


async def test_a_callback_that_fails_closes_the_connection_and_the_others_are_told(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with node(lambda m: _ok(m) if m.seq_num == 0 else None) as (_, connection):

        def broken(error: WaltzProtocolError | None) -> None:
            raise ZeroDivisionError("oh")

        other = Outcome()
        connection.submit_append(5, 3, 1, _WIRE, broken)
        connection.submit_append(5, 3, 1, _WIRE, broken)
        connection.submit_append(5, 3, 1, _WIRE, other)
        assert isinstance(await other.result(), ChannelClosedError)
        assert connection.closed
    assert {r.levelno for r in caplog.records} == {logging.ERROR}


async def test_open_refused_and_open_failed() -> None:
    class Refusing(Node):
        def frame_received(self, channel: Channel, body: memoryview) -> None:
            error = RpcError("cluster key mismatch")
            channel.send(STORAGE.encode(storage.FailureResponse(-1, -1, -1, error), 0))

    class Closing(Node):
        def frame_received(self, channel: Channel, body: memoryview) -> None:
            raise ProtocolError("no")

    storage_settings = settings(magic=STORAGE.magic, versions=(0,))

    async def open_at(port: int) -> None:
        await StorageConnection.open(Endpoint(HOST, port), cluster_key=KEY, num_partitions=4, tls=None)

    async with listening(lambda: Refusing(_ok), storage_settings) as listener:
        with pytest.raises(RequestFailedError, match="refused to open: cluster key mismatch"):
            await open_at(listener.port)
    async with listening(lambda: Closing(_ok), storage_settings) as listener:
        with pytest.raises(ConnectError, match=r"cannot open 127\.0\.0\.1"):
            await open_at(listener.port)
    async with listening(Recorder) as listener:
        with pytest.raises(ConnectError):
            await open_at(listener.port)


@contextlib.asynccontextmanager
async def admin_node(answer: Answer) -> AsyncIterator[tuple[Node, StorageAdminConnection]]:
    handler = Node(answer)
    async with listening(lambda: handler, settings(magic=ADMIN.magic, versions=(0,))) as listener:
        connection = await StorageAdminConnection.open(
            Endpoint(HOST, listener.port), cluster_key=KEY, num_partitions=4, tls=None
        )
        yield handler, connection
        connection.close()
        await connection.wait_closed()
        await handler.until_closed()


async def test_every_admin_request_gets_its_answer() -> None:
    def answer(m: Any) -> Message:
        answers: dict[type, Callable[[], Message]] = {
            admin.RecordListRequest: lambda: admin.RecordListResponse(m.seq_num, 3, (RECORD,)),
            admin.LastSessionInfoRequest: lambda: admin.LastSessionInfoResponse(m.seq_num, 3, INFO),
            admin.MetricsRequest: lambda: admin.MetricsResponse(m.seq_num, '{"gauges": {}}'),
            admin.AssignedPartitionStatusRequest: lambda: admin.AssignedPartitionStatusResponse(
                m.seq_num, {0: True}
            ),
        }
        return answers.get(type(m), lambda: admin.SuccessResponse(m.seq_num))()

    async with admin_node(answer) as (handler, connection):
        await connection.set_available([0, 3], True)
        await connection.assign([0, 3], False, delete_files=True)
        assert await connection.record_list(3, 42, 20) == [RECORD]
        assert await connection.last_session_info(3) == INFO
        assert await connection.metrics() == {"gauges": {}}
        assert await connection.partition_status() == {0: True}
    assert handler.requests[:3] == [
        admin.OpenRequest(-1, KEY, 4),
        admin.PartitionAvailableRequest(0, (0, 3), True),
        admin.PartitionAssignmentRequest(1, (0, 3), False, True),
    ]


@pytest.mark.parametrize("text", ["[]", "{", "", None, "[" * 100_000])
async def test_metrics_that_are_no_json_object_are_a_protocol_error(text: str | None) -> None:
    async with admin_node(lambda m: admin.MetricsResponse(m.seq_num, text)) as (_, connection):
        with pytest.raises(ProtocolError, match="metrics"):
            await connection.metrics()


async def test_an_admin_refusal_is_an_error() -> None:
    async with admin_node(lambda m: admin.FailureResponse(m.seq_num, RpcError(None))) as (_, connection):
        with pytest.raises(RequestFailedError, match="gave no reason"):
            await connection.partition_status()
