"""Channels: Hello, frames, limits, timers, back pressure and every way to end."""

import asyncio
import logging
import socket
import time

import pytest

from protocol_tests.peers import (
    HOST,
    VERSIONS,
    Recorder,
    connected,
    listening,
    raw_peer,
    raw_server,
    settings,
)
from protocol_tests.vectors import CLIENT_HELLO
from waltz_protocol.aio import channel as channel_module
from waltz_protocol.aio.channel import Channel
from waltz_protocol.aio.connector import connect
from waltz_protocol.codec import CLIENT
from waltz_protocol.errors import ChannelClosedError, ConnectError, HandshakeError, ProtocolError
from waltz_protocol.frame import Magic, frame, keep_alive_frame
from waltz_protocol.handshake import encode_hello
from waltz_protocol.types import Endpoint


def _frame(body: bytes, version: int = 4) -> bytes:
    return frame(CLIENT.magic, version, body)


async def test_both_sides_say_hello_and_agree_on_the_highest_version() -> None:
    server, client = Recorder(), Recorder()
    async with connected(server, client, None, settings(versions=(0, 1, 2))) as (accepted, channel):
        assert (accepted.version, channel.version) == (2, 2)
        assert channel.ready
        channel.send(_frame(b"ping", 2))
        await server.until(lambda: server.bodies == [b"ping"])
        accepted.send(_frame(b"po", 2)[:5], _frame(b"po", 2)[5:])
        await client.until(lambda: client.bodies == [b"po"])
    assert client.events == ["ready", "frame", "ended", "closed"]
    assert client.reasons == ["the test is over"]
    assert await server.until_closed() == "the peer closed the connection"


async def test_the_accepting_side_does_not_wait_for_the_peers_hello() -> None:
    async with listening(Recorder) as listener, raw_peer(listener.port) as peer:
        assert await peer.frame() == encode_hello(VERSIONS, "test")


async def test_frames_behind_the_hello_in_the_same_segment_are_read() -> None:
    server = Recorder()
    async with listening(lambda: server) as listener, raw_peer(listener.port) as peer:
        peer.say(CLIENT_HELLO + _frame(b"a") + keep_alive_frame(CLIENT.magic, 4) + _frame(b"b"))
        await server.until(lambda: server.batches == [2])
    assert server.bodies == [b"a", b"b"]


async def test_keep_alives_are_legal_before_and_after_the_hello() -> None:
    server = Recorder()
    async with listening(lambda: server) as listener, raw_peer(listener.port) as peer:
        peer.say(keep_alive_frame(Magic.HELLO, 0))
        peer.hello()
        peer.say(keep_alive_frame(CLIENT.magic, 4) + _frame(b"a"))
        await server.until(lambda: server.bodies == [b"a"])
    assert server.events[:3] == ["ready", "frame", "ended"]


@pytest.mark.parametrize(
    ("said", "reason"),
    [
        (encode_hello((7,), "x"), "no common protocol version"),
        (_frame(b"x"), "magic"),
        (b"GET / HTTP/1.1\r\n\r\n", "magic"),
        (b"\x48\x00\x00\x7f\xff\xff\xff", "exceeds the limit of 65536"),
        (frame(Magic.HELLO, 0, b"\0\0\0\1"), "do not fit"),
    ],
)
async def test_who_does_not_shake_hands_is_closed(said: bytes, reason: str) -> None:
    server = Recorder()
    async with listening(lambda: server) as listener, raw_peer(listener.port) as peer:
        peer.say(said)
        assert await peer.rest() == encode_hello(VERSIONS, "test")
        assert reason in await server.until_closed()
    assert "ready" not in server.events


