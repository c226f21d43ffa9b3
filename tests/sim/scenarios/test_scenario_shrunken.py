"""The set of replicas that has everything shrinks, and then it is gone."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from tests.sim.cluster.server_role import CLUSTER_ROOT
from tests.sim.scenarios.stage import Stage, play, seeds
from waltz_cluster.paths import ClusterPaths
from waltz_cluster.serializers import PartitionMetadata
from waltz_cluster.store import ZooKeeperStore


@pytest.mark.parametrize("seed", seeds(4))
def test_scenario_kafka_0_8_recovery_after_the_set_has_shrunk(seed: int) -> None:
    """Kafka 0.8: the set of replicas in sync shrank to the leader alone, which kept acknowledging; then it
    died and one that was behind was elected: what was acknowledged was gone.

    Here one replica falls behind while the two others acknowledge; the session closes without it; then the
    two die and it alone is left with the servers. It must not decide the mark on its own: the partition
    waits, nothing is truncated, and everything is there when one of the two is back.
    """

    async def script(stage: Stage) -> None:
        assert len(await stage.write(10)) == 10
        await stage.whole()
        behind, first, second = stage.rng.sample(list(stage.storage.values()), 3)
        stage.isolate(behind.name)
        assert len(await stage.write(20)) == 20
        if stage.rng.random() < 0.5:
            stage.owner().kill()  # a session that never had the third
            await asyncio.sleep(1.0)
            assert len(await stage.write(5)) == 5
        mark = stage.history.book.mark(0)
        stage.dark([first, second])
        stage.heal_network()
        for role in stage.servers.values():
            role.kill()
        blocked = await stage.write(3, deadline_seconds=15.0)
        assert blocked == []
        assert not stage.serving()
        stage.light([first])
        await stage.until(stage.serving, 60.0, "served again with one of the two")
        assert len(await stage.write(5)) == 5
        assert stage.history.book.mark(0) >= mark + 5
        stage.light([second])

    play(seed, script)


@pytest.mark.parametrize("seed", seeds(2))
def test_scenario_the_last_node_of_a_majority_dies_during_recovery(seed: int) -> None:
    """The same with five replicas, and with a new owner whose recovery is interrupted again and again by
    nodes that come and go."""

    async def script(stage: Stage) -> None:
        assert len(await stage.write(20)) == 20
        nodes = list(stage.storage.values())
        for _ in range(4):
            down = stage.rng.sample(nodes, 2)
            stage.dark(down)
            done = await stage.write(6, deadline_seconds=30.0)
            stage.owner().kill()
            await asyncio.sleep(0.3 * stage.rng.random())
            more = stage.rng.choice([role for role in nodes if role not in down])
            more.kill()
            await asyncio.sleep(0.3 * stage.rng.random())
            stage.light(down)
            assert len(done) == 6
            await stage.until(stage.serving, 60.0, "served again")

    play(seed, script, storage_nodes=5)


def damaged(how: str, saved: bytes | None) -> bytes | None:
    """What is left of the metadata of the partition."""
    if how == "emptied":
        return b""
    if how == "without data":
        return None
    old = PartitionMetadata.from_bytes(saved)
    return replace(old, replicas={}).to_bytes() if how == "without states" else PartitionMetadata().to_bytes()


@pytest.mark.parametrize("seed", seeds(1))
@pytest.mark.parametrize("how", ["emptied", "without data", "without states", "as new", "deleted"])
def test_scenario_storage_7_25_lost_metadata_stops_and_never_truncates(how: str, seed: int) -> None:
    """Release 0.13.2, whose partition metadata in ZooKeeper is lost, takes the log for empty and truncates it
    on every node.

    Here a new owner refuses to open the partition, loudly, for as long as the metadata is missing; restored,
    everything is there.
    """

    async def script(stage: Stage) -> None:
        assert len(await stage.write(20)) == 20
        await stage.whole()
        path = ClusterPaths(CLUSTER_ROOT).partition(0)
        saved: list[bytes | None] = []

        async def lose(store: ZooKeeperStore) -> None:
            saved.append((await store.get(path))[0])
            if how == "deleted":
                await store.delete(path)
            else:
                await store.set(path, damaged(how, saved[0]))

        async def put_back(store: ZooKeeperStore) -> None:
            if await store.exists(path) is None:
                await store.create(path, saved[0])
            else:
                await store.set(path, saved[0])

        for role in stage.servers.values():
            role.hold()
            role.kill()
        await asyncio.sleep(6.0)
        await stage.admin.run("lose", lose)
        for role in stage.servers.values():
            role.release()
        assert await stage.write(2, deadline_seconds=20.0) == []
        assert not stage.serving()
        for holder in stage.storage.values():
            assert holder.node is not None
            assert holder.node.manager.get(0).max_txid >= 19
        for role in stage.servers.values():
            role.hold()
            role.kill()
        await stage.admin.run("put back", put_back)
        for role in stage.servers.values():
            role.release()
        await stage.until(stage.serving, 60.0, "served again")
        assert len(await stage.read_all()) >= 20

    play(seed, script)
