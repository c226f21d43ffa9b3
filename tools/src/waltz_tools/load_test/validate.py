"""Producers that append under one write lock, and a consumer that checks what came of it.

Other writers may use the same partitions. Nothing waits without an end: whatever is not done at the deadline
is an error that shows how far it got.
"""

from __future__ import annotations

import asyncio
import itertools
import random
from collections.abc import Callable, Mapping, Sequence

from waltz_client import LockConflictError, WaltzClient
from waltz_tools.errors import DegradedError, ToolError
from waltz_tools.load_test.chain import ChainCheck, Link, run_lock

Connect = Callable[[], WaltzClient]
MAX_CLIENTS = 10_000
"""Of one command: all are in one process."""
Report = Callable[[int], object]
"""Called with how many transactions are done."""


def quiet(done: int) -> None:
    """The default: reports nothing."""


async def marks(client: WaltzClient, partitions: Sequence[int], deadline_seconds: float) -> dict[int, int]:
    """High-water marks, -1 for an empty partition."""
    return {p: await client.high_water_mark(p, deadline_seconds=deadline_seconds) for p in partitions}


def active_partitions(client: WaltzClient, count: int) -> list[int]:
    """The first `count` partitions; an error of one line if the cluster has fewer."""
    if count > client.num_partitions:
        raise ToolError(f"the cluster has {client.num_partitions} partitions, not {count}")
    return list(range(count))


class Producer:
    """Appends the links of one producer, at random moments with the given mean distance."""

    def __init__(self, client: WaltzClient, run: str, name: str, interval_seconds: float) -> None:
        self._client, self._run, self._name = client, run, name
        self._interval_seconds = interval_seconds
        self._chain = ChainCheck(run)
        self._read: dict[int, int] = {}
        self._moved = asyncio.Condition()
        self.conflicts = 0

    async def produce(self, count: int, after: Mapping[int, int], report: Report = quiet) -> None:
        """Append `count` transactions to the partitions of `after`; reads them from there on to know what
        precedes."""
        self._read = dict(after)
        async with asyncio.TaskGroup() as group:
            reader = group.create_task(self._follow(after))
            for number in range(count):
                if self._interval_seconds:
                    await asyncio.sleep(random.expovariate(1 / self._interval_seconds))
                await self._append(random.choice(list(after)), number)
                report(number + 1)
            reader.cancel()

    async def _follow(self, after: Mapping[int, int]) -> None:
        async with self._client.feed(list(after), after=dict(after)) as feed:
            async for transaction in feed:
                partition, transaction_id = transaction.partition_id, transaction.transaction_id
                self._chain.take(partition, transaction_id, transaction.data or b"")
                self._read[partition] = transaction_id
                async with self._moved:
                    self._moved.notify_all()

    async def _append(self, partition: int, number: int) -> None:
        wanted = await self._client.high_water_mark(partition)
        while True:
            async with self._moved:
                await self._moved.wait_for(lambda mark=wanted: self._read[partition] >= mark)  # type: ignore[misc]
            link = Link(self._run, self._name, number, self._chain.last(partition))
            try:
                await self._client.append(
                    partition=partition,
                    data=link.to_bytes(),
                    write_locks=[run_lock(self._run)],
                    as_of=self._read[partition],
                )
                return
            except LockConflictError as error:
                self.conflicts += 1
                wanted = error.conflicting_high_water_mark


async def consume(
    client: WaltzClient, run: str, expected: int, after: Mapping[int, int], report: Report = quiet
) -> ChainCheck:
    """Read on from `after` until `expected` transactions of the run were found, checking each."""
    check = ChainCheck(run)
    if expected:
        async with client.feed(list(after), after=dict(after)) as feed:
            async for transaction in feed:
                check.take(transaction.partition_id, transaction.transaction_id, transaction.data or b"")
                report(check.found)
                if check.found >= expected:
                    break
    return check


async def validate(
    connect: Connect,
    run: str,
    clients: int,
    per_client: int,
    interval_seconds: float,
    num_partitions: int,
    report: Report = quiet,
) -> ChainCheck:
    """All of it: the producers at the same time, then a new client that reads. DegradedError names the first
    problem.

    `report` counts every transaction twice: when it is appended and when it has been checked.
    """
    async with connect() as observer:
        partitions = active_partitions(observer, num_partitions)
        after = await marks(observer, partitions, 30.0)

    done = itertools.count(1)

    async def one(number: int) -> None:
        async with connect() as client:
            producer = Producer(client, run, str(number), interval_seconds)
            await producer.produce(per_client, after, lambda _: report(next(done)))

    async with asyncio.TaskGroup() as group:
        for number in range(clients):
            group.create_task(one(number))
    async with connect() as client:
        total = clients * per_client
        check = await consume(client, run, total, after, lambda found: report(total + found))
    if check.problems:
        raise DegradedError(f"{len(check.problems)} problems: {check.problems[0]}")
    return check
