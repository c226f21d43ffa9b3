"""A node loses its journal, which alone knew that a copy on it had been taken away."""

from __future__ import annotations

import asyncio

import pytest

from tests.sim.cluster.storage_role import StorageRole
from tests.sim.faults.journal_faults import journal_lost
from tests.sim.faults.plan import Fault
from tests.sim.faults.storage_faults import lose_disk
from tests.sim.scenarios.stage import Stage, play, seeds


async def with_journal(stage: Stage, role: StorageRole) -> None:
    """The node starts again until it has a journal, as it has in most of its lives."""
    role.journals = stage.loop.rng("journals")
    while role.node is None or not role.node.manager.journaling:
        role.kill()
        await stage.until(lambda: role.node is not None, 10.0, "it serves again")


@pytest.mark.parametrize("seed", seeds(4))
def test_scenario_what_is_left_of_a_copy_that_was_taken_away_is_thrown_away(seed: int) -> None:
    """The node refuses without its journal. Then its directory is reset, and what remains of the copy is
    damaged or stale: nobody counts on it, and an administrator removes it."""

    async def script(stage: Stage) -> None:
        role = stage.rng.choice(list(stage.storage.values()))
        await with_journal(stage, role)
        for partition in range(2):
            assert len(await stage.write(10, partition=partition)) == 10
        await stage.whole()
        await stage.admin.unassign(1, role.name)
        await stage.admin.sync_partitions(20.0)
        assert len(await stage.write(5, partition=1)) == 5
        await stage.whole()
        await journal_lost(stage, Fault(1, 0.0, "journal-lost", (role.name,), 0.5, 0.5))
        assert len(await stage.write(5)) == 5
        await stage.whole()
        assert role.node is not None
        assert list(role.node.manager.status()) == [0]

    play(seed, script, partitions=2, storage_nodes=4)


@pytest.mark.parametrize("seed", seeds(2))
def test_scenario_a_disk_is_lost_while_its_journal_is_missed(seed: int) -> None:
    """There is no directory left that an administrator could reset: the node begins with an empty one."""

    async def script(stage: Stage) -> None:
        role = stage.rng.choice(list(stage.storage.values()))
        await with_journal(stage, role)
        assert len(await stage.write(10)) == 10
        await stage.whole()
        async with asyncio.TaskGroup() as group:
            group.create_task(journal_lost(stage, Fault(1, 0.0, "journal-lost", (role.name,), 0.5, 0.5)))
            await asyncio.sleep(0.5)
            role.hold()
            role.power_off()
            lose_disk(stage, role)
            role.release()
        await stage.repairs.refill(role.name)
        assert len(await stage.write(5)) == 5
        await stage.whole()
        assert role.node is not None

    play(seed, script, partitions=1, storage_nodes=4)
