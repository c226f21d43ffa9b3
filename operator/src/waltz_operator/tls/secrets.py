"""Certificates as Secrets: one per role with `tls.crt`, `tls.key`, `ca.crt` (the shape Kubernetes and
cert-manager use), and `<cluster>-tls-ca` with the authority (`trust` says what is in it), which no pod
mounts.

Reading is total: a Secret that lacks something or cannot be read counts as absent and is made again. Pure,
but for the randomness of new keys.
"""

import base64
import binascii
import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from waltz_admin.authority import (
    CertificateInfo,
    KeyPair,
    TlsMaterialError,
    describe,
    issue,
    key_id,
    make_authority,
    split,
)
from waltz_operator.tls.rotation import (
    AUTHORITY_SECONDS,
    CERTIFICATE_SECONDS,
    Authorities,
    Certified,
    Decision,
    Step,
)
from waltz_operator.tls.trust import Data, Trust, read_trust

AUTHORITY = "ca"
COMBINED = "tls-combined.pem"
"""Key and certificate in one file, under the name that cert-manager gives it; ZooKeeper takes no other
form."""
_HASH_DIGITS = 16


@dataclass(frozen=True, slots=True)
class TlsSecrets:
    """The Secrets of one cluster's TLS as they are, by role, and that of the authority by its own name."""

    contents: Mapping[str, Mapping[str, bytes]] = field(default_factory=dict)
    """Empty for a Secret that is not there, or that is somebody else's where it is to be the cluster's
    own."""
    versions: Mapping[str, str] = field(default_factory=dict)
    """Their resource versions, of those that count as there."""


@dataclass(frozen=True, slots=True)
class Subject:
    """Who a certificate is for: `names` are DNS names and addresses. `combined`: with `COMBINED`."""

    common_name: str
    names: tuple[str, ...]
    combined: bool = False


def secret_data(secret: Mapping[str, Any] | None) -> dict[str, bytes]:
    """The decoded contents of a Secret as the API server shows it; what is not base64 is left out."""
    found: dict[str, bytes] = {}
    for key, value in ((secret or {}).get("data") or {}).items():
        try:
            found[key] = base64.b64decode(value, validate=True)
        except (binascii.Error, ValueError, TypeError):
            continue
    return found


class MaterialDigests(NamedTuple):
    """Of what the Secret of a role holds. `material` changes with every new key or certificate, which
    processes take over while they run; `authorities` only with who has signed the certificate or who is
    trusted, for which pods are restarted."""

    material: str
    authorities: str


def material_digests(data: Data) -> MaterialDigests | None:
    """None while the Secret is not complete. What cannot be read as certificates counts as other authorities
    with every change."""
    keys = ("tls.crt", "tls.key", "ca.crt")
    if any(not data.get(key) for key in keys):
        return None
    material = _digest(data[key] for key in keys)
    certified = read_certificate(data)
    if certified is None or not certified.trusts:
        return MaterialDigests(material, material)
    return MaterialDigests(material, _digest((certified.info.issuer_key_id, *sorted(certified.trusts))))


def _digest(parts: Iterable[bytes]) -> str:
    return hashlib.sha256(b"\0".join(parts)).hexdigest()[:_HASH_DIGITS]


def read_authorities(ca: Data, roles: Iterable[Data], now: float) -> Authorities | None:
    """The authorities of the Secret `ca` and of the roles' Secrets; None when there is none."""
    found = read_trust(ca, roles, now)
    if found is None:
        return None
    return Authorities(
        _info(found.current),
        None if found.next is None else _info(found.next.certificate),
        tuple(_info(one) for one in found.previous),
        found.signer is not None,
        found.listed,
    )


def _info(certificate: bytes) -> CertificateInfo:
    return describe(certificate, "an authority")


def read_certificate(role: Data, *, combined: bool = False) -> Certified | None:
    """A role's certificate; None when there is no usable one. `combined`: in both forms."""
    if not role.get("tls.key") or (combined and role.get(COMBINED) != _combined(role)):
        return None
    try:
        info = describe(role.get("tls.crt", b""), "the certificate")
    except TlsMaterialError:
        return None
    return Certified(info, frozenset(key_id(one) for one in split(role.get("ca.crt", b""))))


