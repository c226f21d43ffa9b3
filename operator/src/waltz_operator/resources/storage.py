"""Storage nodes: a StatefulSet of size one and a claim per node, one headless Service, one configuration for
all.

The claim is an object of its own, not a template of the StatefulSet: so nothing that cannot be changed ever
has to, and a volume grows by changing the claim. Pods are never replaced by Kubernetes (OnDelete): the
planner does it, one at a time, behind its gate.
"""

from __future__ import annotations

import posixpath

from waltz_operator.api.cluster import WaltzCluster
from waltz_operator.api.journal import DIRECTORY
from waltz_operator.api.parts import StorageGroup
from waltz_operator.api.topology import (
    STORAGE_ADMIN_PORT,
    STORAGE_HTTP_PORT,
    STORAGE_PORT,
    NodeIdentity,
    groups,
    storage_name,
    storage_nodes,
)
from waltz_operator.resources.addresses import family_policy, listen_address
from waltz_operator.resources.affinity import over_zones, storage_affinity
from waltz_operator.resources.basis import storage_basis, storage_config_basis, with_material
from waltz_operator.resources.claims import claim
from waltz_operator.resources.common import (
    CONFIG_DIRECTORY,
    STORAGE,
    container,
    labels,
    make,
    pod_basics,
    resources_of,
    selector,
    service_probes,
)
from waltz_operator.resources.config import DATA_DIRECTORY, STORAGE_FILE, file_for, role_files, storage_keys
from waltz_operator.resources.files import certificates, config_map, mounted, scratch, zookeeper_auth
from waltz_operator.resources.images import image_of
from waltz_operator.resources.inputs import Obj, RenderInputs
from waltz_operator.resources.login import login_annotations
from waltz_operator.resources.monitoring import scrape_annotations
from waltz_operator.resources.overlay import overlaid, settled, settled_data

CLOSE_SECONDS = 75
"""How long a node may take to sync and close everything: longer than the time after which it ends itself,
with a line in its log (62 s, `waltz_runtime.process`)."""
PORTS = (("storage", STORAGE_PORT), ("admin", STORAGE_ADMIN_PORT), ("http", STORAGE_HTTP_PORT))


def storage_objects(cluster: WaltzCluster, inputs: RenderInputs) -> list[Obj]:
    """Everything of the storage nodes that the specification wants; external ones have nothing here."""
    nodes = [node for node in storage_nodes(cluster) if not node.external]
    by_name = {group.name: group for group in groups(cluster)}
    found = [_config(cluster, inputs), _service(cluster, inputs), _budget(cluster, inputs)]
    for node in nodes:
        group = by_name[node.group]
        found += [*_claims(cluster, inputs, group, node), _stateful_set(cluster, inputs, group, node)]
    return found


def _config(cluster: WaltzCluster, inputs: RenderInputs) -> Obj:
    name = storage_name(cluster)
    listen, members = listen_address(inputs, name), inputs.zookeeper_members
    data = role_files(inputs, name, STORAGE_FILE, lambda level: storage_keys(cluster, listen, members, level))
    kept, annotations = settled_data(cluster, inputs, name, storage_config_basis(cluster, inputs), data)
    return make(cluster, "v1", "ConfigMap", name, STORAGE, {"data": kept}, annotations=annotations)


def _service(cluster: WaltzCluster, inputs: RenderInputs) -> Obj:
    """Gives every pod its DNS name, ready or not: a node must be reachable to become ready."""
    spec = {
        **family_policy(inputs, storage_name(cluster)),
        "clusterIP": "None",
        "publishNotReadyAddresses": True,
        "selector": selector(cluster, STORAGE),
        "ports": [
            {"name": name, "port": port, "targetPort": name, "protocol": "TCP"} for name, port in PORTS
        ],
    }
    return make(
        cluster, "v1", "Service", storage_name(cluster), STORAGE, {"spec": spec}, more={"headless": "true"}
    )


def _budget(cluster: WaltzCluster, inputs: RenderInputs) -> Obj:
    """One storage pod may be evicted, and none while a copy is behind; but a broken one holds up no drain."""
    spec = {
        "maxUnavailable": 1 if inputs.storage_evictions else 0,
        "unhealthyPodEvictionPolicy": "AlwaysAllow" if inputs.broken_evictions else "IfHealthyBudget",
        "selector": {"matchLabels": selector(cluster, STORAGE)},
    }
    return make(cluster, "policy/v1", "PodDisruptionBudget", storage_name(cluster), STORAGE, {"spec": spec})


