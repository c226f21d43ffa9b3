"""Everything that the operator does to the world: a closed union of values, carried out by `run.apply`
alone.

Each action is one external write, idempotent, and carries the preconditions under which it is right (uid,
data version): when the world has changed meanwhile, the write is refused and the next reconcile plans again.
`line` says it to a person. `destructive`: the applier proves it once more right before the write
(`plan.preconditions`); what deletes carries the `proof` it depends on, for the audit log.

The two unions at the end say which writer carries out which action: `KubernetesAction` by
`run.write_kubernetes`, `WaltzAction` by `run.write_waltz`. A new action is a class here, a member of
one union, and a case in that writer.

Pure.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, TypeAlias
from uuid import UUID

from waltz_cluster.moving import ServerMove
from waltz_operator.api.cluster_status import WaltzClusterStatus
from waltz_operator.api.migration import WaltzMigrationStatus
from waltz_operator.model.snapshot import Closure, ObjectKey


def _ids(partitions: tuple[int, ...]) -> str:
    shown = ", ".join(map(str, partitions[:8]))
    return (
        f"partition {shown}"
        if len(partitions) == 1
        else f"{len(partitions)} partitions ({shown}{', …' * (len(partitions) > 8)})"
    )


# ------------------------------------------------------------------------------------------------- Kubernetes


@dataclass(frozen=True, slots=True)
class ApplyObject:
    """Server-side apply, by force on our own fields. `body` carries its applied-hash already; `reason`
    says what differs; `uid` is that of the object that the look showed under the name, empty when it showed
    none of the cluster's."""

    key: ObjectKey
    body: Mapping[str, Any]
    reason: str
    uid: str = ""
    destructive: ClassVar[bool] = False

    @property
    def line(self) -> str:
        return f"apply {self.key.kind} {self.key.name}: {self.reason}"


@dataclass(frozen=True, slots=True)
class DeleteObject:
    """Delete under the uid; dependants go by garbage collection (background)."""

    key: ObjectKey
    uid: str
    reason: str
    destructive: ClassVar[bool] = True

    @property
    def line(self) -> str:
        return f"delete {self.key.kind} {self.key.name}: {self.reason}"


@dataclass(frozen=True, slots=True)
class DeletePod:
    """Restart a storage node: delete its pod under the uid, with its grace period. `proof`: what the gate
    found."""

    name: str
    uid: str
    reason: str
    proof: str
    destructive: ClassVar[bool] = True

    @property
    def line(self) -> str:
        return f"restart {self.name}: {self.reason} ({self.proof})"


@dataclass(frozen=True, slots=True)
class DeletePVC:
    """Delete a volume claim, and with it the data, under the uid."""

    name: str
    uid: str
    proof: str
    destructive: ClassVar[bool] = True

    @property
    def line(self) -> str:
        return f"delete PersistentVolumeClaim {self.name}: {self.proof}"


@dataclass(frozen=True, slots=True)
class OwnObject:
    """Make the cluster, which is being deleted, an owner of one of its objects, under the uid: garbage
    collection deletes it after the cluster. Other owners stay."""

    key: ObjectKey
    uid: str
    reason: str
    destructive: ClassVar[bool] = False

    @property
    def line(self) -> str:
        return f"let {self.key.kind} {self.key.name} go with the cluster: {self.reason}"


@dataclass(frozen=True, slots=True)
class DisownObject:
    """Remove the cluster from the owners of an object that holds data, under the uid: garbage collection
    deletes what the cluster owns, whatever the reclaim policy says by then. Other owners stay."""

    key: ObjectKey
    uid: str
    reason: str
    destructive: ClassVar[bool] = False

    @property
    def line(self) -> str:
        return f"keep {self.key.kind} {self.key.name}: {self.reason}"


@dataclass(frozen=True, slots=True)
class GiveUpVolume:
    """Delete a volume claim of a node that stays, under the uid: its data and its journal do not belong
    together, and a migration fills it again from other copies."""

    name: str
    uid: str
    proof: str
    destructive: ClassVar[bool] = True

    @property
    def line(self) -> str:
        return f"give up PersistentVolumeClaim {self.name}: {self.proof}"


# -------------------------------------------------------------------------------------------------- ZooKeeper


@dataclass(frozen=True, slots=True)
class CreateTree:
    """Make the cluster in ZooKeeper with exactly this key. Refused when anything is at the root already. Only
    planned while no key was ever recorded: a tree that is missing later was lost and is never seeded
    again."""

    name: str
    num_partitions: int
    cluster_key: UUID
    destructive: ClassVar[bool] = False

    @property
    def line(self) -> str:
        return f"create cluster {self.name} with {self.num_partitions} partitions in ZooKeeper, key {self.cluster_key}"


