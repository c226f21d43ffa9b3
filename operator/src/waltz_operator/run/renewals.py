"""Certificates of a cluster whose specification cannot be read: those that are due are renewed, for the names
that they have. Everything else waits until a person has corrected it (`status.unreadable`)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from waltz_admin.authority import TlsMaterialError
from waltz_operator.api.cluster import WaltzCluster
from waltz_operator.api.errors import ResourceError
from waltz_operator.api.parse import stored_cluster
from waltz_operator.api.security import TlsMode
from waltz_operator.kube.errors import KubeError
from waltz_operator.model.snapshot import Snapshot, Unknown
from waltz_operator.plan.certificates import expiry, renewal_steps
from waltz_operator.plan.status.unreadable import UnreadableError
from waltz_operator.run.apply import Applier
from waltz_operator.run.observe import Observation, Observer, one_line

_EVERY_ROLE: Mapping[str, Any] = {
    "partitions": 1,
    "images": {"server": "none", "storage": "none", "zookeeper": "none", "console": "none"},
    "zookeeper": {"managed": {"tls": "Enabled"}},
    "console": {"enabled": True},
}
"""A specification with all certificates that a cluster can have; a role without one gets none."""
_LIFETIMES = ("certificateLifetimeHours", "authorityLifetimeHours")


class Renewals(NamedTuple):
    """`expiry`: when the certificates that were found end, as the metrics have it. `problem`: what went
    wrong, empty when nothing did."""

    expiry: Mapping[str, float]
    problem: str


async def renew_unreadable(observer: Observer, applier: Applier, error: UnreadableError) -> Renewals:
    """Write the Secrets whose certificates are due. LeaseLostError."""
    cluster = with_every_role(error.body)
    if cluster is None:
        return Renewals({}, "")
    ends: Mapping[str, float] = {}
    try:
        access = await observer.access(cluster)
        ends = expiry(access.secrets)
        steps = renewal_steps(cluster, access.secrets, error.at)
    except (KubeError, TlsMaterialError) as failure:
        return Renewals(ends, one_line(failure))
    unread = Unknown("the specification cannot be read")
    snapshot = Snapshot(cluster, unread, unread, {}, {}, error.at)
    outcome = await applier.apply(steps, Observation(snapshot, access, dict(error.body)))
    return Renewals(ends, outcome.error)


def with_every_role(body: Mapping[str, Any]) -> WaltzCluster | None:
    """The cluster with what renewals need of its specification; None when that cannot be read either, or the
    operator does not sign its certificates."""
    spec = body.get("spec")
    tls = spec.get("tls", {}) if isinstance(spec, Mapping) else None
    if (
        not isinstance(spec, Mapping)
        or not isinstance(tls, Mapping)
        or spec.get("paused", False) is not False
    ):
        return None
    if tls.get("mode", TlsMode.SELF_SIGNED.value) != TlsMode.SELF_SIGNED.value:
        return None
    lifetimes = {name: tls[name] for name in _LIFETIMES if name in tls}
    for kept in (lifetimes, {}):
        try:
            return stored_cluster({**body, "spec": {**_EVERY_ROLE, "tls": kept}, "status": {}})
        except ResourceError:
            continue
    return None
