"""Which certificates of a cluster its processes cannot use as their Secrets hold them: those that are
missing, not issued for what a role does, or of an authority that another role does not trust; and those that
were not renewed in time. Pure.

That an authority is not trusted is only found once it is so. Which authority an issuer of cert-manager signs
with is known to nobody before it has signed, so that a Certificate whose names change cannot be held back for
it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from waltz_admin.authority import TlsMaterialError, describe, lacks_of_key, refuses, split
from waltz_operator.api.cluster import WaltzCluster
from waltz_operator.api.security import ClientAuthentication, TlsMode
from waltz_operator.api.topology import TlsRole, tls_roles, zookeeper_tls
from waltz_operator.model.certificate_problems import CertificateProblem
from waltz_operator.model.reasons import Reason
from waltz_operator.model.times import timestamp
from waltz_operator.tls.rotation import DAY_SECONDS
from waltz_operator.tls.secrets import TlsSecrets

_KEYS = ("tls.crt", "tls.key", "ca.crt")
_TALKS_TO = {
    "storage": ("server",),
    "operator": ("server", "storage"),
    "zookeeper": ("server", "storage", "operator"),
    "console": ("server", "storage", "zookeeper"),
    "client": ("server",),
}
"""Whose connections each role has, each pair once; a problem of the two is the first one's."""
_SERVES = frozenset({"server", "storage", "zookeeper", "console"})
"""Roles that accept connections with their certificate."""
_CONNECTS = frozenset({"server", "operator", "zookeeper", "console", "client"})
"""Roles that begin connections with it; a storage node does to a ZooKeeper with TLS."""
_LATE_PART = 1 / 6
_LATE_SECONDS = 30 * DAY_SECONDS
"""A certificate that has less than this part of its life before it, and less than this many seconds, should
have been renewed: the operator, and cert-manager for its Certificates, do at a third."""


def certificate_problems(
    cluster: WaltzCluster, present: TlsSecrets, now: float
) -> tuple[CertificateProblem, ...]:
    """The first one of each role, in the order of the roles; none without TLS. `now`: UNIX time, seconds."""
    roles = tls_roles(cluster)
    missing = [
        one
        for role in roles
        if (one := _missing(cluster, role, present) or _unsuitable(cluster, role, present, now)) is not None
    ]
    out = {one.role for one in missing}
    usable = {one.role: one for one in roles if one.role not in out}
    refused = [
        one for role in usable.values() if (one := _refused(cluster, role, usable, present)) is not None
    ]
    out |= {one.role for one in refused}
    left = (role for role in roles if role.role not in out)
    late = [one for role in left if (one := _late(cluster, role, present, now)) is not None]
    order = [one.role for one in roles]
    return tuple(sorted((*missing, *refused, *late), key=lambda one: order.index(one.role)))


def _unsuitable(
    cluster: WaltzCluster, role: TlsRole, present: TlsSecrets, now: float
) -> CertificateProblem | None:
    """A certificate that peers refuse for what it was issued for, or refuse as yet."""
    info = describe(present.contents[role.role]["tls.crt"], role.role)
    if now < info.not_before:
        why = f"the certificate in Secret {role.secret} is not valid before {timestamp(info.not_before)}"
        return CertificateProblem(
            role.role, Reason.CERTIFICATE_UNSUITABLE, f"{why}, so its peers refuse it until then"
        )
    connects = role.role in _CONNECTS or (role.role == "storage" and zookeeper_tls(cluster))
    lacking = [
        use
        for use, has, needed in (
            ("server", info.serves, role.role in _SERVES),
            ("client", info.connects, connects),
        )
        if needed and not has
    ]
    if not lacking:
        return None
    uses = " and ".join(f"{one} authentication" for one in lacking)
    why = f"the certificate in Secret {role.secret} is not issued for {uses} (extended key usage)"
    return CertificateProblem(role.role, Reason.CERTIFICATE_UNSUITABLE, f"{why}, so its peers refuse it")


