"""Checks a log full of flights against the file they came from. Written apart from the writer: it shares only
the rows.

Pure. Feed it every transaction with `add`, partition by partition in any interleaving but each partition in
order, then ask for the `verdict`. What must hold:

* every row of the file is in the log exactly once, with the values of the file;
* transaction ids of a partition are 0, 1, 2 … without a gap;
* per carrier, the sums of both delays in the log are those of the file;
* every flight names exactly the transaction of its aircraft's previous flight in that partition, which only
  holds if no two writers ever held the aircraft's lock at once.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from flights.data import Flight

_MAX_EXAMPLES_PER_KIND = 3


@dataclass(frozen=True, slots=True)
class Verdict:
    """Result of the check. `findings` is empty exactly when `passed`; examples per kind are bounded, counts
    are not."""

    passed: bool
    findings: tuple[str, ...]
    transactions: int
    chained: int
    """Flights that named a previous one."""


class FlightChecker:
    """Collects what is wrong; see the module for the invariants."""

    def __init__(self, flights: Sequence[Flight]) -> None:
        self._flights = flights
        self._seen = bytearray(len(flights))
        self._next_id: dict[int, int] = {}
        self._last_flight: dict[tuple[int, str], int] = {}
        self._delays: Counter[tuple[str, str]] = Counter()
        self._examples: dict[str, list[str]] = {}
        self._counts: Counter[str] = Counter()
        self._transactions = 0
        self._chained = 0

    def add(self, partition: int, transaction_id: int, data: bytes) -> None:
        """One committed transaction."""
        self._transactions += 1
        expected_id = self._next_id.get(partition, 0)
        if transaction_id != expected_id:
            self._wrong("gap", f"partition {partition} continues with {transaction_id}, not {expected_id}")
        self._next_id[partition] = transaction_id + 1
        try:
            payload = json.loads(data)
            row_id = payload["row"]
            flight = self._flights[row_id] if 0 <= row_id < len(self._flights) else None
        except (ValueError, TypeError, KeyError):
            self._wrong(
                "unreadable",
                f"partition {partition} transaction {transaction_id} is not a flight: {data[:60]!r}",
            )
            return
        where = f"row {row_id} (partition {partition}, transaction {transaction_id})"
        if flight is None:
            self._wrong("foreign row", f"{where} is not in the file")
            return
        if self._seen[row_id]:
            self._wrong("duplicate", f"{where} is in the log more than once")
        self._seen[row_id] = 1
        self._compare(where, flight, payload)
        self._follow_chain(where, partition, transaction_id, flight.tailnum, payload)

    def verdict(self) -> Verdict:
        """The end of the log was reached: what is missing, and do the sums agree?"""
        missing = [row_id for row_id, seen in enumerate(self._seen) if not seen]
        for row_id in missing:
            self._wrong("missing", f"row {row_id} is not in the log")
        self._compare_sums()
        findings = [
            f"{kind} ({self._counts[kind]:,}): {'; '.join(examples)}"
            for kind, examples in self._examples.items()
        ]
        return Verdict(not findings, tuple(findings), self._transactions, self._chained)

    def _compare(self, where: str, flight: Flight, payload: dict[str, object]) -> None:
        in_log = (
            payload.get("carrier"),
            payload.get("flight"),
            payload.get("tailnum"),
            payload.get("origin"),
            payload.get("dest"),
            payload.get("hour"),
            payload.get("dep_delay"),
            payload.get("arr_delay"),
        )
        if in_log != tuple(flight)[1:]:
            self._wrong("different values", f"{where} is not what the file says")
        for key in ("dep_delay", "arr_delay"):
            value = payload.get(key)
            if isinstance(value, int):
                self._delays[str(payload.get("carrier")), key] += value

    def _follow_chain(
        self, where: str, partition: int, transaction_id: int, tailnum: str | None, payload: dict[str, object]
    ) -> None:
        named = payload.get("previous")
        if tailnum is None:
            if named is not None:
                self._wrong("wrong previous", f"{where} has no aircraft and names {named}")
            return
        true_previous = self._last_flight.get((partition, tailnum))
        if named != true_previous:
            self._wrong(
                "wrong previous",
                f"{where} of {tailnum} names {named}, the previous flight is {true_previous}",
            )
        elif named is not None:
            self._chained += 1
        self._last_flight[partition, tailnum] = transaction_id

    def _compare_sums(self) -> None:
        expected: Counter[tuple[str, str]] = Counter()
        for flight in self._flights:
            expected[flight.carrier, "dep_delay"] += flight.departure_delay or 0
            expected[flight.carrier, "arr_delay"] += flight.arrival_delay or 0
        for carrier, key in sorted(expected.keys() | self._delays.keys()):
            in_file, in_log = expected[carrier, key], self._delays[carrier, key]
            if in_file != in_log:
                self._wrong(
                    "sum of delays",
                    f"{key} of {carrier} is {in_log:,} in the log and {in_file:,} in the file",
                )

    def _wrong(self, kind: str, text: str) -> None:
        self._counts[kind] += 1
        examples = self._examples.setdefault(kind, [])
        if len(examples) < _MAX_EXAMPLES_PER_KIND:
            examples.append(text)
