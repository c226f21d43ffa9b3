"""TLS settings: every form of key and trust store, what is refused, and real handshakes."""

import asyncio
import datetime
import os
import ssl
import stat
import sys
import tempfile
import time
import types
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    KeySerializationEncryption,
    NoEncryption,
    PrivateFormat,
    pkcs12,
)
from cryptography.x509.oid import NameOID

from protocol_tests.peers import HOST, Recorder, listening, settings
from waltz_protocol.aio import tls
from waltz_protocol.aio.channel import Channel
from waltz_protocol.aio.connector import connect
from waltz_protocol.aio.tasks import spawn
from waltz_protocol.aio.tls import TlsSettings, client_context, server_context, shown_certificate
from waltz_protocol.codec import CLIENT
from waltz_protocol.errors import ConnectError, TlsSettingsError
from waltz_protocol.frame import frame
from waltz_protocol.types import Endpoint, ShownCertificate


@dataclass(frozen=True)
class Identity:
    key: ec.EllipticCurvePrivateKey
    certificate: x509.Certificate

    def key_pem(self, password: str | None = None) -> bytes:
        encryption: KeySerializationEncryption = NoEncryption()
        if password is not None:
            encryption = BestAvailableEncryption(password.encode())
        return self.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, encryption)

    def pem(self) -> bytes:
        return self.certificate.public_bytes(Encoding.PEM)


def _identity(
    name: str, issuer: Identity | None = None, host: str | None = None, valid_days: int = 1
) -> Identity:
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    now = datetime.datetime.now(datetime.UTC)
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer.certificate.subject if issuer else subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now + datetime.timedelta(days=min(valid_days, 0) - 1))
        .not_valid_after(now + datetime.timedelta(days=valid_days))
        .add_extension(x509.BasicConstraints(ca=issuer is None, path_length=None), critical=True)
    )
    if host is not None:
        builder = builder.add_extension(x509.SubjectAlternativeName([x509.DNSName(host)]), critical=False)
    return Identity(key, builder.sign(issuer.key if issuer else key, hashes.SHA256()))


CA = _identity("ca")
OTHER_CA = _identity("other ca")
SERVER = _identity("server", CA, "localhost")
CLIENT_ID = _identity("client", CA)
REFUSED = {
    "other authority": _identity("client", OTHER_CA),
    "expired": _identity("client", CA, valid_days=-1),
    "none": None,
}


def _file(path: Path, *parts: bytes) -> str:
    path.write_bytes(b"".join(parts))
    return str(path)


def _p12(identity: Identity, password: str) -> bytes:
    return pkcs12.serialize_key_and_certificates(
        b"waltz",
        identity.key,
        identity.certificate,
        [CA.certificate],
        BestAvailableEncryption(password.encode()),
    )


def _key_store_settings(form: str, directory: Path) -> TlsSettings:
    if form == "combined":
        return TlsSettings(key_store=_file(directory / "all.pem", SERVER.key_pem(), SERVER.pem()))
    if form == "combined, encrypted":
        store = _file(directory / "all.pem", SERVER.key_pem("secret"), SERVER.pem())
        return TlsSettings(key_store=store, key_store_password="secret")
    if form == "separate":
        certificate = _file(directory / "cert.pem", SERVER.pem())
        return TlsSettings(key_store=certificate, key_file=_file(directory / "key.pem", SERVER.key_pem()))
    if form == "directory":
        _file(directory / "tls.crt", SERVER.pem())
        _file(directory / "tls.key", SERVER.key_pem())
        return TlsSettings(key_store=str(directory))
    store = _file(directory / "all.p12", _p12(SERVER, "secret"))
    return TlsSettings(key_store=store, key_store_password="secret")


async def _talk(server: TlsSettings, client: TlsSettings, host: str = "localhost") -> str:
    """One frame there and back over TLS; gives the TLS version."""
    echo = Recorder(lambda channel, data: channel.send(frame(CLIENT.magic, 4, data)))
    async with listening(lambda: echo, tls=server_context(server)) as listener:
        recorder = Recorder()
        channel = await connect(
            Endpoint(host, listener.port), settings(), recorder, client_context(client), 5.0
        )
        body = bytes(range(256)) * 2000
        channel.send(frame(CLIENT.magic, 4, body))
        # with TLS 1.3 a refused client certificate shows only now
        await recorder.until(lambda: bool(recorder.bodies or recorder.reasons))
        if recorder.reasons:
            raise ConnectError(recorder.reasons[0])
        assert recorder.bodies == [body]
        assert channel._transport is not None
        version: str = channel._transport.get_extra_info("ssl_object").version()
        channel.close("done")
        await channel.wait_closed()
        await echo.until_closed()
        return version


