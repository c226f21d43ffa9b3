"""The conditions of a WaltzCluster. A condition keeps the time at which its status last changed. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from waltz_cluster.serializers import PartitionMetadata
from waltz_operator.api.cluster_status import Condition, ConditionStatus, ConditionType
from waltz_operator.model.dying_volumes import dying_storage, dying_zookeeper
from waltz_operator.model.ensemble import not_serving, servers
from waltz_operator.model.facts import Facts
from waltz_operator.model.reasons import Reason
from waltz_operator.model.snapshot import KubeView, TreeView, Unknown
from waltz_operator.model.texts import first_texts, fitting
from waltz_operator.model.times import timestamp
from waltz_operator.plan.builder import Decision
from waltz_operator.plan.safety_gates import kept_by_its_pod
from waltz_operator.plan.status.partition_health import Health
from waltz_operator.plan.status.progressing import progressing
from waltz_operator.plan.status.stalled import refused_pod

Fact = tuple[ConditionStatus, Reason, str]
FAULTS = frozenset(
    {Reason.DISK_LOST, Reason.DISK_FULL, Reason.METADATA_UNKNOWN, Reason.COPY_FAILED, Reason.POD_STUCK}
)
"""Reasons for which a blocked step is a fault of the cluster, not only a matter of time."""
LOST = frozenset({Reason.TREE_LOST, Reason.TREE_BROKEN, Reason.CREDENTIALS_LOST})
"""Reasons for which nothing is done that are a fault of ZooKeeper's data, not of the specification."""


OVERRIDDEN = (
    "an admission webhook, or the API server itself, stores other values than the operator has written (write them into "
    "the specification, or exempt these objects from the webhook): "
)
MAX_FIELDS = 10
"""So many unknown fields are named."""


def conditions(
    facts: Facts,
    decision: Decision,
    health: Health,
    impossible: Sequence[str],
    last: Sequence[Condition],
    generation: int,
    late_export: str = "",
    late_certificate: str = "",
) -> tuple[Condition, ...]:
    """All of them, in a fixed order. `late_export`: why the last copy of the records in ZooKeeper is too
    old; `late_certificate`: who does not use a renewed certificate."""
    found: dict[ConditionType, Fact] = {
        ConditionType.AVAILABLE: _available(facts, decision, health),
        ConditionType.PROGRESSING: progressing(facts, decision),
        ConditionType.DEGRADED: _degraded(facts, decision, health, (late_export, late_certificate)),
        ConditionType.REPLICAS_CAUGHT_UP: _caught_up(facts, health),
        ConditionType.VALID: _valid(facts, decision, (*impossible, *decision.unable)),
        ConditionType.PAUSED: _paused(facts),
        ConditionType.RESTART_REQUIRED: _restart_required(facts, decision),
    }
    before = {one.type: one for one in last}
    return tuple(
        Condition(
            type=kind.value,
            status=status,
            reason=reason.value,
            message=fitting(text),
            last_transition_time=_since(before.get(kind.value), status, facts.now),
            observed_generation=generation,
        )
        for kind, (status, reason, text) in found.items()
    )


def _since(before: Condition | None, status: ConditionStatus, now: float) -> str:
    if before is not None and before.status == status:
        return before.last_transition_time
    return timestamp(now)


def _available(facts: Facts, decision: Decision, health: Health) -> Fact:
    if decision.invalid is not None and not isinstance(facts.tree, TreeView):
        return "False", decision.invalid[0], decision.invalid[1]
    if health.healthy is None:
        reason = (
            facts.tree.reason if isinstance(facts.tree, Unknown) else "the cluster is not in ZooKeeper yet"
        )
        known = facts.memory.cluster_key is None
        return ("False" if known else "Unknown"), Reason.WAITING_FOR_ZOOKEEPER, reason
    if health.unhealthy:
        return "False", Reason.UNHEALTHY, health.why_unhealthy
    return "True", Reason.AS_WANTED, f"all {health.healthy} partitions take writes"


