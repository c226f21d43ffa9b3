"""What `ssl` cannot read or make: PKCS#12 stores, days of expiry, self-signed certificates.

The one module that needs `cryptography` (the extra `pkcs12`), so `tls` imports it when it is used: a client
with PEM files, or without TLS, runs without that package.
"""

import datetime
import ipaddress
import re
import secrets
import socket

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.asymmetric.types import PrivateKeyTypes
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    PrivateFormat,
    pkcs12,
)
from cryptography.x509.oid import NameOID

_KEY_BAG = re.compile(rb"\x06\x0b\x2a\x86\x48\x86\xf7\x0d\x01\x0c\x0a\x01[\x01\x02]")
"""The object identifiers keyBag and pkcs8ShroudedKeyBag; stores have them outside of what is encrypted."""
_ALIAS = re.compile(rb"\x06\x09\x2a\x86\x48\x86\xf7\x0d\x01\x09\x14\x31\x81?.\x1e\x81?(.)", re.DOTALL)
"""The attribute friendlyName, a set of one BMPString, up to the length of that."""


def key_and_chain(content: bytes, password: str | None) -> tuple[bytes, str] | None:
    """The key and its certificates as PEM, and the passphrase of the key; None when one of them is not in the
    store. ValueError for what is no PKCS#12 or has another password."""
    key, certificate, chain = pkcs12.load_key_and_certificates(content, _secret(password))
    if key is None or certificate is None:
        return None
    key_pem, passphrase = _encrypted(key)
    return key_pem + b"".join(c.public_bytes(Encoding.PEM) for c in (certificate, *chain)), passphrase


def key_aliases(content: bytes) -> list[str]:
    """The names of the private keys in a store, in their order in the file: `cryptography` gives the first
    one only."""
    names = []
    for bag in _KEY_BAG.split(content)[1:]:
        found = _ALIAS.search(bag)
        name = bag[found.end() : found.end() + found[1][0]] if found is not None else b""
        names.append(name.decode("utf-16-be", "replace") or "one without a name")
    return names


def certificates(content: bytes, password: str | None) -> bytes:
    """All certificates of a store as PEM. ValueError as above."""
    store = pkcs12.load_pkcs12(content, _secret(password))
    found = [store.cert, *store.additional_certs]
    return b"".join(c.certificate.public_bytes(Encoding.PEM) for c in found if c is not None)


def validity(pem: bytes) -> tuple[float, float] | None:
    """From when to when the first certificate is valid, in seconds since the epoch; None where only OpenSSL
    can read it."""
    try:
        found = x509.load_pem_x509_certificates(pem)[0]
        return found.not_valid_before_utc.timestamp(), found.not_valid_after_utc.timestamp()
    except (ValueError, x509.InvalidVersion):
        return None


def self_signed() -> tuple[bytes, str]:
    """A fresh key and certificate, PEM, and the passphrase of the key.

    RSA, as that of 0.13.2.
    """
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "waltz self-signed")])
    now = datetime.datetime.now(datetime.UTC)
    names: list[x509.GeneralName] = [x509.DNSName("localhost")]
    host = socket.gethostname()
    if host.isascii() and host != "localhost":
        names.append(x509.DNSName(host))
    names.append(x509.IPAddress(ipaddress.ip_address("127.0.0.1")))
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=3650))
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    key_pem, passphrase = _encrypted(key)
    return key_pem + certificate.public_bytes(Encoding.PEM), passphrase


def _encrypted(key: PrivateKeyTypes) -> tuple[bytes, str]:
    passphrase = secrets.token_hex(16)
    encryption = BestAvailableEncryption(passphrase.encode())
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, encryption), passphrase


def _secret(password: str | None) -> bytes | None:
    return password.encode() if password else None
