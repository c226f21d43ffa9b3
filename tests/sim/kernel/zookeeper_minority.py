"""A member of a ZooKeeper ensemble that is cut off from the majority and does not know it yet.

As with the real one: until it has missed its leader for some ticks (`SYNC_LIMIT_SECONDS`) it answers reads
from the tree as it was, and heartbeats, so that those connected to it take their sessions for alive. The
leader hears neither and ends the sessions by its own clock. Writes wait, and so does everything that a
session asks for behind a write of its own. In the end the member gives up its connections.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

from waltz_cluster.errors import StoreError

if TYPE_CHECKING:
    from tests.sim.kernel.zookeeper_session import SimSession

SYNC_LIMIT_SECONDS = 10.0
"""syncLimit times tickTime, as ZooKeeper ships them (5 times 2 s)."""


class Answer(NamedTuple):
    """What the server says to a request."""

    value: Any
    error: StoreError | None


HELD = Answer("held", None)
"""No answer yet (compared by identity)."""


class Held(NamedTuple):
    """A request that waits for the leader."""

    arrive: Callable[[], object]


class Minority:
    """What the member knows and whom it serves. Owner: the server."""

    def __init__(self, zxid: int, connections: dict[int, tuple[SimSession, int]]) -> None:
        self.zxid = zxid
        """The last change it has heard of."""
        self.connections = connections
        """Session -> its store and the number of its connection."""
        self.held: list[Held] = []
        self._waiting: set[int] = set()

    def serves(self, session_id: int, connection: int) -> bool:
        """The request came to this member."""
        found = self.connections.get(session_id)
        return found is not None and found[1] == connection

    def can_answer(self, session_id: int, reads: bool) -> bool:
        """Without its leader: a read that waits for no write of the same session."""
        return reads and session_id not in self._waiting

    def hold(self, session_id: int, held: Held) -> None:
        """Keep a request."""
        self._waiting.add(session_id)
        self.held.append(held)
