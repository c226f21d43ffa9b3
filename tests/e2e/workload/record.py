"""What the writers know: which append of which partition was acknowledged as which transaction, and how long
none was.

Knows no socket and no clock: times come in from outside, as seconds of one monotonic clock.
"""

from __future__ import annotations

from dataclasses import dataclass, field

RARE_SECONDS = 0.5


@dataclass(slots=True)
class PartitionRecord:
    """One partition, written by one writer, one append after another. Sequence numbers count its appends from
    0."""

    acknowledged: dict[int, int] = field(default_factory=dict)
    """Sequence number -> transaction id."""
    unknown: set[int] = field(default_factory=set)
    """Sent, and never answered."""
    failed: set[int] = field(default_factory=set)
    """Certainly not in the log, says the client."""
    last_acknowledged_at: float | None = None
    longest_gap_seconds: float = 0.0
    lap_gap_seconds: float = 0.0
    """The longest one since the last call of `lap`: a part of the round."""

    def acknowledge(self, sequence: int, transaction_id: int, now: float) -> None:
        """An append was committed."""
        self.acknowledged[sequence] = transaction_id
        self._note(now)
        self.last_acknowledged_at = now

    def start_round(self, now: float) -> None:
        """Measure gaps from now on."""
        self.longest_gap_seconds = 0.0
        self.last_acknowledged_at = now

    def longest_gap(self, now: float) -> float:
        """Longest time between acknowledgements since `start_round`, the present one included
        included."""
        self._note(now)
        return self.longest_gap_seconds

    def lap(self, now: float) -> float:
        """Longest time between acknowledgements since the last call, the present one included
        included."""
        self._note(now)
        found, self.lap_gap_seconds = self.lap_gap_seconds, 0.0
        return found

    def _note(self, now: float) -> None:
        if self.last_acknowledged_at is not None:
            gap = now - self.last_acknowledged_at
            self.longest_gap_seconds = max(self.longest_gap_seconds, gap)
            self.lap_gap_seconds = max(self.lap_gap_seconds, gap)


@dataclass(slots=True)
class Record:
    """All partitions. `run` makes the payloads of one writer process unlike those of any other; every
    `interval_seconds` each of them is appended to, or as often as outcomes come."""

    run: str
    partitions: dict[int, PartitionRecord] = field(default_factory=dict)
    interval_seconds: float = 0.05
    rare: frozenset[int] = frozenset()
    """Partitions that are appended to once in `RARE_SECONDS` only."""

    def interval_of(self, partition: int) -> float:
        """Seconds from one append to a partition to the next."""
        return RARE_SECONDS if partition in self.rare else self.interval_seconds

    def payload(self, partition: int, sequence: int) -> bytes:
        """What is appended."""
        return f"{self.run}/{partition}/{sequence}".encode()

    def sequence(self, partition: int, payload: bytes) -> int | None:
        """The sequence number of a payload of this run; None for any other."""
        run, _, rest = payload.decode(errors="replace").partition("/")
        number, _, sequence = rest.partition("/")
        if run != self.run or number != str(partition) or not sequence.isdigit():
            return None
        return int(sequence)

    def totals(self) -> dict[str, int]:
        """Counts over all partitions."""
        parts = self.partitions.values()
        return {
            "acknowledged": sum(len(part.acknowledged) for part in parts),
            "unknown": sum(len(part.unknown) for part in parts),
            "failed": sum(len(part.failed) for part in parts),
        }
