"""`status` of a WaltzCluster: what the operator saw last and what it is at. Written by the operator
alone."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Literal

from pydantic import Field

from waltz_operator.api.base import StatusModel, list_map

MAX_MESSAGE = 32768
"""Characters of a condition's message."""


class ConditionType(StrEnum):
    """Conditions of a WaltzCluster."""

    AVAILABLE = "Available"
    PROGRESSING = "Progressing"
    DEGRADED = "Degraded"
    REPLICAS_CAUGHT_UP = "ReplicasCaughtUp"
    VALID = "Valid"
    PAUSED = "Paused"
    RESTART_REQUIRED = "RestartRequired"


ConditionStatus = Literal["True", "False", "Unknown"]


class Condition(StatusModel):
    """One fact about the object, as in all Kubernetes resources."""

    type: str = Field(description="Name of the fact.", max_length=316)
    status: ConditionStatus = Field(description="Whether it holds: True, False or Unknown.")
    reason: str = Field(description="Why, in one word of a fixed list.", max_length=1024)
    message: str = Field(default="", description="Why, for a person.", max_length=MAX_MESSAGE)
    last_transition_time: str = Field(
        description="When status changed last, RFC 3339.", json_schema_extra={"format": "date-time"}
    )
    observed_generation: int = Field(
        default=0, description="Number of the generation of the spec it was seen for."
    )


class NodePhase(StrEnum):
    """How far a storage node is on its way in or out."""

    PENDING = "Pending"
    RUNNING = "Running"
    DRAINING = "Draining"
    DRAINED = "Drained"
    RESTARTING = "Restarting"
    UNKNOWN = "Unknown"


class NodeStatus(StatusModel):
    """One storage node."""

    name: str = Field(
        description="Group and node, <group>-<node>. An external node has -external behind it where another node has its name."
    )
    connect_string: str = Field(description="host:port as it is in ZooKeeper.")
    phase: NodePhase = Field(default=NodePhase.UNKNOWN, description="How far it is on its way in or out.")
    pod: str | None = Field(default=None, description="Name of its pod. Default: none (an external node).")
    zone: str | None = Field(default=None, description="Zone of its group. Default: none.")
    ready: bool | None = Field(
        default=None,
        description="Whether it answers and none of its partitions is out of service. Default: not known.",
    )
    registered: bool | None = Field(
        default=None, description="Whether it is in ZooKeeper. Default: not known."
    )
    partitions: int | None = Field(
        default=None, description="Number of partitions assigned to it in ZooKeeper. Default: not known."
    )
    worst_lag: int | None = Field(
        default=None,
        description="Largest number of transactions that one of its partitions is behind. Default: not known.",
    )
    disk_bytes: int | None = Field(default=None, description="Size of its disk, bytes. Default: not known.")
    disk_free_bytes: int | None = Field(
        default=None, description="Free on its disk, bytes. Default: not known."
    )
    restart_needed: str | None = Field(
        default=None,
        description="Why it waits for a restart (image, configuration, authority …). Default: it does not.",
    )
    message: str = Field(default="", description="What is the matter, for a person.")


class RunningImage(StatusModel):
    """Pods of one part of the cluster that run the same image."""

    component: str = Field(description="What they are: storage, server or zookeeper.")
    image: str = Field(description="Image of their container.", max_length=1024)
    version: str | None = Field(
        default=None,
        description="Release, by the tag of the image or of the one that the operator wrote. Default: not known.",
    )
    pods: int = Field(description="Number of pods.")
    names: tuple[str, ...] = Field(default=(), description="Names of the first of them, at most 10.")


class PartitionSummary(StatusModel):
    """All partitions in a few numbers."""

    total: int = Field(description="Number of partitions.")
    healthy: int | None = Field(
        default=None,
        description="Number of partitions that take writes: a server has a quorum. Default: not known.",
    )
    caught_up: int | None = Field(
        default=None,
        description="Number of partitions all of whose copies are in the current session. Default: not known.",
    )
    worst_lag: int | None = Field(
        default=None, description="Largest number of transactions that a copy is behind. Default: not known."
    )
    first_blocking: int | None = Field(
        default=None,
        description="Id of the first partition that blocks what the operator is at. Default: none.",
    )
    unhealthy: tuple[int, ...] = Field(
        default=(), description="Ids of the first partitions that take no writes, at most 10."
    )


