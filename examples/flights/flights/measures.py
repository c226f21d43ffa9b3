"""What writers measure: when each partition committed, how long appends took, how often they were tried
again.

Instants are `time.monotonic()` values, which all processes of one machine share on Linux; they are kept in
buckets of 10 ms so that a writer's whole history fits in one short message.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import pairwise

BUCKET_SECONDS = 0.01
_LATENCY_STEP = 1.08  # each bucket is 8 % wider than the one before: quantiles are that exact
_LATENCY_UNIT_SECONDS = 0.0001


@dataclass(slots=True)
class Measures:
    """Counters of one writer, or of several merged."""

    committed: int = 0
    retries: int = 0
    lock_conflicts: int = 0
    unknown_resolved_present: int = 0
    unknown_resolved_absent: int = 0
    latencies: Counter[int] = field(default_factory=Counter)
    commits: dict[int, Counter[int]] = field(default_factory=dict)
    """Partition → bucket of time → commits."""

    def commit(self, partition: int, now_seconds: float, latency_seconds: float) -> None:
        self.committed += 1
        self.latencies[latency_bucket(latency_seconds)] += 1
        self.commits.setdefault(partition, Counter())[int(now_seconds / BUCKET_SECONDS)] += 1

    @property
    def write_seconds(self) -> float:
        """From the first commit to the last."""
        instants = [instant for buckets in self.commits.values() for instant in buckets]
        return (max(instants) - min(instants) + 1) * BUCKET_SECONDS if instants else 0.0

    @property
    def commits_per_second(self) -> float:
        """Over `write_seconds`, pauses included."""
        return self.committed / self.write_seconds if self.committed else 0.0

    def merge(self, other: Measures) -> None:
        self.committed += other.committed
        self.retries += other.retries
        self.lock_conflicts += other.lock_conflicts
        self.unknown_resolved_present += other.unknown_resolved_present
        self.unknown_resolved_absent += other.unknown_resolved_absent
        self.latencies.update(other.latencies)
        for partition, buckets in other.commits.items():
            self.commits.setdefault(partition, Counter()).update(buckets)

    def to_message(self) -> dict[str, object]:
        """As JSON can carry it."""
        return {
            "committed": self.committed,
            "retries": self.retries,
            "lock_conflicts": self.lock_conflicts,
            "unknown_present": self.unknown_resolved_present,
            "unknown_absent": self.unknown_resolved_absent,
            "latencies": list(self.latencies.items()),
            "commits": [[partition, list(buckets.items())] for partition, buckets in self.commits.items()],
        }

    @classmethod
    def from_message(cls, message: Mapping[str, object]) -> Measures:
        latencies, commits = message["latencies"], message["commits"]
        if not isinstance(latencies, list) or not isinstance(commits, list):
            raise ValueError("not a message of a writer")
        return cls(
            _count(message["committed"]),
            _count(message["retries"]),
            _count(message["lock_conflicts"]),
            _count(message["unknown_present"]),
            _count(message["unknown_absent"]),
            Counter(dict(latencies)),
            {partition: Counter(dict(buckets)) for partition, buckets in commits},
        )

    def latency_quantile_ms(self, quantile: float) -> float:
        """Milliseconds below which this share of appends was answered; 0 without any."""
        wanted = quantile * self.latencies.total()
        reached = 0
        for bucket in sorted(self.latencies):
            reached += self.latencies[bucket]
            if reached >= wanted:
                return _LATENCY_UNIT_SECONDS * _LATENCY_STEP**bucket * 1000
        return 0.0


def _count(value: object) -> int:
    if not isinstance(value, int):
        raise ValueError("not a message of a writer")
    return value


def latency_bucket(seconds: float) -> int:
    """Index of the bucket that holds this latency."""
    return max(
        0, math.ceil(math.log(max(seconds, _LATENCY_UNIT_SECONDS) / _LATENCY_UNIT_SECONDS, _LATENCY_STEP))
    )


def longest_pause_seconds(buckets: Iterable[int], start_seconds: float, end_seconds: float) -> float:
    """Longest time without a commit that begins before `end_seconds` and is not over at `start_seconds`. 0
    without commits."""
    ordered = sorted(buckets)
    first, last = int(start_seconds / BUCKET_SECONDS), int(end_seconds / BUCKET_SECONDS)
    pauses = (after - before for before, after in pairwise(ordered) if after >= first and before < last)
    return max(pauses, default=0) * BUCKET_SECONDS
