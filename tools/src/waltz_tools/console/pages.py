"""What the pages show, as values for JSON, made of one observation and of the history."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from waltz_admin.cluster_status import PartitionStatus, Replica, StorageStatus
from waltz_admin.findings.explain import explain
from waltz_admin.findings.finding import Severity
from waltz_cluster.quorum import id_ranges
from waltz_cluster.replica_rules import Standing
from waltz_tools.cli.explain import explanation_object, finding_object
from waltz_tools.console import reports
from waltz_tools.console.collector import Observation, Point
from waltz_tools.console.history import Change, newest, timeline

Page = dict[str, object]
_LATELY = 12
_LOGGED = 100


def overview(seen: Observation, points: Iterable[Point], changes: Sequence[Change]) -> Page:
    """Is it well, how much is written, what changed lately."""
    status = seen.status
    closed = sum(p.closed for p in status.partitions)
    unknown = sum(p.unknown for p in status.partitions)
    reduced = [p.partition_id for p in status.partitions if p.healthy and p.current < len(p.replicas)]
    disks = [n.disk for n in status.nodes if n.disk is not None]
    days = [d.days_to_full for d in disks if d.days_to_full is not None]
    lags = [r.lag for p in status.partitions for r in p.replicas if r.lag is not None]
    return {
        "partitions": {
            "all": len(status.partitions),
            "closed": closed,
            "unknown": unknown,
            "reduced": len(reduced),
        },
        "servers": {
            "all": len(status.servers),
            "silent": sum(s.unreached is None for s in status.servers),
        },
        "nodes": {
            "all": len(status.nodes),
            "silent": sum(n.error is not None for n in status.nodes),
            "full": sum(d.full for d in disks),
        },
        "appends_per_second": seen.rates.total,
        "latency": reports.latency(seen.since),
        "transactions": sum(newest(p) + 1 for p in status.partitions),
        "log_bytes": _sum(d.log_bytes for d in disks),
        "growth_bytes_per_day": _sum(d.growth_bytes_per_day for d in disks),
        "days_to_full": min(days, default=None),
        "largest_lag": max(lags, default=None),
        "findings": [finding_object(one) for one in seen.findings],
        "history": [
            [point.at, point.appends_per_second, point.closed, point.p50_seconds, point.p99_seconds]
            for point in points
        ],
        "changes": [change_object(one) for one in list(changes)[: -_LATELY - 1 : -1]],
    }


def _sum(values: Iterable[float | int | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) if known else None


def change_object(change: Change) -> Page:
    """One change."""
    return {"at": change.at, "kind": change.kind, "text": change.text, "bad": change.bad}


def partition_row(seen: Observation, partition: PartitionStatus) -> Page:
    """The row of one partition; a thousand of them are a few hundred kilobytes
    (`waltz_tools.console.rows`)."""
    last = newest(partition)
    return {
        "id": partition.partition_id,
        "server": None if partition.server is None else str(partition.server),
        "generation": partition.generation,
        "session": partition.session_id,
        "writes": None if partition.unknown else partition.healthy,
        "current": partition.current,
        "replicas": [[r.node, r.standing.value, r.lag] for r in partition.replicas],
        "last": None if last < 0 else last,
        "lag": max((r.lag for r in partition.replicas if r.lag is not None), default=None),
        "rate": seen.rates.partitions.get(partition.partition_id),
        "latency_seconds": seen.since.means.get(partition.partition_id),
        "problem": partition.problem,
    }


def partition(seen: Observation, number: int, changes: Iterable[Change]) -> Page:
    """One partition, in the words of the findings. ValueError for one that is not there."""
    found = explanation_object(explain(seen.status, number, seen.findings))
    last = newest(seen.status.partitions[number])
    return {
        **found,
        "rate": seen.rates.partitions.get(number),
        "latency_seconds": seen.since.means.get(number),
        "last": None if last < 0 else last,
        "changing": seen.status.partitions[number].changing,
        "recorded_at": seen.status.partitions[number].recorded_at,
        "timeline": [change_object(one) for one in timeline(changes, number)],
    }


def nodes(seen: Observation) -> Page:
    """Storage nodes and servers."""
    standings: dict[str, Counter[str]] = {}
    for one in seen.status.partitions:
        for replica in one.replicas:
            standings.setdefault(replica.node, Counter())[replica.standing.value] += 1
    written: dict[str, float] = {}
    for (node, _), rate in seen.rates.copies.items():
        written[node] = written.get(node, 0.0) + rate
    served = seen.rates.partitions
    return {
        "nodes": [
            _node(node, standings.get(node.node, Counter()), written.get(node.node, 0.0))
            for node in seen.status.nodes
        ],
        "servers": [
            {
                "server": str(server.endpoint),
                "id": server.server_id,
                "partitions": len(server.partitions),
                "ranges": id_ranges(server.partitions),
                "answers": server.unreached is not None,
                "unreached": list(server.unreached or ()),
                "cut_off": seen.status.cut_off(server) if server.unreached else [],
                "rate": sum(served.get(p, 0.0) for p in server.partitions),
            }
            for server in seen.status.servers
        ],
    }


def _node(node: StorageStatus, standings: Counter[str], rate: float) -> Page:
    disk = node.disk
    return {
        "node": node.node,
        "group": node.group,
        "partitions": len(node.partitions),
        "ranges": id_ranges(node.partitions),
        "current": standings[Standing.CURRENT.value],
        "standings": dict(standings),
        "rate": rate,
        "error": node.error,
        "log_bytes": None if disk is None else disk.log_bytes,
        "growth_bytes_per_day": None if disk is None else disk.growth_bytes_per_day,
        "size_bytes": None if disk is None else disk.size_bytes,
        "free_bytes": None if disk is None else disk.free_bytes,
        "reserve_bytes": None if disk is None else disk.reserve_bytes,
        "days_to_full": None if disk is None else disk.days_to_full,
        "full": disk is not None and disk.full,
    }


def findings(seen: Observation) -> Page:
    """All findings, with how many there are of each kind."""
    counts = Counter(one.rule.severity.value for one in seen.findings)
    return {
        "rows": [{**finding_object(one), "meaning": one.rule.meaning} for one in seen.findings],
        "counts": {severity.value: counts[severity.value] for severity in Severity},
    }


def moves(seen: Observation, changes: Sequence[Change]) -> Page:
    """Copies that are filled or that are waited for, changes of replicas that are not complete, and what
    changed since the console observes."""
    copies = []
    for one in seen.status.partitions:
        for replica in one.replicas:
            if not replica.votes:
                copies.append(_copy(seen, one, replica))
    incomplete = [
        {"partition": one.partition_id, "why": one.changing} for one in seen.status.partitions if one.changing
    ]
    return {
        "copies": copies,
        "incomplete": incomplete,
        "log": [change_object(one) for one in list(changes)[: -_LOGGED - 1 : -1]],
    }


def _copy(seen: Observation, partition: PartitionStatus, replica: Replica) -> Page:
    rate = seen.rates.copies.get((replica.node, partition.partition_id))
    closing = None if rate is None else rate - seen.rates.partitions.get(partition.partition_id, 0.0)
    left = None
    if replica.lag and closing is not None and closing > 0:
        left = replica.lag / closing
    last = newest(partition)
    done = None
    if replica.last_transaction is not None and last >= 0:
        done = (replica.last_transaction + 1) / (last + 1)
    return {
        "partition": partition.partition_id,
        "node": replica.node,
        "standing": replica.standing.value,
        "why": replica.reason,
        "lag": replica.lag,
        "rate": rate,
        "seconds_left": left,
        "done": done,
        "blocked_by": "" if partition.healthy else partition.problem,
    }


def locks(seen: Observation) -> Page:
    """Contended locks, who was refused for whom, who waits for whom."""
    return reports.locks(seen.reports, seen.since)


def clients(seen: Observation) -> Page:
    """Who follows which partition, how far behind."""
    return reports.clients(seen.reports)
