"""The workload pod, seen from outside the cluster: through the API server's proxy."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import yaml

from tests.e2e.images import WORKLOAD
from tests.e2e.kubectl import Kubectl, wait_until

NAME = "load"
_PORT = 8080
_TLS = "/etc/waltz/tls"
_LOGIN = "/etc/waltz/zookeeper-auth"
_CHECK_SECONDS = 300.0
_FLOWING_SECONDS = 2.0
"""A partition that had no acknowledgement for so long is not being written."""


@dataclass(frozen=True, slots=True)
class Measured:
    """One round."""

    acknowledged: int
    unknown: int
    longest_gap_seconds: float


class Load:
    """The pod `load` of one namespace, writing to one cluster."""

    def __init__(self, kubectl: Kubectl, node: str) -> None:
        self._kubectl = kubectl
        self._node = node
        self._path = f"/api/v1/namespaces/{kubectl.namespace}/pods/{NAME}:{_PORT}/proxy"

    def start(self, endpoints: dict[str, str]) -> None:
        """Start writing to the cluster whose status has these endpoints; returns once every partition is
        written."""
        keys: dict[str, object] = {
            "zookeeper.connectString": endpoints["zookeeper"],
            "zookeeper.sessionTimeout": 10_000,
            "cluster.root": endpoints["root"],
        }
        secret = endpoints.get("clientSecret")
        if secret:
            keys |= {"client.ssl.keyStore.location": _TLS, "client.ssl.trustStore.location": _TLS}
        else:
            keys["client.ssl.enabled"] = False
        if endpoints.get("zookeeperTls"):
            keys |= {"zookeeper.ssl.keyStore.location": _TLS, "zookeeper.ssl.trustStore.location": _TLS}
        login = endpoints.get("zookeeperSecret")
        if login:
            keys |= {"zookeeper.auth.file": f"{_LOGIN}/zookeeper.auth", "zookeeper.acl": "creator"}
        config = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": NAME}}
        self._kubectl.apply(config | {"data": {"client.yml": yaml.safe_dump(keys)}}, self._pod(secret, login))
        wait_until("the load writes to every partition", self._ready, 120)

    def _pod(self, secret: str | None, login: str | None) -> dict[str, Any]:
        mounts = [{"name": "config", "mountPath": "/etc/waltz/client.yml", "subPath": "client.yml"}]
        volumes: list[dict[str, Any]] = [{"name": "config", "configMap": {"name": NAME}}]
        if secret:
            mounts.append({"name": "tls", "mountPath": _TLS})
            volumes.append({"name": "tls", "secret": {"secretName": secret}})
        if login:
            mounts.append({"name": "login", "mountPath": _LOGIN})
            volumes.append({"name": "login", "secret": {"secretName": login}})
        container = {
            "name": NAME,
            "image": WORKLOAD,
            "volumeMounts": mounts,
            "securityContext": {"readOnlyRootFilesystem": True, "allowPrivilegeEscalation": False},
        }
        spec = {
            "nodeName": self._node,
            "restartPolicy": "Never",
            "terminationGracePeriodSeconds": 2,
            "containers": [container],
            "volumes": volumes,
        }
        # Clients are known by a label, for the cluster's network policy.
        metadata = {"name": NAME, "labels": {"app": NAME, "waltz.dev/client": "true"}}
        return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}

    def stop(self) -> None:
        """End it; what it knows is gone."""
        self._kubectl("delete", "pod,configmap", NAME, "--ignore-not-found", timeout_seconds=60)

    def _ready(self) -> bool:
        return bool(json.loads(self._kubectl("get", "--raw", f"{self._path}/ready"))["ready"])

    def begin_round(self, interval_seconds: float, rare: Sequence[int] = ()) -> None:
        """Measure from now on, with an append to each partition so often, rarely to those of `rare`."""
        asked = "".join(f"&rare={partition}" for partition in rare)
        path = f"{self._path}/round?interval={interval_seconds}{asked}"
        self._kubectl("create", "--raw", path, "-f", os.devnull)

    def measured(self) -> Measured:
        """The round until now."""
        found = json.loads(self._kubectl("get", "--raw", f"{self._path}/round"))
        return Measured(found["acknowledged"], found["unknown"], found["longest_gap_seconds"])

    def lap(self) -> float:
        """The longest gap since the last lap, seconds; the round continues."""
        answer = self._kubectl("create", "--raw", f"{self._path}/lap", "-f", os.devnull)
        return float(json.loads(answer)["longest_gap_seconds"])

    def wait_flowing(self) -> None:
        """Wait until every partition is written again: a load that has given up loses nothing, and proves
        nothing."""
        wait_until("every partition is written again", lambda: self.lap() < _FLOWING_SECONDS, _CHECK_SECONDS)

    def verdict(self, since: str) -> dict[str, Any]:
        """Read the log `since` the beginning of the round ("round") or of the log ("start") and judge it."""

        def ask() -> dict[str, Any]:
            raw = f"{self._path}/check?from={since}"
            found: dict[str, Any] = json.loads(
                self._kubectl("get", "--raw", raw, timeout_seconds=_CHECK_SECONDS)
            )
            return found

        return wait_until("the log can be read and judged", ask, _CHECK_SECONDS)
