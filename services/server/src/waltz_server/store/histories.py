"""What the sessions that replicas know, and differences between their records, prove about the log (rule A8).

Pure questions of one recovery, over what its replicas have answered so far: which session is the last that
can have appended, and whether a difference is settled by a mark or means that a disk or ZooKeeper was put
back.
"""

from __future__ import annotations

from collections.abc import Mapping

from waltz_server.store.recovery_replica import Kind, RecoveringReplica


class Histories:
    """The histories that the replicas of one recovery may be of."""

    def __init__(
        self, replicas: Mapping[str, RecoveringReplica], *, session_id: int, last_listed: int, quorum: int
    ) -> None:
        """`session_id` is that of the recovery, `last_listed` the last one that ZooKeeper lists a replica of,
        `quorum` that of the assigned `replicas`, whose answers are read as they come."""
        self._replicas = replicas
        self._session_id = session_id
        self._last_listed = last_listed
        self._quorum = quorum

    def last_with_a_majority(self) -> int:
        """The last session that a majority of the assigned replicas may have written down before this one,
        by what they have answered: no later one appended anything (A3), and whoever knows one holds what was
        copied to it."""
        sessions = sorted(one.before for one in self._replicas.values() if one.before is not None)
        if len(sessions) < self._quorum:
            return self._session_id
        return max(self._last_listed, sessions[self._quorum - 1])

    def is_in_doubt(self, replica: RecoveringReplica) -> bool:
        """Whether it knows an earlier session that had no majority, and so is held against others first."""
        session = replica.info.session_id
        return session != self._session_id and session > self.last_with_a_majority()

    def another(self, older: RecoveringReplica, newer: RecoveringReplica) -> str | None:
        """The reason why a difference proves that a disk or ZooKeeper was put back (A8), None if it does not:
        the later session had no majority, so its replica copied what it holds from such as the older one; or
        both took part in the same session, which resolved one log."""
        session, last = newer.info.session_id, self.last_with_a_majority()
        if session == self._session_id or session <= self._last_listed:
            return None
        same = older.info.session_id == session
        if not (same or older.info.session_id <= last < session):
            return None
        unlisted = older.vouched and older.info.session_id > self._last_listed
        if older.kind is not Kind.VOTER and not unlisted:
            return None
        if same:
            return f"{older.name} and {newer.name} completed session {session} and hold different records"
        return (
            f"{newer.name} has completed session {session}, in which no majority took part, and holds other records than "
            f"{older.name}, which completed session {older.info.session_id}"
        )

    def void_above_a_later_mark(self, older: RecoveringReplica, newer: RecoveringReplica) -> bool:
        """Whether a difference is settled by marks, which lowers that of the older one: the newer one took
        part in a session that ZooKeeper does not list and had a mark decided there, so what the older one
        holds above that mark does not count (A8)."""
        floor = newer.info.low_water_mark
        unlisted = older.info.session_id < newer.info.session_id >= self._last_listed
        if not unlisted or older.marked:
            return False
        if older.mark <= floor:  # one that differs below a mark that was decided is good up to its own only
            floor = older.info.low_water_mark
        if older.mark <= floor or floor < older.info.low_water_mark:
            return False
        older.mark = floor
        older.good_mark = min(older.good_mark, floor)
        older.compared = False
        return True
