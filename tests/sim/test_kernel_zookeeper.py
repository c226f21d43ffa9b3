"""The simulated ZooKeeper: whose session ends when, what an unknown outcome may be, and whose code runs."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from tests.sim.kernel.disk import Seconds
from tests.sim.kernel.loop import SimLoop
from tests.sim.kernel.process import Process, current
from tests.sim.kernel.zookeeper import HOST, TICK_SECONDS, SimZooKeeper
from tests.sim.kernel.zookeeper_session import SimSession
from waltz_admin import assignments, nodes, seeding
from waltz_admin.tree import read_maps
from waltz_cluster.errors import ConnectError, ConnectionLostError, NoNodeError, SessionLostError
from waltz_cluster.memory_store import Fault
from waltz_cluster.paths import ClusterPaths
from waltz_cluster.store import CreateOp, DeleteOp, SessionEvent, SessionState, SetOp

TIMEOUT = 4.0
Use = Callable[[SimSession], Coroutine[Any, Any, None]]


class Site:
    """ZooKeeper, processes with a session each, and what the sessions said."""

    def __init__(self, loop: SimLoop) -> None:
        self.loop = loop
        self.zookeeper = SimZooKeeper(loop)
        self.events: list[tuple[str, SessionState, float]] = []
        self.stores: dict[str, SimSession] = {}

    def spawn(self, host: str, use: Use | None = None) -> Process:
        async def run() -> None:
            store = await self.zookeeper.connect(TIMEOUT)
            self.stores[host] = store
            store.add_session_listener(lambda event: self.note(host, event))
            if use is not None:
                await use(store)
            else:
                await asyncio.Event().wait()

        return self.loop.spawn_process(host, self.loop.host(host), run)

    def note(self, host: str, event: SessionEvent) -> None:
        process = current()
        assert process is not None
        assert process.host.name == host  # in the process of the session, whoever caused it
        self.events.append((host, event.state, self.loop.time()))

    def states(self, host: str) -> list[SessionState]:
        return [state for name, state, _ in self.events if name == host]

    def at(self, host: str, state: SessionState) -> float:
        return next(at for name, found, at in self.events if name == host and found is state)

    def cut(self, host: str) -> None:
        self.loop.network.block(host, HOST)
        self.loop.network.block(HOST, host)

    def exists(self, path: str) -> bool:
        return path in self.zookeeper.tree()


def run(main: Callable[[Site], Coroutine[Any, Any, None]], seed: int = 1) -> SimLoop:
    loop = SimLoop(seed)
    loop.run(main(Site(loop)))
    assert loop.errors == []
    return loop


async def keep_ephemeral(store: SimSession) -> None:
    await store.create("/mine", b"x", ephemeral=True)
    await asyncio.Event().wait()


async def use_after(site: Site, process: Process) -> None:
    await asyncio.sleep(1.0)
    assert process.alive
    assert site.exists("/mine")


def test_a_session_lives_as_long_as_its_process_runs() -> None:
    async def main(site: Site) -> None:
        await use_after(site, site.spawn("server-1", keep_ephemeral))
        await asyncio.sleep(100 * TIMEOUT)
        assert site.exists("/mine")
        assert site.events == []
        assert site.loop.time() - site.stores["server-1"].last_contact < TIMEOUT / 2

    run(main)


@pytest.mark.parametrize("how", ["kill", "power", "cut"])
def test_ephemeral_znodes_go_after_the_timeout_and_not_before_the_client_could_know(how: str) -> None:
    async def main(site: Site) -> None:
        process = site.spawn("server-1", keep_ephemeral)
        await use_after(site, process)
        if how == "kill":
            process.kill()
        elif how == "power":
            process.host.power_off()
        else:
            site.cut("server-1")
        contact = site.stores["server-1"].last_contact
        await asyncio.sleep(contact + TIMEOUT - site.loop.time() - 0.001)
        assert site.exists("/mine")
        await asyncio.sleep(TICK_SECONDS + 0.1)
        assert not site.exists("/mine")
        if how == "cut":
            assert site.states("server-1") == [SessionState.SUSPENDED]
            assert 1.0 + TIMEOUT / 2 < site.at("server-1", SessionState.SUSPENDED) < 1.0 + TIMEOUT
            site.loop.network.heal_all()
            await asyncio.sleep(3.0)
            assert site.states("server-1")[1:] == [SessionState.LOST, SessionState.CONNECTED]
            assert site.stores["server-1"].epoch == 2

    run(main)


@pytest.mark.parametrize("seconds", [1.0, 20.0])
def test_a_pause_longer_than_the_timeout_costs_the_session(seconds: float) -> None:
    async def main(site: Site) -> None:
        process = site.spawn("server-1", keep_ephemeral)
        await use_after(site, process)
        process.pause()
        await asyncio.sleep(seconds)
        assert site.exists("/mine") == (seconds < TIMEOUT)
        assert site.events == []
        process.resume()
        await asyncio.sleep(3.0)
        assert site.exists("/mine") == (seconds < TIMEOUT)
        states = (
            [] if seconds < TIMEOUT else [SessionState.SUSPENDED, SessionState.LOST, SessionState.CONNECTED]
        )
        assert site.states("server-1") == states

    run(main)


def test_a_short_cut_is_survived_and_what_was_sent_arrives() -> None:
    async def main(site: Site) -> None:
        async def use(store: SimSession) -> None:
            site.cut("server-1")
            await store.create("/late", b"x")
            assert site.loop.time() > 1.0

        process = site.spawn("server-1", use)
        await asyncio.sleep(1.0)
        assert not site.exists("/late")
        site.loop.network.heal_all()
        await process.wait_ended()
        assert process.exit_error is None
        assert site.exists("/late")

    run(main)


def test_a_request_given_up_may_still_take_effect_but_not_after_the_session_came_back() -> None:
    found: set[object] = set()
    for seed in range(20):

        async def main(site: Site) -> None:
            async def use(store: SimSession) -> None:
                site.loop.network.block("server-1", HOST)
                with pytest.raises(ConnectionLostError):
                    await store.create("/unknown", b"x")
                found.add(site.exists("/unknown"))
                await asyncio.sleep(site.loop.rng("pause").random())
                site.loop.network.heal_all()
                while store.state is not SessionState.CONNECTED:
                    await asyncio.sleep(0.01)
                now = await store.exists("/unknown") is not None
                found.add((site.exists("/unknown"), now))
                await asyncio.sleep(10)
                assert site.exists("/unknown") == now

            process = site.spawn("server-1", use)
            await process.wait_ended()
            assert process.exit_error is None

        run(main, seed)
    assert found == {False, (True, True)}


@pytest.mark.parametrize("fault", [Fault.LOSE_REQUEST, Fault.LOSE_REPLY])
def test_a_lost_operation_breaks_the_connection_and_its_outcome_is_unknown(fault: Fault) -> None:
    async def main(site: Site) -> None:
        async def use(store: SimSession) -> None:
            site.zookeeper.choose_fault = lambda host, name, path: fault if name == "create" else None
            fired: list[str] = []
            await store.get_children("/", lambda: fired.append("watch"))
            with pytest.raises(ConnectionLostError):
                await store.create("/unknown", b"x")
            site.zookeeper.heal()
            await asyncio.sleep(1.0)
            assert fired == ["watch"]
            assert store.epoch == 1
            assert (await store.exists("/unknown") is not None) == (fault is Fault.LOSE_REPLY)

        process = site.spawn("server-1", use)
        await process.wait_ended()
        assert process.exit_error is None
        assert site.states("server-1") == [SessionState.SUSPENDED, SessionState.CONNECTED]
        assert site.zookeeper.lost_operations == 1

    run(main)


def test_operations_are_lost_at_random_for_a_while() -> None:
    async def main(site: Site) -> None:
        site.zookeeper.loss_probability = 0.2
        lost = []

        async def use(store: SimSession) -> None:
            for number in range(100):
                try:
                    await store.create(f"/{number}", None)
                except ConnectionLostError:
                    lost.append((number, site.exists(f"/{number}")))
                    await asyncio.sleep(0.5)

        process = site.spawn("server-1", use)
        await process.wait_ended()
        assert process.exit_error is None
        assert 10 < len(lost) < 60
        assert {happened for _, happened in lost} == {True, False}

    run(main)


def test_watches_run_in_the_process_that_set_them_and_may_be_late() -> None:
    async def main(site: Site) -> None:
        fired: list[tuple[str, float]] = []

        async def watch(store: SimSession) -> None:
            def note() -> None:
                process = current()
                fired.append(("-" if process is None else process.name, site.loop.time()))

            await store.exists("/new", note)
            await asyncio.Event().wait()

        async def write(store: SimSession) -> None:
            await store.create("/new", None)

        site.spawn("watcher", watch)
        await asyncio.sleep(1.0)
        site.zookeeper.watch_delay = Seconds(1.5, 1.5)
        await site.spawn("writer", write).wait_ended()
        assert fired == []
        await asyncio.sleep(2.0)
        assert [name for name, _ in fired] == ["watcher"]
        assert fired[0][1] >= 2.5
        assert site.events == []

    run(main)


def test_a_read_that_fails_with_its_connection_leaves_no_watch() -> None:
    async def main(site: Site) -> None:
        async def use(store: SimSession) -> None:
            fired: list[str] = []
            site.zookeeper.choose_fault = lambda *_: Fault.LOSE_REPLY
            with pytest.raises(ConnectionLostError):
                await store.exists("/new", lambda: fired.append("watch"))
            site.zookeeper.heal()
            await asyncio.sleep(1.0)
            await store.create("/new", None)
            await store.get("/new")
            assert fired == []

        process = site.spawn("server-1", use)
        await process.wait_ended()
        assert process.exit_error is None

    run(main)


def test_a_lagging_follower_answers_with_the_past_and_never_goes_back() -> None:
    """Also: nothing older than the session's own writes, and a watch set on the past fires."""
    stale = 0
    for seed in range(5):

        async def main(site: Site) -> None:
            site.zookeeper.follower_lag = Seconds(0.0, 0.5)
            known = 0

            async def write(store: SimSession) -> None:
                nonlocal known
                await store.create("/counter", b"0")
                for number in range(1, 100):
                    await asyncio.sleep(0.05)
                    await store.set("/counter", str(number).encode())
                    known = number
                    data, stat = await store.get("/counter")
                    assert data is not None
                    assert int(data) == stat.version == number

            async def read(store: SimSession) -> None:
                nonlocal stale
                seen = -1
                while seen < 99:
                    changed = asyncio.Event()
                    before = known
                    try:
                        data, stat = await store.get("/counter", changed.set)
                    except NoNodeError:
                        assert seen == -1
                        await asyncio.sleep(0.01)
                        continue
                    assert data is not None
                    assert int(data) == stat.version >= seen
                    stale += int(data) < before
                    seen = int(data)
                    if seen < 99:
                        async with asyncio.timeout(1.0):
                            await changed.wait()

            processes = [site.spawn("writer", write), site.spawn("reader", read)]
            for process in processes:
                await process.wait_ended()
                assert process.exit_error is None

        run(main, seed)
    assert stale > 20


