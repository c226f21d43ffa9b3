"""What users of the log are promised: each checker is shown a history that breaks its invariant, and only
that one."""

from __future__ import annotations

import random
import time

import pytest

from tests.sim.checkers.history import AppendOp
from tests.sim.checkers.linearizable import check_linearizable
from tests.sim.checkers.story import Story
from tests.sim.checkers.suite import check_all
from waltz_protocol.locks import LockId

A = LockId("lock", 1)


# -- applications --------------------------------------------------------------------------------------------


def test_bank_overdraft() -> None:
    story = Story()
    story.append("bank", {"from": 0, "to": 1, "amount": 130, "from_had": 100, "to_had": 100})
    assert story.broken() == {"bank"}


def test_bank_lost_update() -> None:
    story = Story()
    story.append("bank", {"from": 0, "to": 1, "amount": 30, "from_had": 100, "to_had": 100})
    story.append("bank", {"from": 0, "to": 2, "amount": 30, "from_had": 100, "to_had": 100})
    assert story.broken() == {"bank"}


@pytest.mark.parametrize(
    "body",
    [
        {"register": 0, "old": -1},
        {"register": 0, "saw": -1},
        {"register": 1, "old": -1, "other": 0, "other_saw": -1},
    ],
)
def test_registers(body: dict[str, int]) -> None:
    story = Story()
    story.append("registers", {"register": 0, "old": -1})
    story.append("registers", body)
    assert story.broken() == {"registers"}


def test_counters_a_seal_that_missed_an_addition() -> None:
    story = Story()
    story.append("counters", {"counter": 0, "add": 3})
    story.append("counters", {"counter": 0, "sum": 0})
    assert story.broken() == {"counters"}


def test_duty_write_skew() -> None:
    story = Story()
    story.append("duty", {"pair": 0, "who": 0, "on": False, "other_was": True})
    story.append("duty", {"pair": 0, "who": 1, "on": False, "other_was": True})
    assert story.broken() == {"duty"}


@pytest.mark.parametrize(
    ("rows", "mark"),
    [
        ([(0, 0), (0, 0)], 0),
        ([(0, 0), (0, 0)], 1),
        ([(1, 1)], 1),
        ([(0, 1), (1, 0)], 1),
        ([(0, 0), (1, 1), (2, 2)], 2),
    ],
)
def test_database(rows: list[tuple[int, int | None]], mark: int) -> None:
    story = Story()
    story.append()
    story.append()
    story.history.database("db", 0).apply(rows, mark)
    assert story.broken() == {"database"}


def test_database_with_another_total() -> None:
    story = Story()
    story.append()
    state = story.history.database("db", 0)
    state.apply([(0, 0)], 0)
    state.total += 1
    assert story.broken() == {"database"}


# -- the independent checker ---------------------------------------------------------------------------------


def test_linearizable_rejects_a_register_that_went_back() -> None:
    story = Story()
    first = story.append("registers", {"register": 0, "old": -1})
    story.append("registers", {"register": 0, "old": first.uid})
    story.append("registers", {"register": 0, "saw": first.uid})
    found = check_linearizable(story.history, story.truth())
    assert [violation.invariant for violation in found] == ["linearizable"]
    assert found[0].text.startswith("register (0, 0): history is not linearizable")


def test_linearizable_rejects_a_stale_id() -> None:
    """Two appends one after the other whose ids are in the other order: only real time contradicts them."""
    story = Story()
    first = story.invoke()
    story.history.committed(first, 1)
    second = story.invoke()
    story.history.committed(second, 0)
    story.commit(second), story.commit(first)
    assert check_linearizable(story.history, story.truth())


def test_linearizable_accepts_concurrent_appends_in_any_order() -> None:
    story = Story()
    ops = [story.invoke(process=f"p{n}") for n in range(20)]
    for op in random.Random(1).sample(ops, len(ops)):
        if op.uid % 5:
            story.told(op)
        else:
            story.commit(op)
    assert not check_linearizable(story.history, story.truth())


def test_linearizable_a_large_history_is_cut_in_the_order_of_the_log() -> None:
    story = Story()
    held: AppendOp = story.invoke()
    for n in range(300):
        story.append(
            "counters", {"counter": 0, "add": 1} if n % 3 else {"counter": 0, "sum": n - (n + 2) // 3}
        )
    story.told(held)
    assert not check_linearizable(story.history, story.truth(), max_operations=100)


def test_a_thousand_appends_take_little_time() -> None:
    story = Story(partitions=3)
    for n in range(1000):
        story.append(partition=n % 3, write_locks=[A], as_of=None)
    for partition in range(3):
        story.feed(partition=partition)
    started = time.process_time()
    assert check_all(story.history, story.truth())[0] == []
    assert time.process_time() - started < 1.0  # about 0.05 s