@pytest.mark.parametrize(
    ("said", "reason"),
    [
        (CLIENT_HELLO, "magic 0x48"),
        (frame(CLIENT.magic, 3, b"x"), "version 3"),
        (b"\x4c\x00\x04\xff\xff\xff\xff", "negative length"),
        (b"\x4c\x00\x04\x00\x00\x04\x01", "exceeds the limit of 1024 bytes"),
    ],
)
async def test_who_breaks_the_framing_is_closed_and_the_log_says_why(
    said: bytes, reason: str, caplog: pytest.LogCaptureFixture
) -> None:
    server = Recorder()
    async with (
        listening(lambda: server, settings(max_frame_bytes=1024)) as listener,
        raw_peer(listener.port) as peer,
    ):
        peer.hello()
        peer.say(_frame(b"good") + said)
        await peer.rest()
        assert reason in await server.until_closed()
    assert server.events == ["ready", "frame", "ended", "closed"]
    assert [reason in record.getMessage() for record in caplog.records] == [True]
    assert caplog.records[0].levelno == logging.WARNING


@pytest.mark.parametrize(
    "body", [b"\x63" + bytes(16), b"\x0b" + bytes(18), b"\x0b" + bytes(10)], ids=["type", "surplus", "short"]
)
async def test_a_message_that_does_not_decode_closes(body: bytes) -> None:
    def decode(channel: Channel, data: bytes) -> None:
        CLIENT.decode(data, channel.version)

    server = Recorder(decode)
    async with listening(lambda: server) as listener, raw_peer(listener.port) as peer:
        peer.hello()
        peer.say(_frame(body) + _frame(b"never seen"))
        await peer.rest()
        await server.until_closed()
    assert server.bodies == [body]
    assert server.events == ["ready", "frame", "ended", "closed"]


async def test_another_exception_of_the_handler_closes_and_is_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def fail(channel: Channel, data: bytes) -> None:
        raise ZeroDivisionError("oh")

    server = Recorder(fail)
    async with listening(lambda: server) as listener, raw_peer(listener.port) as peer:
        peer.hello()
        peer.say(_frame(b"x"))
        await peer.rest()
        assert await server.until_closed() == "internal error: ZeroDivisionError: oh"
    assert [r.levelno for r in caplog.records] == [logging.ERROR]


async def test_an_exception_in_the_batch_boundary_closes_too() -> None:
    class Failing(Recorder):
        def frames_ended(self, channel: Channel) -> None:
            raise ProtocolError("bad batch")

    server = Failing()
    async with listening(lambda: server) as listener, raw_peer(listener.port) as peer:
        peer.hello()
        peer.say(_frame(b"x"))
        await peer.rest()
        assert await server.until_closed() == "bad batch"


async def test_client_server_13_01_a_silent_peer_is_cut_after_the_handshake_timeout() -> None:
    server = Recorder()
    quick = settings(handshake_timeout_seconds=0.05)
    async with listening(lambda: server, quick) as listener, raw_peer(listener.port) as peer:
        await peer.rest()
        assert "no Hello within 0.05 s" in await server.until_closed()


async def test_a_hello_that_drips_does_not_extend_the_handshake() -> None:
    server = Recorder()
    quick = settings(handshake_timeout_seconds=0.1)
    async with listening(lambda: server, quick) as listener, raw_peer(listener.port) as peer:
        while not server.reasons:
            peer.say(keep_alive_frame(Magic.HELLO, 0))
            await asyncio.sleep(0.01)
    assert "no Hello" in server.reasons[0]


async def test_client_server_13_01_a_peer_gone_silent_is_cut_after_the_idle_limit() -> None:
    server = Recorder()
    quick = settings(read_idle_seconds=0.1)
    async with listening(lambda: server, quick) as listener, raw_peer(listener.port) as peer:
        peer.hello()
        await peer.rest()
        assert await server.until_closed() == "nothing received for 0.1 s"


