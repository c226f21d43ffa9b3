"""The steps of one replica change: how far it has come is derived from ZooKeeper and both admin ports, never
remembered. Pure.

Target: offline and assigned on the node → copied and verified by a Job → available → assigned in ZooKeeper →
current. Source: unassigned in ZooKeeper → gone from the partition's metadata → removed on the node. Every
prefix is a safe stop: a copy that is not assigned in ZooKeeper counts for nothing, and the source stays a
full member until the target is current. The unavailable flag is set *before* the assignment on the node,
since a fresh one is available otherwise, and in the same step, since a node does not report it of a partition
that it does not have.

A small copy needs no Job: the operator assigns it on the node, copies, compares, switches the copy on and
assigns it in ZooKeeper in one pass, each only when the one before was done. That a Job has compared a copy is
read from the Job; of a small one nobody remembers it, so one that is found switched on and not assigned is
switched off and copied again, by a Job (ADR 29).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from waltz_cluster.replica_rules import NeverStarted, change_incomplete
from waltz_cluster.serializers import PartitionMetadata
from waltz_operator.api.migration import MoveState
from waltz_operator.model.actions import (
    Action,
    AssignInZooKeeper,
    AssignOnNode,
    Blocked,
    CopyPartition,
    DeleteJob,
    EmitEvent,
    RemoveOnNode,
    SetAvailability,
    StartCopyJob,
    UnassignInZooKeeper,
)
from waltz_operator.model.desired import Move, MoveKind
from waltz_operator.model.facts import Facts
from waltz_operator.model.reasons import Reason
from waltz_operator.model.snapshot import (
    JobView,
    NodeReplica,
    ObjectKey,
    TreeView,
    Unknown,
)
from waltz_operator.plan.safety_gates import Denied, denied, may_change, may_delete

DISK_MARGIN = 1.1
"""Free space that a target must have, as a multiple of what the source's copy takes."""
SMALL_COPY_BYTES = 1024 * 1024
"""A copy of so many bytes takes less time than the start of a Job."""
COPY_START_SECONDS = 60.0
"""A copy job none of whose pods runs after this is reported."""
COPY_PAUSE_SECONDS = 30.0
"""A copy job that came to nothing stays for so long before it is made again."""


@dataclass(frozen=True, slots=True)
class ChangeOptions:
    """How a change is to be carried out: name of its copy job, rate (bytes per second, 0 = unlimited),
    whether writes may pause, what other copies that are under way still take of the target's disk, whether
    the files of a removed copy are deleted, what Events are about (None: the cluster)."""

    job: str
    migration: str = ""
    rate_limit_bytes: int = 0
    allow_pause: bool = False
    reserved_bytes: int = 0
    delete_files: bool = True
    about: ObjectKey | None = None


@dataclass(frozen=True, slots=True)
class Step:
    """`state` is the last step proven to be done; `actions` the next one (none: wait); `finished`:
    nothing is left to do."""

    state: MoveState
    actions: tuple[Action, ...] = ()
    blocked: Blocked | None = None
    message: str = ""
    finished: bool = False

    @property
    def awaits_servers(self) -> bool:
        """Whether nothing is missing but that the servers begin a session with the new assignments."""
        waits = not self.actions and self.blocked is None
        return waits and self.state in (MoveState.ASSIGNED, MoveState.SOURCE_UNASSIGNED)


def next_step(facts: Facts, move: Move, options: ChangeOptions) -> Step:
    """The next step of the change."""
    if not isinstance(facts.tree, TreeView):
        return _stop(
            MoveState.PENDING, denied(_what(move), Reason.ZOOKEEPER_UNKNOWN, "ZooKeeper was not read")
        )
    if move.kind is MoveKind.REFILL and move.source is not None and _to_refill(facts, move):
        return _unassign(facts, facts.tree, move, move.source)
    if move.target is None and move.kind is not MoveKind.DROP:
        text = "no node of the group may take it"
        return _stop(MoveState.PENDING, denied(_what(move), Reason.NO_TARGET, text, move.partition))
    if move.target is not None:
        step = _bring_in(facts, facts.tree, move, move.target, options)
        if not step.finished or move.kind is not MoveKind.MOVE or move.source is None:
            return step
        out = _take_out(facts, facts.tree, move, move.source, options)
        return replace(out, actions=(*step.actions, *out.actions))
    if move.source is None:
        return Step(MoveState.DONE, finished=True)
    return _take_out(facts, facts.tree, move, move.source, options)


