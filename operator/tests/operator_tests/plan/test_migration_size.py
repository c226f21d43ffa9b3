"""The status of a migration of 4,096 partitions: bounded, and nothing of what is read back is lost."""

from __future__ import annotations

import json
from dataclasses import replace

from operator_tests.plan.cluster import facts
from waltz_operator.api.migration import MoveState
from waltz_operator.api.parse import parse_migration, status_body
from waltz_operator.model.desired import Move, MoveKind
from waltz_operator.model.reasons import Reason
from waltz_operator.model.task import Record, Task, task_of
from waltz_operator.plan.status.migration import MAX_LISTED, migration_status

PARTITIONS = 250
MOST = 4096
MAX_BYTES = 50_000
BODY = {
    "apiVersion": "waltz.dev/v1alpha1",
    "kind": "WaltzMigration",
    "metadata": {"name": "m"},
    "spec": {"cluster": "c", "drain": {"node": "1-0"}},
}


def record(partition: int, state: MoveState = MoveState.PENDING) -> Record:
    move = Move(MoveKind.MOVE, partition, "source:55280", "target:55280")
    return Record(move, state, 10, "c" * 64, 10, 10, "a message of some length for a person")


def written(task: Task) -> tuple[Task, dict[str, object]]:
    """What the next pass reads of the status, and the status."""
    migration = parse_migration(BODY)
    status = migration_status(migration, facts(), task, (), Reason.MIGRATING, "")
    return task_of(migration._replace(status=status), {}), status_body(status)


def listed_again(task: Task, undone: set[int]) -> Task:
    """As the planner does: what has not begun is known from what is seen."""
    known = {one.move.partition for one in task.records}
    rest = tuple(record(partition) for partition in sorted(undone - known))
    return replace(task, records=(*task.records, *rest), unlisted=0)


def test_the_status_of_the_largest_migration_is_small() -> None:
    task = replace(task_of(parse_migration(BODY), {}), records=tuple(record(one) for one in range(MOST)))
    again, status = written(task)
    assert len(json.dumps(status)) < MAX_BYTES
    assert (status["progress"], len(again.records)) == (f"0/{MOST}", MAX_LISTED)


def test_the_status_is_small_and_counts_everything_to_the_end() -> None:
    undone = set(range(PARTITIONS))
    task = replace(task_of(parse_migration(BODY), {}), records=tuple(record(one) for one in sorted(undone)))
    for number in range(PARTITIONS):
        task, status = written(task)
        if number % 25 == 0:
            assert len(json.dumps(status)) < MAX_BYTES
            assert status["progress"] == f"{number}/{PARTITIONS}"
            assert len(task.records) <= MAX_LISTED
            again, same = written(task)
            assert (again, same["pending"]) == (task, status["pending"]), "it changes by being read"
        task = listed_again(task, undone)
        at = next(i for i, one in enumerate(task.records) if one.state is MoveState.PENDING)
        begun = record(task.records[at].move.partition, MoveState.COPYING)
        task, _ = written(replace(task, records=(*task.records[:at], begun, *task.records[at + 1 :])))
        assert task.in_flight is not None, "what is in progress is always read back"
        undone.remove(task.in_flight.move.partition)
        task = replace(
            task,
            records=tuple(replace(r, state=MoveState.DONE) if r.in_flight else r for r in task.records),
        )
    task, status = written(task)
    assert status["progress"] == f"{PARTITIONS}/{PARTITIONS}"
    assert status["transactionsCopied"] == PARTITIONS * 11
