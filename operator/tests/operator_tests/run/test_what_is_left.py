"""What is left when a cluster is gone: no migration that waits for it, and no figure of it."""

from __future__ import annotations

from typing import Any, cast

import pytest

from operator_tests.kube.objects import ObjectsKube
from waltz_operator.api.metadata import FINALIZER
from waltz_operator.kube.client import Object
from waltz_operator.kube.errors import KubeError
from waltz_operator.run.apply import Applier
from waltz_operator.run.lease import LeaseLostError
from waltz_operator.run.metrics import OperatorMetrics
from waltz_operator.run.write_kubernetes import KubernetesWriter

KEY = ("demo", "ledger")


def migration(name: str, cluster: str = "ledger", *, deleted: bool = True, held: bool = True) -> Object:
    metadata: dict[str, Any] = {
        "name": name,
        "namespace": "demo",
        "resourceVersion": "1",
        "finalizers": ["theirs", *([FINALIZER] if held else [])],
    }
    if deleted:
        metadata["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    return {"kind": "WaltzMigration", "metadata": metadata, "spec": {"cluster": cluster}}


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
    assert await applier(server).release_migrations(*KEY) == ""
    assert server.writes == [("patch", "WaltzMigration", "held")]
    assert server.objects["WaltzMigration", "held"]["metadata"]["finalizers"] == ["theirs"]


async def test_nothing_is_released_without_the_lease_and_a_refusal_is_said() -> None:
    def lost() -> None:
        raise LeaseLostError("the lease is lost")

    server = ObjectsKube(migration("held"))
    with pytest.raises(LeaseLostError):
        await applier(server, lost).release_migrations(*KEY)
    assert server.writes == []
    server.refuse["WaltzMigration", "held"] = KubeError("no right", status=403)
    assert "no right" in await applier(server).release_migrations(*KEY)


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
