"""One worker per cluster: passes one after another, each woken by an event, a due time or the back-off; never
two at once.

Watch events only wake: what they say is read again. A storm of them makes one pass. After an error the pause
doubles, per object, up to `MAX_BACKOFF_SECONDS`, and a wake-up does not shorten it to nothing. What has
been waited for in vain for a while is looked at less often (`IDLE`) until an event, or a change made by a
pass, says that something is in progress. When all places are taken, impaired clusters get the next one
before those that something was reported of, and these before those whose time has come (`places`).
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable

from waltz_operator.api.errors import ResourceError
from waltz_operator.kube.errors import KubeError, KubeNotFoundError
from waltz_operator.run.lease import LeaseLostError
from waltz_operator.run.metrics import OperatorMetrics
from waltz_operator.run.places import Places, Urgency
from waltz_operator.run.reconcile import PassResult

_log = logging.getLogger(__name__)

Key = tuple[str, str]
Pass = Callable[[str, str], Awaitable[PassResult]]
Failed = Callable[[Key, str], Awaitable[None]]

FIRST_BACKOFF_SECONDS = 1.0
MAX_BACKOFF_SECONDS = 60.0
SETTLE_SECONDS = 0.2
"""Events come in groups: this long they are collected before a pass begins."""
PASS_SECONDS = 300.0
"""A pass that has not ended by then is ended: what it waits for must not hold a place of the others."""
STUCK_SECONDS = 900.0
"""When all places are taken and no pass has ended for so long, the process counts as stuck."""
IDLE = ((30, 10.0), (10, 3.0), (6, 1.0))
"""After so many passes in a row that changed nothing, the pause before the next one is so long at least."""


class _Worker:
    __slots__ = ("changed", "failures", "idle", "impaired", "task", "wake")

    def __init__(self) -> None:
        self.wake = asyncio.Event()
        self.changed = True  # since the last pass began
        self.impaired = False  # by the last pass
        self.failures = 0
        self.idle = 0  # passes in a row that changed nothing
        self.task: asyncio.Task[None] | None = None

    @property
    def urgency(self) -> Urgency:
        if self.impaired:
            return Urgency.IMPAIRED
        return Urgency.CHANGED if self.changed else Urgency.DUE


class Workers:
    """Owner of the workers' tasks, inside `run`. One writer: the loop."""

    def __init__(
        self,
        reconcile: Pass,
        gone: Callable[[Key], Awaitable[None]],
        failed: Failed,
        metrics: OperatorMetrics,
        *,
        concurrency: int,
        resync_seconds: float,
        rng: random.Random,
    ) -> None:
        """`gone`: the object does not exist. `failed`: a pass ended with this line, or had to
        leave out what it says. `resync_seconds`: no pause is longer, but after an error."""
        self._reconcile = reconcile
        self._gone = gone
        self._failed = failed
        self._metrics = metrics
        self._places = Places(concurrency)
        self._resync_seconds = resync_seconds
        self._rng = rng
        self._concurrency = concurrency
        self._since: dict[Key, float] = {}  # passes in progress: when each began
        self._workers: dict[Key, _Worker] = {}
        self._tasks: asyncio.TaskGroup | None = None

    def wake(self, key: Key, *, changed: bool = True) -> None:
        """Something that concerns this cluster may have changed; without `changed` nothing says so. Makes
        its worker when there is none."""
        worker = self._workers.get(key)
        if worker is None and self._tasks is not None:
            worker = self._workers[key] = _Worker()
            worker.task = self._tasks.create_task(self._run(key, worker), name=f"cluster {key[0]}/{key[1]}")
        if worker is not None:
            worker.wake.set()
            if changed:
                worker.idle = 0
                worker.changed = True

    def stuck(self) -> str:
        """What is wrong with the workers as a whole, in one line; empty when nothing is. One object that
        fails, or whose pass hangs, is no fault of the process."""
        if len(self._since) < self._concurrency:
            return ""
        youngest = asyncio.get_running_loop().time() - max(self._since.values())
        return f"no pass has ended for {youngest:.0f} s" if youngest > STUCK_SECONDS else ""

    async def run(self, stop: asyncio.Event) -> None:
        """Until `stop`; workers end between two writes at the latest (they are cancelled where they
        wait)."""
        async with asyncio.TaskGroup() as tasks:
            self._tasks = tasks
            try:
                await stop.wait()
            finally:
                self._tasks = None
                for worker in self._workers.values():
                    if worker.task is not None:
                        worker.task.cancel()

    async def _run(self, key: Key, worker: _Worker) -> None:
        try:
            while True:
                worker.wake.clear()
                async with self._places.taken(worker.urgency) as waited:
                    self._metrics.waited(waited)
                    worker.changed = False
                    pause = await self._one_pass(key, worker)
                if pause is None and not worker.wake.is_set():
                    return
                await self._pause(worker, pause or SETTLE_SECONDS)
        finally:
            if self._workers.get(key) is worker:
                del self._workers[key]

    async def _pause(self, worker: _Worker, seconds: float) -> None:
        loop = asyncio.get_running_loop()
        until = loop.time() + seconds
        if worker.failures:
            await asyncio.sleep(seconds)  # an event does not make a failing write succeed any sooner
            return
        try:
            async with asyncio.timeout(
                seconds
            ):  # `wait_for` swallows a cancellation that comes with the event
                await worker.wake.wait()
        except TimeoutError:
            return
        await asyncio.sleep(min(SETTLE_SECONDS, max(0.0, until - loop.time())))

    async def _one_pass(self, key: Key, worker: _Worker) -> float | None:
        """Seconds until the next pass; None when the object is gone."""
        loop = asyncio.get_running_loop()
        started = loop.time()
        error: str | None = None
        word = "refused"
        result = PassResult(0.0, False)
        limit = asyncio.timeout(PASS_SECONDS)
        self._since[key] = started
        try:
            async with limit:
                result = await self._reconcile(*key)
            error = result.error or None
            word = "conflict" if result.passing else word
        except KubeNotFoundError:
            await self._gone(key)
            self._metrics.forget(key)
            return None
        except LeaseLostError:
            raise
        except (KubeError, ResourceError) as failure:
            error, word = str(failure), type(failure).__name__
        except TimeoutError as failure:
            late = limit.expired()
            error, word = (
                (f"the pass has not ended within {PASS_SECONDS:g} s", "late")
                if late
                else (f"internal error: TimeoutError: {failure}", "internal")
            )
        except Exception as failure:
            _log.exception("%s/%s: an unexpected error ended the pass", *key)
            error, word = f"internal error: {type(failure).__name__}: {failure}", "internal"
        finally:
            del self._since[key]
        now = loop.time()
        self._metrics.pass_done(key, now - started, now, word if error else None)
        worker.impaired = result.impaired
        if error is None:
            worker.failures = 0
            if result.left_out:
                self._metrics.left_out(key)
                await self._failed(key, result.left_out)
            worker.idle = 0 if result.wrote else worker.idle + 1
            least = next((pause for passes, pause in IDLE if worker.idle >= passes), 0.0)
            return max(result.requeue_seconds, min(least, self._resync_seconds))
        if not result.passing:
            await self._failed(key, error)
        worker.failures += 1
        ceiling = (
            MAX_BACKOFF_SECONDS
            if result.needs_person
            else FIRST_BACKOFF_SECONDS * 2 ** min(worker.failures - 1, 6)
        )
        return min(MAX_BACKOFF_SECONDS, ceiling) * self._rng.uniform(0.8, 1.0)
