"""Free ports of the loopback interface, kept for the life of a cluster directory.

Ports are picked *below* the range that the kernel takes for outgoing connections. Inside that range a node that is down
would lose its port sooner or later: some outgoing connection gets it, or a peer that keeps knocking at the closed port is
connected to itself.
"""

from __future__ import annotations

import random
import socket
from collections.abc import Collection
from pathlib import Path

from waltz_tools.errors import LocalClusterError

LOOPBACK = "127.0.0.1"
_LOWEST_PORT = 15_000
_RANGE_FILE = Path("/proc/sys/net/ipv4/ip_local_port_range")
_DEFAULT_EPHEMERAL_LOW = 32_768
_ATTEMPTS = 2_000


def is_free(port: int) -> bool:
    """True when a listener could be opened on 127.0.0.1:port now (connections in TIME_WAIT do not count)."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((LOOPBACK, port))
        except OSError:
            return False
    return True


def pick_free_port(taken: Collection[int], rng: random.Random) -> int:
    """A port that is free now and not in `taken`."""
    high = max(_ephemeral_low(), _LOWEST_PORT + 1_000)
    for _ in range(_ATTEMPTS):
        port = rng.randrange(_LOWEST_PORT, high)
        if port not in taken and is_free(port):
            return port
    raise LocalClusterError(f"no free port found between {_LOWEST_PORT} and {high} on {LOOPBACK}")


def _ephemeral_low() -> int:
    try:
        return int(_RANGE_FILE.read_text().split()[0])
    except (OSError, ValueError, IndexError):
        return _DEFAULT_EPHEMERAL_LOW
