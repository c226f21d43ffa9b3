"""The state of a small cluster, as one hashable value, and the facts that an observer finds in it.

Nodes and partitions are numbers. Sessions are renumbered after each new one so that the number of states
stays finite; the data version of the assignments is a digest of their content, the uid of a pod is its
template.
"""

from __future__ import annotations

import json
from dataclasses import replace
from functools import cache, lru_cache
from typing import NamedTuple

from waltz_admin.found_tree import NoTree
from waltz_cluster.replica_rules import NeverStarted
from waltz_cluster.serializers import (
    PartitionMetadata,
    ReplicaState,
)
from waltz_operator.api.metadata import TEMPLATE, TEMPLATE_HASH
from waltz_operator.api.topology import NodeIdentity
from waltz_operator.model.desired import Desired, Memory, created_key
from waltz_operator.model.facts import Facts, placement_of
from waltz_operator.model.rendered import Rendered, rendered
from waltz_operator.model.snapshot import (
    DeploymentView,
    JobView,
    KubeView,
    NodeReplica,
    NodeView,
    ObjectKey,
    ObjectView,
    PodView,
    PVCView,
    Rejection,
    ServerView,
    StatefulSetView,
    TreeView,
    Unknown,
)
from waltz_operator.model.task import Task
from waltz_operator.model.versions import VersionPlan
from waltz_operator.plan.move_steps import SMALL_COPY_BYTES
from waltz_protocol.types import UNRESOLVED, PartitionId

from .servers import LIMITS, Shares, registered_servers, server_views

KEY = created_key("uid-of-the-cluster")
NOW = 1e6
STARTING, READY, DELETING, STUCK = "starting", "ready", "deleting", "stuck"
OFF = "off"
BAD = "bad"
"""A pod template that can't run."""
BESIDE = "beside"
"""A pod template with a container beside ours that crashes: ours runs, and the pod is never ready."""
UNFIT = (BAD, BESIDE)


class Spec(NamedTuple):
    """What a person wants: which nodes of the universe, which pod template. `closed`: restarts wait for a
    window. `balance`: partitions move between servers by load. `down`: the template is of an earlier release
    than what may run. `refused`: nodes whose StatefulSet the API server does not take as it is to be."""

    nodes: tuple[int, ...]
    template: str = "t1"
    reclaim_delete: bool = False
    deleting: bool = False
    closed: bool = False
    down: bool = False
    refused: tuple[int, ...] = ()
    balance: bool = False


class Replica(NamedTuple):
    """A partition on a storage node: number of records, and the mark of its last session. `compared`: a
    copy job has compared it, which no observer sees and the judges remember."""

    available: bool
    session: int
    length: int
    mark: int
    compared: bool = False


class Listed(NamedTuple):
    """A replica in a partition's metadata; `closing` None: it takes part."""

    node: int
    session: int
    closing: int | None


class Meta(NamedTuple):
    """Metadata of a started partition."""

    session: int
    replicas: tuple[Listed, ...]


class Pod(NamedTuple):
    """A storage pod."""

    phase: str
    template: str


class Job(NamedTuple):
    """A copy job."""

    name: str
    migration: str
    partition: int
    source: int
    target: int
    state: str = "active"
    verified: int = -1


class Luck(NamedTuple):
    """What may still happen: crashes of nodes, lost disks, failed copies, changes of mind, the loss of
    ZooKeeper's data, deadlines of migrations that pass, other loads, servers that restart."""

    crashes: int = 0
    disks: int = 0
    jobs: int = 0
    changes: int = 0
    trees: int = 0
    deadlines: int = 0
    loads: int = 0
    servers: int = 0


