"""Names of locks and their hashes: servers know hashes only, people know names. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from waltz_protocol.locks import LockId
from waltz_tools.errors import UsageError

MAX_NAMES = 1000


def hashes_of(name: str) -> tuple[int, ...]:
    """The hashes that the lock `NAME/KEY` may have: that of the text as its key, and that of the number, when
    the key is one. UsageError for what is not the name of a lock."""
    group, slash, key = name.partition("/")
    if not slash or not group or not key:
        raise UsageError(f"{name!r} is not the name of a lock: write NAME/KEY, such as account/alice")
    # An argument of the command line has bytes that are no UTF-8 as `os.fsdecode` leaves them.
    found = [LockId.of(group, key.encode(errors="surrogateescape")).hash]
    digits = key.removeprefix("-")
    if digits.isascii() and digits.isdigit() and -(1 << 63) <= int(key) < 1 << 63:
        found.append(LockId(group, int(key)).hash)
    return tuple(found)


def names_by_hash(names: Sequence[str]) -> dict[int, str]:
    """Hash -> the name that was given for it, the first one."""
    known: dict[int, str] = {}
    for name in names:
        for number in hashes_of(name):
            known.setdefault(number, name)
    return known


def hash_text(lock: int) -> str:
    """A hash as people read it."""
    return f"{lock & 0xFFFFFFFF:#010x}"


def lock_text(lock: int, known: Mapping[int, str]) -> str:
    """The name of a lock where it is known, its hash where not."""
    return f"{known[lock]} ({hash_text(lock)})" if lock in known else hash_text(lock)
