"""Something goes wrong at each step in turn, on a log with the server's lock table: every row is there once
in the end."""

from __future__ import annotations

import enum
import itertools
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

import pytest

from waltz_client import Append, LockId
from waltz_client.testing import InProcessLog
from waltz_spark.sink import attempt as protocol
from waltz_spark.sink import task_writer
from waltz_spark.sink.attempt import Attempt, OnConflict, Outcome, OutgoingRow, ReadBack, Undecided
from waltz_spark.sink.batch_starts import Starts
from waltz_spark.sink.errors import (
    BadRowError,
    NotRepeatableError,
    RowConflictError,
    StaleBatchError,
    SupersededError,
)
from waltz_spark.sink.read_back import Sighting
from waltz_spark.sink.task_claims import CLAIM_HEADER, Claim, TaskKey
from waltz_spark.sink.task_writer import (
    ROWS_AT_ONCE,
    ClientPort,
    LogPort,
    TaskResult,
    TaskWriter,
    WriteSettings,
)

KEY = TaskKey("query", 3, 1)
START = {0: 1, 1: -1}
SETTINGS = WriteSettings(5.0, CLAIM_HEADER, OnConflict.FAIL)
LOCK = LockId("account", 7)
ROWS = {
    0: [
        OutgoingRow(b"a"),
        OutgoingRow(b"twin", 1),
        OutgoingRow(b"locked", write_locks=(LOCK,), as_of=1),
        OutgoingRow(b"twin", 1),
        OutgoingRow(b"locked too", read_locks=(LockId("other", 1),), as_of=1),
    ],
    1: [OutgoingRow(b"b", append_locks=(LOCK,))],
}
EXPECTED = {number: Counter(row.data for row in rows) for number, rows in ROWS.items()}


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(task_writer, "CLAIM_PAUSE_SECONDS", 0.0)


class Fault(enum.Enum):
    """What goes wrong at a step."""

    DIES_BEFORE = "the attempt dies before it"
    DIES_AFTER = "the attempt dies after it"
    DIES_HALFWAY = "the attempt dies with half of it done"
    LOST = "it does not reach the log"
    UNANSWERED = "it reaches the log, but the answer is lost"
    HALF_UNANSWERED = "half of it reaches the log, and no answer comes"
    PARTITION_MOVES = "the partition moves before it"
    RIVAL = "another attempt does the whole task before it"


class Killed(Exception):
    """The attempt is dead."""


class FaultyPort:
    """A port on which one step goes wrong. `reached`: whether that step came."""

    def __init__(self, port: LogPort, log: InProcessLog, step: int, fault: Fault) -> None:
        self._port = port
        self._log = log
        self._left = step
        self._fault = fault
        self.reached = False

    async def claim(self, partition: int, claim: Claim, as_of: int) -> Outcome:
        fault = await self._before(partition)
        if fault in (Fault.LOST, Fault.HALF_UNANSWERED):
            return Undecided()
        outcome = await self._port.claim(partition, claim, as_of)
        self._after(fault)
        return Undecided() if fault is Fault.UNANSWERED else outcome

    async def read_back(
        self, partition: int, key: TaskKey, action: ReadBack
    ) -> tuple[list[Sighting], frozenset[int]]:
        fault = await self._before(partition)
        result = await self._port.read_back(partition, key, action)
        self._after(fault)
        return result

    async def send(self, appends: Sequence[Append]) -> list[Outcome]:
        fault = await self._before(appends[0].partition)
        if fault is Fault.LOST:
            return [Undecided()] * len(appends)
        if fault in (Fault.DIES_HALFWAY, Fault.HALF_UNANSWERED):
            await self._port.send(appends[::2])
            self._after(fault)
            return [Undecided()] * len(appends)
        outcomes = await self._port.send(appends)
        self._after(fault)
        return [Undecided()] * len(appends) if fault is Fault.UNANSWERED else outcomes

    async def _before(self, partition: int) -> Fault | None:
        self._left -= 1
        if self._left != -1:
            return None
        self.reached = True
        if self._fault is Fault.DIES_BEFORE:
            raise Killed
        if self._fault is Fault.PARTITION_MOVES:
            self._log.partition(partition).remount()
        if self._fault is Fault.RIVAL:
            await write(self._log, "rival")
        return self._fault

    @staticmethod
    def _after(fault: Fault | None) -> None:
        if fault in (Fault.DIES_AFTER, Fault.DIES_HALFWAY):
            raise Killed


def new_log() -> InProcessLog:
    log = InProcessLog(2)
    for number in range(2):
        log.partition(0).commit(b"before %d" % number, write_locks=(LOCK,))
    return log


