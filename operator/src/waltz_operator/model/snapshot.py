"""What one look at the world found, as values. `observe` makes it, the planners read nothing else.

What could not be read, or was read only in part, is an `Unknown` with the reason: it is never an empty
map and never an old answer. Absence of evidence is no proof, so the planners take no destructive step on an
Unknown.

Pure: no socket, clock, task or random number. Times are seconds (UNIX time), sizes bytes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, NamedTuple
from uuid import UUID

from waltz_admin.found_tree import BrokenTree, NoTree
from waltz_admin.load import ServerLoad
from waltz_cluster.replica_rules import NeverStarted
from waltz_cluster.serializers import PartitionAssignment, PartitionMetadata, ServerDescriptor
from waltz_operator.api.cluster import WaltzCluster
from waltz_operator.api.migration import WaltzMigration
from waltz_operator.model.certificate_problems import CertificateProblem
from waltz_operator.resources.images import ImageDefaults
from waltz_operator.resources.login import Level
from waltz_operator.tls.secrets import MaterialDigests
from waltz_protocol.types import ShownCertificate


@dataclass(frozen=True, slots=True)
class Unknown:
    """No complete, fresh answer. `reason` is one line for a person."""

    reason: str


NOT_ASKED = Unknown("it was not asked")


# -------------------------------------------------------------------------------------------------- ZooKeeper


class Closure(StrEnum):
    """The mark on the root of a managed ZooKeeper: whether all znodes are open to everybody, all are closed
    to who has no credentials, or this is being changed."""

    OPEN = "Open"
    CHANGING = "Changing"
    CLOSED = "Closed"


@dataclass(frozen=True, slots=True)
class TreeView:
    """The cluster in ZooKeeper, complete: what the plan depends on of `waltz_admin.view.ClusterView`, with
    what cannot be read as a value. `partitions` has an entry for each of 0..num_partitions-1; an
    Unknown there is metadata that is missing though it existed, or unreadable.

    `owners`: partition → server id, only for partitions that the current assignment gives to exactly one
    registered server.
    """

    cluster_name: str
    cluster_key: UUID
    num_partitions: int
    groups: Mapping[str, int]
    assignments: Mapping[str, tuple[int, ...]]
    admin_ports: Mapping[str, int]
    versions: tuple[int, int, int]
    """Data versions of the groups, the assignments and the admin ports."""
    partitions: Mapping[int, PartitionMetadata | NeverStarted | Unknown]
    servers: Mapping[int, str] = field(default_factory=dict)
    """Registered servers: id → host:port."""
    owners: Mapping[int, int] = field(default_factory=dict)
    members: Mapping[int, ServerDescriptor] = field(default_factory=dict)
    """Registered servers, as they have registered."""
    assignment: PartitionAssignment | None = None
    """Of partitions to servers; None while it is made for others than those that are registered."""


def registered(tree: TreeView, node: str) -> bool:
    """Whether ZooKeeper's maps know the node."""
    return any(node in known for known in (tree.groups, tree.assignments, tree.admin_ports))


# ------------------------------------------------------------------------------------- storage nodes, servers


@dataclass(frozen=True, slots=True)
class NodeReplica:
    """One assigned partition of a storage node, by its admin port. Marks are transaction ids, -1 = none.

    `max_transaction_id` is None on release 0.13.2, which does not report it. `holds_low_water_mark`: the
    node produced the record at its low-water mark (or the mark is -1); None = not asked or no answer, which
    proves nothing. `problem`: out of service, and why.
    """

    available: bool
    session_id: int = -1
    low_water_mark: int = -1
    local_low_water_mark: int = -1
    max_transaction_id: int | None = None
    holds_low_water_mark: bool | None = None
    problem: str = ""
    size_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class NodeView:
    """A complete answer of one storage node: a partition that is not here is not assigned on it."""

    partitions: Mapping[int, NodeReplica]
    observed_at: float
    disk_total_bytes: int | None = None
    disk_free_bytes: int | None = None
    certificate: ShownCertificate | None = None


@dataclass(frozen=True, slots=True)
class ServerView:
    """A complete answer of one registered server."""

    partitions: frozenset[int]
    healthy: Mapping[int, bool]
    reaches: Mapping[str, bool]
    observed_at: float
    certificate: ShownCertificate | None = None
    load: ServerLoad | Unknown = NOT_ASKED


# ------------------------------------------------------------------------------------------------- Kubernetes


class ObjectKey(NamedTuple):
    """A namespaced object of the cluster's namespace."""

    kind: str
    name: str


@dataclass(frozen=True, slots=True)
class ObjectView:
    """Any object that carries the cluster's labels and our field manager. `body` is the object as the API
    server gave it."""

    uid: str
    resource_version: str
    applied_hash: str | None
    body: Mapping[str, Any] | None = None
    deleting: bool = False


