"""Every scenario once, without faults, with the shipped role: what the operator does on a real API server."""

from __future__ import annotations

import pytest

from operator_tests.apiserver import stories
from operator_tests.apiserver.conftest import Plane
from operator_tests.apiserver.world import World

GROUPS = [{"name": "1", "count": 2}, {"name": "2"}, {"name": "3"}]


def test_install_grow_shrink_roll_and_delete(plane: Plane) -> None:
    async def scenario(world: World) -> None:
        await stories.play(
            world,
            stories.install(replicas=3),
            stories.change("grow to 4", {"replicas": 4}, "1-0", "2-0", "3-0", "4-0"),
            stories.change("shrink to 3", {"replicas": 3}, "1-0", "2-0", "3-0"),
            stories.roll_storage(),
            stories.change(
                "roll the server image", {"images": {"server": "waltz-server:2"}}, "1-0", "2-0", "3-0"
            ),
            stories.delete("Retain"),
        )

    world = plane.run(scenario)
    assert world.errors == []


@pytest.mark.long
def test_drain_and_replace_a_lost_disk(plane: Plane) -> None:
    async def scenario(world: World) -> None:
        await stories.play(
            world,
            stories.install(storage={"groups": GROUPS}, reclaimPolicy="Delete"),
            stories.drain(),
            stories.lose_disk(),
            stories.delete("Delete"),
        )

    plane.run(scenario)


def test_a_lost_journal_is_a_lost_disk(plane: Plane) -> None:
    """Said, and replaced by a person's word; the volumes of both are those of the node."""

    async def scenario(world: World) -> None:
        volume = {"journal": {"size": "4Mi", "volume": {"size": "64Mi"}}}
        await stories.play(
            world,
            stories.install(replicas=3, storage=volume, reclaimPolicy="Delete", tls={"mode": "Disabled"}),
            stories.lose_journal(),
            stories.delete("Delete"),
        )

    plane.run(scenario)


@pytest.mark.long
@pytest.mark.parametrize("replicas", [5])
def test_grow_by_two_and_back(plane: Plane, replicas: int) -> None:
    async def scenario(world: World) -> None:
        nodes = [f"{n + 1}-0" for n in range(replicas)]
        await stories.play(
            world,
            stories.install(replicas=3),
            stories.change("grow", {"replicas": replicas}, *nodes),
            stories.change("shrink", {"replicas": 3}, "1-0", "2-0", "3-0"),
        )
        before = len(world.journal.lines)
        await world.settle()
        assert world.journal.lines[before:] == []  # nothing is written when nothing changed

    plane.run(scenario)


def test_a_console_that_is_never_ready_holds_up_nothing(plane: Plane) -> None:
    async def scenario(world: World) -> None:
        await stories.play(
            world,
            stories.install(replicas=3),
            stories.console(True),
            stories.roll_storage(),
            stories.roll_servers(),
            stories.console(False),
            stories.console(True),
            stories.delete("Retain"),
        )

    world = plane.run(scenario)
    assert world.errors == []


def test_an_invalid_specification_gets_a_status_and_nothing_else(plane: Plane) -> None:
    async def scenario(world: World) -> None:
        # A mistake that the API server takes (ADR 25): it does not know the keys of a configuration.
        mistake = {"config": {"storage.disk.threads": "many"}}
        await world.create(stories.spec(replicas=3, storage=mistake))
        for _ in range(4):
            await world.operator.one_pass(world.namespace)
        valid = next(c for c in (await world.cluster())["status"]["conditions"] if c["type"] == "Valid")
        assert (valid["status"], valid["reason"]) == ("False", "InvalidSpec")
        assert [
            line for line in world.journal.lines if not line.startswith(("put", "write the status"))
        ] == []
        await world.delete()
        await world.settle()

    plane.run(scenario)
