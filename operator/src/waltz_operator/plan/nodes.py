"""Storage nodes and their partitions: seeding, keeping ZooKeeper and nodes equal, letting nodes go. Pure.

A node whose disk is empty although its replica took part in a session is never assigned its partitions again
on its own: that would turn a lost disk into a voter (safety rule A1). It is reported, and a WaltzMigration
with `replace` refills it.
"""

from __future__ import annotations

from waltz_operator.api.topology import NodeIdentity
from waltz_operator.model.actions import (
    AssignInZooKeeper,
    AssignOnNode,
    DeleteObject,
    DeletePVC,
    UnregisterNode,
)
from waltz_operator.model.facts import Facts
from waltz_operator.model.reasons import Reason
from waltz_operator.model.snapshot import KubeView, ObjectKey, TreeView, Unknown, registered
from waltz_operator.plan.builder import Decision
from waltz_operator.plan.cordons import why_closed
from waltz_operator.plan.placement import seeds, unplaced
from waltz_operator.plan.safety_gates import (
    Denied,
    denied,
    may_assign_on_node,
    may_reclaim,
    may_unregister,
)


def seed(facts: Facts, tree: TreeView, decision: Decision) -> None:
    """Assign the partitions that were never started, in one transaction. Nodes need not be up for it. A group
    without a node for them is reported: servers are not made before it has one."""
    if any(node.connect_string not in tree.groups for node in facts.desired.nodes):
        return  # all nodes first, so that they get even shares
    additions = seeds(facts)
    if additions:
        decision.take(AssignInZooKeeper(additions, tree.versions[1]))
        decision.wait(Reason.CREATING, "the partitions are assigned")
    for group, partitions in unplaced(facts).items():
        others = f" and {len(partitions) - 1} more" if len(partitions) > 1 else ""
        text = f"no node of group {group} may take it{others}{why_closed(facts, group)}"
        decision.block(denied("the first copies", Reason.NO_TARGET, text, partitions[0]).blocked)


def equalise(facts: Facts, tree: TreeView, decision: Decision) -> None:
    """Assign on nodes the partitions that ZooKeeper gives them and that they do not have, where that is
    proven to be harmless."""
    for node, held in sorted(tree.assignments.items()):
        view = facts.node(node)
        if isinstance(view, Unknown) or facts.identity(node) is None:
            continue
        missing = [partition for partition in held if partition not in view.partitions]
        fresh = []
        for partition in missing:
            answer = may_assign_on_node(facts, partition, node)
            if isinstance(answer, Denied):
                decision.block(answer.blocked)
            else:
                fresh.append(partition)
        if fresh:
            decision.actions.append(AssignOnNode(node, facts.admin_port(node), tuple(fresh)))
            decision.soon()


def release_nodes(facts: Facts, tree: TreeView, kube: KubeView, decision: Decision) -> None:
    """One step towards the end of a node that is no longer in the specification and was proven to be
    empty."""
    for node in facts.leaving:
        if decision.risky:
            return
        if registered(tree, node.connect_string):
            _unregister(facts, tree, node, decision)
        else:
            _remove_objects(facts, kube, node, decision)
    if facts.desired.reclaim_delete and not decision.risky:
        _reclaim(facts, tree, kube, decision)


def _unregister(facts: Facts, tree: TreeView, identity: NodeIdentity, decision: Decision) -> None:
    node = identity.connect_string
    if tree.assignments.get(node):
        return  # its partitions are on their way: said there
    answer = may_unregister(facts, node)
    if isinstance(answer, Denied):
        decision.block(answer.blocked)
    else:
        decision.take(UnregisterNode(node, answer.proof))


def _remove_objects(facts: Facts, kube: KubeView, node: NodeIdentity, decision: Decision) -> None:
    view = kube.statefulsets.get(node.statefulset)
    if view is None or node.external:
        return
    if not view.deleting:
        decision.take(
            DeleteObject(
                ObjectKey("StatefulSet", node.statefulset),
                view.uid,
                "the node is no longer in the specification and not registered",
            )
        )
    else:
        decision.soon()


def _reclaim(facts: Facts, tree: TreeView, kube: KubeView, decision: Decision) -> None:
    """Delete the volumes of a node that is gone."""
    for node in facts.leaving:
        claims = {name: kube.pvcs[name] for name in node.claims if name in kube.pvcs}
        left = {name: claim for name, claim in claims.items() if not claim.deleting}
        if not left or node.external:
            continue
        if (
            node.statefulset in kube.statefulsets
            or node.pod in kube.pods
            or registered(tree, node.connect_string)
        ):
            continue  # not yet gone
        answer = may_reclaim(facts, node)
        if isinstance(answer, Denied):
            decision.block(answer.blocked)
            return
        decision.take(*(DeletePVC(name, claim.uid, answer.proof) for name, claim in left.items()))
        return