class Operation(StatusModel):
    """What the operator is at: one replica change or restart at a time. Written before it begins, read back
    after a crash."""

    kind: str = Field(description="What: Create, AddReplica, RemoveReplica, RestartStorage, Migrate …")
    id: str = Field(default="", description="Distinguishes this operation from another one of the same kind.")
    partition: int | None = Field(default=None, description="Id of the partition it changes. Default: none.")
    source: str | None = Field(
        default=None, description="Node that gives up a copy, or is copied from. Default: none."
    )
    target: str | None = Field(default=None, description="Node or pod it is done to. Default: none.")
    step: str = Field(default="", description="The step that is due or under way.")
    message: str = Field(default="", description="How far it is and what it waits for, for a person.")
    blocked_by: str = Field(default="", description="What blocks it, with the first partition.")
    started_at: str | None = Field(
        default=None,
        description="When it began, RFC 3339. Default: not known.",
        json_schema_extra={"format": "date-time"},
    )


class Endpoints(StatusModel):
    """What clients need to know."""

    servers: tuple[str, ...] = Field(
        default=(),
        description="servers for clients, in place of zookeeper and root: the Service in front of the servers that are "
        "ready, from which a client finds all of them. Such a client needs no ZooKeeper, and servers of this release.",
    )
    zookeeper: str = Field(default="", description="zookeeper.connectString for clients.")
    zookeeper_tls: bool = Field(
        default=False,
        description="Whether zookeeper is reached through TLS: clients set zookeeper.ssl.trustStore.location and "
        "zookeeper.ssl.keyStore.location to the files of clientSecret.",
    )
    root: str = Field(default="", description="cluster.root for clients.")
    zookeeper_secret: str = Field(
        default="",
        description="Secret whose key zookeeper.auth has the credentials for the managed ZooKeeper; empty when there are none.",
    )
    service: str = Field(
        default="", description="host:port of the Service in front of the servers, for tools."
    )
    client_secret: str = Field(
        default="",
        description="Secret with tls.crt, tls.key and ca.crt for clients; empty when TLS does not need one.",
    )


class ZooKeeperStatus(StatusModel):
    """Who may use the managed ZooKeeper, how many servers it has, and copies of it."""

    authentication: str | None = Field(
        default=None,
        description="Who may read and write in it: None, Optional or Digest. Default: not yet known.",
    )
    login: str = Field(
        default="None",
        description="What servers and storage nodes are configured with: None; Shared, with credentials, and what they create "
        "is open; Own, with credentials, and what they create is closed to others.",
    )
    credentials: str = Field(
        default="",
        description="Digest of the credentials that are in use. Others in the Secret, or none, are never given to anybody.",
    )
    closed: bool | None = Field(
        default=None, description="Whether all of it is closed to who has no credentials. Default: not known."
    )
    members: int = Field(
        default=0,
        description="Number of servers that the managed ensemble has. It counts while its StatefulSet is gone.",
    )
    exported_at: str | None = Field(
        default=None,
        description="When the newest copy of the cluster's records was made, RFC 3339. Default: there is none.",
        json_schema_extra={"format": "date-time"},
    )


class RoleCertificate(StatusModel):
    """The certificates that the processes of one role use, as they show them to the operator."""

    role: str = Field(description="Who: storage or server.")
    secret_until: str | None = Field(
        default=None,
        description="When the certificate in the Secret of the role ends, RFC 3339. Default: not known.",
        json_schema_extra={"format": "date-time"},
    )
    in_use_until: str = Field(
        description="When the certificate in use ends that ends first, of those that differ from the Secret's if there are any, "
        "RFC 3339.",
        json_schema_extra={"format": "date-time"},
    )
    in_use_serial: str = Field(default="", description="Serial number of that one, hexadecimal.")
    in_use_by: str = Field(default="", description="host:port of the process that uses it.")
    differing: int = Field(
        default=0, description="Number of processes that use another one than the Secret has."
    )
    differs_since: str | None = Field(
        default=None,
        description="Since when there are such, RFC 3339. Default: there are none.",
        json_schema_extra={"format": "date-time"},
    )


class ServerMoveState(StrEnum):
    """What came of a decision."""

    DUE = "Due"
    DONE = "Done"
    GIVEN_UP = "GivenUp"


