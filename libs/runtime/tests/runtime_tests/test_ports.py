"""Reserved ports: nobody else gets them, and the program they are meant for does."""

import asyncio
import random
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from waltz_runtime.errors import NoFreePortError
from waltz_runtime.ports import LOOPBACK, PortReservations

_PICK = (
    "import random; from waltz_runtime.ports import *; print(*PortReservations().pick(27, random.Random(1)))"
)


@pytest.fixture
def reserved() -> Iterator[PortReservations]:
    made = PortReservations()
    yield made
    made.close()


def test_the_same_choice_by_two_at_once_gives_different_ports(reserved: PortReservations) -> None:
    """Here, and in another process."""
    mine = reserved.pick(27, random.Random(1))
    more = reserved.pick(27, random.Random(1))
    other = PortReservations()
    others = other.pick(27, random.Random(1))
    other.close()
    done = subprocess.run([sys.executable, "-c", _PICK], capture_output=True, text=True, check=True)
    elsewhere = [int(port) for port in done.stdout.split()]
    assert len({*mine, *more, *others}) == 81
    assert len({*mine, *more, *elsewhere}) == 81


def test_ports_are_outside_the_range_of_outgoing_connections(reserved: PortReservations) -> None:
    low = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    assert max(reserved.pick(100, random.Random())) < low


async def test_the_program_listens_goes_and_comes_back(reserved: PortReservations) -> None:
    (port,) = reserved.pick(1, random.Random())
    for _ in range(3):
        with pytest.raises(ConnectionRefusedError):
            await asyncio.open_connection(LOOPBACK, port)
        server = await asyncio.start_server(lambda _, writer: writer.close(), LOOPBACK, port)
        async with server:
            reader, writer = await asyncio.open_connection(LOOPBACK, port)
            assert await reader.read() == b""
            writer.close()
        with pytest.raises(OSError, match="in use"), socket.socket() as somebody:
            somebody.bind((LOOPBACK, port))


def test_a_known_port_is_held_unless_somebody_listens(reserved: PortReservations) -> None:
    (port,) = reserved.pick(1, random.Random())
    assert reserved.hold(port)
    reserved.close()
    with socket.create_server((LOOPBACK, port)):
        assert not reserved.hold(port)
    assert reserved.hold(port)


def test_only_so_many_are_held() -> None:
    few = PortReservations(most=3)
    ports = few.pick(5, random.Random())
    with socket.socket() as oldest:
        oldest.bind((LOOPBACK, ports[0]))
    with pytest.raises(OSError, match="in use"), socket.socket() as newest:
        newest.bind((LOOPBACK, ports[4]))
    few.close()


def test_no_port_left_is_one_clear_line(reserved: PortReservations, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reserved, "_bind", lambda port, *, alone: False)
    with pytest.raises(
        NoFreePortError, match=r"^no 2 free ports found between 15000 and \d+ on 127\.0\.0\.1$"
    ):
        reserved.pick(2, random.Random())
