"""Rules that hold for everything that is rendered, for every feature."""

from __future__ import annotations

import inspect
import json
import re
from dataclasses import replace
from typing import Any

import pytest
import yaml

from operator_tests.resources.clusters import (
    INPUTS,
    UID,
    VARIANTS,
    Obj,
    cluster,
    objects,
    of_kind,
    pods,
)
from waltz_operator.api.metadata import CLUSTER_UID
from waltz_operator.api.security import TlsMode
from waltz_operator.api.topology import (
    console_secret,
    storage_nodes,
    tls_roles,
    zookeeper_pods,
    zookeeper_tls,
)
from waltz_operator.kube import kinds
from waltz_operator.resources import (
    VolumeFacts,
    copy_job,
    desired_objects,
    impossible_changes,
    optional_kinds,
)
from waltz_operator.resources.common import USER_ID
from waltz_operator.resources.zookeeper import SERVES
from waltz_runtime.process import run_service

NAME = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?\Z")
every_variant = pytest.mark.parametrize("variant", VARIANTS)


def rendered(variant: str) -> dict[tuple[str, str], Obj]:
    made = cluster(VARIANTS[variant])
    found = objects(made)
    job = copy_job(made, INPUTS, migration="move", partition=3, arguments=["copy-partition"])
    return {**found, ("Job", job["metadata"]["name"]): job}


def matches(selector: dict[str, str], labels: dict[str, str]) -> bool:
    return selector.items() <= labels.items()


@every_variant
def test_every_object_has_a_name_a_place_labels_and_an_owner(variant: str) -> None:
    for (kind, name), obj in rendered(variant).items():
        metadata = obj["metadata"]
        assert metadata["namespace"] == "demo"
        assert NAME.match(name), name
        assert len(name) <= 63, name
        labels = metadata["labels"]
        assert labels["app.kubernetes.io/name"] == "waltz"
        assert labels["app.kubernetes.io/instance"] == "ledger"
        assert labels["app.kubernetes.io/managed-by"] == "waltz-operator"
        assert labels["app.kubernetes.io/component"]
        assert all(len(value) <= 63 for value in labels.values())
        owners = metadata.get("ownerReferences", [])
        if kind == "PersistentVolumeClaim":
            assert owners == [], "garbage collection asks nobody before it deletes"
            assert metadata["annotations"][CLUSTER_UID] == UID
        else:
            assert [owner["uid"] for owner in owners] == [UID]
            assert owners[0]["controller"] is True
        assert json.loads(json.dumps(obj)) == obj


@every_variant
def test_selectors_find_their_own_pods_and_no_others(variant: str) -> None:
    found = rendered(variant)
    templates = pods(found)
    for workload, template in templates:
        labels = template["metadata"]["labels"]
        if workload["kind"] == "Job":
            continue
        selector = workload["spec"]["selector"]["matchLabels"]
        assert matches(selector, labels)
        others = [
            other
            for other, t in templates
            if other is not workload and matches(selector, t["metadata"]["labels"])
        ]
        assert others == [], f"{workload['metadata']['name']} would take pods of {others}"
    for obj in of_kind(found, "Service", "PodDisruptionBudget", "NetworkPolicy"):
        spec = obj["spec"]
        selector = spec.get("selector") or spec["podSelector"]
        selector = selector.get("matchLabels", selector)
        component = obj["metadata"]["labels"]["app.kubernetes.io/component"]
        seen = {
            template["metadata"]["labels"]["app.kubernetes.io/component"]
            for _, template in templates
            if matches(selector, template["metadata"]["labels"])
        }
        assert seen <= {component}, obj["metadata"]["name"]
        if not (variant == "adopted" and component == "storage"):
            assert seen == {component}, obj["metadata"]["name"]


