"""What Prometheus scrapes."""

from __future__ import annotations

from waltz_operator.api.cluster import WaltzCluster
from waltz_operator.api.metadata import LABEL_GROUP, LABEL_HEADLESS, LABEL_NODE
from waltz_operator.api.security import Monitor
from waltz_operator.resources.common import SERVER, STORAGE, make
from waltz_operator.resources.inputs import Obj

MONITORING = "monitoring"


def scrape_annotations(port: int) -> dict[str, str]:
    """For a Prometheus that finds pods by their annotations."""
    return {
        "prometheus.io/scrape": "true",
        "prometheus.io/port": str(port),
        "prometheus.io/path": "/metrics",
    }


def monitors(cluster: WaltzCluster) -> list[Obj]:
    """The PodMonitor or ServiceMonitor of the cluster, or nothing.

    A ServiceMonitor takes the headless Services, which have all pods; the Service in front of the ready
    servers has the same ports, so it is left out by its missing label.
    """
    wanted = cluster.spec.monitoring
    if wanted.monitor is Monitor.NONE:
        return []
    endpoint = {"port": "http", "path": "/metrics", "interval": f"{wanted.interval_seconds}s"}
    match: Obj = {
        "matchLabels": {
            "app.kubernetes.io/name": "waltz",
            "app.kubernetes.io/instance": cluster.metadata.name,
        },
        "matchExpressions": [
            {"key": "app.kubernetes.io/component", "operator": "In", "values": [STORAGE, SERVER]}
        ],
    }
    spec: Obj = {
        "selector": match,
        "podTargetLabels": [
            "app.kubernetes.io/instance",
            "app.kubernetes.io/component",
            LABEL_GROUP,
            LABEL_NODE,
        ],
    }
    if wanted.monitor is Monitor.POD_MONITOR:
        spec["podMetricsEndpoints"] = [endpoint]
    else:
        match["matchExpressions"].append({"key": LABEL_HEADLESS, "operator": "Exists"})
        spec["endpoints"] = [endpoint]
    made = make(
        cluster,
        "monitoring.coreos.com/v1",
        wanted.monitor.value,
        cluster.metadata.name,
        MONITORING,
        {"spec": spec},
    )
    made["metadata"]["labels"] = {**wanted.labels, **made["metadata"]["labels"]}
    return [made]
