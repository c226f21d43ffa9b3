"""Which connection may append and feed for a client: the fence against stale connections.

Pure. Client-server protocol, connection registry and validity. One `MountRegistry` per partition; its only
writer is the partition.

Invariants
* At most one connection per client id is recorded; only that very connection is valid (the reference compares
  sequence numbers, so that two connections with equal numbers both passed).
* A newer mount (generation, then connection sequence number) replaces an older one, never the other way round.
* From the moment the flush of a newer mount has passed the append queue, the mounts it replaced are *fenced*:
  an append that was validated under one of them is dropped when it is processed (weakness 13.9).
"""

from __future__ import annotations

from dataclasses import dataclass

from waltz_server.partition.client import Client


@dataclass(slots=True, eq=False)
class Mount:
    """The right of one connection to append; `replaced` links the mounts it took over from until its flush."""

    client: Client
    generation: int
    connection_seq_num: int
    fenced: bool = False
    replaced: Mount | None = None

    def fence_replaced(self) -> None:
        """The flush of this mount has passed the queue: nothing validated under older mounts may follow."""
        older = self.replaced
        while older is not None:
            older.fenced = True
            older = older.replaced
        self.replaced = None


class MountRegistry:
    """Client id -> mount of one partition."""

    def __init__(self) -> None:
        self._mounts: dict[int, Mount] = {}

    def __len__(self) -> int:
        return len(self._mounts)

    def offer(self, client: Client, generation: int) -> Mount | None:
        """Record the mount request of `client` if it is newer; None when a younger connection holds the place.

        The loser is told NOT_READY by the caller (weakness 13.10: the reference says nothing at all, and a
        restarted client, which counts from 0 again, would wait for ever).
        """
        current = self._mounts.get(client.client_id)
        if current is not None and current.client is client:
            current.generation = max(current.generation, generation)
            return current
        seq_num = client.connection_seq_num
        if current is not None and (generation, seq_num) <= (current.generation, current.connection_seq_num):
            return None
        mount = Mount(client, generation, seq_num, replaced=current)
        self._mounts[client.client_id] = mount
        return mount

    def valid(self, client: Client) -> Mount | None:
        """The mount of this very connection, or None."""
        mount = self._mounts.get(client.client_id)
        return mount if mount is not None and mount.client is client else None

    def remove(self, client: Client) -> None:
        """The connection has gone; its entry goes with it, but only if it is still its own."""
        if self.valid(client) is not None:
            del self._mounts[client.client_id]

    def clear(self) -> None:
        self._mounts.clear()
