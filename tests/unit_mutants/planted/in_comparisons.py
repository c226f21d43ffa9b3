"""Planted bugs in how a recovery compares logs before it keeps anything of them."""

from __future__ import annotations

from tests.unit_mutants.planted.bug import bugs_in

_bug = bugs_in("services/server/src/waltz_server/store")

COMPARISON_BUGS = (
    _bug(
        "last_record_stands_for_all_before_it",
        "A8",
        "references.py",
        "    if missed > 0 and older.kind is Kind.VOTER:\n",
        "    if missed < 0:\n",
        "Two logs that end with an append which was sent again are taken for one, and what lies below is replaced.",
    ),
    _bug(
        "mark_of_a_later_session_is_that_of_the_next",
        "A8",
        "references.py",
        "        decided = (newer if missed == 1 else older).info",
        "        decided = newer.info",
        "A node that an interrupted recovery marked hides where its log parted from that of an older voter.",
    ),
    _bug(
        "reference_that_failed_counts_by_an_earlier_request",
        "A2",
        "recovery.py",
        "        replica.marked = not replica.withdrawn\n",
        "        replica.marked = True\n",
        "A node that could not deliver its record is recovered without having been compared.",
    ),
    _bug(
        "copied_upon_without_comparing",
        "A2",
        "recovery.py",
        "            return comparison(replica, source, replica.mark)\n",
        "            pass\n",
        "Before the mark is resolved a fork is extended with the records of the other branch.",
    ),
    _bug(
        "shorter_lists_of_headers_become_empty",
        "A2",
        "replica_recovery.py",
        "                    most = max(1, count // _FEWER)\n",
        "                    most = count // _FEWER\n",
        "A reference that does not answer makes the recovery call the other copy gone.",
    ),
)
