"""Listeners: ports, limits, closing; and the one helper that makes tasks."""

import asyncio
import errno
import logging
import socket

import pytest

from protocol_tests.peers import HOST, Recorder, listening, raw_peer, settings
from waltz_protocol.aio import listener
from waltz_protocol.aio.connector import connect
from waltz_protocol.aio.listener import Limits, Listener
from waltz_protocol.aio.tasks import spawn
from waltz_protocol.aio.tls import TlsSettings, client_context, server_context
from waltz_protocol.errors import ListenError, PortInUseError
from waltz_protocol.types import Endpoint


async def test_client_server_13_06_a_port_in_use_is_an_error() -> None:
    async with listening(Recorder) as first:
        second = Listener()
        with pytest.raises(
            PortInUseError, match=f"^port {first.port} on {HOST} is already in use$"
        ) as caught:
            await second.start(HOST, first.port, settings(), Recorder, None)
        assert caught.value.user_error
        await second.close()


async def test_an_address_that_is_not_ours_is_an_error() -> None:
    with pytest.raises(ListenError, match="cannot listen on"):
        await Listener().start("203.0.113.1", 0, settings(), Recorder, None)
    with pytest.raises(ListenError, match="not a port"):
        await Listener().start(HOST, 70_000, settings(), Recorder, None)


def _free_port() -> int:
    """One that both families have free; another process may take it until it is used."""
    with socket.socket(socket.AF_INET6) as sock:
        sock.bind(("::", 0))
        return int(sock.getsockname()[1])


@pytest.mark.skipif(not socket.has_ipv6, reason="this machine has no IPv6")
@pytest.mark.parametrize("encrypted", [False, True])
@pytest.mark.parametrize(("host", "families"), [("", ("127.0.0.1", "::1")), ("::1", ("::1",))])
async def test_it_listens_on_the_families_of_its_address(
    host: str, families: tuple[str, ...], encrypted: bool
) -> None:
    """The empty address is every address of both families: pods of a cluster with dual stack have it."""
    trusted = TlsSettings(allow_unverified=True) if encrypted else None
    port = _free_port()
    async with Listener() as listener:
        server = server_context(TlsSettings()) if encrypted else None
        await listener.start(host, port, settings(), Recorder, server)
        for address in families:
            client = Recorder()
            own = client_context(trusted) if trusted is not None else None
            channel = await connect(Endpoint(address, port), settings(), client, own)
            await client.until(lambda client=client: client.channel is not None)  # type: ignore[misc]
            channel.close("seen")


@pytest.mark.skipif(not socket.has_ipv6, reason="this machine has no IPv6")
@pytest.mark.parametrize("encrypted", [False, True])
async def test_zookeeper_6_25_an_ipv6_address_in_brackets_is_connected_to(encrypted: bool) -> None:
    """As it is in connect strings. Before, a node could be added under one, and nobody came to it."""
    async with Listener() as listener:
        server = server_context(TlsSettings()) if encrypted else None
        await listener.start("::1", 0, settings(), Recorder, server)
        own = client_context(TlsSettings(allow_unverified=True)) if encrypted else None
        endpoint = Endpoint.parse(f"[::1]:{listener.port}")
        assert str(endpoint) == f"[::1]:{listener.port}"
        channel = await connect(endpoint, settings(), Recorder(), own)
        assert channel.peer == f"::1:{listener.port}"
        channel.close("seen")


async def test_connections_above_the_limit_are_cut() -> None:
    handlers: list[Recorder] = []

    def handler() -> Recorder:
        handlers.append(Recorder())
        return handlers[-1]

    async with (
        listening(handler, limits=Limits(max_connections=1)) as listener,
        raw_peer(listener.port) as first,
    ):
        first.hello()
        await first.frame()
        async with raw_peer(listener.port) as second:
            assert await second.rest() == b""
        assert "more than 1 connections" in await handlers[1].until_closed()
        assert len(listener.channels) == 1
    assert listener.channels == frozenset()


async def test_closing_says_why_and_waits() -> None:
    server, client = Recorder(), Recorder()
    async with Listener() as listener:
        await listener.start(HOST, 0, settings(), lambda: server, None)
        channel = await connect(Endpoint(HOST, listener.port), settings(), client, None)
        await server.until(lambda: server.channel is not None)
        await listener.close("maintenance")
        await listener.close()
        assert server.reasons == ["maintenance"]
        assert listener.channels == frozenset()
        await channel.wait_closed()
        assert client.reasons == ["the peer closed the connection"]


async def test_spawned_tasks_log_what_nobody_awaits(caplog: pytest.LogCaptureFixture) -> None:
    async def fails() -> None:
        raise ZeroDivisionError("oh")

    async def sleeps() -> int:
        await asyncio.sleep(60)
        return 1

    failing, sleeping = spawn(fails(), "failing"), spawn(sleeps(), "sleeping")
    await asyncio.wait([failing])
    sleeping.cancel()
    await asyncio.wait([sleeping])
    assert [(r.levelno, r.getMessage()) for r in caplog.records if r.name.startswith("waltz")] == [
        (logging.ERROR, "task failing failed: oh")
    ]


async def test_what_prevents_accepting_is_logged_when_it_changes_and_when_it_is_over(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """And not once for each try, five times a second."""
    full, machine, taken = OSError(errno.EMFILE, "process"), OSError(errno.ENFILE, "machine"), None
    script = [full, full, machine, taken, taken, full, ConnectionAbortedError(), taken]

    class Loop:
        async def sock_accept(self, listening: socket.socket) -> tuple[socket.socket, tuple[str, int]]:
            if not script:
                raise asyncio.CancelledError
            outcome = script.pop(0)
            if outcome is not None:
                raise outcome
            return socket.socket(), (HOST, 1)

    async def pause(seconds: float) -> None: ...

    class Asyncio:
        get_running_loop, sleep, wait = Loop, staticmethod(pause), staticmethod(asyncio.wait)

    own = Listener()
    own._limits = Limits(max_connections=0)
    own._place = "here"
    caplog.set_level(logging.INFO, "waltz_protocol.aio.listener")
    with monkeypatch.context() as patched, socket.socket() as listening:
        patched.setattr(listener, "asyncio", Asyncio)
        with pytest.raises(asyncio.CancelledError):
            await own._accept(listening, lambda sock, handshake: None)
    assert [m for m in caplog.messages if "accept" in m] == [
        "here: cannot accept connections for now: process",
        "here: cannot accept connections for now: machine",
        "here: accepts connections again",
        "here: cannot accept connections for now: process",
        "here: accepts connections again",
    ]
