"""All replicas are equal record by record up to the high-water mark (rule F5): id, request id, header, data,
checksum."""

from __future__ import annotations

import zlib

from tests.sim.checkers.history import History, Outcome, Truth
from tests.sim.checkers.payload import uid_of
from tests.sim.checkers.violation import Violation
from waltz_protocol.types import Record


def check_replicas(truth: Truth) -> list[Violation]:
    """`replicas`: a replica lacks a committed record or has another one; `checksum`: it does not fit the
    data."""
    found = []
    for partition, nodes in truth.replicas.items():
        log = truth.log.get(partition, [])
        for node, records in nodes.items():
            where = f"partition {partition} on {node}"
            difference = _first_difference(log, records)
            if difference is not None:
                found.append(Violation("replicas", f"{where}: {difference}"))
            for record in records:
                if zlib.crc32(record.data) != record.checksum & 0xFFFFFFFF:
                    found.append(Violation("checksum", f"{where}: transaction {record.transaction_id}"))
                    break
    return found


def check_failed(history: History, truth: Truth) -> list[Violation]:
    """`failed_on_replica`: a replica that takes part holds an append whose caller was informed that it
    certainly failed.

    Below the mark it is committed. Above it no reader sees it yet, and a recovery that finds it on enough
    replicas commits it: who reports a failure must have cut it before.
    """
    found = []
    for partition, nodes in truth.replicas.items():
        mark = len(truth.log.get(partition, [])) - 1
        for node, records in nodes.items():
            for record in records:
                uid = uid_of(record.data)
                if uid is None or uid >= len(history.appends):
                    continue
                op = history.appends[uid]
                if op.outcome is Outcome.FAILED:
                    text = (
                        f"append {uid} of {op.process} failed ({op.error}) and is at {record.transaction_id} of "
                        f"partition {partition} on {node}, the mark is {mark}"
                    )
                    found.append(Violation("failed_on_replica", text))
    return found


def _first_difference(log: list[Record], records: list[Record]) -> str | None:
    if len(records) < len(log):
        return f"{len(records)} records, the log has {len(log)}"
    for expected, record in zip(log, records, strict=False):
        if record[:4] != expected[:4]:  # the checksum is not shown to clients; it is held against the data
            return f"{record}, the log has {expected}"
    return None
