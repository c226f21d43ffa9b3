"""Two instances of examples/inventory under load, while servers and the instances themselves are killed:
nothing is oversold, and every reservation that was acknowledged is in the log once."""

import asyncio
import itertools
import os
import random
import sys
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path

import aiohttp
import pytest
import yaml

from waltz_client import JSON, WaltzClient
from waltz_testkit.ports import free_port
from waltz_testkit.postgres import find_binaries, postgres_server
from waltz_tools.local import LocalCluster, LocalSettings

pytestmark = [pytest.mark.long, pytest.mark.timeout(300)]

EXAMPLE = Path(__file__).parents[2] / "examples" / "inventory"
WAREHOUSES = ("north", "south")
PIECES = 12
CUSTOMERS = 4
ANSWERS_PER_STEP = 12
STEP_SECONDS = 60.0
DELIVERED, RESERVED, REFUSED, SHIPPED, CANCELLED, TICKED = range(1, 7)
"""The kinds of headers."""
STATES = {SHIPPED: "shipped", CANCELLED: "cancelled", TICKED: "expired"}


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[LocalCluster]:
    settings = LocalSettings(
        tmp_path / "cluster", storage_nodes=3, servers=2, partitions=4, session_timeout_ms=2_000
    )
    async with LocalCluster(settings) as cluster:
        yield cluster


@pytest.fixture
def databases(tmp_path: Path) -> Iterator[tuple[str, str]]:
    """The second is PostgreSQL where the machine has it: instances need not have the same kind."""
    first, binaries = f"sqlite:///{tmp_path}/first.db", find_binaries()
    if binaries is None:
        yield first, f"sqlite:///{tmp_path}/second.db"
    else:
        with postgres_server(binaries) as server:
            yield first, server.create_database("second")


class Instance:
    """`python -m inventory`, with a database and a port of its own."""

    def __init__(self, name: str, directory: Path, client_config: Path, database: str) -> None:
        self.port = free_port()
        self._config = directory / f"{name}.yaml"
        keys = {
            "client": str(client_config),
            "database": database,
            "port": self.port,
            "tick_seconds": 0.5,
            "hold_ticks": 2,
            "deadline_seconds": 5,
        }
        self._config.write_text(yaml.safe_dump(keys))
        self._log = directory / f"{name}.log"
        self._process: asyncio.subprocess.Process | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    async def start(self) -> None:
        with self._log.open("ab") as log:
            self._process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "inventory", str(self._config)),
                cwd=EXAMPLE,
                stderr=log,
                env={**os.environ},
            )

    async def wait_ready(self, session: aiohttp.ClientSession) -> None:
        async with asyncio.timeout(STEP_SECONDS):
            while True:
                assert self._process is not None
                assert self._process.returncode is None, self._log.read_text()
                try:
                    async with session.get(f"{self.url}/health") as answer:
                        if answer.status == 200:
                            return
                except aiohttp.ClientError:
                    pass
                await asyncio.sleep(0.05)

    async def kill(self) -> None:
        assert self._process is not None
        assert self._process.returncode is None, self._log.read_text()
        self._process.kill()
        await self._process.wait()

    async def stop(self) -> None:
        """SIGTERM, an orderly end."""
        if self._process is not None and self._process.returncode is None:
            self._process.terminate()
            assert await self._process.wait() == 0, self._log.read_text()


@dataclass
class Customers:
    """Order, and ship or cancel some of what they got, each again at any instance until they are answered."""

    session: aiohttp.ClientSession
    instances: tuple[Instance, ...]
    reserved: set[tuple[str, str]] = field(default_factory=set)
    refused: set[tuple[str, str]] = field(default_factory=set)
    ended: dict[tuple[str, str], str] = field(default_factory=dict)
    repeated: int = 0
    _numbers: "itertools.count[int]" = field(default_factory=itertools.count)

    async def deliver(self) -> None:
        for warehouse in WAREHOUSES:
            body = {"id": "truck", "item": "lamp", "quantity": PIECES}
            for instance in self.instances:  # twice
                url = f"{instance.url}/warehouses/{warehouse}/deliveries"
                while True:
                    async with self.session.post(url, json=body) as answer:
                        if answer.status == 503:  # it is known by its id
                            await asyncio.sleep(0.1)
                            continue
                        assert answer.status == 201, await answer.text()
                        break

    async def order(self, rng: random.Random, stop: asyncio.Event) -> None:
        while not stop.is_set():
            warehouse, id = rng.choice(WAREHOUSES), f"order {next(self._numbers)}"
            body = {"id": id, "item": "lamp", "quantity": rng.randint(1, 6)}
            state = await self._ask(rng, f"{warehouse}/orders", body)
            (self.refused if state == "refused" else self.reserved).add((warehouse, id))
            step = rng.choice(["cancel", "cancel", "cancel", "ship", "nothing", "nothing"])
            if state == "reserved" and step != "nothing":
                self.ended[warehouse, id] = await self._ask(rng, f"{warehouse}/orders/{id}/{step}")
            if self.ended.get((warehouse, id)) == "shipped":
                await self._ask(rng, f"{warehouse}/deliveries", body | {"id": f"in place of {id}"})
            await asyncio.sleep(0.02)

    async def _ask(self, rng: random.Random, path: str, body: object = None) -> str:
        while True:
            url = f"{rng.choice(self.instances).url}/warehouses/{path}"
            try:
                async with self.session.post(url, json=body) as answer:
                    if answer.status in (200, 201, 409):
                        return str((await answer.json())["state"])
                    assert answer.status == 503, (answer.status, await answer.text())
            except aiohttp.ClientError:
                pass
            self.repeated += 1
            await asyncio.sleep(0.1)


