"""The one place that makes tasks outside a TaskGroup.

For sync callbacks that must start something asynchronous. The task is referenced until it ends, and an
exception nobody awaits is logged instead of lost.
"""

import asyncio
import logging
from collections.abc import Coroutine
from typing import Any, TypeVar

_T = TypeVar("_T")
_log = logging.getLogger(__name__)
_running: set[asyncio.Task[Any]] = set()


def spawn(coro: Coroutine[Any, Any, _T], name: str) -> asyncio.Task[_T]:
    """Run `coro` as a task of the running loop. The caller owns it: keep it, await it or cancel it.

    An exception is logged with the task's name when the task ends; cancellation is not an error.
    """
    task = asyncio.get_running_loop().create_task(coro, name=name)
    _running.add(task)
    task.add_done_callback(_ended)
    return task


def _ended(task: asyncio.Task[Any]) -> None:
    _running.discard(task)
    if task.cancelled():
        return
    error = task.exception()
    if error is not None:
        _log.error("task %s failed: %s", task.get_name(), error, exc_info=error)
