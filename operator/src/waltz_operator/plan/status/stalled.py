"""Does what blocks a step pass without help, or does it last until a person acts?

For the condition Progressing, and for the question whether servers still wait for storage nodes.
What is not known counts as passing: an answer may come at any moment. Pure.
"""

from __future__ import annotations

from waltz_operator.api.topology import NodeIdentity
from waltz_operator.model.actions import Blocked
from waltz_operator.model.facts import Facts
from waltz_operator.model.reasons import Reason
from waltz_operator.model.snapshot import NO_POD, NOT_STARTED, KubeView, NodeReplica, NodeView, PodView

FOR_A_PERSON = frozenset(
    {
        Reason.DISK_FULL,
        Reason.DISK_LOST,
        Reason.INVALID_SPEC,
        Reason.METADATA_UNKNOWN,
        Reason.NO_SPARE_REPLICA,
        Reason.NO_TARGET,
        Reason.VOLUME_BEING_DELETED,
    }
)
"""Reasons that no waiting takes away."""
POD_SECONDS = 60.0
"""A pod that its controller has not made after this is reported."""
UNSCHEDULABLE = "Unschedulable"
"""A pod for which there is no place: every new one while its volume is being made, or a machine is being
added."""
OF_COPIES = frozenset({Reason.NO_QUORUM_WITHOUT, Reason.NO_SOURCE, Reason.UNSAFE_CHANGE})
"""Reasons that go when enough copies of the partition are current."""
OF_NODES = frozenset({Reason.NODE_SILENT, Reason.OTHER_NODE_DOWN, Reason.STORAGE_FIRST})
"""Reasons that go when storage nodes are up."""


def stands_still(facts: Facts, blocked: Blocked) -> bool:
    """Whether time alone will not free the step."""
    if blocked.reason in FOR_A_PERSON:
        return True
    if blocked.reason == Reason.POD_STUCK:
        return _copy_cannot_start(facts, blocked.partition)
    if blocked.reason in OF_COPIES and blocked.partition is not None:
        if blocked.reason == Reason.UNSAFE_CHANGE and _all_current(facts, blocked.partition):
            return True  # as many copies as there can be prove it, and they are too few
        return _no_copy_comes_back(facts, blocked.partition)
    return blocked.reason in OF_NODES and stuck_pod(facts) is not None and starting(facts) is None


def _copy_cannot_start(facts: Facts, partition: int | None) -> bool:
    """Whether a copy job of the partition waits for something else than a place or its image."""
    jobs = facts.kube.jobs.values() if isinstance(facts.kube, KubeView) else ()
    return any(
        job.partition == partition and job.waits not in ("", UNSCHEDULABLE, NOT_STARTED) for job in jobs
    )


def _no_copy_comes_back(facts: Facts, partition: int) -> bool:
    """Copies are missing, and none of them becomes current without help."""
    behind = [node for node in facts.holders(partition) if facts.not_current(partition, node)]
    return bool(behind) and all(_is_down(facts, partition, node) for node in behind)


def _all_current(facts: Facts, partition: int) -> bool:
    holders = facts.holders(partition)
    return bool(holders) and len(facts.current(partition, holders)) == len(holders)


def _is_down(facts: Facts, partition: int, node: str) -> bool:
    """Whether a copy is lost, out of service or switched off, or its node can't run."""
    identity, replica = facts.identity(node), facts.replica(partition, node)
    if isinstance(replica, NodeReplica):
        return bool(replica.problem) or not replica.available or facts.data_lost(partition, node)
    pod = _pod(facts, identity)
    return facts.data_lost(partition, node) or (pod is not None and bool(pod.stuck) and _is_stuck(pod))


def starting(facts: Facts) -> str | None:
    """The first storage node of the specification whose pod is not there or not ready yet, and will be; None
    when there is none."""
    if not isinstance(facts.kube, KubeView):
        return None
    for node in facts.desired.nodes:
        if node.external:
            continue
        pod = _pod(facts, node)
        if pod is None and _is_not_made(facts, facts.kube, node.pod):
            continue
        if pod is None or pod.deleting:
            return f"{node.pod} is restarting" if pod is not None else f"{node.pod} is not there yet"
        if not pod.ready and not _is_stuck(pod) and not _has_problem(facts, node):
            return f"{node.pod} is not ready yet"
    return None


def _has_problem(facts: Facts, node: NodeIdentity) -> bool:
    """Whether the node itself says why it is not ready."""
    view = facts.node(node.connect_string)
    return isinstance(view, NodeView) and any(replica.problem for replica in view.partitions.values())


def stuck_pod(facts: Facts) -> str | None:
    """The first pod of the cluster of which something can't run as it is, and why; None when there is
    none."""
    not_made = refused_pod(facts)
    if not_made is not None:
        return not_made
    if isinstance(facts.kube, KubeView):
        for name, pod in sorted(facts.kube.pods.items()):
            if pod.component not in ("migration", "console") and _is_stuck(pod):
                return f"{name}: {pod.problem}"
    return None


def refused_pod(facts: Facts) -> str | None:
    """The first pod that its controller does not make, and why as far as it is known; None when there is
    none."""
    if not isinstance(facts.kube, KubeView):
        return None
    for name in sorted(facts.kube.missing):
        if _is_not_made(facts, facts.kube, name):
            of = name.rpartition("-")[0]
            return f"{name}: {NO_POD} (`kubectl describe statefulset {of}` has the answer of the API server)"
    servers = facts.kube.deployment
    if servers is not None and servers.refused and facts.now - servers.refused_since >= POD_SECONDS:
        return f"a pod of the servers cannot be made: {servers.refused}"
    return None


def _is_not_made(facts: Facts, kube: KubeView, pod: str) -> bool:
    since = kube.missing.get(pod)
    return since is not None and facts.now - since >= POD_SECONDS


def _is_stuck(pod: PodView) -> bool:
    return pod.problem not in ("", UNSCHEDULABLE) and not pod.ready and not pod.deleting


def _pod(facts: Facts, node: NodeIdentity | None) -> PodView | None:
    return facts.kube.pods.get(node.pod) if node is not None and isinstance(facts.kube, KubeView) else None