def undo_step(facts: Facts, move: Move, options: ChangeOptions) -> Step | None:
    """The next step back, or None past the point of no return (then the change is finished, not undone)."""
    if not undoable(facts, move):
        return None
    job = facts.job(options.job)
    if job is not None:
        return Step(MoveState.STARTED, _delete_job(options.job, job, "the change is taken back"))
    target = move.target
    if target is None or not facts.staying(target):
        return Step(MoveState.CANCELLED, finished=True)  # what a leaving node has is taken off it anyway
    replica = facts.replica(move.partition, target)
    if isinstance(replica, Unknown):
        return _stop(
            MoveState.STARTED, denied(_what(move), Reason.NODE_SILENT, f"{target}: {replica.reason}")
        )
    if replica is None:
        return Step(MoveState.CANCELLED, finished=True)
    answer = may_delete(facts, _what(move), move.partition, target)
    if isinstance(answer, Denied):
        return _stop(MoveState.STARTED, answer)
    remove = RemoveOnNode(
        target, facts.admin_port(target), move.partition, True, f"the change was taken back; {answer.proof}"
    )
    return Step(MoveState.STARTED, (remove,), message="taking it back")


def undoable(facts: Facts, move: Move) -> bool:
    """Whether nothing has happened yet that other copies depend on."""
    if move.kind is MoveKind.REFILL:  # once it was unassigned there is one copy less until it is done
        return move.target in facts.holders(move.partition) and _to_refill(facts, move)
    if move.kind is MoveKind.DROP:
        return move.source in facts.holders(move.partition)
    return move.target not in facts.holders(move.partition)


def _what(move: Move) -> str:
    return f"{move.kind.value} of partition {move.partition}"


def _stop(state: MoveState, answer: Denied) -> Step:
    return Step(state, blocked=answer.blocked, message=answer.blocked.text)


def _delete_job(name: str, job: JobView, reason: str) -> tuple[Action, ...]:
    return () if job.deleting else (DeleteJob(name, job.uid, reason),)


# ------------------------------------------------------------------------------------------------- the target


def _bring_in(facts: Facts, tree: TreeView, move: Move, target: str, options: ChangeOptions) -> Step:
    partition, what = move.partition, _what(move)
    holders = facts.holders(partition)
    if target in holders:
        return _wait_current(facts, move, target, options)
    if target not in tree.groups:
        return _stop(
            MoveState.STARTED, denied(what, Reason.NO_TARGET, f"{target} is not registered", partition)
        )
    replica = facts.replica(partition, target)
    if isinstance(replica, Unknown):
        return _stop(
            MoveState.STARTED, denied(what, Reason.NODE_SILENT, f"{target}: {replica.reason}", partition)
        )
    gate = may_change(facts, what, partition, {*holders, target}, allow_pause=options.allow_pause)
    assign = AssignInZooKeeper({target: (partition,)}, tree.versions[1], options.allow_pause)
    if isinstance(facts.record(partition), NeverStarted):
        return Step(MoveState.STARTED, (assign,), message="it was never started: nothing to copy")
    if replica is None:
        job = facts.job(options.job)
        if job is not None:  # its answer would be about data that is gone
            return Step(
                MoveState.STARTED, _delete_job(options.job, job, "the target lost what it had copied")
            )
        if isinstance(gate, Denied):
            return _stop(MoveState.STARTED, gate)
        step = _assign_offline(facts, move, target, options)
        copy = None if step.blocked is not None else _small_copy(facts, move, target, options)
        if copy is None:
            return step
        return replace(step, actions=(*step.actions, copy, _online(facts, move, target), assign))
    fill = _fill(facts, move, target, replica, options)
    if fill is not None:
        return fill
    online = _online(facts, move, target)
    if isinstance(gate, Denied):
        if not replica.available:
            return Step(MoveState.VERIFIED, (online,), message="it goes online")
        return _stop(MoveState.TARGET_ONLINE, gate)
    if not replica.available:
        return Step(MoveState.VERIFIED, (online, assign), message=gate.proof)
    return Step(MoveState.TARGET_ONLINE, (assign,), message=gate.proof)


def _online(facts: Facts, move: Move, target: str) -> SetAvailability:
    return SetAvailability(target, facts.admin_port(target), move.partition, True)