_UNVERIFIED = TlsSettings(allow_unverified=True)


def _trusting(tmp_path: Path, ca: Identity = CA, **changes: object) -> TlsSettings:
    return TlsSettings(trust_store=_file(tmp_path / "trust.pem", ca.pem()), **changes)  # type: ignore[arg-type]


@pytest.mark.parametrize("form", ["combined", "combined, encrypted", "separate", "directory", "pkcs12"])
async def test_every_form_of_key_store_serves(form: str, tmp_path: Path) -> None:
    server = _key_store_settings(form, tmp_path)
    await _talk(server, _trusting(tmp_path))


async def test_without_a_key_store_the_certificate_is_self_signed_and_made_once() -> None:
    assert tls._self_signed() is tls._self_signed()
    await _talk(TlsSettings(), _UNVERIFIED)


def test_without_cryptography_only_what_needs_it_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """That package is an extra: PEM works without it, and the rest says which one is missing."""
    pem, stores = _key_store_settings("combined", tmp_path), _key_store_settings("pkcs12", tmp_path)
    monkeypatch.delitem(sys.modules, "waltz_protocol.aio.key_stores", raising=False)
    monkeypatch.delattr("waltz_protocol.aio.key_stores", raising=False)
    monkeypatch.setitem(sys.modules, "cryptography", None)
    assert server_context(pem) is not None
    assert client_context(_trusting(tmp_path)) is not None
    tls._self_signed.cache_clear()
    for wrong in (stores, TlsSettings()):
        with pytest.raises(
            TlsSettingsError, match=r"needs the package cryptography.* waltz-protocol with its extra pkcs12"
        ):
            server_context(wrong)


async def test_interop_tls_1_2_stays_allowed() -> None:
    context = client_context(_UNVERIFIED)
    assert context is not None
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    context.set_ciphers("ECDHE-RSA-AES128-GCM-SHA256")
    echo = Recorder()
    async with listening(lambda: echo, tls=server_context(TlsSettings())) as listener:
        channel = await connect(Endpoint(HOST, listener.port), settings(), Recorder(), context)
        assert channel._transport is not None
        assert channel._transport.get_extra_info("cipher")[:2] == ("ECDHE-RSA-AES128-GCM-SHA256", "TLSv1.2")
        channel.close("done")
        await channel.wait_closed()
        await echo.until_closed()


async def test_strict_mutual_tls(tmp_path: Path) -> None:
    trust = _file(tmp_path / "ca.p12", _trust_p12())
    server = TlsSettings(
        key_store=_file(tmp_path / "server.pem", SERVER.key_pem(), SERVER.pem()),
        trust_store=trust,
        trust_store_password="changeit",
    )
    client = TlsSettings(
        key_store=_file(tmp_path / "client.p12", _p12(CLIENT_ID, "s")),
        key_store_password="s",
        trust_store=trust,
        trust_store_password="changeit",
    )
    await _talk(server, client)
    with pytest.raises(ConnectError):
        await _talk(server, TlsSettings(trust_store=trust, trust_store_password="changeit"))
    stranger = TlsSettings(
        key_store=_file(tmp_path / "stranger.pem", OTHER_CA.key_pem(), OTHER_CA.pem()),
        trust_store=trust,
        trust_store_password="changeit",
    )
    with pytest.raises(ConnectError):
        await _talk(server, stranger)


def _trust_p12() -> bytes:
    return pkcs12.serialize_key_and_certificates(
        None, None, None, [CA.certificate], BestAvailableEncryption(b"changeit")
    )


