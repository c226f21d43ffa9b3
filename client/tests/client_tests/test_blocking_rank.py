"""The blocking client has what the asynchronous one has: the same methods and parameters, errors and
deadlines."""

import inspect
import threading
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from client_tests.sql_databases import METADATA, contents, record
from waltz_client import (
    BYTES,
    JSON,
    Append,
    ClientClosedError,
    Committed,
    Feed,
    LockId,
    PendingAppend,
    RangeRead,
    Transacted,
    TransactionBuilder,
    WaltzClient,
    WaltzClientError,
    WindowFullError,
)
from waltz_client.blocking import BlockingFeed, BlockingRangeRead, BlockingServerRequests, BlockingWaltzClient
from waltz_client.servers import ServerRequests
from waltz_client.sql import BlockingSqlApplier, SqlApplier, SqlCallbacks
from waltz_client.testing import InProcessLog

# (class, method): why it, or its parameters, are different. Nothing else may be.
DIFFERENT = {
    (
        WaltzClient,
        "connect",
    ): "the store is made on the client's loop; discovery and random are for the simulator",
    (Feed, "aclose"): "blocking it is `close`, as of generators and files",
    (RangeRead, "aclose"): "blocking it is `close`, as of generators and files",
    (SqlApplier, "lag"): "the client is given once, to the constructor",
    (SqlApplier, "run"): "the client is given once, to the constructor",
}


def _public(kind: type) -> set[str]:
    return {name for name in dir(kind) if not name.startswith("_")}


@pytest.mark.parametrize(
    ("asynchronous", "blocking", "renamed"),
    [
        (WaltzClient, BlockingWaltzClient, {}),
        (Feed, BlockingFeed, {"aclose": "close"}),
        (RangeRead, BlockingRangeRead, {"aclose": "close"}),
        (ServerRequests, BlockingServerRequests, {}),
        (SqlApplier, BlockingSqlApplier, {}),
    ],
)
def test_every_method_is_there_with_the_same_parameters(
    asynchronous: type, blocking: type, renamed: dict[str, str]
) -> None:
    names = _public(asynchronous)
    attributes = {"tables", "stopped"} if asynchronous is SqlApplier else set()  # set by its constructor
    assert {renamed.get(name, name) for name in names} | attributes == _public(blocking)
    for name in names:
        theirs, ours = getattr(asynchronous, name), getattr(blocking, renamed.get(name, name))
        if (asynchronous, name) in DIFFERENT or isinstance(theirs, property):
            continue
        assert _parameters(ours) == _parameters(theirs), name


def _parameters(method: Callable[..., Any]) -> list[tuple[str, Any, Any]]:
    return [(one.name, one.kind, one.default) for one in inspect.signature(method).parameters.values()]


def test_what_is_different_is_a_method_that_is_there() -> None:
    assert all(hasattr(kind, name) for kind, name in DIFFERENT)


class Twice:
    """The same calls of an asynchronous client and of a blocking one, each with a log of its own."""

    def __init__(self) -> None:
        self.logs = InProcessLog(2), InProcessLog(2)

    def settings(self, which: int) -> dict[str, object]:
        return {"client.mockDriver": self.logs[which], "client.maxConcurrentTransactions": 2}


MISTAKES: dict[str, Callable[[Any], Any]] = {
    "partition": lambda client: client.append(partition=7, data=b""),
    "data": lambda client: client.append(partition=0, data="text"),
    "locks": lambda client: client.append(partition=0, data=b"", write_locks=["text"]),
    "view": lambda client: client.append(partition=0, data=b"", write_locks=[LockId("a", 1)], as_of=9),
    "conflict": lambda client: client.append(partition=0, data=b"", write_locks=[LockId("a", 1)], as_of=-1),
    "too late": lambda client: client.append(partition=1, data=b"", deadline_seconds=0.05),
    "mark": lambda client: client.high_water_mark(1, deadline_seconds=0.05),
    "not there": lambda client: client.get_data(0, 99),
    "writable": lambda client: client.writable(1, deadline_seconds=0.05),
    "transact": lambda client: client.transact(1, lambda builder: None, deadline_seconds=0.05),
    "choose": lambda client: client.set_partitions([0], deadline_seconds=0.05),
    "feed": lambda client: client.feed([]),
    "range": lambda client: client.read_range(0, -1, 3),
    "servers": lambda client: client.servers.add_preferred(client.servers.endpoints()[0], []),
}


async def _error(made: Any) -> tuple[type, str]:
    try:
        result = made()
        if isinstance(result, Awaitable):
            await result
    except WaltzClientError as error:
        return type(error), str(error)
    raise AssertionError("no error")


