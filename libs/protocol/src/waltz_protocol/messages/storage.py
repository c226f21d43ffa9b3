"""Messages between servers and storage nodes (magic 'S', version 0 of release 0.13.2, and ours, 1).

Every body is the type byte, session id, sequence number and partition id, then the fields in the order given
here. A reply echoes the prefix of its request. `offline` is the flag of offline recovery, always the last
field.
"""

from dataclasses import dataclass
from typing import ClassVar

from waltz_protocol.messages.fields import (
    Bool,
    Error,
    FoundHeader,
    FoundRecord,
    HeaderList,
    Int,
    Key,
    Long,
    Message,
    RecordList,
    Rest,
    Session,
)

UNRESOLVED = 1
"""Flag of a range request: the asking session recovers, so it may have what is not known to be committed."""


@dataclass(frozen=True, slots=True)
class OpenRequest:
    """First request of a connection, with -1 for session, sequence number and partition."""

    TYPE: ClassVar[int] = 1
    SINCE: ClassVar[int] = 0
    session_id: Long
    seq_num: Long
    partition_id: Int
    cluster_key: Key
    num_partitions: Int


@dataclass(frozen=True, slots=True)
class LastSessionInfoRequest:
    """Ask for the last completed session; raises the fence of the partition."""

    TYPE: ClassVar[int] = 2
    SINCE: ClassVar[int] = 0
    session_id: Long
    seq_num: Long
    partition_id: Int
    offline: Bool = False


@dataclass(frozen=True, slots=True)
class LastSessionInfoResponse:
    """The last session that completed a set-low-water-mark."""

    TYPE: ClassVar[int] = 3
    SINCE: ClassVar[int] = 0
    session_id: Long
    seq_num: Long
    partition_id: Int
    info: Session


@dataclass(frozen=True, slots=True)
class SetLowWaterMarkRequest:
    """The session starts with everything up to the mark committed."""

    TYPE: ClassVar[int] = 4
    SINCE: ClassVar[int] = 0
    session_id: Long
    seq_num: Long
    partition_id: Int
    low_water_mark: Long
    offline: Bool = False


@dataclass(frozen=True, slots=True)
class TruncateRequest:
    """Remove everything above `transaction_id`; answered with MaxTransactionIdResponse."""

    TYPE: ClassVar[int] = 5
    SINCE: ClassVar[int] = 0
    session_id: Long
    seq_num: Long
    partition_id: Int
    transaction_id: Long
    offline: Bool = False


@dataclass(frozen=True, slots=True)
class AppendRequest:
    """Append consecutive records. See `frames.storage` for the hot path."""

    TYPE: ClassVar[int] = 6
    SINCE: ClassVar[int] = 0
    session_id: Long
    seq_num: Long
    partition_id: Int
    records: RecordList
    offline: Bool = False


@dataclass(frozen=True, slots=True)
class SuccessResponse:
    """Done."""

    TYPE: ClassVar[int] = 7
    SINCE: ClassVar[int] = 0
    session_id: Long
    seq_num: Long
    partition_id: Int


@dataclass(frozen=True, slots=True)
class FailureResponse:
    """Refused or failed."""

    TYPE: ClassVar[int] = 8
    SINCE: ClassVar[int] = 0
    session_id: Long
    seq_num: Long
    partition_id: Int
    error: Error


@dataclass(frozen=True, slots=True)
class RecordHeaderRequest:
    """Ask for one record without its data."""

    TYPE: ClassVar[int] = 9
    SINCE: ClassVar[int] = 0
    session_id: Long
    seq_num: Long
    partition_id: Int
    transaction_id: Long


@dataclass(frozen=True, slots=True)
class RecordHeaderResponse:
    """The record header, None when there is no such record."""

    TYPE: ClassVar[int] = 10
    SINCE: ClassVar[int] = 0
    session_id: Long
    seq_num: Long
    partition_id: Int
    header: FoundHeader


@dataclass(frozen=True, slots=True)
class RecordRequest:
    """Ask for one record."""

    TYPE: ClassVar[int] = 11
    SINCE: ClassVar[int] = 0
    session_id: Long
    seq_num: Long
    partition_id: Int
    transaction_id: Long


