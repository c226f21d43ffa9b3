"""A snapshot seen through the questions that the planners ask. Pure; answers nothing that was not positively
observed.

Nodes are named by connect string. *Holders* of a partition are the nodes that ZooKeeper assigns it to; it is
*current* on a holder when the partition's metadata lists that node in its present store session and the
node's own fresh answer agrees.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from uuid import UUID

from waltz_admin.found_tree import BrokenTree, NoTree
from waltz_cluster.moving import ServerMove
from waltz_cluster.replica_rules import (
    Answer,
    NeverStarted,
    NoAnswer,
    NotHeld,
    ReplicaAnswer,
    change_incomplete,
    why_not_current,
    why_stale,
)
from waltz_cluster.serializers import PartitionMetadata
from waltz_operator.api.cluster import WaltzCluster
from waltz_operator.api.cluster_status import WaltzClusterStatus
from waltz_operator.api.metadata import LABEL_COMPONENT
from waltz_operator.api.parts import ZooKeeperAuthentication
from waltz_operator.api.topology import NodeIdentity, node_identity
from waltz_operator.model.certificate_problems import CertificateProblem, holding
from waltz_operator.model.desired import Desired, Memory, Move, MoveKind, ServerMoveRecord, desired_of
from waltz_operator.model.dying_volumes import dying_storage, dying_zookeeper
from waltz_operator.model.ensemble import members
from waltz_operator.model.login import LoginState
from waltz_operator.model.rendered import Rendered, keeping_template, rendered
from waltz_operator.model.snapshot import (
    Closure,
    JobView,
    KubeView,
    NodeReplica,
    NodeView,
    ObjectKey,
    Override,
    SecretView,
    ServerView,
    Snapshot,
    TreeView,
    Unknown,
    registered,
)
from waltz_operator.model.task import Task, task_of
from waltz_operator.model.times import seconds
from waltz_operator.model.versions import VersionPlan, own_version, version_plan
from waltz_operator.model.windows import closed
from waltz_operator.resources import (
    RenderInputs,
    VolumeFacts,
    desired_objects,
    impossible_changes,
    optional_kinds,
)
from waltz_operator.resources.common import STORAGE, ZOOKEEPER
from waltz_operator.resources.login import Level

MAX_RESTART_LAG = 10_000
"""A copy that is more transactions behind than this is not counted on while another one is taken down."""

_NO_NODE = Unknown("it was not asked")


@dataclass(frozen=True, slots=True)
class Facts:
    """What a plan is made from: of a snapshot what was observed, and what follows from it. It does not
    hold the snapshot, so that the planner's tests can state facts without objects of Kubernetes.

    `leaving`: nodes that the specification no longer has and that are still somewhere. `unreadable`: what
    may be in progress with the copies and cannot be read (one line each). `unknown_fields`: of the
    specification, which another version of the operator knows. `version`: which release is run.
    `restarts_wait`: why no pod that runs is restarted now (the window is closed); empty when it may be.
    `certificate_problems`: of the Secrets, none of a cluster that is being deleted, whose Secrets go.
    `flaws` and `overridden`: as in `Snapshot`."""

    desired: Desired
    memory: Memory
    kube: KubeView | Unknown
    tree: TreeView | NoTree | BrokenTree | Unknown
    nodes: Mapping[str, NodeView | Unknown]
    servers: Mapping[int, ServerView | Unknown]
    now: float
    leaving: tuple[NodeIdentity, ...] = ()
    tasks: tuple[Task, ...] = ()
    problems: tuple[str, ...] = ()
    flaws: tuple[str, ...] = ()
    unreadable: tuple[str, ...] = ()
    unknown_fields: tuple[str, ...] = ()
    placement: Mapping[int, tuple[str, ...]] = field(default_factory=dict)
    version: VersionPlan = field(default_factory=VersionPlan)
    restarts_wait: str = ""
    credentials: str = ""
    closure: Closure | None = None
    own_secrets: Mapping[str, SecretView] = field(default_factory=dict)
    overridden: Mapping[ObjectKey, Override] = field(default_factory=dict)
    certificate_problems: tuple[CertificateProblem, ...] = ()

    @property
    def login(self) -> LoginState:
        """Who may use the managed ZooKeeper."""
        external = any(node.external for node in (*self.desired.nodes, *self.leaving))
        return LoginState(self.desired, self.memory, self.kube, self.credentials, self.closure, external)

    def certificate_holding(self, component: str) -> CertificateProblem | None:
        """For which problem pods of the component are left as they are; None when there is none."""
        return holding(self.certificate_problems, component)

    # -- identities

    def identity(self, node: str) -> NodeIdentity | None:
        """A node of the specification, or a leaving one."""
        found = self.desired.by_connect.get(node)
        return found or next((one for one in self.leaving if one.connect_string == node), None)

    def staying(self, node: str) -> bool:
        """Whether the specification wants the node."""
        return node in self.desired.by_connect

    def admin_port(self, node: str) -> int:
        """By ZooKeeper, else as the specification says."""
        if isinstance(self.tree, TreeView) and node in self.tree.admin_ports:
            return self.tree.admin_ports[node]
        identity = self.identity(node)
        return identity.admin_port if identity is not None else 0

    def group(self, node: str) -> str | None:
        """Name of the group of a node of the specification or a leaving one; None for one whose group is not
        known."""
        identity = self.identity(node)
        return identity.group if identity is not None else None

    # -- ZooKeeper

    def holders(self, partition: int) -> tuple[str, ...]:
        """Nodes that ZooKeeper assigns the partition to."""
        return self.placement.get(partition, ())

    def record(self, partition: int) -> PartitionMetadata | NeverStarted | Unknown:
        """The partition's metadata."""
        if not isinstance(self.tree, TreeView):
            return Unknown("ZooKeeper was not read")
        return self.tree.partitions.get(partition, Unknown("its metadata was not read"))

    def metadata_known(self) -> bool:
        """Whether the metadata of every partition was read."""
        return isinstance(self.tree, TreeView) and all(
            not isinstance(self.record(partition), Unknown) for partition in range(self.tree.num_partitions)
        )

    def listed(self, node: str) -> int | None:
        """The first partition whose metadata counts the node among its replicas."""
        if isinstance(self.tree, TreeView):
            for partition, record in self.tree.partitions.items():
                if isinstance(record, PartitionMetadata) and node in record.replicas:
                    return partition
        return None

    # -- storage nodes

    def node(self, node: str) -> NodeView | Unknown:
        """Its fresh, complete answer."""
        view = self.nodes.get(node, _NO_NODE)
        stale = why_stale(self.now - view.observed_at) if isinstance(view, NodeView) else ""
        return Unknown(stale) if stale else view

    def replica(self, partition: int, node: str) -> NodeReplica | Unknown | None:
        """What the node says of the partition; None: a complete answer without it."""
        view = self.node(node)
        return view if isinstance(view, Unknown) else view.partitions.get(partition)

    def not_current(self, partition: int, node: str) -> str:
        """Why the node is not proven to be current; empty when it is (safety rule A6)."""
        record = self.record(partition)
        if isinstance(record, Unknown):
            return record.reason
        if isinstance(record, NeverStarted):
            return "the partition was never started"
        return why_not_current(record, node, self._answer(partition, node))

    def _answer(self, partition: int, node: str) -> Answer:
        replica = self.replica(partition, node)
        if isinstance(replica, Unknown):
            return NoAnswer(replica.reason)
        if replica is None:
            return NotHeld()
        return ReplicaAnswer(
            replica.session_id, replica.available, replica.holds_low_water_mark, replica.problem
        )

    def current(self, partition: int, nodes: Iterable[str]) -> list[str]:
        """Those of the nodes that are proven to be current."""
        return [node for node in nodes if not self.not_current(partition, node)]

    def data_lost(self, partition: int, node: str) -> bool:
        """Positive proof that a replica that took part in a session has lost its data: by a complete answer
        of the node it has not the partition, or is set back behind the session that ZooKeeper recorded of
        it."""
        record = self.record(partition)
        if not isinstance(record, PartitionMetadata) or node not in record.replicas:
            return False
        recorded = record.replicas[node].session_id
        replica = self.replica(partition, node)
        if recorded < 0 or isinstance(replica, Unknown):
            return False
        return replica is None or replica.session_id < recorded

    def lost_journal(self, node: str) -> NodeIdentity | None:
        """The node, where it cannot start because its data and its journal do not belong together: positively
        by what its process ended with, while it does not answer."""
        identity = self.desired.by_connect.get(node)
        if identity is None or identity.external or not isinstance(self.kube, KubeView):
            return None
        pod = self.kube.pods.get(identity.pod)
        lost = pod is not None and pod.journal_lost and not pod.ready
        return identity if lost and isinstance(self.node(node), Unknown) else None

    def highest(self, partition: int) -> int | None:
        """The newest transaction that any holder reports."""
        reported = [
            replica.max_transaction_id
            for node in self.holders(partition)
            if isinstance(replica := self.replica(partition, node), NodeReplica)
            and replica.max_transaction_id is not None
        ]
        return max(reported, default=None)

    def lag(self, partition: int, node: str) -> int | None:
        """Transactions that the node is behind; None = not known (release 0.13.2 does not report it)."""
        highest, replica = self.highest(partition), self.replica(partition, node)
        if highest is None or not isinstance(replica, NodeReplica) or replica.max_transaction_id is None:
            return None
        return max(0, highest - replica.max_transaction_id)

    def worst_lag(self, node: str) -> int:
        """Over all partitions of the node; 0 when nothing is known."""
        held = self.tree.assignments.get(node, ()) if isinstance(self.tree, TreeView) else ()
        return max((self.lag(partition, node) or 0 for partition in held), default=0)

    # -- jobs

    def job(self, name: str) -> JobView | None:
        """The copy job of that name; None: there is none (Kubernetes must have been read)."""
        return self.kube.jobs.get(name) if isinstance(self.kube, KubeView) else None


