"""From a snapshot to what the planners work on: facts, and the desired objects rendered for what is there. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from uuid import UUID

from waltz_operator.api.cluster import WaltzCluster
from waltz_operator.api.cluster_status import WaltzClusterStatus
from waltz_operator.api.topology import NodeIdentity, node_identity
from waltz_operator.migration.tasks import task_of
from waltz_operator.reconcile.desired import Desired, Memory, Move, MoveKind, desired_of
from waltz_operator.reconcile.facts import Facts, placement_of
from waltz_operator.reconcile.gate import registered
from waltz_operator.reconcile.objects import Rendered, rendered
from waltz_operator.reconcile.snapshot import KubeView, NeverStarted, Snapshot, TreeView, Unknown
from waltz_operator.reconcile.times import seconds
from waltz_operator.resources import RenderInputs, VolumeFacts, desired_objects, refusals


def facts_of(snapshot: Snapshot) -> Facts:
    """The facts of one look."""
    desired = desired_of(snapshot.cluster)
    references = {node.reference: node.connect_string for node in desired.nodes}
    leaving = tuple(_leaving(snapshot, desired))
    references |= {node.reference: node.connect_string for node in leaving}
    tasks = [task_of(migration, references) for migration in snapshot.migrations]
    return Facts(
        desired=desired,
        memory=memory_of(snapshot.cluster.status),
        kube=snapshot.kube,
        tree=snapshot.tree,
        nodes=snapshot.nodes,
        servers=snapshot.servers,
        now=snapshot.now,
        leaving=leaving,
        tasks=tuple(sorted(tasks, key=lambda task: (task.created, task.name))),
        problems=snapshot.problems,
        placement=placement_of(snapshot.tree),
    )


def memory_of(status: WaltzClusterStatus) -> Memory:
    """What an earlier pass recorded."""
    key = UUID(status.cluster_key) if status.cluster_key else None
    operation, move = status.operation, None
    if operation is not None and operation.partition is not None and operation.kind in _KINDS:
        move = Move(
            MoveKind(operation.kind),
            operation.partition,
            operation.source,
            operation.target,
            seconds(operation.started_at),
        )
    return Memory(key, move)


_KINDS = frozenset(kind.value for kind in MoveKind)


def _leaving(snapshot: Snapshot, desired: Desired) -> Iterator[NodeIdentity]:
    """Nodes that were ours (by the labels of their StatefulSet or volume, or by the last status) and are not wanted any more. A registered node
    that nothing shows to have been ours is left alone. What the last status has stays until ZooKeeper was read and does not have it: of an
    external node nothing else is left to know it by."""
    wanted = {(node.group, node.name) for node in desired.nodes}
    found: set[tuple[str, str]] = set()
    if isinstance(snapshot.kube, KubeView):
        found |= {(view.group, view.node) for view in snapshot.kube.statefulsets.values() if view.node}
        found |= {(view.group, view.node) for view in snapshot.kube.pvcs.values() if view.node}
    connect = {node.connect_string for node in desired.nodes}
    for group, name in sorted(found - wanted):
        identity = node_identity(snapshot.cluster, group, name, None)
        connect.add(identity.connect_string)
        yield identity
    recorded = snapshot.cluster.status.cluster_key
    tree = snapshot.tree if isinstance(snapshot.tree, TreeView) else None
    if tree is not None and recorded and tree.cluster_key != UUID(recorded):
        tree = None  # another cluster's: it says nothing about ours
    for status in snapshot.cluster.status.nodes:
        known = tree is None or registered(tree, status.connect_string)
        if known and status.connect_string not in connect:
            group, _, name = status.name.partition("-")
            port = tree.admin_ports.get(status.connect_string, 0) if tree is not None else 0
            yield _external(snapshot.cluster, group, name, status.connect_string, port)


def _external(
    cluster: WaltzCluster, group: str, name: str, connect_string: str, admin_port: int
) -> NodeIdentity:
    derived = node_identity(cluster, group, name, None)
    return derived._replace(
        connect_string=connect_string,
        admin_port=admin_port,
        external=connect_string != derived.connect_string,
    )


def inputs_of(snapshot: Snapshot, facts: Facts) -> RenderInputs:
    """What the renderer needs besides the specification."""
    kube = snapshot.kube
    live = kube.objects if isinstance(kube, KubeView) else {}
    claims = kube.pvcs if isinstance(kube, KubeView) else {}
    return RenderInputs(
        operator_image=snapshot.operator_image,
        operator_namespace=snapshot.operator_namespace,
        tls_hashes=snapshot.tls_hashes,
        auth_hash=snapshot.auth_hash,
        volumes={
            name: VolumeFacts(view.requested_bytes, view.storage_class) for name, view in claims.items()
        },
        storage_evictions=all_current(facts),
        live={(key.kind, key.name): view.body for key, view in live.items() if view.body is not None},
    )


def render(snapshot: Snapshot, facts: Facts) -> tuple[Rendered, ...]:
    """The desired objects, with their digests."""
    absent = snapshot.kube.absent if isinstance(snapshot.kube, KubeView) else frozenset()
    found = desired_objects(snapshot.cluster, inputs_of(snapshot, facts))
    return tuple(rendered(body) for body in found if body["kind"] not in absent)


def refused(snapshot: Snapshot, facts: Facts) -> tuple[str, ...]:
    """What the specification wants and cannot be done, one line each: of volumes, and objects of kinds that are not there."""
    if facts.problems or not isinstance(snapshot.kube, KubeView):
        return ()
    inputs, absent = inputs_of(snapshot, facts), snapshot.kube.absent
    lines = [f"{one.path}: {one.text}" for one in refusals(snapshot.cluster, inputs)]
    if absent:
        wanted = {str(body["kind"]) for body in desired_objects(snapshot.cluster, inputs)}
        lines += [
            f"{kind}: its definition is not installed in the Kubernetes cluster, or the operator's role does not permit it"
            for kind in sorted(wanted & absent)
        ]
    return tuple(lines)


def all_current(facts: Facts) -> bool:
    """Whether every copy of every started partition is proven to be current."""
    if not isinstance(facts.tree, TreeView):
        return False
    for partition in range(facts.tree.num_partitions):
        record = facts.record(partition)
        if isinstance(record, Unknown):
            return False
        if isinstance(record, NeverStarted):
            continue
        holders = facts.holders(partition)
        if set(record.replicas) != set(holders) or len(facts.current(partition, holders)) < len(holders):
            return False
    return True
