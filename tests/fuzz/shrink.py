"""Makes a failing input smaller while it fails in the same way."""

from __future__ import annotations

import time

from tests.fuzz.target import Target, check_with_memory

MAX_SECONDS = 20.0


def kind_of_failure(target: Target, data: bytes) -> str | None:
    """What one input ends with: the error's type and the line that raised it; None when all holds."""
    try:
        check_with_memory(target, data)
    except BaseException as error:
        trace = error.__traceback__
        while trace is not None and trace.tb_next is not None:
            trace = trace.tb_next
        place = f"{trace.tb_frame.f_code.co_filename}:{trace.tb_lineno}" if trace is not None else ""
        return f"{type(error).__name__} {place}"
    return None


def shrunk(target: Target, data: bytes) -> bytes:
    """A small input that fails as `data` does; `data` itself when it does not fail (any longer)."""
    kind = kind_of_failure(target, data)
    deadline = time.monotonic() + MAX_SECONDS
    if kind is None:
        return data
    size = max(1, len(data) // 2)
    while size and time.monotonic() < deadline:
        at, smaller = 0, False
        while at < len(data) and time.monotonic() < deadline:
            candidate = data[:at] + data[at + size :]
            if kind_of_failure(target, candidate) == kind:
                data, smaller = candidate, True
            else:
                at += size
        size = size if smaller else size // 2
    for at in range(len(data)):
        candidate = data[:at] + b"\0" + data[at + 1 :]
        if time.monotonic() < deadline and kind_of_failure(target, candidate) == kind:
            data = candidate
    return data
