"""The one place that derives names: of storage nodes, pods, Services, Secrets, certificates. Pure.

A storage node is known by its group's name and its own; its pod's DNS name is its connect string in
ZooKeeper, forever.
"""

from __future__ import annotations

import hashlib
from typing import NamedTuple

from waltz_operator.api.cluster import DEFAULT_REPLICAS, WaltzCluster
from waltz_operator.api.parts import (
    AdvertisedAddress,
    ManagedZooKeeper,
    StorageGroup,
    StorageNode,
    ZooKeeperTls,
)
from waltz_operator.api.security import TlsMode, shortest_address

STORAGE_PORT = 55280
STORAGE_ADMIN_PORT = 55281
STORAGE_HTTP_PORT = 55282
SERVER_PORT = 55180
SERVER_HTTP_PORT = 55181
CONSOLE_PORT = 8090
ZOOKEEPER_PORT = 2181
ZOOKEEPER_TLS_PORT = 2281
ZOOKEEPER_PEER_PORT = 2888
ZOOKEEPER_ELECTION_PORT = 3888

MAX_LABEL = 63
ENSEMBLE = 3
"""Servers of a managed ZooKeeper, and copies of a cluster, that survive the loss of one."""


class NodeIdentity(NamedTuple):
    """One storage node and everything that is named after it."""

    group: str
    name: str
    group_id: int | None
    """Number that the spec wants for the group in ZooKeeper; None = no wish."""
    connect_string: str
    admin_port: int
    external: bool
    zone: str | None
    statefulset: str
    pod: str
    pvc: str
    journal_pvc: str = ""
    """Of the volume that its journal has for its own, where it has one."""

    @property
    def claims(self) -> tuple[str, ...]:
        """All that it may have."""
        return tuple(filter(None, (self.pvc, self.journal_pvc)))

    @property
    def reference(self) -> str:
        """How people and migrations name it: <group>-<node>."""
        return f"{self.group}-{self.name}"

    @property
    def host(self) -> str:
        """Host of both ports."""
        return self.connect_string.rpartition(":")[0]


def groups(cluster: WaltzCluster) -> tuple[StorageGroup, ...]:
    """The storage groups, the shorthand written out."""
    spec = cluster.spec
    if spec.storage.groups is not None:
        return spec.storage.groups
    return tuple(StorageGroup(name=str(n + 1)) for n in range(spec.replicas or DEFAULT_REPLICAS))


def group_id(group: StorageGroup) -> int | None:
    """Number that the spec wants for the group in ZooKeeper; None = no wish."""
    if group.id is not None:
        return group.id
    return int(group.name) if group.name.isdecimal() else None


def group_nodes(group: StorageGroup) -> tuple[StorageNode, ...]:
    """The nodes of a group, a count written out."""
    if group.nodes is not None:
        return group.nodes
    return tuple(StorageNode(name=str(n)) for n in range(group.count or 1))


def storage_nodes(cluster: WaltzCluster) -> tuple[NodeIdentity, ...]:
    """All nodes that the spec wants, group by group."""
    return tuple(
        node_identity(cluster, group.name, node.name, group_id(group), zone=group.zone, node=node)
        for group in groups(cluster)
        for node in group_nodes(group)
    )


def node_identity(
    cluster: WaltzCluster,
    group: str,
    name: str,
    group_number: int | None,
    *,
    zone: str | None = None,
    node: StorageNode | None = None,
) -> NodeIdentity:
    """Identity of a node, also of one that has left the spec (from the labels of its StatefulSet)."""
    statefulset = f"{storage_name(cluster)}-{group}-{name}"
    pod = f"{statefulset}-0"
    connect_string, admin_port = f"{pod}.{storage_domain(cluster)}:{STORAGE_PORT}", STORAGE_ADMIN_PORT
    if node is not None and node.external:
        connect_string = node.connect_string or connect_string
        admin_port = node.admin_port or admin_port
    return NodeIdentity(
        group,
        name,
        group_number,
        connect_string,
        admin_port,
        node is not None and node.external,
        zone,
        statefulset,
        pod,
        f"data-{pod}",
        f"journal-{pod}",
    )


# -- names of objects --------------------------------------------------------------------------------------


def storage_name(cluster: WaltzCluster) -> str:
    """Headless Service, ConfigMap, PodDisruptionBudget of the storage nodes."""
    return f"{cluster.metadata.name}-storage"


def storage_domain(cluster: WaltzCluster) -> str:
    """DNS domain of the storage pods; short form, which resolves in every pod of the Kubernetes cluster."""
    return f"{storage_name(cluster)}.{cluster.metadata.namespace}.svc"


def server_name(cluster: WaltzCluster) -> str:
    """Deployment, headless Service, ConfigMap, PodDisruptionBudget of the servers."""
    return f"{cluster.metadata.name}-server"


