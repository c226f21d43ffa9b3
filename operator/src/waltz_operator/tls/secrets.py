"""Certificates as Secrets: one per role with ``tls.crt``, ``tls.key``, ``ca.crt`` (the shape Kubernetes and cert-manager use), and
``<cluster>-tls-ca`` with the authority (``tls.crt``, ``tls.key``; while it is replaced also ``next.crt``, ``next.key`` or
``previous.crt``), which no pod mounts.

Reading is total: a Secret that lacks something or cannot be read counts as absent and is made again. Pure, but for the randomness
of new keys.
"""

import base64
import binascii
import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from waltz_operator.tls.authority import KeyPair, TlsMaterialError, describe, issue, make_authority, split
from waltz_operator.tls.rotation import (
    AUTHORITY_SECONDS,
    CERTIFICATE_SECONDS,
    Authorities,
    Certified,
    Decision,
    Step,
)

AUTHORITY = "ca"
_HASH_DIGITS = 16

Data = Mapping[str, bytes]


@dataclass(frozen=True, slots=True)
class Subject:
    """Whom a certificate is for: ``names`` are DNS names and addresses."""

    common_name: str
    names: tuple[str, ...]


def secret_data(secret: Mapping[str, Any] | None) -> dict[str, bytes]:
    """The decoded contents of a Secret as the API server shows it; what is not base64 is left out."""
    found: dict[str, bytes] = {}
    for key, value in ((secret or {}).get("data") or {}).items():
        try:
            found[key] = base64.b64decode(value, validate=True)
        except (binascii.Error, ValueError, TypeError):
            continue
    return found


def material_hash(data: Data) -> str | None:
    """Changes whenever a pod has to take over something new; None while the Secret is not complete."""
    keys = ("tls.crt", "tls.key", "ca.crt")
    if any(not data.get(key) for key in keys):
        return None
    return hashlib.sha256(b"\0".join(data[key] for key in keys)).hexdigest()[:_HASH_DIGITS]


def read_authorities(ca: Data) -> Authorities | None:
    """What the authority's Secret holds; None when nothing in it can sign."""
    try:
        if not ca.get("tls.key"):
            return None
        current = describe(ca.get("tls.crt", b""), "the authority")
        following = describe(ca["next.crt"], "the next authority") if ca.get("next.key") else None
        previous = describe(ca["previous.crt"], "the previous authority") if ca.get("previous.crt") else None
    except (TlsMaterialError, KeyError):
        return None
    return Authorities(current, following, previous)


def read_certificate(role: Data) -> Certified | None:
    """A role's certificate; None when there is no usable one."""
    if not role.get("tls.key"):
        return None
    try:
        info = describe(role.get("tls.crt", b""), "the certificate")
        trusts = frozenset(
            describe(one, "a trusted authority").key_id for one in split(role.get("ca.crt", b""))
        )
    except TlsMaterialError:
        return None
    return Certified(info, trusts)


@dataclass(frozen=True, slots=True)
class Lifetimes:
    """Seconds."""

    authority: float = AUTHORITY_SECONDS
    certificate: float = CERTIFICATE_SECONDS


def carry_out(
    decision: Decision,
    cluster: str,
    ca: Data,
    wanted: Mapping[str, Subject],
    now: float,
    lifetimes: Lifetimes | None = None,
) -> dict[str, dict[str, bytes]]:
    """The contents of the Secrets to write, by role or AUTHORITY; none for NOTHING. TlsMaterialError."""
    lives = lifetimes or Lifetimes()
    match decision.step:
        case Step.NOTHING:
            return {}
        case Step.MAKE_AUTHORITY:
            pair = make_authority(f"{cluster} authority", now, lives.authority)
            return {AUTHORITY: {"tls.crt": pair.certificate, "tls.key": pair.key}}
        case Step.ANNOUNCE_AUTHORITY:
            pair = make_authority(f"{cluster} authority", now, lives.authority)
            return {AUTHORITY: {**ca, "next.crt": pair.certificate, "next.key": pair.key}}
        case Step.SWITCH_AUTHORITY:
            return {
                AUTHORITY: {
                    "tls.crt": ca["next.crt"],
                    "tls.key": ca["next.key"],
                    "previous.crt": ca["tls.crt"],
                }
            }
        case Step.RETIRE_AUTHORITY:
            return {AUTHORITY: {"tls.crt": ca["tls.crt"], "tls.key": ca["tls.key"]}}
        case Step.SIGN_CERTIFICATES:
            return {role: _sign(ca, wanted[role], now, lives) for role in decision.roles}


def _sign(ca: Data, subject: Subject, now: float, lives: Lifetimes) -> dict[str, bytes]:
    authority = KeyPair(ca["tls.crt"], ca["tls.key"])
    pair = issue(authority, subject.common_name, subject.names, now, lives.certificate)
    bundle = b"".join(ca[key] for key in ("tls.crt", "next.crt", "previous.crt") if ca.get(key))
    return {"tls.crt": pair.certificate, "tls.key": pair.key, "ca.crt": bundle}


def secret_object(
    namespace: str,
    name: str,
    data: Data,
    labels: Mapping[str, str],
    owner: Mapping[str, Any],
) -> dict[str, Any]:
    """The Secret for server-side apply. ``owner``: the owner reference."""
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
