"""The managed ZooKeeper: a StatefulSet, and a volume claim per server.

The claims are objects of their own that the StatefulSet finds by their names, so that its deletion deletes no
data. Its claim template cannot be changed: the one that a live StatefulSet has is kept. Pods are never
replaced by Kubernetes (OnDelete): the planner does it, one at a time, while all others serve.
"""

from __future__ import annotations

from waltz_operator.api.base import quantity_bytes
from waltz_operator.api.cluster import WaltzCluster
from waltz_operator.api.metadata import ZOOKEEPER_MEMBERS
from waltz_operator.api.parts import MAX_MEMBERS, ManagedZooKeeper
from waltz_operator.api.topology import (
    ZOOKEEPER_ELECTION_PORT,
    ZOOKEEPER_PEER_PORT,
    ZOOKEEPER_PORT,
    ZOOKEEPER_TLS_PORT,
    zookeeper_claims,
    zookeeper_headless,
    zookeeper_name,
    zookeeper_pods,
    zookeeper_port,
    zookeeper_replicas,
    zookeeper_tls,
)
from waltz_operator.resources.affinity import apart, over_zones
from waltz_operator.resources.basis import zookeeper_basis
from waltz_operator.resources.claims import claim, claim_spec
from waltz_operator.resources.common import (
    TLS_DIRECTORY,
    ZOOKEEPER,
    container,
    labels,
    make,
    pod_basics,
    resources_of,
    selector,
)
from waltz_operator.resources.files import certificates, mounted, scratch
from waltz_operator.resources.images import image_of
from waltz_operator.resources.inputs import Obj, RenderInputs
from waltz_operator.resources.overlay import overlaid, settled, settled_data
from waltz_operator.tls.secrets import COMBINED

FILE = "zoo.cfg"
"""Read by pods that an earlier release made; it is kept as it was."""
FILE_DIRECTORY = "/etc/zookeeper"
DATA_DIRECTORY = "/var/lib/zookeeper"
MIB = 1024 * 1024
DEFAULT_HEAP_MB = 256
MIN_HEAP_MB = 64
SERVES = f"""\
if command -v bash >/dev/null; then
  exec bash -c 'exec 3<>/dev/tcp/127.0.0.1/{ZOOKEEPER_PORT} && sleep 0.3 && printf srvr >&3 && grep -q ^Mode: <&3'
fi
java -Xmx16m -cp '/opt/zookeeper/lib/*' org.apache.zookeeper.client.FourLetterWordMain 127.0.0.1 {ZOOKEEPER_PORT} srvr | grep -q ^Mode:"""
"""Whether the server serves, alone or in a quorum: only then its answer has a mode; an open port says
nothing. The command comes a moment after the connection: a server that is still loading its data would keep
a connection that it has to answer, and was seen to serve nobody afterwards."""


def zookeeper_objects(cluster: WaltzCluster, inputs: RenderInputs) -> list[Obj]:
    """Everything of the managed ZooKeeper; nothing for an ensemble of one's own."""
    managed = cluster.spec.zookeeper.managed
    if managed is None:
        return []
    members = _members(cluster, inputs, managed)
    return [
        _config(cluster, inputs, members),
        _headless(cluster),
        _service(cluster),
        _budget(cluster, inputs),
        *(
            claim(cluster, inputs, ZOOKEEPER, name, managed.size, managed.storage_class_name)
            for name in zookeeper_claims(cluster, members)
        ),
        _stateful_set(cluster, inputs, managed),
    ]


def _members(cluster: WaltzCluster, inputs: RenderInputs, managed: ManagedZooKeeper) -> int:
    wanted = zookeeper_replicas(cluster, managed)
    return wanted if inputs.zookeeper_members is None else inputs.zookeeper_members


def file_of(members: int) -> str:
    """The file of an ensemble of so many: its content never changes, so that a server that starts again in
    its pod is a member of the ensemble that it was a member of before."""
    return f"zoo-{members}.cfg"


def ports(cluster: WaltzCluster) -> tuple[tuple[str, int], ...]:
    """The ports of a server, by name."""
    return (
        ("client", zookeeper_port(cluster)),
        ("peer", ZOOKEEPER_PEER_PORT),
        ("election", ZOOKEEPER_ELECTION_PORT),
    )


