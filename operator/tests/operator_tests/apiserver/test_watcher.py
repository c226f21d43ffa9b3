"""The real watcher, kopf's, on a real API server: it wakes, and it leaves our objects alone."""

from __future__ import annotations

import asyncio

from operator_tests.apiserver import stories
from operator_tests.apiserver.conftest import Plane
from operator_tests.apiserver.world import NAME, World
from waltz_operator.api.metadata import FINALIZER
from waltz_operator.kube import kinds
from waltz_operator.run.kopf_thread import Watcher


def test_it_wakes_for_every_change_and_our_finalizer_stays(plane: Plane) -> None:
    async def scenario(world: World) -> None:
        await world.create(stories.spec(replicas=3))
        await _patch(world, {"finalizers": [FINALIZER]})
        woken: asyncio.Queue[tuple[str, str]] = asyncio.Queue()
        configuration = plane.control.configuration(plane.token)
        async with Watcher(woken.put_nowait, lambda: configuration, [world.namespace]) as watcher:
            # events of an object are worked on one after the other: when the last one wakes us, all of kopf's
            # own writes for those before it are done
            for number in range(3):
                async with asyncio.timeout(30):
                    assert await woken.get() == (world.namespace, NAME)
                await _patch(world, {"annotations": {"example.org/number": str(number)}})
            assert watcher.ready
            assert watcher.silent_seconds() < 30, "its loop does not run"
            async with asyncio.timeout(30):
                await woken.get()
        metadata = (await world.cluster())["metadata"]
        assert metadata["finalizers"] == [FINALIZER]
        assert set(metadata["annotations"]) == {"example.org/number"}
        await _patch(world, {"finalizers": []})

    plane.run(scenario)


async def _patch(world: World, metadata: dict[str, object]) -> None:
    await world.kube.merge_patch(kinds.WALTZ_CLUSTER, world.namespace, NAME, {"metadata": metadata})
