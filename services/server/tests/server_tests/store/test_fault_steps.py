"""What tools advise for a fault depends on the words in which a server gives its reason: those of real faults
lead to the step that ends them."""

from __future__ import annotations

import asyncio

import pytest

from server_tests.store.fakes import ROOT, Cluster, until
from server_tests.store.model import answer, run_until_stuck
from server_tests.store.test_older_copy import PATH, fault_of, put_back_all_but_a, sessions
from server_tests.store.test_recovery_stalls import forgotten_by_two
from server_tests.store.test_two_histories import LATER, put_back, recovered, resolved_without_the_copy, voter
from waltz_admin.findings.fault import FAULT, ZOOKEEPER_OLDER, case_of_fault
from waltz_cluster.partition_metadata import StoreMetadata
from waltz_server.store.api import StoreState
from waltz_server.store.recovery_steps import Condition

pytestmark = pytest.mark.looptime


async def test_an_older_zookeeper_leads_to_accept_restored() -> None:
    async with Cluster() as cluster:
        copies = await sessions(cluster, 2)
        await put_back_all_but_a(cluster, copies[0])
        _, reason = await fault_of(cluster, 3)
    rule, step = case_of_fault(reason)
    assert rule is ZOOKEEPER_OLDER
    assert "`waltz zk accept-restored" in step


async def test_fences_out_of_reach_lead_to_lower_fence() -> None:
    async with Cluster() as cluster:
        await sessions(cluster, 1)
        for name in ("b:1", "c:1"):
            cluster.nodes[name].fence = 2**63 - 1
        _, reason = await fault_of(cluster, 2)
    rule, step = case_of_fault(reason)
    assert rule is FAULT
    assert "`waltz storage lower-fence DIR" in step


def test_two_histories_are_no_older_zookeeper_though_their_reason_names_a_later_session() -> None:
    """`accept-restored` would make the copy of the later session the one that decides."""
    nodes = {"A": voter(), "B": voter(), "C": put_back(20, 30)}
    _, reason = recovered(nodes, "ABC", LATER + 1).condition()
    assert "C has completed session 8" in reason
    rule, step = case_of_fault(reason)
    assert rule is FAULT
    assert "`waltz storage restore-reset DIR`" in step
    assert "reset nothing" in step
    assert "accept-restored" not in step


def test_two_histories_are_none_either_where_this_session_was_written_down_already() -> None:
    recovery, nodes = resolved_without_the_copy()
    recovery.refuse("B", "its log differs from that of the other replicas (fork)")
    answer(recovery, nodes, "C")
    run_until_stuck(recovery, nodes, "AC", recovery.session_id)
    condition, reason = recovery.condition()
    assert condition is Condition.FAULT
    assert "C has completed session" in reason
    assert "accept-restored" not in case_of_fault(reason)[1]


async def test_metadata_that_are_gone_lead_to_zookeepers_data() -> None:
    async with Cluster() as cluster:
        await sessions(cluster, 1)
        await cluster.admin.set(PATH, b"\x01\x00")
        _, unreadable = await fault_of(cluster, 2)
        await cluster.admin.delete(PATH)
        assert await StoreMetadata(cluster.admin, ROOT).never_started(0) is False
        server = cluster.server(generation=3)
        await until(lambda: "deleted" in server.store.state_reason, 60)
        assert server.store.state is StoreState.FAULT
        gone = server.store.state_reason
    for reason in (unreadable, gone):
        rule, step = case_of_fault(reason)
        assert rule is FAULT, reason
        assert step.startswith("restore ZooKeeper's data"), reason
        assert "empty, reset and remove nothing" in step


async def test_records_that_are_missing_are_brought_back_and_nothing_is_emptied() -> None:
    async with Cluster() as cluster:
        server = await forgotten_by_two(cluster)
        reason = server.store.state_reason
        rule, step = case_of_fault(reason)
        assert rule is FAULT
        assert "with the data they have; empty, reset and remove none" in step
        # Only the memory of this server knows what was acknowledged.
        assert step.startswith("do not stop or restart the server that reports this")
        server.store.close()
        other = cluster.server(generation=3)
        await until(lambda: other.store.state is StoreState.OPEN, 120)
        assert cluster.nodes["a:1"].max_txid == cluster.nodes["b:1"].max_txid == 4


async def test_the_server_is_restarted_when_the_copy_that_was_missing_is_back() -> None:
    async with Cluster() as cluster:
        server = await forgotten_by_two(cluster)
        cluster.nodes["c:1"].start()
        await asyncio.sleep(60)
        assert server.store.state is StoreState.FAULT  # it does not end on its own
        _, step = case_of_fault(server.store.state_reason)
        assert "Then restart it" in step
        server.store.close()
        other = cluster.server(generation=3)
        await until(lambda: other.store.state is StoreState.OPEN, 120)
        await until(lambda: all(node.max_txid == 9 for node in cluster.nodes.values()), 60)


def test_what_zookeeper_or_a_node_proves_outlives_a_server() -> None:
    proved = "a quorum holds records up to 4 only, but the low-water mark of c:1 proves 9 committed"
    rule, step = case_of_fault(proved)
    assert rule is FAULT
    assert step.startswith("settle what the reason names: nothing opens it before")
    first = "partition metadata has no replica states, but 9 was acknowledged by this server"
    assert case_of_fault(first)[1].startswith("do not stop or restart the server")
    assert "restore ZooKeeper's data" in case_of_fault(first)[1]
