"""Does the precondition of a destructive action still hold? Asked by the applier right before the write, of a
second, fresh look: between the first one and the write anything may have happened, and the first one may have
been an old answer. Pure."""

from __future__ import annotations

from waltz_admin.found_tree import BrokenTree, NoTree
from waltz_cluster.replica_rules import NeverStarted
from waltz_operator.model.actions import (
    Action,
    AssignInZooKeeper,
    AssignOnNode,
    DeleteObject,
    DeletePod,
    DeletePVC,
    DeleteTree,
    GiveUpVolume,
    MovePartitions,
    RegisterNode,
    RemoveOnNode,
    UnassignInZooKeeper,
    UnregisterNode,
)
from waltz_operator.model.ensemble import claims, servers
from waltz_operator.model.facts import Facts, facts_of
from waltz_operator.model.reasons import Reason
from waltz_operator.model.snapshot import (
    KubeView,
    NodeReplica,
    Snapshot,
    TreeView,
    registered,
)
from waltz_operator.plan.kept_data import of_another
from waltz_operator.plan.safety_gates import (
    Allowed,
    Answer,
    denied,
    may_assign_on_node,
    may_change,
    may_delete,
    may_give_up,
    may_reclaim,
    may_restart,
    may_restart_zookeeper,
    may_unregister,
)
from waltz_operator.plan.server_moves import may_move

OF_COPIES = AssignInZooKeeper | AssignOnNode | RemoveOnNode | UnassignInZooKeeper
"""Proven by the specification, ZooKeeper and the storage nodes: the second look leaves out the rest. Which
pods are on their way out it takes from the first one: a pod may as well be deleted right after the write."""


def prove(first: Snapshot, second: Snapshot, action: Action) -> Answer:
    """Whether the action, planned on `first`, may be carried out by what `second` shows. Asked about
    those with `destructive`."""
    before, now = first.cluster.metadata, second.cluster.metadata
    if (before.uid, before.generation, before.deleting) != (now.uid, now.generation, now.deleting):
        return denied(
            action.line, Reason.REFUSED_CHANGE, "the specification has changed since it was planned"
        )
    return still_so(facts_of(second), action)


def still_so(facts: Facts, action: Action) -> Answer:
    """The gate of the action, by these facts."""
    match action:
        case DeletePod() if _is_zookeeper(facts, action.name):
            return may_restart_zookeeper(facts, action.name)
        case DeletePod():
            node = next((one for one in facts.desired.nodes if one.pod == action.name), None)
            if node is None:
                return denied(
                    action.line, Reason.REFUSED_CHANGE, "it is not a storage node of the specification"
                )
            return may_restart(facts, node)
        case RemoveOnNode():
            return may_delete(facts, action.line, action.partition, action.node)
        case RegisterNode():
            if not facts.staying(action.node):
                return denied(
                    action.line, Reason.REFUSED_CHANGE, "it is not a storage node of the specification"
                )
            return Allowed("it is in the specification")
        case UnregisterNode():
            return may_unregister(facts, action.node)
        case AssignInZooKeeper():
            return _addition(facts, action)
        case AssignOnNode():
            return _on_node(facts, action)
        case UnassignInZooKeeper():
            left = [node for node in facts.holders(action.partition) if node != action.node]
            return may_change(facts, action.line, action.partition, left)
        case DeletePVC():
            return _volume(facts, action)
        case GiveUpVolume():
            owner = next((one for one in facts.desired.nodes if action.name in one.claims), None)
            if owner is None:
                return denied(action.line, Reason.REFUSED_CHANGE, "it is no volume of a node that stays")
            return may_give_up(facts, owner)
        case DeleteObject():
            return _object(facts, action)
        case DeleteTree():
            return _tree(facts, action)
        case MovePartitions():
            return may_move(facts, action)
        case _:
            return Allowed("nothing is destroyed")


def _is_zookeeper(facts: Facts, pod: str) -> bool:
    return isinstance(facts.kube, KubeView) and pod in servers(facts.desired, facts.kube)


