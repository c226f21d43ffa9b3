"""The recovery examples and quorum figures of the reference documentation, by name, with real processes and
under load.

The same names with every interleaving spelled out are unit tests of the store
(server_tests/store/test_recovery_examples); here the questions are whether it all fits together, and whether
anything acknowledged is lost on the way.
"""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from tests.integration.replicas import Administrator, administrator, compare_replicas
from tests.integration.workload import History, Workload, check_log
from waltz_admin import assignments, storage_admin
from waltz_cluster.cluster_params import read_store_params
from waltz_cluster.partition_metadata import StoreMetadata
from waltz_cluster.serializers import ReplicaState
from waltz_protocol.types import Endpoint, PartitionId
from waltz_tools.local import LocalCluster, LocalSettings
from waltz_tools.local.http import get_json
from waltz_tools.local.seeding import ClusterAdmin

pytestmark = [pytest.mark.timeout(300)]

SECONDS = 60.0
A, B, C = "storage-1", "storage-2", "storage-3"
SERVER = "server-1"


@asynccontextmanager
async def under_load(
    path: Path, storage_nodes: int, partitions: int = 1
) -> AsyncIterator[tuple[LocalCluster, History]]:
    """A cluster and writers on it; in the end the log is what was acknowledged, and all replicas are
    equal."""
    settings = LocalSettings(
        path,
        storage_nodes=storage_nodes,
        partitions=partitions,
        servers=1,
        tls=False,
        session_timeout_ms=2_000,
    )
    async with LocalCluster(settings) as cluster:
        workload = Workload(cluster.client_config, writers=2)
        async with workload.running() as history:
            async with administrator(cluster) as admin:
                await admin.wait_complete()
            await more(history)
            yield cluster, history
            async with administrator(cluster) as admin:
                await admin.wait_complete()
            await more(history)
        verdict = await check_log(cluster.client_config, history)
        assert verdict.passed, str(verdict)
        async with administrator(cluster) as admin:
            await admin.wait_complete()
        assert await compare_replicas(cluster) == verdict.transactions
        assert cluster.unexpected_ends() == []


async def more(history: History, count: int = 40) -> None:
    """Until so many more transactions are acknowledged."""
    wanted = len(history.acknowledged) + count
    async with asyncio.timeout(SECONDS):
        while len(history.acknowledged) < wanted:
            await asyncio.sleep(0.01)


async def replicas(cluster: LocalCluster) -> set[str]:
    """Replicas of partition 0 by the store's own record."""
    async with administrator(cluster) as admin:
        return set(await admin.replicas_of(0))


def endpoints(cluster: LocalCluster, *roles: str) -> set[str]:
    return {str(cluster.storage_endpoint(role)) for role in roles}


# ---- the four examples


async def test_adding_one_replica(tmp_path: Path) -> None:
    """3 → 4: the three old ones decide, the new one is filled while writes continue."""
    async with under_load(tmp_path, 3, partitions=2) as (cluster, history):
        added = await cluster.add_storage_node()
        await more(history)
        assert await replicas(cluster) == endpoints(cluster, A, B, C, added)


