"""A Secret whose write keeps failing, and a mistake in a pod template."""

from __future__ import annotations

from typing import Any

import pytest

from operator_tests.run.test_refusals import stage, waltz_cluster
from waltz_operator.kube.errors import KubeUnavailableError


async def test_a_certificate_whose_write_keeps_failing_holds_up_only_itself() -> None:
    """The API server answers HTTP 500 to every write of it (a webhook for Secrets, encryption at rest)."""
    async with stage(waltz_cluster(tls={"mode": "SelfSigned"})) as failing:
        key = ("Secret", "ledger-tls-storage")
        failing.server.refuse[key] = KubeUnavailableError("PATCH /api: HTTP 500", status=500)
        for _ in range(12):
            result = await failing.one_pass()
        assert ("StatefulSet", "ledger-zookeeper") in failing.server.objects
        assert not result.error
        tried = failing.tries(*key)
        await failing.settle(120)
        assert failing.tries(*key) - tried <= 10, "it has its own back-off"


async def test_a_cluster_whose_new_certificate_cannot_be_written_is_still_looked_after() -> None:
    """It runs; a certificate is due, and its write fails: what somebody deletes meanwhile comes back all the
    same."""
    tls = {"mode": "SelfSigned", "authorityLifetimeHours": 300, "certificateLifetimeHours": 1}
    async with stage(waltz_cluster(tls=tls)) as failing:
        await failing.settle(10)
        failing.now += 3000.0
        failing.server.refuse["Secret", "ledger-tls-storage"] = KubeUnavailableError("HTTP 500", status=500)
        del failing.server.objects["Service", "ledger-zookeeper"]
        await failing.settle(12)
        assert failing.tries("Secret", "ledger-tls-storage") > 1, (
            "no certificate was due: the test is about nothing"
        )
        assert ("Service", "ledger-zookeeper") in failing.server.objects


MISTAKES: list[dict[str, Any]] = [
    {"volumes": [{"name": "extra", "configMap": "my-map"}]},
    {"volumes": [{"name": "extra", "secret": None}]},
    {"containers": [{"name": "server", "ports": [{"containerPort": [8080]}]}]},
    {"containers": [{"name": "server", "image": None}]},
]


@pytest.mark.parametrize("spec", MISTAKES)
async def test_a_mistake_in_a_pod_template_is_no_internal_error(spec: dict[str, Any]) -> None:
    async with stage(waltz_cluster(servers={"podTemplate": {"spec": spec}})) as found:
        await found.settle()
        assert ("StatefulSet", "ledger-zookeeper") in found.server.objects
        assert "Valid" in found.conditions()
