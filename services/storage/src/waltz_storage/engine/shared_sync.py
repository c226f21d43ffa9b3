"""One sync of a file for all who have written into it: the disk threads that change entries of many
partitions in one file at the same time wait for one sync together, not one after another.

Invariants
  1. A writer returns only after a sync that began when its write was done.
  2. After a failed sync everything that was written and is not known to be durable has failed, also what its
     writer did not ask for yet: the kernel may have dropped it, and the next sync would not say so (C3).
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import Enum

LOCKS = 64


class PartitionLocks:
    """One writer at a time for what a file says of a partition; two partitions seldom share a lock."""

    def __init__(self) -> None:
        self._locks = tuple(threading.Lock() for _ in range(LOCKS))

    def of(self, partition_id: int) -> threading.Lock:
        """The lock of a partition."""
        return self._locks[partition_id % LOCKS]


class _State(Enum):
    WRITING = "writing"
    WAITING = "waiting for a sync"
    DURABLE = "durable"
    FAILED = "failed"


class SharedSync:
    """See the module. Thread safe; it remembers one state for each thread that is inside `durable`."""

    def __init__(self, sync: Callable[[], None]) -> None:
        """`sync` syncs the file; OSError when that failed."""
        self._sync = sync
        self._turn = threading.Lock()
        """Held by the one that syncs."""
        self._lock = threading.Lock()
        """Of what follows; never held during a sync."""
        self._states: dict[int, _State] = {}
        self._next = 0
        self._failure = OSError()

    @contextmanager
    def durable(self) -> Iterator[None]:
        """What is written inside is durable at the end; OSError when a sync failed that had to cover it."""
        with self._lock:
            number = self._next
            self._next += 1
            self._states[number] = _State.WRITING
        try:
            yield
            self._make_durable(number)
        finally:
            with self._lock:
                del self._states[number]

    def _make_durable(self, number: int) -> None:
        states = self._states
        with self._lock:
            if states[number] is _State.WRITING:
                states[number] = _State.WAITING
        with self._turn:
            with self._lock:
                if states[number] is _State.FAILED:
                    raise OSError(self._failure.errno, self._failure.strerror)
                if states[number] is _State.DURABLE:
                    return
                covered = [one for one, state in states.items() if state is _State.WAITING]
            try:
                self._sync()
            except OSError as error:
                with self._lock:
                    self._failure = error
                    states.update(
                        dict.fromkeys(
                            (one for one, state in states.items() if state is not _State.DURABLE),
                            _State.FAILED,
                        )
                    )
                raise
            with self._lock:
                states.update(dict.fromkeys((one for one in covered if one in states), _State.DURABLE))
