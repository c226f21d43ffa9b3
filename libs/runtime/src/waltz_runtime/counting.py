"""Counts the tasks and futures a service's loop makes, when WALTZ_COUNT_TASKS is set.

The append path is to make no task and no future per message. The proof is a loop that counts: every task goes
through its task factory and every future made by `loop.create_future` (that is what the standard library's
locks, queues, waits and executor calls use) through an override. Creations are grouped by turn of the loop:
the first one of a turn schedules a callback, which runs with the next turn and closes the group, so that a
group never holds less than one turn made. The counts are gauges under `waltz-runtime.` and a log line at
exit.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Coroutine, Generator
from typing import Any

import uvloop

from waltz_runtime.metrics import MetricsRegistry

COUNT_VARIABLE = "WALTZ_COUNT_TASKS"
MAX_GROUP = 16

_counters: LoopCounters | None = None


class LoopCounters:
    """Totals since start, and how many turns made 1, 2, … tasks and futures (the last entry: that many or
    more)."""

    def __init__(self) -> None:
        self.tasks = 0
        self.futures = 0
        self.turns_by_created = [0] * (MAX_GROUP + 1)
        self._in_turn = 0

    def count(self, loop: asyncio.AbstractEventLoop) -> None:
        """One task or future was made in the current turn of `loop`."""
        if self._in_turn == 0:
            loop.call_soon(self._turn_over)
        self._in_turn += 1

    def _turn_over(self) -> None:
        self.turns_by_created[min(self._in_turn, MAX_GROUP)] += 1
        self._in_turn = 0

    def publish(self, registry: MetricsRegistry) -> None:
        """Gauges `waltz-runtime.tasks-created`, `.futures-created`, `.turns-by-created` (a list)."""
        registry.gauge("waltz-runtime.tasks-created", lambda: self.tasks)
        registry.gauge("waltz-runtime.futures-created", lambda: self.futures)
        registry.gauge("waltz-runtime.turns-by-created", lambda: list(self.turns_by_created))


class CountingLoop(uvloop.Loop):
    """A uvloop that counts; only made when asked for, the ordinary loop pays nothing."""

    def __init__(self) -> None:
        super().__init__()
        self.counters = LoopCounters()
        self.set_task_factory(_counted_task)

    def create_future(self) -> asyncio.Future[Any]:
        """As the base class, counted."""
        self.counters.futures += 1
        self.counters.count(self)
        future: asyncio.Future[Any] = super().create_future()
        return future


def _counted_task(
    loop: asyncio.AbstractEventLoop,
    coro: Coroutine[Any, Any, Any] | Generator[Any, None, Any],
    **options: Any,
) -> asyncio.Task[Any]:
    if isinstance(loop, CountingLoop):
        loop.counters.tasks += 1
        loop.counters.count(loop)
    return asyncio.Task(coro, loop=loop, **options)


def new_event_loop() -> asyncio.AbstractEventLoop:
    """A uvloop; a counting one when the environment asks for it."""
    global _counters
    if not os.environ.get(COUNT_VARIABLE):
        return uvloop.new_event_loop()
    loop = CountingLoop()
    _counters = loop.counters
    return loop


def loop_counters() -> LoopCounters | None:
    """The counters of this process's loop; None when it does not count."""
    return _counters
