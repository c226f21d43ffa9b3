"""Safety rule A6 where a single answer, listing or version decides: changes on older knowledge, copies that
are taken away."""

from __future__ import annotations

import pytest

from admin_tests.test_safety import GOOD, P0, ROOT, Probe, metadata, up
from waltz_admin import assignments, nodes
from waltz_admin.errors import AssignmentError, UnsafeChangeError
from waltz_admin.safety import check_change, check_removal
from waltz_admin.verify import Answers, Check, CheckResult, NodeAnswer, VerifyReport, check
from waltz_admin.view import read_view
from waltz_cluster.memory_store import MemoryStore
from waltz_cluster.partition_metadata import StoreMetadata
from waltz_cluster.replica_rules import Answer
from waltz_cluster.serializers import PartitionMetadata, ReplicaAssignments, ReplicaState
from waltz_protocol.types import UNRESOLVED, PartitionId

NAMES = ("a:1", "b:1", "c:1")
P1 = PartitionId(1)
ALL_GOOD = Probe(**dict.fromkeys((*NAMES, "d:1"), GOOD))


async def written(meta: StoreMetadata, replicas: dict[str, int]) -> None:
    """Partition 0 is in session 5; its replicas are listed in these sessions."""
    _, version = await meta.read_partition(0)
    states = {name: ReplicaState(P0, name, session, UNRESOLVED) for name, session in replicas.items()}
    await meta.write_partition(0, PartitionMetadata(1, 5, states), version)


async def cluster(placement: dict[str, tuple[PartitionId, ...]]) -> MemoryStore:
    store, _ = await metadata(up(*NAMES))
    for node in (*NAMES, "d:1"):
        await nodes.add_storage_node(store, ROOT, node, 2, 0)
    await store.set(f"{ROOT}/store/assignment", ReplicaAssignments({"d:1": (), **placement}).to_bytes())
    return store


async def test_safety_a6_a_listing_in_an_earlier_session_is_no_listing() -> None:
    """The node may have the present session on its disk; ZooKeeper has not said so, and a recovery goes by
    ZooKeeper."""
    _, meta = await metadata(up("a", "b", "c"))
    await written(meta, {"a": 5, "b": 4, "c": 5})
    probe = Probe(a=GOOD, b=GOOD, c=GOOD)
    with pytest.raises(UnsafeChangeError, match="1 are proven"):
        await check_change(meta, probe, 0, ["a", "b", "c"], ["a", "b"])
    assert "b" not in probe.asked
    await check_change(meta, probe, 0, ["a", "b", "c"], ["a", "c"])


async def test_safety_a6_every_partition_of_a_change_is_proven() -> None:
    """The one that is not well is not the first."""
    store = await cluster(dict.fromkeys(NAMES, (P0, P1)))
    meta = StoreMetadata(store, ROOT)
    states = {name: ReplicaState(P1, name, 5, UNRESOLVED) for name in NAMES}
    await meta.create_partition(1, PartitionMetadata(1, 6, states))
    with pytest.raises(UnsafeChangeError, match="partition 1"):
        await assignments.unassign(store, ROOT, [0, 1], "c:1", probe=ALL_GOOD)
    assert await assignments.unassign(store, ROOT, [0], "c:1", probe=ALL_GOOD) == (0,)


async def test_a_change_that_was_decided_on_older_assignments_is_refused() -> None:
    store = await cluster(dict.fromkeys(NAMES, (P0,)))
    _, stat = await store.get(f"{ROOT}/store/assignment")

    async def change(version: int) -> bool:
        return await assignments.change_assignments(
            store, ROOT, expect_version=version, add={"d:1": [0]}, probe=ALL_GOOD
        )

    for version in (stat.version - 1, stat.version + 1):
        with pytest.raises(AssignmentError, match="changed meanwhile"):
            await change(version)
    assert await change(stat.version)
    assert not await change(stat.version)  # done already, whatever the version


async def test_safety_a6_a_copy_is_taken_away_only_when_a_quorum_of_the_others_is_proven() -> None:
    _, meta = await metadata(up("a", "b", "c"))
    assigned = ["a", "b", "c"]
    for probe, proven in ((Probe(a=GOOD), False), (Probe(a=GOOD, b=GOOD), True)):
        if proven:
            await check_removal(meta, probe, 0, "d", assigned)
        else:
            with pytest.raises(UnsafeChangeError, match="the copy on d is kept"):
                await check_removal(meta, probe, 0, "d", assigned)


async def test_safety_a6_a_copy_that_is_assigned_or_counted_is_never_taken_away() -> None:
    _, meta = await metadata(up("a", "b", "c"))
    probe = Probe(a=GOOD, b=GOOD, c=GOOD)
    with pytest.raises(UnsafeChangeError, match="unassign it first"):
        await check_removal(meta, probe, 0, "c", ["a", "b", "c"])
    with pytest.raises(UnsafeChangeError, match="may still be needed"):
        await check_removal(meta, probe, 0, "c", ["a", "b"])  # its last session counts it
    with pytest.raises(UnsafeChangeError, match="may still be needed"):
        await check_removal(meta, probe, 0, "d", ["a", "b", "c", "e"])  # a change that is not complete
    await check_removal(meta, probe, 1, "d", ["a", "b"])  # never started: nothing to lose
    assert probe.asked == []


async def test_safety_a6_a_session_that_begins_while_a_copy_is_looked_at_is_unknown() -> None:
    _, meta = await metadata(up("a", "b"))

    class Moving(Probe):
        async def ask(self, connect_string: str, partition_id: int) -> Answer:
            state, version = await meta.read_partition(0)
            if state is not None:
                await meta.write_partition(0, state, version)
            return GOOD

    with pytest.raises(UnsafeChangeError, match="changed meanwhile"):
        await check_removal(meta, Moving(), 0, "d", ["a", "b"])


@pytest.mark.parametrize(("replicas", "needed"), [(1, 1), (2, 2), (3, 2), (4, 3), (5, 3)])
async def test_verify_needs_more_than_half_of_the_replicas(replicas: int, needed: int) -> None:
    store = await cluster({f"{letter}:1": (P0,) for letter in "abcde"[:replicas]})
    view = await read_view(store, ROOT)
    names = sorted(node for node, held in view.nodes.partitions.items() if P0 in held)
    assert len(names) == replicas
    for available in range(replicas + 1):
        held = {node: NodeAnswer({0: place < available}) for place, node in enumerate(names)}
        reasons = {one.check: one.reason for one in check(P0, view, Answers({}, held))}
        assert (reasons[Check.QUORUM] == "") == (available >= needed), (replicas, available)


def test_a_report_without_results_is_no_success() -> None:
    assert not VerifyReport(()).passed
    assert VerifyReport((CheckResult(P0, Check.QUORUM),)).passed
    assert not VerifyReport((CheckResult(P0, Check.QUORUM), CheckResult(P0, Check.HEALTH, "ill"))).passed
