"""The two services of examples/ledger as processes, customers who keep asking until they are answered, and
the truth of the log."""

import asyncio
import itertools
import os
import random
import sys
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

import aiohttp
import yaml

from waltz_client import WaltzClient
from waltz_client.serializers import JSON
from waltz_testkit.ports import free_port

EXAMPLE = Path(__file__).parents[2] / "examples" / "ledger"
BOOKS = ("EUR", "USD", "CHF")
ACCOUNTS = tuple(f"account-{number}" for number in range(6))
OPENING_BALANCE = 1_000
_START_SECONDS = 60.0


class LedgerService:
    """`python -m ledger.accounts` or `ledger.statements`, with a database and a port of its own."""

    def __init__(self, name: str, directory: Path, client_config: Path, database: str) -> None:
        self.name = name
        self.port = free_port()
        self.kills = 0
        self._config = directory / f"{name}.yaml"
        self._config.write_text(
            yaml.safe_dump({"client": str(client_config), "database": database, "port": self.port})
        )
        self._log = directory / f"{name}.log"
        self._process: asyncio.subprocess.Process | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def log(self) -> str:
        return self._log.read_text()

    async def start(self) -> None:
        with self._log.open("ab") as log:
            self._process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", f"ledger.{self.name}", str(self._config)),
                cwd=EXAMPLE,
                stderr=log,
                env={**os.environ, "PYTHONPATH": str(EXAMPLE)},
            )

    async def wait_ready(self, session: aiohttp.ClientSession) -> None:
        """Until it answers; fails with its log when it ends first."""
        async with asyncio.timeout(_START_SECONDS):
            while True:
                assert self._process is not None
                assert self._process.returncode is None, self.log
                try:
                    async with session.get(f"{self.url}/books/none"):
                        return
                except aiohttp.ClientError:
                    await asyncio.sleep(0.05)

    async def kill(self) -> None:
        """SIGKILL; fails when it had ended on its own."""
        assert self._process is not None
        assert self._process.returncode is None, self.log
        self.kills += 1
        await self.end()

    async def end(self) -> None:
        if self._process is not None and self._process.returncode is None:
            self._process.kill()
            await self._process.wait()

    async def stop(self) -> int | None:
        """SIGTERM; the exit code."""
        assert self._process is not None
        self._process.terminate()
        return await self._process.wait()


@dataclass(frozen=True)
class Ordered:
    """A transfer as its customer knows it."""

    book: str
    id: str
    source: str
    target: str
    amount: int


@dataclass
class Customers:
    """Order transfers, each again with the same id until the service has answered it."""

    url: str
    accepted: dict[str, Ordered] = field(default_factory=dict)
    refused: dict[str, Ordered] = field(default_factory=dict)
    repeated: int = 0
    _numbers: "itertools.count[int]" = field(default_factory=itertools.count)

    async def open_accounts(self, session: aiohttp.ClientSession) -> None:
        for book in BOOKS:
            for account in ACCOUNTS:
                body = {"account": account, "balance": OPENING_BALANCE}
                again = False
                while True:
                    async with session.post(f"{self.url}/books/{book}/accounts", json=body) as answer:
                        if answer.status == 503:
                            again = True
                            await asyncio.sleep(0.1)
                            continue
                        text = await answer.text()
                        assert answer.status == 201 or (again and "the account exists" in text), text
                        break

    async def order(self, session: aiohttp.ClientSession, rng: random.Random, stop: asyncio.Event) -> None:
        """One customer: one transfer after the other, until `stop`; the last one is answered too."""
        while not stop.is_set():
            source, target = rng.sample(ACCOUNTS, 2)
            amount = rng.randint(1, 600)
            order = Ordered(rng.choice(BOOKS), f"t{next(self._numbers)}", source, target, amount)
            (self.accepted if await self._ask(session, order) else self.refused)[order.id] = order
            await asyncio.sleep(0.05)

    async def _ask(self, session: aiohttp.ClientSession, order: Ordered) -> bool:
        body = {"id": order.id, "from": order.source, "to": order.target, "amount": order.amount}
        while True:
            try:
                async with session.post(f"{self.url}/books/{order.book}/transfers", json=body) as answer:
                    status, text = answer.status, await answer.text()
            except aiohttp.ClientError:
                status, text = 503, "the connection broke"
            if status in (201, 409):
                return status == 201
            assert status == 503, (status, text)
            self.repeated += 1
            await asyncio.sleep(0.1)


@dataclass
class Truth:
    """The log, read from its beginning with a fresh client and added up without the example's code."""

    balances: dict[str, dict[str, int]] = field(default_factory=dict)
    transfers: "Counter[Ordered]" = field(default_factory=Counter)
    refusals: "Counter[Ordered]" = field(default_factory=Counter)
    movements: dict[tuple[str, str], list[tuple[int, int]]] = field(default_factory=dict)
    lowest: int = 0
    """Smallest balance that any account ever had."""
    marks: dict[int, int] = field(default_factory=dict)

    @classmethod
    async def read(cls, config: Path) -> "Truth":
        truth = cls()
        async with WaltzClient.connect(config) as client:
            truth.marks = {p: await client.high_water_mark(p) for p in range(client.num_partitions)}
            async for one in client.feed(truth.marks, after=-1, until=truth.marks):
                truth._add(one.header & 0xFF, JSON.deserialize(one.data or b""))
        return truth

    def _add(self, kind: int, event: dict[str, object]) -> None:
        book = str(event["book"])
        if kind == 1:
            self._move(book, str(event["account"]), int(str(event["balance"])))
            return
        amount = int(str(event["amount"]))
        source, target = str(event["source"]), str(event["target"])
        order = Ordered(book, str(event["id"]), source, target, amount)
        if kind == 3:
            self.refusals[order] += 1
            return
        self.transfers[order] += 1
        self._move(book, source, -amount)
        self._move(book, target, amount)

    def _move(self, book: str, account: str, amount: int) -> None:
        accounts = self.balances.setdefault(book, {})
        accounts[account] = accounts.get(account, 0) + amount
        self.lowest = min(self.lowest, accounts[account])
        self.movements.setdefault((book, account), []).append((amount, accounts[account]))
