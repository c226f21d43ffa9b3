"""The session fence of a partition (storage protocol: session fence and permission rules), pure.

Invariants:

* It only rises. Any request of a connection that did a successful Open raises it on arrival, also one that is going
  to be refused; a stranger never does.
* Whether a request may run is decided when its turn comes, not on arrival.
* Making it durable before the reply is the job's duty (``jobs``), keeping it durable the sidecar's.

Owner: the loop raises it; the disk thread of the partition's job reads it.
"""

from __future__ import annotations


class Fence:
    """Highest session id seen for one partition."""

    __slots__ = ("session_id",)

    def __init__(self, session_id: int = -1) -> None:
        self.session_id = session_id

    def arrive(self, session_id: int) -> bool:
        """Note a request's session; True when it raised the fence."""
        if session_id <= self.session_id:
            return False
        self.session_id = session_id
        return True

    def refusal(
        self,
        session_id: int,
        *,
        offline: bool,
        available: bool,
        persisted_session_id: int,
        durable_session_id: int,
    ) -> str | None:
        """Why a request must not run now, or ``None``. ``offline`` is the flag of offline recovery.

        ``durable_session_id`` is the fence on the disk: it counts too, because a partition that was assigned a moment
        ago may get requests before the loop has taken its fence over.
        """
        if offline:
            if available:
                return "the partition is available: offline recovery needs it unavailable"
            if session_id != persisted_session_id:
                return f"session {session_id} is not the persisted session {persisted_session_id}"
            return None
        if not available:
            return "the partition is not available"
        current = max(self.session_id, durable_session_id)
        if session_id != current:
            return f"session {session_id} is fenced off: this node takes session {current} or later"
        return None
