"""Certificates that change while a process runs: real sockets, what exists continues, what is new is new."""

import asyncio
import logging
import os
import ssl
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest

from protocol_tests.peers import HOST, Recorder, listening, settings
from protocol_tests.test_tls import CA, CLIENT_ID, OTHER_CA, SERVER, Identity, _file, _identity, _p12
from waltz_protocol.aio import following
from waltz_protocol.aio.channel import Channel
from waltz_protocol.aio.connector import connect
from waltz_protocol.aio.following import FollowingContext
from waltz_protocol.aio.listener import Listener
from waltz_protocol.aio.tls import ClientTls, TlsSettings, client_context, server_context
from waltz_protocol.codec import CLIENT
from waltz_protocol.errors import ConnectError, TlsSettingsError
from waltz_protocol.frame import frame
from waltz_protocol.types import Endpoint

RENEWED = _identity("server, renewed", CA, "localhost")
OTHER_SERVER = _identity("server", OTHER_CA, "localhost")
OTHER_CLIENT = _identity("client", OTHER_CA)


@pytest.fixture(autouse=True)
def always_compare(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(following, "COMPARE_SECONDS", 0.0)


def _write(directory: Path, own: Identity, *trusted: Identity) -> TlsSettings:
    directory.mkdir(exist_ok=True)
    for name, parts in (
        ("ca.crt", [each.pem() for each in trusted]),
        ("tls.key", [own.key_pem()]),
        ("tls.crt", [own.pem()]),
    ):
        _file(directory / f"{name}.new", *parts)
        os.replace(directory / f"{name}.new", directory / name)
    return TlsSettings(key_store=str(directory), trust_store=str(directory), prefix="server.ssl")


class Caller:
    """A client with one context, whose connections are kept."""

    def __init__(self, context: ClientTls | None, listener: Listener) -> None:
        self._context = context
        self._endpoint = Endpoint("localhost", listener.port)

    async def call(self) -> tuple[Channel, Recorder]:
        recorder = Recorder()
        channel = await connect(self._endpoint, settings(), recorder, self._context, 5.0)
        await self.speak(channel, recorder)
        return channel, recorder

    async def speak(self, channel: Channel, recorder: Recorder) -> None:
        before = len(recorder.bodies)
        channel.send(frame(CLIENT.magic, 4, b"hello"))
        await recorder.until(lambda: len(recorder.bodies) > before or bool(recorder.reasons))
        if recorder.reasons:
            raise ConnectError(recorder.reasons[0])


def _echo() -> Recorder:
    return Recorder(lambda channel, data: channel.send(frame(CLIENT.magic, 4, data)))


def _shown(channel: Channel) -> bytes:
    """The certificate that the other side of the connection has shown."""
    return bytes(channel._transport.get_extra_info("ssl_object").getpeercert(True))  # type: ignore[union-attr]


def _der(identity: Identity) -> bytes:
    return ssl.PEM_cert_to_DER_cert(identity.pem().decode())


async def test_an_old_connection_lives_on_and_a_new_one_sees_the_new_certificate(tmp_path: Path) -> None:
    listening_side = _write(tmp_path / "server", SERVER, CA)
    calling_side = _write(tmp_path / "client", CLIENT_ID, CA)
    async with listening(_echo, tls=server_context(listening_side)) as listener:
        caller = Caller(client_context(calling_side), listener)
        old, heard = await caller.call()
        assert _shown(old) == _der(SERVER)
        _write(tmp_path / "server", RENEWED, CA)
        new, _ = await caller.call()
        assert _shown(new) == _der(RENEWED)
        await caller.speak(old, heard)
        for channel in (old, new):
            channel.close("done")
            await channel.wait_closed()


async def test_an_authority_is_rolled_on_both_sides(tmp_path: Path) -> None:
    """Trusted alongside, signing, alone: at each step new connections are made, and the old one continues; in
    the end the authority of before gets nobody in."""
    listening_side = _write(tmp_path / "server", SERVER, CA)
    calling_side = _write(tmp_path / "client", CLIENT_ID, CA)
    before = _write(tmp_path / "before", CLIENT_ID, CA, OTHER_CA)
    async with listening(_echo, tls=server_context(listening_side)) as listener:
        caller = Caller(client_context(calling_side), listener)
        old, heard = await caller.call()
        _write(tmp_path / "server", SERVER, OTHER_CA, CA)
        await caller.call()
        _write(tmp_path / "client", CLIENT_ID, OTHER_CA, CA)
        await caller.call()
        _write(tmp_path / "server", OTHER_SERVER, OTHER_CA, CA)
        await caller.call()
        _write(tmp_path / "client", OTHER_CLIENT, OTHER_CA, CA)
        await caller.call()
        _write(tmp_path / "server", OTHER_SERVER, OTHER_CA)
        _write(tmp_path / "client", OTHER_CLIENT, OTHER_CA)
        new, _ = await caller.call()
        assert _shown(new) == _der(OTHER_SERVER)
        with pytest.raises(ConnectError):
            await Caller(client_context(before), listener).call()
        await caller.speak(old, heard)


def _half(directory: Path) -> None:
    (directory / "tls.crt").write_bytes(RENEWED.pem()[:200])


def _mismatch(directory: Path) -> None:
    (directory / "tls.key").write_bytes(RENEWED.key_pem())


def _gone(directory: Path) -> None:
    (directory / "tls.key").unlink()


def _half_authority(directory: Path) -> None:
    (directory / "ca.crt").write_bytes(OTHER_CA.pem() + CA.pem()[:200])


@pytest.mark.parametrize(
    ("spoil", "named"),
    [
        (_half, "no usable private key and certificate in"),
        (_mismatch, "the private key does not belong to the certificate in"),
        (_gone, "cannot read"),
        (_half_authority, "contains no certificate to trust"),
    ],
)
async def test_with_a_broken_file_the_old_certificates_stay_and_the_log_says_so_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, spoil: Callable[[Path], None], named: str
) -> None:
    caplog.set_level(logging.INFO, following.__name__)
    listening_side = _write(tmp_path / "server", SERVER, CA)
    calling_side = _write(tmp_path / "client", CLIENT_ID, CA)
    async with listening(_echo, tls=server_context(listening_side)) as listener:
        caller = Caller(client_context(calling_side), listener)
        spoil(tmp_path / "server")
        for _ in range(3):
            channel, _recorder = await caller.call()
            assert _shown(channel) == _der(SERVER)
        (line,) = [each.getMessage() for each in caplog.records if each.name == following.__name__]
        assert named in line
        assert str(tmp_path / "server") in line
        assert "server.ssl." in line
        _write(tmp_path / "server", RENEWED, CA)
        channel, _recorder = await caller.call()
        assert _shown(channel) == _der(RENEWED)
        assert "new certificates are in use" in caplog.records[-1].getMessage()


