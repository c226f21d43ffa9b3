"""Giving up a replica: the explicit, lossy way out of a recovery that cannot be decided (safety rule A1).

Afterwards the majority is counted over the replicas that stay, so what only the forgotten one vouches for may be dropped.
Nobody else may stay silent while that happens: every remaining replica must answer now, else a second lost disk would
pass unnoticed. And a replica that is well is not given up: the wrong name on the command line may be that of the last copy.
If the forgotten replica is still assigned it comes back as a new one and is refilled.
"""

from collections.abc import Sequence

from waltz_admin.errors import AdminError, UnsafeChangeError
from waltz_admin.safety import AdminPortProbe, ReplicaAnswer, ReplicaProbe
from waltz_admin.tree import read_maps
from waltz_cluster.cluster_params import read_params
from waltz_cluster.partition_metadata import StoreMetadata
from waltz_cluster.paths import ClusterPaths
from waltz_cluster.serializers import PartitionMetadata, ReplicaState
from waltz_cluster.store import ZooKeeperStore
from waltz_protocol.aio.tls import TlsSettings


class UnknownReplicaError(AdminError):
    """The replica to forget is not in the partition's metadata."""


class LastReplicaError(AdminError):
    """Forgetting the only replica would leave metadata that proves nothing."""


def without_replica(metadata: PartitionMetadata, connect_string: str) -> PartitionMetadata:
    """The metadata with one replica less in the old quorum. Pure. UnknownReplicaError, LastReplicaError."""
    if connect_string not in metadata.replicas:
        known = ", ".join(sorted(metadata.replicas)) or "none"
        raise UnknownReplicaError(f"{connect_string} is not a replica in the metadata (known: {known})")
    if len(metadata.replicas) == 1:
        raise LastReplicaError(
            f"{connect_string} is the last replica in the metadata; it cannot be forgotten"
        )
    left = {name: state for name, state in metadata.replicas.items() if name != connect_string}
    return PartitionMetadata(metadata.generation, metadata.session_id, left)


async def forget_replica(
    store: ZooKeeperStore,
    root: str,
    connect_string: str,
    partitions: Sequence[int],
    *,
    tls: TlsSettings | None = None,
    probe: ReplicaProbe | None = None,
) -> list[int]:
    """Remove a node from the old quorum of partitions whose recovery is undecidable; the partitions changed.

    All partitions are checked before the first is written, each under its version: a server that goes on meanwhile
    wins, and the error says so. AdminError for an unknown partition or one without metadata, UnsafeChangeError when a
    remaining replica does not answer or the one to forget is well in all of them (where it is well it is kept),
    UnknownReplicaError, LastReplicaError; nothing was changed then.
    """
    _, params = await read_params(store, root)
    wrong = [partition for partition in partitions if not 0 <= partition < params.num_partitions]
    if wrong:
        raise AdminError(f"there is no partition {wrong[0]}: the cluster has {params.num_partitions}")
    maps = await read_maps(store, ClusterPaths(root))
    asker = probe or AdminPortProbe(
        dict(maps.admin_ports), params.cluster_key, params.num_partitions, tls or TlsSettings()
    )
    metadata = StoreMetadata(store, root)
    changes, well = [], list[int]()
    for partition in partitions:
        current, version = await metadata.read_partition(partition)
        if current is None:
            raise AdminError(f"partition {partition} has no metadata: nothing can be forgotten")
        changed = without_replica(current, connect_string)
        if _is_well(current.replicas[connect_string], await asker.ask(connect_string, partition)):
            well.append(partition)
            continue
        silent = [name for name in changed.replicas if await asker.ask(name, partition) is None]
        if silent:
            raise UnsafeChangeError(
                f"partition {partition}: {', '.join(sorted(silent))} does not answer; bring it back before "
                f"{connect_string} is given up, or more may be lost than that"
            )
        changes.append((partition, changed, version))
    if well and not changes:
        raise UnsafeChangeError(
            f"{connect_string} answers and holds what it should in partitions {','.join(map(str, well))}: nothing waits "
            "for it to be given up; `waltz doctor` says what is wrong, and a node that is to be given up all the same is stopped first"
        )
    for partition, changed, version in changes:
        await metadata.write_partition(partition, changed, version)
    return [partition for partition, _, _ in changes]


def _is_well(recorded: ReplicaState, answer: ReplicaAnswer | None) -> bool:
    return (
        answer is not None
        and answer.available
        and answer.holds_low_water_mark
        and answer.session_id >= recorded.session_id
    )
