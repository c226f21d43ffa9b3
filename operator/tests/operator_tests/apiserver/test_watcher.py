"""The real watcher, kopf's, on a real API server: it wakes, and it leaves our objects alone."""

from __future__ import annotations

import asyncio
from typing import Any

from operator_tests.apiserver import stories
from operator_tests.apiserver.conftest import Plane
from operator_tests.apiserver.world import NAME, World
from operator_tests.resources.clusters import INPUTS, cluster
from waltz_operator.api.metadata import FINALIZER, LABEL_INSTANCE, LABEL_MANAGED_BY, MANAGED_BY
from waltz_operator.kube import kinds
from waltz_operator.kube.kinds import Kind
from waltz_operator.resources import desired_objects
from waltz_operator.run.kopf_handlers import WATCHED
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


def owned(namespace: str) -> list[tuple[Kind, dict[str, Any]]]:
    """One of each kind that the operator makes, as small as the API server takes it."""
    pod = {"containers": [{"name": "a", "image": "a"}]}
    selector = {"matchLabels": {"a": "b"}}
    template = {"metadata": {"labels": {"a": "b"}}, "spec": pod}
    claim = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    specs: dict[str, Any] = {
        "Service": {"clusterIP": "None", "selector": {"a": "b"}},
        "PodDisruptionBudget": {"selector": selector, "maxUnavailable": 1},
        "NetworkPolicy": {"podSelector": {}},
        "Deployment": {"selector": selector, "template": template},
        "StatefulSet": {"selector": selector, "template": template, "serviceName": "a"},
        "Job": {"template": {"spec": {**pod, "restartPolicy": "Never"}}},
        "PersistentVolumeClaim": claim,
        "Pod": pod,
    }
    found = []
    for kind in WATCHED:
        labels = {LABEL_MANAGED_BY: MANAGED_BY, LABEL_INSTANCE: f"of-{kind.kind.lower()}"}
        body: dict[str, Any] = {
            "apiVersion": kind.api_version,
            "kind": kind.kind,
            "metadata": {"name": "a", "namespace": namespace, "labels": labels},
        }
        if kind.kind in specs:
            body["spec"] = specs[kind.kind]
        if kind.kind == "EndpointSlice":
            body |= {"addressType": "IPv4", "endpoints": []}
        found.append((kind, body))
    return found


def test_it_wakes_when_an_object_of_any_kind_that_it_makes_is_deleted(plane: Plane) -> None:
    made = {obj["kind"] for obj in desired_objects(cluster({}), INPUTS)}
    assert made <= {kind.kind for kind in WATCHED}

    async def scenario(world: World) -> None:
        woken: asyncio.Queue[tuple[str, str]] = asyncio.Queue()
        configuration = plane.control.configuration(plane.token)
        async with Watcher(woken.put_nowait, lambda: configuration, [world.namespace]):
            for kind, body in owned(world.namespace):
                key = (world.namespace, body["metadata"]["labels"][LABEL_INSTANCE])
                made = await world.kube.create(body)
                await _woken_for(woken, key, kind)
                while not woken.empty():
                    woken.get_nowait()
                uid = made["metadata"]["uid"]
                await world.kube.delete(kind, world.namespace, "a", uid=uid, grace_seconds=0)
                await _woken_for(woken, key, kind)

    plane.run(scenario)


async def _woken_for(woken: asyncio.Queue[tuple[str, str]], key: tuple[str, str], kind: Kind) -> None:
    try:
        async with asyncio.timeout(30):
            while await woken.get() != key:
                pass
    except TimeoutError:
        raise AssertionError(f"nobody was woken for the {kind.kind}") from None
