"""What to say of a name that nobody takes: whose key it is, or which one was probably meant.

Near is defined here for every file, option and column that a person writes.
"""

from collections.abc import Iterable
from difflib import SequenceMatcher

from waltz_cluster.config.role_keys import ROLE_KEYS

NEAR = 0.65
"""Two letters in the wrong order in a word of three are near; a word of its own is not."""


def nearest(name: str, known: Iterable[str]) -> str | None:
    """The one of the known names that is most like this one, if it is near."""
    likeness, best = max(((_likeness(name, one), one) for one in known), default=(0.0, ""))
    return best if likeness >= NEAR else None


def hint(key: str, known: Iterable[str]) -> str:
    """What follows the name of an unknown key: the roles that have it, or the nearest one of the known; else
    empty."""
    roles = [role for role, keys in ROLE_KEYS.items() if key in keys]
    if roles:
        return f"; it is a key of the {' and '.join(roles)} role{'s' if roles[1:] else ''}"
    near = nearest(key, known)
    return f"; did you mean {near}?" if near else ""


def _likeness(name: str, other: str) -> float:
    """1 for the same name in other capitals, 0 for nothing in common. The parts that both have at an end do
    not count: every key of a server begins alike."""
    mine, theirs = name.casefold().split("."), other.casefold().split(".")
    for end in (0, -1):
        while mine and theirs and mine[end] == theirs[end]:
            del mine[end], theirs[end]
    if not mine and not theirs:
        return 1.0
    return SequenceMatcher(None, ".".join(mine), ".".join(theirs), autojunk=False).ratio()
