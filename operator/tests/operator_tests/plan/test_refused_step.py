"""A step that is refused over and over, and what a migration at rest writes."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest

from operator_tests.plan.cluster import NOW
from operator_tests.plan.test_deadline import LIMIT, seen
from waltz_operator.api.migration import MigrationPhase, WaltzMigration
from waltz_operator.api.parse import parse_migration
from waltz_operator.model.actions import Plan, SetStatus
from waltz_operator.model.facts import Facts
from waltz_operator.model.snapshot import Failure, NodeView
from waltz_operator.model.task import task_of
from waltz_operator.plan.migration import plan_migration

FAILURE = Failure("assign partition 0 on n3:1: its disk is read-only", False)


def made(**status: Any) -> WaltzMigration:
    body = {
        "apiVersion": "waltz.dev/v1alpha1",
        "kind": "WaltzMigration",
        "metadata": {"name": "m", "uid": "u", "resourceVersion": "1"},
        "spec": {"cluster": "c", "move": {"from": "0-0", "to": "0-3"}, "progressDeadlineSeconds": LIMIT},
        "status": status,
    }
    return parse_migration(body)


def world(monkeypatch: pytest.MonkeyPatch, found: Facts) -> Any:
    """Plans of the migration on these facts: `plan(migration, after, failed)`."""

    def at(after: float) -> Facts:
        nodes = {
            name: replace(one, observed_at=NOW + after) if isinstance(one, NodeView) else one
            for name, one in found.nodes.items()
        }
        return replace(found, now=NOW + after, nodes=nodes)

    names = {one.reference: one.connect_string for one in found.desired.nodes}
    names |= {"0-0": found.desired.nodes[0].connect_string, "0-3": found.desired.nodes[-1].connect_string}

    def plan(migration: WaltzMigration, after: float, failed: Failure | None = None) -> Plan:
        now = at(after)
        one = replace(now, tasks=(task_of(migration, names),))
        monkeypatch.setattr("waltz_operator.plan.migration.facts_of", lambda _: one)
        cluster = SimpleNamespace(metadata=SimpleNamespace(name="c"))
        snapshot = SimpleNamespace(migrations=(migration,), failed=failed, cluster=cluster)
        return plan_migration("m", cast("Any", snapshot))

    return plan


def test_a_step_that_is_refused_over_and_over_fails_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """The target's admin port refuses the assignment (or the API server the Job: quota, webhook). There is
    always something to be done, so the deadline is never asked."""
    plan = world(monkeypatch, seen())
    migration = made()
    for passes in range(2 * LIMIT):
        found = plan(migration, float(passes))
        writes = [one for one in found.actions if type(one).__name__ in ("SetAvailability", "AssignOnNode")]
        if writes:  # the pass ends there, and its failure is reported
            found = plan(migration, float(passes), FAILURE)
        migration = migration._replace(status=cast("Any", found.status))
    assert migration.status.phase is MigrationPhase.FAILED
    assert "read-only" in migration.status.failure


def test_a_migration_of_a_paused_cluster_is_not_written_to(monkeypatch: pytest.MonkeyPatch) -> None:
    """Paused at half: nothing happens, so nothing is to be written, or the cluster is never at rest."""
    found = seen()
    paused = replace(found, desired=replace(found.desired, paused=True))
    plan = world(monkeypatch, paused)
    partitions = [
        {
            "partition": 0,
            "source": "0-0",
            "target": "0-3",
            "state": "Copying",
            "sourceTxid": 9,
            "copiedTxid": 4,
        }
    ]
    migration = made(phase="Running", partitions=partitions, startedAt="1970-01-01T00:10:00Z")
    migration = migration._replace(status=cast("Any", plan(migration, 0.0).status))
    for passes in range(1, 20):
        found_plan = plan(migration, 10.0 * passes)
        assert not [one for one in found_plan.actions if isinstance(one, SetStatus)], passes
        migration = migration._replace(status=cast("Any", found_plan.status))
