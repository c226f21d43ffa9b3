"""The judge: does the log agree with the answers that the writers got? It knows the record and a list of
transactions, nothing else.

*Acknowledged: in the log exactly once, at the id of the acknowledgement. Failed: not in it. Unknown: at most
once. The ids of the log are without gaps, and the appends of one writer are in their order.*
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass, field

from .record import Record

MAX_EXAMPLES = 5


@dataclass(slots=True)
class Verdict:
    """Counts of what was found wrong, with a few examples; all zero when nothing was."""

    transactions: int = 0
    lost: int = 0
    doubled: int = 0
    moved: int = 0
    """Acknowledged at another id."""
    resurrected: int = 0
    """The client said it failed."""
    gaps: int = 0
    disorder: int = 0
    examples: list[str] = field(default_factory=list)

    @property
    def passed(self) -> bool:
        return not (self.lost + self.doubled + self.moved + self.resurrected + self.gaps + self.disorder)

    def fault(self, kind: str, example: str) -> None:
        """Count one."""
        setattr(self, kind, getattr(self, kind) + 1)
        if len(self.examples) < MAX_EXAMPLES:
            self.examples.append(f"{kind}: {example}")

    def as_json(self) -> dict[str, object]:
        """For the answer."""
        return {**asdict(self), "passed": self.passed}


def judge(
    verdict: Verdict, record: Record, partition: int, log: Iterable[tuple[int, bytes]], after: int = -1
) -> None:
    """Judge one partition; `log` is what was read behind transaction `after`, as (transaction id,
    payload)."""
    part = record.partitions[partition]
    seen: dict[int, int] = {}
    expected, last = after + 1, -1
    for transaction_id, payload in log:
        verdict.transactions += 1
        if transaction_id != expected:
            verdict.fault("gaps", f"partition {partition}: {transaction_id} where {expected} was due")
        expected = transaction_id + 1
        sequence = record.sequence(partition, payload)
        if sequence is None:
            continue
        where = f"partition {partition}, append {sequence}, transaction {transaction_id}"
        if sequence in seen:
            verdict.fault("doubled", f"{where}: also at {seen[sequence]}")
        elif sequence < last:
            verdict.fault("disorder", f"{where}: behind append {last}")
        seen[sequence] = transaction_id
        last = max(last, sequence)
        if part.acknowledged.get(sequence, transaction_id) != transaction_id:
            verdict.fault("moved", f"{where}: acknowledged at {part.acknowledged[sequence]}")
        if sequence in part.failed:
            verdict.fault("resurrected", where)
    for sequence, transaction_id in part.acknowledged.items():
        if transaction_id > after and sequence not in seen:
            verdict.fault("lost", f"partition {partition}, append {sequence}, transaction {transaction_id}")
