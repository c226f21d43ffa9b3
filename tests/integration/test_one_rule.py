"""One copy of a real cluster loses the record at its low-water mark: everybody who is asked about it says the
same."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable
from pathlib import Path

import pytest
import yaml

from tests.integration.replicas import Administrator, administrator
from tests.integration.workload import Workload
from waltz_admin.errors import UnsafeChangeError
from waltz_admin.safety import AdminPortProbe, check_change
from waltz_admin.status import read_status
from waltz_admin.storage_admin import admin_connection, inspect_node
from waltz_admin.tree import read_maps
from waltz_admin.verify import Check, verify_cluster
from waltz_admin.view import probe
from waltz_cluster.cluster_params import read_params
from waltz_cluster.partition_metadata import StoreMetadata
from waltz_cluster.paths import ClusterPaths
from waltz_cluster.replica_rules import Standing
from waltz_operator.api.parse import parse_cluster
from waltz_operator.model.facts import facts_of
from waltz_operator.model.snapshot import Snapshot, Unknown
from waltz_operator.plan.status.partition_health import health_of
from waltz_operator.run.metrics import OperatorMetrics
from waltz_operator.run.read_waltz import node_view, tree_view
from waltz_tools.local import LocalCluster, LocalSettings

pytestmark = pytest.mark.timeout(180)

ROOT = Path(__file__).parents[2]
SECONDS = 60.0
REASON = "it did not show the record at its low-water mark"
KEY = ("demo", "ledger")


async def test_safety_a6_a_copy_without_the_record_at_its_mark_is_current_to_nobody(tmp_path: Path) -> None:
    settings = LocalSettings(tmp_path, storage_nodes=3, partitions=1, servers=1, tls=False)
    async with LocalCluster(settings) as cluster:
        await _append(cluster)
        await cluster.restart_role("server-1")  # its session raises the low-water mark of every copy
        async with administrator(cluster) as admin:
            await admin.wait_complete()
            assert await _answers(cluster, admin) == {}
            node = await _damage(cluster, admin, "storage-2")
            assert await _answers(cluster, admin) == dict.fromkeys(
                ("status", "verify", "rule A6", "the operator's condition", "the metric"), node
            )


async def _append(cluster: LocalCluster) -> None:
    async with asyncio.timeout(SECONDS), Workload(cluster.client_config, writers=2).running() as history:
        while len(history.acknowledged) < 20:
            await asyncio.sleep(0.01)


async def _damage(cluster: LocalCluster, admin: Administrator, role: str) -> str:
    """One bit of the record at the mark is another one on the disk; the process continues. Its connect
    string."""
    _, params = await read_params(admin.store, admin.root)
    async with admin_connection(cluster.admin_endpoint(role), params, admin.tls) as connection:
        mark = (await connection.last_session_info(0)).low_water_mark
        (record,) = await connection.record_list(0, mark, 1)
    (segment,) = (cluster.storage_directory(role) / "0").glob("*.seg")
    content = segment.read_bytes()
    assert content.count(record.data) == 1
    with segment.open("r+b") as file:
        file.seek(content.index(record.data))
        file.write(bytes([record.data[0] ^ 1]))
    return str(cluster.storage_endpoint(role))


async def _answers(cluster: LocalCluster, admin: Administrator) -> dict[str, str]:
    """Who says that a copy is not current for `REASON`, and which; any other problem is an error."""
    store, root, tls = admin.store, admin.root, admin.tls
    maps = await read_maps(store, ClusterPaths(root))
    _, params = await read_params(store, root)
    found = {}

    def says(who: str, text: str) -> None:
        for node in maps.partitions:
            if f"{node}: {REASON}" in text:
                found[who] = node
        assert bool(text) == (who in found), text

    (partition,) = (await read_status(store, root, tls=tls)).partitions
    bad = [one for one in partition.replicas if one.standing is not Standing.CURRENT]
    says("status", "".join(f"{one.node}: {one.reason}" for one in bad))
    report = await verify_cluster(store, root, tls=tls)
    assert {one.check for one in report.failures} <= {Check.RECOVERY}
    says("verify", "".join(one.reason for one in report.failures))
    asker = AdminPortProbe(dict(maps.admin_ports), params.cluster_key, params.num_partitions, tls)
    nodes = list(maps.partitions)
    says(
        "rule A6", await _refusal(check_change(StoreMetadata(store, root), asker, 0, nodes, [*nodes, "x:1"]))
    )
    snapshot = await _snapshot(cluster, admin)
    says("the operator's condition", health_of(facts_of(snapshot)).behind)
    metrics = OperatorMetrics()
    metrics.observed(KEY, snapshot, {})
    counted = metrics.registry.get_sample_value(
        "waltz_operator_replicas_caught_up", {"namespace": KEY[0], "name": KEY[1]}
    )
    if counted != len(nodes):
        assert counted == len(nodes) - 1
        found["the metric"] = found.get("the operator's condition", "")
    return found


async def _refusal(question: Awaitable[object]) -> str:
    try:
        await question
    except UnsafeChangeError as error:
        return str(error)
    return ""


async def _snapshot(cluster: LocalCluster, admin: Administrator) -> Snapshot:
    """What the operator reads of ZooKeeper and of the storage nodes."""
    body = yaml.safe_load((ROOT / "manifests/examples/tls-disabled.yaml").read_text().partition("\n---")[0])
    _, params = await read_params(admin.store, admin.root)
    nodes = {
        str(cluster.storage_endpoint(role)): node_view(
            await inspect_node(cluster.admin_endpoint(role), params, admin.tls), time.time()
        )
        for role in cluster.storage_roles
    }
    tree = tree_view(await probe(admin.store, admin.root))
    return Snapshot(parse_cluster(body), Unknown("it was not asked"), tree, nodes, {}, time.time())
