"""WaltzMigration: copies of partitions change their node. Spec and status."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, NamedTuple

from pydantic import Field

from waltz_operator.api.admission import ONE_TASK, OTHER_NODE, SAME_GROUP
from waltz_operator.api.base import (
    LIST_SET,
    Model,
    NodeName,
    NodeReference,
    StatusModel,
    immutable,
    list_map,
    rule,
    rules,
)
from waltz_operator.api.cluster_status import Condition
from waltz_operator.api.metadata import ObjectMeta

MIB = 1024 * 1024
PartitionNumber = Annotated[int, Field(ge=0)]


class Move(Model):
    """Partitions from one node to another one of the same group."""

    model_config = Model.model_config | {"json_schema_extra": rules(OTHER_NODE, SAME_GROUP)}

    source: NodeReference = Field(alias="from", description="Node that has them, <group>-<node>.")
    target: NodeReference = Field(
        alias="to", description="Node of the same group that gets them, <group>-<node>."
    )
    partitions: Annotated[tuple[PartitionNumber, ...] | None, Field(json_schema_extra=LIST_SET)] = Field(
        default=None,
        description="Ids of the partitions. Default: all that the node has.",
        min_length=1,
        max_length=4096,
    )


class Drain(Model):
    """All partitions off a node, to the other nodes of its group; then it holds nothing and can be taken out
    of the spec."""

    node: NodeReference = Field(description="The node, <group>-<node>.")


class Replace(Model):
    """A node whose disk is lost: what it held is copied again from the other groups, onto its new, empty
    disk."""

    node: NodeReference = Field(description="The node, <group>-<node>.")


class Spread(StrEnum):
    """What a rebalance spreads evenly."""

    PARTITIONS = "Partitions"
    BYTES = "Bytes"


class Rebalance(Model):
    """Partitions of a group spread evenly over its nodes."""

    group: NodeName = Field(description="Name of the group.")
    by: Spread = Field(
        default=Spread.PARTITIONS,
        description="What is spread evenly: the number of partitions, or the bytes of their copies. "
        "Default: Partitions.",
    )


class WaltzMigrationSpec(Model):
    """The desired migration. What it does is fixed when it is created."""

    model_config = Model.model_config | {
        "json_schema_extra": rules(
            ONE_TASK,
            *(
                rule(
                    f"has(self.{field}) == has(oldSelf.{field}) && (!has(self.{field}) || self.{field} == oldSelf.{field})",
                    "what a migration does is fixed when it is created: cancel it and make another one",
                    field,
                )
                for field in ("move", "drain", "replace", "rebalance")
            ),
            rule(
                "!oldSelf.cancel || self.cancel",
                "a migration that was cancelled cannot be resumed: create another one",
                "cancel",
            ),
        )
    }

    cluster: str = Field(
        description="Name of the WaltzCluster, in the same namespace.",
        min_length=1,
        max_length=63,
        json_schema_extra=immutable("the cluster of a migration"),
    )
    move: Move | None = Field(default=None, description="Move partitions from node to node. Default: none.")
    drain: Drain | None = Field(default=None, description="Drain a node. Default: none.")
    replace: Replace | None = Field(
        default=None, description="Refill a node whose disk is lost. Default: none."
    )
    rebalance: Rebalance | None = Field(default=None, description="Spread a group evenly. Default: none.")
    dry_run: bool = Field(
        default=False,
        description="true: only make the plan and show it in status; set it to false to carry it out.",
    )
    approve: bool = Field(
        default=True,
        description="false: make the plan and wait until this is true. The plan is made anew until then.",
    )
    cancel: bool = Field(
        default=False,
        description="true: stop as soon as it is safe; partitions that are past the point of no return are finished first.",
    )
    rate_limit_bytes_per_second: int = Field(
        default=50 * MIB,
        description="How fast all copy jobs of the migration together read and write at most, bytes per second; 0 = no limit.",
        ge=0,
    )
    allow_pause: bool = Field(
        default=False,
        description="true: writes to a partition may wait until its new copy has caught up; needed only where a cluster has "
        "one copy.",
    )
    concurrent_partitions: int = Field(
        default=4,
        description="Number of partitions that are moved at a time; each of them is proven on its own.",
        ge=1,
        le=32,
    )
    progress_deadline_seconds: int = Field(
        default=1800,
        description="How long it may get no further, in seconds, before it ends as Failed; what it waits its turn or is paused, and "
        "a copy that runs, do not count. 0 = no limit.",
        ge=0,
        le=30 * 24 * 3600,
    )


class MigrationPhase(StrEnum):
    """How far the whole migration is."""

    PENDING = "Pending"
    PLANNED = "Planned"
    RUNNING = "Running"
    CANCELLING = "Cancelling"
    COMPLETED = "Completed"
    CANCELLED = "Cancelled"
    FAILED = "Failed"


class MoveState(StrEnum):
    """The options of one partition: the last step that is proven to be done."""

    PENDING = "Pending"
    STARTED = "Started"
    TARGET_OFFLINE = "TargetOffline"
    COPYING = "Copying"
    COPIED = "Copied"
    VERIFIED = "Verified"
    TARGET_ONLINE = "TargetOnline"
    ASSIGNED = "Assigned"
    CAUGHT_UP = "CaughtUp"
    SOURCE_UNASSIGNED = "SourceUnassigned"
    SOURCE_GONE = "SourceGone"
    DONE = "Done"
    CANCELLED = "Cancelled"
    FAILED = "Failed"


class PartitionMove(StatusModel):
    """One partition of the migration."""

    partition: int = Field(description="Id of the partition.")
    source: str = Field(description="Node that gives it up, or that it is copied from, <group>-<node>.")
    target: str = Field(description="Node that gets it, <group>-<node>.")
    state: MoveState = Field(
        default=MoveState.PENDING, description="The last step that is proven to be done."
    )
    source_txid: int | None = Field(
        default=None,
        description="Id of the last transaction at the source when the copy began. Default: not known.",
    )
    copied_txid: int | None = Field(
        default=None, description="Id of the last transaction copied. Default: none."
    )
    verified_txid: int | None = Field(
        default=None,
        description="Id up to which both sides were found equal, record by record. Default: none.",
    )
    checksum: str | None = Field(
        default=None,
        description="Checksum over all records up to verifiedTxid, the same on both sides. Default: none.",
    )
    message: str = Field(default="", description="What it waits for, for a person.")


class EarlierPartitions(StatusModel):
    """Partitions of the migration that have ended and are no longer listed."""

    done: int = Field(default=0, description="Number of partitions that were done.")
    cancelled: int = Field(default=0, description="Number of partitions that were cancelled or failed.")
    transactions: int = Field(default=0, description="Number of transactions that were copied for them.")


class WaltzMigrationStatus(StatusModel):
    """What the operator saw last."""

    observed_generation: int = Field(
        default=0, description="Number of the generation of the spec that was worked on last."
    )
    phase: MigrationPhase = Field(
        default=MigrationPhase.PENDING, description="How far the whole migration is."
    )
    reason: str = Field(default="", description="The one word that matters most now.")
    message: str = Field(default="", description="How far it is and what it waits for, for a person.")
    what: str = Field(default="", description="What it does, in a few words.")
    conditions: Annotated[tuple[Condition, ...], Field(json_schema_extra=list_map("type"))] = Field(
        default=(),
        description="Planned, Running, Complete, Failed, Blocked; Valid (False) while a value cannot be read.",
    )
    plan: tuple[str, ...] = Field(
        default=(), description="What it would do, step by step, for a person; at most 100 lines."
    )
    partitions: Annotated[
        tuple[PartitionMove, ...], Field(json_schema_extra=list_map("partition", "target"))
    ] = Field(
        default=(),
        description="The partition in progress, those that ended last and those that come next: at most 100; "
        "earlier and pending count the others.",
    )
    earlier: EarlierPartitions = Field(
        default_factory=EarlierPartitions,
        description="Partitions that have ended and are no longer listed.",
    )
    pending: int = Field(
        default=0, description="Number of partitions that have not begun and are not listed."
    )
    progress: str = Field(default="", description="Partitions done of all partitions, as 3/8.")
    transactions_total: int | None = Field(
        default=None, description="Number of transactions to copy. Default: not known."
    )
    transactions_copied: int | None = Field(
        default=None, description="Number of transactions copied. Default: not known."
    )
    eta_seconds: int | None = Field(
        default=None, description="Time it will still take, seconds. Default: not known."
    )
    progressed_at: str | None = Field(
        default=None,
        description="When it got further last, or its turn came, RFC 3339; progressDeadlineSeconds counts from here. Default: "
        "nothing counts now.",
        json_schema_extra={"format": "date-time"},
    )
    failure: str = Field(default="", description="Why it is given up, for a person. Empty: it is not.")
    retried: str = Field(
        default="", description="Value of the annotation waltz.dev/retry that it was last begun again for."
    )
    cancellable: bool = Field(default=True, description="Whether cancel still leads back to where it began.")
    started_at: str | None = Field(
        default=None,
        description="When it began, RFC 3339. Default: not yet.",
        json_schema_extra={"format": "date-time"},
    )
    finished_at: str | None = Field(
        default=None,
        description="When it ended, RFC 3339. Default: not yet.",
        json_schema_extra={"format": "date-time"},
    )


class WaltzMigration(NamedTuple):
    """One object, as the API server shows it. `unknown`: fields of its specification that this version does
    not know, dotted."""

    metadata: ObjectMeta
    spec: WaltzMigrationSpec
    status: WaltzMigrationStatus
    unknown: tuple[str, ...] = ()