def test_a_command_reads_the_assignment_that_was_written_before_it_whichever_member_it_asks() -> None:
    """Else `sync-partitions` right after an assignment leaves the new replica out, and nobody repeats
    it."""

    async def main(site: Site) -> None:
        async def assign(store: SimSession) -> None:
            await seeding.create(store, "/waltz", "demo", 2)
            await nodes.add_storage_node(store, "/waltz", "h1:6000", 6001, 0)
            await asyncio.sleep(1.0)
            await assignments.assign(store, "/waltz", [1], "h1:6000")

        async def look(store: SimSession) -> None:
            before, _ = await store.get(paths.assignment)
            assert (await read_maps(store, paths)).partitions == {"h1:6000": (1,)}
            assert (await store.get(paths.assignment))[0] != before

        paths = ClusterPaths("/waltz")
        for host, use in (("admin-1", assign), ("admin-2", look)):
            process = site.spawn(host, use)
            await process.wait_ended()
            assert process.exit_error is None
            site.zookeeper.follower_lag = Seconds(0.5, 0.5)

    run(main)


def test_children_of_the_past_and_transactions_that_were_taken_back() -> None:
    async def main(site: Site) -> None:
        async def use(store: SimSession) -> None:
            await store.create("/a", b"1")
            with pytest.raises(NoNodeError):
                await store.transaction([SetOp("/a", b"2"), CreateOp("/b"), DeleteOp("/nobody")])
            await site.spawn("other", look).wait_ended()

        async def look(store: SimSession) -> None:
            await asyncio.sleep(1.0)
            site.zookeeper.follower_lag = Seconds(0.5, 0.5)
            assert (await store.get_children("/"))[0] == ["a"]
            assert (await store.get("/a"))[0] == b"1"
            await store.delete("/a")
            assert (await store.get_children("/"))[0] == []

        process = site.spawn("server-1", use)
        await process.wait_ended()
        assert process.exit_error is None

    run(main)


