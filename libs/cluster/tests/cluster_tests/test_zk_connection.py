"""What kazoo waits for on its connection: that `ConnectionHandler.select` keeps the promises of select()."""

import select
import socket
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from waltz_cluster.zk_connection import ConnectionHandler
from waltz_protocol.aio.tls import TlsSettings, client_context, server_context

Pair = tuple[socket.socket, socket.socket]


@pytest.fixture
def handler() -> ConnectionHandler:
    return ConnectionHandler(None, 1.0, 1.0)


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


def test_a_time_that_is_over_already_is_none(handler: ConnectionHandler, pair: Pair) -> None:
    """poll() takes a negative time for one without end."""
    assert handler.select([pair[0]], [], [], -1) == ([], [], [])


def test_what_tls_has_decrypted_already_is_readable(handler: ConnectionHandler, pair: Pair) -> None:
    """Two answers in one record: after the first one the socket of the system has nothing left."""
    here = client_context(TlsSettings(allow_unverified=True))
    there = server_context(TlsSettings())
    assert here is not None
    assert there is not None
    with ThreadPoolExecutor(1) as other:
        accepted = other.submit(there.wrap_socket, pair[1], server_side=True)
        with here.wrap_socket(pair[0], server_hostname="localhost") as ours, accepted.result() as theirs:
            theirs.sendall(b"12")
            while ours.recv(1) != b"1":
                pass
            assert select.select([ours], [], [], 0) == ([], [], [])
            assert handler.select([ours], [], [], 5) == ([ours], [], [])
            assert ours.recv(1) == b"2"
            assert handler.select([ours], [], [], 0) == ([], [], [])


def test_a_socket_that_was_closed_meanwhile(handler: ConnectionHandler, pair: Pair) -> None:
    """kazoo takes a ValueError for the loss of the connection."""
    pair[0].close()
    with pytest.raises(ValueError, match="negative"):
        handler.select([pair[0]], [], [], 5)


def test_who_wakes_the_thread_never_waits_for_it(handler: ConnectionHandler) -> None:
    """It may be connecting. A socket takes 278 bytes, and for the next one the event loop waited."""
    reads, writes = handler.create_socket_pair()
    try:
        sending = threading.Thread(target=lambda: [writes.send(b"\0") for _ in range(1000)], daemon=True)
        sending.start()
        sending.join(5.0)
        assert not sending.is_alive()
        for _ in range(1000):
            assert handler.select([reads], [], [], 0) == ([reads], [], [])
            assert reads.recv(1) == b"\0"
        assert handler.select([reads], [], [], 0) == ([], [], [])
    finally:
        for each in (writes, reads):
            each.close()
    with pytest.raises(OSError):
        writes.send(b"\0")
