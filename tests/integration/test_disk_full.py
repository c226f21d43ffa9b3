"""Disks that are full: at the start, on one node, on a majority; and what happens when there is room again.

The disks are small file systems in memory, mounted by the test; it is skipped where mounting is not
permitted.
"""

import asyncio
import json
import os
import subprocess
from pathlib import Path
from uuid import uuid4

import pytest

from tests.integration.processes import (
    STORAGE,
    WALTZ,
    Patient,
    contents,
    run_program,
    small_disk,
    waltz,
)
from tests.integration.replicas import administrator, compare_replicas
from tests.integration.workload import check_log
from waltz_client import WaltzClient
from waltz_client.errors import AppendError, Outcome
from waltz_storage.engine.storage_manager import StorageManager
from waltz_tools.local import LocalCluster, LocalSettings
from waltz_tools.local.http import get_json

pytestmark = [pytest.mark.timeout(300)]

DATA_BYTES = 128 * 1024
KIB = 1024
FULL = "No space left on device"


async def test_local_up_on_a_full_disk_is_one_line(tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk", 64, used=True) as disk:
        ended = await run_program(*WALTZ, "local", "up", "--data", str(disk / "cluster"))
        assert FULL in ended.one_error()
        assert ended.err.count("\n") == 1


async def test_full_disk_stops_a_node_then_writes_and_room_brings_all_back(tmp_path: Path) -> None:
    """One full disk of three: writes continue. Two: they stop and the health says why. With room again
    nothing is lost."""
    settings = LocalSettings(tmp_path / "cluster", partitions=1, servers=1, tls=False)
    with (
        small_disk(settings.directory / "storage-2", 8 * KIB) as second,
        small_disk(settings.directory / "storage-3", 4 * KIB) as third,
    ):
        async with LocalCluster(settings) as cluster:
            patient = Patient(cluster)
            await _refuses_to_start(patient, tmp_path)
            async with WaltzClient.connect(cluster.client_config) as client:
                await _write(patient, client, 4 * KIB * KIB + 10 * DATA_BYTES)
                await _until_health(cluster, 500, "the disk is full", "storage-3")  # it may lag behind
                assert 0 < _free(third) < 2 * DATA_BYTES, "full, and the reserve is not touched"
                await _says_so(cluster, "storage-3")
                status, _ = await get_json(cluster.port("server-1", "http"), "/health")
                assert status == 200
                with pytest.raises(AppendError) as caught:
                    await _write(patient, client, 8 * KIB * KIB, deadline_seconds=3.0)
                assert "\n" not in str(caught.value)
                await _until_health(cluster, 500, "the disk is full")
                for disk in (second, third):
                    subprocess.run(["mount", "-o", f"remount,size={64 * KIB}k", str(disk)], check=True)
                await _until_health(cluster, 200, "")
                await patient.append(client)
            await _says_nothing(cluster)
            async with administrator(cluster) as admin:
                await admin.wait_complete()
            verdict = await check_log(cluster.client_config, patient.history)
            assert verdict.passed, str(verdict)
            assert await compare_replicas(cluster) == verdict.transactions
            assert cluster.unexpected_ends() == []


async def _says_so(cluster: LocalCluster, role: str) -> None:
    """Metrics, health and commands name the node whose disk is full."""
    status, health = await get_json(cluster.port(role, "http"), "/health")
    assert status == 500
    assert "the disk is full" in str(health)
    config, admin = str(cluster.client_config), str(cluster.admin_endpoint(role))
    usage = await waltz("storage", "usage", "-c", config, "--partitions", "--output", "json")
    assert f"the disk of {admin} is full" in usage.one_error(3)
    facts = json.loads(usage.out)
    (full,) = [disk for disk in facts["disks"] if disk["full"]]
    assert full["node"] == admin
    assert full["free"] >= full["reserve"] > 0
    (log,) = [held["log_bytes"] for held in facts["partitions"] if held["node"] == admin]
    assert log == full["log_bytes"]
    page = await waltz("cluster", "status", "-c", config, "--output", "json")
    assert page.code == 3
    node = str(cluster.storage_endpoint(role))
    assert [n["problem"] for n in json.loads(page.out)["storage_nodes"] if n["node"] == node] == [
        "its disk is full"
    ]
    doctor = await waltz("doctor", "-c", config)
    assert doctor.code == 3
    assert f"storage node {node}: its disk is full" in " ".join(doctor.out.split())


async def _says_nothing(cluster: LocalCluster) -> None:
    """Within the ten seconds between two looks every node knows that it has room."""
    config = str(cluster.client_config)
    async with asyncio.timeout(60):
        while (await waltz("storage", "usage", "-c", config)).code != 0:
            await asyncio.sleep(0.2)
    for role in cluster.storage_roles:
        assert (await get_json(cluster.port(role, "http"), "/health"))[0] == 200


async def _refuses_to_start(patient: Patient, path: Path) -> None:
    """A node whose disk is full from the start ends with one line; with room the same directory is usable."""
    with small_disk(path / "full", 64, used=True) as disk:
        config = patient.config(path, "storage-1", storage__directory=str(disk))
        assert FULL in (await run_program(*STORAGE, config)).one_error()
        (disk / "ballast").unlink()
        assert all(not data for data in contents(disk).values())
        StorageManager.open(str(disk), cluster_key=uuid4(), num_partitions=1, now_ms=lambda: 0).close()


async def _write(
    patient: Patient, client: WaltzClient, size_bytes: int, deadline_seconds: float = 30.0
) -> None:
    """Append until so many bytes are acknowledged; AppendError when one is not, and then it is remembered
    how."""
    for _ in range(size_bytes // DATA_BYTES):
        data = f"{patient.count}".encode().ljust(DATA_BYTES, b".")
        try:
            await patient.append(client, data, deadline_seconds=deadline_seconds)
        except AppendError as error:
            known = patient.history.failed if error.outcome is Outcome.FAILED else patient.history.unknown
            known.add(data)
            raise


def _free(disk: Path) -> int:
    facts = os.statvfs(disk)
    return facts.f_bavail * facts.f_frsize


async def _until_health(cluster: LocalCluster, status: int, words: str, role: str = "server-1") -> None:
    seen: tuple[int, dict[str, object]] = (0, {})
    try:
        async with asyncio.timeout(60):
            while seen[0] != status or words not in str(seen[1]):
                seen = await get_json(cluster.port(role, "http"), "/health")
                await asyncio.sleep(0.05)
    except TimeoutError:
        raise AssertionError(f"health is {seen}, expected {status} with {words!r}") from None