async def write(
    log: InProcessLog,
    name: str,
    rows: dict[int, list[OutgoingRow]] = ROWS,
    step: int = -1,
    fault: Fault = Fault.LOST,
    *,
    key: TaskKey = KEY,
    settings: WriteSettings = SETTINGS,
    start: dict[int, int] = START,
) -> tuple[TaskResult, bool]:
    """One attempt; what it did, and whether its fault came."""
    async with log.client(settings={"client.maxConcurrentTransactions": 64}) as client:
        port = FaultyPort(ClientPort(client, settings), log, step, fault)
        writer = TaskWriter(port, Claim(key, name, client.client_id), start, settings)
        for partition, its_rows in rows.items():  # in pieces, as Arrow batches come
            await writer.write({partition: its_rows[:3]})
            if its_rows[3:]:
                await writer.write({partition: its_rows[3:]})
        return writer.finish(), port.reached


def written(log: InProcessLog, number: int) -> Counter[bytes]:
    rows = (one for one in log.partition(number).transactions if one.header != CLAIM_HEADER)
    return Counter(one.data for one in rows if not one.data.startswith(b"before"))


def check(log: InProcessLog) -> None:
    assert {number: written(log, number) for number in ROWS} == EXPECTED


@pytest.mark.parametrize("fault", Fault)
async def test_a_failure_at_any_step(fault: Fault) -> None:
    # A partition that has moved takes no row with user locks on an older view, whatever it was.
    policy = OnConflict.RETRY if fault is Fault.PARTITION_MOVES else OnConflict.FAIL
    settings = replace(SETTINGS, on_conflict=policy)
    for step in itertools.count():
        log = new_log()
        try:
            _, reached = await write(log, "first", step=step, fault=fault, settings=settings)
        except (Killed, SupersededError):
            reached = True
        if not reached:
            assert step > 4
            break
        # The next attempt, and one more, as if Spark had not heard of its success.
        result, _ = await write(log, "second")
        assert result.written + result.found == 6
        result, _ = await write(log, "third")
        assert (result.written, result.found) == (0, 6)
        check(log)


@pytest.mark.parametrize("fault", [Fault.DIES_AFTER, Fault.DIES_HALFWAY, Fault.UNANSWERED])
async def test_failures_at_any_two_steps_of_two_attempts(fault: Fault) -> None:
    for first, second in itertools.product(range(12), range(12)):
        log = new_log()
        for name, step in (("first", first), ("second", second), ("third", -1)):
            try:
                await write(log, name, step=step, fault=fault)
            except Killed:
                continue
        check(log)


async def test_an_attempt_with_nothing_wrong_reads_nothing_back() -> None:
    log = new_log()
    async with log.client(settings={"client.maxConcurrentTransactions": 64}) as client:

        class Port(ClientPort):
            async def read_back(
                self, partition: int, key: TaskKey, action: ReadBack
            ) -> tuple[list[Sighting], frozenset[int]]:
                raise AssertionError("nothing was to be read back")

        writer = TaskWriter(Port(client, SETTINGS), Claim(KEY, "only", client.client_id), START, SETTINGS)
        await writer.write(ROWS)
        result = writer.finish()
    assert (result.written, result.found, result.skipped) == (6, 0, 0)
    assert result.marks == {0: 7, 1: 1}
    check(log)


async def test_rows_keep_their_order() -> None:
    log = InProcessLog()
    rows = [OutgoingRow(b"%d" % number) for number in range(5000)]
    await write(log, "only", {0: rows}, start={})
    data = [one.data for one in log.partition(0).transactions if one.header != CLAIM_HEADER]
    assert data == [row.data for row in rows]


async def test_a_query_that_gives_other_rows_when_repeated_is_refused() -> None:
    log = new_log()
    with pytest.raises(Killed):
        await write(log, "first", step=1, fault=Fault.DIES_AFTER)
    with pytest.raises(NotRepeatableError, match="does not give the same rows"):
        await write(log, "second", {0: [OutgoingRow(b"something else")], 1: ROWS[1]})


async def test_a_left_over_of_an_earlier_batch_ends() -> None:
    log = new_log()
    await write(log, "later", key=TaskKey("query", 4, 1))
    with pytest.raises(StaleBatchError, match="batch 4 is being written"):
        await write(log, "left over")


async def test_the_next_batch_and_other_tasks_do_not_take_each_others_rows() -> None:
    log = new_log()
    rows = {1: [OutgoingRow(b"same")]}
    for key in (KEY, TaskKey("query", 3, 2), TaskKey("query", 4, 1), TaskKey("another", 3, 1)):
        await write(log, str(key), rows, key=key)
    assert written(log, 1) == Counter({b"same": 4})


async def conflicting(log: InProcessLog, policy: OnConflict) -> TaskResult:
    log.partition(0).commit(b"before: somebody else decides", write_locks=(LOCK,))
    settings = WriteSettings(5.0, CLAIM_HEADER, policy)
    result, _ = await write(log, "only", settings=settings)
    return result


