"""Messages between clients and servers (magic 'L', versions 0 to 5; 0.13.2 speaks 0 to 4).

Every body is the type byte, the ReqId, then the fields in the order given here. A response carries the ReqId
of its request, except `FeedData`, which carries that of the append that made the transaction.
"""

from dataclasses import dataclass
from enum import IntEnum
from typing import Annotated, Any, ClassVar

from waltz_protocol.buffer import Reader, Writer
from waltz_protocol.errors import ProtocolError
from waltz_protocol.messages import directory, producers
from waltz_protocol.messages.fields import (
    Bool,
    Int,
    IntBoolMap,
    IntList,
    Ints,
    Long,
    Message,
    Octets,
    Ranges,
    Rest,
    Since,
    Text,
    TextBoolMap,
    Wire,
    WireReqId,
)
from waltz_protocol.types import data_checksum


class MountState(IntEnum):
    """Answer to a mount. Versions 0 to 2 know only ready or not: CLIENT_AHEAD is sent as not ready there.
    FENCED answers a mount of a named producer: a newer instance of it has mounted the partition."""

    READY = 0
    NOT_READY = 1
    CLIENT_AHEAD = 2
    FENCED = 3


def _write_mount_state(w: Writer, value: MountState, version: int) -> None:
    if version < 3:
        w.boolean(value == MountState.READY)
    else:
        w.i32(value)


def _read_mount_state(r: Reader, version: int) -> MountState:
    if version < 3:
        return MountState.READY if r.boolean() else MountState.NOT_READY
    value = r.i32()
    try:
        return MountState(value)
    except ValueError:
        raise ProtocolError(f"unknown mount state {value}") from None


@dataclass(frozen=True, slots=True)
class MountRequest:
    """Follow a partition from `client_high_water_mark` on; the connection number fences older connections."""

    TYPE: ClassVar[int] = 0
    SINCE: ClassVar[int] = 0
    req_id: WireReqId
    client_high_water_mark: Long
    connection_seq_num: Long


@dataclass(frozen=True, slots=True)
class MountResponse:
    """Sent after the catch-up feed, when the client is where the server is."""

    TYPE: ClassVar[int] = 1
    SINCE: ClassVar[int] = 0
    req_id: WireReqId
    state: Annotated[MountState, Wire(_write_mount_state, _read_mount_state)]


@dataclass(frozen=True, slots=True)
class AppendRequest:
    """Append a transaction. The hot path uses `frames.append` instead; a null lock array means "drop it"."""

    TYPE: ClassVar[int] = 2
    SINCE: ClassVar[int] = 0
    req_id: WireReqId
    client_high_water_mark: Long
    write_locks: Ints
    read_locks: Annotated[Ints, Since(1)]
    append_locks: Annotated[Ints, Since(2)]
    header: Int
    data: Octets
    checksum: Int

    def verify(self) -> None:
        """ProtocolError for null data or a checksum that does not match."""
        if self.data is None:
            raise ProtocolError("an append without data")
        if data_checksum(self.data) != self.checksum:
            raise ProtocolError("the data of an append does not match its checksum")


@dataclass(frozen=True, slots=True)
class FeedRequest:
    """Ask for the next transactions (with the ReqId of the mount)."""

    TYPE: ClassVar[int] = 3
    SINCE: ClassVar[int] = 0
    req_id: WireReqId
    client_high_water_mark: Long


@dataclass(frozen=True, slots=True)
class FeedData:
    """One committed transaction; the data is fetched separately. See `frames.feed` for the hot path."""

    TYPE: ClassVar[int] = 4
    SINCE: ClassVar[int] = 0
    req_id: WireReqId
    transaction_id: Long
    header: Int


@dataclass(frozen=True, slots=True)
class FeedSuspended:
    """The credit of a feed is used up; the client answers with a feed request."""

    TYPE: ClassVar[int] = 5
    SINCE: ClassVar[int] = 0
    req_id: WireReqId


@dataclass(frozen=True, slots=True)
class TransactionDataRequest:
    """Ask for the data of one transaction."""

    TYPE: ClassVar[int] = 6
    SINCE: ClassVar[int] = 0
    req_id: WireReqId
    transaction_id: Long


def _write_data_or_error(w: Writer, value: "TransactionDataResponse", _version: int) -> None:
    w.boolean(value.error is None)
    if value.error is None:
        w.octets(value.data)
        w.i32(value.checksum)
    else:
        w.text(value.error)


def _read_data_or_error(r: Reader, _version: int) -> dict[str, Any]:
    if r.boolean():
        return {"data": r.octets(), "checksum": r.i32(), "error": None}
    return {"data": None, "checksum": 0, "error": r.text() or ""}


