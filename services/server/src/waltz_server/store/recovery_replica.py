"""What a recovery knows about one replica, and how an answer of its node is judged. Pure.

Storage document, recovery, "classify", with the safety rule that a lost or restored disk is absent, not present.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass, field

from waltz_cluster.serializers import ReplicaState
from waltz_protocol.types import UNRESOLVED, SessionInfo


class Kind(enum.Enum):
    """How a replica that answered counts for the old quorum."""

    VOTER = "voter"  # UNRESOLVED in an earlier session, log intact: present
    CLOSED = "closed"  # dropped out earlier: present, its records up to the closing mark are good
    NEW = "new"  # not in the old set: no voice
    LOST = "lost"  # UNRESOLVED, but set back or damaged: absent


_NO_INFO = SessionInfo(-1, -1, -1)


@dataclass(slots=True)
class RecoveringReplica:
    """`mark`: last good record now; `good_mark`: the same as the next recovery would see it, without copies;
    `vouched`: ZooKeeper knows that the node took part in the session it reports, so its records are of this log."""

    name: str
    state: ReplicaState | None
    kind: Kind | None = None
    info: SessionInfo = _NO_INFO
    max_txid: int = -1
    mark: int = -1
    good_mark: int = -1
    vouched: bool = False
    unreadable: bool = False
    compared: bool = False
    marked: bool = False
    listed: bool = False
    refused: str | None = None
    reason: str = "not heard from yet"
    avoided: set[str] = field(default_factory=set)

    @property
    def answered(self) -> bool:
        return self.kind is not None and self.refused is None


def classify(state: ReplicaState | None, info: SessionInfo, max_txid: int) -> tuple[Kind, int, bool]:
    """How an answer counts, up to which transaction the replica's records are good, and whether it is vouched for."""
    vouched = state is not None and state.session_id >= 0 and info.session_id >= state.session_id
    under_mark = min(max_txid, info.low_water_mark)
    if state is None:
        return Kind.NEW, under_mark, False
    if state.closing_high_water_mark == UNRESOLVED:
        if not vouched or max_txid < max(info.low_water_mark, info.local_low_water_mark):
            return Kind.LOST, under_mark, vouched
        return Kind.VOTER, max_txid, True
    if not vouched:
        return Kind.CLOSED, under_mark, False
    return Kind.CLOSED, min(max_txid, max(state.closing_high_water_mark, info.low_water_mark)), True
