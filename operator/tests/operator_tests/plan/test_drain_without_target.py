"""A drain whose group has no other node is not done: it waits for one, says so, and ends at its deadline."""

from __future__ import annotations

from dataclasses import replace

from operator_tests.plan import cluster
from operator_tests.plan.cluster import NOW, name
from operator_tests.plan.test_beginning import one_group
from operator_tests.plan.test_deadline import LIMIT, LONG_AGO, decide
from operator_tests.plan.test_migration_size import written
from waltz_operator.api.migration import MigrationPhase
from waltz_operator.model.task import Task, TaskKind

TASK = Task("m", "u", TaskKind.DRAIN, "1", source=name(0), deadline_seconds=LIMIT, progressed_at=NOW)


def test_it_waits_for_a_node_and_says_so() -> None:
    decision = decide(cluster.facts(), TASK)
    assert decision.task.phase is not MigrationPhase.COMPLETED
    assert (decision.reason, decision.message) == (
        "NoTarget",
        "partition 0: no other node of its group can take it: add one",
    )
    assert [record.move.partition for record in decision.task.records] == [0]


def test_it_fails_after_its_deadline() -> None:
    decision = decide(cluster.facts(), replace(TASK, progressed_at=LONG_AGO))
    assert decision.task.phase is MigrationPhase.FAILED
    assert "NoTarget" in decision.task.failure


def test_its_plan_names_what_has_no_place() -> None:
    decision = decide(cluster.facts(), replace(TASK, dry_run=True))
    assert [record.move.target for record in decision.task.records] == [None]


def test_it_begins_when_there_is_one() -> None:
    found = cluster.facts(cluster.kube(nodes=(0, 1, 2, 3)), nodes=(0, 1, 2, 3), assigned=(0, 1, 2))
    waited = decide(cluster.facts(), TASK).task
    decision = decide(one_group(found, (0, 3), (0, 1, 2, 3)), waited)
    assert [record.move.target for record in decision.task.under_way] == [name(3)]
    assert len(decision.task.records) == 1


def test_a_node_that_has_nothing_is_drained_already() -> None:
    found = cluster.facts(nodes=(0, 1, 2, 3), assigned=(1, 2, 3))
    assert decide(found, TASK).task.phase is MigrationPhase.COMPLETED


def test_it_is_read_back_as_it_was_recorded() -> None:
    waits = decide(cluster.facts(), TASK).task
    again, status = written(waits)
    assert status["progress"] == "0/1"
    assert [(one.move.partition, one.move.target) for one in again.records] == [(0, None)]
