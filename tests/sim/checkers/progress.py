"""After the faults stop, work continues within a bound."""

from __future__ import annotations

from tests.sim.checkers.history import AppendOp, History, Outcome, Truth
from tests.sim.checkers.violation import Violation

PATIENCE_SECONDS = 5.0
"""Appends that are given less may fail at any time."""
FINE = frozenset(
    {"LockConflictError", "cancelled", "tried again", "declined", "expired", "not taken", "WindowFullError"}
)


def check_progress(history: History, truth: Truth, bound_seconds: float) -> list[Violation]:
    """`progress`: an append made `bound_seconds` after the last fault ended does not fail for want of a
    server."""
    if truth.healed_at is None:
        return []
    start = truth.healed_at + bound_seconds
    found = []
    for op in history.appends:
        if op.invoked_at < start or (op.deadline is not None and op.deadline < PATIENCE_SECONDS):
            continue
        if not _fine(op, truth):
            text = (
                f"append {op.uid} of {op.process} to partition {op.partition}, {op.invoked_at - truth.healed_at:.1f} s "
                f"after the last fault: {op.outcome.value} {op.error}"
            )
            found.append(Violation("progress", text))
    return found


def _fine(op: AppendOp, truth: Truth) -> bool:
    if op.outcome is Outcome.COMMITTED or op.error in FINE:
        return True
    if op.outcome is Outcome.PENDING:
        return truth.ended_at is None or truth.ended_at - op.invoked_at < PATIENCE_SECONDS
    return op.workload == "closing"