def render_config(cluster: WaltzCluster, members: int) -> str:
    """Configuration of the servers of an ensemble of so many. Writes are synced (ZooKeeper's default): a
    killed server forgets nothing. Sessions of up to ten minutes."""
    lines = {
        "dataDir": DATA_DIRECTORY,
        "clientPort": ZOOKEEPER_PORT,
        "tickTime": 1000,
        "initLimit": 30,
        "syncLimit": 10,
        "minSessionTimeout": 2000,
        "maxSessionTimeout": 600_000,
        "maxClientCnxns": 0,
        "autopurge.snapRetainCount": 5,
        "autopurge.purgeInterval": 1,
        "admin.enableServer": "false",
        "quorumListenOnAllIPs": "true",
        "4lw.commands.whitelist": "srvr",
    }
    if zookeeper_tls(cluster):
        lines |= _tls_lines()
    text = "".join(f"{key}={value}\n" for key, value in lines.items())
    pods = zookeeper_pods(cluster, members)
    if len(pods) > 1:
        for number, pod in enumerate(pods, start=1):
            text += f"server.{number}={pod}:{ZOOKEEPER_PEER_PORT}:{ZOOKEEPER_ELECTION_PORT}\n"
    return text


def _tls_lines() -> dict[str, object]:
    """Everybody shows a certificate of the cluster's authority; the plain port is there for the readiness
    probe alone. Who has such a certificate may be a server of the ensemble: names are not compared, for a
    server knows another that connects to it by an address only. Renewed files are followed."""
    lines: dict[str, object] = {
        "clientPortAddress": "127.0.0.1",
        "secureClientPort": ZOOKEEPER_TLS_PORT,
        "serverCnxnFactory": "org.apache.zookeeper.server.NettyServerCnxnFactory",
        "ssl.clientAuth": "need",
        "client.certReload": "true",
        "sslQuorum": "true",
        "sslQuorumReloadCertFiles": "true",
        "ssl.quorum.clientAuth": "need",
        "ssl.quorum.hostnameVerification": "false",
    }
    for side in ("ssl", "ssl.quorum"):
        lines |= {
            f"{side}.keyStore.type": "PEM",
            f"{side}.keyStore.location": f"{TLS_DIRECTORY}/{COMBINED}",
            f"{side}.trustStore.type": "PEM",
            f"{side}.trustStore.location": f"{TLS_DIRECTORY}/ca.crt",
        }
    return lines


def _config(cluster: WaltzCluster, inputs: RenderInputs, members: int) -> Obj:
    name = zookeeper_name(cluster)
    data = {file_of(n): render_config(cluster, n) for n in range(1, max(members, MAX_MEMBERS) + 1)}
    before = inputs.live.get(("ConfigMap", name), {}).get("data") or {}
    data |= {FILE: str(before[FILE])} if FILE in before else {}
    kept, annotations = settled_data(cluster, inputs, name, {"files": max(members, MAX_MEMBERS)}, data)
    return make(cluster, "v1", "ConfigMap", name, ZOOKEEPER, {"data": kept}, annotations=annotations)


def _headless(cluster: WaltzCluster) -> Obj:
    spec = {
        "clusterIP": "None",
        "publishNotReadyAddresses": True,
        "selector": selector(cluster, ZOOKEEPER),
        "ports": [
            {"name": name, "port": port, "targetPort": name, "protocol": "TCP"}
            for name, port in ports(cluster)
        ],
    }
    return make(cluster, "v1", "Service", zookeeper_headless(cluster), ZOOKEEPER, {"spec": spec})


def _service(cluster: WaltzCluster) -> Obj:
    spec = {
        "type": "ClusterIP",
        "selector": selector(cluster, ZOOKEEPER),
        "ports": [
            {"name": "client", "port": zookeeper_port(cluster), "targetPort": "client", "protocol": "TCP"}
        ],
    }
    return make(cluster, "v1", "Service", zookeeper_name(cluster), ZOOKEEPER, {"spec": spec})


def _budget(cluster: WaltzCluster, inputs: RenderInputs) -> Obj:
    spec = {
        "maxUnavailable": 1 if inputs.zookeeper_evictions else 0,
        "selector": {"matchLabels": selector(cluster, ZOOKEEPER)},
    }
    return make(
        cluster, "policy/v1", "PodDisruptionBudget", zookeeper_name(cluster), ZOOKEEPER, {"spec": spec}
    )


