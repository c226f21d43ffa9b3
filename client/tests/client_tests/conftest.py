"""Fixtures: a fake cluster, clients of it that are closed at the end, and databases."""

import asyncio
import itertools
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
import sqlalchemy as sa
from sqlalchemy.ext.asyncio import create_async_engine

from client_tests.helpers import settings_for
from client_tests.sql_databases import Applying
from waltz_client import WaltzClient, WaltzClientCallbacks
from waltz_client._internal.stream import readers
from waltz_testkit.fake_cluster import FakeCluster
from waltz_testkit.postgres import PostgresServer, find_binaries, postgres_server

ConnectClient = Callable[..., Awaitable[WaltzClient]]


@pytest.fixture
async def cluster() -> AsyncIterator[FakeCluster]:
    """Two partitions, two servers, everything on the first one, no TLS."""
    fake = FakeCluster(2)
    await fake.start(2)
    yield fake
    await fake.close()


@pytest.fixture
async def connect(cluster: FakeCluster) -> AsyncIterator[ConnectClient]:
    """`await connect(callbacks, **settings)`: a client of the fake cluster."""
    async with AsyncExitStack() as stack:

        async def make(callbacks: WaltzClientCallbacks | None = None, **settings: object) -> WaltzClient:
            client = WaltzClient.connect(
                settings_for(cluster, **settings), callbacks, store=cluster.session(), random=random.Random(7)
            )
            return await stack.enter_async_context(client)

        yield make
        # Whatever a test does, its client must be closable in time.
        async with asyncio.timeout(10):
            await stack.aclose()


@pytest.fixture
def ahead_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A reader beyond the log ends without a pause before the second question."""
    monkeypatch.setattr(readers, "AHEAD_RETRY_SECONDS", 0.02)


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresServer]:
    """A PostgreSQL of this test run."""
    binaries = find_binaries()
    if binaries is None:
        pytest.skip("no PostgreSQL on this machine (Debian: apt-get install postgresql)")
    with postgres_server(binaries) as server:
        yield server


_database_numbers = itertools.count(1)


@pytest.fixture(params=["sqlite", "postgresql", "aiosqlite", "asyncpg"])
def engine(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[sa.Engine]:
    """An empty database of each kind, for the test itself."""
    if request.param in ("sqlite", "aiosqlite"):
        url = f"sqlite:///{tmp_path}/application.db"
    else:
        url = request.getfixturevalue("postgres").create_database(f"test{next(_database_numbers)}")
    engine = sa.create_engine(url)
    yield engine
    engine.dispose()


@pytest.fixture
async def applying(request: pytest.FixtureRequest, engine: sa.Engine) -> AsyncIterator[Applying]:
    """Appliers on that database: through `engine`, or through an asynchronous engine of their own, where
    `apply` is a coroutine function."""
    kind = request.node.callspec.params["engine"]
    if kind in ("sqlite", "postgresql"):
        yield Applying(engine)
        return
    dialect = "sqlite" if kind == "aiosqlite" else "postgresql"
    asynchronous = create_async_engine(engine.url.set(drivername=f"{dialect}+{kind}"))
    yield Applying(asynchronous)
    await asynchronous.dispose()
