"""The plan for one WaltzMigration: a state machine over the steps of each partition, some partitions at a
time, one step of each per pass, and of all of them one change of the assignments in ZooKeeper. Pure.

Pending → Planned (dry run, or not approved yet) → Running → Completed. `cancel` takes the partition under
way back while nothing depends on it, else finishes it, and stops. One that gets no further for as long as its
deadline says is given up: what can be taken back is, the rest stays at its last step, which is a safe stop;
then it has Failed, holds up nobody, and a person may have it begun again. Which partitions are concerned and
where each has come is derived from what is seen; the status names the one under way (written before its first
step), and what a person wants to know.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from waltz_operator.api.migration import MigrationPhase, MoveState
from waltz_operator.model.actions import (
    Action,
    AssignInZooKeeper,
    Blocked,
    DeleteJob,
    Plan,
    SetStatus,
    UnassignInZooKeeper,
)
from waltz_operator.model.desired import Move, MoveKind
from waltz_operator.model.facts import Facts, facts_of
from waltz_operator.model.reasons import Reason
from waltz_operator.model.snapshot import Failure, KubeView, ObjectKey, Snapshot, TreeView
from waltz_operator.model.task import FINISHED_STATES, Record, Task, TaskKind, closed, with_record
from waltz_operator.model.texts import first_texts
from waltz_operator.plan.builder import AT_ONCE, BRIEFLY, LATER, SOON
from waltz_operator.plan.cordons import why_no_target
from waltz_operator.plan.deadline import expired, timed
from waltz_operator.plan.lost_journal import empty_again, empty_first
from waltz_operator.plan.move_steps import (
    ChangeOptions,
    Step,
    next_step,
    still_to_copy,
    undo_step,
    undoable,
)
from waltz_operator.plan.placement import able_first, copies_in, task_moves, unknown_node, weights_of
from waltz_operator.plan.precedence import refiller, refills
from waltz_operator.plan.safety_gates import Denied, may_change
from waltz_operator.plan.status.events import migration_events
from waltz_operator.plan.status.migration import migration_status

MAX_TRIED = 64


@dataclass(slots=True)
class TaskDecision:
    """`task` as its status is to record it. `counts`: whether the time until the next pass counts for its
    deadline."""

    task: Task
    counts: bool = True
    actions: list[Action] = field(default_factory=list)
    blocked: list[Blocked] = field(default_factory=list)
    reason: Reason = Reason.AS_WANTED
    message: str = ""
    requeue_seconds: float = LATER
    teardown_complete: bool = False


def plan_migration(name: str, snapshot: Snapshot, facts: Facts | None = None) -> Plan:
    """What is to be done for the migration of that name now. KeyError when the snapshot has none of that
    name. `facts`: those of the snapshot, where they are known already."""
    migration = {one.metadata.name: one for one in snapshot.migrations}[name]
    if facts is None:
        facts = facts_of(snapshot)
    task = next(one for one in facts.tasks if one.name == name)
    decision = (
        decide_task(facts, task)
        if snapshot.failed is None
        else _reported_failure(facts, task, snapshot.failed)
    )
    status = migration_status(
        migration, facts, decision.task, decision.blocked, decision.reason, decision.message
    )
    actions = list(decision.actions)
    if status != migration.status and not decision.teardown_complete:
        about = ObjectKey("WaltzMigration", name)
        actions.append(SetStatus(about, migration.metadata.uid, migration.metadata.resource_version, status))
        cluster = ObjectKey("WaltzCluster", snapshot.cluster.metadata.name)
        actions.extend(migration_events(about, cluster, migration.status, status))
    return Plan(
        tuple(actions), status, tuple(decision.blocked), decision.requeue_seconds, decision.teardown_complete
    )


def _reported_failure(facts: Facts, task: Task, failed: Failure) -> TaskDecision:
    """A write of this pass failed: that is reported, and what the next pass reads back stays, until it has
    failed for as long as the deadline says."""
    reason = Reason.REFUSED_CHANGE if failed.for_good else Reason.WRITE_FAILED
    blocked = Blocked(f"migration {task.name}", reason, failed.text)
    decision = TaskDecision(task, blocked=[blocked], reason=reason, message=failed.text)
    jobs = [facts.job(options_of(facts, task, one.move).job) for one in task.under_way]
    if not task.over and expired(facts, task, jobs):
        why = f"{reason}: it got no further for {task.deadline_seconds} s: {failed.text}"
        if task.under_way and not task.failure:
            decision.task = replace(
                task, phase=MigrationPhase.CANCELLING, failure=why, progressed_at=facts.now
            )
        else:
            _give_up(task, decision, task.failure or why)
    return decision


def decide_task(facts: Facts, task: Task) -> TaskDecision:
    """The decision, before it is reported."""
    if task.over:
        return _ended(facts, task)
    decision = TaskDecision(replace(task, retry=""))
    _decide(facts, decision.task, decision)
    decision.task = timed(facts, task, decision.task, counts=decision.counts)
    return decision


def _decide(facts: Facts, task: Task, decision: TaskDecision) -> None:
    stop = _cannot_work(facts, task)
    if stop is not None:
        decision.blocked.append(stop)
        decision.reason, decision.message = Reason(stop.reason), stop.text
        decision.counts = stop.reason in (Reason.NO_TARGET, Reason.NODE_SILENT)
        if task.deleting and task.in_flight is None:
            decision.teardown_complete = True
        decision.requeue_seconds = SOON
        if decision.counts and expired(facts, task):
            _give_up(task, decision, f"{stop.reason}: {stop.text}")
        return
    if task.unlisted:
        task = decision.task = _listed_again(facts, task)
    if task.under_way:
        again = empty_again(facts, task)
        decision.actions.extend(again.actions)
        decision.blocked.extend(again.blocked)
        for record in task.under_way:
            _continue(facts, task, record, decision)
        if len(decision.task.under_way) < task.parallel and not (task.cancel or task.failure):
            _begin_more(facts, task, decision)
    elif task.failure:
        _give_up(task, decision, task.failure)
    elif task.cancel:
        decision.task = replace(task, phase=MigrationPhase.CANCELLED, records=closed(task.records))
        decision.reason, decision.message = Reason.CANCELLED, "it was cancelled"
        decision.requeue_seconds = SOON
    else:
        _go_on(facts, task, decision)


def _ended(facts: Facts, task: Task) -> TaskDecision:
    """It is over; one that has failed is begun again when a person asks for it and nobody else is at work.
    What it could not take back is then under way again."""
    decision = TaskDecision(replace(task, retry=""))
    decision.message = f"it is {task.phase.value.lower()}"
    decision.teardown_complete = task.deleting
    if task.phase is not MigrationPhase.FAILED or task.deleting:
        return decision
    decision.reason, decision.message = Reason.FAILED, task.failure
    if not task.retry:
        return decision
    other = _others_turn(facts, task)
    decision.requeue_seconds = SOON
    if other is not None:
        decision.task, decision.message = task, f"{task.failure}; to be begun again: {other}"
        return decision
    again = tuple(
        replace(one, state=MoveState.STARTED) if one.state is MoveState.FAILED else one
        for one in task.records
        if one.state is not MoveState.CANCELLED
    )
    decision.task = replace(
        decision.task,
        phase=MigrationPhase.PENDING,
        failure="",
        records=again,
        # what was not done is to be done again, and counts once
        earlier=task.earlier._replace(cancelled=0),
        unlisted=task.unlisted + task.earlier.cancelled + len(task.records) - len(again),
        progressed_at=None,
    )
    decision.reason, decision.message = Reason.MIGRATING, "it is begun again"
    decision.requeue_seconds = AT_ONCE
    return decision


def _listed_again(facts: Facts, task: Task) -> Task:
    """With the partitions that have not begun and that the status does not list."""
    known = {record.move.partition for record in task.records}
    rest = [Record(move) for move in task_moves(facts, task) if move.partition not in known]
    return replace(task, records=(*task.records, *rest), unlisted=0)


def _give_up(task: Task, decision: TaskDecision, why: str) -> None:
    """It has failed; what is under way stays as it is, at a safe stop."""
    records = tuple(replace(one, state=MoveState.FAILED) if one.in_flight else one for one in task.records)
    left = next((one for one in records if one.state is MoveState.FAILED), None)
    if left is not None and "is left" not in why:
        why += f"; partition {left.move.partition} is left as it was"
    decision.task = replace(task, phase=MigrationPhase.FAILED, failure=why, records=closed(records))
    decision.reason, decision.message, decision.requeue_seconds = Reason.FAILED, why, SOON


def _cannot_work(facts: Facts, task: Task) -> Blocked | None:
    what = f"migration {task.name}"
    if facts.problems or facts.desired.deleting:
        return Blocked(what, Reason.INVALID_SPEC, "its cluster is not valid, or is being deleted")
    if facts.unreadable:
        return Blocked(what, Reason.INVALID_SPEC, first_texts(facts.unreadable))
    if facts.desired.paused:
        return Blocked(what, Reason.PAUSED, "its cluster is paused")
    if not isinstance(facts.tree, TreeView) or not isinstance(facts.kube, KubeView):
        reason = getattr(
            facts.tree, "reason", getattr(facts.kube, "reason", "the cluster is not in ZooKeeper")
        )
        return Blocked(what, Reason.ZOOKEEPER_UNKNOWN, reason)
    if facts.memory.cluster_key is None or facts.memory.cluster_key != facts.tree.cluster_key:
        return Blocked(
            what, Reason.FOREIGN_TREE, "the tree in ZooKeeper is not proven to be that of its cluster"
        )
    if task.in_flight is not None:
        return None
    unknown = None if task.cancel else unknown_node(facts, task)
    if unknown is not None:
        return Blocked(what, Reason.NO_TARGET, unknown)
    if not task.cancel and weights_of(facts, task) is None:
        text = f"a storage node of group {task.group} does not report how large its copies are"
        return Blocked(what, Reason.NODE_SILENT, text)
    return None


def options_of(facts: Facts, task: Task, move: Move) -> ChangeOptions:
    """How the migration carries out a change."""
    others = [one.move for one in task.under_way if one.move.same != move.same]
    left = sum(one.state not in FINISHED_STATES for one in task.records)
    jobs = max(1, min(task.parallel, left))
    return ChangeOptions(
        facts.desired.copy_job(task.name, move.partition),
        task.name,
        -(-task.rate_limit_bytes // jobs),
        task.allow_pause,
        still_to_copy(facts, others, move.target),
        about=ObjectKey("WaltzMigration", task.name),
    )


def _continue(facts: Facts, task: Task, record: Record, decision: TaskDecision) -> None:
    """The next step of the partition under way, forwards or back."""
    first = refiller(facts, record.move.partition)
    if task.kind is not TaskKind.REPLACE and first is not None:
        text = f"partition {record.move.partition}: migration {first} refills a lost copy of it first"
        decision.blocked.append(
            Blocked(f"migration {task.name}", Reason.WAITING_ITS_TURN, text, record.move.partition)
        )
        decision.reason, decision.message, decision.requeue_seconds = Reason.WAITING_ITS_TURN, text, SOON
        decision.counts = False
        return
    options = options_of(facts, task, record.move)
    back = bool(task.cancel or task.failure) or _in_the_way(facts, record.move) is not None
    step = undo_step(facts, record.move, options) if back else None
    undone = step is not None
    if step is None:
        step = _forward(facts, record.move, options)
    if not step.actions and not step.finished and _to_give_up(facts, task, record, step, decision):
        return
    if _assigns(step.actions) and _assigns(decision.actions):
        decision.requeue_seconds = AT_ONCE
        return  # one change of the assignments at a time: each is proven by what is there before it
    state = step.state
    if step.finished:
        state = MoveState.CANCELLED if undone else MoveState.DONE
    decision.actions.extend(step.actions)
    if step.blocked is not None:
        decision.blocked.append(step.blocked)
    leads = task.under_way[0] is record
    if leads or step.blocked is not None:
        decision.reason = Reason(step.blocked.reason) if step.blocked is not None else Reason.MIGRATING
        decision.message = step.message
    giving_up = task.cancel or decision.task.failure
    decision.task = replace(
        decision.task,
        phase=MigrationPhase.CANCELLING if giving_up else MigrationPhase.RUNNING,
        records=with_record(decision.task.records, _reported(facts, record, options, state, step)),
    )
    soon = AT_ONCE if step.finished else BRIEFLY if step.awaits_servers else SOON
    decision.requeue_seconds = min(decision.requeue_seconds, soon)


def _assigns(actions: Iterable[Action]) -> bool:
    return any(isinstance(one, AssignInZooKeeper | UnassignInZooKeeper) for one in actions)


def _to_give_up(facts: Facts, task: Task, record: Record, step: Step, decision: TaskDecision) -> bool:
    """Whether that was decided: to take back what is under way, recorded before the first step back, or to
    leave it, when that cannot be done or takes too long too."""
    jobs = [facts.job(options_of(facts, task, one.move).job) for one in task.under_way]
    late = expired(facts, task, jobs)
    why = step.blocked.text if step.blocked else f"partition {record.move.partition}: {step.message}"
    reason = Reason(step.blocked.reason) if step.blocked is not None else Reason.MIGRATING
    if not task.failure and late:
        failure = f"{reason}: it got no further for {task.deadline_seconds} s: {why}"
        decision.task = replace(decision.task, phase=MigrationPhase.CANCELLING, failure=failure)
        decision.reason, decision.message, decision.requeue_seconds = reason, failure, AT_ONCE
        return True
    if task.failure and (late or step.blocked is not None or not undoable(facts, record.move)):
        left = replace(record, state=MoveState.FAILED, message=why)
        decision.task = replace(decision.task, records=with_record(decision.task.records, left))
        decision.reason, decision.message, decision.requeue_seconds = reason, task.failure, AT_ONCE
        return True
    return False


def _forward(facts: Facts, move: Move, options: ChangeOptions) -> Step:
    """Forwards; a change whose target leaves the specification ends where it is: what is left to do is the
    cluster's."""
    if move.target is not None and not facts.staying(move.target):
        return Step(MoveState.DONE, finished=True)
    return next_step(facts, move, options)


