"""The in-process log: failures on demand, large ids, the settings key, and that nothing of it is left to
chance."""

import asyncio
import struct
import threading
from pathlib import Path

import pytest

from client_tests.helpers import Application, until
from waltz_client import (
    BYTES,
    AppendFailedError,
    AttemptsExhaustedError,
    ClientSettings,
    Committed,
    LockConflictError,
    LockId,
    OutcomeUnknownError,
    RequestDeadlineError,
    TransactionBuilder,
    TransactionContext,
    UsageError,
    WaltzClient,
)
from waltz_client.blocking import BlockingWaltzClient
from waltz_client.testing import InProcessLog, LoggedTransaction
from waltz_protocol.frames import append as wire
from waltz_protocol.frames.append_batch import FIRST_VERSION, Repeated, Verdict, parse_answers
from waltz_protocol.messages.client import MountRequest
from waltz_protocol.types import ReqId

pytestmark = pytest.mark.looptime  # deadlines pass by the test, not by what else the machine does

A = LockId("account", 1)
ZERO = LockId("`", 0)
"""Has the 32-bit hash of ("a", 1): the same lock on the wire, for every server and client."""


async def test_appends_that_fail_are_tried_again_or_reported() -> None:
    log = InProcessLog()
    async with log.client() as client:
        log.partition().fail_next(2)
        assert await client.append(partition=0, data=b"third attempt") == Committed(0, 0)
        log.partition().fail_next(2)
        with pytest.raises(AttemptsExhaustedError):
            await client.append(partition=0, data=b"-", max_attempts=2)
        log.partition().fail_next()
        (failed,) = await client.append_many([_append(b"-")])
        assert isinstance(failed, AppendFailedError)
    assert [one.data for one in log.partition().transactions] == [b"third attempt"]


def _append(data: bytes):  # type: ignore[no-untyped-def]
    from waltz_client import Append

    return Append(0, data)


async def test_lock_conflicts_on_demand() -> None:
    log = InProcessLog()
    async with log.client() as client:
        await client.append(partition=0, data=b"0")
        log.partition().conflict_next()
        with pytest.raises(LockConflictError) as caught:
            await client.append(partition=0, data=b"-", write_locks=[A])
        assert caught.value.conflicting_high_water_mark == 0
        await client.append(partition=0, data=b"1", write_locks=[A])


@pytest.mark.parametrize("committed", [True, False])
async def test_unknown_outcomes(committed: bool) -> None:
    """Held back until the deadline has passed, and then decided one way or the other."""
    log = InProcessLog()
    partition = log.partition()
    async with log.client() as client:
        partition.hold()
        with pytest.raises(OutcomeUnknownError):
            await client.append(partition=0, data=b"?", deadline_seconds=0.05)
        assert partition.waiting == 1
        if committed:
            partition.release()
        else:
            partition.drop()
        await client.flush_transactions(deadline_seconds=5)
        await client.append(partition=0, data=b"after")
    assert [one.data for one in partition.transactions] == ([b"?"] if committed else []) + [b"after"]


class Connection:
    """Of a client that the partition sees."""

    version = FIRST_VERSION
    seq_num: int | None = 1

    def __init__(self) -> None:
        self.verdicts: list[Verdict] = []

    def send(self, message: object) -> None:
        pass

    def send_frame(self, frame: bytes) -> None:
        self.verdicts += [one.verdict for one in parse_answers(frame[7:])[1]]

    def close(self, reason: str) -> None:
        pass


async def test_a_repetition_that_is_dropped_fails_nothing_else() -> None:
    """The log has it, so it is answered, and what comes later is decided as usual."""
    partition, connection = InProcessLog().partition(), Connection()
    partition.commit(b"0")
    repeated = partition.transactions[0].req_id
    partition.mount_received(connection, MountRequest(repeated, 0, 1))
    partition.hold()
    for seq_num in range(3):
        if seq_num == 2:
            partition.drop()
        req_id = repeated._replace(seq_num=seq_num).pack()
        tail = struct.pack(">ii1si", 0, 1, b"%d" % seq_num, 0)
        append = wire.Append(req_id, 0, 0, (), (), (), tail)
        partition.append_received(connection, append, None if seq_num else Repeated(0, -1))
    assert connection.verdicts == [Verdict.COMMITTED, Verdict.DROPPED, Verdict.COMMITTED]
    assert [one.data for one in partition.transactions] == [b"0", b"2"]


