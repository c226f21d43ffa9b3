"""A certificate that was renewed and that nobody takes up: the kubelet of these tests never brings a changed
Secret into a pod that runs."""

from __future__ import annotations

from operator_tests.apiserver import stories
from operator_tests.apiserver.conftest import Plane
from operator_tests.apiserver.stories import require
from operator_tests.apiserver.test_refusals import condition
from operator_tests.apiserver.world import World
from waltz_operator.plan.status.certificates_in_use import LATE_SECONDS

AGO = 45 * 60.0
HOURLY = {"mode": "SelfSigned", "authorityLifetimeHours": 300, "certificateLifetimeHours": 1}


def test_a_renewed_certificate_that_is_not_in_use_is_reported(plane: Plane) -> None:
    async def scenario(world: World) -> None:
        world.clock_offset = -AGO
        await stories.play(world, stories.install(replicas=3, tls=HOURLY))
        before = {one["role"]: one for one in (await world.cluster())["status"]["certificates"]}
        require(set(before) == {"storage", "server"}, f"{before}")
        for one in before.values():
            require(one["differing"] == 0, f"{one}")
            require(one["inUseUntil"] == one["secretUntil"], f"{one}")
        world.clock_offset = 0.0
        await world.settle()
        after = {one["role"]: one for one in (await world.cluster())["status"]["certificates"]}
        for role, count in (("storage", 3), ("server", 1)):
            require(after[role]["differing"] == count, f"{after[role]}")
            require(after[role]["inUseSerial"] == before[role]["inUseSerial"], f"{after[role]}")
            require(after[role]["secretUntil"] > before[role]["secretUntil"], f"{after[role]}")
        require((await condition(world, "Degraded"))["status"] == "False", "it is early yet")
        world.clock_offset = LATE_SECONDS
        await world.operator.one_pass(world.namespace)
        degraded = await condition(world, "Degraded")
        require(degraded["reason"] == "CertificateNotInUse", f"{degraded}")
        for pod in list(world.machinery.pods):
            await world.machinery.crash(pod)  # it starts with the files of now
        await world.settle()
        healed = await condition(world, "Degraded")
        require(healed["status"] == "False", f"{healed}")

    plane.run(scenario)
