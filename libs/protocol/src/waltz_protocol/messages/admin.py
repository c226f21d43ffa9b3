"""Messages on the admin port of storage nodes (magic 'A', versions 0 and 1).

Release 0.13.2 speaks version 0 only; version 1 adds the node report. Every body is the type byte and the
sequence number, then the fields in the order given here. Type 5 is retired and unknown. A null list of
partitions (None) is representable: nodes close the connection for it.
"""

from dataclasses import dataclass
from typing import ClassVar

from waltz_protocol.messages.fields import (
    Bool,
    Error,
    Int,
    IntBoolMap,
    Ints,
    Key,
    Long,
    Message,
    RecordList,
    Session,
    Text,
)


@dataclass(frozen=True, slots=True)
class SuccessResponse:
    """Done."""

    TYPE: ClassVar[int] = 1
    SINCE: ClassVar[int] = 0
    seq_num: Long


@dataclass(frozen=True, slots=True)
class FailureResponse:
    """Refused or failed."""

    TYPE: ClassVar[int] = 2
    SINCE: ClassVar[int] = 0
    seq_num: Long
    error: Error


@dataclass(frozen=True, slots=True)
class OpenRequest:
    """First request of a connection, with sequence number -1."""

    TYPE: ClassVar[int] = 3
    SINCE: ClassVar[int] = 0
    seq_num: Long
    cluster_key: Key
    num_partitions: Int


@dataclass(frozen=True, slots=True)
class PartitionAvailableRequest:
    """Set or clear the available flag of partitions."""

    TYPE: ClassVar[int] = 4
    SINCE: ClassVar[int] = 0
    seq_num: Long
    partitions: Ints
    available: Bool


@dataclass(frozen=True, slots=True)
class PartitionAssignmentRequest:
    """Assign partitions to the node or take them away."""

    TYPE: ClassVar[int] = 6
    SINCE: ClassVar[int] = 0
    seq_num: Long
    partitions: Ints
    assigned: Bool
    delete_files: Bool = False


@dataclass(frozen=True, slots=True)
class RecordListRequest:
    """Ask for records, also of an unavailable partition."""

    TYPE: ClassVar[int] = 7
    SINCE: ClassVar[int] = 0
    seq_num: Long
    partition_id: Int
    transaction_id: Long
    max_count: Int


@dataclass(frozen=True, slots=True)
class RecordListResponse:
    """Consecutive records."""

    TYPE: ClassVar[int] = 8
    SINCE: ClassVar[int] = 0
    seq_num: Long
    partition_id: Int
    records: RecordList


@dataclass(frozen=True, slots=True)
class LastSessionInfoRequest:
    """Ask for the last completed session without touching the fence."""

    TYPE: ClassVar[int] = 9
    SINCE: ClassVar[int] = 0
    seq_num: Long
    partition_id: Int


@dataclass(frozen=True, slots=True)
class LastSessionInfoResponse:
    """The last session that completed a set-low-water-mark."""

    TYPE: ClassVar[int] = 10
    SINCE: ClassVar[int] = 0
    seq_num: Long
    partition_id: Int
    info: Session


@dataclass(frozen=True, slots=True)
class MetricsRequest:
    """Ask for all metrics."""

    TYPE: ClassVar[int] = 11
    SINCE: ClassVar[int] = 0
    seq_num: Long


@dataclass(frozen=True, slots=True)
class MetricsResponse:
    """The metrics as JSON text."""

    TYPE: ClassVar[int] = 12
    SINCE: ClassVar[int] = 0
    seq_num: Long
    json: Text


@dataclass(frozen=True, slots=True)
class AssignedPartitionStatusRequest:
    """Ask which partitions are assigned."""

    TYPE: ClassVar[int] = 13
    SINCE: ClassVar[int] = 0
    seq_num: Long


@dataclass(frozen=True, slots=True)
class AssignedPartitionStatusResponse:
    """Assigned partition id to available or not."""

    TYPE: ClassVar[int] = 14
    SINCE: ClassVar[int] = 0
    seq_num: Long
    status: IntBoolMap


@dataclass(frozen=True, slots=True)
class NodeReportRequest:
    """Ask for the state of all partitions of the node, or for what has changed since the last report on this
    connection."""

    TYPE: ClassVar[int] = 15
    SINCE: ClassVar[int] = 1
    seq_num: Long
    everything: Bool


@dataclass(frozen=True, slots=True)
class NodeReportResponse:
    """The report as JSON text."""

    TYPE: ClassVar[int] = 16
    SINCE: ClassVar[int] = 1
    seq_num: Long
    json: Text


MESSAGES: tuple[type[Message], ...] = (
    SuccessResponse,
    FailureResponse,
    OpenRequest,
    PartitionAvailableRequest,
    PartitionAssignmentRequest,
    RecordListRequest,
    RecordListResponse,
    LastSessionInfoRequest,
    LastSessionInfoResponse,
    MetricsRequest,
    MetricsResponse,
    AssignedPartitionStatusRequest,
    AssignedPartitionStatusResponse,
    NodeReportRequest,
    NodeReportResponse,
)
