"""The status of a WaltzCluster: what was seen and decided, for people, alerts and the next pass. Pure.

Figures that move all the time (lag, free disk) are rounded, so that a cluster in which nothing happens is not
written to.
"""

from __future__ import annotations

from waltz_operator.api.cluster_status import (
    Endpoints,
    NodePhase,
    NodeStatus,
    Operation,
    PartitionSummary,
    ServerMoveStatus,
    ServersStatus,
    WaltzClusterStatus,
    ZooKeeperStatus,
)
from waltz_operator.api.topology import (
    SERVER_PORT,
    NodeIdentity,
    client_service,
    cluster_root,
    connect_string,
    tls_roles,
    zookeeper_secret,
    zookeeper_tls,
)
from waltz_operator.model.desired import Move
from waltz_operator.model.ensemble import to_record
from waltz_operator.model.facts import Facts, impossible, operation_of_another_version
from waltz_operator.model.snapshot import Closure, KubeView, NodeView, Snapshot, TreeView
from waltz_operator.model.times import timestamp
from waltz_operator.plan.builder import Decision
from waltz_operator.plan.console import console_status
from waltz_operator.plan.cordons import cordoned
from waltz_operator.plan.placement import group_names
from waltz_operator.plan.replica_changes import describe
from waltz_operator.plan.status.certificates_in_use import certificates_in_use, not_in_use
from waltz_operator.plan.status.conditions import conditions, headline, phase
from waltz_operator.plan.status.partition_health import Health, health_of
from waltz_operator.plan.status.running import running_images, running_versions
from waltz_operator.plan.zookeeper_export import last_made, overdue
from waltz_operator.resources.login import Level

GIB = 1024**3
MAX_SHOWN = 10


def cluster_status(snapshot: Snapshot, facts: Facts, decision: Decision) -> WaltzClusterStatus:
    """The status to be written."""
    health = health_of(facts)
    running = running_images(facts)
    meta, last = snapshot.cluster.metadata, snapshot.cluster.status
    late = overdue(
        facts, snapshot.cluster.spec.zookeeper.export, snapshot.exported_at, snapshot.exports_since
    )
    exported = last_made(snapshot.exported_at, facts.now)
    certificates = certificates_in_use(snapshot, facts, last.certificates)
    found = conditions(
        facts,
        decision,
        health,
        impossible(snapshot, facts),
        last.conditions,
        meta.generation,
        late,
        not_in_use(snapshot, certificates),
    )
    status = WaltzClusterStatus(
        observed_generation=meta.generation,
        conditions=found,
        phase=phase(facts, decision, health),
        reason=headline(found),
        replicas=_replicas(facts),
        server_counts=_server_counts(facts),
        version=facts.version.target if facts.version.target is not None else last.version,
        running_versions=", ".join(running_versions(running)),
        running=running,
        nodes=_nodes(facts),
        partitions=_partitions(facts, decision, health),
        operation=_operation(facts, decision, last),
        operator=snapshot.installation or last.operator,
        zookeeper=_zookeeper(facts, last.zookeeper).model_copy(
            update={
                "exported_at": None if exported is None else timestamp(exported),
                "members": last.zookeeper.members
                if not isinstance(facts.kube, KubeView)
                else to_record(facts.desired, facts.kube),
            }
        ),
        servers=_servers(facts, decision),
        console=console_status(snapshot, facts),
        endpoints=_endpoints(snapshot, facts),
        certificates=certificates,
        cluster_key=str(decision.memory.cluster_key) if decision.memory.cluster_key else last.cluster_key,
    )
    if decision.failed is None:
        return status
    # the pass did not come to its end: what the next one reads back stays, and the specification was not
    # worked on
    kept = ("observed_generation", "operation", "cluster_key", "version", "zookeeper")
    servers = status.servers.model_copy(update={"moves": last.servers.moves})
    return status.model_copy(update={"servers": servers} | {name: getattr(last, name) for name in kept})


