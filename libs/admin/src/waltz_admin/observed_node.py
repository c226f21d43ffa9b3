"""A storage node that is asked again and again over one connection: what has not changed is not sent again,
and not made again here.

A node of this release sends a node report (docs/protocol.md). Of others the metrics are read each time, which
a node makes anew for each question. Whether a node shows the record at a low-water mark is asked when session
or mark have changed, and again every `RECORD_SECONDS`: reading three thousand records for each observation
would keep the disks of a cluster busy with it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass

from waltz_admin.copies import NodePartition
from waltz_admin.disks import NodeDisk
from waltz_admin.errors import AdminError, UnreachableError
from waltz_admin.node_state import NodeState, parse_report, read_state
from waltz_admin.safety import ask_copy, shows_record
from waltz_admin.same_node import identity
from waltz_admin.storage_admin import (
    RECORDS_AT_ONCE,
    NodeInspection,
    NodeStatus,
    failed_status,
    inspection_of,
    open_admin,
)
from waltz_admin.verify import NodeAnswer
from waltz_cluster.replica_rules import ReplicaAnswer
from waltz_cluster.serializers import StoreParams
from waltz_protocol.aio.storage_connection import StorageAdminConnection
from waltz_protocol.aio.tls import TlsSettings
from waltz_protocol.errors import WaltzProtocolError
from waltz_protocol.types import Endpoint

RECORD_SECONDS = 300.0
"""After this long a record at a low-water mark that was shown is asked for again."""
_SPREAD = 16


@dataclass(slots=True)
class _Record:
    """What was found out about the record at a low-water mark."""

    session_id: int
    low_water_mark: int
    shows: bool | None
    again_at: float


class ObservedNode:
    """Owner of a connection to one admin port. Not for two tasks at a time."""

    def __init__(
        self, endpoint: Endpoint, params: StoreParams, tls: TlsSettings, clock: Callable[[], float]
    ) -> None:
        self.endpoint = endpoint
        self._params = params
        self._tls = tls
        self._clock = clock
        self._connection: StorageAdminConnection | None = None
        self._held: dict[int, bool] = {}
        self._open: dict[int, NodePartition] = {}
        self._listed: tuple[NodePartition, ...] | None = None
        self._disk: NodeDisk | None = None
        self._records: dict[int, _Record] = {}
        self._copies: dict[int, ReplicaAnswer] = {}

    async def observe(
        self, assigned: Collection[int], timeout_seconds: float
    ) -> tuple[NodeStatus, NodeAnswer]:
        """The state now, about copies only of `assigned` partitions; a node that does not answer within the
        timeout has an error. An answer about a record has the timeout for itself."""
        try:
            async with asyncio.timeout(timeout_seconds):
                connection = await self._connected()
                await self._refresh(connection)
            status = NodeStatus(self.endpoint, self._all(), disk=self._disk)
        except AdminError as error:
            self.close()
            status = failed_status(self.endpoint, error)
            return status, NodeAnswer(turned_away=status.turned_away)
        except TimeoutError:
            self.close()
            text = f"storage node {self.endpoint}: no answer within {timeout_seconds:g} s"
            return NodeStatus(self.endpoint, error=text), NodeAnswer()
        except BaseException:
            self.close()  # a report that is on its way would be missed
            raise
        return status, await self._answer(connection, assigned, timeout_seconds)

    async def inspect(self) -> NodeInspection:
        """Everything the node reports about itself, as `storage_admin.inspect_node`; UnreachableError or
        AdminError when any part of it is missing. Not bounded in time."""
        try:
            connection = await self._connected()
            await self._refresh(connection)
            shown = await self._showing(connection)
        except BaseException:
            self.close()  # as in `observe`
            raise
        holds = [p.partition_id for p in self._all() if p.partition_id in shown or p.low_water_mark < 0]
        state = NodeState(self._open, self._held, (), self._disk)
        return inspection_of(state, holds, connection.certificate)

    async def _connected(self) -> StorageAdminConnection:
        if self._connection is None or self._connection.closed:
            self._connection = await open_admin(self.endpoint, self._params, self._tls, reports=True)
            self._held, self._open, self._listed = {}, {}, None
        return self._connection

    async def _refresh(self, connection: StorageAdminConnection) -> None:
        """What the node reports about all its partitions, and its disk. UnreachableError, AdminError."""
        try:
            if connection.reports:
                self._take(parse_report(self.endpoint, await connection.report(everything=False)))
                return
            state = await read_state(connection)
        except (WaltzProtocolError, OSError) as error:
            raise UnreachableError(f"storage node {self.endpoint}: {error}") from error
        known = self._open
        self._open = {p: known[p] if known.get(p) == one else one for p, one in state.open.items()}
        self._held, self._listed, self._disk = dict(state.held), None, state.disk

    def _take(self, changes: NodeState) -> None:
        """Change what is known by a node report."""
        for number in (*changes.held, *changes.gone):
            self._held.pop(number, None)
            self._open.pop(number, None)
        self._held.update(changes.held)
        self._open.update(changes.open)
        if changes.held or changes.gone:
            self._listed = None
        self._disk = changes.disk if changes.disk != self._disk else self._disk

    def _all(self) -> tuple[NodePartition, ...]:
        if self._listed is None:
            self._listed = tuple(self._open[number] for number in sorted(self._open))
        return self._listed

    async def _showing(self, connection: StorageAdminConnection) -> set[int]:
        """The open partitions whose record at the low-water mark it shows. Many are asked for at the same
        time, as by `inspect_node`. UnreachableError."""
        now, records = self._clock(), self._records
        known = {number: copy for number, copy in self._open.items() if number in self._held}
        due = [n for n, copy in known.items() if n not in records or not _settled(records[n], copy, now)]
        try:
            for start in range(0, len(due), RECORDS_AT_ONCE):
                some = due[start : start + RECORDS_AT_ONCE]
                await asyncio.gather(*(self._ask(connection, n, self._held[n], known[n]) for n in some))
        except (WaltzProtocolError, OSError) as error:
            text = f"storage node {self.endpoint}: it did not answer about its copies: {error}"
            raise UnreachableError(text) from error
        return {number for number in known if records[number].shows}

    async def _answer(
        self, connection: StorageAdminConnection, assigned: Collection[int], timeout_seconds: float
    ) -> NodeAnswer:
        """Its answers about these copies. Many are asked for at the same time, until one is not given in
        time. What is not asked for when the timeout is over is left to the next observation: it is that of
        all nodes, and must not take the longer the more partitions a distant or slow node has."""
        copies: dict[int, ReplicaAnswer] = {}
        held, own, began = dict(self._held), identity(connection), self._clock()
        due: list[int] = []
        for number in sorted(number for number in assigned if number in held):
            copy, record = self._open.get(number), self._records.get(number)
            if copy is None or record is None or not _settled(record, copy, began):
                due.append(number)
            else:
                answer = ReplicaAnswer(copy.session_id, held[number], record.shows)
                copies[number] = self._known(number, answer)

        async def one(number: int) -> None:
            answer = await self._ask(connection, number, held[number], self._open.get(number))
            copies[number] = self._known(number, answer)

        try:
            for start in range(0, len(due), RECORDS_AT_ONCE):
                if start and self._clock() - began >= timeout_seconds:
                    break
                some = due[start : start + RECORDS_AT_ONCE]
                async with asyncio.timeout(timeout_seconds):
                    ended = await asyncio.gather(*map(one, some), return_exceptions=True)
                if failed := next((error for error in ended if error is not None), None):
                    raise failed
        except (AdminError, WaltzProtocolError, OSError, TimeoutError):
            self.close()
        except BaseException:
            self.close()
            raise
        self._copies = copies
        return NodeAnswer(held, copies, own)

    def _known(self, number: int, answer: ReplicaAnswer) -> ReplicaAnswer:
        """The same object while nothing has changed."""
        known = self._copies.get(number)
        return known if known == answer else answer

    async def _ask(
        self, connection: StorageAdminConnection, number: int, available: bool, copy: NodePartition | None
    ) -> ReplicaAnswer:
        if copy is None:
            self._records.pop(number, None)
            return await ask_copy(connection, number, available)
        shows = await shows_record(connection, number, copy.low_water_mark)
        known = self._records.get(number)
        share = 1 if known is not None else (1 + number % _SPREAD) / _SPREAD  # not all in the same moment
        again_at = self._clock() + RECORD_SECONDS * share
        self._records[number] = _Record(copy.session_id, copy.low_water_mark, shows, again_at)
        return ReplicaAnswer(copy.session_id, available, shows)

    def close(self) -> StorageAdminConnection | None:
        """End the connection, which is returned; harmless when there is none."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()
        return connection


async def close_all(nodes: Iterable[ObservedNode]) -> None:
    """End their connections, and wait until they are gone."""
    ended = [node.close() for node in nodes]
    for connection in ended:
        if connection is not None:
            await connection.wait_closed()


def _settled(record: _Record, copy: NodePartition, now: float) -> bool:
    """Whether this record need not be asked for now."""
    same = record.session_id == copy.session_id and record.low_water_mark == copy.low_water_mark
    return same and (copy.low_water_mark < 0 or (record.shows is True and now < record.again_at))
