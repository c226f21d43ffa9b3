"""A small copy, made and compared by the operator itself while a Job would still be starting.

Bounded: `COPY_SECONDS` for all of it, `MAX_COPY_BYTES` read from the source, should it have grown meanwhile.
What an earlier copy has left on the volume of the target is compared like all else. It needs no proof of its
own that it is alone: the target has the partition switched off, and refuses it otherwise. Before each request
the Lease is asked, so that no part of it is written after another operator may have begun.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from waltz_admin.compare import compare_partition
from waltz_admin.errors import AdminError
from waltz_admin.offline_copy import AdminPort, copy_connections, copy_partition
from waltz_admin.tree import admin_endpoint, parse_connect_string
from waltz_cluster.serializers import StoreParams
from waltz_operator.model.actions import CopyPartition
from waltz_operator.model.snapshot import TreeView
from waltz_protocol.aio.tls import TlsSettings
from waltz_protocol.types import Record, SessionInfo

COPY_SECONDS = 8.0
"""Less than a write may take (`lease.LeaseTimes`)."""
MAX_COPY_BYTES = 8 * 1024 * 1024
"""Read from the source, for the copy and for the comparison. A partition that needs more has grown since it
was seen to be small."""
BATCH_SIZE = 2000
"""Records in one request. Each is an append with two syncs of the target; a node answers with fewer when they
are large."""


class SmallCopyError(AdminError):
    """The copy was not made, or not compared, to its end. What the target has of it stays switched off, and a
    Job completes it."""

    retriable = True


class BoundedSource:
    """The source's admin port, with a limit of what is read in all. Owner: the copy."""

    def __init__(self, port: AdminPort, max_bytes: int, check: Callable[[], None]) -> None:
        self._port = port
        self._left = max_bytes
        self._check = check

    async def partition_status(self) -> dict[int, bool]:
        return await self._port.partition_status()

    async def last_session_info(self, partition_id: int) -> SessionInfo:
        return await self._port.last_session_info(partition_id)

    async def record_list(self, partition_id: int, transaction_id: int, max_count: int) -> list[Record]:
        """SmallCopyError when that is more than there may be; what `check` raises."""
        self._check()
        records = await self._port.record_list(partition_id, transaction_id, max_count)
        self._left -= sum(len(record.data) for record in records)
        if self._left < 0:
            raise SmallCopyError(f"partition {partition_id} has grown meanwhile; a Job copies it")
        return records


async def copy_small(
    action: CopyPartition, tree: TreeView, tls: TlsSettings, check: Callable[[], None]
) -> None:
    """Both copies are equal when it returns. SmallCopyError; what `check` raises."""
    params = StoreParams(tree.cluster_key, tree.num_partitions)
    partition = action.partition
    try:
        async with (
            asyncio.timeout(COPY_SECONDS),
            copy_connections(
                params,
                partition,
                source_admin=admin_endpoint(action.source, action.source_admin_port),
                destination_admin=admin_endpoint(action.target, action.target_admin_port),
                destination_storage_port=parse_connect_string(action.target).port,
                source_tls=tls,
                destination_tls=tls,
            ) as (source, destination, data),
        ):
            bounded = BoundedSource(source, MAX_COPY_BYTES, check)
            progress = await copy_partition(bounded, destination, data, partition, BATCH_SIZE)
            await compare_partition(bounded, destination, partition, progress.current, batch_size=BATCH_SIZE)
    except TimeoutError as error:
        raise SmallCopyError(
            f"the copy of partition {partition} has not ended within {COPY_SECONDS:g} s; a Job continues"
        ) from error
    except AdminError as error:
        raise SmallCopyError(str(error)) from error
