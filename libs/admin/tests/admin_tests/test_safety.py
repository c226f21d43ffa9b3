"""Safety rule A6: replicas are changed only on positive, fresh, complete proof. Unknown means no."""

from itertools import combinations, product

import pytest

from waltz_admin import assignments, nodes, seeding
from waltz_admin.errors import StorageNodeError, UnsafeChangeError
from waltz_admin.safety import check_change
from waltz_admin.tree import read_maps
from waltz_cluster.memory_store import MemoryStore, MemoryZooKeeper
from waltz_cluster.partition_metadata import StoreMetadata
from waltz_cluster.paths import ClusterPaths
from waltz_cluster.replica_rules import Answer, NoAnswer, ReplicaAnswer, why_not_change
from waltz_cluster.serializers import PartitionMetadata, ReplicaState
from waltz_protocol.types import UNRESOLVED, PartitionId

ROOT = "/waltz"
GOOD = ReplicaAnswer(5, True, True)
P0 = PartitionId(0)


class Probe:
    """Answers as prepared; None = silent."""

    def __init__(self, **answers: ReplicaAnswer | None) -> None:
        self.answers = answers
        self.asked: list[str] = []

    async def ask(self, connect_string: str, partition_id: int) -> Answer:
        self.asked.append(connect_string)
        return self.answers.get(connect_string) or NoAnswer()


async def metadata(replicas: dict[str, int], session_id: int = 5) -> tuple[MemoryStore, StoreMetadata]:
    """A store where partition 0 has these replicas (closing marks) in a session."""
    store = MemoryZooKeeper().session()
    await seeding.create(store, ROOT, "demo", 2)
    states = {node: ReplicaState(P0, node, session_id, mark) for node, mark in replicas.items()}
    result = StoreMetadata(store, ROOT)
    await result.create_partition(0, PartitionMetadata(1, session_id, states))
    return store, result


def up(*names: str) -> dict[str, int]:
    return dict.fromkeys(names, UNRESOLVED)


