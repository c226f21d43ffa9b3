"""Stream connections by server, and which partitions belong to which."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from waltz_client._internal.link import Link, LinkSettings
from waltz_client._internal.observers import Observers
from waltz_client._internal.stream.partition import StreamPartition
from waltz_client._internal.stream.session import StreamSession
from waltz_protocol.backoff import Random
from waltz_protocol.connection_number import first_connection_number
from waltz_protocol.types import Endpoint


class _StreamLink:
    def __init__(self) -> None:
        self.partitions: dict[int, StreamPartition] = {}
        self.session: StreamSession | None = None
        self.task: asyncio.Task[None] | None = None
        self.link: Link | None = None


class StreamLinks:
    """One stream link per server with active partitions. Owner: the client, on the loop.

    Invariant: `connection_seq_num` grows with every stream connection of this client object, to whichever
    server, so the pair (generation, connection sequence) is never used twice and a newer connection always
    outranks an older one. It starts at a number of this object's own (`waltz_protocol.connection_number`).
    """

    def __init__(
        self,
        settings: LinkSettings,
        spawn: Callable[[Coroutine[Any, Any, None], str], asyncio.Task[None]],
        random: Random,
        observers: Observers | None,
    ) -> None:
        self._settings = settings
        self._spawn = spawn
        self._random = random
        self._observers = observers
        self._links: dict[Endpoint, _StreamLink] = {}
        self._places: dict[int, Endpoint] = {}
        self._connection_seq_num = first_connection_number(random.random()) - 1

    def _link(self, endpoint: Endpoint) -> _StreamLink:
        entry = self._links.get(endpoint)
        if entry is None:
            entry = _StreamLink()
            self._links[endpoint] = entry

            def new_session(entry: _StreamLink = entry) -> StreamSession:
                self._connection_seq_num += 1
                entry.session = StreamSession(endpoint, self._connection_seq_num, entry.partitions)
                return entry.session

            entry.link = Link(endpoint, self._settings, new_session, self._random, self._observers)
            entry.task = self._spawn(entry.link.run(), f"stream connection to {endpoint}")
        return entry

    def place_of(self, partition_id: int) -> Endpoint | None:
        """Where the partition is attached."""
        return self._places.get(partition_id)

    def attach(self, partition: StreamPartition, endpoint: Endpoint) -> None:
        """The partition belongs to this server now; it is detached from any other, and mounted as soon as
        possible."""
        if self._places.get(partition.partition_id) != endpoint:
            self.detach(partition)
            self._places[partition.partition_id] = endpoint
        entry = self._link(endpoint)
        entry.partitions[partition.partition_id] = partition
        if entry.session is not None and entry.session.ready:
            partition.session_ready(entry.session)

    def detach(self, partition: StreamPartition) -> None:
        """The partition belongs to no server (nothing is sent: the protocol has no unmount)."""
        endpoint = self._places.pop(partition.partition_id, None)
        entry = self._links.get(endpoint) if endpoint is not None else None
        if entry is None:
            return
        entry.partitions.pop(partition.partition_id, None)
        if partition.session is not None:
            session = partition.session
            partition.session_lost(session)
            session.reconsider_reading()

    def keep_only(self, alive: set[Endpoint]) -> None:
        """Servers that left discovery: detach their partitions and close the connections."""
        for endpoint in [e for e in self._links if e not in alive]:
            entry = self._links.pop(endpoint)
            for partition in list(entry.partitions.values()):
                self._places.pop(partition.partition_id, None)
                if partition.session is not None:
                    partition.session_lost(partition.session)
            entry.partitions.clear()
            if entry.task is not None:
                entry.task.cancel()

    def last_error(self, partition_id: int) -> str | None:
        """Why the partition's server cannot be reached, if it cannot."""
        endpoint = self._places.get(partition_id)
        entry = self._links.get(endpoint) if endpoint is not None else None
        return entry.link.last_error if entry is not None and entry.link is not None else None
