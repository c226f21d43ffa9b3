"""No figure of a cluster outlasts what it was observed of."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from operator_tests.plan.cluster import facts
from operator_tests.resources.clusters import cluster
from operator_tests.run.test_refusals import BAD, Stage, stage, waltz_cluster
from waltz_operator.kube.errors import KubeUnavailableError
from waltz_operator.model.actions import Blocked
from waltz_operator.model.snapshot import Snapshot, Unknown
from waltz_operator.run.installations import OtherOperatorError
from waltz_operator.run.metrics import OperatorMetrics

KEY = ("demo", "ledger")
OTHER = ("demo", "other")
FIGURES = ("replicas", "replicas_caught_up", "partitions", "partitions_with_quorum", "unreachable")
EXPIRY = "certificate_expiry_timestamp_seconds"


def figure(metrics: OperatorMetrics, name: str, key: tuple[str, str] = KEY, **labels: str) -> float | None:
    labels |= {"namespace": key[0], "name": key[1]}
    return metrics.registry.get_sample_value(f"waltz_operator_{name}", labels)


def roles(metrics: OperatorMetrics) -> set[str]:
    found = metrics.registry.collect()
    samples = [one for metric in found if metric.name == f"waltz_operator_{EXPIRY}" for one in metric.samples]
    return {one.labels["role"] for one in samples if one.labels["name"] == KEY[1]}


def with_figures(found: Stage) -> OperatorMetrics:
    """The metrics of the stage's operator, with figures of two clusters that were observed before."""
    metrics = found.loop._metrics = OperatorMetrics()
    seen = facts(closed=(2,))
    snapshot = Snapshot(cluster(), seen.kube, seen.tree, seen.nodes, seen.servers, seen.now)
    for key in (KEY, OTHER):
        metrics.observed(key, snapshot, {"console": 1.0})
        metrics.blocked(key, (Blocked("x", "NodeSilent", "x"),), 0.0)
        assert all(figure(metrics, name, key) is not None for name in FIGURES)
    return metrics


def test_the_certificate_of_a_role_that_is_gone_has_no_figure() -> None:
    """It ended months later, and a critical alert came of it."""
    metrics = OperatorMetrics()
    snapshot = Snapshot(cluster(), Unknown("x"), Unknown("x"), {}, {}, 0.0)
    metrics.observed(OTHER, snapshot, {"console": 1.0})
    metrics.observed(KEY, snapshot, {"server": 2.0, "console": 1.0})
    metrics.observed(KEY, snapshot, {"server": 3.0})
    assert roles(metrics) == {"server"}
    assert figure(metrics, EXPIRY, role="server") == 3.0
    assert figure(metrics, EXPIRY, OTHER, role="console") == 1.0


async def test_a_cluster_of_another_installation_has_no_figures(monkeypatch: pytest.MonkeyPatch) -> None:
    async def observe(*_: str) -> Any:
        raise OtherOperatorError("status.operator", "the operator x/waltz-operator works on this cluster")

    async with stage() as found:
        metrics = with_figures(found)
        monkeypatch.setattr(found.loop._observer, "observe", observe)
        result = await found.one_pass()
        assert "works on this cluster" in result.left_out
        assert [name for name in FIGURES if figure(metrics, name) is not None] == []
        assert roles(metrics) == set()
        assert all(figure(metrics, name, OTHER) is not None for name in FIGURES)
        metrics.blocked(KEY, (), 1e6)
        waited = figure(metrics, "gate_blocked_seconds_total", reason="NodeSilent")
        assert waited is None, "nobody knows what has waited meanwhile"


@pytest.mark.parametrize("fails", [False, True])
async def test_of_a_cluster_that_cannot_be_read_the_ends_of_its_certificates_are_known(fails: bool) -> None:
    """The operator renews them as they are: an alert has to come when it does not succeed."""
    async with stage(waltz_cluster(tls={"mode": "SelfSigned"})) as found:
        await found.settle(10)
        metrics = with_figures(found)
        found.server.objects["WaltzCluster", "ledger"]["spec"].update(copy.deepcopy(BAD))
        found.now += 61 * 86_400.0
        for role in ("server", "storage"):
            if fails:
                found.server.refuse["Secret", f"ledger-tls-{role}"] = KubeUnavailableError("HTTP 500")
        result = await found.settle(3)
        assert "spec.servers.config" in result.left_out
        assert [name for name in FIGURES if figure(metrics, name) is not None] == []
        assert {"server", "storage"} <= roles(metrics)
        assert "console" not in roles(metrics)
        end = figure(metrics, EXPIRY, role="storage")
        assert end is not None
        assert (end - found.now < 40 * 86_400) == fails
