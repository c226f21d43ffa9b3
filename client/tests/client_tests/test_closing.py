"""`close(drain_seconds=...)`: what is under way ends before the client does."""

import asyncio
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from client_tests.conftest import ConnectClient
from client_tests.helpers import Application, settings_for, until
from client_tests.test_ends import Recorder
from waltz_client import (
    BYTES,
    Append,
    ClientClosedError,
    Committed,
    OutcomeUnknownError,
    PendingAppend,
    StopApplyingError,
    Transacted,
    Transaction,
    TransactionBuilder,
    WaltzClient,
)
from waltz_client.blocking import BlockingWaltzClient
from waltz_client.testing import InProcessLog
from waltz_testkit.fake_cluster import FakeCluster
from waltz_testkit.fake_server import FakePartition, Fate


async def held(
    client: WaltzClient, partition: FakePartition
) -> asyncio.Future[tuple[Committed | BaseException]]:
    """An append that its server keeps without an outcome; its result, or its error, once it has one."""
    partition.fate = lambda append: Fate.HOLD
    append = asyncio.gather(client.append(partition=0, data=b"a"), return_exceptions=True)
    await until(lambda: partition.held)
    return append


async def test_what_is_under_way_ends_and_nothing_new_begins(
    cluster: FakeCluster, connect: ConnectClient
) -> None:
    client = await connect()
    partition = cluster.partitions[0]
    partition.fate = lambda append: Fate.HOLD
    outcomes: list[PendingAppend] = []
    append = asyncio.gather(client.append(partition=0, data=b"a"))
    await until(lambda: partition.held)
    client.append_nowait(partition=0, data=b"b", on_done=outcomes.append)
    many = asyncio.gather(client.append_many([Append(0, b"c"), Append(1, b"d")]))
    await until(lambda: len(partition.held) == 3)
    closing = asyncio.gather(client.close(drain_seconds=30))
    await asyncio.sleep(0.05)
    assert not closing.done()
    assert client.status().closing
    for call in (
        client.append(partition=0, data=b"late"),
        client.append_many([Append(0, b"late")]),
        client.submit(Recorder()),
        client.transact(0, lambda builder: None),
    ):
        with pytest.raises(ClientClosedError, match="is being closed: it takes no new appends"):
            await call
    with pytest.raises(ClientClosedError, match="is being closed"):
        client.append_nowait(partition=0, data=b"late", on_done=outcomes.append)
    assert await client.high_water_mark(0) == -1, "reading is not refused"
    partition.release()
    assert list(await closing) == [True]
    assert list(await append) == [Committed(0, 0)]
    assert outcomes[0].committed
    assert list(await many) == [[Committed(0, 2), Committed(1, 0)]]
    with pytest.raises(ClientClosedError, match="the client is closed"):
        client.status()


async def test_an_append_that_is_retried_is_waited_for(cluster: FakeCluster, connect: ConnectClient) -> None:
    client = await connect(longWaitThreshold=250, retryInitialBackoff=300, retryMaxBackoff=300)
    partition = cluster.partitions[0]
    fates = iter([Fate.DROP])
    partition.fate = lambda append: next(fates, Fate.COMMIT)
    append = asyncio.gather(client.append(partition=0, data=b"a"))
    await until(lambda: partition.received)
    assert await client.close(drain_seconds=30)
    assert list(await append) == [Committed(0, 0)]


async def test_a_context_is_waited_for_until_it_is_applied(
    cluster: FakeCluster, connect: ConnectClient
) -> None:
    application = Application()
    application.fail[(0, 0)] = 4
    client = await connect(application)
    context = Recorder()
    await client.submit(context)
    assert await client.close(drain_seconds=30)
    assert context.events == ["completion True", "application"]
    assert len(application.errors) == 4


async def test_a_transaction_is_decided_and_applied_before_the_end(
    cluster: FakeCluster, connect: ConnectClient
) -> None:
    client = await connect(Application())
    decided = asyncio.Event()

    async def decide(builder: TransactionBuilder) -> str:
        decided.set()
        await asyncio.sleep(0.1)
        builder.data = b"x"
        return "done"

    call = asyncio.gather(client.transact(0, decide))
    await decided.wait()
    assert await client.close(drain_seconds=30)
    assert list(await call) == [Transacted("done", Committed(0, 0))]


