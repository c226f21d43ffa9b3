"""Deletion of a cluster, in this order: servers, storage nodes, with Delete also the cluster's tree in
ZooKeeper (only when it has this cluster's key) and the volumes; the managed ZooKeeper last, by garbage
collection, with the Secrets that its data needed. With Retain the tree, these Secrets and all volumes stay.
So do volumes of an earlier cluster of that name with Delete, where this one never had a key (`kept_data`).
The same with `--cascade=orphan`: what garbage collection was to leave is made the cluster's own again. Pure.

A tree in a managed ZooKeeper goes with that one's volumes, unasked: when a whole namespace is deleted its
pods go before the cluster's turn comes.

The managed ZooKeeper's claims are deleted by the operator, not by the retention policy of its StatefulSet:
that one may still say Retain when the policy was changed just before the deletion. They are only asked to go:
each waits for its pod, which goes after the finalizer.

`waltz.dev/skip-teardown: <name of the cluster>` leaves ZooKeeper out, for an ensemble that is lost
for good.
"""

from __future__ import annotations

from collections.abc import Mapping

from waltz_admin.found_tree import NoTree
from waltz_operator.api.topology import NodeIdentity
from waltz_operator.model.actions import (
    Blocked,
    DeleteJob,
    DeleteObject,
    DeletePVC,
    DeleteTree,
    EmitEvent,
)
from waltz_operator.model.ensemble import claims
from waltz_operator.model.facts import Facts
from waltz_operator.model.reasons import Reason
from waltz_operator.model.snapshot import KubeView, ObjectKey, PVCView, TreeView, Unknown
from waltz_operator.plan.builder import Decision
from waltz_operator.plan.kept_data import cannot_be_kept, go_with_it, of_another, still_owned

MAX_NAMES = 10
"""So many claims that stay are named."""


def tear_down(facts: Facts, decision: Decision) -> None:
    """One step of the deletion; `teardown_complete` when the finalizer can go."""
    kube = facts.kube
    decision.wait(Reason.DELETING, "the cluster is being deleted")
    if isinstance(kube, Unknown):
        decision.block(Blocked("deletion", Reason.KUBERNETES_UNKNOWN, kube.reason))
        return
    owned = still_owned(facts, kube)
    decision.actions.extend(owned)
    if not facts.desired.reclaim_delete:
        decision.actions.extend(cannot_be_kept(facts, kube))
    for name, job in sorted(kube.jobs.items()):
        if not job.deleting:
            decision.actions.append(DeleteJob(name, job.uid, "the cluster is being deleted"))
    if _servers_remain(facts, kube, decision) or _storage_remains(facts, kube, decision):
        return
    if facts.desired.reclaim_delete:
        left_out = facts.desired.skip_teardown or facts.desired.zookeeper_claims
        if not left_out and _tree_remains(facts, decision):
            return
        if _volumes_remain(facts, kube, decision) or _zookeeper_volumes_remain(facts, kube, decision):
            return
        _report_kept(facts, kube, decision)
    if facts.desired.orphaning:
        decision.step, decision.message = (
            "owned objects",
            "Kubernetes has not released yet what the cluster owns",
        )
        return
    going = go_with_it(facts, kube)
    decision.actions.extend(going)
    if owned or going:  # the finalizer waits until it is seen that garbage collection finds what it is to
        decision.step = "volumes"
        return
    decision.step = "done"
    decision.teardown_complete = True


def _servers_remain(facts: Facts, kube: KubeView, decision: Decision) -> bool:
    if kube.deployment is not None:
        decision.step = "servers"
        if not kube.deployment.deleting:
            key = facts.desired.servers_key
            decision.take(DeleteObject(key, kube.deployment.uid, "the cluster is being deleted"))
        return True
    if any(pod.component == "server" for pod in kube.pods.values()):
        decision.step = "servers"
        decision.message = "waits for the servers to leave"
        return True
    return False


def _storage_remains(facts: Facts, kube: KubeView, decision: Decision) -> bool:
    storage = {name: view for name, view in sorted(kube.statefulsets.items()) if view.node}
    for name, view in storage.items():
        if not view.deleting:
            decision.take(
                DeleteObject(ObjectKey("StatefulSet", name), view.uid, "the cluster is being deleted")
            )
    if storage or any(pod.component == "storage" for pod in kube.pods.values()):
        decision.step = "storage nodes"
        return True
    return False


