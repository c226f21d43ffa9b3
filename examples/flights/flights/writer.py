"""One writer of the demo, a process of its own: `python -m flights.writer ARGUMENTS`.

Takes every n-th row of the file and appends each exactly once. Per row: read the aircraft's previous flight
from the applied state, append with a write lock on the aircraft as of that state, and on a conflict wait
until the conflicting transaction is applied and decide again. Rows of one aircraft go one after another
within a writer; between writers only the locks keep order.

An append whose outcome is unknown (its deadline passed while a process was down) is resolved through the log:
the flights of that aircraft behind the view of the attempt are read, and if none is this row, the row is
appended again under the same lock. That is exact: if the earlier attempt commits first, its commit is behind
the new view's back and the new attempt fails by the lock; if the new attempt commits first, the earlier one,
which has an older view, fails by the lock.

Standard output: one JSON line per quarter second with what was committed so far; the measures go to a file at
the end.
"""

from __future__ import annotations

import asyncio
import json
import random
import sys
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from flights.chains import Chains
from flights.data import NO_AIRCRAFT, Flight, FlightPlan, encode_payload, load_plan
from flights.measures import Measures
from waltz_client import (
    AppendError,
    ClientSettings,
    LockConflictError,
    OutcomeUnknownError,
    WaltzClient,
    WaltzClientError,
)
from waltz_cluster.config.files import load_file
from waltz_runtime.counting import new_event_loop
from waltz_tools.__main__ import show

_REPORT_SECONDS = 0.25
_RETRY_SECONDS = 0.02
_READ_SECONDS = 120.0
_MAX_IN_FLIGHT_PER_PARTITION = 1_024


@dataclass(frozen=True, slots=True)
class WriterArguments:
    """What the demo passes to a writer, as one JSON argument."""

    config: str
    result: str
    rows: int | None
    number: int
    writers: int
    in_flight: int
    """Appends on their way at once, over all partitions; each partition gets its share of the rows."""
    deadline_seconds: float


