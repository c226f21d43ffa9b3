"""The parts of a cluster: ZooKeeper, storage groups and nodes, servers."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Any

from pydantic import Field

from waltz_operator.api.admission import (
    ADMIN_PORT,
    CONNECT_STRINGS,
    COUNT_OR_NODES,
    DOMAIN,
    EITHER_ZOOKEEPER,
    EXTERNAL,
    GROUP_IDS,
    ONE_AUTHENTICATION,
    PORTS,
    ROOT,
    pod_spec,
)
from waltz_operator.api.base import (
    Labels,
    Model,
    NodeName,
    ResourceName,
    ResourceQuantity,
    SizeQuantity,
    list_map,
    rule,
    rules,
)
from waltz_operator.api.journal import GROUP_VOLUMES, KEPT_VOLUME, VOLUME, NodeJournal

MAX_GROUPS = 9
MAX_NODES = 64
MAX_MEMBERS = 5
"""Of a managed ZooKeeper."""
MAX_PORT = 65535
STAYS_EXTERNAL = "a node cannot become external, nor cease to be"
_HOST = r"(\[[0-9a-fA-F:.]+\]|[^,/\s:.]{1,63}(\.[^,/\s:.]{1,63})*\.?)"

_OPEN = "has({0}.auth.acl) && {0}.auth.acl == 'open'"


def _kept(field: str, what: str) -> dict[str, str]:
    """A rule: an optional field is set once or never."""
    return rule(
        f"has(self.{field}) == has(oldSelf.{field}) && (!has(self.{field}) || self.{field} == oldSelf.{field})",
        f"{what} is fixed when it is created",
        field,
    )


def _grows(field: str) -> dict[str, str]:
    """A rule: a volume never shrinks."""
    return rule(
        f"!has(self.{field}) || !has(oldSelf.{field}) || quantity(self.{field}).compareTo(quantity(oldSelf.{field})) >= 0",
        "a volume cannot shrink",
        field,
    )


class Resources(Model):
    """Of one container."""

    requests: dict[str, ResourceQuantity] = Field(
        default_factory=dict, description="What is reserved, by resource: cpu in cores, memory in bytes."
    )
    limits: dict[str, ResourceQuantity] = Field(
        default_factory=dict,
        description="What is granted at most, by resource: cpu in cores, memory in bytes.",
    )


class TemplateMeta(Model):
    """Labels and annotations put on pods."""

    labels: Labels = Field(
        default_factory=dict, description="Labels added to the pods; those of the operator win."
    )
    annotations: Labels = Field(default_factory=dict, description="Annotations added to the pods.")


class PodTemplate(Model):
    """What a person puts over the operator's own pod template."""

    metadata: TemplateMeta = Field(
        default_factory=TemplateMeta, description="Labels and annotations added to the pods."
    )
    spec: Annotated[dict[str, Any], Field(json_schema_extra=pod_spec())] = Field(
        default_factory=dict,
        description="A piece of a Kubernetes PodSpec laid over the operator's: objects are merged, lists whose entries have a "
        "name (containers, env, volumes) are merged by it, other lists and affinity are replaced.",
    )


Config = Annotated[
    dict[str, str | int | float | bool],
    Field(json_schema_extra={"additionalProperties": {"x-kubernetes-preserve-unknown-fields": True}}),
]
"""Configuration keys of release 0.13.2 and ours; values are text, numbers or booleans."""


class ZooKeeperAuth(Model):
    """Credentials for ZooKeeper."""

    secret_name: ResourceName = Field(
        description="Secret, in the namespace of the cluster, that holds the credentials."
    )
    key: str = Field(
        default="auth",
        description="Key of the Secret whose value is user:password.",
        min_length=1,
        max_length=253,
    )
    scheme: str = Field(
        default="digest", description="Scheme of ZooKeeper's authentication.", min_length=1, max_length=63
    )
    acl: str = Field(
        default="creator",
        description="Permissions of the znodes that are created: open, creator, creator-world-read, or a list of "
        "scheme:id:permissions.",
        min_length=1,
        max_length=1024,
    )


class ZooKeeperAuthentication(StrEnum):
    """Who may read and write in the managed ZooKeeper."""

    NONE = "None"
    OPTIONAL = "Optional"
    DIGEST = "Digest"


class ZooKeeperTls(StrEnum):
    """Whether the managed ZooKeeper is reached, and its servers reach one another, through TLS."""

    ENABLED = "Enabled"
    DISABLED = "Disabled"


