"""Declared locks: committed transactions are strictly serializable in id order.

A write or read lock says "nothing committed after my view has touched this": no other committed transaction
with a write or append lock on the same lock may be between the view and the transaction. Append locks only
touch.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from math import inf

from tests.sim.checkers.history import AppendOp, History, Truth
from tests.sim.checkers.payload import uid_of
from tests.sim.checkers.violation import Violation
from waltz_protocol.locks import LockId


def check_locks(history: History, truth: Truth) -> list[Violation]:
    """`serializable`: see the module."""
    found = []
    for partition, records in truth.log.items():
        touched: dict[LockId, int] = {}
        for record in records:
            op = _op_of(history, record.data)
            if op is None:
                continue
            if op.as_of is not None:
                for lock in (*op.write_locks, *op.read_locks):
                    last = touched.get(lock, -1)
                    if last > op.as_of:
                        found.append(
                            Violation(
                                "serializable",
                                f"partition {partition} transaction {record.transaction_id} (append {op.uid}) checked "
                                f"{lock.name}/{lock.id} as of {op.as_of}, but {last} had touched it",
                            )
                        )
            for lock in (*op.write_locks, *op.append_locks):
                touched[lock] = record.transaction_id
    return found


def check_views(history: History, truth: Truth) -> list[Violation]:
    """`lost_update`: an append whose view was left to the client committed over one that its client cannot
    have received.

    The client takes what it has received when it sends for the caller's view. Another append that touched the
    same lock was not received by then if it was made later, or if it is of the same client and its caller was
    informed later.
    """
    found = []
    for partition, records in truth.log.items():
        touched: dict[LockId, list[AppendOp]] = {}
        for record in records:
            op = _op_of(history, record.data)
            if op is None:
                continue
            for lock in (*op.write_locks, *op.read_locks) if op.as_of is None and op.sent_at_once else ():
                for other in touched.get(lock, ()):
                    if _after(other, op):
                        text = (
                            f"partition {partition}: append {op.uid} of {op.client} committed at {record.transaction_id} "
                            f"under {lock.name}/{lock.id}, over append {other.uid}, which it had not received"
                        )
                        found.append(Violation("lost_update", text))
            for lock in (*op.write_locks, *op.append_locks):
                touched.setdefault(lock, []).append(op)
    return found


def _after(other: AppendOp, op: AppendOp) -> bool:
    """`other` cannot have been received by the client of `op` when that was sent."""
    if other.invoked > op.invoked:
        return True
    told_later = other.completed_at > op.invoked_at or other.completed < 0
    return bool(op.client) and other.client == op.client and told_later


def check_conflicts(history: History, truth: Truth) -> tuple[list[Violation], Counter[str]]:
    """`lock_failure`: its mark is committed and above the view, and there was something to check.
    `own_view`: it is also above what the outcomes of earlier appends imply that the client had received
    (rule E1), so that trying again helps.

    Also counts: *real* conflicts, and *false* ones, where nobody had touched the locks (slots are shared, and
    a new owner's table starts at its mark).
    """
    found = []
    counts: Counter[str] = Counter()
    touches = _touches(history, truth)
    for op in history.appends:
        if op.conflict is None:
            continue
        where = f"append {op.uid} of {op.process} as of {op.as_of}: conflict at {op.conflict}"
        last = len(truth.log.get(op.partition, ())) - 1
        if not op.write_locks and not op.read_locks:
            found.append(Violation("lock_failure", f"{where}, without a lock to check"))
        elif op.conflict > last or (op.as_of is not None and op.conflict <= op.as_of):
            found.append(Violation("lock_failure", f"{where}; the log ends at {last}"))
        elif op.as_of is None and op.conflict <= op.view_floor:
            found.append(
                Violation("own_view", f"{where}, but its client knew {op.view_floor} when it was made")
            )
        elif op.as_of is not None:
            locks = (*op.write_locks, *op.read_locks)
            real = any(
                _next_after(touches.get((op.partition, lock), []), op.as_of) <= op.conflict for lock in locks
            )
            counts["real lock conflicts" if real else "false lock conflicts"] += 1
    return found, counts


def _next_after(ids: list[int], place: int) -> float:
    index = bisect_right(ids, place)
    return ids[index] if index < len(ids) else inf


def _op_of(history: History, data: bytes) -> AppendOp | None:
    uid = uid_of(data)
    return None if uid is None or uid >= len(history.appends) else history.appends[uid]


def _touches(history: History, truth: Truth) -> dict[tuple[int, LockId], list[int]]:
    touches: dict[tuple[int, LockId], list[int]] = {}
    for partition, records in truth.log.items():
        for record in records:
            op = _op_of(history, record.data)
            if op is not None:
                for lock in (*op.write_locks, *op.append_locks):
                    touches.setdefault((partition, lock), []).append(record.transaction_id)
    return touches
