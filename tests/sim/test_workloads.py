"""Each workload runs clean on a healthy cluster, and sees what it is there to see when the product is
sabotaged."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Sequence

import pytest

from tests.sim.cluster.access import Workload
from tests.sim.cluster.result import Result
from tests.sim.cluster.world import Choice, World
from tests.sim.kernel.loop import collect_remains
from tests.sim.workloads.bank import Bank
from tests.sim.workloads.blind import Blind
from tests.sim.workloads.catalogue import all_workloads, choose
from tests.sim.workloads.closing import Closing
from tests.sim.workloads.contexts import Contexts
from tests.sim.workloads.counters import Counters
from tests.sim.workloads.databases import Databases
from tests.sim.workloads.duty import Duty
from tests.sim.workloads.feeds import Feeds
from tests.sim.workloads.registers import Registers
from waltz_client._internal.append.transaction_monitor import TransactionMonitor
from waltz_client._internal.applier import Applier
from waltz_client._internal.block_reads import HeaderTest, transactions_of
from waltz_client._internal.contexts import Submissions
from waltz_client._internal.stream.feed_cursor import FeedCursor
from waltz_client.transaction import FeedFields, FeedTransaction
from waltz_protocol.frames.blocks import Block
from waltz_protocol.locks import LockTable, Slots

NO_FAULTS = Choice(faults=frozenset(), second_opinion=True)

BUSY_SECONDS = 0.6
"""Alone on a cluster they act more often than in a mix, or they would meet too seldom in one run."""

CATALOGUE: dict[str, Callable[[], list[Workload]]] = {
    "bank": lambda: [Bank(0, mean_seconds=BUSY_SECONDS)],
    "registers": lambda: [Registers(0, mean_seconds=BUSY_SECONDS)],
    "counters": lambda: [Counters(0, mean_seconds=BUSY_SECONDS)],
    "duty": lambda: [Duty(0, mean_seconds=BUSY_SECONDS)],
    "blind": lambda: [Blind(writers=2)],
    "closing": lambda: [Closing(mean_seconds=BUSY_SECONDS)],
    "contexts": lambda: [
        Contexts(0, mean_seconds=BUSY_SECONDS),
        Bank(0, tellers=1, mean_seconds=BUSY_SECONDS),
    ],
    "databases": lambda: [Databases(0), Blind(mean_seconds=2.0)],
    "feeds": lambda: [Feeds(), Blind(mean_seconds=2.0)],
}


def run(workloads: Callable[[], list[Workload]], seed: int = 3) -> Result:
    worlds = [World(seed, NO_FAULTS, lambda _partitions, _rng: workloads())]
    result = worlds[0].run()
    collect_remains(worlds)
    return result


def broken(result: Result) -> set[str]:
    return {violation.invariant for violation in result.violations}


@pytest.mark.parametrize("name", CATALOGUE)
def test_a_healthy_cluster(name: str) -> None:
    result = run(CATALOGUE[name])
    assert result.violations == []
    assert result.counts["appends committed"] > 10


def test_every_workload_is_in_some_mix() -> None:
    every = {workload.name for workload in all_workloads(1, random.Random(0))}
    mixes = [choose(2, random.Random(seed)) for seed in range(40)]
    assert {workload.name for mix in mixes for workload in mix} == every
    assert all(len(mix) <= 6 for mix in mixes)


# -- were they seen to fail? ---------------------------------------------------------------------------------


def ignore_write_locks(table: LockTable, write_locks: Iterable[int], read_locks: Iterable[int]) -> int:
    return _estimate(table, (), read_locks)


def ignore_read_locks(table: LockTable, write_locks: Iterable[int], read_locks: Iterable[int]) -> int:
    return _estimate(table, write_locks, ())


def raise_write_locks_only(
    table: LockTable, write_locks: Sequence[int], append_locks: Sequence[int]
) -> Slots:
    return _slots_to_raise(table, write_locks, ())


_estimate, _slots_to_raise = LockTable.estimate, LockTable.slots_to_raise


@pytest.mark.parametrize("name", ["bank", "contexts"])
def test_bank_sees_write_locks_ignored(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(LockTable, "estimate", ignore_write_locks)
    assert broken(run(CATALOGUE[name])) == {"bank", "serializable"}


def test_registers_see_write_locks_ignored(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(LockTable, "estimate", ignore_write_locks)
    assert broken(run(CATALOGUE["registers"])) == {"registers", "serializable", "linearizable"}


def test_duty_sees_write_skew(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(LockTable, "estimate", ignore_read_locks)
    assert broken(run(CATALOGUE["duty"])) == {"duty", "serializable"}


def test_counters_see_append_locks_ignored(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(LockTable, "slots_to_raise", raise_write_locks_only)
    assert broken(run(CATALOGUE["counters"])) == {"counters", "serializable", "linearizable"}


def doctor_feeds(monkeypatch: pytest.MonkeyPatch, times: Callable[[int], int]) -> None:
    """Each transaction so many times, by its id, whether it is read by headers or in blocks."""
    take, cut = FeedCursor.take_at_most, transactions_of

    def taken(cursor: FeedCursor, limit: int) -> Sequence[FeedFields]:
        return [fields for one in take(cursor, limit) for fields in [one] * times(one[4])]

    def in_block(
        block: Block, where: HeaderTest | None, wants_data: HeaderTest | None
    ) -> list[FeedTransaction]:
        found = cut(block, where, wants_data)
        return [each for one in found for each in [one] * times(one.transaction_id)]

    monkeypatch.setattr(FeedCursor, "take_at_most", taken)
    monkeypatch.setattr("waltz_client.feed.transactions_of", in_block)


def test_feeds_see_a_transaction_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    doctor_feeds(monkeypatch, lambda transaction_id: 0 if transaction_id % 17 == 16 else 1)
    assert "feed_order" in broken(run(CATALOGUE["feeds"]))


def test_databases_see_a_transaction_applied_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    doctor_feeds(monkeypatch, lambda transaction_id: 2 if transaction_id % 17 == 16 else 1)
    assert {"feed_order", "database"} <= broken(run(CATALOGUE["databases"]))


def test_closing_sees_outcomes_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(TransactionMonitor, "close", lambda _: [])
    assert broken(run(CATALOGUE["closing"])) == {"outcome_given"}


def test_contexts_see_endings_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Applier, "report_committed", _forget)
    monkeypatch.setattr(Submissions, "_committed", lambda *_: None)
    assert "context_ended" in broken(run(CATALOGUE["contexts"]))


async def _forget(_: Applier) -> None:
    return None
