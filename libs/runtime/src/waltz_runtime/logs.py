"""Logging: structlog to standard error, one line per event, text for people or JSON for collectors.

Lines of the standard `logging` module (aiohttp, kazoo, asyncio) go through the same renderer. Text for people
is `visible`: what a peer, a file or ZooKeeper says is in it.
"""

from __future__ import annotations

import io
import logging
import sys
from typing import TextIO

import structlog
from structlog.typing import EventDict, ExcInfo, Processor, WrappedLogger

from waltz_runtime.errors import LogLevelError
from waltz_runtime.visible import visible, visible_lines

_NOISY = {"kazoo.client": logging.WARNING, "asyncio": logging.WARNING, "aiohttp.access": logging.WARNING}


class _JsonHandler(logging.StreamHandler[TextIO]):
    """Writes one JSON object per line."""


class _Quoted:
    """A value that structlog's renderer, which quotes a text with spaces only, shows as `repr` does."""

    def __init__(self, text: str) -> None:
        self._text = text

    def __repr__(self) -> str:
        return repr(self._text)


def _visible_event(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
    for name, value in event.items():
        if name == "event":
            event[name] = visible(str(value))
        elif name in ("exception", "stack"):  # these the renderer puts below the line
            event[name] = visible_lines(str(value))
        elif isinstance(value, str) and not value.isprintable():
            event[name] = _Quoted(value)
    return event


def _visible_traceback(out: TextIO, exc_info: ExcInfo) -> None:
    held = io.StringIO()
    structlog.dev.plain_traceback(held, exc_info)
    out.write(visible_lines(held.getvalue()))


def configure_logging(level: str = "INFO", json: bool = False) -> None:
    """Send all log lines of `level` and above to standard error. LogLevelError for an unknown level name."""
    number = logging.getLevelNamesMapping().get(level.upper())
    if number is None:
        raise LogLevelError(f"unknown log level {level!r}: it is DEBUG, INFO, WARNING, ERROR or CRITICAL")
    shared: list[Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_logger_name,
        structlog.stdlib.add_log_level,
        structlog.stdlib.ExtraAdder(),
        structlog.processors.TimeStamper(fmt="iso", utc=True),
    ]
    renderers: list[Processor]
    if json:
        shared.append(structlog.processors.format_exc_info)
        renderers = [structlog.processors.JSONRenderer()]
    else:
        console = structlog.dev.ConsoleRenderer(
            colors=sys.stderr.isatty(), exception_formatter=_visible_traceback
        )
        renderers = [_visible_event, console]
    handler = _JsonHandler(sys.stderr) if json else logging.StreamHandler(sys.stderr)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=shared,
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, *renderers],
        )
    )
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(number)
    for name, floor in _NOISY.items():
        logging.getLogger(name).setLevel(max(number, floor))
    structlog.configure(
        processors=[
            structlog.stdlib.filter_by_level,
            *shared,
            structlog.stdlib.PositionalArgumentsFormatter(),
            structlog.stdlib.ProcessorFormatter.wrap_for_formatter,
        ],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.stdlib.BoundLogger,
        cache_logger_on_first_use=False,
    )


def report_end(line: str) -> None:
    """The line that ends a process: `Error: …` for a person; where the log is JSON an object of it, which no
    level leaves out."""
    if any(isinstance(handler, _JsonHandler) for handler in logging.getLogger().handlers):
        structlog.get_logger(__name__).critical(line)
    else:
        print(f"Error: {visible(line)}", file=sys.stderr, flush=True)
