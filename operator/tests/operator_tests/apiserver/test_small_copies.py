"""Small partitions on a real API server: how many passes they take, and that no Job is started for them."""

from __future__ import annotations

from operator_tests.apiserver import records, stories
from operator_tests.apiserver.conftest import Plane
from operator_tests.apiserver.stories import require
from operator_tests.apiserver.world import World

PARTITIONS = 4
GROUPS = [{"name": "1", "count": 2}, {"name": "2"}, {"name": "3"}]


def test_small_partitions_are_copied_without_a_job_in_few_passes(plane: Plane) -> None:
    async def scenario(world: World) -> None:
        body = stories.spec(storage={"groups": GROUPS}, tls={"mode": "Disabled"})
        await world.create({**body, "partitions": PARTITIONS})
        await world.settle()
        await records.write(world, 3, PARTITIONS)
        passes = {}
        await world.change({"storage": {"groups": [*GROUPS, {"name": "4"}]}})
        passes["a group more"] = await world.settle()
        await records.check(world)
        await world.migrate("drain", drain={"node": "1-0"})
        passes["a drain"] = await world.settle()
        await records.check(world)
        lines = world.journal.lines
        copies = [line for line in lines if line.startswith("copy partition")]
        require(len(copies) == PARTITIONS + PARTITIONS // 2, f"copies: {copies}")
        require(all("compare both" in line for line in copies), f"copies: {copies}")
        statuses = await stories.node_statuses(world)
        held = {name: {one.partition_id for one in status.partitions} for name, status in statuses.items()}
        (added,) = stories.pods("4-0")
        require(held[added] == set(range(PARTITIONS)), f"{held}")
        require(not held[stories.pods("1-0")[0]], f"{held}")
        # a pass for the record, one for the target, one for the copy; some that wait for a server
        require(passes["a group more"] <= 5 * PARTITIONS + 10, f"{passes}")
        require(passes["a drain"] <= 8 * PARTITIONS, f"{passes}")

    plane.run(scenario)
