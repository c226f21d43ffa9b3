"""When Kubernetes objects are written. Pure.

Storage nodes come after the key was recorded (they need the tree), servers after the first assignments are
there in ZooKeeper (so that no partition starts with half its replicas). A changed template of the servers
waits until storage is calm, but on the way to an earlier release (ADR 20), and for the window of restarts;
the Deployment's own roll-out then takes one server at a time, each handing its partitions over.
"""

from __future__ import annotations

from collections.abc import Sequence

from waltz_operator.api.base import quantity_bytes
from waltz_operator.model.actions import ApplyObject, Blocked, DeleteObject
from waltz_operator.model.facts import Facts
from waltz_operator.model.reasons import Reason
from waltz_operator.model.rendered import Rendered, keeping_template
from waltz_operator.model.snapshot import (
    KubeView,
    ObjectKey,
    Override,
)
from waltz_operator.plan.builder import Decision
from waltz_operator.plan.console import switch_off
from waltz_operator.plan.diff import difference, is_overridden, surplus
from waltz_operator.plan.placement import seeded

MAX_FIELDS = 3
"""So many fields of an object are named."""


def apply_objects(
    facts: Facts,
    kube: KubeView,
    objects: Sequence[Rendered],
    storage_busy: bool,
    decision: Decision,
    held: frozenset[ObjectKey] = frozenset(),
) -> None:
    """All objects that differ and whose time has come, but those that are `held` back; then those that are
    no longer rendered."""
    needs_tree = {facts.desired.console_key}
    for node in facts.desired.nodes:
        needs_tree.add(ObjectKey("StatefulSet", node.statefulset))
        needs_tree |= {ObjectKey("PersistentVolumeClaim", claim) for claim in node.claims}
    for wanted in objects:
        one = wanted
        live = kube.objects.get(one.key)
        if _is_servers(facts, one) and live is not None and _servers_wait(facts, kube):
            one = keeping_template(one, live.body or {})
        known = facts.overridden.get(one.key)
        why = difference(one, live, known)
        if known is not None and live is not None and is_overridden(one, live, known):
            decision.overridden.append(_overridden(one, known))
        if not why or one.key in held or _cannot_grow(kube, one, decision):
            continue
        if one.key in needs_tree:
            if facts.memory.cluster_key is None:
                continue
        elif _is_servers(facts, one) and not _servers_may(facts, kube, one, storage_busy, decision):
            continue
        decision.actions.append(ApplyObject(one.key, one.body, why, live.uid if live is not None else ""))
        decision.soon()
    for key, view in surplus(objects, kube):
        if key in held:
            continue
        decision.actions.append(DeleteObject(key, view.uid, "it is no longer in the specification"))
        decision.soon()
    switch_off(facts, kube, decision)


def _overridden(one: Rendered, known: Override) -> str:
    """Which fields, for a person."""
    more = len(known.fields) - MAX_FIELDS
    paths = ", ".join(
        [path for path, _ in known.fields[:MAX_FIELDS]] + ([f"{more} more"] if more > 0 else [])
    )
    return f"{one.key.kind} {one.key.name}: {paths}"


def stop_servers(facts: Facts, kube: KubeView, objects: Sequence[Rendered], decision: Decision) -> None:
    """Where the tree is lost nothing is changed, but that servers go when none is wanted: who brings the tree
    back needs them stopped."""
    lost = decision.invalid is not None and decision.invalid[0] is Reason.TREE_LOST
    if not lost or facts.desired.paused:
        return
    for one in objects:
        live = kube.objects.get(one.key)
        if not _is_servers(facts, one) or live is None or (one.body.get("spec") or {}).get("replicas") != 0:
            continue
        why = difference(one, live, facts.overridden.get(one.key))
        if why:
            decision.actions.append(ApplyObject(one.key, one.body, why, live.uid))
            decision.soon()


def _cannot_grow(kube: KubeView, one: Rendered, decision: Decision) -> bool:
    """Whether it is a volume that is to grow and whose storage class is known not to let it."""
    claim = kube.pvcs.get(one.key.name) if one.key.kind == "PersistentVolumeClaim" else None
    if claim is None or claim.expandable is not False:
        return False
    requests = ((one.body.get("spec") or {}).get("resources") or {}).get("requests") or {}
    size = str(requests.get("storage", "0"))
    if quantity_bytes(size) <= claim.requested_bytes:
        return False
    decision.unable.append(
        f"volume {one.key.name} has {claim.requested_bytes} bytes and cannot grow to {size}: its storage class "
        f"{claim.storage_class} does not allow it"
    )
    return True


def _is_servers(facts: Facts, one: Rendered) -> bool:
    return one.key == facts.desired.servers_key


def _servers_may(facts: Facts, kube: KubeView, one: Rendered, storage_busy: bool, decision: Decision) -> bool:
    if facts.memory.cluster_key is None:
        return False
    if kube.deployment is None:
        if seeded(facts):
            return True
        decision.wait(Reason.CREATING, "servers start when the partitions are assigned")
        return False
    if one.template_hash == kube.deployment.template_hash or not storage_busy or facts.version.down:
        return True
    if not kube.deployment.calm:
        return True  # they are not in order as they are
    decision.block(
        Blocked(
            "roll-out of the servers", Reason.STORAGE_FIRST, "servers are changed after the storage nodes"
        )
    )
    return False


def _servers_wait(facts: Facts, kube: KubeView) -> bool:
    """Whether the servers keep their pods for now. One that cannot run is not waited for."""
    return bool(facts.restarts_wait) and not any(pod.stuck for pod in kube.server_pods)