@pytest.mark.parametrize("mistake", MISTAKES)
async def test_errors_and_deadlines_are_the_same(mistake: str) -> None:
    twice = Twice()
    for log in twice.logs:
        log.partition(0).commit(b"x", write_locks=[LockId("a", 1)])
        log.partition(1).withdraw()
    call = MISTAKES[mistake]
    async with WaltzClient.connect(twice.settings(0)) as client:
        expected = await _error(lambda: call(client))
    with BlockingWaltzClient.connect(twice.settings(1)) as blocking:
        assert await _error(lambda: call(blocking)) == expected


@pytest.fixture
def log() -> InProcessLog:
    return InProcessLog(2)


@pytest.fixture
def settings(log: InProcessLog) -> dict[str, object]:
    return {"client.mockDriver": log, "client.maxConcurrentTransactions": 2}


def test_appends_without_waiting(settings: dict[str, object], log: InProcessLog) -> None:
    done = threading.Semaphore(0)
    outcomes: list[PendingAppend] = []

    def on_done(pending: PendingAppend) -> None:
        outcomes.append(pending)
        done.release()

    with BlockingWaltzClient.connect(settings) as client:
        client.writable(0, deadline_seconds=5)
        log.partition(0).hold()
        for number in range(2):
            client.append_nowait(partition=0, data=b"x", on_done=on_done, context=number)
        with pytest.raises(WindowFullError):
            client.append_nowait(partition=0, data=b"x", on_done=on_done)
        assert client.has_pending_transactions()
        client._thread.read(log.partition(0).release)
        assert done.acquire(timeout=5)
        assert done.acquire(timeout=5)
        client.flush_transactions()
        results: list[object] = []
        client.append_many([Append(1, b"y")], on_result=lambda append, result: results.append(result))
    assert [(one.context, one.result()) for one in outcomes] == [(0, Committed(0, 0)), (1, Committed(0, 1))]
    assert results == [Committed(1, 0)]


def test_ranges_and_payloads(settings: dict[str, object], log: InProcessLog) -> None:
    for number in range(30):
        log.partition(0).commit(b"%d" % number)
    with BlockingWaltzClient.connect(settings) as client:
        with client.read_range(0, 3, 25, batch_transactions=10) as read:
            batches = list(read)
        assert [id for batch in batches for id in batch.transaction_ids] == list(range(3, 26))
        dropped = client.read_range(0, 0, 29, batch_transactions=1)
        next(dropped)
        del dropped
        assert client.get_data(0, 7, JSON) == 7
        feed = client.feed(0, until=29)
        assert next(feed).data == b"0"
        assert [one.data for batch in feed.batches() for one in batch] == [b"%d" % n for n in range(1, 30)]
        with client.feed(0) as endless:
            assert next(endless).data == b"0"
            assert [next(iter(endless)).data for _ in range(2)] == [b"1", b"2"]
        (server,) = client.servers.endpoints()
        assert client.servers.partitions(server) == [0, 1]
        assert client.endpoint_of(0) == server
        abandoned = client.feed(0)
    abandoned.close()
    with pytest.raises(ClientClosedError):
        client.read_range(0, 0, 1)


def test_threads_share_one_feed(settings: dict[str, object], log: InProcessLog) -> None:
    for number in range(3000):
        log.partition(0).commit(b"%d" % number)
    taken: list[list[int]] = [[] for _ in range(4)]
    with BlockingWaltzClient.connect(settings) as client, client.feed(0, until=2999) as feed:

        def read(mine: list[int]) -> None:
            mine.extend(one.transaction_id for one in feed)

        _run([lambda mine=mine: read(mine) for mine in taken])  # type: ignore[misc]
    assert sorted(id for mine in taken for id in mine) == list(range(3000))
    assert all(mine == sorted(mine) for mine in taken)


def test_a_batch_is_replaced_by_one_of_the_threads_that_have_read_it(
    settings: dict[str, object], log: InProcessLog
) -> None:
    """Two threads come to its end at the same time: the second must not throw away what the first has got."""
    for number in range(10):
        log.partition(0).commit(b"%d" % number)
    with BlockingWaltzClient.connect(settings) as client, client.feed(0, until=9) as feed:
        empty = feed._rest
        assert feed._refill(empty)
        assert feed._refill(empty)
        assert [one.transaction_id for one in feed] == list(range(10))


