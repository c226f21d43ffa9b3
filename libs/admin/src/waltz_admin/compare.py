"""Are two copies of a partition equal, record by record? (safety rule F5)

Both nodes are asked for the same records over their admin ports; every record's checksum is computed again
from its data on both sides, and everything that makes a record (transaction id, request id, header, data,
checksum) is compared. File cuts and creation times may differ and are not looked at.
"""

import hashlib
from collections.abc import Callable
from typing import NamedTuple

from waltz_admin.errors import OfflineCopyError
from waltz_admin.offline_copy import AdminPort
from waltz_protocol.records import pack_record
from waltz_protocol.types import Record, data_checksum

DEFAULT_BATCH_SIZE = 200


class DifferenceError(OfflineCopyError):
    """The two copies are not equal; the text names the first record."""


class Comparison(NamedTuple):
    """Both sides hold the same `records` up to and with id `through`; `checksum`: SHA-256 over all of
    them, hexadecimal."""

    through: int
    records: int
    checksum: str


async def compare_partition(
    source: AdminPort,
    destination: AdminPort,
    partition_id: int,
    through: int,
    *,
    batch_size: int = DEFAULT_BATCH_SIZE,
    progress: Callable[[int], None] = lambda _: None,
) -> Comparison:
    """Compare all records from 0 to `through` (-1: none). DifferenceError; what the nodes answer.
    `progress` gets the last equal id."""
    digest = hashlib.sha256()
    first = 0
    while first <= through:
        wanted = min(batch_size, through - first + 1)
        left = await source.record_list(partition_id, first, wanted)
        right = await destination.record_list(partition_id, first, wanted)
        count = min(len(left), len(right))  # a node may answer with fewer than asked for
        if count == 0:
            side = "the source" if not left else "the destination"
            raise DifferenceError(f"partition {partition_id}: {side} does not hold record {first}")
        for one, other in zip(left[:count], right[:count], strict=True):
            check_equal(partition_id, first, one, other)
            digest.update(pack_record(one))
            first += 1
        progress(first - 1)
    return Comparison(through, max(0, through + 1), digest.hexdigest())


def check_equal(partition_id: int, transaction_id: int, source: Record, destination: Record) -> None:
    """DifferenceError unless both are the same intact record of this id. Pure."""
    for side, record in (("source", source), ("destination", destination)):
        if record.transaction_id != transaction_id:
            raise DifferenceError(
                f"partition {partition_id}: the {side} shows record {record.transaction_id} in the place of {transaction_id}"
            )
        if data_checksum(record.data) != record.checksum:
            raise DifferenceError(
                f"partition {partition_id}: record {transaction_id} of the {side} is damaged"
            )
    if source != destination:
        raise DifferenceError(
            f"partition {partition_id}: record {transaction_id} differs between the two nodes"
        )