def _in_the_way(facts: Facts, move: Move) -> str | None:
    """Why the change leads nowhere now: its target is not in the specification, its group has another copy
    already, or it waits for a lost copy of a node that leaves, which is given up first. None when it does
    lead somewhere."""
    target, holders = move.target, facts.holders(move.partition)
    if target is None:
        return f"no other node of its group can take it: add one{why_no_target(facts, move)}"
    if not facts.staying(target):
        return f"{target} is not in the specification"
    if move.source is not None and not facts.staying(move.source) and target not in holders:
        lost = facts.data_lost(move.partition, move.source)
        answer = may_change(facts, move.kind.value, move.partition, {*holders, target})
        if lost and isinstance(answer, Denied):
            return f"the copy on {move.source} is lost, and is given up first"
    if move.kind is MoveKind.REFILL or target in facts.holders(move.partition):
        return None
    others = [n for n in copies_in(facts, facts.group(target), move.partition) if n != move.source]
    return f"{', '.join(others)} of the same group has a copy already" if others else None


def _reported(facts: Facts, record: Record, options: ChangeOptions, state: MoveState, step: Step) -> Record:
    job = facts.job(options.job)
    replica = facts.replica(record.move.partition, record.move.target or "")
    copied = getattr(replica, "low_water_mark", None)
    found = replace(record, state=state, message=step.message)
    if copied is not None:
        found = replace(found, copied_txid=copied)
    if record.source_txid is None:
        found = replace(found, source_txid=facts.highest(record.move.partition))
    if job is not None and job.state == "succeeded" and job.verified_through is not None:
        found = replace(found, verified_through=job.verified_through, checksum=job.checksum)
    return found


