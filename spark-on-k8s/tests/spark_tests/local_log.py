"""A real cluster for tests that are not coroutines: it lives on a loop in a thread of its own."""

from __future__ import annotations

import asyncio
import random
import threading
from collections.abc import Callable, Coroutine, Iterable
from concurrent.futures import Future
from contextlib import AsyncExitStack
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

import kazoo.protocol.connection
import kazoo.retry
import yaml
from pyspark.sql import DataFrameReader, SparkSession
from pyspark.sql.streaming.readwriter import DataStreamReader

import waltz_spark
from waltz_client import Append, Committed, FeedTransaction, WaltzClient
from waltz_tools.local import LocalCluster, LocalSettings

T = TypeVar("T")

# kazoo's thread pings with a jitter out of the common random numbers while other tests run, and Hypothesis
# calls that a mistake.
for _module in (kazoo.protocol.connection, kazoo.retry):
    vars(_module)["random"] = random.Random()


class LocalLog:
    """`with LocalLog(settings) as log:` a cluster of processes, and a client of it."""

    def __init__(self, settings: LocalSettings) -> None:
        self._settings = settings
        self._started: Future[tuple[LocalCluster, WaltzClient]] = Future()
        self._loop = asyncio.new_event_loop()
        self._stop = asyncio.Event()
        self._thread = threading.Thread(target=self._run, name="local log")

    def __enter__(self) -> Self:
        self._thread.start()
        try:
            self.cluster, self.client = self._started.result()
        except BaseException:
            self._thread.join()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join()

    def _run(self) -> None:
        with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
            runner.run(self._serve())

    async def _serve(self) -> None:
        async with AsyncExitStack() as stack:
            try:
                cluster = await stack.enter_async_context(LocalCluster(self._settings))
                settings = {**_keys(cluster.client_config), "client.maxConcurrentTransactions": 500}
                client = await stack.enter_async_context(WaltzClient.connect(settings))
            except BaseException as error:
                self._started.set_exception(error)
                return
            self._started.set_result((cluster, client))
            await self._stop.wait()

    def run(self, coro: Coroutine[Any, Any, T], seconds: float = 60.0) -> T:
        """A coroutine on the cluster's loop."""
        return asyncio.run_coroutine_threadsafe(coro, self._loop).result(seconds)

    @property
    def keys(self) -> dict[str, str]:
        """What a client must be configured with, as options."""
        return {
            key: _text(value)
            for key, value in _keys(self.cluster.client_config).items()
            if key.startswith(("zookeeper.", "cluster.", "client."))
        }

    def append(self, partition: int, payloads: Iterable[bytes], header: Callable[[int], int] = int) -> range:
        """Append in order; the ids, which follow each other. `header` makes one of the number of the append.

        On a busy machine a process may be silent for longer than its session lasts. Then the partition
        moves, what was on its way is not in the log, and all are appended once more, behind those of the
        first attempt that are in it.
        """
        wanted = [Append(partition, data, header(i)) for i, data in enumerate(payloads)]
        for _ in range(5):
            results = self.run(self.client.append_many(wanted, deadline_seconds=60), 90)
            ids = [result.transaction_id for result in results if isinstance(result, Committed)]
            if len(ids) == len(wanted):
                assert ids == list(range(ids[0], ids[0] + len(ids)))
                return range(ids[0], ids[0] + len(ids))
        failed = next(result for result in results if not isinstance(result, Committed))
        raise AssertionError(f"{len(wanted) - len(ids)} of {len(wanted)} appends failed") from failed

    def end(self, partition: int) -> int:
        """Next transaction id."""
        return self.run(self.client.high_water_mark(partition)) + 1

    def transactions(self, partition: int) -> list[FeedTransaction]:
        """Everything committed in a partition, by a plain feed."""

        async def read() -> list[FeedTransaction]:
            mark = await self.client.high_water_mark(partition)
            return [t async for t in self.client.feed(partition, after=-1, until=mark)] if mark >= 0 else []

        return self.run(read())

    def read(self, spark: SparkSession, **options: object) -> DataFrameReader:
        """A batch reader of this log."""
        return spark.read.format("waltz").options(**self.keys, **_options(options))

    def read_stream(self, spark: SparkSession, **options: object) -> DataStreamReader:
        """A streaming reader of this log."""
        return spark.readStream.format("waltz").options(**self.keys, **_options(options))


def reason(action: Callable[[], object]) -> str:
    """The line of ours in what Spark says about something that must fail, or all of it."""
    try:
        done = action()
    except Exception as error:
        return waltz_spark.reason(error) or str(error)
    raise AssertionError(f"nothing failed: {done}")


def _options(options: dict[str, object]) -> dict[str, str]:
    return {key: _text(value) for key, value in options.items()}


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _keys(config: Path) -> dict[str, object]:
    keys: dict[str, object] = yaml.safe_load(config.read_text())
    return keys
