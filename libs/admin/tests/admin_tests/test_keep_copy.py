"""No replica is left that holds what its own marks promise: one copy is taken as it is, and never by accident
(rule A1)."""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest

from admin_tests.fake_processes import FakeServer
from admin_tests.test_accept_restored import NO_TLS, ROOT, Cluster, copy, recorded, records, running
from waltz_admin import assignments
from waltz_admin import keep_copy as module
from waltz_admin.copies import NodePartition
from waltz_admin.errors import AdminError, UnreachableError, UnsafeChangeError
from waltz_admin.keep_copy import KeptCopy, PartlyKeptError, choose, keep_copy
from waltz_admin.restored_metadata import Nodes
from waltz_cluster.older_copy import FENCE_REACH
from waltz_cluster.serializers import PartitionMetadata, ReplicaState, ServerDescriptor, StoreParams
from waltz_protocol.aio.tls import TlsSettings
from waltz_protocol.errors import RequestFailedError
from waltz_protocol.types import UNRESOLVED, PartitionId, SessionInfo

ABC = recorded(5, A=(5, UNRESOLVED), B=(5, UNRESOLVED), C=(5, UNRESOLVED))


def reset(last: int) -> NodePartition:
    return copy(-1, -1, last, fence=5)


def chosen(
    held: dict[str, NodePartition],
    *,
    node: str = "A",
    before: PartitionMetadata = ABC,
    answering: str = "ABCD",
    assigned: str = "ABC",
    lost: Collection[str] = (),
) -> KeptCopy:
    return choose(0, before, node, Nodes("ABCD", assigned, answering, held, lost))


def why_not(held: dict[str, NodePartition], **more: object) -> str:
    with pytest.raises(UnsafeChangeError) as caught:
        chosen(held, **more)  # type: ignore[arg-type]
    return str(caught.value)


RESET = {"A": reset(9), "B": reset(12), "C": reset(7)}


def test_the_session_is_above_all_that_are_known_and_those_that_nobody_knows() -> None:
    kept = chosen(RESET)
    assert (kept.node, kept.last_transaction, kept.session_id) == ("A", 9, 5 + FENCE_REACH + 1)
    fence = 5 + FENCE_REACH
    assert chosen(RESET | {"A": copy(-1, -1, 9, fence=fence)}).session_id > fence


def test_safety_a1_a_copy_that_was_not_set_back_and_holds_more_is_the_one_to_keep() -> None:
    more = copy(5, 6, 10)
    assert "B (session 5, last record 10) was not set back and knows more" in why_not(RESET | {"B": more})
    assert "B (session 5, last record 9)" in why_not(RESET | {"B": copy(5, 6, 9)}), (
        "it took part in the last one"
    )
    joined = recorded(5, A=(5, UNRESOLVED), B=(4, 6), C=(5, UNRESOLVED))
    assert chosen(RESET | {"B": copy(4, 6, 9)}, before=joined).last_transaction == 9, "it had dropped out"
    assert "B (session 4, last record 10)" in why_not(RESET | {"B": copy(4, 6, 10)}, before=joined)
    assert chosen(RESET | {"B": copy(4, 6, 20)}).last_transaction == 9, "that one was set back too"


def test_safety_a1_the_tail_of_a_session_that_is_over_is_not_taken_for_records() -> None:
    """It was set back to session 3, in which it holds more than was decided at the start of session 5."""
    older = {"A": copy(3, 2, 12), "B": copy(5, 6, 8), "C": reset(-1)}
    assert "B (session 5, last record 8)" in why_not(older)


def test_safety_a1_a_silent_node_may_hold_more() -> None:
    held = {"A": reset(9), "B": reset(7)}
    assert "C does not answer" in why_not(held, answering="ABD")
    assert "D does not answer" in why_not(RESET, answering="ABC"), "it may have a copy that nobody knows of"
    assert "C does not answer, or does not report" in why_not(held | {"C": copy(-1, -1, None)})
    assert "no copy is shown by C, and one may be there" in why_not(held), (
        "it may be one that could not be opened"
    )
    assert "no copy is shown by A, B" in why_not({"C": reset(7)}, node="C")
    assert chosen(held, lost="C").node == "A"
    assert chosen(held, answering="ABD", lost="C").node == "A"
    assert "B is named as lost, and answers" in why_not(RESET | {"B": copy(4, 1, 1)}, lost="B")


def test_safety_a1_those_who_can_decide_are_not_given_up() -> None:
    two = {"A": copy(5, 6, 9), "B": copy(5, 6, 9), "C": reset(20)}
    assert "A, B were not set back and can decide" in why_not(two)
    closed = recorded(5, A=(4, 6), B=(4, 6), C=(5, UNRESOLVED))
    assert chosen(two, before=closed).node == "A", "nobody is left who took part in the last session"


