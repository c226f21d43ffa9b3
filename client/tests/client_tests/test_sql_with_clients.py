"""SqlCallbacks in a client, and SqlApplier.run over feeds: whole applications, restarted at will."""

import asyncio
import contextlib
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
import sqlalchemy as sa

from client_tests.conftest import ConnectClient
from client_tests.helpers import until
from client_tests.sql_databases import METADATA, Failing, contents, record, transactions
from waltz_client import (
    BYTES,
    ClientAheadError,
    ClientClosedError,
    Committed,
    FeedTransaction,
    LockId,
    RequestDeadlineError,
    StopApplyingError,
    TransactionBuilder,
    TransactionContext,
    WaltzClient,
)
from waltz_client.sql import SqlApplier, SqlApplyError, SqlCallbacks, SqlTableMissingError
from waltz_client.testing import InProcessLog
from waltz_testkit.fake_cluster import FakeCluster


@pytest.fixture
def sqlite(tmp_path: Path) -> Iterator[sa.Engine]:
    engine = sa.create_engine(f"sqlite:///{tmp_path}/application.db")
    METADATA.create_all(engine)
    yield engine
    engine.dispose()


class Write(TransactionContext):
    """One transaction under a lock; remembers how it ended."""

    def __init__(self, partition: int = 0) -> None:
        super().__init__()
        self.partition = partition
        self.views: list[int] = []
        self.ends: list[object] = []

    def partition_id(self, num_partitions: int) -> int:
        return self.partition

    def execute(self, builder: TransactionBuilder) -> bool:
        self.views.append(builder.client_high_water_mark)
        builder.set_transaction_data(b"x", BYTES).set_write_locks([LockId("account", 1)])
        return True

    def on_completion(self, committed: bool) -> None:
        self.ends.append(committed)

    def on_application(self) -> None:
        self.ends.append("applied")

    def on_exception(self, error: BaseException) -> None:
        self.ends.append(error)


async def test_callbacks_apply_everything_and_contexts_build_on_it(
    cluster: FakeCluster, connect: ConnectClient, sqlite: sa.Engine
) -> None:
    cluster.partitions[0].fill(20)
    async with SqlCallbacks(sqlite, record) as callbacks:
        await callbacks.create_tables()
        client = await connect(callbacks)
        writes = [Write() for _ in range(5)]
        for write in writes:
            await client.submit(write)
        await until(lambda: all("applied" in write.ends for write in writes))
        assert all(write.ends == [True, "applied"] for write in writes)
        await client.close()
    assert contents(sqlite) == ({0: list(range(25))}, {0: 24, 1: -1})


async def test_a_restart_goes_on_where_the_database_is(
    cluster: FakeCluster, connect: ConnectClient, sqlite: sa.Engine
) -> None:
    for total in (10, 25, 26):
        cluster.partitions[0].fill(total - len(cluster.partitions[0].log))
        async with SqlCallbacks(sqlite, record) as callbacks:
            await callbacks.create_tables()
            client = await connect(callbacks)
            await until(lambda total=total: contents(sqlite)[1].get(0) == total - 1)  # type: ignore[misc]
            await client.close()
    assert contents(sqlite)[0] == {0: list(range(26))}


async def test_client_server_13_36_an_application_error_stops_one_partition_of_a_client(
    cluster: FakeCluster, connect: ConnectClient, sqlite: sa.Engine
) -> None:
    """Told once, with the place; not called again; the other partition goes on; contexts end with the
    error."""
    apply = Failing()
    apply.plan[3] = (ValueError("no such account"), 1_000)
    told: list[StopApplyingError] = []
    for partition in cluster.partitions.values():
        partition.fill(3)
    async with SqlCallbacks(sqlite, apply, on_stopped=told.append) as callbacks:
        await callbacks.create_tables()
        client = await connect(callbacks)
        await until(lambda: contents(sqlite)[1] == {0: 2, 1: 2})
        cluster.partitions[0].fill(3)
        await until(lambda: told)
        calls = len(apply.calls)
        await asyncio.sleep(0.3)  # the client's own repetitions would begin after 10 ms
        assert len(apply.calls) == calls
        assert apply.calls.count(3) == 1
        assert [str(error) for error in told] == [
            "partition 0 stops before transaction 3: ValueError: no such account"
        ]
        assert list(callbacks.stopped) == [0]
        cluster.partitions[1].fill(3)
        apply.plan.clear()
        await until(lambda: contents(sqlite)[1] == {0: 2, 1: 5})

        refused, accepted = Write(0), Write(1)
        with pytest.raises(SqlApplyError, match="before transaction 3"):
            await client.submit(refused)
        assert refused.ends == [told[0]]
        await client.submit(accepted)
        await until(lambda: "applied" in accepted.ends)
        await client.close()
    # Mended and started again: nothing was lost.
    async with SqlCallbacks(sqlite, record) as callbacks:
        client = await connect(callbacks)
        await until(lambda: contents(sqlite)[1][0] == 5)
        await client.close()
    assert contents(sqlite)[0] == {0: list(range(6)), 1: list(range(7))}