async def test_safety_a6_by_enumeration() -> None:
    """All sets of up to five replicas, all changes among them, all combinations of who answers."""
    universe = ["a", "b", "c", "d", "e"]
    for size in range(1, 5):
        old = universe[:size]
        _, meta = await metadata(up(*old))
        for chosen in product((False, True), repeat=len(universe)):
            new = [node for node, taken in zip(universe, chosen, strict=True) if taken]
            for answering in product((None, GOOD), repeat=size):
                probe = Probe(**dict(zip(old, answering, strict=True)))
                live = [n for n, answer in probe.answers.items() if answer and n in new]
                quorums = max(size // 2 + 1, len(new) // 2 + 1)
                allowed = set(new) == set(old) or (bool(new) and len(live) >= quorums)
                try:
                    await check_change(meta, probe, 0, old, new)
                    passed = True
                except UnsafeChangeError:
                    passed = False
                assert passed == allowed, (old, new, live)


@pytest.mark.parametrize(
    "answer",
    [
        None,
        ReplicaAnswer(4, True, True),
        ReplicaAnswer(6, True, True),
        ReplicaAnswer(5, False, True),
        ReplicaAnswer(5, True, False),
    ],
)
async def test_safety_a6_unknown_means_no(answer: ReplicaAnswer | None) -> None:
    _, meta = await metadata(up("a", "b", "c"))
    with pytest.raises(UnsafeChangeError, match="1 are proven to be current"):
        await check_change(meta, Probe(a=GOOD, b=answer, c=answer), 0, ["a", "b", "c"], ["a", "b"])
    await check_change(meta, Probe(a=GOOD, b=GOOD, c=answer), 0, ["a", "b", "c"], ["a", "b"])


async def test_safety_a6_a_replica_that_dropped_out_does_not_count() -> None:
    _, meta = await metadata({**up("a", "b"), "c": 17})
    probe = Probe(a=GOOD, b=GOOD, c=GOOD)
    with pytest.raises(UnsafeChangeError, match="1 are proven"):
        await check_change(meta, probe, 0, ["a", "b", "c"], ["a", "c"])
    assert "c" not in probe.asked
    await check_change(meta, probe, 0, ["a", "b", "c"], ["a", "b"])


async def test_safety_a6_lost_metadata_is_never_taken_for_a_fresh_partition() -> None:
    store, meta = await metadata(up("a"))
    await check_change(meta, Probe(), 1, [], ["a"])  # never started: ZooKeeper proves it
    await store.delete(f"{ROOT}/store/partition/0")
    for partition_id in (0, 1):
        with pytest.raises(UnsafeChangeError, match="missing"):
            await check_change(meta, Probe(a=GOOD), partition_id, ["a"], ["a", "b"])
    await store.create(f"{ROOT}/store/partition/0", b"?")
    with pytest.raises(UnsafeChangeError, match="cannot be read"):
        await check_change(meta, Probe(a=GOOD), 0, ["a"], ["a", "b"])


async def test_zookeeper_6_16_no_second_change_before_the_first_is_complete() -> None:
    _, meta = await metadata(up("a", "b", "c"))
    with pytest.raises(UnsafeChangeError, match="a change of its replicas is not complete"):
        await check_change(
            meta, Probe(a=GOOD, b=GOOD, c=GOOD), 0, ["a", "b", "c", "d"], ["a", "b", "c", "d", "e"]
        )


async def test_safety_a6_a_session_that_changes_meanwhile_is_unknown() -> None:
    _, meta = await metadata(up("a", "b", "c"))

    class Moving(Probe):
        async def ask(self, connect_string: str, partition_id: int) -> Answer:
            state, version = await meta.read_partition(0)
            if state is not None:
                await meta.write_partition(0, state, version)
            return GOOD

    with pytest.raises(UnsafeChangeError, match="changed meanwhile"):
        await check_change(meta, Moving(), 0, ["a", "b", "c"], ["a", "b"])


async def test_safety_a6_the_write_is_made_under_the_metadata_that_was_looked_at() -> None:
    store, meta = await metadata(up("a:1", "b:1", "c:1"))
    for node in ("a:1", "b:1", "c:1", "d:1"):
        await nodes.add_storage_node(store, ROOT, node, 2, 0)
    await store.set(
        f"{ROOT}/store/assignment", assignments_bytes(dict.fromkeys(("a:1", "b:1", "c:1"), (P0,)))
    )
    seen, version = await meta.read_partition(0)
    assert seen is not None
    dropped = {**seen.replicas, "b:1": ReplicaState(P0, "b:1", 5, 7)}
    await meta.write_partition(0, PartitionMetadata(1, 6, dropped), version)
    reads = []

    async def lagging(self: StoreMetadata, partition_id: int) -> tuple[PartitionMetadata | None, int]:
        reads.append(partition_id)
        return (seen, version) if len(reads) <= 2 else await real(self, partition_id)

    real = StoreMetadata.read_partition
    with pytest.MonkeyPatch.context() as patch, pytest.raises(UnsafeChangeError):
        patch.setattr(StoreMetadata, "read_partition", lagging)
        probe = Probe(**{"a:1": GOOD, "b:1": GOOD})
        await assignments.unassign(store, ROOT, [0], "c:1", probe=probe)
    assert len(reads) > 2


async def test_a_copy_that_is_out_of_service_is_not_added() -> None:
    """It would take no part until somebody sees it: an interrupted replacement leaves such copies. One that
    is in service, or not there yet, or on a node that does not answer, is added."""
    store, _ = await metadata(up("a:1", "b:1", "c:1"))
    for node in ("a:1", "b:1", "c:1", "d:1"):
        await nodes.add_storage_node(store, ROOT, node, 2, 0)
    before = assignments_bytes(dict.fromkeys(("a:1", "b:1", "c:1"), (P0,)))
    current = {"a:1": GOOD, "b:1": GOOD, "c:1": GOOD}
    for answer, why in (
        (ReplicaAnswer(-1, False, True), "it was switched off, or the disk of the node is full"),
        (ReplicaAnswer(-1, False, None, "it is damaged"), "it is damaged"),
    ):
        await store.set(f"{ROOT}/store/assignment", before)
        for change in (
            assignments.assign(store, ROOT, [0], "d:1", probe=Probe(**current, **{"d:1": answer})),
            assignments.change_assignments(
                store,
                ROOT,
                expect_version=(await store.get(f"{ROOT}/store/assignment"))[1].version,
                add={"d:1": [0]},
                remove={"c:1": [0]},
                probe=Probe(**current, **{"d:1": answer}),
            ),
        ):
            with pytest.raises(UnsafeChangeError, match=f"the copy on d:1 is out of service.*{why}"):
                await change
        assert (await store.get(f"{ROOT}/store/assignment"))[0] == before
    for may in (ReplicaAnswer(-1, True, True), None):
        await store.set(f"{ROOT}/store/assignment", before)
        probe = Probe(**current, **{"d:1": may})
        assert await assignments.assign(store, ROOT, [0], "d:1", probe=probe) == (0,)


async def test_a_new_node_that_does_not_answer_is_asked_once() -> None:
    """And not for each partition, with a time limit each time, under the lock of the administrators."""
    store, meta = await metadata(up("a:1", "b:1", "c:1"))
    state, _ = await meta.read_partition(0)
    assert state is not None
    listed = {node: ReplicaState(PartitionId(1), node, 5, UNRESOLVED) for node in state.replicas}
    await meta.create_partition(1, PartitionMetadata(1, 5, listed))
    for node in ("a:1", "b:1", "c:1", "d:1"):
        await nodes.add_storage_node(store, ROOT, node, 2, 0)
    both = (P0, PartitionId(1))
    await store.set(f"{ROOT}/store/assignment", assignments_bytes(dict.fromkeys(("a:1", "b:1", "c:1"), both)))
    probe = Probe(**{"a:1": GOOD, "b:1": GOOD, "c:1": GOOD, "d:1": None})
    assert await assignments.assign(store, ROOT, [0, 1], "d:1", probe=probe) == both
    assert probe.asked.count("d:1") == 1


async def test_growing_from_one_needs_an_explicit_word_and_everybody() -> None:
    _, meta = await metadata(up("a"))
    with pytest.raises(UnsafeChangeError):
        await check_change(meta, Probe(a=GOOD), 0, ["a"], ["a", "b"])
    await check_change(meta, Probe(a=GOOD), 0, ["a"], ["a", "b", "c"], allow_pause=True)
    with pytest.raises(UnsafeChangeError):
        await check_change(meta, Probe(a=None), 0, ["a"], ["a", "b", "c"], allow_pause=True)
    _, two = await metadata(up("a", "b"))
    with pytest.raises(UnsafeChangeError):
        await check_change(two, Probe(a=GOOD, b=GOOD), 0, ["a", "b"], ["a"], allow_pause=True)


async def test_zookeeper_6_16_assign_and_unassign_ask_before_they_write() -> None:
    store, _ = await metadata(up("a:1", "b:1", "c:1"))
    for node in ("a:1", "b:1", "c:1", "d:1"):
        await nodes.add_storage_node(store, ROOT, node, 2, 0)
    await store.set(
        f"{ROOT}/store/assignment",
        assignments_bytes(dict.fromkeys(("a:1", "b:1", "c:1"), (P0,))),
    )
    before = (await store.get(f"{ROOT}/store/assignment"))[0]
    silent = Probe(**{"a:1": GOOD, "b:1": GOOD})
    with pytest.raises(UnsafeChangeError):
        await assignments.assign(store, ROOT, [0], "d:1", probe=silent)
    with pytest.raises(UnsafeChangeError):
        await assignments.unassign(store, ROOT, [0], "a:1", probe=silent)
    assert (await store.get(f"{ROOT}/store/assignment"))[0] == before
    assert await assignments.unassign(store, ROOT, [0], "c:1", probe=silent) == (0,)
    with pytest.raises(UnsafeChangeError, match="a change of its replicas is not complete"):
        await assignments.assign(store, ROOT, [0], "d:1", probe=silent)
    with pytest.raises(StorageNodeError, match=r"partition 0 still counts c:1 among its replicas"):
        await nodes.remove_storage_node(store, ROOT, "c:1")


def assignments_bytes(placement: dict[str, tuple[PartitionId, ...]]) -> bytes:
    from waltz_cluster.serializers import ReplicaAssignments

    return ReplicaAssignments({**placement, "d:1": ()}).to_bytes()


async def test_safety_a6_a_first_session_that_begins_during_the_proof_is_seen() -> None:
    """Partition 0 never was started when it was looked at; while the other one is asked about, it is."""
    store, meta, old_version = await _two_partitions()

    class Starting(Probe):
        async def ask(self, connect_string: str, partition_id: int) -> Answer:
            if (await meta.read_partition(0))[0] is None:
                await meta.create_partition(0, _listed(0, 1, ["a:1"]))
            return ReplicaAnswer(1 if partition_id == 0 else 5, True, True)

    with pytest.raises(UnsafeChangeError, match="partition 0: of the replicas that stay 0 are proven"):
        await assignments.change_assignments(
            store,
            ROOT,
            expect_version=old_version,
            add={"b:1": [0, 1]},
            remove={"a:1": [0, 1]},
            probe=Starting(),
        )
    maps = await read_maps(store, ClusterPaths(ROOT))
    assert assignments.replicas(maps.partitions, 0) == ("a:1",)


async def test_safety_a6_a_replica_of_the_last_session_is_taken_back() -> None:
    """The first session began between the last question and the write: those assigned know nothing of it."""
    store, meta, _ = await _two_partitions()
    probe = Probe(**{node: ReplicaAnswer(1, True, True) for node in ("a:1", "b:1", "d:1")})
    await assignments.assign(store, ROOT, [0], "b:1", probe=probe)
    await assignments.unassign(store, ROOT, [0], "a:1", probe=probe, keep_group_copy=False)
    await meta.create_partition(0, _listed(0, 1, ["a:1"]))
    with pytest.raises(UnsafeChangeError, match="is not complete"):  # one that the session did not have
        await assignments.assign(store, ROOT, [0], "d:1", probe=probe, allow_pause=True)
    assert await assignments.assign(store, ROOT, [0], "a:1", probe=probe) == (0,)
    maps = await read_maps(store, ClusterPaths(ROOT))
    assert set(assignments.replicas(maps.partitions, 0)) == {"a:1", "b:1"}


def test_safety_a6_only_what_adds_replicas_of_the_last_session_completes_a_change() -> None:
    """All sets of four: nothing is taken away, nothing is added that the session did not have, and what the
    next session can ask of its replicas grows."""
    sets = [frozenset(c) for n in range(5) for c in combinations("abcd", n)]
    for last, old, new in product(sets, sets, sets):
        if not (last and old and new) or last == old:
            continue
        state = PartitionMetadata(1, 5, {n: ReplicaState(P0, n, 5, UNRESOLVED) for n in last})
        allowed = why_not_change(state, old, new, {}) is None
        assert allowed == (old < new and new - old <= last)
        assert not allowed or last & old < last & new


def _listed(partition_id: int, session_id: int, names: list[str]) -> PartitionMetadata:
    partition = PartitionId(partition_id)
    states = {node: ReplicaState(partition, node, session_id, UNRESOLVED) for node in names}
    return PartitionMetadata(1, session_id, states)


async def _two_partitions() -> tuple[MemoryStore, StoreMetadata, int]:
    """Partition 0 on a:1, never started; partition 1 on a:1, d:1 and e:1, in session 5."""
    store = MemoryZooKeeper().session()
    await seeding.create(store, ROOT, "demo", 2)
    for group, node in enumerate(("a:1", "b:1", "d:1", "e:1")):
        await nodes.add_storage_node(store, ROOT, node, 2, group)
    await assignments.assign(store, ROOT, [0, 1], "a:1", probe=Probe())
    for node in ("d:1", "e:1"):
        await assignments.assign(store, ROOT, [1], node, probe=Probe())
    meta = StoreMetadata(store, ROOT)
    await meta.create_partition(1, _listed(1, 5, ["a:1", "d:1", "e:1"]))
    return store, meta, (await read_maps(store, ClusterPaths(ROOT))).versions[1]
