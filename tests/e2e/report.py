"""What a run found, as a table and as JSON."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path


@dataclass(slots=True)
class Result:
    """One scenario."""

    name: str
    seconds: float = 0.0
    acknowledged: int = 0
    lost: int | None = None
    """Acknowledged transactions that the log does not hold as acknowledged; None = there was no load to
    judge."""
    longest_gap_seconds: float | None = None
    operator_kills: int = 0
    notes: list[str] = field(default_factory=list)
    failure: str = ""


COLUMNS = ("scenario", "duration", "acknowledged", "lost", "longest write gap", "operator killed", "notes")


def table(results: Sequence[Result]) -> str:
    """Plain text, one line per scenario."""
    rows = [COLUMNS, *(_cells(result) for result in results)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(COLUMNS))]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths)).rstrip() for row in rows]
    lines.insert(1, "  ".join("-" * width for width in widths))
    failed = [f"FAILED {result.name}: {result.failure}" for result in results if result.failure]
    return "\n".join([*lines, *failed])


def _cells(result: Result) -> tuple[str, ...]:
    gap = result.longest_gap_seconds
    return (
        result.name + (" (FAILED)" if result.failure else ""),
        f"{result.seconds:.0f} s",
        str(result.acknowledged) if result.lost is not None else "-",
        "-" if result.lost is None else str(result.lost),
        "-" if gap is None else f"{gap:.2f} s",
        str(result.operator_kills),
        "; ".join(result.notes),
    )


def write(results: Sequence[Result], path: Path) -> None:
    """The same as JSON."""
    path.write_text(json.dumps([asdict(result) for result in results], indent=2) + "\n")
