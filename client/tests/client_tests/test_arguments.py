"""Arguments of a wrong type: a UsageError that names the argument, and nothing else notices."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Callable

import pytest

from client_tests.helpers import Application, until
from client_tests.test_stream_partition import mounted
from waltz_client import (
    BYTES,
    Append,
    AppendFailedError,
    Committed,
    DeadlineExceededError,
    LockId,
    TransactionBuilder,
    TransactionContext,
    UsageError,
    WaltzClient,
)
from waltz_client._internal.rpc.call import PartitionCall
from waltz_client._internal.stream.feed_cursor import CursorState, FeedCursor
from waltz_client.blocking import BlockingWaltzClient
from waltz_client.testing import InProcessLog

NAN = float("nan")


class Whole:
    """A whole number of another library."""

    def __init__(self, value: int) -> None:
        self.value = value

    def __index__(self) -> int:
        return self.value


def log_of_five() -> InProcessLog:
    log = InProcessLog(num_partitions=2)
    for number in range(5):
        log.partition(0).commit(b"%d" % number)
    return log


async def ids_of_feed(client: WaltzClient, **arguments: object) -> list[int]:
    feed = client.feed(0, **arguments)  # type: ignore[call-overload]
    return [one.transaction_id async for one in feed]


async def ids_of_range(client: WaltzClient, first: object, last: object, **arguments: object) -> list[int]:
    async with client.read_range(0, first, last, **arguments) as read:  # type: ignore[call-overload]
        return [one for batch in [batch async for batch in read] for one in batch.transaction_ids]


# -- places in the log ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("headers_only", [False, True])
@pytest.mark.parametrize("wrong", [1.0, "1", b"1", 1 + 0j])
async def test_a_place_that_is_no_whole_number_is_refused_and_the_client_stays_usable(
    wrong: object, headers_only: bool
) -> None:
    log = log_of_five()
    async with log.client() as client, asyncio.timeout(20):
        await client.writable(0)
        for name, arguments in (
            ("after", {"after": wrong}),
            ("after", {"after": {0: wrong}}),
            ("until", {"until": wrong}),
            ("until", {"until": {0: wrong}}),
        ):
            with pytest.raises(UsageError, match=name):
                client.feed(0, headers_only=headers_only, **arguments)
        for name, first, last in (("first", wrong, 3), ("last", 0, wrong)):
            with pytest.raises(UsageError, match=name):
                client.read_range(0, first, last, with_data=not headers_only)  # type: ignore[call-overload]
        with pytest.raises(UsageError, match="transaction_id"):
            await client.get_data(0, wrong)  # type: ignore[call-overload]
        log.disconnect()
        for partition in (0, 1):
            await client.append(partition=partition, data=b"x", deadline_seconds=10)


async def test_whole_numbers_of_other_libraries_are_taken() -> None:
    async with log_of_five().client() as client, asyncio.timeout(20):
        assert await ids_of_feed(client, after=Whole(1), until={0: Whole(3)}) == [2, 3]
        assert await ids_of_range(client, Whole(1), Whole(2), batch_transactions=Whole(10)) == [1, 2]
        assert await client.get_data(0, Whole(4)) == b"4"  # type: ignore[call-overload]
        done = await client.append(partition=0, data=b"x", header=Whole(7), as_of=Whole(4))  # type: ignore[arg-type]
        assert [one.header async for one in client.feed(0, after=4, until=done.transaction_id)] == [7]


async def test_a_reader_that_cannot_be_asked_for_ends_alone() -> None:
    partition, session = mounted(4)
    wrong, right = FeedCursor(0, 1.0, 100, lambda: None), FeedCursor(0, 2, 100, lambda: None)  # type: ignore[arg-type]
    send = session.send_feed_request

    def encodes(req_id: object, mark: int) -> bool:
        if not isinstance(mark, int):
            raise TypeError("it cannot be encoded")
        return send(req_id, mark)  # type: ignore[arg-type]

    session.send_feed_request = encodes  # type: ignore[method-assign]
    partition.readers.add(wrong)
    partition.readers.add(right)
    assert (wrong.state, right.state) == (CursorState.CLOSED, CursorState.BACKFILL)
    assert "it cannot be encoded" in str(wrong.error)
    assert len(partition.readers) == 1


async def test_a_reader_that_cannot_be_asked_for_does_not_hold_up_a_mount() -> None:
    partition, session = mounted(4)
    wrong, right = FeedCursor(0, 1, 100, lambda: None), FeedCursor(0, 2, 100, lambda: None)
    partition.readers.add(wrong)
    partition.readers.add(right)
    partition.readers.unmounted()
    send = session.send_feed_request

    def encodes(req_id: object, mark: int) -> bool:
        if mark == 1:
            raise TypeError("it cannot be encoded")
        return send(req_id, mark)  # type: ignore[arg-type]

    session.send_feed_request = encodes  # type: ignore[method-assign]
    partition.readers.mounted()
    assert (wrong.state, right.state) == (CursorState.CLOSED, CursorState.BACKFILL)


async def test_a_mark_of_callbacks_that_no_log_can_have_is_an_error_of_its_partition(
    caplog: pytest.LogCaptureFixture,
) -> None:
    class Huge(Application):
        def client_high_water_mark(self, partition_id: int) -> int:
            return 2**63 if partition_id == 0 else -1

    log = log_of_five()
    async with log.client(Huge()) as client, asyncio.timeout(20):
        await client.append(partition=1, data=b"x")
        with pytest.raises(DeadlineExceededError, match=f"returned {2**63}, not an id or -1"):
            await client.append(partition=0, data=b"x", deadline_seconds=0.2)
        log.disconnect()
        await client.append(partition=1, data=b"x", deadline_seconds=10)


async def test_a_mark_of_callbacks_may_be_a_whole_number_of_another_library() -> None:
    log, state = log_of_five(), Application(mark=Whole(3))  # type: ignore[arg-type]
    async with log.client(state) as client, asyncio.timeout(20):
        await client.append(partition=0, data=b"x")
        await until(lambda: (0, 5) in state.applied)
        assert state.applied == [(0, 4), (0, 5)]


# -- calls over the RPC connection ---------------------------------------------------------------------------


async def test_a_request_that_cannot_be_written_ends_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever is wrong with it: others that wait for the same connection are sent."""
    request = PartitionCall.request

    def broken(call: PartitionCall, *given: object) -> bytes:
        if call.transaction_id == 1:
            raise ZeroDivisionError("a defect")
        return request(call, *given)  # type: ignore[arg-type]

    monkeypatch.setattr(PartitionCall, "request", broken)
    log = log_of_five()
    async with log.client() as client, asyncio.timeout(20):
        await client.writable(0)
        rpc = client._entered.rpc
        log.go_down()
        async with asyncio.TaskGroup() as group:
            calls = [group.create_task(_outcome(rpc.data(0, number, 10.0))) for number in range(3)]
            await until(lambda: len(rpc._waiting.get(0, ())) == 3)
            log.come_up()
        assert [call.result() for call in calls] == [
            b"0",
            "partition 0: a request that cannot be sent: a defect",
            b"2",
        ]
        assert not rpc._active
        assert not rpc._waiting


