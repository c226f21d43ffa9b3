"""Holds the files of all storage nodes against what the writers know, and against one another."""

import time
from collections.abc import Callable, Mapping, Sequence

from tests.interop.live.loads import Known, lock_of
from tests.interop.live.segments import Entry, SegmentError

Logs = Mapping[int, Mapping[str, Sequence[Entry]]]
"""Partition -> node -> its records."""


def differences(logs: Logs) -> list[str]:
    """Replicas of a partition that do not hold the same records."""
    found = []
    for partition, replicas in logs.items():
        (first_name, first), *others = replicas.items()
        for name, records in others:
            common = min(len(first), len(records))
            fork = next((place for place in range(common) if first[place] != records[place]), None)
            if fork is not None:
                found.append(
                    f"fork: record {fork} of partition {partition} differs on {first_name} and {name}"
                )
            elif len(first) != len(records):
                ends = f"{first_name} {len(first) - 1}, {name} {len(records) - 1}"
                found.append(f"partition {partition} does not end at the same record: {ends}")
    return found


def violations(logs: Logs, known: Known, *, false_failures: bool) -> list[str]:
    """What breaks a promise, in one line each; none is what is expected.

    `false_failures`: a server of 0.13.2 took part, which can report a failure that commits all the same (13.9
    in docs/weaknesses-of-0.13.2.md).
    """
    places: dict[str, list[tuple[int, int]]] = {}
    found = differences(logs)
    for partition, replicas in logs.items():
        records = next(iter(replicas.values()))
        found += _locks(partition, records)
        for entry in records:
            places.setdefault(entry.data.decode(), []).append((partition, entry.transaction_id))
    for payload, where in places.items():
        if len(where) > 1:
            found.append(f"twice: {payload} is at {where}")
        if payload not in known.sent:
            found.append(f"never sent: {payload} is at {where}")
    for payload, place in known.acknowledged.items():
        if payload not in places:
            found.append(f"lost: {payload} was acknowledged{f' at {place}' if place else ''}")
        elif place is not None and place not in places[payload]:
            found.append(f"moved: {payload} was acknowledged at {place} and is at {places[payload]}")
    if not false_failures:
        found += [f"failed but present: {payload}" for payload in known.failed & places.keys()]
    for place, payloads in known.delivered.items():
        if any(place not in places.get(payload, []) for payload in payloads):
            found.append(f"readers were given {payloads} at {place}")
    return found


def _locks(partition: int, records: Sequence[Entry]) -> list[str]:
    """Each transaction names the last one before it that took the same lock."""
    found = []
    last: dict[int, int] = {}
    for entry in records:
        payload = entry.data.decode()
        lock, seen = lock_of(payload), int(payload.split("/")[4])
        if seen != last.get(lock, -1):
            found.append(
                f"lost update: {payload} is {entry.transaction_id} of partition {partition}, after {last.get(lock, -1)}"
            )
        last[lock] = entry.transaction_id
    return found


def settle(read: Callable[[], Logs], seconds: float = 60.0) -> Logs:
    """The files when nobody writes: a commit needs a majority only, so the others get time to follow."""
    deadline = time.monotonic() + seconds
    while True:
        try:
            logs = read()
            if not differences(logs) or time.monotonic() > deadline:
                return logs
        except SegmentError:  # a record that is being written
            if time.monotonic() > deadline:
                raise
        time.sleep(0.2)  # a poll of files
