"""Sessions that meet problem at the worst moment: while they are listed, settled or opened, and in what they
report."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest
from structlog.testing import capture_logs

from server_tests.store.fakes import PARTITION, ROOT, Cluster, FakeNode, Server, entries, until
from waltz_cluster.store import ZnodeStat
from waltz_protocol.aio.tasks import spawn
from waltz_protocol.types import Endpoint
from waltz_server.store.api import AppendEntry, ReadFailedError, StoreSettings, StoreState
from waltz_server.store.replica_connection import ReplicaLink

pytestmark = pytest.mark.looptime

PATH = f"{ROOT}/store/partition/{PARTITION}"


class SlowZooKeeper:
    """Delays the writes of one server's ZooKeeper session; `writes` counts those that were begun."""

    def __init__(self, server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
        self.delay_seconds = 0.0
        self.writes = 0
        self._set = server.zk.set
        monkeypatch.setattr(server.zk, "set", self._slow)

    async def _slow(self, path: str, data: bytes, version: int = -1) -> ZnodeStat:
        self.writes += 1
        if self.writes > 1:
            await asyncio.sleep(self.delay_seconds)
        return await self._set(path, data, version=version)


async def _second_write_is_slow(
    server: Server, monkeypatch: pytest.MonkeyPatch, seconds: float
) -> SlowZooKeeper:
    """The first write takes the session id; the second lists the replicas."""
    zookeeper = SlowZooKeeper(server, monkeypatch)
    zookeeper.delay_seconds = seconds
    await until(lambda: zookeeper.writes == 2, step_seconds=0.0001)
    return zookeeper


async def test_zookeeper_that_hangs_while_replicas_are_listed_is_asked_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with Cluster() as cluster:
        server = cluster.server()
        zookeeper = await _second_write_is_slow(server, monkeypatch, 1000.0)
        await asyncio.sleep(10)
        assert server.store.state is StoreState.RECOVERING
        zookeeper.delay_seconds = 0.0
        await server.opened()
        assert server.store.session_id == 0


async def test_a_replica_that_dies_while_it_is_listed_is_left_out_by_the_next_session(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with Cluster() as cluster:
        server = cluster.server()
        await _second_write_is_slow(server, monkeypatch, 0.5)
        cluster.nodes["c:1"].kill()
        await until(lambda: server.store.session_id >= 1 and server.store.state is StoreState.OPEN, 60)
        await server.append(entries(3))
        assert (await cluster.stored()).replicas["c:1"].session_id <= 0
        cluster.nodes["c:1"].start()
        await until(lambda: cluster.nodes["c:1"].max_txid == 2, 60)
        cluster.check_equal(2)


async def test_a_quorum_that_dies_while_it_is_listed_opens_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    async with Cluster() as cluster:
        server = cluster.server()
        await _second_write_is_slow(server, monkeypatch, 0.5)
        for name in ("b:1", "c:1"):
            cluster.nodes[name].kill()
        await until(lambda: server.store.state is StoreState.NO_QUORUM, 60)
        assert server.listener.opened == 0
        for name in ("b:1", "c:1"):
            cluster.nodes[name].start()
        await server.opened()
        await server.append(entries(3))


async def test_metadata_that_vanishes_while_a_quorum_is_missing_is_a_fault() -> None:
    async with Cluster() as cluster:
        for name in ("a:1", "b:1"):
            cluster.nodes[name].kill()
        server = cluster.server()
        await until(lambda: server.store.state is StoreState.NO_QUORUM)
        await cluster.admin.delete(PATH)
        await until(lambda: server.store.state is StoreState.FAULT, 60)
        assert "metadata is missing" in server.store.state_reason


async def test_a_store_can_be_closed_while_it_recovers() -> None:
    async with Cluster() as cluster:
        for name in ("a:1", "b:1"):
            cluster.nodes[name].kill()
        server = cluster.server()
        await until(lambda: server.store.state is StoreState.NO_QUORUM)
        server.store.close()
        assert server.task is not None
        async with asyncio.timeout(5):
            await server.task
        assert server.store.state is StoreState.CLOSED


async def _leftovers(cluster: Cluster) -> tuple[Server, list[AppendEntry]]:
    """Four appends that only C got; then A and C are there again, B is not."""
    server = cluster.server()
    await server.opened()
    await server.append(entries(3))
    for name in ("a:1", "b:1"):
        cluster.nodes[name].kill()
    batch = entries(4)
    server.store.append(batch)
    await until(lambda: server.store.state is StoreState.NO_QUORUM)
    return server, batch


async def test_safety_a4_leftovers_wait_while_nobody_can_be_asked_about_them() -> None:
    """After Set low-water mark the only list requests are those of the settlement."""
    async with Cluster() as cluster:
        server, batch = await _leftovers(cluster)
        for name in ("a:1", "c:1"):
            node = cluster.nodes[name]

            def refuse(kind: str, session: int, node: FakeNode = node) -> str | None:
                return "busy" if kind == "list" and node.info.session_id == session else None

            node.refuse = refuse
        cluster.nodes["a:1"].start()
        await until(lambda: server.store.session_id >= 3, 60)
        assert server.store.state is not StoreState.OPEN
        assert server.store.pending == 4
        assert server.listener.failed_entries == []
        for name in ("a:1", "c:1"):
            cluster.nodes[name].refuse = None
        await until(lambda: server.store.state is StoreState.OPEN, 120)
        assert server.listener.committed_entries[-4:] == batch


async def test_safety_a4_settlement_asks_the_next_one_when_one_cannot_say() -> None:
    async with Cluster() as cluster:
        server, batch = await _leftovers(cluster)
        node = cluster.nodes["a:1"]
        node.refuse = lambda kind, session: (
            "busy" if kind == "list" and node.info.session_id == session else None
        )
        node.start()
        await until(lambda: server.store.state is StoreState.OPEN, 60)
        assert server.listener.committed_entries[-4:] == batch


async def test_safety_a4_a_settled_commit_is_remembered_though_its_session_never_opens(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It was reported: no later recovery may end below it, and it can be read before the next session is
    there."""
    async with Cluster() as cluster:
        server, batch = await _leftovers(cluster)
        report = server.listener.committed
        known: list[int | None] = []

        def reported(settled: Sequence[AppendEntry]) -> None:
            report(settled)
            run = server.store.current_run
            assert run is not None
            known.append(server.store.high_water_mark)
            run.end("for the test")

        monkeypatch.setattr(server.listener, "committed", reported)
        opened = server.listener.opened
        cluster.nodes["a:1"].start()
        await until(lambda: bool(known), 60)
        assert known == [batch[-1].transaction_id]
        await until(lambda: server.store.current_run is None)
        assert server.listener.opened == opened
        assert server.store.high_water_mark == batch[-1].transaction_id
        await server.opened()
        assert server.listener.committed_entries[-4:] == batch


async def test_what_a_store_says_of_its_replicas_before_and_while_they_are_there() -> None:
    async with Cluster() as cluster:
        server = cluster.server()
        assert [r.state for r in server.store.replicas] == ["absent"] * 3
        assert not server.store.healthy
        await server.opened()
        settings = StoreSettings(replica_backlog_bytes=100)
        await server.crash()
        server = cluster.server(generation=2, settings=settings)
        await server.opened()
        cluster.nodes["c:1"].delay_seconds = 0.3
        for _ in range(50):
            server.store.append(entries(1))
            await asyncio.sleep(0.01)
        states = {r.connect_string: r.state for r in server.store.replicas}
        assert states == {"a:1": "voting", "b:1": "voting", "c:1": "catching_up"}


async def test_news_that_change_nothing_restart_nothing() -> None:
    async with Cluster() as cluster:
        server = cluster.server(generation=5)
        server.store.set_replicas(["a:1", "b:1", "c:1"])
        await server.opened()
        server.store.set_generation(5)
        server.store.set_generation(4)
        server.store.append([])
        assert server.store.pending == 0
        await asyncio.sleep(5)
        assert (server.store.generation, server.store.session_id) == (5, 0)


async def test_replicas_may_be_named_while_the_store_has_no_session() -> None:
    async with Cluster() as cluster:
        server = cluster.server(replicas=())
        await until(lambda: server.store.state is StoreState.FAULT)
        assert "no replica is assigned" in server.store.state_reason
        server.store.set_replicas(["a:1", "b:1", "c:1"])
        await server.opened()


async def test_reads_wait_for_a_session_and_give_up_in_time() -> None:
    settings = StoreSettings(read_timeout_seconds=3.0)
    async with Cluster() as cluster:
        server = cluster.server(settings=settings)
        await server.opened()
        await server.append(entries(5))
        for name in ("a:1", "b:1"):
            cluster.nodes[name].kill()
        await until(lambda: server.store.state is StoreState.NO_QUORUM)
        began = asyncio.get_running_loop().time()
        with pytest.raises(ReadFailedError, match="partition 0"):
            await server.store.read(0, 5)
        assert 2.9 < asyncio.get_running_loop().time() - began < 4
        waiting = spawn(server.store.read(0, 5), "reads")
        cluster.nodes["a:1"].start()
        assert len(await waiting) == 1


@pytest.mark.parametrize(("killed", "least", "most"), [(False, 0.4, 2.0), (True, 0.0, 0.3)])
async def test_nodes_that_fall_silent_in_a_recovery_are_no_quorum_after_the_grace_time(
    killed: bool, least: float, most: float
) -> None:
    """They may answer yet, until the time limit of a request. Those that are gone are not waited for."""
    async with Cluster() as cluster:
        await cluster.server().opened()
        for node in cluster.nodes.values():
            node.delay_seconds = 0.05
        before = (await cluster.stored()).session_id
        server = cluster.server(generation=2, settings=StoreSettings(request_timeout_seconds=30.0))
        while (await cluster.stored()).session_id == before:
            await asyncio.sleep(0.01)
        for name in ("a:1", "b:1"):
            cluster.nodes[name].answers = False
            if killed:
                cluster.nodes[name].kill()
        began = asyncio.get_running_loop().time()
        await until(lambda: server.store.state is StoreState.NO_QUORUM)
        assert least <= asyncio.get_running_loop().time() - began <= most
        for name in ("a:1", "b:1"):
            cluster.nodes[name].answers = True


async def test_a_read_that_nobody_answers_ends_in_time() -> None:
    settings = StoreSettings(read_timeout_seconds=1.0, request_timeout_seconds=30.0)
    async with Cluster() as cluster:
        server = cluster.server(settings=settings)
        await server.opened()
        await server.append(entries(5))
        for node in cluster.nodes.values():
            node.answers = False
        with pytest.raises(ReadFailedError, match="no answer in time"):
            await server.store.read(0, 5)
        for node in cluster.nodes.values():
            node.answers = True


async def test_an_error_of_our_own_ends_the_session_and_not_the_store(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with Cluster() as cluster:
        server = cluster.server()
        real, failures = server._open, [RuntimeError("a mistake in the code")]

        async def mistaken(endpoint: Endpoint) -> ReplicaLink:
            if failures:
                raise failures.pop()
            return await real(endpoint)

        monkeypatch.setattr(server.directory, "_open_link", mistaken)
        with capture_logs() as lines:
            await until(lambda: not failures)
            await asyncio.sleep(0.01)
            assert "internal error: a mistake in the code" in server.store.state_reason
        assert [line["event"] for line in lines if line["log_level"] == "error"] == ["a store session failed"]
        await server.opened()


async def test_a_cancellation_at_the_moment_of_an_error_of_our_own_ends_the_store(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with Cluster() as cluster:
        server = cluster.server()
        owner = next(task for task in asyncio.all_tasks() if "QuorumPartitionStore.run" in repr(task))

        async def mistaken(endpoint: Endpoint) -> ReplicaLink:
            owner.cancel()
            raise RuntimeError("a mistake in the code")

        monkeypatch.setattr(server.directory, "_open_link", mistaken)
        with capture_logs():
            await until(owner.done)
        assert owner.cancelled()


async def test_a_listener_that_raises_ends_the_session_and_loses_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with Cluster() as cluster:
        server = cluster.server()
        await server.opened()

        def raising(_entries: Sequence[AppendEntry]) -> None:
            raise RuntimeError("a mistake in the listener")

        with monkeypatch.context() as patched, capture_logs() as lines:
            patched.setattr(server.listener, "committed", raising)
            server.store.append(entries(2))
            await until(lambda: any(line["event"] == "a store session failed" for line in lines))
        await until(lambda: server.store.session_id == 1 and server.store.state is StoreState.OPEN)
        await server.append(entries(1))
        assert server.store.high_water_mark == 2
        cluster.check_equal(2)


async def test_a_truncation_in_doubt_leaves_the_replica_to_the_next_session() -> None:
    """C holds a tail that nobody acknowledged; the answer to cutting it does not come."""
    async with Cluster() as cluster:
        first = cluster.server()
        await first.opened()
        await first.append(entries(5))
        await until(lambda: all(n.max_txid == 4 for n in cluster.nodes.values()))
        cluster.nodes["c:1"].kill()
        await until(lambda: first.store.session_id == 1 and first.store.state is StoreState.OPEN)
        await first.append(entries(2))
        node = cluster.nodes["c:1"]
        node.log += [
            b"\0\0\0\0\0\0\0" + bytes((5 + n,)) + record[8:] for n, record in enumerate(node.log[:2])
        ]

        def hang(kind: str, session: int) -> str | None:
            node.answers = not (kind == "truncate" and session == 1)
            return None

        node.refuse = hang
        node.start()
        await until(lambda: "truncate" in node.calls, 60)
        await until(lambda: first.store.session_id >= 2 and first.store.state is StoreState.OPEN, 60)
        node.refuse, node.answers = None, True
        await until(lambda: node.max_txid == 6, 100)
        cluster.check_equal(6)


async def test_copies_keep_below_the_byte_limit_and_learn_how_much_to_ask_for() -> None:
    async with Cluster() as cluster:
        cluster.nodes["c:1"].kill()
        settings = StoreSettings(catch_up_batch_bytes=3000, replica_backlog_bytes=1000)
        server = cluster.server(settings=settings)
        await server.opened()
        await server.append(entries(30, 1000))
        await server.append(entries(300, 4))
        await server.append(entries(30, 1000))
        server.store.set_generation(2)  # so that C is filled before it takes part
        await until(lambda: server.store.session_id >= 1 and server.store.state is StoreState.OPEN)
        cluster.nodes["c:1"].start()
        await until(lambda: cluster.nodes["c:1"].max_txid == 359, 60)
        cluster.check_equal(359)
        assert cluster.nodes["c:1"].largest_append <= 3000 // 40


async def test_storage_7_24_a_set_that_changes_while_the_opening_ends_is_not_missed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The session id is taken, and a node that has not answered is no longer asked: in this moment the set
    becomes another one."""
    async with Cluster(("a:1", "b:1", "c:1", "d:1")) as cluster:
        server = cluster.server(replicas=("a:1", "b:1", "c:1"))
        connect, changed = server.directory.get, list[str]()

        async def get(name: str) -> ReplicaLink:
            if name != "c:1" or changed:
                return await connect(name)
            try:
                await asyncio.Event().wait()
                raise AssertionError("nobody sets it")
            except asyncio.CancelledError:
                changed.append(name)
                server.store.set_replicas(["a:1", "b:1", "d:1"])
                raise

        monkeypatch.setattr(server.directory, "get", get)
        await until(lambda: set(changed) == {"c:1"})
        await until(lambda: [r.connect_string for r in server.store.replicas] == ["a:1", "b:1", "d:1"])
        await server.opened()
        await server.append(entries(3))
        await until(lambda: cluster.nodes["d:1"].max_txid == 2)


async def test_a_slow_takeover_does_not_ask_zookeeper_again_and_again() -> None:
    """Nodes that are busy with a thousand partitions answer late; then each further question to ZooKeeper
    would make it later still. What was written with a version check says that the session is ours."""
    async with Cluster() as cluster:
        first = cluster.server()
        await first.opened()
        await first.append(entries(3))
        await first.crash()
        for node in cluster.nodes.values():
            node.delay_seconds = 0.2
        second = cluster.server(generation=2)
        operations: list[str] = []
        second.zk.fault = lambda operation, _path: operations.append(operation)
        began = asyncio.get_running_loop().time()
        await second.opened()
        assert asyncio.get_running_loop().time() - began > 1.5
        assert operations == ["get", "set", "set"]