async def _outcome(call: Awaitable[bytes]) -> bytes | str:
    try:
        return await call
    except Exception as error:
        return str(error)


async def test_a_request_that_cannot_be_started_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    async with log_of_five().client() as client, asyncio.timeout(20):
        assert await client.get_data(0, 1) == b"1"
        rpc = client._entered.rpc

        def fail(_: object) -> None:
            raise ZeroDivisionError("a defect")

        with monkeypatch.context() as patched:
            patched.setattr(rpc, "_send", fail)
            with pytest.raises(ZeroDivisionError):
                await rpc.data(0, 1, 10.0)
        assert not rpc._active


# -- appends -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("producer", [None, "orders"])
@pytest.mark.parametrize("wrong", [2**31, 1.5, "1", None])
async def test_a_wrong_header_is_the_result_of_its_own_append(wrong: object, producer: str | None) -> None:
    settings = {"client.mockDriver": InProcessLog(num_partitions=1)}
    async with WaltzClient.connect(settings, producer=producer) as client, asyncio.timeout(20):
        numbers = [None] * 3 if producer is None else range(3)
        headers = [0, wrong, 0]
        appends = [
            Append(0, b"x", header=header, sequence=number)  # type: ignore[arg-type]
            for header, number in zip(headers, numbers, strict=True)
        ]
        results = await client.append_many(appends)
        assert [type(one) for one in results] == [Committed, AppendFailedError, Committed]
        assert "header" in str(results[1])


@pytest.mark.parametrize(
    ("name", "wrong"), [("as_of", 1.0), ("as_of", "1"), ("partition", [0]), ("partition", 0.0)]
)
async def test_another_wrong_argument_is_the_result_of_its_own_append(name: str, wrong: object) -> None:
    async with InProcessLog(num_partitions=1).client() as client, asyncio.timeout(20):
        right = Append(0, b"x")
        results = await client.append_many([right, right._replace(**{name: wrong}), right])  # type: ignore[arg-type]
        assert [type(one) for one in results] == [Committed, AppendFailedError, Committed]
        assert name in str(results[1])


# -- time limits ---------------------------------------------------------------------------------------------

