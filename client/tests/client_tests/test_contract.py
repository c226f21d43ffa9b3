"""The application contract: contexts, callbacks, retries, expiry, active partitions."""

import asyncio
import itertools

import pytest

from client_tests.conftest import ConnectClient
from client_tests.helpers import Application, until
from waltz_client import (
    JSON,
    STRING,
    AttemptsExhaustedError,
    LockId,
    Outcome,
    OutcomeUnknownError,
    PartitionInactiveError,
    PartitionLocalLock,
    PartitionUnavailableError,
    RequestDeadlineError,
    Transaction,
    TransactionBuilder,
    TransactionContext,
    UsageError,
)
from waltz_client.errors import AppendFailedError
from waltz_protocol.frames.append import Append as WireAppend
from waltz_testkit.fake_cluster import FakeCluster
from waltz_testkit.fake_server import Fate


class Note(TransactionContext):
    """A context that writes a text and remembers what happened to it."""

    def __init__(self, text: str, *, lock: LockId | None = None, app: Application | None = None) -> None:
        super().__init__()
        self.text = text
        self.lock = lock
        self.log = app.log if app is not None else []
        self.errors: list[BaseException] = []
        self.views: list[int] = []
        self.decline = False

    def partition_id(self, num_partitions: int) -> int:
        return 0

    def execute(self, builder: TransactionBuilder) -> bool:
        self.log.append(f"execute {self.text}")
        self.views.append(builder.client_high_water_mark)
        if self.decline:
            return False
        builder.set_header(5).set_transaction_data(self.text, STRING)
        if self.lock is not None:
            builder.set_write_locks([self.lock])
        return True

    def on_lock_failure(self) -> None:
        self.log.append(f"lock failure {self.text}")

    def on_completion(self, committed: bool) -> None:
        self.log.append(f"completion {self.text} {committed}")

    async def on_application(self) -> None:
        self.log.append(f"application {self.text}")

    def on_expiration(self) -> None:
        self.log.append(f"expiration {self.text}")

    def on_exception(self, error: BaseException) -> None:
        self.log.append(f"exception {self.text}")
        self.errors.append(error)


async def test_a_context_completes_before_the_apply_and_is_applied_after(
    cluster: FakeCluster, connect: ConnectClient
) -> None:
    app = Application()
    client = await connect(app)
    await client.submit(Note("a", app=app))
    await until(lambda: "application a" in app.log)
    assert app.log == ["execute a", "completion a True", "apply 0", "application a"]
    assert cluster.partitions[0].log[0].header == 5


async def test_callbacks_get_everything_in_order_from_their_mark(
    cluster: FakeCluster, connect: ConnectClient
) -> None:
    cluster.partitions[0].fill(500)
    cluster.partitions[1].fill(20)
    app = Application(mark=9)
    client = await connect(app)
    await until(lambda: len(app.applied) == 500)
    assert [t for p, t in app.applied if p == 0] == list(range(10, 500))
    assert [t for p, t in app.applied if p == 1] == list(range(10, 20))
    assert sorted(app.marks_asked) == [0, 1], "asked once per activation"
    assert client.get_partitions() == [0, 1]


async def test_transaction_data_through_a_serializer(cluster: FakeCluster, connect: ConnectClient) -> None:
    values: list[object] = []

    class Reading(Application):
        async def apply_transaction(self, transaction: Transaction) -> None:
            values.append(await transaction.data(JSON))
            values.append(await transaction.data(STRING))

    client = await connect(Reading())
    await client.append(partition=0, data=b'{"a":1}')
    await until(lambda: len(values) == 2)
    assert values == [{"a": 1}, '{"a":1}']
    assert cluster.partitions[0].reads == [0], "fetched once"