def test_a_restart_breaks_connections_and_keeps_sessions() -> None:
    async def main(site: Site) -> None:
        await use_after(site, site.spawn("server-1", keep_ephemeral))
        site.zookeeper.restart(20.0)
        await asyncio.sleep(19.0)
        assert site.exists("/mine")
        assert site.states("server-1") == [SessionState.SUSPENDED]
        await asyncio.sleep(5.0)
        assert site.exists("/mine")
        assert site.states("server-1") == [SessionState.SUSPENDED, SessionState.CONNECTED]

    run(main)


def test_a_session_can_be_ended_by_the_server() -> None:
    async def main(site: Site) -> None:
        await use_after(site, site.spawn("server-1", keep_ephemeral))
        assert site.zookeeper.expire("server-1") == 1
        assert not site.exists("/mine")
        await asyncio.sleep(3.0)
        assert site.states("server-1") == [SessionState.SUSPENDED, SessionState.LOST, SessionState.CONNECTED]

    run(main)


def test_closing_takes_the_ephemeral_znodes_at_once() -> None:
    async def main(site: Site) -> None:
        async def use(store: SimSession) -> None:
            await store.create("/mine", b"x", ephemeral=True)
            reading = asyncio.get_running_loop().create_task(store.get("/mine"))
            await asyncio.sleep(0)
            await store.close()
            with pytest.raises(SessionLostError):
                await reading
            await store.close()
            with pytest.raises(SessionLostError):
                await store.get("/mine")

        process = site.spawn("server-1", use)
        await process.wait_ended()
        assert process.exit_error is None
        assert not site.exists("/mine")
        assert site.zookeeper.live_sessions() == []

    run(main)


