"""Configuration keys that a person sets for a role: known, not the operator's own, with a possible value.

The keys are in `config_keys.py`, made from the settings classes of the services, which this package may
not import.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping

from waltz_cluster.config.unknown_keys import hint
from waltz_operator.api.config_keys import KEYS, Key, Kind
from waltz_protocol.types import can_be_host

OWN_KEYS: Mapping[str, tuple[str, ...]] = {
    "storage": (
        "zookeeper.connectString",
        "zookeeper.sessionTimeout",
        "zookeeper.auth",
        "zookeeper.acl",
        "zookeeper.ssl",
        "cluster.root",
        "storage.port",
        "storage.admin",
        "storage.jetty.port",
        "storage.directory",
        "storage.ssl",
    ),
    "server": (
        "zookeeper.connectString",
        "zookeeper.sessionTimeout",
        "zookeeper.auth",
        "zookeeper.acl",
        "zookeeper.ssl",
        "cluster.root",
        "server.port",
        "server.jetty.port",
        "server.advertised",
        "server.ssl",
        "storage.ssl",
    ),
}
"""Keys, and everything below them, that follow from other fields of the specification."""

MAX_NUMBER = 2**63 - 1
DEFAULT_MIN_FETCH_SIZE = 100
DEFAULT_REALTIME_THRESHOLD = 1000
"""Of the servers."""
_INTEGER = re.compile(r"\s*[-+]?[0-9]+(_[0-9]+)*(\.0+)?\s*")
"""The texts that a role takes as whole numbers; not 1e3."""
_TRUTHS = frozenset({"true", "false", "yes", "no", "on", "off", "1", "0", "t", "f", "y", "n"})


def check_config(role: str, config: Mapping[str, object]) -> Iterable[tuple[str, str]]:
    """(key, what is wrong) of each key that cannot be taken. `role`: storage or server."""
    known = KEYS[role]
    for key, value in config.items():
        if any(key == own or key.startswith(f"{own}.") for own in OWN_KEYS[role]):
            yield key, "is set by the operator: it follows from other fields of the specification"
        elif key not in known:
            yield key, f"is not a key of this role{hint(key, known)}"
        else:
            problem = _wrong(known[key], value)
            if problem:
                yield key, f"{value!r}: {problem}"
    yield from _wrong_together(role, config)


def _wrong(key: Key, value: object) -> str:
    match key.kind:
        case Kind.ANY:
            return ""
        case Kind.TEXT:
            return _wrong_text(key, value)
        case Kind.BOOLEAN:
            fits = isinstance(value, bool) or str(value).lower() in _TRUTHS
            return "" if fits else "must be true or false"
    number = _number(value)
    if number is None:
        return "must be a number"
    if key.kind is Kind.INTEGER and not _is_whole(value, number):
        return "must be a whole number"
    if key.minimum is not None and (number < key.minimum or (key.above and number == key.minimum)):
        return f"must be {'greater than' if key.above else 'at least'} {key.minimum}"
    maximum = key.maximum if key.maximum is not None else MAX_NUMBER
    return f"must be at most {maximum}" if number > maximum else ""


def _wrong_text(key: Key, value: object) -> str:
    if not isinstance(value, str):
        return f"must be a text; write it in quotes: {str(value).lower()!r}"
    if key.words and value not in key.words and value.upper() not in key.words:
        return f"must be one of {', '.join(key.words)}"
    if key.host and value and not can_be_host(value):
        return "must be a host name or an address"
    return "must not be empty" if key.minimum and not value else ""


def _number(value: object) -> float | int | None:
    """None for what no role takes as a number: a role does not take every text that Python does."""
    if isinstance(value, bool) or not (isinstance(value, int | float | str) and str(value).isascii()):
        return None
    try:
        number = int(value) if isinstance(value, int) else float(value)
    except ValueError:
        return None
    return number if isinstance(number, int) or math.isfinite(number) else None


def _is_whole(value: object, number: float) -> bool:
    return _INTEGER.fullmatch(value) is not None if isinstance(value, str) else number == int(number)


def _wrong_together(role: str, config: Mapping[str, object]) -> Iterable[tuple[str, str]]:
    """Keys that the role takes one by one, and not together."""
    if role != "server":
        return
    fetch, threshold = "server.minFetchSize", "server.realtimeThreshold"
    least = _number(config.get(fetch, DEFAULT_MIN_FETCH_SIZE))
    most = _number(config.get(threshold, DEFAULT_REALTIME_THRESHOLD))
    if least is not None and most is not None and least >= most:
        yield (
            (fetch if fetch in config else threshold),
            f"{fetch} ({least}) must be less than {threshold} ({most})",
        )