def _small_copy(facts: Facts, move: Move, target: str, options: ChangeOptions) -> CopyPartition | None:
    """The copy into a partition that the target is being assigned, where the operator makes it itself: it is
    small, also by its rate, and the target is a pod of the cluster. It is tried once: what is found assigned
    already is completed by a Job."""
    source = _copy_source(facts, move)
    if source is None:
        return None
    node, held = source
    size, rate, identity = held.size_bytes, options.rate_limit_bytes, facts.identity(target)
    if size is None or size > SMALL_COPY_BYTES or 0 < rate < size:
        return None
    if identity is None or identity.external:
        return None
    return CopyPartition(move.partition, node, facts.admin_port(node), target, facts.admin_port(target))


def _assign_offline(facts: Facts, move: Move, target: str, options: ChangeOptions) -> Step:
    view = facts.node(target)
    source = _copy_source(facts, move)
    needed = source[1].size_bytes if source is not None else None
    free = None if isinstance(view, Unknown) else view.disk_free_bytes
    taken = options.reserved_bytes
    if needed is not None and free is not None and free < (needed + taken) * DISK_MARGIN:
        others = f", others that are under way {taken}" if taken else ""
        text = f"{target} has {free} bytes free, the copy takes {needed}{others}"
        return _stop(MoveState.STARTED, denied(_what(move), Reason.DISK_FULL, text, move.partition))
    port = facts.admin_port(target)
    return Step(
        MoveState.STARTED,
        (
            SetAvailability(target, port, move.partition, False),
            AssignOnNode(target, port, (move.partition,)),
        ),
        message="it is assigned on the target, offline",
    )


def _fill(facts: Facts, move: Move, target: str, replica: NodeReplica, options: ChangeOptions) -> Step | None:
    """Copy and verify; None when that is proven to be done."""
    partition, what = move.partition, _what(move)
    job = facts.job(options.job)
    if job is not None and (job.deleting or (job.partition, job.target) != (partition, target)):
        return Step(
            MoveState.TARGET_OFFLINE,
            _delete_job(options.job, job, "it is of another change"),
            message="waits for the old job",
        )
    if job is not None and job.state == "succeeded" and verified(job, replica):
        return None
    source = _copy_source(facts, move)
    if job is None and source is not None and _empty(source[1], replica):
        return None
    if replica.available:
        offline = SetAvailability(target, facts.admin_port(target), partition, False)
        return Step(MoveState.STARTED, (offline,), message="it was online without having been verified")
    if job is not None and job.state == "active":
        return _copying(facts, move, replica, job, options)
    if job is not None:
        return _not_copied(facts, move, job, options)
    if source is None:
        text = "no replica is proven to be current"
        return _stop(MoveState.TARGET_OFFLINE, denied(what, Reason.NO_SOURCE, text, partition))
    node = source[0]
    start = StartCopyJob(
        options.job,
        options.migration,
        partition,
        node,
        facts.admin_port(node),
        target,
        facts.admin_port(target),
        options.rate_limit_bytes,
    )
    return Step(MoveState.TARGET_OFFLINE, (start,), message=f"it is copied from {node}")


def _copying(facts: Facts, move: Move, replica: NodeReplica, job: JobView, options: ChangeOptions) -> Step:
    """Wait for it; report a job that does not start."""
    if job.waits and facts.now - job.waits_since >= COPY_START_SECONDS:
        text = f"copy job {options.job} does not start: {job.waits}"
        return _stop(MoveState.COPYING, denied(_what(move), Reason.POD_STUCK, text, move.partition))
    return Step(MoveState.COPYING, message=f"copied up to {replica.low_water_mark}")


def _not_copied(facts: Facts, move: Move, job: JobView, options: ChangeOptions) -> Step:
    """It ended and proves nothing: it is made again, after a pause when it did not work, else it might fail
    many times a minute."""
    pausing = facts.now - max(job.started_at, job.ended_at) < COPY_PAUSE_SECONDS
    if job.state == "failed":
        text = f"the copy job failed: {job.message or 'it left no message'}"
        refusal = denied(_what(move), Reason.COPY_FAILED, text, move.partition)
        if pausing:
            return _stop(MoveState.TARGET_OFFLINE, refusal)
        about = options.about or ObjectKey("WaltzCluster", facts.desired.name)
        event = EmitEvent(
            about, refusal.blocked.reason, f"{refusal.blocked.text}; it is tried again", "Warning"
        )
        actions = (event, *_delete_job(options.job, job, f"it failed: {job.message}"))
        return Step(MoveState.TARGET_OFFLINE, actions, message=text)
    if job.verified_through is None and pausing:
        return Step(MoveState.COPYING, message="its report is not there yet")
    reason = "its result can't be read or no longer holds"
    return Step(
        MoveState.TARGET_OFFLINE, _delete_job(options.job, job, reason), message=f"copy job: {reason}"
    )


