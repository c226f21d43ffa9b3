"""A server's connection to a storage node, and a tool's connection to its admin port.

One TCP connection serves all partitions and all store sessions (storage protocol, transport). Open is done
when the object exists. Requests go out as they come; a node answers those of one partition in order. Nothing
is ever sent twice: a request that ended with an error may or may not have been executed.
"""

import asyncio
import json
from collections.abc import Callable, Sequence
from typing import Any, Self, TypeVar
from uuid import UUID

from waltz_protocol.aio.append_requests import AppendCallback, AppendRequester
from waltz_protocol.aio.channel import Channel, ChannelSettings
from waltz_protocol.aio.connector import connect
from waltz_protocol.aio.requester import Requester
from waltz_protocol.aio.tls import ClientTls, shown_certificate
from waltz_protocol.codec import ADMIN, STORAGE, STORAGE_OF_0_13_2, Protocol, storage_versions
from waltz_protocol.errors import ConnectError, ProtocolError, RequestFailedError, WaltzProtocolError
from waltz_protocol.frame import DEFAULT_MAX_FRAME_BYTES
from waltz_protocol.frames.storage import (
    ADMIN_SEQ_NUM_OFFSET,
    RECORD_LIST_RESPONSE_TYPE,
    parse_prefix,
    parse_record_list,
    storage_append_parts,
)
from waltz_protocol.messages import admin, storage
from waltz_protocol.messages.fields import Message, RpcError
from waltz_protocol.records import pack_record, split_records
from waltz_protocol.types import Endpoint, Record, RecordHeader, SessionInfo, ShownCertificate

_M = TypeVar("_M", bound=Message)

_OPEN_SEQ_NUM = -1


def _failure(error: RpcError) -> RequestFailedError:
    return RequestFailedError(error.message or "the storage node gave no reason")


class _Connection:
    """What both ports have in common: one channel, one requester, Open."""

    _protocol: Protocol
    _hello_text: str

    def __init__(self, endpoint: Endpoint, requester: Requester) -> None:
        self.endpoint = endpoint
        self._requester = requester
        self._channel: Channel | None = None
        self._versions = self._protocol.versions
        self.version = 0
        """Of the protocol, the one that both sides speak."""

    async def _connect(
        self, tls: ClientTls | None, connect_timeout_seconds: float, max_frame_bytes: int, opening: Message
    ) -> None:
        settings = ChannelSettings(
            magic=self._protocol.magic,
            versions=self._versions,
            hello_text=self._hello_text,
            max_frame_bytes=max_frame_bytes,
            handshake_timeout_seconds=connect_timeout_seconds,
        )
        self._channel = await connect(self.endpoint, settings, self._requester, tls, connect_timeout_seconds)
        self._greeted(self._channel.version)
        try:
            await self._requester.call(_OPEN_SEQ_NUM, self._encode(opening), self._check_open)
        except RequestFailedError as e:
            self._channel.close(f"open was refused: {e}")
            raise RequestFailedError(f"{self.endpoint} refused to open: {e}") from None
        except WaltzProtocolError as e:
            self._channel.abort(f"open failed: {e}")
            raise ConnectError(f"cannot open {self.endpoint}: {e}") from None
        except BaseException:
            self._channel.abort("cancelled while opening")
            raise

    def _greeted(self, version: int) -> None:
        """The Hellos are exchanged; what depends on the version never changes from now on."""
        self.version = version

    def _check_open(self, body: memoryview) -> None:
        raise NotImplementedError

    def _encode(self, message: Message) -> tuple[bytes]:
        return (self._protocol.encode(message, self.version),)

    @property
    def closed(self) -> bool:
        """True once the connection is of no use any longer."""
        return self._channel is None or self._channel.closed

    @property
    def peer(self) -> str:
        """Address and port that are connected to."""
        return self._channel.peer if self._channel is not None else "?"

    @property
    def process_id(self) -> UUID | None:
        """Of the node's process, the same on both its ports; None of a node of an older release."""
        return self._channel.peer_hello.process_id if self._channel is not None else None

    @property
    def certificate(self) -> ShownCertificate | None:
        """The certificate of the node, where it is verified."""
        return shown_certificate(self._channel.extra("peercert")) if self._channel is not None else None

    @property
    def close_reason(self) -> str | None:
        """Why it is closed."""
        return self._channel.close_reason if self._channel is not None else None

    @property
    def on_closed(self) -> list[Callable[[str], None]]:
        """Called with the reason when the connection is gone, after the callbacks of all outstanding
        requests."""
        return self._requester.on_closed

    @property
    def pending(self) -> int:
        """Requests without an answer yet."""
        return self._requester.pending

    def close(self, reason: str = "closed by its owner") -> None:
        """Close; outstanding requests fail with ChannelClosedError in the next loop turn. Idempotent."""
        if self._channel is not None:
            self._channel.close(reason)

    async def wait_closed(self) -> None:
        """Wait until the socket is gone."""
        if self._channel is not None:
            await self._channel.wait_closed()


