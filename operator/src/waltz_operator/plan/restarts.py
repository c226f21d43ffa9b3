"""Restarts of storage nodes whose pod is not what its StatefulSet says (image, configuration, resources,
authorities), or whose volume grows with a restart. One at a time: those that can't run first, then unready
ones, then the most lagging, each through the gate. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from waltz_operator.api.topology import NodeIdentity
from waltz_operator.model.actions import Blocked, DeletePod, EmitEvent
from waltz_operator.model.facts import Facts
from waltz_operator.model.reasons import Reason
from waltz_operator.model.rendered import Rendered
from waltz_operator.model.snapshot import KubeView, ObjectKey, PodView
from waltz_operator.plan.builder import Decision
from waltz_operator.plan.safety_gates import Allowed, may_restart
from waltz_operator.plan.status.stalled import stands_still


class Restart(NamedTuple):
    """A storage node that has to be restarted, and why."""

    node: NodeIdentity
    pod: PodView
    reason: Reason
    text: str


def due(facts: Facts, kube: KubeView, objects: Sequence[Rendered]) -> list[Restart]:
    """Storage nodes that have to be restarted, in the order in which they are."""
    wanted = {one.key.name: one.template_hash for one in objects if one.key.kind == "StatefulSet"}
    found = [
        restart
        for node in facts.desired.nodes
        if not node.external and (restart := _why(kube, wanted, node, facts.now)) is not None
    ]
    return sorted(found, key=lambda one: _order(facts, one))


def _order(facts: Facts, one: Restart) -> tuple[bool, bool, int, str, str]:
    node = one.node
    return not one.pod.stuck, one.pod.ready, -facts.worst_lag(node.connect_string), node.group, node.name


def _why(kube: KubeView, wanted: Mapping[str, str], node: NodeIdentity, now: float) -> Restart | None:
    pod, claims = kube.pods.get(node.pod), [kube.pvcs[name] for name in node.claims if name in kube.pvcs]
    if pod is None or pod.deleting:
        return None
    if wanted.get(node.statefulset) and pod.template_hash != wanted[node.statefulset]:
        return Restart(node, pod, Reason.TEMPLATE_CHANGED, "its pod template has changed")
    if any(claim.restart_to_grow(now) for claim in claims):
        return Restart(node, pod, Reason.VOLUME_GROWN, "its file system grows with a restart")
    return None


def storage_busy(facts: Facts, kube: KubeView, restarts: Sequence[Restart]) -> bool:
    """Whether a storage node is down, or one is still to be restarted. One that waits for a person is not
    waited for."""
    return any(_away(kube, node) for node in facts.desired.nodes) or any(
        _to_come(facts, one.node) for one in restarts
    )


def _away(kube: KubeView, node: NodeIdentity) -> bool:
    pod = kube.pods.get(node.pod)
    if pod is None:
        return not node.external and node.statefulset in kube.statefulsets
    return not pod.ready or pod.deleting


def _to_come(facts: Facts, node: NodeIdentity) -> bool:
    answer = may_restart(facts, node)
    return isinstance(answer, Allowed) or not stands_still(facts, answer.blocked)


def servers_done(facts: Facts, kube: KubeView, objects: Sequence[Rendered]) -> bool:
    """Whether all servers are of the wanted template, or there are none."""
    found = [one for one in objects if one.key == facts.desired.servers_key]
    if not found or kube.deployment is None:
        return True
    return kube.deployment.calm and kube.deployment.template_hash == found[0].template_hash


def restart_next(
    facts: Facts, kube: KubeView, objects: Sequence[Rendered], restarts: Sequence[Restart], decision: Decision
) -> None:
    """Restart the first one that may be, once its StatefulSet would bring it back as it should be."""
    wanted = {one.key.name: one.template_hash for one in objects if one.key.kind == "StatefulSet"}
    for one in restarts:
        if facts.restarts_wait and not one.pod.stuck:
            continue
        if facts.version.down and not one.pod.stuck and not servers_done(facts, kube, objects):
            first = "on the way to an earlier release the servers come first"
            decision.block(Blocked(f"restart of {one.node.pod}", Reason.SERVERS_FIRST, first))
            return
        view = kube.statefulsets.get(one.node.statefulset)
        if (
            view is None
            or view.deleting
            or not view.settled
            or view.template_hash != wanted.get(one.node.statefulset)
        ):
            decision.block(
                Blocked(
                    f"restart of {one.node.pod}",
                    Reason.ROLL_NOT_SEEN,
                    f"StatefulSet {one.node.statefulset} has not taken the change yet",
                )
            )
            continue
        answer = may_restart(facts, one.node)
        if not isinstance(answer, Allowed):
            decision.block(answer.blocked)
            continue
        about = ObjectKey("WaltzCluster", facts.desired.name)
        decision.take(
            EmitEvent(about, one.reason, f"{one.node.pod} is restarted: {one.text}; {answer.proof}"),
            DeletePod(one.node.pod, one.pod.uid, one.text, answer.proof),
        )
        decision.step = f"restart of {one.node.pod}"
        return
