"""The condition Progressing: False when the cluster is up to date, or when nothing continues until a person
acts; else True, with what is done or waited for. Pure.

So `kubectl wait --for=condition=Progressing=False` ends when there is nothing to wait for: a step that is
only held back by time, a pod that is starting, a change that has just been chosen are all progress.
"""

from __future__ import annotations

from waltz_operator.api.cluster_status import ConditionStatus
from waltz_operator.model.facts import Facts
from waltz_operator.model.reasons import Reason
from waltz_operator.model.snapshot import KubeView
from waltz_operator.plan.builder import LATER, Decision
from waltz_operator.plan.replica_changes import describe, waiting_text
from waltz_operator.plan.status.stalled import stands_still, starting, stuck_pod

Fact = tuple[ConditionStatus, Reason, str]
Report = tuple[Reason, str]


def progressing(facts: Facts, decision: Decision) -> Fact:
    """Status, reason and message."""
    if facts.desired.deleting:
        for first in decision.blocked[:1]:
            return "True", Reason(first.reason), f"{first.what}: {first.text}"
        return "True", Reason.DELETING, decision.message or "the cluster is being deleted"
    if decision.invalid is not None:
        return "False", *decision.invalid
    if facts.desired.paused:
        return "False", Reason.PAUSED, "spec.paused: nothing is changed"
    if not _moves(facts, decision):
        waiting = _needs_person(facts, decision)
        if waiting is not None:
            return "False", *waiting
    found = _held_back(facts, decision) or _under_way(facts, decision) or _coming(facts)
    if found is not None:
        return "True", *found
    if decision.rejected is not None:
        return "False", *decision.rejected
    if decision.requeue_seconds < LATER:
        return "True", Reason.APPLYING, "what was begun is being finished"
    return "False", Reason.AS_WANTED, "up to date"


def _moves(facts: Facts, decision: Decision) -> bool:
    """Whether something is done in this pass, or is in progress."""
    changing = facts.memory.operation is not None and not decision.held
    return (
        bool(decision.actions)
        or decision.memory != facts.memory
        or changing
        or any(task.in_flight is not None for task in facts.tasks)
        or starting(facts) is not None
    )


def _needs_person(facts: Facts, decision: Decision) -> Report | None:
    """What a person has to see to, when all that is left waits for that."""
    if decision.blocked:
        first = decision.blocked[0]
        if all(stands_still(facts, one) for one in decision.blocked):
            return Reason(first.reason), f"{first.what}: {first.text}"
        return None
    stuck = stuck_pod(facts)
    return (Reason.POD_STUCK, stuck) if stuck is not None else None


def _held_back(facts: Facts, decision: Decision) -> Report | None:
    """The first step that waits for time, in a pass that takes no other one."""
    if decision.risky:
        return None
    found = next((one for one in decision.blocked if not stands_still(facts, one)), None)
    return (Reason(found.reason), f"{found.what}: {found.text}") if found is not None else None


def _under_way(facts: Facts, decision: Decision) -> Report | None:
    if decision.waiting is not None:
        return decision.waiting
    change = waiting_text(facts)
    if change is not None:
        return change
    if decision.memory.operation is not None:
        return Reason.CHANGING_REPLICAS, describe(facts, decision.memory.operation)
    if decision.step:
        return Reason.RESTARTING, decision.step
    if decision.actions:
        return Reason.APPLYING, decision.actions[0].line
    return None


def _coming(facts: Facts) -> Report | None:
    """Pods that Kubernetes is still bringing up."""
    node = starting(facts)
    if node is not None:
        return Reason.RESTARTING, node
    if not isinstance(facts.kube, KubeView):
        return None
    servers = facts.kube.deployment
    if servers is not None and not servers.calm:
        text = f"{servers.ready_replicas} of {servers.replicas} servers are ready"
        return Reason.WAITING_FOR_SERVERS, f"the servers are rolled out: {text}"
    for view in facts.kube.statefulsets.values():
        if not view.node and view.ready_replicas < view.replicas:
            text = f"{view.ready_replicas} of {view.replicas} ZooKeeper servers are ready"
            return Reason.WAITING_FOR_ZOOKEEPER, text
    return None
