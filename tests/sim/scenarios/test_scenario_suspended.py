"""Servers that are still the owner by all they can know (D8), and are not: their virtual machine was
suspended and runs on, or the member of ZooKeeper that they are connected to is cut off from the majority."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from tests.sim.checkers.history import AppendOp
from tests.sim.cluster.server_role import ServerRole
from tests.sim.faults.suspend_faults import suspended
from tests.sim.kernel.zookeeper import HOST as ZOOKEEPER
from tests.sim.scenarios.stage import Stage, play, seeds
from tests.sim.workloads.tracked import TrackedClient

AWAY_SECONDS = 10.0
TRUST_SECONDS = 3.0
"""Less than the session timeout: so long the old owner goes by its own clock when it is awake again."""
LATE = "late"
Use = Callable[[TrackedClient], Awaitable[None]]


class LateUser:
    """A client from before, mounted with the old owner, that hears nothing of ZooKeeper either until
    `heal`."""

    def __init__(self, stage: Stage, use: Use) -> None:
        self.stage = stage
        self.ready, self.go = asyncio.Event(), asyncio.Event()

        async def main(client: TrackedClient) -> None:
            assert await client.writable(0)
            self.ready.set()
            await self.go.wait()
            await use(client)

        self.process = stage.user(LATE, main)

    async def start(self, old: ServerRole) -> None:
        """The old owner is suspended, another server takes over and continues; the old one is awake, and so
        is this."""
        stage = self.stage
        stage.cut_off(LATE, [ZOOKEEPER])
        with suspended(stage, old):
            stage.cut_off(old.name, [LATE])
            await stage.until(lambda: 0 in stage.other(old).served(), 30.0, "the other server takes over")
            assert len(await stage.write(10, name="meanwhile")) == 10
            await asyncio.sleep(AWAY_SECONDS)
            stage.loop.network.reset(LATE, old.name)
        stage.cut_off(old.name, [ZOOKEEPER])
        for pair in ((LATE, old.name), (old.name, LATE)):
            stage.loop.network.unblock(*pair)
        assert old.served() == [0]  # it knows of nothing
        self.go.set()

    async def finish(self) -> None:
        """Everybody hears everybody."""
        self.stage.heal_network()
        await self.stage.finished(self.process)


@pytest.mark.parametrize("storage_reachable", [True, False])
@pytest.mark.parametrize("seed", seeds(3))
def test_safety_d4_suspended_owner_acknowledges_and_confirms_nothing(
    seed: int, storage_reachable: bool
) -> None:
    """Rule D4: what a server says of its session is asked of the storage nodes, never read off its own clock.

    A client that knows the old assignment only comes back to the old owner. It does not get READY, and no
    append of its own is acknowledged before the new owner has it.
    """

    async def script(stage: Stage) -> None:
        ops: list[AppendOp] = []
        mounted: list[bool] = []

        async def use(client: TrackedClient) -> None:
            mounted.append(await client.writable(0, TRUST_SECONDS / 2))
            ops.append(stage.new_append(LATE))
            await client.append(ops[0], deadline_seconds=60.0)

        late = LateUser(stage, use)
        await late.ready.wait()
        assert len(await stage.write(10)) == 10
        old = stage.owner()
        await late.start(old)
        if not storage_reachable:
            stage.cut_off(old.name, list(stage.storage))
        await asyncio.sleep(TRUST_SECONDS)
        assert mounted == [False]
        assert [op.outcome.value for op in ops] == ["pending"]
        await late.finish()
        assert [op.outcome.value for op in ops] == ["committed"]

    play(seed, script, by_zookeeper=True)


@pytest.mark.parametrize("seed", seeds(3))
def test_safety_d4_owner_at_a_cut_off_member_of_zookeeper_confirms_nothing(seed: int) -> None:
    """Heartbeats are answered, the session is over: by its lease (D8) the server may serve, and it is given
    READY nowhere."""

    async def script(stage: Stage) -> None:
        ops: list[AppendOp] = []
        mounted: list[bool] = []

        async def use(client: TrackedClient) -> None:
            mounted.append(await client.writable(0, TRUST_SECONDS / 2))
            ops.append(stage.new_append(LATE))
            await client.append(ops[0], deadline_seconds=60.0)

        late = LateUser(stage, use)
        await late.ready.wait()
        assert len(await stage.write(10)) == 10
        old = stage.owner()
        stage.zookeeper.cut_off_member([old.name, LATE])
        await stage.until(lambda: 0 in stage.other(old).served(), 30.0, "the other server takes over")
        assert len(await stage.write(10, name="meanwhile")) == 10
        assert old.session is not None
        assert stage.loop.now - old.session.last_contact < old.session.session_timeout_seconds / 2
        assert old.served() == [0]
        stage.loop.network.reset(LATE, old.name)
        late.go.set()
        await asyncio.sleep(TRUST_SECONDS)
        assert mounted == [False]
        assert [op.outcome.value for op in ops] == ["pending"]
        stage.zookeeper.rejoin(with_writes=False)
        await late.finish()
        assert [op.outcome.value for op in ops] == ["committed"]

    play(seed, script, by_zookeeper=True)


@pytest.mark.parametrize("seed", seeds(2))
def test_scenario_suspended_owner_answers_marks_that_are_old(seed: int) -> None:
    """What is *not* promised: marks are not confirmed. For up to a session timeout by its own clock the old
    owner answers with the mark that it knew, as long as no storage node informs it that it is fenced."""
    marks: list[int | None] = []

    async def script(stage: Stage) -> None:
        async def use(client: TrackedClient) -> None:
            marks.append(await client.high_water_mark(0, TRUST_SECONDS))

        late = LateUser(stage, use)
        await late.ready.wait()
        assert len(await stage.write(10)) == 10
        old = stage.owner()
        await late.start(old)
        stage.cut_off(old.name, list(stage.storage))
        await asyncio.sleep(TRUST_SECONDS)
        await late.finish()
        assert marks == [9]  # 19 was acknowledged when it asked

    play(seed, script, by_zookeeper=True)