async def test_a_process_that_stood_still_reads_what_has_come_before_it_calls_a_peer_silent() -> None:
    with socket.socket() as other:

        def stand_still(_: Channel, body: bytes) -> None:
            if body == b"stand still":
                other.sendall(_frame(b"here"))
                time.sleep(0.9)

        made = [Recorder(stand_still), Recorder()]
        busy, heard = made
        async with listening(made.pop, settings(read_idle_seconds=0.8)) as listener:
            other.connect((HOST, listener.port))
            other.sendall(encode_hello(VERSIONS, "raw"))
            await heard.until(lambda: "ready" in heard.events)
            async with raw_peer(listener.port) as peer:
                peer.hello()
                peer.say(_frame(b"stand still"))
                await heard.until(lambda: heard.bodies == [b"here"] or bool(heard.reasons))
                assert heard.reasons == []
        assert busy.bodies == [b"stand still"]


async def test_the_connecting_side_keeps_an_idle_connection_alive() -> None:
    server, client = Recorder(), Recorder()
    idle, alive = settings(read_idle_seconds=1.0), settings(keep_alive_seconds=0.05)
    async with connected(server, client, idle, alive) as (accepted, channel):
        await asyncio.sleep(2.5)  # several idle limits: only keep-alives can have saved the connection
        assert not accepted.closed
        assert not channel.closed
    assert client.reasons == ["the test is over"]
    assert server.bodies == []


async def test_keep_alives_carry_the_agreed_version_and_come_from_the_connecting_side_only() -> None:
    async with raw_server() as (port, peers):
        quick = settings(keep_alive_seconds=0.05)
        connecting = asyncio.get_running_loop().create_task(
            connect(Endpoint(HOST, port), quick, Recorder(), None)
        )
        peer = await peers.get()
        peer.hello(0, 1)
        channel = await connecting
        await peer.frame()
        assert await peer.frame() == keep_alive_frame(CLIENT.magic, 1)
        assert await peer.frame() == keep_alive_frame(CLIENT.magic, 1)
        channel.abort("done")
        await channel.wait_closed()
    server = Recorder()
    async with listening(lambda: server, quick) as listener, raw_peer(listener.port) as peer:
        peer.hello()
        await peer.frame()
        await asyncio.sleep(0.2)
        await server.until(lambda: server.channel is not None)
        if server.channel is not None:
            server.channel.close("done")
        assert await peer.rest() == b""


