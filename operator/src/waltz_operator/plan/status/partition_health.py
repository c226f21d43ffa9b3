"""How the partitions are, counted only by what was positively answered. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from waltz_cluster.quorum import said_once, shortage
from waltz_cluster.replica_rules import change_incomplete
from waltz_cluster.serializers import PartitionMetadata
from waltz_operator.model.facts import Facts
from waltz_operator.model.snapshot import (
    ServerView,
    TreeView,
)


@dataclass(frozen=True, slots=True)
class Health:
    """`healthy`, `caught_up`: numbers of partitions; None when ZooKeeper was not read. `behind`: the
    first copy that is not current, and why."""

    healthy: int | None = None
    caught_up: int | None = None
    worst_lag: int | None = None
    unhealthy: tuple[int, ...] = ()
    why_unhealthy: str = ""
    behind: str = ""


def health_of(facts: Facts) -> Health:
    """All partitions."""
    if not isinstance(facts.tree, TreeView):
        return Health()
    unhealthy: dict[int, str] = {}
    behind, caught_up = "", 0
    lags: list[int] = []
    for partition in range(facts.tree.num_partitions):
        why = why_unhealthy(facts, facts.tree, partition)
        if why:
            unhealthy[partition] = why
        late = _behind(facts, partition)
        if late:
            behind = behind or f"partition {partition}: {late}"
        else:
            caught_up += 1
        lags += [lag for node in facts.holders(partition) if (lag := facts.lag(partition, node)) is not None]
    total = facts.tree.num_partitions
    lines = said_once(unhealthy, total)
    first = lines[0] if lines else ""
    return Health(total - len(unhealthy), caught_up, max(lags, default=None), tuple(unhealthy), first, behind)


def why_unhealthy(facts: Facts, tree: TreeView, partition: int) -> str:
    """Why the partition is not proven to take writes; empty when it is."""
    record, holders = facts.record(partition), facts.holders(partition)
    if not holders:
        return "it has no replica"
    owner = tree.owners.get(partition)
    if owner is None:
        return "no server has it"
    server = facts.servers.get(owner)
    if not isinstance(server, ServerView):
        return f"its server {owner} does not answer"
    if not isinstance(record, PartitionMetadata):
        return "it has not been started yet"
    short = shortage({node: facts.not_current(partition, node) for node in holders})
    if not short and not server.healthy.get(partition, False):
        return f"its server {owner} reports that it is not healthy"
    return short


def _behind(facts: Facts, partition: int) -> str:
    record, holders = facts.record(partition), facts.holders(partition)
    if not isinstance(record, PartitionMetadata):
        return "it has not been started yet"
    return change_incomplete(record, holders) or next(
        (f"{node}: {why}" for node in holders if (why := facts.not_current(partition, node))), ""
    )
