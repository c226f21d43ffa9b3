"""A copy that the server of its partition refuses: who asks for it, what is said of it, and the next step."""

from __future__ import annotations

import json

from admin_tests.test_findings import C, R, S, partition, replicas, status
from admin_tests.test_processes import PLAIN, ROOT, World, world  # noqa: F401 - a fixture
from waltz_admin.cluster_status import Replica
from waltz_admin.findings.finding import Severity
from waltz_admin.findings.rules import find
from waltz_admin.status import read_status
from waltz_admin.verify import Check
from waltz_cluster.older_copy import evidence, is_evidence
from waltz_cluster.partition_metadata import StoreMetadata
from waltz_cluster.replica_rules import Standing
from waltz_cluster.serializers import PartitionMetadata, ReplicaState
from waltz_protocol.types import PartitionId, SessionInfo

LATER = f"it {evidence(PartitionMetadata(1, 5), 'c:1', SessionInfo(9, 3, 3), 3)}"
FORK = "its log differs from that of the other replicas (fork)"


async def test_verify_says_of_a_copy_that_its_server_refuses_why_in_place_of_behind(
    world: World,  # noqa: F811
) -> None:
    """Once it is behind: nobody is asked for what cannot be. A server that has no such report, or only other
    parts of it, changes nothing."""
    a, b = world.nodes[0].connect_string, world.nodes[1].connect_string
    rows = [{"partition": 0, "node": node, "reason": "a fork"} for node in (a, b)]
    world.server.report = json.dumps({"replicas": {"left_out": 0, "refused": rows}})
    assert await world.failed() == {}
    assert len(world.server.req_ids) == 3
    metadata = StoreMetadata(world.store, ROOT)
    state, version = await metadata.read_partition(0)
    assert state is not None
    behind = {**state.replicas, a: ReplicaState(PartitionId(0), a, 3, 7)}
    await metadata.write_partition(0, PartitionMetadata(1, state.session_id, behind), version)

    async def reasons() -> dict[Check, str]:
        return {one.check: one.reason for one in (await world.report()).failures}

    assert await reasons() == {Check.RECOVERY: f"{a}: its server refuses it: a fork"}
    for report in (None, "{}", "nonsense"):
        world.server.report = report
        assert await reasons() == {Check.RECOVERY: f"{a}: it dropped out in session 3 at 7"}
    # Of a server that has another partition it is not believed, and a closed one says whom it refuses.
    world.server.report = json.dumps({"replicas": {"refused": [{**rows[0], "partition": 1}]}})
    assert await reasons() == {Check.RECOVERY: f"{a}: it dropped out in session 3 at 7"}
    behind[b] = ReplicaState(PartitionId(0), b, 3, 7)
    version = (await metadata.read_partition(0))[1]
    await metadata.write_partition(0, PartitionMetadata(1, state.session_id, behind), version)
    world.server.report = json.dumps({"replicas": {"refused": rows}})
    world.server.health = {0: False, 1: True}
    why = ", ".join(f"{node} (its server refuses it: a fork)" for node in sorted((a, b)))
    assert (await reasons())[Check.QUORUM] == f"1 of 3 replicas, 2 needed: {why}"
    (page, _) = (await read_status(world.store, ROOT, tls=PLAIN)).partitions
    assert [one.standing for one in page.replicas if one.node in (a, b)] == [Standing.REFUSED] * 2


def refused(node: str, reason: str) -> Replica:
    return Replica(node, R, reason, 9, 0)


def test_of_a_refused_copy_the_reason_of_the_server_is_given_and_nothing_is_waited_for() -> None:
    well = replicas(C, C)
    (found,) = find(status(*(partition(*well, refused("c:1", FORK), number=n) for n in (0, 2))))
    assert found.finding == f"c:1, partitions 0,2: the server refuses it: {FORK}"
    assert found.next_step.startswith("its copy is kept as it is for you to look at")
    assert (
        "`waltz storage remove-partition -p 0,2 --delete-storage-files` and `add-partition`"
        in found.next_step
    )
    assert found.evidence[0] == f"partition 0: {FORK}, last transaction 9"
    assert found.rule.severity is Severity.REDUCED
    (found,) = find(status(partition(*well, refused("c:1", LATER))))
    assert "`waltz storage restore-reset DIR`" in found.next_step
    assert "if ZooKeeper was restored from an older copy, reset nothing" in found.next_step
    assert "remove-partition" not in found.next_step
    mixed = status(*(partition(*well, refused("c:1", why), number=n) for n, why in enumerate((LATER, FORK))))
    assert [one.partitions for one in find(mixed)] == [(0,), (1,)]
    for one in find(mixed):
        assert "wait" not in one.next_step
        assert "it is filled then" in one.next_step


def test_where_too_many_are_refused_nothing_is_removed_and_nothing_waited_for() -> None:
    two = [refused("b:1", FORK), refused("c:1", FORK)]
    for other in (Replica("a:1", C), Replica("a:1", S), Replica("a:1", Standing.BEHIND)):
        first, *rest = find(status(partition(other, *two, healthy=False)))
        assert first.rule.name == "not-open"
        assert "empty, reset and remove none of them" in first.next_step
        assert f"b:1 is refused: {FORK}" in first.evidence
        assert all("forget" not in one.next_step and "delete" not in one.next_step for one in rest)
        named = [one for one in rest if one.rule.name == "replica-refused"]
        assert [one.next_step for one in named] == [
            "it is not filled before the partition is open again: see there"
        ] * 2
    assert find(status(partition(*replicas(C, C), two[1], healthy=False)))[0].next_step.startswith("wait for")


def test_the_words_by_which_a_refusal_is_known_are_those_of_the_server() -> None:
    """The server sends the text alone: what is done about it depends on it."""
    listed = {"a:1": ReplicaState(PartitionId(0), "a:1", 5)}
    for recorded, info, last in (
        (PartitionMetadata(1, 5, listed), SessionInfo(9, 3, 3), 3),
        (PartitionMetadata(), SessionInfo(9, 3, 3), 3),
        (PartitionMetadata(1, 5), SessionInfo(1, -1, -1), 3),
        (PartitionMetadata(1, 7, listed), SessionInfo(6, 1, 1), 3),
    ):
        said = evidence(recorded, "c:1", info, last)
        assert said is not None
        assert is_evidence(f"it {said}"), said
    assert not is_evidence(FORK)
    assert not is_evidence("its low-water mark 5 is above the resolved mark 3")
    assert not is_evidence("it holds records up to 5, but the log begins in this session")
