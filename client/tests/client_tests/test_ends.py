"""Everything ends: contexts when the client closes, workers when a callback misbehaves, appends at their
deadline."""

import asyncio

import pytest

from client_tests.conftest import ConnectClient
from client_tests.helpers import Application, until
from waltz_client import (
    BYTES,
    AppendError,
    ClientClosedError,
    DeadlineExceededError,
    LockConflictError,
    LockId,
    Outcome,
    PendingAppend,
    RequestDeadlineError,
    Transaction,
    TransactionBuilder,
    TransactionContext,
    WaltzClient,
)
from waltz_protocol.aio.tasks import spawn
from waltz_protocol.frames.append import Append as WireAppend
from waltz_testkit.fake_cluster import FakeCluster
from waltz_testkit.fake_server import Fate

LOCK = LockId("account", 1)


class Recorder(TransactionContext):
    """Writes what happens to it into a list."""

    def __init__(self) -> None:
        super().__init__()
        self.events: list[str] = []
        self.error: BaseException | None = None
        self.executions = 0

    def partition_id(self, num_partitions: int) -> int:
        return 0

    async def execute(self, builder: TransactionBuilder) -> bool:
        self.executions += 1
        builder.set_transaction_data(b"x", BYTES)
        return True

    def on_completion(self, committed: bool) -> None:
        self.events.append(f"completion {committed}")

    def on_application(self) -> None:
        self.events.append("application")

    def on_expiration(self) -> None:
        self.events.append("expiration")

    def on_exception(self, error: BaseException) -> None:
        self.events.append("exception")
        self.error = error


async def test_a_context_waiting_for_its_next_attempt_ends_with_the_client(
    cluster: FakeCluster, connect: ConnectClient
) -> None:
    client = await connect(retryInitialBackoff=60_000, retryMaxBackoff=60_000, longWaitThreshold=250)
    cluster.partitions[0].fate = lambda append: Fate.DROP
    context = Recorder()
    await client.submit(context)
    await until(lambda: client._open.submissions.retrying)
    await client.close()
    assert context.events == ["exception"]
    assert isinstance(context.error, AppendError)
    assert context.error.outcome is Outcome.FAILED


async def test_a_context_in_the_middle_of_a_second_attempt_ends_with_the_client(
    cluster: FakeCluster, connect: ConnectClient
) -> None:
    class Slow(Recorder):
        async def execute(self, builder: TransactionBuilder) -> bool:
            if self.executions == 1:
                self.executions += 1
                await asyncio.sleep(60)
            return await super().execute(builder)

    client = await connect(longWaitThreshold=250)
    cluster.partitions[0].fate = lambda append: Fate.DROP
    context = Slow()
    await client.submit(context)
    await until(lambda: context.executions == 2)
    await client.close()
    assert context.events == ["exception"]


async def test_an_append_between_two_attempts_ends_with_the_client(
    cluster: FakeCluster, connect: ConnectClient
) -> None:
    client = await connect(retryInitialBackoff=60_000, retryMaxBackoff=60_000, longWaitThreshold=250)
    cluster.partitions[0].fate = lambda append: Fate.DROP
    append = spawn(_append_for_long(client), "append")
    await until(
        lambda: (
            client._open.partitions.streams and client._open.partitions.streams[0].window.monitor.outstanding
        )
    )
    window = client._open.partitions.streams[0].window
    await until(lambda: not window.monitor.outstanding)  # it failed, and will be tried again in a minute
    await client.close()
    async with asyncio.timeout(30):
        await append


async def _append_for_long(client: WaltzClient) -> None:
    with pytest.raises(ClientClosedError):
        await client.append(partition=0, data=b"x", deadline_seconds=120)


async def test_a_committed_context_is_told_so_though_the_application_lags_at_close(
    cluster: FakeCluster, connect: ConnectClient
) -> None:
    class Stuck(Application):
        async def apply_transaction(self, transaction: Transaction) -> None:
            await asyncio.sleep(60)

    client = await connect(Stuck())
    context = Recorder()
    cluster.partitions[0].fate = lambda append: Fate.HOLD
    await client.submit(context)
    await until(lambda: cluster.partitions[0].held)
    cluster.partitions[0].fill(1)  # a foreign one first: the application hangs in it
    cluster.partitions[0].release()
    await until(lambda: not client.has_pending_transactions())
    await client.close()
    assert context.events == ["completion True"]


async def test_an_application_that_raises_cancellation_does_not_end_its_feed(
    cluster: FakeCluster, connect: ConnectClient
) -> None:
    """Awaiting a task of its own that was cancelled: an error of the application like any other."""

    class Cancelling(Application):
        async def apply_transaction(self, transaction: Transaction) -> None:
            if not self.errors:
                raise asyncio.CancelledError
            await super().apply_transaction(transaction)

    application = Cancelling()
    await connect(application)
    cluster.partitions[0].fill(2)
    await until(lambda: application.applied == [(0, 0), (0, 1)])
    assert [error[:2] for error in application.errors] == [(0, 0)]


