"""A real API server takes over the managed ZooKeeper of an earlier release, and lets it grow."""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import Any

from operator_tests.apiserver.conftest import Plane
from operator_tests.apiserver.test_definitions import on_the_server, refusal, waltz_cluster
from operator_tests.resources.clusters import INPUTS, PLAIN, Spec, merged
from waltz_operator.api.parse import parse_cluster
from waltz_operator.kube.client import KubeClient
from waltz_operator.kube.kinds import STATEFUL_SET, WALTZ_CLUSTER
from waltz_operator.resources import desired_objects

NAME = "ledger-zookeeper"


def made(body: dict[str, Any], **changes: Any) -> list[dict[str, Any]]:
    """What is rendered of ZooKeeper for a cluster as the server has it."""
    inputs = replace(INPUTS, **changes)
    found = [copy.deepcopy(dict(one)) for one in desired_objects(parse_cluster(body), inputs)]
    kinds = ("StatefulSet", "PersistentVolumeClaim", "ConfigMap")
    return [one for one in found if NAME in one["metadata"]["name"] and one["kind"] in kinds]


def of_an_earlier_release(objects: list[dict[str, Any]]) -> dict[str, Any]:
    (found,) = [one for one in objects if one["kind"] == "StatefulSet"]
    found["spec"]["updateStrategy"] = {"type": "RollingUpdate"}
    found["spec"]["persistentVolumeClaimRetentionPolicy"]["whenDeleted"] = "Delete"
    return found


def test_a_stateful_set_of_an_earlier_release_is_taken_over_and_grows(plane: Plane) -> None:
    async def work(kube: KubeClient) -> None:
        spec: Spec = merged(PLAIN, {"reclaimPolicy": "Delete"})
        body = await kube.create(waltz_cluster("taken", spec))
        await kube.apply(of_an_earlier_release(made(body)))
        for members in (1, 2, 3):
            live = {("StatefulSet", NAME): await kube.get(STATEFUL_SET, "taken", NAME)}
            for one in made(body, live=live, zookeeper_members=members):
                await kube.apply(one)
            found = await kube.get(STATEFUL_SET, "taken", NAME)
            assert found["spec"]["updateStrategy"] == {"type": "OnDelete"}
            assert found["spec"]["persistentVolumeClaimRetentionPolicy"]["whenDeleted"] == "Retain"
            assert found["spec"]["replicas"] == members

    on_the_server(plane, "taken", work)


def test_the_number_of_servers_and_their_size_can_grow_and_nothing_else(plane: Plane) -> None:
    async def work(kube: KubeClient) -> None:
        await kube.create(waltz_cluster("growing", PLAIN))
        steps: tuple[tuple[Spec, str], ...] = (
            ({"replicas": 3, "size": "4Gi"}, ""),
            ({"replicas": 5}, ""),
            ({"replicas": 3}, "can only grow"),
            ({"replicas": 4}, "replicas"),
            ({"size": "3Gi"}, "cannot shrink"),
        )
        for managed, reason in steps:
            current = await kube.get(WALTZ_CLUSTER, "growing", "ledger")
            changed = {**current, "spec": merged(current["spec"], {"zookeeper": {"managed": managed}})}
            said = await refusal(kube, changed, changed=True)
            assert (reason in said) if reason else not said, (managed, said)

    on_the_server(plane, "growing", work)
