"""Planted bugs in what a server makes of the answers of its idle check: which replicas it gives up."""

from __future__ import annotations

from tests.unit_mutants.planted.bug import bugs_in

_bug = bugs_in("services/server/src/waltz_server/store")

IDLE_CHECK_BUGS = (
    _bug(
        "answer_is_held_against_what_was_acknowledged_since",
        "A6",
        "session_run.py",
        "            reason = another_copy(answer, self._session_id, acknowledged)\n",
        "            votes = None if self.session is None else self.session.votes\n"
        "            now = acknowledged if votes is None else votes.durable(name)\n"
        "            reason = another_copy(answer, self._session_id, now)\n",
        "Under load a good replica is thrown out for an append that its answer was overtaken by.",
    ),
    _bug(
        "fence_of_a_later_owner_is_that_of_another_copy",
        "A7",
        "session_run.py",
        "                await self._context.keeper.check(self._session_id)\n",
        "                pass\n",
        "A server that was replaced starts its partition anew and fences its successor.",
    ),
    _bug(
        "copy_that_was_given_up_is_only_silent",
        "A1",
        "idle_check.py",
        "        return said.message if fence is not None and fence > session_id else None\n",
        "        return None\n",
        "A copy that was removed and assigned again stays empty until somebody appends.",
    ),
    _bug(
        "copy_that_was_set_back_is_believed",
        "A1",
        "idle_check.py",
        "    if said < acknowledged:\n",
        "    if said < -1:\n",
        "A copy that lost records stays so until somebody appends.",
    ),
)
