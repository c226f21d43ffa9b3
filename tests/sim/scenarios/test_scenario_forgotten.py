"""A replica that was given up (`waltz storage forget`) and comes back with everything it had."""

from __future__ import annotations

import pytest

from tests.sim.cluster.admin import RefusedError
from tests.sim.faults.common import until_done
from tests.sim.scenarios.stage import Stage, play, seeds
from waltz_server.store.api import StoreState


async def forget(stage: Stage, name: str) -> None:
    """The command, which a lagging follower of ZooKeeper may have refused."""
    await stage.admin.forget(name, [0])


@pytest.mark.parametrize("seed", seeds(3))
def test_scenario_a_forgotten_node_that_comes_back_as_it_was_is_filled(seed: int) -> None:
    """It knows of a session that ZooKeeper lists it for no longer, and is no evidence of an older copy (rule
    A8): it was given up by a person, so it is new. Nothing is lost, and it takes part again."""

    async def script(stage: Stage) -> None:
        assert len(await stage.write(10)) == 10
        await stage.whole()
        forgotten = stage.rng.choice(list(stage.storage.values()))
        with pytest.raises(RefusedError):  # it is well
            await stage.admin.forget(forgotten.name, [0])
        forgotten.hold()
        forgotten.kill()
        for server in stage.servers.values():
            server.hold()
            server.kill()
        await until_done(stage, lambda: forget(stage, forgotten.name))
        forgotten.release()
        for server in stage.servers.values():
            server.release()
        await stage.until(stage.serving, 60.0, "the partition is served")
        stores = [store for role in stage.servers.values() if (store := role.store(0)) is not None]
        assert all(store.state is not StoreState.FAULT for store in stores)
        assert len(await stage.write(5)) == 5
        await stage.whole()

    play(seed, script)