async def test_a_context_under_way_when_its_partition_stops_is_told_that_it_is_committed(
    cluster: FakeCluster, connect: ConnectClient, sqlite: sa.Engine
) -> None:
    apply = Failing()
    apply.plan[0] = (ValueError("poison"), 1_000)
    async with SqlCallbacks(sqlite, apply) as callbacks:
        await callbacks.create_tables()
        client = await connect(callbacks)
        write = Write()
        await client.submit(write)
        await until(lambda: write.ends)
        assert write.ends == [True]
        await client.close()


async def test_a_missing_table_is_said_once(
    cluster: FakeCluster, connect: ConnectClient, sqlite: sa.Engine, caplog: pytest.LogCaptureFixture
) -> None:
    stopped: list[StopApplyingError] = []
    async with SqlCallbacks(sqlite, record, on_stopped=stopped.append) as callbacks:
        client = await connect(callbacks, mountWait=300)
        with pytest.raises(SqlTableMissingError):
            await callbacks.high_water_mark(0)
        await until(lambda: caplog.text.count("is not applied: the database has no table") == 2)
        with pytest.raises(SqlTableMissingError):
            await client.submit(Write())
        assert await client.append(partition=0, data=b"x") == Committed(0, 0)
        await asyncio.sleep(0.3)
        assert caplog.text.count("is not applied") == 2  # one line per partition
        assert caplog.text.count("the database has no table") == 2
        assert [type(error) for error in stopped] == [SqlTableMissingError] * 2
        assert sorted(callbacks.stopped) == [0, 1]
        await client.close()


async def test_run_applies_all_partitions_and_ends_at_until(
    cluster: FakeCluster, connect: ConnectClient, sqlite: sa.Engine
) -> None:
    cluster.partitions[0].fill(300)
    cluster.partitions[1].fill(7)
    client = await connect()
    async with SqlApplier(sqlite, record) as applier:
        await applier.create_tables()
        await applier.run(client, until={0: 299, 1: 6})
        await applier.run(client, [0, 1], until={0: 299, 1: 6})  # nothing left: ends at once
    assert contents(sqlite) == ({0: list(range(300)), 1: list(range(7))}, {0: 299, 1: 6})


async def test_a_run_whose_applier_is_closed_says_so(
    cluster: FakeCluster, connect: ConnectClient, sqlite: sa.Engine
) -> None:
    """Of two partitions one waits for the only thread."""
    for partition in cluster.partitions.values():
        partition.fill(3)
    inside, go = threading.Event(), threading.Event()

    def apply(connection: sa.Connection, transaction: FeedTransaction) -> None:
        record(connection, transaction)
        inside.set()
        go.wait(10)

    client = await connect()
    applier = SqlApplier(sqlite, apply)
    await applier.create_tables()
    running = asyncio.gather(applier.run(client, until=2), return_exceptions=True)
    await until(lambda: inside.is_set() and applier._jobs._executor._work_queue.qsize())  # type: ignore[attr-defined]
    asyncio.get_running_loop().call_later(0.05, go.set)
    await applier.close()
    (error,) = await running
    assert isinstance(error, ClientClosedError)
    assert sorted(contents(sqlite)[1].values()) == [-1, 2]


async def test_run_goes_on_with_the_other_partitions_and_raises_at_the_end(
    cluster: FakeCluster, connect: ConnectClient, sqlite: sa.Engine
) -> None:
    cluster.partitions[0].fill(10)
    cluster.partitions[1].fill(10)
    apply = Failing()

    def poison(connection: sa.Connection, transaction: FeedTransaction) -> None:
        if transaction.partition_id == 0 and transaction.transaction_id == 5:
            raise ValueError("poison")
        apply(connection, transaction)

    client = await connect()
    async with SqlApplier(sqlite, poison) as applier:
        await applier.create_tables()
        with pytest.raises(SqlApplyError, match="partition 0 stops before transaction 5"):
            await applier.run(client, until=9)
    assert contents(sqlite)[1] == {0: 4, 1: 9}


@pytest.mark.usefixtures("ahead_at_once")
async def test_a_database_ahead_of_the_log_ends_run(
    cluster: FakeCluster, connect: ConnectClient, sqlite: sa.Engine
) -> None:
    """It belongs to another cluster, or the log lost data: not an error of one transaction."""
    cluster.partitions[0].fill(3)
    client = await connect()
    async with SqlApplier(sqlite, record) as applier:
        await applier.create_tables()
        with sqlite.begin() as connection:
            connection.execute(sa.insert(applier.tables.marks).values(partition_id=0, high_water_mark=7))
        with pytest.raises(ClientAheadError):
            await applier.run(client)


