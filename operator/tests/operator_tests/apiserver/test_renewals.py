"""Certificates are renewed whatever else is wrong with the specification."""

from __future__ import annotations

import base64
import copy
from typing import Any

import pytest

from operator_tests.apiserver.conftest import Plane
from operator_tests.apiserver.stories import require
from operator_tests.apiserver.world import World
from operator_tests.resources.clusters import PLAIN, merged
from waltz_admin.authority import CertificateInfo, describe
from waltz_operator.kube import kinds

LATE_SECONDS = 89.9 * 86_400
WRONG: dict[str, dict[str, Any]] = {
    "invalid": {"storage": {"config": {"storage.nonsense": 1}}},
    "unreadable": {"storage": {"config": {"storage.disk.threads": [1]}}},
}


async def certificate(world: World, role: str) -> CertificateInfo:
    secret = await world.kube.get(kinds.SECRET, world.namespace, f"ledger-tls-{role}")
    return describe(base64.b64decode(secret["data"]["tls.crt"]), role)


@pytest.mark.parametrize("wrong", WRONG)
def test_certificates_are_renewed_while_the_specification_is_wrong(plane: Plane, wrong: str) -> None:
    """A typing error that is left for 30 days ended in an outage of everything."""

    async def scenario(world: World) -> None:
        await world.create(merged(copy.deepcopy(PLAIN), {"partitions": 1}))
        await world.settle()
        roles = ("server", "storage", "operator", "client")
        before = {role: await certificate(world, role) for role in roles}
        await world.change(WRONG[wrong])
        await world.operator.one_pass(world.namespace)
        require({role: await certificate(world, role) for role in roles} == before, "none is due")
        world.clock_offset = LATE_SECONDS
        for _ in range(3):
            await world.operator.one_pass(world.namespace)
        for role, was in before.items():
            found = await certificate(world, role)
            require(found.not_after > was.not_after + LATE_SECONDS / 2, f"{role} is not renewed")
            require(found.names == was.names, f"{role} is for {found.names}")
        require((await world.cluster())["status"]["phase"] == "Invalid", "it is still wrong")
        lines = len(world.journal.lines)
        for _ in range(2):
            await world.operator.one_pass(world.namespace)
        require(len(world.journal.lines) == lines, f"it rests not: {world.journal.lines[lines:]}")

    plane.run(scenario)