def _addition(facts: Facts, action: AssignInZooKeeper) -> Answer:
    """What was copied is still there, and may still be added."""
    for node, partitions in action.additions.items():
        for partition in partitions:
            replica = facts.replica(partition, node)
            if isinstance(facts.record(partition), NeverStarted):
                continue
            if not isinstance(replica, NodeReplica) or not replica.available:
                text = f"{node} does not show an available copy of it"
                return denied(action.line, Reason.NO_SOURCE, text, partition)
            new = {*facts.holders(partition), node}
            answer = may_change(facts, action.line, partition, new, allow_pause=action.allow_pause)
            if not isinstance(answer, Allowed):
                return answer
    return Allowed("every copy that is added is there")


def _on_node(facts: Facts, action: AssignOnNode) -> Answer:
    for partition in action.partitions:
        if facts.replica(partition, action.node) is None:
            answer = may_assign_on_node(facts, partition, action.node)
            if not isinstance(answer, Allowed):
                return answer
    return Allowed("no session ever counted on data of it there")


def _volume(facts: Facts, action: DeletePVC) -> Answer:
    if facts.desired.deleting:
        if not facts.desired.reclaim_delete:
            return denied(action.line, Reason.NOT_EMPTY, "the volumes are to be kept")
        if not _volume_of(facts, action.name):
            return denied(action.line, Reason.REFUSED_CHANGE, "it is no volume of the cluster")
        view = facts.kube.pvcs.get(action.name) if isinstance(facts.kube, KubeView) else None
        if view is not None and of_another(facts, view):
            text = "it is of an earlier cluster: this one never had a key, and did not make it"
            return denied(action.line, Reason.LEFTOVER_VOLUMES, text)
        return Allowed("the cluster is deleted with its data")
    node = next((one for one in facts.leaving if action.name in one.claims), None)
    if node is None:
        return denied(action.line, Reason.REFUSED_CHANGE, "it is no volume of a node that leaves")
    return may_reclaim(facts, node)


def _volume_of(facts: Facts, claim: str) -> bool:
    """Whether it is a volume of the cluster's: of a storage node, present or past, or of the managed
    ZooKeeper."""
    view = facts.kube.pvcs.get(claim) if isinstance(facts.kube, KubeView) else None
    if isinstance(facts.kube, KubeView) and claim in claims(facts.desired, facts.kube):
        return True
    known = [node for node in (*facts.desired.nodes, *facts.leaving) if not node.external]
    nodes = {name for node in known for name in node.claims}
    return claim in nodes.union(facts.desired.zookeeper_claims) or (view is not None and bool(view.node))


def _object(facts: Facts, action: DeleteObject) -> Answer:
    if facts.desired.deleting or action.key.kind != "StatefulSet":
        return Allowed("it is no longer in the specification")
    node = next((one for one in facts.leaving if one.statefulset == action.key.name), None)
    if node is None:
        return denied(action.line, Reason.REFUSED_CHANGE, "it is no storage node that leaves")
    if not isinstance(facts.tree, TreeView) or registered(facts.tree, node.connect_string):
        return denied(
            action.line, Reason.STILL_LISTED, f"{node.connect_string} is not proven to be unregistered"
        )
    return Allowed("the node is no longer in the specification and not registered")


def _tree(facts: Facts, action: DeleteTree) -> Answer:
    if not facts.desired.deleting or not facts.desired.reclaim_delete:
        return denied(action.line, Reason.NOT_EMPTY, "the tree is to be kept")
    if isinstance(facts.tree, NoTree):
        return Allowed("it is gone already")
    if isinstance(facts.tree, BrokenTree) and facts.tree.rest_of(facts.desired.label, action.cluster_key):
        return Allowed("it is what a deletion of this cluster left")
    if not isinstance(facts.tree, TreeView) or facts.tree.cluster_key != action.cluster_key:
        return denied(action.line, Reason.FOREIGN_TREE, "the tree is not proven to be ours")
    if facts.tree.servers:
        return denied(action.line, Reason.WAITING_FOR_SERVERS, "servers are still registered")
    return Allowed("no server is registered, the key is the recorded one")