def placement_of(tree: object) -> dict[int, tuple[str, ...]]:
    """Partition → nodes, of the assignments in ZooKeeper."""
    found: dict[int, tuple[str, ...]] = {}
    if isinstance(tree, TreeView):
        for node, partitions in sorted(tree.assignments.items()):
            for partition in partitions:
                found[partition] = (*found.get(partition, ()), node)
    return found


def facts_of(snapshot: Snapshot) -> Facts:
    """The facts of one look."""
    desired = desired_of(snapshot.cluster)
    version = version_plan(snapshot.cluster, snapshot.kube, own_version())
    problems = snapshot.problems
    if version.refused and version.target is None:  # there is no version to keep
        problems = (*problems, f"spec.version: {version.refused}")
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
        problems=problems,
        flaws=snapshot.flaws,
        unknown_fields=snapshot.cluster.unknown,
        unreadable=(*snapshot.unreadable, *operation_of_another_version(snapshot.cluster.status)),
        placement=placement_of(snapshot.tree),
        version=version,
        restarts_wait=closed(snapshot.cluster.spec.restarts.window, snapshot.now),
        credentials=snapshot.credentials,
        closure=snapshot.closure,
        own_secrets=snapshot.own_secrets,
        overridden=snapshot.overridden,
        certificate_problems=() if desired.deleting else snapshot.certificate_problems,
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
    login = status.zookeeper
    wanted = next((one for one in ZooKeeperAuthentication if one.value == login.authentication), None)
    moves = tuple(
        ServerMoveRecord(
            ServerMove(one.partition, one.source, one.target), seconds(one.at), one.state, one.message
        )
        for one in status.servers.moves
    )
    return Memory(key, move, wanted, login.credentials, Level.parse(login.login), moves)


