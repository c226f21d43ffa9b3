"""A store to seed clusters on: in memory, and real ZooKeeper."""

import uuid
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from waltz_cluster.config.settings import ZooKeeperSettings
from waltz_cluster.memory_store import MemoryZooKeeper
from waltz_cluster.store import ZooKeeperStore
from waltz_cluster.zk_client import connect
from waltz_testkit.zookeeper import EmbeddedZooKeeper, ZooKeeperUnavailableError


@pytest.fixture(scope="session")
def zookeeper(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedZooKeeper]:
    server = EmbeddedZooKeeper(Path(tmp_path_factory.mktemp("zookeeper")))
    try:
        server.start()
    except ZooKeeperUnavailableError as error:
        pytest.skip(f"no ZooKeeper on this machine: {error}")
    yield server
    server.stop()


@pytest.fixture(params=["memory", "zookeeper"])
async def store(request: pytest.FixtureRequest) -> AsyncIterator[ZooKeeperStore]:
    opened: ZooKeeperStore
    if request.param == "memory":
        opened = MemoryZooKeeper().session()
    else:
        server: EmbeddedZooKeeper = request.getfixturevalue("zookeeper")
        settings = {
            "zookeeper.connectString": server.connect_string,
            "zookeeper.sessionTimeout": 10000,
            "zookeeper.connectTimeout": 30000,
            "cluster.root": "/any",
        }
        opened = await connect(ZooKeeperSettings.from_mapping(settings))
    yield opened
    await opened.close()


@pytest.fixture
def root() -> str:
    return f"/test_{uuid.uuid4().hex[:12]}"
