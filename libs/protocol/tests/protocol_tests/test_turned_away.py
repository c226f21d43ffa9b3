"""Who is there and lets us not in is no process that does not answer; what is wrong with our certificate."""

import asyncio
import logging
import ssl
import time
import types
from pathlib import Path

import pytest

from protocol_tests.peers import HOST, Recorder, listening, settings
from protocol_tests.test_tls import CA, CLIENT_ID, OTHER_CA, SERVER, _file, _trusting
from waltz_protocol.aio import tls
from waltz_protocol.aio.connector import connect
from waltz_protocol.aio.tls import TlsSettings, client_context, own_certificate_problem, server_context
from waltz_protocol.errors import ConnectError
from waltz_protocol.types import Endpoint


async def _refusal(port: int, client: TlsSettings, host: str = "localhost") -> ConnectError:
    with pytest.raises(ConnectError) as caught:
        await connect(Endpoint(host, port), settings(), Recorder(), client_context(client), 5.0)
    return caught.value


@pytest.mark.parametrize("newest", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
async def test_a_peer_that_refuses_the_certificate_or_is_refused_for_its_own_is_there(
    newest: ssl.TLSVersion, tmp_path: Path
) -> None:
    """In TLS 1.2 the peer ends the connection within the handshake of TLS, else after it."""
    server = server_context(
        TlsSettings(
            key_store=_file(tmp_path / "server.pem", SERVER.key_pem(), SERVER.pem()),
            trust_store=_file(tmp_path / "ca.pem", CA.pem()),
        )
    )
    assert server is not None
    server.maximum_version = newest
    stranger = _file(tmp_path / "own.pem", OTHER_CA.key_pem(), OTHER_CA.pem())
    async with listening(Recorder, tls=server) as listener:
        for client in (
            _trusting(tmp_path),
            _trusting(tmp_path, key_store=stranger),
            _trusting(tmp_path, OTHER_CA),
            TlsSettings(enabled=False),
        ):
            assert (await _refusal(listener.port, client)).turned_away, client


async def test_a_peer_without_tls_is_there_and_one_that_does_not_answer_may_not_be() -> None:
    async with listening(Recorder) as listener:
        assert (await _refusal(listener.port, TlsSettings(allow_unverified=True))).turned_away
        port = listener.port
    assert not (await _refusal(port, TlsSettings(allow_unverified=True))).turned_away
    mute = await asyncio.start_server(lambda _, writer: silent.append(writer), HOST, 0)
    silent: list[asyncio.StreamWriter] = []
    async with mute:
        with pytest.raises(ConnectError) as caught:
            endpoint = Endpoint(HOST, mute.sockets[0].getsockname()[1])
            await connect(endpoint, settings(handshake_timeout_seconds=0.1), Recorder(), None)
        assert not caught.value.turned_away
        for writer in silent:
            writer.close()


def test_a_warning_about_a_certificate_comes_once_and_again_for_another_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A command makes a context for every connection."""
    clock = types.SimpleNamespace(
        time=lambda: time.time() + 2 * 86_400, strftime=time.strftime, gmtime=time.gmtime
    )
    monkeypatch.setattr(tls, "time", clock)
    own = tmp_path / "own.pem"
    client = _trusting(tmp_path, key_store=_file(own, CLIENT_ID.key_pem(), CLIENT_ID.pem()))
    for _ in range(3):
        client_context(client)
    assert len(caplog.records) == 1
    monkeypatch.setattr(clock, "time", time.time)  # it was renewed; then that one expires too
    client_context(client)
    monkeypatch.setattr(clock, "time", lambda: time.time() + 2 * 86_400)
    client_context(client)
    assert [record.levelno for record in caplog.records] == [logging.WARNING] * 2


def test_what_is_wrong_with_the_own_certificate(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    own = tmp_path / "own.pem"
    client = _trusting(tmp_path, key_store=_file(own, CLIENT_ID.key_pem(), CLIENT_ID.pem()), prefix="ssl")
    assert own_certificate_problem(client) == ""
    assert own_certificate_problem(_trusting(tmp_path)) == ""
    assert own_certificate_problem(TlsSettings(enabled=False)) == ""
    assert own_certificate_problem(TlsSettings(trust_store=str(tmp_path / "missing"))) == ""
    clock = types.SimpleNamespace(
        time=lambda: time.time() + 2 * 86_400, strftime=time.strftime, gmtime=time.gmtime
    )
    monkeypatch.setattr(tls, "time", clock)
    day = time.strftime("%Y-%m-%d", CLIENT_ID.certificate.not_valid_after_utc.timetuple())
    found = own_certificate_problem(client)
    assert found.startswith(f"the certificate {own} (ssl.keyStore.location) expired on {day} at ")
