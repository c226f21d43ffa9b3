"""The running operator, put together: client, Lease, sessions, observer, planner, applier, workers, watcher,
HTTP port.

Order of life: HTTP port; the image of its own pod; Lease (waits while another operator holds it); watches and
workers. When the Lease is lost, or kopf ends, the process ends: what comes after it starts from nothing.
SIGTERM: workers end where they wait, watches close, the Lease is given up.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import random
import time
from collections.abc import Callable, Coroutine
from dataclasses import replace
from functools import partial

from kubernetes.aio.client import Configuration

from waltz_operator.kube import config, kinds
from waltz_operator.kube.client import Kube, KubeClient
from waltz_operator.kube.errors import KubeError
from waltz_operator.model.actions import Plan
from waltz_operator.model.facts import Facts
from waltz_operator.model.snapshot import Snapshot
from waltz_operator.plan.cluster import plan
from waltz_operator.plan.migration import plan_migration
from waltz_operator.run.apply import Applier
from waltz_operator.run.copy_job import job_renderer
from waltz_operator.run.events import EventWriter
from waltz_operator.run.http import HealthServer
from waltz_operator.run.installations import Installations, nothing_written
from waltz_operator.run.kopf_thread import Watcher
from waltz_operator.run.lease import LeaseLostError, OperatorLease
from waltz_operator.run.metrics import OperatorMetrics
from waltz_operator.run.migrations_left import waiting
from waltz_operator.run.names import Names
from waltz_operator.run.observe import Observer
from waltz_operator.run.reconcile import PassResult, Reconciler
from waltz_operator.run.tls_files import TlsFiles
from waltz_operator.run.workers import Workers
from waltz_operator.run.write_kubernetes import KubernetesWriter
from waltz_operator.run.write_waltz import WaltzWriter
from waltz_operator.run.zookeeper_sessions import Ensembles
from waltz_operator.settings import OperatorSettings
from waltz_protocol.aio.names import looked_up_by

_log = logging.getLogger(__name__)

FAILED = "ReconcileFailed"
OWN_CONTAINER = "operator"
IMAGE_RETRY_SECONDS = 2.0
SILENT_SECONDS = 120.0
"""So long may the thread of the watches not run before the process counts as stuck."""


class PurePlanner:
    """The planners of `plan.cluster` and `plan.migration`."""

    def plan(self, snapshot: Snapshot) -> Plan:
        return plan(snapshot)

    def plan_migration(self, name: str, snapshot: Snapshot, facts: Callable[[], Facts] | None = None) -> Plan:
        return plan_migration(name, snapshot, facts() if facts is not None else None)


class OperatorParts:
    """The parts of one operator process, put together: everything between the API server and the planners.
    Owner of the sessions and files; `close` ends them."""

    def __init__(
        self,
        kube: Kube,
        settings: OperatorSettings,
        ensembles: Ensembles | None = None,
        check: Callable[[], None] | None = None,
        wall_clock: Callable[[], float] = time.time,
        metrics: OperatorMetrics | None = None,
    ) -> None:
        """`check`: may be written now? Default: the Lease must be held. `wall_clock`: seconds since the
        epoch."""
        self.settings = settings
        self.kube = kube
        self._wall_clock = wall_clock
        self.ensembles = ensembles or Ensembles()
        self.tls_files = TlsFiles()
        self.metrics = metrics or OperatorMetrics()
        self.lease = OperatorLease(
            kube,
            settings.lease_namespace,
            settings.lease_name,
            settings.identity,
            wall_clock=wall_clock,
            unused=partial(nothing_written, kube, settings.namespaces),
        )
        self._check = check or self.lease.check
        self.events = EventWriter(kube, wall_clock, settings.identity)
        self.observer = Observer(
            kube,
            self.ensembles,
            self.tls_files,
            wall_clock,
            storage_classes=not settings.namespaces,
            operator_image=settings.operator_image,
            operator_namespace=settings.lease_namespace,
            images=settings.images,
            installations=Installations(
                kube, f"{settings.lease_namespace}/{settings.lease_name}", wall_clock
            ),
        )
        self.writer = KubernetesWriter(kube, self.events, job_renderer(settings.operator_image))
        self.applier = Applier(
            self.writer,
            WaltzWriter(self.ensembles, self._check),
            self.observer.observe,
            self.observer.observe_copies,
            self._check,
        )
        self.reconciler = Reconciler(
            self.observer, PurePlanner(), self.applier, self.metrics, settings.resync_seconds, wall_clock
        )
        self.names = Names()
        self.workers = Workers(
            self.reconcile,
            self.gone,
            self.failed,
            self.metrics,
            concurrency=settings.concurrent_reconciles,
            resync_seconds=settings.resync_seconds,
            rng=random.Random(),
        )

    async def reconcile(self, namespace: str, name: str) -> PassResult:
        """One pass over a cluster, which looks host names up on threads of its own."""
        with looked_up_by(self.names.of((namespace, name)).lookup):
            return await self.reconciler.reconcile(namespace, name)

    def changed(self, key: tuple[str, str]) -> None:
        """A watch reported a change of something of this cluster."""
        self.reconciler.looks.changed(key)
        self.workers.wake(key)

    async def resync(self) -> None:
        """Wake the worker of every cluster there is, and of those that are gone and have left a migration,
        now and then, forever: watches may stall or lose an event without a word, and report nothing twice."""
        while True:
            for namespace in self.settings.namespaces or (None,):
                for key in {*await self._clusters(namespace), *await self._clusters_left(namespace)}:
                    self.workers.wake(key, changed=False)
            await asyncio.sleep(self.settings.resync_seconds)

    async def _clusters(self, namespace: str | None) -> list[tuple[str, str]]:
        try:
            bodies = await self.kube.list(kinds.WALTZ_CLUSTER, namespace)
        except KubeError as error:
            _log.warning("the WaltzClusters cannot be listed: %s", error)
            return []
        return [(body["metadata"]["namespace"], body["metadata"]["name"]) for body in bodies]

    async def _clusters_left(self, namespace: str | None) -> list[tuple[str, str]]:
        """Of migrations for which something is to be done also without their cluster."""
        try:
            return list(waiting(await self.kube.list(kinds.WALTZ_MIGRATION, namespace)))
        except KubeError as error:
            _log.warning("the WaltzMigrations cannot be listed: %s", error)
            return []

    async def gone(self, key: tuple[str, str]) -> None:
        """A cluster does not exist: nothing of it is kept, migrations that name it can go when they are
        deleted, and the others are answered. What fails of that is tried again in the next
        resynchronisation."""
        await self.ensembles.release(key)
        self.tls_files.forget(key)
        self.names.forget(key)
        error = await self.applier.see_to_migrations(*key, self._wall_clock())
        if error:
            _log.warning("migrations of %s/%s, which does not exist: %s", *key, error)

    async def failed(self, key: tuple[str, str], text: str) -> None:
        """A pass ended early: say so where people look."""
        _log.warning("%s/%s: %s", *key, text)
        try:
            self._check()
            body = await self.kube.get(kinds.WALTZ_CLUSTER, *key)
        except (KubeError, LeaseLostError):
            return
        about = {
            "apiVersion": kinds.WALTZ_CLUSTER.api_version,
            "kind": kinds.WALTZ_CLUSTER.kind,
            "name": key[1],
            "namespace": key[0],
            "uid": body["metadata"]["uid"],
        }
        await self.events.emit(about, FAILED, text, "Warning")

    async def close(self) -> None:
        await self.observer.close()
        await self.ensembles.close()
        self.tls_files.close()
        self.names.close()


async def run_operator(settings: OperatorSettings, stop: asyncio.Event) -> None:
    """Run until `stop`. KubeConfigError, HttpBindError, LeaseLostError: one line for a person."""
    configuration = await config.load(settings.kubeconfig)
    kube = KubeClient(configuration)
    metrics = OperatorMetrics()
    process: _Process | None = None
    health = HealthServer(
        metrics, lambda: process.alive() if process else "", lambda: process.ready() if process else ""
    )
    try:
        await health.start(settings.http_host, settings.http_port)
        if not settings.operator_image:
            settings = replace(settings, operator_image=await own_image(kube, settings.lease_namespace, stop))
        parts = OperatorParts(kube, settings, metrics=metrics)
        process = _Process(parts, configuration)
        try:
            await process.run(stop)
        finally:
            await parts.close()
    finally:
        await health.close()
        await kube.close()


async def own_image(kube: Kube, namespace: str, stop: asyncio.Event) -> str:
    """Image of this process's own pod, for the Jobs that it starts; empty outside of a pod, where it may not
    be read, and when `stop` is set. It is read once, so what may heal is tried again."""
    name = os.environ.get("POD_NAME")
    while name and not stop.is_set():
        try:
            pod = await kube.get(kinds.POD, namespace, name)
        except KubeError as error:
            if not error.retriable:
                _log.warning("the operator's own pod cannot be read, so copy jobs have no image: %s", error)
                return ""
            _log.warning("the operator's own pod cannot be read yet: %s", error)
        else:
            containers = pod["spec"]["containers"]
            own = next((one for one in containers if one["name"] == OWN_CONTAINER), containers[0])
            return str(own["image"])
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(IMAGE_RETRY_SECONDS):
                await stop.wait()
    return ""


class _Process:
    """The life of one operator process."""

    def __init__(self, parts: OperatorParts, configuration: Configuration) -> None:
        self._parts = parts
        self._configuration = configuration
        self._watcher: Watcher | None = None
        self._standing_by = True

    def alive(self) -> str:
        """Of the process alone: see `http`."""
        silent = self._watcher.silent_seconds() if self._watcher is not None else 0.0
        if silent > SILENT_SECONDS:
            return f"the thread of the watches has not run for {silent:.0f} s"
        return self._parts.workers.stuck()

    def ready(self) -> str:
        """Standing by is ready too: else a roll-out that waits for the new pod would never take the Lease
        from the old one."""
        if self._standing_by:
            return ""
        if not self._parts.lease.holding:
            return "the lease is lost"
        return "" if self._watcher is not None and self._watcher.ready else "not watching yet"

    async def run(self, stop: asyncio.Event) -> None:
        acquired = await _either(self._parts.lease.acquire(), stop)
        if not acquired:
            return
        self._standing_by = False
        self._parts.metrics.holding_lease.set_function(lambda: float(self._parts.lease.holding))
        try:
            async with asyncio.TaskGroup() as group:
                keeping = group.create_task(self._keep_lease(), name="lease")
                watching = group.create_task(self._watch(stop), name="watches")
                working = group.create_task(self._parts.workers.run(stop), name="workers")
                listing = group.create_task(self._parts.resync(), name="resync")
                await working
                for task in (keeping, watching, listing):
                    task.cancel()
        finally:
            if stop.is_set():
                await self._parts.lease.release()

    async def _keep_lease(self) -> None:
        await self._parts.lease.run()
        raise LeaseLostError("the Lease was lost to another operator; this one ends and may start again")

    async def _watch(self, stop: asyncio.Event) -> None:
        namespaces = self._parts.settings.namespaces
        looks = self._parts.reconciler.looks
        async with Watcher(
            self._parts.changed,
            lambda: self._configuration,
            namespaces,
            looks.all_changed,
            self._parts.writer.wrote,
        ) as watcher:
            self._watcher = watcher
            looks.watching = lambda: watcher.ready and watcher.silent_seconds() < SILENT_SECONDS
            await watcher.watch(stop)


async def _either(work: Coroutine[object, object, None], stop: asyncio.Event) -> bool:
    """Whether the work ended before `stop` was set; else it was cancelled."""
    async with asyncio.TaskGroup() as group:
        task = group.create_task(work)
        stopping = group.create_task(stop.wait())
        await asyncio.wait((task, stopping), return_when=asyncio.FIRST_COMPLETED)
        done = task.done()
        task.cancel()
        stopping.cancel()
    return done