@every_variant
def test_pods_are_restricted(variant: str) -> None:
    """What Kubernetes calls the restricted profile, and more: nothing is written but to volumes, no token, no
    service variables."""
    for _, template in pods(rendered(variant)):
        spec = template["spec"]
        security = spec["securityContext"]
        assert security["runAsNonRoot"] is True
        assert {security[field] for field in ("runAsUser", "runAsGroup", "fsGroup")} == {USER_ID}
        assert security["seccompProfile"] == {"type": "RuntimeDefault"}
        assert spec["automountServiceAccountToken"] is False
        assert spec["enableServiceLinks"] is False
        for field in ("hostNetwork", "hostPID", "hostIPC"):
            assert field not in spec
        for one in spec["containers"]:
            assert one["securityContext"] == {
                "allowPrivilegeEscalation": False,
                "readOnlyRootFilesystem": True,
                "capabilities": {"drop": ["ALL"]},
            }
            assert one["resources"]["limits"]["memory"]
            assert one["image"]


@every_variant
def test_what_pods_refer_to_exists(variant: str) -> None:
    made, found = cluster(VARIANTS[variant]), rendered(variant)
    secrets = {role.secret for role in tls_roles(made)}
    if made.spec.zookeeper.auth is not None:
        secrets.add(made.spec.zookeeper.auth.secret_name)
    if made.spec.console.enabled:
        secrets.add(console_secret(made))
    for workload, template in pods(found):
        spec = template["spec"]
        volumes = {volume["name"]: volume for volume in spec["volumes"]}
        claimed = {claim["metadata"]["name"] for claim in workload["spec"].get("volumeClaimTemplates", ())}
        for volume in volumes.values():
            if "configMap" in volume:
                data = found["ConfigMap", volume["configMap"]["name"]]["data"]
                assert any(one.rpartition("/")[2] in data for one in spec["containers"][0]["args"])
            elif "secret" in volume:
                assert volume["secret"]["secretName"] in secrets
            elif "persistentVolumeClaim" in volume:
                assert ("PersistentVolumeClaim", volume["persistentVolumeClaim"]["claimName"]) in found
            else:
                assert volume["emptyDir"]["sizeLimit"]
        main = spec["containers"][0]
        mounted = {mount["name"] for mount in main["volumeMounts"]}
        assert mounted == set(volumes) | claimed
        assert len({mount["mountPath"] for mount in main["volumeMounts"]}) == len(mounted)
        ports = {port["name"] for port in main.get("ports", ())}
        for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
            if probe in main and "exec" not in main[probe]:
                target = main[probe].get("httpGet") or main[probe]["tcpSocket"]
                assert target["port"] in ports
    for service in of_kind(found, "Service"):
        component = service["metadata"]["labels"]["app.kubernetes.io/component"]
        for _, template in pods(found):
            if template["metadata"]["labels"]["app.kubernetes.io/component"] == component:
                names = {
                    port["name"]: port["containerPort"] for port in template["spec"]["containers"][0]["ports"]
                }
                for port in service["spec"]["ports"]:
                    assert names[port["targetPort"]] == port["port"]


@every_variant
def test_a_storage_node_is_where_its_connect_string_says(variant: str) -> None:
    made, found = cluster(VARIANTS[variant]), rendered(variant)
    own = [node for node in storage_nodes(made) if not node.external]
    sets = {
        obj["metadata"]["name"]: obj
        for obj in of_kind(found, "StatefulSet")
        if obj["metadata"]["labels"]["app.kubernetes.io/component"] == "storage"
    }
    assert set(sets) == {node.statefulset for node in own}
    for node in own:
        obj = sets[node.statefulset]
        service = found["Service", obj["spec"]["serviceName"]]
        assert service["spec"]["clusterIP"] == "None"
        assert service["spec"]["publishNotReadyAddresses"] is True
        pod = f"{node.statefulset}-0"
        assert node.connect_string == f"{pod}.{service['metadata']['name']}.demo.svc:55280"
        ports = {port["name"]: port["port"] for port in service["spec"]["ports"]}
        assert ports["storage"] == 55280
        assert ports["admin"] == node.admin_port
        assert obj["spec"]["replicas"] == 1
        assert obj["spec"]["updateStrategy"] == {"type": "OnDelete"}
        assert obj["metadata"]["labels"]["waltz.dev/group"] == node.group
        assert obj["metadata"]["labels"]["waltz.dev/node"] == node.name
        assert ("PersistentVolumeClaim", node.pvc) in found