def _go_on(facts: Facts, task: Task, decision: TaskDecision) -> None:
    """Plan, and begin the next partition when it is this migration's turn."""
    todo = list(task_moves(facts, task))
    ended = [record for record in task.records if record.state in FINISHED_STATES]
    records = (*_keep(ended, todo), *(Record(move) for move in todo))
    decision.task = replace(task, records=records)
    if not task.approved or task.dry_run:
        decision.counts = False
        decision.task = replace(decision.task, phase=MigrationPhase.PLANNED)
        decision.reason = Reason.DRY_RUN if task.dry_run else Reason.NOT_APPROVED
        decision.message = "this is the plan; " + (
            "set dryRun to false" if task.dry_run else "set approve to true"
        )
        return
    emptying = empty_first(facts, task)
    if emptying is not None:
        decision.actions.extend(emptying.actions)
        decision.blocked.extend(emptying.blocked)
        decision.reason, decision.message, decision.requeue_seconds = *emptying.why, SOON
        if expired(facts, task):
            _give_up(decision.task, decision, f"{emptying.why[0]}: {emptying.why[1]}")
        return
    if not todo:
        _finish(facts, task, records, decision)
        return
    decision.requeue_seconds = SOON
    other = _others_turn(facts, task)
    if other is not None:
        decision.blocked.append(Blocked(f"migration {task.name}", Reason.WAITING_ITS_TURN, other))
        decision.reason, decision.message = Reason.WAITING_ITS_TURN, other
        decision.counts = False
        return
    _begin(facts, decision, [move for move in todo if _its_turn(facts, task, move)])