@dataclass(frozen=True, slots=True)
class MarkZooKeeper:
    """Set the permissions of all znodes of the managed ZooKeeper, and the mark on its root that says so
    (`model.login`). Done again it does the same."""

    mark: Closure
    destructive: ClassVar[bool] = False

    @property
    def line(self) -> str:
        if self.mark is Closure.CHANGING:
            return "mark ZooKeeper as being closed or opened"
        whom = "who has the credentials" if self.mark is Closure.CLOSED else "everybody"
        return f"let {whom} read and write all znodes of ZooKeeper"


@dataclass(frozen=True, slots=True)
class DeleteTree:
    """Delete the cluster in ZooKeeper, only if it still has this key and no server is registered."""

    name: str
    cluster_key: UUID
    proof: str
    destructive: ClassVar[bool] = True

    @property
    def line(self) -> str:
        return f"delete cluster {self.name} (key {self.cluster_key}) from ZooKeeper: {self.proof}"


@dataclass(frozen=True, slots=True)
class RegisterNode:
    """Add a storage node, without partitions. Proven once more because it binds: a node that has left and has
    no pod left could never be unregistered again."""

    node: str
    admin_port: int
    group: int
    destructive: ClassVar[bool] = True

    @property
    def line(self) -> str:
        return f"register storage node {self.node} in group {self.group}"


@dataclass(frozen=True, slots=True)
class UnregisterNode:
    """Forget a storage node that was proven to be empty."""

    node: str
    proof: str
    destructive: ClassVar[bool] = True

    @property
    def line(self) -> str:
        return f"unregister storage node {self.node}: {self.proof}"


@dataclass(frozen=True, slots=True)
class AssignInZooKeeper:
    """Add partitions to storage nodes: one transaction, under the data version of the assignments and safety
    rule A6 for each partition.

    `allow_pause` as in `waltz_admin.safety.check_change`: writes may stop until the added copy has caught
    up.
    """

    additions: Mapping[str, tuple[int, ...]]
    expect_version: int
    allow_pause: bool = False
    destructive: ClassVar[bool] = True

    @property
    def line(self) -> str:
        return "assign in ZooKeeper: " + "; ".join(
            f"{_ids(p)} to {n}" for n, p in sorted(self.additions.items())
        )


@dataclass(frozen=True, slots=True)
class UnassignInZooKeeper:
    """Take one partition from one storage node, under the data version of the assignments and safety rule
    A6."""

    node: str
    partition: int
    expect_version: int
    proof: str
    destructive: ClassVar[bool] = True

    @property
    def line(self) -> str:
        return f"unassign in ZooKeeper: partition {self.partition} from {self.node}: {self.proof}"


@dataclass(frozen=True, slots=True)
class MovePartitions:
    """Give partitions to other servers: one write of the assignment, for the servers that were registered
    (`cversion`). Each pauses for a moment."""

    moves: tuple[ServerMove, ...]
    cversion: int
    destructive: ClassVar[bool] = True

    @property
    def line(self) -> str:
        return "move by load: " + "; ".join(
            f"partition {one.partition} from server {one.source} to {one.target}" for one in self.moves
        )


# --------------------------------------------------------------------------------------- admin ports, servers


@dataclass(frozen=True, slots=True)
class AssignOnNode:
    """Assign these partitions on a storage node. One that was never on it is available afterwards,
    unless it was set unavailable *before* (the flag outlives un-assignment only that way round: un-assigning
    sets it back to available)."""

    node: str
    admin_port: int
    partitions: tuple[int, ...]
    destructive: ClassVar[bool] = True

    @property
    def line(self) -> str:
        return f"assign {_ids(self.partitions)} on {self.node}"


@dataclass(frozen=True, slots=True)
class SetAvailability:
    """Switch the available flag of one partition on a storage node, whether or not it is assigned there."""

    node: str
    admin_port: int
    partition: int
    online: bool
    destructive: ClassVar[bool] = False

    @property
    def line(self) -> str:
        return (
            f"set partition {self.partition} {'available' if self.online else 'unavailable'} on {self.node}"
        )


@dataclass(frozen=True, slots=True)
class RemoveOnNode:
    """Unassign the partition on a storage node; `delete_files` deletes its records."""

    node: str
    admin_port: int
    partition: int
    delete_files: bool
    proof: str
    destructive: ClassVar[bool] = True

    @property
    def line(self) -> str:
        files = "and delete its files" if self.delete_files else "and keep its files"
        return f"remove partition {self.partition} on {self.node} {files}: {self.proof}"