def server_domain(cluster: WaltzCluster) -> str:
    """DNS domain of the server pods: <dashed-pod-ip>.<this>."""
    return f"{server_name(cluster)}.{cluster.metadata.namespace}.svc"


def client_service(cluster: WaltzCluster) -> str:
    """Service in front of the servers that are ready, for tools."""
    return cluster.metadata.name


def host_port(cluster: WaltzCluster) -> int | None:
    """The port of its machine that a server advertises; None where it advertises one of its pod."""
    listener = cluster.spec.servers.external_listener
    if listener is None or listener.address is not AdvertisedAddress.HOST_IP:
        return None
    return listener.host_port


def zookeeper_name(cluster: WaltzCluster) -> str:
    """StatefulSet, client Service, ConfigMap of the managed ZooKeeper."""
    return f"{cluster.metadata.name}-zookeeper"


def zookeeper_secret(cluster: WaltzCluster) -> str:
    """Secret with the credentials for the managed ZooKeeper."""
    return f"{zookeeper_name(cluster)}-auth"


def console_name(cluster: WaltzCluster) -> str:
    """Deployment, Service and ConfigMap of the console."""
    return f"{cluster.metadata.name}-console"


def console_secret(cluster: WaltzCluster) -> str:
    """Secret with the token of the console."""
    return f"{console_name(cluster)}-token"


def export_secret(cluster: WaltzCluster) -> str:
    """Secret with copies of the cluster's records in ZooKeeper."""
    return f"{zookeeper_name(cluster)}-export"


def zookeeper_headless(cluster: WaltzCluster) -> str:
    """Headless Service of the managed ZooKeeper."""
    return f"{zookeeper_name(cluster)}-headless"


CLUSTER_JOB = "scale"
"""Used for the migration's name in the name of a copy job that no WaltzMigration asked for."""


def copy_job_name(cluster: WaltzCluster, migration: str, partition: int) -> str:
    """Job of the offline copy of one partition; shortened with a digest when it would be longer than a label
    may be."""
    name = f"{cluster.metadata.name}-copy-{migration}-{partition}"
    if len(name) <= MAX_LABEL:
        return name
    digest = hashlib.sha256(name.encode()).hexdigest()[:10]
    return f"{name[: MAX_LABEL - len(digest) - 1].rstrip('-.')}-{digest}"


# -- where the cluster is ------------------------------------------------------------------------------------


def cluster_root(cluster: WaltzCluster) -> str:
    """`cluster.root` of this cluster."""
    return cluster.spec.zookeeper.root or f"/waltz/{cluster.metadata.namespace}/{cluster.metadata.name}"


def cluster_label(cluster: WaltzCluster) -> str:
    """The cluster's name in its ZooKeeper record."""
    return cluster.metadata.name


def zookeeper_tls(cluster: WaltzCluster) -> bool:
    """Whether there is a managed ZooKeeper that is reached through TLS."""
    managed = cluster.spec.zookeeper.managed
    return managed is not None and managed.tls is ZooKeeperTls.ENABLED


def zookeeper_port(cluster: WaltzCluster) -> int:
    """Where clients of the managed ZooKeeper connect to."""
    return ZOOKEEPER_TLS_PORT if zookeeper_tls(cluster) else ZOOKEEPER_PORT


def zookeeper_pods(cluster: WaltzCluster, count: int | None = None) -> tuple[str, ...]:
    """DNS names of the managed ZooKeeper's pods: as many as are wanted, or the first `count`; empty for an
    ensemble of one's own."""
    domain = f"{zookeeper_headless(cluster)}.{cluster.metadata.namespace}.svc"
    return tuple(f"{zookeeper_name(cluster)}-{n}.{domain}" for n in range(_servers(cluster, count)))


def zookeeper_claims(cluster: WaltzCluster, count: int | None = None) -> tuple[str, ...]:
    """Volume claims of the managed ensemble, by the names that its StatefulSet gives them; none of an
    ensemble of one's own."""
    return tuple(f"data-{zookeeper_name(cluster)}-{n}" for n in range(_servers(cluster, count)))


def _servers(cluster: WaltzCluster, count: int | None) -> int:
    managed = cluster.spec.zookeeper.managed
    if managed is None:
        return 0
    return zookeeper_replicas(cluster, managed) if count is None else count


def zookeeper_replicas(cluster: WaltzCluster, managed: ManagedZooKeeper) -> int:
    """Number of servers that are wanted. The definition cannot see how many machines there are; who wants
    three copies of every partition has them."""
    return managed.replicas or (ENSEMBLE if len(groups(cluster)) >= ENSEMBLE else 1)