def _begin_more(facts: Facts, task: Task, decision: TaskDecision) -> None:
    """Record further changes alongside those that are under way, unless somebody else is at work too."""
    if _others_turn(facts, task) is not None:
        return
    busy = {record.move.partition for record in task.under_way}
    todo = [move for move in task_moves(facts, task) if move.partition not in busy]
    kept = [one for one in decision.task.records if one.state is not MoveState.PENDING]
    records = (*_keep(kept, todo), *(Record(move) for move in todo))
    decision.task = replace(decision.task, records=records)
    _start(facts, decision, [move for move in todo if _its_turn(facts, task, move)], [])


def _its_turn(facts: Facts, task: Task, move: Move) -> bool:
    """Alongside changes of others that are suspended, only of their partitions; and nothing of a partition
    whose lost copy is refilled first."""
    if move.kind is not MoveKind.REFILL:
        return refiller(facts, move.partition) is None
    suspended = {
        record.move.partition for one in facts.tasks if one.name != task.name for record in one.under_way
    }
    if facts.memory.operation is not None:
        suspended.add(facts.memory.operation.partition)
    return not suspended or move.partition in suspended


def _keep(ended: list[Record], todo: list[Move]) -> list[Record]:
    """Records that ended, unless the partition is to be moved again: each is listed and counted once."""
    again = {move.partition for move in todo}
    return [record for record in ended if record.move.partition not in again]


