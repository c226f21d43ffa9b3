"""`transact`: decide, append, decide again after a conflict, and return when it is applied; one end for each
way to end."""

import asyncio
from contextlib import nullcontext

import pytest

from client_tests.helpers import Application, until
from waltz_client import (
    BYTES,
    ClientClosedError,
    DeadlineExceededError,
    LockId,
    NotAppliedError,
    Outcome,
    OutcomeUnknownError,
    PartitionNotFoundError,
    StopApplyingError,
    TransactionBuilder,
    TransactionTooLargeError,
    UsageError,
    WaltzClient,
)
from waltz_client.blocking import BlockingWaltzClient
from waltz_client.testing import InProcessLog, LogPartition
from waltz_client.testing.answers import answer
from waltz_client.testing.values import ClientConnection
from waltz_protocol.frames.append import Append
from waltz_protocol.frames.append_batch import Repeated, Verdict

ACCOUNT = LockId.of("account", "alice")


def write(builder: TransactionBuilder, data: bytes = b"own") -> int:
    """A decision that depends on everything before; its value is the view."""
    builder.set_transaction_data(data, BYTES).set_write_locks([ACCOUNT])
    return builder.client_high_water_mark


async def test_the_value_and_the_commit_come_back_when_it_is_applied() -> None:
    log, state = InProcessLog(2), Application()
    async with log.client(state) as client:
        log.partition(1).commit(b"before")
        done = await client.transact(1, write)
        assert (done.value, done.committed) == (0, (1, 1))
        assert state.applied == [(1, 0), (1, 1)]


async def test_a_client_without_callbacks_returns_when_it_is_committed() -> None:
    async with InProcessLog(1).client() as client:
        assert (await client.transact(0, write)).committed == (0, 0)


async def test_nothing_to_append_is_an_answer() -> None:
    log = InProcessLog(1)

    async def look(builder: TransactionBuilder) -> str:
        return "nothing to do"

    async with log.client(Application()) as client:
        done = await client.transact(0, look)
    assert (done.value, done.committed, log.partition(0).transactions) == ("nothing to do", None, [])


async def test_after_a_conflict_it_decides_again_on_what_conflicted() -> None:
    log, state = InProcessLog(1), Application()
    views: list[int] = []

    def decide(builder: TransactionBuilder) -> str:
        views.append(write(builder))
        if len(views) < 3:
            log.partition(0).commit(b"faster", write_locks=[ACCOUNT])
        return f"attempt {len(views)}"

    async with log.client(state) as client:
        done = await client.transact(0, decide)
    assert (done.value, done.committed) == ("attempt 3", (0, 2))
    assert views == [-1, 0, 1]


async def test_what_the_decision_raises_comes_out() -> None:
    log = InProcessLog(1)
    mine = TimeoutError("the shop's own")

    async def decide(builder: TransactionBuilder) -> None:
        raise mine

    async with log.client(Application()) as client:
        with pytest.raises(TimeoutError) as caught:
            await client.transact(0, decide)
        assert caught.value is mine
        log.partition(0).conflict_next(1)
        tries = 0

        def later(builder: TransactionBuilder) -> None:
            nonlocal tries
            tries += 1
            if tries == 2:
                raise KeyError("alice")
            write(builder)

        with pytest.raises(KeyError):
            await client.transact(0, later)
        with pytest.raises(PartitionNotFoundError):
            await client.transact(7, write)
    with pytest.raises(ClientClosedError):
        await client.transact(0, write)
    assert log.partition(0).transactions == []


async def test_a_decision_that_comes_after_the_deadline_is_not_sent() -> None:
    """It was reported as certainly not in the log, while its second attempt was deciding."""
    log = InProcessLog(1)
    log.partition(0).conflict_next(1)
    decided, answer = 0, asyncio.Event()

    async def decide(builder: TransactionBuilder) -> None:
        nonlocal decided
        decided += 1
        if decided == 2:
            await answer.wait()
        write(builder)

    async with log.client(Application()) as client:
        with pytest.raises(DeadlineExceededError) as caught:
            await client.transact(0, decide, deadline_seconds=1.0)
        assert caught.value.outcome is Outcome.FAILED
        answer.set()
        await asyncio.sleep(0.3)
    assert decided == 2
    assert log.partition(0).transactions == []


