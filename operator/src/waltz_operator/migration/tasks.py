"""Reading a WaltzMigration into a task. Nodes are named by reference in the resource and by connect string in the planners. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from waltz_operator.api.migration import PartitionMove, WaltzMigration
from waltz_operator.migration.task import Record, Task, kind_of, move_kind
from waltz_operator.reconcile.desired import Move


def task_of(migration: WaltzMigration, nodes: Mapping[str, str]) -> Task:
    """The task; ``nodes`` maps references to connect strings, what is not in there keeps its reference (and is no node)."""
    spec, meta, status = migration.spec, migration.metadata, migration.status
    kind = kind_of(migration)
    source = target = group = ""
    partitions: tuple[int, ...] | None = None
    if spec.move is not None:
        source, target, partitions = spec.move.source, spec.move.target, spec.move.partitions
    elif spec.drain is not None:
        source = spec.drain.node
    elif spec.replace is not None:
        source = spec.replace.node
    elif spec.rebalance is not None:
        group = spec.rebalance.group
    return Task(
        name=meta.name,
        uid=meta.uid,
        kind=kind,
        created=meta.creation_timestamp or "",
        source=nodes.get(source, source),
        target=nodes.get(target, target),
        group=group,
        partitions=partitions,
        dry_run=spec.dry_run,
        approved=spec.approve,
        cancel=spec.cancel or meta.deleting,
        deleting=meta.deleting,
        rate_limit_bytes=spec.rate_limit_bytes_per_second,
        allow_pause=spec.allow_pause,
        phase=status.phase,
        records=tuple(_record(migration, one, nodes) for one in status.partitions),
        started_at=status.started_at,
    )


def _record(migration: WaltzMigration, one: PartitionMove, nodes: Mapping[str, str]) -> Record:
    move = Move(
        move_kind(kind_of(migration)),
        one.partition,
        nodes.get(one.source, one.source),
        nodes.get(one.target, one.target),
    )
    return Record(
        move, one.state, one.verified_txid, one.checksum or "", one.source_txid, one.copied_txid, one.message
    )