def test_pkcs12_and_permissions_are_followed(tmp_path: Path) -> None:
    store = _file(tmp_path / "all.p12", _p12(SERVER, "secret"))
    context = server_context(TlsSettings(key_store=store, key_store_password="secret"))
    assert isinstance(context, FollowingContext)
    first = context.expires
    assert first == SERVER.certificate.not_valid_after_utc.timestamp()
    made: list[ssl.SSLContext | None] = []
    for mode in (None, 0o400):  # a file that could not be read may be readable now
        if mode is not None:
            os.chmod(store, mode)
        context.refresh()
        made.append(context._current)
    assert [each is None for each in made] == [True, False]
    _file(tmp_path / "new.p12", _p12(RENEWED, "secret"))
    os.replace(tmp_path / "new.p12", store)
    context.refresh()
    assert context.expires == RENEWED.certificate.not_valid_after_utc.timestamp()


def test_a_mount_that_is_replaced_by_a_symbolic_link_is_followed(tmp_path: Path) -> None:
    """As Kubernetes replaces the contents of a Secret."""
    _write(tmp_path / "first", SERVER, CA)
    _write(tmp_path / "second", RENEWED, CA)
    (tmp_path / "data").symlink_to(tmp_path / "first")
    mounted = str(tmp_path / "data")
    context = server_context(TlsSettings(key_store=mounted, trust_store=mounted))
    assert isinstance(context, FollowingContext)
    (tmp_path / "next").symlink_to(tmp_path / "second")
    os.replace(tmp_path / "next", tmp_path / "data")
    context.refresh()
    assert context.expires == RENEWED.certificate.not_valid_after_utc.timestamp()


