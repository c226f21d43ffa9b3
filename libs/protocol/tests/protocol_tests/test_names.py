"""Who looks host names up, and what the connector does with the addresses."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Sequence
from pathlib import Path
from unittest.mock import AsyncMock

import pytest

from protocol_tests.peers import HOST, Recorder, listening, settings
from protocol_tests.test_tls import SERVER, _talk, _trusting
from waltz_protocol.aio.connector import connect
from waltz_protocol.aio.names import looked_up_by
from waltz_protocol.aio.tls import TlsSettings, client_context
from waltz_protocol.errors import ConnectError
from waltz_protocol.types import Endpoint

NOBODY = "127.0.0.2"
"""Nobody listens there."""


async def test_the_name_is_only_looked_up_by_who_is_given(tmp_path: Path) -> None:
    """And the certificate is still checked against the name."""
    (tmp_path / "server.pem").write_bytes(SERVER.key_pem() + SERVER.pem())
    server = TlsSettings(key_store=str(tmp_path / "server.pem"))
    lookup = AsyncMock(return_value=(NOBODY, HOST))
    with looked_up_by(lookup):
        await _talk(server, _trusting(tmp_path), "localhost")
        with pytest.raises(ConnectError, match="certificate is not accepted: Hostname mismatch"):
            await _talk(server, _trusting(tmp_path), "other.example")
    assert [one.args for one in lookup.await_args_list] == [("localhost",), ("other.example",)]
    with pytest.raises(ConnectError):
        await connect(Endpoint("nobody.invalid", 1), settings(), Recorder(), None)
    assert lookup.await_count == 2, "it is asked outside, too"


async def test_tasks_that_begin_within_ask_the_same() -> None:
    lookup = AsyncMock(return_value=(HOST,))
    async with listening(Recorder) as listener:

        async def one() -> None:
            channel = await connect(Endpoint("n.example", listener.port), settings(), Recorder(), None)
            channel.close("done")
            await channel.wait_closed()

        with looked_up_by(lookup):
            async with asyncio.TaskGroup() as group:
                group.create_task(one())
                group.create_task(one())
    assert lookup.await_count == 2


async def test_a_lookup_that_finds_no_thread_is_a_connect_error() -> None:
    """The process may be at its limit of threads, in which names are looked up."""
    lookup = AsyncMock(side_effect=RuntimeError("can't start new thread"))
    with (
        looked_up_by(lookup),
        pytest.raises(ConnectError, match=r"cannot connect to n\.example:9: can't start new thread"),
    ):
        await connect(Endpoint("n.example", 9), settings(), Recorder(), None)


@pytest.mark.parametrize("host", [HOST, "::1"])
async def test_an_address_is_not_looked_up(host: str) -> None:
    lookup = AsyncMock()
    with looked_up_by(lookup), pytest.raises(ConnectError):
        await connect(Endpoint(host, 1), settings(), Recorder(), None)
    lookup.assert_not_awaited()


@pytest.mark.parametrize("addresses", [(NOBODY,), (NOBODY, HOST)])
async def test_the_last_address_says_why(addresses: Sequence[str]) -> None:
    with looked_up_by(AsyncMock(return_value=addresses)), pytest.raises(ConnectError, match="refused") as e:
        await connect(Endpoint("n.example", 1), settings(), Recorder(), None)
    assert e.value.refused


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (socket.gaierror(socket.EAI_NONAME, "Name or service not known"), "the host name is not known"),
        (UnicodeError("label too long"), "that is no host name"),
    ],
)
async def test_a_name_that_is_not_known(error: Exception, text: str) -> None:
    with looked_up_by(AsyncMock(side_effect=error)), pytest.raises(ConnectError, match=text):
        await connect(Endpoint("n.example", 1), settings(), Recorder(), None)


async def test_who_took_the_connection_is_not_passed_over(tmp_path: Path) -> None:
    """Its TLS has failed, which another address does not mend."""
    async with listening(Recorder) as listener:
        with looked_up_by(AsyncMock(return_value=(HOST, NOBODY))), pytest.raises(ConnectError, match="TLS"):
            context = client_context(_trusting(tmp_path))
            await connect(Endpoint("n.example", listener.port), settings(), Recorder(), context)


async def test_a_lookup_counts_for_the_timeout() -> None:
    async def silent(_: str) -> Sequence[str]:
        await asyncio.Event().wait()
        return ()

    with looked_up_by(silent), pytest.raises(ConnectError, match="no answer within"):
        await connect(Endpoint("n.example", 1), settings(), Recorder(), None, 0.05)
