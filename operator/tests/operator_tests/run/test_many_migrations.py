"""However many migrations a tenant keeps, a pass over them is short, and never keeps the event loop for long:
the Lease of the operator is renewed on it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from operator_tests.kube.objects import ObjectsKube
from operator_tests.run.test_refusals import Stage, stage, waltz_cluster, waltz_migration
from waltz_operator.api.metadata import RETRY
from waltz_operator.kube.client import Object
from waltz_operator.model.actions import Plan
from waltz_operator.model.facts import Facts, facts_of
from waltz_operator.model.snapshot import Snapshot
from waltz_operator.run.process import PurePlanner

MANY = 40


class Counting(PurePlanner):
    """`planned`: names of migrations, in order. `turns`: of another task of the loop, at each of them."""

    def __init__(self) -> None:
        self.planned: list[str] = []
        self.turns: list[int] = []
        self.turn = 0

    def plan_migration(self, name: str, snapshot: Snapshot, facts: Callable[[], Facts] | None = None) -> Plan:
        self.planned.append(name)
        self.turns.append(self.turn)
        return super().plan_migration(name, snapshot, facts)

    async def other_task(self) -> None:
        while True:
            self.turn += 1
            await asyncio.sleep(0)


def over(name: str, **status: Any) -> Object:
    migration = waltz_migration(name)
    migration["status"] = {"observedGeneration": 1, "phase": "Completed", **status}
    return migration


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[Snapshot]:
    """The snapshots whose facts were made for migrations."""
    found: list[Snapshot] = []

    def counted(snapshot: Snapshot) -> Facts:
        found.append(snapshot)
        return facts_of(snapshot)

    for module in ("plan.migration", "run.resting_migrations"):
        monkeypatch.setattr(f"waltz_operator.{module}.facts_of", counted, raising=False)
    return found


async def settled(found: Stage, planner: Counting, made: list[Snapshot], *, watching: bool) -> ObjectsKube:
    found.loop._wall_clock = lambda: found.now
    found.loop.looks.watching = lambda: watching
    await found.settle(MANY + 4)
    planner.planned.clear()
    made.clear()
    return found.server


@pytest.mark.parametrize("watching", [True, False])
async def test_those_that_are_over_are_not_planned(made: list[Snapshot], *, watching: bool) -> None:
    planner = Counting()
    ended = [over(f"m{i}") for i in range(MANY)]
    async with stage(waltz_cluster(), *ended, planner=planner) as found:
        await settled(found, planner, made, watching=watching)
        result = await found.one_pass()
        assert (planner.planned, made) == ([], [])
        assert not result.wrote


@pytest.mark.parametrize("watching", [True, False])
async def test_the_others_share_the_facts_of_their_look(made: list[Snapshot], *, watching: bool) -> None:
    planner = Counting()
    waiting = [waltz_migration(f"m{i}") for i in range(MANY)]
    async with stage(waltz_cluster(), *waiting, planner=planner) as found:
        await settled(found, planner, made, watching=watching)
        await found.one_pass()
        assert sorted(planner.planned) == sorted(one["metadata"]["name"] for one in waiting)
        assert len(made) == 1


@pytest.mark.parametrize("watching", [True, False])
async def test_other_tasks_have_their_turn_between_two(made: list[Snapshot], *, watching: bool) -> None:
    planner = Counting()
    waiting = [waltz_migration(f"m{i}") for i in range(MANY)]
    async with stage(waltz_cluster(), *waiting, planner=planner) as found:
        await settled(found, planner, made, watching=watching)
        planner.turns.clear()
        async with asyncio.TaskGroup() as group:
            other = group.create_task(planner.other_task())
            await found.one_pass()
            other.cancel()
        assert len(planner.turns) == MANY
        assert all(later > earlier for earlier, later in zip(planner.turns, planner.turns[1:], strict=False))


def again(migration: Object) -> None:
    migration["metadata"]["annotations"] = {RETRY: "1"}


def changed(migration: Object) -> None:
    migration["metadata"]["generation"] = 2


def deleted(migration: Object) -> None:
    migration["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"


def unprotected(migration: Object) -> None:
    migration["metadata"]["finalizers"] = []


def unknown(migration: Object) -> None:
    migration["spec"]["ofALaterVersion"] = True


def said(kind: str, status: str) -> Object:
    return {
        "type": kind,
        "status": status,
        "reason": "Some",
        "message": "",
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    }


def blocked(migration: Object) -> None:
    """As in the pass in which it failed."""
    migration["status"]["conditions"] = [said("Blocked", "True")]


def judged_by_another(migration: Object) -> None:
    """Another release did not know all of it."""
    migration["status"]["conditions"] = [said("Blocked", "False"), said("Valid", "False")]


@pytest.mark.parametrize(
    "change", [again, changed, deleted, unprotected, unknown, blocked, judged_by_another]
)
async def test_one_that_is_over_has_its_turn_when_something_is_asked_of_it(
    made: list[Snapshot], change: Callable[[Object], None]
) -> None:
    planner = Counting()
    failed = over("m1", phase="Failed", failure="x")
    async with stage(waltz_cluster(), over("m0"), failed, over("m2"), planner=planner) as found:
        server = await settled(found, planner, made, watching=True)
        change(server.objects["WaltzMigration", "m1"])
        found.loop.looks.changed(("demo", "ledger"))
        await found.one_pass()
        assert set(planner.planned) == {"m1"}