@pytest.mark.parametrize("newest", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
@pytest.mark.parametrize("shown", REFUSED)
async def test_who_shows_a_certificate_that_is_refused_learns_which(
    shown: str, newest: ssl.TLSVersion, tmp_path: Path
) -> None:
    """In TLS 1.2, which is all that 0.13.2 speaks, the end comes within the handshake, else after it."""
    server = server_context(
        TlsSettings(
            key_store=_file(tmp_path / "server.pem", SERVER.key_pem(), SERVER.pem()),
            trust_store=_file(tmp_path / "ca.pem", CA.pem()),
        )
    )
    assert server is not None
    server.maximum_version = newest
    own = REFUSED[shown]
    store = None if own is None else _file(tmp_path / "own.pem", own.key_pem(), own.pem())
    client = client_context(_trusting(tmp_path, key_store=store, prefix="server.ssl"))
    async with listening(Recorder, tls=server) as listener:
        endpoint = Endpoint("localhost", listener.port)
        with pytest.raises(ConnectError) as caught:
            await connect(endpoint, settings(), Recorder(), client, 5.0)
    place = "TLS " if newest is ssl.TLSVersion.TLSv1_2 else ""
    assert str(caught.value).startswith(
        f"cannot connect to {endpoint}: the peer closed the connection (before the {place}handshake was done): "
    )
    if store is None:
        assert (
            "it may ask for a certificate, and none is shown (server.ssl.keyStore.location is not set)"
            in (str(caught.value))
        )
    else:
        assert f"it may refuse the certificate {store} (server.ssl.keyStore.location)" in str(caught.value)


async def test_client_server_13_05_an_unknown_certificate_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConnectError, match="certificate is not accepted"):
        await _talk(TlsSettings(), _trusting(tmp_path))


async def test_client_server_13_05_host_names_are_verified(tmp_path: Path) -> None:
    server = TlsSettings(key_store=_file(tmp_path / "s.pem", SERVER.key_pem(), SERVER.pem()))
    with pytest.raises(ConnectError, match="certificate is not accepted"):
        await _talk(server, _trusting(tmp_path), HOST)
    await _talk(server, _trusting(tmp_path, verify_host_name=False), HOST)
    with pytest.raises(ConnectError, match="certificate is not accepted"):
        await _talk(server, _trusting(tmp_path, OTHER_CA, verify_host_name=False), HOST)


async def test_a_trust_store_counts_even_if_unverified_is_allowed(tmp_path: Path) -> None:
    with pytest.raises(ConnectError, match="certificate is not accepted"):
        await _talk(TlsSettings(), _trusting(tmp_path, allow_unverified=True))


async def test_a_leaf_in_the_trust_store_is_trusted_as_in_java(tmp_path: Path) -> None:
    server = TlsSettings(key_store=_file(tmp_path / "s.pem", SERVER.key_pem(), SERVER.pem()))
    await _talk(server, _trusting(tmp_path, SERVER))


def test_a_trust_store_may_have_comments_in_any_encoding(tmp_path: Path) -> None:
    for comment in ("# AC RAÍZ FNMT\n".encode(), "# AC RAÍZ FNMT\n".encode("latin-1"), b"\x00\xff\n"):
        context = client_context(
            TlsSettings(trust_store=_file(tmp_path / "ca.pem", comment, CA.pem(), comment))
        )
        assert context is not None
        assert len(context.get_ca_certs()) == 1


def test_safety_f3_nobody_verifying_needs_an_explicit_setting() -> None:
    with pytest.raises(
        TlsSettingsError, match=r"^client\.ssl\.trustStore\.location is not set.*allowUnverified"
    ):
        client_context(TlsSettings(prefix="client.ssl"))
    context = client_context(_UNVERIFIED)
    assert context is not None
    assert context.verify_mode is ssl.CERT_NONE


def test_disabled_means_plaintext() -> None:
    assert server_context(TlsSettings(enabled=False)) is None
    assert client_context(TlsSettings(enabled=False)) is None