@dataclass(frozen=True, slots=True)
class CopyPartition:
    """Copy a small partition from `source` to `target` and compare both copies, at once and by the operator
    itself. What follows it in a plan is done only when both are equal; nobody remembers that they were."""

    partition: int
    source: str
    source_admin_port: int
    target: str
    target_admin_port: int
    destructive: ClassVar[bool] = False

    @property
    def line(self) -> str:
        return f"copy partition {self.partition} from {self.source} to {self.target}, and compare both"


@dataclass(frozen=True, slots=True)
class StartCopyJob:
    """Copy and verify a partition from `source` to `target` in a Job. Rate in bytes per second, 0 =
    unlimited."""

    name: str
    migration: str
    partition: int
    source: str
    source_admin_port: int
    target: str
    target_admin_port: int
    rate_limit_bytes: int
    destructive: ClassVar[bool] = False

    @property
    def line(self) -> str:
        return f"copy partition {self.partition} from {self.source} to {self.target} ({self.name})"


@dataclass(frozen=True, slots=True)
class DeleteJob:
    """Delete a copy Job and its pod under the uid. The copy can be started again."""

    name: str
    uid: str
    reason: str
    destructive: ClassVar[bool] = False

    @property
    def line(self) -> str:
        return f"delete Job {self.name}: {self.reason}"


# ---------------------------------------------------------------------------------------- reporting to people


@dataclass(frozen=True, slots=True)
class EmitEvent:
    """An Event about the object `about`. `type` is Normal or Warning; `reason` one of
    `reasons.Reason`. `at`: of a change of status, when it was; the same one at another time is another
    Event."""

    about: ObjectKey
    reason: str
    text: str
    type: str = "Normal"
    at: str = ""
    destructive: ClassVar[bool] = False

    @property
    def line(self) -> str:
        return f"event {self.reason}: {self.text}"


@dataclass(frozen=True, slots=True)
class SetStatus:
    """Write the whole status of the WaltzCluster or WaltzMigration `about`, under its resource version: a
    planner that read an old status must not write over a newer one."""

    about: ObjectKey
    uid: str
    resource_version: str
    status: WaltzClusterStatus | WaltzMigrationStatus
    destructive: ClassVar[bool] = False

    @property
    def line(self) -> str:
        return f"write the status of {self.about.kind} {self.about.name}"


@dataclass(frozen=True, slots=True)
class SetFinalizer:
    """Put our finalizer on the object of this uid, or take it off (`present` False), which lets the object
    go: the first write for an object and the last one. The reconcile loop's own action, not the planner's: a
    plan says when the teardown is complete."""

    key: ObjectKey
    uid: str
    present: bool
    destructive: ClassVar[bool] = False

    @property
    def line(self) -> str:
        if self.present:
            return f"put the finalizer on {self.key.kind} {self.key.name}"
        return f"teardown is complete: let {self.key.kind} {self.key.name} go"


KubernetesAction: TypeAlias = (
    ApplyObject | DeleteObject | DeletePod | DeletePVC | DisownObject | OwnObject | GiveUpVolume | StartCopyJob | DeleteJob
    | EmitEvent | SetStatus | SetFinalizer
)  # fmt: skip
"""Carried out by `run.write_kubernetes`: calls of the API server."""
WaltzAction: TypeAlias = (
    CreateTree | DeleteTree | MarkZooKeeper | RegisterNode | UnregisterNode | AssignInZooKeeper | UnassignInZooKeeper
    | AssignOnNode | SetAvailability | RemoveOnNode | CopyPartition | MovePartitions
)  # fmt: skip
"""Carried out by `run.write_waltz`: ZooKeeper and storage nodes. Done when they return; no watch reports
them."""
Action: TypeAlias = KubernetesAction | WaltzAction


@dataclass(frozen=True, slots=True)
class Blocked:
    """A step that may not be done now. `what` names the step, `reason` is a typed
    reason, `text` one line."""

    what: str
    reason: str
    text: str
    partition: int | None = None


@dataclass(frozen=True, slots=True)
class Plan:
    """`actions` in order: the first that fails ends the pass; one ApplyObject that is refused for good does
    not, the rest is planned anew without it. `requeue_seconds`: observe again after that at the latest.

    `status` is what the status is to be (also when it is what it was, and no SetStatus is in `actions`).
    """

    actions: tuple[Action, ...]
    status: WaltzClusterStatus | WaltzMigrationStatus
    blocked: tuple[Blocked, ...] = ()
    requeue_seconds: float = 30.0
    teardown_complete: bool = False
    """Of an object that is being deleted: nothing is left to do, its finalizer can go."""
