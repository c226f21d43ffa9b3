"""The order of a start, without processes."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from waltz_admin.errors import ClusterTreeLostError
from waltz_tools.local import LocalCluster, LocalSettings, seeding
from waltz_tools.local.state import ClusterDirectory, ClusterState

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
