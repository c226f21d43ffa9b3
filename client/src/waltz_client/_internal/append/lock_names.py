"""Hashes of locks, and back to the names that this process has used."""

from __future__ import annotations

import functools

from waltz_protocol.locks import LockId

NAMES = 65_536
"""That are remembered; beyond it all are forgotten, and remembered again as they are used."""

_names: dict[int, LockId] = {}


@functools.lru_cache(maxsize=NAMES)
def hash_of(lock: LockId) -> int:
    """The hash that travels."""
    number = lock.hash
    if len(_names) >= NAMES:
        _names.clear()
        hash_of.cache_clear()  # who is known here takes no name down
    _names[number] = lock
    return number


def lock_of(number: int) -> LockId | None:
    """A lock with this hash that was used here; None when it is not remembered."""
    return _names.get(number)
