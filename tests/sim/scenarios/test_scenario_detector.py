"""Servers that watch each other (rules G1 to G6 of docs/safety.md), by the shipped code: who crashed or
froze loses its partitions long before its session ends, and whatever links between servers are cut moves
nothing."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Awaitable, Callable
from dataclasses import replace

import pytest

from tests.sim.cluster.server_role import ServerRole
from tests.sim.kernel.loop import collect_remains
from tests.sim.scenarios.stage import Stage, seeds

SESSION_SECONDS = 30.0
TIMEOUT_SECONDS = 2.0
ACQUAINTED_SECONDS = 3.0
"""Until every server has reached every other one."""


def play_long_sessions(
    seed: int, script: Callable[[Stage], Awaitable[None]], *, servers: int = 3, watching: bool = True
) -> Stage:
    """As `play`, with a session that lasts so long that only the detector can be faster."""
    stage = Stage(seed, script, partitions=3, servers=servers)
    keys = (*stage.shape.server_keys, ("server.peerWatch.enabled", watching))
    stage.shape = replace(
        stage.shape, session_timeout_seconds=SESSION_SECONDS, server_keys=keys, old_servers=0.0
    )
    result = stage.run()
    collect_remains()
    found = [str(violation) for violation in result.violations[:5]]
    assert not found, f"seed {seed}: {found}"
    return stage


def evictions(stage: Stage) -> int:
    """By all servers."""
    return sum(role.evicted() for role in stage.servers.values())


def generations(stage: Stage) -> list[int]:
    """Of the partitions, as their last sessions have them."""
    found = [stage.state.metadata(partition) for partition in range(3)]
    return [-1 if each is None else each.generation for each in found]


async def settled(stage: Stage) -> None:
    """Every partition is served and written to."""
    await stage.until(lambda: all(stage.serving(each) for each in range(3)), 30.0, "the cluster serves")
    for partition in range(3):
        assert len(await stage.write(3, partition=partition, name=f"before-{partition}")) == 3
    await asyncio.sleep(ACQUAINTED_SECONDS)


async def taken_over(stage: Stage, victim: ServerRole, partitions: list[int]) -> float:
    """Until the others serve these partitions."""
    others = [role for role in stage.servers.values() if role is not victim]

    def all_taken() -> bool:
        served = set(itertools.chain.from_iterable(role.served() for role in others if role.alive))
        return set(partitions) <= served

    return await stage.until(all_taken, SESSION_SECONDS, "the others take over", poll_seconds=0.01)


@pytest.mark.parametrize("servers", [2, 3])
@pytest.mark.parametrize("victim", [0, 1])
def test_scenario_a_killed_server_is_replaced_at_once(servers: int, victim: int) -> None:
    """The coordinator too."""

    async def script(stage: Stage) -> None:
        await settled(stage)
        role = list(stage.servers.values())[victim]
        partitions = role.served()
        assert partitions
        role.hold()
        role.kill()
        assert await taken_over(stage, role, partitions) < 0.5
        assert len(await stage.write(3, partition=partitions[0], name="after")) == 3
        role.release()

    play_long_sessions(victim, script, servers=servers)


@pytest.mark.parametrize("how", ["paused", "without power", "isolated"])
@pytest.mark.parametrize("victim", [0, 1])
def test_scenario_a_silent_server_is_replaced_after_the_timeout_and_comes_back(how: str, victim: int) -> None:
    async def script(stage: Stage) -> None:
        await settled(stage)
        role = list(stage.servers.values())[victim]
        partitions = role.served()
        if how == "paused":
            role.pause()
        elif how == "without power":
            stage.dark([role])
        else:
            stage.isolate(role.name)
        took = await taken_over(stage, role, partitions)
        assert 0.9 * TIMEOUT_SECONDS < took < 1.5 * TIMEOUT_SECONDS
        if how == "paused":
            role.resume()
        elif how == "without power":
            stage.light([role])
        else:
            stage.heal_network()
        await stage.until(lambda: bool(role.served()), SESSION_SECONDS + 10, "it is back and serves")
        assert len(await stage.write(3, partition=partitions[0], name="after")) == 3

    play_long_sessions(victim, script)


@pytest.mark.parametrize("seed", seeds(2))
@pytest.mark.parametrize("cut", ["all", "one way", "one link"])
def test_safety_g1_scenario_links_between_servers_that_are_cut_move_nothing(seed: int, cut: str) -> None:
    """All servers suspect each other at once, or some do; all of them reach ZooKeeper."""

    async def script(stage: Stage) -> None:
        await settled(stage)
        before = generations(stage)
        names = sorted(stage.servers)
        if cut == "one link":
            stage.cut_off(names[0], names[1:2])
        for one, other in itertools.permutations(names, 2):
            if cut == "all" or (cut == "one way" and one < other):
                stage.block(one, other)
        await asyncio.sleep(60.0)
        assert evictions(stage) == 0
        assert generations(stage) == before
        stage.heal_network()

    play_long_sessions(seed, script)


def test_safety_g4_scenario_a_server_that_freezes_again_and_again_moves_its_partitions_few_times() -> None:
    async def script(stage: Stage) -> None:
        await settled(stage)
        role = list(stage.servers.values())[2]
        for _ in range(10):
            role.pause()
            await asyncio.sleep(3.0)
            role.resume()
            await asyncio.sleep(4.0)
        assert 1 <= evictions(stage) <= 6

    play_long_sessions(1, script)


def test_safety_g5_scenario_servers_that_were_all_suspended_keep_their_partitions() -> None:
    """A host with all of them on it stood still for a while."""

    async def script(stage: Stage) -> None:
        await settled(stage)
        before = generations(stage)
        for _ in range(5):
            for role in stage.servers.values():
                role.pause()
            await asyncio.sleep(10.0)
            for role in stage.servers.values():
                role.resume()
            await asyncio.sleep(5.0)
        assert evictions(stage) == 0
        assert generations(stage) == before

    play_long_sessions(2, script)


def test_safety_g1_scenario_servers_that_do_not_watch_wait_for_the_session() -> None:
    """As those of release 0.13.2 in a mixed cluster: nobody touches their descriptors."""

    async def script(stage: Stage) -> None:
        await settled(stage)
        role = list(stage.servers.values())[1]
        partitions = role.served()
        role.hold()
        role.kill()
        assert await taken_over(stage, role, partitions) > SESSION_SECONDS / 2
        role.release()

    play_long_sessions(3, script, watching=False)
