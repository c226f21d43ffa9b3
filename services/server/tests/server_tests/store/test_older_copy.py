"""ZooKeeper put back from an older copy, as a server meets it: asked first, a lasting fault, nothing taken,
nothing cut (rule A8)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from server_tests.store.fakes import PARTITION, ROOT, Cluster, Server, entries, until
from waltz_admin.forget import without_replica
from waltz_cluster.memory_store import Fault
from waltz_cluster.older_copy import FENCE_REACH
from waltz_cluster.serializers import PartitionMetadata
from waltz_protocol.types import SessionInfo
from waltz_server.store.api import StoreState
from waltz_server.store.waiting import wait_for

pytestmark = pytest.mark.looptime

PATH = f"{ROOT}/store/partition/{PARTITION}"


async def sessions(cluster: Cluster, count: int) -> list[bytes]:
    """So many sessions one after another, each with ten records; ZooKeeper's data after each of them."""
    copies = []
    for generation in range(1, count + 1):
        server = cluster.server(generation=generation)
        await server.opened()
        await server.append(entries(10))
        await until(lambda: len({node.max_txid for node in cluster.nodes.values()}) == 1)
        copies.append((await cluster.stored()).to_bytes())
        await server.crash()
    return copies


async def put_back_all_but_a(cluster: Cluster, copy: bytes) -> None:
    """ZooKeeper, b:1 and c:1 are put back to the end of the first session."""
    for name in ("b:1", "c:1"):
        cluster.nodes[name].info = SessionInfo(0, -1, -1)
        cluster.nodes[name].fence = 0
        del cluster.nodes[name].log[10:]
    await cluster.admin.set(PATH, copy)


async def fault_of(cluster: Cluster, generation: int) -> tuple[Server, str]:
    server = cluster.server(generation=generation)
    await until(lambda: server.store.state is StoreState.FAULT, 60)
    return server, server.store.state_reason


@pytest.mark.parametrize("who", ["a:1", "b:1", "c:1"])
async def test_safety_a8_one_node_of_a_majority_that_knows_more_is_enough(who: str) -> None:
    """The last session went on without the others' knowing: they were away, and the third is now."""
    async with Cluster() as cluster:
        copies = await sessions(cluster, 1)
        others = [name for name in cluster.names if name != who]
        cluster.nodes[others[0]].kill()
        server = cluster.server(generation=2)
        await server.opened()
        await server.append(entries(10))
        await server.crash()
        cluster.nodes[others[0]].start()
        cluster.nodes[others[1]].kill()
        await cluster.admin.set(PATH, copies[0])
        calls = len(cluster.nodes[who].calls)
        _, said = await fault_of(cluster, 3)
        assert f"{who} has completed session 1, later than the 0 that ZooKeeper gave out" in said
        assert others[0] not in said
        assert set(cluster.nodes[who].calls[calls:]) <= {"info", "max"}
        assert (await cluster.stored()).session_id == 0


async def test_safety_a8_the_fault_outlives_every_server_and_ends_when_zookeeper_is_right() -> None:
    async with Cluster() as cluster:
        copies = await sessions(cluster, 3)
        await cluster.admin.set(PATH, copies[0])
        for generation in range(4, 10):
            server, said = await fault_of(cluster, generation)
            assert all(name in said for name in cluster.names)
            assert [status.state for status in server.store.replicas] == ["absent"] * 3
            await server.crash()
        waiting, _ = await fault_of(cluster, 10)
        await cluster.admin.set(PATH, copies[2])
        await until(lambda: waiting.store.state is StoreState.OPEN, 60)
        assert waiting.store.high_water_mark == 29
        assert waiting.store.session_id == 3


