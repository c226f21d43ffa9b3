"""Why a partition is where it is: its owner, its session, who votes what, and what comes next. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from waltz_admin.cluster_status import ClusterStatus, PartitionStatus, Replica
from waltz_admin.findings.finding import Finding
from waltz_admin.findings.placement import placement
from waltz_cluster.quorum import quorum_of
from waltz_cluster.replica_rules import Standing


@dataclass(frozen=True, slots=True)
class Vote:
    """One replica. `counts`: its acknowledgement counts for a commit; if not, `why`. `recorded`: what
    ZooKeeper holds about it. None where the node does not report a number."""

    node: str
    counts: bool
    standing: Standing
    why: str
    recorded: str
    session_id: int | None
    fence_session_id: int | None
    last_transaction: int | None
    lag: int | None
    low_water_mark: int | None
    local_low_water_mark: int | None
    log_bytes: int | None


@dataclass(frozen=True, slots=True)
class Explanation:
    """`verdict` is one sentence; `why` is the reason where the partition takes no writes or is not complete.
    `placement`: why this owner and these replicas, a sentence each. `findings` are those that concern the
    partition, its server or its replicas."""

    partition_id: int
    takes_writes: bool
    verdict: str
    why: str
    waits_for: str
    server: str | None
    generation: int | None
    session_id: int | None
    needed: int
    votes: tuple[Vote, ...]
    placement: tuple[str, ...]
    findings: tuple[Finding, ...]


def explain(status: ClusterStatus, partition_id: int, findings: Sequence[Finding]) -> Explanation:
    """The words about one partition. `findings`: those of `find(status)`. ValueError for a partition that the
    cluster does not have."""
    if not 0 <= partition_id < len(status.partitions):
        raise ValueError(f"there is no partition {partition_id}: the cluster has {len(status.partitions)}")
    partition = status.partitions[partition_id]
    server = None if partition.server is None else str(partition.server)
    return Explanation(
        partition_id,
        partition.healthy,
        _verdict(partition),
        partition.problem,
        partition.waits_for,
        server,
        partition.generation,
        partition.session_id,
        quorum_of(len(partition.replicas)),
        tuple(map(_vote, partition.replicas)),
        tuple(placement(status, partition)),
        tuple(one for one in findings if _concerns(one, partition)),
    )


def _verdict(partition: PartitionStatus) -> str:
    count = len(partition.replicas)
    current = f"{partition.current} of {count} replicas current, {quorum_of(count)} needed"
    if partition.healthy:
        session = "" if partition.session_id is None else f" in store session {partition.session_id}"
        return (
            f"partition {partition.partition_id} takes writes: server {partition.server} serves it{session}, "
            f"{current}"
        )
    if partition.unknown:
        return f"it is not known whether partition {partition.partition_id} takes writes: {partition.problem}"
    return f"partition {partition.partition_id} takes no writes: {partition.problem}"


def _vote(replica: Replica) -> Vote:
    copy = replica.copy
    why = replica.reason or ("" if replica.votes else replica.standing.value)
    return Vote(
        replica.node,
        replica.votes,
        replica.standing,
        why,
        _recorded(replica),
        None if copy is None else copy.session_id,
        None if copy is None else copy.fence_session_id,
        replica.last_transaction,
        replica.lag,
        None if copy is None else copy.low_water_mark,
        None if copy is None else copy.local_low_water_mark,
        None if copy is None else copy.log_bytes,
    )


def _recorded(replica: Replica) -> str:
    listed = replica.listed
    if listed is None or listed.session_id < 0:
        return "not among the replicas of the last session"
    if listed.resolved:
        return f"dropped out in session {listed.session_id} at {listed.closing_high_water_mark}"
    return f"took part in session {listed.session_id}"


def _concerns(finding: Finding, partition: PartitionStatus) -> bool:
    return partition.partition_id in finding.partitions
