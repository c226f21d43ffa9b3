"""Rough figures of a running cluster: what clients in one process get out of it. `bench/` measures more
carefully."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from waltz_client import Append, AppendError, LockConflictError, LockId, WaltzClient
from waltz_tools.load_test.validate import Report, active_partitions, marks, quiet

Connect = Callable[[], WaltzClient]
LOCK_NAME = "waltz-perf"
MAX_CONSUMER_TEST_CLIENTS = 100


@dataclass(slots=True)
class Produced:
    """What the producers did; times in seconds, sizes in bytes."""

    transactions: int = 0
    data_bytes: int = 0
    seconds: float = 0.0
    retries: int = 0
    latency_seconds: float = 0.0

    def facts(self) -> dict[str, object]:
        """Totals and rates; rates of nothing are 0."""
        count = max(self.transactions, 1)
        return {
            "transactions": self.transactions,
            "bytes": self.data_bytes,
            "seconds": round(self.seconds, 3),
            "transactions_per_second": _rate(self.transactions, self.seconds),
            "mib_per_second": round(_rate(self.data_bytes, self.seconds) / (1 << 20), 3),
            "retries_per_transaction": round(self.retries / count, 4),
            "mean_latency_ms": round(self.latency_seconds / count * 1000, 3),
        }


@dataclass(frozen=True, slots=True)
class ProducerTest:
    """`lock_pool_size` 0 = no locks; `interval_seconds` 0 = as fast as `in_flight` appends per client
    allow."""

    size_bytes: int
    per_client: int
    clients: int
    interval_seconds: float
    num_partitions: int
    lock_pool_size: int
    in_flight: int


async def produce(connect: Connect, test: ProducerTest, report: Report = quiet) -> Produced:
    """Connect and mount all clients with one unmeasured append each, then run them against the clock."""
    total = Produced()
    ready, start = [asyncio.Event() for _ in range(test.clients)], asyncio.Event()

    async def one(number: int) -> None:
        async with connect() as client:
            partitions = active_partitions(client, test.num_partitions)
            for partition in partitions:
                await client.append(partition=partition, data=b"")
            ready[number].set()
            await start.wait()
            numbers = iter(range(test.per_client))
            async with asyncio.TaskGroup() as writers:
                for _ in range(min(test.in_flight, test.per_client)):
                    writers.create_task(_write(client, test, partitions, numbers, total, report))

    async with asyncio.TaskGroup() as group:
        for number in range(test.clients):
            group.create_task(one(number))
        for event in ready:
            await event.wait()
        began = time.perf_counter()
        start.set()
    total.seconds = time.perf_counter() - began
    return total


async def _write(
    client: WaltzClient,
    test: ProducerTest,
    partitions: list[int],
    numbers: Iterator[int],
    total: Produced,
    report: Report,
) -> None:
    data = bytes(test.size_bytes)
    for _ in numbers:
        if test.interval_seconds:
            await asyncio.sleep(random.expovariate(1 / (test.interval_seconds * test.in_flight)))
        locks = [LockId(LOCK_NAME, random.randrange(test.lock_pool_size))] if test.lock_pool_size else []
        began = time.perf_counter()
        partition = random.choice(partitions)
        as_of: int | None = None
        while True:
            try:
                await client.append(partition=partition, data=data, write_locks=locks, as_of=as_of)
                break
            except LockConflictError as error:
                total.retries += 1
                as_of = error.conflicting_high_water_mark
        total.transactions += 1
        total.data_bytes += test.size_bytes
        total.latency_seconds += time.perf_counter() - began
        report(total.transactions)


@dataclass(slots=True)
class Consumed:
    """What the consumer read."""

    transactions: int = 0
    data_bytes: int = 0
    seconds: float = 0.0

    def facts(self) -> dict[str, object]:
        """Totals and rates."""
        return {
            "transactions": self.transactions,
            "bytes": self.data_bytes,
            "seconds": round(self.seconds, 3),
            "transactions_per_second": _rate(self.transactions, self.seconds),
            "mib_per_second": round(_rate(self.data_bytes, self.seconds) / (1 << 20), 3),
        }


async def consume(
    connect: Connect, size_bytes: int, count: int, num_partitions: int, report: Report = quiet
) -> Consumed:
    """Write `count` transactions, then let a new client read back, with data, all that came since the
    start."""
    async with connect() as client:
        partitions = active_partitions(client, num_partitions)
        before = await marks(client, partitions, 30.0)
    clients = min(MAX_CONSUMER_TEST_CLIENTS, count)

    async def fill(number: int) -> None:
        mine = range(number, count, clients)
        async with connect() as client:
            appends = (Append(partitions[n % len(partitions)], bytes(size_bytes)) for n in mine)
            for result in await client.append_many(appends):
                if isinstance(result, AppendError):
                    raise result

    async with asyncio.TaskGroup() as group:
        for number in range(clients):
            group.create_task(fill(number))
    read = Consumed()
    async with connect() as client:
        after = await marks(client, partitions, 30.0)
        filled = [p for p in partitions if after[p] > before[p]]
        began = time.perf_counter()
        if filled:
            async with client.feed(filled, after=before, until=after) as feed:
                async for transaction in feed:
                    read.transactions += 1
                    read.data_bytes += len(transaction.data or b"")
                    report(read.transactions)
        read.seconds = time.perf_counter() - began
    return read


def _rate(amount: float, seconds: float) -> float:
    return round(amount / seconds, 1) if seconds else 0.0
