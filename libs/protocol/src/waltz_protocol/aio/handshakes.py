"""Connections that have not said who they are yet: how many there may be, and which one goes when there are
too many.

A peer is in its handshake from the moment it is accepted until the Hellos are exchanged, TLS included. When
there are too many, the one that has been at it longest gives way, of the address that has most of them:
honest peers need milliseconds, so whoever opens connections and says nothing displaces himself.
"""

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(slots=True, eq=False)
class Handshake:
    """One peer on its way in. `cut` ends the connection with a reason."""

    peer: str
    cut: Callable[[str], None]

    @property
    def address(self) -> str:
        """The peer without its port."""
        return self.peer.rpartition(":")[0]


class Handshakes:
    """The handshakes in progress of one listener, oldest first per address."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self._by_address: dict[str, dict[Handshake, None]] = {}
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def add(self, handshake: Handshake) -> None:
        """One more; the caller looks at `limit` first (see `victim`)."""
        self._by_address.setdefault(handshake.address, {})[handshake] = None
        self._count += 1

    def discard(self, handshake: Handshake) -> None:
        """It is done, or over. Harmless when it is not there."""
        of_address = self._by_address.get(handshake.address, {})
        if handshake in of_address:
            del of_address[handshake]
            self._count -= 1
            if not of_address:
                del self._by_address[handshake.address]

    def victim(self) -> Handshake | None:
        """Whoever gives way next; None when there are no handshakes."""
        most = max(self._by_address.values(), key=len, default=None)
        return next(iter(most)) if most else None

    def all(self) -> list[Handshake]:
        """All of them."""
        return [handshake for of_address in self._by_address.values() for handshake in of_address]
