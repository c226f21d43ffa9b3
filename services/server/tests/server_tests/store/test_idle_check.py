"""Health is true while nobody appends: the server asks its storage nodes, one question per node and
interval."""

from __future__ import annotations

import asyncio

import pytest

from server_tests.store.fakes import Cluster, FakeLink, FakeNode, Server, entries, until
from waltz_protocol.errors import RequestFailedError
from waltz_server.store.api import StoreSettings, StoreState
from waltz_server.store.idle_check import IdleCheck

pytestmark = pytest.mark.looptime

SETTINGS = StoreSettings()
NOTICED_SECONDS = SETTINGS.idle_check_interval_ms / 1000 + SETTINGS.request_timeout_seconds + 0.1


async def opened(cluster: Cluster) -> Server:
    server = cluster.server()
    await server.opened()
    await until(lambda: all(replica.state == "voting" for replica in server.store.replicas))
    return server


async def test_storage_7_20_two_of_three_hang_and_nobody_appends() -> None:
    async with Cluster() as cluster:
        server = await opened(cluster)
        await asyncio.sleep(600)
        assert server.store.problem == ""
        cluster.nodes["a:1"].answers = cluster.nodes["b:1"].answers = False
        await asyncio.sleep(NOTICED_SECONDS)
        assert (
            server.store.problem
            == "no_quorum: 1 of 3 replicas, 2 needed: a:1 (does not answer), b:1 (does not answer)"
        )
        states = {replica.connect_string: replica.reason for replica in server.store.replicas}
        assert states == {"a:1": "does not answer", "b:1": "does not answer", "c:1": ""}
        await asyncio.sleep(600)
        assert server.store.problem.startswith("no_quorum: 1 of 3 replicas, 2 needed")
        # One comes back: on its own, in the same session.
        cluster.nodes["b:1"].answers = True
        await asyncio.sleep(NOTICED_SECONDS)
        assert server.store.problem == ""
        assert server.store.session_id == 0
        await server.append(entries(3))


async def test_a_node_that_hangs_ends_no_session_that_has_no_appends() -> None:
    """Its session ends at the first append that it does not answer, as ever; not because somebody looked."""
    async with Cluster() as cluster:
        server = await opened(cluster)
        cluster.nodes["a:1"].answers = False
        await asyncio.sleep(600)
        assert server.store.healthy
        assert (server.store.session_id, server.listener.opened) == (0, 1)
        assert server.listener.events == ["opened -1"]


async def test_the_check_raises_no_fence_of_another_session() -> None:
    async with Cluster() as cluster:
        server = await opened(cluster)
        cluster.nodes["a:1"].fence = 7  # a later owner fenced it, and has not come further yet
        await asyncio.sleep(60)
        assert cluster.nodes["a:1"].fence == 7
        assert {cluster.nodes[name].fence for name in ("b:1", "c:1")} == {server.store.session_id}
        assert server.store.healthy  # a refusal is an answer


async def test_without_an_open_session_nobody_is_asked() -> None:
    async with Cluster() as cluster:
        server = await opened(cluster)
        server.store.close()
        await until(lambda: server.store.state is StoreState.CLOSED)
        before = {name: len(node.calls) for name, node in cluster.nodes.items()}
        await asyncio.sleep(60)
        assert {name: len(node.calls) for name, node in cluster.nodes.items()} == before


async def test_a_node_of_a_thousand_partitions_is_asked_once_per_interval() -> None:
    node = FakeNode("a:1")
    link = FakeLink(node, SETTINGS.request_timeout_seconds)
    check = IdleCheck(SETTINGS)
    for partition in range(1000):
        check.join("a:1", link, 0, partition)
    task = asyncio.get_running_loop().create_task(check.run())
    await asyncio.sleep(10.5 * SETTINGS.idle_check_interval_ms / 1000)
    assert node.calls == ["max"] * 10
    node.answers = False
    await asyncio.sleep(NOTICED_SECONDS)
    assert check.problem("a:1") == "does not answer"
    for partition in range(1000):
        check.leave("a:1", 0, partition)
    assert check.problem("a:1") == ""  # nobody depends on it: nothing is known of it
    task.cancel()


async def test_a_closed_connection_is_no_silence() -> None:
    """The sessions on it learn that by themselves; and one that joined later is not ended by an earlier one's
    end."""
    node = FakeNode("a:1")
    link = FakeLink(node, SETTINGS.request_timeout_seconds)
    check = IdleCheck(SETTINGS)
    check.join("a:1", link, 5, 0)
    check.leave("a:1", 4, 0)
    node.refuse = lambda kind, session: "no"
    with pytest.raises(RequestFailedError):
        await link.max_transaction_id(5, 0)
    task = asyncio.get_running_loop().create_task(check.run())
    await asyncio.sleep(NOTICED_SECONDS)
    assert len(node.calls) > 1
    assert check.problem("a:1") == ""
    node.answers = False
    asked = len(node.calls)
    await until(lambda: len(node.calls) > asked)
    link.close()
    await asyncio.sleep(60)
    assert check.problem("a:1") == ""
    task.cancel()
