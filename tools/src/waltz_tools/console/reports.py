"""What the pages *Locks* and *Clients* and the tile *Latency* show, made of the servers' reports."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice

from waltz_admin.latency import Latency, added
from waltz_admin.reports import ClientRow, Following, LockRow, PairRow, ServerReport, WaitingRow
from waltz_tools.lock_names import hash_text

Page = dict[str, object]
MAX_ROWS = 500


@dataclass(frozen=True, slots=True)
class Since:
    """Of the time between two observations: appends refused per second, of all and of each lock
    (server id, partition, hash); latency of all appends, mean seconds of each partition's."""

    refused: float | None = None
    conflicts: Mapping[tuple[int, int, int], float] = field(default_factory=dict)
    latency: Latency | None = None
    means: Mapping[int, float] = field(default_factory=dict)

    @property
    def p50_seconds(self) -> float | None:
        """Half of the appends took at most this long."""
        return None if self.latency is None else self.latency.quantile(0.5)

    @property
    def p99_seconds(self) -> float | None:
        """99 of 100 took at most this long."""
        return None if self.latency is None else self.latency.quantile(0.99)


NOTHING_SINCE = Since()


def since(before: Sequence[ServerReport], after: Sequence[ServerReport], seconds: float) -> Since:
    """What came between two observations; nothing of a server that has no earlier report: its counts are
    those of a longer time."""
    then = {one.server_id: one for one in before if not one.problem}
    pairs = [(then[one.server_id], one) for one in after if not one.problem and one.server_id in then]
    if seconds <= 0 or not pairs:
        return NOTHING_SINCE
    conflicts: dict[tuple[int, int, int], float] = {}
    means: dict[int, float] = {}
    refused: int | None = None
    for old, new in pairs:
        if new.refused is not None and old.refused is not None:
            refused = (refused or 0) + max(0, new.refused - old.refused)
        counts = {(row.partition, row.lock): row.conflicts for row in old.locks}
        for row in new.locks if old.refused is not None else ():
            grown = row.conflicts - counts.get((row.partition, row.lock), 0)
            if grown > 0:
                conflicts[new.server_id, row.partition, row.lock] = grown / seconds
        for partition, (count, total) in new.appends.items():
            old_count, old_total = old.appends.get(partition, (0, 0.0))
            if count > old_count:
                means[partition] = max(0.0, total - old_total) / (count - old_count)
    latency = added(
        new.latency.since(old.latency)
        for old, new in pairs
        if new.latency is not None and old.latency is not None
    )
    return Since(None if refused is None else refused / seconds, conflicts, latency, means)


def _without(reports: Iterable[ServerReport]) -> list[Page]:
    return [{"server": str(one.server), "problem": one.problem} for one in reports if one.problem]


def _object(row: ClientRow | Following | LockRow | PairRow | WaitingRow) -> Page:
    """The members of a row as they are; `dataclasses.asdict` copies all that is in them, too."""
    return {name: getattr(row, name) for name in row.__dataclass_fields__}


def _of_lock(row: LockRow | PairRow | WaitingRow) -> Page:
    return _object(row) | {"hash": hash_text(row.lock)}


def clients(reports: Sequence[ServerReport]) -> Page:
    """Every connection that servers list, those furthest behind first."""
    rows = sorted(
        (row for report in reports for row in report.clients),
        key=lambda row: (-row.behind, -row.unsent_bytes, row.client, row.address),
    )
    return {
        "rows": [
            _object(row) | {"server": str(row.server), "furthest": [_object(one) for one in row.furthest]}
            for row in rows[:MAX_ROWS]
        ],
        "left_out": max(0, len(rows) - MAX_ROWS) + sum(report.left_out for report in reports),
        "connections": sum(report.connections for report in reports),
        "without": _without(reports),
    }


def locks(reports: Sequence[ServerReport], lately: Since) -> Page:
    """Contended locks, pairs and lines; the names are put in by the page, which knows those that a reader
    gave."""
    rows = (
        _of_lock(row) | {"rate": lately.conflicts.get((report.server_id, row.partition, row.lock), 0.0)}
        for report in reports
        for row in report.locks
    )
    pairs = (_of_lock(row) for report in reports for row in report.pairs)
    waiting = (_of_lock(row) for report in reports for row in report.waiting)
    return {
        "rows": list(islice(rows, MAX_ROWS)),
        "pairs": list(islice(pairs, MAX_ROWS)),
        "waiting": list(islice(waiting, MAX_ROWS)),
        "refused": sum(report.refused or 0 for report in reports),
        "refused_per_second": lately.refused,
        "without": _without(reports),
    }


def latency(lately: Since) -> Page:
    """Of all appends since the last observation."""
    return {
        "p50_seconds": lately.p50_seconds,
        "p99_seconds": lately.p99_seconds,
        "appends": None if lately.latency is None else lately.latency.count,
    }
