"""Writers of the past: their appends arrive when somebody else owns the partition."""

from __future__ import annotations

import asyncio

import pytest

from tests.sim.checkers.history import AppendOp, Outcome
from tests.sim.kernel.zookeeper import HOST as ZOOKEEPER
from tests.sim.scenarios.stage import Stage, play, seeds
from tests.sim.workloads.tracked import TrackedClient

OLD_APPENDS = 12


def writer_of_the_past(stage: Stage, old: list[AppendOp], *, deadline_seconds: float) -> None:
    """An application that appends without waiting; what becomes of it is noted."""

    async def use(client: TrackedClient) -> None:
        await client.client.writable(0, deadline_seconds=10.0)
        async with asyncio.TaskGroup() as tasks:
            for _ in range(OLD_APPENDS):
                op = stage.new_append("past")
                old.append(op)
                tasks.create_task(client.append(op, deadline_seconds=deadline_seconds))
                await asyncio.sleep(0.01 * stage.rng.random())

    stage.user("past", use)


@pytest.mark.parametrize("seed", seeds(3))
@pytest.mark.parametrize("when", ["during", "after"])
@pytest.mark.parametrize("held", ["requests", "answers", "some"])
def test_scenario_bufstream_0_1_0_append_of_a_fenced_server_arrives_late(
    held: str, when: str, seed: int
) -> None:
    """Bufstream 0.1.0: the transaction protocol it speaks loses or tears transactions, because what was sent
    on an old connection may arrive after the new one has begun.

    Here the owner's appends to its storage nodes (or the answers, or those of some nodes) are held by the
    network while its session ends and another server recovers and serves the partition; then, or in the
    middle of the recovery, all of it is delivered at once. The fence refuses it, no id gets a second record,
    and what was acknowledged to the client stays true.
    """

    async def script(stage: Stage) -> None:
        assert len(await stage.write(15)) == 15
        old_owner = stage.owner()
        nodes = sorted(stage.storage)
        cut = nodes if held != "some" else stage.rng.sample(nodes, 2)
        old: list[AppendOp] = []
        writer_of_the_past(stage, old, deadline_seconds=40.0)
        await stage.until(
            lambda: len(old) >= 1 + stage.rng.randrange(OLD_APPENDS), 10.0, "appends are on their way"
        )
        for node in cut:
            ends = (node, old_owner.name) if held == "answers" else (old_owner.name, node)
            stage.block(*ends)
        stage.cut_off(old_owner.name, [ZOOKEEPER])
        await stage.takeover(stage.other(old_owner), when)
        if when == "after":
            assert len(await stage.write(10)) == 10
        stage.heal_network()
        assert len(await stage.write(10)) == 10
        await stage.until(lambda: all(op.outcome is not Outcome.PENDING for op in old), 60.0, "outcomes")

    play(seed, script)


@pytest.mark.parametrize("seed", seeds(4))
def test_scenario_client_server_9_append_of_an_old_connection_after_the_new_mount(seed: int) -> None:
    """The same between client and server: appends wait in the buffers of a stopped server while their client
    gives them up, connects again, mounts and flushes; then the server runs and finds the old connection's
    appends and the new mount side by side.

    What the client took for failed is never committed afterwards, and nothing is committed twice.
    """

    async def script(stage: Stage) -> None:
        assert len(await stage.write(10)) == 10
        owner = stage.owner()
        old: list[AppendOp] = []
        writer_of_the_past(stage, old, deadline_seconds=30.0)
        await stage.until(lambda: len(old) >= 3, 10.0, "appends are on their way")
        for _ in range(3):
            owner.pause()
            await asyncio.sleep(0.5 + stage.rng.random())
            stage.loop.network.reset("past", owner.name)
            await asyncio.sleep(0.3 * stage.rng.random())
            owner.resume()
            await asyncio.sleep(0.2 * stage.rng.random())
        assert len(await stage.write(10)) == 10
        await stage.until(lambda: all(op.outcome is not Outcome.PENDING for op in old), 60.0, "outcomes")

    play(seed, script)


@pytest.mark.parametrize("seed", seeds(4))
@pytest.mark.parametrize("when", ["during", "after"])
def test_scenario_etcd_3_4_3_ownership_is_not_mutual_exclusion(when: str, seed: int) -> None:
    """etcd 3.4.3: a lock's holder may be stopped for longer than its lease and continue as if it still had
    it; locks alone exclude nobody.

    Here the owner of a partition is stopped for longer than its session, with appends on their way; another
    server takes over; then, or while that is at it, the old one continues. It commits nothing any longer and
    shows nobody anything but the one log.
    """

    async def script(stage: Stage) -> None:
        assert len(await stage.write(15)) == 15
        owner = stage.owner()
        old: list[AppendOp] = []
        writer_of_the_past(stage, old, deadline_seconds=40.0)
        await stage.until(
            lambda: len(old) >= 1 + stage.rng.randrange(OLD_APPENDS), 10.0, "appends are on their way"
        )
        owner.pause()
        await stage.takeover(stage.other(owner), when)
        if when == "after":
            assert len(await stage.write(10)) == 10
        owner.resume()
        mark = stage.history.book.mark(0)

        async def ask(client: TrackedClient) -> None:
            for _ in range(20):
                found = await client.high_water_mark(0, 5.0)
                assert found is None or found >= 0
                await asyncio.sleep(0.05)

        await stage.finished(stage.user("asker", ask))
        assert len(await stage.write(10)) == 10
        await stage.until(lambda: all(op.outcome is not Outcome.PENDING for op in old), 60.0, "outcomes")
        assert stage.history.book.mark(0) >= mark + 10

    play(seed, script)


@pytest.mark.parametrize("seed", seeds(3))
def test_scenario_redpanda_21_10_1_no_duplicates_when_connections_break(seed: int) -> None:
    """Redpanda 21.10.1: duplicate writes, aborted reads and inconsistent offsets when connections broke in
    the middle of produce requests.

    Here the connections between client and owner, and between owner and nodes, are reset again and again,
    some inside a frame, while appends are retried by the client itself: each is in the log at most once, at
    the place that was acknowledged, and readers see the one order.
    """

    async def script(stage: Stage) -> None:
        over = asyncio.Event()

        async def nuisance() -> None:
            while not over.is_set():
                await asyncio.sleep(0.05 + 0.2 * stage.rng.random())
                server = stage.rng.choice(sorted(stage.servers))
                peer = stage.rng.choice(["writer", *sorted(stage.storage)])
                if stage.rng.random() < 0.5:
                    stage.loop.network.reset(peer, server)
                else:
                    ends = [peer, server]
                    stage.rng.shuffle(ends)
                    stage.loop.network.cut_inside_next_frame(*ends)

        task = stage.loop.create_task(nuisance())
        done = await stage.write(150, deadline_seconds=30.0)
        over.set()
        await task
        assert len(done) > 100

    play(seed, script)
