"""What is refused, with the field and what to do about it."""

from __future__ import annotations

from typing import Any

import pytest

from operator_tests.resources.clusters import PLAIN, Spec, merged
from waltz_operator.api.errors import ResourceError
from waltz_operator.api.parse import parse_cluster, parse_migration, status_body, stored_cluster
from waltz_operator.api.validate import problems, validate_migration


def found(changes: Spec, name: str = "ledger") -> list[str]:
    body = {
        "apiVersion": "waltz.dev/v1alpha1",
        "kind": "WaltzCluster",
        "metadata": {"name": name},
        "spec": merged(PLAIN, changes),
    }
    return [str(problem) for problem in problems(parse_cluster(body))]


def groups(*entries: Spec) -> Spec:
    return {"replicas": None, "storage": {"groups": list(entries)}}


EXTERNAL = {"name": "0", "external": True, "connectString": "h:1", "adminPort": 2}
MISTAKES: list[tuple[Spec, list[str]]] = [
    ({}, []),
    ({"zookeeper": {"connectString": "h:1"}}, ["spec.zookeeper: give connectString or managed, exactly one of them"]),
    ({"images": {"zookeeper": None}}, ["spec.images.zookeeper: is needed where spec.version is not given"]),
    ({"zookeeper": {"root": "/a/../b"}}, ["spec.zookeeper.root: .. cannot be part of a path in ZooKeeper"]),
    ({"zookeeper": {"managed": None, "connectString": "h:99999"}}, ["spec.zookeeper.connectString: h:99999 has no possible port"]),
    ({"storage": {"groups": [{"name": "1"}]}}, ["spec.replicas: give replicas or storage.groups, not both"]),
    (groups({"name": "1"}, {"name": "1"}), ["spec.storage.groups: there are two groups 1"]),
    (groups({"name": "1", "id": 4}, {"name": "2", "id": 4}), ["spec.storage.groups: two groups have the id 4"]),
    (groups({"name": "1", "count": 2, "nodes": [{"name": "0"}]}), ["spec.storage.groups[1].count: give count or nodes, not both"]),
    (groups({"name": "1", "nodes": [{"name": "0"}, {"name": "0"}]}), ["spec.storage.groups[1].nodes: there are two nodes 0"]),
    (groups({"name": "1", "nodes": [{"name": "0", "external": True}]}), ["spec.storage.groups[1].nodes[0]: an external node needs connectString and adminPort"]),
    (groups({"name": "1", "nodes": [{"name": "0", "adminPort": 5}]}), ["spec.storage.groups[1].nodes[0]: connectString and adminPort belong to a node with external: true"]),
    (groups({"name": "1", "nodes": [{**EXTERNAL, "adminPort": 1}]}), ["spec.storage.groups[1].nodes[0].adminPort: must differ from the storage port"]),
    (groups({"name": "1", "nodes": [{**EXTERNAL, "connectString": "h:0"}]}), ["spec.storage.groups[1].nodes[0].connectString: h:0 has no possible port"]),
    (groups({"name": "1", "nodes": [EXTERNAL]}, {"name": "2", "nodes": [EXTERNAL]}), ["spec.storage.groups: two nodes have the connect string h:1"]),
    ({"tls": {"mode": "Secret"}}, ["spec.tls.secrets: goes with mode Secret, which needs it"]),
    ({"tls": {"issuerRef": {"name": "i"}}}, ["spec.tls.issuerRef: goes with mode CertManager, which needs it"]),
    ({"tls": {"mode": "Disabled", "allowedPeers": {"admin": ["a"]}}}, ["spec.tls.allowedPeers.admin: needs TLS: without it a peer has no name"]),
    ({"tls": {"allowedPeers": {"storage": [" "]}}}, ["spec.tls.allowedPeers.storage: a name is empty"]),
    ({"tls": {"clientAuthentication": "None", "allowedPeers": {"server": ["a"]}}}, ["spec.tls.allowedPeers.server: needs clientAuthentication: Required"]),
    ({"tls": {"authorityLifetimeHours": 2160}}, ["spec.tls.authorityLifetimeHours: must be longer than certificateLifetimeHours"]),
    ({"storage": {"config": {"storage.prot": 1}}}, ["spec.storage.config[storage.prot]: is not a key of this role; did you mean storage.port?"]),
    ({"servers": {"config": {"server.port": 1}}}, ["spec.servers.config[server.port]: is set by the operator: it follows from other fields of the specification"]),
    ({"servers": {"podTemplate": {"spec": {"hostname": "h"}}}}, ["spec.servers.podTemplate.spec.hostname: is the operator's own"]),
    ({"servers": {"podTemplate": {"spec": {"terminationGracePeriodSeconds": 1}}}}, ["spec.servers.podTemplate.spec.terminationGracePeriodSeconds: is the operator's own: use drainSeconds"]),
    ({"storage": {"podTemplate": {"spec": {"volumes": [{"name": "data"}]}}}}, ["spec.storage.podTemplate.spec.volumes: data: the operator's own"]),
    ({"storage": {"podTemplate": {"spec": {"containers": [{"image": "i"}]}}}}, ["spec.storage.podTemplate.spec.containers: every entry needs a name"]),
    ({"storage": {"podTemplate": {"spec": {"tolerations": "all"}}}}, ["spec.storage.podTemplate.spec.tolerations: must be a list of objects"]),
    ({"zookeeper": {"managed": {"podTemplate": {"spec": {"subdomain": "s"}}}}}, ["spec.zookeeper.managed.podTemplate.spec.subdomain: is the operator's own"]),
]  # fmt: skip