class World(NamedTuple):
    """Everything. `data[p][n]`: None, OFF (not assigned on the node, flag off) or a Replica. `downed`:
    ready nodes that the operator took down and that are not back. `rolling`: some servers still have the
    template of before."""

    spec: int
    memory: Memory
    tasks: tuple[Task, ...]
    tree: bool
    registered: frozenset[int]
    assigned: tuple[frozenset[int], ...]
    meta: tuple[Meta | None, ...]
    data: tuple[tuple[Replica | str | None, ...], ...]
    committed: tuple[int, ...]
    pods: tuple[Pod | None, ...]
    sets: tuple[str | None, ...]
    claims: tuple[int | None, ...]
    servers: str | None
    jobs: tuple[Job, ...]
    luck: Luck
    downed: frozenset[int] = frozenset()
    rolling: bool = False
    shares: Shares | None = None


def put(values: tuple[object, ...], index: int, value: object) -> tuple:  # type: ignore[type-arg]
    """The tuple with one entry changed."""
    return (*values[:index], value, *values[index + 1 :])


class Universe(NamedTuple):
    """All nodes that there can be: the group of each."""

    groups: tuple[str, ...]
    partitions: int
    specs: tuple[Spec, ...]
    small: bool = False
    """Whether copies are so small that the operator makes them itself."""
    loads: tuple[tuple[float, ...], ...] = ()
    """What each partition costs its server, at one time and at another."""

    def spec(self, world: World) -> Spec:
        return self.specs[world.spec]


@cache
def connect(node: int) -> str:
    """Connect string of a node."""
    return f"n{node}:1"


@cache
def number(name: str) -> int:
    """And back."""
    return int(name[1:].partition(":")[0])


@cache
def identity(universe: Universe, node: int) -> NodeIdentity:
    """Identity of a node of the universe."""
    group = universe.groups[node]
    return NodeIdentity(
        group,
        str(node),
        int(group),
        connect(node),
        2,
        False,
        None,
        f"s{node}",
        f"s{node}-0",
        f"data-s{node}-0",
    )


def copy_job(migration: str, partition: int) -> str:
    """Name of a copy job."""
    return f"copy-{migration}-{partition}"


@cache
def desired(universe: Universe, spec: Spec) -> Desired:
    """The specification as the planners see it."""
    nodes = tuple(identity(universe, node) for node in spec.nodes)
    return Desired(
        name="c",
        label="c",
        partitions=universe.partitions,
        nodes=nodes,
        created_key=KEY,
        copy_job=copy_job,
        deleting=spec.deleting,
        reclaim_delete=spec.reclaim_delete,
        by_connect={node.connect_string: node for node in nodes},
        balance=LIMITS if spec.balance else None,
    )


@cache
def rendered_objects(universe: Universe, spec: Spec) -> tuple[Rendered, ...]:
    """A claim and a StatefulSet per node, and the Deployment."""
    found = []
    for one in (identity(universe, node) for node in spec.nodes):
        found.append(Rendered(ObjectKey("PersistentVolumeClaim", one.pvc), {}, "claim"))
        found.append(
            Rendered(
                ObjectKey("StatefulSet", one.statefulset),
                {"template": spec.template},
                f"set-{spec.template}",
                spec.template,
            )
        )
    found.append(servers_of(spec.template))
    return tuple(found)


@cache
def servers_of(template: str) -> Rendered:
    """The Deployment, as far as a kept template is read from it."""
    said = {"metadata": {"annotations": {TEMPLATE_HASH: template}}}
    annotations = {TEMPLATE_HASH: template, TEMPLATE: json.dumps(said)}
    metadata = {"name": "c-server", "annotations": annotations}
    return rendered({"kind": "Deployment", "metadata": metadata, "spec": {"template": said}})


def rejections(world: World, universe: Universe) -> dict[ObjectKey, Rejection]:
    """What the API server has refused."""
    spec = universe.spec(world)
    return {
        ObjectKey("StatefulSet", f"s{node}"): Rejection(f"s{node} is refused", world.sets[node] is not None)
        for node in spec.refused
        if world.sets[node] != spec.template
    }


