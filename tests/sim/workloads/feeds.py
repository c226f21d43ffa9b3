"""Readers: long feeds with slow consumers, short feeds from anywhere, several partitions at once, single
payloads, marks."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from typing import Any

from tests.sim.checkers.history import Violation
from tests.sim.cluster.access import ClusterAccess, Main
from tests.sim.workloads.pace import pause
from tests.sim.workloads.tracked import TrackedClient, open_client
from tests.sim.workloads.view import CATCH_UP_SECONDS
from waltz_client import FeedTransaction

NAME = "feeds"
SHORT_FEED_SECONDS = 10.0


class Feeds:
    """One slow reader of everything, one that jumps about."""

    def __init__(self) -> None:
        self.name = NAME

    def processes(self, access: ClusterAccess) -> list[tuple[str, Main]]:
        """The readers."""
        slow_rng, jumping_rng = access.rng("feeds-slow"), access.rng("feeds-jumping")
        slow: Callable[[], Any] = lambda: _run_slow(access, slow_rng)  # noqa: E731
        jumping: Callable[[], Any] = lambda: _run_jumping(access, jumping_rng)  # noqa: E731
        return [("feeds-slow", slow), ("feeds-jumping", jumping)]


# -- slow ----------------------------------------------------------------------------------------------------


async def _run_slow(access: ClusterAccess, rng: random.Random) -> None:
    """Read all partitions from the beginning with one feed, in no hurry until the workloads are over."""
    places = dict.fromkeys(range(access.partitions), -1)
    with_data = rng.random() < 0.5
    in_batches = rng.random() < 0.5
    small = {
        "prefetch_transactions": rng.choice((1, 3, 512)),
        "prefetch_bytes": rng.choice((100, 8_000_000)),
        "feed_buffer_transactions": 1024,
    }

    async def take(transaction: FeedTransaction) -> None:
        places[transaction.partition_id] = transaction.transaction_id
        if not access.stopping.is_set():
            chance = rng.random()
            if chance < 0.01:
                await asyncio.sleep(rng.uniform(5, 20))
            elif chance < 0.3:
                await asyncio.sleep(rng.uniform(0, 0.2))

    async with open_client(access, "feeds-slow", None, **small) as client, asyncio.TaskGroup() as group:
        reading = group.create_task(
            client.follow(dict(places), take, with_data=with_data, in_batches=in_batches)
        )
        await access.stopping.wait()
        await _wait_for_marks(client, places)
        reading.cancel()


async def _wait_for_marks(client: TrackedClient, places: dict[int, int]) -> None:
    """A reader with a short window may need long for many transactions; it may not stop."""
    loop = asyncio.get_running_loop()
    for partition in places:
        mark = await client.high_water_mark(partition, CATCH_UP_SECONDS)
        seen, deadline = dict(places), loop.time() + CATCH_UP_SECONDS
        while mark is None or places[partition] < mark:
            if places != seen:
                seen, deadline = dict(places), loop.time() + CATCH_UP_SECONDS
            if loop.time() >= deadline:
                text = f"{client.name}: is at {places[partition]} of {mark} in partition {partition}"
                client.history.report(Violation("progress", text))
                break
            await asyncio.sleep(0.5)


# -- here and there ------------------------------------------------------------------------------------------


async def _run_jumping(access: ClusterAccess, rng: random.Random) -> None:
    """Short feeds from the beginning, the middle or the end, marks and payloads."""
    async with open_client(
        access, "feeds-jumping", None, prefetch_transactions=rng.choice((2, 512))
    ) as client:
        while await pause(access, rng, 3.0):
            partition = rng.randrange(access.partitions)
            action = rng.random()
            if action < 0.3:
                await client.high_water_mark(partition)
            elif action < 0.6:
                mark = access.history.book.mark(partition)
                await client.get_data(partition, rng.randint(0, max(mark, 0)), 20.0)
            else:
                await _read_some(access, rng, client, partition)


async def _read_some(
    access: ClusterAccess, rng: random.Random, client: TrackedClient, partition: int
) -> None:
    mark = access.history.book.mark(partition)
    kind = rng.choice(("latest", "middle", "near", "bounded"))
    after: int | None = None if kind == "latest" else rng.randint(max(-1, mark - 30), mark)
    if kind == "middle":
        after = rng.randint(-1, mark)
    until: dict[int, int] | None = None
    if kind == "bounded" and after is not None:
        until = {partition: after + rng.randint(0, 20)}

    def take(_: FeedTransaction) -> None:
        return None

    try:
        async with asyncio.timeout(rng.uniform(0.1, SHORT_FEED_SECONDS)):
            await client.follow({partition: after}, take, with_data=rng.random() < 0.2, until=until)
    except TimeoutError:
        access.history.counts["feeds left early"] += 1
