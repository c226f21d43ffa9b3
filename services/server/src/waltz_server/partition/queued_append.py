"""An append on its way through a partition, what it takes of the queue, and how it is refused."""

from __future__ import annotations

from dataclasses import dataclass

from waltz_protocol.frames.append import Append
from waltz_protocol.frames.replies import lock_failure
from waltz_protocol.locks import LockCheck
from waltz_server.partition.mounts import Mount
from waltz_server.store.api import AppendEntry

_ITEM_OVERHEAD_BYTES = 36
_LOCK_BYTES = 40
"""Of memory: a reference and an integer."""


@dataclass(slots=True, eq=False)
class QueuedAppend:
    """One append: in the queue, perhaps in lines, then as `context` of its entry in the store."""

    mount: Mount
    append: Append
    arrived_at: float
    number: int
    """Its place among all that has arrived."""
    check: LockCheck | None = None
    """Of one with many locks, from when it comes to the head until its outcome."""
    marked: tuple[int, ...] = ()
    resolved: bool = False
    lost: bool = False
    """Refused because of a lock."""
    handed_at: float = 0.0
    """When it was handed to the store, on the clock of `arrived_at`."""

    def refuse(self, mark: int) -> None:
        """LOCK_FAILURE: transactions up to `mark` may be in its way."""
        client = self.mount.client
        client.send(lock_failure(client.version, self.append.req_id, mark))


def item_of(entry: AppendEntry) -> QueuedAppend:
    """What an entry was made of."""
    if not isinstance(entry.context, QueuedAppend):
        raise TypeError("an entry came back from the store without the context it was given")
    return entry.context


def size_of(append: Append) -> int:
    """Bytes of memory, about; few locks do not count."""
    size = len(append.tail) + _ITEM_OVERHEAD_BYTES
    return size if append.__class__ is Append else size + _LOCK_BYTES * lock_count(append)


def lock_count(append: Append) -> int:
    """Of all kinds together."""
    return len(append.write_locks) + len(append.read_locks) + len(append.append_locks)
