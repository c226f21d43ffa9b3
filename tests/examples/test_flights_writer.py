"""The demo's writer keeps its promises against a log that answers with conflicts, failures and unknown
outcomes."""

import asyncio
import random
import sys
from collections.abc import AsyncIterator, Sequence
from types import TracebackType
from typing import Self, cast

import pytest

from flights import writer
from flights.chains import Chains
from flights.checker import FlightChecker
from flights.data import FlightPlan, load_flights, make_plan
from flights.writer import Writer, WriterArguments
from waltz_client import (
    AppendFailedError,
    Committed,
    FeedTransaction,
    LockConflictError,
    LockId,
    OutcomeUnknownError,
    WaltzClient,
)

PARTITIONS = 2


class FakeLog:
    """An in-process log with exact locks and, on purpose, bad outcomes. Appends may commit long after they
    were given up."""

    def __init__(self, seed: int, problem: float) -> None:
        self.num_partitions = PARTITIONS
        self.logs: list[list[tuple[int, bytes]]] = [[] for _ in range(PARTITIONS)]
        self._locks: dict[tuple[int, LockId], int] = {}
        self._random = random.Random(seed)
        self._trouble = problem
        self.given_up_and_committed = 0

    async def append(
        self,
        *,
        partition: int,
        data: bytes,
        header: int,
        write_locks: Sequence[LockId],
        as_of: int,
        deadline_seconds: float,
        max_attempts: int,
    ) -> Committed:
        await self._nap()
        dice = self._random.random()
        if dice < self._trouble / 4:
            raise AppendFailedError("dropped", partition_id=partition)
        if dice < self._trouble:
            # Sent, no answer: it takes effect now, later, or never.
            if self._random.random() < 0.7:
                asyncio.get_running_loop().call_later(
                    self._random.random() * 0.01, self._late, partition, data, header, write_locks[0], as_of
                )
            raise OutcomeUnknownError("no answer", partition_id=partition)
        committed = self._commit(partition, data, header, write_locks[0], as_of)
        await self._nap()
        return committed

    def _late(self, partition: int, data: bytes, header: int, lock: LockId, as_of: int) -> None:
        try:
            self._commit(partition, data, header, lock, as_of)
            self.given_up_and_committed += 1
        except LockConflictError:
            pass

    def _commit(self, partition: int, data: bytes, header: int, lock: LockId, as_of: int) -> Committed:
        touched = self._locks.get((partition, lock), -1)
        if touched > as_of:
            raise LockConflictError(partition_id=partition, conflicting_high_water_mark=touched)
        log = self.logs[partition]
        log.append((header, data))
        self._locks[partition, lock] = len(log) - 1
        return Committed(partition, len(log) - 1)

    async def get_data(self, partition: int, transaction_id: int, *, deadline_seconds: float) -> bytes:
        await self._nap()
        return self.logs[partition][transaction_id][1]

    def feed(self, partition: int, *, after: int, headers_only: bool) -> "FakeFeed":
        return FakeFeed(self.logs[partition], partition, after)

    async def _nap(self) -> None:
        await asyncio.sleep(self._random.choice((0, 0, 0.001)))


class FakeFeed:
    """Headers of one partition, a little late."""

    def __init__(self, log: list[tuple[int, bytes]], partition: int, after: int) -> None:
        self._log = log
        self._partition = partition
        self._next = after + 1

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        pass

    async def batches(self) -> AsyncIterator[list[FeedTransaction]]:
        while True:
            await asyncio.sleep(0.001)
            end = min(len(self._log), self._next + 7)
            if self._next < end:
                ids = range(self._next, end)
                self._next = end
                yield [FeedTransaction((0, 0, self._partition, 0, id_, self._log[id_][0])) for id_ in ids]


def _arguments(number: int) -> WriterArguments:
    return WriterArguments("", "", None, number, writers=2, in_flight=40, deadline_seconds=1.0)


async def _write(plan: FlightPlan, log: FakeLog) -> list[Writer]:
    writers = [
        Writer(cast(WaltzClient, log), plan, plan.flights[number::2], _arguments(number))
        for number in range(2)
    ]
    async with asyncio.TaskGroup() as group:
        for writer in writers:
            group.create_task(writer.run())
    await asyncio.sleep(0.02)  # what was given up may still commit
    return writers


@pytest.mark.parametrize("seed", range(5))
async def test_every_row_once_and_every_chain_whole_in_spite_of_unknown_outcomes(seed: int) -> None:
    plan = make_plan(load_flights(1_200), PARTITIONS)
    log = FakeLog(seed, problem=0.2)
    writers = await _write(plan, log)
    checker = FlightChecker(plan.flights)
    for partition, transactions in enumerate(log.logs):
        for transaction_id, (_, data) in enumerate(transactions):
            checker.add(partition, transaction_id, data)
    verdict = checker.verdict()
    assert verdict.passed, verdict.findings
    measures = [writer.measures for writer in writers]
    assert sum(one.committed for one in measures) == 1_200
    assert sum(one.lock_conflicts for one in measures) > 0
    assert sum(one.unknown_resolved_present for one in measures) > 0
    assert sum(one.unknown_resolved_absent for one in measures) > 0
    assert log.given_up_and_committed > 0


async def test_chains_refuse_a_feed_with_a_gap() -> None:
    chains = Chains()
    chains.apply(0, 5)
    with pytest.raises(ValueError, match="from 0 to 2"):
        chains.apply(2, 5)


async def test_chains_find_flights_and_wake_waiters() -> None:
    chains = Chains()
    waiter = asyncio.get_running_loop().create_task(chains.wait_applied(2))
    for transaction_id, header in enumerate((7, 8, 7)):
        await asyncio.sleep(0)
        assert not waiter.done()
        chains.apply(transaction_id, header)
        chains.applied_some()
    await waiter
    assert (chains.previous(7), chains.previous(8), chains.previous(9)) == (2, 1, None)
    assert (chains.after(7, -1), chains.after(7, 0), chains.after(7, 2)) == ([0, 2], [2], [])


def test_ctrl_c_passes_through_the_process_of_a_writer(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(writer, "WriterArguments", lambda **_: None)
    monkeypatch.setattr(asyncio, "Runner", interrupted)
    monkeypatch.setattr(sys, "argv", ["writer", "{}"])
    with pytest.raises(KeyboardInterrupt):
        writer.main()