LIMITED: dict[str, Callable[[WaltzClient, float], Awaitable[object]]] = {
    "append": lambda client, limit: client.append(partition=0, data=b"x", deadline_seconds=limit),
    "append_many": lambda client, limit: client.append_many([Append(0, b"x")], deadline_seconds=limit),
    "high_water_mark": lambda client, limit: client.high_water_mark(0, deadline_seconds=limit),
    "get_data": lambda client, limit: client.get_data(0, 0, deadline_seconds=limit),
    "writable": lambda client, limit: client.writable(0, deadline_seconds=limit),
    "flush_transactions": lambda client, limit: client.flush_transactions(deadline_seconds=limit),
    "transact": lambda client, limit: client.transact(0, lambda _: None, deadline_seconds=limit),
    "set_partitions": lambda client, limit: client.set_partitions([0], deadline_seconds=limit),
    "servers": lambda client, limit: client.servers.health(
        client.servers.endpoints()[0], deadline_seconds=limit
    ),
    "read_range": lambda client, limit: ids_of_range(client, 0, 0, timeout_seconds=limit),
    "close": lambda client, limit: client.close(drain_seconds=limit),
}


@pytest.mark.parametrize(
    "wrong", [NAN, "1", 1j, True, 10**400], ids=["nan", "text", "complex", "bool", "huge"]
)
@pytest.mark.parametrize("call", LIMITED)
async def test_a_time_limit_that_is_none_is_refused(call: str, wrong: float) -> None:
    async with InProcessLog(num_partitions=1).client() as client, asyncio.timeout(20):
        with pytest.raises(UsageError, match="seconds"):
            await LIMITED[call](client, wrong)
        await client.append(partition=0, data=b"x")


async def test_a_time_limit_that_is_none_is_refused_by_last_sequence() -> None:
    settings = {"client.mockDriver": InProcessLog(num_partitions=1)}
    async with WaltzClient.connect(settings, producer="orders") as client, asyncio.timeout(20):
        with pytest.raises(UsageError, match="deadline_seconds"):
            await client.last_sequence(0, deadline_seconds=NAN)


def test_the_blocking_client_stays_open_when_its_close_is_refused() -> None:
    with BlockingWaltzClient.connect({"client.mockDriver": InProcessLog(num_partitions=1)}) as client:
        with pytest.raises(UsageError, match="drain_seconds"):
            client.close(drain_seconds=NAN)
        client.append(partition=0, data=b"x")


async def test_a_deadline_that_had_passed_at_the_call_is_named() -> None:
    async with InProcessLog(num_partitions=1).client() as client:
        await client.writable(0)
        for seconds in (0, -1):
            with pytest.raises(DeadlineExceededError, match="the deadline had passed at the call"):
                await client.append(partition=0, data=b"x", deadline_seconds=seconds)
        with pytest.raises(DeadlineExceededError):
            await client.transact(0, lambda to: to.set_transaction_data(b"x", BYTES), deadline_seconds=0)


@pytest.mark.parametrize("seconds", [0, -1, -float("inf")])
async def test_append_many_sends_nothing_once_its_deadline_has_passed(seconds: float) -> None:
    log = log_of_five()
    async with log.client() as client, asyncio.timeout(20):
        await client.writable(0)
        taken = iter([Append(0, b"x"), Append(0, b"y")])
        (result,) = await client.append_many(taken, deadline_seconds=seconds)
        assert isinstance(result, DeadlineExceededError)
        assert len(list(taken)) == 1
        assert await client.high_water_mark(0) == 4


class Written(TransactionContext):
    """One transaction of a partition of some type."""

    partition: object = 0
    committed = False

    def partition_id(self, num_partitions: int) -> int:
        return self.partition  # type: ignore[return-value]

    def execute(self, builder: TransactionBuilder) -> bool:
        builder.set_transaction_data(b"x", BYTES)
        return True

    def on_completion(self, committed: bool) -> None:
        self.committed = committed


@pytest.mark.parametrize("wrong", [NAN, "1", True, 10**400], ids=["nan", "text", "bool", "huge"])
def test_a_context_s_expiration_is_a_number_of_seconds(wrong: float) -> None:
    with pytest.raises(UsageError, match="expires_after_seconds"):
        Written(expires_after_seconds=wrong)


# -- partitions ----------------------------------------------------------------------------------------------


async def of_context(client: WaltzClient, partition: object) -> int:
    context = Written()
    context.partition = partition
    await client.submit(context)
    await client.flush_transactions()
    await until(lambda: context.committed)
    return await client.high_water_mark(0)


async def of_many(client: WaltzClient, partition: int) -> object:
    (result,) = await client.append_many([Append(partition, b"x")])
    if isinstance(result, AppendFailedError) and result.__cause__ is not None:
        raise result.__cause__
    return result