def covers(names: tuple[str, ...], host: str) -> bool:
    """Whether a certificate with these names speaks for the host; a wildcard stands for one label."""
    return any(
        name == host or (name.startswith("*.") and host.partition(".")[2] == name[2:]) for name in names
    )


@every_variant
def test_certificates_cover_the_names_that_are_connected_to(variant: str) -> None:
    made, found = cluster(VARIANTS[variant]), rendered(variant)
    roles = {role.role: role for role in tls_roles(made)}
    if made.spec.tls.mode is TlsMode.DISABLED:
        assert roles == {}
        return
    for node in storage_nodes(made):
        if not node.external:
            assert covers(roles["storage"].dns_names, node.host)
    keys = yaml.safe_load(found["ConfigMap", "ledger-server"]["data"]["waltz-server.yml"])
    advertised = keys["server.advertised.host"].replace("{dashed-address}", "10-1-2-3")
    if advertised != "{address}":
        assert covers(roles["server"].dns_names, advertised)
    assert covers(roles["server"].dns_names, "ledger.demo.svc")
    if zookeeper_tls(made):
        for pod in (*zookeeper_pods(made), "ledger-zookeeper.demo.svc"):
            assert covers(roles["zookeeper"].dns_names, pod)
    assert all(len(role.common_name) <= 64 for role in roles.values())


@every_variant
def test_only_the_operator_copies_and_the_console_reach_the_admin_port(variant: str) -> None:
    policies = of_kind(rendered(variant), "NetworkPolicy")
    if variant == "no policies":
        assert policies == []
        return
    storage = next(obj for obj in policies if obj["metadata"]["name"] == "ledger-storage")
    for rule in storage["spec"]["ingress"]:
        ports = {port["port"] for port in rule["ports"]}
        who = {
            peer["podSelector"]["matchLabels"].get("app.kubernetes.io/component", "operator")
            for peer in rule["from"]
            if "podSelector" in peer and "matchLabels" in peer["podSelector"]
        }
        if 55281 in ports:
            assert ports == {55281}
            console = {"console"} if VARIANTS[variant].get("console") else set()
            assert who == {"operator", "migration"} | console
            assert len(rule["from"]) == len(who)
        elif 55280 in ports:
            assert ports == {55280}
            assert who == {"operator", "migration", "server"}
            assert len(rule["from"]) == 3


def test_clients_are_everybody_or_those_named() -> None:
    plain = objects(cluster())["NetworkPolicy", "ledger-server"]["spec"]["ingress"]
    assert plain[0] == {"ports": [{"port": 55180, "protocol": "TCP"}]}
    named = objects(cluster(VARIANTS["named clients"]))["NetworkPolicy", "ledger-server"]["spec"]["ingress"]
    assert named[0]["from"][:2] == [
        {"podSelector": {"matchLabels": {"app": "x"}}},
        {"namespaceSelector": {}},
    ]
    zookeeper = objects(cluster(VARIANTS["named clients"]))["NetworkPolicy", "ledger-zookeeper"]["spec"][
        "ingress"
    ]
    components = [
        peer["podSelector"]["matchLabels"].get("app.kubernetes.io/component")
        for peer in zookeeper[0]["from"]
        if "matchLabels" in peer.get("podSelector", {})
    ]
    assert {"storage", "server", "zookeeper", "migration"} <= set(components)


def test_disruption_budgets_let_one_go_or_none() -> None:
    def allowed(**changes: Any) -> int:
        inputs = INPUTS.__class__(**changes)
        budget = objects(cluster(), inputs)["PodDisruptionBudget", "ledger-storage"]
        return int(budget["spec"]["maxUnavailable"])

    assert allowed() == 1
    assert allowed(storage_evictions=False) == 0


