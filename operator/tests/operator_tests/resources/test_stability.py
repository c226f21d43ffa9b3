"""What never changes, what restarts pods and what does not."""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import Any

import pytest

from operator_tests.resources.clusters import (
    GROUPS,
    INPUTS,
    PLAIN,
    SECRETS,
    VARIANTS,
    Obj,
    Spec,
    cluster,
    live,
    merged,
    objects,
    of_kind,
    pods,
)
from waltz_operator.api.crd import cluster_definition
from waltz_operator.api.metadata import BASIS_HASH, TEMPLATE_HASH
from waltz_operator.api.parse import parse_cluster
from waltz_operator.resources import (
    RenderInputs,
    VolumeFacts,
    config,
    impossible_changes,
    server,
    storage,
    zookeeper,
)
from waltz_operator.tls.secrets import MaterialDigests

MIB = 1024 * 1024

CHANGES: dict[str, Spec] = {
    "image of storage": {"images": {"storage": "waltz-storage:2"}},
    "image of servers": {"images": {"server": "waltz-server:2"}},
    "image of ZooKeeper": {"images": {"zookeeper": "waltz-zookeeper:2"}},
    "pull policy": {"images": {"pullPolicy": "Always"}},
    "pull secret": {"images": {"pullSecrets": [{"name": "registry"}]}},
    "more copies": {"replicas": 5},
    "fewer copies": {"replicas": 2},
    "same groups by name": {"replicas": None, "storage": {"groups": [{"name": n} for n in "123"]}},
    "more nodes": {"replicas": None, "storage": {"groups": [{"name": n, "count": 2} for n in "123"]}},
    "another node": {"replicas": None, "storage": {"groups": [{"name": "1", "nodes": [{"name": "7"}]}, {"name": "2"}, {"name": "3"}]}},
    "larger volumes": {"storage": {"size": "20Gi"}},
    "resources of storage": {"storage": {"resources": {"requests": {"cpu": "1"}, "limits": {"memory": "3Gi"}}}},
    "resources of a group": {"replicas": None, "storage": {"groups": [{"name": "1", "resources": {"limits": {"memory": "3Gi"}}}, {"name": "2"}, {"name": "3"}]}},
    "spread": {"storage": {"spread": "Required"}},
    "pause allowed": {"storage": {"allowPause": True}},
    "key of storage": {"storage": {"config": {"storage.disk.threads": 2}}},
    "journal": {"storage": {"journal": {}}},
    "size of the journal": {"storage": {"journal": {"size": "256Mi"}}},
    "volume of the journal": {"storage": {"journal": {"volume": {"size": "1Gi"}}}},
    "journal off": {"storage": {"journal": {"mode": "Disabled"}}},
    "template of storage": {"storage": {"podTemplate": {"spec": {"priorityClassName": "high"}}}},
    "labels of storage": {"storage": {"podTemplate": {"metadata": {"labels": {"a": "b"}}}}},
    "more servers": {"servers": {"replicas": 3}},
    "resources of servers": {"servers": {"resources": {"limits": {"memory": "3Gi"}}}},
    "key of servers": {"servers": {"config": {"server.minFetchSize": 50}}},
    "template of servers": {"servers": {"podTemplate": {"metadata": {"annotations": {"a": "b"}}}}},
    "drain": {"servers": {"drainSeconds": 60}},
    "host port": {"servers": {"externalListener": {}}, "tls": {"extraNames": ["10.0.0.9"]}},
    "pod address": {"servers": {"externalListener": {"address": "PodIP", "domain": "d.example.com"}}},
    "session timeout": {"zookeeper": {"sessionTimeoutSeconds": 20}},
    "credentials": {"zookeeper": {"auth": {"secretName": "zk"}}},
    "resources of ZooKeeper": {"zookeeper": {"managed": {"resources": {"limits": {"memory": "1Gi"}}}}},
    "template of ZooKeeper": {"zookeeper": {"managed": {"podTemplate": {"spec": {"priorityClassName": "high"}}}}},
    "plaintext": {"tls": {"mode": "Disabled"}},
    "own certificates": {"tls": {"mode": "Secret", "secrets": SECRETS}},
    "cert-manager": {"tls": {"mode": "CertManager", "issuerRef": {"name": "ca"}}},
    "open to clients": {"tls": {"clientAuthentication": "None"}},
    "named clients": {"tls": {"allowedPeers": {"server": ["app"]}}},
    "named peers": {"tls": {"allowedPeers": {"storage": ["tool"], "admin": ["tool"]}}},
    "names": {"tls": {"extraNames": ["waltz.example.com"]}},
    "lifetime": {"tls": {"certificateLifetimeHours": 100}},
    "delete": {"reclaimPolicy": "Delete"},
    "no policies": {"networkPolicy": {"enabled": False}},
    "monitor": {"monitoring": {"monitor": "PodMonitor"}},
    "paused": {"paused": True},
}  # fmt: skip
"""Every change that the API server lets through, one by one."""