def _begin(facts: Facts, decision: TaskDecision, todo: list[Move]) -> None:
    """Record the first changes that may be made now; their first step comes when they are in the status."""
    task = decision.task
    if _start(facts, decision, todo, decision.blocked):
        decision.reason, decision.message = Reason.MIGRATING, "its first partitions are begun"
        return
    if not decision.blocked:
        decision.counts = False
        text = "another migration refills lost copies first"
        decision.blocked.append(Blocked(f"migration {task.name}", Reason.WAITING_ITS_TURN, text))
    first = decision.blocked[0]
    decision.reason, decision.message = Reason(first.reason), first.text
    if decision.counts and expired(facts, task):
        why = f"{first.reason}: it got no further for {task.deadline_seconds} s: {first.text}"
        _give_up(decision.task, decision, why)


def _start(facts: Facts, decision: TaskDecision, todo: list[Move], blocked: list[Blocked]) -> bool:
    """Record as many of these changes as may be made now and as there is space for; whether any was.
    `blocked` gets what keeps the others."""
    before = decision.task
    for move in able_first(facts, todo, allow_pause=before.allow_pause)[:MAX_TRIED]:
        task = decision.task
        if len(task.under_way) >= task.parallel:
            break
        obstacle = _in_the_way(facts, move)
        step = next_step(facts, move, options_of(facts, task, move))
        hindrance = step.blocked
        if obstacle is not None:  # begun, it would be taken back at once, and begun again
            text = f"partition {move.partition}: {obstacle}"
            hindrance = Blocked(f"migration {task.name}", Reason.NO_TARGET, text, move.partition)
        if hindrance is not None:
            blocked.append(hindrance)
            continue
        started = Record(move, MoveState.STARTED, source_txid=facts.highest(move.partition))
        records = tuple(started if one.move.same == move.same else one for one in task.records)
        decision.task = replace(task, phase=MigrationPhase.RUNNING, records=records)
        decision.requeue_seconds = AT_ONCE  # its first step comes when this record is in the status
    return decision.task is not before


def _finish(facts: Facts, task: Task, records: tuple[Record, ...], decision: TaskDecision) -> None:
    """Nothing is left to do, by what is seen: also nothing on the nodes."""
    if isinstance(facts.kube, KubeView):
        for name, job in sorted(facts.kube.jobs.items()):
            if job.migration == task.name and not job.deleting:
                decision.actions.append(DeleteJob(name, job.uid, "the migration is over"))
    decision.task = replace(task, phase=MigrationPhase.COMPLETED, records=records)
    decision.reason, decision.message = Reason.COMPLETED, "all of it is done"
    decision.requeue_seconds = SOON


def _others_turn(facts: Facts, task: Task) -> str | None:
    """Who is at work on the replicas of this cluster, or comes first."""
    operation, refill = facts.memory.operation, task.kind is TaskKind.REPLACE
    if operation is not None and not refills(facts, task, operation.partition):
        return "the cluster itself has a replica change under way"
    for other in facts.tasks:
        if other.name == task.name or not other.under_way:
            continue
        held_up = any(refills(facts, task, record.move.partition) for record in other.under_way)
        if other.kind is TaskKind.REPLACE or not held_up:
            return f"migration {other.name} has a partition under way"
    for other in facts.tasks:
        if other.name == task.name:
            return None
        if refill and other.kind is not TaskKind.REPLACE:
            continue
        able = not other.over and not other.cancel and _cannot_work(facts, other) is None
        if other.phase is MigrationPhase.RUNNING and able:
            return f"migration {other.name} comes first"
    return None
