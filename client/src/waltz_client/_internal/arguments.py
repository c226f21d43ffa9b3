"""Numbers that callers give: what is no number is refused by name, before anything is sent or put down."""

from __future__ import annotations

import numbers
import operator

from waltz_client.errors import UsageError

LAST_ID = 2**63 - 1


def whole_number(name: str, given: object) -> int:
    """Any integer, those of numpy too; UsageError. Its range is the caller's business."""
    try:
        return operator.index(given)  # type: ignore[arg-type]
    except TypeError:
        raise UsageError(f"{name} is a whole number, not {given!r}") from None


def partition_number(given: object) -> int:
    """UsageError for anything but an int."""
    if isinstance(given, bool) or not isinstance(given, int):
        raise UsageError(f"a partition is a number, not {given!r}")
    return given


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


def call_deadline(given: object, default_ms: int) -> float:
    """`deadline_seconds` of a call, or the default of the settings; UsageError."""
    return default_ms / 1000 if given is None else time_limit("deadline_seconds", given)
