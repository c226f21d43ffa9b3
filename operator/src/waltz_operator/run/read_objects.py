"""Reading the objects of a cluster: complete lists by the labels of the operator, and by name what has lost
one of these. What they say is read in `read_kubernetes`."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace

from waltz_operator.api import topology
from waltz_operator.api.cluster import WaltzCluster
from waltz_operator.api.metadata import LABEL_INSTANCE, LABEL_MANAGED_BY, MANAGED_BY
from waltz_operator.kube import kinds
from waltz_operator.kube.client import Kube, Object
from waltz_operator.kube.errors import KubeForbiddenError, KubeNotFoundError
from waltz_operator.kube.kinds import Kind
from waltz_operator.model.snapshot import KubeView
from waltz_operator.run.overridden import Overridden, found_by_name
from waltz_operator.run.read_kubernetes import is_ours, kube_view

_KINDS: tuple[Kind, ...] = (
    kinds.CONFIG_MAP,
    kinds.DEPLOYMENT,
    kinds.JOB,
    kinds.NETWORK_POLICY,
    kinds.POD,
    kinds.POD_DISRUPTION_BUDGET,
    kinds.PVC,
    kinds.SERVICE,
    kinds.STATEFUL_SET,
)


async def read_objects(
    kube: Kube, cluster: WaltzCluster, overridden: Overridden, *, classes: bool
) -> KubeView:
    """All of them. `classes`: whether the role permits reading storage classes. KubeError: not all could be
    read."""
    absent: set[str] = set()

    async def read(kind: Kind) -> tuple[str, list[Object]]:
        try:
            return kind.kind, await _of_kind(kube, cluster, kind, overridden)
        except (KubeNotFoundError, KubeForbiddenError):
            if kind not in kinds.OPTIONAL:
                raise
            absent.add(kind.kind)
            return kind.kind, []

    lists = dict(await asyncio.gather(*(read(kind) for kind in (*_KINDS, *kinds.OPTIONAL))))
    expandable = await _expandable(kube, lists[kinds.PVC.kind]) if classes else {}
    return kube_view(lists, expandable, topology.server_name(cluster), absent)


def with_missing(view: KubeView, since: dict[str, float], now: float) -> KubeView:
    """The same with the pods that are missing. `since`: when each was first seen to be, kept from one look to
    the next, seconds (UNIX time)."""
    missing = {
        pod
        for name, one in view.statefulsets.items()
        if one.settled and not one.deleting
        for pod in (f"{name}-{number}" for number in range(one.replicas))
        if pod not in view.pods
    }
    for pod in since.keys() - missing:
        del since[pod]
    for pod in missing:
        since[pod] = min(now, since.get(pod, now))  # of a clock that was ahead
    return replace(view, missing=dict(since))


async def _of_kind(kube: Kube, cluster: WaltzCluster, kind: Kind, overridden: Overridden) -> list[Object]:
    namespace, instance = cluster.metadata.namespace, {LABEL_INSTANCE: cluster.metadata.name}
    if kind is kinds.PVC:
        listed = [one for one in await kube.list(kind, namespace, instance) if is_ours(one)]
    else:
        listed = await kube.list(kind, namespace, {**instance, LABEL_MANAGED_BY: MANAGED_BY})
    return listed + await found_by_name(kube, namespace, overridden, kind, listed)


async def _expandable(kube: Kube, claims: Sequence[Object]) -> dict[str, bool]:
    """Storage class → whether volumes can grow; without a class that could not be read."""
    classes = {str((claim.get("spec") or {}).get("storageClassName") or "") for claim in claims} - {""}
    found = {}
    for name in sorted(classes):
        try:
            body = await kube.get(kinds.STORAGE_CLASS, None, name)
        except (KubeNotFoundError, KubeForbiddenError):
            continue
        found[name] = bool(body.get("allowVolumeExpansion"))
    return found
