"""How a storage node says that a session is fenced off, and how a server reads it. Pure.

The protocol has no field for it: a failure is a text. Nodes of ours name the session that they take; nodes of
release 0.13.2 name a class of exception and nothing else, so of their fence it is known only that it is
higher than what was asked with.
"""

import re

_OURS = re.compile(r"this node takes session (\d+) or later")
_THEIRS = "ConcurrentUpdateException"


def fenced_off(session_id: int, current: int) -> str:
    """The refusal of a node of ours whose fence is at `current`."""
    return f"session {session_id} is fenced off: this node takes session {current} or later"


def named_fence(refusal: str) -> int | None:
    """The session that a node of ours says it takes; None: another refusal, or one of 0.13.2."""
    found = _OURS.search(refusal)
    return None if found is None else int(found[1])


def fence_in(refusal: str, session_id: int) -> int | None:
    """Where the fence is, at least, of the node that refused `session_id` with this text; None: another
    refusal."""
    if _THEIRS in refusal:
        return session_id + 1
    return named_fence(refusal)
