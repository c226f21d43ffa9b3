"""One pass over one cluster and its migrations: observe, plan, apply. Level-triggered: nothing is remembered from pass to pass but back-off.

Order: our finalizer before anything is made; certificates before pods that mount them; the cluster's plan; then each migration, on a look of its own
when it has something to do (what was written before may have changed what it may do). At the end of a deletion the finalizer goes.
An object that the API server does not take is left out, with what rests on it, and is told in the status; the rest of the pass goes on. So is, in the
same pass, whatever ended it early.
A pass that wrote something is followed by another one soon; the fixed point is a pass that writes nothing.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from waltz_operator.api.metadata import FINALIZER, ObjectMeta
from waltz_operator.api.migration import WaltzMigration
from waltz_operator.kube import kinds
from waltz_operator.kube.errors import KubeNotFoundError
from waltz_operator.model.actions import (
    Action,
    ApplyObject,
    EmitEvent,
    Plan,
    SetFinalizer,
    SetStatus,
    WaltzAction,
)
from waltz_operator.model.reasons import Reason
from waltz_operator.model.snapshot import Failure, ObjectKey, Refusal, Snapshot
from waltz_operator.plan.builder import AT_ONCE, LATER, SOON
from waltz_operator.plan.certificates import certificate_steps, expiry
from waltz_operator.plan.status.unreadable import UnreadableError
from waltz_operator.run.apply import Applier, Outcome
from waltz_operator.run.metrics import OperatorMetrics
from waltz_operator.run.observe import Observation, Observer
from waltz_operator.tls.authority import TlsMaterialError

_log = logging.getLogger(__name__)

Key = tuple[str, str]

TOLD_CONFLICTS = 3
"""So many passes of a cluster must end with it before a conflict, or a step that a second look does not bear out, is told in its status."""
_NO_CHANGE = SetStatus | EmitEvent


class Planner(Protocol):
    """The pure half."""

    def plan(self, snapshot: Snapshot) -> Plan: ...

    def plan_migration(self, name: str, snapshot: Snapshot) -> Plan: ...


@dataclass(frozen=True, slots=True)
class PassResult:
    """``wrote``: something other than status and Events changed. ``error``: what ended the pass early, empty when nothing did;
    ``refused`` when trying again soon can't help. ``told``: what a complete pass had to leave out because it was refused, or could not be read."""

    requeue_seconds: float
    wrote: bool
    error: str = ""
    refused: bool = False
    gone: bool = False
    told: str = ""


