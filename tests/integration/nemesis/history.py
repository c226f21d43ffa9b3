"""What all load processes say, gathered from their journals."""

from collections import Counter
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from tests.integration.nemesis.load.journal import Event, JournalReader

Place = tuple[int, int]
"""Partition and transaction id."""


@dataclass(frozen=True)
class Delivery:
    """One transaction that a feed handed over. `stream` names the reader and its life."""

    stream: str
    place: Place
    digest: str


class History:
    """Grows with each `update`. Names are those of the payloads."""

    def __init__(self, directory: Path) -> None:
        self.invoked: set[str] = set()
        self.acknowledged: dict[str, Place] = {}
        self.failed: dict[str, str] = {}
        self.unknown: set[str] = set()
        """Unknown by the client's own word; those of killed clients are invoked without an outcome."""
        self.failures: Counter[str] = Counter()
        self.bugs: list[str] = []
        self.latest: dict[tuple[str, int], float] = {}
        """Time of the last acknowledgement by (role, partition)."""
        self.ack_times: dict[int, list[float]] = {}
        self.delivered: dict[tuple[str, int], int] = {}
        """Last id handed over by (role, partition) in the role's present life."""
        self._deliveries: list[Delivery] = []
        self._directory = directory
        self._readers: dict[Path, JournalReader] = {}
        self._lives: Counter[str] = Counter()

    @property
    def undecided(self) -> int:
        """Appends of which nobody knows: unknown, or their client was killed, or still on their way."""
        return len(self.invoked) - len(self.acknowledged) - len(self.failed)

    def update(self) -> None:
        """Read what the journals have got since the last time."""
        for path in sorted(self._directory.glob("*.journal")):
            reader = self._readers.setdefault(path, JournalReader(path))
            for event in reader.news():
                self._take(reader.name, event)

    def take_deliveries(self) -> list[Delivery]:
        """Those that were not taken yet, in order per stream."""
        taken, self._deliveries = self._deliveries, []
        return taken

    def longest_gap_seconds(self, start: float, end: float) -> float:
        """Longest time without an acknowledged append in one partition."""
        longest = 0.0
        for times in self.ack_times.values():
            marks = [start, *sorted(times), end]
            longest = max(longest, *(later - earlier for earlier, later in pairwise(marks)))
        return longest

    def _take(self, name: str, event: Event) -> None:
        words = event.words
        match event.kind:
            case "I":
                self.invoked.add(words[0])
            case "O":
                partition = int(words[1])
                self.acknowledged[words[0]] = (partition, int(words[2]))
                self.latest[_role(name), partition] = event.time
                self.ack_times.setdefault(partition, []).append(event.time)
            case "F":
                self.failed[words[0]] = words[1]
                self.failures[words[1]] += 1
            case "U":
                self.unknown.add(words[0])
                self.failures[words[1]] += 1
            case "T":
                stream = f"{name} life {self._lives[name]}"
                place = (int(words[0]), int(words[1]))
                self._deliveries.append(Delivery(stream, place, words[2]))
                self.delivered[_role(name), place[0]] = place[1]
            case "R":
                self._lives[name] += 1
                self.delivered = {k: v for k, v in self.delivered.items() if k[0] != _role(name)}
            case "B":
                self.bugs.append(f"{name}: {words[0]}")


def _role(name: str) -> str:
    return name.rpartition(".")[0]