class Writer:
    """Appends the rows of one writer through one client. `measures` is complete when `run` returns."""

    def __init__(
        self, client: WaltzClient, plan: FlightPlan, rows: Sequence[Flight], arguments: WriterArguments
    ) -> None:
        self.measures = Measures()
        self._client = client
        self._plan = plan
        self._arguments = arguments
        self._chains = [Chains() for _ in range(client.num_partitions)]
        self._rows: list[deque[Flight]] = [deque() for _ in range(client.num_partitions)]
        for row in rows:
            self._rows[plan.partition(row)].append(row)
        self._waiting: dict[tuple[int, int], deque[Flight]] = {}
        self._total = len(rows)

    async def run(self) -> None:
        """Append everything. Raises what cannot be retried."""
        async with asyncio.TaskGroup() as readers:
            followers = [
                readers.create_task(self._follow(partition)) for partition in range(len(self._chains))
            ]
            async with asyncio.TaskGroup() as workers:
                for partition, rows in enumerate(self._rows):
                    for _ in range(self._share(len(rows))):
                        workers.create_task(self._work(partition))
            for follower in followers:
                follower.cancel()

    def _share(self, rows: int) -> int:
        if rows == 0:
            return 0
        share = round(self._arguments.in_flight * rows / self._total)
        return min(max(share, 1), rows, _MAX_IN_FLIGHT_PER_PARTITION)

    async def _follow(self, partition: int) -> None:
        chains = self._chains[partition]
        async with self._client.feed(partition, after=-1, headers_only=True) as feed:
            async for batch in feed.batches():
                for transaction in batch:
                    chains.apply(transaction.transaction_id, transaction.header)
                chains.applied_some()

    async def _work(self, partition: int) -> None:
        rows = self._rows[partition]
        while rows:
            row = rows.popleft()
            header = self._plan.header(row)
            if header == NO_AIRCRAFT:
                await self._append_once(partition, row, header)
                continue
            key = (partition, header)
            if key in self._waiting:
                self._waiting[key].append(row)  # whoever has the aircraft takes it along
                continue
            queue = self._waiting[key] = deque((row,))
            while queue:
                await self._append_once(partition, queue.popleft(), header)
            del self._waiting[key]

    async def _append_once(self, partition: int, row: Flight, header: int) -> None:
        """Append one row, however often it takes, and wait until it is applied here."""
        chains = self._chains[partition]
        started = time.monotonic()
        doubtful_since: int | None = None
        while True:
            if doubtful_since is not None:
                found = await self._find(partition, row, header, doubtful_since)
                if found is not None:
                    self.measures.unknown_resolved_present += 1
                    transaction_id = found
                    break
                doubtful_since = chains.applied
            # No await between here and the append: this is the view that the lock protects.
            as_of = chains.applied
            previous = None if header == NO_AIRCRAFT else chains.previous(header)
            try:
                committed = await self._client.append(
                    partition=partition,
                    data=encode_payload(row, previous),
                    header=header,
                    write_locks=(self._plan.lock(row),),
                    as_of=as_of,
                    deadline_seconds=self._arguments.deadline_seconds,
                    max_attempts=1,
                )
            except LockConflictError as conflict:
                self.measures.lock_conflicts += 1
                self.measures.retries += 1
                await chains.wait_applied(conflict.conflicting_high_water_mark)
                continue
            except OutcomeUnknownError:
                self.measures.retries += 1
                doubtful_since = as_of if doubtful_since is None else doubtful_since
                continue
            except AppendError as error:
                if not error.retriable:
                    raise
                self.measures.retries += 1
                await asyncio.sleep(_RETRY_SECONDS * (0.5 + random.random()))
                continue
            except WaltzClientError as error:
                if not error.retriable:
                    raise
                self.measures.retries += 1
                await asyncio.sleep(_RETRY_SECONDS * (0.5 + random.random()))
                continue
            transaction_id = committed.transaction_id
            self.measures.unknown_resolved_absent += doubtful_since is not None
            break
        now = time.monotonic()
        self.measures.commit(partition, now, now - started)
        await chains.wait_applied(transaction_id)

    async def _find(self, partition: int, row: Flight, header: int, since: int) -> int | None:
        """Transaction id of this row among the flights of its aircraft behind `since`; None if it is not
        among what is applied at the moment of returning (more may be applied while the payloads are read:
        they are read too)."""
        chains = self._chains[partition]
        while candidates := chains.after(header, since):
            for transaction_id in candidates:
                data = await self._client.get_data(partition, transaction_id, deadline_seconds=_READ_SECONDS)
                if json.loads(data)["row"] == row.row_id:
                    return transaction_id
                since = transaction_id
        return None


async def write(arguments: WriterArguments) -> Measures:
    """Run one writer to its end."""
    keys = {**load_file(arguments.config), "client.maxConcurrentTransactions": _MAX_IN_FLIGHT_PER_PARTITION}
    async with WaltzClient.connect(ClientSettings.from_mapping(keys, source=arguments.config)) as client:
        plan = load_plan(arguments.rows, client.num_partitions)
        rows = plan.flights[arguments.number :: arguments.writers]
        writer = Writer(client, plan, rows, arguments)
        async with asyncio.TaskGroup() as group:
            reporter = group.create_task(_report(writer.measures))
            await writer.run()
            reporter.cancel()
    _print_progress(writer.measures)
    return writer.measures


async def _report(measures: Measures) -> None:
    while True:
        _print_progress(measures)
        await asyncio.sleep(_REPORT_SECONDS)


def _print_progress(measures: Measures) -> None:
    line = {
        "committed": measures.committed,
        "retries": measures.retries,
        "lock_conflicts": measures.lock_conflicts,
    }
    sys.stdout.write(json.dumps(line) + "\n")
    sys.stdout.flush()


def main() -> None:
    """Entry point of the process."""
    arguments = WriterArguments(**json.loads(sys.argv[1]))
    try:
        with asyncio.Runner(loop_factory=new_event_loop) as runner:
            measures = runner.run(write(arguments))
        Path(arguments.result).write_text(json.dumps(measures.to_message()))
    except Exception as error:
        sys.exit(show(error))


if __name__ == "__main__":
    main()
