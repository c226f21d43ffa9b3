"""What the product logs, taken out of its hands: warnings go into the trace, errors that nobody foresaw are
violations."""

from __future__ import annotations

import logging
import traceback
from collections.abc import Callable, Iterator, Mapping, MutableMapping
from contextlib import contextmanager
from typing import Any

import structlog

Sink = Callable[[int, str, BaseException | None], None]
"""(level, text, exception)."""


class _Handler(logging.Handler):
    def __init__(self, sink: Sink) -> None:
        super().__init__(logging.WARNING)
        self._sink = sink

    def emit(self, record: logging.LogRecord) -> None:
        error = record.exc_info[1] if record.exc_info else None
        self._sink(record.levelno, record.getMessage(), error)


@contextmanager
def captured_logs(sink: Sink) -> Iterator[None]:
    """Give every warning and error of the block to `sink` instead of standard error; nothing below is
    formatted."""

    def take(_logger: Any, method: str, event: MutableMapping[str, Any]) -> Mapping[str, Any]:
        error = event.pop("exc_info", None)
        text = event.pop("event", "")
        rest = " ".join(f"{key}={value}" for key, value in event.items())
        level = logging.getLevelNamesMapping().get(method.upper(), logging.ERROR)
        sink(level, f"{text} {rest}".strip(), error if isinstance(error, BaseException) else None)
        raise structlog.DropEvent

    root = logging.getLogger()
    handlers, level, known = root.handlers[:], root.level, structlog.get_config()
    root.handlers[:] = [_Handler(sink)]
    root.setLevel(logging.WARNING)
    structlog.configure(
        processors=[take],
        wrapper_class=structlog.make_filtering_bound_logger(logging.WARNING),
        cache_logger_on_first_use=False,
    )
    try:
        yield
    finally:
        root.handlers[:] = handlers
        root.setLevel(level)
        structlog.configure(**known)


def describe(error: BaseException) -> str:
    """The error with its innermost frames, in one line."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    frames = traceback.extract_tb(error.__traceback__)[-3:]
    where = " < ".join(f"{f.filename.rpartition('/')[2]}:{f.lineno}" for f in reversed(frames))
    return f"{type(error).__name__}: {error} ({where})"
