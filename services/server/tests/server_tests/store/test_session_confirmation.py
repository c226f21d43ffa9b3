"""Confirming that a session is current: who asks, when, and every way it can end (rule D4)."""

from __future__ import annotations

import asyncio

import pytest

from server_tests.store.fakes import Cluster, Server, entries, until
from waltz_server.store.api import StoreNotOpenError, StoreState
from waltz_server.store.session import StoreSession

pytestmark = pytest.mark.looptime


async def session_of(server: Server) -> StoreSession:
    await server.opened()
    run = server.store.current_run
    assert run is not None
    assert run.session is not None
    return run.session


def appends(cluster: Cluster) -> int:
    return sum(node.calls.count("append") for node in cluster.nodes.values())


async def test_everybody_who_asks_in_one_turn_shares_a_round() -> None:
    async with Cluster() as cluster:
        session = await session_of(cluster.server())
        before = appends(cluster)
        await asyncio.gather(*(session.confirmations.ask() for _ in range(10)))
        await asyncio.sleep(1)
        assert appends(cluster) == before + 3


async def test_who_comes_during_a_round_waits_for_the_next_one() -> None:
    async with Cluster() as cluster:
        session = await session_of(cluster.server())
        for node in cluster.nodes.values():
            node.delay_seconds = 0.5
        first = session.confirmations.ask()
        await asyncio.sleep(0.3)
        second = session.confirmations.ask()
        await first
        assert not second.done()
        await second
        assert asyncio.get_running_loop().time() >= 1.0


async def test_the_end_of_the_session_fails_everybody() -> None:
    async with Cluster() as cluster:
        session = await session_of(cluster.server())
        for node in cluster.nodes.values():
            node.delay_seconds = 1.0
        asked, given_up = session.confirmations.ask(), session.confirmations.ask()
        await asyncio.sleep(0.1)
        waiting = session.confirmations.ask()
        given_up.cancel()
        session.end("enough")
        for future in (asked, waiting):
            with pytest.raises(StoreNotOpenError, match="enough"):
                await future
        assert given_up.cancelled()


async def test_a_question_of_an_ended_session_is_not_sent() -> None:
    async with Cluster() as cluster:
        server = cluster.server()
        session = await session_of(server)
        before = appends(cluster)
        asked = session.confirmations.ask()
        session.end("closed")
        with pytest.raises(StoreNotOpenError):
            await asked
        await asyncio.sleep(0)
        assert appends(cluster) == before


async def test_who_gave_up_before_the_round_costs_nothing() -> None:
    async with Cluster() as cluster:
        session = await session_of(cluster.server())
        before = appends(cluster)
        session.confirmations.ask().cancel()
        await asyncio.sleep(1)
        assert appends(cluster) == before


async def test_who_gives_up_during_the_round_does_not_disturb_it() -> None:
    async with Cluster() as cluster:
        session = await session_of(cluster.server())
        for node in cluster.nodes.values():
            node.delay_seconds = 0.2
        stays, leaves = session.confirmations.ask(), session.confirmations.ask()
        await asyncio.sleep(0.1)
        leaves.cancel()
        await stays
        # the same, answered by a commit of a frame that is younger than the question
        stays, leaves = session.confirmations.ask(), session.confirmations.ask()
        leaves.cancel()
        session.append(entries(1))
        await stays


async def test_a_commit_of_a_later_frame_answers() -> None:
    async with Cluster() as cluster:
        server = cluster.server()
        session = await session_of(server)
        for node in cluster.nodes.values():
            node.delay_seconds = 0.5
        asked = session.confirmations.ask()
        server.store.append(entries(1))  # built after the question: its commit says the same
        await asked
        assert len(server.listener.committed_entries) == 1


async def test_safety_d4_a_commit_of_an_earlier_frame_does_not_answer() -> None:
    """Its requests are older than the question."""
    async with Cluster() as cluster:
        server = cluster.server()
        session = await session_of(server)
        for node in cluster.nodes.values():
            node.delay_seconds = 0.5
        server.store.append(entries(1))
        await asyncio.sleep(0.3)
        asked = session.confirmations.ask()
        await until(lambda: len(server.listener.committed_entries) == 1)
        await asyncio.sleep(0)
        assert not asked.done()
        await asked


async def test_without_a_quorum_of_voters_nobody_is_confirmed() -> None:
    async with Cluster() as cluster:
        server = cluster.server()
        session = await session_of(server)
        session.fail_replica("a:1", "for the test")
        session.fail_replica("b:1", "for the test")
        with pytest.raises(StoreNotOpenError, match="no quorum"):
            await session.confirmations.ask()
        assert server.store.state is not StoreState.OPEN


async def test_replicas_that_fail_in_the_middle_of_a_round_end_it() -> None:
    async with Cluster() as cluster:
        session = await session_of(cluster.server())
        for node in cluster.nodes.values():
            node.delay_seconds = 1.0
        asked, given_up = session.confirmations.ask(), session.confirmations.ask()
        await asyncio.sleep(0.1)
        given_up.cancel()
        session.fail_replica("a:1", "for the test")
        assert not asked.done()
        session.fail_replica("b:1", "for the test")
        with pytest.raises(StoreNotOpenError):
            await asked


async def test_one_refusal_of_three_is_outvoted_and_takes_the_replica_out() -> None:
    async with Cluster() as cluster:
        server = cluster.server()
        session = await session_of(server)
        node = cluster.nodes["a:1"]
        node.refuse = lambda kind, _session: "newer session" if kind == "append" else None
        await session.confirmations.ask()
        await until(lambda: session.replicas["a:1"].ended)
        assert "confirming the session" in session.replicas["a:1"].reason


async def test_safety_d4_an_answer_to_an_earlier_round_does_not_confirm_a_later_question() -> None:
    """The question has to be older than the request whose answer counts: C may have heard of a newer session
    since."""
    async with Cluster() as cluster:
        session = await session_of(cluster.server())
        cluster.nodes["c:1"].delay_seconds = 0.9  # twice is less than the limit of a request
        await session.confirmations.ask()  # A and B; C's answer is on its way
        cluster.nodes["b:1"].answers = False
        later = session.confirmations.ask()
        await asyncio.sleep(1.35)  # A has answered this round, C the first one
        assert not later.done()
        await later
        assert asyncio.get_running_loop().time() >= 1.8


async def test_a_partition_that_is_not_open_confirms_nothing() -> None:
    async with Cluster() as cluster:
        for name in ("a:1", "b:1"):
            cluster.nodes[name].kill()
        server = cluster.server()
        await until(lambda: server.store.state is StoreState.NO_QUORUM)
        with pytest.raises(StoreNotOpenError, match="no_quorum"):
            await server.store.confirm_current()
