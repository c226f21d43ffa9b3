"""Safety of the partition store: session ids, metadata, votes, settlement, stale owners, lost disks."""

from __future__ import annotations

import asyncio
from unittest.mock import ANY

import pytest

from server_tests.store.fakes import PARTITION, ROOT, Cluster, entries, entry, until
from waltz_admin.forget import without_replica
from waltz_cluster.memory_store import Fault
from waltz_cluster.serializers import PartitionMetadata
from waltz_protocol.aio.tasks import spawn
from waltz_protocol.types import UNRESOLVED
from waltz_server.store.api import StoreNotOpenError, StoreState

pytestmark = pytest.mark.looptime

PATH = f"{ROOT}/store/partition/{PARTITION}"


async def test_safety_a1_record_100_survives_a_lost_disk() -> None:
    """A and C acknowledged, B is behind; the server dies, C's disk is lost: the record must stay."""
    async with Cluster() as cluster:
        first = cluster.server()
        await first.opened()
        await first.append(entries(100))
        await until(lambda: all(n.max_txid == 99 for n in cluster.nodes.values()))
        cluster.nodes["b:1"].delay_seconds = 1.0
        await first.append(entries(1))
        await first.crash()
        cluster.nodes["b:1"].delay_seconds = 0.0
        cluster.nodes["c:1"].wipe()
        assert cluster.nodes["b:1"].max_txid == 99
        second = cluster.server(generation=2)
        await second.opened()
        assert second.store.high_water_mark == 100
        await until(lambda: cluster.nodes["c:1"].max_txid == 100, 60)
        cluster.check_equal(100)


async def test_safety_a1_undecidable_names_the_absent_and_waits() -> None:
    """A holds 100; B is down and C was wiped: nobody may decide, until B is back or an operator forgets
    it."""
    async with Cluster() as cluster:
        first = cluster.server()
        await first.opened()
        await first.append(entries(100))
        await first.crash()
        cluster.nodes["b:1"].kill()
        cluster.nodes["c:1"].wipe()
        second = cluster.server(generation=2)
        await until(lambda: second.store.state is StoreState.UNDECIDABLE, 60)
        assert "b:1" in second.store.state_reason
        assert "c:1" in second.store.state_reason
        assert not second.store.healthy
        await asyncio.sleep(60)
        assert second.store.state is StoreState.UNDECIDABLE
        assert cluster.nodes["a:1"].max_txid == 99
        cluster.nodes["b:1"].start()
        await until(lambda: second.store.state is StoreState.OPEN, 60)
        assert second.store.high_water_mark == 99


async def test_forgetting_replicas_is_the_way_out_of_undecidable() -> None:
    async with Cluster() as cluster:
        first = cluster.server()
        await first.opened()
        await first.append(entries(100))
        await first.crash()
        cluster.nodes["b:1"].kill()
        cluster.nodes["c:1"].wipe()
        second = cluster.server(generation=2)
        await until(lambda: second.store.state is StoreState.UNDECIDABLE, 60)
        await cluster.write(lambda m: without_replica(without_replica(m, "b:1"), "c:1"))
        await until(lambda: second.store.state is StoreState.OPEN, 60)
        assert second.store.high_water_mark == 99
        await second.append(entries(5))
        assert cluster.nodes["c:1"].max_txid == 104


async def test_safety_a2_deleted_metadata_stops_the_partition_loudly() -> None:
    async with Cluster() as cluster:
        first = cluster.server()
        await first.opened()
        await first.append(entries(10))
        await first.crash()
        await cluster.admin.delete(PATH)
        second = cluster.server(generation=2)
        await until(lambda: second.store.state is StoreState.FAULT, 60)
        assert "deleted" in second.store.state_reason
        await asyncio.sleep(100)
        assert second.store.state is StoreState.FAULT
        assert all(n.max_txid == 9 for n in cluster.nodes.values())


