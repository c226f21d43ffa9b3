"""Key stores and trust stores: PEM, PKCS#12, Java key stores. First byte: which of the two. The rest is the
file."""

from __future__ import annotations

import datetime
import tempfile
import warnings
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
    pkcs12,
)
from cryptography.x509.oid import NameOID

from tests.fuzz.target import Target
from waltz_protocol.aio.tls import TlsSettings, client_context
from waltz_protocol.errors import TlsSettingsError

PASSWORD = "changeit"


@cache
def _file() -> tuple[tempfile.TemporaryDirectory[str], Path]:
    directory = tempfile.TemporaryDirectory(prefix="waltz-fuzz-")
    return directory, Path(directory.name, "store")


def check(data: bytes) -> None:
    if not data:
        return
    path = _file()[1]
    path.write_bytes(data[1:])
    if data[0] & 1:
        settings = TlsSettings(key_store=str(path), key_store_password=PASSWORD, allow_unverified=True)
    else:
        settings = TlsSettings(trust_store=str(path), trust_store_password=PASSWORD)
    try:
        with warnings.catch_warnings():  # the library remarks on encodings that it may refuse one day
            warnings.simplefilter("ignore")
            client_context(settings)
    except TlsSettingsError as error:
        text = str(error)
        assert "\n" not in text, "a mistake is one line"


def seeds() -> Iterator[bytes]:
    """Made anew each time (keys are random): the corpus in the repository keeps one of each."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "fuzz")])
    start = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(start)
        .not_valid_after(start + datetime.timedelta(days=36500))
        .sign(key, hashes.SHA256())
    )
    pem = certificate.public_bytes(Encoding.PEM)
    plain = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    secret = BestAvailableEncryption(PASSWORD.encode())
    fast = PrivateFormat.PKCS12.encryption_builder().kdf_rounds(1).build(PASSWORD.encode())
    for side in (b"\0", b"\1"):
        yield side + pem
        yield side + plain + pem
        yield side + key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, secret) + pem
        yield side + pkcs12.serialize_key_and_certificates(b"k", key, certificate, None, fast)
        yield side + pkcs12.serialize_java_truststore([pkcs12.PKCS12Certificate(certificate, b"c")], fast)
        yield side + b"\xfe\xed\xfe\xed\0\0\0\2"
        yield side + b"-----BEGIN"


TARGET = Target(check, seeds, memory_bytes=4 << 20, max_input_bytes=4096)
