"""What a migration counts after it was begun again."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from operator_tests.plan.cluster import NOW
from operator_tests.plan.test_placement import look, task
from waltz_operator.api.migration import MigrationPhase, MoveState
from waltz_operator.model.desired import Move, MoveKind
from waltz_operator.model.facts import Facts
from waltz_operator.model.snapshot import Unknown
from waltz_operator.model.task import Record, TaskKind
from waltz_operator.plan.migration import decide_task
from waltz_operator.plan.status.migration import listed

MANY = 250


def big(*, done: tuple[int, ...] = (), silent: bool = False) -> Facts:
    """a0 has 250 partitions but those that are done, which a1 has."""
    left = tuple(p for p in range(MANY) if p not in done)
    held = {"a0": left, "a1": done, "b0": tuple(range(MANY)), "b1": ()}
    away = {"a1": Unknown("it does not answer")} if silent else None
    return look(held, nodes=("a0", "a1", "b0"), says=away, partitions=MANY)


def test_a_migration_that_failed_and_is_begun_again_has_as_many_partitions_as_before() -> None:
    asked = task(TaskKind.DRAIN, "a0", deadline_seconds=60, parallel=1, phase=MigrationPhase.RUNNING)
    one = replace(
        asked,
        records=(Record(Move(MoveKind.MOVE, 0, "a0", "a1"), MoveState.STARTED),),
        unlisted=MANY - 1,
        progressed_at=NOW - 61,
    )
    found = big(silent=True)
    for _ in range(4):
        one = decide_task(replace(found, tasks=(one,)), one).task
        shown, earlier, unlisted = listed(one)
        one = replace(one, records=shown, earlier=earlier, unlisted=unlisted)
    assert one.phase is MigrationPhase.FAILED
    one = replace(one, retry="1", parallel=4)
    found = big()
    for _ in range(3):
        one = decide_task(replace(found, tasks=(one,)), one).task
        shown, earlier, unlisted = listed(one)
        one = replace(one, records=shown, earlier=earlier, unlisted=unlisted)
        total = earlier.done + earlier.cancelled + len(shown) + unlisted
    assert one.phase is MigrationPhase.RUNNING
    assert total == MANY


def test_a_rebalance_that_is_begun_again_lists_a_partition_and_target_once() -> None:
    """The API server takes no status that lists one twice (a list map by partition and target), so nothing
    of the migration would ever be written again. Partition 3 went to a1, then elsewhere (another migration,
    while this one had failed), and is to come to a1 again from there."""
    done = Record(Move(MoveKind.MOVE, 3, "a0", "a1"), MoveState.DONE)
    asked = task(TaskKind.REBALANCE, group="a", phase=MigrationPhase.FAILED, failure="why", retry="1")
    one = replace(asked, records=(done,))
    found = look({"a0": (0,), "a1": (), "a2": (1, 2, 3), "b0": (0, 1, 2, 3)}, nodes=("a0", "a1", "a2", "b0"))
    for _ in range(2):
        one = decide_task(replace(found, tasks=(one,)), one).task
        keys = Counter((r.move.partition, r.move.target) for r in one.records)
        assert max(keys.values()) == 1
