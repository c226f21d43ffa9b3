"""May the replicas of a partition be changed now? (safety rule A6) Unknown means no.

The next store session decides what was committed by the *old* replicas and then needs a quorum of the *new* ones. So
before every change the members of old ∩ new that are caught up, by their own fresh answers, must be a quorum of both.
Caught up = the partition's metadata lists the node as taking part in its present session, and the node itself says:
that is my session, I am available, and here is the record at its low-water mark.

A partition that never was started (ZooKeeper proves it: no metadata, and none was ever deleted) has nothing to lose.
"""

import logging
from collections.abc import Collection
from typing import NamedTuple, Protocol
from uuid import UUID

from waltz_admin.errors import UnsafeChangeError
from waltz_admin.tree import admin_endpoint
from waltz_cluster.errors import SerializationError
from waltz_cluster.partition_metadata import StoreMetadata
from waltz_cluster.quorum import quorum_of
from waltz_cluster.serializers import PartitionMetadata
from waltz_protocol.aio.storage_connection import StorageAdminConnection
from waltz_protocol.aio.tls import TlsSettings, client_context
from waltz_protocol.errors import WaltzProtocolError

_log = logging.getLogger(__name__)


class ReplicaAnswer(NamedTuple):
    """What a storage node says of one partition now."""

    session_id: int
    available: bool
    holds_low_water_mark: bool


class ReplicaProbe(Protocol):
    """Asks storage nodes; None = no answer, or none that says enough."""

    async def ask(self, connect_string: str, partition_id: int) -> ReplicaAnswer | None: ...


class AdminPortProbe:
    """Asks over the admin ports. One connection per question: every answer is fresh."""

    def __init__(
        self,
        admin_ports: dict[str, int],
        cluster_key: UUID,
        num_partitions: int,
        tls: TlsSettings,
    ) -> None:
        self._admin_ports = admin_ports
        self._cluster_key = cluster_key
        self._num_partitions = num_partitions
        self._tls = tls

    async def ask(self, connect_string: str, partition_id: int) -> ReplicaAnswer | None:
        port = self._admin_ports.get(connect_string)
        if port is None:
            return None
        context = client_context(self._tls)  # a wrong setting is for the person to see, not a silent node
        try:
            connection = await StorageAdminConnection.open(
                admin_endpoint(connect_string, port),
                cluster_key=self._cluster_key,
                num_partitions=self._num_partitions,
                tls=context,
            )
        except (WaltzProtocolError, OSError) as error:
            _log.debug("%s does not answer: %s", connect_string, error)
            return None
        try:
            available = (await connection.partition_status()).get(partition_id)
            if available is None:
                return None
            info = await connection.last_session_info(partition_id)
            mark = info.low_water_mark
            holds = mark < 0 or any(
                record.transaction_id == mark
                for record in await connection.record_list(partition_id, mark, 1)
            )
            return ReplicaAnswer(info.session_id, available, holds)
        except (WaltzProtocolError, OSError) as error:
            _log.debug("%s does not answer about partition %d: %s", connect_string, partition_id, error)
            return None
        finally:
            connection.close()


async def check_change(
    metadata: StoreMetadata,
    probe: ReplicaProbe,
    partition_id: int,
    old: Collection[str],
    new: Collection[str],
    *,
    allow_pause: bool = False,
) -> int | None:
    """UnsafeChangeError unless replacing the replicas ``old`` by ``new`` is proven to be safe now.

    Returns the version of the partition's metadata that the proof rests on (None: nothing changes, or it was never
    started): the write must be made under it, for a follower of ZooKeeper may have answered with what was true before.

    ``allow_pause``: when replicas are only added (1 → 2, 1 → 3, 2 → 4), accept that writes stop until enough new ones
    have caught up; all old ones must be there and caught up then. Nothing can be lost by it.
    """
    if set(old) == set(new) or await metadata.never_started(partition_id):
        return None
    state, version = await _read(metadata, partition_id)
    if not new:
        raise UnsafeChangeError(f"partition {partition_id} would have no replica left")
    if set(state.replicas) != set(old):
        raise UnsafeChangeError(
            f"partition {partition_id}: an earlier change is not complete, its last session had the replicas "
            f"{_names(state.replicas)}, assigned are {_names(old)}"
        )
    staying = [node for node in old if node in new]
    live = [node for node in staying if await _caught_up(probe, state, node, partition_id)]
    if (await metadata.read_partition(partition_id))[1] != version:
        raise UnsafeChangeError(f"partition {partition_id}: its store session changed meanwhile, try again")
    old_quorum, new_quorum = quorum_of(len(set(old))), quorum_of(len(set(new)))
    if len(live) >= max(old_quorum, new_quorum):
        return version
    if allow_pause and set(old) <= set(new) and len(live) == len(set(old)):
        return version
    raise UnsafeChangeError(
        f"partition {partition_id}: of the replicas that stay {len(live)} are proven to be caught up "
        f"({_names(live)}), but {max(old_quorum, new_quorum)} are needed (quorum of {len(set(old))} old replicas: "
        f"{old_quorum}, of {len(set(new))} new ones: {new_quorum})"
    )


async def check_removal(
    metadata: StoreMetadata,
    probe: ReplicaProbe,
    partition_id: int,
    connect_string: str,
    assigned: Collection[str],
) -> None:
    """UnsafeChangeError unless the copy of a partition on a node is proven to be of no use now: it is not assigned there (``assigned``:
    who has it), the last store session ran without it, and a quorum of those who have it is caught up, by fresh answers."""
    if connect_string in assigned:
        raise UnsafeChangeError(
            f"partition {partition_id} is assigned to {connect_string}: unassign it first"
        )
    if await metadata.never_started(partition_id):
        return
    state, version = await _read(metadata, partition_id)
    if connect_string in state.replicas or set(state.replicas) != set(assigned):
        raise UnsafeChangeError(
            f"partition {partition_id}: its last store session ran with {_names(state.replicas)}, assigned are "
            f"{_names(assigned)}: the copy on {connect_string} may still be needed"
        )
    live = [node for node in assigned if await _caught_up(probe, state, node, partition_id)]
    if (await metadata.read_partition(partition_id))[1] != version:
        raise UnsafeChangeError(f"partition {partition_id}: its store session changed meanwhile, try again")
    if len(live) < quorum_of(len(set(assigned))):
        raise UnsafeChangeError(
            f"partition {partition_id}: only {_names(live)} of {_names(assigned)} are proven to be caught up; the copy on "
            f"{connect_string} is kept"
        )


async def _read(metadata: StoreMetadata, partition_id: int) -> tuple[PartitionMetadata, int]:
    try:
        state, version = await metadata.read_partition(partition_id)
    except SerializationError as error:
        raise UnsafeChangeError(f"the metadata of partition {partition_id} cannot be read: {error}") from None
    if state is None:
        raise UnsafeChangeError(
            f"the metadata of partition {partition_id} is missing: it was lost, restore it"
        )
    return state, version


async def _caught_up(probe: ReplicaProbe, state: PartitionMetadata, node: str, partition_id: int) -> bool:
    known = state.replicas[node]
    if known.resolved or known.session_id != state.session_id:
        return False
    answer = await probe.ask(node, partition_id)
    return (
        answer is not None
        and answer.available
        and answer.session_id == state.session_id
        and answer.holds_low_water_mark
    )


def _names(nodes: Collection[str]) -> str:
    return ", ".join(sorted(nodes)) or "none"
