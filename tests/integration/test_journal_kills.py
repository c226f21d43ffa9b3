"""The node journal on real processes: killed under load, settled, started without it and with it again."""

import asyncio
from pathlib import Path

import pytest

from tests.integration.processes import waltz
from tests.integration.replicas import administrator, compare_replicas
from tests.integration.workload import Workload, check_log
from waltz_storage.engine.journal.directory import dependence
from waltz_storage.engine.layout import CONTROL_FILE_NAME, HEADER_SIZE
from waltz_tools.local import LocalCluster, LocalSettings

pytestmark = [pytest.mark.long, pytest.mark.timeout(300)]

JOURNAL = "storage.journal.enabled"
WRITING_SECONDS = 0.7


def _needs_its_journal(cluster: LocalCluster, role: str) -> bool:
    raw = (cluster.storage_directory(role) / CONTROL_FILE_NAME).read_bytes()[:HEADER_SIZE]
    return dependence(raw) is not None


async def test_safety_c7_killed_nodes_lose_nothing_with_the_journal_switched_on_and_off(
    tmp_path: Path,
) -> None:
    """Small journal files, so that they are used again under the load. A directory that was settled, or whose
    node was stopped in order, is one that release 0.13.2 opens."""
    journal = {JOURNAL: True, "storage.journal.fileBytes": 1 << 20, "storage.journal.files": 3}
    settings = LocalSettings(
        tmp_path / "cluster", partitions=4, servers=1, tls=False, overrides={"storage": journal}
    )
    async with LocalCluster(settings) as cluster:
        load = Workload(cluster.client_config)
        async with load.running():
            await asyncio.sleep(WRITING_SECONDS)
            await cluster.kill_role("storage-1")
            assert _needs_its_journal(cluster, "storage-1")
            settled = await waltz("disk", "settle", str(cluster.storage_directory("storage-1")))
            assert settled.code == 0, settled.err
            assert not _needs_its_journal(cluster, "storage-1")
            cluster.override("storage-1", {JOURNAL: False})
            await cluster.start_role("storage-1")
            await asyncio.sleep(WRITING_SECONDS)
            await cluster.kill_role("storage-1")  # without a journal: there is nothing to settle
            assert not _needs_its_journal(cluster, "storage-1")
            cluster.override("storage-1", {JOURNAL: True})
            await cluster.start_role("storage-1")
            await cluster.kill_role("storage-2")
            await cluster.start_role("storage-2")  # replays
            await asyncio.sleep(WRITING_SECONDS)
        for role in ("storage-1", "storage-2", "storage-3"):  # no copy of a living process may help out
            await cluster.kill_role(role)
        for role in ("storage-1", "storage-2", "storage-3"):
            await cluster.start_role(role)
        async with administrator(cluster) as admin:
            await admin.wait_complete()
        verdict = await check_log(cluster.client_config, load.history)
        assert verdict.passed, str(verdict)
        assert len(load.history.acknowledged) > 100
        await compare_replicas(cluster)
        await cluster.stop_role("storage-3")
        assert not _needs_its_journal(cluster, "storage-3")