def test_a_copy_that_cannot_be_taken_is_named_with_what_to_do() -> None:
    assert "restore-reset" in why_not(RESET | {"A": copy(4, 10, 9)})
    assert "restore-reset" in why_not(RESET | {"A": copy(4, 6, 9, local=10)})
    assert "availability" in why_not(RESET | {"A": replace(reset(9), available=False)})
    assert "has no copy" in why_not({"B": reset(3), "C": reset(3)}, lost="A")
    assert "is empty, and there are records on A, B" in why_not(RESET | {"C": reset(-1)}, node="C")
    assert chosen({name: reset(-1) for name in "ABC"}).last_transaction == -1
    assert "has no copy" in why_not(RESET, assigned="BC")
    assert "run `waltz zk accept-restored` first" in why_not(RESET | {"B": copy(6, 9, 9)})


# ---- the command


async def all_reset(cluster: Cluster, partitions: int = 1) -> None:
    for partition in range(partitions):
        states = {
            n.connect_string: ReplicaState(PartitionId(partition), n.connect_string, 5) for n in cluster.nodes
        }
        await cluster.metadata.create_partition(partition, PartitionMetadata(2, 5, states))
    for number, node in enumerate(cluster.nodes):
        node.session, node.records = SessionInfo(-1, -1, -1), records(8 + number)


async def keep(cluster: Cluster, *, node: int = 1, dry_run: bool = False) -> list[KeptCopy]:
    name = cluster.nodes[node].connect_string
    return await keep_copy(cluster.store, ROOT, name, [0], tls=NO_TLS, dry_run=dry_run)


async def test_one_copy_takes_part_alone_in_a_session_of_its_own() -> None:
    async with running() as cluster:
        await all_reset(cluster)
        before = await cluster.metadata.read_partition(0)
        (shown,) = await keep(cluster, dry_run=True)
        assert await cluster.metadata.read_partition(0) == before
        assert [node.session.session_id for node in cluster.nodes] == [-1, -1, -1]
        assert sorted(one.max_transaction_id or 0 for one in shown.copies.values()) == [7, 8, 9]
        (kept,) = await keep(cluster)
        assert kept == shown
        name = cluster.nodes[1].connect_string
        after, _ = await cluster.metadata.read_partition(0)
        alone = {name: ReplicaState(PartitionId(0), name, kept.session_id, UNRESOLVED)}
        assert after == PartitionMetadata(2, kept.session_id, alone)
        assert cluster.nodes[1].session == SessionInfo(kept.session_id, 8, 8)
        assert [node.session.session_id for node in cluster.nodes[::2]] == [-1, -1]


