"""What is kept of a pass that wrote the status of a migration."""

from __future__ import annotations

from typing import Any

from operator_tests.run.test_refusals import stage, waltz_cluster, waltz_migration
from operator_tests.run.test_resting import at_rest
from waltz_operator.model.actions import Plan, SetStatus
from waltz_operator.model.snapshot import ObjectKey, Snapshot
from waltz_operator.run.process import PurePlanner


async def test_a_status_that_a_migration_had_for_a_moment_does_not_stay() -> None:
    """Its node is silent for one pass. The watch reports only our own write, which wakes nobody, and the look
    that was kept has the status of before."""

    class Planner(PurePlanner):
        says = "it waits"

        def plan_migration(self, name: str, snapshot: Snapshot, *_: Any) -> Plan:
            last = snapshot.migrations[0]
            status = last.status.model_copy(update={"message": self.says})
            about = ObjectKey("WaltzMigration", name)
            write = SetStatus(about, last.metadata.uid, last.metadata.resource_version, status)
            return Plan((write,) if status != last.status else (), status)

    planner = Planner()
    async with stage(waltz_cluster(), waltz_migration("m1"), planner=planner) as found:
        server = await at_rest(found)

        def reported() -> str:
            return str(server.objects["WaltzMigration", "m1"]["status"]["message"])

        assert reported() == "it waits"
        found.loop.looks.changed(("demo", "ledger"))
        await found.settle(3)
        planner.says = "its node is silent"
        await found.one_pass()
        assert reported() == "its node is silent"
        planner.says = "it waits"
        await found.settle(30)
        assert reported() == "it waits"
