"""What a recovery knows about one replica, and how an answer of its node is judged. Pure.

Storage document, recovery, "classify", with the safety rule that a lost or restored disk is absent, not
present.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass, field

from waltz_cluster.older_copy import unlisted_part
from waltz_cluster.serializers import ReplicaState
from waltz_protocol.types import UNRESOLVED, SessionInfo


class Kind(enum.Enum):
    """How a replica that answered counts for the old quorum."""

    VOTER = "voter"  # UNRESOLVED in an earlier session, or may have taken part in one; log intact: present
    CLOSED = "closed"  # dropped out earlier: present, its records up to the closing mark are good
    NEW = "new"  # not in the old set: no voice
    LOST = "lost"  # UNRESOLVED, but set back or damaged: absent


_NO_INFO = SessionInfo(-1, -1, -1)


@dataclass(slots=True)
class RecoveringReplica:
    """`mark`: last good record now; `good_mark`: the same as the next recovery would see it, without copies;
    `vouched`: ZooKeeper knows that the node took part in the session it reports, so its records are of this
    log."""

    name: str
    state: ReplicaState | None
    kind: Kind | None = None
    info: SessionInfo = _NO_INFO
    max_txid: int = -1
    mark: int = -1
    good_mark: int = -1
    vouched: bool = False
    capped: bool = False  # its mark is that of a later session, which it took no part in
    unreadable: bool = False
    compared: bool = False
    marked: bool = False
    marking: bool = False  # this session may have been written down by the node
    withdrawn: bool = False  # what was asked before it failed as a reference does not make it recovered
    listed: bool = False
    heard: bool = False  # it has answered in this session
    before: int | None = (
        None  # the last session that it knew before this one, by an answer while it was intact
    )
    refused: str | None = None
    reason: str = "not heard from yet"
    avoided: set[str] = field(default_factory=set)
    changes: int = 0  # answers, failures and cuts: what was read of it before one of these may be gone

    @property
    def answered(self) -> bool:
        return self.kind is not None and self.refused is None

    @property
    def is_present(self) -> bool:
        """It counts for the old quorum."""
        return self.answered and self.kind in (Kind.VOTER, Kind.CLOSED)

    def is_present_with(self, txid: int) -> bool:
        """Old replicas that are present and hold `txid` are what others are compared with."""
        return self.is_present and self.mark >= txid

    def is_recovered(self, resolved: int | None) -> bool:
        """The node confirmed the low-water mark and holds exactly what is resolved (None: nothing yet)."""
        return self.answered and self.marked and self.mark == resolved and self.max_txid == resolved


def by_session(
    one: RecoveringReplica, other: RecoveringReplica
) -> tuple[RecoveringReplica, RecoveringReplica]:
    """Both, the one of the earlier session first."""
    older, newer = sorted((one, other), key=lambda replica: replica.info.session_id)
    return older, newer


def classify(
    state: ReplicaState | None, info: SessionInfo, max_txid: int, listed: int
) -> tuple[Kind, int, bool]:
    """How an answer counts, up to which transaction the replica's records are good, and whether it is vouched
    for.

    `listed` is the last session that ZooKeeper knows to have listed its replicas.
    """
    vouched = state is not None and state.session_id >= 0 and info.session_id >= state.session_id
    under_mark = min(max_txid, info.low_water_mark)
    if state is None:
        return Kind.NEW, under_mark, False
    if state.closing_high_water_mark == UNRESOLVED:
        if not vouched or max_txid < max(info.low_water_mark, info.local_low_water_mark):
            return Kind.LOST, under_mark, vouched
        return Kind.VOTER, max_txid, True
    if unlisted_part(state.session_id, listed, info, max_txid):
        # It dropped out of an earlier session, came back, and ZooKeeper may have forgotten that it was listed
        # again (A8).
        return Kind.VOTER, max_txid, vouched
    if not vouched:
        return Kind.CLOSED, under_mark, False
    return Kind.CLOSED, min(max_txid, max(state.closing_high_water_mark, info.low_water_mark)), True


def cap_marks(answered: list[RecoveringReplica], listed: int, recorded: int, with_a_majority: int) -> None:
    """A session after the last listed one, that some node wrote down, had decided a mark before: nothing
    above that was acknowledged earlier. So who took no part in it holds nothing above that counts, but
    perhaps another tail.

    Only for the very session that ZooKeeper recorded last (`recorded`). After an earlier one, another
    interrupted session may have decided a higher mark with nodes that do not answer now: what they know would
    be cut on the others. And not for one later than `with_a_majority`, the last that may have had one: that
    opened nothing. What others have answered since may show that, so earlier caps are lifted first.
    """
    for replica in answered:
        if replica.capped:
            replica.mark = classify(replica.state, replica.info, replica.max_txid, listed)[1]
            replica.good_mark = replica.mark
            replica.compared = replica.capped = False
    took_part = [replica for replica in answered if replica.info.session_id <= with_a_majority]
    newest = max(took_part, key=lambda replica: replica.info.session_id, default=None)
    if newest is None or newest.info.session_id <= listed or newest.info.session_id < recorded:
        return
    for replica in answered:
        cap = max(newest.info.low_water_mark, replica.info.low_water_mark)
        if replica.info.session_id < newest.info.session_id and replica.mark > cap:
            replica.mark = cap
            replica.good_mark = min(replica.good_mark, cap)
            replica.capped = True
