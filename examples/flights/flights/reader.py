"""The second client of the demo: reads the whole log from its beginning, with payloads, into the checker."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from flights.checker import FlightChecker
from waltz_client import WaltzClient


async def log_lengths(config: Path) -> dict[int, int]:
    """High-water mark of every partition."""
    async with WaltzClient.connect(config) as client:
        return {
            partition: await client.high_water_mark(partition) for partition in range(client.num_partitions)
        }


async def read_all(config: Path, checker: FlightChecker, progress: Callable[[int], None]) -> float:
    """Give every transaction of the log to the checker; the seconds it took."""
    async with WaltzClient.connect(config) as client:
        until = {
            partition: await client.high_water_mark(partition) for partition in range(client.num_partitions)
        }
        started = time.monotonic()
        async with client.feed(range(client.num_partitions), after=-1, until=until) as feed:
            async for batch in feed.batches():
                for transaction in batch:
                    checker.add(transaction.partition_id, transaction.transaction_id, transaction.data)
                progress(len(batch))
        return time.monotonic() - started
