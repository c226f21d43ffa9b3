"""Copying a partition from one storage node to another, past the servers (docs/operations.md,
*Copy a partition past the servers*).

The destination must have the partition assigned and *unavailable*; the source may be in use. Both are asked
over their admin ports, and the destination is written over its storage port with the offline flag and its own
persisted session.

Crash order: the destination's low-water mark is set after every batch, so a copy that dies continues from
there when it is run again. What is copied is checked: ids without a gap and the checksum of every record's
data. The target is the source's local low-water mark (everything up to it is committed); it is read again
when it is reached and followed until it no longer moves. A hole in the source ends the copy with an error
that names it.

The destination may be a member of the present session: what it holds beyond its low-water mark may have been
acknowledged, and it keeps the session by which a recovery counts its vote. So nothing is cut that equals the
source: only from the first record on that differs from a committed one, which no quorum can have (safety
rules A5, B1).
"""

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import NamedTuple, Protocol

from waltz_admin.errors import OfflineCopyError, UnreachableError
from waltz_cluster.cluster_params import read_params
from waltz_cluster.serializers import StoreParams
from waltz_cluster.store import ZooKeeperStore
from waltz_protocol.aio.storage_connection import StorageAdminConnection, StorageConnection
from waltz_protocol.aio.tls import TlsSettings, client_context
from waltz_protocol.errors import WaltzProtocolError
from waltz_protocol.types import Endpoint, Record, SessionInfo, data_checksum

DEFAULT_BATCH_SIZE = 20
MAX_BATCH_SIZE = 65_536
"""More records in one request are refused by storage nodes."""


class Progress(NamedTuple):
    """`copied` records so far; the destination holds everything up to `current` of `target`."""

    copied: int
    current: int
    target: int


class AdminPort(Protocol):
    """The part of an admin connection that is used here."""

    async def partition_status(self) -> dict[int, bool]: ...
    async def last_session_info(self, partition_id: int) -> SessionInfo: ...
    async def record_list(self, partition_id: int, transaction_id: int, max_count: int) -> list[Record]: ...


class StoragePort(Protocol):
    """The part of a storage connection that is used here."""

    async def max_transaction_id(
        self, session_id: int, partition_id: int, *, offline: bool = False
    ) -> int: ...
    async def truncate(
        self, session_id: int, partition_id: int, transaction_id: int, *, offline: bool = False
    ) -> int: ...
    async def append(
        self, session_id: int, partition_id: int, records: Sequence[Record], *, offline: bool = False
    ) -> None: ...
    async def set_low_water_mark(
        self, session_id: int, partition_id: int, low_water_mark: int, *, offline: bool = False
    ) -> None: ...


async def recover_partition(
    store: ZooKeeperStore,
    root: str,
    *,
    source_admin: Endpoint,
    destination_admin: Endpoint,
    destination_storage_port: int,
    partition_id: int,
    batch_size: int = DEFAULT_BATCH_SIZE,
    source_tls: TlsSettings,
    destination_tls: TlsSettings,
    progress: Callable[[Progress], None] = lambda _: None,
) -> Progress:
    """Open the three connections, copy, close them. OfflineCopyError, UnreachableError, and what the nodes
    answer.

    Cancellation and crashes leave a destination that a second run completes.
    """
    _, params = await read_params(store, root)
    if not 0 <= partition_id < params.num_partitions:
        raise OfflineCopyError(
            f"there is no partition {partition_id}: the cluster has {params.num_partitions}"
        )
    async with copy_connections(
        params,
        partition_id,
        source_admin=source_admin,
        destination_admin=destination_admin,
        destination_storage_port=destination_storage_port,
        source_tls=source_tls,
        destination_tls=destination_tls,
    ) as (source, destination, data):
        return await copy_partition(source, destination, data, partition_id, batch_size, progress)


@asynccontextmanager
async def copy_connections(
    params: StoreParams,
    partition_id: int,
    *,
    source_admin: Endpoint,
    destination_admin: Endpoint,
    destination_storage_port: int,
    source_tls: TlsSettings,
    destination_tls: TlsSettings,
) -> AsyncIterator[tuple[StorageAdminConnection, StorageAdminConnection, StorageConnection]]:
    """Admin port of the source, admin port and storage port of the destination. UnreachableError for
    everything that goes wrong with one of them, also inside the block. Needs no ZooKeeper: `params` come
    from who has it."""
    key, count = params.cluster_key, params.num_partitions
    source_context, destination_context = client_context(source_tls), client_context(destination_tls)
    opened: list[StorageAdminConnection | StorageConnection] = []
    try:
        source = await StorageAdminConnection.open(
            source_admin, cluster_key=key, num_partitions=count, tls=source_context
        )
        opened.append(source)
        destination = await StorageAdminConnection.open(
            destination_admin, cluster_key=key, num_partitions=count, tls=destination_context
        )
        opened.append(destination)
        data = await StorageConnection.open(
            Endpoint(destination_admin.host, destination_storage_port),
            cluster_key=key,
            num_partitions=count,
            tls=destination_context,
        )
        opened.append(data)
        yield source, destination, data
    except (WaltzProtocolError, OSError) as error:
        raise UnreachableError(f"the copy of partition {partition_id} stopped: {error}") from error
    finally:
        for connection in opened:
            connection.close()