@pytest.mark.parametrize(("days", "words"), [(2, ["expired on"]), (-2, ["is not valid before"]), (0, [])])
def test_a_certificate_of_another_time_is_loaded_with_a_warning(
    days: int,
    words: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    now = time.time() + days * 86_400
    clock = types.SimpleNamespace(time=lambda: now, strftime=time.strftime, gmtime=time.gmtime)
    monkeypatch.setattr(tls, "time", clock)
    for form in ("combined", "directory", "pkcs12"):
        caplog.clear()
        wanted = _key_store_settings(form, tmp_path)
        assert server_context(wanted)
        said = [record.getMessage() for record in caplog.records]
        place = "tls.crt" if form == "directory" else Path(str(wanted.key_store)).name
        assert len(said) == len(words)
        assert all(f"{place} (ssl.keyStore.location) {word} 20" in said[0] for word in words)


def _refused(settings_: TlsSettings) -> str:
    with pytest.raises(TlsSettingsError) as caught:
        server_context(settings_)
    assert caught.value.user_error
    text = str(caught.value)
    assert "\n" not in text
    return text


def test_a_java_key_store_is_refused_with_the_command_that_converts_it(tmp_path: Path) -> None:
    store = _file(tmp_path / "keys.jks", b"\xfe\xed\xfe\xed\0\0\0\2")
    text = _refused(TlsSettings(key_store=store, prefix="server.ssl"))
    assert "server.ssl.keyStore.location" in text
    assert f"keytool -importkeystore -srckeystore {store} -destkeystore {tmp_path}/keys.p12" in text
    good = _file(tmp_path / "s.pem", SERVER.key_pem(), SERVER.pem())
    assert "keytool" in _refused(TlsSettings(key_store=good, trust_store=store))


def test_what_cannot_be_used_is_one_clear_line(tmp_path: Path) -> None:
    missing = str(tmp_path / "none.pem")
    assert _refused(TlsSettings(key_store=missing, prefix="server.ssl")) == (
        f"cannot read {missing} (server.ssl.keyStore.location): No such file or directory"
    )
    good = _file(tmp_path / "s.pem", SERVER.key_pem(), SERVER.pem())
    assert "No such file" in _refused(TlsSettings(key_store=good, key_file=missing))
    assert "No such file" in _refused(TlsSettings(key_store=good, trust_store=missing))
    encrypted = _file(tmp_path / "e.pem", SERVER.key_pem("secret"), SERVER.pem())
    assert "does not open with ssl.keyStore.password" in _refused(
        TlsSettings(key_store=encrypted, key_store_password="wrong")
    )
    assert "does not open with ssl.keyStore.password" in _refused(TlsSettings(key_store=encrypted))
    no_key = _file(tmp_path / "c.pem", SERVER.pem())
    assert "no usable private key" in _refused(TlsSettings(key_store=no_key))
    mixed = _file(tmp_path / "m.pem", CLIENT_ID.key_pem(), SERVER.pem())
    assert "does not belong to" in _refused(TlsSettings(key_store=mixed))
    p12 = _file(tmp_path / "s.p12", _p12(SERVER, "secret"))
    assert "keyStore.password is wrong" in _refused(TlsSettings(key_store=p12, key_store_password="no"))
    assert "no private key" in _refused(
        TlsSettings(key_store=_file(tmp_path / "t.p12", _trust_p12()), key_store_password="changeit")
    )
    junk = _file(tmp_path / "junk", b"hello")
    assert "neither PEM nor PKCS#12" in _refused(TlsSettings(key_store=junk))
    assert "neither PEM nor PKCS#12" in _refused(TlsSettings(key_store=good, trust_store=junk))
    key_only = _file(tmp_path / "k.pem", SERVER.key_pem())
    assert "no certificate to trust" in _refused(TlsSettings(key_store=good, trust_store=key_only))


def test_an_unreadable_key_is_one_clear_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def denied(self: Path) -> bytes:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "read_bytes", denied)
    text = _refused(TlsSettings(key_store="/etc/key.pem", prefix="storage.ssl"))
    assert text == "cannot read /etc/key.pem (storage.ssl.keyStore.location): Permission denied"


class Spy(ssl.SSLContext):
    """Keeps what is in the file that it is to load, its path and mode."""

    seen: list[tuple[Path, int, bytes]]

    def load_cert_chain(self, certfile: object, keyfile: object = None, password: object = None) -> None:
        path = Path(str(certfile))
        self.seen = [(path, stat.S_IMODE(path.stat().st_mode), path.read_bytes())]


def _no_memory_files(monkeypatch: pytest.MonkeyPatch) -> None:
    """As where a system has none (macOS), or does not permit them."""
    monkeypatch.delattr(os, "memfd_create", raising=False)


