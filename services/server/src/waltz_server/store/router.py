"""Reads, spread over the replicas by their latency (docs/recovery.md; weakness 7.29 mended).

Every replica has an expected latency (10 ms at first) and a weight. The smallest weight is next; its expected
latency is added to it. A replica that has not got the records yet, or fails, is expected to be slower and
another one is asked: a read error never ends a session. Data checksums and ids are verified before anything
is returned.
"""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Sequence

from waltz_protocol.errors import WaltzProtocolError
from waltz_protocol.records import verify_record
from waltz_server.store.api import ReadFailedError
from waltz_server.store.list_request_size import ListRequestSize
from waltz_server.store.replica_connection import ReplicaLink

_FIRST_EXPECTED_MS = 10.0
_MIN_EXPECTED_MS = 1.0
_MAX_EXPECTED_MS = 3000.0
_MAX_RECORDS_PER_REQUEST = 256
_TXID = struct.Struct(">q")


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
        self, links: dict[str, ReplicaLink], first: int, max_count: int, max_bytes: int
    ) -> list[bytes]:
        """At least one and at most `max_count` wire records from `first` on, from one of `links`.

        The size limit is met as well as the sizes of recent records predict (see `ListRequestSize`), then
        exactly by cutting. Raises `ReadFailedError` when every replica failed. Safe to cancel.
        """
        reasons: list[str] = []
        loop = asyncio.get_running_loop()
        for name in self.order(list(links)):
            began = loop.time()
            try:
                records = await list_records(
                    links[name],
                    self._session_id,
                    self._partition_id,
                    first,
                    min(max_count, _MAX_RECORDS_PER_REQUEST),
                    max_bytes,
                    self._size,
                )
                problem = check_records(records, first)
            except WaltzProtocolError as error:
                records, problem = [], str(error)
            if problem is None:
                self._learn(name, (loop.time() - began) * 1000)
                return cut_at(records[:max_count], max_bytes)
            self.slow_down(name)
            reasons.append(f"{name}: {problem}")
        raise ReadFailedError(
            f"record {first} could not be read: {'; '.join(reasons) or 'no replica has it'}"
        )


def cut_at(records: list[bytes], max_bytes: int) -> list[bytes]:
    """As many of the records as fit into `max_bytes`, at least one."""
    total = 0
    for index, record in enumerate(records):
        total += len(record)
        if total > max_bytes and index:
            return records[:index]
    return records


async def list_records(
    link: ReplicaLink,
    session_id: int,
    partition_id: int,
    first: int,
    wanted: int,
    target_bytes: int,
    size: ListRequestSize,
) -> list[bytes]:
    """Ask one node for at most `wanted` wire records, about `target_bytes` of them, and learn from how it
    ends.

    Raises what the request raises. Cancelling counts as a failure: the caller may have given up on an answer
    too large.
    """
    asked = size.ask(wanted, target_bytes)
    try:
        records = await link.record_list_raw(session_id, partition_id, first, asked)
    except BaseException:
        size.failed()
        raise
    if records:
        size.answered(asked, len(records), sum(map(len, records)))
    return records


def check_records(records: Sequence[bytes], first: int) -> str | None:
    """What is wrong with an answer to "records from `first` on"; None when nothing is."""
    if not records:
        return f"it has no record {first}"
    for expected, record in enumerate(records, start=first):
        found = _TXID.unpack_from(record)[0]
        if found != expected:
            return f"it answered with record {found} instead of {expected}"
        if not verify_record(record):
            return f"the data of record {expected} does not match its checksum"
    return None