async def test_safety_a7_the_session_is_taken_in_zookeeper_before_the_node_knows_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Interrupted there it is as closed as before, and the same command completes it."""
    async with running() as cluster:
        await all_reset(cluster)
        before, _ = await cluster.metadata.read_partition(0)
        assert before is not None

        async def gone(params: StoreParams, one: KeptCopy, session_id: int, tls: TlsSettings) -> None:
            raise UnreachableError("gone")

        with monkeypatch.context() as patch:
            patch.setattr(module, "_write_down", gone)
            with pytest.raises(UnreachableError):
                await keep(cluster)
        taken, _ = await cluster.metadata.read_partition(0)
        session, name = 5 + FENCE_REACH + 1, cluster.nodes[1].connect_string
        own = {name: ReplicaState(PartitionId(0), name, session, UNRESOLVED)}
        assert taken == PartitionMetadata(2, session, {**before.replicas, **own})
        (kept,) = await keep(cluster)
        assert kept.session_id > taken.session_id


async def test_a_server_that_takes_ids_meanwhile_does_not_stop_it(monkeypatch: pytest.MonkeyPatch) -> None:
    async with running() as cluster:
        await all_reset(cluster)
        real, rivals = module._write_down, iter((True, False))

        async def rivalled(params: StoreParams, one: KeptCopy, session_id: int, tls: TlsSettings) -> None:
            rival = next(rivals, None)
            if rival is not None:
                current, version = await cluster.metadata.read_partition(0)
                assert current is not None
                newer = PartitionMetadata(2, current.session_id + 3, current.replicas)
                await cluster.metadata.write_partition(0, newer, version)
            if rival:
                raise RequestFailedError("the session is older than the fence")
            await real(params, one, session_id, tls)

        monkeypatch.setattr(module, "_write_down", rivalled)
        await keep(cluster)
        after, _ = await cluster.metadata.read_partition(0)
        assert after is not None
        assert set(after.replicas) == {cluster.nodes[1].connect_string}
        assert after.session_id == cluster.nodes[1].session.session_id > 5 + FENCE_REACH + 6


async def test_safety_a1_what_was_changed_meanwhile_is_not_written_over(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with running() as cluster:
        await all_reset(cluster)
        real = module.choose

        def longer(*given: object) -> KeptCopy:
            cluster.nodes[1].records += records(1)
            return real(*given)  # type: ignore[arg-type]

        with monkeypatch.context() as patch:
            patch.setattr(module, "choose", longer)
            with pytest.raises(UnsafeChangeError, match="holds records up to 9 now, no longer up to 8"):
                await keep(cluster)
        assert cluster.nodes[1].session.session_id == -1

        def changed(*given: object) -> KeptCopy:
            return replace(real(*given), replicas={})  # type: ignore[arg-type]

        monkeypatch.setattr(module, "choose", changed)
        with pytest.raises(UnsafeChangeError, match="its replicas were changed meanwhile"):
            await keep(cluster)


async def test_a_server_that_has_it_open_and_a_partition_that_is_not_there() -> None:
    async with running() as cluster, FakeServer().running() as server:
        name = cluster.nodes[0].connect_string
        with pytest.raises(AdminError, match="no metadata that lists a replica"):
            await keep(cluster)
        with pytest.raises(AdminError, match="there is no partition 1: the cluster has 1"):
            await keep_copy(cluster.store, ROOT, name, [1], tls=NO_TLS)
        await all_reset(cluster)
        descriptor = ServerDescriptor(1, server.endpoint).to_bytes()
        await cluster.store.create(f"{ROOT}/serverDescriptors/s_", descriptor, ephemeral=True)
        server.health = {0: True}
        with pytest.raises(UnsafeChangeError, match="serves it: nothing is to be given up"):
            await keep(cluster)


async def test_what_was_done_before_an_error_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    async with running(partitions=2) as cluster:
        for node in cluster.nodes:
            node.status[1] = True
            await assignments.assign(cluster.store, ROOT, [1], node.connect_string, tls=NO_TLS)
        await all_reset(cluster, 2)
        real = module._write_down

        async def once(params: StoreParams, one: KeptCopy, session_id: int, tls: TlsSettings) -> None:
            if one.partition_id == 1:
                raise UnreachableError("gone")
            await real(params, one, session_id, tls)

        monkeypatch.setattr(module, "_write_down", once)
        name = cluster.nodes[1].connect_string
        with pytest.raises(PartlyKeptError, match=r"gone \(partitions 0 are done, or need nothing\)"):
            await keep_copy(cluster.store, ROOT, name, [0, 1], tls=NO_TLS)
        first, _ = await cluster.metadata.read_partition(0)
        assert first is not None
        assert set(first.replicas) == {name}


@asynccontextmanager
async def interrupted(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Cluster]:
    """Two partitions of which a run that ended early has done the first."""
    async with running(partitions=2) as cluster:
        for node in cluster.nodes:
            node.status[1] = True
            await assignments.assign(cluster.store, ROOT, [1], node.connect_string, tls=NO_TLS)
        await all_reset(cluster, 2)
        await keep(cluster)
        cluster.nodes[1].other_sessions[1] = SessionInfo(-1, -1, -1)
        yield cluster


async def keep_both(cluster: Cluster) -> list[KeptCopy]:
    name = cluster.nodes[1].connect_string
    return await keep_copy(cluster.store, ROOT, name, [0, 1], tls=NO_TLS)


async def test_the_same_command_does_the_rest_of_an_interrupted_run(monkeypatch: pytest.MonkeyPatch) -> None:
    async with interrupted(monkeypatch) as cluster:
        first = await cluster.metadata.read_partition(0)
        done, kept = await keep_both(cluster)
        assert done.already == "it is the log already"
        assert not kept.already
        assert await cluster.metadata.read_partition(0) == first, "nothing is written there"
        second, _ = await cluster.metadata.read_partition(1)
        assert second is not None
        assert set(second.replicas) == {cluster.nodes[1].connect_string}
        cluster.nodes[1].other_sessions.clear()
        both = await keep_both(cluster)
        assert all(one.already for one in both), "once more: nothing is left to do"


async def test_what_a_server_opened_after_an_interrupted_run_is_left_to_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with interrupted(monkeypatch) as cluster, FakeServer().running() as server:
        descriptor = ServerDescriptor(1, server.endpoint).to_bytes()
        await cluster.store.create(f"{ROOT}/serverDescriptors/s_", descriptor, ephemeral=True)
        server.health = {0: True}
        first, version = await cluster.metadata.read_partition(0)
        assert first is not None
        for node in cluster.nodes[:2]:
            node.other_sessions[0] = cluster.nodes[1].session
        cluster.nodes[0].records = list(cluster.nodes[1].records)
        names = (cluster.nodes[0].connect_string, cluster.nodes[2].connect_string)
        joined = {name: ReplicaState(PartitionId(0), name, first.session_id, 8) for name in names}
        opened = PartitionMetadata(3, first.session_id, {**first.replicas, **joined})
        await cluster.metadata.write_partition(0, opened, version)
        done, kept = await keep_both(cluster)
        assert done.already == f"server {server.endpoint} serves it: nothing is to be given up"
        assert not kept.already
        assert (await cluster.metadata.read_partition(0))[0] == opened
        server.health = {}  # stopped since, or about to open it again
        cluster.nodes[1].other_sessions[1] = SessionInfo(-1, -1, -1)
        done, _ = await keep_both(cluster)
        assert "nothing has to be given up" in done.already
        with pytest.raises(UnsafeChangeError, match=r"partition 0: .*can decide: nothing has to be given up"):
            await keep(cluster)
        server.health = {0: True}
        with pytest.raises(UnsafeChangeError, match=r"partition 0: .* serves it: nothing is to be given up"):
            await keep(cluster)  # of that one alone there is nothing to be done


async def test_safety_a1_a_partition_is_not_done_because_another_copy_was_kept(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Nor because a server serves it without this copy, or because this one is listed alone and was reset
    since."""
    async with interrupted(monkeypatch) as cluster, FakeServer().running() as server:
        other = cluster.nodes[0].connect_string
        with pytest.raises(UnsafeChangeError, match="partition 0: "):
            await keep_copy(cluster.store, ROOT, other, [0, 1], tls=NO_TLS)
        node = cluster.nodes[1]
        node.session = SessionInfo(-1, -1, -1)
        name = node.connect_string
        both = await keep_copy(cluster.store, ROOT, name, [0, 1], tls=NO_TLS, dry_run=True)
        assert [one.already for one in both] == ["", ""]
        descriptor = ServerDescriptor(1, server.endpoint).to_bytes()
        await cluster.store.create(f"{ROOT}/serverDescriptors/s_", descriptor, ephemeral=True)
        server.health = {0: True}
        with pytest.raises(UnsafeChangeError, match="serves it: nothing is to be given up"):
            await keep_copy(cluster.store, ROOT, other, [0, 1], tls=NO_TLS)