@dataclass(frozen=True, slots=True)
class Lifetimes:
    """Seconds."""

    authority: float = AUTHORITY_SECONDS
    certificate: float = CERTIFICATE_SECONDS


def carry_out(
    decision: Decision,
    cluster: str,
    ca: Data,
    roles: Mapping[str, Data],
    wanted: Mapping[str, Subject],
    now: float,
    lifetimes: Lifetimes | None = None,
) -> dict[str, dict[str, bytes]]:
    """The contents of the Secrets to write, by role or AUTHORITY; none for NOTHING. `roles`: what theirs
    hold now. TlsMaterialError."""
    lives = lifetimes or Lifetimes()
    step = decision.step
    if step is Step.NOTHING:
        return {}
    trust = read_trust(ca, roles.values(), now)
    if step is Step.MAKE_AUTHORITY or trust is None:
        return {AUTHORITY: _as("tls", _new(cluster, now, lives))}
    match step:
        case Step.REPLACE_AUTHORITY if not ca:
            # With its lasting key only: whoever creates an object owns the keys forever, besides those who
            # apply it later, and what two own is not removed by leaving it out. The next pass writes the
            # rest.
            return {AUTHORITY: {"tls.crt": trust.current}}
        case Step.REPLACE_AUTHORITY:
            following = trust.next or _new(cluster, now, lives)
            return {
                AUTHORITY: {"tls.crt": trust.current, **_as("next", following), **_previous(trust.previous)}
            }
        case Step.ANNOUNCE_AUTHORITY:
            return {AUTHORITY: {**_as("tls", _there(trust.signer)), **_as("next", _new(cluster, now, lives))}}
        case Step.SWITCH_AUTHORITY:
            return {
                AUTHORITY: {**_as("tls", _there(trust.next)), **_previous((trust.current, *trust.previous))}
            }
        case Step.RETIRE_AUTHORITY:
            return {AUTHORITY: _as("tls", _there(trust.signer))}
        case Step.TRUST_AUTHORITIES:
            return {
                role: _whole({**roles[role], "ca.crt": trust.bundle}, wanted[role]) for role in decision.roles
            }
        case Step.SIGN_CERTIFICATES | Step.SIGN_WITH_NEXT:
            signer = _there(trust.signer if step is Step.SIGN_CERTIFICATES else trust.next)
            return {role: _sign(signer, trust, wanted[role], now, lives) for role in decision.roles}


def _new(cluster: str, now: float, lives: Lifetimes) -> KeyPair:
    return make_authority(f"{cluster} authority", now, lives.authority)


def _there(pair: KeyPair | None) -> KeyPair:
    """A decision is carried out on what it was made from, so this authority is there."""
    if pair is None:
        raise TlsMaterialError("the authority that is to sign has no key")
    return pair


def _as(name: str, pair: KeyPair) -> dict[str, bytes]:
    return {f"{name}.crt": pair.certificate, f"{name}.key": pair.key}


def _previous(certificates: tuple[bytes, ...]) -> dict[str, bytes]:
    return {"previous.crt": b"".join(certificates)} if certificates else {}


def _sign(signer: KeyPair, trust: Trust, subject: Subject, now: float, lives: Lifetimes) -> dict[str, bytes]:
    pair = issue(signer, subject.common_name, subject.names, now, lives.certificate)
    made = {"tls.crt": pair.certificate, "tls.key": pair.key, "ca.crt": trust.bundle}
    return _whole(made, subject)


def _whole(data: Data, subject: Subject) -> dict[str, bytes]:
    """All that the Secret of a role holds, and nothing else."""
    kept = {key: data[key] for key in ("tls.crt", "tls.key", "ca.crt")}
    return {**kept, COMBINED: _combined(kept)} if subject.combined else kept


def _combined(data: Data) -> bytes:
    return data["tls.key"].rstrip() + b"\n" + data.get("tls.crt", b"")


def secret_object(
    namespace: str,
    name: str,
    data: Data,
    labels: Mapping[str, str],
    owner: Mapping[str, Any],
) -> dict[str, Any]:
    """The Secret for server-side apply. `owner`: the owner reference."""
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "type": "Opaque",
        "metadata": {
            "name": name,
            "namespace": namespace,
            "labels": dict(labels),
            "ownerReferences": [dict(owner)],
        },
        "data": {key: base64.b64encode(value).decode() for key, value in sorted(data.items())},
    }
