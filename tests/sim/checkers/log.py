"""The log itself: dense ids, nothing acknowledged missing, nothing twice, nothing that failed, real-time
order."""

from __future__ import annotations

from tests.sim.checkers.history import AppendOp, History, Outcome, Truth
from tests.sim.checkers.payload import uid_of
from tests.sim.checkers.violation import Violation

Places = dict[int, tuple[int, int]]
"""Uid -> (partition, transaction id)."""


def places_of(truth: Truth) -> Places:
    """Where every append is (the last place, should there be several)."""
    places: Places = {}
    for partition, records in truth.log.items():
        for record in records:
            uid = uid_of(record.data)
            if uid is not None:
                places[uid] = (partition, record.transaction_id)
    return places


def check_dense(truth: Truth) -> list[Violation]:
    """`dense`: ids go from 0 without gaps; the owner's mark is the last one."""
    found = []
    for partition, records in truth.log.items():
        for expected, record in enumerate(records):
            if record.transaction_id != expected:
                text = (
                    f"partition {partition}: transaction {record.transaction_id} is where {expected} belongs"
                )
                found.append(Violation("dense", text))
                break
        mark = truth.high_water_marks.get(partition)
        if mark is not None and mark != len(records) - 1:
            text = f"partition {partition}: the mark is {mark}, the log has {len(records)} transactions"
            found.append(Violation("dense", text))
    return found


def check_book(history: History, truth: Truth) -> list[Violation]:
    """`fork`, `duplicate` and `duplicate_req_id` against the final log; `lost`: shown as committed,
    and gone."""
    before = len(history.violations)
    for partition, records in truth.log.items():
        for record in records:
            history.book.observe(
                partition, record.transaction_id, record.req_id, record.header, record.data, "the final log"
            )
    found = history.violations[before:]
    del history.violations[before:]
    for partition, records in truth.log.items():
        mark = history.book.mark(partition)
        if mark >= len(records):
            text = f"partition {partition}: {mark} was shown as committed, the log ends at {len(records) - 1}"
            found.append(Violation("lost", text))
    return found


def check_appends(history: History, truth: Truth) -> list[Violation]:
    """`acknowledged`, `failed_committed`, `bytes`, `foreign`, `real_time` and
    `pipeline_order`."""
    places = places_of(truth)
    found = _check_records(history, truth)
    pipelines: dict[tuple[str, int], int] = {}
    for op in history.appends:
        place = places.get(op.uid)
        found += _check_outcome(op, place)
        if place is None:
            continue
        if place[1] <= op.floor:
            text = f"append {op.uid} is at {place}, but {op.floor} was committed before it was invoked"
            found.append(Violation("real_time", text))
        if op.pipeline:
            key = (op.pipeline, op.partition)
            if place[1] <= pipelines.get(key, -1):
                text = f"append {op.uid} of pipeline {op.pipeline} is at {place}, before an earlier one"
                found.append(Violation("pipeline_order", text))
            pipelines[key] = place[1]
    return found


def _check_outcome(op: AppendOp, place: tuple[int, int] | None) -> list[Violation]:
    if op.outcome is Outcome.COMMITTED:
        if place is None:
            return [
                Violation(
                    "acknowledged", f"append {op.uid} of {op.process} was acknowledged and is not there"
                )
            ]
        if op.transaction_id is not None and op.transaction_id != place[1]:
            text = (
                f"append {op.uid} of {op.process} was acknowledged at {op.transaction_id} and is at {place}"
            )
            return [Violation("acknowledged", text)]
    elif op.outcome is Outcome.FAILED and place is not None:
        text = f"append {op.uid} of {op.process} failed ({op.error}) and is at {place}"
        return [Violation("failed_committed", text)]
    return []


def _check_records(history: History, truth: Truth) -> list[Violation]:
    found = []
    for partition, records in truth.log.items():
        for record in records:
            uid = uid_of(record.data)
            where = f"partition {partition} transaction {record.transaction_id}"
            if uid is None or uid >= len(history.appends):
                found.append(Violation("foreign", f"{where}: nobody wrote {record.data!r}"))
                continue
            op = history.appends[uid]
            if (op.partition, op.header, op.data) != (partition, record.header, record.data):
                text = f"{where}: header {record.header} data {record.data!r}, written to {op.partition} as {op.header} {op.data!r}"
                found.append(Violation("bytes", text))
    return found
