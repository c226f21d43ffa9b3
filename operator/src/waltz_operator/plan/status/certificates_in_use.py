"""Which certificates storage nodes and servers use, by what they showed to the operator in this look, and
whether one that was renewed is in use. Pure.

A Secret reaches its pods within about a minute, and processes follow their files within ten seconds. One that
does not, because it is of an image that cannot or because its kubelet is ill, is found here long before its
certificate ends.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from waltz_operator.api.cluster_status import RoleCertificate
from waltz_operator.api.topology import server_domain, storage_domain, tls_roles
from waltz_operator.model.facts import Facts
from waltz_operator.model.snapshot import NodeView, ServerView, Snapshot, TreeView
from waltz_operator.model.times import seconds, timestamp
from waltz_protocol.types import ShownCertificate

LATE_SECONDS = 900.0
"""A renewed certificate that is not in use after this is reported."""
STORAGE, SERVER = "storage", "server"


def certificates_in_use(
    snapshot: Snapshot, facts: Facts, last: Sequence[RoleCertificate]
) -> tuple[RoleCertificate, ...]:
    """One entry per role; that of the last status where nobody of the role answered."""
    before = {one.role: one for one in last}
    found = []
    for role, shown in ((STORAGE, _nodes(facts)), (SERVER, _servers(facts))):
        if shown:
            found.append(_of_role(snapshot, role, shown, before.get(role)))
        elif role in before:
            found.append(before[role])
    return tuple(found)


def _of_role(
    snapshot: Snapshot, role: str, shown: Mapping[str, ShownCertificate], last: RoleCertificate | None
) -> RoleCertificate:
    wanted = snapshot.certificates.get(role)
    differing = _differing(snapshot, role, shown)
    since = None
    if differing:
        since = last.differs_since if last is not None else None
    oldest = min(shown, key=lambda name: (name not in differing, shown[name].not_after, name))
    return RoleCertificate(
        role=role,
        secret_until=None if wanted is None else timestamp(wanted.not_after),
        in_use_until=timestamp(shown[oldest].not_after),
        in_use_serial=shown[oldest].serial,
        in_use_by=oldest,
        differing=len(differing),
        differs_since=since if since or not differing else timestamp(snapshot.now),
    )


def not_in_use(snapshot: Snapshot, found: Sequence[RoleCertificate]) -> str:
    """Who does not use the certificate that its Secret has, after the limit; empty when all do."""
    secrets = {one.role: one.secret for one in tls_roles(snapshot.cluster)}
    for one in found:
        if one.differs_since is None or snapshot.now - seconds(one.differs_since) < LATE_SECONDS:
            continue
        more = f", and {one.differing - 1} more do" if one.differing > 1 else ""
        return (
            f"{one.in_use_by} does not use the certificate in Secret {secrets.get(one.role, one.role)}{more} since "
            f"{one.differs_since}, but one that ends at {one.in_use_until}"
        )
    return ""


def _differing(snapshot: Snapshot, role: str, shown: Mapping[str, ShownCertificate]) -> set[str]:
    """Of the cluster's own pods: others have certificates of their own."""
    wanted = snapshot.certificates.get(role)
    if wanted is None:
        return set()
    return {name for name, one in shown.items() if one.serial != wanted.serial and _ours(snapshot, name)}


def _ours(snapshot: Snapshot, name: str) -> bool:
    """By the name of the process: pods have one in a Service of the cluster."""
    domains = (server_domain(snapshot.cluster), storage_domain(snapshot.cluster))
    return name.rpartition(":")[0].endswith(tuple(f".{one}" for one in domains))


def _nodes(facts: Facts) -> dict[str, ShownCertificate]:
    return {
        name: view.certificate
        for name, view in facts.nodes.items()
        if isinstance(view, NodeView) and view.certificate is not None
    }


def _servers(facts: Facts) -> dict[str, ShownCertificate]:
    registered = facts.tree.servers if isinstance(facts.tree, TreeView) else {}
    return {
        registered[number]: view.certificate
        for number, view in facts.servers.items()
        if number in registered and isinstance(view, ServerView) and view.certificate is not None
    }