async def test_delays() -> None:
    log = InProcessLog()
    log.partition().delay(0.05)
    async with log.client() as client:
        started = asyncio.get_running_loop().time()
        async with asyncio.TaskGroup() as group:
            for number in range(3):
                group.create_task(client.append(partition=0, data=f"{number}".encode()))
        assert 0.045 < asyncio.get_running_loop().time() - started < 1
    assert [one.data for one in log.partition().transactions] == [b"0", b"1", b"2"]


async def test_a_paused_feed_tells_nobody_of_commits() -> None:
    log = InProcessLog()
    async with log.client() as client:
        await client.writable(0)
        log.partition().pause_feed()
        with pytest.raises(OutcomeUnknownError):
            await client.append(partition=0, data=b"0", deadline_seconds=0.05)
        assert log.partition().high_water_mark == 0
        log.partition().resume_feed()
        assert await anext(client.feed(0, after=-1)) is not None


@pytest.mark.parametrize("answered", [False, True])
async def test_what_is_undecided_survives_a_remount_and_everything_older_is_locked(answered: bool) -> None:
    log = InProcessLog()
    partition = log.partition()
    settings = {"client.longWaitThreshold": 250, "client.answeredAppends": answered}
    async with log.client(settings=settings) as client:
        await client.append(partition=0, data=b"0")
        await client.append(partition=0, data=b"1")
        partition.hold()
        async with asyncio.TaskGroup() as group:
            moved = group.create_task(client.append(partition=0, data=b"2"))
            await until(lambda: partition.waiting)
            partition.remount()
            partition.release()
        assert moved.result() == Committed(0, 2)
        # sent again as it was, or before version 5 at a second attempt, in the new generation
        assert partition.transactions[2].req_id.generation == (0 if answered else 1)
        with pytest.raises(LockConflictError):
            await client.append(partition=0, data=b"-", write_locks=[A], as_of=0)


async def test_a_partition_without_a_server() -> None:
    log = InProcessLog(2)
    log.partition(1).withdraw()
    async with log.client() as client:
        with pytest.raises(RequestDeadlineError, match="no server owns it"):
            await client.high_water_mark(1, deadline_seconds=0.2)
        assert client.endpoint_of(0) is not None
        assert client.endpoint_of(1) is None
        async with asyncio.TaskGroup() as group:
            waiting = group.create_task(client.append(partition=1, data=b"0"))
            await asyncio.sleep(0.05)
            assert not waiting.done()
            log.partition(1).remount()
        assert waiting.result() == Committed(1, 0)


async def test_a_log_that_is_down() -> None:
    log = InProcessLog()
    async with log.client() as client:
        await client.append(partition=0, data=b"0")
        log.go_down()
        async with asyncio.TaskGroup() as group:
            waiting = group.create_task(client.append(partition=0, data=b"1"))
            await asyncio.sleep(0.1)
            assert not waiting.done()
            log.come_up()
        assert waiting.result() == Committed(0, 1)


async def test_reads_that_fail_are_asked_again() -> None:
    log = InProcessLog()
    log.partition().commit(b"0")
    log.partition().fail_next_reads(2)
    async with log.client() as client:
        assert await client.get_data(0, 0) == b"0"


async def test_transactions_of_somebody_else() -> None:
    log = InProcessLog()
    partition = log.partition()
    partition.commit(b"0", header=5, write_locks=[A])
    application = Application()
    async with log.client(application) as client:
        await until(lambda: application.applied == [(0, 0)])
        partition.commit(b"1", append_locks=[A])
        with pytest.raises(LockConflictError):
            await client.append(partition=0, data=b"-", write_locks=[A], as_of=0)
        await until(lambda: len(application.applied) == 2)
    assert partition.transactions == [
        LoggedTransaction(0, ReqId(-1, 0, 0, 0), 5, b"0"),
        LoggedTransaction(1, ReqId(-1, 0, 0, 1), 0, b"1"),
    ]


