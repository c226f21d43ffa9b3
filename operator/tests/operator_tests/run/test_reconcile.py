"""How soon the next pass comes: by what was written, and by what the plan waits for."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast
from unittest.mock import MagicMock

import pytest

from operator_tests.plan.cluster import answer, facts, kube
from waltz_operator.api.metadata import FINALIZER
from waltz_operator.api.migration import MigrationPhase
from waltz_operator.model.actions import (
    Action,
    ApplyObject,
    AssignInZooKeeper,
    DeletePod,
    EmitEvent,
    Plan,
    SetAvailability,
    SetFinalizer,
)
from waltz_operator.model.desired import Move, MoveKind
from waltz_operator.model.snapshot import ObjectKey
from waltz_operator.plan.builder import AT_ONCE, LATER, SOON, Decision
from waltz_operator.run.apply import Outcome
from waltz_operator.run.reconcile import Reconciler
from waltz_operator.tls.secrets import TlsSecrets

RESYNC_SECONDS = 60.0
EVENT = EmitEvent(ObjectKey("WaltzCluster", "ledger"), "Restarting", "a node is restarted")
ASSIGN = AssignInZooKeeper({"a:1": (0,)}, 1, False)
ONLINE = SetAvailability("a:1", 2, 0, True)
FINALIZER_PUT = SetFinalizer(ObjectKey("WaltzMigration", "m"), "uid", True)
BUDGET = ApplyObject(ObjectKey("PodDisruptionBudget", "ledger-storage"), {"metadata": {}}, "it differs")
RESTART = DeletePod("ledger-storage-1-0-0", "uid", "its image is another", "all others are current")


async def pause_after(*actions: Action, planned: float = LATER) -> float:
    """Seconds until the next pass after one that carried out these actions."""
    metadata = SimpleNamespace(name="ledger", finalizers=(FINALIZER,), deleting=False)
    snapshot = SimpleNamespace(
        cluster=SimpleNamespace(metadata=metadata), problems=("x",), migrations=(), rejected={}, now=0.0
    )
    looked = SimpleNamespace(
        snapshot=snapshot,
        access=SimpleNamespace(secrets=TlsSecrets()),
        unreadable=(),
        look=None,
        own_writes={},
        written={},
    )

    class Fake:
        async def observe(self, *_: str) -> Any:
            return looked

        def plan(self, _: object) -> Plan:
            return Plan(actions, cast("Any", None), (), planned, False)

        async def apply(self, steps: Any, _: object) -> Outcome:
            return Outcome(tuple(steps), None, "", False)

    fake = cast("Any", Fake())
    result = await Reconciler(fake, fake, fake, MagicMock(), RESYNC_SECONDS).reconcile("demo", "ledger")
    return result.requeue_seconds


@pytest.mark.parametrize(
    ("actions", "seconds"),
    [
        ((ASSIGN,), AT_ONCE),
        ((ONLINE, ASSIGN, EVENT), AT_ONCE),
        ((FINALIZER_PUT, EVENT), AT_ONCE),
        ((BUDGET, ONLINE, ASSIGN), AT_ONCE),
        ((ONLINE, RESTART), SOON),
        ((EVENT,), LATER),
        ((), LATER),
    ],
)
async def test_what_no_watch_tells_of_is_looked_at_at_once(
    actions: tuple[Action, ...], seconds: float
) -> None:
    assert await pause_after(*actions) == seconds


async def test_a_pass_that_wrote_nothing_waits_as_long_as_the_plan_says() -> None:
    assert await pause_after(planned=SOON) == SOON
    assert await pause_after(planned=2 * RESYNC_SECONDS) == RESYNC_SECONDS


@pytest.mark.parametrize(("busy", "looks"), [((), 1), (("c",), 2), (("a", "c"), 2)])
async def test_migrations_that_have_ended_cost_no_look(busy: tuple[str, ...], looks: int) -> None:
    """People keep them; before, each one that was there made every pass ask everybody once more."""

    def about(name: str) -> Any:
        return SimpleNamespace(name=name, finalizers=(FINALIZER,), deleting=False)

    status = SimpleNamespace(phase=MigrationPhase.RUNNING)
    migrations = tuple(SimpleNamespace(metadata=about(name), status=status) for name in "abcd")
    snapshot = SimpleNamespace(
        cluster=SimpleNamespace(metadata=about("ledger")),
        problems=("x",),
        migrations=migrations,
        rejected={},
        now=0.0,
    )
    looked: list[str] = []

    class Fake:
        async def observe(self, *_: str) -> Any:
            looked.append("look")
            return SimpleNamespace(
                snapshot=snapshot,
                access=SimpleNamespace(secrets=TlsSecrets()),
                unreadable=(),
                look=None,
                own_writes={},
                written={},
            )

        def plan(self, _: object) -> Plan:
            return Plan((), cast("Any", None), (), LATER, False)

        def plan_migration(self, name: str, *_: object) -> Plan:
            return Plan((ASSIGN,) if name in busy else (), cast("Any", None), (), SOON, False)

        async def apply(self, steps: Any, _: object) -> Outcome:
            return Outcome(tuple(steps), None, "", False)

    fake = cast("Any", Fake())
    result = await Reconciler(fake, fake, fake, MagicMock(), RESYNC_SECONDS).reconcile("demo", "ledger")
    assert len(looked) == looks
    assert (result.wrote, result.requeue_seconds) == ((True, AT_ONCE) if busy else (False, SOON))


@pytest.mark.parametrize(
    ("kind", "looks", "moved"),
    [("PodDisruptionBudget", 2, True), ("ConfigMap", 1, False)],
)
async def test_a_budget_keeps_no_migration_waiting(kind: str, looks: int, moved: bool) -> None:
    """It follows each change of the copies, so a migration lost a pass to it at each of its steps."""
    metadata = SimpleNamespace(name="ledger", finalizers=(FINALIZER,), deleting=False)
    snapshot = SimpleNamespace(
        cluster=SimpleNamespace(metadata=metadata),
        problems=("x",),
        migrations=(
            SimpleNamespace(metadata=metadata, status=SimpleNamespace(phase=MigrationPhase.RUNNING)),
        ),
        rejected={},
        now=0.0,
    )
    made: list[Action] = []
    looked: list[str] = []

    class Fake:
        async def observe(self, *_: str) -> Any:
            looked.append("look")
            return SimpleNamespace(
                snapshot=snapshot,
                access=SimpleNamespace(secrets=TlsSecrets()),
                unreadable=(),
                look=MagicMock(at=0.0),
                own_writes={},
                written={},
            )

        def plan(self, _: object) -> Plan:
            applied = ApplyObject(ObjectKey(kind, "ledger-storage"), {"metadata": {}}, "it differs")
            return Plan((applied,), cast("Any", None), (), LATER, False)

        def plan_migration(self, name: str, *_: object) -> Plan:
            return Plan((ASSIGN,), cast("Any", None), (), SOON, False)

        async def apply(self, steps: Any, _: object) -> Outcome:
            made.extend(steps)
            return Outcome(tuple(steps), None, "", False)

    fake = cast("Any", Fake())
    reconciler = Reconciler(fake, fake, fake, MagicMock(), RESYNC_SECONDS)
    reconciler.looks.watching = lambda: True
    result = await reconciler.reconcile("demo", "ledger")
    assert (len(looked), ASSIGN in made, result.wrote) == (looks, moved, True)
    assert reconciler.looks.usable(("demo", "ledger"), 0.0) is None, "what was seen is older than the write"


def test_a_change_of_what_is_under_way_only_waits_for_its_record() -> None:
    decision = Decision(facts(kube(), {1: answer()}).memory)
    decision.soon()
    decision.recorded(Move(MoveKind.ADD, 0, None, "a:1"))
    decision.soon()
    assert decision.requeue_seconds == AT_ONCE
