"""Text for a terminal, a log or any other place where a person reads lines.

What came from the log, a peer, ZooKeeper or a file may hold anything: an escape sequence rewrites the screen
of whoever reads it, a line break forges a line, a change of direction shows another text than is there. JSON
and raw bytes are for programs and are not changed.
"""

from __future__ import annotations

import logging
from types import TracebackType
from typing import TypeAlias

_ExcInfo: TypeAlias = (
    tuple[type[BaseException], BaseException, TracebackType | None] | tuple[None, None, None]
)


def visible(text: str) -> str:
    """One line: what a terminal does not print as a character is written as in Python's `repr`, such as
    `\\x1b` and `\\n`. Backslashes stay as they are."""
    if text.isprintable():
        return text
    return "".join(one if one.isprintable() else repr(one)[1:-1] for one in text)


def visible_lines(text: str) -> str:
    """The same of a text of several lines, such as a stack trace, whose line breaks stay."""
    return "\n".join(map(visible, text.split("\n")))


class VisibleFormatter(logging.Formatter):
    """One visible line per message, and the stack trace below it."""

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802
        return visible(super().formatMessage(record))

    def formatException(self, ei: _ExcInfo) -> str:  # noqa: N802
        return visible_lines(super().formatException(ei))
