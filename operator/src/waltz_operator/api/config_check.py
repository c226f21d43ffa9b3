"""Configuration keys that a person sets for a role: known, not the operator's own, with a possible value.

The keys are in `config_keys.py`, made from the settings classes of the services, which this package may
not import.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping

from waltz_operator.api.config_keys import KEYS, Key, Kind

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

_TRUTHS = frozenset({"true", "false", "yes", "no", "on", "off", "1", "0", "t", "f", "y", "n"})


def check_config(role: str, config: Mapping[str, object]) -> Iterable[tuple[str, str]]:
    """(key, what is wrong) of each key that cannot be taken. `role`: storage or server."""
    known = KEYS[role]
    for key, value in config.items():
        if any(key == own or key.startswith(f"{own}.") for own in OWN_KEYS[role]):
            yield key, "is set by the operator: it follows from other fields of the specification"
        elif key not in known:
            near = difflib.get_close_matches(key, known, n=1, cutoff=0.5)
            yield key, f"is not a key of this role{f'; did you mean {near[0]}?' if near else ''}"
        else:
            problem = _wrong(known[key], value)
            if problem:
                yield key, f"{value!r}: {problem}"


def _wrong(key: Key, value: object) -> str:
    if key.kind is Kind.TEXT:
        fits = not key.words or str(value) in key.words or str(value).upper() in key.words
        return "" if fits else f"must be one of {', '.join(key.words)}"
    if key.kind is Kind.BOOLEAN:
        return "" if isinstance(value, bool) or str(value).lower() in _TRUTHS else "must be true or false"
    try:
        number = float(str(value))
    except ValueError:
        number = None
    if number is None or isinstance(value, bool):
        return "must be a number"
    if key.kind is Kind.INTEGER and not number.is_integer():
        return "must be a whole number"
    if key.minimum is not None and (number < key.minimum or (key.above and number == key.minimum)):
        return f"must be {'greater than' if key.above else 'at least'} {key.minimum}"
    if key.maximum is not None and number > key.maximum:
        return f"must be at most {key.maximum}"
    return ""
