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
        for copied in copies:
            at = lines.index(copied)
            before, after = lines[at - 1], lines[at + 2]
            require(before.startswith("assign partition"), f"not in the pass of its assignment: {before}")
            require(after.startswith("assign in ZooKeeper"), f"not in the pass of its copy: {after}")
        for copied in copies[:PARTITIONS]:
            record = lines[lines.index(copied) - 3]
            require(record.startswith("write the status of"), f"no record came before: {record}")
        # a pass for each change of the assignments, one for what is removed; some that wait for a server
        require(passes["a group more"] <= 3 * PARTITIONS + 6, f"{passes}")
        require(passes["a drain"] <= 5 * (PARTITIONS // 2) + 6, f"{passes}")

    plane.run(scenario)