async def test_a_lock_failure_is_retried_after_the_conflict_was_applied(
    cluster: FakeCluster, connect: ConnectClient
) -> None:
    app = Application()
    client = await connect(app)
    await client.submit(Note("a", lock=PartitionLocalLock("acct", 1), app=app))
    await until(lambda: "application a" in app.log)
    other = await connect()
    await other.writable(0)
    cluster.partitions[0].feed_held = True
    pending = asyncio.gather(
        other.append(partition=0, data=b"other", write_locks=[LockId("acct", 1)], deadline_seconds=5),
        return_exceptions=True,
    )
    await until(lambda: len(cluster.partitions[0].log) == 2)
    note = Note("b", lock=LockId("acct", 1), app=app)
    await client.submit(note)
    await asyncio.sleep(0.1)
    assert note.views == [0], "no retry before the conflicting transaction was applied"
    cluster.partitions[0].release_feed()
    await until(lambda: "application b" in app.log)
    assert note.views == [0, 1]
    assert app.log[4:] == [
        "execute b",
        "lock failure b",
        "apply 1",
        "execute b",
        "completion b True",
        "apply 2",
        "application b",
    ]
    await pending


async def test_declined(cluster: FakeCluster, connect: ConnectClient) -> None:
    client = await connect()
    note = Note("a")
    note.decline = True
    await client.submit(note)
    assert note.log == ["execute a", "completion a False"]


async def test_an_error_in_execute_goes_to_on_exception_and_is_raised(
    cluster: FakeCluster, connect: ConnectClient
) -> None:
    class Broken(Note):
        def execute(self, builder: TransactionBuilder) -> bool:
            raise ValueError("no idea")

    client = await connect()
    note = Broken("a")
    with pytest.raises(ValueError, match="no idea"):
        await client.submit(note)
    assert note.log == ["exception a"]

    class Empty(Note):
        def execute(self, builder: TransactionBuilder) -> bool:
            return True

    with pytest.raises(UsageError, match="without set_transaction_data"):
        await client.submit(Empty("b"))


async def test_safety_e3_an_expired_context_is_not_retried(
    cluster: FakeCluster, connect: ConnectClient
) -> None:
    client = await connect(longWaitThreshold=250, transactionExpirationMs=200)
    partition = cluster.partitions[0]
    partition.fate = lambda append: Fate.DROP
    note = Note("a")
    assert abs(note.creation_time / 1000 - client._wall_clock()) < 5
    await client.submit(note)
    await until(lambda: "expiration a" in note.log)
    assert note.log == ["execute a", "expiration a"]
    assert not client.has_pending_transactions()

    late = Note("b")
    late.expires_after_seconds = -1.0
    await client.submit(late)
    assert late.log == ["expiration b"]


async def test_client_server_13_24_attempts_are_limited_and_back_off(
    cluster: FakeCluster, connect: ConnectClient
) -> None:
    client = await connect(
        longWaitThreshold=250, maxTransactionAttempts=3, retryInitialBackoff=40, retryMaxBackoff=40
    )
    partition = cluster.partitions[0]
    arrivals: list[float] = []
    loop = asyncio.get_running_loop()

    def drop(append: WireAppend) -> Fate:
        arrivals.append(loop.time())
        return Fate.DROP

    partition.fate = drop
    note = Note("a")
    await client.submit(note)
    await until(lambda: note.errors)
    assert isinstance(note.errors[0], AttemptsExhaustedError)
    assert note.log == ["execute a"] * 3 + ["exception a"]
    assert min(b - a for a, b in itertools.pairwise(arrivals)) >= 0.02


async def test_client_server_13_24_no_retry_workers_complete_and_pending_is_answered(
    cluster: FakeCluster, connect: ConnectClient
) -> None:
    client = await connect(longWaitThreshold=250, numTransactionRetryThreads=0)
    cluster.partitions[0].fate = lambda append: Fate.DROP
    note = Note("a")
    await client.submit(note)
    assert client.has_pending_transactions()
    await until(lambda: note.errors)
    assert isinstance(note.errors[0], AppendFailedError)
    assert not client.has_pending_transactions()


async def test_client_server_13_25_an_unmounted_partition_does_not_stop_nudges(
    cluster: FakeCluster, connect: ConnectClient
) -> None:
    client = await connect(longWaitThreshold=250)
    one, two = cluster.partitions[0], cluster.partitions[1]
    await client.append(partition=0, data=b"0")
    await client.append(partition=1, data=b"0")
    one.fate = lambda append: Fate.HOLD
    stuck = asyncio.gather(client.append(partition=0, data=b"1", deadline_seconds=5), return_exceptions=True)
    await until(lambda: one.held)
    one.recovering = True
    one.owner = None
    await cluster.publish()  # partition 0 has an append out, and no server any more
    for _ in range(2):
        fates = iter([Fate.DROP])
        two.fate = lambda append, fates=fates: next(fates, Fate.COMMIT)  # type: ignore[misc]
        await client.append(partition=1, data=b"1", deadline_seconds=5)
    assert not stuck.done()
    await client.close()
    await stuck