RESTARTS_NOTHING = frozenset(
    {
        "more copies", "fewer copies", "same groups by name", "more nodes", "another node", "larger volumes", "pause allowed", "more servers",
        "names", "lifetime", "delete", "no policies", "monitor", "paused",
    }
)  # fmt: skip


def fixed(obj: Obj) -> dict[str, Any]:
    """What Kubernetes never lets anybody change."""
    spec, kind = obj.get("spec", {}), obj["kind"]
    fields = {
        "StatefulSet": ("serviceName", "podManagementPolicy", "selector", "volumeClaimTemplates"),
        "Deployment": ("selector",),
        "PersistentVolumeClaim": ("accessModes", "storageClassName", "volumeName", "volumeMode"),
        "Service": ("clusterIP",),
    }
    return {field: spec.get(field) for field in fields.get(kind, ())}


@pytest.mark.parametrize("change", CHANGES)
def test_what_cannot_be_changed_never_is(change: str) -> None:
    before, after = objects(cluster()), objects(cluster(CHANGES[change]))
    for key in before.keys() & after.keys():
        assert fixed(before[key]) == fixed(after[key]), key


def hashes(found: dict[tuple[str, str], Obj]) -> dict[str, str]:
    """Hash of the pods of each workload."""
    return {
        f"{obj['kind']} {obj['metadata']['name']}": template["metadata"]["annotations"][TEMPLATE_HASH]
        for obj, template in pods(found)
    }


def contents(found: dict[tuple[str, str], Obj], *, hashed: bool = False) -> dict[tuple[str, str], Any]:
    """Templates and configuration, without their hashes."""
    result: dict[tuple[str, str], Any] = {}
    for obj, template in pods(found):
        plain = copy.deepcopy(template)
        if not hashed:
            del plain["metadata"]["annotations"][TEMPLATE_HASH]
        result[obj["kind"], obj["metadata"]["name"]] = plain
    for obj in of_kind(found, "ConfigMap"):
        result["ConfigMap", obj["metadata"]["name"]] = obj["data"]
    return result


@pytest.mark.parametrize("change", CHANGES)
def test_the_hash_changes_exactly_when_pods_have_to(change: str) -> None:
    """A change of the template or of the configuration under an old hash would be held back forever."""
    before, after = objects(cluster()), objects(cluster(CHANGES[change]))
    old, new = hashes(before), hashes(after)
    both = old.keys() & new.keys()
    if change in RESTARTS_NOTHING:
        assert {name: old[name] for name in both} == {name: new[name] for name in both}
    was, becomes = contents(before), contents(after)
    for kind, name in was.keys() & becomes.keys():
        if was[kind, name] == becomes[kind, name]:
            continue
        if kind == "ConfigMap":
            annotations = [found[kind, name]["metadata"]["annotations"] for found in (before, after)]
            assert annotations[0][TEMPLATE_HASH] != annotations[1][TEMPLATE_HASH], name
            users = [key for key in both if key.partition(" ")[2].startswith(name)]
            assert users
            assert all(old[key] != new[key] for key in users), name
        else:
            assert old[f"{kind} {name}"] != new[f"{kind} {name}"], name


@pytest.mark.parametrize("change", CHANGES)
def test_a_change_is_taken_up_although_the_old_objects_are_live(change: str) -> None:
    before = objects(cluster())
    inputs = replace(INPUTS, operator_image="x", live=live(before))
    assert contents(objects(cluster(CHANGES[change]), inputs), hashed=True) == contents(
        objects(cluster(CHANGES[change])), hashed=True
    )


@pytest.mark.parametrize("change", CHANGES)
def test_there_and_back_again(change: str) -> None:
    before = objects(cluster())
    there = objects(cluster(CHANGES[change]), replace(INPUTS, live=live(before)))
    back = objects(cluster(), replace(INPUTS, live=live(there)))
    assert back == before