def _stateful_set(cluster: WaltzCluster, inputs: RenderInputs, managed: ManagedZooKeeper) -> Obj:
    name = zookeeper_name(cluster)
    members = _members(cluster, inputs, managed)
    fresh = overlaid(_template(cluster, inputs, managed, members), managed.pod_template)
    basis = zookeeper_basis(cluster, inputs, members)
    template, annotations = settled(cluster, inputs, "StatefulSet", name, basis, fresh)
    spec = {
        "replicas": members,
        "serviceName": zookeeper_headless(cluster),
        "podManagementPolicy": "Parallel",
        "updateStrategy": {"type": "OnDelete"},
        "persistentVolumeClaimRetentionPolicy": {"whenDeleted": "Retain", "whenScaled": "Retain"},
        "revisionHistoryLimit": 2,
        "minReadySeconds": 10,
        "selector": {"matchLabels": selector(cluster, ZOOKEEPER)},
        "template": template,
        "volumeClaimTemplates": [_claim_template(cluster, inputs, managed)],
    }
    return make(cluster, "apps/v1", "StatefulSet", name, ZOOKEEPER, {"spec": spec}, annotations=annotations)


def _claim_template(cluster: WaltzCluster, inputs: RenderInputs, managed: ManagedZooKeeper) -> Obj:
    """Gives the pods the names of their claims; what it says of size and class counts for none, since every
    claim is there before its pod."""
    live = inputs.live.get(("StatefulSet", zookeeper_name(cluster)), {}).get("spec") or {}
    templates = live.get("volumeClaimTemplates") or ()
    size, class_name = managed.size, managed.storage_class_name
    if templates:
        before = templates[0].get("spec") or {}
        size, class_name = before["resources"]["requests"]["storage"], before.get("storageClassName")
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": "data", "labels": selector(cluster, ZOOKEEPER)},
        "spec": claim_spec(size, class_name),
    }


def heap_mb(managed: ManagedZooKeeper) -> int:
    """Half of the memory limit, MiB; the rest is for stacks, buffers and the virtual machine itself."""
    limit = managed.resources.limits.get("memory")
    return max(MIN_HEAP_MB, quantity_bytes(limit) // MIB // 2) if limit else DEFAULT_HEAP_MB


def _template(cluster: WaltzCluster, inputs: RenderInputs, managed: ManagedZooKeeper, members: int) -> Obj:
    config = {"name": "config", "configMap": {"name": zookeeper_name(cluster), "defaultMode": 0o440}}
    volumes, mounts = mounted(
        ([config], [{"name": "config", "mountPath": FILE_DIRECTORY, "readOnly": True}]),
        certificates(cluster, ZOOKEEPER),
        scratch(),
        ([], [{"name": "data", "mountPath": DATA_DIRECTORY}]),
    )
    probe = {"tcpSocket": {"port": "client"}, "timeoutSeconds": 3}
    main = container(
        cluster,
        ZOOKEEPER,
        image_of(cluster, inputs.images, inputs.version, ZOOKEEPER),
        args=[f"{FILE_DIRECTORY}/{file_of(members)}"],
        env=[{"name": "ZOOKEEPER_HEAP_MB", "value": str(heap_mb(managed))}],
        ports=[{"name": name, "containerPort": port, "protocol": "TCP"} for name, port in ports(cluster)],
        resources=resources_of(managed.resources.requests, managed.resources.limits),
        volumeMounts=mounts,
        startupProbe={**probe, "periodSeconds": 2, "failureThreshold": 150},
        livenessProbe={**probe, "periodSeconds": 10, "failureThreshold": 6},
        readinessProbe={
            "exec": {"command": ["sh", "-c", SERVES]},
            "timeoutSeconds": 5,
            "periodSeconds": 5,
            "failureThreshold": 2,
        },
    )
    return {
        "metadata": {"labels": labels(cluster, ZOOKEEPER), "annotations": {ZOOKEEPER_MEMBERS: str(members)}},
        "spec": {
            **pod_basics(cluster, inputs),
            "terminationGracePeriodSeconds": 30,
            "affinity": apart(cluster, ZOOKEEPER),
            "topologySpreadConstraints": over_zones(cluster, ZOOKEEPER),
            "containers": [main],
            "volumes": volumes,
        },
    }
