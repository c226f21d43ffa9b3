"""TLS contexts from configuration.

TLS is on by default: a listening side without a key makes a self-signed certificate, once per process. What
0.13.2 did silently, accepting any certificate for want of a trust store, needs `allow_unverified` here. Keys
and certificates are PEM (one file, or key and certificate apart, or a directory with tls.crt, tls.key and
ca.crt as Kubernetes mounts it) or PKCS#12, recognised by content; a Java key store in its own format is
refused with the command that converts it.

The contexts follow their files: `following`.

TLS 1.2 stays allowed: processes of release 0.13.2 speak nothing newer.
"""

import contextlib
import errno
import functools
import logging
import os
import ssl
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any

from waltz_protocol.aio.following import FollowingContext
from waltz_protocol.errors import TlsSettingsError
from waltz_protocol.extras import with_extra
from waltz_protocol.types import ShownCertificate

_log = logging.getLogger(__name__)

ClientTls = FollowingContext
ServerTls = ssl.SSLContext

_problems: dict[tuple[Path, str], str] = {}
"""What is wrong with the certificate of a file that a setting names, as of the last time it was loaded;
empty: nothing. Bounded by the settings of the process."""

_JKS_MAGICS = (b"\xfe\xed\xfe\xed", b"\xce\xce\xce\xce")  # JKS, JCEKS


@dataclass(frozen=True)
class TlsSettings:
    """The settings under one prefix (`server.ssl`, `client.ssl`, …); `prefix` is used in messages only.

    `key_store_type` and `trust_store_type` are kept for configuration files of 0.13.2: the format is seen
    from the content. `key_file` names a private key that is not in `key_store`.
    """

    enabled: bool = True
    key_store: str | None = None
    key_store_password: str | None = field(default=None, repr=False)
    key_store_type: str = "JKS"
    trust_store: str | None = None
    trust_store_password: str | None = field(default=None, repr=False)
    trust_store_type: str = "JKS"
    allow_unverified: bool = False
    verify_host_name: bool = True
    key_file: str | None = None
    prefix: str = "ssl"


def server_context(settings: TlsSettings) -> ServerTls | None:
    """For listening. None = plaintext (`enabled` false). With a trust store, clients must show a certificate
    of it.

    Raises TlsSettingsError.
    """
    return _following(ssl.PROTOCOL_TLS_SERVER, _fill_listening, settings)


def client_context(settings: TlsSettings) -> ClientTls | None:
    """For connecting. None = plaintext (`enabled` false). A key store is the client certificate.

    With a trust store the peer's chain and (unless `verify_host_name` is false) its host name are verified,
    whatever `allow_unverified` says. Raises TlsSettingsError, also when nothing would verify the peer and
    that is not allowed.
    """
    context = _following(ssl.PROTOCOL_TLS_CLIENT, _fill_connecting, settings)
    if context is not None:
        context.why_refused = _why_refused(settings)
    return context


def _why_refused(settings: TlsSettings) -> str:
    setting = f"{settings.prefix}.keyStore.location"
    if settings.key_store is None:
        return f"it may ask for a certificate, and none is shown ({setting} is not set). Its log says why"
    return (
        f"it may refuse the certificate {settings.key_store} ({setting}): is it signed by an authority of the "
        "peer's trust store, not expired, and named in the peer's allowedPeers if it has some? Its log says why"
    )


def _following(
    protocol: int, fill: Callable[[TlsSettings, ssl.SSLContext], float | None], settings: TlsSettings
) -> FollowingContext | None:
    if not settings.enabled:
        return None
    return FollowingContext(protocol, functools.partial(fill, settings), functools.partial(_files, settings))


def _fill_listening(settings: TlsSettings, context: ssl.SSLContext) -> float | None:
    """See `following.Fill`, as `_fill_connecting`."""
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    expires = None
    if settings.key_store is None:
        what = f"the self-signed certificate ({settings.prefix}.keyStore.location is not set)"
        _load_pem_chain(context, *_self_signed(), what)
    else:
        expires = _load_key_store(context, settings)
    if settings.trust_store is not None:
        _load_trust_store(context, settings)
        context.verify_mode = ssl.CERT_REQUIRED
    return expires


def _fill_connecting(settings: TlsSettings, context: ssl.SSLContext) -> float | None:
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    if settings.trust_store is not None:
        context.check_hostname = settings.verify_host_name
        _load_trust_store(context, settings)
    elif settings.allow_unverified:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    else:
        raise TlsSettingsError(
            f"{settings.prefix}.trustStore.location is not set, so nobody would verify the peer's certificate: "
            f"set it, or {settings.prefix}.allowUnverified: true, or {settings.prefix}.enabled: false"
        )
    return _load_key_store(context, settings) if settings.key_store is not None else None


