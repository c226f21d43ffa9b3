"""The manifests: examples that parse and are valid, rights that suffice and are no more, kustomizations that
are complete."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from operator_tests import yaml_text
from operator_tests.resources.clusters import VARIANTS, cluster, objects
from waltz_operator.api.crd import DEFINITIONS
from waltz_operator.api.parse import parse_cluster, parse_migration
from waltz_operator.api.topology import storage_nodes
from waltz_operator.api.validate import problems
from waltz_operator.kube.kinds import kind_of

ROOT = Path(__file__).resolve().parents[4]
MANIFESTS = ROOT / "manifests"
EXAMPLES = sorted((MANIFESTS / "examples").glob("*.yaml"))
Document = dict[str, Any]


def documents(path: Path) -> list[Document]:
    return yaml_text.documents(path.read_text())


def with_namespace(document: Document) -> Document:
    return {**document, "metadata": {"namespace": "demo", **document["metadata"]}}


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.name)
def test_every_example_can_be_worked_on(path: Path) -> None:
    assert path.read_text().startswith("# "), "an example says what it is for"
    kinds = set()
    for document in documents(path):
        kinds.add(document["kind"])
        if document["kind"] == "WaltzCluster":
            made = parse_cluster(with_namespace(document))
            assert problems(made) == []
            assert objects(made)
        elif document["kind"] == "WaltzMigration":
            parse_migration(with_namespace(document))
    if path.name == "client-pod.yaml":
        assert kinds == {"ConfigMap", "Pod"}
        return
    if path.name == "autoscale-servers.yaml":
        assert kinds == {"HorizontalPodAutoscaler"}
        return
    assert kinds & {"WaltzCluster", "WaltzMigration"}
    assert kinds <= {"WaltzCluster", "WaltzMigration", "Secret"}


def test_examples_speak_of_the_same_cluster() -> None:
    """Migrations name nodes and groups that one of the examples of their cluster has."""
    nodes: dict[str, set[str]] = {}
    migrations: list[Document] = []
    names: dict[str, set[int]] = {}
    zookeepers: dict[str, set[str]] = {}
    for path in EXAMPLES:
        for document in documents(path):
            if document["kind"] == "WaltzCluster":
                made = parse_cluster(with_namespace(document))
                nodes.setdefault(made.metadata.name, set()).update(
                    node.reference for node in storage_nodes(made)
                )
                names.setdefault(made.metadata.name, set()).add(made.spec.partitions)
                zookeepers.setdefault(made.metadata.name, set()).add(made.spec.zookeeper.model_dump_json())
            elif document["kind"] == "WaltzMigration":
                migrations.append(document)
    assert all(len(partitions) == 1 for partitions in names.values()), "partitions never change"
    assert all(len(one) == 1 for one in zookeepers.values()), "TLS of the managed ZooKeeper never changes"
    assert len({migration["metadata"]["name"] for migration in migrations}) == len(migrations)
    for migration in migrations:
        spec = parse_migration(with_namespace(migration)).spec
        known = nodes[spec.cluster]
        named = [part.node for part in (spec.drain, spec.replace) if part is not None]
        named += [spec.move.source, spec.move.target] if spec.move is not None else []
        assert set(named) <= known
        if spec.rebalance is not None:
            assert spec.rebalance.group in {node.partition("-")[0] for node in known}
        if spec.move is not None:
            assert max(spec.move.partitions or [0]) < max(names[spec.cluster])


def test_there_is_an_example_of_every_feature() -> None:
    clusters = [
        parse_cluster(with_namespace(document)).spec
        for path in EXAMPLES
        for document in documents(path)
        if document["kind"] == "WaltzCluster"
    ]
    migrations = [
        parse_migration(with_namespace(document)).spec
        for path in EXAMPLES
        for document in documents(path)
        if document["kind"] == "WaltzMigration"
    ]
    assert {spec.tls.mode.value for spec in clusters} == {"SelfSigned", "CertManager", "Secret", "Disabled"}
    assert {spec.reclaim_policy.value for spec in clusters} == {"Retain", "Delete"}
    assert {(spec.zookeeper.managed or spec.zookeeper).__class__.__name__ for spec in clusters} == {
        "ZooKeeper",
        "ManagedZooKeeper",
    }
    assert {spec.zookeeper.managed.replicas for spec in clusters if spec.zookeeper.managed} == {None, 3}
    assert any(spec.zookeeper.auth for spec in clusters)
    assert any(spec.zookeeper.adopt_key for spec in clusters)
    assert any(spec.servers.external_listener for spec in clusters)
    assert any(group.zone for spec in clusters for group in spec.storage.groups or ())
    for field in ("move", "drain", "replace", "rebalance", "dry_run"):
        assert any(getattr(spec, field) for spec in migrations), field
    assert any(not spec.approve for spec in migrations)


def test_the_example_of_an_adoption_starts_nothing_and_encrypts() -> None:
    """Its conditions are read first, and 0.13.2 has no plaintext."""
    (document,) = documents(MANIFESTS / "examples/adopt.yaml")
    spec = parse_cluster(with_namespace(document)).spec
    assert spec.zookeeper.adopt_key
    assert spec.paused
    assert spec.tls.mode.value == "Secret"


def test_examples_with_certificates_of_ones_own_let_servers_reach_each_other() -> None:
    """Whoever connects to storage ports is a server or the operator. Both connect to servers too, and with
    mode Secret nobody adds their names: servers that refuse each other neither notice a crash nor hand locks
    over."""
    seen = 0
    for path in EXAMPLES:
        for document in documents(path):
            if document["kind"] != "WaltzCluster":
                continue
            tls = parse_cluster(with_namespace(document)).spec.tls
            if tls.mode.value == "Secret" and tls.allowed_peers.server is not None:
                seen += 1
                assert set(tls.allowed_peers.storage or ()) <= set(tls.allowed_peers.server), path.name
    assert seen


# -- rights --------------------------------------------------------------------------------------------------


def rules(path: Path, kind: str, name: str) -> list[Document]:
    found = [d for d in documents(path) if d["kind"] == kind and d["metadata"]["name"] == name]
    assert len(found) == 1
    result: list[Document] = found[0]["rules"]
    return result


CLUSTER_WIDE = rules(MANIFESTS / "base/cluster-role.yaml", "ClusterRole", "waltz-operator")


def rights(given: list[Document]) -> dict[tuple[str, str], set[str]]:
    found: dict[tuple[str, str], set[str]] = {}
    for rule in given:
        for group in rule["apiGroups"]:
            for resource in rule["resources"]:
                found.setdefault((group, resource), set()).update(rule["verbs"])
    return found


def test_both_modes_have_the_same_rights() -> None:
    assert rules(MANIFESTS / "overlays/namespaced/role.yaml", "Role", "waltz-operator") == CLUSTER_WIDE


def test_the_rights_suffice_for_everything_that_is_rendered() -> None:
    given = rights(CLUSTER_WIDE)
    seen = set()
    for changes in VARIANTS.values():
        for obj in objects(cluster(changes)).values():
            kind = kind_of(obj["apiVersion"], obj["kind"])
            seen.add(kind.plural)
            group = obj["apiVersion"].rpartition("/")[0]
            assert {"get", "list", "create", "patch", "delete"} <= given[group, kind.plural]
    assert {"podmonitors", "servicemonitors", "certificates", "networkpolicies"} <= seen


def test_the_rights_are_few() -> None:
    """Nothing with a star, no Secret is deleted, no right on what is never made, nothing that gives
    rights."""
    given = rights(CLUSTER_WIDE)
    for (group, resource), verbs in given.items():
        assert "*" not in (group, resource)
        assert not verbs & {"*", "escalate", "bind", "impersonate", "deletecollection"}
    assert given["", "secrets"] == {"get", "list", "watch", "create", "patch"}
    assert given["", "pods"] == {"list", "watch", "delete"}
    assert given["batch", "jobs"] == {"get", "list", "watch", "create", "delete"}
    assert given["events.k8s.io", "events"] == {"create"}
    assert given["waltz.dev", "waltzclusters/status"] == {"update", "patch"}
    assert ("waltz.dev", "waltzmigrations/finalizers") not in given, "it is nobody's owner"
    made = {
        (obj["apiVersion"].rpartition("/")[0], kind_of(obj["apiVersion"], obj["kind"]).plural)
        for changes in VARIANTS.values()
        for obj in objects(cluster(changes)).values()
    }
    others = {key for key in given if key not in made and key[0] != "waltz.dev"}
    assert others == {
        ("", "secrets"),
        ("", "pods"),
        ("batch", "jobs"),
        ("coordination.k8s.io", "leases"),
        ("events.k8s.io", "events"),
    }
    assert given["coordination.k8s.io", "leases"] == {"get"}
    for verbs in (given["waltz.dev", "waltzclusters"], given["waltz.dev", "waltzmigrations"]):
        assert verbs == {"get", "list", "watch", "patch"}, "it never makes nor deletes what people wrote"


# -- kustomizations ------------------------------------------------------------------------------------------


KUSTOMIZATIONS = [*sorted(MANIFESTS.rglob("kustomization.yaml")), ROOT / "crds/kustomization.yaml"]


def built(folder: Path) -> list[Document]:
    """All documents that the kustomization names, before patches."""
    kustomization = documents(folder / "kustomization.yaml")[0]
    found = []
    for entry in kustomization.get("resources", ()):
        path = (folder / entry).resolve()
        found += built(path) if path.is_dir() else documents(path)
    return found


@pytest.mark.parametrize("path", KUSTOMIZATIONS, ids=lambda path: str(path.relative_to(ROOT)))
def test_kustomizations_name_every_file_beside_them(path: Path) -> None:
    kustomization = documents(path)[0]
    named = {entry for entry in kustomization.get("resources", ()) if "/" not in entry}
    named |= {patch["path"] for patch in kustomization.get("patches", ())}
    beside = {found.name for found in path.parent.glob("*.yaml")} - {"kustomization.yaml"}
    of_prometheus = {"alerts.yaml", "alerts-operator.yaml"} if path.parent.name == "monitoring" else set()
    assert named == beside - of_prometheus
    found = [(d["kind"], d["metadata"].get("namespace"), d["metadata"]["name"]) for d in built(path.parent)]
    assert len(set(found)) == len(found)


@pytest.mark.parametrize("folder", ["base", "overlays/namespaced"])
def test_an_installation_is_complete(folder: str) -> None:
    found = {(d["kind"], d["metadata"]["name"]): d for d in built(MANIFESTS / folder)}
    for definition in DEFINITIONS.values():
        assert ("CustomResourceDefinition", definition()["metadata"]["name"]) in found
    deployment = found["Deployment", "waltz-operator"]
    namespace = deployment["metadata"]["namespace"]
    assert ("Namespace", namespace) in found
    assert deployment["spec"]["strategy"] == {"type": "Recreate"}
    account = deployment["spec"]["template"]["spec"]["serviceAccountName"]
    assert ("ServiceAccount", account) in found
    for (kind, _), document in found.items():
        if kind.endswith("Binding"):
            assert (document["roleRef"]["kind"], document["roleRef"]["name"]) in found
            assert document["subjects"] == [
                {"kind": "ServiceAccount", "name": account, "namespace": namespace}
            ]
    selector = deployment["spec"]["selector"]["matchLabels"].items()
    assert selector <= deployment["spec"]["template"]["metadata"]["labels"].items()
    assert selector <= found["Service", "waltz-operator"]["spec"]["selector"].items()
    for kind in ("ClusterRole", "ClusterRoleBinding"):
        operators_own = {name for k, name in found if k == kind and name.startswith("waltz-operator")}
        assert bool(operators_own) == (folder == "base"), "in one namespace it needs no rights in the others"


def test_the_operator_is_restricted_too() -> None:
    deployment = next(d for d in documents(MANIFESTS / "common/operator.yaml") if d["kind"] == "Deployment")
    spec = deployment["spec"]["template"]["spec"]
    assert spec["securityContext"]["runAsNonRoot"] is True
    assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    for one in spec["containers"]:
        assert one["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        }
