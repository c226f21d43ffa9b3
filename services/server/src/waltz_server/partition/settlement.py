"""Settle a partition for its next owner: admit nothing more, wait until nothing is in flight, give the lock
table.

Owner: the partition, on the event loop. What arrives meanwhile waits in the queue, until whoever settles a
partition closes it.
"""

from __future__ import annotations

from collections.abc import Callable

from waltz_server.partition.append import AppendQueue
from waltz_server.partition.hand_over import LockHandOver, hand_over_of
from waltz_server.store.api import PartitionStore, StoreState

OnSettled = Callable[[LockHandOver | None], None]
"""Called once: with None when it could not be settled in time."""


class Settlement:
    """See the module."""

    def __init__(
        self,
        appends: AppendQueue,
        store: PartitionStore,
    ) -> None:
        self._appends = appends
        self._store = store
        self._waiting: OnSettled | None = None

    def take_over(self, handed_over: LockHandOver | None) -> None:
        """What the old owner gave, before the partition runs."""
        self._appends.handed_over = handed_over

    def begin(self, on_settled: OnSettled) -> None:
        """Seal the partition; whoever asked before and has no answer yet gets none."""
        self._answer(None)
        if self._store.state is not StoreState.OPEN or self._appends.locks is None:
            on_settled(None)
            return
        self._waiting = on_settled
        session_id = self._store.session_id
        self._appends.seal(lambda: self._settled(session_id))

    def _settled(self, session_id: int) -> None:
        """Nothing is in flight. Of a session that began meanwhile nobody knows what came before it."""
        locks, store = self._appends.locks, self._store
        mark = store.high_water_mark  # the partition's own rises when its commits are fed
        if (
            locks is None
            or mark is None
            or store.state is not StoreState.OPEN
            or store.session_id != session_id
        ):
            self._answer(None)
        else:
            generation = self._appends.generation
            self._answer(hand_over_of(locks, store.partition_id, generation, session_id, mark))

    def _answer(self, handed_over: LockHandOver | None) -> None:
        waiting, self._waiting = self._waiting, None
        if waiting is not None:
            waiting(handed_over)

    def close(self) -> None:
        """The partition leaves."""
        self._answer(None)