def test_copies_keep_apart_and_in_their_zone() -> None:
    def affinity(changes: dict[str, Any], name: str) -> Obj:
        template = objects(cluster(changes))["StatefulSet", name]["spec"]["template"]
        found: Obj = template["spec"]["affinity"]
        return found

    preferred = affinity({}, "ledger-storage-1-0")["podAntiAffinity"]
    assert "requiredDuringSchedulingIgnoredDuringExecution" not in preferred
    term = preferred["preferredDuringSchedulingIgnoredDuringExecution"][0]["podAffinityTerm"]
    assert term["labelSelector"]["matchExpressions"] == [
        {"key": "waltz.dev/group", "operator": "NotIn", "values": ["1"]}
    ]
    zoned = affinity(VARIANTS["groups"], "ledger-storage-a-1")
    required = zoned["podAntiAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    assert required[0]["topologyKey"] == "kubernetes.io/hostname"
    assert required[0]["labelSelector"]["matchExpressions"][0]["values"] == ["a"]
    terms = zoned["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
    assert terms == [
        {"matchExpressions": [{"key": "topology.kubernetes.io/zone", "operator": "In", "values": ["z1"]}]}
    ]
    anywhere = objects(cluster())["StatefulSet", "ledger-storage-1-0"]["spec"]["template"]["spec"]
    assert anywhere["topologySpreadConstraints"][0]["topologyKey"] == "topology.kubernetes.io/zone"


def test_servers_are_replaced_one_at_a_time() -> None:
    plain = objects(cluster())["Deployment", "ledger-server"]["spec"]
    assert plain["strategy"]["rollingUpdate"] == {"maxSurge": 1, "maxUnavailable": 0}
    assert plain["template"]["spec"]["terminationGracePeriodSeconds"] == 30
    on_host = objects(cluster(VARIANTS["host port"]))["Deployment", "ledger-server"]["spec"]
    assert on_host["strategy"]["rollingUpdate"] == {"maxSurge": 0, "maxUnavailable": 1}
    main = on_host["template"]["spec"]["containers"][0]
    assert main["ports"][0]["hostPort"] == 31180
    assert main["env"][0]["valueFrom"]["fieldRef"]["fieldPath"] == "status.hostIP"


def test_a_storage_node_that_hangs_ends_itself_and_says_so() -> None:
    """Its last line is lost where Kubernetes kills it first."""
    limit = inspect.signature(run_service).parameters["shutdown_timeout_seconds"].default
    spec = objects(cluster())["StatefulSet", "ledger-storage-1-0"]["spec"]["template"]["spec"]
    assert spec["terminationGracePeriodSeconds"] >= limit + 10


def test_monitors_by_setting() -> None:
    assert of_kind(objects(cluster()), "PodMonitor", "ServiceMonitor") == []
    by_pod = objects(cluster(VARIANTS["pod monitor"]))["PodMonitor", "ledger"]
    assert by_pod["metadata"]["labels"]["release"] == "p"
    assert by_pod["spec"]["podMetricsEndpoints"] == [{"port": "http", "path": "/metrics", "interval": "30s"}]
    found = objects(cluster(VARIANTS["service monitor"]))
    by_service = found["ServiceMonitor", "ledger"]["spec"]
    chosen = [
        obj["metadata"]["name"]
        for obj in of_kind(found, "Service")
        if matches(by_service["selector"]["matchLabels"], obj["metadata"]["labels"])
        and all(
            rule["key"] in obj["metadata"]["labels"]
            and (rule["operator"] == "Exists" or obj["metadata"]["labels"][rule["key"]] in rule["values"])
            for rule in by_service["selector"]["matchExpressions"]
        )
    ]
    assert chosen == ["ledger-storage", "ledger-server"]


def test_certificates_of_cert_manager() -> None:
    found = of_kind(objects(cluster(VARIANTS["cert-manager"])), "Certificate")
    assert [obj["spec"]["secretName"] for obj in found] == [
        "ledger-tls-server",
        "ledger-tls-storage",
        "ledger-tls-operator",
        "ledger-tls-client",
    ]
    for obj in found:
        spec = obj["spec"]
        assert spec["issuerRef"] == {"name": "ca", "kind": "Issuer", "group": "cert-manager.io"}
        assert spec["duration"] == "2160h"
        assert spec["renewBefore"] == "43200m", "renewed when two thirds have passed"
        assert spec["privateKey"]["algorithm"] == "RSA", "peers of release 0.13.2 speak nothing else"


def test_the_managed_ensemble_knows_its_members() -> None:
    found = objects(cluster(VARIANTS["ensemble"]))
    config = found["ConfigMap", "ledger-zookeeper"]["data"]["zoo-3.cfg"]
    assert "server.3=ledger-zookeeper-2.ledger-zookeeper-headless.demo.svc:2888:3888\n" in config
    assert "server." not in objects(cluster())["ConfigMap", "ledger-zookeeper"]["data"]["zoo-1.cfg"]
    spec = found["StatefulSet", "ledger-zookeeper"]["spec"]
    assert spec["replicas"] == 3
    assert spec["volumeClaimTemplates"][0]["spec"]["storageClassName"] == "fast"
    assert spec["persistentVolumeClaimRetentionPolicy"]["whenDeleted"] == "Retain"
    assert spec["updateStrategy"] == {"type": "OnDelete"}, "the operator restarts its pods"


def test_nothing_that_happens_to_zookeepers_stateful_set_deletes_its_data() -> None:
    """Its claims are objects of ours under the rules of a storage node's."""
    for policy in ("Retain", "Delete"):
        found = objects(cluster({"reclaimPolicy": policy}))
        spec = found["StatefulSet", "ledger-zookeeper"]["spec"]
        assert spec["persistentVolumeClaimRetentionPolicy"] == {
            "whenDeleted": "Retain",
            "whenScaled": "Retain",
        }
        ours = found["PersistentVolumeClaim", "data-ledger-zookeeper-0"]
        assert "ownerReferences" not in ours["metadata"]
        assert ours["spec"]["resources"]["requests"]["storage"] == "2Gi"
        order = list(found)
        claim, stateful_set = (
            ("PersistentVolumeClaim", "data-ledger-zookeeper-0"),
            ("StatefulSet", "ledger-zookeeper"),
        )
        assert order.index(claim) < order.index(stateful_set), "it is there before its pod"


def test_a_volume_of_zookeeper_grows_and_its_claim_template_stays() -> None:
    name = "data-ledger-zookeeper-0"
    template = {"spec": {"storageClassName": "slow", "resources": {"requests": {"storage": "2Gi"}}}}
    inputs = replace(
        INPUTS,
        volumes={name: VolumeFacts(2 * 1024**3, "slow")},
        live={("StatefulSet", "ledger-zookeeper"): {"spec": {"volumeClaimTemplates": [template]}}},
    )
    grown = cluster({"zookeeper": {"managed": {"size": "5Gi"}}})
    found = objects(grown, inputs)
    assert found["PersistentVolumeClaim", name]["spec"]["resources"]["requests"]["storage"] == "5Gi"
    kept = found["StatefulSet", "ledger-zookeeper"]["spec"]["volumeClaimTemplates"][0]["spec"]
    assert kept["resources"]["requests"]["storage"] == "2Gi"
    assert kept["storageClassName"] == "slow"
    assert impossible_changes(grown, inputs) == []
    shrunk = cluster({"zookeeper": {"managed": {"size": "1Gi"}}})
    assert objects(shrunk, inputs)["PersistentVolumeClaim", name]["spec"]["resources"]["requests"][
        "storage"
    ] == str(2 * 1024**3)
    assert [one.path for one in impossible_changes(shrunk, inputs)] == ["spec.zookeeper.managed.size"]


def test_a_server_of_zookeeper_is_ready_when_it_serves() -> None:
    template = objects(cluster())["StatefulSet", "ledger-zookeeper"]["spec"]["template"]
    (container,) = template["spec"]["containers"]
    assert container["readinessProbe"]["exec"]["command"] == ["sh", "-c", SERVES]
    assert "tcpSocket" in container["livenessProbe"], "one without a quorum is not killed"


def zookeeper_rule(changes: dict[str, Any], live: Obj | None = None) -> Obj:
    inputs = replace(INPUTS, live={("NetworkPolicy", "ledger-zookeeper"): live} if live else {})
    found: Obj = objects(cluster(changes), inputs)["NetworkPolicy", "ledger-zookeeper"]
    return found


def test_the_managed_zookeeper_is_closed_but_for_the_cluster_and_labelled_pods() -> None:
    made = zookeeper_rule({})
    rule, peers = made["spec"]["ingress"]
    assert [port["port"] for port in rule["ports"]] == [2181]
    assert {"namespaceSelector": {}, "podSelector": {"matchLabels": {"waltz.dev/client": "true"}}} in rule[
        "from"
    ]
    assert len(rule["from"]) == 6, "four components, the operator, the label"
    assert peers["from"], "only its own servers elect a leader"
    assert "from" not in zookeeper_rule({"networkPolicy": {"zookeeper": "Open"}})["spec"]["ingress"][0]


def test_another_version_of_the_operator_locks_no_client_out() -> None:
    """The policy of an earlier release was open and did not say so; one that is closed stays so."""
    earlier = {"metadata": {"annotations": {"waltz.dev/applied-hash": "x"}}}
    kept = zookeeper_rule({}, earlier)
    assert "from" not in kept["spec"]["ingress"][0]
    assert "from" not in zookeeper_rule({}, kept)["spec"]["ingress"][0], "and remains as it was"
    assert "from" in zookeeper_rule({}, zookeeper_rule({}))["spec"]["ingress"][0]
    assert "from" in zookeeper_rule({"networkPolicy": {"zookeeper": "Closed"}}, earlier)["spec"]["ingress"][0]


def test_copy_jobs_take_resources_and_a_pod_template() -> None:
    made = cluster(
        {
            "copyJobs": {
                "resources": {"requests": {"cpu": "1"}, "limits": {"memory": "2Gi"}},
                "podTemplate": {
                    "metadata": {"labels": {"team": "t", "app.kubernetes.io/name": "mine"}},
                    "spec": {
                        "priorityClassName": "low",
                        "containers": [{"name": "copy", "env": [{"name": "A", "value": "b"}]}],
                    },
                },
            }
        }
    )
    job = copy_job(made, INPUTS, migration="move", partition=3, arguments=["copy-partition"])
    template = job["spec"]["template"]
    (copy,) = template["spec"]["containers"]
    assert copy["resources"] == {"requests": {"cpu": "1"}, "limits": {"memory": "2Gi"}}
    assert (copy["image"], copy["args"]) == ("waltz-operator:1", ["copy-partition"])
    assert copy["env"] == [{"name": "A", "value": "b"}]
    assert template["spec"]["priorityClassName"] == "low"
    labels = template["metadata"]["labels"]
    assert (labels["team"], labels["app.kubernetes.io/name"]) == ("t", "waltz")
    plain = copy_job(cluster(), INPUTS, migration="move", partition=3, arguments=["copy-partition"])
    (copy,) = plain["spec"]["template"]["spec"]["containers"]
    assert copy["resources"] == {"requests": {"cpu": "50m", "memory": "128Mi"}, "limits": {"memory": "512Mi"}}


@pytest.mark.parametrize("variant", VARIANTS)
def test_kinds_that_need_not_be_there_are_known_without_rendering_all(variant: str) -> None:
    """Everything was rendered a second time in each pass, to see which of them are asked for."""
    made = cluster(VARIANTS[variant])
    inputs = replace(INPUTS, server_addresses=(("10.0.0.7", "fd00::7"),))
    optional = {kind.kind for kind in kinds.OPTIONAL}
    wanted = {str(body["kind"]) for body in desired_objects(made, inputs)} & optional
    assert optional_kinds(made, inputs) == wanted
