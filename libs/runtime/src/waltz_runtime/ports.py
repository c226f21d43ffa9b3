"""Free ports of the loopback interface, reserved: from the choice on, nobody else gets them.

A reservation is a socket that is bound and does not listen. The program that the port is meant for binds it
all the same (listeners set SO_REUSEADDR, and so does the reservation); whoever looks for a free port finds it
taken, in any process; and the kernel gives it to no outgoing connection, also while the program is down.
Connecting to it is refused until somebody listens.

Ports are picked *below* the range that the kernel takes for outgoing connections: one that is given up again,
or remembered from an earlier run, is lost to an outgoing connection otherwise, or a peer that keeps knocking
at it is connected to itself.
"""

from __future__ import annotations

import random
import socket
from pathlib import Path

from waltz_runtime.errors import NoFreePortError

LOOPBACK = "127.0.0.1"
_LOWEST_PORT = 15_000
_RANGE_FILE = Path("/proc/sys/net/ipv4/ip_local_port_range")
_DEFAULT_EPHEMERAL_LOW = 32_768
_ATTEMPTS = 2_000


class PortReservations:
    """Ports of 127.0.0.1 that are held until `close`, or until `most` newer ones are. Owner: who made
    it."""

    def __init__(self, most: int = 256) -> None:
        """`most`: open sockets at a time."""
        self._most = most
        self._held: dict[int, socket.socket] = {}

    def pick(self, count: int, rng: random.Random) -> list[int]:
        """Different ports that nobody uses or has reserved."""
        high = max(_ephemeral_low(), _LOWEST_PORT + 1_000)
        picked: list[int] = []
        for _ in range(_ATTEMPTS + count):
            if len(picked) == count:
                return picked
            port = rng.randrange(_LOWEST_PORT, high)
            if self._bind(port, alone=True):
                picked.append(port)
        raise NoFreePortError(f"no {count} free ports found between {_LOWEST_PORT} and {high} on {LOOPBACK}")

    def hold(self, port: int) -> bool:
        """Reserve a port that is known from before; False when somebody listens on it (connections in
        TIME_WAIT do not count)."""
        return port in self._held or self._bind(port, alone=False)

    def close(self) -> None:
        """Give all of them up. Idempotent."""
        for one in self._held.values():
            one.close()
        self._held.clear()

    def _bind(self, port: int, *, alone: bool) -> bool:
        one = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        try:
            one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, not alone)
            one.bind((LOOPBACK, port))
            one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, True)
        except OSError:
            one.close()
            return False
        self._held[port] = one
        while len(self._held) > self._most:
            self._held.pop(next(iter(self._held))).close()
        return True


def is_free(port: int) -> bool:
    """True when nobody listens on 127.0.0.1:port (connections in TIME_WAIT do not count, reservations
    neither)."""
    probe = PortReservations()
    try:
        return probe.hold(port)
    finally:
        probe.close()


def _ephemeral_low() -> int:
    try:
        return int(_RANGE_FILE.read_text().split()[0])
    except (OSError, ValueError, IndexError):
        return _DEFAULT_EPHEMERAL_LOW