async def test_in_version_5_both_sides_keep_an_idle_connection_alive(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(channel_module, "WATCHED_KEEP_ALIVE_SECONDS", 0.05)
    monkeypatch.setattr(channel_module, "WATCHED_IDLE_SECONDS", 1.0)
    server, client = Recorder(), Recorder()
    five = settings(versions=(4, 5))
    async with connected(server, client, five, five) as (accepted, channel):
        await asyncio.sleep(2.5)
        assert not accepted.closed
        assert not channel.closed
    assert server.bodies == client.bodies == []


@pytest.mark.parametrize("version", [4, 5])
async def test_in_version_5_each_side_notices_that_the_other_is_silent(
    version: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process that is stopped: its kernel still acknowledges whatever comes."""
    monkeypatch.setattr(channel_module, "WATCHED_IDLE_SECONDS", 0.1)
    five, server, client = settings(versions=(4, 5)), Recorder(), Recorder()
    async with listening(lambda: server, five) as listener, raw_peer(listener.port) as peer:
        peer.hello(version)
        if version == 5:
            assert await server.until_closed() == "nothing received for 0.1 s"
        else:
            await asyncio.sleep(0.3)
            assert server.reasons == []
    async with raw_server() as (port, peers):
        connecting = asyncio.get_running_loop().create_task(connect(Endpoint(HOST, port), five, client, None))
        (await peers.get()).hello(version)
        channel = await connecting
        if version == 5:
            assert await client.until_closed() == "nothing received for 0.1 s"
        else:
            await asyncio.sleep(0.3)
            assert client.reasons == []
        channel.abort("done")
        await channel.wait_closed()


async def test_keep_alives_do_not_pile_up_for_a_peer_that_does_not_read() -> None:
    server, client = Recorder(), Recorder()
    async with connected(server, client, None, settings(keep_alive_seconds=0.02)) as (_, channel):
        channel.pause_writing()
        channel.send(_frame(b"waits"))
        await asyncio.sleep(0.3)
        assert channel._queued_bytes == len(_frame(b"waits"))
        channel.resume_writing()


async def test_safety_f2_idle_limits_leave_room_for_a_keep_alive_every_600_seconds() -> None:
    accepting = Channel(settings(), Recorder(), connecting=False)
    connecting = Channel(settings(), Recorder(), connecting=True)
    assert accepting._read_idle is not None
    assert accepting._read_idle >= 1800
    assert connecting._read_idle is None
    assert connecting._keep_alive == 600
    assert accepting._keep_alive is None


async def test_client_server_13_07_sockets_do_not_delay_and_find_vanished_peers() -> None:
    server, client = Recorder(), Recorder()
    async with connected(server, client) as channels:
        for channel in channels:
            assert channel._transport is not None
            sock = channel._transport.get_extra_info("socket")
            assert sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
            assert sock.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
            assert sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) == 30_000


async def test_what_is_sent_in_one_turn_is_one_write(monkeypatch: pytest.MonkeyPatch) -> None:
    server, client = Recorder(), Recorder()
    async with connected(server, client) as (_, channel):
        for i in range(100):
            channel.send(_frame(b"%d" % i))
        assert channel.pending_bytes == sum(len(_frame(b"%d" % i)) for i in range(100))
        await server.until(lambda: len(server.bodies) == 100)
    assert server.bodies == [b"%d" % i for i in range(100)]
    assert server.batches == [100]


async def test_flush_now_does_not_wait_for_the_end_of_the_turn() -> None:
    server, client = Recorder(), Recorder()
    async with connected(server, client) as (_, channel):
        channel.send(_frame(b"a"))
        channel.flush_now()
        assert channel._parts == []
        channel.send(_frame(b"b"))
        await server.until(lambda: server.bodies == [b"a", b"b"])


async def test_back_pressure_is_told_and_taken_back() -> None:
    server, client = Recorder(), Recorder()
    async with connected(server, client, settings(write_high_bytes=64 * 1024, write_low_bytes=16 * 1024)) as (
        accepted,
        channel,
    ):
        channel.pause_reading()
        total = 0
        while not server.writable:
            accepted.send(_frame(bytes(100_000)))
            total += 1
            await asyncio.sleep(0)
        assert accepted.pending_bytes > 64 * 1024
        channel.resume_reading()
        await server.until(lambda: server.writable == [False, True])
        await client.until(lambda: len(client.bodies) == total)
        assert accepted.writable
        assert accepted.pending_bytes <= 64 * 1024


async def test_close_writes_what_is_queued_first() -> None:
    server, client = Recorder(), Recorder()
    async with connected(server, client) as (_, channel):
        channel.send(_frame(b"last words"))
        channel.close("goodbye")
        channel.close("ignored")
        channel.send(_frame(b"dropped"))
        assert channel.closed
        assert client.reasons == [], "not inside close"
        await channel.wait_closed()
        await server.until(lambda: server.bodies == [b"last words"])
    assert client.reasons == ["goodbye"]
    assert server.bodies == [b"last words"]


async def test_a_peer_that_does_not_read_cannot_hold_up_a_close() -> None:
    server = Recorder()
    quick = settings(close_timeout_seconds=0.1)
    async with listening(lambda: server, quick) as listener, raw_peer(listener.port) as peer:
        peer.hello()
        await server.until(lambda: server.channel is not None)
        channel = server.channel
        assert channel is not None
        for _ in range(400):
            channel.send(_frame(bytes(100_000)))
        channel.close("enough")
        assert await server.until_closed() == "enough"
        async with asyncio.timeout(5):
            await channel.wait_closed()


async def test_abort_drops_what_is_queued() -> None:
    server, client = Recorder(), Recorder()
    async with connected(server, client) as (_, channel):
        channel.send(_frame(b"lost"))
        channel.abort("broken")
        await channel.wait_closed()
        await server.until_closed()
    assert server.bodies == []
    assert client.reasons == ["broken"]


async def test_client_server_13_08_no_frame_is_delivered_after_close() -> None:
    server = Recorder(lambda channel, data: channel.close("one is enough"))
    async with listening(lambda: server) as listener, raw_peer(listener.port) as peer:
        peer.hello()
        peer.say(_frame(b"1") + _frame(b"2") + _frame(b"3"))
        await peer.rest()
    assert server.bodies == [b"1"]
    assert server.events == ["ready", "frame", "ended", "closed"]


async def test_the_end_of_the_stream_inside_a_frame_is_named() -> None:
    server = Recorder()
    async with listening(lambda: server) as listener:
        async with raw_peer(listener.port) as peer:
            await peer.frame()  # unread bytes would turn the end of the stream into a reset
            peer.hello()
            peer.say(_frame(b"abc")[:-1])
        assert await server.until_closed() == "the peer closed the connection inside a frame"


async def test_pausing_stops_reading_and_the_idle_clock() -> None:
    server, client = Recorder(), Recorder()
    async with connected(server, client, settings(read_idle_seconds=0.15)) as (accepted, channel):
        accepted.pause_reading()
        channel.send(_frame(b"x"))
        await asyncio.sleep(0.4)
        assert not accepted.closed
        assert server.bodies == []
        accepted.resume_reading()
        await server.until(lambda: server.bodies == [b"x"])


async def test_wait_ready_tells_why_it_failed() -> None:
    async with raw_server() as (port, peers):
        loop = asyncio.get_running_loop()
        for said, error in ((encode_hello((9,), "x"), HandshakeError), (b"", ChannelClosedError)):
            _, channel = await loop.create_connection(
                lambda: Channel(settings(), Recorder(), connecting=True), HOST, port
            )
            peer = await peers.get()
            waiting = loop.create_task(channel.wait_ready())
            await asyncio.sleep(0)
            peer.say(said)
            if not said:
                peer.writer.close()
            with pytest.raises(error):
                await waiting
            with pytest.raises(error):
                await channel.wait_ready()
            await channel.wait_closed()


async def test_sending_before_the_hello_is_a_mistake() -> None:
    channel = Channel(settings(), Recorder(), connecting=True)
    with pytest.raises(RuntimeError, match="before the handshake"):
        channel.send(b"x")


async def test_connect_errors_are_one_line_with_the_address(unused_port: int) -> None:
    with pytest.raises(ConnectError, match=rf"cannot connect to {HOST}:{unused_port}: .*refused"):
        await connect(Endpoint(HOST, unused_port), settings(), Recorder(), None)
    with pytest.raises(ConnectError, match="not a port"):
        await connect(Endpoint(HOST, 70_000), settings(), Recorder(), None)
    for host in ("a\0b", "", "a" * 256):
        with pytest.raises(ConnectError, match="that is no host name"):
            await connect(Endpoint(host, 1), settings(), Recorder(), None)
    with pytest.raises(ConnectError, match="host name is not known"):
        await connect(Endpoint("no-such-host.invalid", 1), settings(), Recorder(), None)
    async with raw_server() as (port, peers):
        quick = settings(handshake_timeout_seconds=0.05)
        with pytest.raises(ConnectError, match="no Hello within"):
            await connect(Endpoint(HOST, port), quick, Recorder(), None)
        await (await peers.get()).close()


async def test_a_cancelled_connect_leaves_no_connection() -> None:
    async with raw_server() as (port, peers):
        client = Recorder()
        task = asyncio.get_running_loop().create_task(connect(Endpoint(HOST, port), settings(), client, None))
        peer = await peers.get()
        await peer.frame()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert await peer.rest() == b""
    assert client.reasons
