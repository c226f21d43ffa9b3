"""May this be done now? Each question is answered Allowed, with the proof, or Denied, with the reason and the
first blocking partition.

The rules (docs/safety.md, A6): a change of replicas needs the current members of old ∩ new to be a quorum of
both sets; a storage node may go down when every partition on it has a quorum of *other* current copies, no
other storage node is down, and no copy job reads or writes it. A node whose pod is on its way out counts for
neither. Unknown means no. Pure.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import TypeAlias

from waltz_cluster.quorum import quorum_of
from waltz_cluster.replica_rules import (
    NeverStarted,
    Obstacle,
    change_incomplete,
    why_not_change,
    why_not_listed,
    why_not_remove,
)
from waltz_cluster.serializers import PartitionMetadata
from waltz_operator.api.topology import NodeIdentity
from waltz_operator.model.actions import Blocked
from waltz_operator.model.dying_volumes import dying
from waltz_operator.model.ensemble import joins, servers
from waltz_operator.model.facts import MAX_RESTART_LAG, Facts
from waltz_operator.model.reasons import Reason
from waltz_operator.model.snapshot import (
    KubeView,
    NodeReplica,
    NodeView,
    PodView,
    TreeView,
    Unknown,
    registered,
)

SPARE = 3
"""Fewer copies than this leave no quorum when one of them is down."""
START_SECONDS = 60.0
"""A server that runs, or waits for its image, for so long without being ready is not waited for: it may wait
itself."""


@dataclass(frozen=True, slots=True)
class Allowed:
    """It may. `proof` is one line for the audit log."""

    proof: str


@dataclass(frozen=True, slots=True)
class Denied:
    """It may not, now."""

    blocked: Blocked


Answer: TypeAlias = Allowed | Denied


def denied(what: str, reason: Reason, text: str, partition: int | None = None) -> Denied:
    """A refusal; the text names the partition when there is one."""
    shown = f"partition {partition}: {text}" if partition is not None else text
    return Denied(Blocked(what, reason, shown, partition))


_REASONS = {
    Obstacle.NO_REPLICA_LEFT: Reason.UNSAFE_CHANGE,
    Obstacle.CHANGE_INCOMPLETE: Reason.CHANGE_INCOMPLETE,
    Obstacle.STILL_ASSIGNED: Reason.STILL_LISTED,
    Obstacle.STILL_COUNTED: Reason.STILL_LISTED,
}


def may_change(
    facts: Facts, what: str, partition: int, new: Collection[str], *, allow_pause: bool = False
) -> Answer:
    """Safety rule A6: from the replicas that ZooKeeper assigns now to `new`. What stays and is current must
    prove it without nodes whose pods are on their way out: what such a node answers is true for seconds."""
    old, record = facts.holders(partition), facts.record(partition)
    if isinstance(record, Unknown):
        return denied(what, Reason.METADATA_UNKNOWN, record.reason, partition)
    reasons = _not_current(facts, partition, old)
    refusal = why_not_change(record, old, new, reasons, allow_pause=allow_pause)
    if refusal is not None:
        reason = _REASONS.get(refusal.obstacle, Reason.UNSAFE_CHANGE)
        return denied(what, reason, refusal.reason, partition)
    if isinstance(record, NeverStarted):
        return Allowed("the partition was never started")
    ending = {node: "its pod is going down" for node in old if not reasons[node] and _ending(facts, node)}
    refusal = why_not_change(record, old, new, {**reasons, **ending}, allow_pause=allow_pause)
    if refusal is not None:
        return denied(what, Reason.OTHER_NODE_DOWN, refusal.reason, partition)
    live = [node for node in old if node in new and not reasons[node] and node not in ending]
    return Allowed(f"of the remaining replicas {len(live)} are current: {', '.join(live)}")


def may_delete(facts: Facts, what: str, partition: int, node: str) -> Answer:
    """Whether what the node has of the partition is needed by nobody: neither assigned nor in the metadata,
    and a quorum of those that are is current."""
    record, holders = facts.record(partition), facts.holders(partition)
    if isinstance(record, Unknown):
        return denied(what, Reason.METADATA_UNKNOWN, record.reason, partition)
    refusal = why_not_remove(record, node, holders, _not_current(facts, partition, holders))
    if refusal is not None:
        reason = _REASONS.get(refusal.obstacle, Reason.NO_QUORUM_WITHOUT)
        return denied(what, reason, refusal.reason, partition)
    if isinstance(record, NeverStarted):
        return Allowed("the partition was never started")
    current = ", ".join(sorted(facts.current(partition, holders)))
    return Allowed(
        f"gone from ZooKeeper and from the metadata of session {record.session_id}; current: {current}"
    )


def _not_current(facts: Facts, partition: int, nodes: Collection[str]) -> dict[str, str]:
    return {node: facts.not_current(partition, node) for node in nodes}


def may_assign_on_node(facts: Facts, partition: int, node: str) -> Answer:
    """Whether a node that does not have the partition may get it assigned: only where no session ever
    counted on data of it there, for an empty disk must not become a voter (safety rule A1)."""
    what, record = f"partition {partition} on {node}", facts.record(partition)
    if isinstance(record, Unknown):
        return denied(what, Reason.METADATA_UNKNOWN, record.reason, partition)
    if isinstance(record, PartitionMetadata) and node in record.replicas:
        took_part = record.replicas[node].session_id
        if took_part >= 0:
            text = (
                f"{node} took part in session {took_part} and has nothing of it: its disk was lost; a WaltzMigration with "
                "replace refills it"
            )
            return denied(what, Reason.DISK_LOST, text, partition)
    return Allowed("no session ever counted on data of it there")


def may_unregister(facts: Facts, node: str) -> Answer:
    """Whether the node is proven to be empty: by ZooKeeper, by the metadata of every partition, and by its
    own complete answer."""
    what = f"removal of {node}"
    if not isinstance(facts.tree, TreeView):
        return denied(what, Reason.ZOOKEEPER_UNKNOWN, "ZooKeeper was not read")
    if facts.tree.assignments.get(node):
        text = f"ZooKeeper still assigns it to {node}"
        return denied(what, Reason.NOT_EMPTY, text, facts.tree.assignments[node][0])
    if not facts.metadata_known():
        return denied(what, Reason.METADATA_UNKNOWN, "the metadata of a partition could not be read")
    listed = facts.listed(node)
    if listed is not None:
        return denied(
            what, Reason.STILL_LISTED, f"its metadata still counts {node} among the replicas", listed
        )
    view = facts.node(node)
    if isinstance(view, Unknown):
        return denied(what, Reason.NODE_SILENT, f"{node} is not proven to be empty: {view.reason}")
    if view.partitions:
        return denied(what, Reason.NOT_EMPTY, f"{node} still has it", min(view.partitions))
    return Allowed(
        "ZooKeeper assigns it nothing, no metadata counts on it, and it answers that it has no partition"
    )


def may_reclaim(facts: Facts, identity: NodeIdentity) -> Answer:
    """Whether the volume of a node may be deleted: nothing refers to the node, and good copies of every
    partition are proven to exist."""
    what, node = f"deletion of volume {identity.pvc}", identity.connect_string
    if not facts.desired.reclaim_delete or facts.staying(node):
        return denied(what, Reason.NOT_EMPTY, "the volume is to be kept")
    if not isinstance(facts.tree, TreeView):
        return denied(what, Reason.ZOOKEEPER_UNKNOWN, "ZooKeeper was not read")
    if registered(facts.tree, node):
        return denied(what, Reason.STILL_LISTED, f"{node} is registered in ZooKeeper")
    for partition in range(facts.tree.num_partitions):
        answer = may_delete(facts, what, partition, node)
        if isinstance(answer, Denied):
            return answer
    return Allowed(
        "its node is gone and unregistered, no metadata counts on it, every partition has a quorum of current copies"
    )


def may_give_up(facts: Facts, identity: NodeIdentity) -> Answer:
    """Whether the volumes of a node that stays may be deleted, whose data and journal do not belong together:
    a person has it filled again, and every partition is proven to do without it."""
    what, node = f"giving up what {identity.pod} holds", identity.connect_string
    if facts.lost_journal(node) is None:
        return denied(what, Reason.NODE_SILENT, f"{node} is not proven to have lost its journal, or its data")
    if not any(one.refills(node) for one in facts.tasks):
        return denied(what, Reason.NOT_APPROVED, "no WaltzMigration with replace asks for it")
    needed = _needed(facts, what, node)
    return needed or Allowed(
        "its data and its journal do not belong together, and others hold all that it should"
    )


def _needed(facts: Facts, what: str, node: str) -> Denied | None:
    """The first reason why not every partition is proven to do without what the node holds."""
    if not isinstance(facts.tree, TreeView):
        return denied(what, Reason.ZOOKEEPER_UNKNOWN, "ZooKeeper was not read")
    for partition in range(facts.tree.num_partitions):
        record, holders = facts.record(partition), facts.holders(partition)
        if isinstance(record, NeverStarted) or (node not in holders and not _counted(record, node)):
            continue
        if node in holders:
            answer = may_change(facts, what, partition, [one for one in holders if one != node])
        else:
            answer = may_delete(facts, what, partition, node)
        if isinstance(answer, Denied):
            return answer
    return None


def _counted(record: PartitionMetadata | Unknown, node: str) -> bool:
    """Whether the metadata count on the node, or may."""
    return isinstance(record, Unknown) or node in record.replicas


def may_restart(facts: Facts, identity: NodeIdentity) -> Answer:
    """Whether this storage node may go down."""
    node, what = identity.connect_string, f"restart of {identity.pod}"
    if not isinstance(facts.kube, KubeView):
        return denied(what, Reason.KUBERNETES_UNKNOWN, facts.kube.reason)
    if not isinstance(facts.tree, TreeView):
        return denied(what, Reason.ZOOKEEPER_UNKNOWN, "ZooKeeper was not read")
    pod, held = facts.kube.pods.get(identity.pod), facts.tree.assignments.get(node, ())
    silent = isinstance(facts.node(node), Unknown)
    does_nothing = pod is not None and pod.stuck and not pod.ready and silent
    claim = dying(facts.kube, identity.claims)
    if claim:
        needed = _needed(facts, what, node) if does_nothing else _holds_something(facts, what, node)
        if needed is not None:
            text = f"{kept_by_its_pod(claim, identity.pod)}; {needed.blocked.text}"
            return denied(what, Reason.VOLUME_BEING_DELETED, text)
    if pod is not None and pod.stuck and not pod.ready and silent:
        return Allowed(f"its pod can't run as it is ({pod.stuck}): nothing is taken down")
    problem = facts.certificate_holding("storage")
    if problem is not None:
        return denied(what, problem.reason, problem.text)
    ready = pod is not None and pod.ready
    if ready or any(_in_service(facts, partition, node) for partition in held):
        other = _other_down(facts, facts.kube, node, ready)
        if other:
            return denied(what, Reason.OTHER_NODE_DOWN, f"one storage node at a time; {other}")
    copying = _copying(facts.kube, node) if ready or not silent else None
    if copying is not None:
        return denied(what, Reason.COPY_IN_PROGRESS, "its copy job reads or writes this node", copying)
    for partition in held:
        refusal = _quorum_without(facts, what, partition, node, ready)
        if refusal is not None:
            return refusal
    return Allowed(f"each of its {len(held)} partitions has a quorum of other current copies")


def kept_by_its_pod(claim: str, pod: str) -> str:
    """What a claim is that somebody has deleted."""
    return f"PersistentVolumeClaim {claim} was deleted, and its volume goes as soon as {pod} ends"


def _holds_something(facts: Facts, what: str, node: str) -> Denied | None:
    """Why a node that runs is not proven to hold nothing; a partition that was never started has nothing."""
    if not isinstance(facts.tree, TreeView):
        return denied(what, Reason.ZOOKEEPER_UNKNOWN, "ZooKeeper was not read")
    for partition in range(facts.tree.num_partitions):
        record = facts.record(partition)
        if isinstance(record, NeverStarted):
            continue
        if node in facts.holders(partition) or _counted(record, node):
            return denied(what, Reason.NOT_EMPTY, "a migration with drain moves it", partition)
    return None


def may_restart_zookeeper(facts: Facts, name: str) -> Answer:
    """Whether this pod of the managed ZooKeeper may go down. Ready means that it serves in a quorum."""
    what, kube = f"restart of {name}", facts.kube
    if not isinstance(kube, KubeView):
        return denied(what, Reason.KUBERNETES_UNKNOWN, kube.reason)
    others = [one for one in servers(facts.desired, kube) if one != name]
    serving = [one for one in others if (pod := kube.pods.get(one)) is not None and pod.ready]
    pod = kube.pods.get(name)
    claim = dying(kube, (f"data-{name}",))
    if claim:
        steady = [one for one in serving if not kube.pods[one].deleting]
        if pod is None or pod.ready or not others or len(steady) < len(others):
            text = (
                f"{kept_by_its_pod(claim, name)}; export the records in ZooKeeper first (`waltz zk export`)"
            )
            return denied(what, Reason.VOLUME_BEING_DELETED, text)
    if pod is not None and not pod.ready and not serving:
        return Allowed("none of the servers serves: nothing is taken down")
    if pod is not None and not pod.ready and len(serving) >= quorum_of(len(others) + 1):
        return Allowed(f"it does not serve, and {len(serving)} others do")
    problem = facts.certificate_holding("zookeeper")
    if problem is not None and pod is not None and pod.ready:
        return denied(what, problem.reason, problem.text)
    if pod is not None and pod.ready and _servers_roll(kube, facts.now):
        text = "servers are being replaced, and need ZooKeeper to hand their partitions over"
        return denied(what, Reason.SERVERS_FIRST, text)
    if joins(facts.desired, kube, name, facts.now):
        return Allowed("it is the only one, and the second one runs and waits for it")
    for one in others:
        if one not in serving or kube.pods[one].deleting:
            return denied(
                what, Reason.OTHER_NODE_DOWN, f"one ZooKeeper server at a time; {one} does not serve"
            )
    return Allowed(f"all {len(others)} others serve in a quorum" if others else "it is the only one")


def _servers_roll(kube: KubeView, now: float) -> bool:
    """Whether servers are being replaced, and get on with it: one that can't start or be made may wait for a
    change of ZooKeeper itself, and one of a machine that is gone ends never."""
    pods = kube.server_pods
    if any(pod.deleting and pod.ready for pod in pods):
        return True
    rolls = kube.deployment is not None and not kube.deployment.calm and not kube.deployment.stalls
    return rolls and bool(pods) and all(pod.ready or pod.deleting or _starts(pod, now) for pod in pods)


def _starts(pod: PodView, now: float) -> bool:
    """Whether a pod that is not ready may be so soon. Once it is, an old one is stopped, and ZooKeeper has to
    be there; that a ready one is missing is the rule in a roll."""
    since = pod.created if pod.running_since is None else pod.running_since
    return not pod.stuck and abs(now - since) < START_SECONDS  # of another clock, perhaps


def _quorum_without(facts: Facts, what: str, partition: int, node: str, ready: bool) -> Denied | None:
    record = facts.record(partition)
    if isinstance(record, Unknown):
        return denied(what, Reason.METADATA_UNKNOWN, record.reason, partition)
    if isinstance(record, NeverStarted):
        return None
    if not ready and not _in_service(facts, partition, node) and why_not_listed(record, node):
        return None
    holders = facts.holders(partition)
    incomplete = change_incomplete(record, holders)
    if incomplete:
        return denied(what, Reason.CHANGE_INCOMPLETE, incomplete, partition)
    others = facts.current(partition, [one for one in holders if one != node and not _ending(facts, one)])
    near = [one for one in others if (facts.lag(partition, one) or 0) <= MAX_RESTART_LAG]
    if len(near) >= quorum_of(len(holders)):
        return None
    if facts.desired.allow_pause and len(holders) < SPARE and len(others) == len(holders) - 1:
        return None  # writes to it wait until the node is back; nothing can be lost
    if len(holders) < SPARE and len(others) == len(holders) - 1:
        text = f"it has {len(holders)} copies, so writes would stop (storage.allowPause, if that is accepted)"
        return denied(what, Reason.NO_SPARE_REPLICA, text, partition)
    far = next((one for one in holders if one != node and one not in near), None)
    why = "" if far is None else f"; {far}: {facts.not_current(partition, far) or 'it is far behind'}"
    text = f"{len(near)} other copies are proven to be current, {quorum_of(len(holders))} are needed{why}"
    return denied(what, Reason.NO_QUORUM_WITHOUT, text, partition)


def _ending(facts: Facts, node: str) -> bool:
    """Whether the node's pod is on its way out, though it may still answer."""
    identity = facts.identity(node)
    pod = (
        facts.kube.pods.get(identity.pod)
        if identity is not None and isinstance(facts.kube, KubeView)
        else None
    )
    return pod is not None and pod.deleting


