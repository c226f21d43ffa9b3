"""Health is true while nobody appends: the server asks its storage nodes a few questions per interval. And a
copy that is another one is found out without an append."""

from __future__ import annotations

import asyncio

import pytest

from server_tests.store.fakes import PARTITION, Cluster, FakeLink, FakeNode, Server, entries, until
from waltz_protocol.errors import RequestFailedError
from waltz_server.store.api import StoreSettings, StoreState
from waltz_server.store.idle_check import ASKED_PARTITIONS, IdleCheck

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
    """A later owner has fenced the nodes: the earlier one looks into ZooKeeper, and leaves."""
    async with Cluster() as cluster:
        server = await opened(cluster)
        later = cluster.server(generation=3)
        await later.opened()
        await asyncio.sleep(60)
        assert {node.fence for node in cluster.nodes.values()} == {later.store.session_id}
        assert later.store.healthy
        assert later.listener.opened == 1
        assert "newer generation" in server.store.state_reason


@pytest.mark.parametrize("given_up", [True, False], ids=["given up", "set back"])
async def test_safety_a1_another_copy_is_found_out_and_filled_without_an_append(given_up: bool) -> None:
    async with Cluster() as cluster:
        server = await opened(cluster)
        await server.append(entries(10))
        await until(lambda: all(node.max_txid == 9 for node in cluster.nodes.values()))
        node = cluster.nodes["a:1"]
        if given_up:
            node.rebuild()
        else:
            del node.log[4:]
        await until(lambda: node.max_txid == 9 and server.store.session_id > 0, NOTICED_SECONDS + 10)
        await until(lambda: all(replica.state == "voting" for replica in server.store.replicas))
        assert server.store.healthy
        await asyncio.sleep(600)
        assert server.store.session_id <= 2


async def test_an_answer_that_an_append_has_overtaken_says_nothing() -> None:
    """The node answered before it took the append, and both answers arrive together."""
    async with Cluster() as cluster:
        server = await opened(cluster)
        asked = server.directory.idle_check._sessions["a:1"][PARTITION].look()
        await server.append(entries(10))
        await until(lambda: all(node.max_txid == 9 for node in cluster.nodes.values()))
        asked(-1)
        await asyncio.sleep(600)
        assert server.store.session_id == 0
        server.directory.idle_check._sessions["a:1"][PARTITION].look()(-1)
        await until(lambda: server.store.session_id == 1)


async def test_a_refusal_that_is_no_fence_is_an_answer() -> None:
    async with Cluster() as cluster:
        server = await opened(cluster)
        cluster.nodes["a:1"].refuse = lambda kind, session: "not now" if kind == "max" else None
        await asyncio.sleep(60)
        assert server.store.session_id == 0
        assert server.store.healthy


async def test_without_an_open_session_nobody_is_asked() -> None:
    async with Cluster() as cluster:
        server = await opened(cluster)
        server.store.close()
        await until(lambda: server.store.state is StoreState.CLOSED)
        before = {name: len(node.calls) for name, node in cluster.nodes.items()}
        await asyncio.sleep(60)
        assert {name: len(node.calls) for name, node in cluster.nodes.items()} == before


async def test_a_node_of_a_thousand_partitions_is_asked_about_some_in_each_interval() -> None:
    node = FakeNode("a:1")
    link = FakeLink(node, SETTINGS.request_timeout_seconds)
    check = IdleCheck(SETTINGS)
    for partition in range(1000):
        check.join("a:1", link, 0, partition, lambda: lambda _: None)
    task = asyncio.get_running_loop().create_task(check.run())
    await asyncio.sleep(10.5 * SETTINGS.idle_check_interval_ms / 1000)
    assert node.calls == ["max"] * 10 * ASKED_PARTITIONS
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
    check.join("a:1", link, 5, 0, lambda: lambda _: None)
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
