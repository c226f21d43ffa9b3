"""The admin port: assignment, availability, metrics, reading regardless of sessions (docs/protocol.md, admin
port).

Every mistake of a caller is answered with Failure; only bytes that are no message end the connection
(weakness 15). Requests of one connection are worked off one after another by one task, at most one per turn
of the loop, those on a partition as that partition's job.

A request names each partition once: further mentions in the same list change nothing and cost nothing.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import TypeVar

import structlog

from waltz_protocol.aio.channel import Channel
from waltz_protocol.aio.tasks import spawn
from waltz_protocol.buffer import MAX_LIST_INTEGERS
from waltz_protocol.codec import ADMIN
from waltz_protocol.errors import ProtocolError
from waltz_protocol.frames.storage import admin_record_list_parts
from waltz_protocol.messages import admin
from waltz_protocol.messages.fields import Message, RpcError
from waltz_protocol.types import SessionInfo
from waltz_runtime.metrics import MetricsRegistry
from waltz_storage.engine.errors import NotAssignedError, RequestRefusedError, StorageError
from waltz_storage.engine.partition import Partition
from waltz_storage.engine.storage_manager import StorageManager
from waltz_storage.service.data_handler import SMALL_MESSAGE_BYTES, STRANGER_FRAME_BYTES, NodeIdentity
from waltz_storage.service.disk_pool import DiskPool
from waltz_storage.service.node_report import NodeReport

T = TypeVar("T")
MAX_WAITING = 100
MAX_REQUEST_BYTES = 4 * MAX_LIST_INTEGERS + 64
"""The longest list of partitions; nothing else that is a request of this port takes a hundred bytes."""
_WITH_LIST = (admin.PartitionAvailableRequest.TYPE, admin.PartitionAssignmentRequest.TYPE)
log = structlog.get_logger(__name__)


class MetricsDesk:
    """The text of the metrics, made once for everybody who asked in the same turn of the loop. One per
    node."""

    def __init__(self, registry: MetricsRegistry) -> None:
        self._registry = registry
        self._wanted: asyncio.Future[str] | None = None

    async def text(self) -> str:
        """As it is now: it is made after the call."""
        if self._wanted is None:
            loop = asyncio.get_running_loop()
            wanted: asyncio.Future[str] = loop.create_future()
            loop.call_soon(self._make)
            self._wanted = wanted
        return await asyncio.shield(self._wanted)

    def _make(self) -> None:
        wanted, self._wanted = self._wanted, None
        if wanted is not None:
            try:
                wanted.set_result(self._registry.to_admin_json())
            except Exception as error:
                wanted.set_exception(error)
                wanted.exception()  # who asked may be gone


class AdminHandler:
    """One connection of the admin port. Owner of its task: this object, which cancels it when the channel
    closes."""

    def __init__(
        self,
        pool: DiskPool,
        identity: NodeIdentity,
        metrics: MetricsDesk,
        disk: Callable[[], dict[str, object]],
    ) -> None:
        """`disk`: the figures of the disk."""
        self._pool = pool
        self._identity = identity
        self._metrics = metrics
        self._report = NodeReport(pool.manager, disk)
        self._opened = False
        self._warned = False
        self._waiting: deque[Message] = deque()
        self._worker: asyncio.Task[None] | None = None
        self._may_send = asyncio.Event()

    def channel_ready(self, channel: Channel) -> None:
        """The connecting side speaks first, and not much before it has said who it is."""
        channel.set_max_frame_bytes(STRANGER_FRAME_BYTES)

    def frame_received(self, channel: Channel, body: memoryview) -> None:
        """Queue a request; `ProtocolError` ends the connection."""
        if len(body) > SMALL_MESSAGE_BYTES and body[0] not in _WITH_LIST:
            raise ProtocolError(f"a message of type {body[0]} with {len(body)} bytes")
        self._waiting.append(ADMIN.decode(body, channel.version))
        if len(self._waiting) >= MAX_WAITING:
            channel.pause_reading()
        if self._worker is None:
            self._worker = spawn(self._work(channel), f"admin requests of {channel.peer}")

    def frames_ended(self, channel: Channel) -> None:
        """Nothing to do: the task is running."""

    def writable_changed(self, channel: Channel, writable: bool) -> None:
        """A peer that does not take its replies is not read from."""
        if writable:
            self._may_send.set()
            channel.resume_reading()
        else:
            self._may_send.clear()
            channel.pause_reading()

    def channel_closed(self, channel: Channel, reason: str) -> None:
        """What has been started on a partition is finished there; the rest is dropped."""
        self._waiting.clear()
        self._may_send.set()

    async def _work(self, channel: Channel) -> None:
        try:
            while self._waiting:
                message = self._waiting.popleft()
                channel.send(*await self._answer(channel, message))
                # Some answers need no waiting: others have their turn between two of them.
                await asyncio.sleep(0)
                if not channel.writable:
                    await self._may_send.wait()
                if not self._waiting and channel.writable:
                    channel.resume_reading()
        except Exception as error:  # an answer was not sent, and the client waits for it
            channel.failed(error)
        finally:
            self._worker = None

    async def _answer(self, channel: Channel, message: Message) -> tuple[bytes, ...]:
        seq_num: int = getattr(message, "seq_num", -1)
        try:
            if self._opened and isinstance(message, admin.RecordListRequest):
                return await self._record_list(message, channel.version)
            return (ADMIN.encode(await self._opened_answer(channel, message, seq_num), channel.version),)
        except (StorageError, OSError) as error:
            failure = str(error)
        except Exception as error:
            log.error("an admin request failed", request=type(message).__name__, exc_info=error)
            failure = f"internal error: {type(error).__name__}: {error}"
        return (ADMIN.encode(admin.FailureResponse(seq_num, RpcError(failure)), channel.version),)

    async def _opened_answer(self, channel: Channel, message: Message, seq_num: int) -> Message:
        if isinstance(message, admin.OpenRequest):
            return self._open(channel, message)
        if not self._opened:
            if not self._warned:
                self._warned = True
                channel.warn("its requests are refused: it has not opened the connection")
            raise RequestRefusedError("the connection has not been opened: send Open first")
        return await self._handle(message, seq_num)

    def _open(self, channel: Channel, message: admin.OpenRequest) -> Message:
        refusal = self._identity.open_refusal(message.cluster_key, message.num_partitions)
        self._opened = refusal is None
        if refusal is not None:
            channel.set_max_frame_bytes(STRANGER_FRAME_BYTES)
            channel.warn(f"Open refused: {refusal}")
            raise RequestRefusedError(refusal)
        channel.set_max_frame_bytes(MAX_REQUEST_BYTES)
        return admin.SuccessResponse(message.seq_num)

    async def _handle(self, message: Message, seq_num: int) -> Message:
        if isinstance(message, admin.PartitionAvailableRequest):
            for partition_id in self._checked(message.partitions):
                await self._set_available(partition_id, message.available)
            return admin.SuccessResponse(seq_num)
        if isinstance(message, admin.PartitionAssignmentRequest):
            for partition_id in self._checked(message.partitions):
                if message.assigned:
                    await self._assign(partition_id)
                else:
                    await self._unassign(partition_id, message.delete_files)
            return admin.SuccessResponse(seq_num)
        return await self._query(message, seq_num)

    async def _query(self, message: Message, seq_num: int) -> Message:
        if isinstance(message, admin.LastSessionInfoRequest):
            info = await self._on_partition(message.partition_id, lambda partition: partition.info)
            session = SessionInfo(info.session_id, info.low_water_mark, info.local_low_water_mark)
            return admin.LastSessionInfoResponse(seq_num, message.partition_id, session)
        if isinstance(message, admin.MetricsRequest):
            return admin.MetricsResponse(seq_num, await self._metrics.text())
        if isinstance(message, admin.NodeReportRequest):
            return admin.NodeReportResponse(seq_num, self._report.text(everything=message.everything))
        if isinstance(message, admin.AssignedPartitionStatusRequest):
            return admin.AssignedPartitionStatusResponse(seq_num, self._pool.manager.status())
        raise RequestRefusedError(f"a {type(message).__name__} is no request of the admin port")

    def _checked(self, partitions: tuple[int, ...] | None) -> tuple[int, ...]:
        """Each id of a request once; all exist, before anything is changed: a bad one changes nothing."""
        if partitions is None:
            raise RequestRefusedError("the list of partitions is missing")
        count = self._identity.num_partitions
        partitions = tuple(dict.fromkeys(partitions))
        for partition_id in partitions:
            if not 0 <= partition_id < count:
                raise NotAssignedError(f"partition {partition_id} does not exist: the cluster has {count}")
        return partitions

    async def _set_available(self, partition_id: int, available: bool) -> None:
        await self._run(partition_id, lambda manager: manager.set_available(partition_id, available))

    async def _assign(self, partition_id: int) -> None:
        try:
            await self._run(partition_id, lambda manager: manager.assign(partition_id))
        finally:
            self._pool.refresh(partition_id)

    async def _unassign(self, partition_id: int, delete_files: bool) -> None:
        try:
            await self._run(
                partition_id, lambda manager: manager.unassign(partition_id, delete_files=delete_files)
            )
        finally:
            self._pool.refresh(partition_id)

    async def _record_list(self, message: admin.RecordListRequest, version: int) -> tuple[bytes, ...]:
        """The whole frame: a list may hold tens of thousands of records, which are passed on as they are
        stored."""
        limit = self._pool.read_limits.max_list_bytes

        def read(partition: Partition) -> tuple[int, bytes]:
            records = partition.read(message.transaction_id, message.max_count, limit)
            return len(records), b"".join(records)

        count, records = await self._on_partition(message.partition_id, read)
        return admin_record_list_parts(version, message.seq_num, message.partition_id, count, records)

    async def _on_partition(self, partition_id: int, action: Callable[[Partition], T]) -> T:
        self._checked((partition_id,))
        return await self._run(partition_id, lambda manager: action(manager.get(partition_id)))

    async def _run(self, partition_id: int, action: Callable[[StorageManager], T]) -> T:
        """As the partition's job; refused once the node is leaving (it waits only for what was queued
        before)."""
        if self._identity.closing:
            raise RequestRefusedError("the node is shutting down")
        return await self._pool.run(partition_id, action)