def _degraded(facts: Facts, decision: Decision, health: Health, late: tuple[str, str]) -> Fact:
    if decision.failed is not None:
        return "True", *decision.failed
    if decision.invalid is not None and decision.invalid[0] in LOST:
        return "True", *decision.invalid
    if decision.rejected is not None:
        return "True", *decision.rejected
    fault = next((one for one in decision.blocked if one.reason in FAULTS), None)
    if fault is not None:
        return "True", Reason(fault.reason), fault.text
    kept = _dying_volume(facts)
    if kept:
        return "True", Reason.VOLUME_BEING_DELETED, kept
    certificates = _certificates(facts, decision, holds=True)
    if certificates is not None:
        return certificates
    not_made = refused_pod(facts)
    if not_made is not None:
        return "True", Reason.POD_STUCK, not_made
    if isinstance(facts.kube, KubeView):
        for name in (*servers(facts.desired, facts.kube), *(node.pod for node in facts.desired.nodes)):
            pod = facts.kube.pods.get(name)
            if pod is not None and pod.problem:
                return "True", Reason.POD_STUCK, f"{name}: {pod.problem}"
    for node in facts.desired.nodes:
        view = facts.node(node.connect_string)
        if (
            isinstance(facts.tree, TreeView)
            and node.connect_string in facts.tree.groups
            and isinstance(view, Unknown)
        ):
            return "True", Reason.NODE_SILENT, f"{node.connect_string}: {view.reason}"
    if health.unhealthy:
        return "True", Reason.UNHEALTHY, health.why_unhealthy
    silent = _zookeeper_down(facts)
    if silent:
        return "True", Reason.UNHEALTHY, f"{silent}, a server of the managed ZooKeeper, does not serve"
    if isinstance(facts.tree, Unknown):
        return "Unknown", Reason.ZOOKEEPER_UNKNOWN, facts.tree.reason
    for reason, text in zip((Reason.EXPORT_OVERDUE, Reason.CERTIFICATE_NOT_IN_USE), late, strict=True):
        if text:
            return "True", reason, text
    certificates = _certificates(facts, decision, holds=False)
    if certificates is not None:
        return certificates
    if decision.overridden:
        return "False", Reason.OTHER_VALUES, OVERRIDDEN + first_texts(decision.overridden)
    return "False", Reason.AS_WANTED, ""


def _certificates(facts: Facts, decision: Decision, *, holds: bool) -> Fact | None:
    """What is wrong with the certificates of a cluster that was begun, and whose specification is acted
    on."""
    found = [one for one in facts.certificate_problems if one.holds is holds]
    begun = facts.memory.cluster_key is not None or not facts.desired.paused
    if not found or not begun or decision.invalid is not None:
        return None
    return "True", found[0].reason, first_texts([one.text for one in found])


def _dying_volume(facts: Facts) -> str:
    """Of a cluster that lives on: the first volume that goes with its pod, and what to do before that."""
    if facts.desired.deleting:
        return ""
    nodes = (*facts.desired.nodes, *facts.leaving)
    if (found := dying_storage(facts.kube, nodes)) is not None:
        return (
            f"{kept_by_its_pod(found[1], found[0])}, which therefore is not restarted: copy what is on it, or move it "
            "to another node (a WaltzMigration with drain), then delete the pod"
        )
    if (found := dying_zookeeper(facts.kube, facts.desired)) is not None:
        return (
            f"{kept_by_its_pod(found[1], found[0])}, which therefore is not restarted: export the records in ZooKeeper "
            "(`waltz zk export`), then delete the pod while all others serve; import them if there is no other"
        )
    return ""


def _zookeeper_down(facts: Facts) -> str:
    """The first server of an ensemble that does not serve, once the cluster was made; of a single one the
    tree says it."""
    if facts.memory.cluster_key is None or not isinstance(facts.kube, KubeView):
        return ""
    if len(servers(facts.desired, facts.kube)) < 2:
        return ""
    return next(iter(not_serving(facts.desired, facts.kube)), "")


