"""Positions in the log: what a query asked for, and the offsets of a stream. Pure.

An offset is the id of the *next* transaction to read, for each partition, with the key of the cluster it
belongs to. As JSON it is one flat object, `{"0": 12, "1": 7, "cluster": "..."}`, partitions ascending:
Spark compares offsets as text, so equal places must have equal text. The offset where the first batch of a
query ends has `"began": {"0": 5, "1": 7}` besides: Spark does not keep where that batch began.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

EARLIEST = "earliest"
LATEST = "latest"
Position = str | Mapping[int, int]
"""`EARLIEST`, `LATEST`, or partition to transaction id, -1 (latest) or -2 (earliest)."""

FIRST_TRANSACTION = 0
_LATEST_ID, _EARLIEST_ID = -1, -2
_CLUSTER, _BEGAN = "cluster", "began"


class PlaceError(ValueError):
    """A place that is not in the log, or not one; the message is one line without a subject."""


@dataclass(frozen=True, slots=True)
class Offsets:
    """Next transaction per partition, of one cluster. `began`: where the batch that ends here began, if it is
    the first one of its query."""

    cluster: str
    next_ids: Mapping[int, int]
    began: Mapping[int, int] | None = None

    def to_json(self) -> dict[str, Any]:
        """As Spark keeps it, in a fixed order."""
        began = {} if self.began is None else {_BEGAN: _as_json(self.began)}
        return {**_as_json(self.next_ids), _CLUSTER: self.cluster, **began}

    @classmethod
    def from_json(cls, given: Mapping[str, object]) -> Offsets:
        """What `to_json` made; PlaceError for anything else."""
        cluster = given.get(_CLUSTER)
        if not isinstance(cluster, str):
            raise PlaceError("offsets without the key of their cluster")
        began = given.get(_BEGAN)
        if began is not None and not isinstance(began, Mapping):
            raise PlaceError(f"{_BEGAN!r}: {began!r} are not offsets of partitions")
        places = {key: value for key, value in given.items() if key not in (_CLUSTER, _BEGAN)}
        return cls(cluster, _from_json(places), None if began is None else _from_json(began))


def _as_json(next_ids: Mapping[int, int]) -> dict[str, int]:
    return {str(p): next_ids[p] for p in sorted(next_ids)}


def _from_json(given: Mapping[str, object]) -> dict[int, int]:
    next_ids = {}
    for key, value in given.items():
        if not key.isdecimal() or isinstance(value, bool) or not isinstance(value, int) or value < 0:
            raise PlaceError(f"{key!r}: {value!r} is not an offset of a partition")
        next_ids[int(key)] = value
    return next_ids


def chosen_partitions(wanted: Iterable[int] | None, num_partitions: int) -> tuple[int, ...]:
    """The partitions to read, ascending. PlaceError for one that the cluster does not have."""
    if wanted is None:
        return tuple(range(num_partitions))
    chosen = tuple(sorted(set(wanted)))
    for partition in chosen:
        if partition >= num_partitions:
            raise PlaceError(f"there is no partition {partition}, the cluster has 0 to {num_partitions - 1}")
    return chosen


def resolve(place: Position, ends: Mapping[int, int]) -> dict[int, int]:
    """Next transaction per partition of `ends` (where each partition's log ends now).

    A mapping must name exactly these partitions. Ids beyond the end are kept: the caller decides what they
    mean. PlaceError.
    """
    if isinstance(place, str):
        return {p: FIRST_TRANSACTION if place == EARLIEST else end for p, end in ends.items()}
    missing = [p for p in ends if p not in place]
    foreign = [p for p in place if p not in ends]
    if missing:
        raise PlaceError(f"partition {missing[0]} is not named, and it is read")
    if foreign:
        raise PlaceError(f"partition {foreign[0]} is named, but it is not read")
    special = {_EARLIEST_ID: lambda p: FIRST_TRANSACTION, _LATEST_ID: lambda p: ends[p]}
    return {p: special[place[p]](p) if place[p] in special else place[p] for p in ends}


def beyond(places: Mapping[int, int], ends: Mapping[int, int]) -> list[tuple[int, int, int]]:
    """(partition, place, end) of every place that lies behind the end of its log."""
    return [(p, places[p], ends[p]) for p in sorted(places) if p in ends and places[p] > ends[p]]


def clipped(places: Mapping[int, int], ends: Mapping[int, int]) -> dict[int, int]:
    """Places moved back to the end of their log where they lie behind it."""
    return {p: min(place, ends.get(p, place)) for p, place in places.items()}


def lag(read: Offsets, latest: Offsets) -> dict[int, int]:
    """Transactions that are committed and not read yet, per partition. What `read` does not know counts
    from the beginning."""
    return {p: max(end - read.next_ids.get(p, FIRST_TRANSACTION), 0) for p, end in latest.next_ids.items()}
