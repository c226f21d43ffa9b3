"""The volumes that pods mount besides their data: configuration, certificates, credentials, scratch space."""

from __future__ import annotations

from waltz_operator.api.cluster import WaltzCluster
from waltz_operator.api.topology import tls_roles
from waltz_operator.resources.common import AUTH_DIRECTORY, CONFIG_DIRECTORY, TLS_DIRECTORY, TMP_BYTES
from waltz_operator.resources.inputs import Obj
from waltz_operator.resources.login import Level, login_of

Volumes = list[Obj]
AUTH_FILE = "auth"
FILE_MODE = 0o440
"""Readable by the group of the pod, which is ours (fsGroup)."""


def scratch() -> tuple[Volumes, Volumes]:
    """/tmp in memory, since the root file system is read-only."""
    volume = {"name": "tmp", "emptyDir": {"medium": "Memory", "sizeLimit": TMP_BYTES}}
    return [volume], [{"name": "tmp", "mountPath": "/tmp"}]


def config_map(name: str) -> tuple[Volumes, Volumes]:
    """The configuration of a role."""
    volume = {"name": "config", "configMap": {"name": name, "defaultMode": FILE_MODE}}
    return [volume], [{"name": "config", "mountPath": CONFIG_DIRECTORY, "readOnly": True}]


def certificates(cluster: WaltzCluster, role: str) -> tuple[Volumes, Volumes]:
    """Key, certificate and authority of a role; nothing without TLS."""
    secret = next((found.secret for found in tls_roles(cluster) if found.role == role), None)
    if secret is None:
        return [], []
    volume = {"name": "tls", "secret": {"secretName": secret, "defaultMode": FILE_MODE}}
    return [volume], [{"name": "tls", "mountPath": TLS_DIRECTORY, "readOnly": True}]


def zookeeper_auth(cluster: WaltzCluster, level: Level = Level.NONE) -> tuple[Volumes, Volumes]:
    """The credentials for ZooKeeper; nothing without."""
    login = login_of(cluster, level)
    if login is None:
        return [], []
    volume = {
        "name": "zookeeper-auth",
        "secret": {
            "secretName": login.secret_name,
            "items": [{"key": login.key, "path": AUTH_FILE}],
            "defaultMode": FILE_MODE,
        },
    }
    return [volume], [{"name": "zookeeper-auth", "mountPath": AUTH_DIRECTORY, "readOnly": True}]


def mounted(*parts: tuple[Volumes, Volumes]) -> tuple[Volumes, Volumes]:
    """Several of the above: volumes of the pod, mounts of the container."""
    return [volume for volumes, _ in parts for volume in volumes], [
        mount for _, mounts in parts for mount in mounts
    ]