async def test_safety_a8_nothing_is_done_where_zookeeper_is_older() -> None:
    """It lists the copy alone, or so that some can decide, from a time before the last session."""
    for listed in (1, 3):
        async with running() as cluster:
            newer, kept, third = cluster.nodes
            names = [node.connect_string for node in (kept, newer, third)][:listed]
            replicas = {name: ReplicaState(PartitionId(0), name, 5) for name in names}
            await cluster.metadata.create_partition(0, PartitionMetadata(2, 5, replicas))
            for node in (kept, third):
                node.session, node.records = SessionInfo(5, 6, 6), records(8)
            newer.session, newer.records = SessionInfo(9, 20, 20), records(30)
            with pytest.raises(UnsafeChangeError, match="run `waltz zk accept-restored` first"):
                await keep(cluster)


async def test_what_is_done_is_listed_though_a_server_opened_another_partition_since(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with interrupted(monkeypatch) as cluster, FakeServer().running() as server:
        await keep_both(cluster)
        cluster.nodes[1].other_sessions.clear()
        descriptor = ServerDescriptor(1, server.endpoint).to_bytes()
        await cluster.store.create(f"{ROOT}/serverDescriptors/s_", descriptor, ephemeral=True)
        server.health = {0: True}
        first, version = await cluster.metadata.read_partition(0)
        assert first is not None
        joined = {
            node.connect_string: ReplicaState(PartitionId(0), node.connect_string, first.session_id, 8)
            for node in (cluster.nodes[0], cluster.nodes[2])
        }
        opened = PartitionMetadata(3, first.session_id, {**first.replicas, **joined})
        await cluster.metadata.write_partition(0, opened, version)
        served, done = await keep_both(cluster)
        assert "serves it" in served.already
        assert done.already == "it is the log already"


async def test_a_copy_that_is_listed_among_others_is_not_done() -> None:
    """It holds what it should, and cannot decide without those that were reset."""
    async with running() as cluster:
        await all_reset(cluster)
        cluster.nodes[1].session = SessionInfo(5, 6, 6)
        (kept,) = await keep(cluster)
        assert not kept.already
        assert kept.session_id == 5 + FENCE_REACH + 1
        after, _ = await cluster.metadata.read_partition(0)
        assert after is not None
        assert set(after.replicas) == {cluster.nodes[1].connect_string}
