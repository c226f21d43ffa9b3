"""One pass over one cluster and its migrations: observe, plan, apply. Level-triggered: only back-off is
remembered between passes.

A pass, from top to bottom:

0. of a cluster at rest of whose objects no watch has reported a change, only ZooKeeper and the processes are
   asked; when that shows that something is to be done, or may be, the pass begins anew:
1. observe the world once; an object that cannot be read gets that said in its status;
2. the cluster: our finalizer before anything is made, certificates before pods that mount them, then the
   cluster's plan;
3. each migration that has something to do; after more than a status was written, or a write has failed, on an
   observation of its own, because that may have changed what it may do;
4. at the end of a deletion the finalizer goes.

The pass ends early after an error and after every turn that wrote something: the next one soon observes what
became of it. Only a disruption budget, which follows every change of the copies, keeps no migration waiting,
and what waits for nothing but a record in a status is done when that is written (`recorded`).
The fixed point is a pass that writes nothing. An object that the API server rejects ends nothing: the plan is
made again without it and without what depends on it, and the status says so. Any other step of a cluster that
it refuses for good, a restart above all, ends the cluster's own plan and no more: each step of a migration is
proven by what is observed, whichever steps of the cluster were done before, so migrations have their turn, on
observations of their own. An object whose write keeps failing is left out as a rejected one until its
back-off is over (`failed_writes`); when it was tried and failed, the pass reports that and ends, since what
became of the write is not known.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial

from waltz_admin.authority import TlsMaterialError
from waltz_operator.api.cluster_status import WaltzClusterStatus
from waltz_operator.api.metadata import FINALIZER
from waltz_operator.api.migration import WaltzMigration
from waltz_operator.kube import kinds
from waltz_operator.kube.errors import KubeNotFoundError
from waltz_operator.model.actions import (
    Action,
    ApplyObject,
    DeleteObject,
    EmitEvent,
    MovePartitions,
    Plan,
    SetFinalizer,
    SetStatus,
    WaltzAction,
)
from waltz_operator.model.reasons import Reason
from waltz_operator.model.snapshot import Failure, ObjectKey, Snapshot
from waltz_operator.model.texts import first_texts
from waltz_operator.plan.builder import AT_ONCE, LATER, SOON
from waltz_operator.plan.certificates import expiry
from waltz_operator.plan.status.unreadable import UnreadableError
from waltz_operator.plan.status.verdicts import at_rest, is_impaired
from waltz_operator.run.apply import Applier, Outcome
from waltz_operator.run.due_secrets import due_export, export_is_due, secret_steps
from waltz_operator.run.failed_writes import FailedWrites
from waltz_operator.run.installations import OtherOperatorError
from waltz_operator.run.metrics import OperatorMetrics
from waltz_operator.run.observe import Observation, Observer
from waltz_operator.run.recorded import Applied, Planned, is_budget, recorded, with_records
from waltz_operator.run.rejections import apply_with_rejections, without
from waltz_operator.run.renewals import renew_unreadable
from waltz_operator.run.resting_migrations import Planner, RestingMigrations
from waltz_operator.run.retained_looks import KubernetesLook, RetainedLooks

_log = logging.getLogger(__name__)

Key = tuple[str, str]
"""Namespace and name of a WaltzCluster."""

REPORTED_CONFLICTS = 3
"""After so many passes in a row that a conflict ended, the conflict is reported in the status: a single one
is nothing unusual."""
_NO_CHANGE = SetStatus | EmitEvent
"""What is only reported: a pass that did nothing else has reached the fixed point."""
_ENOUGH = _NO_CHANGE | SetFinalizer | WaltzAction
"""What is done when its write returns, so that nothing else is waited for."""


@dataclass(frozen=True, slots=True)
class PassResult:
    """What a pass, or one turn of it, came to. `wrote`: something other than status and Events changed.
    `error`: what ended it early, empty when nothing did; `needs_person` when trying again soon cannot
    help. `gone`: the finalizer was removed. `left_out`: what a complete pass had to leave out because the
    API server rejected it, or because it could not be read. `impaired`: the cluster does not serve all that
    it should. `passing`: the error is that the world has moved on, which is nobody's fault and settled by the
    next pass. `budget_only`: what was written changes nothing that others decide on."""

    requeue_seconds: float
    wrote: bool
    error: str = ""
    needs_person: bool = False
    gone: bool = False
    left_out: str = ""
    passing: bool = False
    impaired: bool = False
    budget_only: bool = False

    @property
    def ends_pass(self) -> bool:
        """Whether the rest waits for the next pass."""
        return bool(self.error) or (self.wrote and not self.budget_only) or self.gone


class Reconciler:
    """Remembers only how many passes in a row a conflict ended, and which writes keep failing; at most one
    pass per cluster may run at a time (`workers` sees to it)."""

    def __init__(
        self,
        observer: Observer,
        planner: Planner,
        applier: Applier,
        metrics: OperatorMetrics,
        resync_seconds: float,
        wall_clock: Callable[[], float] = time.time,
    ) -> None:
        self._wall_clock = wall_clock
        self._observer = observer
        self._planner = planner
        self._applier = applier
        self._metrics = metrics
        self._resync_seconds = resync_seconds
        self._conflicts: dict[Key, int] = {}
        self._failed_writes = FailedWrites()
        self.looks = RetainedLooks()

    async def reconcile(self, namespace: str, name: str) -> PassResult:
        """One pass. KubeNotFoundError: no such cluster. ResourceError, KubeError: it cannot be read.
        LeaseLostError: nothing may be written."""
        key = (namespace, name)
        try:
            result = await self._pass(key)
        except KubeNotFoundError:
            self._conflicts.pop(key, None)
            self._failed_writes.forget(key)
            self.looks.forget(key)
            self._observer.forget(key)
            raise
        if not result.error:
            self._conflicts.pop(key, None)
        return result

    async def _pass(self, key: Key) -> PassResult:
        resting = await self._resting(key)
        if resting is not None:
            return resting
        mark = self.looks.mark(key)
        result, look = await self._fresh_pass(key)
        deleting = look is not None and look.cluster.metadata.deleting
        if look is not None and not (deleting or result.ends_pass or result.left_out):
            self.looks.keep(key, mark, look)
        return result

    async def _resting(self, key: Key) -> PassResult | None:
        """A pass with what the API server showed before, when it finds nothing to be done; None otherwise:
        then everything is read anew."""
        look = self.looks.usable(key, self._wall_clock())
        if look is None:
            return None
        observation = await self._observer.observe_again(look)
        snapshot = observation.snapshot
        plan = self._planner.plan(snapshot)
        waits = await self._waits(snapshot) if not plan.actions else None
        if waits is None or not _certificates_rest(plan, observation):
            self.looks.drop(key)
            return None
        self._metrics.observed(key, snapshot, expiry(observation.access.secrets))
        self._metrics.blocked(key, plan.blocked, asyncio.get_running_loop().time())
        wait = min(self._resync_seconds, plan.requeue_seconds, *waits)
        return PassResult(wait, False, impaired=is_impaired(plan))

    async def _waits(self, snapshot: Snapshot) -> list[float] | None:
        """How long each migration may wait; None when one of them needs a write."""
        resting, waits = RestingMigrations(self._planner, snapshot), list[float]()
        for one in snapshot.migrations:
            wait = await resting.wait_seconds(one)
            if wait is None:
                return None
            waits.append(wait)
        return waits

    async def _fresh_pass(self, key: Key) -> tuple[PassResult, KubernetesLook | None]:
        """With what it was made from, when that is all there is to know."""
        try:
            observation = await self._observer.observe(*key)
        except OtherOperatorError as other:
            self._metrics.unobserved(key, {})
            again = min(self._resync_seconds, other.again_seconds)
            return PassResult(again, False, left_out=str(other)), None
        except UnreadableError as cluster:
            ends, renewed = await renew_unreadable(self._observer, self._applier, cluster)
            self._metrics.unobserved(key, ends)
            error = _joined(renewed, await self._applier.tell_unreadable(cluster))
            return PassResult(self._resync_seconds, False, error, left_out=cluster.line), None
        self._metrics.observed(key, observation.snapshot, expiry(observation.access.secrets))
        result = await self._cluster(key, observation)
        for unreadable in observation.unreadable:
            error = await self._applier.tell_unreadable(unreadable)
            left_out = _joined(result.left_out, unreadable.line)
            result = replace(result, error=result.error or error, left_out=left_out)
        if result.ends_pass:
            return result, None
        resting = RestingMigrations(self._planner, observation.snapshot)
        for migration in observation.snapshot.migrations:
            rest = await resting.wait_seconds(migration)
            if rest is not None:
                result = replace(result, requeue_seconds=min(result.requeue_seconds, rest))
                continue
            # what a failed write has become does not show in the look of the pass
            anew = bool(result.error or result.left_out)
            found = await self._migration(key, migration, observation, anew=anew)
            result = replace(
                found,
                wrote=result.wrote or found.wrote,
                requeue_seconds=min(result.requeue_seconds, found.requeue_seconds),
                impaired=result.impaired,
                error=result.error or found.error,
                passing=result.passing if result.error else found.passing,
                left_out=_joined(result.left_out, found.left_out),
            )
            if found.wrote or found.gone:
                break  # one that failed concerns itself
        return result, None if observation.own_writes or result.wrote else observation.look

    # -------------------------------------------------------------------------------------------- the cluster

    async def _cluster(self, key: Key, observation: Observation) -> PassResult:
        metadata = observation.snapshot.cluster.metadata
        about = ObjectKey(kinds.WALTZ_CLUSTER.kind, metadata.name)
        if FINALIZER not in metadata.finalizers:
            if metadata.deleting:
                return PassResult(self._resync_seconds, False, gone=True)
            return await self._write(key, [SetFinalizer(about, metadata.uid, True)], observation)
        result, observation = await self._certificates(key, observation, settled=False)
        if result.ends_pass:
            return result
        if not observation.snapshot.problems:
            result, observation = await self._export(key, observation)
            if result.ends_pass:
                return result
        plan = self._planner.plan(observation.snapshot)
        if at_rest(plan, observation.snapshot):
            # Before the status is written, so that an object that is rejected here is in that status too.
            result, settled = await self._certificates(key, observation, settled=True)
            if result.ends_pass:
                return result
            if settled is not observation:
                observation, plan = settled, self._planner.plan(settled.snapshot)
        apply = partial(self._apply_without_rejected, key)
        applied = await with_records(plan, self._planner.plan, apply, observation, self._wall_clock)
        result = await self._result_of_plan(key, applied)
        complete = applied.plan.teardown_complete and applied.outcome.failed is None
        if metadata.deleting and complete and not result.ends_pass:
            step = SetFinalizer(about, metadata.uid, False)
            done = await self._write(key, [step], applied.observation)
            return replace(done, gone=not done.error)
        return result

    async def _certificates(
        self, key: Key, observation: Observation, *, settled: bool
    ) -> tuple[PassResult, Observation]:
        """Write the Secrets whose time has come, but those that the API server rejects."""
        try:
            steps = secret_steps(observation, settled=settled)
        except TlsMaterialError as error:
            await self._report(Failure(str(error), True), observation)
            return PassResult(self._resync_seconds, False, str(error), needs_person=True), observation
        return await self._write_secrets(key, steps, observation)

    async def _export(self, key: Key, observation: Observation) -> tuple[PassResult, Observation]:
        """Make a copy of the records in ZooKeeper, when its time has come."""
        step = await due_export(self._observer, observation)
        return await self._write_secrets(key, () if step is None else (step,), observation)

    async def _write_secrets(
        self, key: Key, steps: Sequence[ApplyObject | EmitEvent], observation: Observation
    ) -> tuple[PassResult, Observation]:
        if not steps:
            return PassResult(self._resync_seconds, False), observation

        def without_rejected(seen: Snapshot) -> Plan:
            left = [one for one in steps if isinstance(one, EmitEvent) or one.key not in seen.rejected]
            said_only = not any(isinstance(one, ApplyObject) for one in left)
            return Plan(() if said_only else tuple(left), seen.cluster.status)

        plan = without_rejected(observation.snapshot)
        applied = await self._apply_without_rejected(key, plan, without_rejected, observation)
        result = await self._result(key, applied.outcome, applied.observation, None)
        if applied.unsure:
            rejected = applied.observation.snapshot.rejected
            text = first_texts([one.text for one in rejected.values()])
            result = PassResult(SOON, result.wrote, text)
        return result, applied.observation

    async def _apply_without_rejected(
        self, key: Key, plan: Plan, planned: Planned, observation: Observation
    ) -> Applied:
        """Carry out `plan`. After objects that the API server rejects, make a plan with those known
        (`planned`), and carry out what was not done yet. Each round knows of one rejected object more, so
        they end. So it does without a write that keeps failing; when that was tried, only the report is
        left to this pass."""
        done: list[Action] = []
        now = observation.snapshot.now
        while True:
            left = [one for one in plan.actions if one not in done]
            # a teardown has its order, and waits for each step
            tearing_down = observation.snapshot.cluster.metadata.deleting
            known = observation.snapshot.rejected
            failed_before = () if tearing_down else self._failed_writes.waiting(key, left, now)
            waiting = [one for one in failed_before if one[0].key not in known]
            if waiting:
                for action, text in waiting:
                    observation = without(observation, action, text, for_good=False)
                plan = planned(observation.snapshot)
                continue
            apply = self._applier.apply
            if not tearing_down:
                apply = partial(self._failed_writes.applied, key, apply)
            outcome, rejected = await apply_with_rejections(apply, left, observation, in_order=tearing_down)
            done += outcome.done
            self._failed_writes.done(key, outcome.done)
            outcome = replace(outcome, done=tuple(done))
            new = [one for one in rejected if one[0].key not in known]
            for action, text in new:
                observation = without(observation, action, text)
            unsure = None if tearing_down else outcome.unsure
            if unsure is not None and self._failed_writes.failed(key, unsure, outcome.error, now):
                return await self._only_reported(plan, planned, observation, outcome, unsure)
            if outcome.rejected is None or not new:
                return Applied(outcome, plan, observation)
            plan = planned(observation.snapshot)

    async def _only_reported(
        self,
        plan: Plan,
        planned: Planned,
        observation: Observation,
        outcome: Outcome,
        failed: ApplyObject | DeleteObject,
    ) -> Applied:
        """A write has failed again. The status is that of the passes that do without it, which come next."""
        if failed.key in observation.snapshot.rejected:
            return Applied(outcome, plan, observation)
        observation = without(observation, failed, outcome.error, for_good=False)
        plan = planned(observation.snapshot)
        reported = await self._applier.apply(_report_of(plan), observation)
        reported = replace(reported, done=(*outcome.done, *reported.done))
        return Applied(reported, plan, observation, unsure=True)

    async def _result_of_plan(self, key: Key, applied: Applied) -> PassResult:
        plan, observation = applied.plan, applied.observation
        self._metrics.blocked(key, plan.blocked, asyncio.get_running_loop().time())
        rejected = observation.snapshot.rejected
        requeue = plan.requeue_seconds
        if rejected and isinstance(plan.status, WaltzClusterStatus) and plan.status.operation is None:
            requeue = max(requeue, LATER)  # it would be rejected again, and nothing else is in progress
        if applied.unsure:
            requeue = SOON  # the rest of the plan
        result = await self._result(key, applied.outcome, observation, requeue)
        left_out = first_texts([one.text for one in rejected.values()])
        if result.error and applied.outcome.refused is not None:
            # nothing was written: migrations decide on what is observed, not on this plan
            left_out = _joined(left_out, result.error)
            result = PassResult(SOON if result.wrote else min(LATER, self._resync_seconds), result.wrote)
        return replace(result, left_out=left_out, impaired=is_impaired(plan))

    # --------------------------------------------------------------------------------------------- migrations

    async def _migration(
        self, key: Key, migration: WaltzMigration, observation: Observation, *, anew: bool
    ) -> PassResult:
        """The turn of one migration, on an observation of its own when the pass has left something in doubt
        (`anew`). A write of it that is rejected for good is reported on it, and does not concern the
        others."""
        name = migration.metadata.name
        look = observation
        held = None if anew else recorded(look, self._wall_clock())
        observation = held or await self._observer.observe(*key)
        found = next((one for one in observation.snapshot.migrations if one.metadata.name == name), None)
        if found is None:
            return PassResult(self._resync_seconds, False)
        metadata = found.metadata
        about = ObjectKey(kinds.WALTZ_MIGRATION.kind, name)
        if FINALIZER not in metadata.finalizers:
            if metadata.deleting:
                return PassResult(self._resync_seconds, False)
            result = await self._write(key, [SetFinalizer(about, metadata.uid, True)], observation)
            held = None if result.error else recorded(observation, self._wall_clock())
            if held is None:
                return result
            observation = held

        def planned(seen: Snapshot) -> Plan:
            return self._planner.plan_migration(name, seen)

        async def apply(one: Plan, _: Planned, seen: Observation) -> Applied:
            return Applied(await self._applier.apply(one.actions, seen), one, seen)

        plan = planned(observation.snapshot)
        outcome, plan, observation, _ = await with_records(
            plan, planned, apply, observation, self._wall_clock
        )
        result = await self._result(key, outcome, observation, plan.requeue_seconds, name)
        look.own_writes.update(observation.own_writes)  # it does not show them, so it is not kept
        look.written.update(observation.written)
        if result.error and result.needs_person:
            return PassResult(LATER, False, left_out=f"WaltzMigration {name}: {result.error}")
        if metadata.deleting and plan.teardown_complete and not result.ends_pass:
            return await self._write(key, [SetFinalizer(about, metadata.uid, False)], observation)
        return result

    # ------------------------------------------------------------------------------------------------ results

    async def _write(self, key: Key, steps: Sequence[Action], observation: Observation) -> PassResult:
        return await self._result(key, await self._applier.apply(steps, observation), observation, None)

    async def _result(
        self,
        key: Key,
        outcome: Outcome,
        observation: Observation,
        requeue_seconds: float | None,
        migration: str | None = None,
    ) -> PassResult:
        """What a turn comes to that carried this out; a failure is reported in the status of the cluster, or
        of the migration."""
        for step in outcome.done:
            self._metrics.wrote(key, type(step).__name__)
            if isinstance(step, MovePartitions):
                self._metrics.moved(key, len(step.moves))
        wrote = any(not isinstance(step, _NO_CHANGE) for step in outcome.done)
        if outcome.failed is not None:
            failure = Failure(f"{outcome.failed.line}: {outcome.error}", not outcome.retriable)
            worth = self._worth_reporting(key, outcome)
            if worth:
                await self._report(failure, observation, migration)
            return PassResult(
                self._resync_seconds,
                wrote,
                failure.text,
                needs_person=failure.for_good,
                passing=outcome.passing and not worth,
            )
        wait = self._resync_seconds if requeue_seconds is None else requeue_seconds
        if wrote:
            enough = all(isinstance(step, _ENOUGH) or is_budget(step) for step in outcome.done)
            wait = AT_ONCE if enough else SOON
        budget = all(isinstance(step, _NO_CHANGE) or is_budget(step) for step in outcome.done)
        return PassResult(min(wait, self._resync_seconds), wrote, budget_only=wrote and budget)

    def _worth_reporting(self, key: Key, outcome: Outcome) -> bool:
        """Whether a failure is reported in the status: a conflict only when one follows the other, and never
        that the status could not be written."""
        if outcome.passing:
            self._conflicts[key] = self._conflicts.get(key, 0) + 1
            return self._conflicts[key] >= REPORTED_CONFLICTS
        return not isinstance(outcome.failed, SetStatus)

    async def _report(self, failure: Failure, observation: Observation, migration: str | None = None) -> None:
        """Write what ended the pass into the status."""
        snapshot = replace(observation.snapshot, failed=failure)
        steps: list[Action] = []
        if migration is None:
            plan = self._planner.plan(snapshot)
        else:
            plan = self._planner.plan_migration(migration, snapshot)
            reason = Reason.REFUSED_CHANGE if failure.for_good else Reason.WRITE_FAILED
            about = ObjectKey(kinds.WALTZ_MIGRATION.kind, migration)
            steps.append(EmitEvent(about, reason.value, failure.text, "Warning"))
        steps += _report_of(plan)
        await self._applier.apply(steps, replace(observation, snapshot=snapshot))


def _report_of(plan: Plan) -> list[Action]:
    """The status, and the Events of its change."""
    return [
        one for one in plan.actions if isinstance(one, SetStatus) or (isinstance(one, EmitEvent) and one.at)
    ]


def _certificates_rest(plan: Plan, observation: Observation) -> bool:
    """Whether no Secret is to be written."""
    snapshot = observation.snapshot
    try:
        due = secret_steps(observation, settled=at_rest(plan, snapshot))
        return not due and not export_is_due(observation)
    except TlsMaterialError:
        return False


def _joined(*lines: str) -> str:
    return "; ".join(line for line in lines if line)