async def test_client_server_13_26_and_28_a_failing_apply_is_retried_in_place(
    cluster: FakeCluster, connect: ConnectClient
) -> None:
    app = Application()
    app.fail = {(0, 1): 3}
    client = await connect(app)
    accepted = cluster.servers[0].accepted
    await client.append(partition=0, data=b"0")
    accepted = cluster.servers[0].accepted
    await client.append(partition=0, data=b"1")
    await client.append(partition=0, data=b"2")
    await client.append(partition=1, data=b"0")
    await until(lambda: len(app.applied) == 4)
    assert [t for p, t in app.applied if p == 0] == [0, 1, 2]
    assert [(p, t) for p, t, _ in app.errors] == [(0, 1)] * 3
    assert cluster.servers[0].accepted == accepted, "no reconnect"
    assert len(cluster.partitions[0].mounts) == 1


async def test_client_server_13_27_callback_errors_touch_nothing_else(
    cluster: FakeCluster, connect: ConnectClient
) -> None:
    class Rude(Note):
        def on_completion(self, committed: bool) -> None:
            super().on_completion(committed)
            raise RuntimeError("rude")

        async def on_application(self) -> None:
            await super().on_application()
            raise RuntimeError("rude")

        def on_lock_failure(self) -> None:
            super().on_lock_failure()
            raise RuntimeError("rude")

    class RudeApp(Application):
        def uncaught_exception(self, partition_id: int, transaction_id: int, error: Exception) -> None:
            raise RuntimeError("rude")

    app = RudeApp()
    app.fail = {(0, 0): 1}
    client = await connect(app)
    await client.append(partition=1, data=b"x")
    await until(lambda: app.applied)
    app.log.clear()
    accepted = cluster.servers[0].accepted
    cluster.partitions[0].locks[LockId("a", 1).hash] = -1
    note = Rude("a", lock=LockId("a", 1), app=app)
    await client.submit(note)
    await until(lambda: "application a" in app.log)
    await client.append(partition=0, data=b"y")
    assert cluster.servers[0].accepted == accepted
    assert app.log[:4] == ["execute a", "completion a True", "apply 0", "application a"]


async def test_client_server_13_27_an_on_done_that_raises(
    cluster: FakeCluster, connect: ConnectClient
) -> None:
    client = await connect()
    await client.writable(0)

    def rude(_: object) -> None:
        raise RuntimeError("rude")

    client.append_nowait(partition=0, data=b"x", on_done=rude)
    await client.append(partition=0, data=b"y")
    assert len(cluster.partitions[0].mounts) == 1


async def test_client_server_13_30_waiting_for_a_flush_has_a_deadline(
    cluster: FakeCluster, connect: ConnectClient
) -> None:
    client = await connect()
    partition = cluster.partitions[0]
    partition.fate = lambda append: Fate.HOLD
    await client.writable(0)
    client.append_nowait(partition=0, data=b"x", on_done=lambda _: None)
    await until(lambda: partition.held)
    with pytest.raises(RequestDeadlineError):
        await client.flush_transactions(deadline_seconds=0.1)
    partition.release()
    await client.flush_transactions(deadline_seconds=5)


async def test_client_server_13_30_a_request_that_waited_is_built_when_it_is_sent(
    cluster: FakeCluster, connect: ConnectClient
) -> None:
    client = await connect(maxConcurrentTransactions=1)
    partition = cluster.partitions[0]
    partition.fate = lambda append: Fate.HOLD
    first = asyncio.gather(client.append(partition=0, data=b"0", deadline_seconds=10))
    await until(lambda: partition.held)
    second = asyncio.gather(client.append(partition=0, data=b"1", deadline_seconds=10))
    await asyncio.sleep(0.05)
    partition.fate = lambda append: Fate.COMMIT
    partition.release()
    await asyncio.gather(first, second)
    assert partition.received[1].client_high_water_mark == 0, "the view of the sending, not of the call"


