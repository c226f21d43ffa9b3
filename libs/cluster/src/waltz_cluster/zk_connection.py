"""kazoo's connections, made by us: with the TLS of every other connection of ours (`zookeeper.ssl.*`), and
with the reason kept why the last one failed.

kazoo's own TLS trusts the machine's authorities beside the given one, does not compare host names and reads
PEM only. And it waits for one server as long as the session lasts, so that one which swallows what it is
sent (a machine that is gone, a frozen process, the address of a pod that has another one now) costs the
session although others serve, or the same name leads to one that does: kazoo resolves the names anew before
each attempt.
"""

import math
import os
import select
import socket
import ssl
import sys
import threading
import time
from typing import Any

from kazoo.handlers.threading import SequentialThreadingHandler

from waltz_protocol.aio.connector import connect_problem
from waltz_protocol.aio.tls import ClientTls

_MAX_DOUBLINGS = 8
_TCP_SECONDS = 1.5
"""For the kernel of a server to answer, however slow its process is: a lost packet is sent again after a
second. A pod that is made anew has another address, and packets to the old one are lost without a word: a
server that waited a whole session for it had to give up its partitions, although ZooKeeper served again."""


class ConnectionHandler(SequentialThreadingHandler):  # type: ignore[misc]
    """Threads and sockets of one kazoo client. `tls` None: plaintext. `attempt_seconds`: for one server, TCP
    and TLS together. `first_seconds`: for the first TLS handshake; it grows (`grown`)."""

    def __init__(self, tls: ClientTls | None, attempt_seconds: float, first_seconds: float) -> None:
        super().__init__()
        self._tls = tls
        self._attempt_seconds = attempt_seconds
        self._first_seconds = first_seconds
        self._unanswered = 0
        self.problem: str | None = None
        """Why the last connection could not be made; None when it could."""
        self.credentials_refused = False
        """By the last server that was asked for a session."""
        self._gave_up = False
        self._abandoned = False
        self._connection: socket.socket | None = None

    def grown(self, first_seconds: float) -> float:
        """How long to wait for an answer: twice as long after each one that did not come, until there is a
        session. A server that is slow gets its time, also beside one that refuses or ends each connection."""
        return first_seconds * 2.0 ** min(self._unanswered, _MAX_DOUBLINGS)

    def unanswered(self) -> None:
        """An answer did not come in time."""
        self._unanswered += 1

    def session_given(self) -> None:
        """There is a session: later attempts begin with a short wait again."""
        self._unanswered = 0
        self.credentials_refused = self._gave_up = False

    def refuses_credentials(self, over: bool) -> bool:
        """A server does, after it gave the session. `over`: nobody has taken them for as long as a session
        lasts; returns whether to give this one up: once, and no other one before they are taken."""
        self.credentials_refused = True
        gives_up = over and not self._gave_up
        self._gave_up = self._gave_up or over
        return gives_up

    def abandon(self) -> None:
        """Nobody waits for this client any longer: its connection is cut, and it gets no other one."""
        self._abandoned = True
        self.cut()

    def cut(self) -> None:
        """End the present connection; kazoo makes another one."""
        connection = self._connection
        if connection is not None:
            try:
                socket.socket.shutdown(connection, socket.SHUT_RDWR)  # not TLS's: its thread is inside it
            except OSError:
                pass  # it has ended on its own

    def create_connection(
        self, address: tuple[str, int], hostname: str | None = None, timeout: float | None = None, **_: object
    ) -> socket.socket:
        """Connect, and do TLS for `hostname`; OSError. Called by kazoo's connection thread."""
        most = min(self._attempt_seconds, timeout or self._attempt_seconds)
        deadline = time.monotonic() + most
        limit = min(_TCP_SECONDS, most)
        try:
            connection = socket.create_connection(address, limit)
            try:
                connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
                self._connection = connection
                if self._tls is not None:
                    limit = min(self.grown(self._first_seconds), max(deadline - time.monotonic(), 0.001))
                    connection.settimeout(limit)
                    connection = self._connection = self._encrypted(self._tls, connection, hostname)
                if self._abandoned:
                    raise ConnectionAbortedError("nobody waits for it any longer")
            except BaseException:
                connection.close()
                raise
        except OSError as error:
            self.problem = connect_problem(error, round(limit, 1) or limit)
            raise
        self.problem = None
        return connection

    def _encrypted(self, tls: ClientTls, connection: socket.socket, hostname: str | None) -> socket.socket:
        try:
            return tls.wrap_socket(connection, server_hostname=hostname)
        except TimeoutError:
            self.unanswered()
            raise

    def session_refused(self) -> None:
        """No session was given on a connection. Of one that was made it is all that is known."""
        if self.problem is None:
            other = (
                "does it expect TLS (zookeeper.ssl.enabled)?"
                if self._tls is None
                else "does it accept our certificate?"
            )
            self.problem = f"it ended the connection; {other}"

    def create_socket_pair(self) -> tuple[Any, Any]:
        """What wakes kazoo's thread, to read and to write: one byte for each request."""
        if sys.platform != "linux":
            return super().create_socket_pair()  # type: ignore[no-any-return]
        wakes = _Wakes()
        return wakes, wakes

    def select(
        self, rlist: list[Any], wlist: list[Any], xlist: list[Any], timeout: float | None = None
    ) -> tuple[list[Any], list[Any], list[Any]]:
        """As the system's, but that what TLS has decrypted already counts as readable: an answer that came in
        one record with the one before would wait for the next. Nothing is ever exceptional.

        kazoo makes a selector for each call, which is five system calls where one does.
        """
        held = [each for each in rlist if isinstance(each, ssl.SSLSocket) and each.pending()]
        poll = select.poll()
        for each in {*rlist, *wlist}:
            reads, writes = each in rlist, each in wlist
            poll.register(each, (select.POLLIN if reads else 0) | (select.POLLOUT if writes else 0))
        milliseconds = 0 if held else None if timeout is None else max(0, math.ceil(timeout * 1000))
        ready = dict(poll.poll(milliseconds))  # errors and the other end's end among them, asked for or not

        def is_ready(each: Any, other: int) -> bool:
            return bool(ready.get(each.fileno(), 0) & ~other)

        return (
            [each for each in rlist if each in held or is_ready(each, select.POLLOUT)],
            [each for each in wlist if is_ready(each, select.POLLIN)],
            [],
        )


class _Wakes:
    """Both ends of kazoo's pair of sockets, as a counter of the kernel.

    A socket takes 278 bytes that nobody reads; for the next one the sender waits. That is our event loop, and
    a thread that is connecting reads none until there is a connection again.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._open = False
        self._descriptor = os.eventfd(0, os.EFD_SEMAPHORE | os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._open = True

    def fileno(self) -> int:
        """-1 when it is closed, as of a socket."""
        return self._descriptor if self._open else -1

    def send(self, data: bytes) -> int:
        """OSError when it is closed, as of a socket."""
        with self._lock:
            if not self._open:
                raise BrokenPipeError("kazoo's thread has ended")
            os.eventfd_write(self._descriptor, len(data))
        return len(data)

    def recv(self, size: int) -> bytes:
        """One byte; BlockingIOError when there is none."""
        os.eventfd_read(self._descriptor)
        return b"\0"

    def close(self) -> None:
        """Idempotent."""
        with self._lock:
            if self._open:
                self._open = False
                os.close(self._descriptor)

    def __del__(self) -> None:
        self.close()  # kazoo does not, after an end that it waited for in vain
