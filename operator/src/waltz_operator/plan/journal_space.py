"""Whether the volumes of the storage nodes have free space for a journal that is to be switched on. Pure.

A node that cannot make its journal does not start. So neither the configuration nor the pods are changed
before every node that answers has the space; a node that does not answer may lack it, then it does not start,
and no other one is restarted.
"""

from __future__ import annotations

from collections.abc import Sequence

from waltz_operator.model.facts import Facts
from waltz_operator.model.rendered import Rendered
from waltz_operator.model.snapshot import KubeView, NodeView, ObjectKey
from waltz_operator.plan.builder import Decision

MARGIN = 1.1
"""Free space that a volume must have, as a multiple of the journal."""
_ON = "storage.journal.enabled: true"


def check_space(
    facts: Facts, kube: KubeView, objects: Sequence[Rendered], decision: Decision
) -> frozenset[ObjectKey]:
    """What is held back, with its reason among what cannot be done: the storage nodes' configuration and
    StatefulSets."""
    needed = facts.desired.journal_bytes
    if not needed or not _switched_on(facts, kube):
        return frozenset()
    small = {
        node.reference: view.disk_free_bytes
        for node in facts.desired.nodes
        if isinstance(view := facts.node(node.connect_string), NodeView)
        and view.disk_free_bytes is not None
        and view.disk_free_bytes < needed * MARGIN
    }
    if not small:
        return frozenset()
    node, free = min(small.items(), key=lambda one: (one[1], one[0]))
    decision.unable.append(
        f"spec.storage.journal: it takes {needed} bytes of each volume, and storage node {node} has {free} bytes free: "
        "raise storage.size, make the journal smaller, or give it storage.journal.volume"
    )
    sets = {one.statefulset for one in facts.desired.nodes}
    return frozenset(
        one.key
        for one in objects
        if one.key == _configuration(facts) or (one.key.kind == "StatefulSet" and one.key.name in sets)
    )


def _configuration(facts: Facts) -> ObjectKey:
    return ObjectKey("ConfigMap", f"{facts.desired.name}-storage")


def _switched_on(facts: Facts, kube: KubeView) -> bool:
    """Whether the nodes exist and run by a configuration without it."""
    live = kube.objects.get(_configuration(facts))
    data = (live.body or {}).get("data") or {} if live is not None else {}
    return bool(data) and not any(_ON in str(text) for text in data.values())