def _replicas(facts: Facts) -> str:
    """In how many groups every partition has a current copy on a node of the specification."""
    names = group_names(facts)
    full = set(names)
    for partition in range(facts.desired.partitions):
        full &= {
            facts.group(node)
            for node in facts.current(partition, facts.holders(partition))
            if facts.staying(node)
        }
    return f"{len(full)}/{len(names)}"


def _server_counts(facts: Facts) -> str:
    if not isinstance(facts.kube, KubeView) or facts.kube.deployment is None:
        return ""
    return f"{facts.kube.deployment.ready_replicas}/{facts.kube.deployment.replicas}"


def _servers(facts: Facts, decision: Decision) -> ServersStatus:
    moves = tuple(
        ServerMoveStatus(
            partition=one.move.partition,
            source=one.move.source,
            target=one.move.target,
            at=timestamp(one.at),
            state=one.state,
            message=one.message,
        )
        for one in decision.memory.server_moves
    )
    deployment = facts.kube.deployment if isinstance(facts.kube, KubeView) else None
    selector = f"app.kubernetes.io/component=server,app.kubernetes.io/instance={facts.desired.name}"
    if deployment is None:
        return ServersStatus(selector=selector, moves=moves)
    return ServersStatus(
        replicas=deployment.replicas, ready=deployment.ready_replicas, selector=selector, moves=moves
    )


def _zookeeper(facts: Facts, last: ZooKeeperStatus) -> ZooKeeperStatus:
    """What the next pass reads back. While nothing is worked on it stays as it was: above all when the
    credentials in use are lost."""
    login = facts.login
    if not facts.desired.own_login:
        return ZooKeeperStatus()
    still = facts.problems or facts.desired.paused or facts.desired.deleting or login.lost
    if still or not isinstance(facts.kube, KubeView):
        return last
    level = login.level
    return ZooKeeperStatus(
        authentication=login.wanted.value,
        login=level.shown,
        credentials="" if level is Level.NONE else login.credentials,
        closed=None if login.closure is None else login.closure is Closure.CLOSED,
    )


def _endpoints(snapshot: Snapshot, facts: Facts) -> Endpoints:
    cluster = snapshot.cluster
    secret = next((role.secret for role in tls_roles(cluster) if role.role == "client"), "")
    service = f"{client_service(cluster)}.{cluster.metadata.namespace}.svc:{SERVER_PORT}"
    return Endpoints(
        servers=(service,),
        zookeeper=connect_string(cluster),
        zookeeper_tls=zookeeper_tls(cluster),
        root=cluster_root(cluster),
        zookeeper_secret=zookeeper_secret(cluster) if facts.credentials else "",
        service=service,
        client_secret=secret,
    )


def _nodes(facts: Facts) -> tuple[NodeStatus, ...]:
    """Every node, each under a name of its own: the API server refuses a status in which two have the same.
    A name of the specification may have become another node's while the first one is still registered. A pod
    keeps it, because the next pass finds its StatefulSet by it; an external node is found by its connect
    string."""
    nodes = (*facts.desired.nodes, *facts.leaving)
    names, taken = dict[str, str](), set[str]()
    for node in sorted(nodes, key=lambda one: one.external):
        name = node.reference
        while name in taken:
            name += "-external"
        taken.add(name)
        names[node.connect_string] = name
    closed = cordoned(facts)
    return tuple(_node(facts, node, names[node.connect_string], closed) for node in nodes)


def _node(facts: Facts, node: NodeIdentity, shown_name: str, closed: frozenset[str]) -> NodeStatus:
    name, view = node.connect_string, facts.node(node.connect_string)
    tree = facts.tree if isinstance(facts.tree, TreeView) else None
    answer = view if isinstance(view, NodeView) else None
    problems = sorted(p for p, r in answer.partitions.items() if r.problem) if answer is not None else []
    lag = facts.worst_lag(name) if answer is not None else None
    return NodeStatus(
        name=shown_name,
        connect_string=name,
        phase=_phase(facts, node, closed),
        pod=None if node.external else node.pod,
        zone=node.zone,
        ready=None if answer is None else not problems,
        registered=None if tree is None else name in tree.groups,
        partitions=None if tree is None else len(tree.assignments.get(name, ())),
        worst_lag=None if lag is None else rounded(lag),
        disk_bytes=answer.disk_total_bytes if answer is not None else None,
        disk_free_bytes=_whole_gib(answer.disk_free_bytes) if answer is not None else None,
        restart_needed=_restart_needed(facts, node),
        message="" if answer is not None and not problems else _problem(facts, name, problems),
    )


