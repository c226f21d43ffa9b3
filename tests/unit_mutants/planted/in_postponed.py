"""Planted bugs in what becomes of a session that recovers while replicas are out of it."""

from __future__ import annotations

from tests.unit_mutants.planted.bug import bugs_in

_bug = bugs_in("services/server/src/waltz_server/store")

POSTPONED_BUGS = (
    _bug(
        "session_gets_no_more_time_than_the_one_before",
        "hangs",
        "postponed.py",
        "kept_seconds = 2 * self.cut_short_seconds",
        "kept_seconds = self.cut_short_seconds",
        "A lost replica is emptied and filled again for good, while another one fails in each session.",
    ),
    _bug(
        "session_that_cannot_be_finished_is_given_time",
        "hangs",
        "postponed.py",
        "        if advances or may_advance:\n",
        "        if True:\n",
        "A partition stays closed for as long as a copy would have taken that nobody makes.",
    ),
    _bug(
        "session_is_replaced_before_a_slow_replica_has_answered",
        "hangs",
        "postponed.py",
        "        if advances or may_advance:\n",
        "        if advances:\n",
        "With one replica that fails at each change and one that is slow no session lasts long enough to hear it.",
    ),
    _bug(
        "session_is_kept_for_a_silent_replica_without_an_end",
        "hangs",
        "postponed.py",
        "            if not advances:\n",
        "            if False:\n",
        "A replica that fails for a moment is taken back after hours, because another one hangs.",
    ),
    _bug(
        "waiting_for_a_replica_counts_as_work_that_it_cost",
        "hangs",
        "postponed.py",
        "            if self._kept_from is None:  # not the time before: nothing of it was lost by this replica\n",
        "            if self._kept_from is None:\n                self._kept_from = 0.0\n            if False:\n",
        "After an outage of an hour a replica that fails once more is tried again after two.",
    ),
    _bug(
        "postponed_replica_is_forgotten_when_the_session_opens",
        "hangs",
        "session_run.py",
        "        for reason, pause_seconds in self._postponed.opened():\n            self.restart(reason, pause_seconds)\n",
        "",
        "A replica that failed while its session recovered stays out until something else ends the session.",
    ),
    _bug(
        "fence_met_by_a_late_replica_is_not_looked_into",
        "B1",
        "replica_recovery.py",
        "                self._run.suspect()\n                self._run.replica_out",
        "                self._run.replica_out",
        "A server that was replaced keeps on recovering until its next question for ZooKeeper is due.",
    ),
    _bug(
        "fault_is_kept_as_what_only_has_to_be_listed",
        "A8",
        "session_run.py",
        "recovery.quorum_recovered and recovery.fault is None\n",
        "recovery.quorum_recovered\n",
        "The copy that proved the fault was reset, and its node takes later sessions only: none is ever begun.",
    ),
)
