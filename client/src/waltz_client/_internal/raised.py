"""What the application's own functions raise."""

from __future__ import annotations

import asyncio

RAISED = (Exception, asyncio.CancelledError)
"""To catch around a call of a function of the application.

A function raises CancelledError when it takes the result of a future that was cancelled: an error like any
other. Where nothing is awaited, it cannot be the cancellation of the running task; where something is, ask
`reportable`.
"""


def reportable(error: BaseException) -> Exception:
    """What a callback raised, as an error to report. Raised again when it is the cancellation of this very
    task.

    A callback can raise CancelledError on its own, say by awaiting a task of its own that was cancelled: an
    error like any other.
    """
    if isinstance(error, Exception):
        return error
    task = asyncio.current_task()
    if task is not None and task.cancelling():
        raise error
    failure = RuntimeError(f"a callback raised {type(error).__name__}")
    failure.__cause__ = error
    return failure
