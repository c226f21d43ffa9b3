"""Where batches of a streaming query started, kept next to its checkpoint by the driver.

One small file per batch: for each partition of the log a transaction id from before the first attempt at the
batch. Attempts read back from there and no further. The file of batch n+1 is written when batch n is
complete, before Spark notes the same. When the driver dies between the two, batch n is repeated and finds its
rows in the log. Files are written once: whoever comes later keeps what is there.

A note says what it is valid for (`Owner`): ids of transactions mean nothing in another cluster, and claims
under another header are not found.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from waltz_spark.folder import Folder
from waltz_spark.sink.errors import StaleBatchError, StateError

_PREFIX, _SUFFIX, _FIRST = "batch-", ".json", "first"
_KEPT = 10
Marks = Mapping[int, int]


@dataclass(frozen=True, slots=True)
class Owner:
    """What notes are valid for: the key of the cluster, and the header of the claims."""

    cluster: str
    claim_header: int


@dataclass(frozen=True, slots=True)
class Starts:
    """`first`: where the query started. `batches`: where later batches did. `owner`: None where nothing is
    noted."""

    first: Marks
    batches: Mapping[int, Marks] = field(default_factory=dict)
    owner: Owner | None = None

    def of(self, batch: int) -> Marks:
        """Where a batch started: what is noted for it, or for the nearest one before it. A later batch than
        the first one without such a note has lost it, and `first` may be newer than the batch: it starts at
        the beginning of the log, where the claims show what its earlier attempts have written."""
        before = [number for number in self.batches if number <= batch]
        if before:
            return self.batches[max(before)]
        return self.first if batch == 0 else {}

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
    """The folder. `location`: see `waltz_spark.folder`. `owner`: what the notes must be valid for; those of
    earlier releases do not say it and are accepted. Errors: StateError, one line."""

    def __init__(self, location: str, owner: Owner | None) -> None:
        self._location = location
        self._owner = owner
        advice = "set the option stateLocation to a folder that outlives the driver, a path or a URI (file, s3, gs, hdfs, abfs)"
        if location.startswith(("s3a://", "s3n://")):
            advice += f", here s3{location[3:]}"
        with self._told(advice):
            self._folder = Folder(location)

    def read(self) -> Starts | None:
        """What is noted; None before the first batch of a query."""
        with self._told():
            found = {
                name[len(_PREFIX) : -len(_SUFFIX)]: self._marks(json.loads(self._folder.read(name)))
                for name in self._folder.names()
                if name.startswith(_PREFIX) and name.endswith(_SUFFIX)
            }
        first = found.pop(_FIRST, None)
        if first is None:
            return None
        batches = {int(number): marks for number, marks in found.items() if number.isdecimal()}
        return Starts(first, batches, self._owner)

    def has_sibling(self, name: str) -> bool:
        """Whether there is a file of that name next to the folder."""
        with self._told():
            return name in Folder(self._location.rpartition("/")[0] or "/").names()

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
        content: dict[str, object] = {"format": 1}
        if self._owner is not None:
            content |= {"cluster": self._owner.cluster, "claimHeader": self._owner.claim_header}
        content["start"] = {str(partition): marks[partition] for partition in sorted(marks)}
        with self._told():
            self._folder.create(f"{_PREFIX}{batch}{_SUFFIX}", json.dumps(content).encode())

    def _marks(self, note: Mapping[str, Any]) -> Marks:
        if self._owner is not None:
            self._check(note, self._owner)
        return {int(partition): int(mark) for partition, mark in note["start"].items()}

    def _check(self, note: Mapping[str, Any], owner: Owner) -> None:
        cluster, header = note.get("cluster", owner.cluster), note.get("claimHeader", owner.claim_header)
        if cluster != owner.cluster:
            raise StateError(
                f"stateLocation {self._location}: what is noted there belongs to a write to another cluster (key {cluster}, this one has "
                f"{owner.cluster}): give each cluster its own checkpointLocation or stateLocation"
            )
        if header != owner.claim_header:
            raise StateError(
                f"stateLocation {self._location}: earlier attempts wrote with claimHeader = {header}, and this run has "
                f"{owner.claim_header}: it would not find their claims, and write their rows again; set the option claimHeader to {header}"
            )

    @contextlib.contextmanager
    def _told(self, advice: str = "give a folder that the driver can write") -> Iterator[None]:
        try:
            yield
        except (OSError, ValueError, KeyError, NotImplementedError) as error:
            raise StateError(f"stateLocation {self._location} cannot be used ({error}): {advice}") from None