class StorageConnection(_Connection):
    """One open connection to a storage port. All methods raise RequestFailedError (the node refused),
    RequestTimeoutError or ChannelClosedError; cancelling stops the waiting, not the request."""

    _protocol = STORAGE
    _hello_text = "Waltz Storage Client"

    def __init__(self, endpoint: Endpoint, request_timeout_seconds: float) -> None:
        super().__init__(endpoint, AppendRequester(request_timeout_seconds, self._expect_success))

    @classmethod
    async def open(
        cls,
        endpoint: Endpoint,
        *,
        cluster_key: UUID,
        num_partitions: int,
        tls: ClientTls | None,
        request_timeout_seconds: float = 2.0,
        connect_timeout_seconds: float = 5.0,
        max_frame_bytes: int = DEFAULT_MAX_FRAME_BYTES,
        newest_version: int = STORAGE_OF_0_13_2,
    ) -> Self:
        """Connect and open, offering no version above `newest_version`. ConnectError (retriable), or
        RequestFailedError when the node belongs to another cluster or has another number of partitions."""
        connection = cls(endpoint, request_timeout_seconds)
        connection._versions = storage_versions(newest_version)
        opening = storage.OpenRequest(-1, _OPEN_SEQ_NUM, -1, cluster_key, num_partitions)
        await connection._connect(tls, connect_timeout_seconds, max_frame_bytes, opening)
        return connection

    @property
    def writable(self) -> bool:
        """False while more bytes wait for the socket than the high mark; see `on_writable`."""
        return self._channel is not None and self._channel.writable

    @property
    def pending_bytes(self) -> int:
        """Bytes waiting for the socket."""
        return self._channel.pending_bytes if self._channel is not None else 0

    @property
    def on_writable(self) -> list[Callable[[bool], None]]:
        """Called when `writable` changes."""
        return self._requester.on_writable

    @property
    def on_batch_ended(self) -> list[Callable[[], None]]:
        """Called after the callbacks of all replies of one socket read (and of one sweep of timeouts): the
        moment to act once on many votes."""
        return self._requester.on_batch_ended

    def submit_append(
        self, session_id: int, partition_id: int, count: int, wire_records: bytes, callback: AppendCallback
    ) -> None:
        """Send one append of `count` wire records. No task, no future; the callback runs on the loop, exactly
        once, never inside this call. An exception of the callback closes the connection."""
        seq_num = self._requester.next_seq_num
        parts = storage_append_parts(self.version, session_id, seq_num, partition_id, count, wire_records)
        self._requester.submit(seq_num, parts, callback, session_id, partition_id)

    @staticmethod
    def _check_echo(body: memoryview, session_id: int, partition_id: int) -> None:
        prefix = parse_prefix(body)
        if prefix.session_id != session_id or prefix.partition_id != partition_id:
            raise ProtocolError(
                f"a reply for session {prefix.session_id}, partition {prefix.partition_id} to a request "
                f"of session {session_id}, partition {partition_id}"
            )

    def _check_open(self, body: memoryview) -> None:
        self._expect_success(body, -1, -1)

    def _expect_success(self, body: memoryview, session_id: int, partition_id: int) -> None:
        self._expect(body, storage.SuccessResponse, session_id, partition_id)

    def _expect(self, body: memoryview, cls: type[_M], session_id: int, partition_id: int) -> _M:
        message = STORAGE.decode(body, self.version)
        self._check_echo(body, session_id, partition_id)
        if isinstance(message, storage.FailureResponse):
            raise _failure(message.error)
        if not isinstance(message, cls):
            raise ProtocolError(f"expected {cls.__name__}, got {type(message).__name__}")
        return message

    def _start(
        self, make: Callable[[int], Message], reply: type[_M], session_id: int, partition_id: int
    ) -> asyncio.Future[_M]:
        seq_num = self._requester.next_seq_num
        parts = self._encode(make(seq_num))
        return self._requester.start(
            seq_num, parts, lambda body: self._expect(body, reply, session_id, partition_id)
        )

    def _last_session_info(
        self, session_id: int, partition_id: int, *, offline: bool = False
    ) -> asyncio.Future[storage.LastSessionInfoResponse]:
        return self._start(
            lambda n: storage.LastSessionInfoRequest(session_id, n, partition_id, offline),
            storage.LastSessionInfoResponse,
            session_id,
            partition_id,
        )

    def _max_transaction_id(
        self, session_id: int, partition_id: int, *, offline: bool = False
    ) -> asyncio.Future[storage.MaxTransactionIdResponse]:
        return self._start(
            lambda n: storage.MaxTransactionIdRequest(session_id, n, partition_id, offline),
            storage.MaxTransactionIdResponse,
            session_id,
            partition_id,
        )

    def _record_header_list(
        self, session_id: int, partition_id: int, first: int, max_count: int
    ) -> asyncio.Future[storage.RecordHeaderListResponse]:
        return self._start(
            lambda n: storage.RecordHeaderListRequest(session_id, n, partition_id, first, max_count),
            storage.RecordHeaderListResponse,
            session_id,
            partition_id,
        )

    def _set_low_water_mark(
        self, session_id: int, partition_id: int, low_water_mark: int, *, offline: bool = False
    ) -> asyncio.Future[storage.SuccessResponse]:
        return self._start(
            lambda n: storage.SetLowWaterMarkRequest(session_id, n, partition_id, low_water_mark, offline),
            storage.SuccessResponse,
            session_id,
            partition_id,
        )

    async def last_session_info(
        self, session_id: int, partition_id: int, *, offline: bool = False
    ) -> SessionInfo:
        """The last session that completed a set-low-water-mark. Raises the partition's fence to
        `session_id`."""
        return (await self._last_session_info(session_id, partition_id, offline=offline)).info

    async def last_session_and_end(self, session_id: int, partition_id: int) -> tuple[SessionInfo, int]:
        """`last_session_info` and `max_transaction_id`, sent together: one way there and back, and one job
        of the node."""
        asked = self._last_session_info(session_id, partition_id)
        last = self._max_transaction_id(session_id, partition_id)
        session, end = await asyncio.gather(asked, last)
        return session.info, end.transaction_id

    async def set_low_water_mark(
        self, session_id: int, partition_id: int, low_water_mark: int, *, offline: bool = False
    ) -> None:
        """The session starts with everything up to `low_water_mark` committed."""
        await self._set_low_water_mark(session_id, partition_id, low_water_mark, offline=offline)

    async def set_low_water_mark_and_ask(
        self, session_id: int, partition_id: int, low_water_mark: int
    ) -> int:
        """`set_low_water_mark`, and `max_transaction_id` right behind it: what the node holds since."""
        done = self._set_low_water_mark(session_id, partition_id, low_water_mark)
        last = self._max_transaction_id(session_id, partition_id)
        _, end = await asyncio.gather(done, last)
        return end.transaction_id

    async def truncate(
        self, session_id: int, partition_id: int, transaction_id: int, *, offline: bool = False
    ) -> int:
        """Remove everything above `transaction_id`; gives the highest id that is left."""
        reply = await self._start(
            lambda n: storage.TruncateRequest(session_id, n, partition_id, transaction_id, offline),
            storage.MaxTransactionIdResponse,
            session_id,
            partition_id,
        )
        return reply.transaction_id

    async def max_transaction_id(self, session_id: int, partition_id: int, *, offline: bool = False) -> int:
        """The highest stored id, committed or not; -1 when empty."""
        return (await self._max_transaction_id(session_id, partition_id, offline=offline)).transaction_id

    async def record(self, session_id: int, partition_id: int, transaction_id: int) -> Record | None:
        """One record, None when the node has none of that id. The checksum is not verified."""
        reply = await self._start(
            lambda n: storage.RecordRequest(session_id, n, partition_id, transaction_id),
            storage.RecordResponse,
            session_id,
            partition_id,
        )
        return reply.record

    async def record_header(
        self, session_id: int, partition_id: int, transaction_id: int
    ) -> RecordHeader | None:
        """One record without data, None when the node has none of that id."""
        reply = await self._start(
            lambda n: storage.RecordHeaderRequest(session_id, n, partition_id, transaction_id),
            storage.RecordHeaderResponse,
            session_id,
            partition_id,
        )
        return reply.header

    async def record_header_list(
        self, session_id: int, partition_id: int, first: int, max_count: int
    ) -> list[RecordHeader]:
        """Consecutive record headers from `first` on; empty when there is none."""
        reply = await self._record_header_list(session_id, partition_id, first, max_count)
        return list(reply.headers)

    async def record_list(
        self, session_id: int, partition_id: int, first: int, max_count: int
    ) -> list[Record]:
        """Consecutive records from `first` on; empty when there is none. Checksums are not verified."""
        reply = await self._start(
            lambda n: storage.RecordListRequest(session_id, n, partition_id, first, max_count),
            storage.RecordListResponse,
            session_id,
            partition_id,
        )
        return list(reply.records)

    async def record_list_raw(
        self, session_id: int, partition_id: int, first: int, max_count: int
    ) -> list[bytes]:
        """The same as wire records, not decoded. Checksums are not verified (`records.verify_record`)."""

        def parse(body: memoryview) -> list[bytes]:
            if body[0] != RECORD_LIST_RESPONSE_TYPE:
                self._expect(body, storage.RecordListResponse, session_id, partition_id)
            self._check_echo(body, session_id, partition_id)
            count, records = parse_record_list(body)
            return [bytes(view) for view in split_records(records, count)]

        seq_num = self._requester.next_seq_num
        request = storage.RecordListRequest(session_id, seq_num, partition_id, first, max_count)
        return await self._requester.call(seq_num, self._encode(request), parse)

    async def append(
        self, session_id: int, partition_id: int, records: Sequence[Record], *, offline: bool = False
    ) -> None:
        """Append consecutive records and wait until they are durable on the node."""
        seq_num = self._requester.next_seq_num
        wire_records = b"".join([pack_record(r) for r in records])
        parts = storage_append_parts(
            self.version, session_id, seq_num, partition_id, len(records), wire_records, offline=offline
        )
        await self._requester.call(
            seq_num, parts, lambda body: self._expect_success(body, session_id, partition_id)
        )