class ManagedZooKeeper(Model):
    """A ZooKeeper that the operator runs for this cluster alone."""

    model_config = Model.model_config | {
        "json_schema_extra": rules(
            _kept("storageClassName", "the storage class of ZooKeeper"),
            _kept("tls", "TLS of the managed ZooKeeper"),
            _grows("size"),
        )
    }

    replicas: int | None = Field(
        default=None,
        description="Number of ZooKeeper servers: 1, 3 to survive the loss of one, or 5 of two. It can grow, one server at a "
        "time, and never shrinks. Default: 3 for a cluster of 3 or more copies, which needs as many machines anyway, else 1.",
        json_schema_extra=rules(rule("self >= oldSelf", "the number of ZooKeeper servers can only grow"))
        | {"enum": [1, 3, MAX_MEMBERS]},
    )
    authentication: ZooKeeperAuthentication | None = Field(
        default=None,
        description="Who may read and write in it. Digest: who has the credentials in the Secret <name>-zookeeper-auth, which "
        "the operator makes; in an existing cluster they are given to all roles first, the znodes are closed last. Optional: "
        "everybody, and the credentials are there for applications to be prepared. None: everybody. Default: Digest for a "
        "cluster that begins with this release, what it was before for any other one.",
    )
    tls: ZooKeeperTls | None = Field(
        default=None,
        description="Enabled: it listens with TLS only (port 2281), everybody shows a certificate of the cluster's authority, and "
        "its servers talk to one another with TLS. Fixed when the cluster is created. Default: Disabled, as in every earlier release.",
    )
    size: SizeQuantity = Field(
        default="2Gi",
        description="Size of each volume, in bytes as Kubernetes writes them; it can grow.",
    )
    storage_class_name: ResourceName | None = Field(
        default=None, description="StorageClass of the volumes. Default: that of the Kubernetes cluster."
    )
    resources: Resources = Field(
        default_factory=lambda: Resources(
            requests={"cpu": "100m", "memory": "512Mi"}, limits={"memory": "512Mi"}
        ),
        description="Resources of each ZooKeeper server; its heap takes half of the memory limit.",
    )
    pod_template: PodTemplate = Field(
        default_factory=PodTemplate, description="What is laid over the pod template of ZooKeeper."
    )


class ZooKeeperExport(Model):
    """Copies of the cluster's records, made at intervals."""

    interval_hours: int = Field(default=24, description="Time between two copies, in hours.", ge=1, le=8760)
    keep: int = Field(
        default=7,
        description="Number of copies that are kept; fewer, where more do not fit into a Secret (700 kB, compressed).",
        ge=1,
        le=100,
    )


class ZooKeeper(Model):
    """Where the cluster's records are kept: an ensemble of your own, or a managed one."""

    model_config = Model.model_config | {
        "json_schema_extra": rules(
            EITHER_ZOOKEEPER,
            rule(
                "has(self.managed) == has(oldSelf.managed)",
                "a cluster cannot move between its own ensemble and a managed one in place: "
                "docs/operator-zookeeper.md has the way, by an export",
            ),
            _kept("root", "the root in ZooKeeper"),
            ONE_AUTHENTICATION,
            rule(
                f"has(oldSelf.auth) || !has(self.auth) || {_OPEN.format('self')}",
                "credentials are added in two steps, as pods without them are refused by the znodes that those with "
                "them create: first auth with acl: open, and when every pod has restarted the acl",
                "auth",
            ),
            rule(
                f"has(self.auth) || !has(oldSelf.auth) || {_OPEN.format('oldSelf')}",
                "credentials are taken away in two steps, as pods without them are refused by the znodes that those "
                "with them create: first acl: open, and when every pod has restarted and no znode is closed the rest",
                "auth",
            ),
            rule(
                "!has(oldSelf.adoptKey) || (has(self.adoptKey) && self.adoptKey == oldSelf.adoptKey)",
                "the key of an adopted cluster is fixed when it is first set",
                "adoptKey",
            ),
        )
    }

    connect_string: str | None = Field(
        default=None,
        description="Servers of your own ensemble, host:port,host:port; an IPv6 address in brackets. Default: none (a managed ZooKeeper).",
        min_length=3,
        max_length=1024,
        pattern=rf"^{_HOST}:[0-9]{{1,5}}(,{_HOST}:[0-9]{{1,5}})*$",
        json_schema_extra=rules(PORTS),
    )
    managed: ManagedZooKeeper | None = Field(
        default=None,
        description="A ZooKeeper that the operator runs. Default: none (an ensemble of your own).",
    )
    root: str | None = Field(
        default=None,
        description="Absolute path of the cluster's tree. It can never be changed. Default: /waltz/<namespace>/<name>.",
        pattern=r"^(/[^/\s]+)+$",
        max_length=512,
        json_schema_extra=rules(ROOT),
    )
    adopt_key: str | None = Field(
        default=None,
        description="Key (UUID) of a cluster that exists at root already, made by the command line or by release 0.13.2, and is to "
        "be taken over. Default: none; a tree that the operator has not made is then never touched.",
        pattern=r"^[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}$",
        max_length=36,
    )
    session_timeout_seconds: int = Field(
        default=10,
        description="Session timeout of servers and storage nodes, in seconds: a server stops this long after its last contact.",
        ge=2,
        le=600,
    )
    export: ZooKeeperExport | None = Field(
        default=None,
        description="Copies of the cluster's records, which `waltz zk import` takes, in the Secret <name>-zookeeper-export. "
        "Default: none.",
    )
    auth: ZooKeeperAuth | None = Field(
        default=None, description="Credentials from a Secret. Default: none (no authentication)."
    )


