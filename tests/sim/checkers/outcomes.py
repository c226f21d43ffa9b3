"""What callers were answered: how appends may end (rule E1), and what marks may say."""

from __future__ import annotations

from collections import Counter

from tests.sim.checkers.history import History, MarkRead, Outcome, Truth
from tests.sim.checkers.log import places_of
from tests.sim.checkers.violation import Violation

LEAVING_SECONDS = 20.0
"""A server that leaves in order serves on until the next owner fences it, for so long at most; and some time
on the way."""
UNKNOWN_REASONS = frozenset({"cancelled", "OutcomeUnknownError"})


def check_outcomes(history: History) -> list[Violation]:
    """`outcome_kind`: unknown only by a deadline, a cancellation or a close; lock conflicts have a mark,
    others none."""
    found = []
    for op in history.appends:
        where = f"append {op.uid} of {op.process}"
        if op.outcome is Outcome.UNKNOWN and op.error not in UNKNOWN_REASONS:
            found.append(Violation("outcome_kind", f"{where} is unknown by {op.error}"))
        elif (op.conflict is not None) != (op.error == "LockConflictError"):
            found.append(Violation("outcome_kind", f"{where}: {op.error} with conflict mark {op.conflict}"))
    return found


def check_marks(history: History, truth: Truth) -> list[Violation]:
    """`mark`: no mark is beyond the log, and none is below what the asking client had been shown before.
    `mark_stale`: none is below what anybody had been shown a session timeout (and `LEAVING_SECONDS`)
    before it was asked for.

    Marks are not confirmed by storage (nothing is claimed for reads that are not appended), so a server that
    was replaced may answer for a while (D8): for longer only when its clock stood still, or its ZooKeeper did
    not know better (`doubts`).
    """
    found = []
    bound = history.session_timeout_seconds + LEAVING_SECONDS
    for read in history.mark_reads:
        last = len(truth.log.get(read.partition, ())) - 1
        if read.value > last or read.value < -1:
            text = f"{read.client} got {read.value} in partition {read.partition}, the log ends at {last}"
            found.append(Violation("mark", text))
        elif read.value < read.own_floor:
            text = f"{read.client} got {read.value} in partition {read.partition} after it had seen {read.own_floor}"
            found.append(Violation("mark", text))
        elif history.session_timeout_seconds and not _in_doubt(history, read):
            known = history.book.mark_at(read.partition, read.invoked_at - bound)
            if read.value < known:
                text = (
                    f"{read.client} got {read.value} in partition {read.partition} at {read.completed_at:.3f} s, "
                    f"{known} was shown to somebody {bound:g} s before it asked"
                )
                found.append(Violation("mark_stale", text))
    return found


def _in_doubt(history: History, read: MarkRead) -> bool:
    return any(first <= read.completed_at and read.invoked_at <= last for first, last in history.doubts)


def figures(history: History, truth: Truth) -> Counter[str]:
    """How appends ended, and what became of those without an outcome."""
    counts: Counter[str] = Counter()
    places = places_of(truth)
    for op in history.appends:
        counts[f"appends {op.outcome.value}"] += 1
        if op.error:
            counts[f"{op.outcome.value} by {op.error}"] += 1
        if op.outcome in (Outcome.UNKNOWN, Outcome.PENDING):
            counts[f"{op.outcome.value}, {'committed' if op.uid in places else 'not in the log'}"] += 1
    counts["marks read"] = len(history.mark_reads)
    counts["marks behind others"] = sum(read.value < read.floor for read in history.mark_reads)
    counts["feeds"] = len(history.feeds)
    counts["transactions delivered"] = sum(feed.count for feed in history.feeds)
    counts["transactions"] = sum(len(records) for records in truth.log.values())
    return counts