async def test_safety_a8_no_id_is_taken_before_a_majority_has_answered() -> None:
    """Else trying alone would pass what the nodes remember."""
    async with Cluster() as cluster:
        copies = await sessions(cluster, 3)
        await cluster.admin.set(PATH, copies[0])
        for name in ("a:1", "b:1"):
            cluster.nodes[name].kill()
        cluster.nodes["c:1"].info = SessionInfo(0, -1, -1)  # it knows of nothing
        cluster.nodes["c:1"].fence = 0
        for generation in range(4, 8):
            server = cluster.server(generation=generation)
            await until(lambda s=server: s.store.state is StoreState.NO_QUORUM, 60)  # type: ignore[misc]
            assert "1 of 3 replicas, 2 needed: a:1" in server.store.state_reason
            assert [status.state for status in server.store.replicas] == ["absent", "absent", "connecting"]
            await asyncio.sleep(30)
            await server.crash()
        assert (await cluster.stored()).session_id == 0
        cluster.nodes["a:1"].start()
        await fault_of(cluster, 9)


async def test_safety_a8_replicas_that_remember_nothing_are_no_majority_while_another_may_answer() -> None:
    """It is slow, and the only one that knows of the session that ZooKeeper forgot."""
    async with Cluster() as cluster:
        copies = await sessions(cluster, 2)
        await cluster.admin.set(PATH, copies[0])
        for name in ("a:1", "b:1"):
            cluster.nodes[name].wipe()
        cluster.nodes["c:1"].delay_seconds = 0.1  # each of three questions; the grace time is 0.5 s
        _, said = await fault_of(cluster, 3)
        assert "c:1 has completed session 1" in said
        assert (await cluster.stored()).session_id == 0


async def test_safety_a8_answers_to_an_earlier_question_are_no_majority() -> None:
    """While the replicas are asked another owner takes a session, and then they are gone."""
    async with Cluster() as cluster:
        await sessions(cluster, 1)
        server = cluster.server(generation=2)
        calls = {name: len(node.calls) for name, node in cluster.nodes.items()}
        for node in cluster.nodes.values():
            node.delay_seconds = 0.5
        await asyncio.sleep(0.2)
        await cluster.write(lambda m: PartitionMetadata(2, 1, m.replicas))
        for node in cluster.nodes.values():
            node.info = node.info._replace(session_id=1)
        await until(lambda: all(len(node.calls) == calls[name] + 2 for name, node in cluster.nodes.items()))
        for node in cluster.nodes.values():
            node.kill()
        await asyncio.sleep(30)
        assert server.store.state is StoreState.NO_QUORUM
        assert (await cluster.stored()).session_id == 1


async def test_safety_a8_nodes_of_0_13_2_count_with_the_session_they_wrote_down() -> None:
    """Their fences are gone with a restart, and their refusals name nothing."""
    async with Cluster() as cluster:
        for node in cluster.nodes.values():
            node.of_0_13_2 = True
        copies = await sessions(cluster, 3)
        for index, restarted in ((1, False), (1, True), (0, True)):
            await cluster.admin.set(PATH, copies[index])
            for node in cluster.nodes.values():
                if restarted:
                    node.kill()
                    node.start()
            server, said = await fault_of(cluster, 4)
            assert "out of reach" in said if index == 0 else "has completed session 2" in said
            assert (await cluster.stored()).session_id == index
            await server.crash()


async def test_a_rival_that_took_a_newer_session_is_no_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    """Between our reading and our asking another owner takes the next session: ZooKeeper is read again."""
    async with Cluster() as cluster:
        await sessions(cluster, 1)
        first = cluster.server(generation=2)
        states: list[StoreState] = []
        report = first.store.report

        def noted(state: StoreState, reason: str) -> None:
            states.append(state)
            report(state, reason)

        monkeypatch.setattr(first.store, "report", noted)
        for node in cluster.nodes.values():
            node.delay_seconds = 0.5  # the question is on its way for long
        await asyncio.sleep(0.2)
        metadata = await cluster.stored()
        await cluster.write(lambda m: PartitionMetadata(2, m.session_id + 1, m.replicas))
        for node in cluster.nodes.values():
            node.fence = metadata.session_id + 1
            node.info = node.info._replace(session_id=metadata.session_id + 1)
        await first.opened()
        assert StoreState.FAULT not in states
        assert first.store.session_id == metadata.session_id + 2


