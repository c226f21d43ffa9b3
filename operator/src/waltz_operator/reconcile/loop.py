"""One pass over one cluster and its migrations: observe, plan, apply. Level-triggered: nothing is remembered from pass to pass but back-off.

Order: our finalizer before anything is made; certificates before pods that mount them; the cluster's plan; then each migration on a look of its own
(what the cluster's plan wrote may have changed what a migration may do). At the end of a deletion the finalizer goes.
A pass that wrote something is followed by another one soon; the fixed point is a pass that writes nothing.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from waltz_operator.api.metadata import FINALIZER, ObjectMeta
from waltz_operator.kube import kinds
from waltz_operator.metrics import OperatorMetrics
from waltz_operator.reconcile.actions import (
    AssignInZooKeeper,
    AssignOnNode,
    CreateTree,
    DeleteTree,
    EmitEvent,
    Plan,
    RegisterNode,
    RemoveOnNode,
    SetAvailability,
    SetStatus,
    UnassignInZooKeeper,
    UnregisterNode,
)
from waltz_operator.reconcile.apply import Applier, Outcome, Step
from waltz_operator.reconcile.decision import AT_ONCE, SOON
from waltz_operator.reconcile.finalizer import SetFinalizer
from waltz_operator.reconcile.observe import Observation, Observer
from waltz_operator.reconcile.snapshot import ObjectKey, Snapshot
from waltz_operator.tls.authority import TlsMaterialError
from waltz_operator.tls.keeper import certificate_steps, expiry

_log = logging.getLogger(__name__)

_NO_CHANGE = (SetStatus, EmitEvent)
_UNWATCHED = (
    AssignInZooKeeper,
    AssignOnNode,
    CreateTree,
    DeleteTree,
    RegisterNode,
    RemoveOnNode,
    SetAvailability,
    UnassignInZooKeeper,
    UnregisterNode,
)
"""Writes to ZooKeeper and to admin ports: done when they return, and no event tells of them. The API server's watches tell of all others."""


class Planner(Protocol):
    """The pure half."""

    def plan(self, snapshot: Snapshot) -> Plan: ...

    def plan_migration(self, name: str, snapshot: Snapshot) -> Plan: ...


@dataclass(frozen=True, slots=True)
class PassResult:
    """``wrote``: something other than status and Events changed. ``error``: what ended the pass early, empty when nothing did;
    ``refused`` when trying again soon can't help."""

    requeue_seconds: float
    wrote: bool
    error: str = ""
    refused: bool = False
    gone: bool = False


class Reconciler:
    """Owner of nothing; at most one pass per cluster may run at a time (``workers`` sees to it)."""

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

    async def reconcile(self, namespace: str, name: str) -> PassResult:
        """One pass. KubeNotFoundError: no such cluster. ResourceError, KubeError: it cannot be read. LeaseLostError: nothing may be written."""
        observation = await self._observer.observe(namespace, name)
        key = (namespace, name)
        self._metrics.observed(key, observation.snapshot, expiry(observation.access))
        result = await self._cluster(key, observation)
        if result.error or result.wrote or result.gone:
            return result
        for migration in observation.snapshot.migrations:
            found = await self._migration(key, migration.metadata.name)
            result = PassResult(
                min(result.requeue_seconds, found.requeue_seconds), found.wrote, found.error, found.refused
            )
            if result.error or result.wrote:
                break
        return result

    async def _cluster(self, key: tuple[str, str], observation: Observation) -> PassResult:
        snapshot = observation.snapshot
        metadata = snapshot.cluster.metadata
        about = ObjectKey(kinds.WALTZ_CLUSTER.kind, metadata.name)
        if FINALIZER not in metadata.finalizers:
            if metadata.deleting:
                return PassResult(self._resync_seconds, False, gone=True)
            return await self._write(key, [SetFinalizer(about, metadata.uid, True)], observation)
        try:
            steps = () if snapshot.problems else _certificates(observation, settled=False)
        except TlsMaterialError as error:
            return PassResult(self._resync_seconds, False, str(error), refused=True)
        if steps:
            return await self._write(key, steps, observation)
        plan = self._planner.plan(snapshot)
        self._metrics.blocked(key, plan.blocked, asyncio.get_running_loop().time())
        result = await self._write(key, plan.actions, observation, plan.requeue_seconds)
        if result.error or result.wrote:
            return result
        if metadata.deleting:
            if not plan.teardown_complete:
                return result
            done = await self._write(key, [SetFinalizer(about, metadata.uid, False)], observation)
            return PassResult(done.requeue_seconds, done.wrote, done.error, done.refused, gone=not done.error)
        if not snapshot.problems and not plan.blocked and _all_ready(snapshot):
            steps = _certificates(observation, settled=True)
            if steps:
                return await self._write(key, steps, observation)
        return result

    async def _migration(self, key: tuple[str, str], name: str) -> PassResult:
        """On a fresh look: a migration may do what the cluster's plan has just made possible, or impossible."""
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
        result = await self._write(key, plan.actions, observation, plan.requeue_seconds)
        if metadata.deleting and plan.teardown_complete and not result.error and not result.wrote:
            return await self._write(key, [SetFinalizer(about, metadata.uid, False)], observation)
        return result

    async def _write(
        self,
        key: tuple[str, str],
        steps: Sequence[Step],
        observation: Observation,
        requeue_seconds: float | None = None,
    ) -> PassResult:
        outcome: Outcome = await self._applier.apply(steps, observation)
        for step in outcome.done:
            self._metrics.wrote(key, type(step).__name__)
        wrote = any(not isinstance(step, _NO_CHANGE) for step in outcome.done)
        if outcome.failed is not None:
            text = f"{outcome.failed.line}: {outcome.error}"
            return PassResult(self._resync_seconds, wrote, text, refused=not outcome.retriable)
        wait = self._resync_seconds if requeue_seconds is None else requeue_seconds
        if wrote:
            wait = (
                AT_ONCE
                if all(isinstance(step, (*_NO_CHANGE, *_UNWATCHED)) for step in outcome.done)
                else SOON
            )
        return PassResult(min(wait, self._resync_seconds), wrote)


def _certificates(observation: Observation, *, settled: bool) -> Sequence[Step]:
    snapshot = observation.snapshot
    return certificate_steps(snapshot.cluster, observation.access, snapshot.now, settled=settled)


def _all_ready(snapshot: Snapshot) -> bool:
    """Every pod there is runs and is ready; False when that is not known."""
    kube = snapshot.kube
    pods = getattr(kube, "pods", None)
    return pods is not None and all(
        pod.ready and not pod.deleting
        for pod in pods.values()
        if pod.component in ("storage", "server", "zookeeper")
    )
