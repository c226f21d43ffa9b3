"""Volume claims that were deleted and that only their running pod keeps: Kubernetes deletes the volume as
soon as the pod ends, and nobody can take that back. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from waltz_operator.api.topology import NodeIdentity
from waltz_operator.model.desired import Desired
from waltz_operator.model.ensemble import servers
from waltz_operator.model.snapshot import KubeView, Unknown


def dying(kube: KubeView | Unknown, claims: Iterable[str]) -> str:
    """The first of these claims that is being deleted; empty when none is."""
    found = kube.pvcs if isinstance(kube, KubeView) else {}
    return next((name for name in claims if name in found and found[name].deleting), "")


def dying_storage(kube: KubeView | Unknown, nodes: Iterable[NodeIdentity]) -> tuple[str, str] | None:
    """The first pod of these nodes that keeps such a claim, and the claim."""
    return _first(kube, ((node.pod, node.claims) for node in nodes if not node.external))


def dying_zookeeper(kube: KubeView | Unknown, desired: Desired) -> tuple[str, str] | None:
    """The same of the managed ZooKeeper's servers."""
    names = servers(desired, kube) if isinstance(kube, KubeView) else ()
    return _first(kube, ((name, (f"data-{name}",)) for name in names))


def _first(kube: KubeView | Unknown, pods: Iterable[tuple[str, Iterable[str]]]) -> tuple[str, str] | None:
    if not isinstance(kube, KubeView):
        return None
    for name, claims in pods:
        pod = kube.pods.get(name)
        if pod is not None and not pod.deleting and (claim := dying(kube, claims)):
            return name, claim
    return None
