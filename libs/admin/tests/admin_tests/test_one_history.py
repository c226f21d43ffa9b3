"""A copy of a later session came late, and is of another history: nothing is written for it (rule A8)."""

from __future__ import annotations

from dataclasses import replace

import pytest

from admin_tests.fake_processes import FakeNode
from admin_tests.test_accept_restored import NO_TLS, ROOT, Cluster, P, copy, recorded, records, running
from waltz_admin import assignments
from waltz_admin.accept_restored import accept_restored
from waltz_admin.copies import NodePartition
from waltz_admin.errors import UnsafeChangeError
from waltz_admin.one_history import check_one_history
from waltz_admin.restored_metadata import Nodes, NothingToAcceptError, rebuild
from waltz_admin.view import read_view
from waltz_cluster.serializers import PartitionMetadata, ReplicaState
from waltz_protocol.types import UNRESOLVED, Record, SessionInfo


def test_safety_a8_copies_are_in_doubt_where_a_majority_completed_an_earlier_session() -> None:
    """A and B served in session 6; C was put back later, from a copy of session 8."""
    listed = recorded(6, A=(6, UNRESOLVED), B=(6, UNRESOLVED), C=(5, 20))
    early, late = copy(6, 20, 25), copy(8, 28, 30)

    def doubt(before: PartitionMetadata, **held: NodePartition) -> tuple[str, str, int] | None:
        found = rebuild(0, before, Nodes("ABCDE", "".join(held), "ABCDE", held)).doubt
        return None if found is None else ("".join(found.later), "".join(found.earlier), found.resets)

    assert doubt(listed, A=early, B=early, C=late) == ("C", "AB", 1)
    assert doubt(listed, A=early, B=late, C=late) is None  # a majority took part in it
    assert doubt(listed, A=early, B=copy(-1, -1, -1), C=late) is None  # B may have
    assert doubt(listed, A=early, B=copy(8, 28, 5, 5), C=late) is None  # it was marked and not filled
    # B and C took part in session 7, which decided against the tail of A; then one marked C only
    assert doubt(listed, A=copy(6, 20, 28), B=copy(7, 25, 27), C=copy(8, 27, 27)) == ("C", "B", 1)
    five = recorded(6, **dict.fromkeys("ABCDE", (6, UNRESOLVED)))
    assert doubt(five, A=early, B=early, C=late, D=early, E=early) == ("C", "ABDE", 2)
    assert doubt(five, A=early, B=early, C=late, D=early, E=copy(7, 25, 25)) == ("C", "ABDE", 2)
    assert doubt(five, A=early, B=early, C=late, D=late, E=early) == ("CD", "ABE", 1)
    four = recorded(6, **dict.fromkeys("ABCD", (6, UNRESOLVED)))
    assert doubt(four, A=early, B=early, C=late, D=early) == ("C", "ABD", 1)


async def late_copy(cluster: Cluster, *tail: Record, shared: int = 21) -> list[FakeNode]:
    """The first two nodes served in session 6 and hold two records behind what is shared; the third knows
    session 8, and holds `tail` there."""
    found = cluster.nodes
    states = {n.connect_string: ReplicaState(P, n.connect_string, 6) for n in found}
    await cluster.metadata.create_partition(0, PartitionMetadata(1, 6, states))
    for node in found[:2]:
        node.session, node.records = SessionInfo(6, 2, 2), records(shared + 2)
    found[2].session, found[2].records = SessionInfo(8, 2, 2), [*records(shared), *tail]
    return found


async def refusal(cluster: Cluster, partitions: tuple[int, ...] = (0,)) -> str:
    before, _ = await cluster.metadata.read_partition(0)
    with pytest.raises(UnsafeChangeError) as raised:
        await accept_restored(cluster.store, ROOT, partitions, tls=NO_TLS)
    assert (await cluster.metadata.read_partition(0))[0] == before
    return str(raised.value)


async def test_safety_a8_a_late_copy_of_another_history_is_not_listed_as_the_last_session() -> None:
    async with running() as cluster:
        a, b, c = await late_copy(cluster, *records(31, client=2, first=21))
        names = sorted([a.connect_string, b.connect_string])
        text = await refusal(cluster)
        assert text == (
            f"partition 0: {c.connect_string} completed session 8, in which no majority took part, with other records than "
            f"{', '.join(names)}, at the latest from record 21 on: probably a disk was put back from a copy, and the others "
            f"have continued without it. Nothing was changed. To keep the records of {', '.join(names)}: stop "
            f"{c.connect_string}, run `waltz storage restore-reset` on its directory, start again, and run this command again "
            f"if the partition is still a fault. To keep those of {c.connect_string} instead, and lose what the others have "
            f"acknowledged since: stop {names[0]}, run `waltz storage restore-reset -p 0` on its directory, start again, run "
            f"this command again; reset {names[1]} in the same way only where it is refused as a fork then"
        )
        assert [node.read_in for node in (a, b, c)] == [[6], [6], [8, 8]]  # no fence is raised

        reset = next(node for node in (a, b) if node.connect_string == names[0])
        reset.session = SessionInfo(-1, -1, -1)
        found, _ = await accept_restored(cluster.store, ROOT, [0], tls=NO_TLS)
        assert {n: s.session_id for n, s in found[0].after.replicas.items()} == {
            c.connect_string: 8,
            names[0]: 8,
            names[1]: 6,
        }