@pytest.mark.parametrize("arrives", [True, False])
async def test_late_and_sent_is_unknown(arrives: bool) -> None:
    log = InProcessLog(1)
    log.partition(0).hold()
    async with log.client(Application()) as client:
        with pytest.raises(OutcomeUnknownError):
            await client.transact(0, write, deadline_seconds=0.1)
        if arrives:
            log.partition(0).release()
        else:
            log.partition(0).drop()
        await asyncio.sleep(0.3)  # no attempt follows
    assert len(log.partition(0).transactions) == arrives


async def test_a_cancelled_one_is_not_tried_again() -> None:
    log = InProcessLog(1)
    log.partition(0).hold()
    decided: list[int] = []
    async with log.client(Application()) as client:
        async with asyncio.TaskGroup() as group:
            task = group.create_task(client.transact(0, lambda builder: decided.append(write(builder))))
            await until(lambda: log.partition(0).waiting)
            task.cancel()
        log.partition(0).drop()
        await asyncio.sleep(0.3)
    assert (len(decided), log.partition(0).transactions) == (1, [])


async def test_committed_and_not_applied_says_where_it_is() -> None:
    log = InProcessLog(1)

    class Stopping(Application):
        async def apply_transaction(self, transaction: object) -> None:
            raise StopApplyingError("the table is gone")

    async with log.client(Stopping()) as client:
        with pytest.raises(NotAppliedError, match=r"transaction 0 is committed.*the table is gone") as caught:
            await client.transact(0, write)
        assert caught.value.outcome is Outcome.COMMITTED
        assert caught.value.committed == (0, 0)
        with pytest.raises(StopApplyingError):
            await client.transact(0, write)


async def test_applied_too_late_is_committed() -> None:
    log = InProcessLog(1)

    class Slow(Application):
        async def apply_transaction(self, transaction: object) -> None:
            await asyncio.sleep(3600)

    async with log.client(Slow()) as client:
        with pytest.raises(NotAppliedError, match=r"within 0\.2 s"):
            await client.transact(0, write, deadline_seconds=0.2)


async def test_a_close_ends_it() -> None:
    log = InProcessLog(1)
    log.partition(0).hold()
    async with log.client(Application()) as client:
        with pytest.raises(ExceptionGroup) as caught:
            async with asyncio.TaskGroup() as group:
                group.create_task(client.transact(0, write))
                await until(lambda: log.partition(0).waiting)
                await client.close()
        assert [type(error) for error in caught.value.exceptions] == [OutcomeUnknownError]


def test_the_blocking_client_decides_in_a_thread_that_may_wait() -> None:
    log = InProcessLog(1)
    with BlockingWaltzClient.connect({"client.mockDriver": log}) as client:

        def decide(builder: TransactionBuilder) -> int:
            write(builder)
            return client.high_water_mark(0)  # a call that would wait for itself on the client's thread

        done = client.transact(0, decide)
    assert (done.value, done.committed) == (-1, (0, 0))


def test_a_client_that_was_not_entered() -> None:
    client = WaltzClient.connect({"client.mockDriver": InProcessLog(1)})
    with pytest.raises(UsageError, match="enter the client first"):
        asyncio.run(client.transact(0, write))


async def test_let_go_before_it_is_applied_is_not_applied() -> None:
    """It returned as if it were: there was no applier left to ask."""
    log, applies = InProcessLog(1), asyncio.Event()

    class Slow(Application):
        async def apply_transaction(self, transaction: object) -> None:
            await applies.wait()

    def decide(builder: TransactionBuilder) -> None:
        log.partition(0).commit(b"somebody else's, and applied before it")
        write(builder)

    async with log.client(Slow(), settings={"client.autoMount": False}) as client:
        await client.set_partitions([0])
        with pytest.raises(ExceptionGroup) as caught:
            async with asyncio.TaskGroup() as group:
                group.create_task(client.transact(0, decide))
                await until(lambda: len(log.partition(0).transactions) == 2)
                await asyncio.sleep(0.1)
                await client.set_partitions([])
        assert [type(error) for error in caught.value.exceptions] == [NotAppliedError]


