"""Pod templates of driver and executors: what Spark's own settings do not cover, or not well.

Spark puts in names, its labels, images, cores, memory, the environment it needs and its scratch volumes.
"""

from __future__ import annotations

from typing import Any

from render.application import Application

DRIVER_CONTAINER, EXECUTOR_CONTAINER = "spark-kubernetes-driver", "spark-kubernetes-executor"
OPTIONS_FOLDER, TLS_FOLDER, SECRETS_FOLDER = "/etc/waltz/options", "/etc/waltz/tls", "/etc/waltz/secrets"
OPTIONS_FILE = f"{OPTIONS_FOLDER}/options.yaml"
ZOOKEEPER_CLIENT = {"waltz.dev/client": "true"}
"""Pods with it may connect to a ZooKeeper that the Waltz operator manages."""
UI_PORT = 4040
USER = 185
_WRITABLE = {"tmp": "/tmp", "work": "/opt/spark/work-dir", "home": "/opt/spark/home"}  # noqa: S108: in the container


def labels(application: Application, role: str | None = None) -> dict[str, str]:
    """Labels of every object of the application; of a pod with its role."""
    found = {"app.kubernetes.io/name": "waltz-spark", "app.kubernetes.io/instance": application.name}
    return found if role is None else {**found, "app.kubernetes.io/component": role}


def driver_pod(application: Application) -> dict[str, Any]:
    """Template of the driver's pod."""
    return _pod(application, "driver", DRIVER_CONTAINER)


def executor_pod(application: Application) -> dict[str, Any]:
    """Template of an executor's pod."""
    return _pod(application, "executor", EXECUTOR_CONTAINER)


def _pod(application: Application, role: str, name: str) -> dict[str, Any]:
    volumes, mounts = _volumes(application)
    container: dict[str, Any] = {
        "name": name,
        "volumeMounts": mounts,
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        },
    }
    if role == "driver" and application.monitoring:
        container["ports"] = [{"name": "spark-ui", "containerPort": UI_PORT, "protocol": "TCP"}]
    spec: dict[str, Any] = {
        "containers": [container],
        "volumes": volumes,
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": USER,
            "runAsGroup": USER,
            "fsGroup": USER,
            "fsGroupChangePolicy": "OnRootMismatch",
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "terminationGracePeriodSeconds": 30,
    }
    if application.node_selector:
        spec["nodeSelector"] = dict(application.node_selector)
    if role == "executor":
        # An executor asks nothing of the API server.
        spec["automountServiceAccountToken"] = False
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "labels": {**labels(application, role), **(ZOOKEEPER_CLIENT if application.zookeeper else {})}
        },
        "spec": spec,
    }


def _volumes(application: Application) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    volumes: list[dict[str, Any]] = [{"name": "waltz-options", "configMap": {"name": application.config_map}}]
    mounts: list[dict[str, Any]] = [{"name": "waltz-options", "mountPath": OPTIONS_FOLDER, "readOnly": True}]
    for name, secret, folder in (
        ("waltz-tls", application.tls_secret, TLS_FOLDER),
        ("waltz-secrets", application.secret_options, SECRETS_FOLDER),
    ):
        if secret is not None:
            volumes.append({"name": name, "secret": {"secretName": secret, "defaultMode": 0o440}})
            mounts.append({"name": name, "mountPath": folder, "readOnly": True})
    if application.volume is not None:
        volumes.append({"name": "state", "persistentVolumeClaim": {"claimName": application.name}})
        mounts.append({"name": "state", "mountPath": application.volume.mount_path})
    for name, path in _WRITABLE.items():
        volumes.append({"name": name, "emptyDir": {}})
        mounts.append({"name": name, "mountPath": path})
    return volumes, mounts
