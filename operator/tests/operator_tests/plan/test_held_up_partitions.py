"""Many partitions that cannot be moved now come before those that can."""

from __future__ import annotations

from dataclasses import replace

from operator_tests.plan.test_placement import look, task
from waltz_operator.model.snapshot import Unknown
from waltz_operator.model.task import TaskKind
from waltz_operator.plan.migration import decide_task

MANY = 250


def test_partitions_that_can_be_moved_are_moved_whatever_holds_up_the_first_ones() -> None:
    """b0 is away, with the other copy of partitions 0 to 99; b1 has that of the others."""
    held = {"a0": tuple(range(MANY)), "a1": (), "b0": tuple(range(100)), "b1": tuple(range(100, MANY))}
    away = {"b0": Unknown("it does not answer")}
    found = look(held, nodes=("a0", "a1", "b0", "b1"), says=away, partitions=MANY)
    one = task(TaskKind.DRAIN, "a0", parallel=4, deadline_seconds=60)
    decision = decide_task(replace(found, tasks=(one,)), one)
    assert [record.move.partition for record in decision.task.under_way] == [100, 101, 102, 103]
