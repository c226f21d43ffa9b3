"""Databases that applied a partition together with their mark: every transaction once, in order, up to the
mark."""

from __future__ import annotations

from tests.sim.checkers.history import AppliedState, History, Truth
from tests.sim.checkers.payload import uid_of
from tests.sim.checkers.violation import Violation
from waltz_protocol.types import Record


def check_databases(history: History, truth: Truth) -> list[Violation]:
    """`database`: what each holds equals a recomputation from the log."""
    found = []
    for state in history.databases:
        difference = _difference(state, truth.log.get(state.partition, []))
        if difference is not None:
            found.append(Violation("database", f"{state.name}, partition {state.partition}: {difference}"))
    return found


def _difference(state: AppliedState, log: list[Record]) -> str | None:
    if state.mark >= len(log):
        return f"the mark is {state.mark}, the log ends at {len(log) - 1}"
    if len(state.rows) != state.mark + 1:
        return f"{len(state.rows)} rows with mark {state.mark}"
    total = 0
    for expected, (transaction_id, uid) in enumerate(state.rows):
        if transaction_id != expected:
            return f"row {expected} is transaction {transaction_id}"
        if uid is not None:
            total += uid
            if uid != uid_of(log[transaction_id].data):
                return f"transaction {transaction_id} was applied as append {uid}, the log has {log[transaction_id].data!r}"
    return None if total == state.total else f"the total is {state.total}, recomputed {total}"
