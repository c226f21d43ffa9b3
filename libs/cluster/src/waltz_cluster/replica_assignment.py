"""Following the replica assignments (ZooKeeper layout, store watch)."""

import asyncio
import logging
import random
from collections.abc import Callable

from waltz_cluster.errors import ClusterError
from waltz_cluster.serializers import ReplicaAssignments
from waltz_cluster.store import SessionEvent, SessionState, ZooKeeperStore
from waltz_protocol.backoff import AROUND, Backoff

_log = logging.getLogger(__name__)


class ReplicaAssignmentWatcher:
    """Reads the assignments, calls back when they differ from the last ones, waits for the watch, and so on.

    Owner: whoever awaits `run()`; it ends by `close()` or cancellation. Errors are retried (100 ms
    doubling to 2 s): the last known assignments stay in use meanwhile.
    """

    def __init__(
        self,
        store: ZooKeeperStore,
        path: str,
        callback: Callable[[ReplicaAssignments], None],
        *,
        rng: random.Random | None = None,
    ) -> None:
        self._store = store
        self._path = path
        self._callback = callback
        self._changed = asyncio.Event()
        self._last_failure = ""
        self._closed = False
        self._armed = False
        self._last: ReplicaAssignments | None = None
        self._backoff = Backoff(0.1, 2.0, rng or random.Random(0), spread=AROUND)

    def close(self) -> None:
        """Make `run` return; no callback comes after this."""
        self._closed = True
        self._changed.set()

    async def run(self) -> None:
        remove = self._store.add_session_listener(self._session_changed)
        try:
            while not self._closed:
                self._changed.clear()
                try:
                    await self._read()
                    self._backoff.reset()
                    self._last_failure = ""
                except ClusterError as error:
                    level = logging.DEBUG if str(error) == self._last_failure else logging.WARNING
                    self._last_failure = str(error)
                    _log.log(level, "cannot read the replica assignments, trying again: %s", error)
                    await self._pause()
                    continue
                await self._changed.wait()
        finally:
            self._closed = True
            remove()

    async def _pause(self) -> None:
        try:
            async with asyncio.timeout(self._backoff.next_seconds()):  # `wait_for` can swallow a cancellation
                await self._changed.wait()
        except TimeoutError:
            pass

    async def _read(self) -> None:
        armed_now = not self._armed
        self._armed = True
        try:
            data, _ = await self._store.get(self._path, self._fired if armed_now else None)
        except BaseException:
            if armed_now:
                self._armed = False
            raise
        assignments = ReplicaAssignments.from_bytes(data)
        if assignments != self._last and not self._closed:
            self._last = assignments
            self._callback(assignments)

    def _fired(self) -> None:
        self._armed = False
        self._changed.set()

    def _session_changed(self, event: SessionEvent) -> None:
        if event.state is SessionState.CONNECTED:
            self._changed.set()