async def test_client_server_13_33_missing_data_is_an_argument_error() -> None:
    builder = TransactionBuilder()
    with pytest.raises(UsageError, match="set_transaction_data"):
        builder.payload()
    assert builder.set_transaction_data("", STRING).payload() == b""


async def test_submit_waits_for_the_mount_and_then_says_why(
    cluster: FakeCluster, connect: ConnectClient
) -> None:
    client = await connect(mountWait=150)
    cluster.partitions[0].recovering = True
    note = Note("a")
    with pytest.raises(PartitionUnavailableError, match="not available within"):
        await client.submit(note)
    assert note.log == ["exception a"]


async def test_an_unknown_outcome_is_not_retried(cluster: FakeCluster, connect: ConnectClient) -> None:
    client = await connect()
    cluster.partitions[0].fate = lambda append: Fate.HOLD
    note = Note("a")
    await client.submit(note)
    await until(lambda: cluster.partitions[0].held)
    await client.close()
    assert note.log == ["execute a", "exception a"]
    error = note.errors[0]
    assert isinstance(error, OutcomeUnknownError)
    assert error.outcome is Outcome.UNKNOWN


async def test_set_partitions(cluster: FakeCluster, connect: ConnectClient) -> None:
    app = Application()
    client = await connect(app, autoMount="false")
    assert client.get_partitions() == []
    with pytest.raises(PartitionInactiveError):
        await client.append(partition=0, data=b"x")
    await client.set_partitions([1])
    assert client.get_partitions() == [1]
    await client.append(partition=1, data=b"x")
    await until(lambda: (1, 0) in app.applied)
    await client.set_partitions([0])
    assert client.get_partitions() == [0]
    await client.append(partition=0, data=b"y")
    with pytest.raises(PartitionInactiveError):
        await client.append(partition=1, data=b"z")
    await until(lambda: (0, 0) in app.applied)
    app.mark = 0
    cluster.partitions[1].fill(2)
    await client.set_partitions([0, 1])
    await until(lambda: (1, 2) in app.applied)
    assert [t for p, t in app.applied if p == 1] == [0, 1, 2]
    assert app.marks_asked == [1, 0, 1]


async def test_client_server_13_40_after_letting_go_what_still_comes_is_discarded(
    cluster: FakeCluster, connect: ConnectClient
) -> None:
    app = Application()
    client = await connect(app, autoMount="false")
    await client.set_partitions([0, 1])
    await client.append(partition=0, data=b"x")
    await until(lambda: (0, 0) in app.applied)
    await client.set_partitions([1])
    cluster.partitions[0].fill(500)  # the server feeds on until its credit is used up
    await client.append(partition=1, data=b"x")
    assert [t for p, t in app.applied if p == 0] == [0]
    assert cluster.partitions[0].feed_requests == [-1], "no credit is given again"


async def test_set_partitions_needs_auto_mount_off(cluster: FakeCluster, connect: ConnectClient) -> None:
    client = await connect()
    with pytest.raises(UsageError, match="autoMount"):
        await client.set_partitions([0])


async def test_callbacks_whose_mark_cannot_be_read_yet(cluster: FakeCluster, connect: ConnectClient) -> None:
    class Late(Application):
        attempts = 0

        def client_high_water_mark(self, partition_id: int) -> int:
            self.attempts += 1
            if self.attempts < 4:
                raise OSError("database is starting")
            return -1

    client = await connect(Late())
    await client.append(partition=0, data=b"x", deadline_seconds=5)


async def test_a_retry_waits_until_a_slow_application_has_applied_the_conflict(
    cluster: FakeCluster, connect: ConnectClient
) -> None:
    app = Application()
    app.fail = {(0, 1): 4}  # received at once, applied only after some 100 ms
    client = await connect(app)
    lock = LockId("acct", 1)
    await client.submit(Note("a", lock=lock, app=app))
    await until(lambda: "application a" in app.log)
    other = await connect()
    await other.append(partition=0, data=b"other", write_locks=[lock], deadline_seconds=5)
    note = Note("b", lock=lock, app=app)
    await client.submit(note)
    await until(lambda: "application b" in app.log)
    assert note.views == [0, 1]
    executions = [i for i, line in enumerate(app.log) if line == "execute b"]
    assert executions[0] < app.log.index("apply 1") < executions[1]
