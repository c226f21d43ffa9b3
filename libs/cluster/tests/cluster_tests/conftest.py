"""Stores to test on: one in memory, and real ZooKeeper (one server process for the whole run)."""

import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest

from waltz_cluster.config.settings import ZooKeeperSettings
from waltz_cluster.errors import NodeExistsError
from waltz_cluster.memory_store import MemoryZooKeeper
from waltz_cluster.store import ZooKeeperStore
from waltz_cluster.zk_client import KazooStore, connect
from waltz_testkit.zookeeper import EmbeddedZooKeeper, ZooKeeperUnavailableError

NewSession = Callable[[], Awaitable[ZooKeeperStore]]


def zookeeper_settings(connect_string: str, root: str, **more: object) -> ZooKeeperSettings:
    return ZooKeeperSettings.from_mapping(
        {
            "zookeeper.connectString": connect_string,
            "zookeeper.sessionTimeout": 4000,
            "zookeeper.connectTimeout": 30000,
            "cluster.root": root,
            **more,
        }
    )


@asynccontextmanager
async def session(server: EmbeddedZooKeeper, **more: object) -> AsyncIterator[KazooStore]:
    """One on real ZooKeeper; it is closed at the end."""
    store = await connect(zookeeper_settings(server.connect_string, "/any", **more))
    try:
        yield store
    finally:
        await store.close()


@pytest.fixture(scope="session")
def zookeeper(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedZooKeeper]:
    server = EmbeddedZooKeeper(Path(tmp_path_factory.mktemp("zookeeper")))
    try:
        server.start()
    except ZooKeeperUnavailableError as error:
        pytest.skip(f"no ZooKeeper on this machine: {error}")
    yield server
    server.stop()


@pytest.fixture
def own_zookeeper(tmp_path: Path) -> Iterator[EmbeddedZooKeeper]:
    """One that a test may stop, pause and kill."""
    server = EmbeddedZooKeeper(tmp_path / "own", tick_time_ms=2000)  # grants sessions of 4 to 40 s
    try:
        server.start()
    except ZooKeeperUnavailableError as error:
        pytest.skip(str(error))
    yield server
    server.kill()


@pytest.fixture(params=["memory", "zookeeper", "zookeeper-chroot"])
async def new_session(request: pytest.FixtureRequest) -> AsyncIterator[NewSession]:
    """Opens further sessions to one and the same server."""
    opened: list[ZooKeeperStore] = []
    if request.param == "memory":
        memory = MemoryZooKeeper()

        async def open_session() -> ZooKeeperStore:
            opened.append(memory.session(4.0))
            return opened[-1]
    else:
        server: EmbeddedZooKeeper = request.getfixturevalue("zookeeper")
        chroot = "/below/that" if request.param == "zookeeper-chroot" else ""
        if chroot:
            outside = await connect(zookeeper_settings(server.connect_string, "/any"))
            with suppress(NodeExistsError):
                await outside.create(chroot, None, make_parents=True)
            await outside.close()

        async def open_session() -> ZooKeeperStore:
            store: KazooStore = await connect(zookeeper_settings(server.connect_string + chroot, "/any"))
            opened.append(store)
            return store

    yield open_session
    for store in opened:
        await store.close()


@pytest.fixture
async def store(new_session: NewSession) -> ZooKeeperStore:
    return await new_session()


@pytest.fixture
def root() -> str:
    """A root no other test uses."""
    return f"/test_{uuid.uuid4().hex[:12]}"