@pytest.mark.parametrize("first", [2**31 - 2, 2**32 - 2, 2**62])
async def test_client_server_13_37_ids_have_64_bits(first: int) -> None:
    """Payloads are found by the whole id, across the limits of 32 bits."""
    log = InProcessLog(first_transaction_id=first)
    application = Application(mark=first - 1)
    async with log.client(application) as client:
        assert await client.high_water_mark(0) == first - 1
        for number in range(5):
            done = await client.append(
                partition=0, data=f"{number}".encode(), write_locks=[A], as_of=first + number - 1
            )
            assert done.transaction_id == first + number
        with pytest.raises(LockConflictError) as caught:
            await client.append(partition=0, data=b"-", write_locks=[A], as_of=first)
        assert caught.value.conflicting_high_water_mark == first + 4
        assert await client.get_data(0, first + 3) == b"3"
        feed = client.feed(0, after=first - 1, until=first + 4)
        assert [(one.transaction_id, one.data) async for one in feed] == [
            (first + number, f"{number}".encode()) for number in range(5)
        ]
        await until(lambda: application.applied == [(0, first + number) for number in range(5)])


@pytest.mark.parametrize("size", [None, 30_000, 1])
async def test_client_server_13_37_one_writer_decides_about_locks(size: int | None) -> None:
    """Many clients increment one number under a lock, all at the same time: no increment is lost, in a table
    of any size."""
    log = InProcessLog(lock_table_size=size)

    async def work(client: WaltzClient) -> None:
        for _ in range(10):
            while True:
                mark = await client.high_water_mark(0)
                value = int(await client.get_data(0, mark)) if mark >= 0 else 0
                try:
                    await client.append(
                        partition=0, data=f"{value + 1}".encode(), write_locks=[A], as_of=mark
                    )
                    break
                except LockConflictError:
                    continue

    async with asyncio.TaskGroup() as group:
        clients = [await log.client().__aenter__() for _ in range(4)]
        for client in clients:
            group.create_task(work(client))
    for client in clients:
        await client.close()
    assert [one.data for one in log.partition().transactions] == [f"{n}".encode() for n in range(1, 41)]


async def test_collisions_only_where_locks_have_slots_or_one_hash() -> None:
    async def conflicts(size: int | None, other: LockId) -> bool:
        log = InProcessLog(lock_table_size=size)
        log.partition().commit(b"", write_locks=[LockId("a", 1)])
        async with log.client() as client:
            try:
                await client.append(partition=0, data=b"", write_locks=[other], as_of=-1)
            except LockConflictError:
                return True
            return False

    assert not await conflicts(None, LockId("b", 1))
    assert await conflicts(1, LockId("b", 1))  # one slot for all locks
    assert await conflicts(None, ZERO)  # one lock on the wire


async def test_the_log_as_mock_driver_of_the_settings() -> None:
    """As with 0.13.2: the object under `client.mockDriver`, beside whatever else the application's settings
    say."""
    log = InProcessLog(2, name="of a test")
    settings = {
        "zookeeper.connectString": "zk1:2181",
        "zookeeper": {"sessionTimeout": 30_000},
        "cluster.root": "/live",
        "client.ssl.trustStore.location": "/nowhere/ca.pem",
        "client": {"mockDriver": log, "maxConcurrentTransactions": 2},
    }
    async with WaltzClient.connect(settings) as client:
        assert (client.cluster_name, client.num_partitions) == ("of a test", 2)
        await client.append(partition=1, data=b"0")
    assert log.partition(1).high_water_mark == 0
    with pytest.raises(Exception, match=r"unknown key client\.maxConcurrent"):
        WaltzClient.connect({**settings, "client.maxConcurrent": 1})