def another_version(monkeypatch: pytest.MonkeyPatch) -> None:
    """An operator that renders everything a little differently."""
    monkeypatch.setattr(storage, "CLOSE_SECONDS", 77)
    monkeypatch.setattr(server, "servers_apart", lambda *_: {})
    monkeypatch.setattr(zookeeper, "MIN_HEAP_MB", 1000)
    render = config.to_yaml
    monkeypatch.setattr(config, "to_yaml", lambda keys: "# another version\n" + render(keys))


@pytest.mark.parametrize("variant", VARIANTS)
def test_another_version_of_the_operator_restarts_nothing(
    variant: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = cluster(VARIANTS[variant])
    before = objects(made)
    another_version(monkeypatch)
    fresh = objects(made)
    assert contents(fresh) != contents(before), "or this test could not fail"
    assert hashes(fresh) == hashes(before)
    inputs = replace(INPUTS, operator_image="waltz-operator:2", live=live(before))
    after = objects(made, inputs)
    assert after == before
    # and the next change of the specification takes everything from the new version
    changed = merged(VARIANTS[variant], {"images": {"server": "waltz-server:9"}})
    rolled = objects(cluster(changed), inputs)["Deployment", "ledger-server"]["spec"]["template"]
    assert rolled == objects(cluster(changed))["Deployment", "ledger-server"]["spec"]["template"]


def test_configuration_that_somebody_changed_is_put_right(monkeypatch: pytest.MonkeyPatch) -> None:
    before = objects(cluster())
    meddled = live(before)
    meddled["ConfigMap", "ledger-storage"]["data"]["waltz-storage.yml"] += "storage.port: 1\n"
    inputs = replace(INPUTS, live=meddled)
    assert objects(cluster(), inputs) == before


def test_unreadable_annotations_do_no_harm() -> None:
    before = objects(cluster())
    for text in ("", "{", "[]", "{}", "null"):
        meddled = live(before)
        meddled["Deployment", "ledger-server"]["metadata"]["annotations"]["waltz.dev/template"] = text
        inputs = replace(INPUTS, live=meddled)
        assert objects(cluster(), inputs) == before


def certificates(server: str, storage: str, *, signed_by: str = "a1") -> dict[str, MaterialDigests]:
    materials = {"server": server, "storage": storage, "console": server}
    return {role: MaterialDigests(material, signed_by) for role, material in materials.items()}


@pytest.mark.parametrize("variant", VARIANTS)
def test_renewed_certificates_restart_nothing(variant: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Processes take them over while they run; also where an earlier operator has made the objects, for which
    every certificate was a reason."""
    made = cluster(VARIANTS[variant])
    before = objects(made)
    earlier = live(before)
    for obj in earlier.values():
        obj["metadata"].get("annotations", {}).pop(BASIS_HASH, None)
    assert objects(made, replace(INPUTS, live=earlier)) == before, (
        "an upgrade of the operator restarts nothing"
    )
    renewed = replace(INPUTS, tls_digests=certificates("s2", "t2"))
    assert objects(made, replace(renewed, live=live(before))) == before
    another_version(monkeypatch)
    assert objects(made, replace(renewed, live=live(before))) == before
    authority = replace(INPUTS, tls_digests=certificates("s2", "t2", signed_by="a2"), live=live(before))
    after = hashes(objects(made, authority))
    restarted = {name for name, old in hashes(before).items() if after[name] != old}
    assert restarted == {name for name in after if "zookeeper" not in name}


def test_templates_have_the_names_that_earlier_operators_gave_them() -> None:
    """So an operator that is rolled back restarts nothing."""
    assert hashes(objects(cluster())) == {
        "StatefulSet ledger-zookeeper": "49f1e14d3ca1d3be",
        "StatefulSet ledger-storage-1-0": "8294e67cc1ed61c6",
        "StatefulSet ledger-storage-2-0": "8294e67cc1ed61c6",
        "StatefulSet ledger-storage-3-0": "8294e67cc1ed61c6",
        "Deployment ledger-server": "6ba2add62bc8a844",
    }


def test_a_new_authority_and_a_persons_word_restart_pods() -> None:
    plain = hashes(objects(cluster()))

    def restarted(inputs: RenderInputs = INPUTS, *told: str) -> set[str]:
        notes = {f"waltz.dev/{name}": "now" for name in told}
        new = hashes(objects(cluster(annotations=notes), inputs))
        return {name.partition("-")[2].partition("-")[0] for name in plain if plain[name] != new[name]}

    assert restarted() == set()
    other = {role: MaterialDigests("x", "a2") for role in ("server", "storage")}
    for role, digests in other.items():
        assert restarted(RenderInputs(tls_digests={**INPUTS.tls_digests, role: digests})) == {role}
    assert restarted(replace(INPUTS, auth_hash="x")) == {"server", "storage"}
    assert restarted(INPUTS, "restart-storage") == {"storage"}
    assert restarted(INPUTS, "restart-server") == {"server"}
    assert restarted(INPUTS, "restart-zookeeper") == {"zookeeper"}


def test_a_change_in_one_group_restarts_only_that_group() -> None:
    groups = copy.deepcopy(GROUPS)
    before = hashes(objects(cluster({"replicas": None, "storage": {"groups": groups}})))
    groups[2]["resources"] = {"limits": {"memory": "9Gi"}}
    after = hashes(objects(cluster({"replicas": None, "storage": {"groups": groups}})))
    assert {name for name in before if before[name] != after[name]} == {"StatefulSet ledger-storage-3-0"}


def defaulted(value: Any, schema: dict[str, Any]) -> Any:
    """The value with the defaults of the schema in it, as the API server puts them in."""
    if schema.get("type") == "array" and isinstance(value, list):
        return [defaulted(entry, schema["items"]) for entry in value]
    if not isinstance(value, dict) or "properties" not in schema:
        return value
    result = dict(value)
    for name, inner in schema["properties"].items():
        if name not in result and "default" in inner:
            result[name] = copy.deepcopy(inner["default"])
        if name in result:
            result[name] = defaulted(result[name], inner)
    return result


@pytest.mark.parametrize("variant", VARIANTS)
def test_what_the_api_server_fills_in_changes_nothing(variant: str) -> None:
    schema = cluster_definition()["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    spec = merged(PLAIN, VARIANTS[variant])
    body = {"apiVersion": "waltz.dev/v1alpha1", "kind": "WaltzCluster", "metadata": {"name": "ledger"}}
    bare = parse_cluster({**body, "spec": spec})
    filled = parse_cluster({**body, "spec": defaulted(spec, schema["properties"]["spec"])})
    assert filled.spec == bare.spec


def test_a_volume_never_shrinks_nor_changes_its_class() -> None:
    made = cluster({"storage": {"size": "5Gi", "storageClassName": "fast"}})
    facts = {
        "data-ledger-storage-1-0-0": VolumeFacts(10 * 1024 * MIB, "slow"),
        "data-ledger-storage-2-0-0": VolumeFacts(1024 * MIB, "fast"),
    }
    inputs = RenderInputs(volumes=facts)
    found = objects(made, inputs)

    def claim(node: str) -> Obj:
        spec: Obj = found["PersistentVolumeClaim", f"data-ledger-storage-{node}-0"]["spec"]
        return spec

    assert claim("1-0")["resources"]["requests"]["storage"] == str(10 * 1024 * MIB)
    assert claim("1-0")["storageClassName"] == "slow"
    assert claim("2-0")["resources"]["requests"]["storage"] == "5Gi"
    assert claim("3-0")["storageClassName"] == "fast"
    assert [str(problem) for problem in impossible_changes(made, inputs)] == [
        "spec.storage.size: volume data-ledger-storage-1-0-0 has 10737418240 bytes and cannot shrink to 5Gi",
        (
            "spec.storage.storageClassName: volume data-ledger-storage-1-0-0 has the class slow, which cannot become fast: "
            "drain the node and make another one"
        ),
    ]
    assert impossible_changes(cluster(), RenderInputs()) == []


def test_a_volume_of_the_journal_has_the_rules_of_the_data() -> None:
    """It keeps its class and never shrinks; what cannot be done is said of its own part."""
    volume = {"size": "1Gi", "storageClassName": "fast"}
    made = cluster({"storage": {"journal": {"volume": volume}}})
    name = "journal-ledger-storage-1-0-0"
    inputs = replace(INPUTS, volumes={name: VolumeFacts(2 * 1024 * MIB, "slow")})
    claim = objects(made, inputs)["PersistentVolumeClaim", name]
    assert claim["spec"]["resources"]["requests"]["storage"] == str(2 * 1024 * MIB)
    assert claim["spec"]["storageClassName"] == "slow"
    found = [one.path for one in impossible_changes(made, inputs)]
    assert found == ["spec.storage.journal.volume.size", "spec.storage.journal.volume.storageClassName"]
    fresh = objects(made)
    mine = fresh["PersistentVolumeClaim", "journal-ledger-storage-3-0-0"]
    data = fresh["PersistentVolumeClaim", "data-ledger-storage-3-0-0"]
    assert mine["metadata"]["labels"] == data["metadata"]["labels"]
    assert "ownerReferences" not in mine["metadata"]