async def test_a_fault_is_not_believed_on_a_read_that_lags(monkeypatch: pytest.MonkeyPatch) -> None:
    """The follower that this server reads from is behind: the leader is asked before a fault is said."""
    async with Cluster() as cluster:
        copies = await sessions(cluster, 3)
        server = cluster.server(generation=4)
        get = server.zk.get
        lags = 3

        async def old(path: str, watch: Callable[[], None] | None = None) -> object:
            nonlocal lags
            data, stat = await get(path, watch)
            if path == PATH and lags:
                lags -= 1
                return copies[0], stat._replace(version=stat.version - 5)
            return data, stat

        monkeypatch.setattr(server.zk, "get", old)
        await server.opened()
        assert lags == 0
        assert server.store.session_id == 3


@pytest.mark.parametrize("fault", list(Fault))
async def test_a_question_to_the_leader_that_gets_lost_is_asked_again(fault: Fault) -> None:
    async with Cluster() as cluster:
        copies = await sessions(cluster, 2)
        await cluster.admin.set(PATH, copies[0])
        server = cluster.server(generation=3)
        left = 3

        def lose(operation: str, _path: str) -> Fault | None:
            nonlocal left
            left -= operation == "transaction"
            return fault if operation == "transaction" and left >= 0 else None

        server.zk.fault = lose
        await until(lambda: server.store.state is StoreState.FAULT, 120)
        assert left < 0
        assert (await cluster.stored()).session_id == 0


async def test_an_id_that_a_node_has_seen_is_not_taken() -> None:
    """Somebody raised the fence of most or of all nodes, in reach: the next session is numbered above it, at
    once."""
    async with Cluster() as cluster:
        await sessions(cluster, 1)
        cluster.nodes["b:1"].fence = cluster.nodes["c:1"].fence = 5
        server = cluster.server(generation=2)
        await server.opened()
        assert server.store.session_id == 6
        await server.crash()
        for node in cluster.nodes.values():
            node.fence = 6 + FENCE_REACH
        again = cluster.server(generation=3)
        await again.opened()
        assert again.store.session_id == 7 + FENCE_REACH
        await again.append(entries(3))
        cluster.check_equal(12)


async def test_safety_b4_one_node_out_of_reach_is_left_out_and_a_majority_is_a_named_fault() -> None:
    async with Cluster() as cluster:
        await sessions(cluster, 1)
        cluster.nodes["b:1"].fence = 2**63 - 1
        server = cluster.server(generation=2)
        await server.opened()
        assert server.store.session_id == 1
        assert {r.connect_string: r.state for r in server.store.replicas}["b:1"] == "absent"
        await server.append(entries(3))
        await server.crash()
        cluster.nodes["c:1"].fence = 2**63 - 1
        _, said = await fault_of(cluster, 3)
        assert "b:1 takes session 9223372036854775807 or later" in said
        assert "c:1" in said
        assert (await cluster.stored()).session_id == 1
        for name in ("b:1", "c:1"):  # what `waltz storage lower-fence` does
            cluster.nodes[name].fence = 2
        await until(lambda: cluster.servers[-1].store.state is StoreState.OPEN, 60)
        await cluster.servers[-1].append(entries(1))
        await until(lambda: all(node.max_txid == 13 for node in cluster.nodes.values()), 60)
        cluster.check_equal(13)


async def test_a_node_whose_fence_is_above_the_session_is_taken_by_the_next_one() -> None:
    """It was down when the session began, and an administrator put its fence down to where no session was."""
    async with Cluster() as cluster:
        server = cluster.server()
        await server.opened()
        cluster.nodes["b:1"].kill()
        await server.append(entries(5))
        await until(lambda: server.store.session_id == 1 and server.store.state is StoreState.OPEN, 60)
        cluster.nodes["b:1"].fence = 5
        cluster.nodes["b:1"].start()
        await until(lambda: all(r.state == "voting" for r in server.store.replicas), 60)
        assert server.store.session_id == 6
        await server.append(entries(5))
        await until(lambda: cluster.nodes["b:1"].max_txid == 9, 60)
        cluster.check_equal(9)
        cluster.nodes["b:1"].kill()
        await server.append(entries(1))
        cluster.nodes["b:1"].fence = 2**63 - 1  # out of reach: no session is begun for it
        cluster.nodes["b:1"].start()
        await asyncio.sleep(60)
        session = server.store.session_id
        await asyncio.sleep(300)
        assert server.store.session_id == session
        assert server.store.state is StoreState.OPEN