async def test_what_takes_longer_is_cut_off_and_said(cluster: FakeCluster, connect: ConnectClient) -> None:
    client = await connect()
    append = await held(client, cluster.partitions[0])
    assert not await client.close(drain_seconds=0.1)
    (error,) = await append
    assert isinstance(error, OutcomeUnknownError)


async def test_a_close_that_is_cancelled_ends_the_client(
    cluster: FakeCluster, connect: ConnectClient
) -> None:
    client = await connect()
    append = await held(client, cluster.partitions[0])
    closing = asyncio.gather(client.close(drain_seconds=60))
    await asyncio.sleep(0.05)
    closing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await closing
    (error,) = await append
    assert isinstance(error, OutcomeUnknownError)


async def test_a_close_without_waiting_says_whether_something_was_cut_off(
    cluster: FakeCluster, connect: ConnectClient
) -> None:
    idle = await connect()
    await idle.append(partition=0, data=b"x")
    assert await idle.close()
    assert await idle.close(), "closing again is no error"
    client = await connect()
    append = await held(client, cluster.partitions[0])
    assert not await client.close()
    await append


async def test_another_close_cuts_a_drain_off_and_the_drain_says_so(
    cluster: FakeCluster, connect: ConnectClient
) -> None:
    client = await connect()
    append = await held(client, cluster.partitions[0])
    draining = asyncio.gather(client.close(drain_seconds=30))
    await asyncio.sleep(0.05)
    assert not await client.close()
    (error,) = await append
    assert isinstance(error, OutcomeUnknownError)
    assert list(await draining) == [False]


async def test_leaving_the_block_waits_for_a_drain_under_way(cluster: FakeCluster) -> None:
    """A signal handler drains; the task of the block meets ClientClosedError and leaves it."""
    partition = cluster.partitions[0]
    with pytest.raises(ClientClosedError, match="is being closed"):
        async with WaltzClient.connect(settings_for(cluster), store=cluster.session()) as client:
            partition.fate = lambda append: Fate.HOLD
            other = asyncio.gather(client.append(partition=0, data=b"a"))
            await until(lambda: partition.held)
            draining = asyncio.gather(client.close(drain_seconds=30))
            asyncio.get_running_loop().call_later(0.2, partition.release)
            await asyncio.sleep(0.05)
            await client.append(partition=0, data=b"b")
    assert list(await other) == [Committed(0, 0)]
    assert list(await draining) == [True]


async def test_a_block_that_is_cancelled_while_it_waits_for_a_drain_is_closed(cluster: FakeCluster) -> None:
    client = WaltzClient.connect(settings_for(cluster), store=cluster.session())
    async with client:
        append = await held(client, cluster.partitions[0])
        draining = asyncio.gather(client.close(drain_seconds=30))
        await asyncio.sleep(0.05)
        leaving = asyncio.gather(client.__aexit__(None, None, None))
        await asyncio.sleep(0.05)
        leaving.cancel()
        with pytest.raises(asyncio.CancelledError):
            await leaving
        with pytest.raises(ClientClosedError):
            client.status()
        (error,) = await append
    assert isinstance(error, OutcomeUnknownError)
    assert list(await draining) == [False]


async def test_the_last_callbacks_of_contexts_are_waited_for(
    cluster: FakeCluster, connect: ConnectClient
) -> None:
    class Slow(Recorder):
        async def on_application(self) -> None:  # type: ignore[override]
            await asyncio.sleep(0.3)
            self.events.append("application")

    client = await connect(Application())
    context = Slow()
    await client.submit(context)
    assert await client.close(drain_seconds=30)
    assert context.events == ["completion True", "application"]


async def test_what_a_stopped_application_leaves_is_reported_before_the_end(
    cluster: FakeCluster, connect: ConnectClient
) -> None:
    class Stops(Application):
        async def apply_transaction(self, transaction: Transaction) -> None:
            await asyncio.sleep(0.1)
            raise StopApplyingError("no more")

    class Slow(Recorder):
        async def on_completion(self, committed: bool) -> None:  # type: ignore[override]
            await asyncio.sleep(0.3)
            self.events.append("completion")

    client = await connect(Stops())
    contexts = [Slow(), Slow()]
    for context in contexts:
        await client.submit(context)
    assert await client.close(drain_seconds=30)
    assert [context.events for context in contexts] == [["completion"]] * 2


