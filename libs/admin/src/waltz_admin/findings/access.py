"""The rules about who is asked: everybody is there and lets us not in, or the servers are not those of the
assignment. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from waltz_admin.cluster_status import ClusterStatus
from waltz_admin.findings.finding import Finding, Rule, Severity, limited

NOT_LET_IN = Rule(
    "not-let-in",
    Severity.REDUCED,
    "Servers and storage nodes are there, and none lets in who asks: of partitions nothing is known.",
    no_alert="it is about the certificate of the tools or the console; the cluster may be well",
)
ASSIGNMENT_STALE = Rule(
    "assignment-stale",
    Severity.REDUCED,
    "Servers have come or gone, and the assignment was not made anew.",
    no_alert="who has a partition keeps it; one without an owner is WaltzPartitionUnowned",
)

_RESTART_NOTHING = (
    "restart and stop nothing before: what runs may be well (its /health page, which needs no TLS, says so), and "
    "would not come back with a certificate that has expired"
)

STEP_OF_TURNED_AWAY = (
    "it is there, and its log says why it lets nobody in: compare its certificate, trust store and allowedPeers "
    "with what this command shows (`waltz tls show`); renewed certificates (`waltz tls renew`) are in use without "
    f"a restart; {_RESTART_NOTHING}"
)


def not_let_in(own_certificate: str) -> str:
    """What is the case where everybody is there and lets us not in. `own_certificate`: of `ClusterStatus`."""
    why = own_certificate or "servers and storage nodes are there, and no connection to any can be made"
    return f"this command is not let in: {why}"


def access(status: ClusterStatus) -> Iterable[Finding]:
    """One finding in place of one for each process and partition."""
    if not status.shut_out:
        return
    servers = [one for one in status.servers if one.turned_away]
    nodes = [one for one in status.nodes if one.turned_away]
    renew = f"renew it (`waltz tls renew`) and ask again; {_RESTART_NOTHING}"
    yield Finding(
        NOT_LET_IN,
        not_let_in(status.own_certificate),
        renew if status.own_certificate else STEP_OF_TURNED_AWAY,
        limited([*(one.error for one in servers), *(one.error or "" for one in nodes)]),
        tuple(p.partition_id for p in status.partitions),
        tuple(one.node for one in nodes),
        tuple(str(one.endpoint) for one in servers),
    )


def stale_assignment(status: ClusterStatus) -> Iterable[Finding]:
    """`read_status` and the observer say so only when it stays so."""
    if status.left_out is None:
        return
    manager = min(status.servers, key=lambda one: one.server_id)
    unknown = [one for one in status.servers if one.server_id in status.left_out]
    names = ", ".join(str(one.endpoint) for one in unknown)
    yield Finding(
        ASSIGNMENT_STALE,
        f"{'server' if len(unknown) == 1 else 'servers'} {names}: registered, and not in the assignment"
        if unknown
        else "the assignment was made for other servers than those registered",
        f"read the log of server {manager.endpoint}, which makes the assignment because its id "
        f"{manager.server_id} is the lowest: it has to see all servers; check that all have the same "
        "zookeeper.auth and zookeeper.acl",
        limited([f"server {one.server_id} is registered at {one.endpoint}" for one in status.servers]),
        (),
        (),
        tuple(str(one.endpoint) for one in unknown or [manager]),
    )