async def test_no_decision_begins_after_the_end() -> None:
    """The second attempt waits for what conflicted to be applied, and the deadline comes before."""
    log, applies = InProcessLog(1), asyncio.Event()
    decided: list[int] = []

    class Slow(Application):
        async def apply_transaction(self, transaction: object) -> None:
            await applies.wait()

    def decide(builder: TransactionBuilder) -> None:
        decided.append(write(builder))
        log.partition(0).commit(b"faster", write_locks=[ACCOUNT])

    async with log.client(Slow()) as client:
        with pytest.raises(DeadlineExceededError):
            await client.transact(0, decide, deadline_seconds=0.3)
        applies.set()
        await asyncio.sleep(0.3)
    assert decided == [-1]


@pytest.mark.parametrize("cancelled", [False, True])
async def test_a_decision_that_hangs_holds_up_nobody(cancelled: bool) -> None:
    """Its second attempt runs in the client's only retry worker."""
    log = InProcessLog(2)
    log.partition(0).conflict_next(1)
    decided = 0

    async def hangs(builder: TransactionBuilder) -> None:
        nonlocal decided
        decided += 1
        if decided == 2:
            await asyncio.sleep(3600)
        write(builder)

    async with log.client(Application()) as client:
        with pytest.raises(ExceptionGroup) if not cancelled else nullcontext():
            async with asyncio.TaskGroup() as group:
                task = group.create_task(client.transact(0, hangs, deadline_seconds=60 if cancelled else 0.3))
                await until(lambda: decided == 2)
                if cancelled:
                    task.cancel()
        log.partition(1).conflict_next(1)
        assert (await client.transact(1, write)).committed == (1, 0)


@pytest.mark.parametrize("conflicts", [0, 1])
async def test_what_waits_to_be_sent_when_the_deadline_comes_is_never_sent(conflicts: int) -> None:
    log = InProcessLog(1)
    log.partition(0).conflict_next(conflicts)
    decided = 0

    async def decide(builder: TransactionBuilder) -> None:
        nonlocal decided
        decided += 1
        write(builder)
        if decided > conflicts:
            log.go_down()
            await asyncio.sleep(0.1)

    async with log.client(Application()) as client:
        with pytest.raises(DeadlineExceededError):
            await client.transact(0, decide, deadline_seconds=0.5)
        log.come_up()
        await asyncio.sleep(1.0)
    assert log.partition(0).transactions == []


async def test_who_waits_is_woken_by_what_was_applied_before() -> None:
    """The application says that it has the transaction already, after somebody has begun to wait for it."""
    log, asked = InProcessLog(1), asyncio.Event()
    for _ in range(4):
        log.partition(0).commit(b"before")

    class Slow(Application):
        async def client_high_water_mark(self, partition_id: int) -> int:  # type: ignore[override]
            await asked.wait()
            return 3

    async with log.client(Slow()) as client, asyncio.timeout(20), asyncio.TaskGroup() as group:
        group.create_task(client._open.partitions.wait_applied(0, 3))
        await asyncio.sleep(0.01)
        asked.set()


async def test_a_wall_clock_that_is_set_changes_nothing() -> None:
    """The deadline is that of the loop's clock, which nobody sets."""
    log = InProcessLog(1)
    async with log.client() as client, asyncio.timeout(20):
        client._entered.submissions._wall_clock = lambda: 1e12
        log.partition(0).conflict_next()
        assert (await client.transact(0, write)).committed == (0, 0)


async def test_what_its_server_never_takes_ends_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """As a server with less than the client's limit of locks answers. Before, it was sent again until the
    deadline, and a submitted context without end."""

    def too_large(
        self: LogPartition, connection: ClientConnection, append: Append, repeated: Repeated | None = None
    ) -> None:
        refused.append(append)
        answer(connection, append.req_id, Verdict.TOO_LARGE, 1)

    log, refused = InProcessLog(1), list[Append]()
    monkeypatch.setattr(LogPartition, "append_received", too_large)
    async with log.client(settings={"client.answeredAppends": True}) as client:
        with pytest.raises(TransactionTooLargeError):
            await client.transact(0, write, deadline_seconds=5)
    assert len(refused) == 1
