"""JSON text of a process's report, with the one rule about its numbers: they have 64 bits. Pure.

JSON and Python know larger ones, and NaN and infinity: arithmetic with them raises OverflowError or gives
what no page can show. No process of a cluster reports such a number, so a report that has one is refused as a
whole, before anything of it is used (`node_state`, `reports`).
"""

from __future__ import annotations

import json
from typing import Any

_LIMIT = 1 << 63
_LONGEST = 20
"""Characters of the longest whole number of 64 bits, with its sign."""


def read_json(text: str) -> Any:
    """The value of a report's text; ValueError or RecursionError when it is not JSON, and ValueError when it
    has a number that is beyond 64 bits or is not finite."""
    return json.loads(text, parse_int=whole, parse_float=_real, parse_constant=_refuse)


def whole(value: object) -> int:
    """A whole number, from its text too (names of members are text); ValueError when it is something else or
    is beyond 64 bits."""
    if isinstance(value, str):
        if len(value) > _LONGEST:
            raise ValueError(f"a number of {len(value)} digits is beyond 64 bits")
        value = int(value)
    if not isinstance(value, int):
        raise ValueError(f"{type(value).__name__} in place of a whole number")
    if not -_LIMIT <= value < _LIMIT:
        raise ValueError(f"the number {value} is beyond 64 bits")
    return value


def bounded(value: float | None) -> bool:
    """Whether a figure that was read elsewhere keeps to the rule; NaN does not."""
    return value is None or -_LIMIT <= value < _LIMIT


def _real(text: str) -> float:
    value = float(text)
    if not bounded(value):
        raise ValueError(f"the number {text[:_LONGEST]} is beyond 64 bits")
    return value


def _refuse(name: str) -> float:
    raise ValueError(f"{name} is not a number that a report may have")
