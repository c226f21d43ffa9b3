"""A load whose every append is remembered with its outcome, and the check that the log agrees with it.

Written apart from the code it checks: it knows only the public client, and the rules *acknowledged ⇒ in the
log exactly once, at the acknowledged id*; *failed ⇒ not in the log*; *ids without gaps*.
"""

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

from waltz_client import LockId, WaltzClient
from waltz_client.errors import AppendError, Outcome

DATA_BYTES = 120


@dataclass
class History:
    """What the writers know. Keys are payloads, which are unique."""

    acknowledged: dict[bytes, tuple[int, int]] = field(default_factory=dict)
    failed: set[bytes] = field(default_factory=set)
    unknown: set[bytes] = field(default_factory=set)
    longest_gap_seconds: float = 0.0
    """Longest time without an acknowledged append in any one partition since `start_round`."""
    _last: dict[int, float] = field(default_factory=dict)

    def committed(self, data: bytes, partition: int, transaction_id: int) -> None:
        now = time.monotonic()
        self.longest_gap_seconds = max(self.longest_gap_seconds, now - self._last.get(partition, now))
        self._last[partition] = now
        self.acknowledged[data] = (partition, transaction_id)

    def start_round(self) -> None:
        now = time.monotonic()
        self._last = dict.fromkeys(self._last, now)
        self.longest_gap_seconds = 0.0

    def end_round(self) -> None:
        """Count the pauses that are still in progress."""
        now = time.monotonic()
        self.longest_gap_seconds = max(
            [self.longest_gap_seconds, *(now - last for last in self._last.values())]
        )


class Workload:
    """Closed-loop writers over all partitions, with and without locks, through one client object each.

    `failed` holds what the client said has certainly not been committed; the retry of such a transaction is a
    new payload.
    """

    def __init__(self, config: Path, writers: int = 4) -> None:
        self.history = History()
        self._config = config
        self._writers = writers

    @property
    def in_flight(self) -> int:
        """Appends under way per partition while it runs."""
        return self._writers

    @asynccontextmanager
    async def running(self) -> AsyncIterator[History]:
        """Writes from entry to exit; what is under way at exit is waited for."""
        stop = asyncio.Event()
        async with asyncio.TaskGroup() as group:
            for number in range(self._writers):
                group.create_task(self._write(number, stop))
            try:
                yield self.history
            finally:
                stop.set()

    async def _write(self, number: int, stop: asyncio.Event) -> None:
        async with WaltzClient.connect(self._config) as client, asyncio.TaskGroup() as group:
            for partition in range(client.num_partitions):
                group.create_task(self._write_partition(client, number, partition, stop))

    async def _write_partition(
        self, client: WaltzClient, number: int, partition: int, stop: asyncio.Event
    ) -> None:
        history = self.history
        count = 0
        while not stop.is_set():
            count += 1
            data = f"{client.client_id}/{number}/{partition}/{count}".encode().ljust(DATA_BYTES, b".")
            # Every third append competes for one of a few locks, so that conflicts and their retries happen.
            locks = [LockId("register", count % 5)] if count % 3 == 0 else []
            try:
                done = await client.append(
                    partition=partition, data=data, write_locks=locks, deadline_seconds=120
                )
            except AppendError as error:
                if error.outcome is Outcome.FAILED:
                    history.failed.add(data)
                else:
                    history.unknown.add(data)
            else:
                history.committed(data, partition, done.transaction_id)


@dataclass(frozen=True)
class Verdict:
    """What is wrong between a history and the log; all empty or zero when nothing is."""

    transactions: int
    lost: list[bytes]
    doubled: list[bytes]
    resurrected: list[bytes]
    strangers: list[bytes]
    gaps: list[str]

    @property
    def passed(self) -> bool:
        return not (self.lost or self.doubled or self.resurrected or self.strangers or self.gaps)

    def __str__(self) -> str:
        return (
            f"{self.transactions} in the log, lost {len(self.lost)}, doubled {len(self.doubled)}, failed but present "
            f"{len(self.resurrected)}, never written {len(self.strangers)}, gaps {len(self.gaps)}"
        )


async def check_log(config: Path, history: History) -> Verdict:
    """Read the whole log from its beginning with a fresh client and hold it against the history."""
    seen: Counter[bytes] = Counter()
    places: dict[bytes, tuple[int, int]] = {}
    gaps: list[str] = []
    async with WaltzClient.connect(config) as client:
        until = {
            partition: await client.high_water_mark(partition) for partition in range(client.num_partitions)
        }
        expected = dict.fromkeys(until, 0)
        async with client.feed([p for p in until if until[p] >= 0], after=-1, until=until) as feed:
            async for transaction in feed:
                partition, transaction_id = transaction.partition_id, transaction.transaction_id
                if transaction_id != expected[partition]:
                    gaps.append(
                        f"partition {partition}: {transaction_id} where {expected[partition]} was expected"
                    )
                expected[partition] = transaction_id + 1
                data = bytes(transaction.data or b"")
                seen[data] += 1
                places[data] = (partition, transaction_id)
    gaps += [
        f"partition {p} ends at {expected[p] - 1}, not {until[p]}"
        for p in until
        if expected[p] != until[p] + 1
    ]
    return Verdict(
        sum(seen.values()),
        [data for data, place in history.acknowledged.items() if places.get(data) != place],
        [data for data, count in seen.items() if count > 1],
        [data for data in history.failed if data in seen],
        [data for data in seen if data not in history.acknowledged and data not in history.unknown],
        gaps,
    )
