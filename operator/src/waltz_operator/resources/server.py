"""Servers: a Deployment, a headless Service that names every pod, a Service in front of those that are
ready."""

from __future__ import annotations

from waltz_operator.api.cluster import WaltzCluster
from waltz_operator.api.metadata import LABEL_DECISION
from waltz_operator.api.topology import (
    SERVER_HTTP_PORT,
    SERVER_PORT,
    client_service,
    host_port,
    server_name,
)
from waltz_operator.resources.addresses import family_policy, listen_address, server_slices
from waltz_operator.resources.affinity import over_zones, servers_apart
from waltz_operator.resources.basis import server_basis, server_config_basis, with_material
from waltz_operator.resources.common import (
    CONFIG_DIRECTORY,
    SERVER,
    container,
    labels,
    make,
    pod_basics,
    resources_of,
    selector,
    service_probes,
)
from waltz_operator.resources.config import SERVER_FILE, file_for, role_files, server_keys
from waltz_operator.resources.files import certificates, config_map, mounted, scratch, zookeeper_auth
from waltz_operator.resources.images import image_of
from waltz_operator.resources.inputs import Obj, RenderInputs
from waltz_operator.resources.login import login_annotations
from waltz_operator.resources.monitoring import scrape_annotations
from waltz_operator.resources.overlay import decision, overlaid, settled, settled_data

STEADY_SECONDS = 10
"""A new server has got its partitions and recovered them by then; only after that is the next one stopped."""
PORTS = (("client", SERVER_PORT), ("http", SERVER_HTTP_PORT))


def server_objects(cluster: WaltzCluster, inputs: RenderInputs) -> list[Obj]:
    """Everything of the servers."""
    return [
        _config(cluster, inputs),
        _headless(cluster, inputs),
        *server_slices(cluster, inputs, _ports()),
        _service(cluster, inputs),
        _budget(cluster),
        _deployment(cluster, inputs),
    ]


def _config(cluster: WaltzCluster, inputs: RenderInputs) -> Obj:
    name = server_name(cluster)
    listen, members = listen_address(inputs, name), inputs.zookeeper_members
    data = role_files(inputs, name, SERVER_FILE, lambda level: server_keys(cluster, listen, members, level))
    kept, annotations = settled_data(cluster, inputs, name, server_config_basis(cluster, inputs), data)
    return make(cluster, "v1", "ConfigMap", name, SERVER, {"data": kept}, annotations=annotations)


def _ports() -> list[Obj]:
    return [{"name": name, "port": port, "targetPort": name, "protocol": "TCP"} for name, port in PORTS]


def _headless(cluster: WaltzCluster, inputs: RenderInputs) -> Obj:
    """<dashed-pod-ip>.<this> is what a server advertises, from before it is ready until it has left."""
    spec = {
        **family_policy(inputs, server_name(cluster)),
        "clusterIP": "None",
        "publishNotReadyAddresses": True,
        "selector": selector(cluster, SERVER),
        "ports": _ports(),
    }
    return make(
        cluster, "v1", "Service", server_name(cluster), SERVER, {"spec": spec}, more={"headless": "true"}
    )


def _service(cluster: WaltzCluster, inputs: RenderInputs) -> Obj:
    """For tools and people; clients learn the addresses of servers from ZooKeeper."""
    policy = family_policy(inputs, client_service(cluster))
    spec = {**policy, "type": "ClusterIP", "selector": selector(cluster, SERVER), "ports": _ports()}
    return make(cluster, "v1", "Service", client_service(cluster), SERVER, {"spec": spec})


def _budget(cluster: WaltzCluster) -> Obj:
    spec = {
        "maxUnavailable": 1,
        "unhealthyPodEvictionPolicy": "AlwaysAllow",
        "selector": {"matchLabels": selector(cluster, SERVER)},
    }
    return make(cluster, "policy/v1", "PodDisruptionBudget", server_name(cluster), SERVER, {"spec": spec})


def _deployment(cluster: WaltzCluster, inputs: RenderInputs) -> Obj:
    """One server at a time; the new one comes first, except where both need the same port of the machine."""
    servers, name = cluster.spec.servers, server_name(cluster)
    basis = server_basis(cluster, inputs)
    fresh = overlaid(_template(cluster, inputs, decision(cluster, basis)), servers.pod_template)
    before = with_material(basis, inputs, SERVER)
    template, annotations = settled(cluster, inputs, "Deployment", name, basis, fresh, before=before)
    surge = 0 if host_port(cluster) else 1
    spec = {
        "replicas": servers.replicas,
        "minReadySeconds": STEADY_SECONDS,
        "revisionHistoryLimit": 2,
        "progressDeadlineSeconds": 600,
        "strategy": {
            "type": "RollingUpdate",
            "rollingUpdate": {"maxSurge": surge, "maxUnavailable": 1 - surge},
        },
        "selector": {"matchLabels": selector(cluster, SERVER)},
        "template": template,
    }
    return make(cluster, "apps/v1", "Deployment", name, SERVER, {"spec": spec}, annotations=annotations)


def _template(cluster: WaltzCluster, inputs: RenderInputs, decided: str) -> Obj:
    servers = cluster.spec.servers
    level = inputs.login
    volumes, mounts = mounted(
        config_map(server_name(cluster)),
        certificates(cluster, SERVER),
        zookeeper_auth(cluster, level),
        scratch(),
    )
    ports: list[Obj] = [{"name": name, "containerPort": port, "protocol": "TCP"} for name, port in PORTS]
    more: Obj = {}
    if on_machine := host_port(cluster):
        ports[0]["hostPort"] = on_machine
        host = {"fieldRef": {"apiVersion": "v1", "fieldPath": "status.hostIP"}}
        more["env"] = [{"name": "WALTZ_ADDRESS", "valueFrom": host}]
    main = container(
        cluster,
        SERVER,
        image_of(cluster, inputs.images, inputs.version, SERVER),
        args=[f"{CONFIG_DIRECTORY}/{file_for(SERVER_FILE, level)}"],
        ports=ports,
        resources=resources_of(servers.resources.requests, servers.resources.limits),
        volumeMounts=mounts,
        **service_probes("http"),
        **more,
    )
    return {
        "metadata": {
            "labels": {**labels(cluster, SERVER), LABEL_DECISION: decided},
            "annotations": {**scrape_annotations(SERVER_HTTP_PORT), **login_annotations(level)},
        },
        "spec": {
            **pod_basics(cluster, inputs),
            "terminationGracePeriodSeconds": servers.drain_seconds,
            "affinity": servers_apart(cluster, decided),
            "topologySpreadConstraints": over_zones(cluster, SERVER),
            "containers": [main],
            "volumes": volumes,
        },
    }