async def test_a_conflict_of_user_locks_ends_the_task_with_the_lock() -> None:
    log = new_log()
    with pytest.raises(RowConflictError, match=r"1 rows .* account:7"):
        await conflicting(log, OnConflict.FAIL)


async def test_a_conflict_of_user_locks_leaves_the_row_out() -> None:
    log = new_log()
    result = await conflicting(log, OnConflict.SKIP)
    assert (result.written, result.skipped) == (5, 1)
    assert written(log, 0) == EXPECTED[0] - Counter({b"locked": 1})


async def test_a_conflict_of_user_locks_is_written_on_the_newer_view() -> None:
    log = new_log()
    result = await conflicting(log, OnConflict.RETRY)
    assert (result.written, result.skipped) == (6, 0)
    check(log)


async def test_a_conflict_that_is_none_is_told_apart() -> None:
    """The lock table says a lock was touched when it is only full, or new: rows without user locks go in all
    the same."""
    log = InProcessLog(2)
    log.partition(0).commit(b"before")
    log.partition(0).conflict_next(3)
    result, _ = await write(log, "only", {0: [OutgoingRow(b"x")]}, start={0: 0})
    assert (result.written, written(log, 0)) == (1, Counter({b"x": 1}))


async def test_nothing_of_a_group_with_rows_that_cannot_be_distinguished_is_written() -> None:
    """The group goes to the log in several portions and partitions; the second of the rows is in the last
    portion."""
    log = InProcessLog(2)
    free = [OutgoingRow(b"%d" % number) for number in range(ROWS_AT_ONCE)]
    locked = OutgoingRow(b"fee", read_locks=(LOCK,), as_of=-1)
    rows = {1: [OutgoingRow(b"elsewhere")], 0: [locked, *free, replace(locked, read_locks=(), as_of=None)]}
    async with log.client() as client:
        writer = TaskWriter(ClientPort(client, SETTINGS), Claim(KEY, "only", client.client_id), {}, SETTINGS)
        with pytest.raises(
            BadRowError, match="partition 0: two rows of task 1 of batch 3 are of equal content"
        ):
            await writer.write(rows)
    assert [len(log.partition(number).transactions) for number in range(2)] == [0, 0]


async def test_a_row_with_locks_that_an_earlier_group_had_is_refused() -> None:
    log = new_log()
    locked = OutgoingRow(b"fee", write_locks=(LOCK,), as_of=1)
    groups = [OutgoingRow(b"fee"), OutgoingRow(b"a"), OutgoingRow(b"b"), locked]
    for name in ("first", "second"):
        with pytest.raises(BadRowError, match="of equal content"):
            await write(log, name, {0: groups})
    assert written(log, 0) == Counter([b"fee", b"a", b"b"])


async def test_equal_rows_of_other_partitions_tasks_and_batches_are_distinguished() -> None:
    log = new_log()
    rows = {number: [OutgoingRow(b"fee", read_locks=(LockId("other", 1),), as_of=-1)] for number in range(2)}
    settings = replace(SETTINGS, on_conflict=OnConflict.RETRY)
    for key in (KEY, TaskKey("query", 3, 2), TaskKey("query", 4, 1)):
        await write(log, str(key), rows, key=key, settings=settings)
    assert [written(log, number) for number in range(2)] == [Counter({b"fee": 3})] * 2


async def test_a_task_whose_rows_have_no_view_keeps_no_account_of_them() -> None:
    log = new_log()
    twins = [OutgoingRow(b"twin")] * 2
    async with log.client() as client:
        claim = Claim(KEY, "only", client.client_id)
        writer = TaskWriter(ClientPort(client, SETTINGS), claim, START, SETTINGS, has_views=False)
        await writer.write({0: twins})
        with pytest.raises(RuntimeError, match="has a view"):
            await writer.write({0: [OutgoingRow(b"locked", write_locks=(LOCK,), as_of=1)]})
    state = protocol.admit(Attempt(claim, 1, has_views=False), 0, twins)
    assert state.offered == {}
    with pytest.raises(RuntimeError, match="2 rows were offered, and 0 admitted"):
        protocol.offer(Attempt(claim, 1), twins)
    assert written(log, 0) == Counter({b"twin": 2})


async def test_a_repeated_batch_whose_notes_are_lost_is_found_in_the_log() -> None:
    log = new_log()
    await write(log, "first")
    lost = Starts({number: log.partition(number).high_water_mark for number in range(2)})
    result, _ = await write(log, "after the loss", start=dict(lost.of(KEY.batch)))
    assert (result.written, result.found) == (0, 6)
    check(log)
