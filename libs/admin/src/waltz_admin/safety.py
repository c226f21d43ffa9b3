"""May the replicas of a partition be changed now, may a copy be removed? (safety rule A6) Unknown means no.

The rules themselves are those of `waltz_cluster.replica_rules`. Here the evidence is collected: the metadata
from ZooKeeper, and fresh answers of the storage nodes, asked for this question alone. ZooKeeper is read again
after the answers: a session that began meanwhile makes them worthless.

A partition that never was started (ZooKeeper proves it: no metadata, and none was ever deleted) has nothing
to lose.
"""

import logging
from collections.abc import Collection
from typing import Protocol
from uuid import UUID

from waltz_admin.errors import StorageNodeError, UnsafeChangeError
from waltz_admin.same_node import Names
from waltz_admin.tree import admin_endpoint
from waltz_cluster.errors import SerializationError
from waltz_cluster.partition_metadata import StoreMetadata
from waltz_cluster.replica_rules import (
    Answer,
    NeverStarted,
    NoAnswer,
    NotHeld,
    Refusal,
    ReplicaAnswer,
    change_incomplete,
    why_not_add,
    why_not_change,
    why_not_current,
    why_not_listed,
    why_not_remove,
    why_still_needed,
)
from waltz_cluster.serializers import PartitionMetadata
from waltz_protocol.aio.storage_connection import StorageAdminConnection
from waltz_protocol.aio.tls import TlsSettings, client_context
from waltz_protocol.errors import RequestFailedError, WaltzProtocolError

_log = logging.getLogger(__name__)


class ReplicaProbe(Protocol):
    """Asks storage nodes about their copies."""

    async def ask(self, connect_string: str, partition_id: int) -> Answer: ...


class AdminPortProbe:
    """Asks over the admin ports. One connection per question: every answer is fresh.

    Two names of one node are no proof: the second one that is asked is refused (`distinguish`).
    """

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
        self._names = Names()

    def distinguish(self, connect_string: str, connection: StorageAdminConnection) -> None:
        """UnsafeChangeError when the node at the other end has answered under another name before."""
        try:
            self._names.check(connect_string, connection)
        except StorageNodeError as error:
            raise UnsafeChangeError(str(error)) from None

    async def ask(self, connect_string: str, partition_id: int) -> Answer:
        port = self._admin_ports.get(connect_string)
        if port is None:
            return NoAnswer("its admin port is not in ZooKeeper")
        context = client_context(self._tls)  # a wrong setting is for the person to see, not a silent node
        try:
            endpoint = admin_endpoint(connect_string, port)
        except StorageNodeError as error:
            return NoAnswer(str(error), unreachable=True)
        try:
            connection = await StorageAdminConnection.open(
                endpoint,
                cluster_key=self._cluster_key,
                num_partitions=self._num_partitions,
                tls=context,
            )
        except (WaltzProtocolError, OSError) as error:
            _log.debug("%s does not answer: %s", connect_string, error)
            return NoAnswer(str(error), unreachable=True)
        try:
            self.distinguish(connect_string, connection)
            available = (await connection.partition_status()).get(partition_id)
            return NotHeld() if available is None else await ask_copy(connection, partition_id, available)
        except (WaltzProtocolError, OSError) as error:
            _log.debug(
                "%s does not answer about partition %d: %s",
                connect_string,
                partition_id,
                error,
                extra={"partition": partition_id},
            )
            return NoAnswer(str(error))
        finally:
            connection.close()


async def ask_copy(connection: StorageAdminConnection, partition_id: int, available: bool) -> ReplicaAnswer:
    """What a node reports about a copy that it has. A question about it that the node refuses is an answer
    too.

    `available`: by its list of partitions. WaltzProtocolError, OSError: it did not answer.
    """
    try:
        info = await connection.last_session_info(partition_id)
    except RequestFailedError as error:
        return ReplicaAnswer(-1, False, None, f"it is out of service: {error}")
    shows = await shows_record(connection, partition_id, info.low_water_mark)
    return ReplicaAnswer(info.session_id, available, shows)


async def shows_record(connection: StorageAdminConnection, partition_id: int, mark: int) -> bool | None:
    """Whether the node shows the record at the mark (or the mark is -1); None when it refuses: it could not
    read it."""
    if mark < 0:
        return True
    try:
        records = await connection.record_list(partition_id, mark, 1)
    except RequestFailedError:
        return None
    return any(record.transaction_id == mark for record in records)