async def test_storage_7_31_an_older_copy_of_the_one_znode_is_a_lasting_fault() -> None:
    """Generation and session have no second copy that peers know; the sessions that the nodes have written
    down are one."""
    async with Cluster() as cluster:
        first = cluster.server()
        await first.opened()
        await first.append(entries(10))
        await first.crash()
        older, _ = await cluster.admin.get(PATH)
        second = cluster.server(generation=2)
        await second.opened()
        await second.append(entries(10))
        await second.crash()
        newer, _ = await cluster.admin.get(PATH)
        await cluster.admin.set(PATH, older)
        for generation in (3, 4):
            third = cluster.server(generation=generation)
            await until(lambda: third.store.state is StoreState.FAULT, 60)  # noqa: B023
            await asyncio.sleep(100)
            assert third.listener.opened == 0
            await third.crash()
        assert await cluster.admin.get(PATH) == (older, ANY)  # no id was taken
        assert all(n.max_txid == 19 and "truncate" not in n.calls for n in cluster.nodes.values())
        await cluster.admin.set(PATH, newer)
        fourth = cluster.server(generation=5)
        await fourth.opened()
        assert fourth.store.high_water_mark == 19


@pytest.mark.parametrize("recorded_session", [-1, 0, 3, 1000])
async def test_safety_a2_emptied_metadata_never_truncates(recorded_session: int) -> None:
    async with Cluster() as cluster:
        first = cluster.server()
        await first.opened()
        await first.append(entries(10))
        await first.crash()
        await cluster.admin.set(PATH, PartitionMetadata(1, recorded_session, {}).to_bytes())
        second = cluster.server(generation=2)
        await until(lambda: second.store.state in (StoreState.FAULT, StoreState.NO_QUORUM), 60)
        await asyncio.sleep(100)
        assert second.store.state in (StoreState.FAULT, StoreState.NO_QUORUM)
        assert second.listener.opened == 0
        assert all(n.max_txid == 9 for n in cluster.nodes.values())
        assert all("truncate" not in n.calls for n in cluster.nodes.values())


async def test_safety_a2_fresh_cluster_starts_with_one_node_down() -> None:
    async with Cluster() as cluster:
        cluster.nodes["b:1"].kill()
        server = cluster.server()
        await server.opened()
        await server.append(entries(10))
        cluster.nodes["b:1"].start()
        await until(lambda: cluster.nodes["b:1"].max_txid == 9, 60)
        cluster.check_equal(9)


async def test_safety_a2_late_witness_of_lost_metadata_is_refused_untouched() -> None:
    """The metadata was emptied, two disks are new, the old one comes late: it is not truncated."""
    async with Cluster() as cluster:
        first = cluster.server()
        await first.opened()
        await first.append(entries(10))
        await first.crash()
        cluster.nodes["a:1"].kill()
        cluster.nodes["b:1"].wipe()
        cluster.nodes["c:1"].wipe()
        await cluster.admin.set(PATH, PartitionMetadata(1, 5, {}).to_bytes())
        second = cluster.server(generation=2)
        await second.opened()
        await second.append(entries(3))
        cluster.nodes["a:1"].start()
        await until(lambda: any(r.state == "refused" for r in second.store.replicas), 60)
        assert cluster.nodes["a:1"].max_txid == 9
        for _ in range(3):
            second.store.set_generation(second.store.generation + 1)
            await asyncio.sleep(5)
        assert cluster.nodes["a:1"].max_txid == 9


async def test_safety_a3_late_joiner_votes_only_after_it_is_listed() -> None:
    async with Cluster() as cluster:
        cluster.nodes["c:1"].kill()
        server = cluster.server()
        await server.opened()
        await server.append(entries(5))
        server.zk.fault = lambda operation, _path: Fault.LOSE_REQUEST if operation == "set" else None
        cluster.nodes["c:1"].start()
        await until(lambda: cluster.nodes["c:1"].info.session_id == 0, 60)
        await asyncio.sleep(0.1)
        assert server.store.state is StoreState.OPEN
        cluster.nodes["b:1"].kill()
        server.store.append(entries(1))  # a alone holds it for certain, c is not listed
        await asyncio.sleep(0.05)
        assert len(server.listener.committed_entries) == 5
        assert (await cluster.stored()).replicas["c:1"].closing_high_water_mark == -1
        server.zk.fault = None


async def test_storage_7_21_session_opens_only_after_metadata_is_written() -> None:
    async with Cluster() as cluster:
        writes = 0

        def lose_second(operation: str, _path: str) -> Fault | None:
            nonlocal writes
            writes += operation == "set"
            return Fault.LOSE_REQUEST if operation == "set" and 1 < writes < 5 else None

        server = cluster.server()
        server.zk.fault = lose_second
        while server.store.state is not StoreState.OPEN:
            await asyncio.sleep(0.001)
        stored = await cluster.stored()
        assert writes == 5
        assert len(stored.replicas) == 3
        assert {s.session_id for s in stored.replicas.values()} == {server.store.session_id}