def test_files_are_compared_once_a_second(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(following, "COMPARE_SECONDS", 1.0)
    context = client_context(_write(tmp_path, CLIENT_ID, CA))
    assert isinstance(context, FollowingContext)
    asked: list[int] = []
    monkeypatch.setattr(context, "refresh", lambda: asked.append(1))
    for _ in range(5):
        context.wrap_bio(ssl.MemoryBIO(), ssl.MemoryBIO(), server_hostname=HOST)
    assert len(asked) == 1


def test_what_is_wrong_at_the_start_is_for_the_caller(tmp_path: Path) -> None:
    with pytest.raises(TlsSettingsError, match="cannot read"):
        server_context(TlsSettings(key_store=str(tmp_path / "missing")))


def test_a_temporary_directory_that_is_full_leaves_what_is_in_use(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """PKCS#12 goes through a file where the system has none in memory; an error would end a service."""

    def write(own: Identity) -> None:
        (tmp_path / "store.p12").write_bytes(_p12(own, "secret"))

    write(SERVER)
    store = str(tmp_path / "store.p12")
    context = server_context(TlsSettings(key_store=store, key_store_password="secret"))
    assert isinstance(context, FollowingContext)
    before = context.expires
    write(RENEWED)
    with monkeypatch.context() as full:
        full.delattr(os, "memfd_create", raising=False)
        full.setattr(tempfile, "tempdir", str(tmp_path / "missing"))
        context.refresh()
    assert "stay as they are" in caplog.text
    assert context.expires == before
    context.refresh()
    assert context.expires == RENEWED.certificate.not_valid_after_utc.timestamp()


@pytest.mark.parametrize("error", [PermissionError(13, "Permission denied"), RuntimeError("no such cipher")])
def test_whatever_a_comparison_meets_leaves_what_is_in_use(
    error: Exception, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    context = client_context(_write(tmp_path, CLIENT_ID, CA))
    assert isinstance(context, FollowingContext)

    def refuse() -> None:
        raise error

    monkeypatch.setattr(context, "_files", refuse)
    context.wrap_bio(ssl.MemoryBIO(), ssl.MemoryBIO(), server_hostname=HOST)
    assert str(error) in caplog.text


async def test_without_an_event_loop_too(tmp_path: Path) -> None:
    """`wrap_socket`, for connections that are blocking."""
    listening_side = _write(tmp_path / "server", SERVER, CA)
    context = client_context(_write(tmp_path / "client", CLIENT_ID, CA))
    assert context is not None
    async with listening(_echo, tls=server_context(listening_side)) as listener:

        def shown() -> bytes | None:
            import socket

            with (
                socket.create_connection(("localhost", listener.port)) as plain,
                context.wrap_socket(plain, server_hostname="localhost") as secure,
            ):
                return secure.getpeercert(True)

        assert await asyncio.to_thread(shown) == _der(SERVER)
        _write(tmp_path / "server", OTHER_SERVER, CA)
        _write(tmp_path / "client", CLIENT_ID, OTHER_CA)
        assert await asyncio.to_thread(shown) == _der(OTHER_SERVER)
