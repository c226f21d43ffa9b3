"""One job of a partition: everything that was queued, on a disk thread.

Invariants:

* If the fence has risen, it is made durable before anything else, so before any reply of this job.
* Appends that follow one another are written together with one data sync. Anything that could see them (and
  every change of marks or log) waits for that sync; a read that ends below them does not.
* Exactly one reply per request, in order per partition and connection.
* A job writes at most `max_reply_bytes` of read results (plus one); the rest goes back to the queue.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, TypeAlias

from waltz_protocol.codec import STORAGE
from waltz_protocol.frames.storage import found_parts, list_parts, stored_range_parts
from waltz_protocol.messages import storage
from waltz_protocol.types import SessionInfo
from waltz_storage.engine.errors import StorageError
from waltz_storage.engine.layout import RECORD_HEADER_SIZE
from waltz_storage.engine.partition import Partition
from waltz_storage.engine.storage_manager import StorageManager
from waltz_storage.service.fence import Fence
from waltz_storage.service.requests import Call, ReadMessage, ReplyChannel, Request, RoutedMessage

Reply: TypeAlias = tuple[ReplyChannel, Sequence[bytes]]


class ReadLimits(NamedTuple):
    """Bounds of reads, in bytes of records."""

    max_list_bytes: int = 2 << 20  # one list reply: fewer records than asked for when reached
    max_reply_bytes: int = 2 << 20  # all read replies of one job
    max_unsent_bytes: int = 24 << 20  # of all connections: who has more than his share is refused


class JobResult(NamedTuple):
    """What goes back to the loop."""

    replies: list[Reply]
    calls: list[tuple[Call, object, Exception | None]]
    left: list[Request | Call]  # not reached: to be queued again, first


class Job:
    """Runs once, on one thread. See the module for the invariants."""

    def __init__(
        self,
        manager: StorageManager,
        partition_id: int,
        fence: Fence,
        items: list[Request | Call],
        limits: ReadLimits,
    ) -> None:
        self.items = items
        self._manager = manager
        self._partition_id = partition_id
        self._partition: Partition | None = None
        """As it is open now; only a call opens or closes it."""
        self._fence = fence
        self._limits = limits
        self._replies: list[Reply] = []
        self._calls: list[tuple[Call, object, Exception | None]] = []
        self._appends: list[Request] = []
        self._reply_bytes = 0

    def run(self) -> JobResult:
        """Everything, or as much as the bound on replies allows."""
        left: list[Request | Call] = []
        problem = self._make_fence_durable()
        for number, item in enumerate(self.items):
            if self._reply_bytes > self._limits.max_reply_bytes:
                left = self.items[number:]
                break
            if isinstance(item, Call):
                self._flush()
                self._run_call(item)
                self._partition = self._manager.partitions.get(self._partition_id)
            elif problem is not None:
                self._fail(item, problem)
            else:
                self._run_request(item)
        self._flush()
        return JobResult(self._replies, self._calls, left)

    def _make_fence_durable(self) -> str | None:
        partition = self._partition = self._manager.partitions.get(self._partition_id)
        session_id = self._fence.session_id
        if partition is None or session_id <= partition.durable_fence:
            return None
        try:
            partition.raise_fence(session_id)
        except StorageError as error:
            return str(error)
        return None

    def _run_call(self, call: Call) -> None:
        try:
            self._calls.append((call, call.action(self._manager), None))
        except Exception as error:
            self._calls.append((call, None, error))

    def _run_request(self, request: Request) -> None:
        partition = self._partition
        if partition is None:
            self._fail(request, str(self._manager.why_not_open(self._partition_id)))
            return
        info = partition.info
        refusal = self._fence.refusal(
            request.session_id,
            offline=request.offline,
            available=info.available,
            persisted_session_id=info.session_id,
            durable_session_id=partition.durable_fence,
        )
        if refusal is not None or request.problem is not None:
            # After the appends before it: replies of a partition keep the order of the requests.
            self._flush()
            self._fail(request, str(refusal or request.problem))
        elif request.message is None:
            self._appends.append(request)
        else:
            if self._appends and not self._reads_below(request, partition):
                self._flush()
            self._execute(request, request.message, partition)

    def _reads_below(self, request: Request, partition: Partition) -> bool:
        """True for a read that the waiting appends cannot change, from another connection than theirs."""
        match request.message:
            case storage.RecordHeaderRequest() | storage.RecordRequest() as message:
                last = message.transaction_id
            case storage.RecordHeaderListRequest() | storage.RecordListRequest() as message:
                last = message.transaction_id + max(message.max_count, 1) - 1
            case storage.StoredRangeRequest() as message:
                last = message.last
            case _:
                return False
        if any(append.channel is request.channel for append in self._appends):
            return False
        return last <= partition.max_txid

    def _flush(self) -> None:
        """Write and sync the waiting appends, then answer them."""
        appends, self._appends = self._appends, []
        if not appends:
            return
        partition = self._partition or self._manager.get(self._partition_id)
        results = partition.append([request.batch for request in appends if request.batch is not None])
        for request, result in zip(appends, results, strict=True):
            if result is None:
                if request.committed >= 0:
                    partition.note_committed(request.committed)
                self._replies.append((request.channel, (request.success(),)))
            else:
                self._fail(request, str(result))

    def _fail(self, request: Request, text: str) -> None:
        self._replies.append((request.channel, (request.failure(text),)))

    def _execute(self, request: Request, message: RoutedMessage, partition: Partition) -> None:
        if isinstance(message, ReadMessage) and request.channel.closed:
            return  # nobody is left to read it
        try:
            parts = self._reply(request, message, partition)
        except StorageError as error:
            self._fail(request, str(error))
            return
        self._replies.append((request.channel, parts))

    def _reply(self, request: Request, message: RoutedMessage, partition: Partition) -> Sequence[bytes]:
        match message:
            case storage.LastSessionInfoRequest():
                return self._last_session_info(request, partition)
            case storage.SetLowWaterMarkRequest():
                partition.set_low_water_mark(request.session_id, message.low_water_mark)
                return (request.success(),)
            case storage.TruncateRequest():
                return self._max_reply(request, partition.truncate(message.transaction_id))
            case storage.MaxTransactionIdRequest():
                return self._max_transaction_id(request, partition)
            case storage.RecordRequest():
                records = self._read(partition, message.transaction_id, 1)
                found = next(iter(records), None)
                return found_parts(request.version, storage.RecordResponse.TYPE, *request.ids, found)
            case storage.RecordHeaderRequest():
                headers = self._read_headers(partition, message.transaction_id, 1)
                found = next(iter(headers), None)
                return found_parts(request.version, storage.RecordHeaderResponse.TYPE, *request.ids, found)
            case storage.RecordListRequest():
                records = self._read(partition, message.transaction_id, message.max_count)
                return list_parts(request.version, storage.RecordListResponse.TYPE, *request.ids, records)
            case storage.RecordHeaderListRequest():
                headers = self._read_headers(partition, message.transaction_id, message.max_count)
                kind = storage.RecordHeaderListResponse.TYPE
                return list_parts(request.version, kind, *request.ids, headers)
            case storage.StoredRangeRequest():
                return self._stored_range(request, message, partition)

    @staticmethod
    def _last_session_info(request: Request, partition: Partition) -> Sequence[bytes]:
        partition.require_running()
        info = partition.info
        session = SessionInfo(info.session_id, info.low_water_mark, info.local_low_water_mark)
        reply = storage.LastSessionInfoResponse(*request.ids, session)
        return (STORAGE.encode(reply, request.version),)

    def _max_transaction_id(self, request: Request, partition: Partition) -> Sequence[bytes]:
        partition.require_running()
        return self._max_reply(request, partition.max_txid)

    @staticmethod
    def _max_reply(request: Request, txid: int) -> Sequence[bytes]:
        return (STORAGE.encode(storage.MaxTransactionIdResponse(*request.ids, txid), request.version),)

    def _stored_range(
        self, request: Request, message: storage.StoredRangeRequest, partition: Partition
    ) -> Sequence[bytes]:
        """None above what this copy knows to be committed, but to a session that recovers."""
        partition.note_committed(message.committed)
        last = message.last
        if not message.flags & storage.UNRESOLVED:
            last = min(last, partition.committed)
        most_bytes = min(message.max_bytes, self._limits.max_list_bytes)
        count, pieces = partition.read_stored(message.first, last, most_bytes)
        self._reply_bytes += sum(map(len, pieces))
        return stored_range_parts(request.version, *request.ids, message.first, count, pieces)

    def _read(self, partition: Partition, first: int, max_count: int) -> list[bytes]:
        records = partition.read(first, max_count, self._limits.max_list_bytes)
        self._reply_bytes += sum(map(len, records))
        return records

    def _read_headers(self, partition: Partition, first: int, max_count: int) -> list[bytes]:
        return [record[:RECORD_HEADER_SIZE] for record in self._read(partition, first, max_count)]
