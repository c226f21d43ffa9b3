"""One Spark application of the benchmark: reads the log in one way after another and prints a line of JSON
for each.

`python -m bench.spark_load CONFIG --cores 1 batch rows memory stream`: parts are run in the order given, in
one session, each after a warm-up. CPU time is that of this process, its Java process and their Python
workers.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import os
import statistics
import tempfile
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
import yaml
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.listener import QueryProgressEvent
from pyspark.sql.streaming.query import StreamingQuery

from bench.processes import cpu_seconds
from bench.spark_rows import RowSource
from waltz_client import PendingAppend, WaltzClient
from waltz_spark import LagListener
from waltz_spark.offsets import Offsets
from waltz_spark.spark_home import prepare

WAIT_SECONDS = 120.0
SAMPLE_SECONDS = 0.05
EMPTY_TRIGGERS = 7
WARM_UP_SECONDS = 3.0
MIB = 2**20


class Application:
    """A session and the log it reads."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        given = yaml.safe_load(Path(options.config).read_text())
        self.keys = {
            key: str(value).lower() if isinstance(value, bool) else str(value)
            for key, value in given.items()
            if key.startswith(("zookeeper.", "cluster.", "client."))
        }
        self.session = (
            SparkSession.builder.master(f"local[{options.cores}]")
            .appName("waltz benchmark")
            .config("spark.ui.enabled", "false")
            .config("spark.ui.showConsoleProgress", "false")
            .config("spark.driver.memory", "1g")
            .config("spark.sql.shuffle.partitions", "2")
            .config("spark.sql.streaming.noDataProgressEventInterval", "0")
            .config("spark.log.level", "ERROR")
            .getOrCreate()
        )
        self.session.dataSource.register(RowSource)

    def read(self, source: str, **options: str) -> DataFrame:
        return self.session.read.format(source).options(**{**self.keys, **options}).load()

    def run(self, source: str, **options: str) -> dict[str, Any]:
        """Read the log to nowhere, twice; the second time is measured."""
        for timed in (False, True):
            frame = self.read(source, **options)
            processes = Processes()
            before, started = processes.cpu_seconds(), time.perf_counter()
            observed = frame.selectExpr(
                "count(*) as n", "count(checksum) as checked", "sum(length(data)) as bytes"
            )
            row = observed.first()
            seconds, cpu = time.perf_counter() - started, processes.cpu_seconds() - before
            if row is None or row["n"] == 0 or row["checked"] != row["n"]:
                raise RuntimeError(f"the read gave {row}")
            if timed:
                return {
                    "transactions": row["n"],
                    "bytes": row["bytes"],
                    "seconds": seconds,
                    "transactions_per_second": row["n"] / seconds,
                    "cpu_us_per_transaction": cpu / row["n"] * 1e6,
                }
        raise AssertionError


class Processes:
    """This process and everything below it."""

    def all(self) -> list[psutil.Process]:
        this = psutil.Process()
        return [this, *this.children(recursive=True)]

    def cpu_seconds(self) -> float:
        return sum(map(cpu_seconds, self.all()))

    def largest_worker_mib(self) -> float:
        """Resident memory of the largest Python process below."""
        sizes = [0.0]
        for process in self.all()[1:]:
            with suppress(psutil.Error):
                if "python" in process.name():
                    sizes.append(process.memory_info().rss / MIB)
        return max(sizes)


class Sampler:
    """Samples a number in a thread while a block runs."""

    def __init__(self, number: Callable[[], float]) -> None:
        self.samples: list[float] = []
        self._number = number
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="sampler")

    def _run(self) -> None:
        while not self._stop.wait(SAMPLE_SECONDS):
            self.samples.append(self._number())

    def __enter__(self) -> Sampler:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._stop.set()
        self._thread.join()


def batch(application: Application) -> dict[str, Any]:
    """Record batches, the way the source reads."""
    return application.run("waltz", minPartitions=str(application.options.cores))


def requests(application: Application) -> dict[str, Any]:
    """As from a server of an older version: headers, and a request for each payload."""
    options = {"minPartitions": str(application.options.cores), "client.maxProtocolVersion": "4"}
    return application.run("waltz", **options)


def rows(application: Application) -> dict[str, Any]:
    """The same by tuples."""
    return application.run("waltz_rows", minPartitions=str(application.options.cores))


