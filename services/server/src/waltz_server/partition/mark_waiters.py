"""Requests for the high-water mark of a partition that does not know it yet. Owner: the partition."""

from __future__ import annotations

from waltz_server.partition.client import Client


class MarkWaiters:
    """At most `limit` of a connection; what is beyond gets no answer."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._waiting: dict[Client, list[bytes]] = {}

    def add(self, client: Client, req_id: bytes) -> None:
        """It waits."""
        waiting = self._waiting.setdefault(client, [])
        if len(waiting) < self._limit:
            waiting.append(req_id)

    def take(self) -> list[tuple[Client, bytes]]:
        """All, in the order of each connection; nothing waits any longer."""
        taken = [(client, req_id) for client, req_ids in self._waiting.items() for req_id in req_ids]
        self._waiting = {}
        return taken

    def forget(self, client: Client) -> None:
        """The connection has gone."""
        self._waiting.pop(client, None)

    def clear(self) -> None:
        """The partition leaves."""
        self._waiting.clear()
