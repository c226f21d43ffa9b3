"""A cluster at rest costs the API server nothing, and what is decided on what it showed before is never more
than that nothing is to be done."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from operator_tests.kube.objects import ObjectsKube
from operator_tests.run.test_refusals import Stage, stage, waltz_cluster
from waltz_operator.kube.client import Object
from waltz_operator.kube.kinds import Kind
from waltz_operator.model.actions import Plan
from waltz_operator.model.snapshot import Snapshot
from waltz_operator.run.process import PurePlanner
from waltz_operator.run.retained_looks import MAX_AGE_SECONDS

KEY = ("demo", "ledger")
SERVICE = ("Service", "ledger-zookeeper")


class Counted(ObjectsKube):
    """`asked`: every read and write, in order. `during`: called at the first list of a pass."""

    asked: list[str]
    during: Any = None

    async def get(self, kind: Kind, namespace: str | None, name: str) -> Object:
        self.asked.append(f"get {kind.kind}")
        return await super().get(kind, namespace, name)

    async def list(
        self, kind: Kind, namespace: str | None, labels: Mapping[str, str] | None = None
    ) -> list[Object]:
        self.asked.append(f"list {kind.kind}")
        if self.during is not None:
            self.during()
        return await super().list(kind, namespace, labels)

    def _arrives(self, verb: str, kind: str, name: str) -> None:
        self.asked.append(f"{verb} {kind}")
        super()._arrives(verb, kind, name)


def counted(found: Stage) -> Counted:
    found.server.__class__ = Counted
    assert isinstance(found.server, Counted)
    found.server.asked = []
    return found.server


async def at_rest(found: Stage) -> Counted:
    """After the fixed point, with watches."""
    found.loop._wall_clock = lambda: found.now
    found.loop.looks.watching = lambda: True
    await found.settle(10)
    return counted(found)


async def test_at_rest_nothing_is_asked_and_nothing_written() -> None:
    async with stage(waltz_cluster(tls={"mode": "SelfSigned"})) as found:
        server = await at_rest(found)
        await found.settle(20)
        assert server.asked == []


async def test_without_watches_everything_is_read_in_each_pass() -> None:
    async with stage(waltz_cluster()) as found:
        server = await at_rest(found)
        found.loop.looks.watching = lambda: False
        await found.one_pass()
        assert "list Service" in server.asked


async def test_what_a_watch_reports_is_repaired_at_once() -> None:
    async with stage(waltz_cluster()) as found:
        server = await at_rest(found)
        del server.objects[SERVICE]
        found.loop.looks.changed(KEY)
        await found.one_pass()
        assert SERVICE in server.objects


@pytest.mark.parametrize("relisted", [True, False])
async def test_what_no_watch_reports_is_repaired_in_bounded_time(relisted: bool) -> None:
    """Deleted while a watch was away: it begins anew with a list. At the latest all is read again."""
    async with stage(waltz_cluster()) as found:
        server = await at_rest(found)
        del server.objects[SERVICE]
        await found.one_pass()
        assert SERVICE not in server.objects, "nobody said so"
        if relisted:
            found.loop.looks.all_changed()
        else:
            found.now += MAX_AGE_SECONDS
        await found.one_pass()
        assert SERVICE in server.objects


async def test_a_change_that_is_reported_while_everything_is_read_is_not_missed() -> None:
    """The list of Services may have been answered before the change."""
    async with stage(waltz_cluster()) as found:
        server = await at_rest(found)
        found.loop.looks.changed(KEY)
        server.during = lambda: found.loop.looks.changed(KEY)
        await found.one_pass()
        server.during = None
        server.asked.clear()
        await found.one_pass()
        assert "list Service" in server.asked


async def test_whoever_writes_has_read_everything_anew() -> None:
    """A certificate is due, which shows in what was read before: its write is decided on a fresh look."""
    tls = {"mode": "SelfSigned", "authorityLifetimeHours": 300, "certificateLifetimeHours": 1}
    async with stage(waltz_cluster(tls=tls)) as found:
        server = await at_rest(found)
        found.now += 2700.0 - MAX_AGE_SECONDS
        await found.settle(2)
        server.asked.clear()
        found.now += MAX_AGE_SECONDS - 60.0
        result = await found.one_pass()
        assert result.wrote, "no certificate was due: the test is about nothing"
        first = next(i for i, one in enumerate(server.asked) if one.startswith("apply"))
        assert {"get WaltzCluster", "get Secret", "list Service"} <= set(server.asked[:first])


async def test_the_last_step_of_a_deletion_is_not_slept_through() -> None:
    """It follows from what ZooKeeper and the nodes say, and is no action of the plan."""

    class Planner(PurePlanner):
        complete = False

        def plan(self, snapshot: Snapshot) -> Plan:
            made = super().plan(snapshot)
            if not snapshot.cluster.metadata.deleting:
                return made
            return Plan((), made.status, (), 30.0, self.complete)

    planner = Planner()
    async with stage(waltz_cluster(), planner=planner) as found:
        server = await at_rest(found)
        server.objects["WaltzCluster", "ledger"]["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
        found.loop.looks.changed(KEY)
        await found.settle(3)
        planner.complete = True
        assert (await found.one_pass()).gone
