"""With which replica another one is compared during a recovery, and from which it copies. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from waltz_server.store.histories import Histories
from waltz_server.store.recovery_replica import Kind, RecoveringReplica, by_session
from waltz_server.store.recovery_steps import Compare


class References:
    """The choice among the replicas of one recovery, by what they have answered so far."""

    def __init__(
        self,
        replicas: Mapping[str, RecoveringReplica],
        histories: Histories,
        *,
        session_id: int,
        last_listed: int,
    ) -> None:
        """As for `histories`, which says whose records are in doubt."""
        self._replicas = replicas
        self._histories = histories
        self._session_id = session_id
        self._last_listed = last_listed

    def reference(self, replica: RecoveringReplica, txid: int, resolved: int) -> str | None:
        """With whom to compare record `txid`; None for the reference itself."""
        order = [
            other
            for other in self._replicas.values()
            if other.is_present_with(txid) or (other.is_recovered(resolved) and other is not replica)
        ]
        unlisted = self._last_listed < replica.info.session_id != self._session_id
        order.sort(key=lambda other: self._preference(other, unlisted=unlisted))
        for other in order:
            if other is replica:
                return None
            if other.mark >= txid:
                return other.name
        return None

    def _preference(
        self, one: RecoveringReplica, *, unlisted: bool
    ) -> tuple[bool, bool, bool, int, bool, str]:
        """Which reference comes first: one of the latest session, though ZooKeeper may not list it; an older
        voter may hold another tail, which a copy that was marked since has been held against. Where what is
        compared is of an `unlisted` session, one that this session marked before all others."""
        session = one.info.session_id
        later = session if one.is_present and session >= self._last_listed else -1
        if self._histories.is_in_doubt(one):
            later = -1
        ours = unlisted and (one.marked or session == self._session_id)
        return one.unreadable, not one.listed, not ours, -later, one.kind is not Kind.VOTER, one.name

    def sources(self, replica: RecoveringReplica, resolved: int | None) -> list[RecoveringReplica]:
        """Who can give records behind the replica's mark: who did not fail it, then those of another session
        that listed nobody for one of such a session, then recovered ones, then who holds most."""
        unlisted = replica.info.session_id > self._last_listed
        candidates = [
            other
            for other in self._replicas.values()
            if other is not replica
            and other.answered
            and other.mark > replica.mark
            and (other.is_recovered(resolved) or other.is_present)
            and (resolved is None or other.info.low_water_mark <= resolved)
        ]
        return sorted(
            candidates,
            key=lambda other: (
                other.name in replica.avoided,
                unlisted and other.info.session_id <= self._last_listed,
                not other.is_recovered(resolved),
                -other.mark,
                other.name,
            ),
        )


def comparison(replica: RecoveringReplica, other: RecoveringReplica, last: int) -> Compare:
    """With `other`, up to record `last`. A mark that the next session decided holds for a voter of the one
    before; of marks that later ones decided nobody knows what they followed."""
    older, newer = by_session(replica, other)
    missed = newer.info.session_id - older.info.session_id
    decided = last
    if missed > 0 and older.kind is Kind.VOTER:
        decided = (newer if missed == 1 else older).info.low_water_mark
    return Compare(other.name, max(min(decided + 1, last), 0), last)
