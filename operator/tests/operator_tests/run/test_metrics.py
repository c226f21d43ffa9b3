"""Figures that nothing moved."""

from __future__ import annotations

import json
from collections.abc import Sequence

import pytest

from operator_tests.resources.clusters import cluster
from waltz_operator.api.metadata import COPY_PARTITION, COPY_TARGET
from waltz_operator.model.snapshot import KubeView, PodView, Snapshot, StatefulSetView, Unknown
from waltz_operator.run.metrics import OperatorMetrics
from waltz_operator.run.read_kubernetes import job

KEY = ("demo", "ledger")


def test_partitions_that_move_by_load_are_counted_and_forgotten_with_their_cluster() -> None:
    metrics = OperatorMetrics()
    metrics.moved(KEY, 2)
    metrics.moved(KEY, 1)
    line = 'waltz_operator_partition_moves_total{name="ledger",namespace="demo"} 3.0'
    assert line in str(metrics.text(1.0), "utf-8")
    metrics.forget(KEY)
    assert line not in str(metrics.text(1.0), "utf-8")


def test_the_bytes_that_a_copy_job_reports_are_counted_once() -> None:
    """Its report had them, and nobody read it: the counter stayed at nothing."""
    report = {"verifiedThrough": 9, "checksum": "c", "copied": 10, "copiedBytes": 4711}
    ended = {"state": {"terminated": {"message": json.dumps(report), "finishedAt": "2026-01-01T00:00:00Z"}}}
    pods = [{"status": {"containerStatuses": [{"name": "copy", **ended}]}}]
    body = {
        "metadata": {"uid": "u", "annotations": {COPY_PARTITION: "0", COPY_TARGET: "b:1"}},
        "status": {"conditions": [{"type": "Complete", "status": "True"}]},
    }
    seen = job(body, pods)
    assert seen is not None
    snapshot = Snapshot(cluster(), KubeView(jobs={"c": seen}), Unknown("it was not asked"), {}, {}, 1.0)
    metrics = OperatorMetrics()
    for _ in range(3):
        metrics.observed(KEY, snapshot, {})
    assert 'waltz_operator_migration_bytes_total{name="ledger",namespace="demo"} 4711.0' in str(
        metrics.text(1.0), "utf-8"
    )


@pytest.mark.parametrize(
    ("ready", "down"),
    [
        ((True, True, True), 0),
        ((True, False, True), 1),
        ((False, True, None), 2),  # one has no pod
        ((), None),  # nothing was made yet
    ],
)
def test_zookeeper_servers_that_do_not_serve_are_counted_once_there_are_any(
    ready: Sequence[bool | None], down: int | None
) -> None:
    made = cluster({"zookeeper": {"managed": {"replicas": 3}}})
    name = "ledger-zookeeper"
    view = KubeView(
        statefulsets={name: StatefulSetView("z", "", "", "t", len(ready), 3, True, members=len(ready))}
        if ready
        else {},
        pods={
            f"{name}-{n}": PodView("uid", "zookeeper", "t", one)
            for n, one in enumerate(ready)
            if one is not None
        },
    )
    metrics = OperatorMetrics()

    def shown(kube: KubeView | Unknown) -> float | None:
        metrics.observed(KEY, Snapshot(made, kube, Unknown("it was not asked"), {}, {}, 1.0), {})
        return metrics.registry.get_sample_value(
            "waltz_operator_zookeeper_servers_down", {"namespace": KEY[0], "name": KEY[1]}
        )

    assert shown(view) == down
    assert shown(Unknown("the API server does not answer")) is None
