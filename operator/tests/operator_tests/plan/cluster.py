"""A cluster of three nodes, one copy of partition 0 on each, all well; tests change one thing of it and ask
the planner."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from waltz_cluster.serializers import PartitionMetadata, ReplicaState
from waltz_operator.api.topology import NodeIdentity
from waltz_operator.model.desired import Desired, Memory, created_key
from waltz_operator.model.facts import Facts, placement_of
from waltz_operator.model.rendered import Rendered
from waltz_operator.model.snapshot import (
    DeploymentView,
    KubeView,
    NodeReplica,
    NodeView,
    ObjectKey,
    ObjectView,
    PodView,
    PVCView,
    ServerView,
    StatefulSetView,
    TreeView,
    Unknown,
)
from waltz_operator.plan.builder import Decision
from waltz_operator.plan.cluster import decide
from waltz_operator.plan.status.conditions import conditions
from waltz_operator.plan.status.partition_health import health_of
from waltz_protocol.types import UNRESOLVED, PartitionId

KEY = created_key("a-uid")
NOW = 1000.0
SESSION = 7
NODES = (0, 1, 2)


def name(node: int) -> str:
    """Connect string of a node."""
    return f"n{node}:1"


def listed(node: int | str, session_id: int = SESSION, closing: int = UNRESOLVED) -> ReplicaState:
    """A replica in the metadata of partition 0: it takes part, or dropped out at a mark."""
    return ReplicaState(PartitionId(0), node if isinstance(node, str) else name(node), session_id, closing)


def identity(node: int) -> NodeIdentity:
    """Node `node` is the only one of group `node`."""
    place = f"s{node}"
    return NodeIdentity(
        str(node), "0", node, name(node), 2, False, None, place, f"{place}-0", f"data-{place}-0"
    )


def pod(template: str = "t1", *, ready: bool = True, deleting: bool = False, stuck: str = "") -> PodView:
    """A storage pod."""
    return PodView("uid", "storage", template, ready, deleting, stuck)


def desired(nodes: tuple[int, ...] = NODES) -> Desired:
    """The specification: these nodes, one partition."""
    wanted = tuple(identity(node) for node in nodes)
    return Desired(
        "c",
        "c",
        1,
        wanted,
        KEY,
        lambda migration, partition: f"copy-{migration}-{partition}",
        by_connect={one.connect_string: one for one in wanted},
    )


def rendered(
    nodes: tuple[int, ...] = NODES, template: str = "t1", servers: str = "t1"
) -> tuple[Rendered, ...]:
    """StatefulSets, claims and the Deployment as they are to be."""
    found = []
    for one in map(identity, nodes):
        found.append(Rendered(ObjectKey("PersistentVolumeClaim", one.pvc), {}, "claim"))
        found.append(Rendered(ObjectKey("StatefulSet", one.statefulset), {}, f"set-{template}", template))
    return (*found, Rendered(ObjectKey("Deployment", "c-server"), {}, f"set-{servers}", servers))


def kube(
    pods: Mapping[int, PodView | None] | None = None,
    *,
    nodes: tuple[int, ...] = NODES,
    template: str = "t1",
    servers: str = "t1",
    calm: bool = True,
) -> KubeView:
    """Everything of these nodes; `pods`: those that are not well, None for one that is missing.
    `template`: of the StatefulSets."""
    objects = {ObjectKey("Deployment", "c-server"): ObjectView("d", "", f"set-{servers}")}
    sets, claims, running = {}, {}, {}
    for node, one in ((node, identity(node)) for node in nodes):
        objects[ObjectKey("StatefulSet", one.statefulset)] = ObjectView("s", "", f"set-{template}")
        objects[ObjectKey("PersistentVolumeClaim", one.pvc)] = ObjectView("v", "", "claim")
        sets[one.statefulset] = StatefulSetView("s", one.group, one.name, template, 1, 1, True)
        claims[one.pvc] = PVCView("v", 1, 1, group=one.group, node=one.name)
        found = (pods or {}).get(node, pod(template))
        if found is not None:
            running[one.pod] = found
    return KubeView(objects, sets, DeploymentView("d", servers, 1, 1, calm), running, claims)


def replica(**changes: object) -> NodeReplica:
    """A copy that is current; `changes` of its fields."""
    well = NodeReplica(True, SESSION, 5, 5, 5, True)
    return replace(well, **changes)  # type: ignore[arg-type]


def answer(*copies: NodeReplica) -> NodeView:
    """What a node says: of partition 0, or that it has nothing."""
    return NodeView(dict(enumerate(copies)), NOW)


def facts(
    view: KubeView | Unknown | None = None,
    says: Mapping[int, NodeView | Unknown] | None = None,
    *,
    closed: tuple[int, ...] = (),
    assigned: tuple[int, ...] = NODES,
    nodes: tuple[int, ...] = NODES,
) -> Facts:
    """One look. `says`: answers of nodes that are not simply well; `closed`: copies that dropped out of
    the present session."""
    copies = {
        name(node): listed(node, SESSION - 1, 3) if node in closed else listed(node) for node in assigned
    }
    known = {name(node): node for node in nodes}
    tree = TreeView(
        "c",
        KEY,
        1,
        dict(known),
        {one: (0,) if node in assigned else () for one, node in known.items()},
        dict.fromkeys(known, 2),
        (0, 0, 0),
        {0: PartitionMetadata(0, SESSION, copies)},
        {1: "h:1"},
        {0: 1},
    )
    answers = {
        name(node): (says or {}).get(node, answer(replica()) if node in assigned else answer())
        for node in nodes
    }
    return Facts(
        desired=desired(nodes),
        memory=Memory(KEY),
        kube=view or kube(nodes=nodes),
        tree=tree,
        nodes=answers,
        servers={1: ServerView(frozenset({0}), {0: True}, {}, NOW)},
        now=NOW,
        placement=placement_of(tree),
    )


def progressing(found: Facts, objects: tuple[Rendered, ...] | None = None) -> tuple[str, str, str]:
    """Status, reason and message of the condition Progressing after the planner's pass."""
    if objects is None:
        objects = rendered(tuple(range(len(found.desired.nodes))))
    return told(found, decide(found, objects))


def told(found: Facts, decision: Decision) -> tuple[str, str, str]:
    """The same of a decision."""
    health = health_of(found)
    one = next(one for one in conditions(found, decision, health, (), (), 1) if one.type == "Progressing")
    return one.status, one.reason, one.message
