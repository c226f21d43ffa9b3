"""A log of numbers for the streaming reader, in place of the connection; and a clock."""

import asyncio
from collections import Counter
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from waltz_client import RequestDeadlineError
from waltz_spark.connection import ClusterIdentity
from waltz_spark.options import STREAM, ReadOptions
from waltz_spark.reading import RangePartition
from waltz_spark.stream import WaltzStreamReader

CLUSTER = {"zookeeper.connectString": "zk:2181", "cluster.root": "/ledger"}


class FakeLog:
    """Ends of partitions (next transaction id), and the size of every payload; represents connection and
    client. `answers_after`: seconds of the clock, where an answer takes any."""

    def __init__(self, *ends: int, key: str = "k1") -> None:
        self.ends = list(ends)
        self.silent: set[int] = set()
        self.clock: Clock | None = None
        self.answers_after: dict[int, float] = {}
        self.payload_bytes = 100
        self.asked_at_once = 0
        self.marks_asked: Counter[int] = Counter()
        self._asked = 0
        self.identity = ClusterIdentity(key, "fake", len(ends))
        self.ended = False
        self.on_mark: Callable[[], None] = lambda: None

    def call(self, use: Callable[[Any], Coroutine[Any, Any, Any]]) -> Any:
        return asyncio.run(use(self))

    async def high_water_mark(self, partition: int, *, deadline_seconds: float) -> int:
        self.on_mark()
        self.marks_asked[partition] += 1
        seconds = min(self.answers_after.get(partition, 0.0), deadline_seconds)
        if self.clock is not None:
            self.clock.sleep(seconds)
        if partition in self.silent or self.answers_after.get(partition, 0.0) > deadline_seconds:
            raise RequestDeadlineError(f"partition {partition}: no answer")
        return self.ends[partition] - 1

    async def get_data(self, partition: int, transaction_id: int, *, deadline_seconds: float) -> bytes:
        assert 0 <= transaction_id < self.ends[partition]
        self._asked += 1
        self.asked_at_once = max(self.asked_at_once, self._asked)
        await asyncio.sleep(0)
        self._asked -= 1
        return bytes(self.payload_bytes)


class Clock:
    """Time that passes only when somebody sleeps."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


def reader(
    log: FakeLog, monkeypatch: pytest.MonkeyPatch, clock: Clock | None = None, **options: str
) -> WaltzStreamReader:
    clock = clock or Clock()
    monkeypatch.setattr("waltz_spark.stream.take", lambda keys: log)
    monkeypatch.setattr("waltz_spark.stream.give_back", lambda connection: None)
    return WaltzStreamReader(ReadOptions.load(CLUSTER | options, STREAM), clock, clock.sleep)


def places(offset: dict[str, Any]) -> dict[str, Any]:
    """An offset without what only that of the first batch has."""
    return {key: value for key, value in offset.items() if key != "began"}


def planned(
    reader: WaltzStreamReader, start: dict[str, Any], end: dict[str, Any]
) -> list[tuple[int, int, int]]:
    found = []
    for task in reader.partitions(start, end):
        assert isinstance(task, RangePartition)
        found.append((task.range.partition, task.range.first, task.range.last))
    return found
