"""Planted bugs in what keeps a copy that was put back beside a log in use from replacing it (rule A8)."""

from __future__ import annotations

from tests.unit_mutants.planted.bug import bugs_in

_bug = bugs_in("services/server/src/waltz_server/store")

TWO_HISTORIES_BUGS = (
    _bug(
        "id_above_a_fence_that_nobody_explained",
        "A8",
        "replica_recovery.py",
        "        if newer is None:\n            self._context",
        "        if True:\n            self._context",
        "The next session hides that a node has completed one that ZooKeeper did not give out.",
    ),
    _bug(
        "node_of_the_next_owner_is_evidence",
        "A8",
        "replica_recovery.py",
        "        if await self._is_ours():\n",
        "        if self._session_id >= 0:\n",
        "An owner that was replaced reports that ZooKeeper was put back.",
    ),
    _bug(
        "own_mark_is_evidence",
        "A8",
        "recovery.py",
        "        if info.session_id == self.session_id and self._replicas[name].marking:\n            return None\n",
        "",
        "A replica that this session marked is left out for what it knows of it.",
    ),
    _bug(
        "ids_are_taken_until_they_pass_who_was_heard_too_late",
        "A8",
        "opening.py",
        "        listed = last_listed(self._recorded) == self._recorded.session_id\n",
        "        listed = True\n",
        "A fault that a late node raised ends when servers have been restarted often enough.",
    ),
    _bug(
        "session_without_a_majority_caps_the_marks",
        "A8",
        "recovery_replica.py",
        "    took_part = [replica for replica in answered if replica.info.session_id <= with_a_majority]\n",
        "    took_part = answered\n",
        "What a majority acknowledged is cut down to the mark of a copy of another history.",
    ),
    _bug(
        "mark_is_capped_below_the_own_one",
        "A2",
        "recovery_replica.py",
        "        cap = max(newest.info.low_water_mark, replica.info.low_water_mark)\n",
        "        cap = newest.info.low_water_mark\n",
        "What a node was told to be committed is cut there.",
    ),
    _bug(
        "another_history_wins_by_its_session",
        "A8",
        "recovery.py",
        "        if not equal and self._is_of_another_history(replica, self._replicas[reference]):\n            return\n",
        "",
        "A difference from a session that had no majority is settled in its favour.",
    ),
    _bug(
        "another_history_is_what_others_are_compared_with",
        "A8",
        "recovery.py",
        "        if later > self._last_with_a_majority():\n            later = -1\n",
        "",
        "The copy of another history is cut before anybody has looked whether it is one.",
    ),
    _bug(
        "emptied_replica_says_that_a_session_had_no_majority",
        "A8",
        "recovery.py",
        "            if one.answered and one.vouched and one.kind is not Kind.LOST\n        )\n        if len",
        "            if one.answered\n        )\n        if len",
        "A lost disk is taken for a witness against the last session.",
    ),
    _bug(
        "decided_before_a_majority_could_object",
        "A8",
        "recovery.py",
        "        if self._gathering and any(r.info.session_id > self._last_listed for r in self._replicas.values()):\n            return",
        "        if self._first and any(r.info.session_id > self._last_listed for r in self._replicas.values()):\n            return",
        "Two replicas decide in favour of a session that the third proves to have had no majority.",
    ),
    _bug(
        "proof_is_written_over",
        "A8",
        "recovery.py",
        "        if isinstance(step, Truncate | Copy | SetLowWaterMark) and self._is_any_to_be_compared(self.resolved):\n            return Wait()\n",
        "",
        "The fault is gone with the next start of a server, and the copy of which it said that nothing was cut is cut.",
    ),
    _bug(
        "copy_of_another_history_is_marked_before_it_is_compared",
        "A8",
        "recovery.py",
        "        return closed and known and replica.mark",
        "        return closed and replica.mark",
        "What proves that a disk was put back is written over.",
    ),
)
