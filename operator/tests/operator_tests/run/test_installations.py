"""Two installations that watch one namespace: one works, the other one changes nothing and says so."""

from __future__ import annotations

import asyncio
import datetime
from typing import Any

import pytest

from operator_tests.kube.objects import ObjectsKube
from operator_tests.run.test_refusals import Stage, stage, waltz_cluster
from waltz_operator.api.metadata import OPERATED_BY
from waltz_operator.kube.errors import KubeForbiddenError
from waltz_operator.run.installations import (
    ABANDONED_SECONDS,
    MISSING_SECONDS,
    Installations,
    OtherOperatorError,
)

A, B = "waltz-system/waltz-operator", "team/waltz-operator"
NOW = 1_000_000.0


def lease(age_seconds: float) -> dict[str, Any]:
    at = datetime.datetime.fromtimestamp(NOW - age_seconds, datetime.UTC)
    return {"kind": "Lease", "metadata": {"name": "waltz-operator"}, "spec": {"renewTime": at.isoformat()}}


class Silent(ObjectsKube):
    async def get(self, *_: Any) -> Any:
        raise KubeForbiddenError("GET leases is forbidden", status=403)


CASES = [
    ("nobody's", "", "", ObjectsKube(), True),
    ("ours", B, "", ObjectsKube(lease(0)), True),
    ("another's that lives", A, "", ObjectsKube(lease(5)), False),
    ("another's that is gone just now", A, "", ObjectsKube(), False),
    ("another's that left it alone", A, "", ObjectsKube(lease(ABANDONED_SECONDS + 1)), True),
    ("another's that cannot be seen", A, "", Silent(), False),
    ("given to us", A, B, ObjectsKube(lease(0)), True),
    ("given to another", B, A, ObjectsKube(), False),
]


@pytest.mark.parametrize(
    ("recorded", "named", "kube", "may"), [case[1:] for case in CASES], ids=[c[0] for c in CASES]
)
async def test_whose_a_cluster_is(recorded: str, named: str, kube: ObjectsKube, may: bool) -> None:
    body = {"metadata": {"annotations": {OPERATED_BY: named}}, "status": {"operator": recorded}}
    if may:
        await Installations(kube, B, lambda: NOW).check(body)
    else:
        with pytest.raises(OtherOperatorError, match="changes nothing"):
            await Installations(kube, B, lambda: NOW).check(body)


@pytest.mark.looptime
async def test_the_cluster_of_one_whose_lease_is_gone_for_long_may_be_taken() -> None:
    """Somebody may have deleted it a moment ago."""
    kube, body = ObjectsKube(), {"metadata": {}, "status": {"operator": A}}
    installations = Installations(kube, B, lambda: NOW)
    with pytest.raises(OtherOperatorError) as e:
        await installations.check(body)
    assert e.value.again_seconds == MISSING_SECONDS
    await asyncio.sleep(MISSING_SECONDS - 1)
    with pytest.raises(OtherOperatorError):
        await installations.check(body)
    kube.objects["Lease", "waltz-operator"] = lease(5)
    with pytest.raises(OtherOperatorError):
        await installations.check(body)
    kube.objects.clear()
    await asyncio.sleep(2)
    with pytest.raises(OtherOperatorError):
        await installations.check(body)
    await asyncio.sleep(MISSING_SECONDS)
    await installations.check(body)


@pytest.mark.looptime
async def test_looks_that_lie_far_apart_prove_nothing_about_the_time_between() -> None:
    """Its Lease may have been there meanwhile, while nobody looked."""
    kube, body = ObjectsKube(), {"metadata": {}, "status": {"operator": A}}
    installations = Installations(kube, B, lambda: NOW)
    for _ in range(2):
        with pytest.raises(OtherOperatorError):
            await installations.check(body)
        await asyncio.sleep(10 * MISSING_SECONDS)


def as_installation(found: Stage, own: str) -> None:
    found.loop._observer._installations = Installations(found.server, own, lambda: found.now)


async def test_the_first_one_is_recorded_and_the_second_one_writes_nothing() -> None:
    async with stage(waltz_cluster(), {**lease(0), "spec": {"renewTime": "1970-01-01T00:16:00Z"}}) as found:
        as_installation(found, A)
        await found.settle(8)
        assert found.server.objects["WaltzCluster", "ledger"]["status"]["operator"] == A
        as_installation(found, B)
        del found.server.objects["Service", "ledger-zookeeper"]
        writes = len(found.server.writes)
        result = await found.settle(3)
        assert len(found.server.writes) == writes
        assert f"the operator {A} works on this cluster" in result.left_out
        metadata = found.server.objects["WaltzCluster", "ledger"]["metadata"]
        metadata["annotations"] = {OPERATED_BY: B}
        await found.settle(3)
        assert ("Service", "ledger-zookeeper") in found.server.objects
        assert found.server.objects["WaltzCluster", "ledger"]["status"]["operator"] == B
        as_installation(found, A)
        assert f"the operator {B} works" in (await found.one_pass()).left_out
