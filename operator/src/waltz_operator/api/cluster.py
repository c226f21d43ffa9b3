"""`spec` of a WaltzCluster: what a person wants. Storage, servers and ZooKeeper in detail: `parts.py`.

The rules of the API server here keep what can never change (partitions, root, kind of ZooKeeper) and keep
alternatives apart; `validate.py` repeats what they say, for where no API server is in between (`waltz
k8s render`).
"""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, NamedTuple

from pydantic import Field

from waltz_operator.api.base import Model, ResourceName, immutable, list_map, rule, rules
from waltz_operator.api.cluster_status import WaltzClusterStatus
from waltz_operator.api.metadata import ObjectMeta
from waltz_operator.api.parts import Servers, Storage, ZooKeeper
from waltz_operator.api.security import Monitoring, NetworkPolicy, Tls

__all__ = [
    "Images",
    "PullPolicy",
    "ReclaimPolicy",
    "WaltzCluster",
    "WaltzClusterSpec",
    "WaltzClusterStatus",
]

MAX_PARTITIONS = 4096
MAX_REPLICAS = 9
DEFAULT_REPLICAS = 3


class PullPolicy(StrEnum):
    """When a node of Kubernetes fetches an image."""

    ALWAYS = "Always"
    IF_NOT_PRESENT = "IfNotPresent"
    NEVER = "Never"


class ReclaimPolicy(StrEnum):
    """What becomes of data that is no longer needed."""

    RETAIN = "Retain"
    DELETE = "Delete"


class PullSecret(Model):
    """A Secret with credentials of an image registry."""

    name: ResourceName = Field(description="Name of the Secret, in the namespace of the cluster.")


class Images(Model):
    """What the containers run."""

    server: str = Field(description="Image of the servers.", min_length=1, max_length=512)
    storage: str = Field(description="Image of the storage nodes.", min_length=1, max_length=512)
    zookeeper: str | None = Field(
        default=None,
        description="Image of the managed ZooKeeper; needed with zookeeper.managed. Default: none.",
        min_length=1,
        max_length=512,
    )
    pull_policy: PullPolicy = Field(default=PullPolicy.IF_NOT_PRESENT, description="When images are fetched.")
    pull_secrets: Annotated[tuple[PullSecret, ...], Field(json_schema_extra=list_map("name"))] = Field(
        default=(), description="Secrets with credentials of the registry.", max_length=16
    )


_EITHER = rule(
    "!(has(self.replicas) && has(self.storage) && has(self.storage.groups))",
    "give replicas (that many groups with one node each) or storage.groups, not both",
    "replicas",
)
_IMAGE = rule(
    "!has(self.zookeeper.managed) || has(self.images.zookeeper)",
    "images.zookeeper is needed for a managed ZooKeeper",
    "images",
)


_COPIES = (
    "(has({0}.storage) && has({0}.storage.groups) ? {0}.storage.groups.size() : "
    f"has({{0}}.replicas) ? {{0}}.replicas : {DEFAULT_REPLICAS})"
)
_NOT_TO_ONE = rule(
    f"{_COPIES.format('self')} > 1 || {_COPIES.format('oldSelf')} == 1",
    "a cluster of two or more copies cannot go back to one: a quorum of two copies is both of them, so neither can be "
    "given up; keep two, or make another cluster with one",
    "replicas",
)


class WaltzClusterSpec(Model):
    """The desired cluster."""

    model_config = Model.model_config | {"json_schema_extra": rules(_EITHER, _IMAGE, _NOT_TO_ONE)}

    images: Images = Field(description="What the containers run. A change is rolled out, one pod at a time.")
    partitions: int = Field(
        description="Number of partitions of the log. It can never be changed.",
        ge=1,
        le=MAX_PARTITIONS,
        json_schema_extra=immutable("the number of partitions"),
    )
    replicas: int | None = Field(
        default=None,
        description="Number of copies of every partition, one storage group with one node each; the groups are named 1, 2, "
        "3 … Shorthand for storage.groups. Default: 3 copies when storage.groups is not given.",
        ge=1,
        le=MAX_REPLICAS,
    )
    zookeeper: ZooKeeper = Field(description="Where the cluster's records are kept.")
    storage: Storage = Field(default_factory=Storage, description="The storage nodes.")
    servers: Servers = Field(default_factory=Servers, description="The servers.")
    tls: Tls = Field(default_factory=Tls, description="Encryption and certificates of all connections.")
    reclaim_policy: ReclaimPolicy = Field(
        default=ReclaimPolicy.RETAIN,
        description="What becomes of volumes when a node has been drained or the cluster is deleted: Retain keeps them; "
        "Delete removes them, after proof that they are not needed, and removes the cluster's records in ZooKeeper.",
    )
    monitoring: Monitoring = Field(
        default_factory=Monitoring, description="Objects for the Prometheus operator."
    )
    network_policy: NetworkPolicy = Field(
        default_factory=NetworkPolicy, description="Who may connect to which port."
    )
    paused: bool = Field(
        default=False,
        description="true: the operator changes nothing; it still looks, reports, and honours a deletion.",
    )


class WaltzCluster(NamedTuple):
    """One object, as the API server shows it. `unknown`: fields of its specification that this version does
    not know, dotted."""

    metadata: ObjectMeta
    spec: WaltzClusterSpec
    status: WaltzClusterStatus
    unknown: tuple[str, ...] = ()
