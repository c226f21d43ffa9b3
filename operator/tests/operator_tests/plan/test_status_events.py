"""The Events that a change of status is worth."""

from __future__ import annotations

import pytest

from waltz_operator.api.cluster_status import (
    Condition,
    ConditionStatus,
    NodeStatus,
    ServerMoveState,
    ServerMoveStatus,
    ServersStatus,
    WaltzClusterStatus,
)
from waltz_operator.api.migration import MigrationPhase, WaltzMigrationStatus
from waltz_operator.model.snapshot import ObjectKey
from waltz_operator.plan.status.events import cluster_events, migration_events

ABOUT = ObjectKey("WaltzCluster", "ledger")
MIGRATION = ObjectKey("WaltzMigration", "m")


def one(kind: str, status: ConditionStatus, reason: str = "AsWanted", text: str = "a text") -> Condition:
    return Condition(type=kind, status=status, reason=reason, message=text, last_transition_time="now")


def status(*conditions: Condition, servers: int = 2, nodes: tuple[str, ...] = ("1-0",)) -> WaltzClusterStatus:
    return WaltzClusterStatus(
        conditions=conditions,
        servers=ServersStatus(replicas=servers),
        nodes=tuple(NodeStatus(name=name, connect_string=name) for name in nodes),
    )


def said(last: WaltzClusterStatus, now: WaltzClusterStatus) -> list[tuple[str, str]]:
    return [(event.reason, event.type) for event in cluster_events(ABOUT, last, now)]


GOOD, LOST = one("Available", "True"), one("Available", "False", "Unhealthy")
CASES = [
    ("lost", status(GOOD), status(LOST), [("NotAvailable", "Warning")]),
    ("not known", status(GOOD), status(one("Available", "Unknown")), [("NotAvailable", "Warning")]),
    ("back", status(LOST), status(GOOD), [("Available", "Normal")]),
    ("the first time", WaltzClusterStatus(), status(GOOD), [("Available", "Normal")]),
    ("not yet", WaltzClusterStatus(), status(LOST), []),
    ("as before", status(GOOD), status(GOOD), []),
    (
        "tree lost",
        status(one("Valid", "True")),
        status(one("Valid", "False", "TreeLost")),
        [("TreeLost", "Warning")],
    ),
    (
        "disk lost",
        status(one("Degraded", "True", "NodeSilent")),
        status(one("Degraded", "True", "DiskLost")),
        [("DiskLost", "Warning")],
    ),
    ("a restart", status(one("Degraded", "False")), status(one("Degraded", "True", "NodeSilent")), []),
    (
        "scaled",
        status(GOOD, servers=2, nodes=("1-0", "2-0")),
        status(GOOD, servers=3, nodes=("1-0", "3-0")),
        [("Scaled", "Normal")] * 3,
    ),
    ("paused", status(one("Paused", "False")), status(one("Paused", "True")), [("Paused", "Normal")]),
    (
        "paused from the beginning",
        WaltzClusterStatus(),
        status(one("Paused", "True")),
        [("Paused", "Normal")],
    ),
    (
        "no longer paused",
        status(one("Paused", "True")),
        status(one("Paused", "False")),
        [("Paused", "Normal")],
    ),
    ("still paused", status(one("Paused", "True")), status(one("Paused", "True")), []),
    ("never paused", WaltzClusterStatus(), status(one("Paused", "False")), []),
    ("not seen", status(GOOD, servers=2), status(GOOD, servers=0), []),
]


@pytest.mark.parametrize(("last", "now", "events"), [case[1:] for case in CASES], ids=[c[0] for c in CASES])
def test_an_event_of_each_change(
    last: WaltzClusterStatus, now: WaltzClusterStatus, events: list[tuple[str, str]]
) -> None:
    assert said(last, now) == events


def test_a_partition_that_moved_by_load_is_an_event_once_and_with_the_reason() -> None:
    due = ServerMoveStatus(partition=3, source=1, target=2, at="2026-01-01T00:00:00Z", message="a reason")
    done = due.model_copy(update={"state": ServerMoveState.DONE})
    given_up = due.model_copy(update={"state": ServerMoveState.GIVEN_UP})

    def with_moves(*moves: ServerMoveStatus) -> WaltzClusterStatus:
        return status(GOOD).model_copy(update={"servers": ServersStatus(replicas=2, moves=moves)})

    (event,) = cluster_events(ABOUT, with_moves(due), with_moves(done))
    assert (event.reason, event.type) == ("PartitionMoved", "Normal")
    assert event.text == "partition 3 moved from server 1 to 2: a reason"
    again = done.model_copy(update={"at": "2026-01-01T01:00:00Z"})
    for last, now, events in (
        (with_moves(), with_moves(due), 0),
        (with_moves(due), with_moves(given_up), 0),
        (with_moves(done), with_moves(done), 0),
        (with_moves(done), with_moves(done, again), 1),
    ):
        assert len(list(cluster_events(ABOUT, last, now))) == events


def test_the_begin_and_the_end_of_a_migration_on_both_objects() -> None:
    pending = WaltzMigrationStatus()
    running = WaltzMigrationStatus(phase=MigrationPhase.RUNNING, what="drain 1-0", started_at="t1")
    ended = WaltzMigrationStatus(
        phase=MigrationPhase.COMPLETED, what="drain 1-0", reason="Completed", progress="3/3", finished_at="t2"
    )
    begun = list(migration_events(MIGRATION, ABOUT, pending, running))
    assert [(event.about, event.reason) for event in begun] == [
        (MIGRATION, "Migrating"),
        (ABOUT, "Migrating"),
    ]
    assert list(migration_events(MIGRATION, ABOUT, running, running)) == []
    over = list(migration_events(MIGRATION, ABOUT, running, ended))
    assert [(event.about, event.reason) for event in over] == [(MIGRATION, "Completed"), (ABOUT, "Completed")]
    assert "3/3" in over[0].text
    assert list(migration_events(MIGRATION, ABOUT, ended, ended)) == []
