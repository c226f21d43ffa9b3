"""kopf in a thread and loop of its own: it owns all tasks of its loop, and what it does never delays a
reconcile."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Callable, Sequence

import kopf
from kubernetes.aio.client import Configuration

from waltz_operator.run.kopf_handlers import build_registry

_log = logging.getLogger(__name__)

STOP_SECONDS = 10.0
BEAT_SECONDS = 1.0


class WatcherError(Exception):
    """kopf ended unasked: nothing is watched any longer, so the process must end too."""

    retriable = False


class Watcher:
    """`async with Watcher(...)`; `ended` is set when kopf ends, unasked or because it was asked to."""

    def __init__(
        self,
        wake: Callable[[tuple[str, str]], None],
        configuration: Callable[[], Configuration],
        namespaces: Sequence[str],
        relisted: Callable[[], None] = lambda: None,
        ours: Callable[[str], bool] = lambda _: False,
    ) -> None:
        """`wake` and `relisted` are called on the loop that entered the context, `ours` on any thread: see
        `build_registry`."""
        self._ours = ours
        self._relisted = relisted
        self._wake = wake
        self._configuration = configuration
        self._namespaces = list(namespaces)
        self._stop = threading.Event()
        self._ready = threading.Event()
        self._thread: threading.Thread | None = None
        self._beat_at = time.monotonic()
        self.ended = asyncio.Event()
        self.problem: BaseException | None = None

    @property
    def ready(self) -> bool:
        """kopf has logged in and begun to watch."""
        return self._ready.is_set() and not self.ended.is_set()

    def silent_seconds(self) -> float:
        """Time since kopf's loop has run last."""
        return time.monotonic() - self._beat_at

    def _beat(self) -> None:
        """On kopf's loop, over and over: no task, since kopf ends those that it finds there."""
        self._beat_at = time.monotonic()
        asyncio.get_running_loop().call_later(BEAT_SECONDS, self._beat)

    async def __aenter__(self) -> Watcher:
        loop = asyncio.get_running_loop()

        def wake_there(key: tuple[str, str]) -> None:
            loop.call_soon_threadsafe(self._wake, key)

        def relisted_there() -> None:
            loop.call_soon_threadsafe(self._relisted)

        registry, settings = build_registry(wake_there, self._configuration, relisted_there, self._ours)

        async def watching() -> None:
            self._beat()
            await kopf.operator(
                registry=registry,
                settings=settings,
                standalone=True,
                clusterwide=not self._namespaces,
                namespaces=self._namespaces,
                stop_flag=self._stop,
                ready_flag=self._ready,
            )

        def work() -> None:
            try:
                asyncio.run(watching())
            except BaseException as error:
                self.problem = error
            finally:
                try:
                    loop.call_soon_threadsafe(self.ended.set)
                except RuntimeError:  # the loop is closed: nobody waits any longer
                    pass

        self._thread = threading.Thread(target=work, name="kopf", daemon=True)
        self._thread.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        self._stop.set()
        try:
            async with asyncio.timeout(STOP_SECONDS):
                await self.ended.wait()
        except TimeoutError:
            _log.warning("kopf did not end within %g s", STOP_SECONDS)
            return
        if self._thread is not None:
            await asyncio.to_thread(self._thread.join, STOP_SECONDS)

    async def watch(self, stop: asyncio.Event) -> None:
        """Until kopf ends; WatcherError unless that was asked for."""
        await self.ended.wait()
        if not stop.is_set():
            raise WatcherError(f"kopf ended unasked: {self.problem or 'without a reason'}")
