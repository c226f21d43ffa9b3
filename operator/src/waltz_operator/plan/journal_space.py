"""Whether the storage nodes have a place for a journal that is to be switched on. Pure.

A node that cannot make its journal does not start. So neither the configuration nor the pods are changed
before every node that answers has the space; a node that does not answer may lack it, then it does not start,
and no other one is restarted. And not before the claims of a volume of its own are there: a running pod reads
the changed file when its container starts again, and a pod that is made anew mounts what its StatefulSet
says.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from waltz_operator.api.journal import DIRECTORY
from waltz_operator.model.facts import Facts
from waltz_operator.model.rendered import Rendered
from waltz_operator.model.snapshot import KubeView, NodeView, ObjectKey
from waltz_operator.plan.builder import Decision

MARGIN = 1.1
"""Free space that a volume must have, as a multiple of the journal."""
_ON = "storage.journal.enabled: true"
_ELSEWHERE = f"storage.journal.directory: {DIRECTORY}"


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
    return _configuration_and_sets(facts, objects)


def check_claims(
    facts: Facts, kube: KubeView, objects: Sequence[Rendered], decision: Decision
) -> frozenset[ObjectKey]:
    """What is held back until every node that exists has the claim that its journal moves to, and none is
    smaller than the journal is to be. What keeps a claim from being made is reported with it."""
    wanted = next((one.body for one in objects if one.key == _configuration(facts)), {})
    before, after = _journal_lines(_live(facts, kube)), _journal_lines(wanted.get("data") or {})
    if not _live(facts, kube) or before == after or _ELSEWHERE not in after:
        return frozenset()
    exist = [one for one in facts.desired.nodes if one.statefulset in kube.statefulsets]
    claims = [kube.pvcs.get(one.journal_pvc) for one in exist]
    missing = _ELSEWHERE not in before and None in claims
    sizes = [one.capacity_bytes for one in claims if one is not None and one.capacity_bytes is not None]
    needed, smallest = facts.desired.own_journal_bytes, min(sizes, default=None)
    small = smallest is not None and smallest < needed
    if small:
        decision.unable.append(
            f"spec.storage.journal: it takes {needed} bytes, and a volume of the journal has {smallest}: it has to grow "
            "first, or the journal to be smaller"
        )
    return _configuration_and_sets(facts, objects) if missing or small else frozenset()


def as_it_is(
    kube: KubeView, objects: Sequence[Rendered], waiting: frozenset[ObjectKey]
) -> tuple[Rendered, ...]:
    """The objects with the pod templates that StatefulSets have which are `waiting`: a pod that is restarted
    meanwhile comes back as it was. So it may be, above all for a file system that grows with a restart: that
    may be what the space for the journal waits for."""
    live = {name: view.template_hash for name, view in kube.statefulsets.items()}
    return tuple(
        replace(one, template_hash=live[one.key.name])
        if one.key in waiting and one.key.kind == "StatefulSet" and one.key.name in live
        else one
        for one in objects
    )


def _configuration_and_sets(facts: Facts, objects: Sequence[Rendered]) -> frozenset[ObjectKey]:
    sets = {one.statefulset for one in facts.desired.nodes}
    return frozenset(
        one.key
        for one in objects
        if one.key == _configuration(facts) or (one.key.kind == "StatefulSet" and one.key.name in sets)
    )


def _configuration(facts: Facts) -> ObjectKey:
    return ObjectKey("ConfigMap", f"{facts.desired.name}-storage")


def _live(facts: Facts, kube: KubeView) -> Mapping[str, object]:
    """The files that the nodes run by; empty before there are any."""
    live = kube.objects.get(_configuration(facts))
    return (live.body or {}).get("data") or {} if live is not None else {}


def _journal_lines(data: Mapping[str, object]) -> frozenset[str]:
    """What the files say of the journal."""
    lines = (line.strip() for text in data.values() for line in str(text).splitlines())
    return frozenset(line for line in lines if line.startswith("storage.journal."))


def _says(data: Mapping[str, object], line: str) -> bool:
    return any(line in str(text) for text in data.values())


def _switched_on(facts: Facts, kube: KubeView) -> bool:
    """Whether the nodes exist and run by a configuration without it."""
    data = _live(facts, kube)
    return bool(data) and not _says(data, _ON)
