"""Mounts and flushes between the append queue and their answer.

Safety D4: READY, CLIENT_AHEAD and FLUSH answers are promises ("what you have not seen by now has failed"), so
one is given only if

1. every append handed to the store before it is resolved (`barrier`),
2. the generation of the request is not above our own (else a newer owner may exist that we have not heard
   of): a request of a later one waits in `future_requests` and is no marker here until then, and
3. *after* that, a quorum of storage nodes has confirmed that our session is the current one.

One owner task per partition (`PendingAnswers.run`) confirms for all markers that are ready at that moment in
a single round. What cannot be confirmed waits for the next session. A mount that waits longer than
`mount_wait_seconds` is answered NOT_READY, which promises nothing and makes the client ask again (weakness
13.11: the reference says nothing). A flush has no such answer; it stays until its connection or the partition
ends.
"""

from __future__ import annotations

import asyncio
import enum
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from waltz_server.partition.client import Client
from waltz_server.partition.mounts import Mount
from waltz_server.store.api import PartitionStore, StoreNotOpenError, StoreState
from waltz_server.store.callbacks import Callbacks

CONFIRM_RETRY_SECONDS = 0.1
EXPIRY_SCAN_SECONDS = 0.25
ANSWERS_PER_ROUND = 500
"""More wait for the next confirmation, or the next turn of the loop."""
SHARES_OF_BOUND = 10


class MarkerKind(enum.Enum):
    """What is asked for."""

    MOUNT = "mount"
    FLUSH = "flush"
    FEED_AHEAD = "feed_ahead"
    """A feed request above our high-water mark: answered CLIENT_AHEAD once that is confirmed (13.20)."""


@dataclass(slots=True, eq=False)
class Marker:
    """One request that waits for earlier appends. `barrier` < 0: still in the queue."""

    kind: MarkerKind
    client: Client
    req_id: bytes
    generation: int
    client_high_water_mark: int = -1
    mount: Mount | None = None
    deadline: float = float("inf")
    barrier: int = -1
    number: int = 0
    """Its place among all that has arrived."""
    epoch: int = 0
    """Of the instance of a named producer that mounts; 0 for other clients."""


class MarkerSink(Protocol):
    """Where markers go once they have passed the queue (`PendingAnswers`)."""

    def passed(self, marker: Marker, barrier: int) -> None: ...

    def advanced(self) -> None: ...


class PendingAnswers:
    """Outstanding markers of one partition. `answer` and `give_up` are called on the loop, once per
    marker."""

    def __init__(
        self,
        *,
        store: PartitionStore,
        max_outstanding: int,
        resolved_prefix: Callable[[], int],
        answer: Callable[[Marker], None],
        give_up: Callable[[Marker], None],
        loop: Callbacks,
    ) -> None:
        self._store = store
        self._max_outstanding = max_outstanding
        self._resolved_prefix = resolved_prefix
        self._answer = answer
        self._give_up = give_up
        self._loop = loop
        self._outstanding: dict[Marker, None] = {}
        self._queued_dead = 0
        """Markers that are not outstanding any longer and are still in the append queue, behind one that
        waits."""
        self._by_client: Counter[Client] = Counter()
        """How many of a connection are outstanding or still in the queue."""
        self._wake = asyncio.Event()
        self._timer: asyncio.TimerHandle | None = None
        self._closed = False

    def __len__(self) -> int:
        return len(self._outstanding)

    def accept(self, marker: Marker) -> bool:
        """Register a marker before it is queued; False when there are too many (then it is not queued), of
        all connections or of this one: a tenth of the bound is more than any client has use for.

        Those that nobody waits for any longer count until they have left the queue: it has no other bound.
        """
        if self._closed or len(self._outstanding) + self._queued_dead >= self._max_outstanding:
            return False
        if self._by_client[marker.client] * SHARES_OF_BOUND > self._max_outstanding:
            return False
        self._by_client[marker.client] += 1
        self._outstanding[marker] = None
        if marker.deadline != float("inf") and self._timer is None:
            self._timer = self._loop.call_later(EXPIRY_SCAN_SECONDS, self._expire)
        return True

    def passed(self, marker: Marker, barrier: int) -> None:
        """The marker left the queue; `barrier` appends had been handed to the store by then."""
        marker.barrier = barrier
        if marker not in self._outstanding:
            self._queued_dead -= 1
            self._uncount(marker)
        if marker.mount is not None:
            marker.mount.fence_replaced()

    def advanced(self) -> None:
        """Something a marker may have waited for has happened."""
        if self._outstanding:
            self._wake.set()

    def forget(self, client: Client) -> None:
        """The connection has gone; its markers need no answer."""
        if self._by_client[client]:
            for marker in [marker for marker in self._outstanding if marker.client is client]:
                self._drop(marker)

    async def run(self) -> None:
        """Owner task: confirm and answer, until cancelled."""
        while True:
            await self._wake.wait()
            self._wake.clear()
            ready = self._ready()
            if not ready:
                continue
            try:
                await self._store.confirm_current()
            except StoreNotOpenError:
                # The session may be gone (then `advanced` follows with the next one) or just slow to confirm.
                await asyncio.sleep(CONFIRM_RETRY_SECONDS)
                self._wake.set()
                continue
            for marker in ready[:ANSWERS_PER_ROUND]:
                if self._outstanding.pop(marker, False) is None:
                    self._uncount(marker)
                    self._answer(marker)
            if len(ready) > ANSWERS_PER_ROUND:
                self._wake.set()
                await asyncio.sleep(0)

    def _ready(self) -> list[Marker]:
        if self._store.state is not StoreState.OPEN:
            return []
        resolved = self._resolved_prefix()
        return [marker for marker in self._outstanding if 0 <= marker.barrier <= resolved]

    def _expire(self) -> None:
        now = self._loop.time()
        self._timer = None
        pause, expired = float("inf"), 0
        for marker in list(self._outstanding):
            if marker.deadline <= now and expired == ANSWERS_PER_ROUND:
                pause = 0.0
                break
            if marker.deadline <= now:
                expired += 1
                self._drop(marker)
                self._give_up(marker)
            elif marker.deadline != float("inf"):
                pause = EXPIRY_SCAN_SECONDS
        if pause != float("inf"):
            self._timer = self._loop.call_later(pause, self._expire)

    def _drop(self, marker: Marker) -> None:
        del self._outstanding[marker]
        if marker.barrier < 0:
            self._queued_dead += 1
        else:
            self._uncount(marker)

    def _uncount(self, marker: Marker) -> None:
        self._by_client[marker.client] -= 1
        if not self._by_client[marker.client]:
            del self._by_client[marker.client]

    def close(self) -> None:
        """The partition leaves: mounts get NOT_READY, flushes end in silence."""
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        outstanding, self._outstanding = self._outstanding, {}
        for marker in outstanding:
            self._give_up(marker)
