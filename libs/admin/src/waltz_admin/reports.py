"""What servers report about their clients, contended locks, latency, load, refused replicas and partitions
that are not open (the message *server report* of docs/protocol.md), as values.

`read_reports` asks each server once, all at the same time, over its client port. A server of release 0.13.2
has no such answer and closes the connection: it is shown as one that does not report this. What cannot be
read in a report is left out: a newer server may report more.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from typing import Any, TypeVar

from waltz_admin.errors import UnreachableError
from waltz_admin.latency import Latency
from waltz_admin.load import ServerLoad, parse_load
from waltz_admin.not_open import NotOpen
from waltz_admin.report_json import read_json, whole
from waltz_admin.server_admin import DEFAULT_TIMEOUT_SECONDS, ServerAdminConnection
from waltz_protocol.aio.tls import TlsSettings
from waltz_protocol.types import Endpoint

CLIENTS, LOCKS, LATENCY, LOAD, REPLICAS, NOT_OPEN = 1, 2, 4, 8, 16, 32
ALL_PARTITIONS = -1
DOES_NOT_REPORT = "does not report this: a server of release 0.13.2 or older than this command"


@dataclass(frozen=True, slots=True)
class Following:
    """How far a client is in one partition. `sent`: the last transaction that it was sent; `state` in
    words."""

    partition: int
    sent: int
    behind: int
    state: str


@dataclass(frozen=True, slots=True)
class ClientRow:
    """One connection. `mounted`: how many partitions, `partitions`: which; `behind`: transactions, over the
    `following` partitions; `unsent_bytes` wait in the server for it to read; `furthest`: the partitions in
    which it is furthest behind."""

    server: Endpoint
    client: int
    address: str
    version: int
    unsent_bytes: int
    mounted: int
    partitions: str
    following: int
    behind: int
    furthest: tuple[Following, ...]


@dataclass(frozen=True, slots=True)
class LockRow:
    """One contended lock of a partition. `lock`: its hash; `over`: how many of the counts may belong to
    another lock. Of the last conflict: the transaction that was in the way, its client, the client that was
    refused."""

    partition: int
    lock: int
    conflicts: int
    waits: int
    over: int
    transaction: int | None
    winner: int | None
    loser: int | None


@dataclass(frozen=True, slots=True)
class PairRow:
    """How often `loser` was refused for a transaction of `winner` (None: not known)."""

    partition: int
    lock: int
    winner: int | None
    loser: int
    conflicts: int
    over: int


@dataclass(frozen=True, slots=True)
class WaitingRow:
    """Who waits for a lock now, `count` in all, the first ones by id; `holder` has it (None: nobody yet)."""

    partition: int
    lock: int
    holder: int | None
    clients: tuple[int, ...]
    count: int


@dataclass(frozen=True, slots=True)
class RefusedReplica:
    """A copy that the present session of its partition leaves out for good, and why."""

    partition: int
    node: str
    reason: str


@dataclass(frozen=True, slots=True)
class ServerReport:
    """One server's report; `problem` says why there is none. Counted since the server has its partitions:
    `refused`, appends that met a lock (None: not asked for). `left_out`: clients too many to be listed."""

    server_id: int
    server: Endpoint
    problem: str = ""
    clients: tuple[ClientRow, ...] = ()
    connections: int = 0
    left_out: int = 0
    refused: int | None = None
    locks: tuple[LockRow, ...] = ()
    pairs: tuple[PairRow, ...] = ()
    waiting: tuple[WaitingRow, ...] = ()
    latency: Latency | None = None
    appends: Mapping[int, tuple[int, float]] = field(default_factory=dict)
    """Partition -> committed appends, and the sum of the seconds that they took."""
    load: ServerLoad | None = None
    refused_replicas: tuple[RefusedReplica, ...] = ()
    """Empty also from a server that knows no such part."""
    not_open: tuple[NotOpen, ...] = ()
    """The same holds of these."""

    @property
    def silent(self) -> bool:
        """Whether it answers and has no such report."""
        return self.problem == DOES_NOT_REPORT


AskReports = Callable[[Sequence[tuple[int, Endpoint]], int], Awaitable[Sequence[ServerReport]]]
"""Of these servers (id and address), the sum of the parts that are wanted."""


async def read_reports(
    servers: Iterable[tuple[int, Endpoint]],
    parts: int,
    *,
    tls: TlsSettings,
    partition: int = ALL_PARTITIONS,
    timeout_seconds: float = DEFAULT_TIMEOUT_SECONDS,
) -> list[ServerReport]:
    """Ask these servers (id, address); one that does not answer in time says so in its place."""
    return await ask_reports(
        servers,
        parts,
        lambda endpoint: ServerAdminConnection(endpoint, tls, timeout_seconds=timeout_seconds),
        partition=partition,
        timeout_seconds=timeout_seconds,
    )


async def ask_reports(
    servers: Iterable[tuple[int, Endpoint]],
    parts: int,
    connect: Callable[[Endpoint], AbstractAsyncContextManager[ServerAdminConnection]],
    *,
    partition: int = ALL_PARTITIONS,
    timeout_seconds: float,
) -> list[ServerReport]:
    """The same over connections that somebody keeps."""
    return list(
        await asyncio.gather(
            *(
                _ask(one, endpoint, parts, partition, connect(endpoint), timeout_seconds)
                for one, endpoint in servers
            )
        )
    )


async def _ask(
    server_id: int,
    endpoint: Endpoint,
    parts: int,
    partition: int,
    opening: AbstractAsyncContextManager[ServerAdminConnection],
    timeout_seconds: float,
) -> ServerReport:
    answers = False
    try:
        async with asyncio.timeout(timeout_seconds), opening as server:
            await server.partitions()
            answers = True
            text = await server.report(parts, partition)
    except TimeoutError:
        return ServerReport(server_id, endpoint, f"did not answer within {timeout_seconds:g} s")
    except UnreachableError as error:
        # It answered a question of every release just now, and has closed the connection at this one.
        return ServerReport(server_id, endpoint, DOES_NOT_REPORT if answers else str(error))
    return parse_report(server_id, endpoint, text)


def parse_report(server_id: int, endpoint: Endpoint, text: str) -> ServerReport:
    """The values of a report's JSON text; `problem` says why there are none, such as a number beyond 64 bits.
    Pure."""
    try:
        return _read(server_id, endpoint, read_json(text))
    except (ValueError, OverflowError, RecursionError) as error:
        return ServerReport(server_id, endpoint, f"its report cannot be read: {error}")


def _read(server_id: int, endpoint: Endpoint, found: object) -> ServerReport:
    if not isinstance(found, dict):
        return ServerReport(server_id, endpoint, "its report cannot be read")
    clients, locks = _member(found, "clients"), _member(found, "locks")
    latency = _member(found, "latency")
    return ServerReport(
        server_id,
        endpoint,
        "",
        tuple(
            made
            for one in _rows(clients, "rows")
            for made in _made(
                ClientRow, one, server=endpoint, furthest=_values(Following, _rows(one, "furthest"))
            )
        ),
        _count(clients, "connections"),
        _count(clients, "left_out"),
        _count(locks, "refused") if locks else None,
        _values(LockRow, _rows(locks, "rows")),
        _values(PairRow, _rows(locks, "pairs")),
        _values(WaitingRow, _rows(locks, "waiting")),
        _latency(latency),
        _appends(_member(latency, "partitions")),
        _load(_member(found, "load")),
        _values(RefusedReplica, _rows(_member(found, "replicas"), "refused")),
        _values(NotOpen, _rows(_member(found, "not_open"), "rows")),
    )


_T = TypeVar("_T", ClientRow, LockRow, PairRow, WaitingRow, Following, RefusedReplica, NotOpen)


def _member(found: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    value = found.get(name)
    return value if isinstance(value, dict) else {}


def _rows(found: Mapping[str, Any], name: str) -> Sequence[Mapping[str, Any]]:
    value = found.get(name)
    return [one for one in value if isinstance(one, dict)] if isinstance(value, list) else []


def _count(found: Mapping[str, Any], name: str) -> int:
    value = found.get(name)
    return value if isinstance(value, int) else 0


_OPTIONAL = frozenset({"transaction", "winner", "loser", "holder"})
_TEXTS = frozenset({"state", "address", "partitions", "node", "reason"})


def _fits(name: str, value: object) -> bool:
    """Whether a member of a row is what it has to be."""
    if name in _TEXTS:
        return isinstance(value, str)
    if name == "clients":
        return isinstance(value, list) and all(isinstance(one, int) for one in value)
    return isinstance(value, int) or (value is None and name in _OPTIONAL)


def _made(kind: type[_T], one: Mapping[str, Any], **given: Any) -> Iterable[_T]:
    """The row, or none when a member of it is missing or is something else."""
    names = [name for name in kind.__dataclass_fields__ if name not in given]
    if all(name in one and _fits(name, one[name]) for name in names):
        values: dict[str, Any] = {name: one[name] for name in names}
        if "clients" in values:
            values["clients"] = tuple(values["clients"])
        yield kind(**values, **given)


def _values(kind: type[_T], rows: Sequence[Mapping[str, Any]]) -> tuple[_T, ...]:
    return tuple(made for one in rows for made in _made(kind, one))


def _latency(found: Mapping[str, Any]) -> Latency | None:
    bounds, at_most, count = found.get("bounds_seconds"), found.get("at_most"), found.get("count")
    if not isinstance(bounds, list) or not isinstance(at_most, list) or not isinstance(count, int):
        return None
    if len(bounds) != len(at_most) or not all(isinstance(n, int | float) for n in (*bounds, *at_most)):
        return None
    return Latency(tuple(map(float, bounds)), tuple(map(int, at_most)), count)


def _load(found: Mapping[str, Any]) -> ServerLoad | None:
    load = parse_load(found)
    for number in () if load is None else load.rates:
        whole(number)
    return load


def _appends(found: Mapping[str, Any]) -> dict[int, tuple[int, float]]:
    return {
        whole(number): (int(value[0]), float(value[1]))
        for number, value in found.items()
        if number.isdecimal() and isinstance(value, list) and len(value) == 2
        if all(isinstance(part, int | float) for part in value)
    }