@dataclass(frozen=True, slots=True)
class RecordResponse:
    """The record, None when there is no such record."""

    TYPE: ClassVar[int] = 12
    SINCE: ClassVar[int] = 0
    session_id: Long
    seq_num: Long
    partition_id: Int
    record: FoundRecord


@dataclass(frozen=True, slots=True)
class MaxTransactionIdRequest:
    """Ask for the highest stored transaction id."""

    TYPE: ClassVar[int] = 13
    SINCE: ClassVar[int] = 0
    session_id: Long
    seq_num: Long
    partition_id: Int
    offline: Bool = False


@dataclass(frozen=True, slots=True)
class MaxTransactionIdResponse:
    """The highest stored transaction id, -1 when empty; also the answer to a truncate."""

    TYPE: ClassVar[int] = 14
    SINCE: ClassVar[int] = 0
    session_id: Long
    seq_num: Long
    partition_id: Int
    transaction_id: Long


@dataclass(frozen=True, slots=True)
class RecordHeaderListRequest:
    """Ask for up to `max_count` record headers from `transaction_id` on."""

    TYPE: ClassVar[int] = 15
    SINCE: ClassVar[int] = 0
    session_id: Long
    seq_num: Long
    partition_id: Int
    transaction_id: Long
    max_count: Int


@dataclass(frozen=True, slots=True)
class RecordHeaderListResponse:
    """Consecutive record headers."""

    TYPE: ClassVar[int] = 16
    SINCE: ClassVar[int] = 0
    session_id: Long
    seq_num: Long
    partition_id: Int
    headers: HeaderList


@dataclass(frozen=True, slots=True)
class RecordListRequest:
    """Ask for up to `max_count` records from `transaction_id` on."""

    TYPE: ClassVar[int] = 17
    SINCE: ClassVar[int] = 0
    session_id: Long
    seq_num: Long
    partition_id: Int
    transaction_id: Long
    max_count: Int


@dataclass(frozen=True, slots=True)
class RecordListResponse:
    """Consecutive records."""

    TYPE: ClassVar[int] = 18
    SINCE: ClassVar[int] = 0
    session_id: Long
    seq_num: Long
    partition_id: Int
    records: RecordList


@dataclass(frozen=True, slots=True)
class StoredRangeRequest:
    """Ask for the stored records `first` to `last`, at most `max_bytes` of them or one record."""

    TYPE: ClassVar[int] = 32
    SINCE: ClassVar[int] = 1
    session_id: Long
    seq_num: Long
    partition_id: Int
    first: Long
    last: Long
    committed: Long
    max_bytes: Int
    flags: Int


@dataclass(frozen=True, slots=True)
class StoredRangeResponse:
    """`count` consecutive stored records from `first` on, as they are in the segment."""

    TYPE: ClassVar[int] = 33
    SINCE: ClassVar[int] = 1
    session_id: Long
    seq_num: Long
    partition_id: Int
    first: Long
    count: Int
    records: Rest


@dataclass(frozen=True, slots=True)
class StoredAppendRequest:
    """Append `count` consecutive stored records from `first` on. See `frames.storage` for the hot path."""

    TYPE: ClassVar[int] = 34
    SINCE: ClassVar[int] = 1
    session_id: Long
    seq_num: Long
    partition_id: Int
    committed: Long
    first: Long
    count: Int
    records: Rest


MESSAGES: tuple[type[Message], ...] = (
    OpenRequest,
    LastSessionInfoRequest,
    LastSessionInfoResponse,
    SetLowWaterMarkRequest,
    TruncateRequest,
    AppendRequest,
    SuccessResponse,
    FailureResponse,
    RecordHeaderRequest,
    RecordHeaderResponse,
    RecordRequest,
    RecordResponse,
    MaxTransactionIdRequest,
    MaxTransactionIdResponse,
    RecordHeaderListRequest,
    RecordHeaderListResponse,
    RecordListRequest,
    RecordListResponse,
    StoredRangeRequest,
    StoredRangeResponse,
    StoredAppendRequest,
)
