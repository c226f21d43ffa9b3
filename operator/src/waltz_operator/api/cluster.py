"""`spec` of a WaltzCluster: what a person wants. Storage, servers and ZooKeeper in detail: `parts.py`.

The rules of the API server here keep what can never change (partitions, root, kind of ZooKeeper) and keep
alternatives apart; `validate.py` repeats what they say, for where no API server is in between (`waltz
k8s render`).
"""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, NamedTuple

from pydantic import Field

from waltz_operator.api.admission import (
    BARE_ADDRESS,
    EITHER_COPIES,
    IMAGES,
    ZOOKEEPER_SECRET,
    ZOOKEEPER_TLS,
)
from waltz_operator.api.base import LIST_SET, Model, ResourceName, immutable, list_map, rule, rules
from waltz_operator.api.cluster_status import WaltzClusterStatus
from waltz_operator.api.console import CONSOLE_IMAGE, CONSOLE_SECRET, Console
from waltz_operator.api.metadata import ObjectMeta
from waltz_operator.api.parts import CopyJobs, Storage, ZooKeeper
from waltz_operator.api.security import Monitoring, NetworkPolicy, Tls
from waltz_operator.api.servers import Servers

__all__ = [
    "Images",
    "PullPolicy",
    "ReclaimPolicy",
    "WaltzCluster",
    "WaltzClusterSpec",
    "WaltzClusterStatus",
]

VERSION_PATTERN = r"^(0|[1-9][0-9]{0,4})\.(0|[1-9][0-9]{0,4})\.(0|[1-9][0-9]{0,4})$"
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
    """What the containers run. An image that is given wins over the version."""

    registry: str | None = Field(
        default=None,
        description="What comes before the names waltz-server, waltz-storage, waltz-zookeeper and waltz-tools of the images that follow "
        "from version. Default: as the operator is set up, else nothing.",
        pattern=r"^[a-zA-Z0-9]([-a-zA-Z0-9._:/]*[a-zA-Z0-9])?$",
        max_length=400,
    )
    server: str | None = Field(
        default=None,
        description="Image of the servers. Default: that of version.",
        min_length=1,
        max_length=512,
    )
    storage: str | None = Field(
        default=None,
        description="Image of the storage nodes. Default: that of version.",
        min_length=1,
        max_length=512,
    )
    zookeeper: str | None = Field(
        default=None,
        description="Image of the managed ZooKeeper. Default: that of version.",
        min_length=1,
        max_length=512,
    )
    console: str | None = Field(
        default=None,
        description="Image of the console, which is that of the tools. Default: that of version.",
        min_length=1,
        max_length=512,
    )
    pull_policy: PullPolicy = Field(default=PullPolicy.IF_NOT_PRESENT, description="When images are fetched.")
    pull_secrets: Annotated[tuple[PullSecret, ...], Field(json_schema_extra=list_map("name"))] = Field(
        default=(),
        description="Secrets with credentials of the registry. Default: as the operator is set up.",
        max_length=16,
    )


class Day(StrEnum):
    """A day of the week."""

    MON = "Mon"
    TUE = "Tue"
    WED = "Wed"
    THU = "Thu"
    FRI = "Fri"
    SAT = "Sat"
    SUN = "Sun"


class RestartWindow(Model):
    """When pods may be restarted."""

    days: Annotated[tuple[Day, ...], Field(json_schema_extra=LIST_SET)] = Field(
        default=(), description="Days on which it opens. Default: every day.", max_length=7
    )
    start: str = Field(
        description="When it opens, as 02:00, UTC.", pattern=r"^([01][0-9]|2[0-3]):[0-5][0-9]$", max_length=5
    )
    duration_minutes: int = Field(
        default=120,
        description="How long restarts may begin, in minutes. One that has begun is finished.",
        ge=10,
        le=1440,
    )


class Restarts(Model):
    """When pods are restarted that have to be."""

    window: RestartWindow | None = Field(
        default=None,
        description="Pods that run are restarted in this window only, for whatever reason; the condition RestartRequired "
        "names it. Default: none (at once).",
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

    model_config = Model.model_config | {
        "json_schema_extra": rules(
            EITHER_COPIES,
            IMAGES,
            CONSOLE_IMAGE,
            ZOOKEEPER_TLS,
            ZOOKEEPER_SECRET,
            CONSOLE_SECRET,
            BARE_ADDRESS,
            _NOT_TO_ONE,
        )
    }

    version: str | None = Field(
        default=None,
        description="Release of Waltz that the cluster runs, as 0.1.0: its images follow from it. It goes up and down by one "
        "release at a time. Default: none (images names them).",
        pattern=VERSION_PATTERN,
        max_length=20,
    )
    images: Images = Field(
        default_factory=Images,
        description="What the containers run. A change is rolled out, one pod at a time.",
    )
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
    copy_jobs: CopyJobs = Field(
        default_factory=CopyJobs, description="The pods that copy partitions during a migration."
    )
    console: Console = Field(
        default_factory=Console,
        description="A web application that shows the cluster. Default: there is none.",
    )
    tls: Tls = Field(default_factory=Tls, description="Encryption and certificates of all connections.")
    restarts: Restarts = Field(
        default_factory=Restarts,
        description="When pods are restarted that have to be: for another image, configuration or authority, or a volume that "
        "grows with a restart.",
    )
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