@pytest.mark.long
async def test_adding_several_replicas(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """3 → 5 in one change: any three of five are a quorum, and the three old ones are all there to be it."""
    async with under_load(tmp_path, 3) as (cluster, history):
        monkeypatch.setattr(ClusterAdmin, "join_node", known_only)
        added = [await cluster.add_storage_node(), await cluster.add_storage_node()]
        async with administrator(cluster) as admin:
            await change(admin, {str(cluster.storage_endpoint(role)): (PartitionId(0),) for role in added})
            await more(history)
            await admin.wait_complete()
        assert await replicas(cluster) == endpoints(cluster, A, B, C, *added)


async def test_removing_one_replica(tmp_path: Path) -> None:
    """4 → 3: the removed one is absent in the old quorum, the three others decide."""
    async with under_load(tmp_path, 4, partitions=2) as (cluster, history):
        left = endpoints(cluster, A, B, C)
        await cluster.remove_storage_node("storage-4")
        await more(history)
        assert await replicas(cluster) == left


@pytest.mark.long
async def test_removing_several_replicas(tmp_path: Path) -> None:
    """5 → 3 in one change: the three that stay are a majority of the old five."""
    async with under_load(tmp_path, 5) as (cluster, history):
        left = endpoints(cluster, A, B, C)
        gone = ["storage-4", "storage-5"]
        async with administrator(cluster) as admin:
            await change(admin, {str(cluster.storage_endpoint(role)): () for role in gone})
            await more(history)
            async with asyncio.timeout(SECONDS):
                while set(await admin.replicas_of(0)) != left:
                    await asyncio.sleep(0.05)
        for role in gone:
            await cluster.remove_storage_node(role)
        await more(history)
        assert await replicas(cluster) == left


async def known_only(self: ClusterAdmin, endpoint: Endpoint, admin_port: int, group: int) -> None:
    """In place of joining: the node is known and ready to take partition 0, and not a replica yet."""
    await self.add_node(endpoint, admin_port, group, assign=False)
    admin = Endpoint(endpoint.host, admin_port)
    await storage_admin.set_assignment(self._store, self._root, admin, [0], True, tls=self._tls)


async def change(admin: Administrator, placement: Mapping[str, tuple[PartitionId, ...]]) -> None:
    """Several nodes in one change, under the lock and the check (safety A6) of the administration
    commands."""
    await assignments._change(
        admin.store,
        admin.root,
        lambda maps, _partitions: {**maps.partitions, **placement},
        tls=admin.tls,
        probe=None,
        allow_pause=False,
        lock_wait_seconds=SECONDS,
    )


# ---- the three figures


async def diverge(cluster: LocalCluster, history: History) -> int:
    """The marks of the figures: C is behind A, B ahead of A, everybody is dead; the last acknowledged
    transaction id.

    C dies first, A and B continue with a majority; A dies, and B alone writes what nobody acknowledges.
    """
    await cluster.kill_role(C)
    await more(history)
    await cluster.kill_role(A)
    acknowledged = -1
    async with asyncio.timeout(SECONDS):
        while acknowledged < len(history.acknowledged):
            acknowledged = len(history.acknowledged)
            await asyncio.sleep(
                0.5
            )  # nothing can be acknowledged any longer, what was is on its way to the client
    await cluster.kill_role(SERVER)
    await cluster.kill_role(B)
    return max(transaction_id for _, transaction_id in history.acknowledged.values())


async def stored(cluster: LocalCluster, role: str) -> int:
    """The last transaction id a replica holds of partition 0, committed or not."""
    last = -1
    async with administrator(cluster) as admin:
        params = await read_store_params(admin.store, admin.root)
        async with storage_admin.admin_connection(
            cluster.admin_endpoint(role), params, admin.tls
        ) as connection:
            while records := await connection.record_list(0, last + 1, 1000):
                last = records[-1].transaction_id
    return last


async def marks(cluster: LocalCluster, *roles: str) -> list[int]:
    """Start nodes, without a server, and see what they hold."""
    for role in roles:
        await cluster.start_role(role)
    return [await stored(cluster, role) for role in roles]


async def states(cluster: LocalCluster) -> Mapping[str, ReplicaState]:
    """What ZooKeeper says of the replicas of partition 0."""
    async with administrator(cluster) as admin:
        metadata, _ = await StoreMetadata(admin.store, admin.root).read_partition(PartitionId(0))
    assert metadata is not None
    return metadata.replicas


async def health(cluster: LocalCluster) -> tuple[int, str]:
    status, body = await get_json(cluster.port(SERVER, "http"), "/health")
    return status, str(body)


async def test_quorum_all_there(tmp_path: Path) -> None:
    """A, B and C vote: what A holds has a majority; what only B holds is copied or cut, the same
    everywhere."""
    async with under_load(tmp_path, 3) as (cluster, history):
        acknowledged = await diverge(cluster, history)
        a, b, c = await marks(cluster, A, B, C)
        assert c < acknowledged <= a <= b
        await cluster.start_role(SERVER)
        await cluster.wait_serving()
        await more(history)


@pytest.mark.long
async def test_quorum_b_offline(tmp_path: Path) -> None:
    """A's mark decides nothing while B, which could make a majority for it, is offline: C's is never taken
    for the end.

    With C alone nothing at all is decided, and the health says so.
    """
    async with under_load(tmp_path, 3) as (cluster, history):
        acknowledged = await diverge(cluster, history)
        (c,) = await marks(cluster, C)
        assert c < acknowledged
        count, before = len(history.acknowledged), await states(cluster)
        # C may have been closed by a session of A and B alone; what decides is with A and B either way.
        assert endpoints(cluster, A, B) <= {name for name, state in before.items() if not state.resolved}
        await cluster.start_role(SERVER)
        async with asyncio.timeout(SECONDS):
            while (seen := await health(cluster))[0] != 500 or not all(
                str(cluster.storage_endpoint(role)) in seen[1] for role in (A, B)
            ):
                await asyncio.sleep(0.05)
        await asyncio.sleep(1.0)
        assert len(history.acknowledged) == count
        assert await stored(cluster, C) == c
        assert await states(cluster) == before
        for role in (A, B):
            await cluster.start_role(role)
        await more(history)


@pytest.mark.long
async def test_quorum_c_caught_up(tmp_path: Path) -> None:
    """B stays offline: C is filled up from A, then A's mark has its majority; B's tail is settled when it is
    back."""
    async with under_load(tmp_path, 3) as (cluster, history):
        acknowledged = await diverge(cluster, history)
        a, c = await marks(cluster, A, C)
        assert c < acknowledged <= a
        await cluster.start_role(SERVER)
        await cluster.wait_serving()
        await more(history)
        assert await stored(cluster, C) > acknowledged
        closed = (await states(cluster))[str(cluster.storage_endpoint(B))]
        assert closed.resolved
        assert closed.closing_high_water_mark >= acknowledged
        await cluster.start_role(B)
