"""Payloads of the workloads: `uid|workload|json`.

The uid is given out by the observer and never twice, so that an append is recognized in the log without
trusting request ids. Applied values can be checked from the payload alone.
"""

from __future__ import annotations

import json
from typing import Any, NamedTuple

_LONG_EVERY = 9
_LONGEST_BYTES = 1200

Body = dict[str, Any]


class Payload(NamedTuple):
    """A payload taken apart."""

    uid: int
    workload: str
    body: Body


def encode(uid: int, workload: str, body: Body) -> bytes:
    """The bytes to append. Some are long (blanks at the end), so that records cross sectors and segments."""
    text = f"{uid}|{workload}|{json.dumps(body, separators=(',', ':'), sort_keys=True)}"
    size_bytes = uid * 37 % _LONGEST_BYTES if uid % _LONG_EVERY == 0 else 0
    return text.encode().ljust(size_bytes)


def decode(data: bytes) -> Payload | None:
    """None when the bytes are not a payload of ours (damaged, or written by somebody else)."""
    try:
        uid, workload, body = data.split(b"|", 2)
        value = json.loads(body)
        if not isinstance(value, dict):
            return None
        return Payload(int(uid), workload.decode(), value)
    except ValueError:
        return None


def uid_of(data: bytes) -> int | None:
    """The uid without taking the rest apart; None when there is none."""
    head, bar, _ = data.partition(b"|")
    return int(head) if bar and head.isdigit() else None