def test_another_mock_driver_has_no_effect(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A file cannot hold the object: what is there is accepted with a warning."""
    file = tmp_path / "client.yaml"
    file.write_text(
        "zookeeper.connectString: zk1:2181\nzookeeper.sessionTimeout: 1000\ncluster.root: /x\nclient.mockDriver: true\n"
    )
    ClientSettings.load(file)
    assert "client.mockDriver is accepted but has no effect" in caplog.text
    WaltzClient.connect({**_settings(), "client.mockDriver": None})


def _settings() -> dict[str, object]:
    return {"zookeeper.connectString": "zk1:2181", "zookeeper.sessionTimeout": 1000, "cluster.root": "/x"}


def test_a_blocking_client() -> None:
    log = InProcessLog()
    before = threading.active_count()
    with BlockingWaltzClient.connect({"client.mockDriver": log}) as client:
        client.append(partition=0, data=b"0")
        assert [one.data for one in client.feed(0, until=0)] == [b"0"]
    assert threading.active_count() == before


class Once(TransactionContext):
    def __init__(self) -> None:
        super().__init__()
        self.attempts = 0
        self.ended = asyncio.Event()

    def partition_id(self, num_partitions: int) -> int:
        return 0

    def execute(self, builder: TransactionBuilder) -> bool:
        self.attempts += 1
        builder.set_transaction_data(b"x", BYTES).set_write_locks([A])
        return True

    def on_application(self) -> None:
        self.ended.set()


async def test_contexts_go_through_failures() -> None:
    log = InProcessLog()
    async with log.client(Application()) as client:
        log.partition().fail_next(2)
        log.partition().conflict_next(2)
        context = Once()
        await client.submit(context)
        async with asyncio.timeout(5):
            await context.ended.wait()
        assert context.attempts == 5
    assert log.partition().high_water_mark == 0


async def test_failures_at_random_are_the_same_every_time() -> None:
    async def run(seed: int) -> list[bool]:
        log = InProcessLog(seed=seed)
        log.partition().fail_at_random(0.3)
        async with log.client() as client:
            results = await client.append_many([_append(b"") for _ in range(100)])
        return [isinstance(one, Committed) for one in results]

    assert await run(1) == await run(1)
    assert await run(1) != await run(2)
    assert 50 < sum(await run(1)) < 90


async def test_a_slow_reader_and_many_transactions() -> None:
    """Everything that is bounded in a client (buffers, credit, sockets) is bounded over this wire too."""
    log = InProcessLog()
    for number in range(5_000):
        log.partition().commit(f"{number}".encode() * 20)
    async with log.client(
        settings={
            "client.feedBufferTransactions": 1024,
            "client.prefetchBytes": 20_000,
        }
    ) as client:
        seen = 0
        async for batch in client.feed(0, after=-1, until=4_999).batches():
            assert [one.transaction_id for one in batch] == list(range(seen, seen + len(batch)))
            seen += len(batch)
    assert seen == 5_000


def test_mistakes_are_refused() -> None:
    with pytest.raises(UsageError):
        InProcessLog(0)
    with pytest.raises(UsageError):
        InProcessLog().partition().fail_at_random(2)
    with pytest.raises(UsageError, match="no partition 5"):
        InProcessLog().partition(5)


async def test_it_runs_on_virtual_time() -> None:
    """No socket, no thread: a test may let a minute pass in no time."""
    log = InProcessLog()
    log.partition().delay(60.0)
    async with log.client() as client:
        await client.append(partition=0, data=b"a minute later", deadline_seconds=100)
    assert log.partition().high_water_mark == 0


async def test_a_server_hears_that_a_partition_is_let_go() -> None:
    log = InProcessLog(2)
    async with log.client(settings={"client.autoMount": False, "client.answeredAppends": True}) as client:
        await client.set_partitions([0, 1])
        for partition in (0, 1):
            await client.append(partition=partition, data=b"x")
        assert log.partition(0)._mounts
        await client.set_partitions([1])
        async with asyncio.timeout(5):
            while log.partition(0)._mounts:
                await asyncio.sleep(0.01)
        await client.set_partitions([0, 1])
        for partition in (0, 1):
            committed = await client.append(partition=partition, data=b"y", deadline_seconds=5)
            assert committed.transaction_id == 1
