"""What the application's functions raise besides exceptions: errors of a class of their own, as those of test
frameworks and of libraries for time limits, and exits."""

from __future__ import annotations

import asyncio
import sys
import threading
from collections.abc import Iterator

import pytest

from client_tests.helpers import Application, until
from client_tests.producers import orders
from client_tests.test_stream_partition import OWN, REQUEST, append, feed, mounted
from waltz_client import (
    BYTES,
    Append,
    AppendError,
    ClientClosedError,
    ClientObserver,
    Committed,
    Outcome,
    PendingAppend,
    Transaction,
    TransactionBuilder,
    WaltzClient,
)
from waltz_client.blocking import BlockingWaltzClient
from waltz_client.testing import InProcessLog


class Worse(BaseException):
    """No exception, as `pytest.fail.Exception` and `gevent.Timeout`."""


class Raising(Application):
    """Raises once at transaction 1, or when it is asked for its mark."""

    def __init__(self, error: BaseException, *, at_mark: bool = False) -> None:
        super().__init__()
        self.left: list[BaseException] = [error]
        self.at_mark = at_mark

    def client_high_water_mark(self, partition_id: int) -> int:
        if self.at_mark and self.left:
            raise self.left.pop()
        return super().client_high_water_mark(partition_id)

    async def apply_transaction(self, transaction: Transaction) -> None:
        if transaction.transaction_id == 1 and self.left:
            raise self.left.pop()
        await super().apply_transaction(transaction)


def three() -> InProcessLog:
    log = InProcessLog(num_partitions=1)
    for number in range(3):
        log.partition(0).commit(b"%d" % number)
    return log


def put(builder: TransactionBuilder) -> None:
    builder.set_transaction_data(b"x", BYTES)


# -- errors of a class of their own --------------------------------------------------------------------------


@pytest.mark.parametrize("observers", [(), (ClientObserver(),)])
async def test_apply_transaction_is_called_again_whatever_it_raises(
    observers: tuple[ClientObserver, ...],
) -> None:
    state, log = Raising(Worse("no")), InProcessLog(num_partitions=1)
    opened = WaltzClient.connect({"client.mockDriver": log}, state, observers=observers)
    async with opened as client, asyncio.timeout(20):
        for _ in range(3):
            await client.append(partition=0, data=b"x")
        await until(lambda: len(state.applied) == 3)
        assert state.errors == [(0, 1, "a callback raised Worse: no")]


async def test_the_mark_is_asked_for_again_whatever_was_raised() -> None:
    state = Raising(Worse("no"), at_mark=True)
    async with three().client(state), asyncio.timeout(20):
        await until(lambda: len(state.applied) == 3)


@pytest.mark.parametrize("attempt", [1, 2])
async def test_what_a_decision_raises_comes_out_and_later_ones_are_retried(attempt: int) -> None:
    log, runs = InProcessLog(num_partitions=1), []

    def decide(builder: TransactionBuilder) -> None:
        runs.append(1)
        if len(runs) == attempt:
            raise Worse("too slow")
        put(builder)

    async with log.client() as client, asyncio.timeout(20):
        log.partition(0).conflict_next()
        with pytest.raises(Worse, match="too slow"):
            await client.transact(0, decide)
        log.partition(0).conflict_next()
        await client.transact(0, put)
        assert await client.close(drain_seconds=10)


async def test_a_header_test_ends_its_range_whatever_it_raises() -> None:
    def fail(_: int) -> bool:
        raise Worse("no")

    async with three().client() as client, asyncio.timeout(20):
        for with_data in (True, False):
            with pytest.raises(Worse, match="no"):
                await anext(client.read_range(0, 0, 2, with_data=with_data, where=fail))


async def test_safety_e1_an_on_done_takes_no_outcome_from_others_whatever_it_raises() -> None:
    def fail(_: object) -> None:
        raise Worse

    partition, _ = mounted(4)
    handle = PendingAppend(0, fail)
    partition.send_append(handle, REQUEST)
    behind = append(partition)
    for number, sent in enumerate((handle, behind)):
        partition.feed_data(feed(OWN, sent.seq_num, 5 + number))
    assert [handle.outcome, behind.outcome] == [Outcome.COMMITTED] * 2


# -- exits, in a program with a loop of its own --------------------------------------------------------------


async def test_safety_e1_an_exit_of_an_on_done_is_raised_when_all_others_have_their_outcome() -> None:
    def leave(_: object) -> None:
        sys.exit("enough")

    partition, _ = mounted(4)
    partition.send_append(PendingAppend(0, leave), REQUEST)
    behind = append(partition)
    with pytest.raises(SystemExit, match="enough"):
        partition.window.close()
    assert behind.outcome is Outcome.UNKNOWN