def connect_string(cluster: WaltzCluster, members: int | None = None) -> str:
    """`zookeeper.connectString` of every role, of the operator and in the status. A managed ensemble is
    named pod by pod: clients try each. `members`: how many it has; None: as the status has it. It may have
    more than are wanted now, since it never shrinks."""
    managed = cluster.spec.zookeeper.managed
    if managed is None:
        return cluster.spec.zookeeper.connect_string or ""
    present = cluster.status.zookeeper.members if members is None else members
    pods = zookeeper_pods(cluster, max(zookeeper_replicas(cluster, managed), present))
    return ",".join(f"{pod}:{zookeeper_port(cluster)}" for pod in pods)


# -- certificates ------------------------------------------------------------------------------------------


class TlsRole(NamedTuple):
    """One certificate: its Secret (tls.crt, tls.key, ca.crt), its common name and what it covers.
    `combined`: key and certificate are in one file too (tls-combined.pem), as ZooKeeper wants them.

    The common name is short (X.509 allows 64 characters); `allowedPeers` names the first DNS name, which
    has the namespace.
    """

    role: str
    secret: str
    common_name: str
    dns_names: tuple[str, ...]
    addresses: tuple[str, ...] = ()
    combined: bool = False


def authority_secret(cluster: WaltzCluster) -> str:
    """Secret of the operator's own authority (mode SelfSigned): tls.crt, tls.key. Mounted nowhere."""
    return f"{cluster.metadata.name}-tls-ca"


def tls_roles(cluster: WaltzCluster) -> tuple[TlsRole, ...]:
    """The certificates of a cluster: server, storage, operator, client, and a ZooKeeper's with TLS. Empty
    without TLS.

    With mode Secret the Secrets are the person's and there is none for clients; names are what they should
    cover.
    """
    tls, name = cluster.spec.tls, cluster.metadata.name
    if tls.mode is TlsMode.DISABLED:
        return ()
    from_person = tls.secrets

    def secret(role: str) -> str:
        return str(getattr(from_person, role)) if from_person is not None else f"{name}-tls-{role}"

    namespace = cluster.metadata.namespace
    listener = cluster.spec.servers.external_listener
    outside = (f"*.{listener.domain}",) if listener is not None and listener.domain else ()
    found = {entry: shortest_address(entry) for entry in tls.extra_names}
    extra = tuple(entry for entry, address in found.items() if address is None)
    addresses = tuple(dict.fromkeys(address for address in found.values() if address is not None))
    roles: tuple[TlsRole, ...] = (
        TlsRole(
            "server",
            secret("server"),
            f"{name}-server",
            (
                server_peer(cluster),
                *_with_zone(f"*.{server_domain(cluster)}"),
                *_with_zone(f"{name}.{namespace}.svc"),
                *outside,
                *extra,
            ),
            addresses,
        ),
        TlsRole(
            "storage",
            secret("storage"),
            f"{name}-storage",
            (f"{name}-storage.{namespace}", *_with_zone(f"*.{storage_domain(cluster)}")),
        ),
        TlsRole("operator", secret("operator"), f"{name}-operator", (operator_peer(cluster),)),
    )
    if zookeeper_tls(cluster):
        names = (*_with_zone(f"*.{zookeeper_headless(cluster)}.{namespace}.svc"),)
        service = (*_with_zone(f"{zookeeper_name(cluster)}.{namespace}.svc"),)
        peer = f"{name}-zookeeper.{namespace}"
        roles += (
            TlsRole(
                "zookeeper", secret("zookeeper"), f"{name}-zookeeper", (peer, *names, *service), combined=True
            ),
        )
    if cluster.spec.console.enabled:
        service = _with_zone(f"{console_name(cluster)}.{namespace}.svc")
        names = (console_peer(cluster), *service, "localhost", *cluster.spec.console.hosts)
        roles += (TlsRole("console", secret("console"), f"{name}-console", names, ("127.0.0.1", "::1")),)
    if from_person is not None:
        return roles
    return (
        *roles,
        TlsRole("client", f"{name}-tls-client", f"{name}-client", (f"{name}-client.{namespace}",)),
    )


def server_peer(cluster: WaltzCluster) -> str:
    """Name in the servers' certificate by which storage nodes know them."""
    return f"{cluster.metadata.name}-server.{cluster.metadata.namespace}"


def operator_peer(cluster: WaltzCluster) -> str:
    """Name in the certificate of the operator, its jobs and tools."""
    return f"{cluster.metadata.name}-operator.{cluster.metadata.namespace}"


def console_peer(cluster: WaltzCluster) -> str:
    """Name in the certificate of the console."""
    return f"{cluster.metadata.name}-console.{cluster.metadata.namespace}"


def _with_zone(name: str) -> tuple[str, ...]:
    return name, f"{name}.cluster.local"