def _tree_remains(facts: Facts, decision: Decision) -> bool:
    """Whether the deletion waits for the tree. A tree with another key is not ours: it stays.

    An operator that was killed between the making of a tree and its record has left one with the key that is
    derived from this object's uid: that is ours as well."""
    decision.step = "ZooKeeper"
    tree, key = facts.tree, facts.memory.cluster_key
    if key is None and isinstance(tree, TreeView):
        key = facts.desired.created_key
    if isinstance(tree, NoTree) or key is None:
        return False
    if isinstance(tree, TreeView):
        if tree.cluster_key != key:
            return False
        if tree.servers:
            text = f"{len(tree.servers)} servers are still registered in ZooKeeper"
            decision.block(Blocked("deletion of the tree", Reason.WAITING_FOR_SERVERS, text))
            return True
        proof = "reclaimPolicy Delete, no server is registered, no pod is left, the key is this cluster's"
        decision.take(DeleteTree(tree.cluster_name, key, proof))
        return True
    annotate = f"annotate the WaltzCluster with waltz.dev/skip-teardown={facts.desired.name}"
    if isinstance(tree, Unknown):
        text = f"{tree.reason}; if this ZooKeeper is lost for good, {annotate}"
        decision.block(Blocked("deletion of the tree", Reason.ZOOKEEPER_UNKNOWN, text))
        return True
    if tree.rest_of(facts.desired.label, key):
        proof = "reclaimPolicy Delete, no pod is left, it is what a deletion of this cluster left"
        decision.take(DeleteTree(tree.name or "", key, proof))
        return True
    if tree.cluster_key not in (None, key):
        return False
    text = f"what is at the root is not proven to be this cluster's: {tree.reason}; to leave it there, {annotate}"
    decision.block(Blocked("deletion of the tree", Reason.TREE_BROKEN, text))
    return True


def _storage_claims(facts: Facts, kube: KubeView) -> dict[str, PVCView]:
    nodes: tuple[NodeIdentity, ...] = (*facts.desired.nodes, *facts.leaving)
    ours = {name for node in nodes if not node.external for name in node.claims}
    return {name: claim for name, claim in sorted(kube.pvcs.items()) if name in ours or claim.node}


def _zookeeper_claims(facts: Facts, kube: KubeView) -> dict[str, PVCView]:
    """Those that are being deleted wait for their pods, which go after the finalizer."""
    names = sorted({*facts.desired.zookeeper_claims, *claims(facts.desired, kube)})
    found = {name: claim for name in names if (claim := kube.pvcs.get(name)) is not None}
    return {
        name: claim for name, claim in found.items() if claim.component == "zookeeper" and not claim.deleting
    }


def _volumes_remain(facts: Facts, kube: KubeView, decision: Decision) -> bool:
    decision.step = "volumes"
    return _deleted(facts, _storage_claims(facts, kube), decision)


def _zookeeper_volumes_remain(facts: Facts, kube: KubeView, decision: Decision) -> bool:
    return _deleted(facts, _zookeeper_claims(facts, kube), decision)


def _deleted(facts: Facts, found: Mapping[str, PVCView], decision: Decision) -> bool:
    left = {name: claim for name, claim in found.items() if not of_another(facts, claim)}
    for name, claim in left.items():
        if not claim.deleting:
            decision.take(DeletePVC(name, claim.uid, "the cluster is deleted with reclaimPolicy Delete"))
    return bool(left)


def _report_kept(facts: Facts, kube: KubeView, decision: Decision) -> None:
    """Who asked for Delete reads which volumes stay, and why."""
    found = {**_storage_claims(facts, kube), **_zookeeper_claims(facts, kube)}
    kept = [name for name, claim in found.items() if of_another(facts, claim)]
    if kept:
        more = f" and {len(kept) - MAX_NAMES} more" if len(kept) > MAX_NAMES else ""
        text = (
            f"kept though reclaimPolicy is Delete: PersistentVolumeClaim {', '.join(kept[:MAX_NAMES])}{more}; this "
            "WaltzCluster never had a cluster key, and did not make them: delete them when nobody needs their data"
        )
        about = ObjectKey("WaltzCluster", facts.desired.name)
        decision.actions.append(EmitEvent(about, Reason.LEFTOVER_VOLUMES.value, text, "Warning"))