async def test_an_exit_is_raised_when_those_who_have_joined_have_their_outcome() -> None:
    def leave(_: object) -> None:
        sys.exit("enough")

    log = InProcessLog(num_partitions=1)
    async with orders(log) as client:
        await client.writable(0)
        log.partition(0).hold()
        first, twin = (
            client.append_nowait(partition=0, data=b"a", sequence=0, on_done=on_done)
            for on_done in (leave, lambda _: None)
        )
        window = client._entered.partitions.streams[0].window
        with pytest.raises(SystemExit, match="enough"):
            window.close()
        assert (first.outcome, twin.outcome) == (Outcome.UNKNOWN, Outcome.UNKNOWN)
        assert window.joined == 0


async def test_an_exit_of_a_decision_comes_out() -> None:
    def leave(_: TransactionBuilder) -> None:
        sys.exit("enough")

    async with InProcessLog(num_partitions=1).client() as client:
        with pytest.raises(SystemExit, match="enough"):
            await client.transact(0, leave)


# -- exits, in the thread of a blocking client ---------------------------------------------------------------

EXITS = pytest.mark.parametrize("leave", [SystemExit("enough"), KeyboardInterrupt("enough")])


@pytest.fixture
def log() -> InProcessLog:
    return three()


@pytest.fixture
def client(log: InProcessLog) -> Iterator[BlockingWaltzClient]:
    with BlockingWaltzClient.connect({"client.mockDriver": log}) as client:
        yield client
        client.append(partition=0, data=b"the client is usable", deadline_seconds=10)


@EXITS
@pytest.mark.parametrize("attempt", [1, 2])
def test_an_exit_of_a_decision_is_an_error_of_its_caller(
    client: BlockingWaltzClient, log: InProcessLog, leave: BaseException, attempt: int
) -> None:
    runs: list[int] = []

    def decide(builder: TransactionBuilder) -> None:
        runs.append(1)
        if len(runs) == attempt:
            raise leave
        put(builder)

    if attempt == 2:
        log.partition(0).conflict_next()
    with pytest.raises(RuntimeError, match="enough") as caught:
        client.transact(0, decide)
    assert caught.value.__cause__ is leave


@EXITS
def test_an_exit_of_an_on_done_touches_nobody_else(client: BlockingWaltzClient, leave: BaseException) -> None:
    ended = threading.Event()

    def fail(_: object) -> None:
        ended.set()
        raise leave

    client.writable(0)
    client.append_nowait(partition=0, data=b"x", on_done=fail)
    assert ended.wait(10)


@EXITS
def test_an_exit_of_an_on_result_is_an_error_of_its_caller(
    client: BlockingWaltzClient, leave: BaseException
) -> None:
    def fail(_: Append, __: Committed | AppendError) -> None:
        raise leave

    with pytest.raises(RuntimeError, match="enough"):
        client.append_many([Append(7, b"no such partition")], on_result=fail)


@EXITS
def test_an_exit_of_a_header_test_is_an_error_of_its_reader(
    client: BlockingWaltzClient, leave: BaseException
) -> None:
    def fail(_: int) -> bool:
        raise leave

    with pytest.raises(RuntimeError, match="enough"):
        next(client.feed(0, where=fail))
    with pytest.raises(RuntimeError, match="enough"):
        next(client.read_range(0, 0, 2, where=fail))


@EXITS
@pytest.mark.parametrize("at_mark", [False, True])
def test_an_exit_of_a_callback_is_an_error_like_any_other(
    log: InProcessLog, leave: BaseException, at_mark: bool
) -> None:
    state = Raising(leave, at_mark=at_mark)
    with BlockingWaltzClient.connect({"client.mockDriver": log}, state) as client:
        assert client.transact(0, put, deadline_seconds=20).committed == (0, 3)
        assert len(state.applied) == 4
        assert len(state.errors) == (0 if at_mark else 1)


def test_a_thread_that_ends_all_the_same_ends_every_call_with_the_reason(log: InProcessLog) -> None:
    ended: list[BaseException] = []
    with BlockingWaltzClient.connect({"client.mockDriver": log}) as client:
        feed = client.feed(0, after=2)

        def read() -> None:
            try:
                next(feed)
            except BaseException as error:
                ended.append(error)

        reader = threading.Thread(target=read)
        reader.start()

        def leave() -> None:
            sys.exit("enough")

        client._thread.post(leave)
        reader.join(20)
        assert not reader.is_alive()
        with pytest.raises(ClientClosedError, match="enough"):
            client.append(partition=0, data=b"x")
        with pytest.raises(ClientClosedError, match="enough"):
            client.status()
        feed.close()
    assert [type(error) for error in ended] == [ClientClosedError]
    assert "enough" in str(ended[0])


def test_a_loop_that_cannot_be_made_is_an_error_of_the_entering(
    log: InProcessLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise OSError("too many open files")

    monkeypatch.setattr(asyncio, "Runner", fail)
    with (
        pytest.raises(OSError, match="too many"),
        BlockingWaltzClient.connect({"client.mockDriver": log}),
    ):
        raise AssertionError("it was entered")
