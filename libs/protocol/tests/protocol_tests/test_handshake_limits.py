"""Peers on their way in: how many there may be, who gives way, whose certificate counts, what they can
do besides, and what the log says."""

import asyncio
import contextlib
import logging
import ssl
from collections.abc import AsyncIterator

import pytest

from protocol_tests.peers import HOST, RawPeer, Recorder, connected, listening, raw_peer, settings
from waltz_protocol.aio.connector import connect
from waltz_protocol.aio.handshakes import Handshake, Handshakes
from waltz_protocol.aio.listener import Limits, Listener
from waltz_protocol.aio.peer_log import BURST, LINES_PER_SECOND, PeerLog
from waltz_protocol.aio.tls import TlsSettings, certificate_names, client_context, server_context
from waltz_protocol.handshake import ZSTD_BLOCKS, encode_hello
from waltz_protocol.types import Endpoint


def test_the_oldest_of_the_address_with_most_gives_way() -> None:
    handshakes = Handshakes(10)
    made = [Handshake(peer, lambda reason: None) for peer in ("a:1", "b:1", "b:2", "a:2", "b:3")]
    for handshake in made:
        handshakes.add(handshake)
    assert handshakes.victim() is made[1]
    handshakes.discard(made[1])
    handshakes.discard(made[1])
    handshakes.discard(made[2])
    assert len(handshakes) == 3
    assert handshakes.victim() is made[0]
    for handshake in made:
        handshakes.discard(handshake)
    assert handshakes.victim() is None
    assert len(handshakes) == 0


def test_a_peer_gets_so_many_lines_and_a_count_of_the_rest(caplog: pytest.LogCaptureFixture) -> None:
    now = 0.0
    peer_log = PeerLog(logging.getLogger("peers"), lambda: now)
    for number in range(BURST + 5):
        peer_log.warn(f"10.0.0.1:{number}", "nonsense")
    peer_log.warn("10.0.0.2:1", "another one is not hidden by it")
    assert len(caplog.records) == BURST + 1
    now += 1 / LINES_PER_SECOND
    peer_log.warn("10.0.0.1:99", "more")
    assert caplog.messages[-1] == "10.0.0.1:99: more (5 lines about 10.0.0.1 left out before)"


@contextlib.asynccontextmanager
async def silent_crowd(listener: Listener, count: int) -> AsyncIterator[list[RawPeer]]:
    peers = []
    for _ in range(count):
        peers.append(await RawPeer.to(listener.port))
    try:
        yield peers
    finally:
        for peer in peers:
            await peer.close()