def _in_service(facts: Facts, partition: int, node: str) -> bool:
    """Whether the node answers and its copy takes part, or is about to, whatever is said of its pod: what
    runs alongside it may crash."""
    replica = facts.replica(partition, node)
    return isinstance(replica, NodeReplica) and replica.available and not replica.problem


def _well(view: NodeView | Unknown) -> bool:
    """Whether the node answers, and says of nothing that it is out of service."""
    return isinstance(view, NodeView) and not any(one.problem for one in view.partitions.values())


def _other_down(facts: Facts, kube: KubeView, node: str, ready: bool) -> str:
    """Why another storage node is not proven to be up; empty when all are. For a node that is not `ready`
    itself those count that are silent or on their way, not those that only are unready too: they would wait
    for each other."""
    for other in (*facts.desired.nodes, *facts.leaving):
        if other.connect_string == node:
            continue
        view = facts.node(other.connect_string)
        if not other.external and other.statefulset in kube.statefulsets:
            pod = kube.pods.get(other.pod)
            if pod is None or pod.deleting or (ready and not pod.ready and not _well(view)):
                return f"{other.pod} is not ready"
        known = isinstance(facts.tree, TreeView) and registered(facts.tree, other.connect_string)
        if isinstance(view, Unknown) and known:
            return f"{other.connect_string} does not answer ({view.reason})"
    return ""


def _copying(kube: KubeView, node: str) -> int | None:
    for job in kube.jobs.values():
        if job.state == "active" and node in (job.source, job.target):
            return job.partition
    return None