@pytest.mark.parametrize(("changes", "wanted"), MISTAKES)
def test_each_mistake_is_one_line(changes: Spec, wanted: list[str]) -> None:
    assert found(changes) == wanted


@pytest.mark.parametrize("name", ["1st", "a.b", "x" * 31, "Upper", "end-"])
def test_names_of_which_no_service_can_be_made(name: str) -> None:
    assert found({}, name)[0].startswith("metadata.name: ")


UNREADABLE: list[tuple[dict[str, Any], str]] = [
    ({"kind": "Pod"}, "kind: must be WaltzCluster, not 'Pod'"),
    (
        {"apiVersion": "waltz.dev/v1"},
        "apiVersion: must be waltz.dev/v1alpha1 or waltz.dev/v1beta1, not 'waltz.dev/v1'",
    ),
    ({"spec": []}, "spec: must be an object"),
    ({"spec": {}}, "spec.partitions: is required"),
    ({"spec": merged(PLAIN, {"partitons": 1})}, "spec.partitons: is not a field of this version"),
    (
        {"spec": merged(PLAIN, {"partitions": 0})},
        "spec.partitions: Input should be greater than or equal to 1",
    ),
    ({"metadata": {}}, "metadata.name: is required"),
]


@pytest.mark.parametrize(("changes", "text"), UNREADABLE)
def test_what_cannot_be_read_names_the_field(changes: dict[str, Any], text: str) -> None:
    body = {
        "apiVersion": "waltz.dev/v1alpha1",
        "kind": "WaltzCluster",
        "metadata": {"name": "x"},
        "spec": PLAIN,
    }
    with pytest.raises(ResourceError) as caught:
        parse_cluster({**body, **changes})
    assert str(caught.value) == text
    assert caught.value.user_error


def migration(**spec: Any) -> list[str]:
    body = {
        "apiVersion": "waltz.dev/v1alpha1",
        "kind": "WaltzMigration",
        "metadata": {"name": "m"},
        "spec": {"cluster": "ledger", **spec},
    }
    return [str(problem) for problem in validate_migration(parse_migration(body).spec)]


def test_migrations_say_one_thing() -> None:
    one = "spec: give exactly one of move, drain, replace, rebalance"
    assert migration() == [one]
    assert migration(drain={"node": "1-0"}, replace={"node": "1-0"}) == [one]
    assert migration(drain={"node": "1-0"}) == []
    assert migration(move={"from": "1-0", "to": "1-0"}) == ["spec.move.to: is the node that has them"]
    assert migration(move={"from": "1-0", "to": "2-0"})[0].startswith("spec.move.to: must be in the group")
    assert migration(move={"from": "1-0", "to": "1-1", "partitions": [3, 3]}) == [
        "spec.move.partitions: 3 is there twice"
    ]


def test_a_status_survives_writing_and_reading() -> None:
    body = {
        "apiVersion": "waltz.dev/v1alpha1",
        "kind": "WaltzCluster",
        "metadata": {"name": "x"},
        "spec": PLAIN,
        "status": {
            "observedGeneration": 3,
            "clusterKey": "k",
            "conditions": [
                {
                    "type": "Available",
                    "status": "True",
                    "reason": "AsWanted",
                    "lastTransitionTime": "2026-01-01T00:00:00Z",
                }
            ],
            "nodes": [{"name": "1-0", "connectString": "h:1"}],
            "operation": {"kind": "Create", "step": "copy"},
            "ofALaterVersion": {"x": 1},
        },
    }
    status = parse_cluster(body).status
    assert status.cluster_key == "k"
    available = status.condition("Available")
    assert available is not None
    assert available.reason == "AsWanted"
    again = parse_cluster({**body, "status": status_body(status)}).status
    assert again == status


def test_a_status_of_another_version_is_read_but_for_what_guards_data() -> None:
    body = {
        "apiVersion": "waltz.dev/v1alpha1",
        "kind": "WaltzCluster",
        "metadata": {"name": "x"},
        "spec": PLAIN,
    }
    node = {"name": "1-0", "connectString": "a:1", "phase": "Flying"}
    status = {"phase": "Ready", "nodes": [node], "clusterKey": "k", "news": 1}
    found = stored_cluster({**body, "status": status}).status
    assert (found.phase, found.nodes, found.cluster_key) == ("Ready", (), "k")
    with pytest.raises(ResourceError, match=r"status\.operation"):
        stored_cluster({**body, "status": {"operation": {"kind": 7}}})
