"""What a recovery asks its owner to do, and what it waits for. Pure values."""

from __future__ import annotations

import enum
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Wait:
    """Nothing to do for this replica until something else happens."""


@dataclass(frozen=True, slots=True)
class Truncate:
    """Keep the records up to `keep`; report with `Recovery.truncated`."""

    keep: int


@dataclass(frozen=True, slots=True)
class Compare:
    """Read the headers of the records first..last here and on `reference`; report with
    `Recovery.compared`."""

    reference: str
    first: int
    last: int


@dataclass(frozen=True, slots=True)
class Copy:
    """Append the records first..last (or a first part of them) from `source`; report with
    `Recovery.copied`."""

    source: str
    first: int
    last: int


@dataclass(frozen=True, slots=True)
class SetLowWaterMark:
    """Send Set low-water mark; report with `Recovery.low_water_mark_set`."""

    low_water_mark: int


@dataclass(frozen=True, slots=True)
class Recovered:
    """The replica holds exactly what is resolved; it waits to be listed."""


@dataclass(frozen=True, slots=True)
class Refuse:
    """The replica contradicts the log; it is left untouched and takes no part in this session."""

    reason: str


Step = Wait | Truncate | Compare | Copy | SetLowWaterMark | Recovered | Refuse


class Condition(enum.Enum):
    """What a recovery is waiting for."""

    GATHERING = "gathering"
    NO_QUORUM = "no_quorum"
    UNDECIDABLE = "undecidable"
    FAULT = "fault"
    COPYING = "copying"
    COMPLETE = "complete"