def _late(cluster: WaltzCluster, role: TlsRole, present: TlsSecrets, now: float) -> CertificateProblem | None:
    info = describe(present.contents[role.role]["tls.crt"], role.role)
    if info.not_after - now >= min((info.not_after - info.not_before) * _LATE_PART, _LATE_SECONDS):
        return None
    end = "has ended" if info.not_after <= now else "ends"
    why = f"the certificate in Secret {role.secret} {end} at {timestamp(info.not_after)}, and was not renewed"
    return CertificateProblem(
        role.role, Reason.CERTIFICATE_ENDS_SOON, f"{why}{_whose(cluster, role)}", info.not_after <= now
    )


def _refused(
    cluster: WaltzCluster, role: TlsRole, usable: Mapping[str, TlsRole], present: TlsSecrets
) -> CertificateProblem | None:
    """Where one side of a connection does not trust who has signed the other side's certificate."""
    others = (usable[name] for name in _TALKS_TO.get(role.role, ()) if name in usable)
    for shows, trusts in ((a, b) for other in others for a, b in _verified(cluster, role, other)):
        if refuses(present.contents[trusts.role]["ca.crt"], present.contents[shows.role]["tls.crt"]):
            why = (
                f"ca.crt in Secret {trusts.secret} does not have the authority that has signed the certificate in "
                f"Secret {shows.secret}, so their processes refuse each other; {_way_out(cluster)}"
            )
            return CertificateProblem(role.role, Reason.AUTHORITY_NOT_TRUSTED, why)
    return None


def _verified(cluster: WaltzCluster, role: TlsRole, other: TlsRole) -> Iterator[tuple[TlsRole, TlsRole]]:
    """Who shows a certificate, and who verifies it. Servers may take connections from anybody."""
    yield other, role
    anybody = cluster.spec.tls.client_authentication is ClientAuthentication.NONE
    if not (other.role == "server" and anybody and role.role in ("operator", "console", "client")):
        yield role, other


def _way_out(cluster: WaltzCluster) -> str:
    if cluster.spec.tls.mode is TlsMode.CERT_MANAGER:
        names = " ".join(one.secret for one in tls_roles(cluster))
        return f"have all of them issued anew: `cmctl renew -n {cluster.metadata.namespace} {names}`"
    return "ca.crt of both needs the authorities of both"


def _missing(cluster: WaltzCluster, role: TlsRole, present: TlsSecrets) -> CertificateProblem | None:
    data, there = present.contents.get(role.role, {}), role.role in present.versions
    text = _unreadable(data) if there else _absent(cluster)
    if not text:
        return None
    why = f"Secret {role.secret} {text}{_whose(cluster, role)}"
    return CertificateProblem(role.role, Reason.CERTIFICATE_MISSING, why)


def _absent(cluster: WaltzCluster) -> str:
    own = cluster.spec.tls.mode is TlsMode.SELF_SIGNED
    return "is missing, or is not this cluster's" if own else "is missing"


def _unreadable(data: Mapping[str, bytes]) -> str:
    """What a Secret lacks that is there; empty when a process can read all of it."""
    lacking = [key for key in _KEYS if not data.get(key)]
    if lacking:
        return f"has no {' and no '.join(lacking)}"
    try:
        describe(data["tls.crt"], "tls.crt")
    except TlsMaterialError as error:
        return f"cannot be read: {error}"
    if lacks := lacks_of_key(data["tls.key"], data["tls.crt"]):
        return f"has no private key in tls.key that {lacks}"
    return "" if split(data["ca.crt"]) else "has no certificate in ca.crt that can be read"


def _whose(cluster: WaltzCluster, role: TlsRole) -> str:
    """Who writes the Secret, and what a person does about it."""
    if cluster.spec.tls.mode is TlsMode.CERT_MANAGER:
        return f"; cert-manager writes it: `kubectl describe certificate {role.secret}` shows why it does not"
    if cluster.spec.tls.mode is TlsMode.SECRET:
        return f"; it is yours to write (spec.tls.secrets.{role.role})"
    return "; the operator writes none while spec.paused" if cluster.spec.paused else ""
