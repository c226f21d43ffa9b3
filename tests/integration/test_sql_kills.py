"""A service with a database is killed at random while it applies, and so is the database: its tables equal a
recomputation from the log."""

import asyncio
import json
import random
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import pytest_asyncio
import sqlalchemy as sa

from tests.integration.sql_service import BALANCES, COUNTS
from waltz_client import Append, Committed, WaltzClient
from waltz_client.sql import SqlTables
from waltz_testkit.postgres import find_binaries, postgres_server
from waltz_tools.local import LocalCluster, LocalSettings

pytestmark = [pytest.mark.long, pytest.mark.timeout(300), pytest.mark.asyncio(loop_scope="module")]

KILLS = 6
PARTITIONS = 2
MAX_SECONDS = 200.0


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def cluster(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[LocalCluster]:
    settings = LocalSettings(
        tmp_path_factory.mktemp("cluster"), servers=1, storage_nodes=1, partitions=PARTITIONS
    )
    async with LocalCluster(settings) as cluster:
        yield cluster


@dataclass(frozen=True)
class Database:
    url: str
    service_url: str
    crash_and_restart: Callable[[], None] = lambda: None  # a file has no process


@pytest.fixture(params=["sqlite", "postgresql", "asyncpg"])
def database(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Database]:
    if request.param == "sqlite":
        url = f"sqlite:///{tmp_path}/application.db"
        yield Database(url, url)
        return
    binaries = find_binaries()
    if binaries is None:
        pytest.skip("no PostgreSQL on this machine (Debian: apt-get install postgresql)")
    with postgres_server(binaries) as server:
        url = server.create_database("application")
        driver = "psycopg" if request.param == "postgresql" else "asyncpg"
        yield Database(url, url.replace("psycopg", driver), server.crash_and_restart)


class Service:
    """The service's process. It applies by feeds and by callbacks in turn: both keep the same tables."""

    def __init__(self, config: Path, url: str) -> None:
        self._command = (sys.executable, "-m", "tests.integration.sql_service", str(config), url)
        self._starts = 0
        self._process: asyncio.subprocess.Process | None = None

    async def start(self) -> None:
        self._starts += 1
        way = ("feeds", "callbacks")[self._starts % 2]
        self._process = await asyncio.create_subprocess_exec(*self._command, way)

    async def kill(self) -> None:
        assert self._process is not None
        assert self._process.returncode is None, "the service ended on its own"
        await self.end()

    async def end(self) -> None:
        """SIGKILL, if it runs."""
        if self._process is not None and self._process.returncode is None:
            self._process.kill()
            await self._process.wait()


def _marks(engine: sa.Engine) -> dict[int, int]:
    marks = SqlTables().marks
    try:
        with engine.connect() as connection:
            return {row.partition_id: row.high_water_mark for row in connection.execute(sa.select(marks))}
    except sa.exc.DBAPIError:
        return {}  # not created yet


async def _write(config: Path, stop: asyncio.Event, written: list[int]) -> None:
    """Append for as long as the service is being killed; `written` grows by each batch."""
    rng = random.Random(1)
    async with WaltzClient.connect(config) as client:
        while not stop.is_set():
            entries = [{"account": rng.randrange(20), "amount": rng.randint(-50, 100)} for _ in range(6)]
            appends = [
                Append(number % PARTITIONS, json.dumps(entry).encode())
                for number, entry in enumerate(entries)
            ]
            results = await client.append_many(appends)
            assert all(isinstance(result, Committed) for result in results)
            written.append(len(results))
            await asyncio.sleep(0.05)


async def _recomputed(config: Path) -> tuple[dict[int, int], dict[int, int]]:
    """Balances and numbers of transactions as the log has them."""
    balances: Counter[int] = Counter()
    counts: Counter[int] = Counter()
    async with WaltzClient.connect(config) as client:
        until = {partition: await client.high_water_mark(partition) for partition in range(PARTITIONS)}
        async for one in client.feed(until, after=-1, until=until):
            entry = json.loads(one.data or b"")
            balances[entry["account"]] += entry["amount"]
            counts[one.partition_id] += 1
    return dict(balances), dict(counts)


@pytest_asyncio.fixture(loop_scope="module")
async def service(cluster: LocalCluster, database: Database) -> AsyncIterator[Service]:
    service = Service(cluster.client_config, database.service_url)
    yield service
    await service.end()


async def test_tables_equal_a_recomputation_after_sigkills(
    cluster: LocalCluster, database: Database, service: Service
) -> None:
    config = cluster.client_config
    engine = sa.create_engine(database.url)
    rng = random.Random(2)
    stop = asyncio.Event()
    killed_at: list[int] = []
    written: list[int] = []
    async with asyncio.TaskGroup() as group, asyncio.timeout(MAX_SECONDS):
        group.create_task(_write(config, stop, written))
        for number in range(KILLS):
            before = sum(_marks(engine).values())
            await service.start()
            while sum(_marks(engine).values()) <= before:  # it applies
                await asyncio.sleep(0.02)
            if number % 3 == 1:
                database.crash_and_restart()  # not in a thread: the server ends with the thread that started it
            await asyncio.sleep(rng.uniform(0, 0.4))
            await service.kill()
            killed_at.append(sum(_marks(engine).values()))
        batches = len(written)
        while len(written) < batches + 3:  # something is left to apply after the last kill
            await asyncio.sleep(0.02)
        stop.set()
    balances, counts = await _recomputed(config)
    assert killed_at[-1] < sum(counts.values()) - PARTITIONS, "the last kill came when everything was applied"

    await service.start()
    deadline = time.monotonic() + MAX_SECONDS
    wanted = {partition: count - 1 for partition, count in counts.items()}
    while _marks(engine) != wanted:
        assert time.monotonic() < deadline, (_marks(engine), wanted)
        await asyncio.sleep(0.05)
    with engine.connect() as connection:
        assert dict(connection.execute(sa.select(BALANCES.c.account, BALANCES.c.amount)).all()) == balances
        assert (
            dict(connection.execute(sa.select(COUNTS.c.partition_id, COUNTS.c.transactions)).all()) == counts
        )
    engine.dispose()