@dataclass(frozen=True, slots=True)
class TransactionDataResponse:
    """The data (`error` is None), or why there is none (`data` is None; the text is opaque)."""

    TYPE: ClassVar[int] = 7
    SINCE: ClassVar[int] = 0
    REST: ClassVar[Wire] = Wire(_write_data_or_error, _read_data_or_error)
    """The fields behind `transaction_id` depend on each other: written and read together."""
    req_id: WireReqId
    transaction_id: Long
    data: bytes | None
    checksum: int = 0
    error: str | None = None

    def verify(self) -> None:
        """ProtocolError for a success whose data is null or does not match its checksum."""
        if self.error is not None:
            return
        if self.data is None or data_checksum(self.data) != self.checksum:
            raise ProtocolError(f"the data of transaction {self.transaction_id} does not match its checksum")


@dataclass(frozen=True, slots=True)
class FlushRequest:
    """Ask for an answer once every earlier append of the partition is decided."""

    TYPE: ClassVar[int] = 8
    SINCE: ClassVar[int] = 0
    req_id: WireReqId


@dataclass(frozen=True, slots=True)
class FlushResponse:
    """All earlier appends are decided; `transaction_id` is the server's high-water mark then."""

    TYPE: ClassVar[int] = 9
    SINCE: ClassVar[int] = 0
    req_id: WireReqId
    transaction_id: Long


@dataclass(frozen=True, slots=True)
class LockFailure:
    """An append failed: its locks may have been taken by a transaction up to `transaction_id`."""

    TYPE: ClassVar[int] = 10
    SINCE: ClassVar[int] = 0
    req_id: WireReqId
    transaction_id: Long


@dataclass(frozen=True, slots=True)
class HighWaterMarkRequest:
    """Ask for the last committed transaction id."""

    TYPE: ClassVar[int] = 11
    SINCE: ClassVar[int] = 0
    req_id: WireReqId


@dataclass(frozen=True, slots=True)
class HighWaterMarkResponse:
    """The last committed transaction id, -1 for an empty log."""

    TYPE: ClassVar[int] = 12
    SINCE: ClassVar[int] = 0
    req_id: WireReqId
    transaction_id: Long


@dataclass(frozen=True, slots=True)
class CheckStorageConnectivityRequest:
    """Ask the server which storage nodes it reaches."""

    TYPE: ClassVar[int] = 13
    SINCE: ClassVar[int] = 1
    req_id: WireReqId


@dataclass(frozen=True, slots=True)
class CheckStorageConnectivityResponse:
    """Storage node ("host:port") to reachable or not."""

    TYPE: ClassVar[int] = 14
    SINCE: ClassVar[int] = 1
    req_id: WireReqId
    connectivity: TextBoolMap


@dataclass(frozen=True, slots=True)
class ServerPartitionsAssignmentRequest:
    """Ask which partitions the server holds."""

    TYPE: ClassVar[int] = 15
    SINCE: ClassVar[int] = 2
    req_id: WireReqId


@dataclass(frozen=True, slots=True)
class ServerPartitionsAssignmentResponse:
    """The partitions the server holds, in any order."""

    TYPE: ClassVar[int] = 16
    SINCE: ClassVar[int] = 2
    req_id: WireReqId
    partitions: IntList


@dataclass(frozen=True, slots=True)
class AddPreferredPartitionRequest:
    """Ask the server to prefer these partitions."""

    TYPE: ClassVar[int] = 17
    SINCE: ClassVar[int] = 2
    req_id: WireReqId
    partitions: IntList


@dataclass(frozen=True, slots=True)
class AddPreferredPartitionResponse:
    """False: a partition id is out of range and nothing changed."""

    TYPE: ClassVar[int] = 18
    SINCE: ClassVar[int] = 2
    req_id: WireReqId
    result: Bool


@dataclass(frozen=True, slots=True)
class RemovePreferredPartitionRequest:
    """Ask the server to prefer these partitions no longer."""

    TYPE: ClassVar[int] = 19
    SINCE: ClassVar[int] = 2
    req_id: WireReqId
    partitions: IntList


@dataclass(frozen=True, slots=True)
class RemovePreferredPartitionResponse:
    """False: a partition id is out of range and nothing changed."""

    TYPE: ClassVar[int] = 20
    SINCE: ClassVar[int] = 2
    req_id: WireReqId
    result: Bool


@dataclass(frozen=True, slots=True)
class ServerPartitionsHealthStatRequest:
    """Ask for the health of the server's partitions."""

    TYPE: ClassVar[int] = 21
    SINCE: ClassVar[int] = 4
    req_id: WireReqId


@dataclass(frozen=True, slots=True)
class ServerPartitionsHealthStatResponse:
    """Partition id to healthy or not."""

    TYPE: ClassVar[int] = 22
    SINCE: ClassVar[int] = 4
    req_id: WireReqId
    health: IntBoolMap


@dataclass(frozen=True, slots=True)
class BlockFeedRequest:
    """Open a feed of blocks after a transaction (-2: after the last one), up to `until` (-1: without end)."""

    TYPE: ClassVar[int] = 32
    SINCE: ClassVar[int] = 5
    req_id: WireReqId
    after: Long
    until: Long
    credit_transactions: Int
    credit_bytes: Long
    flags: Int
    headers: Ranges