@dataclass
class Truth:
    """The log, read from its beginning with a fresh client and added up without the example's code."""

    reserved: "Counter[tuple[str, str]]" = field(default_factory=Counter)
    refused: "Counter[tuple[str, str]]" = field(default_factory=Counter)
    ended: dict[tuple[str, str], str] = field(default_factory=dict)
    on_hand: "Counter[str]" = field(default_factory=Counter)
    available: "Counter[str]" = field(default_factory=Counter)
    ticks: dict[int, list[int]] = field(default_factory=dict)

    @classmethod
    async def read(cls, config: Path) -> "Truth":
        truth = cls()
        async with WaltzClient.connect(config) as client:
            marks = {p: await client.high_water_mark(p) for p in range(client.num_partitions)}
            async for one in client.feed(marks, until=marks):
                event = one.value(JSON)
                if one.header & 0xFF == TICKED:
                    truth.ticks.setdefault(one.partition_id, []).append(event["tick"])
                for entry in event.get("expired", [event]):
                    truth._add(one.header & 0xFF, entry)
        return truth

    def _add(self, kind: int, event: dict[str, object]) -> None:
        warehouse, quantity = str(event["warehouse"]), int(str(event["quantity"]))
        id = (warehouse, str(event["id"]))
        if kind == DELIVERED:
            self.on_hand[warehouse] += quantity
            self.available[warehouse] += quantity
        elif kind == RESERVED:
            self.reserved[id] += 1
            self.available[warehouse] -= quantity
            assert self.available[warehouse] >= 0, f"{event} was oversold"
        elif kind == REFUSED:
            self.refused[id] += 1
            assert self.available[warehouse] < quantity, f"{event} was refused without a reason"
        else:
            assert id in self.reserved
            assert id not in self.ended, f"{id} was {self.ended[id]}, and then {STATES[kind]}"
            self.ended[id] = STATES[kind]
            if kind == SHIPPED:
                self.on_hand[warehouse] -= quantity
            else:
                self.available[warehouse] += quantity


async def test_nothing_is_oversold_while_servers_and_instances_are_killed(
    cluster: LocalCluster, databases: tuple[str, str], tmp_path: Path
) -> None:
    instances = tuple(
        Instance(name, tmp_path, cluster.client_config, database)
        for name, database in zip(("first", "second"), databases, strict=True)
    )
    stop = asyncio.Event()
    async with AsyncExitStack() as stack:
        session = await stack.enter_async_context(
            aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=30))
        )
        for instance in instances:
            stack.push_async_callback(instance.stop)
            await instance.start()
        for instance in instances:
            await instance.wait_ready(session)
        customers = Customers(session, instances)
        await customers.deliver()

        async def progress() -> None:
            wanted = len(customers.reserved) + ANSWERS_PER_STEP
            async with asyncio.timeout(STEP_SECONDS):
                while len(customers.reserved) < wanted:
                    await asyncio.sleep(0.02)

        async with asyncio.TaskGroup() as group:
            for number in range(CUSTOMERS):
                group.create_task(customers.order(random.Random(number), stop))
            try:
                await progress()
                for server, instance in zip(cluster.server_roles, instances, strict=True):
                    await cluster.kill_role(server)
                    await progress()
                    await instance.kill()
                    await progress()
                    await cluster.start_role(server)
                    await instance.start()
                    await instance.wait_ready(session)
                    await progress()
            finally:
                stop.set()

        stock = await _settled(session, instances)
        truth = await Truth.read(cluster.client_config)
    # Every reservation that was acknowledged is in the log exactly once, and so is every refusal.
    assert truth.reserved == dict.fromkeys(customers.reserved, 1)
    assert truth.refused == dict.fromkeys(customers.refused, 1)
    # The end that a customer had as an answer is what the log says; the others have expired.
    assert truth.ended == dict.fromkeys(customers.reserved, "expired") | customers.ended
    assert set(truth.ended.values()) == {"shipped", "cancelled", "expired"}
    assert customers.refused, "no order was refused: the last piece was never at stake"
    assert customers.repeated, "nobody noticed a kill"
    assert all(ticks == list(range(1, len(ticks) + 1)) for ticks in truth.ticks.values())
    # Both instances say what the log says.
    assert truth.available == truth.on_hand == dict.fromkeys(WAREHOUSES, PIECES)
    assert stock == [{"on_hand": PIECES, "reserved": 0, "available": PIECES}] * (
        len(WAREHOUSES) * len(instances)
    )
    print(
        f"\n{len(customers.reserved)} reserved, {len(customers.refused)} refused, {customers.repeated} asked again"
    )


async def _settled(session: aiohttp.ClientSession, instances: tuple[Instance, ...]) -> list[dict[str, int]]:
    """The stock of every warehouse at every instance, once all reservations have ended."""
    async with asyncio.timeout(STEP_SECONDS):
        while True:
            stock = []
            for warehouse in WAREHOUSES:
                for instance in instances:
                    async with session.get(f"{instance.url}/warehouses/{warehouse}/items/lamp") as answer:
                        stock.append(await answer.json())
            if not any(one["reserved"] for one in stock):
                return stock
            await asyncio.sleep(0.1)
