"""What an application needs besides its pods, whichever way it is submitted: account, options, volume,
network, monitoring."""

from __future__ import annotations

from typing import Any

import yaml

from render.application import Application
from render.pods import TLS_FOLDER, labels

SERVER_PORT, ZOOKEEPER_PORTS = 55180, (2181, 2281)


def objects(application: Application) -> list[dict[str, Any]]:
    """In the order in which they are applied."""
    found = [_account(application), _role(application), _binding(application), _options(application)]
    if application.volume is not None:
        found.append(_claim(application))
    if application.network is not None:
        found.append(_policy(application))
    if application.streaming:
        found.append(_disruption(application))
    return found


def monitor(application: Application) -> dict[str, Any]:
    """A PodMonitor for Spark's own Prometheus pages: of the driver, and of the executors as the driver sees
    them."""
    pages = ("/metrics/prometheus/", "/metrics/executors/prometheus/")
    return {
        **_head(application, "monitoring.coreos.com/v1", "PodMonitor", application.name),
        "spec": {
            "selector": {"matchLabels": labels(application, "driver")},
            "podMetricsEndpoints": [{"port": "spark-ui", "path": page, "interval": "15s"} for page in pages],
        },
    }


def option_values(application: Application) -> dict[str, str | int | bool]:
    """The options, with the files of the TLS Secret where there is one; those of the connection to ZooKeeper
    too, if `zookeeper.ssl.enabled` is true."""
    values = dict(application.options)
    if application.tls_secret is not None:
        zookeeper = str(values.get("zookeeper.ssl.enabled", "")).lower() == "true"
        for prefix in ("client.ssl", *(["zookeeper.ssl"] if zookeeper else [])):
            for store in ("keyStore", "trustStore"):
                values.setdefault(f"{prefix}.{store}.location", TLS_FOLDER)
    return values


def _head(application: Application, version: str, kind: str, name: str) -> dict[str, Any]:
    metadata = {"name": name, "namespace": application.namespace, "labels": labels(application)}
    return {"apiVersion": version, "kind": kind, "metadata": metadata}


def _account(application: Application) -> dict[str, Any]:
    return _head(application, "v1", "ServiceAccount", application.account)


def _role(application: Application) -> dict[str, Any]:
    """What a driver was seen to need to make, watch and clear away its executors."""
    own = ["create", "list", "delete", "deletecollection"]
    rules = [
        {"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "watch", "patch", *own]},
        {"apiGroups": [""], "resources": ["configmaps"], "verbs": own},
        {
            "apiGroups": [""],
            "resources": ["services", "persistentvolumeclaims"],
            "verbs": ["list", "deletecollection"],
        },
    ]
    return {
        **_head(application, "rbac.authorization.k8s.io/v1", "Role", application.account),
        "rules": rules,
    }


def _binding(application: Application) -> dict[str, Any]:
    return {
        **_head(application, "rbac.authorization.k8s.io/v1", "RoleBinding", application.account),
        "subjects": [
            {"kind": "ServiceAccount", "name": application.account, "namespace": application.namespace}
        ],
        "roleRef": {
            "apiGroup": "rbac.authorization.k8s.io",
            "kind": "Role",
            "name": application.account,
        },
    }


def _options(application: Application) -> dict[str, Any]:
    text = yaml.safe_dump(option_values(application), sort_keys=True)
    return {
        **_head(application, "v1", "ConfigMap", application.config_map),
        "data": {"options.yaml": text},
    }


def _claim(application: Application) -> dict[str, Any]:
    volume = application.volume
    if volume is None:
        raise ValueError("no volume")
    spec: dict[str, Any] = {
        "accessModes": [volume.access_mode],
        "resources": {"requests": {"storage": volume.size}},
    }
    if volume.storage_class is not None:
        spec["storageClassName"] = volume.storage_class
    return {**_head(application, "v1", "PersistentVolumeClaim", application.name), "spec": spec}


def _disruption(application: Application) -> dict[str, Any]:
    """A stream that loses its driver starts again from its checkpoint, but not without need."""
    selector = {"matchLabels": labels(application, "driver")}
    return {
        **_head(application, "policy/v1", "PodDisruptionBudget", application.name),
        "spec": {"maxUnavailable": 0, "selector": selector},
    }


def _policy(application: Application) -> dict[str, Any]:
    network = application.network
    if network is None:
        raise ValueError("no network")
    own = {"podSelector": {"matchLabels": labels(application)}}
    waltz = {
        "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": network.waltz_namespace}},
        "podSelector": {"matchLabels": {"app.kubernetes.io/instance": network.waltz_cluster}},
    }
    dns = [{"protocol": protocol, "port": 53} for protocol in ("UDP", "TCP")]
    egress: list[dict[str, Any]] = [
        {"to": [own]},
        {"to": [waltz], "ports": _ports(SERVER_PORT, *(ZOOKEEPER_PORTS if application.zookeeper else ()))},
        {"ports": dns},
        {"ports": _ports(*network.api_server_ports)},
    ]
    ingress: list[dict[str, Any]] = [{"from": [own]}]
    if application.monitoring:
        ingress.append({"from": [{"namespaceSelector": {}}], "ports": [{"protocol": "TCP", "port": 4040}]})
    return {
        **_head(application, "networking.k8s.io/v1", "NetworkPolicy", application.name),
        "spec": {
            "podSelector": {"matchLabels": labels(application)},
            "policyTypes": ["Ingress", "Egress"],
            "ingress": ingress,
            "egress": egress,
        },
    }


def _ports(*ports: int) -> list[dict[str, Any]]:
    return [{"protocol": "TCP", "port": port} for port in ports]
