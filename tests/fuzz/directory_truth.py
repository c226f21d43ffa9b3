"""What a storage directory says before it is opened, read with no code of the engine."""

from __future__ import annotations

from dataclasses import dataclass, field

from tests.fuzz.directory_bases import PARTITIONS, ROOT, Files
from tests.fuzz.directory_edits import CONTROL, SIDECAR
from tests.fuzz.disk_form import CHECKPOINT, HEADER, control_marks, first_txid, records, sidecar_mark

DATA = (".seg", ".seq")
ZEROS = bytes(8)  # in our records ids have seven at most


@dataclass(frozen=True)
class LogTruth:
    """One partition. `at_least`: an open log that ends below it has lost what was synced, or a readable
    record.

    `valid` holds the valid records at the beginning of each data file. `must_refuse`: bytes in the middle
    of the newest file have changed above `at_least` (below it reads notice), for whole records follow them
    and nothing there looks like a sector that was never written.
    """

    at_least: int
    must_refuse: bool
    valid: dict[str, list[bytes]] = field(default_factory=dict)


def segments_anywhere(files: Files) -> bool:
    """True when any partition has a data or index file: then nothing is ever initialised anew."""
    return any(name.endswith((*DATA, ".idx")) for name in files)


def read_truth(files: Files) -> dict[int, LogTruth]:
    """Every partition whose control entry can be read."""
    control = files.get(CONTROL, b"")
    found: dict[int, LogTruth] = {}
    for partition_id in range(PARTITIONS):
        marks = control_marks(control, partition_id)
        if marks is None:
            continue
        prefix = f"{ROOT}/{partition_id}/"
        mark = sidecar_mark(files.get(prefix + SIDECAR, b""), partition_id, marks)
        logs = {
            name: raw
            for name, raw in files.items()
            if name.startswith(prefix) and name.endswith(DATA) and len(raw) >= HEADER and any(raw[:HEADER])
        }
        at_least = max(-1, marks.local_low_water_mark, mark, _written(files, logs))
        valid = {name: records(raw, first_txid(raw)) for name, raw in logs.items()}
        found[partition_id] = LogTruth(at_least, _changed_in_the_middle(logs, at_least), valid)
    return found


def _changed_in_the_middle(logs: Files, at_least: int) -> bool:
    if not logs:
        return False
    raw = max(logs.values(), key=first_txid)
    first = first_txid(raw)
    whole = records(raw, first)
    start, expected = HEADER + sum(map(len, whole)), first + len(whole)
    if expected <= at_least:
        return False
    for offset in range(start + 1, len(raw) - 39):
        txid = int.from_bytes(raw[offset : offset + 8], "big", signed=True)
        if expected < txid <= expected + (len(raw) - start) // 40 and records(raw, txid, offset):
            return ZEROS not in raw[start:offset]
    return False


def _written(files: Files, logs: Files) -> int:
    """The highest of: everything before the newest segment, its last checkpoint, the valid records from 0
    on."""
    if not logs:
        return -1
    newest = max(logs, key=lambda name: first_txid(logs[name]))
    first = first_txid(logs[newest])
    index = files.get(newest[:-4] + ".idx", b"")
    entries = (len(index) - HEADER) // 8 if any(index[:HEADER]) else 0  # without a header it is made anew
    checkpoint = (first + max(0, entries) - 1) // CHECKPOINT * CHECKPOINT - 1
    expected = 0
    ordered = sorted(logs.values(), key=first_txid)
    for number, raw in enumerate(ordered):
        if first_txid(raw) != expected:
            break
        expected += len(records(raw, expected))
        if number + 1 < len(ordered):  # what a newer segment holds does not count here
            expected = min(expected, first_txid(ordered[number + 1]))
    return max(first - 1, checkpoint if checkpoint >= first else -1, expected - 1)
