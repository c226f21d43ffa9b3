"""Tests without an event loop: they work on the log from their own thread, while the clients of the log
(those of `waltz_client.blocking`) run on a loop in another one."""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import functools
from collections.abc import Callable
from typing import Concatenate, ParamSpec, Protocol, TypeVar

P = ParamSpec("P")
T = TypeVar("T")

_LOOK_SECONDS = 0.1
"""How often a waiting thread looks whether the loop has ended."""


class Home:
    """The loop that the clients of a log run on; any thread may call `call`.

    Invariant: a call is made once, on the loop while it runs, by the caller when it does not.
    """

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None

    def enter(self) -> None:
        """A client runs on the loop of the caller."""
        self._loop = asyncio.get_running_loop()

    def call(self, act: Callable[[], T]) -> T:
        """What `act` returns or raises."""
        loop = self._loop
        if loop is None or not loop.is_running() or _running_loop() is loop:
            return act()
        result: concurrent.futures.Future[T] = concurrent.futures.Future()
        with contextlib.suppress(RuntimeError):  # it was closed in the meantime
            loop.call_soon_threadsafe(_run, act, result)
        while loop.is_running():
            with contextlib.suppress(TimeoutError):
                return result.result(_LOOK_SECONDS)
        return act() if result.cancel() else result.result()


def _run(act: Callable[[], T], result: concurrent.futures.Future[T]) -> None:
    if not result.set_running_or_notify_cancel():
        return
    try:
        result.set_result(act())
    except Exception as error:
        result.set_exception(error)


def _running_loop() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None


class _AtHome(Protocol):
    @property
    def home(self) -> Home: ...


S = TypeVar("S", bound=_AtHome)


def on_the_loop(method: Callable[Concatenate[S, P], T]) -> Callable[Concatenate[S, P], T]:
    """Runs the method where the clients run, whichever thread calls it."""

    @functools.wraps(method)
    def called(self: S, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return self.home.call(lambda: method(self, *args, **kwargs))

    return called