async def test_safety_b4_a_fence_that_was_out_of_reach_is_forgotten_when_its_node_answers() -> None:
    """One node of 0.13.2 was restarted, which lowers its fence, and then another fence turns out to be out of
    reach."""
    async with Cluster() as cluster:
        await sessions(cluster, 1)
        first, second, third = (cluster.nodes[name] for name in ("a:1", "b:1", "c:1"))
        first.of_0_13_2 = True
        first.fence = 2**40
        second.kill()
        third.kill()
        server = cluster.server(generation=2)
        states: list[StoreState] = []
        report = server.store.report

        def noted(state: StoreState, reason: str) -> None:
            states.append(state)
            report(state, reason)

        server.store.report = noted  # type: ignore[method-assign]
        await asyncio.sleep(5)
        first.kill()
        first.start()
        await asyncio.sleep(5)
        second.fence = 2**63 - 1
        second.start()
        await asyncio.sleep(5)
        assert StoreState.FAULT not in states
        third.start()
        await server.opened()


async def test_a_replica_of_a_forgotten_session_that_comes_late_is_left_as_it_is() -> None:
    """A majority that knows nothing has opened a session (its disks were lost besides): the witness is kept,
    untouched."""
    async with Cluster() as cluster:
        copies = await sessions(cluster, 2)
        witness = cluster.nodes["a:1"]
        witness.kill()
        before = list(witness.log)
        await put_back_all_but_a(cluster, copies[0])
        server = cluster.server(generation=3)
        await server.opened()
        await server.append(entries(1))
        witness.start()
        await until(lambda: server.store.replicas[0].state == "refused", 60)
        assert "has completed session 1, later than the 0" in server.store.replicas[0].reason
        await asyncio.sleep(60)
        assert witness.log == before
        assert server.store.replicas[0].state == "refused"
        witness.kill()
        witness.info = SessionInfo(-1, -1, -1)  # what `waltz storage restore-reset` does
        witness.start()
        await until(lambda: server.store.replicas[0].state == "voting", 60)
        assert witness.log == cluster.nodes["b:1"].log


async def test_safety_a8_a_late_fence_raises_no_id_before_its_node_has_said_its_session() -> None:
    """The witness completed sessions that ZooKeeper did not give out, so its fence is above the session that
    the others serve: an id above that fence would hide what it knows from the next session."""
    async with Cluster() as cluster:
        copies = await sessions(cluster, 6)
        witness = cluster.nodes["a:1"]
        witness.kill()
        before = list(witness.log)
        await put_back_all_but_a(cluster, copies[0])
        server = cluster.server(generation=7)
        await server.opened()
        await server.append(entries(3))
        witness.start()
        await until(lambda: server.store.replicas[0].state == "refused", 60)
        assert "has completed session 5, later than the 0" in server.store.replicas[0].reason
        await asyncio.sleep(60)
        assert (await cluster.stored()).session_id == server.store.session_id == 1
        await server.append(entries(1))
        acknowledged = list(cluster.nodes["b:1"].log)
        assert len(acknowledged) == 14
        await server.crash()
        for generation in range(8, 20):
            other = cluster.server(generation=generation)
            await asyncio.sleep(60)
            assert other.store.state is StoreState.FAULT
            await other.crash()
        assert (await cluster.stored()).session_id == 2  # the first had not heard it before it took an id
        assert witness.log == before
        for name in ("b:1", "c:1"):
            assert cluster.nodes[name].log[:14] == acknowledged