def verified(job: JobView, replica: NodeReplica) -> bool:
    """Whether what the job compared is still there."""
    return job.verified_through is not None and replica.low_water_mark >= job.verified_through


def _empty(source: NodeReplica, target: NodeReplica) -> bool:
    """Positively nothing to copy: the source reports that it has no record, and the target has none
    either."""
    return source.max_transaction_id == -1 and target.max_transaction_id == -1


def still_to_copy(facts: Facts, moves: Iterable[Move], target: str | None) -> int:
    """Bytes that these changes will still write to the target."""
    total = 0
    for move in moves:
        source = _copy_source(facts, move) if move.target == target else None
        here = facts.replica(move.partition, target or "")
        if source is not None and target not in facts.holders(move.partition):
            there = here.size_bytes if isinstance(here, NodeReplica) else 0
            total += max(0, (source[1].size_bytes or 0) - (there or 0))
    return total


def _copy_source(facts: Facts, move: Move) -> tuple[str, NodeReplica] | None:
    """A current replica to copy from: the one that leaves, else the one with the highest mark."""
    found = [
        (node, replica)
        for node in facts.current(move.partition, facts.holders(move.partition))
        if node != move.target and isinstance(replica := facts.replica(move.partition, node), NodeReplica)
    ]
    return max(
        found, key=lambda one: (one[0] == move.source, one[1].local_low_water_mark, one[0]), default=None
    )


def _wait_current(facts: Facts, move: Move, target: str, options: ChangeOptions) -> Step:
    reason = facts.not_current(move.partition, target)
    record = facts.record(move.partition)
    if reason and not isinstance(record, NeverStarted):
        return Step(MoveState.ASSIGNED, message=f"{target} catches up: {reason}")
    if isinstance(record, PartitionMetadata) and change_incomplete(record, facts.holders(move.partition)):
        return Step(MoveState.ASSIGNED, message="the new session is not complete")
    job = facts.job(options.job)
    over = () if job is None else _delete_job(options.job, job, "its copy is in service")
    return Step(MoveState.CAUGHT_UP, over, finished=True)


# ------------------------------------------------------------------------------------------------- the source


def _to_refill(facts: Facts, move: Move) -> bool:
    node = move.target or ""
    return node in facts.holders(move.partition) and facts.data_lost(move.partition, node)


def _unassign(facts: Facts, tree: TreeView, move: Move, source: str) -> Step:
    partition = move.partition
    left = [node for node in facts.holders(partition) if node != source]
    before = MoveState.CAUGHT_UP if move.kind is MoveKind.MOVE else MoveState.STARTED
    answer = may_change(facts, _what(move), partition, left)
    if isinstance(answer, Denied):
        return _stop(before, answer)
    return Step(
        before,
        (UnassignInZooKeeper(source, partition, tree.versions[1], answer.proof),),
        message=answer.proof,
    )


def _take_out(facts: Facts, tree: TreeView, move: Move, source: str, options: ChangeOptions) -> Step:
    partition, what = move.partition, _what(move)
    if source in facts.holders(partition):
        return _unassign(facts, tree, move, source)
    record = facts.record(partition)
    if isinstance(record, Unknown):
        return _stop(
            MoveState.SOURCE_UNASSIGNED, denied(what, Reason.METADATA_UNKNOWN, record.reason, partition)
        )
    if isinstance(record, PartitionMetadata) and source in record.replicas:
        return Step(
            MoveState.SOURCE_UNASSIGNED, message=f"the metadata still counts {source} among the replicas"
        )
    if source not in tree.groups:  # a node is only unregistered when it is proven to be empty
        return Step(MoveState.DONE, finished=True)
    replica = facts.replica(partition, source)
    if isinstance(replica, Unknown):
        return _stop(
            MoveState.SOURCE_GONE, denied(what, Reason.NODE_SILENT, f"{source}: {replica.reason}", partition)
        )
    if replica is None:
        return Step(MoveState.DONE, finished=True)
    answer = may_delete(facts, what, partition, source)
    if isinstance(answer, Denied):
        return _stop(MoveState.SOURCE_GONE, answer)
    remove = RemoveOnNode(source, facts.admin_port(source), partition, options.delete_files, answer.proof)
    return Step(MoveState.SOURCE_GONE, (remove,), message=answer.proof)
