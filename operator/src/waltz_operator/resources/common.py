"""What all objects share: metadata, labels, owner, security context, probes."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

from waltz_operator.api.cluster import WaltzCluster
from waltz_operator.api.metadata import (
    API_VERSION,
    GROUP,
    LABEL_COMPONENT,
    LABEL_INSTANCE,
    LABEL_MANAGED_BY,
    LABEL_NAME,
    MANAGED_BY,
)
from waltz_operator.resources.images import pull_secrets
from waltz_operator.resources.inputs import Obj, RenderInputs

STORAGE, SERVER, ZOOKEEPER, MIGRATION = "storage", "server", "zookeeper", "migration"
CONSOLE = "console"

USER_ID = 65532
"""The user in all our images."""
TLS_DIRECTORY = "/etc/waltz/tls"
CONFIG_DIRECTORY = "/etc/waltz/config"
AUTH_DIRECTORY = "/etc/waltz/zookeeper-auth"
TMP_BYTES = "16Mi"


def labels(cluster: WaltzCluster, component: str, **more: str) -> dict[str, str]:
    """Labels of an object or pod; `more` by short name (group, node)."""
    return {
        **selector(cluster, component),
        LABEL_MANAGED_BY: MANAGED_BY,
        **{f"{GROUP}/{name}": value for name, value in more.items()},
    }


def selector(cluster: WaltzCluster, component: str, **more: str) -> dict[str, str]:
    """What the pods of a component are found by; never changes."""
    return {
        LABEL_NAME: "waltz",
        LABEL_INSTANCE: cluster.metadata.name,
        LABEL_COMPONENT: component,
        **{f"{GROUP}/{name}": value for name, value in more.items()},
    }


def owner(cluster: WaltzCluster) -> Obj:
    """The owner reference of everything that goes with the cluster."""
    return {
        "apiVersion": API_VERSION,
        "kind": "WaltzCluster",
        "name": cluster.metadata.name,
        "uid": cluster.metadata.uid,
        "controller": True,
        "blockOwnerDeletion": True,
    }


def make(
    cluster: WaltzCluster,
    api_version: str,
    kind: str,
    name: str,
    component: str,
    body: Mapping[str, Any],
    *,
    annotations: Mapping[str, str] | None = None,
    owned: bool = True,
    more: Mapping[str, str] | None = None,
) -> Obj:
    """An object with its metadata. `body`: everything besides metadata; `more`: labels by short name."""
    metadata: Obj = {
        "name": name,
        "namespace": cluster.metadata.namespace,
        "labels": labels(cluster, component, **(more or {})),
    }
    if annotations:
        metadata["annotations"] = dict(annotations)
    if owned:
        metadata["ownerReferences"] = [owner(cluster)]
    return {"apiVersion": api_version, "kind": kind, "metadata": metadata, **body}


def digest(value: object) -> str:
    """Of anything JSON can carry, independent of the order of keys; 16 hexadecimal digits."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:16]


POD_SECURITY: Obj = {
    "runAsNonRoot": True,
    "runAsUser": USER_ID,
    "runAsGroup": USER_ID,
    "fsGroup": USER_ID,
    "fsGroupChangePolicy": "OnRootMismatch",
    "seccompProfile": {"type": "RuntimeDefault"},
}
CONTAINER_SECURITY: Obj = {
    "allowPrivilegeEscalation": False,
    "readOnlyRootFilesystem": True,
    "capabilities": {"drop": ["ALL"]},
}


def pod_basics(cluster: WaltzCluster, inputs: RenderInputs) -> Obj:
    """What the spec of every pod begins with."""
    spec: Obj = {
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "securityContext": dict(POD_SECURITY),
    }
    secrets = pull_secrets(cluster.spec.images, inputs.images)
    if secrets:
        spec["imagePullSecrets"] = secrets
    return spec


def container(cluster: WaltzCluster, name: str, image: str, **more: Any) -> Obj:
    """A container with the restricted security context; `more`: further fields."""
    return {
        "name": name,
        "image": image,
        "imagePullPolicy": cluster.spec.images.pull_policy.value,
        "securityContext": dict(CONTAINER_SECURITY),
        **more,
    }


def http_probe(path: str, port: str, *, period: int, timeout: int, failures: int) -> Obj:
    """A probe over HTTP; times in seconds."""
    return {
        "httpGet": {"path": path, "port": port, "scheme": "HTTP"},
        "periodSeconds": period,
        "timeoutSeconds": timeout,
        "failureThreshold": failures,
    }


def service_probes(port: str) -> Obj:
    """The probes of our two services.

    Start: the HTTP port opens once the files are open and ZooKeeper knows the cluster; that may take an hour,
    and killing it would only begin again. Alive: the event loop answers at all. Ready: `/health`, which
    says that every partition here works: on a server that it has a quorum, on a storage node that none is out
    of service and the disk is not full.
    """
    return {
        "startupProbe": http_probe("/ping", port, period=2, timeout=2, failures=1800),
        "livenessProbe": http_probe("/ping", port, period=10, timeout=5, failures=6),
        "readinessProbe": http_probe("/health", port, period=3, timeout=3, failures=2),
    }


def resources_of(requests: Mapping[str, str], limits: Mapping[str, str]) -> Obj:
    """A container's resources; empty parts left out."""
    found: Obj = {}
    if requests:
        found["requests"] = dict(requests)
    if limits:
        found["limits"] = dict(limits)
    return found
