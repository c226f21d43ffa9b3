"""The session fence of a partition (docs/protocol.md, servers and storage nodes), pure.

Invariants:

* It only rises, and never out of reach (`SESSION_REACH`). Any request of a connection that did a successful
  Open raises it on arrival, also one that is going to be refused; a stranger never does.
* Whether a request may run is decided when its turn comes, not on arrival.
* Making it durable before the reply is the job's duty (`jobs`), keeping it durable the sidecar's.

Owner: the loop raises it; the disk thread of the partition's job reads it.
"""

from __future__ import annotations

from waltz_protocol.fence_refusal import fenced_off

SESSION_REACH = 1 << 32
"""So far above the last session that a copy completed a session may be numbered. A copy that completed none
(-1) takes any number that a cluster can come to: one session per second for 136 years. A number beyond is a
mistake or an attack: it would raise the fence, durably, to where no real session comes. And since only a
completed session moves the bound, repeating it does not creep."""


def out_of_reach(session_id: int, persisted_session_id: int) -> bool:
    """Whether a session is numbered too far above the last one that the copy completed."""
    return session_id > persisted_session_id + SESSION_REACH


class Fence:
    """Highest session id seen for one partition."""

    __slots__ = ("session_id",)

    def __init__(self, session_id: int = -1) -> None:
        self.session_id = session_id

    def arrive(self, session_id: int, persisted_session_id: int) -> bool:
        """Note a request's session; True when it raised the fence."""
        if session_id <= self.session_id or out_of_reach(session_id, persisted_session_id):
            return False
        self.session_id = session_id
        return True

    def restore(self, session_id: int) -> None:
        """What the disk says, whatever it is, when a partition is opened."""
        self.session_id = max(self.session_id, session_id)

    def refusal(
        self,
        session_id: int,
        *,
        offline: bool,
        available: bool,
        persisted_session_id: int,
        durable_session_id: int,
    ) -> str | None:
        """Why a request must not run now, or `None`. `offline` is the flag of offline recovery.

        `durable_session_id` is the fence on the disk: it counts too, because a partition that was assigned
        a moment ago may get requests before the loop has taken its fence over.
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
        if session_id > current and out_of_reach(session_id, persisted_session_id):
            return (
                f"session {session_id} is refused: it is more than {SESSION_REACH} above the last session "
                f"{persisted_session_id} of this copy"
            )
        if session_id != current:
            return fenced_off(session_id, current)
        return None