async def test_run_follows_a_mark_that_went_back(
    cluster: FakeCluster, connect: ConnectClient, sqlite: sa.Engine
) -> None:
    """The database is restored from an older copy under the running applier: it reads again from there."""
    cluster.partitions[0].fill(10)
    client = await connect()
    async with SqlApplier(sqlite, record) as applier, asyncio.TaskGroup() as group:
        await applier.create_tables()
        task = group.create_task(applier.run(client, 0))
        await until(lambda: contents(sqlite)[1].get(0) == 9)
        with sqlite.begin() as connection:
            connection.execute(sa.text("delete from entries where transaction_id > 3"))
            connection.execute(sa.text("update sums set total = 10"))
            connection.execute(sa.text("update waltz_high_water_marks set high_water_mark = 3"))
        cluster.partitions[0].fill(2)
        await until(lambda: contents(sqlite)[1].get(0) == 11)
        task.cancel()
    assert contents(sqlite)[0] == {0: list(range(12))}


async def test_two_services_share_the_work_of_one_database(
    cluster: FakeCluster, connect: ConnectClient, sqlite: sa.Engine
) -> None:
    clients: list[WaltzClient] = [await connect() for _ in range(2)]
    async with contextlib.AsyncExitStack() as stack:
        appliers = [
            await stack.enter_async_context(SqlApplier(sqlite, record, batch_transactions=5)) for _ in clients
        ]
        await appliers[0].create_tables()
        async with asyncio.TaskGroup() as group:
            for applier, client in zip(appliers, clients, strict=True):
                group.create_task(applier.run(client, until=199))
            for _ in range(40):
                cluster.partitions[0].fill(5)
                cluster.partitions[1].fill(5)
                await asyncio.sleep(0.01)
    assert contents(sqlite) == ({0: list(range(200)), 1: list(range(200))}, {0: 199, 1: 199})


async def test_a_writer_waits_until_its_own_write_is_in_the_database(sqlite: sa.Engine) -> None:
    log = InProcessLog(2)
    async with log.client() as client, SqlApplier(sqlite, record) as applier, asyncio.TaskGroup() as group:
        await applier.create_tables()
        log.partition(0).commit(b"a")
        log.partition(1).commit(b"b")
        log.partition(1).commit(b"c")
        assert await applier.lag(client) == {0: 1, 1: 2}
        running = group.create_task(applier.run(client))
        await applier.applied(1, 1)
        assert contents(sqlite)[0][1] == [0, 1]
        await applier.applied(0, 0)
        assert await applier.lag(client, [0, 1]) == {0: 0, 1: 0}
        # by another process: this one only reads
        async with SqlApplier(sqlite, record) as reader:
            waiting = group.create_task(reader.applied(0, 1))
            await asyncio.sleep(0)
            log.partition(0).commit(b"d")
            await waiting
        with pytest.raises(RequestDeadlineError, match=r"transaction 9 was not applied within .* up to 1"):
            await applier.applied(0, 9, timeout_seconds=0.3)
        running.cancel()


async def test_who_waits_for_a_partition_that_has_stopped_learns_why(sqlite: sa.Engine) -> None:
    log = InProcessLog(1)
    failing = Failing()
    failing.plan[0] = (ValueError("no such account"), 1_000)
    async with log.client() as client, SqlApplier(sqlite, failing) as applier:
        await applier.create_tables()
        log.partition(0).commit(b"a")
        with pytest.raises(SqlApplyError):
            await applier.run(client)
        with pytest.raises(SqlApplyError, match="no such account"):
            await applier.applied(0, 0)


async def test_another_process_is_noticed_while_other_partitions_move_here(sqlite: sa.Engine) -> None:
    """Each of their moves woke the waiter before it was time to read the mark in the database."""
    async with SqlApplier(sqlite, record) as here, SqlApplier(sqlite, record) as elsewhere:
        await here.create_tables()

        async def move_partition_1() -> None:
            for number in range(10_000):
                await here.apply(transactions(number, number, 1))
                await asyncio.sleep(0.01)

        async with asyncio.TaskGroup() as group:
            busy = group.create_task(move_partition_1())
            waiting = group.create_task(here.applied(0, 0, timeout_seconds=10.0))
            await asyncio.sleep(0.3)
            await elsewhere.apply(transactions(0, 0))
            await waiting
            busy.cancel()


async def test_a_mark_that_went_back_is_believed_rather_than_what_was_applied_here(sqlite: sa.Engine) -> None:
    """A restored database has 5 of the 10, and another partition moves."""
    async with SqlApplier(sqlite, record) as applier:
        await applier.create_tables()
        await applier.apply(transactions(0, 9))
        with sqlite.begin() as connection:
            connection.execute(sa.update(applier.tables.marks).values(high_water_mark=4))
        with pytest.raises(ExceptionGroup) as caught:
            async with asyncio.TaskGroup() as group:
                group.create_task(applier.applied(0, 8, timeout_seconds=1.0))
                await asyncio.sleep(0.1)
                await applier.apply(transactions(0, 0, 1))
        assert "up to 4" in str(caught.value.exceptions[0])
