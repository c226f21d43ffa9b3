"""Rules about the copies of a partition, written once for the tools and the operator (safety rule A6). Pure.

* Is a copy current? `standing_of`, `why_not_current`; for a copy that ZooKeeper does not list,
  `why_not_intact`.
* May these replicas be exchanged for those? `why_not_change`.
* May a copy be removed? `why_not_remove`; by what ZooKeeper alone holds, `why_still_needed`.

Evidence goes in: the partition's metadata in ZooKeeper, and what nodes answer about their copies. A reason
comes out, and none means yes. What is not known is a reason: unknown means no.

Who asks must not decide on old answers. A tool asks and decides at once; the operator keeps answers for a
while, and `why_stale` bounds their age. What ZooKeeper holds may change between the question and a write: who
writes does so under the version of the metadata that was read.
"""

from __future__ import annotations

import enum
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

from waltz_cluster.quorum import quorum_of
from waltz_cluster.serializers import PartitionMetadata, ReplicaState

FRESH_SECONDS = 10.0
"""An answer older than this proves nothing."""


class ReplicaAnswer(NamedTuple):
    """What a storage node says of its copy of one partition now.

    `session_id`: the last store session that it completed, -1 for none. `available`: it serves the
    partition. `holds_low_water_mark`: it showed the record at its low-water mark, or the mark is -1; None:
    it could not say. `fault`: why the copy is out of service, where the node says so.
    """

    session_id: int
    available: bool
    holds_low_water_mark: bool | None
    fault: str = ""


@dataclass(frozen=True, slots=True)
class NotHeld:
    """A complete answer of the node, without the partition."""


class NoAnswer(NamedTuple):
    """Nothing is known of the copy, and why. `unreachable`: there is no connection to its node, so none of
    its copies can be asked about."""

    reason: str = ""
    unreachable: bool = False


Answer: TypeAlias = ReplicaAnswer | NotHeld | NoAnswer


@dataclass(frozen=True, slots=True)
class NeverStarted:
    """Proof by ZooKeeper that a partition never had metadata: none is there, and none was ever deleted.
    Nothing can be lost."""


class Standing(enum.Enum):
    """Where a copy is. Only CURRENT ones count for a proof; all the others are not proven to be current."""

    CURRENT = "current"
    BEHIND = "behind"
    INCOMPLETE = "incomplete"
    UNAVAILABLE = "unavailable"
    UNASSIGNED = "not assigned on the node"
    SET_BACK = "set back"
    AHEAD = "ahead of ZooKeeper"
    UNREACHABLE = "unreachable"
    UNKNOWN = "unknown"
    """Its node is there, and who asks is not let in, or ZooKeeper has nothing to compare it with."""
    NOT_STARTED = "not started"
    REFUSED = "refused"
    """The server leaves it out of its session for good: only the server knows, so no rule here says so."""


class Finding(NamedTuple):
    """A standing and the reason for it; no reason for CURRENT."""

    standing: Standing
    reason: str = ""


_NO_RECORD = "it did not show the record at its low-water mark"


# ---- is this copy current?


def standing_of(
    metadata: PartitionMetadata | None, node: str, answer: Answer, *, later_session_passes: bool = False
) -> Finding:
    """Where the copy on `node` is. `metadata`: None when ZooKeeper has none that can be read.

    CURRENT: the metadata lists the node as taking part in the present session, and the node says: that is my
    session, I am available, and here is the record at my low-water mark.

    `later_session_passes`: the answer may be of a session after the one in `metadata`. This is for pages
    that read ZooKeeper once and ask the nodes after it, when the next session may have begun: they describe,
    and write nothing. A proof for a write demands the very session that ZooKeeper holds.
    """
    if isinstance(answer, NoAnswer | NotHeld) or metadata is None:
        return _unknown(answer)
    listed = metadata.replicas.get(node)
    unusable = _unusable(answer, -1 if listed is None else listed.session_id)
    if unusable is not None:
        return unusable
    if answer.session_id > metadata.session_id and not later_session_passes:
        text = f"it is in session {answer.session_id}, ZooKeeper in {metadata.session_id}"
        return Finding(Standing.AHEAD, text)
    unlisted = why_not_listed(metadata, node)
    if unlisted:
        return Finding(Standing.BEHIND, unlisted)
    if not answer.holds_low_water_mark:
        return Finding(Standing.INCOMPLETE, _NO_RECORD)
    return Finding(Standing.CURRENT)


