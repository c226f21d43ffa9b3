"""Clusters for the tests of rendering: a plain one, and one per feature."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

from waltz_operator.api.cluster import WaltzCluster
from waltz_operator.api.metadata import API_VERSION
from waltz_operator.api.parse import parse_cluster
from waltz_operator.api.validate import problems
from waltz_operator.resources import RenderInputs, desired_objects
from waltz_operator.tls.secrets import MaterialDigests

Spec = dict[str, Any]
Obj = Mapping[str, Any]
UID = "3a1ad8c2-6f4d-4d0c-9d0e-3b8a8a6f2c11"
INPUTS = RenderInputs(
    operator_image="waltz-operator:1",
    tls_digests={
        "server": MaterialDigests("s1", "a1"),
        "storage": MaterialDigests("t1", "a1"),
        "console": MaterialDigests("s1", "a1"),
    },
    server_addresses=(("10.1.2.3", "fd00:1::3"), ("10.1.2.4", "fd00:1::4")),
)

PLAIN: Spec = {
    "images": {"server": "waltz-server:1", "storage": "waltz-storage:1", "zookeeper": "waltz-zookeeper:1"},
    "partitions": 8,
    "replicas": 3,
    "zookeeper": {"managed": {"replicas": 1}},
}


def merged(spec: Spec, changes: Spec) -> Spec:
    """A copy of the specification with the changes in it; None takes a field out."""
    result = copy.deepcopy(spec)
    for field, value in changes.items():
        if value is None:
            result.pop(field, None)
        elif isinstance(value, dict) and isinstance(result.get(field), dict):
            result[field] = merged(result[field], value)
        else:
            result[field] = copy.deepcopy(value)
    return result


def cluster(
    changes: Spec | None = None, annotations: Mapping[str, str] | None = None, *, name: str = "ledger"
) -> WaltzCluster:
    """The plain cluster with these changes; it must be a valid one."""
    body = {
        "apiVersion": API_VERSION,
        "kind": "WaltzCluster",
        "metadata": {"name": name, "namespace": "demo", "uid": UID, "annotations": dict(annotations or {})},
        "spec": merged(PLAIN, changes or {}),
    }
    made = parse_cluster(body)
    assert problems(made) == []
    return made


GROUPS: list[Spec] = [
    {"name": "a", "id": 7, "zone": "z1", "count": 2, "size": "20Gi"},
    {"name": "b", "zone": "z2", "nodes": [{"name": "x"}, {"name": "y"}], "storageClassName": "fast"},
    {"name": "3", "resources": {"limits": {"memory": "2Gi"}}},
]
EXTERNAL: list[Spec] = [
    {
        "name": str(n),
        "nodes": [
            {"name": "0", "external": True, "connectString": f"s{n}.example.com:5280", "adminPort": 5281}
        ],
    }
    for n in range(3)
]
SECRETS = {"server": "own-server", "storage": "own-storage", "operator": "own-operator"}

VARIANTS: dict[str, Spec] = {
    "plain": {},
    "version": {
        "version": "0.1.0",
        "images": {"server": None, "storage": None, "zookeeper": None, "registry": "r.example.com/waltz"},
        "restarts": {"window": {"days": ["Sat", "Sun"], "start": "02:00"}},
    },
    "journal": {"storage": {"journal": {"size": "256Mi"}}},
    "journal volume": {"reclaimPolicy": "Delete", "storage": {"journal": {"volume": {"size": "1Gi", "storageClassName": "fast"}}}},
    "journal off": {"storage": {"journal": {"mode": "Disabled"}}},
    "one copy": {"replicas": 1, "servers": {"replicas": 1}},
    "groups": {"replicas": None, "storage": {"groups": GROUPS, "spread": "Required", "storageClassName": "slow"}},
    "adopted": {
        "replicas": None,
        "images": {"zookeeper": None},
        "storage": {"groups": EXTERNAL},
        "zookeeper": {"managed": None, "connectString": "zk1:2181,zk2:2181", "root": "/old", "adoptKey": UID},
    },
    "own zookeeper": {
        "images": {"zookeeper": None},
        "zookeeper": {
            "managed": None,
            "connectString": "zk1.infra:2181",
            "auth": {"secretName": "zk", "key": "login", "acl": "creator-world-read"},
        },
    },
    "ensemble": {"zookeeper": {"managed": {"replicas": 3, "size": "5Gi", "storageClassName": "fast"}}},
    "ensemble with TLS": {"zookeeper": {"managed": {"replicas": 3, "tls": "Enabled"}}, "networkPolicy": {"egress": "Closed"}},
    "ensemble with TLS, own certificates": {
        "zookeeper": {"managed": {"tls": "Enabled"}},
        "tls": {"mode": "Secret", "secrets": {**SECRETS, "zookeeper": "own-zookeeper"}},
    },
    "plaintext": {"tls": {"mode": "Disabled"}},
    "own certificates": {"tls": {"mode": "Secret", "secrets": SECRETS}},
    "named peers": {
        "tls": {"allowedPeers": {"server": ["app"], "storage": ["tool"], "admin": ["tool"]}, "extraNames": ["w.example.com", "10.0.0.9"]}
    },
    "open to clients": {"tls": {"clientAuthentication": "None"}},
    "cert-manager": {"tls": {"mode": "CertManager", "issuerRef": {"name": "ca"}}},
    "host port": {"servers": {"externalListener": {"domain": "waltz.example.com"}}},
    "pod address": {"servers": {"externalListener": {"address": "PodIP"}}, "tls": {"mode": "Disabled"}},
    "delete": {"reclaimPolicy": "Delete"},
    "no policies": {"networkPolicy": {"enabled": False}},
    "named clients": {
        "networkPolicy": {"clients": [{"podSelector": {"matchLabels": {"app": "x"}}}, {"namespaceSelector": {}}], "metrics": [{}]}
    },
    "closed egress": {"networkPolicy": {"egress": "Closed"}},
    "pod monitor": {"monitoring": {"monitor": "PodMonitor", "labels": {"release": "p"}}},
    "service monitor": {"monitoring": {"monitor": "ServiceMonitor"}},
    "console": {
        "console": {"enabled": True, "showData": True, "hosts": ["waltz.example.com"]},
        "images": {"console": "waltz-tools:1"},
    },
    "console of a closed cluster": {
        "console": {"enabled": True},
        "images": {"console": "waltz-tools:1"},
        "tls": {"allowedPeers": {"server": ["app"]}},
        "networkPolicy": {"clients": [{"podSelector": {"matchLabels": {"app": "x"}}}], "egress": "Closed"},
    },
    "console, own certificates": {
        "console": {"enabled": True},
        "images": {"console": "waltz-tools:1"},
        "tls": {"mode": "Secret", "secrets": {**SECRETS, "console": "own-console"}},
    },
    "console, plaintext": {"console": {"enabled": True}, "images": {"console": "waltz-tools:1"}, "tls": {"mode": "Disabled"}},
    "tuned": {
        "storage": {"config": {"storage.disk.threads": 8}, "podTemplate": {"spec": {"priorityClassName": "p"}}},
        "servers": {
            "config": {"server.log.level": "WARNING"},
            "podTemplate": {"metadata": {"labels": {"team": "t"}}, "spec": {"nodeSelector": {"a": "b"}}},
        },
    },
}  # fmt: skip

_OUT: Spec = {"name": "0", "external": True, "connectString": "h:1", "adminPort": 2}
_ONE: Spec = {"name": "1", "zone": "z", "id": 4, "size": "20Gi", "storageClassName": "fast", "nodes": [_OUT]}


def _group(**changes: Any) -> Spec:
    return {"replicas": None, "storage": {"groups": [merged(_ONE, changes)]}}


CHANGES_REFUSED: list[tuple[Spec, Spec, str]] = [
    ({}, {"zookeeper": {"auth": {"secretName": "zk"}}}, "credentials are added in two steps"),
    ({}, {"zookeeper": {"auth": {"secretName": "zk", "acl": "creator"}}}, "credentials are added in two steps"),
    ({"zookeeper": {"auth": {"secretName": "zk"}}}, {"zookeeper": {"auth": None}}, "credentials are taken away in two"),
    ({}, {"partitions": 9}, "the number of partitions is fixed"),
    ({}, {"zookeeper": {"root": "/other"}}, "the root in ZooKeeper is fixed"),
    ({"zookeeper": {"root": "/one"}}, {"zookeeper": {"root": None}}, "the root in ZooKeeper is fixed"),
    ({}, {"zookeeper": {"managed": None, "connectString": "h:1"}}, "cannot move between its own ensemble and a managed one"),
    ({"zookeeper": {"managed": {"replicas": 3}}}, {"zookeeper": {"managed": {"replicas": 1}}}, "the number of ZooKeeper servers can only grow"),
    ({}, {"zookeeper": {"managed": {"size": "1Gi"}}}, "a volume cannot shrink"),
    ({}, {"zookeeper": {"managed": {"tls": "Enabled"}}}, "TLS of the managed ZooKeeper is fixed"),
    ({"zookeeper": {"managed": {"tls": "Enabled"}}}, {"zookeeper": {"managed": {"tls": None}}}, "TLS of the managed ZooKeeper is fixed"),
    ({"zookeeper": {"adoptKey": UID}}, {"zookeeper": {"adoptKey": None}}, "the key of an adopted cluster is fixed"),
    ({}, {"storage": {"size": "9Gi"}}, "a volume cannot shrink"),
    ({"storage": {"size": "1Ti"}}, {"storage": {"size": "999G"}}, "a volume cannot shrink"),
    ({}, {"replicas": 1}, "a cluster of two or more copies cannot go back to one"),
    ({"replicas": 2}, {"replicas": 1}, "a cluster of two or more copies cannot go back to one"),
    ({"replicas": 2}, {"replicas": None, "storage": {"groups": [{"name": "1"}]}}, "cannot go back to one"),
    ({}, {"storage": {"storageClassName": "fast"}}, "the storage class is fixed"),
    (_group(), _group(size="19Gi"), "a volume cannot shrink"),
    (_group(), _group(zone="y"), "the zone of a group is fixed"),
    (_group(), _group(zone=None), "the zone of a group is fixed"),
    (_group(), _group(id=5), "the id of a group is fixed"),
    (_group(), _group(storageClassName=None), "the storage class of a group is fixed"),
    (_group(), _group(nodes=[{**_OUT, "adminPort": 3}]), "the admin port of a node is fixed"),
    (_group(), _group(nodes=[{**_OUT, "connectString": "h:9"}]), "the connect string of a node is fixed"),
    (_group(), _group(nodes=[{"name": "0"}]), "a node cannot become external, nor cease to be"),
    (_group(), _group(nodes=None, count=1), "a node cannot become external, nor cease to be"),
    (_group(), _group(nodes=None), "a node cannot become external, nor cease to be"),
    (_group(nodes=None, count=2), _group(nodes=[{**_OUT, "name": "1"}]), "a node cannot become external, nor cease to be"),
    ({}, {"tls": {"mode": "Disabled"}}, "the mode of TLS is fixed"),
    ({"tls": {"mode": "Disabled"}}, {"tls": None}, "the mode of TLS is fixed"),
    ({"tls": {"mode": "Disabled"}}, {"tls": {"mode": None}}, "the mode of TLS is fixed"),
    ({"tls": {"mode": "Secret", "secrets": SECRETS}}, {"tls": {"mode": "SelfSigned", "secrets": None}}, "the mode of TLS is fixed"),
]  # fmt: skip
"""Before, the change, and what the API server says against it."""


def objects(made: WaltzCluster, inputs: RenderInputs = INPUTS) -> dict[tuple[str, str], Obj]:
    """What is rendered, by kind and name."""
    found = desired_objects(made, inputs)
    by_name = {(obj["kind"], obj["metadata"]["name"]): obj for obj in found}
    assert len(by_name) == len(found), "two objects of one name"
    return by_name


def of_kind(found: Mapping[tuple[str, str], Obj], *kinds: str) -> list[Obj]:
    """Those of these kinds."""
    return [obj for (kind, _), obj in found.items() if kind in kinds]


def pods(found: Mapping[tuple[str, str], Obj]) -> list[tuple[Obj, Obj]]:
    """(workload, pod template) of everything that makes pods."""
    return [(obj, obj["spec"]["template"]) for obj in of_kind(found, "StatefulSet", "Deployment", "Job")]


def live(found: Mapping[tuple[str, str], Obj]) -> dict[tuple[str, str], Obj]:
    """The same objects as they would be found again, as far as rendering looks at them."""
    return {key: copy.deepcopy(dict(obj)) for key, obj in found.items()}