def _caught_up(facts: Facts, health: Health) -> Fact:
    if health.caught_up is None:
        return "Unknown", Reason.ZOOKEEPER_UNKNOWN, "ZooKeeper was not read"
    if health.behind:
        return "False", Reason.NOT_CAUGHT_UP, health.behind
    return "True", Reason.AS_WANTED, "every copy is in the present session"


def unknown_text(fields: Sequence[str]) -> str:
    """What is said of fields that this version of the operator does not know."""
    more = f" and {len(fields) - MAX_FIELDS} more" if len(fields) > MAX_FIELDS else ""
    shown = ", ".join(fields[:MAX_FIELDS])
    return f"kept and not acted on, since this version of the operator does not know them: {shown}{more}"


def _valid(facts: Facts, decision: Decision, impossible: Sequence[str]) -> Fact:
    if decision.invalid is not None:
        return "False", decision.invalid[0], decision.invalid[1]
    if impossible:
        return (
            "False",
            Reason.REFUSED_CHANGE,
            "what cannot be done is left as it is, the rest is done: " + first_texts(impossible),
        )
    if facts.unknown_fields:
        return "True", Reason.UNKNOWN_FIELDS, unknown_text(facts.unknown_fields)
    return "True", Reason.AS_WANTED, ""


def _paused(facts: Facts) -> Fact:
    if facts.desired.paused:
        return "True", Reason.PAUSED, "spec.paused: nothing is changed"
    return "False", Reason.AS_WANTED, ""


def _restart_required(facts: Facts, decision: Decision) -> Fact:
    waiting = decision.restarts
    if not waiting:
        return "False", Reason.AS_WANTED, ""
    more = f" and {len(waiting) - MAX_FIELDS} more" if len(waiting) > MAX_FIELDS else ""
    what = ", ".join(one.pod for one in waiting[:MAX_FIELDS]) + more
    if facts.desired.paused:
        return "True", Reason.PAUSED, f"{what}: nothing is changed while spec.paused"
    if facts.restarts_wait:
        return "True", Reason.OUTSIDE_WINDOW, f"{what}: {facts.restarts_wait}"
    return "True", Reason.TEMPLATE_CHANGED, f"{what}: one after another, each when it is safe"


def headline(found: Sequence[Condition]) -> str:
    """The one reason that matters most now."""
    by_type = {one.type: one for one in found}
    for kind, bad in (
        (ConditionType.VALID, "False"),
        (ConditionType.PAUSED, "True"),
        (ConditionType.DEGRADED, "True"),
        (ConditionType.PROGRESSING, "True"),
        (ConditionType.AVAILABLE, "False"),
        (ConditionType.RESTART_REQUIRED, "True"),
    ):
        if by_type[kind.value].status == bad:
            return by_type[kind.value].reason
    progress = by_type[ConditionType.PROGRESSING.value]
    return progress.reason


def _has_run(facts: Facts) -> bool:
    """Whether a replica of any partition has ever taken part in a store session, by ZooKeeper."""
    tree = facts.tree if isinstance(facts.tree, TreeView) else None
    records = (facts.record(partition) for partition in range(tree.num_partitions if tree else 0))
    return any(
        replica.session_id >= 0
        for record in records
        if isinstance(record, PartitionMetadata)
        for replica in record.replicas.values()
    )


def phase(facts: Facts, decision: Decision, health: Health) -> str:
    """The whole in one word."""
    if facts.desired.deleting:
        return "Deleting"
    if decision.invalid is not None:
        return "Invalid"
    if facts.desired.paused:
        return "Paused"
    if facts.memory.cluster_key is None:
        return "Creating"
    if health.healthy is None:
        return "Unknown"
    if health.unhealthy:
        return "Degraded" if health.healthy or _has_run(facts) else "Creating"
    changing = decision.requeue_seconds < 10 and progressing(facts, decision)[0] == "True"
    return "Changing" if changing else "Ready"