class StorageAdminConnection(_Connection):
    """One open connection to an admin port. Errors as for StorageConnection.

    The time limit is longer: assigning a partition may scan its files.
    """

    _protocol = ADMIN
    _hello_text = "Waltz Storage Admin Client"

    @classmethod
    async def open(
        cls,
        endpoint: Endpoint,
        *,
        cluster_key: UUID,
        num_partitions: int,
        tls: ClientTls | None,
        request_timeout_seconds: float = 30.0,
        connect_timeout_seconds: float = 5.0,
        max_frame_bytes: int = DEFAULT_MAX_FRAME_BYTES,
        reports: bool = False,
    ) -> Self:
        """Connect and open; errors as for the storage port. `reports`: node reports will be asked for, so
        offer the version that has them; every other question is asked in that of release 0.13.2."""
        connection = cls(endpoint, Requester(ADMIN_SEQ_NUM_OFFSET, request_timeout_seconds))
        connection._versions = ADMIN.versions if reports else (0,)
        opening = admin.OpenRequest(_OPEN_SEQ_NUM, cluster_key, num_partitions)
        await connection._connect(tls, connect_timeout_seconds, max_frame_bytes, opening)
        return connection

    def _check_open(self, body: memoryview) -> None:
        self._expect(body, admin.SuccessResponse)

    def _expect(self, body: memoryview, cls: type[_M]) -> _M:
        message = ADMIN.decode(body, self.version)
        if isinstance(message, admin.FailureResponse):
            raise _failure(message.error)
        if not isinstance(message, cls):
            raise ProtocolError(f"expected {cls.__name__}, got {type(message).__name__}")
        return message

    async def _call(self, make: Callable[[int], Message], reply: type[_M]) -> _M:
        seq_num = self._requester.next_seq_num
        parts = self._encode(make(seq_num))
        return await self._requester.call(seq_num, parts, lambda body: self._expect(body, reply))

    async def set_available(self, partitions: Sequence[int], available: bool) -> None:
        """Set or clear the available flag of partitions."""
        await self._call(
            lambda n: admin.PartitionAvailableRequest(n, tuple(partitions), available), admin.SuccessResponse
        )

    async def assign(self, partitions: Sequence[int], assigned: bool, delete_files: bool = False) -> None:
        """Assign partitions to the node, or take them away (then `delete_files` removes their files too)."""
        await self._call(
            lambda n: admin.PartitionAssignmentRequest(n, tuple(partitions), assigned, delete_files),
            admin.SuccessResponse,
        )

    async def record_list(self, partition_id: int, first: int, max_count: int) -> list[Record]:
        """Consecutive records from `first` on, also of an unavailable partition."""
        reply = await self._call(
            lambda n: admin.RecordListRequest(n, partition_id, first, max_count), admin.RecordListResponse
        )
        return list(reply.records)

    async def last_session_info(self, partition_id: int) -> SessionInfo:
        """The last completed session; does not touch the fence."""
        reply = await self._call(
            lambda n: admin.LastSessionInfoRequest(n, partition_id), admin.LastSessionInfoResponse
        )
        return reply.info

    async def metrics(self) -> dict[str, Any]:
        """All metrics of the node, as the JSON object it sends."""
        reply = await self._call(admin.MetricsRequest, admin.MetricsResponse)
        try:
            value = json.loads(reply.json or "")
        except (ValueError, RecursionError):
            raise ProtocolError("the metrics of a storage node are not JSON") from None
        if not isinstance(value, dict):
            raise ProtocolError("the metrics of a storage node are not a JSON object")
        return value

    @property
    def reports(self) -> bool:
        """Whether the node answers `report`; one of release 0.13.2 does not."""
        return self.version >= admin.NodeReportRequest.SINCE

    async def report(self, *, everything: bool) -> str:
        """The state of the node's partitions and of its disk as JSON text: of all of them, or of those that
        have changed since the last report on this connection. EncodeError unless it `reports`."""
        reply = await self._call(lambda n: admin.NodeReportRequest(n, everything), admin.NodeReportResponse)
        return reply.json or ""

    async def partition_status(self) -> dict[int, bool]:
        """Assigned partition id to available or not."""
        reply = await self._call(admin.AssignedPartitionStatusRequest, admin.AssignedPartitionStatusResponse)
        return dict(reply.status)
