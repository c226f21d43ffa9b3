"""A figure of the benchmark, its target, and how several runs become one value."""

from __future__ import annotations

import enum
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from bench.latency import median


class Wanted(enum.Enum):
    """Which side of the target is good."""

    AT_LEAST = ">="
    AT_MOST = "<="


@dataclass(frozen=True, slots=True)
class Target:
    """A bound; `binding` targets decide whether the benchmark as a whole is met, the others are for
    orientation."""

    wanted: Wanted
    bound: float
    binding: bool = False

    def met(self, value: float) -> bool:
        """Whether `value` is on the good side."""
        return value >= self.bound if self.wanted is Wanted.AT_LEAST else value <= self.bound

    def __str__(self) -> str:
        return f"{self.wanted.value} {self.bound:,g}"


@dataclass(frozen=True, slots=True)
class Figure:
    """One measured value (or the median of several runs) and what belongs to it.

    `load` says under what load, with the number of transactions in flight per partition, `note` what else is
    worth a glance (of the run that gave the value); `details` goes into the JSON.
    """

    group: str
    name: str
    value: float
    unit: str
    target: Target | None = None
    load: str = ""
    note: str = ""
    runs: tuple[float, ...] = ()
    details: Mapping[str, object] = field(default_factory=dict)

    @property
    def key(self) -> tuple[str, str, str]:
        return (self.group, self.name, self.load)

    @property
    def verdict(self) -> str:
        """met, missed, or nothing where there is no target."""
        if self.target is None:
            return ""
        return "met" if self.target.met(self.value) else "missed"

    def as_json(self) -> dict[str, object]:
        return {
            "group": self.group,
            "name": self.name,
            "value": self.value,
            "unit": self.unit,
            "target": str(self.target) if self.target else None,
            "binding": bool(self.target and self.target.binding),
            "verdict": self.verdict or None,
            "load": self.load,
            "note": self.note,
            "runs": list(self.runs) or [self.value],
            "details": dict(self.details),
        }


def at_least(bound: float, *, binding: bool = False) -> Target:
    return Target(Wanted.AT_LEAST, bound, binding)


def at_most(bound: float, *, binding: bool = False) -> Target:
    return Target(Wanted.AT_MOST, bound, binding)


def medians(runs: Iterable[Iterable[Figure]]) -> list[Figure]:
    """One figure per key: the median of the runs, with the details of the run it comes from; order of first
    sight."""
    seen: dict[tuple[str, str, str], list[Figure]] = {}
    for run in runs:
        for figure in run:
            seen.setdefault(figure.key, []).append(figure)
    merged: list[Figure] = []
    for figures in seen.values():
        value = median([figure.value for figure in figures])
        chosen = next(figure for figure in figures if figure.value == value)
        merged.append(replace(chosen, runs=tuple(figure.value for figure in figures)))
    return merged


def tls_name(tls: bool) -> str:
    return "TLS on" if tls else "TLS off"