def shown_certificate(certificate: Mapping[str, Any] | None) -> ShownCertificate | None:
    """The certificate that a verified peer uses, as `ssl` shows it (`peercert`); None without one."""
    if not certificate or "notAfter" not in certificate or "serialNumber" not in certificate:
        return None
    serial = f"{int(certificate['serialNumber'], 16):x}"
    return ShownCertificate(serial, float(ssl.cert_time_to_seconds(certificate["notAfter"])))


def certificate_names(certificate: Mapping[str, Any] | None) -> tuple[str, ...]:
    """The names a verified certificate speaks for: common name of the subject and all subject alternative
    names.

    `certificate` as `ssl` shows it (`peercert`); none or an unverified one has no names.
    """
    if not certificate:
        return ()
    common = [value for part in certificate.get("subject", ()) for key, value in part if key == "commonName"]
    alternative = [value for _, value in certificate.get("subjectAltName", ())]
    return tuple(dict.fromkeys(str(name) for name in (*common, *alternative)))


def _read(path: Path, setting: str) -> bytes:
    try:
        return path.read_bytes()
    except OSError as e:
        raise TlsSettingsError(f"cannot read {path} ({setting}): {e.strerror or e}") from None


def _refuse_java_store(content: bytes, path: Path, setting: str) -> None:
    if content[:4] in _JKS_MAGICS:
        target = path.with_suffix(".p12")
        raise TlsSettingsError(
            f"{path} ({setting}) is a Java key store; convert it: "
            f"keytool -importkeystore -srckeystore {path} -destkeystore {target} -deststoretype PKCS12"
        )


def _key_store_files(settings: TlsSettings) -> tuple[Path, Path | None]:
    """The key store, and the file of its private key where that is another one."""
    path = Path(settings.key_store or "")
    key_path = Path(settings.key_file) if settings.key_file is not None else None
    return (path / "tls.crt", key_path or path / "tls.key") if os.path.isdir(path) else (path, key_path)


def _trust_store_file(settings: TlsSettings) -> Path:
    path = Path(settings.trust_store or "")
    return path / "ca.crt" if os.path.isdir(path) else path


def _files(settings: TlsSettings) -> list[Path]:
    key_store = _key_store_files(settings) if settings.key_store is not None else ()
    trust_store = (_trust_store_file(settings),) if settings.trust_store is not None else ()
    return [path for path in (*key_store, *trust_store) if path is not None]


def _load_key_store(context: ssl.SSLContext, settings: TlsSettings) -> float | None:
    """When its certificate expires, where that can be read."""
    setting = f"{settings.prefix}.keyStore.location"
    path, key_path = _key_store_files(settings)
    content = _read(path, setting)
    _refuse_java_store(content, path, setting)
    password = settings.key_store_password
    if b"-----BEGIN" in content:
        key_content = _read(key_path, setting) if key_path is not None else content
        try:
            context.load_cert_chain(path, key_path, password or "")
        except (ssl.SSLError, OSError, ValueError) as e:
            place = f"{path} with {key_path}" if key_path is not None else str(path)
            if "KEY_VALUES_MISMATCH" in (getattr(e, "reason", None) or ""):
                problem = f"the private key does not belong to the certificate in {place}"
            elif b"ENCRYPTED" in key_content:
                problem = f"the private key in {place} does not open with {settings.prefix}.keyStore.password"
            else:
                problem = f"no usable private key and certificate in {place}"
            raise TlsSettingsError(f"{problem} ({setting})") from None
        return _expires(content, path, setting)
    stores = _key_stores(f"{path} ({setting}) is not PEM: PKCS#12")
    try:
        found = stores.key_and_chain(content, password)
    except ValueError:
        raise TlsSettingsError(
            f"{path} ({setting}) is neither PEM nor PKCS#12, or {settings.prefix}.keyStore.password is wrong"
        ) from None
    if found is None:
        raise TlsSettingsError(f"{path} ({setting}) contains no private key with a certificate")
    aliases = stores.key_aliases(content)
    if len(aliases) > 1:  # Java takes one by the hash value of its alias
        raise TlsSettingsError(
            f"{path} ({setting}) contains {len(aliases)} private keys ({', '.join(aliases)}), and nothing says which "
            f"one is meant: copy that into a file of its own: keytool -importkeystore -srckeystore {path} -srcalias "
            f"ALIAS -destkeystore {path.with_suffix('.one.p12')} -deststoretype PKCS12"
        )
    try:
        _load_pem_chain(context, found[0], found[1], f"the key in {path} ({setting})")
    except ssl.SSLError as e:
        raise TlsSettingsError(f"the key in {path} ({setting}) cannot be used: {e.reason or e}") from None
    return _expires(found[0], path, setting)


