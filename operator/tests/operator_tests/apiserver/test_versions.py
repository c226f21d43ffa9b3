"""Another version of the operator and of the definitions, on a real API server: an upgrade or a rollback in
any order loses nothing and stops nothing.

`released/<version>` keeps the definitions of each release and objects that they took. A version that is not
there yet is stood in for by a definition with one more field, with a default, at every level of its schema.
"""

from __future__ import annotations

import asyncio
import copy
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml

from operator_tests.apiserver import stories
from operator_tests.apiserver.conftest import Plane
from operator_tests.apiserver.installed import DEFINITION, ROOT
from operator_tests.apiserver.stories import require
from operator_tests.apiserver.test_refusals import PLAIN, condition
from operator_tests.apiserver.world import NAME, World
from waltz_operator.api.parse import stored_cluster, stored_migration
from waltz_operator.api.validate import validate
from waltz_operator.kube import kinds
from waltz_operator.kube.client import KubeClient, Object
from waltz_protocol import __version__

RELEASED = sorted((Path(__file__).parents[1] / "released").iterdir())
PRESENT = ROOT / "crds"
NEW = "fromAnotherVersion"


def test_the_definitions_of_this_version_are_kept() -> None:
    names = [path.name for path in RELEASED]
    assert __version__ in names, (
        f"copy crds/ and what it takes to released/{__version__}: see CONTRIBUTING.md"
    )


def definitions(directory: Path) -> list[Object]:
    return [yaml.safe_load(path.read_text()) for path in sorted(directory.glob("waltz*.waltz.dev.yaml"))]


def with_new_field(schema: Any) -> int:
    """Put it into every object of the schema; how many there are."""
    if not isinstance(schema, dict):
        return 0
    found = sum(with_new_field(inner) for inner in schema.get("properties", {}).values())
    found += with_new_field(schema.get("items"))
    if "properties" in schema:
        schema["properties"][NEW] = {"type": "string", "default": "new", "description": "New."}
        found += 1
    return found


def tomorrow() -> list[Object]:
    """The present definitions with the new field at every level of the specifications."""
    found = copy.deepcopy(definitions(PRESENT))
    for one in found:
        spec = one["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]
        assert with_new_field(spec) > 3
    return found


@asynccontextmanager
async def installed(world: World, wanted: list[Object]) -> AsyncIterator[None]:
    """These definitions in place of the present ones."""
    await _install(world.kube, wanted)
    try:
        yield
    finally:
        await _install(world.kube, definitions(PRESENT))


async def _install(kube: KubeClient, wanted: list[Object]) -> None:
    for one in wanted:
        name = one["metadata"]["name"]
        found = await kube.get(DEFINITION, None, name)
        body = {
            **one,
            "metadata": {**one["metadata"], "resourceVersion": found["metadata"]["resourceVersion"]},
        }
        await kube._call("PUT", DEFINITION.path(None, name), None, body)
    await asyncio.sleep(2.0)  # the API server says by nothing when it serves the new ones


async def _repairs(world: World) -> None:
    """A Service that is deleted comes back, and at rest nothing is written."""
    service = await world.kube.get(kinds.SERVICE, world.namespace, NAME)
    await world.kube.delete(kinds.SERVICE, world.namespace, NAME, uid=service["metadata"]["uid"])
    await world.settle()
    await world.kube.get(kinds.SERVICE, world.namespace, NAME)
    written = _status_writes(world)
    for _ in range(3):
        result = await world.operator.one_pass(world.namespace)
        require(not result.error and not result.wrote, f"at rest: {result}")
    require(_status_writes(world) == written, "the status is written again and again")


def _status_writes(world: World) -> int:
    sent: int = world.operator.parts.kube.status_writes  # type: ignore[attr-defined]
    return sent


class Counting:
    """In front of the API server: counts what is sent as a status."""

    def __init__(self, real: Any) -> None:
        self._real = real
        self.status_writes = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)

    async def replace(self, obj: Any, *, status: bool = False) -> Any:
        self.status_writes += status
        return await self._real.replace(obj, status=status)


def run(plane: Plane, scenario: Callable[[World], Awaitable[None]]) -> None:
    plane.run(scenario, through=Counting)


