"""What partition metadata says after a recovery, and how an operator gives a replica up. Pure.

Storage document, recovery: a replica state is (session, UNRESOLVED) for a replica that takes part in that session,
(session, h) for one that dropped out of it (only its records up to h are good), (-1, h) for one that never took part.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from waltz_cluster.serializers import PartitionMetadata, ReplicaState
from waltz_protocol.types import UNRESOLVED, PartitionId
from waltz_server.store.api import StoreError


class UnknownReplicaError(StoreError):
    """The replica to forget is not in the partition's metadata."""

    user_error = True


class LastReplicaError(StoreError):
    """Forgetting the only replica would leave metadata that proves nothing."""

    user_error = True


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

    `replicas` are all replicas of the session, `clean` those that hold exactly what is resolved, or that were listed
    before in this session. Replicas that are not assigned any more disappear. Idempotent.
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


def forget_replica(metadata: PartitionMetadata, connect_string: str) -> PartitionMetadata:
    """Remove a replica from the old quorum: the explicit, lossy way out of an undecidable recovery.

    Afterwards the majority is counted over the replicas that stay, so records that only the forgotten one still
    vouches for may be dropped. If the replica is still assigned it comes back as a new one (cut to its own
    low-water mark, compared, refilled). Raises `UnknownReplicaError` and `LastReplicaError`.
    """
    if connect_string not in metadata.replicas:
        known = ", ".join(sorted(metadata.replicas)) or "none"
        raise UnknownReplicaError(f"{connect_string} is not a replica in the metadata (known: {known})")
    if len(metadata.replicas) == 1:
        raise LastReplicaError(
            f"{connect_string} is the last replica in the metadata; it cannot be forgotten"
        )
    left = {name: state for name, state in metadata.replicas.items() if name != connect_string}
    return PartitionMetadata(metadata.generation, metadata.session_id, left)