class Reconciler:
    """Remembers only how many passes in a row the world had moved on; at most one pass per cluster may run at a time (``workers`` sees to it)."""

    def __init__(
        self,
        observer: Observer,
        planner: Planner,
        applier: Applier,
        metrics: OperatorMetrics,
        resync_seconds: float,
    ) -> None:
        self._observer = observer
        self._planner = planner
        self._applier = applier
        self._metrics = metrics
        self._resync_seconds = resync_seconds
        self._conflicts: dict[Key, int] = {}

    async def reconcile(self, namespace: str, name: str) -> PassResult:
        """One pass. KubeNotFoundError: no such cluster. ResourceError, KubeError: it cannot be read. LeaseLostError: nothing may be written."""
        key = (namespace, name)
        try:
            result = await self._pass(key)
        except KubeNotFoundError:
            self._conflicts.pop(key, None)
            raise
        if not result.error:
            self._conflicts.pop(key, None)
        return result

    async def _pass(self, key: Key) -> PassResult:
        try:
            observation = await self._observer.observe(*key)
        except UnreadableError as trouble:
            error = await self._applier.tell_unreadable(trouble)
            return PassResult(self._resync_seconds, False, error, told=trouble.line)
        self._metrics.observed(key, observation.snapshot, expiry(observation.access.secrets))
        result = await self._cluster(key, observation)
        for unreadable in observation.unreadable:
            error = await self._applier.tell_unreadable(unreadable)
            result = replace(result, error=result.error or error, told=_joined(result.told, unreadable.line))
        if result.error or result.wrote or result.gone:
            return result
        for migration in observation.snapshot.migrations:
            found = self._nothing_to_do(migration, observation)
            if found is None:
                found = await self._migration(key, migration.metadata.name)
            result = replace(
                found,
                requeue_seconds=min(result.requeue_seconds, found.requeue_seconds),
                told=_joined(result.told, found.told),
            )
            if result.error or result.wrote:
                break
        return result

    async def _cluster(self, key: Key, observation: Observation) -> PassResult:
        snapshot = observation.snapshot
        metadata = snapshot.cluster.metadata
        about = ObjectKey(kinds.WALTZ_CLUSTER.kind, metadata.name)
        if FINALIZER not in metadata.finalizers:
            if metadata.deleting:
                return PassResult(self._resync_seconds, False, gone=True)
            return await self._write(key, [SetFinalizer(about, metadata.uid, True)], observation)
        if not snapshot.problems:
            result, observation = await self._certificates(key, observation, settled=False)
            if result.error or result.wrote:
                return result
        plan = self._planner.plan(observation.snapshot)
        if _at_rest(plan, snapshot):  # before the status is written: what is refused here stands in it too
            result, seen = await self._certificates(key, observation, settled=True)
            if result.error or result.wrote:
                return result
            if seen is not observation:
                observation, plan = seen, self._planner.plan(seen.snapshot)
        result, plan = await self._planned(key, observation, plan)
        if metadata.deleting and plan.teardown_complete and not result.error and not result.wrote:
            done = await self._write(key, [SetFinalizer(about, metadata.uid, False)], observation)
            return replace(done, gone=not done.error)
        return result

    async def _planned(self, key: Key, observation: Observation, plan: Plan) -> tuple[PassResult, Plan]:
        """Carry out the plan. When the API server does not take an object, the rest of a plan that does without it."""

        def steps(snapshot: Snapshot) -> Sequence[Action]:
            nonlocal plan
            if snapshot is not observation.snapshot:
                plan = self._planner.plan(snapshot)
            return plan.actions

        outcome, seen = await self._rounds(steps, observation)
        self._metrics.blocked(key, plan.blocked, asyncio.get_running_loop().time())
        refused = seen.snapshot.refused
        requeue = plan.requeue_seconds
        if refused and getattr(plan.status, "operation", None) is None:
            requeue = max(requeue, LATER)  # it is refused again, and nothing else is under way
        result = await self._result(key, outcome, seen, requeue)
        told = "; ".join(one.text for one in refused.values())
        return replace(result, told=told), plan

    async def _certificates(
        self, key: Key, observation: Observation, *, settled: bool
    ) -> tuple[PassResult, Observation]:
        """Write the Secrets whose time has come, but those that the API server does not take."""
        try:
            steps = certificate_steps(
                observation.snapshot.cluster,
                observation.access.secrets,
                observation.snapshot.now,
                settled=settled,
            )
        except TlsMaterialError as error:
            await self._tell(Failure(str(error), True), observation)
            return PassResult(self._resync_seconds, False, str(error), refused=True), observation

        def left(snapshot: Snapshot) -> Sequence[Action]:
            found = [one for one in steps if getattr(one, "key", None) not in snapshot.refused]
            return found if any(isinstance(one, ApplyObject) for one in found) else ()

        outcome, seen = await self._rounds(left, observation)
        return await self._result(key, outcome, seen, None), seen

    async def _rounds(
        self, propose: Callable[[Snapshot], Sequence[Action]], observation: Observation
    ) -> tuple[Outcome, Observation]:
        """Carry out what is proposed for the snapshot; after each object that the API server does not take, what is proposed when that is known.
        Each round knows of one more, so they end."""
        done: list[Action] = []
        while True:
            steps = [one for one in propose(observation.snapshot) if one not in done]
            outcome = await self._applier.apply(steps, observation)
            done += outcome.done
            snapshot, refused = observation.snapshot, outcome.refused
            if refused is None or refused.key in snapshot.refused:
                return replace(outcome, done=tuple(done)), observation
            there = bool(refused.uid or refused.body["metadata"].get("resourceVersion"))
            text = f"{refused.line}: {outcome.error}"
            known = {**snapshot.refused, refused.key: Refusal(text, there)}
            observation = replace(observation, snapshot=replace(snapshot, refused=known))

    def _nothing_to_do(self, migration: WaltzMigration, observation: Observation) -> PassResult | None:
        """The result for a migration that by the look of this pass needs no write, as all that have ended: looks cost more than anything else, and
        people keep their migrations. None: it does, or is being made or deleted."""
        metadata: ObjectMeta = migration.metadata
        if FINALIZER not in metadata.finalizers or metadata.deleting:
            return None
        plan = self._planner.plan_migration(metadata.name, observation.snapshot)
        return None if plan.actions else PassResult(min(plan.requeue_seconds, self._resync_seconds), False)

    async def _migration(self, key: Key, name: str) -> PassResult:
        """On a fresh look: a migration may do what the cluster's plan has just made possible, or impossible. A write of it that is refused for good is
        told on it, and is no matter of the others."""
        observation = await self._observer.observe(*key)
        found = next((m for m in observation.snapshot.migrations if m.metadata.name == name), None)
        if found is None:
            return PassResult(self._resync_seconds, False)
        metadata: ObjectMeta = found.metadata
        about = ObjectKey(kinds.WALTZ_MIGRATION.kind, name)
        if FINALIZER not in metadata.finalizers:
            if metadata.deleting:
                return PassResult(self._resync_seconds, False)
            return await self._write(key, [SetFinalizer(about, metadata.uid, True)], observation)
        plan = self._planner.plan_migration(name, observation.snapshot)
        outcome = await self._applier.apply(plan.actions, observation)
        result = await self._result(key, outcome, observation, plan.requeue_seconds, name)
        if result.error and result.refused:
            return PassResult(LATER, False, told=f"WaltzMigration {name}: {result.error}")
        if metadata.deleting and plan.teardown_complete and not result.error and not result.wrote:
            return await self._write(key, [SetFinalizer(about, metadata.uid, False)], observation)
        return result

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
        """What a pass comes to that carried this out; a failure is told in the status of the cluster, or of the migration."""
        for step in outcome.done:
            self._metrics.wrote(key, type(step).__name__)
        wrote = any(not isinstance(step, _NO_CHANGE) for step in outcome.done)
        if outcome.failed is not None:
            failure = Failure(f"{outcome.failed.line}: {outcome.error}", not outcome.retriable)
            if self._is_news(key, outcome):
                await self._tell(failure, observation, migration)
            return PassResult(self._resync_seconds, wrote, failure.text, refused=failure.for_good)
        wait = self._resync_seconds if requeue_seconds is None else requeue_seconds
        if wrote:
            wait = (
                AT_ONCE if all(isinstance(step, _NO_CHANGE | WaltzAction) for step in outcome.done) else SOON
            )
        return PassResult(min(wait, self._resync_seconds), wrote)

    def _is_news(self, key: Key, outcome: Outcome) -> bool:
        """Whether a failure is told in the status. That the world has moved on is news only when it does so again and again."""
        if outcome.passing:
            self._conflicts[key] = self._conflicts.get(key, 0) + 1
            return self._conflicts[key] >= TOLD_CONFLICTS
        return not isinstance(outcome.failed, SetStatus)

    async def _tell(self, failure: Failure, observation: Observation, migration: str | None = None) -> None:
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
        steps += [one for one in plan.actions if isinstance(one, SetStatus)]
        await self._applier.apply(steps, replace(observation, snapshot=snapshot))


def _at_rest(plan: Plan, snapshot: Snapshot) -> bool:
    """Whether nothing is to be done or waited for, so that the rotation of an authority may take a step."""
    quiet = all(isinstance(one, _NO_CHANGE) for one in plan.actions)
    wanted = not snapshot.problems and not snapshot.cluster.metadata.deleting
    return wanted and quiet and not plan.blocked and _all_ready(snapshot)


def _joined(*lines: str) -> str:
    return "; ".join(line for line in lines if line)


def _all_ready(snapshot: Snapshot) -> bool:
    """Every pod there is runs and is ready; False when that is not known."""
    kube = snapshot.kube
    pods = getattr(kube, "pods", None)
    return pods is not None and all(
        pod.ready and not pod.deleting
        for pod in pods.values()
        if pod.component in ("storage", "server", "zookeeper")
    )
