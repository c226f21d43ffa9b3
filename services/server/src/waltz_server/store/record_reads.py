"""Records of one storage node, checked: as they are stored where the node speaks version 1 of the storage
protocol, else as wire records, in as many as an answer of a node of release 0.13.2 may hold.

What does not match its checksum is asked for again in the form that the node itself checks: it then counts
the damage and says so in its health, gives what is in order before it, or refuses.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import NamedTuple

from waltz_protocol.errors import ProtocolError, RequestFailedError, WaltzProtocolError
from waltz_protocol.fence_refusal import named_fence
from waltz_protocol.frames.blocks import cut_stored
from waltz_protocol.records import verify_record
from waltz_server.store.list_request_size import ListRequestSize
from waltz_server.store.record_run import RecordRun
from waltz_server.store.replica_connection import ReplicaLink

_HEAD = struct.Struct(">q8xi")
"""Transaction id and partition id of a wire record."""
_MAX_LISTED_RECORDS = 256
"""In one list request of a reader."""


class WrongRecordsError(WaltzProtocolError):
    """A node's answer is not what was asked for; another replica may have it."""


class Wanted(NamedTuple):
    """Records `first` to `last`: at most `max_bytes`, or one record. None above `committed`, the committed
    mark of the session, unless `unresolved`: the session recovers."""

    session_id: int
    partition_id: int
    first: int
    last: int
    max_bytes: int
    committed: int = -1
    unresolved: bool = False


async def read_records(link: ReplicaLink, wanted: Wanted, size: ListRequestSize) -> RecordRun:
    """The first of the wanted records, at least one, from one node.

    Raises what the request raises, and WrongRecordsError. `size`: what the partition has learnt about wire
    records; their size limit is met as well as the recent ones predict, then exactly by cutting.
    """
    if link.stored_records:
        run = await _stored(link, wanted)
        if run is not None:
            return run
    records = await _listed(link, wanted, size)
    problem = check_records(records, wanted.first, wanted.partition_id)
    if problem is not None:
        raise WrongRecordsError(problem)
    return RecordRun.of_wire(wanted.first, cut_at(records, wanted.max_bytes))


async def _stored(link: ReplicaLink, wanted: Wanted) -> RecordRun | None:
    """The same as stored records; None when one of them is damaged, or cannot be read: a list gets as far as
    the records before it."""
    first, last = wanted.first, wanted.last
    try:
        found, count, data = await link.stored_range(
            wanted.session_id,
            wanted.partition_id,
            first,
            last,
            committed=wanted.committed,
            max_bytes=wanted.max_bytes,
            unresolved=wanted.unresolved,
        )
    except RequestFailedError as error:
        if named_fence(error.message) is not None:
            raise
        return None
    if count == 0:
        raise WrongRecordsError(f"it has no record {first}")
    if found != first or not 0 < count <= last - first + 1:
        raise WrongRecordsError(f"it answered with {count} records from {found} on, not {first} to {last}")
    try:
        starts = cut_stored(data, 0, wanted.partition_id, first, first + count - 1, count)
    except ProtocolError:
        return None
    if starts[-1] != len(data) or (count > 1 and starts[-2] >= wanted.max_bytes):
        raise WrongRecordsError(
            f"it answered with {len(data)} bytes to a request for {wanted.max_bytes} from record {first} on"
        )
    return RecordRun.of_stored(first, data, starts)


async def _listed(link: ReplicaLink, wanted: Wanted, size: ListRequestSize) -> list[bytes]:
    """Wire records, not checked; learns from how the request ends. Cancelling counts as a failure: the caller
    may have given up on an answer too large."""
    count = wanted.last - wanted.first + 1
    if not wanted.unresolved:
        count = min(count, _MAX_LISTED_RECORDS)
    asked = size.ask(count, wanted.max_bytes)
    try:
        records = await link.record_list_raw(wanted.session_id, wanted.partition_id, wanted.first, asked)
    except BaseException:
        size.failed()
        raise
    if records:
        size.answered(asked, len(records), sum(map(len, records)))
    return records[:count]


def cut_at(records: list[bytes], max_bytes: int) -> list[bytes]:
    """As many of the records as fit into `max_bytes`, at least one."""
    total = 0
    for index, record in enumerate(records):
        total += len(record)
        if total > max_bytes and index:
            return records[:index]
    return records


def check_records(records: Sequence[bytes], first: int, partition_id: int) -> str | None:
    """What is wrong with an answer to "records of the partition from `first` on"; None when nothing is."""
    if not records:
        return f"it has no record {first}"
    for expected, record in enumerate(records, start=first):
        found, found_partition = _HEAD.unpack_from(record)
        if found != expected:
            return f"it answered with record {found} instead of {expected}"
        if found_partition != partition_id:
            return f"its record {expected} is one of partition {found_partition}"
        if not verify_record(record):
            return f"the data of record {expected} does not match its checksum"
    return None