@dataclass(frozen=True, slots=True)
class StatefulSetView:
    """A StatefulSet of the cluster. `group` and `node` are its labels (empty for ZooKeeper's).

    `settled`: its controller has seen the last change (observedGeneration = generation). `members`: of
    ZooKeeper's, how many its template says that the ensemble has; 0 where it does not say. `login`: of a
    role, what its template does in a managed ZooKeeper.
    """

    uid: str
    group: str
    node: str
    template_hash: str
    replicas: int
    ready_replicas: int
    settled: bool
    deleting: bool = False
    members: int = 0
    login: Level = Level.NONE


@dataclass(frozen=True, slots=True)
class DeploymentView:
    """The servers' Deployment. `calm`: its roll-out is complete (all replicas updated and available, none
    surplus). `stalls`: it is paused, its pods are refused (a quota), or its time is over: it may wait for
    something else. `refused`: what the API server answers when a pod is to be made, and since when, seconds
    (UNIX time); empty when it makes them."""

    uid: str
    template_hash: str
    replicas: int
    ready_replicas: int
    calm: bool
    deleting: bool = False
    login: Level = Level.NONE
    stalls: bool = False
    refused: str = ""
    refused_since: float = 0.0


@dataclass(frozen=True, slots=True)
class PodView:
    """A pod of the cluster. `stuck`: why our container in it can't be running as it is (image, configuration,
    crash loop, unschedulable), empty when it runs or may still come up. `beside`: the first other container
    that can't run, and why: it makes the pod unready and no more. `component` is its label (storage, server,
    zookeeper, migration). `running_since`: since when our container runs, UNIX time; None when it does not.
    `members`: as in `StatefulSetView`. `addresses`: its IP addresses, empty before it has any. `image`: of
    our container. `written_image`: the same as the operator wrote it, empty in pods of earlier operators.
    `journal_lost`: it is stuck, and ended last because its data and its journal do not belong
    together. `created`: UNIX time, 0 when it is not known."""

    uid: str
    component: str
    template_hash: str
    ready: bool
    deleting: bool = False
    stuck: str = ""
    beside: str = ""
    running_since: float | None = None
    members: int = 0
    addresses: tuple[str, ...] = ()
    image: str = ""
    login: Level = Level.NONE
    journal_lost: bool = False
    created: float = 0.0
    written_image: str = ""

    @property
    def problem(self) -> str:
        """Why not all of it can run; for people."""
        return self.stuck or self.beside


ONLINE_GROWTH_SECONDS = 300.0
"""How long the file system of a volume has to grow under the pod that uses it, before the pod is
restarted."""


@dataclass(frozen=True, slots=True)
class PVCView:
    """A volume claim of the cluster. `requested_bytes` is spec, `capacity_bytes` what the volume has
    (None: not bound).

    `storage_class`: None when it names none. `expandable`: what that class allows (None: it could not be
    read). `resize_pending_since`: since when its file system is to grow (FileSystemResizePending), UNIX time;
    None when it is not.
    `group`, `node` and `component`: its labels. `owners`: uids of what it goes with. `created`: UNIX time, 0
    when it is not known. `cluster`: uid of the WaltzCluster that made it or has taken it over, by its
    annotation; None without one.
    """

    uid: str
    requested_bytes: int
    capacity_bytes: int | None
    storage_class: str | None = None
    group: str = ""
    node: str = ""
    expandable: bool | None = None
    resize_pending_since: float | None = None
    deleting: bool = False
    component: str = ""
    owners: tuple[str, ...] = ()
    created: float = 0.0
    cluster: str | None = None

    def restart_to_grow(self, now: float) -> bool:
        """Whether the file system grows only when the pod starts again: most grow under a pod that runs."""
        return (
            self.resize_pending_since is not None and now - self.resize_pending_since >= ONLINE_GROWTH_SECONDS
        )


class SecretView(NamedTuple):
    """A Secret that the operator made for the cluster. `data`: it is needed for its data, or is a copy of it;
    the rest as in `PVCView`."""

    uid: str
    owners: tuple[str, ...] = ()
    created: float = 0.0
    cluster: str | None = None
    deleting: bool = False
    data: bool = True


NO_POD = "it has no pod; a quota or an admission rule may be in the way"
"""Why something waits whose pod its controller does not make."""
NOT_STARTED = "its pod has not started"
"""Why a copy job waits whose pod does not report that it is stuck: its image may still be on the way."""


@dataclass(frozen=True, slots=True)
class JobView:
    """An offline copy. `state` is active, succeeded or failed; `message` says why it failed. `waits`:
    why it does not run though it is active, and since when at most; empty when it runs. Times are seconds, 0
    when they are not known.

    When it succeeded: both sides were compared record by record up to `verified_through` and `checksum`
    (hex) is over what was compared; None when its report could not be read, which proves nothing.
    """

    uid: str
    migration: str
    partition: int
    source: str
    target: str
    state: str
    started_at: float = 0.0
    verified_through: int | None = None
    checksum: str = ""
    copied: int | None = None
    copied_bytes: int | None = None
    message: str = ""
    deleting: bool = False
    ended_at: float = 0.0
    waits: str = ""
    waits_since: float = 0.0


