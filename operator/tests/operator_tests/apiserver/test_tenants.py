"""What one person writes wrong holds up only what it is about: on a real API server, by what it really
answers."""

from __future__ import annotations

from typing import Any

import pytest

from operator_tests.apiserver import stories
from operator_tests.apiserver.conftest import Plane
from operator_tests.apiserver.stories import require
from operator_tests.apiserver.test_refusals import PLAIN, condition
from operator_tests.apiserver.world import NAME, World
from waltz_operator.kube import kinds
from waltz_operator.kube.errors import KubeInvalidError

LOTS = {"limits": {"cpu": "lots"}}
TYPING_ERRORS: tuple[tuple[dict[str, Any], str], ...] = (
    ({"nodeSelektor": {"a": "b"}}, "nodeSelektor: field not declared in schema"),
    ({"containers": [{"name": "server", "resources": LOTS}]}, "quantities must match"),
)


@pytest.mark.parametrize(
    ("wrong", "sentence"), [TYPING_ERRORS[0], pytest.param(*TYPING_ERRORS[1], marks=pytest.mark.long)]
)
def test_a_typing_error_in_a_pod_template_holds_up_only_its_workload(
    plane: Plane, wrong: dict[str, Any], sentence: str
) -> None:
    async def scenario(world: World) -> None:
        await stories.play(world, stories.install(replicas=3, **PLAIN))
        before = await world.kube.get(kinds.DEPLOYMENT, world.namespace, f"{NAME}-server")
        await world.change({"servers": {"podTemplate": {"spec": wrong}}})
        await world.change({"images": {"storage": "waltz-storage:2"}})
        service = await world.kube.get(kinds.SERVICE, world.namespace, NAME)
        await world.kube.delete(kinds.SERVICE, world.namespace, NAME, uid=service["metadata"]["uid"])
        restarts = sum(line.startswith("restart ") for line in world.journal.lines)
        for _ in range(40):
            result = await world.operator.one_pass(world.namespace)
            await world.machinery.settle()
        require(not result.error, result.error)
        degraded = await condition(world, "Degraded")
        require(degraded["reason"] == "WriteFailed", f"Degraded says: {degraded}")
        require(f"Deployment {NAME}-server" in degraded["message"], f"Degraded says: {degraded}")
        require(sentence in degraded["message"], f"Degraded says: {degraded}")
        await world.kube.get(kinds.SERVICE, world.namespace, NAME)  # it is back
        rolled = sum(line.startswith("restart ") for line in world.journal.lines) - restarts
        require(rolled == 3, f"{rolled} storage nodes were restarted for their new image")
        after = await world.kube.get(kinds.DEPLOYMENT, world.namespace, f"{NAME}-server")
        require(after["metadata"]["generation"] == before["metadata"]["generation"], "the servers changed")
        await world.change({"servers": {"podTemplate": None}})
        await world.settle()
        degraded = await condition(world, "Degraded")
        require(degraded["status"] == "False", f"Degraded says: {degraded}")

    plane.run(scenario)


@pytest.mark.parametrize(
    "part",
    [
        {"servers": {"resources": LOTS}},
        {"storage": {"resources": {"requests": {"memory": "much"}}}},
        {"storage": {"groups": [{"name": "1", "resources": LOTS}]}, "replicas": None},
    ],
)
def test_a_quantity_that_is_none_is_refused_when_it_is_applied(plane: Plane, part: dict[str, Any]) -> None:
    async def scenario(world: World) -> None:
        spec = {**stories.spec(replicas=3, **PLAIN), **part}
        with pytest.raises(KubeInvalidError, match="should match"):
            await world.create({name: value for name, value in spec.items() if value is not None})

    plane.run(scenario)


def test_a_migration_that_cannot_be_read_blinds_nobody(plane: Plane) -> None:
    """One that an older definition let in."""

    async def scenario(world: World) -> None:
        await stories.play(world, stories.install(replicas=3, **PLAIN))
        await world.migrate("odd", drain={"node": "1-0"}, dryRun=True)
        world.operator.parts.observer._kube = _Odd(world.operator.parts.kube)
        service = await world.kube.get(kinds.SERVICE, world.namespace, NAME)
        await world.kube.delete(kinds.SERVICE, world.namespace, NAME, uid=service["metadata"]["uid"])
        for _ in range(3):
            await world.operator.one_pass(world.namespace)
        await world.kube.get(kinds.SERVICE, world.namespace, NAME)  # it is back
        valid = next(
            one for one in (await world.migration("odd"))["status"]["conditions"] if one["type"] == "Valid"
        )
        require("rateLimitBytesPerSecond" in valid["message"], f"Valid says: {valid}")
        available = await condition(world, "Available")
        require(available["status"] == "True", f"Available says: {available}")

    plane.run(scenario)


class _Odd:
    """Shows the migration `odd` with a value that no definition of ours takes."""

    def __init__(self, real: Any) -> None:
        self._real = real

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)

    async def list(self, kind: Any, *arguments: Any, **more: Any) -> Any:
        found = await self._real.list(kind, *arguments, **more)
        for one in found:
            if one["metadata"]["name"] == "odd":
                one["spec"]["rateLimitBytesPerSecond"] = "fast"
        return found