@pytest.mark.parametrize("tls", [False, True])
async def test_client_server_13_01_silent_peers_are_bounded_and_honest_ones_get_in(
    tls: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """Also while they have not even done TLS; a connection that has finished its handshake is never
    displaced."""
    context = server_context(TlsSettings()) if tls else None
    trusting = client_context(TlsSettings(allow_unverified=True)) if tls else None
    limits = Limits(max_connections=6, max_handshakes=4)
    async with listening(Recorder, tls=context, limits=limits) as listener:
        endpoint = Endpoint(HOST, listener.port)
        first = await connect(endpoint, settings(), Recorder(), trusting)
        async with silent_crowd(listener, 12) as crowd:
            second = await connect(endpoint, settings(), Recorder(), trusting)
            async with asyncio.timeout(10):
                while listener.handshakes > limits.max_handshakes:
                    await asyncio.sleep(0)
            await crowd[0].rest()
            assert first.ready
            assert second.ready
            assert listener.handshakes <= limits.max_handshakes
        assert any("cut in its handshake" in message for message in caplog.messages)
        first.close("over")
        second.close("over")
        await first.wait_closed()
        await second.wait_closed()


async def test_silent_peers_end_with_the_handshake_timeout_before_tls_too(
    caplog: pytest.LogCaptureFixture,
) -> None:
    short = settings(handshake_timeout_seconds=0.05)
    async with listening(Recorder, short, tls=server_context(TlsSettings())) as listener:
        async with raw_peer(listener.port) as peer:
            await peer.rest()
        async with asyncio.timeout(10):
            while listener.handshakes:
                await asyncio.sleep(0.001)
        assert any("the TLS handshake failed" in message for message in caplog.messages), caplog.messages


@pytest.mark.parametrize("tls", [False, True])
async def test_bytes_that_are_no_hello_are_logged_with_the_peer(
    tls: bool, caplog: pytest.LogCaptureFixture
) -> None:
    async with listening(Recorder, tls=server_context(TlsSettings()) if tls else None) as listener:
        async with raw_peer(listener.port) as peer:
            peer.say(b"GET / HTTP/1.1\r\n\r\n")
            await peer.rest()
            host, port = peer.writer.get_extra_info("sockname")[:2]
        async with asyncio.timeout(10):
            while not caplog.messages:
                await asyncio.sleep(0)
        assert any(f"{host}:{port}: " in message for message in caplog.messages)
        assert not any(record.exc_info for record in caplog.records)


async def test_a_port_check_is_not_worth_a_line(caplog: pytest.LogCaptureFixture) -> None:
    async with listening(Recorder) as listener:
        async with raw_peer(listener.port):
            pass
        await asyncio.sleep(0)
    assert caplog.messages == []


async def test_closing_ends_handshakes_in_tls() -> None:
    async with listening(Recorder, tls=server_context(TlsSettings())) as listener, silent_crowd(listener, 3):
        async with asyncio.timeout(10):
            while listener.handshakes < 3:
                await asyncio.sleep(0)
            await listener.close()
        assert listener.handshakes == 0


def test_certificate_names() -> None:
    shown = {
        "subject": ((("countryName", "XX"),), (("commonName", "node"),)),
        "subjectAltName": (("DNS", "node"), ("DNS", "a.example"), ("IP Address", "10.1.2.3")),
    }
    assert certificate_names(shown) == ("node", "a.example", "10.1.2.3")
    assert certificate_names(None) == ()
    assert certificate_names({}) == ()


async def test_without_a_verified_certificate_nobody_is_on_the_list(caplog: pytest.LogCaptureFixture) -> None:
    limits = Limits(allowed_peers=("somebody",), allowed_peers_key="x.allowedPeers")
    context = server_context(TlsSettings())
    recorder = Recorder()
    async with listening(lambda: recorder, tls=context, limits=limits) as listener:
        trusting = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        trusting.check_hostname, trusting.verify_mode = False, ssl.CERT_NONE
        reader, writer = await asyncio.open_connection(HOST, listener.port, ssl=trusting)
        with contextlib.suppress(ConnectionError):
            assert await reader.read() == b""
        writer.close()
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()
        assert "refused: its certificate (no name) is not in x.allowedPeers" in await recorder.until_closed()
        assert "no name" in caplog.text


async def test_what_a_side_can_do_besides_is_learned_and_never_chosen() -> None:
    """A number that the other side does not know is passed over."""
    server, client = Recorder(), Recorder()
    able, other = settings(features=(ZSTD_BLOCKS,)), settings(features=(ZSTD_BLOCKS, 1999))
    async with connected(server, client, able, other) as (accepted, channel):
        assert (accepted.version, channel.version) == (4, 4)
        assert accepted.peer_hello.features == channel.peer_hello.features == {ZSTD_BLOCKS}
    async with connected(Recorder(), Recorder(), able, settings()) as (accepted, channel):
        assert not accepted.peer_hello.features
        assert channel.peer_hello.features == {ZSTD_BLOCKS}
    talkative = settings(features=(ZSTD_BLOCKS, *range(2000, 30_000)))
    async with connected(Recorder(), Recorder(), able, talkative) as (accepted, channel):
        assert accepted.peer_hello == ((ZSTD_BLOCKS,), None), "a Hello of a stranger may have 64 KiB"
    refused = Recorder()
    async with listening(lambda: refused, able) as listener, raw_peer(listener.port) as peer:
        peer.say(encode_hello((ZSTD_BLOCKS,), "no version at all"))
        assert "no common protocol version" in await refused.until_closed()