async def test_a_context_that_raises_cancellation_does_not_end_the_retries(
    cluster: FakeCluster, connect: ConnectClient
) -> None:
    class Cancelling(Recorder):
        async def execute(self, builder: TransactionBuilder) -> bool:
            if self.executions:
                raise asyncio.CancelledError
            return await super().execute(builder)

    client = await connect(longWaitThreshold=250)
    partition = cluster.partitions[0]
    partition.fate = lambda append: Fate.DROP
    first = Cancelling()
    await client.submit(first)
    await until(lambda: first.events == ["exception"])
    second = Recorder()
    await client.submit(second)
    await until(lambda: partition.received[1:])
    partition.fate = lambda append: Fate.COMMIT
    await until(lambda: second.events[:1] == ["completion True"])
    assert not client.has_pending_transactions()


async def test_safety_e1_nothing_is_sent_after_the_deadline(
    cluster: FakeCluster, connect: ConnectClient
) -> None:
    """The first attempt failed for certain, the delay before the second one lasts until the deadline: failed,
    not unknown."""
    client = await connect(retryInitialBackoff=60_000, retryMaxBackoff=60_000, longWaitThreshold=250)
    partition = cluster.partitions[0]
    partition.fate = lambda append: Fate.DROP
    with pytest.raises(DeadlineExceededError) as caught:
        await client.append(partition=0, data=b"x", deadline_seconds=1.5)
    assert caught.value.outcome is Outcome.FAILED
    assert len(partition.received) == 1


async def test_safety_e1_a_retry_keeps_the_view_of_the_first_attempt(
    cluster: FakeCluster, connect: ConnectClient
) -> None:
    """Without as_of the view is what had been received when the append was sent first. A foreign commit under
    the same lock between two attempts is a conflict: with a newer view the retry would overwrite what the
    caller never saw."""
    client = await connect(longWaitThreshold=250)
    partition = cluster.partitions[0]
    await client.append(partition=0, data=b"0", write_locks=[LOCK])
    other = await connect()

    def dropped_once(append: WireAppend) -> Fate:
        return Fate.COMMIT if len(partition.received) > 2 else Fate.DROP

    partition.fate = dropped_once
    pending = asyncio.gather(
        client.append(partition=0, data=b"mine", write_locks=[LOCK], deadline_seconds=5),
        return_exceptions=True,
    )
    await until(lambda: len(partition.received) == 2)
    await other.append(partition=0, data=b"foreign", write_locks=[LOCK])
    (error,) = await pending
    assert isinstance(error, LockConflictError)
    assert [entry.data for entry in partition.log] == [b"0", b"foreign"]


async def test_a_feed_from_now_on_until_a_past_transaction_is_empty(
    cluster: FakeCluster, connect: ConnectClient
) -> None:
    client = await connect()
    cluster.partitions[0].fill(10)
    await client.writable(0)
    async with asyncio.timeout(3):
        assert [t.transaction_id async for t in client.feed(0, after=None, until=5)] == []


def _own_tasks() -> list[str]:
    return [
        t.get_name() for t in asyncio.all_tasks() if t.get_name().startswith("waltz client") and not t.done()
    ]


async def test_a_client_closed_by_its_own_callback_leaves_no_task(
    cluster: FakeCluster, connect: ConnectClient
) -> None:
    class Closing(Application):
        async def apply_transaction(self, transaction: Transaction) -> None:
            await super().apply_transaction(transaction)
            await client.close()

    application = Closing()
    client = await connect(application)
    cluster.partitions[0].fill(1)
    await until(lambda: application.applied)
    await until(lambda: not _own_tasks(), seconds=3)


async def test_a_client_closed_by_a_context_leaves_no_task(
    cluster: FakeCluster, connect: ConnectClient
) -> None:
    class Closing(Recorder):
        async def execute(self, builder: TransactionBuilder) -> bool:
            if self.executions:
                await client.close()
            return await super().execute(builder)

    client = await connect(longWaitThreshold=250)
    cluster.partitions[0].fate = lambda append: Fate.DROP
    context = Closing()
    await client.submit(context)
    await until(lambda: context.events == ["exception"])
    await until(lambda: not _own_tasks(), seconds=3)


async def test_submitters_waiting_for_the_application_are_let_go_by_close(
    cluster: FakeCluster, connect: ConnectClient
) -> None:
    class Stuck(Application):
        async def apply_transaction(self, transaction: Transaction) -> None:
            await asyncio.sleep(60)

    cluster.partitions[0].fill(3)
    client = await connect(Stuck())
    await client.writable(0)
    context = Recorder()
    waiting = asyncio.gather(client.submit(context), return_exceptions=True)
    await asyncio.sleep(0.1)
    await client.close()
    async with asyncio.timeout(30):
        (error,) = await waiting
    assert isinstance(error, ClientClosedError)
    assert context.events == ["exception"]


async def test_flushes_that_are_given_up_leave_nothing_behind(
    cluster: FakeCluster, connect: ConnectClient
) -> None:
    """A program that polls with a short deadline while a partition is stuck: the outcome must still get
    through."""
    client = await connect()
    partition = cluster.partitions[0]
    await client.writable(0)
    partition.fate = lambda append: Fate.HOLD
    done: list[PendingAppend] = []
    client.append_nowait(partition=0, data=b"x", on_done=done.append)
    await until(lambda: partition.held)
    for _ in range(1500):
        with pytest.raises(RequestDeadlineError):
            await client.flush_transactions(deadline_seconds=0.0001)
    flushed = asyncio.gather(client.flush_transactions(deadline_seconds=5))
    await asyncio.sleep(0.01)
    partition.release()
    await flushed
    assert [pending.committed for pending in done] == [True]
