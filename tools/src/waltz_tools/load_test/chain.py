"""What the transactions of a validation contain, and whether the log agrees.

Every transaction of a run names the run's previous transaction in its partition, as its writer saw it under
the run's write lock. If locks and order hold, these names form one chain per partition, whoever else writes
there meanwhile.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field

from waltz_client import LockId

_KIND = "waltz-validate"


@dataclass(frozen=True, slots=True)
class Link:
    """One transaction of a run. `previous`: id of the run's transaction before it, -1 for the first."""

    run: str
    producer: str
    number: int
    previous: int

    def to_bytes(self) -> bytes:
        """The payload."""
        return json.dumps(
            {
                "kind": _KIND,
                "run": self.run,
                "producer": self.producer,
                "number": self.number,
                "previous": self.previous,
            }
        ).encode()

    @classmethod
    def from_bytes(cls, data: bytes) -> Link | None:
        """The link in a payload, or None for a transaction of somebody else."""
        if _KIND.encode() not in data:
            return None
        try:
            found = json.loads(data)
            if not isinstance(found, dict) or found.get("kind") != _KIND:
                return None
            return cls(
                str(found["run"]), str(found["producer"]), int(found["number"]), int(found["previous"])
            )
        except (ValueError, KeyError, TypeError, OverflowError, RecursionError):
            return None


def run_lock(run: str) -> LockId:
    """The write lock under which a run appends."""
    return LockId(f"{_KIND}-{run}", 0)


@dataclass(slots=True)
class ChainCheck:
    """Reads the transactions of one run in log order; `problems` are lines for a person."""

    run: str
    problems: list[str] = field(default_factory=list)
    found: int = 0
    _last: dict[int, int] = field(default_factory=dict)
    _position: dict[int, int] = field(default_factory=dict)
    _seen: set[tuple[str, int]] = field(default_factory=set)

    def take(self, partition: int, transaction_id: int, data: bytes) -> Link | None:
        """The next transaction of a partition; its link if it belongs to the run."""
        position = self._position.get(partition)
        if position is not None and transaction_id != position + 1:
            self.problems.append(f"partition {partition}: {transaction_id} came after {position}")
        self._position[partition] = transaction_id
        link = Link.from_bytes(data)
        if link is None or link.run != self.run:
            return None
        last = self._last.get(partition, -1)
        if link.previous != last:
            self.problems.append(
                f"partition {partition}: transaction {transaction_id} follows {link.previous}, the log has {last} before it"
            )
        if (link.producer, link.number) in self._seen:
            self.problems.append(f"partition {partition}: transaction {transaction_id} is in the log twice")
        self._seen.add((link.producer, link.number))
        self._last[partition] = transaction_id
        self.found += 1
        return link

    def last(self, partition: int) -> int:
        """The run's newest transaction in a partition, -1 if there is none."""
        return self._last.get(partition, -1)
