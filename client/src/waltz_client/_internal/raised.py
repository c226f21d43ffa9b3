"""What the application's own functions raise: an error like any other, whatever its class.

It is caught as BaseException around a call of such a function: test frameworks and libraries for time limits
raise classes of their own that are no exceptions. What is to be passed on after all is said here: an exit,
and the cancellation of the running task.
"""

from __future__ import annotations

import asyncio
import threading

_thread = threading.local()


def keep_exits() -> None:
    """On the thread of a blocking client: an exit there would end that thread and not the program, and with
    it the calls of all others. So it is an error."""
    _thread.keeps_exits = True


def is_exit(error: BaseException) -> bool:
    """Whether it ends the program, or a coroutine that is being closed: it is passed on."""
    if isinstance(error, SystemExit | KeyboardInterrupt):
        return not getattr(_thread, "keeps_exits", False)
    return isinstance(error, GeneratorExit)


def as_exception(error: BaseException) -> Exception:
    """To be reported to who expects an exception."""
    if isinstance(error, Exception):
        return error
    failure = RuntimeError(f"a callback raised {type(error).__name__}: {error}")
    failure.__cause__ = error
    return failure


def reportable(error: BaseException) -> Exception:
    """What a callback that may have been awaited raised, as an error to report. Raised again when it is an
    exit, or the cancellation of this very task.

    A callback can raise CancelledError on its own, say by awaiting a task of its own that was cancelled: an
    error like any other. Where nothing is awaited it always is: `is_exit` alone decides there.
    """
    task = asyncio.current_task()
    cancelled = isinstance(error, asyncio.CancelledError) and task is not None and task.cancelling()
    if is_exit(error) or cancelled:
        raise error
    return as_exception(error)


def raisable(error: BaseException) -> BaseException:
    """As `reportable`, to be raised where its caller waits: itself, unless it would mean something else
    there."""
    failure = reportable(error)
    special = isinstance(error, asyncio.CancelledError | SystemExit | KeyboardInterrupt)
    return failure if special else error