class ServerMoveStatus(StatusModel):
    """A partition that moves from one server to another because of the load."""

    partition: int = Field(description="Id of the partition.")
    source: int = Field(description="Id of the server that gives it up.")
    target: int = Field(description="Id of the server that takes it.")
    at: str = Field(description="When it was decided, RFC 3339.", json_schema_extra={"format": "date-time"})
    state: ServerMoveState = Field(
        default=ServerMoveState.DUE,
        description="Due: decided, and written in ZooKeeper next; Done: the target has it; GivenUp: something came in between.",
    )
    message: str = Field(default="", description="Why, for a person.", max_length=1024)


class ServersStatus(StatusModel):
    """The servers; what the scale subresource reads."""

    replicas: int = Field(default=0, description="Number of server pods.")
    ready: int = Field(default=0, description="Number of server pods that serve all their partitions.")
    selector: str = Field(default="", description="Label selector of the server pods.")
    moves: tuple[ServerMoveStatus, ...] = Field(
        default=(),
        description="The last partitions that moved because of the load, at most 32; those whose cooldownMinutes have not "
        "passed are among them.",
        max_length=32,
    )


class ConsoleStatus(StatusModel):
    """The console. Nothing else depends on it."""

    ready: bool = Field(default=False, description="Whether it listens.")
    address: str = Field(default="", description="URL of its Service, within the Kubernetes cluster.")
    token_secret: str = Field(default="", description="Secret whose key token has the token for its login.")
    message: str = Field(default="", description="Why it does not run, for a person.")


class WaltzClusterStatus(StatusModel):
    """What the operator saw last."""

    observed_generation: int = Field(
        default=0, description="Number of the generation of the spec that was worked on last."
    )
    conditions: Annotated[tuple[Condition, ...], Field(json_schema_extra=list_map("type"))] = Field(
        default=(),
        description="Available, Progressing, Degraded, ReplicasCaughtUp, Valid, Paused, RestartRequired.",
        max_length=32,
    )
    phase: str = Field(default="", description="The state of the whole, in one word.")
    reason: str = Field(default="", description="The one word that matters most now.")
    replicas: str = Field(default="", description="Caught-up groups of all groups, as 3/3.")
    server_counts: str = Field(default="", description="Ready servers of all servers, as 2/2.")
    version: str | None = Field(
        default=None,
        description="Release that the cluster has or is brought to: the last spec.version that was accepted. Default: none.",
    )
    running_versions: str = Field(
        default="", description="Releases that the pods run, as 0.1.0 or, during an upgrade, 0.1.0, 0.2.0."
    )
    running: tuple[RunningImage, ...] = Field(
        default=(), description="What the pods run: the first 32 kinds of image.", max_length=32
    )
    nodes: Annotated[tuple[NodeStatus, ...], Field(json_schema_extra=list_map("name"))] = Field(
        default=(), description="Every storage node."
    )
    partitions: PartitionSummary | None = Field(
        default=None, description="All partitions. Default: not known."
    )
    operation: Operation | None = Field(
        default=None, description="What the operator is at. Default: nothing."
    )
    operator: str | None = Field(
        default=None,
        description="The installation of the operator that works on the cluster: namespace and name of its Lease. "
        "Default: not yet known.",
    )
    zookeeper: ZooKeeperStatus = Field(
        default_factory=ZooKeeperStatus, description="Who may use the managed ZooKeeper, and copies of it."
    )
    servers: ServersStatus = Field(default_factory=ServersStatus, description="The servers.")
    console: ConsoleStatus | None = Field(default=None, description="The console. Default: there is none.")
    endpoints: Endpoints = Field(default_factory=Endpoints, description="What clients need to know.")
    certificates: Annotated[tuple[RoleCertificate, ...], Field(json_schema_extra=list_map("role"))] = Field(
        default=(), description="The certificates in use, by role.", max_length=8
    )
    cluster_key: str | None = Field(
        default=None,
        description="Key of the cluster, recorded when its tree was made or adopted: a tree in ZooKeeper with another key, or "
        "none, is never touched. Default: not yet known.",
    )

    def condition(self, kind: str) -> Condition | None:
        """The condition of that type."""
        return next((found for found in self.conditions if found.type == kind), None)
