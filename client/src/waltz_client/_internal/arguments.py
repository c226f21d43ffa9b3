"""Numbers that callers give: what is no number is refused by name, before anything is sent or put down."""

from __future__ import annotations

import numbers
import operator
from collections.abc import Iterable, Mapping
from typing import TypeVar

from waltz_client.errors import UsageError

T = TypeVar("T")

LAST_ID = 2**63 - 1


def whole_number(name: str, given: object) -> int:
    """Any integer, those of numpy too; UsageError. Its range is the caller's business."""
    try:
        return operator.index(given)  # type: ignore[arg-type]
    except TypeError:
        raise UsageError(f"{name} is a whole number, not {given!r}") from None


def counted_number(name: str, given: object) -> int:
    """As `whole_number`, but no bool: what it numbers has no number that is true."""
    if isinstance(given, bool):
        raise UsageError(f"{name} is a whole number, not {given!r}")
    return whole_number(name, given)


def partition_number(given: object) -> int:
    """The number of a partition; UsageError. Whether the cluster has it is the caller's business."""
    return counted_number("a partition", given)


def partition_numbers(given: object) -> list[int]:
    """Of one partition, or of several; UsageError."""
    return [partition_number(one) for one in (given if isinstance(given, Iterable) else (given,))]


def for_partition(name: str, given: T | Mapping[int, T], partition_id: int) -> T:
    """What is given for all partitions, or in a mapping for this one; UsageError where it leaves that out."""
    if not isinstance(given, Mapping):
        return given
    try:
        return given[partition_id]
    except KeyError:
        raise UsageError(f"{name} has nothing for partition {partition_id}") from None


def time_limit(name: str, given: object) -> float:
    """A time limit: a real number, infinity too, but not NaN, at which no time ever comes; UsageError. One
    that is not above 0 has passed."""
    if not isinstance(given, bool) and isinstance(given, numbers.Real):
        try:
            limit = float(given)
        except OverflowError:
            raise UsageError(f"{name} is more seconds than can be counted") from None
        if limit == limit:  # not NaN
            return limit
    raise UsageError(f"{name} is a number of seconds, not {given!r}")


def attempts(given: object, default: int) -> int:
    """`max_attempts` of a call, or the default of the settings; 0: as many as the deadline allows.
    UsageError."""
    number = default if given is None else counted_number("max_attempts", given)
    if number < 0:
        raise UsageError(f"max_attempts is a number of attempts, or 0 for no limit, not {number}")
    return number


def call_deadline(given: object, default_ms: int) -> float:
    """`deadline_seconds` of a call, or the default of the settings; UsageError."""
    return default_ms / 1000 if given is None else time_limit("deadline_seconds", given)
