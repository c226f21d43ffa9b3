"""What a plan says of its cluster as a whole: that nothing is to be done for it, or that it is impaired.
Pure."""

from __future__ import annotations

from waltz_operator.api.cluster_status import ConditionType, WaltzClusterStatus
from waltz_operator.model.actions import EmitEvent, Plan, SetStatus
from waltz_operator.model.snapshot import KubeView, Snapshot
from waltz_operator.plan.status.events import LOUD


def is_impaired(plan: Plan) -> bool:
    """Whether its pass comes before those of others: a partition is not served, or something is broken that
    planned work does not break."""
    if not isinstance(plan.status, WaltzClusterStatus):
        return False
    available = plan.status.condition(ConditionType.AVAILABLE)
    degraded = plan.status.condition(ConditionType.DEGRADED)
    broken = degraded is not None and degraded.status == "True" and degraded.reason in LOUD
    return broken or (available is not None and available.status == "False")


def at_rest(plan: Plan, snapshot: Snapshot) -> bool:
    """Whether nothing is to be done or waited for, so that the rotation of an authority may take a step."""
    quiet = all(isinstance(one, SetStatus | EmitEvent) for one in plan.actions)
    wanted = not snapshot.problems and not snapshot.cluster.metadata.deleting
    return wanted and quiet and not plan.blocked and not _restarts_due(plan) and _all_ready(snapshot)


def _restarts_due(plan: Plan) -> bool:
    """Whether a pod runs with another template than the wanted one, and waits for the window perhaps."""
    if not isinstance(plan.status, WaltzClusterStatus):
        return False
    found = plan.status.condition(ConditionType.RESTART_REQUIRED)
    return found is not None and found.status == "True"


def _all_ready(snapshot: Snapshot) -> bool:
    """Every pod there is runs and is ready; False when that is not known."""
    if not isinstance(snapshot.kube, KubeView):
        return False
    ours = [pod for pod in snapshot.kube.pods.values() if pod.component in ("storage", "server", "zookeeper")]
    return all(pod.ready and not pod.deleting for pod in ours)
