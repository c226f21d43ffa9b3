"""Admission webhooks that change what the operator writes, and an API server that drops a field: each object
is written once, and nothing else waits for it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any

import pytest

from operator_tests.kube.objects import ObjectsKube
from operator_tests.run.test_refusals import Stage, waltz_cluster, waltz_migration
from waltz_operator.api.metadata import FINALIZER, LABEL_INSTANCE, LABEL_MANAGED_BY
from waltz_operator.kube.client import Object
from waltz_operator.run.overridden import AGAIN_SECONDS
from waltz_operator.run.process import PurePlanner
from waltz_operator.run.tls_files import TlsFiles

SET = ("StatefulSet", "ledger-zookeeper")


class Changing(ObjectsKube):
    """`change` is done to whatever is applied, before it is stored."""

    change: Callable[[Object], None] = staticmethod(lambda _: None)

    def _kept(self, obj: Mapping[str, Any]) -> Object:
        uid = self.objects.get((obj["kind"], obj["metadata"]["name"]), {}).get("metadata", {}).get("uid")
        super()._kept(obj)
        made = self.objects[obj["kind"], obj["metadata"]["name"]]
        made["metadata"] |= {"uid": uid} if uid else {}
        self.change(made)
        return dict(made)


@asynccontextmanager
async def stage(change: Callable[[Object], None]) -> AsyncIterator[Stage]:
    files = TlsFiles()
    migration = waltz_migration("m1")
    del migration["metadata"]["finalizers"]
    server = Changing(waltz_cluster(), migration)
    server.change = change
    try:
        yield Stage(server, files, PurePlanner(), {})
    finally:
        files.close()


def containers(obj: Object) -> list[Object]:
    template = obj["spec"]["template"] if obj["kind"] == "StatefulSet" else {"spec": {"containers": []}}
    found: list[Object] = template["spec"]["containers"]
    return found


def mirrored(obj: Object) -> None:
    for one in containers(obj):
        one["image"] = f"mirror.local/{one['image'].removeprefix('mirror.local/')}"


def limited(obj: Object) -> None:
    for one in containers(obj):
        one.setdefault("resources", {}).setdefault("limits", {})["memory"] = "17Gi"


def dropped(obj: Object) -> None:
    """As an API server does with a field whose feature gate is off."""
    if obj["kind"] == "PodDisruptionBudget":
        obj["spec"].pop("unhealthyPodEvictionPolicy", None)


def renamed(obj: Object) -> None:
    if obj["kind"] in ("Service", "ConfigMap"):
        obj["metadata"]["labels"] |= {LABEL_MANAGED_BY: "Helm", LABEL_INSTANCE: "theirs"}


def unmarked(obj: Object) -> None:
    """A policy that keeps only annotations that it knows."""
    if obj["kind"] == "Service":
        obj["metadata"]["annotations"] = {}


def writes(found: Stage) -> list[tuple[str, str, str]]:
    return [one for one in found.server.writes if one[0] == "apply"]


@pytest.mark.parametrize("change", [mirrored, limited, dropped, renamed, unmarked])
async def test_what_a_webhook_changes_is_written_once(change: Callable[[Object], None]) -> None:
    async with stage(change) as found:
        await found.settle(8)
        before = len(writes(found))
        result = await found.settle(20)
        assert len(writes(found)) == before
        assert not result.wrote
        assert FINALIZER in found.server.objects["WaltzMigration", "m1"]["metadata"]["finalizers"]


@pytest.mark.parametrize("change", [mirrored, renamed])
async def test_what_a_webhook_changes_is_written_again_when_it_is_to_be_another(
    change: Callable[[Object], None],
) -> None:
    async with stage(change) as found:
        await found.settle(8)
        spec = found.server.objects["WaltzCluster", "ledger"]["spec"]
        spec["zookeeper"]["managed"]["resources"] = {"limits": {"memory": "3Gi"}}
        spec["servers"] = {"config": {"server.log.level": "WARNING"}}
        await found.settle(2)
        assert containers(found.server.objects[SET])[0]["resources"]["limits"]["memory"] == "3Gi"
        assert "WARNING" in str(found.server.objects["ConfigMap", "ledger-server"]["data"])


async def test_another_field_that_somebody_changes_is_written_again() -> None:
    async with stage(mirrored) as found:
        await found.settle(8)
        before = len(writes(found))
        found.server.objects[SET]["spec"]["replicas"] = 17
        await found.settle(3)
        assert found.server.objects[SET]["spec"]["replicas"] != 17
        containers(found.server.objects[SET])[0]["image"] = "theirs"
        await found.settle(3)
        assert containers(found.server.objects[SET])[0]["image"].startswith("mirror.local/")
        assert len(writes(found)) == before + 2


async def test_after_an_hour_it_is_written_once_more_since_the_webhook_may_be_gone() -> None:
    async with stage(mirrored) as found:
        await found.settle(8)
        before = len(writes(found))
        found.now += AGAIN_SECONDS
        await found.settle(4)
        assert len(writes(found)) == before + 1
        found.server.change = lambda _: None  # type: ignore[attr-defined]
        found.now += AGAIN_SECONDS
        await found.settle(4)
        assert not containers(found.server.objects[SET])[0]["image"].startswith("mirror.local/")
        assert len(writes(found)) == before + 2
        found.now += AGAIN_SECONDS
        await found.settle(4)
        assert len(writes(found)) == before + 2


async def test_an_object_without_our_label_that_is_gone_is_made_again() -> None:
    async with stage(renamed) as found:
        await found.settle(8)
        del found.server.objects["Service", "ledger-zookeeper"]
        await found.settle(2)
        assert ("Service", "ledger-zookeeper") in found.server.objects
