"""Logging: structlog to standard error, one line per event, text for people or JSON for collectors.

Lines of the standard `logging` module (aiohttp, kazoo, asyncio) go through the same renderer.
"""

from __future__ import annotations

import logging
import sys
from typing import TextIO

import structlog
from structlog.typing import Processor

from waltz_runtime.errors import LogLevelError

_NOISY = {"kazoo.client": logging.WARNING, "asyncio": logging.WARNING, "aiohttp.access": logging.WARNING}


class _JsonHandler(logging.StreamHandler[TextIO]):
    """Writes one JSON object per line."""


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
    renderer: Processor
    if json:
        shared.append(structlog.processors.format_exc_info)
        renderer = structlog.processors.JSONRenderer()
    else:
        renderer = structlog.dev.ConsoleRenderer(
            colors=sys.stderr.isatty(), exception_formatter=structlog.dev.plain_traceback
        )
    handler = _JsonHandler(sys.stderr) if json else logging.StreamHandler(sys.stderr)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=shared,
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, renderer],
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
        print(f"Error: {line}", file=sys.stderr, flush=True)
