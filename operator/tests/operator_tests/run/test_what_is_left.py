"""What is left when a cluster is gone: no migration that waits for it, and no figure of it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, cast

import pytest

from operator_tests.kube.objects import ObjectsKube
from operator_tests.run.test_refusals import stage, waltz_cluster, waltz_migration
from waltz_operator.api.metadata import FINALIZER
from waltz_operator.api.migration import MigrationPhase
from waltz_operator.api.parse import stored_migration
from waltz_operator.kube.client import Object
from waltz_operator.kube.errors import (
    KubeConflictError,
    KubeError,
    KubeNotFoundError,
    KubeUnavailableError,
)
from waltz_operator.kube.kinds import Kind
from waltz_operator.run.apply import Applier
from waltz_operator.run.lease import LeaseLostError
from waltz_operator.run.metrics import OperatorMetrics
from waltz_operator.run.process import OperatorParts
from waltz_operator.run.write_kubernetes import KubernetesWriter
from waltz_operator.settings import OperatorSettings
from waltz_protocol.aio.tasks import spawn

KEY = ("demo", "ledger")
RESYNC_SECONDS = 60.0


def migration(name: str, cluster: str = "ledger", *, deleted: bool = True, held: bool = True) -> Object:
    """One that is over."""
    metadata: dict[str, Any] = {
        "name": name,
        "namespace": "demo",
        "resourceVersion": "1",
        "finalizers": ["theirs", *([FINALIZER] if held else [])],
    }
    if deleted:
        metadata["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    status = {"phase": "Completed"}
    return {"kind": "WaltzMigration", "metadata": metadata, "spec": {"cluster": cluster}, "status": status}


def applier(server: ObjectsKube, check: Any = lambda: None) -> Applier:
    nobody = cast("Any", None)
    return Applier(KubernetesWriter(server, nobody, nobody), nobody, nobody, nobody, check)


async def test_deleted_migrations_of_a_cluster_that_is_gone_are_released() -> None:
    server = ObjectsKube(
        migration("held"),
        migration("kept", deleted=False),
        migration("free", held=False),
        migration("of-another", "other"),
    )
    assert await applier(server).see_to_migrations(*KEY, 1000.0) == ""
    assert server.writes == [("patch", "WaltzMigration", "held")]
    assert server.objects["WaltzMigration", "held"]["metadata"]["finalizers"] == ["theirs"]


async def test_nothing_is_released_without_the_lease_and_a_refusal_is_said() -> None:
    def lost() -> None:
        raise LeaseLostError("the lease is lost")

    server = ObjectsKube(migration("held"))
    with pytest.raises(LeaseLostError):
        await applier(server, lost).see_to_migrations(*KEY, 1000.0)
    assert server.writes == []
    server.refuse["WaltzMigration", "held"] = KubeError("no right", status=403)
    assert "no right" in await applier(server).see_to_migrations(*KEY, 1000.0)


async def test_one_that_cannot_be_released_keeps_no_other_one() -> None:
    server = ObjectsKube(*(migration(name) for name in ("a", "b", "c", "d")))
    server.refuse["WaltzMigration", "a"] = KubeUnavailableError("PATCH: HTTP 503", status=503)
    server.refuse["WaltzMigration", "b"] = KubeNotFoundError("it has gone", status=404)
    server.refuse["WaltzMigration", "c"] = KubeConflictError("it has changed", status=409)
    error = await applier(server).see_to_migrations(*KEY, 1000.0)
    assert [name for _, _, name in server.writes] == ["a", "b", "c", "d"]
    assert error == "WaltzMigration a: PATCH: HTTP 503; WaltzMigration c: it has changed"


@asynccontextmanager
async def operator(server: ObjectsKube) -> AsyncIterator[OperatorParts]:
    """Workers and the resynchronisation of an operator, on virtual time; the first resync is over."""
    settings = OperatorSettings(identity="test", resync_seconds=RESYNC_SECONDS)
    parts = OperatorParts(server, settings, check=lambda: None, wall_clock=lambda: 1000.0)
    stop = asyncio.Event()
    workers = spawn(parts.workers.run(stop), name="workers")
    resync = spawn(parts.resync(), name="resync")
    await asyncio.sleep(1.0)
    try:
        yield parts
    finally:
        resync.cancel()
        stop.set()
        await workers
        await parts.close()


@pytest.mark.looptime
async def test_a_migration_that_could_not_be_released_is_tried_again() -> None:
    """No watch reports it once more, and its cluster is in no list: it was held until a restart of the
    operator, and its namespace with it."""
    server = ObjectsKube(migration("kept", deleted=False))
    async with operator(server) as parts:
        server.objects["WaltzMigration", "held"] = migration("held")
        server.refuse["WaltzMigration", "held"] = KubeUnavailableError("PATCH: HTTP 503", status=503)
        parts.changed(KEY)
        await asyncio.sleep(1.0)
        assert server.writes == [("patch", "WaltzMigration", "held")]
        server.refuse.clear()
        await asyncio.sleep(RESYNC_SECONDS)
        assert server.objects["WaltzMigration", "held"]["metadata"]["finalizers"] == ["theirs"]
        await asyncio.sleep(3 * RESYNC_SECONDS)
        assert len(server.writes) == 2, "it is released once"


@pytest.mark.looptime
async def test_clusters_are_looked_after_while_migrations_cannot_be_listed() -> None:
    server = ObjectsKube()
    asked = server.list

    async def without_migrations(kind: Kind, namespace: str | None, labels: Any = None) -> list[Object]:
        if kind.kind == "WaltzMigration":
            raise KubeUnavailableError("GET: HTTP 503", status=503)
        return await asked(kind, namespace, labels)

    server.list = without_migrations  # type: ignore[method-assign]
    async with operator(server) as parts:
        woken: list[Any] = []
        parts.workers.wake = lambda key, **_: woken.append(key)  # type: ignore[method-assign]
        server.objects["WaltzCluster", "ledger"] = {"metadata": {"name": "ledger", "namespace": "demo"}}
        await asyncio.sleep(RESYNC_SECONDS)
        assert woken == [KEY]


# ---- migrations that name no cluster


def unanswered(name: str, **status: Any) -> Object:
    body = waltz_migration(name)
    del body["metadata"]["finalizers"]
    return {**body, "status": status} if status else body


@pytest.mark.looptime
async def test_a_migration_that_names_no_cluster_is_answered() -> None:
    """It was as if nobody had read it."""
    server = ObjectsKube(unanswered("m1"), migration("of-another", "other", deleted=False))
    async with operator(server) as parts:
        parts.changed(KEY)
        await asyncio.sleep(1.0)
        found = stored_migration(server.objects["WaltzMigration", "m1"]).status
        assert (found.phase, found.reason) == (MigrationPhase.PENDING, "NoTarget")
        assert found.message.startswith("there is no WaltzCluster ledger in this namespace: ")
        (blocked,) = found.conditions
        assert (blocked.type, blocked.status, blocked.reason) == ("Blocked", "True", "NoTarget")
        assert blocked.message == found.message
        events = [one for (kind, _), one in server.objects.items() if kind == "Event"]
        assert [(one["note"], one["type"]) for one in events if one["regarding"]["name"] == "m1"] == [
            (found.message, "Warning")
        ]
        written = list(server.writes)
        for _ in range(3):
            parts.changed(KEY)
            await asyncio.sleep(RESYNC_SECONDS)
        assert server.writes == written, "it is written once"


@pytest.mark.looptime
async def test_an_answer_that_could_not_be_written_comes_later() -> None:
    server = ObjectsKube(unanswered("m1"))
    server.refuse["WaltzMigration", "m1"] = KubeUnavailableError("PATCH: HTTP 503", status=503)
    async with operator(server):
        assert "reason" not in server.objects["WaltzMigration", "m1"].get("status", {})
        server.refuse.clear()
        await asyncio.sleep(RESYNC_SECONDS)
        assert server.objects["WaltzMigration", "m1"]["status"]["reason"] == "NoTarget"


@pytest.mark.parametrize("phase", ["Completed", "Cancelled", "Failed"])
@pytest.mark.looptime
async def test_migrations_that_are_over_keep_their_status_when_their_cluster_goes(phase: str) -> None:
    ended = unanswered("m1", phase=phase, reason=phase, message="it has ended")
    server = ObjectsKube(ended, migration("held"))
    async with operator(server):
        assert server.writes == [("patch", "WaltzMigration", "held")]
        assert server.objects["WaltzMigration", "m1"]["status"] == ended["status"]


async def test_a_migration_whose_cluster_comes_is_worked_on_as_any_other() -> None:
    conditions = [{"type": "Planned", "status": "True", "reason": "Migrating", "lastTransitionTime": "x"}]
    begun = unanswered("m2", phase="Running", reason="Migrating", etaSeconds=7, conditions=conditions)
    async with stage(unanswered("m1"), begun) as found:
        with pytest.raises(KubeNotFoundError):
            await found.one_pass()
        assert await found.loop._applier.see_to_migrations(*KEY, found.now) == ""
        status = found.server.objects["WaltzMigration", "m2"]["status"]
        assert (status["phase"], status["reason"], status.get("etaSeconds")) == ("Running", "NoTarget", None)
        assert [one["type"] for one in status["conditions"]] == ["Planned", "Blocked"]
        found.server.objects["WaltzCluster", "ledger"] = waltz_cluster()
        await found.settle(10)
        for name, phase in (("m1", "Pending"), ("m2", "Running")):
            one = found.server.objects["WaltzMigration", name]
            assert FINALIZER in one["metadata"]["finalizers"]
            assert (one["status"]["phase"], one["status"]["reason"]) == (phase, "ZooKeeperUnknown")
            assert found.conditions("WaltzMigration", name)["Blocked"]["reason"] == "ZooKeeperUnknown"


def test_no_figure_of_a_cluster_that_is_gone_stays() -> None:
    metrics = OperatorMetrics()
    for key in (KEY, ("demo", "other")):
        metrics.pass_done(key, 0.1, 1.0, "timeout")
        metrics.wrote(key, "ApplyObject")
        metrics.copied(key, "uid", 7)
    metrics.forget(KEY)
    text = metrics.text(2.0).decode()
    assert 'name="ledger"' not in text
    assert text.count('name="other"') > 3