def _expires(pem: bytes, path: Path, setting: str) -> float | None:
    """When the first certificate does, in seconds since the epoch; None where it cannot be read, or
    `cryptography` is not installed. One that is not valid now is loaded all the same, with a warning: it may
    be renewed at any moment, and peers that verify nobody take it."""
    try:
        found = _key_stores("the day on which a certificate expires").validity(pem)
    except TlsSettingsError:
        return None
    if found is None:
        return None
    begins, ends = found
    now, problem = time.time(), ""
    if not begins <= now <= ends:
        state, moment = ("is not valid before", begins) if now < begins else ("expired on", ends)
        problem = f"the certificate {path} ({setting}) {state} {_day(moment)}"
        if _problems.get((path, setting)) != problem:
            _log.warning("%s: peers that verify it refuse it", problem)
    _problems[path, setting] = problem
    return float(ends)


def _day(moment: float) -> str:
    return time.strftime("%Y-%m-%d at %H:%M:%S UTC", time.gmtime(moment))


def own_certificate_problem(settings: TlsSettings) -> str:
    """That the certificate which peers are shown has expired, or is not valid yet; empty where it is valid,
    where there is none, or where that cannot be read."""
    try:
        made = client_context(settings)
    except TlsSettingsError:
        return ""
    path = _key_store_files(settings)[0]
    return "" if made is None else _problems.get((path, f"{settings.prefix}.keyStore.location"), "")


def _load_trust_store(context: ssl.SSLContext, settings: TlsSettings) -> None:
    setting = f"{settings.prefix}.trustStore.location"
    path = _trust_store_file(settings)
    content = _read(path, setting)
    _refuse_java_store(content, path, setting)
    if b"-----BEGIN" not in content:
        stores = _key_stores(f"{path} ({setting}) is not PEM: PKCS#12")
        try:
            content = stores.certificates(content, settings.trust_store_password)
        except ValueError:
            raise TlsSettingsError(
                f"{path} ({setting}) is neither PEM nor PKCS#12, or {settings.prefix}.trustStore.password is wrong"
            ) from None
    try:
        # Text between the certificates may be in any encoding; OpenSSL takes ASCII only.
        text = content.decode("ascii", "replace").replace("\N{REPLACEMENT CHARACTER}", "?")
        context.load_verify_locations(cadata=text)
    except (ssl.SSLError, ValueError):
        raise TlsSettingsError(f"{path} ({setting}) contains no certificate to trust") from None
    # As in Java, every certificate of the store is an anchor, also one that is not self-signed.
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN


def _key_stores(what: str) -> ModuleType:
    """The module that needs `cryptography`; TlsSettingsError where that is not installed. `what` needs it."""
    try:
        from waltz_protocol.aio import key_stores
    except ModuleNotFoundError as missing:
        if (missing.name or "").partition(".")[0] != "cryptography":
            raise
        raise TlsSettingsError(
            f"{what} needs the package cryptography, which is not installed: {with_extra('waltz-protocol', 'pkcs12')}"
        ) from None
    return key_stores


def _load_pem_chain(context: ssl.SSLContext, pem: bytes, passphrase: str, what: str) -> None:
    """Load key and chain from memory. `ssl` reads files only, so an encrypted one exists for a moment: in
    memory, and only where the system has no such files, or does not permit them, in the temporary folder
    (mode 600). TlsSettingsError, in which the key is `what`."""
    problem: OSError | None = None
    for file_of in (_file_in_memory, _file_on_disk):
        try:
            with file_of(pem) as name:
                context.load_cert_chain(name, password=passphrase)
            return
        except ssl.SSLError:  # of the content, and an OSError too
            raise
        except OSError as e:
            problem = e
    raise TlsSettingsError(
        f"{what} cannot be loaded: it has to be in a file for a moment, and no temporary folder can be written "
        f"({(problem and problem.strerror) or problem}): set TMPDIR to one that can, or name a key and certificate "
        "as PEM files, which are read where they are"
    ) from None


@contextlib.contextmanager
def _file_in_memory(content: bytes) -> Iterator[str]:
    if not hasattr(os, "memfd_create"):
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))
    with os.fdopen(os.memfd_create("waltz-tls"), "wb") as file:
        file.write(content)
        file.flush()
        yield f"/proc/self/fd/{file.fileno()}"


@contextlib.contextmanager
def _file_on_disk(content: bytes) -> Iterator[str]:
    handle, name = tempfile.mkstemp(prefix="waltz-tls-")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
        yield name
    finally:
        os.unlink(name)


@functools.cache
def _self_signed() -> tuple[bytes, str]:
    """A key and certificate, PEM, and the passphrase of the key; the same for the whole process."""
    made: tuple[bytes, str] = _key_stores(
        "keyStore.location is not set: a self-signed certificate"
    ).self_signed()
    return made
