"""A suspended machine: nothing of it runs, its clock stops, and what it was about to do it does that
much later."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from tests.sim.kernel.loop import SimLoop
from tests.sim.kernel.process import Process
from tests.sim.kernel.zookeeper import HOST, SimZooKeeper
from waltz_cluster.store import SessionState


class Machine:
    """A process on a host of its own that notes when something happened: by its own clock, and by that of the
    world."""

    def __init__(self, loop: SimLoop, use: Callable[[Machine], Awaitable[None]]) -> None:
        self.loop = loop
        self.seen: list[tuple[str, float, float]] = []

        async def main() -> None:
            await use(self)

        self.process: Process = loop.spawn_process("guest", loop.host("guest"), main)

    def note(self, what: str) -> None:
        self.seen.append((what, round(self.loop.time(), 6), round(self.loop.now, 6)))


def play(script: Callable[[SimLoop], Awaitable[None]]) -> None:
    loop = SimLoop(1)

    async def main() -> None:
        await script(loop)

    loop.run(main())
    assert not loop.errors


def test_timers_of_a_suspended_machine_are_late_by_the_time_it_stood_still() -> None:
    async def use(machine: Machine) -> None:
        async with asyncio.TaskGroup() as tasks:
            for seconds in (1.0, 4.0, 12.0):
                tasks.create_task(sleep(machine, seconds))

    async def sleep(machine: Machine, seconds: float) -> None:
        await asyncio.sleep(seconds)
        machine.note(f"{seconds:g}")

    async def script(loop: SimLoop) -> None:
        machine = Machine(loop, use)
        await asyncio.sleep(2)
        loop.suspend(machine.process.host)
        assert machine.process.monotonic() == 2.0
        await asyncio.sleep(5)
        loop.wake(machine.process.host)
        await asyncio.sleep(60)
        assert machine.seen == [("1", 1.0, 1.0), ("4", 4.0, 9.0), ("12", 12.0, 17.0)]
        assert machine.process.monotonic() == loop.now - 5

    play(script)


def test_a_deadline_that_the_process_worked_out_itself_is_not_early() -> None:
    async def use(machine: Machine) -> None:
        for _ in range(200):
            deadline = machine.loop.time() + 0.1
            while machine.loop.time() < deadline:  # spins forever if a timer fires before its time
                await asyncio.sleep(deadline - machine.loop.time())
            async with asyncio.timeout_at(deadline + 0.3):
                await asyncio.sleep(0.2)
        machine.note("done")

    async def script(loop: SimLoop) -> None:
        machine = Machine(loop, use)
        for seconds in (0.1, 0.7, 1.3, 2.9):
            await asyncio.sleep(3.3)
            loop.suspend(machine.process.host)
            await asyncio.sleep(seconds)
            loop.wake(machine.process.host)
        await asyncio.sleep(600)
        assert [what for what, _, _ in machine.seen] == ["done"]

    play(script)


def test_a_second_reason_to_run_does_not_wake_a_suspended_machine() -> None:
    async def use(machine: Machine) -> None:
        while True:
            await asyncio.sleep(1.0)
            machine.note("tick")

    async def script(loop: SimLoop) -> None:
        machine = Machine(loop, use)
        await asyncio.sleep(0.5)
        machine.process.pause()
        loop.suspend(machine.process.host)
        machine.process.resume()
        await asyncio.sleep(10)
        assert machine.seen == []
        loop.wake(machine.process.host)
        await asyncio.sleep(1)
        assert machine.seen == [("tick", 1.0, 11.0)]

    play(script)


def test_zookeeper_ends_the_session_of_a_suspended_machine_which_takes_it_for_alive() -> None:
    """The premise of what `test_scenario_suspended` shows: by its own clock the last contact was just now."""
    sessions = []

    async def script(loop: SimLoop) -> None:
        zookeeper = SimZooKeeper(loop)

        async def use(_: Machine) -> None:
            sessions.append(await zookeeper.connect(4.0))
            await asyncio.Event().wait()

        machine = Machine(loop, use)
        await asyncio.sleep(10)
        (session,) = sessions
        for pair in (("guest", HOST), (HOST, "guest")):
            loop.network.block(*pair)
        loop.suspend(machine.process.host)
        await asyncio.sleep(6)
        assert zookeeper.live_sessions() == []
        loop.wake(machine.process.host)
        assert session.state is SessionState.CONNECTED
        assert machine.process.monotonic() - session.last_contact < 1.1
        for pair in (("guest", HOST), (HOST, "guest")):
            loop.network.unblock(*pair)
        await asyncio.sleep(2)
        assert session.epoch == 2

    play(script)