def why_not_current(
    metadata: PartitionMetadata, node: str, answer: Answer, *, later_session_passes: bool = False
) -> str:
    """Why the copy is not proven to be current; empty when it is. See `standing_of`."""
    return standing_of(metadata, node, answer, later_session_passes=later_session_passes).reason


def why_not_listed(metadata: PartitionMetadata, node: str) -> str:
    """Why ZooKeeper does not list the node as taking part in the present session; empty when it does.

    It alone proves nothing, but without it no answer of the node can.
    """
    listed = metadata.replicas.get(node)
    if listed is None or listed.session_id < 0:
        return "it is not among the replicas of the last session: it is filled first"
    if listed.resolved:
        return f"it dropped out in session {listed.session_id} at {listed.closing_high_water_mark}"
    if listed.session_id != metadata.session_id:
        return f"it dropped out in session {listed.session_id}"
    return ""


def why_not_intact(listed: ReplicaState, answer: Answer) -> str:
    """Why the copy is not proven to hold what ZooKeeper says that it held when it last took part; empty when
    it does.

    This is less than current: the node may have dropped out since, and its session may be later than the
    listed one, for a node writes a session down before ZooKeeper lists it. It is asked of a copy that is to
    be given up: one that is intact is not.
    """
    if not isinstance(answer, ReplicaAnswer):
        return _unknown(answer).reason
    unusable = _unusable(answer, listed.session_id)
    if unusable is not None:
        return unusable.reason
    return "" if answer.holds_low_water_mark else _NO_RECORD


def why_stale(age_seconds: float) -> str:
    """Why an answer of this age proves nothing; empty while it is fresh."""
    return f"its answer is {age_seconds:.0f} s old" if age_seconds > FRESH_SECONDS else ""


def _unknown(answer: Answer) -> Finding:
    if isinstance(answer, NoAnswer):
        return Finding(
            Standing.UNREACHABLE, f"no answer: {answer.reason}" if answer.reason else "it does not answer"
        )
    if isinstance(answer, NotHeld):
        return Finding(Standing.UNASSIGNED, "it does not have the partition")
    return Finding(Standing.NOT_STARTED, "the partition has no store session")


def _unusable(answer: ReplicaAnswer, listed_session_id: int) -> Finding | None:
    if answer.fault:
        return Finding(Standing.UNAVAILABLE, answer.fault)
    if answer.session_id < listed_session_id:
        return Finding(Standing.SET_BACK, "its disk was lost or is an older copy")
    if not answer.available:
        return Finding(Standing.UNAVAILABLE, "it is switched off, or out of service")
    return None


# ---- may the replicas be changed, may a copy be removed?


class Obstacle(enum.Enum):
    """What forbids a change or a removal."""

    NO_REPLICA_LEFT = enum.auto()
    CHANGE_INCOMPLETE = enum.auto()
    STILL_ASSIGNED = enum.auto()
    STILL_COUNTED = enum.auto()
    NOT_ENOUGH_CURRENT = enum.auto()
    ADDED_UNAVAILABLE = enum.auto()


class Refusal(NamedTuple):
    """It may not be done now; `reason` is for a person."""

    obstacle: Obstacle
    reason: str


def change_incomplete(metadata: PartitionMetadata, assigned: Collection[str]) -> str:
    """Why no session has run yet with the replicas that are assigned; empty when one has."""
    if set(metadata.replicas) == set(assigned):
        return ""
    return (
        "a change of its replicas is not complete: its last session had the replicas "
        f"{_names(metadata.replicas)}, assigned are {_names(assigned)}"
    )


def only_taken_back(metadata: PartitionMetadata, old: Collection[str], new: Collection[str]) -> bool:
    """Whether a change only assigns again what the last session had as replicas: it can lose nothing, for the
    next session decides by a quorum of these, and more of them can be asked then. It is the way out where a
    session began while its replicas were exchanged."""
    return set(old) < set(new) and set(new) - set(old) <= set(metadata.replicas)