async def test_a_late_copy_that_was_reset_leaves_nothing_to_accept() -> None:
    async with running() as cluster:
        *_, c = await late_copy(cluster, *records(31, client=2, first=21))
        c.session = SessionInfo(-1, -1, -1)
        with pytest.raises(NothingToAcceptError):
            await accept_restored(cluster.store, ROOT, [0], tls=NO_TLS)


async def test_safety_a8_an_append_that_was_sent_again_does_not_hide_another_history() -> None:
    """The last record that both hold is the same append, and a difference lies many requests before it."""
    async with running() as cluster:
        other = records(600, client=2, first=121)
        a, b, c = await late_copy(cluster, *other, *records(800, first=600), shared=121)
        for node in (a, b):
            node.records = records(700)
        assert "at the latest from record 121 on" in await refusal(cluster)
        assert len(c.read_in) < 30


async def test_copies_of_one_history_are_accepted_as_ever() -> None:
    """The later session had no majority, and what its copy holds was copied from the others; also where that
    is a single record."""
    for shared in (21, -1):
        async with running() as cluster:
            *_, c = await late_copy(cluster, *records(40, first=21), shared=shared)
            if shared < 0:
                c.session, c.records = SessionInfo(8, 0, 0), records(1)
                for node in cluster.nodes[:2]:
                    node.session = SessionInfo(6, -1, -1)
            found, _ = await accept_restored(cluster.store, ROOT, [0], tls=NO_TLS)
            assert found[0].reasons[c.connect_string] == "completed session 8, the last one: decides"
            assert c.read_in


async def test_safety_a8_another_first_record_is_another_history() -> None:
    async with running() as cluster:
        *_, c = await late_copy(cluster, shared=-1)
        for node in cluster.nodes:
            node.session, node.records = SessionInfo(6, -1, -1), records(1)
        c.session, c.records = SessionInfo(8, 0, 0), records(1, client=2)
        assert "at the latest from record 0 on" in await refusal(cluster)


async def test_safety_a8_records_that_cannot_be_compared_are_not_taken_for_equal() -> None:
    async with running() as cluster:
        a, _, c = await late_copy(cluster, *records(31, first=21))
        a.hides_headers = "the partition is not available"
        text = await refusal(cluster)
        assert f"{a.connect_string} does not show its own: the partition is not available" in text
        assert "Nothing was changed" in text
        a.hides_headers, c.hides_headers = None, ""
        assert f"{c.connect_string} does not show its own: it has no record 0" in await refusal(cluster)


async def test_safety_a8_a_node_that_reports_its_fence_is_read_in_the_session_of_the_fence() -> None:
    """It takes no other. A node whose storage port is closed is named."""
    async with running() as cluster:
        found = await late_copy(cluster, *records(31, first=21))
        reported = copy(6, 2, 22, fence=7), copy(6, 2, 22, fence=6), copy(8, 2, 30, fence=9)
        names = [node.connect_string for node in found]
        before, _ = await cluster.metadata.read_partition(0)
        assert before is not None
        rebuilt = rebuild(0, before, Nodes(names, names, names, dict(zip(names, reported, strict=True))))
        params = (await read_view(cluster.store, ROOT)).store
        await check_one_history(params, [rebuilt], NO_TLS)
        assert [set(node.read_in) for node in found] == [{7}, {6}, {9}]
        assert rebuilt.doubt is not None
        closed = replace(rebuilt, doubt=replace(rebuilt.doubt, later={"127.0.0.1:1": reported[2]}))
        with pytest.raises(UnsafeChangeError, match=r"127\.0\.0\.1:1 does not show its own: .*connect"):
            await check_one_history(params, [closed], NO_TLS)


async def test_all_partitions_with_two_histories_are_named_and_none_is_written() -> None:
    async with running(partitions=3) as cluster:
        found = await late_copy(cluster, *records(31, client=2, first=21))
        state = await cluster.metadata.read_partition(0)
        assert state[0] is not None
        for partition in (1, 2):
            await cluster.metadata.create_partition(partition, state[0])
            for node in found:
                await assignments.assign(cluster.store, ROOT, [partition], node.connect_string, tls=NO_TLS)
                node.status[partition] = True
        text = await refusal(cluster, (0, 1, 2))
        assert text.startswith("partition 0: ")
        assert text.endswith("(also refused: partitions 1,2)")