def memory(application: Application) -> dict[str, Any]:
    """One task over one long partition: the worker's memory in the last half of it, against the first
    quarter."""
    partition = str(application.options.long_partition)
    with Sampler(Processes().largest_worker_mib) as sampler:
        found = application.run("waltz", partitions=partition)
    samples = sampler.samples[len(sampler.samples) // 2 :]  # the second, measured read
    early, late = samples[: max(len(samples) // 4, 1)], samples[len(samples) // 2 :]
    return found | {"early_mib": max(early), "late_mib": max(late), "growth": max(late) / max(early)}


class Behind(LagListener):
    """What the log holds beyond the end of each trigger, asked when the trigger is done."""

    def __init__(self, ends: Callable[[], Mapping[int, int]]) -> None:
        super().__init__()
        self.behind: list[int] = []
        self._ends = ends

    def onQueryProgress(self, event: QueryProgressEvent) -> None:  # noqa: N802
        super().onQueryProgress(event)
        progress = event.progress
        if progress.numInputRows:
            read = Offsets.from_json(json.loads(progress.sources[0].endOffset)).next_ids
            self.behind.append(sum(end - read[p] for p, end in self._ends().items()))


def stream(application: Application) -> dict[str, Any]:
    """Paced appends and a query with a trigger of one second; then the same query without appends."""
    options = application.options
    with tempfile.TemporaryDirectory() as directory, Pacer(options) as pacer:
        listener = Behind(lambda: pacer.ends)
        application.session.streams.addListener(listener)
        frame = application.session.readStream.format("waltz").options(**application.keys).load()
        writer = frame.writeStream.format("noop").option("checkpointLocation", f"{directory}/c")
        query = writer.trigger(processingTime="1 second").start()
        try:
            _wait(query, lambda: len(_empty_triggers(query)) > 1)
            pacer.pace(WARM_UP_SECONDS)  # the first batch starts Python workers
            _wait(query, lambda: _rows(query) >= pacer.appended and len(_empty_triggers(query)) > 1)
            listener.behind.clear()
            pacer.pace(options.seconds)
            _wait(
                query, lambda: _rows(query) >= pacer.appended and len(_empty_triggers(query)) > EMPTY_TRIGGERS
            )
            empty = _empty_triggers(query)
        finally:
            query.stop()
            application.session.streams.removeListener(listener)
    return {
        "rate": options.rate,
        "appended": pacer.appended,
        "triggers_behind": max(listener.behind) / options.rate,
        "triggers_behind_median": statistics.median(listener.behind) / options.rate,
        "empty_trigger_ms": statistics.median(empty),
        "empty_trigger_ms_max": max(empty),
    }


def _rows(query: StreamingQuery) -> int:
    """Rows read; of at most a hundred triggers, which is what Spark keeps."""
    return sum(trigger.numInputRows for trigger in query.recentProgress)


def _empty_triggers(query: StreamingQuery) -> list[int]:
    """Milliseconds of the last triggers, as far back as none had new data. Spark notifies no listener of
    them."""
    recent = itertools.takewhile(lambda trigger: trigger.numInputRows == 0, reversed(query.recentProgress))
    return [int(trigger.durationMs["triggerExecution"]) for trigger in recent]


def _wait(query: StreamingQuery, condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + WAIT_SECONDS
    while not condition():
        if query.exception() is not None or time.monotonic() > deadline:
            raise RuntimeError(f"the query made no progress: {query.exception() or query.status}")
        time.sleep(0.02)


class Pacer:
    """Appends at a steady rate from a loop in a thread, and knows where every partition ends."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.appended = 0
        self.ends: dict[int, int] = {}
        self._options = options
        given = yaml.safe_load(Path(options.config).read_text())
        self._settings = given | {"client.maxConcurrentTransactions": 10_000}
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="pacer")

    def __enter__(self) -> Pacer:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def pace(self, seconds: float) -> None:
        """Append for that time."""
        asyncio.run_coroutine_threadsafe(self._pace(seconds), self._loop).result()

    async def _pace(self, seconds: float) -> None:
        async with WaltzClient.connect(self._settings) as client:
            for partition in range(client.num_partitions):
                await client.writable(partition, deadline_seconds=30)
            payload = bytes(self._options.payload)
            loop = asyncio.get_running_loop()
            started, before = loop.time(), self.appended
            while (now := loop.time() - started) < seconds:
                while self.appended - before < now * self._options.rate:
                    client.append_nowait(
                        partition=self.appended % client.num_partitions, data=payload, on_done=self._done
                    )
                    self.appended += 1
                await asyncio.sleep(0.01)
            await client.flush_transactions(deadline_seconds=30)

    def _done(self, pending: PendingAppend) -> None:
        if pending.transaction_id is not None:
            partition = pending.partition_id
            self.ends[partition] = max(pending.transaction_id + 1, self.ends.get(partition, 0))


PARTS: dict[str, Callable[[Application], dict[str, Any]]] = {
    "batch": batch,
    "requests": requests,
    "rows": rows,
    "memory": memory,
    "stream": stream,
}


def parse_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m bench.spark_load", description=(__doc__ or "").split("\n")[0]
    )
    parser.add_argument("config", help="configuration file of the client")
    parser.add_argument("parts", nargs="+", choices=PARTS)
    parser.add_argument("--cores", type=int, default=1)
    parser.add_argument(
        "--long-partition", type=int, default=0, help="read by one task for the memory figure"
    )
    parser.add_argument("--rate", type=int, default=1000, help="appends per second while streaming")
    parser.add_argument("--seconds", type=float, default=20.0, help="of streaming")
    parser.add_argument("--payload", type=int, default=512)
    return parser.parse_args()


def main() -> None:
    options = parse_options()
    with tempfile.TemporaryDirectory() as home:
        os.environ["SPARK_HOME"] = str(prepare(Path(home)))
        application = Application(options)
        for part in options.parts:
            print(json.dumps({"part": part} | PARTS[part](application)), flush=True)
        application.session.stop()


if __name__ == "__main__":
    main()
