"""Restarts of the managed ZooKeeper's servers whose pod is not what the StatefulSet says, or whose volume
grows with a restart. One at a time: those that do not serve first, each through its gate. They come before
everything that needs ZooKeeper, since a change of its pods may be what brings it back. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from waltz_operator.model.actions import Blocked, DeletePod, EmitEvent
from waltz_operator.model.ensemble import servers
from waltz_operator.model.facts import Facts
from waltz_operator.model.reasons import Reason
from waltz_operator.model.rendered import Rendered
from waltz_operator.model.snapshot import KubeView, ObjectKey, PodView
from waltz_operator.plan.builder import Decision
from waltz_operator.plan.safety_gates import Allowed, may_restart_zookeeper


def restart_zookeeper(
    facts: Facts, kube: KubeView, objects: Sequence[Rendered], held: frozenset[ObjectKey], decision: Decision
) -> None:
    """Restart the first server that has to be and may be, once the StatefulSet would bring it back as it
    should be."""
    key = ObjectKey("StatefulSet", facts.desired.zookeeper_set)
    wanted = next((one.template_hash for one in objects if one.key == key), "")
    present = servers(facts.desired, kube)
    if len(present) < len(facts.desired.zookeeper_claims) or not all(
        (pod := kube.pods.get(name)) is not None and pod.ready for name in present
    ):
        decision.soon()
    due = due_servers(facts, kube, wanted)
    view = kube.statefulsets.get(key.name)
    if facts.restarts_wait:  # an ensemble that grows is not left half-way
        due = [one for one in due if not one[1].ready or view is None or one[1].members != view.members]
    if decision.risky or key in held or not due:
        return
    name = due[0][0]
    if view is None or view.deleting or not view.settled or view.template_hash != wanted:
        unseen = f"StatefulSet {key.name} has not taken the change yet"
        decision.block(Blocked(f"restart of {name}", Reason.ROLL_NOT_SEEN, unseen))
        return
    for name, pod, reason, text in due:
        answer = may_restart_zookeeper(facts, name)
        if isinstance(answer, Allowed):
            about = ObjectKey("WaltzCluster", facts.desired.name)
            decision.take(
                EmitEvent(about, reason, f"{name} is restarted: {text}; {answer.proof}"),
                DeletePod(name, pod.uid, text, answer.proof),
            )
            decision.step = f"restart of {name}"
            return
        decision.block(answer.blocked)
        if (
            answer.blocked.reason != Reason.VOLUME_BEING_DELETED
        ):  # that one waits for a person, and not the others
            return


def due_servers(facts: Facts, kube: KubeView, wanted: str) -> list[tuple[str, PodView, Reason, str]]:
    """Those that do not serve first, then the one with the highest number."""
    found = []
    for name in servers(facts.desired, kube):
        pod, volume = kube.pods.get(name), kube.pvcs.get(f"data-{name}")
        if pod is None or pod.deleting:
            continue
        if wanted and pod.template_hash != wanted:
            found.append((name, pod, Reason.TEMPLATE_CHANGED, "its pod template has changed"))
        elif volume is not None and volume.restart_to_grow(facts.now):
            found.append((name, pod, Reason.VOLUME_GROWN, "its file system grows with a restart"))
    found.reverse()
    return sorted(found, key=lambda one: one[1].ready)