def _problem(facts: Facts, node: str, problems: list[int]) -> str:
    view = facts.node(node)
    if not isinstance(view, NodeView):
        return view.reason
    return f"partition {problems[0]}: {view.partitions[problems[0]].problem}"


def _restart_needed(facts: Facts, node: NodeIdentity) -> str | None:
    if not isinstance(facts.kube, KubeView):
        return None
    view, pod = facts.kube.statefulsets.get(node.statefulset), facts.kube.pods.get(node.pod)
    claims = [facts.kube.pvcs[name] for name in node.claims if name in facts.kube.pvcs]
    if view is not None and pod is not None and pod.template_hash != view.template_hash:
        return "its pod template has changed"
    if any(claim.restart_to_grow(facts.now) for claim in claims):
        return "its file system grows with a restart"
    return None


def _phase(facts: Facts, node: NodeIdentity, closed: frozenset[str]) -> NodePhase:
    name = node.connect_string
    held = facts.tree.assignments.get(name, ()) if isinstance(facts.tree, TreeView) else None
    pod = facts.kube.pods.get(node.pod) if isinstance(facts.kube, KubeView) else None
    if name in closed or not facts.staying(name):
        if held is None:
            return NodePhase.UNKNOWN
        return NodePhase.DRAINING if held else NodePhase.DRAINED
    if pod is not None and pod.deleting:
        return NodePhase.RESTARTING
    if isinstance(facts.node(name), NodeView):
        return NodePhase.RUNNING
    if not node.external and (pod is None or not pod.ready):
        return NodePhase.PENDING
    return NodePhase.UNKNOWN


def _partitions(facts: Facts, decision: Decision, health: Health) -> PartitionSummary:
    first = next((one.partition for one in decision.blocked if one.partition is not None), None)
    return PartitionSummary(
        total=facts.desired.partitions,
        healthy=health.healthy,
        caught_up=health.caught_up,
        worst_lag=None if health.worst_lag is None else rounded(health.worst_lag),
        first_blocking=first,
        unhealthy=health.unhealthy[:MAX_SHOWN],
    )


def _operation(facts: Facts, decision: Decision, last: WaltzClusterStatus) -> Operation | None:
    """The record that the next pass reads back; or what else is under way, which is never read back. That of
    another version stays."""
    kept = last.operation if operation_of_another_version(last) else None
    blocked = decision.blocked[0].text if decision.blocked else ""
    move = decision.memory.operation
    if kept is not None:
        return kept
    if move is not None:
        return _record(facts, move, decision, blocked)
    if not decision.step:
        return None
    kind = "Delete" if facts.desired.deleting else "RestartStorage"
    return Operation(
        kind=kind,
        step=decision.step,
        message=decision.message,
        blocked_by=blocked if decision.blocked else "",
    )


def _record(facts: Facts, move: Move, decision: Decision, blocked: str) -> Operation:
    return Operation(
        kind=move.kind.value,
        id=f"{move.partition}@{int(move.started_at)}",
        partition=move.partition,
        source=move.source,
        target=move.target,
        step=decision.step,
        message=decision.message or describe(facts, move),
        blocked_by=blocked,
        started_at=timestamp(move.started_at),
    )


def rounded(lag: int) -> int:
    """One leading digit of what is a lag at all; below a thousand is none."""
    if lag < 1000:
        return 0
    unit: int = 10 ** (len(str(lag)) - 1)
    return lag // unit * unit


def _whole_gib(size: int | None) -> int | None:
    return None if size is None else size // GIB * GIB
