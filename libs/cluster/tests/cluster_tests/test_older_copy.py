"""What a node's answer proves against ZooKeeper's metadata (rule A8)."""

import pytest

from waltz_cluster.older_copy import evidence, last_listed, unlisted_part
from waltz_cluster.serializers import PartitionMetadata, ReplicaState
from waltz_protocol.types import PartitionId, SessionInfo

P = PartitionId(0)
STATES = {
    "a:1": ReplicaState(P, "a:1", 5),
    "b:1": ReplicaState(P, "b:1", 5),
    "c:1": ReplicaState(P, "c:1", 3, 10),
}
RECORDED = PartitionMetadata(1, 7, STATES)


@pytest.mark.parametrize(
    ("name", "session", "low", "last", "says"),
    [
        ("a:1", 5, 10, 30, None),  # as ZooKeeper says
        ("a:1", 7, 10, 30, None),  # a recovery of session 7 was interrupted, and another one copied to it
        ("a:1", 8, 10, 10, "has completed session 8, later than the 7"),
        ("c:1", 8, 10, 30, "has completed session 8"),
        ("c:1", 7, 10, 30, None),  # what the recovery makes harmless
        ("a:1", -1, -1, -1, None),  # lost: rule A1
        ("d:1", 4, 10, 30, None),  # of an earlier time, taken out since
        ("d:1", 5, 10, 10, None),  # new, and marked early by a recovery that was interrupted
        ("d:1", 5, 10, 11, None),  # forgotten by an administrator, or filled by an interrupted recovery
        ("d:1", 6, 10, 11, "took part in session 6, in which ZooKeeper lists nobody"),
        ("d:1", 6, 10, 10, None),  # only filled by an interrupted recovery
        ("d:1", -1, -1, 30, None),  # filled past the servers
    ],
)
def test_safety_a8_what_is_evidence(name: str, session: int, low: int, last: int, says: str | None) -> None:
    found = evidence(RECORDED, name, SessionInfo(session, low, low), last)
    assert found is None if says is None else says in str(found)


def test_safety_a8_without_replica_states_any_record_or_mark_is_evidence() -> None:
    lost = PartitionMetadata(1, 7)
    assert evidence(lost, "a:1", SessionInfo(6, -1, -1), -1) is None
    assert "lists no replica" in str(evidence(lost, "a:1", SessionInfo(6, -1, -1), 0))
    assert "lists no replica" in str(evidence(lost, "a:1", SessionInfo(6, 3, -1), -1))
    assert last_listed(lost) == -1
    assert last_listed(RECORDED) == 5


def test_a_part_in_a_session_that_zookeeper_may_have_forgotten() -> None:
    for recorded, listed, session, low, last, part in (
        (3, 5, 5, 10, 11, True),
        (3, 5, 4, 10, 11, False),  # a later session was listed without it
        (5, 5, 5, 10, 11, False),  # listed in it
        (3, 5, 6, 10, 10, False),  # holds no more than it did
    ):
        assert unlisted_part(recorded, listed, SessionInfo(session, low, low), last) is part