async def decided(client: WaltzClient, partition: int) -> object:
    def decide(builder: TransactionBuilder) -> None:
        builder.set_transaction_data(b"x", BYTES)

    return (await client.transact(partition, decide)).committed


async def sent_now(client: WaltzClient, partition: int) -> object:
    await client.writable(0)
    done = asyncio.get_running_loop().create_future()
    client.append_nowait(partition=partition, data=b"x", on_done=done.set_result)
    return (await done).result()


async def fed(client: WaltzClient, partitions: object, **arguments: object) -> list[int]:
    feed = client.feed(partitions, until=4, **arguments)  # type: ignore[call-overload]
    return [one.transaction_id async for one in feed]


async def ranged(client: WaltzClient, partition: int) -> list[int]:
    async with client.read_range(partition, 0, 1) as read:
        return [one for batch in [batch async for batch in read] for one in batch.transaction_ids]


IN_PARTITION: dict[str, tuple[Callable[[WaltzClient, int], Awaitable[object]], object]] = {
    "append": (lambda client, of: client.append(partition=of, data=b"x"), Committed(0, 5)),
    "append_nowait": (sent_now, Committed(0, 5)),
    "append_many": (of_many, Committed(0, 5)),
    "transact": (decided, Committed(0, 5)),
    "submit": (of_context, 5),
    "writable": (lambda client, of: client.writable(of), None),
    "high_water_mark": (lambda client, of: client.high_water_mark(of), 4),
    "get_data": (lambda client, of: client.get_data(of, 3), b"3"),
    "feed": (fed, [0, 1, 2, 3, 4]),
    "feed of several": (lambda client, of: fed(client, [of]), [0, 1, 2, 3, 4]),
    "feed after": (lambda client, of: fed(client, of, after={0: 2}), [3, 4]),
    "read_range": (ranged, [0, 1]),
}


@pytest.mark.parametrize("call", IN_PARTITION)
async def test_a_partition_may_be_a_whole_number_of_another_library(call: str) -> None:
    async with log_of_five().client() as client, asyncio.timeout(20):
        function, expected = IN_PARTITION[call]
        result = await function(client, Whole(0))  # type: ignore[arg-type]
        assert result == expected
        if isinstance(result, Committed):
            assert type(result.partition_id) is int
        assert all(type(number) is int for number in client.get_partitions())


@pytest.mark.parametrize("wrong", [True, 0.0, None])
@pytest.mark.parametrize("call", IN_PARTITION)
async def test_what_is_no_partition_is_refused_by_name(call: str, wrong: int) -> None:
    async with log_of_five().client() as client, asyncio.timeout(20):
        with pytest.raises(UsageError, match="a partition is a whole number, not"):
            await IN_PARTITION[call][0](client, wrong)
        assert await client.high_water_mark(0) == 4


async def test_partitions_may_be_chosen_by_whole_numbers_of_another_library() -> None:
    async with log_of_five().client(settings={"client.autoMount": False}) as client, asyncio.timeout(20):
        await client.set_partitions([Whole(1), Whole(0)])  # type: ignore[list-item]
        assert client.get_partitions() == [0, 1]
        await client.append(partition=0, data=b"x")
        with pytest.raises(UsageError, match="a partition is a whole number, not \\[0\\]"):
            await client.set_partitions([[0]])  # type: ignore[list-item]


async def test_numbers_of_a_producer_and_of_locks_may_be_of_another_library() -> None:
    settings = {"client.mockDriver": InProcessLog(num_partitions=1)}
    async with WaltzClient.connect(settings, producer="orders") as client, asyncio.timeout(20):
        await client.append(
            partition=Whole(0),  # type: ignore[arg-type]
            data=b"x",
            sequence=Whole(7),  # type: ignore[arg-type]
            write_locks=[LockId("row", Whole(3))],  # type: ignore[arg-type]
        )
        assert await client.last_sequence(Whole(0)) == 7  # type: ignore[arg-type]
        with pytest.raises(UsageError, match="a sequence number"):
            await client.append(partition=0, data=b"x", sequence=True)
        with pytest.raises(UsageError, match="LockId"):
            await client.append(partition=0, data=b"x", sequence=8, write_locks=[LockId("row", 1.0)])  # type: ignore[arg-type]
    assert LockId("row", Whole(-3)).hash == LockId("row", -3).hash  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["after", "until"])
async def test_a_mapping_without_an_asked_partition_is_refused(name: str) -> None:
    async with log_of_five().client() as client, asyncio.timeout(20):
        with pytest.raises(UsageError, match=f"{name} has nothing for partition 1"):
            client.feed([0, 1], **{name: {0: 4}})  # type: ignore[call-overload]
        assert await ids_of_feed(client, **{"until": 4, name: defaultdict(lambda: 3)}) in ([4], [0, 1, 2, 3])
