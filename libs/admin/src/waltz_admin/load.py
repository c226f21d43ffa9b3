"""How loaded a server is, and by which of its partitions: the part *load* of a server's report. Pure.

The load is the processor's: a server is one process on one core at most, and that core is what another server
can take a partition's part of. A server knows what its process has used, not for whom; it is divided among
its partitions by what their work grows with. Averages are the server's own, so nothing has to be remembered
by who asks, and no metrics server is needed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

WINDOWS_MINUTES = (1, 5, 15)
"""Over which a server averages."""
BYTES_PER_APPEND = 16_384
"""So many bytes of appends cost a server about as much as one append without data."""
FED_PER_APPEND = 20
"""So many transactions sent to clients that follow cost about as much as one append."""


class PartitionRates(NamedTuple):
    """What a partition's work grows with, per second."""

    appends: float = 0.0
    append_bytes: float = 0.0
    fed: float = 0.0

    @property
    def work(self) -> float:
        """In appends per second that cost as much."""
        return self.appends + self.append_bytes / BYTES_PER_APPEND + self.fed / FED_PER_APPEND


@dataclass(frozen=True, slots=True)
class ServerLoad:
    """Of one server. `cpu`: parts of a core, and `rates`: partition → rates, for each of the windows; a
    partition that is not there is idle. `measured_seconds`: since when the server has all of its
    partitions."""

    measured_seconds: float
    cpu: tuple[float, ...]
    rates: Mapping[int, tuple[PartitionRates, ...]] = field(default_factory=dict)

    def cores(self, minutes: int) -> float:
        """What the process has used, parts of a core."""
        return self.cpu[WINDOWS_MINUTES.index(minutes)]

    def of_partitions(self, minutes: int) -> dict[int, float]:
        """Partition → its part of that; they add up to `cores` where anything was done at all."""
        index = WINDOWS_MINUTES.index(minutes)
        work = {partition: rates[index].work for partition, rates in self.rates.items()}
        total = sum(work.values())
        return {partition: self.cpu[index] * one / total for partition, one in work.items() if total > 0}


def costs(servers: Iterable[ServerLoad], minutes: int) -> dict[int, float]:
    """Partition → what it costs whichever server has it, parts of a core.

    A process uses a few percent when nobody asks anything of it, and these do not move with a partition. So
    work costs everywhere what it costs where a core does most of it.
    """
    index, work, prices = WINDOWS_MINUTES.index(minutes), dict[int, float](), list[float]()
    for server in servers:
        own = {partition: rates[index].work for partition, rates in server.rates.items()}
        total = sum(own.values())
        if total > 0:
            prices.append(server.cpu[index] / total)
        work |= own
    return {partition: one * min(prices, default=0.0) for partition, one in work.items()}


def parse_load(found: Mapping[str, Any]) -> ServerLoad | None:
    """Of the member `load` of a report; None where it is missing or something else."""
    measured, cpu, partitions = found.get("measured_seconds"), found.get("cpu"), found.get("partitions")
    if not isinstance(measured, int | float) or not isinstance(partitions, dict) or not _figures(cpu):
        return None
    rates = {}
    for number, rows in partitions.items():
        known = number.isdecimal() and isinstance(rows, list) and len(rows) == len(PartitionRates._fields)
        if not known or not all(map(_figures, rows)):
            return None
        rates[int(number)] = tuple(PartitionRates(*map(float, at)) for at in zip(*rows, strict=True))
    return ServerLoad(float(measured), tuple(map(float, cpu or ())), rates)


def _figures(value: object) -> bool:
    """One for each window, none of them negative."""
    return (
        isinstance(value, list)
        and len(value) == len(WINDOWS_MINUTES)
        and all(isinstance(one, int | float) and one >= 0 for one in value)
    )
