"""The certificates of one cluster in mode SelfSigned: what is to be written now, as actions. Pure, but for
the randomness of new keys.

Asked twice in a pass: before planning with `settled` False, so that missing or old certificates are made
first; and after a pass that found nothing to do with `settled` True, which lets the rotation of an
authority take one step.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress

from waltz_admin.authority import BACKDATE_SECONDS, CertificateInfo, TlsMaterialError, describe, split
from waltz_operator.api import topology
from waltz_operator.api.cluster import WaltzCluster
from waltz_operator.api.metadata import API_VERSION, LABEL_INSTANCE, LABEL_MANAGED_BY, LABEL_NAME, MANAGED_BY
from waltz_operator.api.security import HOUR, TlsMode
from waltz_operator.model.actions import ApplyObject, EmitEvent
from waltz_operator.model.snapshot import ObjectKey
from waltz_operator.model.times import seconds
from waltz_operator.tls.rotation import Decision, Step, decide, renewal
from waltz_operator.tls.secrets import (
    AUTHORITY,
    COMBINED,
    Lifetimes,
    Subject,
    TlsSecrets,
    carry_out,
    read_authorities,
    read_certificate,
    secret_object,
)
from waltz_protocol.types import ShownCertificate

REASON = "CertificatesRenewed"
_CERTIFICATES = ("tls.crt", "next.crt")
"""Keys of the Secrets, with what is in use and what will be."""


def certificate_steps(
    cluster: WaltzCluster, present: TlsSecrets, now: float, *, settled: bool
) -> tuple[ApplyObject | EmitEvent, ...]:
    """The Secrets to write now, with an Event when something was replaced; none in other modes, while paused,
    on deletion, or while what is there seems to begin later only because the clock is behind."""
    if not _signs(cluster):
        return ()
    name = topology.authority_secret(cluster)
    ca = present.contents.get(name, {})
    roles = {role.role: role for role in topology.tls_roles(cluster)}
    wanted = {
        role: Subject(one.common_name, (*one.dns_names, *one.addresses, one.common_name), one.combined)
        for role, one in roles.items()
    }
    held = {role: present.contents.get(role, {}) for role in roles}
    if _waits(cluster, (ca, *held.values()), now):
        return ()
    found = {role: read_certificate(data, combined=wanted[role].combined) for role, data in held.items()}
    decision = decide(
        read_authorities(ca, held.values(), now),
        {role: certified for role, certified in found.items() if certified is not None},
        {role: subject.names for role, subject in wanted.items()},
        now,
        settled=settled,
    )
    return _carried_out(cluster, present, decision, wanted, now)


def renewal_steps(
    cluster: WaltzCluster, present: TlsSecrets, now: float
) -> tuple[ApplyObject | EmitEvent, ...]:
    """The Secrets to write now while the specification cannot be worked on: what is due is renewed, for the
    names that it has. None in the same cases as of `certificate_steps`."""
    if not present.contents or not _signs(cluster):
        return ()
    ca = present.contents.get(topology.authority_secret(cluster), {})
    held = {role.role: present.contents.get(role.role, {}) for role in topology.tls_roles(cluster)}
    if _waits(cluster, (ca, *held.values()), now):
        return ()
    read = {role: read_certificate(data) for role, data in held.items()}
    found = {role: certified for role, certified in read.items() if certified is not None}
    wanted = {
        role: Subject(one.info.common_name or role, one.info.names, COMBINED in held[role])
        for role, one in found.items()
    }
    decision = renewal(read_authorities(ca, held.values(), now), found, now)
    return _carried_out(cluster, present, decision, wanted, now)


def _signs(cluster: WaltzCluster) -> bool:
    """Whether the operator signs the certificates, and may now."""
    return (
        cluster.spec.tls.mode is TlsMode.SELF_SIGNED
        and not cluster.spec.paused
        and not cluster.metadata.deleting
    )


def _carried_out(
    cluster: WaltzCluster, present: TlsSecrets, decision: Decision, wanted: Mapping[str, Subject], now: float
) -> tuple[ApplyObject | EmitEvent, ...]:
    """What is written for a decision, with an Event when something was replaced. TlsMaterialError."""
    if decision.step is Step.NOTHING:
        return ()
    spec, name = cluster.spec.tls, topology.authority_secret(cluster)
    roles = {role.role: role for role in topology.tls_roles(cluster)}
    ca = present.contents.get(name, {})
    held = {role: present.contents.get(role, {}) for role in roles}
    lifetimes = Lifetimes(spec.authority_lifetime_hours * HOUR, spec.certificate_lifetime_hours * HOUR)
    contents = carry_out(decision, cluster.metadata.name, ca, held, wanted, now, lifetimes)
    steps: list[ApplyObject | EmitEvent] = []
    for role, data in contents.items():
        secret = name if role == AUTHORITY else roles[role].secret
        key = name if role == AUTHORITY else role
        steps.append(
            _write(
                cluster,
                secret,
                data,
                present.versions.get(key, ""),
                f"{decision.step.value}: {decision.reason}",
            )
        )
    if any(present.versions.get(role) for role in (*roles, name)):
        about = ObjectKey("WaltzCluster", cluster.metadata.name)
        whom = f" ({', '.join(decision.roles)})" if decision.roles else ""
        steps.append(EmitEvent(about, REASON, f"{decision.step.value}{whom}: {decision.reason}"))
    return tuple(steps)


def _waits(cluster: WaltzCluster, secrets: Iterable[Mapping[str, bytes]], now: float) -> bool:
    """Whether what is there seems to begin later only because the clock is behind."""
    return _is_behind(cluster, now) and _begins_later(secrets, now)


def _is_behind(cluster: WaltzCluster, now: float) -> bool:
    """Whether the clock shows a time before the cluster was made, as one that has lost its time does. What is
    made then has expired for everybody else."""
    return now < seconds(cluster.metadata.creation_timestamp) - BACKDATE_SECONDS


def _begins_later(secrets: Iterable[Mapping[str, bytes]], now: float) -> bool:
    """Whether a certificate in them is valid from later than now on."""
    found = (data.get(key, b"") for data in secrets for key in _CERTIFICATES)
    return any(one.not_before > now for pem in found for one in _readable(split(pem)))


def _readable(certificates: Iterable[bytes]) -> Iterator[CertificateInfo]:
    for one in certificates:
        with suppress(TlsMaterialError):
            yield describe(one, "a certificate")


def _write(
    cluster: WaltzCluster, secret: str, data: Mapping[str, bytes], version: str, reason: str
) -> ApplyObject:
    metadata = cluster.metadata
    labels = {
        LABEL_NAME: "waltz",
        LABEL_INSTANCE: metadata.name,
        LABEL_MANAGED_BY: MANAGED_BY,
    }
    owner = {
        "apiVersion": API_VERSION,
        "kind": "WaltzCluster",
        "name": metadata.name,
        "uid": metadata.uid,
        "controller": True,
        "blockOwnerDeletion": True,
    }
    body = secret_object(metadata.namespace, secret, data, labels, owner)
    body["metadata"]["resourceVersion"] = version
    return ApplyObject(ObjectKey("Secret", secret), body, reason)


def held_certificates(present: TlsSecrets) -> dict[str, ShownCertificate]:
    """The certificates in the Secrets, by role."""
    found = {}
    for role, data in present.contents.items():
        try:
            info = describe(data.get("tls.crt", b""), role)
        except TlsMaterialError:
            continue
        found[role] = ShownCertificate(info.serial, info.not_after)
    return found


def expiry(present: TlsSecrets) -> dict[str, float]:
    """When each certificate ends, seconds since the epoch, by role (the authority under the name of its
    Secret)."""
    return {role: found.not_after for role, found in held_certificates(present).items()}
