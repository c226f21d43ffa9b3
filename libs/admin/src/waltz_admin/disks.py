"""What a storage node reports about its disk: bytes of its log, how fast they grow, when the free space ends.

The figures are gauges of the node, in the metrics message of its admin port. Nodes of release 0.13.2 have
none of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

_GROUP = "waltz-storage"
_FIGURES = (
    "log-bytes", "log-growth-bytes-per-day", "log-growth-window-seconds", "disk-size-bytes", "disk-free-bytes",
    "disk-reserve-bytes", "disk-days-to-full", "disk-full",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class NodeDisk:
    """One node's disk, as of its last look (every ten seconds). Sizes in bytes; None = not known to the node.

    `growth_bytes_per_day` is that of the last `window_seconds` (24 hours, or since the node's start).
    `days_to_full` is the time until only the reserve is left and appends are refused.
    """

    log_bytes: int | None
    growth_bytes_per_day: float | None
    window_seconds: float | None
    size_bytes: int | None
    free_bytes: int | None
    reserve_bytes: int | None
    days_to_full: float | None
    full: bool


def parse_disk(metrics: Mapping[str, object]) -> NodeDisk | None:
    """The figures in the metrics message; None when the node reports none. Pure."""
    gauges = metrics.get("gauges")
    if not isinstance(gauges, Mapping) or f"{_GROUP}.disk-full" not in gauges:
        return None
    prefix = f"{_GROUP}."
    return disk_of(
        {
            name.removeprefix(prefix): entry.get("value")
            for name in (f"{prefix}{figure}" for figure in _FIGURES)
            if isinstance(entry := gauges.get(name), Mapping)
        }
    )


def disk_of(figures: Mapping[str, object]) -> NodeDisk:
    """The figures by the names of the gauges, without their group. Pure."""
    value = figures.get

    def number(name: str) -> float | None:
        found = value(name)
        return float(found) if isinstance(found, int | float) else None

    def size(name: str) -> int | None:
        found = value(name)
        return found if isinstance(found, int) else None

    return NodeDisk(
        size("log-bytes"),
        number("log-growth-bytes-per-day"),
        number("log-growth-window-seconds"),
        size("disk-size-bytes"),
        size("disk-free-bytes"),
        size("disk-reserve-bytes"),
        number("disk-days-to-full"),
        value("disk-full") is True,
    )