_KINDS = frozenset(kind.value for kind in MoveKind)


def operation_of_another_version(status: WaltzClusterStatus) -> tuple[str, ...]:
    """A replica change that another version of the operator has begun and this one does not know."""
    operation = status.operation
    if operation is None or operation.partition is None or operation.kind in _KINDS:
        return ()
    return (f"status.operation: {operation.kind} is of another version of the operator",)


def _leaving(snapshot: Snapshot, desired: Desired) -> Iterator[NodeIdentity]:
    """Nodes that were ours (by the labels of their StatefulSet or volume, or by the last status) and are not
    in the specification any longer. A registered node that nothing shows to have been ours is left alone.
    What the last status has stays until ZooKeeper was read and does not have it: of an external node nothing
    else is left to know it by."""
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
    login = facts.login.level
    held = facts.certificate_holding(STORAGE) is not None
    dying_node = dying_storage(kube, (*facts.desired.nodes, *facts.leaving)) is not None
    return RenderInputs(
        operator_image=snapshot.operator_image,
        operator_namespace=snapshot.operator_namespace,
        images=snapshot.images,
        version=facts.version.target,
        tls_digests=snapshot.tls_digests,
        auth_hash=snapshot.credentials if login is not Level.NONE else snapshot.auth_hash,
        login=login,
        volumes={
            name: VolumeFacts(view.requested_bytes, view.storage_class) for name, view in claims.items()
        },
        zookeeper_members=members(facts.desired, kube)
        if isinstance(kube, KubeView) and facts.desired.zookeeper_set
        else None,
        storage_evictions=not dying_node and all_current(facts) and not held,
        broken_evictions=not dying_node and only_broken_unready(facts),
        zookeeper_evictions=dying_zookeeper(kube, facts.desired) is None
        and facts.certificate_holding(ZOOKEEPER) is None,
        server_addresses=_server_addresses(kube),
        live={(key.kind, key.name): view.body for key, view in live.items() if view.body is not None},
    )