async def check_change(
    metadata: StoreMetadata,
    probe: ReplicaProbe,
    partition_id: int,
    old: Collection[str],
    new: Collection[str],
    *,
    allow_pause: bool = False,
) -> int | None:
    """UnsafeChangeError unless replacing the replicas `old` by `new` is proven to be safe now
    (`why_not_change`).

    Returns the version of the partition's metadata that the proof depends on (None: nothing changes, or it
    was never started): the write must be made under it, for a follower of ZooKeeper may have answered with
    what was true before.
    """
    if set(old) == set(new) or await metadata.never_started(partition_id):
        return None
    state, version = await _read(metadata, partition_id)
    staying = () if change_incomplete(state, old) else tuple(node for node in old if node in new)
    not_current = await _ask(metadata, probe, partition_id, state, version, staying)
    _raise(partition_id, why_not_change(state, old, new, not_current, allow_pause=allow_pause))
    return version


async def check_added(probe: ReplicaProbe, partition_id: int, added: Collection[str]) -> set[str]:
    """UnsafeChangeError when a copy that is to become a replica is out of service (`why_not_add`). Returns
    the nodes that did not answer: asking one of them for each partition would take its time limit each
    time."""
    silent = set()
    for node in added:
        answer = await probe.ask(node, partition_id)
        _raise(partition_id, why_not_add(node, answer))
        if isinstance(answer, NoAnswer):
            silent.add(node)
    return silent


async def check_removal(
    metadata: StoreMetadata,
    probe: ReplicaProbe,
    partition_id: int,
    connect_string: str,
    assigned: Collection[str],
) -> int:
    """UnsafeChangeError unless the copy of a partition on a node is proven to be of no use now
    (`why_not_remove`), by fresh answers. `assigned`: the nodes that ZooKeeper assigns it to.

    Returns the session that ZooKeeper gave out last, -1 for none: the copy itself must not know a later one
    (`check_no_later`).
    """
    if await metadata.never_started(partition_id):
        _raise(partition_id, why_still_needed(NeverStarted(), connect_string, assigned))
        return -1
    state, version = await _read(metadata, partition_id)
    _raise(partition_id, why_still_needed(state, connect_string, assigned))
    not_current = await _ask(metadata, probe, partition_id, state, version, assigned)
    _raise(partition_id, why_not_remove(state, connect_string, assigned, not_current))
    return state.session_id


async def check_deletion(
    metadata: StoreMetadata,
    probe: ReplicaProbe,
    partition_id: int,
    connect_string: str,
    assigned: Collection[str],
) -> int | None:
    """UnsafeChangeError unless the data of a copy can be deleted now and nothing is lost: without it the
    replicas that ZooKeeper assigns are still a quorum of current ones, so they can fill it again; or it is of
    no use anyway (`check_removal`, which says what is returned). None: nothing more is to be asked."""
    if connect_string not in assigned:
        return await check_removal(metadata, probe, partition_id, connect_string, assigned)
    if await metadata.never_started(partition_id):
        return -1
    others = [node for node in assigned if node != connect_string]
    await check_change(metadata, probe, partition_id, assigned, others)
    return None


async def check_no_later(
    connection: StorageAdminConnection, connect_string: str, partition_id: int, session_id: int
) -> None:
    """UnsafeChangeError when the copy on a node has completed a later session than `session_id`, the last one
    that ZooKeeper gave out: then ZooKeeper is an older copy (rule A8), and this may be the replica that
    proves it. WaltzProtocolError, OSError: it did not answer."""
    try:
        known = (await connection.last_session_info(partition_id)).session_id
    except RequestFailedError:
        return  # damaged: it proves nothing
    if known > session_id:
        given = f"gave out no session after {session_id}" if session_id >= 0 else "never gave out a session"
        raise UnsafeChangeError(
            f"partition {partition_id}: the copy on {connect_string} completed session {known}, and ZooKeeper {given}, "
            "so ZooKeeper is an older copy and this copy may be the one that has the data: first run "
            f"`waltz zk accept-restored -p {partition_id}`"
        )


def _raise(partition_id: int, refusal: Refusal | None) -> None:
    if refusal is not None:
        raise UnsafeChangeError(f"partition {partition_id}: {refusal.reason}")


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


async def _ask(
    metadata: StoreMetadata,
    probe: ReplicaProbe,
    partition_id: int,
    state: PartitionMetadata,
    version: int,
    nodes: Collection[str],
) -> dict[str, str]:
    """Why each of the nodes is not proven to be current. Who is not listed need not be asked."""
    reasons = {
        node: why_not_listed(state, node) or why_not_current(state, node, await probe.ask(node, partition_id))
        for node in nodes
    }
    if (await metadata.read_partition(partition_id))[1] != version:
        raise UnsafeChangeError(f"partition {partition_id}: its store session changed meanwhile, try again")
    return reasons