def why_not_change(
    metadata: PartitionMetadata | NeverStarted,
    old: Collection[str],
    new: Collection[str],
    not_current: Mapping[str, str],
    *,
    allow_pause: bool = False,
) -> Refusal | None:
    """Why the assigned replicas `old` may not be exchanged for `new` (rule A6); None when they may.

    The next session decides what was committed by the old replicas and then needs a quorum of the new ones.
    So the members of old ∩ new that are current must be a quorum of both.

    `not_current`: for each node that was asked why it is not current, empty when it is. One that is not in
    it was not asked, and does not count. `allow_pause`: when replicas are only added (1 → 2, 1 → 3, 2 → 4),
    accept that writes stop until enough new ones are current; all old ones must be current then. Nothing can
    be lost by it.
    """
    if isinstance(metadata, NeverStarted):
        return None
    if not new:
        return Refusal(Obstacle.NO_REPLICA_LEFT, "it would have no replica left")
    incomplete = change_incomplete(metadata, old)
    if incomplete and only_taken_back(metadata, old, new):
        return None
    if incomplete:
        return Refusal(Obstacle.CHANGE_INCOMPLETE, incomplete)
    staying = set(old) & set(new)
    live = _current(staying, not_current)
    old_quorum, new_quorum = quorum_of(len(set(old))), quorum_of(len(set(new)))
    needed = max(old_quorum, new_quorum)
    if len(live) >= needed or (allow_pause and live == set(old)):
        return None
    return Refusal(
        Obstacle.NOT_ENOUGH_CURRENT,
        f"of the replicas that stay {len(live)} are proven to be current ({_names(live)}), {needed} are needed (quorum of "
        f"{len(set(old))} old replicas: {old_quorum}, of {len(set(new))} new ones: {new_quorum}){_why(staying - live, not_current)}",
    )


def why_not_add(node: str, answer: Answer) -> Refusal | None:
    """Why the copy that `node` has may not become a replica: it would take no part until somebody puts it
    into service. A node that does not answer, or does not have the partition yet, is filled by the next
    session, so it may be added.
    """
    if not isinstance(answer, ReplicaAnswer) or answer.available:
        return None
    why = answer.fault or "it was switched off, or the disk of the node is full"
    return Refusal(
        Obstacle.ADDED_UNAVAILABLE,
        f"the copy on {node} is out of service and would take no part ({why}): put it into service first "
        "(waltz storage availability)",
    )


def why_not_remove(
    metadata: PartitionMetadata | NeverStarted,
    node: str,
    assigned: Collection[str],
    not_current: Mapping[str, str],
) -> Refusal | None:
    """Why the copy on `node` may not be removed; None when it is proven to be of no use: it is not assigned
    there, the last session ran without it and with those that are assigned, and a quorum of these is current.
    `not_current` as in `why_not_change`."""
    needed_still = why_still_needed(metadata, node, assigned)
    if needed_still is not None or isinstance(metadata, NeverStarted):
        return needed_still
    live, needed = _current(assigned, not_current), quorum_of(len(set(assigned)))
    if len(live) >= needed:
        return None
    return Refusal(
        Obstacle.NOT_ENOUGH_CURRENT,
        f"{len(live)} of {len(set(assigned))} replicas are proven to be current ({_names(live)}), {needed} are needed, so the "
        f"copy on {node} is kept{_why(set(assigned) - live, not_current)}",
    )


def why_still_needed(
    metadata: PartitionMetadata | NeverStarted, node: str, assigned: Collection[str]
) -> Refusal | None:
    """Why the copy on `node` is needed by what ZooKeeper holds; None when ZooKeeper needs it no longer.

    Enough for a removal that keeps the files. One that destroys data asks the others too: `why_not_remove`.
    """
    if node in assigned:
        return Refusal(Obstacle.STILL_ASSIGNED, f"it is assigned to {node} in ZooKeeper: unassign it first")
    if isinstance(metadata, NeverStarted):
        return None
    if node in metadata.replicas:
        return Refusal(
            Obstacle.STILL_COUNTED,
            f"its metadata still counts {node} among the replicas: the copy there may still be needed",
        )
    incomplete = change_incomplete(metadata, assigned)
    if incomplete:
        return Refusal(Obstacle.CHANGE_INCOMPLETE, f"{incomplete}; the copy on {node} may still be needed")
    return None


def _current(nodes: Collection[str], not_current: Mapping[str, str]) -> set[str]:
    return {node for node in nodes if not_current.get(node) == ""}


def _why(nodes: Collection[str], not_current: Mapping[str, str]) -> str:
    return "".join(f"; {node}: {not_current.get(node, 'it was not asked')}" for node in sorted(nodes))


def _names(nodes: Collection[str]) -> str:
    return ", ".join(sorted(nodes)) or "none"
