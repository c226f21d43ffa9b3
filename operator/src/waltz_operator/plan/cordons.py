"""Which storage nodes get no new copies, and why. Pure.

A node that was drained stays closed while the migration is kept, so that it can be taken out of the
specification: but for its own life only. A later node of that name, or of a later cluster of that name, has
nothing to do with the migration.
"""

from __future__ import annotations

from waltz_operator.api.migration import MigrationPhase
from waltz_operator.api.topology import NodeIdentity
from waltz_operator.model.desired import Move
from waltz_operator.model.dying_volumes import dying
from waltz_operator.model.facts import Facts
from waltz_operator.model.snapshot import KubeView, ObjectKey
from waltz_operator.model.task import Task, TaskKind
from waltz_operator.model.texts import first_texts
from waltz_operator.model.times import seconds


def cordoned(facts: Facts) -> frozenset[str]:
    """Nodes that are being drained, or were, and the migration still exists."""
    return frozenset(_drains(facts))


def closed_to_copies(facts: Facts) -> frozenset[str]:
    """Those, and nodes with a volume that goes with its pod."""
    dying_nodes = (one.connect_string for one in facts.desired.nodes if dying(facts.kube, one.claims))
    return cordoned(facts).union(dying_nodes)


def why_closed(facts: Facts, group: str) -> str:
    """Of the nodes of a group: what keeps copies away from them, to be appended to a sentence."""
    return _shown(facts, {group})


def why_no_target(facts: Facts, move: Move) -> str:
    """The same for a change that finds no node."""
    if move.source is not None:
        return _shown(facts, {facts.group(move.source)}, move.source)
    holding = {facts.group(node) for node in facts.holders(move.partition)}
    return _shown(facts, {node.group for node in facts.desired.nodes if node.group not in holding})


def _shown(facts: Facts, groups: set[str | None], but: str | None = None) -> str:
    drains = _drains(facts)
    texts = []
    for node in facts.desired.nodes:
        drain = drains.get(node.connect_string)
        if node.group not in groups or node.connect_string == but:
            continue
        if drain is not None and drain.over:
            texts.append(
                f"migration {drain.name} has drained {node.reference}, which gets no copies until it is made again "
                "or that migration is deleted"
            )
        elif drain is not None:
            texts.append(f"migration {drain.name} drains {node.reference}")
        elif claim := dying(facts.kube, node.claims):
            texts.append(f"volume {claim} of {node.reference} is deleted as soon as its pod ends")
    return f"; {first_texts(texts)}" if texts else ""


def _drains(facts: Facts) -> dict[str, Task]:
    """The migration that closes each node."""
    return {task.source: task for task in facts.tasks if _closes(facts, task)}


def _closes(facts: Facts, task: Task) -> bool:
    if task.kind is not TaskKind.DRAIN or task.dry_run or (task.cancel and task.in_flight is None):
        return False
    if task.phase is MigrationPhase.COMPLETED:
        # It was applied after the node was made, by the clock of the API server, or has ended after that.
        return max(seconds(task.created), task.finished_at) >= _made_at(facts, facts.identity(task.source))
    return not task.over


def _made_at(facts: Facts, node: NodeIdentity | None) -> float:
    """When the life of a node began: that of its cluster, its StatefulSet (a claim that was retained is
    older) and its volume, whichever is the latest. UNIX time."""
    if node is None or not isinstance(facts.kube, KubeView):
        return facts.desired.created
    workload, claim = facts.kube.objects.get(ObjectKey("StatefulSet", node.statefulset)), node.pvc
    body = workload.body if workload is not None else None
    return max(
        facts.desired.created,
        seconds(((body or {}).get("metadata") or {}).get("creationTimestamp")),
        facts.kube.pvcs[claim].created if claim in facts.kube.pvcs else 0.0,
    )