def up(world: World, node: int) -> bool:
    """Whether the node's process answers."""
    pod = world.pods[node]
    return pod is not None and pod.phase == READY


def version_of(world: World) -> int:
    """Data version of the assignments: a digest of what they are."""
    return hash((world.registered, world.assigned))


@lru_cache(maxsize=50_000)
def _node_view(replicas: tuple[Replica | str | None, ...], small: bool) -> NodeView:
    least = 0 if small else SMALL_COPY_BYTES
    return NodeView(
        {
            partition: NodeReplica(
                replica.available,
                replica.session,
                replica.mark - 1,
                replica.mark - 1,
                replica.length - 1,
                replica.length >= replica.mark,
                size_bytes=least + replica.length + 1,
            )
            for partition, replica in enumerate(replicas)
            if isinstance(replica, Replica)
        },
        NOW,
    )


@lru_cache(maxsize=50_000)
def _record(meta: Meta) -> PartitionMetadata:
    return PartitionMetadata(0, meta.session, {connect(one.node): _state(one) for one in meta.replicas})


def _state(one: Listed) -> ReplicaState:
    closing = UNRESOLVED if one.closing is None else one.closing
    return ReplicaState(PartitionId(0), connect(one.node), one.session, closing)


_NEVER = NeverStarted()


@lru_cache(maxsize=20_000)
def _tree_view(
    universe: Universe,
    registered: frozenset[int],
    assigned: tuple[frozenset[int], ...],
    meta: tuple[Meta | None, ...],
    servers: bool,
    blind: int | None,
    owners: tuple[int, ...] | None,
) -> TreeView:
    partitions: dict[int, PartitionMetadata | NeverStarted | Unknown] = {
        p: _NEVER if one is None else _record(one) for p, one in enumerate(meta)
    }
    if blind is not None:
        partitions[blind] = Unknown("unreadable")
    nodes = sorted(registered)
    return TreeView(
        "c",
        KEY,
        universe.partitions,
        {connect(n): int(universe.groups[n]) for n in nodes},
        {connect(n): tuple(p for p, held in enumerate(assigned) if n in held) for n in nodes},
        {connect(n): 2 for n in nodes},
        (0, hash((registered, assigned)), 0),
        partitions,
        *registered_servers(servers, owners),
    )


def tree_view(world: World, universe: Universe, blind: int | None) -> TreeView | NoTree:
    """ZooKeeper; `blind`: a partition whose metadata can't be read."""
    if not world.tree:
        return NoTree()
    servers = world.servers is not None
    shares = world.shares
    owners = shares.owners if shares is not None and shares.served else None
    return _tree_view(universe, world.registered, world.assigned, world.meta, servers, blind, owners)


def _server_views(world: World, universe: Universe) -> dict[int, ServerView | Unknown]:
    if world.shares is None or world.servers is None:
        return {}
    return server_views(world.shares, universe.loads[world.shares.load], NOW)


