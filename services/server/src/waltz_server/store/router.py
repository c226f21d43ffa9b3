"""Reads, spread over the replicas by their latency (docs/recovery.md; weakness 7.29 mended).

Every replica has an expected latency (10 ms at first) and a weight. The smallest weight is next; its expected
latency is added to it. A replica that has not got the records yet, or fails, is expected to be slower and
another one is asked: a read error never ends a session. No replica is asked for more than it has acknowledged
(rule D11). Checksums and ids are verified before anything is returned (`record_reads`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext
from typing import NamedTuple

from waltz_protocol.errors import WaltzProtocolError
from waltz_server.store.api import ReadFailedError
from waltz_server.store.copy_turns import CopyTurns
from waltz_server.store.list_request_size import ListRequestSize
from waltz_server.store.record_reads import Wanted, read_records
from waltz_server.store.record_run import RecordRun
from waltz_server.store.replica_connection import ReplicaLink

_FIRST_EXPECTED_MS = 10.0
_MIN_EXPECTED_MS = 1.0
_MAX_EXPECTED_MS = 3000.0


class Source(NamedTuple):
    """A replica that may be asked, and the last record that it has acknowledged."""

    link: ReplicaLink
    last: int
    turns: CopyTurns | None = None
    """Of those who read for a copy."""

    def turn(self, size_bytes: int) -> AbstractAsyncContextManager[None]:
        return nullcontext() if self.turns is None else self.turns.turn(size_bytes)


class _Route:
    __slots__ = ("expected_ms", "weight")

    def __init__(self, weight: float) -> None:
        self.expected_ms = _FIRST_EXPECTED_MS
        self.weight = weight


class Router:
    """Chooses replicas for the reads of one session and fetches records from them."""

    def __init__(self, partition_id: int, session_id: int, size: ListRequestSize) -> None:
        """`size`: what the partition has learnt about its records; shared with its other readers."""
        self._partition_id = partition_id
        self._session_id = session_id
        self._size = size
        self._routes: dict[str, _Route] = {}

    def expected_ms(self, name: str) -> float:
        route = self._routes.get(name)
        return _FIRST_EXPECTED_MS if route is None else route.expected_ms

    def order(self, names: Sequence[str]) -> list[str]:
        """The replicas to ask, best first; charges the first one."""
        for name in names:
            if name not in self._routes:
                lowest = min((route.weight for route in self._routes.values()), default=0.0)
                self._routes[name] = _Route(lowest)
        ordered = sorted(names, key=lambda name: self._routes[name].weight)
        if ordered:
            route = self._routes[ordered[0]]
            route.weight += route.expected_ms
        return ordered

    def slow_down(self, name: str) -> None:
        """The replica could not serve: expect little of it for a while."""
        self._learn(name, _MAX_EXPECTED_MS)

    def _learn(self, name: str, milliseconds: float) -> None:
        route = self._routes.setdefault(name, _Route(0.0))
        clamped = max(_MIN_EXPECTED_MS, min(_MAX_EXPECTED_MS, milliseconds))
        route.expected_ms = (route.expected_ms + clamped) / 2

    async def read(
        self, sources: Mapping[str, Source], first: int, max_count: int, max_bytes: int, *, committed: int
    ) -> RecordRun:
        """At least one and at most `max_count` records from `first` on, from one of `sources`; at most
        `max_bytes`, or one record. Raises `ReadFailedError` when every replica failed. Safe to cancel.
        """
        reasons: list[str] = []
        loop = asyncio.get_running_loop()
        for name in self.order(list(sources)):
            source = sources[name]
            wanted = Wanted(
                self._session_id,
                self._partition_id,
                first,
                min(first + max_count - 1, source.last),
                max_bytes,
                committed,
            )
            try:
                async with source.turn(max_bytes):
                    began = loop.time()
                    run = await read_records(source.link, wanted, self._size)
            except WaltzProtocolError as error:
                self.slow_down(name)
                reasons.append(f"{name}: {error}")
                continue
            self._learn(name, (loop.time() - began) * 1000)
            return run
        raise ReadFailedError(
            f"record {first} could not be read: {'; '.join(reasons) or 'no replica has it'}"
        )