def _counted(of: str, count: str) -> str:
    """CEL: an external node of the group `of` has a name that a node has which is counted in `count`."""
    counted = f"(has({count}.count) ? {count}.count : 1)"
    name = "n.name.matches('^(0|[1-9][0-9]?)$')"
    return (
        f"has({of}.nodes) && !has({count}.nodes) && "
        f"{of}.nodes.exists(n, has(n.external) && n.external && {name} && int(n.name) < {counted})"
    )


class StorageNode(Model):
    """One node of a group."""

    model_config = Model.model_config | {
        "json_schema_extra": rules(
            EXTERNAL,
            ADMIN_PORT,
            rule(
                "self.external == oldSelf.external",
                STAYS_EXTERNAL,
                "external",
            ),
            _kept("connectString", "the connect string of a node"),
            _kept("adminPort", "the admin port of a node"),
        )
    }

    name: NodeName = Field(description="Name of the node within its group.")
    external: bool = Field(
        default=False,
        description="true: the node runs elsewhere (made by a person or by release 0.13.2); the operator makes no pod for it, but "
        "manages its partitions.",
    )
    connect_string: str | None = Field(
        default=None,
        description="host:port of the storage port of an external node, as it is in ZooKeeper. Default: derived from the "
        "node's pod.",
        pattern=r"^[^,/\s:]+:[0-9]{1,5}$",
        max_length=300,
        json_schema_extra=rules(PORTS),
    )
    admin_port: int | None = Field(
        default=None,
        description="Number of the admin port of an external node. Default: 55281.",
        ge=1,
        le=MAX_PORT,
    )


class Spread(StrEnum):
    """How strictly nodes are kept apart."""

    PREFERRED = "Preferred"
    REQUIRED = "Required"


class StorageGroup(Model):
    """One full copy of every partition: a set of nodes, all in one zone."""

    model_config = Model.model_config | {
        "json_schema_extra": rules(
            COUNT_OR_NODES,
            rule(
                f"!({_counted('oldSelf', 'self')}) && !({_counted('self', 'oldSelf')})",
                f"{STAYS_EXTERNAL}: give the new node another name in nodes, and take the old one out when it has no copies",
            ),
            _kept("id", "the id of a group"),
            _kept("zone", "the zone of a group"),
            _kept("storageClassName", "the storage class of a group"),
        )
    }

    name: NodeName = Field(description="Name of the group.")
    id: int | None = Field(
        default=None,
        description="Number of the group in ZooKeeper, needed only to adopt a cluster whose tree has the group already. Default: "
        "the number that its nodes have in the tree, else the name when it is a number that is free, else the smallest free one.",
        ge=0,
        le=2_147_483_647,
    )
    count: int | None = Field(
        default=None,
        description="Number of nodes; they are named 0, 1, 2 … Default: 1 node when nodes is not given.",
        ge=1,
        le=MAX_NODES,
    )
    nodes: Annotated[
        tuple[StorageNode, ...] | None,
        Field(json_schema_extra=list_map("name", **rules(CONNECT_STRINGS))),
    ] = Field(
        default=None,
        description="The nodes by name, so that any one of them can be taken out or replaced. Default: count nodes.",
        min_length=1,
        max_length=MAX_NODES,
    )
    zone: str | None = Field(
        default=None,
        description="Value of the label topology.kubernetes.io/zone of the Kubernetes nodes that may run this group. Default: "
        "any zone, groups spread over zones as far as possible.",
        min_length=1,
        max_length=63,
    )
    size: SizeQuantity | None = Field(
        default=None,
        description="Size of each volume of this group, in bytes as Kubernetes writes them; it can grow. Default: storage.size.",
    )
    storage_class_name: ResourceName | None = Field(
        default=None,
        description="StorageClass of the volumes of this group. Default: storage.storageClassName.",
    )
    resources: Resources | None = Field(
        default=None, description="Resources of each node of this group. Default: storage.resources."
    )