@lru_cache(maxsize=20_000)
def _kube_view(
    universe: Universe,
    pod_states: tuple[Pod | None, ...],
    templates: tuple[str | None, ...],
    volumes: tuple[int | None, ...],
    servers: str | None,
    rolling: bool,
    copies: tuple[Job, ...],
) -> KubeView:
    objects: dict[ObjectKey, ObjectView] = {}
    sets: dict[str, StatefulSetView] = {}
    pods: dict[str, PodView] = {}
    claims: dict[str, PVCView] = {}
    for node in range(len(universe.groups)):
        one = identity(universe, node)
        template, pod, claim = templates[node], pod_states[node], volumes[node]
        if template is not None:
            objects[ObjectKey("StatefulSet", one.statefulset)] = ObjectView(
                f"set{node}", "", f"set-{template}"
            )
            sets[one.statefulset] = StatefulSetView(f"set{node}", one.group, one.name, template, 1, 1, True)
        if pod is not None:
            stuck = "it can't start" if pod.phase == STUCK else ""
            ready = pod.phase == READY and pod.template != BESIDE
            beside = "proxy: it crashes" if pod.template == BESIDE else ""
            pods[one.pod] = PodView(
                pod.template, "storage", pod.template, ready, pod.phase == DELETING, stuck, beside
            )
        if claim is not None:
            objects[ObjectKey("PersistentVolumeClaim", one.pvc)] = ObjectView(str(claim), "", "claim")
            claims[one.pvc] = PVCView(str(claim), 1, 1, None, one.group, one.name)
    deployment = None
    if servers is not None:
        live = servers_of(servers)
        objects[live.key] = ObjectView("d", "", live.digest, live.body)
        deployment = DeploymentView("d", servers, 1, 1, not rolling)
    jobs = {
        job.name: JobView(
            job.name,
            job.migration,
            job.partition,
            connect(job.source),
            connect(job.target),
            job.state,
            verified_through=job.verified - 1 if job.state == "succeeded" else None,
        )
        for job in copies
    }
    return KubeView(objects, sets, deployment, pods, claims, jobs)


def kube_view(world: World, universe: Universe) -> KubeView:
    """Kubernetes."""
    return _kube_view(
        universe, world.pods, world.sets, world.claims, world.servers, world.rolling, world.jobs
    )


def _placement(tree: TreeView) -> dict[int, tuple[str, ...]]:
    """Cached by identity: views live as long as their cache."""
    key = id(tree)
    if key not in _PLACEMENTS:
        _PLACEMENTS[key] = (tree, placement_of(tree))
    return _PLACEMENTS[key][1]


_PLACEMENTS: dict[int, tuple[TreeView, dict[int, tuple[str, ...]]]] = {}


class Sight(NamedTuple):
    """What an observer does not see."""

    tree: bool = True
    kube: bool = True
    node: int | None = None
    partition: int | None = None


CLEAR = Sight()


def leaving_of(world: World, universe: Universe) -> tuple[NodeIdentity, ...]:
    """Nodes that are not wanted and are still somewhere."""
    wanted = universe.spec(world).nodes
    return tuple(
        identity(universe, node)
        for node in range(len(universe.groups))
        if node not in wanted
        and (world.sets[node] is not None or world.claims[node] is not None or node in world.registered)
    )


def facts_in(world: World, universe: Universe, sight: Sight = CLEAR) -> Facts:
    """What the planners are given."""
    tree = tree_view(world, universe, sight.partition) if sight.tree else _BLIND
    spec = universe.spec(world)
    return Facts(
        desired=desired(universe, spec),
        memory=world.memory,
        kube=kube_view(world, universe) if sight.kube else _BLIND,
        tree=tree,
        nodes=_answers(world, universe, sight.node),
        servers=_server_views(world, universe),
        now=NOW,
        leaving=leaving_of(world, universe),
        tasks=world.tasks,
        placement=_placement(tree) if isinstance(tree, TreeView) else {},
        version=VersionPlan(down=spec.down and later_runs(world, spec)),
        restarts_wait="they wait for the window" if spec.closed else "",
    )


def later_runs(world: World, spec: Spec) -> bool:
    """Whether a pod runs another template than is wanted."""
    running = {world.servers, *(pod.template for pod in world.pods if pod is not None)}
    return bool(running - {None, spec.template})


_BLIND = Unknown("no answer")


def _answers(world: World, universe: Universe, silent: int | None) -> dict[str, NodeView | Unknown]:
    return {
        connect(n): _node_view(tuple(row[n] for row in world.data), universe.small)
        if up(world, n) and n != silent
        else _BLIND
        for n in range(len(universe.groups))
    }


def old_facts(world: World, old: World, universe: Universe) -> Facts:
    """An old look at Kubernetes and ZooKeeper with what storage nodes say now."""
    return replace(facts_in(old, universe), nodes=_answers(world, universe, None))
