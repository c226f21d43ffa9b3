"""Figures that nothing moved."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any, cast

from waltz_operator.api.metadata import COPY_PARTITION, COPY_TARGET
from waltz_operator.model.snapshot import KubeView, Unknown
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
    silent = Unknown("it was not asked")
    snapshot = SimpleNamespace(nodes={}, servers={}, tree=silent, kube=KubeView(jobs={"c": seen}))
    metrics = OperatorMetrics()
    for _ in range(3):
        metrics.observed(KEY, cast("Any", snapshot), {})
    assert 'waltz_operator_migration_bytes_total{name="ledger",namespace="demo"} 4711.0' in str(
        metrics.text(1.0), "utf-8"
    )
