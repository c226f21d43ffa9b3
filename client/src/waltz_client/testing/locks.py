"""What the locks of one partition protect: the server's table of slots, or a table without collisions.

Both are keyed by the 32-bit lock hash that travels on the wire, and both decide as the server does: an append
conflicts when its view is below the last commit that touched one of its write or read locks.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from waltz_protocol.locks import LockTable

SERVER_LOCK_TABLE_SIZE = 30_000
"""Default of `server.optimisticLockTableSize`."""


class Locks(Protocol):
    """The part of a lock table the log uses."""

    def estimate(self, write_locks: Sequence[int], read_locks: Sequence[int]) -> int:
        """The last commit that conflicts with these locks, -1 for none."""
        ...

    def commit(self, write_locks: Sequence[int], append_locks: Sequence[int], transaction_id: int) -> None:
        """A transaction with these locks is committed."""
        ...


class TableLocks:
    """The server's own table: locks may share slots, so a conflict may be reported that is none (rarely)."""

    def __init__(self, size: int, high_water_mark: int) -> None:
        self._table = LockTable(size, high_water_mark)

    def estimate(self, write_locks: Sequence[int], read_locks: Sequence[int]) -> int:
        """See `LockTable.estimate`."""
        return self._table.estimate(write_locks, read_locks)

    def commit(self, write_locks: Sequence[int], append_locks: Sequence[int], transaction_id: int) -> None:
        """See `LockTable.commit`."""
        self._table.commit(self._table.slots_to_raise(write_locks, append_locks), transaction_id)


class ExactLocks:
    """A table that keeps every lock on its own."""

    def __init__(self, high_water_mark: int) -> None:
        self._initial = high_water_mark
        self._last: dict[int, int] = {}

    def estimate(self, write_locks: Sequence[int], read_locks: Sequence[int]) -> int:
        """The highest last commit among these locks."""
        last, initial = self._last, self._initial
        return max(
            (last.get(lock, initial) for locks in (write_locks, read_locks) for lock in locks), default=-1
        )

    def commit(self, write_locks: Sequence[int], append_locks: Sequence[int], transaction_id: int) -> None:
        """Raise these locks."""
        for locks in (write_locks, append_locks):
            for lock in locks:
                self._last[lock] = transaction_id


def make_locks(size: int | None, high_water_mark: int) -> Locks:
    """A table of `size` slots, or without collisions (None), in which every lock was last touched at the
    mark."""
    return ExactLocks(high_water_mark) if size is None else TableLocks(size, high_water_mark)
