"""Peers that do not read, and peers that are not there any more, on real sockets."""

import asyncio
import ctypes
import socket
import struct
from typing import Any

import pytest
import uvloop

from protocol_tests.peers import HOST, Recorder, listening, settings
from protocol_tests.vectors import CLIENT_HELLO
from waltz_protocol.aio.channel import Channel
from waltz_protocol.aio.peer_watch import CHECKS, PeerWatch
from waltz_protocol.codec import CLIENT
from waltz_protocol.frame import frame

pytestmark = pytest.mark.skipif(not hasattr(socket, "TCP_INFO"), reason="needs TCP_INFO")

_SO_ATTACH_FILTER = 26
_BODY = b"x" * 60_000


def unplug(sock: Any) -> None:
    """From now on the kernel drops what arrives for this socket (a socket filter that accepts nothing): no
    acknowledgement and no reset, as if the machine had lost its power."""
    accept_nothing = ctypes.create_string_buffer(struct.pack("=HBBI", 6, 0, 0, 0))
    program = struct.pack("@HP", 1, ctypes.addressof(accept_nothing))
    sock.setsockopt(socket.SOL_SOCKET, _SO_ATTACH_FILTER, program)


async def peer_that_does_not_read(port: int, server: Recorder) -> tuple[socket.socket, Channel]:
    loop = asyncio.get_running_loop()
    peer = socket.socket()
    peer.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 32 * 1024)
    peer.setblocking(False)
    await loop.sock_connect(peer, (HOST, port))
    await loop.sock_sendall(peer, CLIENT_HELLO)
    await server.until(lambda: server.channel is not None)
    assert server.channel is not None
    return peer, server.channel


def send(channel: Channel, count: int) -> None:
    for _ in range(count):
        channel.send(frame(CLIENT.magic, channel.version, _BODY))


async def test_a_peer_that_does_not_read_for_long_is_kept_and_gets_everything() -> None:
    """Before, it was cut after the user timeout, although its kernel answered every probe."""
    server = Recorder()
    quick = settings(tcp_user_timeout_ms=1000, peers_may_pause=True)
    async with listening(lambda: server, quick) as listener:
        peer, channel = await peer_that_does_not_read(listener.port, server)
        with peer:
            send(channel, 200)
            await asyncio.sleep(4.0)  # four times the limit
            assert server.reasons == []
            assert channel.pending_bytes > 0
            got, loop = 0, asyncio.get_running_loop()
            async with asyncio.timeout(20):
                while got < 200 * len(_BODY):
                    got += len(await loop.sock_recv(peer, 1 << 20))
            assert server.reasons == []


@pytest.mark.parametrize("when", ["idle", "segments on their way", "closed window"])
async def test_a_peer_that_vanishes_is_found(when: str) -> None:
    server = Recorder()
    quick = settings(tcp_user_timeout_ms=600, peers_may_pause=True)
    async with listening(lambda: server, quick) as listener:
        peer, channel = await peer_that_does_not_read(listener.port, server)
        with peer:
            if when == "closed window":
                send(channel, 200)
                await asyncio.sleep(0.3)
            unplug(peer)
            if when == "segments on their way":
                send(channel, 1)
            await server.until(lambda: bool(server.reasons), 20.0)
        assert "acknowledged nothing" in server.reasons[0] or when == "idle"


async def test_a_peer_that_never_reads_is_cut_in_the_end() -> None:
    """Its kernel would acknowledge probes forever."""
    server = Recorder()
    # the other reason needs looks that find the last acknowledgement 3 s old
    quick = settings(tcp_user_timeout_ms=3000, peers_may_pause=True, not_reading_seconds=1.0)
    async with listening(lambda: server, quick) as listener:
        peer, channel = await peer_that_does_not_read(listener.port, server)
        with peer:
            send(channel, 200)
            await server.until(lambda: bool(server.reasons), 20.0)
        assert server.reasons == ["the peer read too little for 1 s"]


class _Figures:
    """A socket of which only TCP_INFO is asked."""

    def __init__(self) -> None:
        self.probes = self.unacknowledged = self.last_ack_ms = 0

    def getsockopt(self, _level: int, _option: int, _size: int) -> bytes:
        words = [0] * 13
        words[4], words[12] = self.unacknowledged, self.last_ack_ms
        return struct.pack("=3xB4x13I", self.probes, *words)


def test_one_probe_that_is_not_answered_yet_is_no_reason() -> None:
    """Probes of a closed window are up to two minutes apart: the last acknowledgement is old, and all is
    well."""
    sock = _Figures()
    watch = PeerWatch(sock, 30_000, 900.0, 0.0)
    sock.last_ack_ms = 100_000
    for turn in range(20):
        sock.probes = int(turn % CHECKS != 0)
        assert watch.check(watch.due_at, writable=True) is None
    sock.probes = 2
    reasons = [watch.check(watch.due_at, writable=True) for _ in range(CHECKS)]
    assert reasons[-1] == "the peer acknowledged nothing for 30 s"


def test_a_socket_that_the_loop_has_closed_is_no_reason_and_no_error() -> None:
    """Between a transport's end and the channel's, its timer may be due."""

    async def scenario() -> None:
        loop = asyncio.get_running_loop()
        server = await loop.create_server(asyncio.Protocol, HOST, 0)
        port = server.sockets[0].getsockname()[1]
        try:
            transport, _ = await loop.create_connection(asyncio.Protocol, HOST, port)
            sock = transport.get_extra_info("socket")
            watch = PeerWatch(sock, 30_000, 900.0, 0.0)
            transport.abort()
            while sock.fileno() != -1:
                await asyncio.sleep(0)
            assert watch.check(watch.due_at, writable=True) is None
        finally:
            server.close()

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(scenario())
