"""What both stores share: the session as seen on the loop, one-shot watches, creation of parents.

One writer: the event loop. Invariants of `SessionTracker`
  1. `epoch` never decreases; an event of an older epoch changes nothing and reaches nobody.
  2. After LOST nothing of the same epoch is delivered: a session does not come back from the dead.
"""

import asyncio
import logging
from collections.abc import Callable
from typing import Protocol

from waltz_cluster.errors import NodeExistsError, NoNodeError
from waltz_cluster.store import SessionEvent, SessionListener, SessionState, Watch, ZnodeStat

_log = logging.getLogger(__name__)


class SessionTracker:
    """Present state and epoch, and who wants to know."""

    def __init__(self) -> None:
        self.state = SessionState.SUSPENDED
        self.epoch = 0
        self._listeners: list[SessionListener] = []

    def add_listener(self, listener: SessionListener) -> Callable[[], None]:
        self._listeners.append(listener)

        def remove() -> None:
            if listener in self._listeners:
                self._listeners.remove(listener)

        return remove

    def deliver(self, event: SessionEvent) -> bool:
        """Adopt and pass on an event, on the loop; False when it was stale or no news."""
        if event.epoch < self.epoch:
            _log.debug("stale session event dropped: %s of epoch %d", event.state.value, event.epoch)
            return False
        same_epoch = event.epoch == self.epoch
        if same_epoch and (self.state is SessionState.LOST or event.state is self.state):
            return False
        self.epoch = event.epoch
        self.state = event.state
        for listener in tuple(self._listeners):
            try:
                listener(event)
            except Exception:
                _log.exception("a session listener failed")
        return True


class OneShotWatch:
    """Fires its callback once, on the loop, however many threads and events say so."""

    __slots__ = ("_callback",)

    def __init__(self, callback: Watch) -> None:
        self._callback: Watch | None = callback

    def cancel(self) -> None:
        self._callback = None

    def fire(self) -> None:
        callback, self._callback = self._callback, None
        if callback is not None:
            try:
                callback()
            except Exception:
                _log.exception("a watch callback failed")


def fire_from_thread(loop: asyncio.AbstractEventLoop, callback: Callable[[], None]) -> None:
    """Move a callback to the loop; a loop that is closed by now wants no callbacks."""
    try:
        loop.call_soon_threadsafe(callback)
    except RuntimeError:
        _log.debug("the event loop is closed; a ZooKeeper event was dropped")


class Creating(Protocol):
    """The part of a `ZooKeeperStore` that creating with parents needs."""

    async def exists(self, path: str) -> ZnodeStat | None: ...

    async def create(
        self, path: str, data: bytes | None, *, ephemeral: bool = False, sequential: bool = False
    ) -> str: ...


async def create_parents(store: Creating, path: str) -> None:
    """Create the missing ancestors of `path` without data, outermost first."""
    parts = path.split("/")[1:-1]
    for depth in range(1, len(parts) + 1):
        ancestor = "/" + "/".join(parts[:depth])
        if await store.exists(ancestor) is None:
            try:
                await store.create(ancestor, None)
            except NodeExistsError:
                continue


async def create_with_parents(
    store: Creating, path: str, data: bytes | None, *, ephemeral: bool, sequential: bool
) -> str:
    """`create`, making the missing ancestors when it turns out that there are some."""
    try:
        return await store.create(path, data, ephemeral=ephemeral, sequential=sequential)
    except NoNodeError:
        await create_parents(store, path)
        return await store.create(path, data, ephemeral=ephemeral, sequential=sequential)
