"""Appends that wait because no store session is open: a client of version 5 is not left in silence.

Owner: the append queue of one partition; a timer while it waits.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable

from waltz_protocol.frames.append_batch import Verdict
from waltz_server.partition.append_outcomes import AppendOutcomes
from waltz_server.partition.pending_answers import Marker
from waltz_server.partition.queued_append import QueuedAppend
from waltz_server.store.api import PartitionStore, StoreState
from waltz_server.store.callbacks import Callbacks

MAX_WAIT_SECONDS = 5.0
"""A fail-over takes less; then the client hears what is wrong, and decides itself how long it tries."""
_CHECK_SECONDS = 1.0


class AppendWaits:
    """See the module. `on_refused`: called for each append that has left the queue."""

    def __init__(
        self,
        queue: deque[QueuedAppend | Marker],
        store: PartitionStore,
        outcomes: AppendOutcomes,
        loop: Callbacks,
        on_refused: Callable[[QueuedAppend], object],
    ) -> None:
        self._queue = queue
        self._store = store
        self._outcomes = outcomes
        self._loop = loop
        self._on_refused = on_refused
        self._timer: asyncio.TimerHandle | None = None
        self._lost_at = float("-inf")

    def session_lost(self) -> None:
        """What waits for something else in the queue, for however long, waits for a session from now on."""
        self._lost_at = self._loop.time()
        self.begin()

    def begin(self) -> None:
        """Something is in the queue, and no session is open."""
        if self._timer is None:
            self._timer = self._loop.call_later(_CHECK_SECONDS, self._check)

    def _check(self) -> None:
        self._timer = None
        if self._store.state is StoreState.OPEN or not self._queue:
            return
        latest = self._loop.time() - MAX_WAIT_SECONDS
        over = [
            one
            for one in (self._queue if self._lost_at <= latest else ())
            if isinstance(one, QueuedAppend) and one.mount.client.answers and one.arrived_at <= latest
        ]
        if over:
            gone = set(over)
            kept = [one for one in self._queue if one not in gone]
            self._queue.clear()
            self._queue.extend(kept)
            problem = self._store.problem
            for item in over:
                self._on_refused(item)
                self._outcomes.refused(item, Verdict.NO_QUORUM, text=problem)
        if self._queue:
            self.begin()

    def close(self) -> None:
        """The partition leaves."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