async def test_a_cancelled_close_leaves_no_task_behind(cluster: FakeCluster, connect: ConnectClient) -> None:
    class Slow(Recorder):
        async def on_completion(self, committed: bool) -> None:  # type: ignore[override]
            self.events.append("begins")
            await asyncio.sleep(1.5)

    client = await connect()
    context = Slow()
    await client.submit(context)
    await until(lambda: context.events)
    life = client._open.life
    closing = asyncio.gather(client.close())
    await asyncio.sleep(0.1)
    closing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await closing
    await client.close()
    assert not life._tasks


def test_a_blocking_client_lets_calls_of_other_threads_end() -> None:
    log = InProcessLog(1)
    decided, go = threading.Event(), threading.Event()

    def decide(builder: TransactionBuilder) -> str:
        decided.set()
        go.wait(30)
        builder.set_transaction_data(b"x", BYTES)
        return "done"

    with (
        BlockingWaltzClient.connect({"client.mockDriver": log}) as client,
        ThreadPoolExecutor(3) as threads,
    ):
        call = threads.submit(client.transact, 0, decide)
        assert decided.wait(30)
        closing = [threads.submit(client.close, drain_seconds=30) for _ in range(2)]
        while not client.status().closing:
            time.sleep(0.001)
        with pytest.raises(ClientClosedError, match="is being closed"):
            client.append(partition=0, data=b"late")
        go.set()
        assert call.result(30) == Transacted("done", Committed(0, 0))
        assert [one.result(30) for one in closing] == [True, True]
    assert client.close()


async def test_partitions_are_not_chosen_while_a_client_closes(
    cluster: FakeCluster, connect: ConnectClient
) -> None:
    """Letting one go would cut off what the drain waits for, uncounted."""
    client = await connect(autoMount=False)
    await client.set_partitions([0])
    partition = cluster.partitions[0]
    append = await held(client, partition)
    closing = asyncio.gather(client.close(drain_seconds=30))
    await asyncio.sleep(0.02)
    with pytest.raises(ClientClosedError, match="is being closed"):
        await client.set_partitions([])
    partition.release()
    (outcome,), (ended,) = await append, await closing
    assert outcome == Committed(0, 0)
    assert ended


async def test_a_client_that_was_closed_while_it_was_entered_does_not_open(cluster: FakeCluster) -> None:
    store = cluster.session()
    client = WaltzClient.connect(settings_for(cluster), store=store)
    entering = asyncio.gather(client.__aenter__(), return_exceptions=True)
    await asyncio.sleep(0)
    assert await client.close()
    (error,) = await entering
    assert isinstance(error, ClientClosedError)
    with pytest.raises(ClientClosedError):
        client.status()


def test_a_blocking_client_can_be_closed_in_a_decision() -> None:
    log, ends = InProcessLog(1), []

    def decide(builder: TransactionBuilder) -> None:
        ends.append(client.close(drain_seconds=0.2))

    client = BlockingWaltzClient.connect({"client.mockDriver": log})
    with client, pytest.raises(ClientClosedError):
        client.transact(0, decide)
    assert ends == [False]


def test_a_decision_that_blocks_does_not_hold_a_closing_client_beyond_its_drain() -> None:
    log, decides, may_end = InProcessLog(1), threading.Event(), threading.Event()

    def decide(builder: TransactionBuilder) -> None:
        decides.set()
        may_end.wait(30)

    client = BlockingWaltzClient.connect({"client.mockDriver": log}).__enter__()
    with ThreadPoolExecutor(1) as pool:
        transact = pool.submit(client.transact, 0, decide)
        assert decides.wait(10)
        began = time.monotonic()
        assert not client.close(drain_seconds=0.2)
        assert time.monotonic() - began < 10
        assert isinstance(transact.exception(10), ClientClosedError)
        may_end.set()


def test_a_decision_of_a_blocking_client_may_raise_anything() -> None:
    def decide(builder: TransactionBuilder) -> None:
        raise StopIteration(5)

    with (
        BlockingWaltzClient.connect({"client.mockDriver": InProcessLog(1)}) as client,
        pytest.raises(RuntimeError, match=r"StopIteration\(5\) was raised"),
    ):
        client.transact(0, decide)
