"""The cluster in ZooKeeper: made once, recognised by its key forever. Pure.

A tree is ours when it has the recorded key; when none was recorded yet, the key that this object would have
made (a crash came before the record) or the one that the specification adopts. Anything else is never
touched. A tree that is missing although a key was recorded, or although volumes of the cluster exist, was
lost: it is never seeded again (safety rule A7).
"""

from __future__ import annotations

from dataclasses import replace

from waltz_admin.found_tree import BrokenTree, NoTree
from waltz_operator.model.actions import CreateTree, RegisterNode
from waltz_operator.model.facts import Facts
from waltz_operator.model.reasons import Reason
from waltz_operator.model.snapshot import KubeView, TreeView, Unknown
from waltz_operator.plan.builder import Decision
from waltz_operator.plan.zookeeper_login import closed_first


def check_tree(facts: Facts, decision: Decision) -> None:
    """Fill in `invalid` when the tree is not ours, not the one that the specification describes, or may not
    be made."""
    tree, recorded = facts.tree, facts.memory.cluster_key
    if isinstance(tree, TreeView):
        decision.invalid = _mismatch(facts, tree)
    elif isinstance(tree, NoTree):
        decision.invalid = _missing(facts)
    elif isinstance(tree, BrokenTree):
        reason = Reason.TREE_BROKEN if recorded is None else Reason.TREE_LOST
        decision.invalid = (
            reason,
            f"what is at the root in ZooKeeper is not a complete cluster: {tree.reason}",
        )


def _mismatch(facts: Facts, tree: TreeView) -> tuple[Reason, str] | None:
    desired, recorded = facts.desired, facts.memory.cluster_key
    expected = recorded or desired.expected_key
    if tree.cluster_key != expected:
        hint = "" if recorded else " (to take it over, give zookeeper.adoptKey)"
        return (
            Reason.FOREIGN_TREE,
            f"the tree in ZooKeeper has the key {tree.cluster_key}, not {expected}{hint}",
        )
    if tree.num_partitions != desired.partitions:
        text = f"the tree in ZooKeeper has {tree.num_partitions} partitions, the specification {desired.partitions}"
        return Reason.FOREIGN_TREE, text
    numbers = group_numbers(facts, tree)
    for node in desired.nodes:
        known = tree.groups.get(node.connect_string)
        if known is not None and known != numbers[node.group]:
            text = (
                f"{node.connect_string} is in group {known} in ZooKeeper, not in group {numbers[node.group]}"
            )
            return Reason.NODE_MISMATCH, text
        port = tree.admin_ports.get(node.connect_string)
        if port is not None and port != node.admin_port:
            return (
                Reason.NODE_MISMATCH,
                f"{node.connect_string} has the admin port {port} in ZooKeeper, not {node.admin_port}",
            )
    return None


def make_tree(facts: Facts, decision: Decision) -> None:
    """Create it when that is proven to be right, and record its key when it is seen."""
    tree, desired = facts.tree, facts.desired
    if isinstance(tree, TreeView):
        if facts.memory.cluster_key is None:
            decision.memory = replace(decision.memory, cluster_key=tree.cluster_key)
            decision.soon()
    elif isinstance(tree, Unknown):
        decision.wait(Reason.WAITING_FOR_ZOOKEEPER, tree.reason)
    elif isinstance(tree, NoTree) and isinstance(facts.kube, KubeView):
        if closed_first(facts):
            decision.wait(Reason.CREATING, "ZooKeeper is closed to others, then the cluster is made in it")
            return
        decision.take(CreateTree(desired.label, desired.partitions, desired.created_key))
        decision.wait(Reason.CREATING, "the cluster is made in ZooKeeper")


def _missing(facts: Facts) -> tuple[Reason, str] | None:
    """Why a tree that is not there may not be made."""
    recorded, adopt = facts.memory.cluster_key, facts.desired.adopt_key
    if recorded is not None:
        text = (
            f"the cluster with key {recorded} is missing in ZooKeeper: it was lost, and is never made anew; set "
            "servers.replicas: 0 and bring it back with `waltz zk import` or `waltz zk rebuild`"
        )
        return Reason.TREE_LOST, text
    if adopt is not None:
        text = f"there is no tree to adopt: nothing is at the root (zookeeper.adoptKey {adopt})"
        return Reason.FOREIGN_TREE, text
    left = _leftovers(facts, facts.kube) if isinstance(facts.kube, KubeView) else ""
    if left:
        text = (
            f"there is no tree in ZooKeeper, but {left} is there, with records of a cluster that was: delete it, or "
            "bring the tree back and give its key as zookeeper.adoptKey"
        )
        return Reason.LEFTOVER_VOLUMES, text
    return None


def _leftovers(facts: Facts, kube: KubeView) -> str:
    storage = [name for name, view in kube.statefulsets.items() if view.node]
    claims = [name for name, view in kube.pvcs.items() if view.node or _claim_of_node(facts, name)]
    names = [
        *(f"StatefulSet {name}" for name in storage),
        *(f"PersistentVolumeClaim {name}" for name in claims),
    ]
    return min(names, default="")


def _claim_of_node(facts: Facts, name: str) -> bool:
    return any(name in node.claims for node in facts.desired.nodes)


def group_numbers(facts: Facts, tree: TreeView) -> dict[str, int]:
    """Number of each group of the specification in ZooKeeper: as its nodes are registered, else as the
    specification wishes, else the smallest that nobody has."""
    numbers: dict[str, int] = {}
    for node in (*facts.desired.nodes, *facts.leaving):
        known = tree.groups.get(node.connect_string)
        if known is not None:
            numbers.setdefault(node.group, known)
    used = {*tree.groups.values(), *numbers.values()}
    wishes = {node.group: node.group_id for node in facts.desired.nodes}
    for group, wish in wishes.items():
        if group not in numbers and wish is not None and wish not in used:
            numbers[group] = wish
            used.add(wish)
    for group in wishes:
        if group not in numbers:
            numbers[group] = next(n for n in range(len(used) + 1) if n not in used)
            used.add(numbers[group])
    return numbers


def register_nodes(facts: Facts, tree: TreeView, decision: Decision) -> None:
    """Register the nodes of the specification that are not, or only half, in ZooKeeper."""
    numbers = group_numbers(facts, tree)
    for node in facts.desired.nodes:
        name = node.connect_string
        if all(name in known for known in (tree.groups, tree.assignments, tree.admin_ports)):
            continue
        decision.actions.append(RegisterNode(name, node.admin_port, numbers[node.group]))
        decision.soon()
