"""A storage node that is observed again and again: how long an observation takes, whatever the number of
partitions and the way to the node."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator

import pytest

from admin_tests.at_once import AtOnce
from admin_tests.test_observer import NEW, PLAIN, World, running
from waltz_admin import observed_node
from waltz_admin.observed_node import ObservedNode
from waltz_admin.safety import shows_record
from waltz_cluster.replica_rules import NoAnswer, ReplicaAnswer
from waltz_cluster.serializers import StoreParams

SECONDS = 2.0


@pytest.fixture
async def world() -> AsyncIterator[World]:
    async with running(reports=NEW) as found:
        yield found


@pytest.fixture
async def kept(world: World) -> AsyncIterator[ObservedNode]:
    node = world.nodes[0]
    found = ObservedNode(node.admin, StoreParams(node.key, 2), PLAIN, lambda: world.now)
    yield found
    found.close()


async def test_an_observation_asks_for_many_records_at_the_same_time(
    kept: ObservedNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One after the other, those of a thousand partitions at a node 10 ms away take longer than an
    observation is given, and the next one begins anew: nothing would ever be seen."""
    asked = AtOnce()

    async def shows(*_: object) -> bool:
        with asked.one():
            await asyncio.sleep(0)
        return True

    monkeypatch.setattr(observed_node, "shows_record", shows)
    _, answer = await kept.observe([0, 1], SECONDS)
    assert sorted(answer.copies) == [0, 1]
    assert asked.most == 2


async def test_what_takes_longer_is_asked_with_the_next_observation(
    world: World, kept: ObservedNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A slow node holds up nobody, and what it has answered is not asked again."""
    asked = Counter[int]()

    async def shows(_: object, number: int, mark: int) -> bool:
        asked[number] += 1
        world.now += 2 * SECONDS
        return True

    monkeypatch.setattr(observed_node, "shows_record", shows)
    monkeypatch.setattr(observed_node, "RECORDS_AT_ONCE", 1)
    status, answer = await kept.observe([0, 1], SECONDS)
    assert status.error is None
    assert sorted(answer.copies) == [0]
    assert answer.copy(1) == NoAnswer("it did not report the state of its copy")
    _, answer = await kept.observe([0, 1], SECONDS)
    assert sorted(answer.copies) == [0, 1]
    assert asked == {0: 1, 1: 1}


async def test_a_copy_that_is_not_answered_for_hides_no_other_one(
    kept: ObservedNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def shows(_: object, number: int, mark: int) -> bool:
        if number == 0:
            await asyncio.Event().wait()
        return True

    monkeypatch.setattr(observed_node, "shows_record", shows)
    _, answer = await kept.observe([0, 1], 0.2)
    assert {number: type(answer.copy(number)) for number in (0, 1)} == {0: NoAnswer, 1: ReplicaAnswer}


async def test_a_connection_that_ends_meanwhile_is_made_again(
    kept: ObservedNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    lost = True

    async def shows(connection: object, number: int, mark: int) -> bool | None:
        if lost:
            raise OSError("the connection is gone")
        return await shows_record(connection, number, mark)  # type: ignore[arg-type]

    monkeypatch.setattr(observed_node, "shows_record", shows)
    _, answer = await kept.observe([0, 1], SECONDS)
    assert answer.copies == {}
    lost = False
    _, answer = await kept.observe([0, 1], SECONDS)
    assert sorted(answer.copies) == [0, 1]
