"""examples/ledger under load, while its services and every role of the log are killed: the sums are equal."""

import asyncio
import random
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack
from pathlib import Path

import aiohttp
import pytest

from tests.integration.ledger_services import (
    ACCOUNTS,
    BOOKS,
    OPENING_BALANCE,
    Customers,
    LedgerService,
    Truth,
)
from waltz_testkit.postgres import find_binaries, postgres_server
from waltz_tools.local import LocalCluster, LocalSettings

pytestmark = [pytest.mark.long, pytest.mark.timeout(600)]

ROUNDS = 10
CUSTOMERS = 4
ACCEPTED_PER_STEP = 3
STEP_SECONDS = 60.0


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[LocalCluster]:
    settings = LocalSettings(
        tmp_path / "cluster", storage_nodes=3, servers=2, partitions=4, session_timeout_ms=2_000
    )
    async with LocalCluster(settings) as cluster:
        yield cluster


@pytest.fixture
def statements_database(tmp_path: Path) -> Iterator[str]:
    """PostgreSQL where the machine has it: the two services need not even have the same kind of database."""
    binaries = find_binaries()
    if binaries is None:
        yield f"sqlite+aiosqlite:///{tmp_path}/statements.db"
    else:
        with postgres_server(binaries) as server:
            yield server.create_database("statements").replace("+psycopg", "+asyncpg")


@pytest.fixture
async def services(
    tmp_path: Path, cluster: LocalCluster, statements_database: str
) -> AsyncIterator[tuple[LedgerService, LedgerService]]:
    databases = {"accounts": f"sqlite:///{tmp_path}/accounts.db", "statements": statements_database}
    accounts, statements = (
        LedgerService(name, tmp_path, cluster.client_config, url) for name, url in databases.items()
    )
    yield accounts, statements
    await accounts.end()
    await statements.end()


class Killer:
    """Kills one thing after the other, starts each again, and lets transfers through in between."""

    def __init__(
        self, cluster: LocalCluster, services: tuple[LedgerService, ...], customers: Customers
    ) -> None:
        self.kills: Counter[str] = Counter()
        self._cluster = cluster
        self._services = services
        self._customers = customers

    async def role(self, role: str) -> None:
        self.kills[role.partition("-")[0]] += 1
        await self._cluster.kill_role(role)
        await self._cluster.start_role(role, wait=False)

    async def service(self, service: LedgerService) -> None:
        await service.kill()
        await service.start()

    async def progress(self, session: aiohttp.ClientSession) -> None:
        """Transfers are accepted again, and everything that was started answers (a role that never came up
        would not count)."""
        wanted = len(self._customers.accepted) + ACCEPTED_PER_STEP
        async with asyncio.timeout(STEP_SECONDS):
            while len(self._customers.accepted) < wanted:
                await asyncio.sleep(0.02)
            for service in self._services:
                await service.wait_ready(session)
            for role in self._cluster.roles:
                await self._cluster.wait_ready(role)

    async def round(self, session: aiohttp.ClientSession, number: int) -> None:
        accounts, statements = self._services
        await self.role(self._cluster.storage_roles[number % 3])
        await self.role("zookeeper")
        await self.service(statements)
        await self.progress(session)
        await self.role(self._cluster.server_roles[number % 2])
        await self.service(accounts)
        await self.progress(session)


async def _balances(session: aiohttp.ClientSession, service: LedgerService) -> dict[str, dict[str, int]]:
    found = {}
    for book in BOOKS:
        async with session.get(f"{service.url}/books/{book}") as answer:
            found[book] = await answer.json()
    return found


async def _summaries(session: aiohttp.ClientSession, service: LedgerService) -> dict[str, dict[str, int]]:
    return {
        book: {key: value for key, value in summary.items() if key != "book"}
        for book, summary in (await _balances(session, service)).items()
    }


async def _until_equal(read, wanted) -> None:  # type: ignore[no-untyped-def]
    """Until a service has applied everything; then what it says has to be what is wanted."""
    deadline = time.monotonic() + STEP_SECONDS
    while (found := await read()) != wanted:
        assert time.monotonic() < deadline, (found, wanted)
        await asyncio.sleep(0.1)


async def test_ten_kills_of_everything_and_the_sums_are_equal(
    cluster: LocalCluster, services: tuple[LedgerService, LedgerService]
) -> None:
    accounts, statements = services
    stop = asyncio.Event()
    started = time.monotonic()
    async with AsyncExitStack() as stack:
        session = await stack.enter_async_context(
            aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=30))
        )
        for service in services:
            await service.start()
        for service in services:
            await service.wait_ready(session)
        customers = Customers(accounts.url)
        await customers.open_accounts(session)
        killer = Killer(cluster, services, customers)
        async with asyncio.TaskGroup() as group:
            for number in range(CUSTOMERS):
                group.create_task(customers.order(session, random.Random(number), stop))
            try:
                for number in range(ROUNDS):
                    await killer.round(session, number)
            finally:
                stop.set()
        assert killer.kills == {"storage": ROUNDS, "server": ROUNDS, "zookeeper": ROUNDS}
        assert (accounts.kills, statements.kills) == (ROUNDS, ROUNDS)

        truth = await Truth.read(cluster.client_config)
        await _check(session, services, truth, customers)
    print(
        f"\n{5 * ROUNDS} kills in {time.monotonic() - started:.0f} s: {len(customers.accepted)} transfers accepted, "
        f"{len(customers.refused)} refused, {customers.repeated} asked again"
    )


async def _check(
    session: aiohttp.ClientSession,
    services: tuple[LedgerService, LedgerService],
    truth: Truth,
    customers: Customers,
) -> None:
    accounts, statements = services
    # Every accepted transfer is in the log exactly once, a refused one as a refusal, and nothing else is.
    assert truth.transfers == Counter(customers.accepted.values())
    assert truth.refusals == Counter(customers.refused.values())
    assert len(customers.accepted) >= 2 * ROUNDS * ACCEPTED_PER_STEP
    assert customers.refused, "no transfer was refused: balances were never at stake"
    # Money is neither made nor lost, and nobody ever spent what he did not have.
    assert {book: sum(balances.values()) for book, balances in truth.balances.items()} == {
        book: len(ACCOUNTS) * OPENING_BALANCE for book in BOOKS
    }
    assert truth.lowest >= 0
    # Both databases say what the log says.
    await _until_equal(lambda: _balances(session, accounts), truth.balances)
    summaries = {
        book: {
            "accounts": len(ACCOUNTS),
            "transfers": sum(transfer.book == book for transfer in truth.transfers),
            "volume": sum(transfer.amount for transfer in truth.transfers if transfer.book == book),
            "total": len(ACCOUNTS) * OPENING_BALANCE,
        }
        for book in BOOKS
    }
    await _until_equal(lambda: _summaries(session, statements), summaries)
    for (book, account), movements in truth.movements.items():
        async with session.get(f"{statements.url}/books/{book}/accounts/{account}") as answer:
            lines = await answer.json()
        assert [(line["amount"], line["balance"]) for line in lines] == movements
        assert [line["number"] for line in lines] == list(range(1, len(lines) + 1))
