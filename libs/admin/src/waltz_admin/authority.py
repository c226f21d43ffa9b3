"""Making keys and certificates: a self-signed authority per cluster, and certificates it signs. Times are
seconds since the epoch. The operator keeps them in Secrets, `waltz tls` in files.

Keys are ECDSA P-256: processes of release 0.13.2 (Java 8 and later) speak it, and a key is made in a
millisecond.
"""

import datetime
import hashlib
import ipaddress
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

MAX_COMMON_NAME = 64
_NAME_DIGITS = 8
_NOT_PEM = "no certificate in PEM form"
_NO_CERTIFICATE = (ValueError, x509.InvalidVersion)
_NOT_SUPPORTED = (UnsupportedAlgorithm, x509.UnsupportedGeneralNameType, x509.DuplicateExtension)
"""What `cryptography` raises, later than when it reads a certificate, for one that OpenSSL and so our
processes may take."""
BACKDATE_SECONDS = 300
"""Certificates begin this much earlier: clocks of machines differ."""


class TlsMaterialError(Exception):
    """A certificate or key cannot be read, or not be made; the text names it, or the name that is wrong."""

    retriable = False
    user_error = True


@dataclass(frozen=True, slots=True)
class KeyPair:
    """A certificate and its private key, PEM."""

    certificate: bytes
    key: bytes


@dataclass(frozen=True, slots=True)
class CertificateInfo:
    """What matters of a certificate."""

    not_before: float
    not_after: float
    names: tuple[str, ...]
    key_id: bytes
    """Of the certificate's own key."""
    issuer_key_id: bytes
    """Of the key that signed it; its own for an authority."""
    common_name: str = ""
    serial: str = ""
    """In hexadecimal."""
    serves: bool = True
    """Whether who accepts a connection may show it (extended key usage; True where it names none)."""
    connects: bool = True
    """Whether who begins a connection may show it."""


def _new_key() -> ec.EllipticCurvePrivateKey:
    return ec.generate_private_key(ec.SECP256R1())


def _key_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


def _time(seconds: float) -> datetime.datetime:
    return datetime.datetime.fromtimestamp(int(seconds), datetime.UTC)


def _name(common_name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name[:MAX_COMMON_NAME])])


def _general_name(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        pass
    try:
        return x509.DNSName(name)
    except ValueError:
        raise TlsMaterialError(f"{name!r} is neither a DNS name in ASCII nor an IP address") from None


def make_authority(name: str, now: float, lifetime_seconds: float) -> KeyPair:
    """A new self-signed authority. Its name ends with digits of its key: Java, which ZooKeeper is written in,
    takes of two authorities with the same name in one file the last only, and while one replaces another both
    are in it."""
    key = _new_key()
    public = key.public_key()
    identifier = x509.SubjectKeyIdentifier.from_public_key(public)
    digits = identifier.digest.hex()[:_NAME_DIGITS]
    subject = _name(f"{name[: MAX_COMMON_NAME - _NAME_DIGITS - 1]} {digits}")
    certificate = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(public)
        .serial_number(x509.random_serial_number())
        .not_valid_before(_time(now - BACKDATE_SECONDS))
        .not_valid_after(_time(now + lifetime_seconds))
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(
            x509.KeyUsage(
                digital_signature=False,
                content_commitment=False,
                key_encipherment=False,
                data_encipherment=False,
                key_agreement=False,
                key_cert_sign=True,
                crl_sign=True,
                encipher_only=False,
                decipher_only=False,
            ),
            critical=True,
        )
        .add_extension(identifier, critical=False)
        .sign(key, hashes.SHA256())
    )
    return KeyPair(certificate.public_bytes(serialization.Encoding.PEM), _key_pem(key))


def issue(
    authority: KeyPair, common_name: str, names: Sequence[str], now: float, lifetime_seconds: float
) -> KeyPair:
    """A certificate for both sides of a connection, signed by the authority. `names`: DNS names and
    addresses it covers.

    TlsMaterialError when the authority is unreadable, or one of `names` cannot be in a certificate.
    """
    signer, issuer = _load(authority.certificate, "the authority"), _load_key(authority.key)
    key = _new_key()
    public = key.public_key()
    certificate = (
        x509.CertificateBuilder()
        .subject_name(_name(common_name))
        .issuer_name(signer.subject)
        .public_key(public)
        .serial_number(x509.random_serial_number())
        .not_valid_before(_time(now - BACKDATE_SECONDS))
        .not_valid_after(_time(min(now + lifetime_seconds, signer.not_valid_after_utc.timestamp())))
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(
            x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]),
            critical=False,
        )
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(public), critical=False)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(issuer.public_key()), critical=False
        )
        .add_extension(
            x509.SubjectAlternativeName([_general_name(name) for name in names]),
            critical=False,
        )
        .sign(issuer, hashes.SHA256())
    )
    return KeyPair(certificate.public_bytes(serialization.Encoding.PEM), _key_pem(key))


