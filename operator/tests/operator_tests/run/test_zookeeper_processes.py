"""What the operator sees of a real ZooKeeper: whether it serves, and that its data were lost."""

from __future__ import annotations

import asyncio
import shutil
import subprocess
from pathlib import Path

import pytest

from waltz_admin.found_tree import NoTree
from waltz_admin.seeding import create
from waltz_admin.view import ClusterView, probe
from waltz_cluster.errors import ClusterError
from waltz_operator.api.topology import ZOOKEEPER_PORT
from waltz_operator.resources.zookeeper import SERVES
from waltz_operator.run import zookeeper_sessions
from waltz_operator.run.zookeeper_sessions import Ensemble, Ensembles
from waltz_testkit.zookeeper import EmbeddedZooKeeper

OWNER = ("n", "c")


def serves(port: int) -> bool:
    """The readiness probe, on another port."""
    command = SERVES.replace(str(ZOOKEEPER_PORT), str(port))
    return subprocess.run(["sh", "-c", command], check=False, timeout=30, capture_output=True).returncode == 0


def test_a_server_is_ready_only_when_it_serves(tmp_path: Path) -> None:
    with EmbeddedZooKeeper(tmp_path) as zookeeper:
        assert serves(zookeeper.port)
        port = zookeeper.port
    assert not serves(port)


async def test_lost_data_are_seen_without_a_restart_of_the_operator(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A ZooKeeper with less than a session has seen refuses that session, whatever time passes."""
    monkeypatch.setattr(zookeeper_sessions, "REPLACE_SECONDS", 1.0)
    zookeeper = EmbeddedZooKeeper(tmp_path / "zk")
    ensembles = Ensembles(patience_seconds=5.0)
    there = Ensemble(zookeeper.connect_string, "/waltz")
    try:
        await asyncio.to_thread(zookeeper.start)
        store = await ensembles.store(OWNER, there)
        await create(store, "/waltz", "c", 1)
        assert isinstance(await probe(store, "/waltz"), ClusterView)
        await asyncio.to_thread(zookeeper.kill)
        shutil.rmtree(tmp_path / "zk" / "version-2")
        await asyncio.to_thread(zookeeper.start)
        async with asyncio.timeout(20.0):
            while True:
                try:
                    found = await probe(await ensembles.store(OWNER, there), "/waltz")
                    break
                except ClusterError:
                    await asyncio.sleep(0.2)  # as a pass that is planned again
        assert isinstance(found, NoTree)
    finally:
        await ensembles.close()
        await asyncio.to_thread(zookeeper.stop)
