"""The order of a start, without processes."""

import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from waltz_admin.errors import ClusterTreeLostError
from waltz_protocol.types import Endpoint
from waltz_runtime.ports import PortReservations
from waltz_tools.local import LocalCluster, LocalSettings, seeding
from waltz_tools.local.state import ClusterDirectory, ClusterState, settle_ports

KEY = "5b1e0a52-9a48-4d1c-8f0a-3c5d6e7f8091"


class _Admin:
    def __init__(self) -> None:
        self.asked: list[tuple[int, str | None]] = []

    async def create(self, partitions: int, recorded_key: str | None) -> str:
        self.asked.append((partitions, recorded_key))
        raise ClusterTreeLostError("the cluster is not there: it is never seeded again")


async def test_safety_a7_lost_zookeeper_data_is_refused_before_a_storage_node_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    admin, started = _Admin(), []

    @asynccontextmanager
    async def open_admin(config: Path) -> AsyncIterator[_Admin]:
        yield admin

    async def start_role(self: LocalCluster, role: str, *, wait: bool = True) -> None:
        started.append(role)

    monkeypatch.setattr(seeding, "open_admin", open_admin)
    monkeypatch.setattr(LocalCluster, "start_role", start_role)
    ClusterDirectory(tmp_path).save(
        ClusterState(partitions=2, tls=False, storage_nodes=1, servers=1, seeded=True, cluster_key=KEY)
    )
    with pytest.raises(ClusterTreeLostError, match="never seeded again"):
        await LocalCluster(LocalSettings(tmp_path, start_timeout_seconds=1.0)).start()
    assert admin.asked == [(2, KEY)]
    assert started == ["zookeeper"]


class _Joining:
    """An administrator of a cluster that is there; the first `interrupted` joins are cut off."""

    def __init__(self, interrupted: int = 0) -> None:
        self.joined: list[int] = []
        self._interrupted = interrupted

    async def create(self, partitions: int, recorded_key: str | None) -> str:
        return KEY

    async def join_node(self, endpoint: Endpoint, admin_port: int, group: int) -> None:
        self._interrupted -= 1
        if self._interrupted >= 0:
            raise KeyboardInterrupt
        self.joined.append(group)


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The roles that were started, and `served` where a start waited for the servers."""
    started: list[str] = []

    async def start_role(self: LocalCluster, role: str, *, wait: bool = True) -> None:
        started.append(role)

    async def wait_ready(self: LocalCluster, role: str, timeout_seconds: float | None = None) -> None:
        pass

    async def wait_serving(self: LocalCluster, timeout_seconds: float | None = None) -> None:
        started.append("served")

    monkeypatch.setattr(LocalCluster, "start_role", start_role)
    monkeypatch.setattr(LocalCluster, "wait_ready", wait_ready)
    monkeypatch.setattr(LocalCluster, "wait_serving", wait_serving)
    return started


def _grown(
    directory: Path, admin: _Joining, monkeypatch: pytest.MonkeyPatch, nodes: int | None
) -> LocalCluster:
    @asynccontextmanager
    async def open_admin(config: Path) -> AsyncIterator[_Joining]:
        yield admin

    monkeypatch.setattr(seeding, "open_admin", open_admin)
    return LocalCluster(LocalSettings(directory, storage_nodes=nodes))


def _seeded(directory: Path) -> None:
    """A directory of one storage node that has its ports and its replicas."""
    state = ClusterState(partitions=1, tls=False, storage_nodes=1, servers=1, seeded=True, cluster_key=KEY)
    reserved = PortReservations(most=10)
    settle_ports(state, {"storage-1": ("storage", "admin", "http")}, random.Random(1), reserved)
    reserved.close()
    ClusterDirectory(directory).save(state)


@pytest.mark.parametrize("again", [2, None])
async def test_a_node_whose_join_was_interrupted_joins_with_the_next_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, started: list[str], again: int | None
) -> None:
    """It is started before the servers: it may have replicas already, and a partition may need its vote."""
    _seeded(tmp_path)
    admin = _Joining(interrupted=1)
    with pytest.raises(KeyboardInterrupt):
        await _grown(tmp_path, admin, monkeypatch, 2).start()
    assert admin.joined == []

    started.clear()
    cluster = _grown(tmp_path, admin, monkeypatch, again)
    await cluster.start()
    await cluster.stop()
    assert admin.joined == [2]
    assert started == ["zookeeper", "storage-1", "storage-2", "server-1", "served"]

    cluster = _grown(tmp_path, admin, monkeypatch, again)
    await cluster.start()
    await cluster.stop()
    assert admin.joined == [2], "a node that has joined is left to its administrator"


async def test_a_node_whose_addition_was_interrupted_joins_with_the_next_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, started: list[str]
) -> None:
    _seeded(tmp_path)
    admin = _Joining(interrupted=1)
    cluster = _grown(tmp_path, admin, monkeypatch, None)
    await cluster.start()
    with pytest.raises(KeyboardInterrupt):
        await cluster.add_storage_node()
    await cluster.stop()
    cluster = _grown(tmp_path, admin, monkeypatch, None)
    await cluster.start()
    await cluster.stop()
    assert admin.joined == [2]