@dataclass(frozen=True, slots=True)
class KubeView:
    """The cluster's objects, from complete lists: what is not here does not exist.

    `objects` holds everything that was ever made by an ApplyObject (StatefulSets and the Deployment too);
    the other maps are the same objects, and those made by Kubernetes, read for what the planners decide on.
    By name. `pods`: without those of a Deployment that are over (evicted, or ended with their machine), whose
    place others take. `missing`: pods that a StatefulSet wants and that are not there, and since when at
    least they are not, seconds (UNIX time). `absent`: kinds of others (monitors, certificates) whose
    definition is not
    installed, or that the operator's role does not permit: none can be made.
    """

    objects: Mapping[ObjectKey, ObjectView] = field(default_factory=dict)
    statefulsets: Mapping[str, StatefulSetView] = field(default_factory=dict)
    deployment: DeploymentView | None = None
    pods: Mapping[str, PodView] = field(default_factory=dict)
    pvcs: Mapping[str, PVCView] = field(default_factory=dict)
    jobs: Mapping[str, JobView] = field(default_factory=dict)
    absent: frozenset[str] = frozenset()
    missing: Mapping[str, float] = field(default_factory=dict)

    @property
    def server_pods(self) -> list[PodView]:
        """Pods of the servers."""
        return [pod for pod in self.pods.values() if pod.component == "server"]


# -------------------------------------------------------------------------------------------------- all of it


class Rejection(NamedTuple):
    """The API server rejects an object as it is to be, or its write keeps failing. `text` is one line;
    `there`: an object of this cluster has its name. `for_good`: trying again soon cannot help."""

    text: str
    there: bool
    for_good: bool = True


class Override(NamedTuple):
    """An object that was written and is stored with other values: an admission webhook changed it, or the API
    server dropped a field. `digest`: its applied-hash. `fields`: each path that is not as it was written,
    with the digest of what is there instead. `at`: when it was written, seconds (UNIX time)."""

    uid: str
    digest: str
    fields: tuple[tuple[str, str], ...]
    at: float


class Failure(NamedTuple):
    """What ended a pass early. `for_good`: trying again cannot help."""

    text: str
    for_good: bool


@dataclass(frozen=True, slots=True)
class Snapshot:
    """One look. `cluster` and `migrations` (those that name it) carry their last status; `now` is when
    the look ended.

    `nodes`: every connect string of the specification and of the tree. `servers`: every registered server id.
    `installation`: of the operator, which the status records. `tls_digests`, `auth_hash`, `operator_image`,
    `operator_namespace`, `images`: as the renderer's inputs say. `credentials` and `closure`: of a managed
    ZooKeeper, as in `model.login`. `exported_at`: when each copy of the records was made, `exports_since`:
    when their Secret was. `certificates`: those in the Secrets, by role; `certificate_problems`: what is
    wrong with them. `own_secrets`: by name, as `run.own_secrets` says. `problems`: what is wrong with the
    specification beyond what the API server checks (one line each); nothing but status is written while there
    are any. `flaws`: the same for what holds up nothing. `unreadable`: migrations of the cluster that cannot
    be read, and may be in progress (one line each). `overridden`: objects that were written and are stored
    with other values. `rejected` and `failed`: what came of writes of this very pass; then it is planned anew
    with that known.
    """

    cluster: WaltzCluster
    kube: KubeView | Unknown
    tree: TreeView | NoTree | BrokenTree | Unknown
    nodes: Mapping[str, NodeView | Unknown]
    servers: Mapping[int, ServerView | Unknown]
    now: float
    migrations: tuple[WaltzMigration, ...] = ()
    tls_digests: Mapping[str, MaterialDigests] = field(default_factory=dict)
    auth_hash: str = ""
    credentials: str = ""
    closure: Closure | None = None
    exported_at: tuple[float, ...] = ()
    exports_since: float = 0.0
    certificates: Mapping[str, ShownCertificate] = field(default_factory=dict)
    certificate_problems: tuple[CertificateProblem, ...] = ()
    operator_image: str = ""
    operator_namespace: str = "waltz-system"
    images: ImageDefaults = field(default_factory=ImageDefaults)
    installation: str = ""
    own_secrets: Mapping[str, SecretView] = field(default_factory=dict)
    problems: tuple[str, ...] = ()
    flaws: tuple[str, ...] = ()
    unreadable: tuple[str, ...] = ()
    overridden: Mapping[ObjectKey, Override] = field(default_factory=dict)
    rejected: Mapping[ObjectKey, Rejection] = field(default_factory=dict)
    failed: Failure | None = None
