"""One writer per partition: an append every so often, the next one when the one before has its outcome."""

from __future__ import annotations

import asyncio
import time
from datetime import UTC, datetime

from waltz_client import AppendError, Outcome, WaltzClient, WaltzClientError

from .check import Verdict, judge
from .record import PartitionRecord, Record

DEADLINE_SECONDS = 120.0
PAUSE_SECONDS = 0.1
LONG_SECONDS = 1.0
"""A longer pause is printed, with the time at which it ended, to be looked for in the logs of the others."""
_READ_SECONDS = 300.0


def _long(partition: int, seconds: float) -> str:
    ended = datetime.now(UTC).isoformat(timespec="milliseconds")
    return f"partition {partition}: nothing was acknowledged for {seconds:.2f} s, until {ended}"


async def write(client: WaltzClient, record: Record, partition: int, stop: asyncio.Event) -> None:
    """Append until `stop`. An unknown outcome is remembered and never repeated."""
    part = record.partitions.setdefault(partition, PartitionRecord())
    sequence = 0
    due = time.monotonic()
    while not stop.is_set():
        data = record.payload(partition, sequence)
        try:
            done = await client.append(partition=partition, data=data, deadline_seconds=DEADLINE_SECONDS)
        except AppendError as error:
            (part.failed if error.outcome is Outcome.FAILED else part.unknown).add(sequence)
            await asyncio.sleep(PAUSE_SECONDS)
        except WaltzClientError:  # nothing was sent
            part.failed.add(sequence)
            await asyncio.sleep(PAUSE_SECONDS)
        else:
            now = time.monotonic()
            if part.last_acknowledged_at is not None and now - part.last_acknowledged_at > LONG_SECONDS:
                print(_long(partition, now - part.last_acknowledged_at), flush=True)
            part.acknowledge(sequence, done.transaction_id, now)
        sequence += 1
        due = max(due + record.interval_of(partition), time.monotonic())
        await asyncio.sleep(due - time.monotonic())


async def check(config: str, record: Record, after: dict[int, int]) -> Verdict:
    """Read the log behind the given ids with a client of its own, as far as it goes now, and judge it.

    Whatever was acknowledged before the call is at most the high-water mark that is asked for here.
    """
    verdict = Verdict()
    async with asyncio.timeout(_READ_SECONDS), WaltzClient.connect(config) as client:
        for partition, part in sorted(record.partitions.items()):
            known = Record(record.run, {partition: _copy(part)})
            end = await client.high_water_mark(partition)
            log: list[tuple[int, bytes]] = []
            start = after.get(partition, -1)
            if end > start:
                async with client.feed(partition, after=start, until=end) as feed:
                    log = [
                        (transaction.transaction_id, transaction.data or b"") async for transaction in feed
                    ]
            judge(verdict, known, partition, log, start)
    return verdict


def _copy(part: PartitionRecord) -> PartitionRecord:
    """What was known before the log was read: the writer continues meanwhile."""
    return PartitionRecord(dict(part.acknowledged), set(part.unknown), set(part.failed))
