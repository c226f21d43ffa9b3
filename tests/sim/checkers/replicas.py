"""All replicas are equal record by record up to the high-water mark (rule F5): id, request id, header, data, checksum."""

from __future__ import annotations

import zlib

from tests.sim.checkers.history import Truth
from tests.sim.checkers.violation import Violation
from waltz_protocol.types import Record


def check_replicas(truth: Truth) -> list[Violation]:
    """``replicas``: a replica lacks a committed record or has another one; ``checksum``: it does not fit the data."""
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


def _first_difference(log: list[Record], records: list[Record]) -> str | None:
    if len(records) < len(log):
        return f"{len(records)} records, the log has {len(log)}"
    for expected, record in zip(log, records, strict=False):
        if record[:4] != expected[:4]:  # the checksum is not shown to clients; it is held against the data
            return f"{record}, the log has {expected}"
    return None
