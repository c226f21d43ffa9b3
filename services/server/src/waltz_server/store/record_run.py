"""Consecutive records of one partition, checked, in the form in which they came and in the other one when
somebody asks for it. Pure.

A node that speaks version 1 of the storage protocol hands out and takes stored records, one of release 0.13.2
wire records. What is read from one and written to another of the same version is passed on as it is.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate, pairwise

from waltz_protocol.frames.blocks import record_of_stored, stored_of_record
from waltz_protocol.records import split_records


class RecordRun:
    """Records `first` to `last`; none if `last` is `first` - 1. Made by the `of_…` below; immutable."""

    __slots__ = ("_joined", "_records", "_starts", "_stored", "_wire", "count", "first", "size_bytes")

    def __init__(
        self, first: int, count: int, size_bytes: int, stored: bytes | None, starts: Sequence[int]
    ) -> None:
        self.first = first
        self.count = count
        self.size_bytes = size_bytes
        self._stored = stored
        self._starts = starts
        self._records: list[bytes] | None = None
        self._wire: list[bytes] | None = None
        self._joined: bytes | None = None

    @classmethod
    def of_stored(cls, first: int, data: bytes, starts: Sequence[int]) -> RecordRun:
        """Of stored records back to back; record i of them is from `starts[i]` to `starts[i + 1]`."""
        return cls(first, len(starts) - 1, len(data), data, starts)

    @classmethod
    def of_records(cls, first: int, records: list[bytes]) -> RecordRun:
        """Of stored records, one by one."""
        joined = b"".join(records)
        run = cls(first, len(records), len(joined), joined, ())
        run._records = records
        return run

    @classmethod
    def of_wire(cls, first: int, records: list[bytes]) -> RecordRun:
        """Of wire records."""
        run = cls(first, len(records), sum(map(len, records)), None, ())
        run._wire = records
        return run

    @classmethod
    def of_joined_wire(cls, first: int, count: int, data: bytes) -> RecordRun:
        """Of wire records back to back."""
        run = cls(first, count, len(data), None, ())
        run._joined = data
        return run

    def __len__(self) -> int:
        return self.count

    @property
    def last(self) -> int:
        """The last transaction id."""
        return self.first + self.count - 1

    @property
    def records(self) -> list[bytes]:
        """The stored records, one by one."""
        if self._records is None:
            if self._stored is not None:
                self._records = [self._stored[start:end] for start, end in pairwise(self._starts)]
            else:
                self._records = [stored_of_record(record) for record in self._wire_records()]
        return self._records

    @property
    def starts(self) -> Sequence[int]:
        """Where each record begins in `stored`, and where the last one ends."""
        if not self._starts:
            self._starts = list(accumulate(map(len, self.records), initial=0))
        return self._starts

    def part(self, first: int, last: int) -> RecordRun:
        """Those of the stored records that are from `first` to `last`; none may be."""
        if first <= self.first and last >= self.last:
            return self
        at, end = max(first - self.first, 0), min(last - self.first + 1, self.count)
        return RecordRun.of_records(self.first + at, self.records[at : max(end, at)])

    @property
    def stored(self) -> bytes:
        """The stored records back to back."""
        if self._stored is None:
            self._stored = b"".join(self.records)
        return self._stored

    @property
    def wire(self) -> bytes:
        """The wire records back to back."""
        if self._joined is None:
            self._joined = b"".join(self._wire_records())
        return self._joined

    def _wire_records(self) -> list[bytes]:
        if self._wire is None:
            if self._joined is not None:
                self._wire = [bytes(view) for view in split_records(memoryview(self._joined), self.count)]
            else:
                self._wire = [record_of_stored(record) for record in self.records]
        return self._wire
