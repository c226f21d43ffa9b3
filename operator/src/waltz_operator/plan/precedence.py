"""Which change waits for which: refilling a lost copy comes before any other change of that partition's
replicas.

A lost copy can block a change that is under way permanently: then the migration that refills it must not wait
for that change. The change is suspended meanwhile, where it is (each of its steps is a safe stop), and
continues afterwards. Pure.
"""

from __future__ import annotations

from waltz_operator.model.facts import Facts
from waltz_operator.model.task import Task, TaskKind


def refills(facts: Facts, task: Task, partition: int) -> bool:
    """Whether this migration is to make a lost copy of the partition again, or is at it."""
    if task.kind is not TaskKind.REPLACE or task.over:
        return False
    if task.in_flight is not None:
        return any(record.move.partition == partition for record in task.under_way)
    if task.cancel or task.dry_run or not task.approved or not facts.staying(task.source):
        return False
    return task.source in facts.holders(partition) and facts.data_lost(partition, task.source)


def refiller(facts: Facts, partition: int) -> str | None:
    """Name of the migration that other changes of this partition wait for."""
    return next((task.name for task in facts.tasks if refills(facts, task, partition)), None)
