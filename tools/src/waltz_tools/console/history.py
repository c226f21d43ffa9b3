"""What two observations of a cluster say together: rates, and what changed. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from waltz_admin.cluster_status import ClusterStatus, PartitionStatus, Replica
from waltz_cluster.quorum import alike


@dataclass(frozen=True, slots=True)
class Change:
    """Something that became different between two observations. `kind`: `owner`, `session`, `writes`,
    `replica`, `server` or `node`; `bad`: it became worse."""

    at: float
    kind: str
    text: str
    partitions: tuple[int, ...] = ()
    bad: bool = False
    details: Mapping[int, str] = field(default_factory=dict)
    """What there is to say of single partitions, where that is more."""


@dataclass(frozen=True, slots=True)
class Rates:
    """Per second: appends of each partition, of all of them, and records that reach each copy."""

    partitions: Mapping[int, float]
    total: float
    copies: Mapping[tuple[str, int], float]


def newest(partition: PartitionStatus) -> int:
    """The last transaction that any copy has, committed or not; -1 for none."""
    return max((r.last_transaction for r in partition.replicas if r.last_transaction is not None), default=-1)


def rates(before: ClusterStatus | None, after: ClusterStatus, seconds: float) -> Rates:
    """Of the time between two observations; nothing without an earlier one. A partition is compared by the
    copies that had a vote and answered both times: after a moment without them its log is not new."""
    if before is None or seconds <= 0:
        return Rates({}, 0.0, {})
    old, new = _marks(before), _marks(after)
    copies = {key: max(0, new[key][0] - old[key][0]) / seconds for key in new if key in old}
    then: dict[int, int] = {}
    now: dict[int, int] = {}
    for node, number in copies:
        (was, voted), (reached, votes) = old[node, number], new[node, number]
        if voted and votes:
            then[number] = max(was, then.get(number, was))
            now[number] = max(reached, now.get(number, reached))
    found = {number: max(0, now[number] - then[number]) / seconds for number in sorted(now)}
    return Rates(found, sum(found.values()), copies)


def _marks(status: ClusterStatus) -> dict[tuple[str, int], tuple[int, bool]]:
    """(node, partition) -> the last transaction of the copy, where it is known, and whether it has a vote."""
    return {
        (r.node, p.partition_id): (r.last_transaction, r.votes)
        for p in status.partitions
        for r in p.replicas
        if r.last_transaction is not None
    }


def changes(before: ClusterStatus | None, after: ClusterStatus, at: float) -> list[Change]:
    """What became different, each cause once with all partitions that share it."""
    if before is None:
        return []
    old = {p.partition_id: p for p in before.partitions}
    pairs = [(old[p.partition_id], p) for p in after.partitions if p.partition_id in old]
    return [
        *_members(before, after, at),
        *_grouped(at, "owner", {n.partition_id: text for o, n in pairs if (text := _moved(o, n))}),
        *_sessions(at, pairs),
        *_grouped(at, "writes", {n.partition_id: text for o, n in pairs if (text := _writes(o, n))}),
        *_replicas(at, pairs),
    ]


def _grouped(at: float, kind: str, texts: Mapping[int, str]) -> list[Change]:
    found = []
    for ids, text in alike(texts).items():
        partitions = tuple(p for p, one in texts.items() if one == text)
        noun = "partition" if len(partitions) == 1 else "partitions"
        bad = kind == "writes" and text.startswith("no writes")
        found.append(Change(at, kind, f"{noun} {ids}: {text}", partitions, bad))
    return found


def _moved(old: PartitionStatus, new: PartitionStatus) -> str:
    if old.server == new.server and old.generation == new.generation:
        return ""
    if new.server is None:
        return f"no server has it, it was on {old.server}"
    came = "" if old.server in (None, new.server) else f", it came from {old.server}"
    return f"assigned to {new.server}{came}"


def _sessions(at: float, pairs: list[tuple[PartitionStatus, PartitionStatus]]) -> list[Change]:
    """Of many partitions at once in one line, as with a server that went; the ids are those of one
    partition."""
    began = {n.partition_id: (o, n) for o, n in pairs if n.session_id not in (None, o.session_id)}
    details = {number: _session(o, n) for number, (o, n) in began.items()}
    found = _grouped(at, "session", dict.fromkeys(began, "a new store session began"))
    return [replace(one, details=details) for one in found]


def _session(old: PartitionStatus, new: PartitionStatus) -> str:
    """A session begins with a recovery, which ends when the partition takes writes."""
    after = "the first one" if old.session_id is None else f"after session {old.session_id}"
    by = "" if new.server is None else f", of {new.server}"
    state = "" if new.healthy else "; its recovery is not complete"
    return f"store session {new.session_id} began{by}, {after}{state}"


def _writes(old: PartitionStatus, new: PartitionStatus) -> str:
    if (old.healthy, old.unknown) == (new.healthy, new.unknown):
        return ""
    if new.unknown:
        return f"not known whether it takes writes: {new.problem}"
    return "takes writes again" if new.healthy else f"no writes: {new.problem}"


def _replicas(at: float, pairs: list[tuple[PartitionStatus, PartitionStatus]]) -> list[Change]:
    """A copy that changed its standing; one line for each node and change."""
    moves: dict[tuple[str, str], dict[int, str]] = {}
    bad: dict[tuple[str, str], bool] = {}
    for old, new in pairs:
        was: dict[str, Replica] = {r.node: r for r in old.replicas}
        for replica in new.replicas:
            before = was.pop(replica.node, None)
            if before is None:
                text = "added as a replica"
            elif before.standing is replica.standing:
                continue
            else:
                text = f"{replica.standing.value}, it was {before.standing.value}"
            moves.setdefault((replica.node, text), {})[new.partition_id] = text
            bad[replica.node, text] = not replica.votes
        for node in was:
            moves.setdefault((node, "no longer a replica"), {})[new.partition_id] = ""
    found = []
    for (node, text), partitions in moves.items():
        (ids,) = alike(dict.fromkeys(partitions, ""))
        noun = "partition" if len(partitions) == 1 else "partitions"
        worse = bad.get((node, text), False)
        found.append(Change(at, "replica", f"{node}, {noun} {ids}: {text}", tuple(partitions), worse))
    return found


def _members(before: ClusterStatus, after: ClusterStatus, at: float) -> list[Change]:
    found = []
    old = {str(s.endpoint): s.unreached is not None for s in before.servers}
    new = {str(s.endpoint): s.unreached is not None for s in after.servers}
    found += _came_and_went(at, "server", "server", old, new)
    old = {n.node: n.error is None for n in before.nodes}
    new = {n.node: n.error is None for n in after.nodes}
    found += _came_and_went(at, "node", "storage node", old, new)
    return found


def _came_and_went(
    at: float, kind: str, what: str, old: Mapping[str, bool], new: Mapping[str, bool]
) -> list[Change]:
    found = []
    for name in sorted({*old, *new}):
        if name not in new:
            found.append(Change(at, kind, f"{what} {name} is no longer registered", bad=True))
        elif name not in old:
            found.append(Change(at, kind, f"{what} {name} is registered"))
        elif old[name] != new[name]:
            text = "answers again" if new[name] else "does not answer"
            found.append(Change(at, kind, f"{what} {name} {text}", bad=not new[name]))
    return found


def timeline(changes: Iterable[Change], number: int) -> list[Change]:
    """What happened to one partition, the newest first; with how long it took no writes."""
    found: list[Change] = []
    closed_at: float | None = None
    for one in changes:
        if number not in one.partitions:
            continue
        text = one.details.get(number, one.text)
        if one.kind == "writes":
            if one.bad:
                closed_at = one.at
            elif closed_at is not None:
                text, closed_at = f"{text}, after {one.at - closed_at:.1f} s without", None
        found.append(replace(one, text=text))
    return found[::-1]