@pytest.mark.parametrize("fence", [0, 3])
async def test_a_fault_that_a_session_found_ends_when_the_copy_has_been_reset(fence: int) -> None:
    async with Cluster() as cluster:
        copies = await sessions(cluster, 4)
        witness = cluster.nodes["a:1"]
        await put_back_all_but_a(cluster, copies[0])
        witness.fence = fence
        witness.refuse = lambda _, session: "not yet" if session == 0 else None  # heard when an id is taken
        server, said = await fault_of(cluster, 5)
        assert "a:1 has completed session 3, later than the 0" in said
        assert server.store.session_id == 1
        await asyncio.sleep(60)
        assert server.store.state is StoreState.FAULT
        assert server.store.session_id == 1
        witness.kill()
        witness.info = SessionInfo(-1, -1, -1)  # what `waltz storage restore-reset` does
        witness.start()
        await until(lambda: server.store.state is StoreState.OPEN, 60)
        await until(lambda: all(r.state == "voting" for r in server.store.replicas), 60)
        assert server.store.high_water_mark == 9


@pytest.mark.parametrize("lost", [True, False])
async def test_a_node_of_the_next_owner_is_no_evidence_for_the_one_before(lost: bool) -> None:
    """It waits for a quorum, perhaps cut off from ZooKeeper, and reaches a node that its successor marked."""
    async with Cluster() as cluster:
        await sessions(cluster, 1)
        second = cluster.nodes["b:1"]
        cluster.nodes["c:1"].kill()
        second.refuse = lambda kind, _: "no" if kind == "set_lwm" else None
        one = cluster.server(generation=2)
        await until(lambda: one.store.session_id == 1 and second.fence == 1)
        one.blocked.add("b:1")
        for link in list(second.links):
            link.break_off("cut off")
        second.refuse = None
        if lost:
            one.zk.fault = lambda _operation, _path: Fault.LOSE_REQUEST
        other = cluster.server(generation=3)
        await other.opened()
        one.blocked.clear()
        states = set()
        for _ in range(3000):
            await asyncio.sleep(0.01)
            states.add(one.store.state)
        assert StoreState.FAULT not in states
        assert other.store.state is StoreState.OPEN


async def test_a_replica_that_this_session_marked_is_no_evidence_when_its_fence_rose() -> None:
    """Its connection ends before it is listed, and an administrator puts its fence above the session."""
    async with Cluster() as cluster:
        await sessions(cluster, 1)
        late = cluster.nodes["c:1"]
        late.kill()
        server = cluster.server(generation=2)
        await server.opened()
        session = server.store.session_id
        server.zk.fault = lambda _operation, _path: Fault.LOSE_REQUEST
        late.start()
        await until(lambda: late.info.session_id == session, 30)
        late.kill()
        server.zk.fault = None
        late.fence = session + 1
        late.start()
        await until(lambda: all(r.state == "voting" for r in server.store.replicas), 120)


async def test_a_replica_that_was_given_up_and_comes_back_is_no_evidence() -> None:
    """`waltz storage forget`, and the node is there again before the next session: it is new, and filled."""
    async with Cluster() as cluster:
        await sessions(cluster, 2)
        await cluster.write(lambda m: without_replica(m, "c:1"))
        server = cluster.server(generation=3)
        await server.opened()
        assert server.store.high_water_mark == 19
        await until(lambda: all(r.state == "voting" for r in server.store.replicas), 60)


async def test_a_store_that_asks_can_be_closed_and_gets_other_replicas() -> None:
    async with Cluster() as cluster:
        for name in ("a:1", "b:1"):
            cluster.nodes[name].kill()
        server = cluster.server(replicas=("a:1", "b:1"))
        await until(lambda: server.store.state is StoreState.NO_QUORUM)
        server.store.set_replicas(["c:1"])
        await server.opened()
        assert [r.connect_string for r in server.store.replicas] == ["c:1"]
        other = cluster.server(generation=2, replicas=("a:1", "b:1"))
        await until(lambda: other.store.state is StoreState.NO_QUORUM)
        other.store.close()
        assert other.task is not None
        async with asyncio.timeout(5):
            await other.task


async def test_a_wait_of_which_a_rounding_error_is_left_lets_the_clock_advance() -> None:
    """Else whoever waits for the rest again and again keeps the loop busy for the seconds between two
    timers."""
    loop = asyncio.get_running_loop()
    start = loop.time()
    assert not await wait_for(asyncio.Event(), 1e-16)
    assert loop.time() > start