@dataclass(frozen=True, slots=True)
class FeedBlock:
    """Transactions `first` to `last`, `count` of which are in it, as stored records back to back; with flag 2
    compressed."""

    TYPE: ClassVar[int] = 33
    SINCE: ClassVar[int] = 5
    req_id: WireReqId
    first: Long
    last: Long
    count: Int
    flags: Int
    records: Rest


@dataclass(frozen=True, slots=True)
class BlockCredit:
    """More credit for an open feed of blocks."""

    TYPE: ClassVar[int] = 34
    SINCE: ClassVar[int] = 5
    req_id: WireReqId
    transactions: Int
    size_bytes: Long


@dataclass(frozen=True, slots=True)
class BlockFeedEnd:
    """The client has no use for a feed of blocks any longer; it has no answer."""

    TYPE: ClassVar[int] = 35
    SINCE: ClassVar[int] = 5
    req_id: WireReqId


@dataclass(frozen=True, slots=True)
class BlockFailure:
    """A feed of blocks is over, with a code and a sentence."""

    TYPE: ClassVar[int] = 36
    SINCE: ClassVar[int] = 5
    req_id: WireReqId
    code: Int
    text: Text


FROM_THE_END = -2
"""`BlockFeedRequest.after`: whatever the last committed transaction is."""
WITHOUT_END = -1
"""`BlockFeedRequest.until`."""


class BlockFailureCode(IntEnum):
    """Why a feed of blocks is over. All but `TOO_MANY_FEEDS` and `WRONG_REQUEST` are worth another try."""

    NOT_SERVED = 1
    READ_FAILED = 2
    TOO_MANY_FEEDS = 3
    WRONG_REQUEST = 4


class CloseCode(IntEnum):
    """Why a server closes a connection. All are worth another connection; `PROTOCOL_ERROR` says that this
    side has to be mended."""

    PROTOCOL_ERROR = 1
    LEAVING = 2
    TOO_MUCH = 3
    INTERNAL_ERROR = 4


@dataclass(frozen=True, slots=True)
class CloseNotice:
    """The server closes this connection, with a code and a sentence; nothing follows."""

    TYPE: ClassVar[int] = 37
    SINCE: ClassVar[int] = 5
    req_id: WireReqId
    code: Int
    text: Text


@dataclass(frozen=True, slots=True)
class UnmountRequest:
    """The client takes no part in a partition any longer; it has no answer."""

    TYPE: ClassVar[int] = 38
    SINCE: ClassVar[int] = 5
    req_id: WireReqId


@dataclass(frozen=True, slots=True)
class ServerReportRequest:
    """Ask the server about its clients (1), locks (2), latency (4), load (8), the replicas that it refuses
    (16) and its partitions that are not open (32): `parts` is their sum. A server leaves out what it does not
    know; those of release 0.13.2 close the connection."""

    TYPE: ClassVar[int] = 120
    SINCE: ClassVar[int] = 4
    req_id: WireReqId
    parts: Int


@dataclass(frozen=True, slots=True)
class ServerReportResponse:
    """The report as JSON text, a member for each part. That of part 16 is `replicas`: `refused`, a list of at
    most 1,000 objects with `partition`, `node` (connect string) and `reason`, and `left_out`, the number
    of the others. That of part 32 is `not_open`: `rows`, at most 1,000 objects with `partition`, `state` and
    `reason` (1,000 characters at most), those with the state `fault` first, and `left_out`. State and reason
    are those that the server's /health has for the partition, on either side of the first colon."""

    TYPE: ClassVar[int] = 121
    SINCE: ClassVar[int] = 4
    req_id: WireReqId
    json: Text


MESSAGES: tuple[type[Message], ...] = (
    MountRequest,
    MountResponse,
    AppendRequest,
    FeedRequest,
    FeedData,
    FeedSuspended,
    TransactionDataRequest,
    TransactionDataResponse,
    FlushRequest,
    FlushResponse,
    LockFailure,
    HighWaterMarkRequest,
    HighWaterMarkResponse,
    CheckStorageConnectivityRequest,
    CheckStorageConnectivityResponse,
    ServerPartitionsAssignmentRequest,
    ServerPartitionsAssignmentResponse,
    AddPreferredPartitionRequest,
    AddPreferredPartitionResponse,
    RemovePreferredPartitionRequest,
    RemovePreferredPartitionResponse,
    ServerPartitionsHealthStatRequest,
    ServerPartitionsHealthStatResponse,
    BlockFeedRequest,
    FeedBlock,
    BlockCredit,
    BlockFeedEnd,
    BlockFailure,
    CloseNotice,
    UnmountRequest,
    *directory.MESSAGES,
    *producers.MESSAGES,
    ServerReportRequest,
    ServerReportResponse,
)