async def test_safety_a4_leftovers_are_settled_per_record_after_an_owner_change() -> None:
    """In flight at the old owner: 3 records on one node only. Another owner wrote others at the same ids."""
    async with Cluster() as cluster:
        first = cluster.server(generation=1)
        await first.opened()
        await first.append(entries(5))
        for name in ("b:1", "c:1"):
            first.blocked.add(name)
            for link in list(cluster.nodes[name].links):
                link.break_off("cut off")
        mine = entries(3)
        first.store.append(mine)  # reaches a only
        await until(lambda: cluster.nodes["a:1"].max_txid == 7)
        cluster.nodes["a:1"].kill()
        second = cluster.server(generation=2)
        await second.opened()
        assert second.store.high_water_mark == 4
        foreign = entries(6)
        await second.append(foreign)
        await second.crash()
        cluster.nodes["a:1"].start()
        first.blocked.clear()
        first.store.set_generation(3)
        await until(lambda: first.store.state is StoreState.OPEN, 100)
        assert first.listener.failed_entries == mine
        assert all(e not in first.listener.committed_entries for e in mine)
        assert first.store.high_water_mark == 10
        assert first.store.pending == 0
        await until(lambda: cluster.nodes["a:1"].max_txid == 10, 60)
        cluster.check_equal(10)


async def test_storage_7_22_resolved_mark_can_cut_inside_a_batch() -> None:
    async with Cluster() as cluster:
        first = cluster.server(generation=1)
        await first.opened()
        await first.append(entries(5))
        cluster.nodes["c:1"].kill()
        await until(lambda: first.store.session_id == 1 and first.store.state is StoreState.OPEN)
        batch = entries(4)
        first.store.append(batch)
        await asyncio.sleep(0)
        for name in ("a:1", "b:1"):  # a failing append keeps the records before the failing one
            cluster.nodes[name].kill()
            cluster.nodes[name].log = cluster.nodes[name].log[:5]
        head = [(5 + i).to_bytes(8, "big") + e.req_id + e.tail for i, e in enumerate(batch[:2])]
        cluster.nodes["a:1"].log += head
        await until(lambda: first.store.state is not StoreState.OPEN)
        for name in ("a:1", "b:1"):
            cluster.nodes[name].start()
        await until(lambda: first.store.state is StoreState.OPEN and first.store.pending == 0, 60)
        assert first.listener.committed_entries[-2:] == batch[:2]
        assert first.listener.failed_entries == batch[2:]


async def test_safety_a7_uncertain_write_burns_the_session_id() -> None:
    for fault in (Fault.LOSE_REPLY, Fault.LOSE_REQUEST):
        async with Cluster() as cluster:
            server = cluster.server()
            lost = 0

            def lose_first(operation: str, _path: str, fault: Fault = fault) -> Fault | None:
                nonlocal lost
                if operation == "set" and lost == 0:
                    lost += 1
                    return fault
                return None

            server.zk.fault = lose_first
            await server.opened()
            assert server.store.session_id == 1  # 0 is burned, whether it was written or not
            assert (await cluster.stored()).session_id == 1
            assert all(n.fence == 1 for n in cluster.nodes.values())


async def test_metadata_conflict_takes_a_later_session_id() -> None:
    async with Cluster() as cluster:
        servers = [cluster.server() for _ in range(2)]  # two servers believe they own generation 1
        await until(lambda: any(s.store.state is StoreState.OPEN for s in servers))
        ids = [s.store.session_id for s in servers if s.store.session_id >= 0]
        assert len(ids) == len(set(ids))


async def test_safety_d4_stale_owner_cannot_confirm() -> None:
    async with Cluster() as cluster:
        first = cluster.server(generation=1)
        await first.opened()
        await first.append(entries(5))
        second = cluster.server(generation=2)
        await second.opened()
        assert first.store.state is StoreState.OPEN  # it has not noticed yet
        with pytest.raises(StoreNotOpenError):
            await first.store.confirm_current()
        await second.store.confirm_current()
        await until(lambda: first.store.state is StoreState.RECOVERING)
        await until(lambda: "generation" in first.store.state_reason)


