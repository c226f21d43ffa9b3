"""Planted bugs in how transactions of one client wait for each other."""

from __future__ import annotations

from tests.unit_mutants.planted.bug import bugs_in

_client = bugs_in("client/src/waltz_client/_internal")

OWN_LOCK_BUGS = (
    _client(
        "who_leaves_the_lines_calls_nobody",
        "ends",
        "append/own_locks.py",
        "                del self._lines[lock]\n        self._next(entry.locks)\n",
        "                del self._lines[lock]\n",
        "Those behind one that gave up wait until somebody else comes by.",
    ),
    _client(
        "appended_lock_marks_nothing",
        "D6",
        "append/own_locks.py",
        "        self.marks = tuple(dict.fromkeys((*write, *append)))\n",
        "        self.marks = tuple(dict.fromkeys(write))\n",
        "A decision on a balance is sent while a payment into it is on its way, and is refused.",
    ),
    _client(
        "newcomer_passes_those_who_wait",
        "starvation",
        "append/own_locks.py",
        "        if free and (late or self._lines.keys().isdisjoint(set(entry.locks).difference(own))):\n",
        "        if free:\n",
        "Whoever comes at the right moment wins again and again.",
    ),
    _client(
        "turn_is_taken_for_other_locks",
        "starvation",
        "append/own_locks.py",
        "isdisjoint(set(entry.locks).difference(own))",
        "isdisjoint(() if own else entry.locks)",
        "A decision that names another lock the second time passes those who wait for it.",
    ),
    _client(
        "turn_is_given_up_for_a_new_lock",
        "ends",
        "append/own_locks.py",
        "isdisjoint(set(entry.locks).difference(own))",
        "isdisjoint(() if set(entry.locks).issubset(own) else entry.locks)",
        "A decision that takes a lock on an id that it makes is decided again without end.",
    ),
    _client(
        "slow_decision_is_waited_for",
        "ends",
        "append/own_locks.py",
        """        \"\"\"It has not come.\"\"\"\n        if self._waiting""",
        """        \"\"\"It has not come.\"\"\"\n        if not self._waiting""",
        "One decision that hangs stops every transaction of its client under that lock.",
    ),
    _client(
        "turn_comes_before_what_it_waited_for_is_applied",
        "D6",
        "contexts.py",
        "        submission.after = mark\n",
        "",
        "The next decision does not see the transaction it waited for, and loses to it.",
    ),
    _client(
        "turn_that_had_not_begun_is_forgotten_by_a_close",
        "E7",
        "contexts.py",
        "                self._abandon(submission)\n        for timer in self._delayed.values():\n",
        "                pass\n        for timer in self._delayed.values():\n",
        "A transact of a client that is closed returns at its deadline only.",
    ),
    _client(
        "cancelled_transaction_keeps_its_locks",
        "ends",
        "contexts.py",
        "            self._withdraw(submission)  # also when its caller was cancelled: nothing was sent\n",
        "",
        "Nothing under its locks is ever sent again by this client.",
    ),
    _client(
        "late_decision_goes_to_the_end_of_the_line",
        "ends",
        "append/own_locks.py",
        "if free and (late or self._lines",
        "if free and (self._lines",
        "Where every decision takes longer than a turn, none is sent.",
    ),
)
