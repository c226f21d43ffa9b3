"""The load on the cluster: a process of its own with one client, many writers in it.

    python -m bench.load CONFIG write --partitions 8 --in-flight 2000 --pipelined --seconds 5
    python -m bench.load CONFIG read --partitions 8 --headers|--data [--compression zstd]
    python -m bench.load CONFIG watch --partitions 8 --in-flight 4

`write` and `read` print one JSON line; `watch` writes until its standard input closes and answers each line
`gap` or `from now` with the longest time without an acknowledged append, per partition, since the last
question; after `from now` no silence that began before it counts. `write --count` prints `ready`, waits for a
line, appends that many and prints JSON. CPU time is taken around the measurement for the processes in
`--pids`.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import gc
import json
import os
import random
import sys
import time
from collections.abc import Iterator
from itertools import repeat
from typing import Any

import uvloop

from bench.documents import documents
from bench.latency import percentiles_ms
from bench.processes import CpuWatch
from waltz_client import LockId, WaltzClient
from waltz_client.errors import AppendError, WaltzClientError
from waltz_client.settings import ClientSettings

WARM_UP_SECONDS = 1.5
MOUNT_SECONDS = 60.0


class Tally:
    """Latencies of acknowledged appends and the number of failed ones."""

    def __init__(self, limit: int | None = None) -> None:
        self.latencies: list[float] = []
        self.failed = 0
        self.left = limit if limit is not None else sys.maxsize
        self.outstanding = 0
        self.finished = asyncio.Event()

    def take(self) -> bool:
        """Whether one more append may start."""
        if self.left <= 0:
            return False
        self.left -= 1
        self.outstanding += 1
        return True

    def stop(self) -> None:
        """Start nothing more."""
        self.left = 0
        self.one_less(0)

    def one_less(self, n: int = 1) -> None:
        """An append has its outcome."""
        self.outstanding -= n
        if self.left <= 0 and self.outstanding == 0:
            self.finished.set()


class Locks:
    """The write lock of each append: none, or one of many so that conflicts are rare."""

    def __init__(self, count: int) -> None:
        self._ids = [LockId("row", number) for number in range(20_000)] if count else []
        self._next = 0

    def next(self) -> list[LockId]:
        if not self._ids:
            return []
        self._next = (self._next + 1) % len(self._ids)
        return [self._ids[self._next]]


async def closed_loop(
    client: WaltzClient, partition: int, data: Iterator[bytes], locks: Locks, tally: Tally
) -> None:
    """One writer: the next append starts when the one before is acknowledged."""
    clock = time.perf_counter
    while tally.take():
        started = clock()
        try:
            await client.append(partition=partition, data=next(data), write_locks=locks.next())
        except AppendError:
            tally.failed += 1
        else:
            tally.latencies.append(clock() - started)
        tally.one_less()


class Pipeline:
    """The source of one partition: keeps `window` appends outstanding, each answer lets the next one go."""

    def __init__(
        self, client: WaltzClient, partition: int, data: Iterator[bytes], locks: Locks, tally: Tally
    ) -> None:
        self._client = client
        self._partition = partition
        self._data = data
        self._locks = locks
        self._tally = tally

    def start(self, window: int) -> None:
        """Fill the window."""
        for _ in range(window):
            self._send()

    def _send(self) -> None:
        if not self._tally.take():
            return
        try:
            self._client.append_nowait(
                partition=self._partition,
                data=next(self._data),
                write_locks=self._locks.next(),
                context=time.perf_counter(),
                on_done=self._done,
            )
        except WaltzClientError:  # nothing was sent: the partition is moving
            self._tally.failed += 1
            self._tally.one_less()
            asyncio.get_running_loop().call_later(0.01, self._send)

    def _done(self, append: Any) -> None:
        if append.committed:
            self._tally.latencies.append(time.perf_counter() - append.context)
        else:
            self._tally.failed += 1
        self._send()
        self._tally.one_less()


async def write(client: WaltzClient, options: argparse.Namespace) -> dict[str, object]:
    """Run the write load; figures of the measured part."""
    data = documents(options.payload) if options.documents else repeat(os.urandom(options.payload))
    locks = Locks(options.locks)
    await mount_all(client, options.partitions)
    tally = Tally(options.count)
    if options.count is not None:
        print("ready", flush=True)
        await asyncio.to_thread(sys.stdin.readline)
    watch = CpuWatch(json.loads(options.pids) | {"client": [os.getpid()]})
    async with asyncio.TaskGroup() as group:
        if options.pipelined:
            for partition in range(options.partitions):
                window = options.in_flight // options.partitions
                Pipeline(client, partition, data, locks, tally).start(window)
        else:
            for writer in range(options.in_flight):
                group.create_task(closed_loop(client, writer % options.partitions, data, locks, tally))
        if options.count is None:
            await asyncio.sleep(min(WARM_UP_SECONDS, options.seconds))
            tally.latencies.clear()
            tally.failed = 0
        watch.start()
        started = time.perf_counter()
        if options.count is None:
            await asyncio.sleep(options.seconds)
        else:
            await tally.finished.wait()
        elapsed = time.perf_counter() - started
        cpu = watch.stop()
        latencies, failed = list(tally.latencies), tally.failed
        tally.stop()
        await tally.finished.wait()
    p50, p99 = percentiles_ms([(seconds, 1) for seconds in latencies], (0.5, 0.99))
    return rates(len(latencies), elapsed, cpu) | {"p50_ms": p50, "p99_ms": p99, "failed": failed}


def rates(count: int, elapsed_seconds: float, cpu_seconds: dict[str, float]) -> dict[str, object]:
    """Throughput and CPU per transaction."""
    each = {role: seconds * 1e6 / max(count, 1) for role, seconds in cpu_seconds.items()}
    return {
        "transactions": count,
        "seconds": elapsed_seconds,
        "transactions_per_second": count / elapsed_seconds,
        "cpu_us_per_transaction": each,
        "cpu_us_per_transaction_total": sum(each.values()),
    }


async def mount_all(client: WaltzClient, partitions: int) -> None:
    """Wait until every partition takes appends."""
    async with asyncio.timeout(MOUNT_SECONDS), asyncio.TaskGroup() as group:
        for partition in range(partitions):
            group.create_task(client.append(partition=partition, data=b"mount"))


async def read(client: WaltzClient, options: argparse.Namespace) -> dict[str, object]:
    """Read every partition from its beginning to the mark it has now."""
    marks = [await client.high_water_mark(partition) for partition in range(options.partitions)]
    total = sum(marks) + len(marks)
    watch = CpuWatch(json.loads(options.pids) | {"client": [os.getpid()]})
    watch.start()
    started = time.perf_counter()
    seen = 0
    last = [-1] * len(marks)
    until = {partition: mark for partition, mark in enumerate(marks) if mark >= 0}
    async with client.feed(list(until), after=-1, until=until, with_data=options.data) as feed:
        async for batch in feed.batches():
            seen += len(batch)
            for transaction in batch:
                last[transaction.partition_id] = transaction.transaction_id
    elapsed = time.perf_counter() - started
    if seen != total or last != marks:
        raise RuntimeError(f"read {seen} of {total} transactions, up to {last} of {marks}")
    return rates(total, elapsed, watch.stop()) | {"with_data": options.data}


class GapWatch:
    """When each partition last acknowledged an append, and its longest silence since the last question."""

    def __init__(self, partitions: int) -> None:
        now = time.monotonic()
        self._last = [now] * partitions
        self._longest = [0.0] * partitions

    def acknowledged(self, partition: int) -> None:
        now = time.monotonic()
        silence = now - self._last[partition]
        if silence > self._longest[partition]:
            self._longest[partition] = silence
        self._last[partition] = now

    def take(self) -> list[float]:
        """Longest silences in seconds, the present one included; starts afresh."""
        now = time.monotonic()
        found = [max(long, now - last) for long, last in zip(self._longest, self._last, strict=True)]
        self._longest = [0.0] * len(self._last)
        return found

    def count_from_now(self) -> None:
        """Whatever was acknowledged before, a silence begins now: of writers that pause by themselves."""
        self._last = [time.monotonic()] * len(self._last)


async def watched_writer(
    client: WaltzClient, partition: int, data: bytes, gaps: GapWatch, every_seconds: float
) -> None:
    """Append one after another without end, at most one in `every_seconds`; an append that fails is tried
    again at once."""
    clock = asyncio.get_running_loop().time
    due = clock() + random.random() * every_seconds  # not all at one moment
    while True:
        if every_seconds:
            await asyncio.sleep(due - clock())
            due = max(due + every_seconds, clock())
        try:
            await client.append(partition=partition, data=data)
        except WaltzClientError:
            await asyncio.sleep(0.01)
        else:
            gaps.acknowledged(partition)


async def watch(client: WaltzClient, options: argparse.Namespace) -> None:
    """Write until standard input closes; answer questions about gaps."""
    await mount_all(client, options.partitions)
    gaps = GapWatch(options.partitions)
    data = os.urandom(options.payload)
    with contextlib.suppress(asyncio.CancelledError):
        async with asyncio.TaskGroup() as group:
            writers = [
                group.create_task(watched_writer(client, partition, data, gaps, options.every))
                for partition in range(options.partitions)
                for _ in range(options.in_flight)
            ]
            print("ready", flush=True)
            while line := await asyncio.to_thread(sys.stdin.readline):
                print(json.dumps(gaps.take()), flush=True)
                if line.strip() == "from now":
                    gaps.count_from_now()
            for writer in writers:
                writer.cancel()


def parse_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.load", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("config", help="configuration file of the client")
    parser.add_argument("what", choices=("write", "read", "watch"))
    parser.add_argument("--partitions", type=int, default=1)
    parser.add_argument("--in-flight", type=int, default=1, help="appends outstanding over all partitions")
    parser.add_argument(
        "--pipelined", action="store_true", help="one source per partition instead of writers"
    )
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--count", type=int, help="number of appends, instead of a time")
    parser.add_argument(
        "--every", type=float, default=0.0, help="seconds from one append of a watched writer to its next"
    )
    parser.add_argument("--payload", type=int, default=512)
    parser.add_argument("--documents", action="store_true", help="JSON in place of the same random bytes")
    parser.add_argument(
        "--compression", choices=("none", "zstd"), default="none", help="of what a client reads"
    )
    parser.add_argument("--locks", type=int, choices=(0, 1), default=0, help="write locks per append")
    parser.add_argument("--pids", default="{}", help="JSON: processes whose CPU time is measured, by role")
    how = parser.add_mutually_exclusive_group()
    how.add_argument("--headers", dest="data", action="store_false")
    how.add_argument("--data", dest="data", action="store_true")
    return parser.parse_args()


async def run(options: argparse.Namespace) -> None:
    settings = ClientSettings.load(options.config).model_copy(
        update={"feed_compression": options.compression}
    )
    async with WaltzClient.connect(settings) as client:
        if options.what == "watch":
            await watch(client, options)
            return
        result = await (write if options.what == "write" else read)(client, options)
        print(json.dumps(result), flush=True)


if __name__ == "__main__":
    gc.freeze()  # as the services do: imported modules are no garbage
    gc.set_threshold(50_000, 20, 100)
    uvloop.run(run(parse_options()))
