"""Can the next recovery of a partition decide what was committed, and if not, what is left to do? Pure.

It decides by the replicas that ZooKeeper lists. One that is listed as taking part and was set back is neither
supporter nor opponent of any mark (safety rule A1), and stays so until the mark is decided: if it is needed,
there is nothing to wait for.
"""

from __future__ import annotations

from collections.abc import Sequence

from waltz_admin.cluster_status import PartitionStatus, Replica
from waltz_cluster.quorum import quorum_of
from waltz_cluster.replica_rules import Standing

IDS = "\0"
"""In a next step: the partitions that share it."""

_AWAY = (Standing.UNREACHABLE, Standing.UNAVAILABLE, Standing.UNASSIGNED)


def _is_absent(one: Replica) -> bool:
    """Neither supporter nor opponent: it cannot be asked, or was set back. One that had dropped out is good
    up to where it did, whatever became of it since."""
    return one.standing in _AWAY or _was_set_back(one)


def _was_set_back(one: Replica) -> bool:
    return one.standing is Standing.SET_BACK and (one.listed is None or not one.listed.resolved)


def is_short(replicas: Sequence[Replica]) -> bool:
    """Whether fewer than a majority of these can be counted on."""
    absent = sum(map(_is_absent, replicas))
    return len(replicas) - absent < quorum_of(len(replicas))


def is_undecided(partition: PartitionStatus) -> bool:
    """Whether replicas that were set back leave too few to decide: of those that are assigned, or of those
    that the last session had."""
    if not any(map(_was_set_back, partition.replicas)):
        return False
    if any(one.standing is Standing.UNKNOWN for one in partition.replicas):
        return False  # whoever lets us not in may decide
    listed = [one for one in partition.replicas if one.listed is not None]
    voters = [one for one in listed if one.listed is not None and not one.listed.resolved]
    nobody = bool(voters) and all(map(_was_set_back, voters))
    return nobody or is_short(partition.replicas) or (bool(listed) and is_short(listed))


def way_out(partition: PartitionStatus) -> str:
    """The next step where it is undecided. Giving up comes last, and never all replicas: where none is left
    that holds what its own marks promise, one is kept as it is, the longest first."""
    lost = [one for one in partition.replicas if _was_set_back(one)]
    silent = [
        one for one in partition.replicas if one.standing in (Standing.UNREACHABLE, Standing.UNAVAILABLE)
    ]
    nodes = [one.node for one in silent or lost]
    bring = f"bring {', '.join(nodes)} back with {'its' if len(nodes) == 1 else 'their'} data first"
    if any(map(_holds, partition.replicas)):
        forget = ", ".join(
            f"`waltz storage forget -s {one.node} -p {IDS} --accept-data-loss`" for one in lost
        )
        return f"{bring}; only if that is impossible: {forget}"
    held = [one for one in partition.replicas if one.standing not in _AWAY]
    held.sort(key=lambda one: -1 if one.last_transaction is None else one.last_transaction, reverse=True)
    gone = "".join(f" --lost {one.node}" for one in silent if one.standing is Standing.UNREACHABLE)
    keep = f"`waltz storage forget --keep {held[0].node} -p {IDS}{gone} --accept-data-loss`"
    order = f"; most records first: {', '.join(one.node for one in held)}" if len(held) > 1 else ""
    return (
        f"no replica is left that holds what it should: {bring}, or older copies of a majority of them as they are, without "
        f"`restore-reset`; only if that is impossible, take one copy as it is: {keep} (with `--dry-run` first{order})"
    )


def _holds(one: Replica) -> bool:
    """It answers, took part in the last session and was not set back: not one that is only to be filled."""
    if one.standing in _AWAY or one.standing is Standing.SET_BACK:
        return False
    return one.listed is not None or one.standing is not Standing.BEHIND