def test_threads_decide_under_one_lock(settings: dict[str, object], log: InProcessLog) -> None:
    """Each decision is made on what is there: no two are made on the same."""
    with BlockingWaltzClient.connect(settings) as client:
        decided: list[Transacted[int]] = []

        def decide(builder: TransactionBuilder) -> int:
            count = builder.client_high_water_mark + 1
            builder.set_transaction_data(count, JSON).set_write_locks([LockId("counter", 1)])
            return count

        def work() -> None:
            for _ in range(5):
                decided.append(client.transact(0, decide, deadline_seconds=60))
                assert client.get_partitions()
                client.has_pending_transactions()

        _run([work] * 4)
        assert sorted(one.value for one in decided) == list(range(20))


def test_what_the_loop_changes_is_read_on_the_loop(
    settings: dict[str, object], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another thread would meet a dictionary that changes while it is read."""
    threads: set[str] = set()
    for name in ("get_partitions", "has_pending_transactions"):
        method = getattr(WaltzClient, name)

        def reading(client: WaltzClient, method: Callable[[WaltzClient], object] = method) -> object:
            threads.add(threading.current_thread().name)
            return method(client)

        monkeypatch.setattr(WaltzClient, name, reading)
    with BlockingWaltzClient.connect(settings) as client:
        client.get_partitions()
        client.has_pending_transactions()
    assert threads == {"waltz-client"}


def test_closing_ends_the_calls_of_other_threads(settings: dict[str, object]) -> None:
    ended: list[BaseException | None] = []
    calls: list[Callable[[BlockingWaltzClient], object]] = [
        lambda client: next(client.feed(0)),
        lambda client: client.append(partition=0, data=b"x", deadline_seconds=60),
        lambda client: client.writable(0, deadline_seconds=60),
        lambda client: client.transact(0, lambda builder: None, deadline_seconds=60),
    ]
    log = settings["client.mockDriver"]
    assert isinstance(log, InProcessLog)
    client = BlockingWaltzClient.connect(settings)
    client.__enter__()
    client._thread.read(log.partition(0).withdraw)
    started = threading.Barrier(len(calls) + 1)

    def run(call: Callable[[BlockingWaltzClient], object]) -> None:
        started.wait(10)
        try:
            call(client)
            ended.append(None)
        except BaseException as error:
            ended.append(error)

    threads = [threading.Thread(target=run, args=(call,)) for call in calls]
    for thread in threads:
        thread.start()
    started.wait(10)
    client.close()
    for thread in threads:
        thread.join(10)
        assert not thread.is_alive()
    assert [error for error in ended if not isinstance(error, (WaltzClientError, StopIteration))] == []
    assert len(ended) == len(calls)


@pytest.fixture
def database(tmp_path: Path) -> sa.Engine:
    engine = sa.create_engine(f"sqlite:///{tmp_path}/application.db", poolclass=sa.NullPool)
    METADATA.create_all(engine)
    return engine


def test_the_sql_helper_without_a_loop(
    settings: dict[str, object], log: InProcessLog, database: sa.Engine
) -> None:
    for number in range(5):
        log.partition(number % 2).commit(b"x")
    with (
        BlockingWaltzClient.connect(settings) as client,
        BlockingSqlApplier(client, SqlApplier(database, record)) as applier,
    ):
        applier.create_tables()
        assert applier.lag() == {0: 3, 1: 2}
        applier.run(0, until=2)
        assert applier.lag([0]) == {0: 0}
        ended: list[BaseException] = []

        def follow() -> None:
            try:
                applier.run()
            except WaltzClientError as error:
                ended.append(error)

        thread = threading.Thread(target=follow)
        thread.start()
        applier.applied(1, 1)
        applier.close()
        thread.join(10)
        assert not thread.is_alive()
        assert isinstance(ended[0], ClientClosedError)
        with pytest.raises(ClientClosedError):
            applier.high_water_mark(0)
    assert contents(database) == ({0: [0, 1, 2], 1: [0, 1]}, {0: 2, 1: 1})


def test_callbacks_of_the_sql_helper_without_a_loop(settings: dict[str, object], database: sa.Engine) -> None:
    callbacks = SqlCallbacks(database, record)
    callbacks.tables.create(database)
    with (
        BlockingWaltzClient.connect(settings, callbacks) as client,
        BlockingSqlApplier(client, callbacks) as applier,
    ):
        place = client.append(partition=0, data=b"x")
        applier.applied(*place)
        result = client.transact(0, lambda builder: builder.set_transaction_data(b"y", BYTES))
        assert result.committed == Committed(0, 1)
        assert contents(database)[0] == {0: [0, 1]}


def _run(jobs: list[Callable[[], None]]) -> None:
    """Each in a thread; raises what one of them raised."""
    errors: list[BaseException] = []

    def guarded(job: Callable[[], None]) -> None:
        try:
            job()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=guarded, args=(job,)) for job in jobs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive()
    if errors:
        raise errors[0]