async def test_safety_d4_confirmations_share_rounds_and_a_commit_counts() -> None:
    async with Cluster() as cluster:
        server = cluster.server()
        await server.opened()
        for node in cluster.nodes.values():
            node.delay_seconds = 0.01
            node.calls.clear()
        await asyncio.gather(*(server.store.confirm_current() for _ in range(50)))
        assert sum(n.calls.count("append") for n in cluster.nodes.values()) == 3
        run = server.store.current_run
        assert run is not None
        assert run.session is not None
        asked = run.session.confirmations.ask()
        later = run.session.confirmations.ask()
        server.store.append(entries(1))
        await until(lambda: asked.done() and later.done())
        await asked
        await later


async def test_safety_d4_an_earlier_answer_does_not_confirm() -> None:
    """The node answered an append sent before the question; the fence rose meanwhile."""
    async with Cluster() as cluster:
        first = cluster.server(generation=1)
        await first.opened()
        for node in cluster.nodes.values():
            node.delay_seconds = 0.05
        first.store.append(entries(1))
        await asyncio.sleep(0.01)
        question = spawn(first.store.confirm_current(), "question")
        await asyncio.sleep(0.055)  # the append is executed, the confirmation is still in the queue
        for name in ("a:1", "b:1"):  # one still believes in us: not a quorum
            cluster.nodes[name].fence = 99
        with pytest.raises(StoreNotOpenError):
            await question
        assert len(first.listener.committed_entries) == 1


async def test_storage_7_30_generation_mismatch_waits_instead_of_dying() -> None:
    async with Cluster() as cluster:
        second = cluster.server(generation=5)
        await second.opened()
        await second.crash()
        late = cluster.server(generation=4)
        await until(lambda: "generation" in late.store.state_reason)
        await asyncio.sleep(100)
        assert late.task is not None
        assert not late.task.done()
        late.store.set_generation(6)
        await until(lambda: late.store.state is StoreState.OPEN)
        assert (await cluster.stored()).generation == 6


async def test_raised_generation_replaces_the_session() -> None:
    async with Cluster() as cluster:
        server = cluster.server(generation=1)
        await server.opened()
        await server.append(entries(3))
        server.store.set_generation(4)
        await until(lambda: server.store.session_id == 1 and server.store.state is StoreState.OPEN)
        assert (await cluster.stored()).generation == 4
        assert server.listener.failed_entries == []


async def test_new_owner_fences_the_old_one_and_its_commits_stop() -> None:
    async with Cluster() as cluster:
        first = cluster.server(generation=1)
        await first.opened()
        await first.append(entries(5))
        second = cluster.server(generation=2)
        await second.opened()
        stale = entry()
        first.store.append([stale])
        await until(lambda: first.store.state is StoreState.RECOVERING)
        assert stale not in first.listener.committed_entries
        await second.append(entries(5))
        cluster.check_equal(9, ("a:1", "b:1"))


async def test_storage_7_25_metadata_older_than_the_nodes_changes_nothing() -> None:
    """ZooKeeper was restored from an older state: session ids below the fences."""
    async with Cluster() as cluster:
        first = cluster.server()
        await first.opened()
        old = (await cluster.stored()).to_bytes()
        for generation in range(2, 8):
            first.store.set_generation(generation)
            await until(lambda g=generation: first.store.session_id == g - 1)  # type: ignore[misc]
            await first.opened()
        await first.append(entries(10))
        await first.crash()
        await cluster.admin.set(PATH, old)
        second = cluster.server(generation=20)
        await asyncio.sleep(300)
        assert second.listener.opened == 0
        assert second.store.state is StoreState.FAULT
        for name in cluster.names:
            assert f"{name} has completed session 6, later than the 0" in second.store.state_reason
        assert all(n.max_txid == 9 for n in cluster.nodes.values())
        assert (await cluster.stored()).session_id == 0  # ids are not raised past the fences by trying


async def test_recovery_below_an_acknowledged_mark_is_a_fault() -> None:
    async with Cluster() as cluster:
        server = cluster.server()
        await server.opened()
        await server.append(entries(10))
        for node in cluster.nodes.values():
            node.kill()
        for (
            node
        ) in cluster.nodes.values():  # the disks forgot synced records: nobody could have seen it coming
            del node.log[5:]
            node.start()
        await until(lambda: server.store.state is StoreState.FAULT, 60)
        assert "acknowledged" in server.store.state_reason
        assert all(
            s.closing_high_water_mark == UNRESOLVED for s in (await cluster.stored()).replicas.values()
        )
