"""Mistakes of a person who runs `waltz local up`: one line, exit code 1, and the directory stays what it was.

The table of all mistakes is in test_bad_input.
"""

import shutil
import socket
from pathlib import Path

import pytest

from tests.integration.processes import WALTZ, Ended, Patient, contents, read_only, run_program
from waltz_tools.local import LocalCluster, LocalSettings

pytestmark = [pytest.mark.long, pytest.mark.timeout(300)]


async def _up(directory: Path, *options: str) -> Ended:
    shape = ("--partitions", "1", "--storage-nodes", "1", "--servers", "1", "--no-tls")
    return await run_program(*WALTZ, "local", "up", "--data", str(directory), *shape, *options)


async def test_local_up_on_a_read_only_directory(tmp_path: Path) -> None:
    directory = tmp_path / "local"
    directory.mkdir()
    with read_only(directory):
        line = (await _up(directory)).one_error()
    assert str(directory) in line
    assert "Read-only file system" in line
    assert list(directory.iterdir()) == []


async def test_local_up_with_a_taken_port_and_with_a_lost_zookeeper(tmp_path: Path) -> None:
    """A port that is part of the cluster's identity; then ZooKeeper data of nobody under storage of a known
    cluster."""
    directory = tmp_path / "local"
    shape = LocalSettings(directory, partitions=1, storage_nodes=1, servers=1, tls=False)
    async with LocalCluster(shape) as cluster:
        patient = Patient(cluster)
        await patient.is_unharmed()
    port = cluster.port("storage-1", "storage")
    before = contents(directory / "storage-1")
    with socket.create_server(("127.0.0.1", port)):
        line = (await _up(directory)).one_error()
    assert f"port {port} (storage port of storage-1) is in use" in line

    (directory / "zookeeper").rename(directory / "lost")
    line = (await _up(directory)).one_error()
    assert f"the cluster with key {cluster.state.cluster_key} is not (completely) at" in line
    assert contents(directory / "storage-1") == before
    shutil.rmtree(directory / "zookeeper")
    (directory / "lost").rename(directory / "zookeeper")
    async with LocalCluster(shape) as again:
        patient.cluster = again
        await patient.is_unharmed()
