"""Ports for the processes of tests. They stay reserved while the test process lives, so that no two processes
get the same one."""

import atexit
import random
from collections.abc import Iterable

from waltz_runtime.ports import PortReservations

_RESERVED = PortReservations()
atexit.register(_RESERVED.close)


def free_ports(count: int) -> list[int]:
    """Different ports of 127.0.0.1; nobody else is given them, here or in another process. Connecting is
    refused until a program listens."""
    return _RESERVED.pick(count, random.Random())


def free_port() -> int:
    """One of them."""
    return free_ports(1)[0]


def hold_ports(ports: Iterable[int]) -> None:
    """Reserve ports that a program has chosen itself and that it listens on no more: no other test is given
    them before it starts again. One that somebody listens on is left out."""
    for port in ports:
        _RESERVED.hold(port)