def wanted_size(cluster: WaltzCluster, group: StorageGroup) -> str:
    """Size of the volumes of a group."""
    return group.size or cluster.spec.storage.size


def wanted_class(cluster: WaltzCluster, group: StorageGroup) -> str | None:
    """Storage class of the volumes of a group; None = the default of the Kubernetes cluster."""
    return group.storage_class_name or cluster.spec.storage.storage_class_name


def wanted_volumes(
    cluster: WaltzCluster, group: StorageGroup, node: NodeIdentity
) -> dict[str, tuple[str, str, str | None]]:
    """Claims of a node by name: the part of the specification, size and storage class."""
    found = {node.pvc: ("spec.storage", wanted_size(cluster, group), wanted_class(cluster, group))}
    journal = cluster.spec.storage.journal
    if journal is not None and journal.volume is not None:
        volume = journal.volume
        found[node.journal_pvc] = ("spec.storage.journal.volume", volume.size, volume.storage_class_name)
    return found


def _claims(
    cluster: WaltzCluster, inputs: RenderInputs, group: StorageGroup, node: NodeIdentity
) -> list[Obj]:
    names = {"group": node.group, "node": node.name}
    return [
        claim(cluster, inputs, STORAGE, name, size, class_name, more=names)
        for name, (_, size, class_name) in wanted_volumes(cluster, group, node).items()
    ]


def _stateful_set(
    cluster: WaltzCluster, inputs: RenderInputs, group: StorageGroup, node: NodeIdentity
) -> Obj:
    fresh = overlaid(_template(cluster, inputs, group, node), cluster.spec.storage.pod_template)
    basis = storage_basis(cluster, inputs, group)
    before = with_material(basis, inputs, STORAGE)
    template, annotations = settled(
        cluster, inputs, "StatefulSet", node.statefulset, basis, fresh, before=before
    )
    names = {"group": node.group, "node": node.name}
    spec = {
        "replicas": 1,
        "serviceName": storage_name(cluster),
        "podManagementPolicy": "Parallel",
        "updateStrategy": {"type": "OnDelete"},
        "revisionHistoryLimit": 2,
        "selector": {"matchLabels": selector(cluster, STORAGE, **names)},
        "template": template,
    }
    return make(
        cluster,
        "apps/v1",
        "StatefulSet",
        node.statefulset,
        STORAGE,
        {"spec": spec},
        annotations=annotations,
        more=names,
    )


def _journal_volume(cluster: WaltzCluster, node: NodeIdentity) -> tuple[list[Obj], list[Obj]]:
    """The claim of the journal; nothing where it has none."""
    journal = cluster.spec.storage.journal
    if journal is None or journal.volume is None:
        return [], []
    volume = {"name": "waltz-journal", "persistentVolumeClaim": {"claimName": node.journal_pvc}}
    return [volume], [{"name": "waltz-journal", "mountPath": posixpath.dirname(DIRECTORY)}]


def _template(cluster: WaltzCluster, inputs: RenderInputs, group: StorageGroup, node: NodeIdentity) -> Obj:
    level = inputs.login
    volumes, mounts = mounted(
        config_map(storage_name(cluster)),
        certificates(cluster, STORAGE),
        zookeeper_auth(cluster, level),
        scratch(),
        (
            [{"name": "data", "persistentVolumeClaim": {"claimName": node.pvc}}],
            [{"name": "data", "mountPath": DATA_DIRECTORY}],
        ),
        _journal_volume(cluster, node),
    )
    resources = group.resources or cluster.spec.storage.resources
    main = container(
        cluster,
        STORAGE,
        image_of(cluster, inputs.images, inputs.version, STORAGE),
        args=[f"{CONFIG_DIRECTORY}/{file_for(STORAGE_FILE, level)}"],
        ports=[{"name": name, "containerPort": port, "protocol": "TCP"} for name, port in PORTS],
        resources=resources_of(resources.requests, resources.limits),
        volumeMounts=mounts,
        **service_probes("http"),
    )
    spec = {
        **pod_basics(cluster, inputs),
        "terminationGracePeriodSeconds": CLOSE_SECONDS,
        "affinity": storage_affinity(cluster, node.group, node.zone),
        "containers": [main],
        "volumes": volumes,
    }
    if node.zone is None:
        spec["topologySpreadConstraints"] = over_zones(cluster, STORAGE)
    return {
        "metadata": {
            "labels": labels(cluster, STORAGE, group=node.group, node=node.name),
            "annotations": {**scrape_annotations(STORAGE_HTTP_PORT), **login_annotations(level)},
        },
        "spec": spec,
    }
