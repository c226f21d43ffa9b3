"""Knowing from the own clock when the ZooKeeper session may be over (safety rule D8).

The server side ends a session when it has heard nothing for the session timeout. What it last heard is not
earlier than the newest request that was answered, so until `last_contact + session timeout` the session
lives for sure, and from then on it may not. The lease calls `expired` at that moment, at LOST at once, and
once per loss; contact made again later arms it anew.

Two things can make that moment too late: the machine was suspended and its clock stood still, or requests
were answered by a member of the ensemble that the majority has cut off. So nothing that must be true depends
on the lease alone: appends are fenced by the storage nodes, answers that promise something are confirmed by
them (B1, D4).
"""

import asyncio
from collections.abc import Callable

from waltz_cluster.store import SessionEvent, SessionState, ZooKeeperStore


class SessionLease:
    """One writer: the loop. `valid` says whether partitions may be served."""

    def __init__(self, store: ZooKeeperStore, expired: Callable[[str], None]) -> None:
        self._store = store
        self._expired = expired
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        self.valid = store.state is SessionState.CONNECTED

    def start(self) -> None:
        self._arm()

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def session_changed(self, event: SessionEvent) -> None:
        """To be called with every session event."""
        if event.state is SessionState.LOST:
            self._end("the ZooKeeper session is lost")
        else:
            self._check()

    def renew(self) -> bool:
        """After a successful exchange: the lease holds again if the contact is recent enough."""
        if self._store.state is not SessionState.CONNECTED or self._deadline() <= self._loop.time():
            return False
        self.valid = True
        self._arm()
        return True

    def _deadline(self) -> float:
        return self._store.last_contact + self._store.session_timeout_seconds

    def _arm(self) -> None:
        self.close()
        self._timer = self._loop.call_at(self._deadline(), self._check)

    def _check(self) -> None:
        if not self.valid:
            return
        if self._loop.time() >= self._deadline():
            self._end("no contact with ZooKeeper for a whole session timeout")
        else:
            self._arm()

    def _end(self, reason: str) -> None:
        self.close()
        if self.valid:
            self.valid = False
            self._expired(reason)
