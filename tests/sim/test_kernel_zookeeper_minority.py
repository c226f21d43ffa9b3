"""A member of the ensemble that is cut off: what it answers, what it can not know, and what becomes of its
sessions."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from tests.sim.kernel.loop import SimLoop
from tests.sim.kernel.zookeeper import SimZooKeeper
from tests.sim.kernel.zookeeper_session import SimSession
from waltz_cluster.errors import ConnectionLostError
from waltz_cluster.store import SessionState

TIMEOUT = 4.0


class Ensemble:
    """ZooKeeper, and two hosts with a session each: `here` is connected to the member that is cut off."""

    def __init__(self, loop: SimLoop) -> None:
        self.loop = loop
        self.zookeeper = SimZooKeeper(loop)
        self.sessions: dict[str, SimSession] = {}

    async def connect(self) -> None:
        for host in ("here", "there"):
            self.do(host, self._open(host))
        await asyncio.sleep(1)

    async def _open(self, host: str) -> None:
        self.sessions[host] = await self.zookeeper.connect(TIMEOUT)
        await asyncio.Event().wait()

    def do(self, host: str, work: Awaitable[object]) -> None:
        """On a host, in a process of its own."""

        async def main() -> None:
            await work

        self.loop.spawn_process(f"{host} work", self.loop.host(host), main)


def play(script: Callable[[Ensemble], Awaitable[None]]) -> None:
    loop = SimLoop(5)

    async def main() -> None:
        ensemble = Ensemble(loop)
        await ensemble.connect()
        await script(ensemble)

    loop.run(main())
    assert not loop.errors


def test_it_answers_reads_from_the_tree_as_it_was() -> None:
    found: list[bytes | None] = []

    async def script(ensemble: Ensemble) -> None:
        here, there = ensemble.sessions["here"], ensemble.sessions["there"]
        ensemble.do("there", there.create("/a", b"old"))
        await asyncio.sleep(1)
        assert ensemble.zookeeper.cut_off_member(["here"]) == 1
        ensemble.do("there", there.set("/a", b"new"))
        await asyncio.sleep(1)

        async def read() -> None:
            found.append((await here.get("/a"))[0])

        ensemble.do("here", read())
        await asyncio.sleep(1)
        ensemble.zookeeper.rejoin(with_writes=False)
        await asyncio.sleep(1)
        ensemble.do("here", read())
        await asyncio.sleep(1)

    play(script)
    assert found == [b"old", b"new"]


def test_sessions_end_at_the_leader_while_the_member_keeps_them_in_good_faith() -> None:
    async def script(ensemble: Ensemble) -> None:
        here, there = ensemble.sessions["here"], ensemble.sessions["there"]
        ensemble.do("here", here.create("/here", b"", ephemeral=True))
        await asyncio.sleep(1)
        ensemble.zookeeper.cut_off_member(["here"])
        await asyncio.sleep(2 * TIMEOUT)
        assert ensemble.zookeeper.live_sessions() == ["there"]
        assert ensemble.zookeeper.find("/here") is None
        assert here.state is SessionState.CONNECTED
        assert ensemble.loop.now - here.last_contact < TIMEOUT / 2  # heartbeats are answered
        assert here.epoch == there.epoch == 1
        ensemble.zookeeper.rejoin(with_writes=True)
        await asyncio.sleep(2)
        assert here.epoch == 2

    play(script)


@pytest.mark.parametrize("with_writes", [True, False])
def test_writes_wait_and_are_of_unknown_outcome(with_writes: bool) -> None:
    said: list[str] = []

    async def script(ensemble: Ensemble) -> None:
        here = ensemble.sessions["here"]

        async def write() -> None:
            try:
                await here.create("/b", b"")
                said.append("done")
            except ConnectionLostError:
                said.append("unknown")

        async def read_behind_it() -> None:
            try:
                await here.get("/zookeeper")
            except ConnectionLostError:
                said.append("nothing")

        ensemble.zookeeper.cut_off_member(["here"])
        ensemble.do("here", write())
        await asyncio.sleep(0.1)
        ensemble.do("here", read_behind_it())
        await asyncio.sleep(1)
        assert said == []
        ensemble.zookeeper.rejoin(with_writes=with_writes)
        await asyncio.sleep(1)
        assert (ensemble.zookeeper.find("/b") is not None) is with_writes

    play(script)
    assert said[0] == ("done" if with_writes else "unknown")


def test_another_member_serves_who_leaves_it_and_the_others_elect() -> None:
    async def script(ensemble: Ensemble) -> None:
        here, there = ensemble.sessions["here"], ensemble.sessions["there"]
        ensemble.zookeeper.cut_off_member(["here"])
        ensemble.zookeeper.restart(0.5)
        await asyncio.sleep(0.3)
        assert [one.state.value for one in (here, there)] == ["connected", "suspended"]
        await asyncio.sleep(2)
        assert [one.state.value for one in (here, there)] == ["connected", "connected"]
        ensemble.zookeeper.rejoin(with_writes=False)
        await asyncio.sleep(1)
        assert here.state is SessionState.CONNECTED
        assert here.epoch == 1

    play(script)