async def copy_partition(
    source: AdminPort,
    destination: AdminPort,
    data: StoragePort,
    partition_id: int,
    batch_size: int,
    progress: Callable[[Progress], None] = lambda _: None,
) -> Progress:
    """The copy itself, over open connections; see the module."""
    if batch_size < 1:
        raise OfflineCopyError(f"the batch size must be at least 1, not {batch_size}")
    batch_size = min(batch_size, MAX_BATCH_SIZE)
    await _check_status(source, destination, partition_id)
    session_id, low_water_mark, _ = await destination.last_session_info(partition_id)
    target = (await source.last_session_info(partition_id)).local_low_water_mark
    if target < low_water_mark:
        raise OfflineCopyError(
            f"the source holds committed records up to {target} only, the destination up to {low_water_mark}: "
            "nothing was changed"
        )
    current = await data.max_transaction_id(session_id, partition_id, offline=True)
    equal = low_water_mark
    copied = 0
    progress(Progress(copied, min(current, target), target))
    while True:
        held = min(current, target)
        if equal < held:
            equal = await _equal_through(source, destination, partition_id, equal, held, batch_size)
            if equal < held:
                current = await _cut(data, session_id, partition_id, equal)
        if current >= target:
            newer = (await source.last_session_info(partition_id)).local_low_water_mark
            if newer <= target:
                return Progress(copied, target, target)
            target = newer
            continue
        first = current + 1
        records = await source.record_list(partition_id, first, min(batch_size, target - current))
        check_records(records, first, target)
        await data.append(session_id, partition_id, records, offline=True)
        equal = current = records[-1].transaction_id
        mark = max(current, low_water_mark)  # a mark that was set before the records came is never taken back
        await data.set_low_water_mark(session_id, partition_id, mark, offline=True)
        copied += len(records)
        progress(Progress(copied, current, target))


async def _equal_through(
    source: AdminPort, destination: AdminPort, partition_id: int, through: int, last: int, batch_size: int
) -> int:
    """The last id up to `last` such that both hold the same records after `through`."""
    while through < last:
        first, count = through + 1, min(batch_size, last - through)
        theirs = await source.record_list(partition_id, first, count)
        check_records(theirs, first, last)
        ours = await destination.record_list(partition_id, first, count)
        compared = min(len(theirs), len(ours))  # a node may answer with fewer than asked for
        if compared == 0:
            return through
        for one, other in zip(theirs[:compared], ours[:compared], strict=True):
            if one != other:
                return through
            through += 1
    return through


async def _cut(data: StoragePort, session_id: int, partition_id: int, through: int) -> int:
    await data.truncate(session_id, partition_id, through, offline=True)
    current = await data.max_transaction_id(session_id, partition_id, offline=True)
    if current > through:
        raise OfflineCopyError(
            f"the destination still has records up to {current} after cutting to {through}"
        )
    return current


async def _check_status(source: AdminPort, destination: AdminPort, partition_id: int) -> None:
    if partition_id not in await source.partition_status():
        raise OfflineCopyError(f"partition {partition_id} is not assigned to the source node")
    available = (await destination.partition_status()).get(partition_id)
    if available is None:
        raise OfflineCopyError(f"partition {partition_id} is not assigned to the destination node")
    if available:
        raise OfflineCopyError(
            f"partition {partition_id} is available on the destination node: take it offline first"
        )


def check_records(records: Sequence[Record], first: int, target: int) -> None:
    """OfflineCopyError unless these are intact records `first`, `first + 1`, … not beyond `target`.
    Pure."""
    if not records:
        raise OfflineCopyError(
            f"the source has a hole: record {first} is missing though it should hold up to {target}"
        )
    for expected, record in enumerate(records, first):
        if record.transaction_id != expected or expected > target:
            raise OfflineCopyError(f"the source sent record {record.transaction_id} where {expected} was due")
        if data_checksum(record.data) != record.checksum:
            raise OfflineCopyError(f"record {expected} of the source is damaged: its checksum does not match")
