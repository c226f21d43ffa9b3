"""Where batches of a streaming query started, kept next to its checkpoint by the driver.

One small file per batch: for each partition of the log a transaction id from before the first attempt at the
batch. Attempts read back from there and no further. The file of batch n+1 is written when batch n is
complete, before Spark notes the same. When the driver dies between the two, batch n is repeated and finds its
rows in the log. Files are written once: whoever comes later keeps what is there.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from waltz_spark.folder import Folder
from waltz_spark.sink.errors import StaleBatchError, StateError

_PREFIX, _SUFFIX, _FIRST = "batch-", ".json", "first"
_KEPT = 10
Marks = Mapping[int, int]


@dataclass(frozen=True, slots=True)
class Starts:
    """`first`: where the query started. `batches`: where later batches did."""

    first: Marks
    batches: Mapping[int, Marks] = field(default_factory=dict)

    def of(self, batch: int) -> Marks:
        """Where a batch started: what is noted for it, or for the nearest one before it."""
        before = [number for number in self.batches if number <= batch]
        return self.batches[max(before)] if before else self.first

    def is_complete(self, batch: int) -> bool:
        """Whether all rows of the batch are in the log."""
        return batch + 1 in self.batches

    def check_place(self, batch: int) -> None:
        """StaleBatchError when batches after the next one to this have begun."""
        last = max(self.batches, default=0)
        if last > batch + 1:
            raise StaleBatchError(
                f"batch {batch} was to be written, but batch {last - 1} is complete: the checkpoint was rolled back, or stateLocation "
                "belongs to another query"
            )


class StartsFolder:
    """The folder. `location`: see `waltz_spark.folder`. Errors: StateError, one line."""

    def __init__(self, location: str) -> None:
        self._location = location
        with self._told():
            self._folder = Folder(location)

    def read(self) -> Starts | None:
        """What is noted; None before the first batch of a query."""
        with self._told():
            found = {
                name[len(_PREFIX) : -len(_SUFFIX)]: _marks(self._folder.read(name))
                for name in self._folder.names()
                if name.startswith(_PREFIX) and name.endswith(_SUFFIX)
            }
        first = found.pop(_FIRST, None)
        if first is None:
            return None
        return Starts(first, {int(number): marks for number, marks in found.items() if number.isdecimal()})

    def note_first(self, marks: Marks) -> Starts:
        """Where the query starts, unless that is noted; what is noted then."""
        self._create(_FIRST, marks)
        starts = self.read()
        if starts is None:
            raise StateError(f"stateLocation {self._location}: a file that was just written is not there")
        return starts

    def note_complete(self, batch: int, marks: Marks) -> None:
        """A batch is complete: the next one starts at `marks`. Old files go."""
        self._create(str(batch + 1), marks)
        starts = self.read()
        with self._told():
            for old in sorted(starts.batches if starts else ())[:-_KEPT]:
                self._folder.delete(f"{_PREFIX}{old}{_SUFFIX}")

    def _create(self, batch: str, marks: Marks) -> None:
        content = {"format": 1, "start": {str(partition): marks[partition] for partition in sorted(marks)}}
        with self._told():
            self._folder.create(f"{_PREFIX}{batch}{_SUFFIX}", json.dumps(content).encode())

    @contextlib.contextmanager
    def _told(self) -> Iterator[None]:
        try:
            yield
        except (OSError, ValueError, KeyError, NotImplementedError) as error:
            raise StateError(
                f"stateLocation {self._location} cannot be used ({error}): give a folder that the driver can write"
            ) from None


def _marks(content: bytes) -> Marks:
    return {int(partition): int(mark) for partition, mark in json.loads(content)["start"].items()}
