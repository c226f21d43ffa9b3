"""Where pods run: apart from each other, spread over zones."""

from __future__ import annotations

from waltz_operator.api.cluster import WaltzCluster
from waltz_operator.api.metadata import LABEL_DECISION, LABEL_GROUP
from waltz_operator.api.parts import Spread
from waltz_operator.resources.common import SERVER, STORAGE, selector
from waltz_operator.resources.inputs import Obj

HOST = "kubernetes.io/hostname"
ZONE = "topology.kubernetes.io/zone"


def apart(cluster: WaltzCluster, component: str) -> Obj:
    """Affinity: pods of the component on different machines, where there are enough."""
    term = {"labelSelector": {"matchLabels": selector(cluster, component)}, "topologyKey": HOST}
    return {
        "podAntiAffinity": {
            "preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 100, "podAffinityTerm": term}]
        }
    }


def servers_apart(cluster: WaltzCluster, decision: str) -> Obj:
    """Affinity of the servers' Deployment. While it is rolled, the old pods count as much as the new ones,
    those that are ending included: with two servers and three machines there was one pod on each when the
    second new one was made, and nothing kept it from the machine of the first one. So those of one decision,
    which remain, count twice. (`matchLabelKeys` would do it without a label of ours, but Kubernetes 1.30
    drops it.)"""
    affinity = apart(cluster, SERVER)
    remaining = {**selector(cluster, SERVER), LABEL_DECISION: decision}
    term = {"labelSelector": {"matchLabels": remaining}, "topologyKey": HOST}
    preferred = affinity["podAntiAffinity"]["preferredDuringSchedulingIgnoredDuringExecution"]
    preferred.append({"weight": 100, "podAffinityTerm": term})
    return affinity


def storage_affinity(cluster: WaltzCluster, group: str, zone: str | None) -> Obj:
    """Copies of a partition (different groups) on different machines, nodes of one group if possible too; in
    the group's zone."""
    mine = selector(cluster, STORAGE)
    others = {
        "labelSelector": {
            "matchLabels": mine,
            "matchExpressions": [{"key": LABEL_GROUP, "operator": "NotIn", "values": [group]}],
        },
        "topologyKey": HOST,
    }
    same = {
        "labelSelector": {"matchLabels": selector(cluster, STORAGE, group=group)},
        "topologyKey": HOST,
    }
    preferred: list[Obj] = [{"weight": 10, "podAffinityTerm": same}]
    anti: Obj = {"preferredDuringSchedulingIgnoredDuringExecution": preferred}
    if cluster.spec.storage.spread is Spread.REQUIRED:
        anti["requiredDuringSchedulingIgnoredDuringExecution"] = [others]
    else:
        preferred.insert(0, {"weight": 100, "podAffinityTerm": others})
    affinity: Obj = {"podAntiAffinity": anti}
    if zone is not None:
        in_zone = {"matchExpressions": [{"key": ZONE, "operator": "In", "values": [zone]}]}
        affinity["nodeAffinity"] = {
            "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [in_zone]}
        }
    return affinity


def over_zones(cluster: WaltzCluster, component: str) -> list[Obj]:
    """Spread constraints: evenly over zones, as far as possible."""
    return [
        {
            "maxSkew": 1,
            "topologyKey": ZONE,
            "whenUnsatisfiable": "ScheduleAnyway",
            "labelSelector": {"matchLabels": selector(cluster, component)},
        }
    ]