def describe(certificate: bytes, what: str) -> CertificateInfo:
    """The (first) certificate of a PEM file; TlsMaterialError names `what` when there is none, or one with
    something in it that is not supported here, which it names too."""
    try:
        return _described(certificate)
    except _NO_CERTIFICATE:
        raise TlsMaterialError(f"{what}: {_NOT_PEM}") from None
    except _NOT_SUPPORTED as error:
        raise TlsMaterialError(f"{what}: a certificate that is not supported: {error}") from None


def key_id(certificate: bytes) -> bytes:
    """The id of the key of a certificate in PEM form. Of one that cannot be read the digest of its bytes,
    which distinguishes it from all others as well."""
    try:
        return describe(certificate, "a certificate").key_id
    except TlsMaterialError:
        return hashlib.sha256(certificate).digest()


@lru_cache(maxsize=4096)  # an operator reads the same few certificates of every cluster in each pass
def _described(certificate: bytes) -> CertificateInfo:
    found = x509.load_pem_x509_certificate(certificate)
    try:
        names = found.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        addresses = (str(address) for address in names.get_values_for_type(x509.IPAddress))
        listed = tuple(sorted((*names.get_values_for_type(x509.DNSName), *addresses)))
    except x509.ExtensionNotFound:
        listed = ()
    own = x509.SubjectKeyIdentifier.from_public_key(found.public_key()).digest
    try:
        signer = found.extensions.get_extension_for_class(x509.AuthorityKeyIdentifier).value.key_identifier
    except x509.ExtensionNotFound:
        signer = None
    return CertificateInfo(
        found.not_valid_before_utc.timestamp(),
        found.not_valid_after_utc.timestamp(),
        listed,
        own,
        signer or own,
        "".join(str(part.value) for part in found.subject.get_attributes_for_oid(NameOID.COMMON_NAME)),
        f"{found.serial_number:x}",
        _may(found, ExtendedKeyUsageOID.SERVER_AUTH),
        _may(found, ExtendedKeyUsageOID.CLIENT_AUTH),
    )


def _may(certificate: x509.Certificate, use: x509.ObjectIdentifier) -> bool:
    try:
        listed = set(certificate.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value)
    except x509.ExtensionNotFound:
        return True
    return not listed.isdisjoint({use, ExtendedKeyUsageOID.ANY_EXTENDED_KEY_USAGE})


@lru_cache(maxsize=4096)
def refuses(bundle: bytes, shown: bytes) -> bool:
    """Whether who trusts the authorities of the bundle refuses who shows this certificate (PEM, with those
    that it comes with): none of them is in the bundle, or signed by one of it. False where that is not
    certain: nothing can be read, or a signature cannot be checked."""
    try:
        trusted, chain = x509.load_pem_x509_certificates(bundle), x509.load_pem_x509_certificates(shown)
    except _NO_CERTIFICATE:
        return False
    return not any(one in trusted or any(_signed(one, by) for by in trusted) for one in chain)


def _signed(certificate: x509.Certificate, by: x509.Certificate) -> bool:
    try:
        certificate.verify_directly_issued_by(by)
    except UnsupportedAlgorithm:
        return True
    except (ValueError, TypeError, InvalidSignature):
        return False
    return True


@lru_cache(maxsize=4096)
def lacks_of_key(key: bytes, certificate: bytes) -> str:
    """Why no process can start with this private key and (first) certificate, both PEM: what the key lacks,
    as it follows "no private key that ..."; empty when nothing is known to be wrong."""
    try:
        private, public = serialization.load_pem_private_key(key, None), _load(certificate, "").public_key()
    except TypeError:
        return "needs no password"
    except (ValueError, UnsupportedAlgorithm):  # processes read it with OpenSSL, which knows more forms
        return "" if b"PRIVATE KEY-----" in key else "can be read"
    except TlsMaterialError:
        return ""
    return "" if private.public_key() == public else "belongs to the certificate"


def can_sign(authority: KeyPair, now: float) -> bool:
    """Whether the key can be read, belongs to the certificate, and the certificate can be read and is valid
    now."""
    try:
        info = describe(authority.certificate, "the authority")
        certificate, key = _load(authority.certificate, "the authority"), _load_key(authority.key)
    except TlsMaterialError:
        return False
    return key.public_key() == certificate.public_key() and info.not_before <= now < info.not_after


@lru_cache(maxsize=1024)
def split(bundle: bytes) -> tuple[bytes, ...]:
    """The certificates of a PEM bundle, each as PEM of its own; none when it holds none."""
    try:
        found = x509.load_pem_x509_certificates(bundle)
    except _NO_CERTIFICATE:
        return ()
    return tuple(one.public_bytes(serialization.Encoding.PEM) for one in found)


def _load(certificate: bytes, what: str) -> x509.Certificate:
    try:
        return x509.load_pem_x509_certificate(certificate)
    except _NO_CERTIFICATE:
        raise TlsMaterialError(f"{what}: {_NOT_PEM}") from None


def _load_key(key: bytes) -> ec.EllipticCurvePrivateKey:
    try:
        loaded = serialization.load_pem_private_key(key, None)
    except (ValueError, TypeError, UnsupportedAlgorithm):
        raise TlsMaterialError("the authority's private key cannot be read") from None
    if not isinstance(loaded, ec.EllipticCurvePrivateKey):
        raise TlsMaterialError("the authority's private key is not an elliptic curve key")
    return loaded
