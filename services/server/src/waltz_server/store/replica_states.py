"""What partition metadata says after a recovery. Pure.

Storage document, recovery: a replica state is (session, UNRESOLVED) for a replica that takes part in that
session, (session, h) for one that dropped out of it (only its records up to h are good), (-1, h) for one that
never took part.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from waltz_cluster.serializers import PartitionMetadata, ReplicaState
from waltz_protocol.types import UNRESOLVED, PartitionId


def states_after_recovery(
    current: PartitionMetadata,
    *,
    partition_id: int,
    session_id: int,
    replicas: Sequence[str],
    clean: Collection[str],
    resolved: int,
) -> PartitionMetadata:
    """The metadata of session `session_id` whose recovery ended at `resolved`.

    `replicas` are all replicas of the session, `clean` those that hold exactly what is resolved, or that were
    listed before in this session. Replicas that are not assigned any longer disappear. Idempotent.
    """
    states: dict[str, ReplicaState] = {}
    for name in replicas:
        old = current.replicas.get(name)
        if name in clean:
            new = ReplicaState(PartitionId(partition_id), name, session_id, UNRESOLVED)
        elif old is None:
            new = ReplicaState(PartitionId(partition_id), name, -1, resolved)
        elif old.closing_high_water_mark == UNRESOLVED:
            new = ReplicaState(PartitionId(partition_id), name, old.session_id, resolved)
        else:
            new = old
        states[name] = new
    return PartitionMetadata(current.generation, session_id, states)
