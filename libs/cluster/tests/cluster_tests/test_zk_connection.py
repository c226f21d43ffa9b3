"""What kazoo waits for on its connection: that `ConnectionHandler.select` keeps the promises of select()."""

import socket
import time
from collections.abc import Iterator

import pytest

from waltz_cluster.zk_connection import ConnectionHandler

Pair = tuple[socket.socket, socket.socket]


@pytest.fixture
def handler() -> ConnectionHandler:
    return ConnectionHandler(None, 1.0)


@pytest.fixture
def pair() -> Iterator[Pair]:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        yield ours, theirs


def test_nothing_to_read_in_time(handler: ConnectionHandler, pair: Pair) -> None:
    began = time.monotonic()
    assert handler.select([pair[0]], [], [], 0.02) == ([], [], [])
    assert time.monotonic() - began >= 0.02


def test_what_is_readable_and_what_is_writable(handler: ConnectionHandler, pair: Pair) -> None:
    ours, theirs = pair
    assert handler.select([ours], [ours], [], 5) == ([], [ours], [])
    theirs.send(b"1")
    assert handler.select([ours, theirs], [], [], 5) == ([ours], [], [])
    assert handler.select([ours], [theirs], [], None) == ([ours], [theirs], [])


def test_a_full_buffer_is_not_writable(handler: ConnectionHandler, pair: Pair) -> None:
    ours, _ = pair
    ours.setblocking(False)
    with pytest.raises(BlockingIOError):
        while True:
            ours.send(bytes(65536))
    assert handler.select([], [ours], [], 0) == ([], [], [])


def test_the_end_of_the_other_side_is_readable(handler: ConnectionHandler, pair: Pair) -> None:
    pair[1].close()
    assert handler.select([pair[0]], [], [], 5) == ([pair[0]], [], [])


def test_a_socket_that_was_closed_meanwhile(handler: ConnectionHandler, pair: Pair) -> None:
    """kazoo takes a ValueError for the loss of the connection."""
    pair[0].close()
    with pytest.raises(ValueError, match="negative"):
        handler.select([pair[0]], [], [], 5)
