"""Ports for the processes of tests. They stay reserved while the test process lives, so that no two processes
get the same one."""

import atexit
import random

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
