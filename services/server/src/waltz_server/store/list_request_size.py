"""How many records the next list request asks for (weakness 7.13: a count is all that the wire can say).

Storage nodes of release 0.13.2 put as many records into an answer as were asked for, however large they are.
An answer above the frame limit closes the connection, which carries all partitions of this server; so a
request asks for no more than what has just been seen to fit allows.

Invariants
* The first request, and the first one after a failed one, asks for one record, which always fits a frame.
* A success at most doubles the count, up to `MAX_RECORDS`; full size is a logarithmic number of requests
  away.
* The expected size of an answer is at most the byte target of the caller; larger records are believed at
  once, smaller ones by halves.

Owner: the partition's store, on the loop; it outlives sessions, because the records do.
"""

from __future__ import annotations

MAX_RECORDS = 1000


class ListRequestSize:
    """Learns from the answers of one partition's list requests, whoever asked. Pure."""

    def __init__(self) -> None:
        self._records = 1
        self._bytes_per_record = 0.0

    def ask(self, wanted: int, target_bytes: int) -> int:
        """At least one and at most `wanted` records, expected to take at most `target_bytes`."""
        count = min(wanted, self._records)
        if self._bytes_per_record:
            count = min(count, int(target_bytes / self._bytes_per_record))
        return max(1, count)

    def answered(self, asked: int, records: int, size_bytes: int) -> None:
        """A list request for `asked` records brought `records` >= 1 of them, `size_bytes` together."""
        average = size_bytes / records
        self._bytes_per_record = max(average, (self._bytes_per_record + average) / 2)
        if asked >= self._records:
            self._records = min(MAX_RECORDS, 2 * self._records)

    def failed(self) -> None:
        """A list request ended without an answer (or its caller gave up): the answer may have been too
        large."""
        self._records = 1
