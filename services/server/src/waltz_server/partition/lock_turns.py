"""Whose turn at a lock is kept, and for how long: for a client whose append was refused when its turn came.

The positions themselves are in `lock_lines`. A turn is kept for `TURN_SECONDS`, so what a client that does
not come back costs those behind it is bounded; one that let a turn pass gets no other until it has come back
in time without one. An append that holds up others of its own client gets none either: they pass at once.

Owner: the append queue of one partition, on the event loop; one timer while a turn is kept.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Generic

from waltz_server.partition.client import Client
from waltz_server.partition.lock_lines import LockLines, T, Waiter
from waltz_server.partition.mounts import Mount
from waltz_server.store.callbacks import Callbacks

TURN_SECONDS = 0.05
"""A round trip, a decision, and what a busy process adds."""


class LockTurns(Generic[T]):
    """See the module. `on_ready`: called when the end of a turn has let somebody go."""

    def __init__(self, lines: LockLines[T], loop: Callbacks, on_ready: Callable[[], None]) -> None:
        self._lines = lines
        self._loop = loop
        self._on_ready = on_ready
        self._since: dict[int, tuple[float, Mount]] = {}
        """By client, the longest kept first."""
        self._timer: asyncio.TimerHandle | None = None

    def keep(self, waiter: Waiter[T], mount: Mount) -> bool:
        """The append of `waiter` was refused; False: it has to leave its lines."""
        mount.lost_at = now = self._loop.time()
        if not mount.comes_back or mount.client.closed or not self._lines.alone(waiter):
            return False
        self._lines.hold(waiter)
        self._since.pop(waiter.client_id, None)
        self._since[waiter.client_id] = (now, mount)
        if self._timer is None:
            self._timer = self._loop.call_later(TURN_SECONDS, self._expire)
        return True

    def came(self, mount: Mount) -> None:
        """An append under locks has come from there."""
        if not mount.comes_back and self._loop.time() - mount.lost_at <= TURN_SECONDS:
            mount.comes_back = True

    def _expire(self) -> None:
        self._timer = None
        now = self._loop.time()
        for client_id, (since, mount) in list(self._since.items()):
            if client_id not in self._lines.turns:
                del self._since[client_id]
            elif since + TURN_SECONDS > now:
                self._timer = self._loop.call_at(since + TURN_SECONDS, self._expire)
                break
            else:
                mount.comes_back = False
                self._end(client_id)
        self._let_go()

    def forget(self, client: Client) -> None:
        """The connection has gone: nobody comes back for its turn."""
        held = self._since.get(client.client_id)
        if held is not None and held[1].client is client:
            self._end(client.client_id)
            self._let_go()

    def end_all(self) -> None:
        """Nobody can come back."""
        for client_id in list(self._since):
            self._end(client_id)
        self._let_go()

    def _end(self, client_id: int) -> None:
        del self._since[client_id]
        self._lines.give_up(client_id)

    def _let_go(self) -> None:
        if self._lines.ready:
            self._on_ready()

    def close(self) -> None:
        """No turn is kept any longer."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._since.clear()
