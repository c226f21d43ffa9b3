"""A certificate authority for one test: keys and certificates as files, PEM or PKCS#12."""

import datetime
import ipaddress
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
    pkcs12,
)
from cryptography.x509.oid import NameOID

PASSWORD = "changeit"

PrivateKey = rsa.RSAPrivateKey | ec.EllipticCurvePrivateKey
MakeKey = Callable[[], PrivateKey]


def elliptic() -> PrivateKey:
    """As those that the operator and `waltz tls` make."""
    return ec.generate_private_key(ec.SECP256R1())


def of_rsa() -> PrivateKey:
    return rsa.generate_private_key(public_exponent=65537, key_size=2048)


@dataclass(frozen=True)
class Identity:
    """A key and its certificate."""

    key: PrivateKey
    certificate: x509.Certificate


class Authority:
    """Signs identities and writes them below `directory`; `make_key`: for each of them and its own."""

    def __init__(self, directory: Path, name: str = "ca", make_key: MakeKey = elliptic) -> None:
        self._directory = directory
        self._name = name
        self._make_key = make_key
        self._identity = _identity(name, make_key(), None, ())
        self.trust_store = self._write(f"{name}.pem", self._identity.certificate.public_bytes(Encoding.PEM))

    def pem(self, name: str, *hosts: str, expired: bool = False) -> str:
        """Key and certificate in one PEM file; `hosts` are host names or addresses."""
        made = _identity(name, self._make_key(), self._identity, hosts, expired=expired)
        key = made.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
        file = f"{self._name}-{name}{'-expired' if expired else ''}.pem"
        return self._write(file, key + made.certificate.public_bytes(Encoding.PEM))

    def pkcs12(self, name: str, *hosts: str) -> str:
        """Key and certificate in one PKCS#12 file, opened by `PASSWORD`."""
        made = _identity(name, self._make_key(), self._identity, hosts)
        content = pkcs12.serialize_key_and_certificates(
            name.encode(),
            made.key,
            made.certificate,
            [self._identity.certificate],
            BestAvailableEncryption(PASSWORD.encode()),
        )
        return self._write(f"{self._name}-{name}.p12", content)

    def _write(self, name: str, content: bytes) -> str:
        path = self._directory / name
        path.write_bytes(content)
        return str(path)


def _identity(
    name: str, key: PrivateKey, issuer: Identity | None, hosts: tuple[str, ...], *, expired: bool = False
) -> Identity:
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    now = datetime.datetime.now(datetime.UTC) - datetime.timedelta(days=3 if expired else 0)
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer.certificate.subject if issuer else subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.BasicConstraints(ca=issuer is None, path_length=None), critical=True)
    )
    if hosts:
        builder = builder.add_extension(
            x509.SubjectAlternativeName([_general_name(host) for host in hosts]), critical=False
        )
    return Identity(key, builder.sign(issuer.key if issuer else key, hashes.SHA256()))


def _general_name(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)
