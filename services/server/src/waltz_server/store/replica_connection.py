"""Connections to storage nodes: one per node, shared by all partitions and all successive sessions of a
server.

A connection is opened when somebody needs it and replaced when it is dead. The back-off between tries belongs
to the node, not to the caller, so a thousand partitions do not knock a thousand times.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Iterable
from typing import Protocol
from uuid import UUID

from waltz_protocol.aio.stored_connection import StoredConnection
from waltz_protocol.aio.tls import ClientTls
from waltz_protocol.backoff import Backoff
from waltz_protocol.errors import WaltzProtocolError
from waltz_protocol.types import Endpoint, RecordHeader, SessionInfo
from waltz_server.store.api import StoreError, StoreSettings
from waltz_server.store.copy_turns import CopyTurns
from waltz_server.store.idle_check import IdleCheck
from waltz_server.store.waiting import retry_backoff


class ReplicaUnavailableError(StoreError):
    """The storage node could not be reached, or does not have what it said it had; the message says which in
    one line."""

    retriable = True


class ReplicaLink(Protocol):
    """What the replication core needs of a connection to a storage node (see `StoredConnection`)."""

    @property
    def closed(self) -> bool: ...

    @property
    def stored_records(self) -> bool: ...

    @property
    def on_closed(self) -> list[Callable[[str], None]]: ...

    def close(self) -> None: ...

    async def last_session_and_end(self, session_id: int, partition_id: int) -> tuple[SessionInfo, int]: ...

    async def last_session_end_and_headers(
        self, session_id: int, partition_id: int, first: int, max_count: int
    ) -> tuple[SessionInfo, int, list[RecordHeader]]: ...

    async def max_transaction_id(
        self, session_id: int, partition_id: int, *, offline: bool = False
    ) -> int: ...

    async def set_low_water_mark_and_ask(
        self, session_id: int, partition_id: int, low_water_mark: int
    ) -> int: ...

    async def truncate(
        self, session_id: int, partition_id: int, transaction_id: int, *, offline: bool = False
    ) -> int: ...

    async def record_header(
        self, session_id: int, partition_id: int, transaction_id: int
    ) -> RecordHeader | None: ...

    async def record_header_list(
        self, session_id: int, partition_id: int, first: int, max_count: int
    ) -> list[RecordHeader]: ...

    async def record_list_raw(
        self, session_id: int, partition_id: int, first: int, max_count: int
    ) -> list[bytes]: ...

    async def stored_range(
        self,
        session_id: int,
        partition_id: int,
        first: int,
        last: int,
        *,
        committed: int,
        max_bytes: int,
        unresolved: bool = False,
    ) -> tuple[int, int, bytes]: ...

    def submit_append(
        self,
        session_id: int,
        partition_id: int,
        count: int,
        wire_records: bytes,
        callback: Callable[[Exception | None], None],
    ) -> None: ...

    def submit_stored_append(
        self,
        session_id: int,
        partition_id: int,
        committed: int,
        first: int,
        count: int,
        records: bytes,
        callback: Callable[[Exception | None], None],
    ) -> None: ...


Opener = Callable[[Endpoint], Awaitable[ReplicaLink]]


class _Node:
    def __init__(self, endpoint: Endpoint, backoff: Backoff) -> None:
        self.endpoint = endpoint
        self.backoff = backoff
        self.lock = asyncio.Lock()
        self.link: ReplicaLink | None = None
        self.failed_at = float("-inf")
        self.not_before = float("-inf")
        self.reason = ""


class ReplicaDirectory:
    """All storage connections of a server. Owner: the server process; `close` ends them all."""

    def __init__(self, open_link: Opener, *, settings: StoreSettings, rng: random.Random) -> None:
        self._open_link = open_link
        self._settings = settings
        self._rng = rng
        self._nodes: dict[str, _Node] = {}
        self._copies_to: dict[str, CopyTurns] = {}
        self._copies_from: dict[str, CopyTurns] = {}
        self._closed = False
        self.idle_check = IdleCheck(settings)

    @classmethod
    def for_cluster(
        cls,
        *,
        cluster_key: UUID,
        num_partitions: int,
        tls: ClientTls | None,
        settings: StoreSettings,
        rng: random.Random,
    ) -> ReplicaDirectory:
        """The directory of a real server: TCP with TLS to every node."""

        async def open_link(endpoint: Endpoint) -> ReplicaLink:
            return await StoredConnection.open(
                endpoint,
                cluster_key=cluster_key,
                num_partitions=num_partitions,
                tls=tls,
                request_timeout_seconds=settings.request_timeout_seconds,
                connect_timeout_seconds=settings.connect_timeout_seconds,
                newest_version=settings.newest_version,
            )

        return cls(open_link, settings=settings, rng=rng)

    async def get(self, connect_string: str) -> ReplicaLink:
        """An open connection to the node; waits for the node's back-off, then tries once.

        Raises `ReplicaUnavailableError`. Callers who ask while a try is under way share its outcome. Safe to
        cancel.
        """
        node = self._nodes.get(connect_string)
        if node is not None and node.link is not None and not node.link.closed:
            return node.link
        if node is None:
            node = self._nodes[connect_string] = self._new_node(connect_string)
        loop = asyncio.get_running_loop()
        asked_at = loop.time()
        async with node.lock:
            if self._closed:
                raise ReplicaUnavailableError("the server is closing")
            if node.link is not None and not node.link.closed:
                return node.link
            if node.failed_at >= asked_at:
                raise ReplicaUnavailableError(node.reason)
            if node.not_before > loop.time():
                await asyncio.sleep(node.not_before - loop.time())
            return await self._open(node, loop)

    def copies_to(self, connect_string: str) -> CopyTurns:
        """The turns of those who append copies to the node."""
        return self._turns(self._copies_to, connect_string)

    def copies_from(self, connect_string: str) -> CopyTurns:
        """The turns of those who read what they copy from the node."""
        return self._turns(self._copies_from, connect_string)

    def _turns(self, of: dict[str, CopyTurns], connect_string: str) -> CopyTurns:
        turns = of.get(connect_string)
        if turns is None:
            turns = of[connect_string] = CopyTurns(self._settings.copy_budget_bytes)
        return turns

    async def check_connectivity(self, connect_strings: Iterable[str] | None = None) -> dict[str, bool]:
        """Which of the nodes (all that were ever asked for, without an argument) can be reached now, and
        answer. Of one that failed, and is not tried again yet, that is known: who asks has not its back-off
        to wait."""
        names = list(self._nodes) if connect_strings is None else list(connect_strings)

        async def reachable(name: str) -> bool:
            if self._backs_off(name):
                return False
            try:
                async with asyncio.timeout(self._settings.connect_timeout_seconds):
                    await self.get(name)
            except (ReplicaUnavailableError, TimeoutError):
                return False
            return not self.idle_check.problem(name)

        return dict(zip(names, await asyncio.gather(*map(reachable, names)), strict=True))

    def _backs_off(self, name: str) -> bool:
        node = self._nodes.get(name)
        if node is None or (node.link is not None and not node.link.closed):
            return False
        return node.not_before > asyncio.get_running_loop().time()

    async def close(self) -> None:
        """Close every connection; later calls of `get` fail."""
        self._closed = True
        for node in self._nodes.values():
            if node.link is not None and not node.link.closed:
                node.link.close()

    def _new_node(self, connect_string: str) -> _Node:
        try:
            endpoint = Endpoint.parse(connect_string)
        except ValueError as error:
            raise ReplicaUnavailableError(str(error)) from error
        s = self._settings
        return _Node(endpoint, retry_backoff(s.initial_retry_interval_ms, s.max_retry_interval_ms, self._rng))

    async def _open(self, node: _Node, loop: asyncio.AbstractEventLoop) -> ReplicaLink:
        try:
            link = await self._open_link(node.endpoint)
        except (WaltzProtocolError, OSError, TimeoutError) as error:
            node.reason = str(error)
            node.failed_at = loop.time()
            node.not_before = node.failed_at + node.backoff.next_seconds()
            raise ReplicaUnavailableError(node.reason) from error
        if self._closed:
            link.close()
            raise ReplicaUnavailableError("the server is closing")
        node.backoff.reset()
        node.link = link
        return link
