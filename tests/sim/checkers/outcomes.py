"""What callers were told: how appends may end (rule E1), and what marks may say."""

from __future__ import annotations

from collections import Counter

from tests.sim.checkers.history import History, Outcome, Truth
from tests.sim.checkers.log import places_of
from tests.sim.checkers.violation import Violation

UNKNOWN_REASONS = frozenset({"cancelled", "OutcomeUnknownError"})


def check_outcomes(history: History) -> list[Violation]:
    """``outcome_kind``: unknown only by a deadline, a cancellation or a close; lock conflicts have a mark, others none."""
    found = []
    for op in history.appends:
        where = f"append {op.uid} of {op.process}"
        if op.outcome is Outcome.UNKNOWN and op.error not in UNKNOWN_REASONS:
            found.append(Violation("outcome_kind", f"{where} is unknown by {op.error}"))
        elif (op.conflict is not None) != (op.error == "LockConflictError"):
            found.append(Violation("outcome_kind", f"{where}: {op.error} with conflict mark {op.conflict}"))
    return found


def check_marks(history: History, truth: Truth) -> list[Violation]:
    """``mark``: no mark is beyond the log, and none is below what the asking client had been shown before.

    Marks are not confirmed by storage (nothing is claimed for reads that are not appended), so a mark may be below what
    *others* had been shown.
    """
    found = []
    for read in history.mark_reads:
        last = len(truth.log.get(read.partition, ())) - 1
        if read.value > last or read.value < -1:
            text = (
                f"{read.client} was told {read.value} in partition {read.partition}, the log ends at {last}"
            )
            found.append(Violation("mark", text))
        elif read.value < read.own_floor:
            text = f"{read.client} was told {read.value} in partition {read.partition} after it had seen {read.own_floor}"
            found.append(Violation("mark", text))
    return found


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
