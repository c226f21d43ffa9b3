"""Transactions of one client under one lock: one at a time, in the order in which they came, and nobody else
waits for them."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Awaitable

import pytest

from client_tests.helpers import Application, until
from waltz_client import (
    BYTES,
    ClientClosedError,
    DeadlineExceededError,
    LockId,
    OutcomeUnknownError,
    TransactionBuilder,
    TransactionContext,
    WaltzClient,
    WaltzClientError,
)
from waltz_client._internal.append import own_locks
from waltz_client._internal.append.own_locks import MAX_LOCKS
from waltz_client.testing import InProcessLog
from waltz_client.testing.partition import LogPartition

ACCOUNT, OTHER = LockId.of("account", "alice"), LockId.of("account", "bob")


class Decisions:
    """The views of one transaction's decisions."""

    def __init__(self, data: bytes, *locks: LockId) -> None:
        self.data = data
        self.locks = locks or (ACCOUNT,)
        self.views: list[int] = []

    def __call__(self, builder: TransactionBuilder) -> None:
        self.views.append(builder.client_high_water_mark)
        builder.set_transaction_data(self.data, BYTES).set_write_locks(self.locks)


@pytest.fixture
def refused(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """What the in-process log refused."""
    found: list[object] = []
    monkeypatch.setattr(LogPartition, "_refuse", lambda *refusal: found.append(refusal))
    return found


async def _ends(error: type[WaltzClientError], call: Awaitable[object]) -> None:
    with pytest.raises(error):
        await call


def in_the_log(log: InProcessLog) -> list[bytes]:
    return [one.data for one in log.partition(0).transactions]


async def test_the_second_is_decided_when_the_first_is_committed_and_nothing_is_refused(
    refused: list[object],
) -> None:
    log = InProcessLog(1)
    log.partition(0).hold()
    first, second, third = Decisions(b"first"), Decisions(b"second"), Decisions(b"third")
    async with log.client(Application()) as client, asyncio.TaskGroup() as group:
        for one in (first, second, third):
            group.create_task(client.transact(0, one))
        await until(lambda: log.partition(0).waiting == 1 and third.views)
        assert client.has_pending_transactions()
        log.partition(0).release()
    assert in_the_log(log) == [b"first", b"second", b"third"]
    assert (first.views, second.views[-1], third.views[-1]) == ([-1], 0, 1)
    assert not refused


async def test_a_decision_that_names_a_new_lock_each_time_is_sent_in_its_turn() -> None:
    """As one that takes a lock on an id that it makes: it gave its turn up for the lines of its own locks,
    and was decided again and again."""
    log = InProcessLog(1)
    log.partition(0).hold()
    decided = 0

    def decide(builder: TransactionBuilder) -> None:
        nonlocal decided
        decided += 1
        builder.set_transaction_data(b"new", BYTES).set_write_locks([ACCOUNT, LockId.of("id", str(decided))])

    async with log.client(Application()) as client, asyncio.TaskGroup() as group:
        group.create_task(client.transact(0, Decisions(b"first")))
        await until(lambda: log.partition(0).waiting == 1)
        group.create_task(client.transact(0, decide, deadline_seconds=2.0))
        await until(lambda: decided == 1)
        log.partition(0).release()
    assert in_the_log(log) == [b"first", b"new"]
    assert decided == 2


async def test_other_locks_pass() -> None:
    log = InProcessLog(1)
    log.partition(0).hold()
    async with log.client(Application()) as client, asyncio.TaskGroup() as group:
        for one in (Decisions(b"a"), Decisions(b"b"), Decisions(b"c", OTHER)):
            group.create_task(client.transact(0, one))
        await until(lambda: log.partition(0).waiting == 2)
        log.partition(0).release()
    assert in_the_log(log) == [b"a", b"c", b"b"]


@pytest.mark.parametrize("how", ["deadline", "cancelled"])
async def test_one_that_ends_while_it_waits_holds_up_nobody(how: str) -> None:
    log = InProcessLog(1)
    log.partition(0).hold()
    gone = Decisions(b"gone")
    async with log.client(Application()) as client, asyncio.TaskGroup() as group:
        group.create_task(client.transact(0, Decisions(b"first")))
        await until(lambda: log.partition(0).waiting == 1)
        if how == "deadline":
            with pytest.raises(DeadlineExceededError):
                await client.transact(0, gone, deadline_seconds=0.05)
        else:
            task = group.create_task(client.transact(0, gone))
            await until(lambda: gone.views)
            task.cancel()
        group.create_task(client.transact(0, Decisions(b"last")))
        log.partition(0).release()
    assert in_the_log(log) == [b"first", b"last"]


@pytest.mark.parametrize("how", ["deadline", "cancelled"])
async def test_one_that_ends_before_there_is_room_to_send_it_leaves_its_locks(how: str) -> None:
    log = InProcessLog(1)
    log.partition(0).hold()
    gone = Decisions(b"gone")
    async with log.client(Application(), {"client.maxConcurrentTransactions": 1}) as client:
        async with asyncio.TaskGroup() as group:
            group.create_task(client.transact(0, Decisions(b"first", OTHER)))
            await until(lambda: log.partition(0).waiting == 1)
            task = group.create_task(
                _ends(DeadlineExceededError, client.transact(0, gone, deadline_seconds=0.05))
            )
            await until(lambda: gone.views)
            if how == "cancelled":
                task.cancel()
            await asyncio.wait([task])
            log.partition(0).release()
        await client.transact(0, Decisions(b"last"), deadline_seconds=2.0)
    assert in_the_log(log) == [b"first", b"last"]


async def test_those_whose_deadline_has_passed_do_not_wait_on() -> None:
    """However long the first one has no outcome."""
    log = InProcessLog(1)
    log.partition(0).hold()
    async with log.client(Application()) as client, asyncio.TaskGroup() as group:
        first = group.create_task(
            _ends(OutcomeUnknownError, client.transact(0, Decisions(b"first"), deadline_seconds=0.2))
        )
        await until(lambda: log.partition(0).waiting == 1)
        gone = [Decisions(b"gone") for _ in range(5)]
        for one in gone:
            group.create_task(_ends(DeadlineExceededError, client.transact(0, one, deadline_seconds=0.1)))
        await first
        assert client.status().retrying == 0
        log.partition(0).release()
        await until(lambda: not client.has_pending_transactions())
        assert [len(one.views) for one in gone] == [1] * 5
    assert in_the_log(log) == [b"first"]


async def test_a_first_one_without_an_outcome_ends_and_the_next_is_sent() -> None:
    log = InProcessLog(1)
    log.partition(0).hold()
    async with log.client(Application()) as client, asyncio.TaskGroup() as group:
        first = group.create_task(
            _ends(OutcomeUnknownError, client.transact(0, Decisions(b"first"), deadline_seconds=0.2))
        )
        await until(lambda: log.partition(0).waiting == 1)
        second = group.create_task(client.transact(0, Decisions(b"second")))
        await first
        assert not second.done()
        log.partition(0).drop()
    assert in_the_log(log) == [b"second"]


async def test_a_slow_decision_is_passed_by(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(own_locks, "TURN_SECONDS", 0.05)
    log, goes_on = InProcessLog(1), asyncio.Event()
    log.partition(0).hold()
    decided = 0

    async def slow(builder: TransactionBuilder) -> None:
        nonlocal decided
        decided += 1
        if decided == 2:
            await goes_on.wait()
        builder.set_transaction_data(b"slow", BYTES).set_write_locks([ACCOUNT])

    async with log.client(Application()) as client, asyncio.TaskGroup() as group:
        group.create_task(client.transact(0, Decisions(b"first")))
        group.create_task(client.transact(0, slow))
        await until(lambda: decided == 1)
        last = group.create_task(client.transact(0, Decisions(b"last")))
        log.partition(0).release()
        await last
        goes_on.set()
    assert in_the_log(log) == [b"first", b"last", b"slow"]


async def test_they_get_there_when_every_decision_is_slow(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each is passed by in its turn, and must not go back to the end of its lines for that."""
    monkeypatch.setattr(own_locks, "TURN_SECONDS", 0.02)
    log = InProcessLog(1)

    async def slow(builder: TransactionBuilder) -> None:
        await asyncio.sleep(0.05)
        builder.set_transaction_data(b"slow", BYTES).set_write_locks([ACCOUNT])

    async with log.client(Application()) as client, asyncio.TaskGroup() as group:
        for _ in range(8):
            group.create_task(client.transact(0, slow, deadline_seconds=10.0))
    assert in_the_log(log) == [b"slow"] * 8


async def test_a_close_ends_those_who_wait() -> None:
    log = InProcessLog(1)
    log.partition(0).hold()
    ends: list[type[BaseException]] = []

    async def ended(one: Decisions) -> None:
        try:
            await client.transact(0, one)
        except WaltzClientError as error:
            ends.append(type(error))

    waiting = Decisions(b"second")
    async with (
        log.client(Application()) as client,
        asyncio.timeout(10),  # less than a deadline
        asyncio.TaskGroup() as group,
    ):
        group.create_task(ended(Decisions(b"first")))
        await until(lambda: log.partition(0).waiting == 1)
        group.create_task(ended(waiting))
        await until(lambda: waiting.views)
        await client.close()
    assert len(ends) == 2
    assert OutcomeUnknownError in ends, "the first one may be in the log"


async def test_a_close_ends_one_that_is_decided_at_that_moment(monkeypatch: pytest.MonkeyPatch) -> None:
    """While another one still has their lock, which waited for room when the close began."""
    log, goes_on = InProcessLog(1), asyncio.Event()
    log.partition(0).hold()
    last = Moving(0, 0)

    async def execute(builder: TransactionBuilder) -> bool:
        await goes_on.wait()
        builder.set_transaction_data(b"last", BYTES).set_write_locks([ACCOUNT])
        return True

    monkeypatch.setattr(last, "execute", execute)
    client = log.client(Application(), {"client.maxConcurrentTransactions": 1})
    async with client, asyncio.TaskGroup() as group:
        group.create_task(_closed(client.transact(0, Decisions(b"other", OTHER))))
        await until(lambda: log.partition(0).waiting == 1)
        waits = Decisions(b"waits for room")
        group.create_task(_closed(client.transact(0, waits)))
        group.create_task(_closed(client.submit(last)))
        await until(lambda: waits.views)
        life = client._entered.life
        end = life.end

        def end_now() -> None:
            goes_on.set()
            end()

        monkeypatch.setattr(life, "end", end_now)
        await client.close()
    assert isinstance(last.end, ClientClosedError)


async def _closed(call: object) -> None:
    with pytest.raises(WaltzClientError):
        await call  # type: ignore[misc]


async def test_a_callback_that_submits_under_the_same_lock_waits_for_nobody() -> None:
    """The application applies nothing more while its callback is not over."""
    log = InProcessLog(1)
    ended: list[bytes] = []

    class Context(TransactionContext):
        def __init__(self, data: bytes, then: bytes = b"") -> None:
            super().__init__()
            self.data, self.then = data, then

        def partition_id(self, num_partitions: int) -> int:
            return 0

        def execute(self, builder: TransactionBuilder) -> bool:
            builder.set_transaction_data(self.data, BYTES).set_write_locks([ACCOUNT])
            return True

        async def on_completion(self, committed: bool) -> None:
            if self.then:
                await client.submit(Context(self.then))
                await client.submit(Context(self.then))

        def on_application(self) -> None:
            ended.append(self.data)

    async with log.client(Application()) as client:
        await client.submit(Context(b"a", b"b"))
        await client.submit(Context(b"c", b"d"))
        await until(lambda: len(ended) == 6)
    assert sorted(ended) == [b"a", b"b", b"b", b"c", b"d", b"d"]


async def test_contexts_beyond_the_window_hold_up_who_submits_them() -> None:
    log = InProcessLog(1)
    log.partition(0).hold()
    done: list[bool] = []

    class Context(Moving):
        def on_completion(self, committed: bool) -> None:
            done.append(committed)

    async def submit_all(client: WaltzClient) -> None:
        for _ in range(100):
            await client.submit(Context(0, 0))

    settings = {"client.maxConcurrentTransactions": 10}
    async with log.client(Application(), settings) as client, asyncio.TaskGroup() as group:
        group.create_task(submit_all(client))
        await until(lambda: log.partition(0).waiting == 10)
        assert client.status().retrying == 10
        log.partition(0).release()
        await until(lambda: len(done) == 100)
        await until(lambda: not client.has_pending_transactions())
    assert in_the_log(log) == [b"moving"] * 100


async def test_those_that_take_no_part_do_not_hurry_after_conflicts() -> None:
    """Nothing bounds how many attempts of them are on their way."""
    log, one = InProcessLog(1), Decisions(b"one", *(LockId("account", i) for i in range(MAX_LOCKS + 1)))
    log.partition(0).conflict_next(4)
    settings = {"client.retryInitialBackoff": 200, "client.retryMaxBackoff": 200}
    async with log.client(Application(), settings) as client:
        started = time.monotonic()
        await client.transact(0, one)
    assert len(one.views) == 5
    assert time.monotonic() - started > 0.3


class Moving(TransactionContext):
    """Whose later attempts are for another partition."""

    def __init__(self, first: int, then: int) -> None:
        super().__init__()
        self.first, self.then = first, then
        self.asked = 0
        self.end: object = None

    def partition_id(self, num_partitions: int) -> int:
        self.asked += 1
        return self.first if self.asked == 1 else self.then

    def execute(self, builder: TransactionBuilder) -> bool:
        builder.set_transaction_data(b"moving", BYTES).set_write_locks([ACCOUNT])
        return True

    def on_completion(self, committed: bool) -> None:
        self.end = committed

    def on_exception(self, error: BaseException) -> None:
        self.end = error


@pytest.mark.parametrize("why", ["own", "conflict"])
async def test_one_that_moves_to_another_partition_waits_for_nothing_of_the_first_one(why: str) -> None:
    log, moving = InProcessLog(2), Moving(0, 1)
    for _ in range(5):
        log.partition(0).commit(b"before")
    settings = {"client.mountWait": 1000}
    async with log.client(Application(), settings) as client, asyncio.TaskGroup() as group:
        if why == "own":
            log.partition(0).hold()
            group.create_task(client.transact(0, Decisions(b"first")))
            await until(lambda: log.partition(0).waiting == 1)
        else:
            log.partition(0).conflict_next()
        await client.submit(moving)
        log.partition(0).release()
        await until(lambda: moving.end is not None)
        assert moving.end is True
        assert not client.has_pending_transactions()
    assert [one.data for one in log.partition(1).transactions] == [b"moving"]


async def test_everybody_gets_there_when_all_want_one_lock(refused: list[object]) -> None:
    log = InProcessLog(1)
    done: Counter[int] = Counter()
    stop = False

    async def writer(number: int) -> None:
        while not stop:
            await client.transact(0, Decisions(b"%d" % number))
            done[number] += 1

    async with log.client(Application()) as client, asyncio.TaskGroup() as group:
        for number in range(20):
            group.create_task(writer(number))
        await until(lambda: sum(done.values()) >= 400)
        stop = True
    assert min(done.values()) >= 0.9 * max(done.values()), done
    assert not refused