@pytest.mark.skipif(not hasattr(os, "memfd_create"), reason="the system has no files in memory")
def test_private_keys_touch_no_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """So no temporary folder is needed, which may be full, or mounted for reading only."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "missing"))
    spy = Spy(ssl.PROTOCOL_TLS_SERVER)
    before = len(os.listdir("/proc/self/fd"))
    tls._load_pem_chain(spy, *tls._self_signed(), "a key")
    assert spy.seen[0][0].is_relative_to("/proc/self/fd")
    assert b"ENCRYPTED PRIVATE KEY" in spy.seen[0][2]
    assert len(os.listdir("/proc/self/fd")) <= before
    assert server_context(_key_store_settings("pkcs12", tmp_path)) is not None
    assert server_context(TlsSettings()) is not None


def test_without_files_in_memory_they_touch_the_disk_encrypted_and_private_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _no_memory_files(monkeypatch)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    spy = Spy(ssl.PROTOCOL_TLS_SERVER)
    tls._load_pem_chain(spy, *tls._self_signed(), "a key")
    assert spy.seen[0][0].parent == tmp_path
    assert spy.seen[0][1] == 0o600
    assert b"ENCRYPTED PRIVATE KEY" in spy.seen[0][2]
    assert list(tmp_path.iterdir()) == []


def test_where_neither_memory_nor_a_folder_holds_a_key_the_setting_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _no_memory_files(monkeypatch)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "missing"))
    step = "no temporary folder can be written (No such file or directory): set TMPDIR to one that can, or"
    for wanted, what in (
        (TlsSettings(prefix="server.ssl"), "the self-signed certificate (server.ssl.keyStore.location is"),
        (_key_store_settings("pkcs12", tmp_path), f"the key in {tmp_path / 'all.p12'} (ssl.keyStore.locatio"),
    ):
        assert _refused(wanted).startswith(what)
        assert step in _refused(wanted)


async def test_plaintext_on_a_tls_port_is_closed(caplog: pytest.LogCaptureFixture) -> None:
    server = Recorder()
    async with listening(lambda: server, tls=server_context(TlsSettings())) as listener:
        reader, writer = await asyncio.open_connection(HOST, listener.port)
        writer.write(b"\x48\x00\x00\x00\x00\x00\x00" * 3)
        try:
            async with asyncio.timeout(10):
                await reader.read()
        except ConnectionError:
            pass
        writer.close()
        with pytest.raises(ConnectError, match=r"\(before the handshake was done\): is TLS on at both ends"):
            await connect(Endpoint(HOST, listener.port), settings(), Recorder(), None, 5.0)
        with pytest.raises(
            ConnectError,
            match=r"cannot connect to .*TLS failed: the peer does not speak TLS at this port: WRONG",
        ):
            async with listening(Recorder) as plain:
                await connect(
                    Endpoint(HOST, plain.port), settings(), Recorder(), client_context(_UNVERIFIED), 5.0
                )
    assert "ready" not in server.events


def test_what_a_verified_peer_shows_of_its_certificate() -> None:
    shown = shown_certificate({"notAfter": "Jan  1 00:00:10 1970 GMT", "serialNumber": "0A1B"})
    assert shown == ShownCertificate("a1b", 10.0)
    assert shown_certificate({}) is None  # one that was not verified
    assert shown_certificate(None) is None


@pytest.mark.parametrize("tls_enabled", [True, False])
async def test_a_connection_that_is_cancelled_before_its_protocol_is_informed_is_cut(
    tls_enabled: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """asyncio closes such a transport without an effect: the handshake would be completed, for nobody."""

    class Cancelling(Channel):
        def __init__(self, *args: Any, **options: Any) -> None:
            super().__init__(*args, **options)
            asyncio.get_running_loop().call_soon(connecting.cancel)

    monkeypatch.setattr("waltz_protocol.aio.connector.Channel", Cancelling)
    tls_ = server_context(TlsSettings()) if tls_enabled else None
    context = client_context(_UNVERIFIED) if tls_enabled else None
    client = Recorder()
    async with listening(Recorder, tls=tls_) as listener:
        connecting = spawn(connect(Endpoint(HOST, listener.port), settings(), client, context), "connecting")
        with pytest.raises(asyncio.CancelledError):
            await connecting
        await asyncio.sleep(0.2)
        assert (client.events, listener.channels, listener.handshakes) == (["closed"], frozenset(), 0)


def test_passwords_are_not_in_the_repr() -> None:
    settings = TlsSettings(key_store_password="sesame", trust_store_password="sesame")
    assert "sesame" not in repr(settings)
