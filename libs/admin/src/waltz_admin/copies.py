"""One copy of one partition, as its storage node reports it. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from waltz_protocol.types import PartitionId


@dataclass(frozen=True, slots=True)
class NodePartition:
    """What a node reports about one of its partitions. All 64 bits of ids and marks."""

    partition_id: PartitionId
    session_id: int
    low_water_mark: int
    local_low_water_mark: int
    assigned: bool
    available: bool
    max_transaction_id: int | None = None
    """Newest stored transaction; None: the node is of release 0.13.2, which does not report it."""
    log_bytes: int | None = None
    """Bytes of its files; None as above."""
    fence_session_id: int | None = None
    """The lowest session whose requests it takes; None as above."""
