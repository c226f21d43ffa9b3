"""Versions of the definitions on a real API server: both show one object, what an earlier release stored is
read, and the version that is stored can be exchanged while the operator works."""

from __future__ import annotations

import copy
from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from operator_tests.apiserver import stories
from operator_tests.apiserver.conftest import Plane
from operator_tests.apiserver.installed import DEFINITION
from operator_tests.apiserver.stories import require
from operator_tests.apiserver.test_refusals import PLAIN
from operator_tests.apiserver.test_versions import PRESENT, RELEASED, definitions, installed
from operator_tests.apiserver.world import NAME, World
from waltz_operator.kube import kinds
from waltz_operator.kube.client import Object
from waltz_operator.kube.errors import KubeError, KubeInvalidError

BETA = "waltz.dev/v1beta1"
CLUSTER = replace(kinds.WALTZ_CLUSTER, api_version=BETA)
MIGRATION = replace(kinds.WALTZ_MIGRATION, api_version=BETA)


def same(one: Object, other: Object) -> bool:
    """But for the name of the version."""
    parts = ("spec", "status")
    return all(one.get(part) == other.get(part) for part in parts) and (
        one["metadata"]["uid"] == other["metadata"]["uid"]
    )


def stored_as_beta() -> list[Object]:
    """The definitions of a release that stores v1beta1."""
    found = copy.deepcopy(definitions(PRESENT))
    for one in found:
        for version in one["spec"]["versions"]:
            version["storage"] = version["name"] == "v1beta1"
    return found


def beta_only() -> list[Object]:
    """The definitions of a release that has v1alpha1 no longer."""
    found = stored_as_beta()
    for one in found:
        one["spec"]["versions"] = [v for v in one["spec"]["versions"] if v["name"] == "v1beta1"]
    return found


async def stored_versions(world: World, one: Object) -> list[str]:
    found = await world.kube.get(DEFINITION, None, one["metadata"]["name"])
    versions: list[str] = found["status"]["storedVersions"]
    return versions


def test_both_versions_show_one_object_and_its_operator_works_on_it(plane: Plane) -> None:
    async def scenario(world: World) -> None:
        await stories.play(world, stories.install(replicas=3, **PLAIN))
        beta = await world.kube.get(CLUSTER, world.namespace, NAME)
        require(beta["apiVersion"] == BETA, f"it is {beta['apiVersion']}")
        require(same(beta, await world.cluster()), "the versions differ")
        await world.kube.merge_patch(CLUSTER, world.namespace, NAME, {"spec": {"servers": {"replicas": 2}}})
        await world.settle()
        require(
            (await world.cluster())["status"]["servers"]["replicas"] == 2, "the change was not carried out"
        )
        with pytest.raises(KubeInvalidError, match="number of partitions"):
            await world.kube.merge_patch(CLUSTER, world.namespace, NAME, {"spec": {"partitions": 2}})
        body = {
            "apiVersion": BETA,
            "kind": "WaltzMigration",
            "metadata": {"name": "m", "namespace": world.namespace},
        }
        path = MIGRATION.path(world.namespace)
        await world.kube._call(
            "POST", path, None, {**body, "spec": {"cluster": NAME, "drain": {"node": "1-0"}, "dryRun": True}}
        )
        await world.settle()
        require((await world.migration("m"))["status"]["phase"] == "Planned", "the migration was not planned")

    plane.run(scenario)


@pytest.mark.long
@pytest.mark.parametrize("release", RELEASED, ids=lambda path: path.name)
def test_what_a_release_has_stored_is_read_by_both_versions(plane: Plane, release: Path) -> None:
    """Its definitions, then these: nothing is lost, and no other version is recorded as stored, so that its
    definitions can be put back."""

    async def scenario(world: World) -> None:
        made: list[Object] = []
        async with installed(world, definitions(release)):
            documents = yaml.safe_load_all((release / "accepted.yaml").read_text())
            for number, document in enumerate(documents):
                document["metadata"] |= {"namespace": world.namespace, "name": f"taken-{number}"}
                made.append(await world.kube.create(document))
        for one in made:
            kind = CLUSTER if one["kind"] == "WaltzCluster" else MIGRATION
            name = one["metadata"]["name"]
            beta = await world.kube.get(kind, world.namespace, name)
            lost = [key for key, value in one["spec"].items() if beta["spec"].get(key) != value]
            # a definition that has more fields with defaults below fills them in
            require(all(_within(one["spec"][key], beta["spec"].get(key)) for key in lost), f"{name}: {lost}")
            await world.kube.delete(kind, world.namespace, name, uid=one["metadata"]["uid"])
        for definition in definitions(PRESENT):
            require(await stored_versions(world, definition) == ["v1alpha1"], "another version is stored")

    plane.run(scenario)


def _within(old: object, new: object) -> bool:
    if isinstance(old, dict) and isinstance(new, dict):
        return all(_within(value, new.get(key)) for key, value in old.items())
    if isinstance(old, list) and isinstance(new, list):
        return len(old) == len(new) and all(map(_within, old, new))
    return old == new


@pytest.mark.long
def test_the_stored_version_is_exchanged_as_the_page_says(plane: Plane) -> None:
    """docs/operator-definitions.md, the commands by their requests."""

    async def scenario(world: World) -> None:
        await stories.play(world, stories.install(replicas=3, **PLAIN))
        before = await world.cluster()
        async with installed(world, stored_as_beta()):
            await world.change({"servers": {"replicas": 2}})
            await world.settle()
            for definition in stored_as_beta():
                found = await stored_versions(world, definition)
                require(set(found) == {"v1alpha1", "v1beta1"}, f"stored: {found}")
                with pytest.raises(KubeError, match="storedVersions"):
                    await _put(
                        world, next(one for one in beta_only() if one["metadata"] == definition["metadata"])
                    )
            for kind in (CLUSTER, MIGRATION):
                for one in await world.kube.list(kind, world.namespace):
                    await world.kube._call(
                        "PUT", kind.path(world.namespace, one["metadata"]["name"]), None, one
                    )
            for definition in stored_as_beta():
                name = definition["metadata"]["name"]
                patch = {"status": {"storedVersions": ["v1beta1"]}}
                await world.kube.merge_patch(DEFINITION, None, name, patch, status=True)
            try:
                for definition in beta_only():
                    await _put(world, definition)
                after = await world.kube.get(CLUSTER, world.namespace, NAME)
                require(after["metadata"]["uid"] == before["metadata"]["uid"], "it is another object")
                require(after["spec"]["servers"]["replicas"] == 2, f"it is {after['spec']}")
                require(after["status"]["clusterKey"] == before["status"]["clusterKey"], "its key is lost")
            finally:
                for definition in stored_as_beta():
                    await _put(world, definition)
        for definition in definitions(PRESENT):  # as they were, for the tests that follow
            for kind in (CLUSTER, MIGRATION):
                for one in await world.kube.list(kind, None):
                    path = kind.path(one["metadata"]["namespace"], one["metadata"]["name"])
                    await world.kube._call("PUT", path, None, one)
            patch = {"status": {"storedVersions": ["v1alpha1"]}}
            await world.kube.merge_patch(DEFINITION, None, definition["metadata"]["name"], patch, status=True)

    plane.run(scenario)


async def _put(world: World, definition: Object) -> None:
    """Replace a definition by this one."""
    name = definition["metadata"]["name"]
    found = await world.kube.get(DEFINITION, None, name)
    metadata = {**definition["metadata"], "resourceVersion": found["metadata"]["resourceVersion"]}
    await world.kube._call("PUT", DEFINITION.path(None, name), None, {**definition, "metadata": metadata})