@pytest.mark.long
def test_an_operator_keeps_the_fields_of_a_later_one_and_works_on(plane: Plane) -> None:
    async def scenario(world: World) -> None:
        await stories.play(world, stories.install(replicas=3, **PLAIN))
        async with installed(world, tomorrow()):
            await world.change({"servers": {"replicas": 2}})
            await world.migrate("plan-only", drain={"node": "1-0"}, dryRun=True)
            await _repairs(world)
            body = await world.cluster()
            require(body["spec"][NEW] == "new", "the new field is gone")
            require(body["spec"]["servers"][NEW] == "new", "a new field below is gone")
            valid = await condition(world, "Valid")
            require((valid["status"], valid["reason"]) == ("True", "UnknownFields"), f"Valid says: {valid}")
            require(f"spec.{NEW}" in valid["message"], f"Valid says: {valid}")
            migration = await world.migration("plan-only")
            require(migration["status"]["phase"] == "Planned", f"it is {migration['status']}")
            text = str(migration["status"]["conditions"])
            require(f"spec.drain.{NEW}" in text, f"the migration says: {text}")
            deployment = await world.kube.get(kinds.DEPLOYMENT, world.namespace, f"{NAME}-server")
            require(deployment["spec"]["replicas"] == 2, "the change was not carried out")
        await world.settle()
        valid = await condition(world, "Valid")
        require(valid["reason"] == "AsWanted", f"after the way back: {valid}")

    run(plane, scenario)


@pytest.mark.long
@pytest.mark.parametrize("release", RELEASED, ids=lambda path: path.name)
def test_the_operator_works_on_the_definitions_of_a_release(plane: Plane, release: Path) -> None:
    """They have not all fields of its status: what the API server drops is not written again and again."""

    async def scenario(world: World) -> None:
        old = copy.deepcopy(definitions(release))
        for one in old:  # at least one field of the status is not in them, whatever the release
            status = one["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["status"]
            del status["properties"]["phase" if one["spec"]["names"]["kind"] == "WaltzCluster" else "what"]
        async with installed(world, old):
            await stories.play(world, stories.install(replicas=3, **PLAIN))
            await _repairs(world)
            require("phase" not in (await world.cluster())["status"], "the definition was not replaced")

    run(plane, scenario)


@pytest.mark.parametrize("release", RELEASED, ids=lambda path: path.name)
def test_what_a_release_took_is_taken_and_read(plane: Plane, release: Path) -> None:
    async def scenario(world: World) -> None:
        for document in yaml.safe_load_all((release / "accepted.yaml").read_text()):
            kind = kinds.kind_of(document["apiVersion"], document["kind"])
            document["metadata"]["namespace"] = world.namespace
            taken = await world.kube.create(document)
            if kind is kinds.WALTZ_CLUSTER:
                cluster = stored_cluster(taken)
                assert (validate(cluster.spec), cluster.unknown) == ([], ())
            else:
                assert stored_migration(taken).unknown == ()
            name = taken["metadata"]["name"]
            await world.kube.delete(kind, world.namespace, name, uid=taken["metadata"]["uid"])

    plane.run(scenario)


def _taken_back(old: Any, new: Any, path: str) -> list[str]:
    """What the new schema refuses or drops that the old one took, as far as their form shows it."""
    if not isinstance(old, dict) or old.get("x-kubernetes-preserve-unknown-fields"):
        return []
    if not isinstance(new, dict):
        return [f"{path} is gone"]
    found = [f"{path} is a {new.get('type')}" for _ in [0] if old.get("type") != new.get("type")]
    found += [
        f"{path}.{one} is required" for one in set(new.get("required", ())) - set(old.get("required", ()))
    ]
    if "enum" in new and not set(old.get("enum", ())) <= set(new["enum"]):
        found.append(f"{path} takes fewer values")
    for name, inner in old.get("properties", {}).items():
        found += _taken_back(inner, new.get("properties", {}).get(name), f"{path}.{name}")
    return found + _taken_back(old.get("items"), new.get("items"), f"{path}[]")


@pytest.mark.parametrize("release", RELEASED, ids=lambda path: path.name)
def test_no_field_that_was_released_is_taken_back(release: Path) -> None:
    for old, new in zip(definitions(release), definitions(PRESENT), strict=True):
        parts = [one["spec"]["versions"][0]["schema"]["openAPIV3Schema"] for one in (old, new)]
        assert _taken_back(parts[0], parts[1], old["spec"]["names"]["kind"]) == []