class Storage(Model):
    """The storage nodes; what is said here goes for all groups that say nothing else."""

    model_config = Model.model_config | {
        "json_schema_extra": rules(
            _kept("storageClassName", "the storage class"),
            VOLUME,
            GROUP_VOLUMES,
            KEPT_VOLUME,
        )
    }

    groups: Annotated[
        tuple[StorageGroup, ...] | None,
        Field(json_schema_extra=list_map("name", **rules(GROUP_IDS))),
    ] = Field(
        default=None,
        description="The groups, each one full copy of every partition. Default: as many as replicas says, one node each.",
        min_length=1,
        max_length=MAX_GROUPS,
    )
    size: SizeQuantity = Field(
        default="10Gi", description="Size of each volume, in bytes as Kubernetes writes them; it can grow."
    )
    storage_class_name: ResourceName | None = Field(
        default=None, description="StorageClass of the volumes. Default: that of the Kubernetes cluster."
    )
    resources: Resources = Field(
        default_factory=lambda: Resources(
            requests={"cpu": "250m", "memory": "512Mi"}, limits={"memory": "1Gi"}
        ),
        description="Resources of each storage node.",
    )
    spread: Spread = Field(
        default=Spread.PREFERRED,
        description="Whether nodes of different groups must run on different Kubernetes nodes (Required) or only do so where there "
        "are enough (Preferred).",
    )
    config: Config = Field(
        default_factory=dict,
        description="Configuration keys of the storage role (docs/configuration.md) that differ from what the operator sets; "
        "those that the operator must know (ports, directory, ZooKeeper, TLS) are refused.",
    )
    pod_template: PodTemplate = Field(
        default_factory=PodTemplate, description="What is laid over the pod template of the storage nodes."
    )
    journal: NodeJournal | None = Field(
        default=None, description="The journal of each node. Default: as config says, else none."
    )
    allow_pause: bool = Field(
        default=False,
        description="true: writes to a partition may wait, when a copy is added (until it has caught up; needed only to grow from 1 "
        "copy, or from 2 to 4) and when a node is restarted whose partitions have fewer than 3 copies.",
    )


class CopyJobs(Model):
    """The pods that copy partitions during a migration."""

    resources: Resources = Field(
        default_factory=lambda: Resources(
            requests={"cpu": "50m", "memory": "128Mi"}, limits={"memory": "512Mi"}
        ),
        description="Resources of each copy job.",
    )
    pod_template: PodTemplate = Field(
        default_factory=PodTemplate,
        description="What is laid over the pod template of copy jobs that begin from now on; its container is copy.",
    )


class AdvertisedAddress(StrEnum):
    """What clients outside the Kubernetes cluster connect to."""

    HOST_IP = "HostIP"
    POD_IP = "PodIP"


class ExternalListener(Model):
    """How clients outside the Kubernetes cluster reach the servers. Clients connect to each server by the
    address that it advertises in ZooKeeper, so this address must be one that they reach (and ZooKeeper
    too)."""

    address: AdvertisedAddress = Field(
        default=AdvertisedAddress.HOST_IP,
        description="What a server advertises: HostIP = the address of its Kubernetes node, on which hostPort is opened; "
        "PodIP = the pod's own address, for networks that route to pods.",
    )
    host_port: int = Field(
        default=31180,
        description="Number of the port opened on the Kubernetes node, with HostIP.",
        ge=1,
        le=MAX_PORT,
    )
    domain: str | None = Field(
        default=None,
        description="Servers advertise <address with dashes>.<domain> instead of the bare address; a wildcard record of the "
        "domain must resolve it, and certificates get *.<domain>. Default: none (the bare address, which the certificates "
        "have to have: tls.extraNames).",
        max_length=200,
        json_schema_extra=rules(DOMAIN),
    )