def only_broken_unready(facts: Facts) -> bool:
    """Whether storage pods are unready, and each of them is proven to do nothing: its container can't run as
    it is, and the node does not answer. Their eviction takes nothing down."""
    if not isinstance(facts.kube, KubeView):
        return False
    owner = {node.pod: node.connect_string for node in (*facts.desired.nodes, *facts.leaving)}
    unready = [
        (name, pod)
        for name, pod in facts.kube.pods.items()
        if pod.component == "storage" and not pod.ready and not pod.deleting
    ]
    return bool(unready) and all(
        pod.stuck and name in owner and isinstance(facts.node(owner[name]), Unknown) for name, pod in unready
    )


def _server_addresses(kube: KubeView | Unknown) -> tuple[tuple[str, ...], ...]:
    pods = kube.pods.values() if isinstance(kube, KubeView) else ()
    return tuple(sorted(pod.addresses for pod in pods if pod.component == "server" and pod.addresses))


def render(snapshot: Snapshot, facts: Facts) -> tuple[Rendered, ...]:
    """The desired objects, with their digests."""
    absent = snapshot.kube.absent if isinstance(snapshot.kube, KubeView) else frozenset()
    found = desired_objects(snapshot.cluster, inputs_of(snapshot, facts))
    return tuple(_held(snapshot, facts, rendered(body)) for body in found if body["kind"] not in absent)


def _held(snapshot: Snapshot, facts: Facts, one: Rendered) -> Rendered:
    """With the template that its pods have, where a new pod could not use its certificate. A ZooKeeper that
    grows needs its new one, and its pods are restarted by the operator alone."""
    live = snapshot.kube.objects.get(one.key) if isinstance(snapshot.kube, KubeView) else None
    component = one.body["metadata"]["labels"].get(LABEL_COMPONENT, "")
    if live is None or not one.template_hash or component == ZOOKEEPER:
        return one
    return one if facts.certificate_holding(component) is None else keeping_template(one, live.body or {})


def impossible(snapshot: Snapshot, facts: Facts) -> tuple[str, ...]:
    """What the specification wants and cannot be done, one line each: of volumes, and objects of kinds that
    are not there."""
    if facts.problems or not isinstance(snapshot.kube, KubeView):
        return ()
    inputs, absent = inputs_of(snapshot, facts), snapshot.kube.absent
    lines = [f"{one.path}: {one.text}" for one in impossible_changes(snapshot.cluster, inputs)]
    if facts.version.refused:
        lines.append(f"spec.version: {facts.version.refused}")
    if absent:
        wanted = optional_kinds(snapshot.cluster, inputs)
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
        if change_incomplete(record, holders) or len(facts.current(partition, holders)) < len(holders):
            return False
    return True
