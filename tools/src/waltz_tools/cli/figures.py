"""Numbers that a person reads with a unit and a program without: tables show the text, JSON the number."""

from __future__ import annotations

_UNITS = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")
_STEP = 1024


class SizeBytes(int):
    """Bytes; `12.3 GiB` in a table."""

    def __str__(self) -> str:
        size, unit = float(self), _UNITS[0]
        for unit in _UNITS:  # noqa: B007 - the last one is used
            if abs(size) < _STEP:
                break
            size /= _STEP
        else:
            size *= _STEP
        return f"{int(self)} B" if unit == "B" else f"{size:,.1f} {unit}"


class Days(float):
    """Days; hours below two of them."""

    def __str__(self) -> str:
        if self < 2:
            return f"{float(self) * 24:.1f} h"
        return f"{float(self):,.0f} days"


class Seconds(float):
    """A time span; minutes and hours where they fit."""

    def __str__(self) -> str:
        for limit, size, unit in ((120, 1, "s"), (7200, 60, "min")):
            if self < limit:
                return f"{float(self) / size:.0f} {unit}"
        return f"{float(self) / 3600:.0f} h"


class Duration(float):
    """A short time in seconds: `0.84 ms`, `12 ms`, `1.2 s`."""

    def __str__(self) -> str:
        if self >= 1:
            return f"{float(self):.1f} s"
        ms = float(self) * 1000
        return f"{ms:.2f} ms" if ms < 10 else f"{ms:.0f} ms"


def duration_or_none(value: float | None) -> Duration | None:
    """To a microsecond."""
    return None if value is None else Duration(round(value, 6))


def counted(number: int, what: str) -> str:
    """`1 finding`, `2 findings`."""
    return f"{number} {what}{'' if number == 1 else 's'}"


def size_or_none(value: float | None) -> SizeBytes | None:
    """Whole bytes."""
    return None if value is None else SizeBytes(round(value))


def days_or_none(value: float | None) -> Days | None:
    """Days to a tenth of an hour, which is more than anybody knows."""
    return None if value is None else Days(round(value, 3))
