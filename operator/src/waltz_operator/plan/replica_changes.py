"""The replica changes that the specification asks for, one at a time. Pure.

The change under way is in the status before its first step (`Memory.operation`), so that it is finished
or taken back after a crash and after the specification has changed again. All else is derived from what is
seen.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from waltz_operator.api.migration import MoveState
from waltz_operator.api.topology import CLUSTER_JOB, NodeIdentity
from waltz_operator.model.actions import DeleteJob
from waltz_operator.model.desired import Move, MoveKind
from waltz_operator.model.facts import Facts
from waltz_operator.model.reasons import Reason
from waltz_operator.model.snapshot import KubeView
from waltz_operator.plan.builder import BRIEFLY, Decision
from waltz_operator.plan.cordons import why_no_target
from waltz_operator.plan.move_steps import ChangeOptions, Step, next_step, undo_step
from waltz_operator.plan.placement import still_wanted, wanted
from waltz_operator.plan.precedence import refiller
from waltz_operator.plan.safety_gates import Denied, denied, may_change

COPY_RATE_BYTES = 50 * 1024 * 1024
"""Rate limit of such a job, bytes per second: the default of a WaltzMigration."""
MAX_REPORTED = 64
"""Blocked candidates of each kind that are reported in one pass."""


def cluster_ladder(facts: Facts, move: Move) -> ChangeOptions:
    """How the operator carries out a change of its own."""
    return ChangeOptions(
        facts.desired.copy_job(CLUSTER_JOB, move.partition),
        CLUSTER_JOB,
        COPY_RATE_BYTES,
        facts.desired.allow_pause,
        delete_files=move.kind is MoveKind.MOVE or facts.desired.reclaim_delete,
    )


def continue_change(facts: Facts, decision: Decision) -> None:
    """The next step of the change under way, forwards or back."""
    move = facts.memory.operation
    if move is None:
        return
    first = refiller(facts, move.partition)
    if first is not None:
        text = f"migration {first} refills a lost copy of it first"
        blocked = denied(move.kind.value, Reason.WAITING_ITS_TURN, text, move.partition).blocked
        follow(decision, Step(MoveState.STARTED, blocked=blocked, message=text))
        return
    options = cluster_ladder(facts, move)
    step: Step | None = None
    if not still_wanted(facts, move) or _steps_aside(facts, move, options):
        step = undo_step(facts, move, options)
        if step is None and move.target is not None and not facts.staying(move.target):
            step = Step(
                next_step(facts, move, options).state, finished=True
            )  # its target leaves: that is the next change
    if step is None:
        step = next_step(facts, move, options)
    if step.finished:
        decision.actions.extend(step.actions)
        decision.recorded(None)
        return
    follow(decision, step)


def _steps_aside(facts: Facts, move: Move, options: ChangeOptions) -> bool:
    """Whether a change that can't continue now makes way for what may repair that: a migration, or giving up
    its own source whose data is lost. Asked of a copy that was not put into service yet, and of one that is
    not given up yet. A pod that is on its way out comes back without either."""
    holders = facts.holders(move.partition)
    waiting = any(
        not task.over and task.approved and not task.dry_run and not task.cancel for task in facts.tasks
    )
    if move.kind is MoveKind.MOVE and move.source is not None:
        waiting = waiting or facts.data_lost(move.partition, move.source)
    if move.target is not None and move.target not in holders:
        new = {*holders, move.target}
    elif move.kind is MoveKind.DROP and move.source in holders:
        new = {*holders} - {move.source}
    else:
        return False
    if not waiting:
        return False
    answer = may_change(facts, move.kind.value, move.partition, new, allow_pause=options.allow_pause)
    return isinstance(answer, Denied) and answer.blocked.reason != Reason.OTHER_NODE_DOWN


def follow(decision: Decision, step: Step) -> None:
    """Carry out a step: take its actions, say what it waits for."""
    decision.step, decision.message = step.state.value, step.message
    decision.soon()
    if step.awaits_servers:
        decision.requeue_seconds = BRIEFLY
    if step.blocked is not None:
        decision.block(step.blocked)
        decision.held = True
    if step.actions:
        decision.take(*step.actions)


def begin_change(facts: Facts, decision: Decision) -> None:
    """Record the first change that may be made now; its first step comes when the record is in the status.

    All candidates are tried, for one may be what frees the others: where a dead copy is to be given up, none
    can be added before. At most each partition is one for each group that lacks a copy, and one for each copy
    on a node that leaves."""
    reported: Counter[MoveKind] = Counter()
    if decision.memory.operation is not None or any(task.in_flight for task in facts.tasks):
        return
    for move in wanted(facts):
        step = next_step(facts, move, cluster_ladder(facts, move))
        if step.blocked is not None:
            if reported[move.kind] < MAX_REPORTED:
                nowhere = move.target is None and step.blocked.reason == Reason.NO_TARGET
                why = why_no_target(facts, move) if nowhere else ""
                decision.block(replace(step.blocked, text=step.blocked.text + why))
            reported[move.kind] += 1
            continue
        if step.finished:  # recorded, it would be over at once, and recorded again
            continue
        decision.recorded(move._replace(started_at=facts.now))
        return


def tidy_jobs(facts: Facts, kube: KubeView, decision: Decision) -> None:
    """Delete copy jobs that belong to nothing that is under way."""
    move, tasks = facts.memory.operation, {task.name: task for task in facts.tasks}
    for name, job in sorted(kube.jobs.items()):
        if job.deleting:
            continue
        needed = job.migration in tasks and not tasks[job.migration].over
        if job.migration == CLUSTER_JOB:  # an old migration may have that name: the job is of either
            needed = needed or (move is not None and move.partition == job.partition)
        if not needed:
            decision.actions.append(DeleteJob(name, job.uid, "what it copied for is over"))
            decision.soon()


def describe(facts: Facts, move: Move) -> str:
    """The change for a person."""

    def name(node: str | None) -> str:
        identity: NodeIdentity | None = facts.identity(node) if node else None
        return identity.reference if identity is not None else node or "nowhere"

    if move.kind is MoveKind.ADD:
        return f"partition {move.partition}: a new copy on {name(move.target)}"
    if move.kind is MoveKind.DROP:
        return f"partition {move.partition}: the copy on {name(move.source)} is given up"
    if move.kind is MoveKind.REFILL:
        return f"partition {move.partition}: the lost copy on {name(move.target)} is made again"
    return f"partition {move.partition}: from {name(move.source)} to {name(move.target)}"


def waiting_text(facts: Facts) -> tuple[Reason, str] | None:
    """What is under way, for the condition Progressing."""
    move = facts.memory.operation
    if move is not None:
        return Reason.CHANGING_REPLICAS, describe(facts, move)
    for task in facts.tasks:
        if task.in_flight is not None:
            return Reason.MIGRATING, f"{task.name}: {describe(facts, task.in_flight.move)}"
    return None