def test_connecting_gives_up_in_time_when_nothing_answers() -> None:
    async def main(site: Site) -> None:
        site.cut("server-1")

        async def connect() -> None:
            with pytest.raises(ConnectError):
                await site.zookeeper.connect(TIMEOUT, connect_timeout_seconds=5.0)

        process = site.loop.spawn_process("server-1", site.loop.host("server-1"), connect)
        await process.wait_ended()
        assert process.exit_error is None
        assert 5.0 <= site.loop.time() < 5.1

    run(main)


def test_errors_of_operations_pass_through() -> None:
    async def main(site: Site) -> None:
        async def use(store: SimSession) -> None:
            with pytest.raises(NoNodeError):
                await store.get("/nobody")

        process = site.spawn("server-1", use)
        await process.wait_ended()
        assert process.exit_error is None

    run(main)


def test_an_orphan_session_does_not_take_the_watches_of_its_successor_along() -> None:
    """The answer to an attempt came too late, so another session was begun: when the first runs out, nothing
    happens to the second."""

    async def main(site: Site) -> None:
        fired: list[float] = []

        async def use(store: SimSession) -> None:
            await store.create("/x", b"1")
            await store.get("/x", lambda: fired.append(site.loop.time()))
            await asyncio.Event().wait()

        async def begin() -> None:
            store = site.zookeeper.session(TIMEOUT)
            orphan = site.zookeeper.accept(store, 0, 0, TIMEOUT)
            assert await store.wait_connected(TIMEOUT)
            assert store.session_id != orphan
            await use(store)

        site.loop.spawn_process("client-1", site.loop.host("client-1"), begin)
        await asyncio.sleep(TIMEOUT + 2 * TICK_SECONDS + 1.0)
        assert len(site.zookeeper.live_sessions()) == 1
        assert not fired

        async def change(store: SimSession) -> None:
            await store.set("/x", b"2")
            await asyncio.Event().wait()

        site.spawn("client-2", change)
        await asyncio.sleep(2.0)
        assert len(fired) == 1

    run(main)
