"""Storage nodes and servers that answer on real ports what the tests put into them."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID, uuid4

from waltz_protocol.aio.channel import Channel, ChannelSettings
from waltz_protocol.aio.listener import Listener
from waltz_protocol.codec import ADMIN, CLIENT, STORAGE, Protocol
from waltz_protocol.errors import ProtocolError
from waltz_protocol.handshake import with_process
from waltz_protocol.messages import admin, client, storage
from waltz_protocol.messages.fields import RpcError
from waltz_protocol.types import Endpoint, Record, RecordHeader, SessionInfo

Answer = Callable[[Any], Any]


class Handler:
    """Decodes, asks, encodes."""

    def __init__(self, protocol: Protocol, answer: Answer) -> None:
        self.protocol = protocol
        self.answer = answer

    def channel_ready(self, channel: Channel) -> None: ...

    def frame_received(self, channel: Channel, body: memoryview) -> None:
        reply = self.answer(self.protocol.decode(body, channel.version))
        if reply is not None:
            channel.send(self.protocol.encode(reply, channel.version))

    def frames_ended(self, channel: Channel) -> None: ...

    def writable_changed(self, channel: Channel, writable: bool) -> None: ...

    def channel_closed(self, channel: Channel, reason: str) -> None: ...


@asynccontextmanager
async def listening(
    protocol: Protocol,
    answer: Answer,
    versions: tuple[int, ...] | None = None,
    process_id: UUID | None = None,
) -> AsyncIterator[int]:
    settings = ChannelSettings(
        magic=protocol.magic,
        versions=versions or protocol.versions,
        hello_text=with_process("fake", process_id),
    )
    async with Listener() as listener:
        await listener.start("127.0.0.1", 0, settings, lambda: Handler(protocol, answer), None)
        yield listener.port


@dataclass
class FakeNode:
    """A storage node: partitions with availability, session, records."""

    key: UUID
    status: dict[int, bool] = field(default_factory=dict)
    session: SessionInfo = SessionInfo(-1, -1, -1)  # noqa: RUF009
    records: list[Record] = field(default_factory=list)
    admin_port: int = 0
    storage_port: int = 0
    refuse: str | None = None
    refuse_storage: str | None = None
    """The same on the storage port."""
    orders: list[Any] = field(default_factory=list)
    other_sessions: dict[int, SessionInfo | None] = field(default_factory=dict)
    """Partitions that have another session than `session`; None = the question fails."""
    asked: list[int] = field(default_factory=list)
    reports: bool = False
    """It has node reports: it speaks the newest version of the admin port."""
    report: str | None = None
    """A report that it sends in place of its own."""
    hides_headers: str | None = None
    """Why it shows no record headers on the storage port; empty: it answers with none."""
    read_in: list[int] = field(default_factory=list)
    """Sessions in which headers were read on the storage port."""
    questions: list[str] = field(default_factory=list)
    """Names of the messages that came to the admin port."""
    asks: asyncio.Event | None = None
    """When set, a question for a report sets it and is not answered."""
    refuses_removal: dict[int, str | None] = field(default_factory=dict)
    """Partitions that it does not give up, and what it answers then; None: it ends the connection."""
    process_id: UUID | None = field(default_factory=uuid4)
    """None: it states none, as nodes of older releases."""

    @property
    def connect_string(self) -> str:
        return f"127.0.0.1:{self.storage_port}"

    @property
    def admin(self) -> Endpoint:
        return Endpoint("127.0.0.1", self.admin_port)

    def answer_admin(self, message: Any) -> Any:
        n = message.seq_num
        self.questions.append(type(message).__name__)
        if self.refuse and not isinstance(message, admin.OpenRequest):
            return admin.FailureResponse(n, RpcError(self.refuse))
        match message:
            case admin.OpenRequest():
                if message.cluster_key != self.key:
                    return admin.FailureResponse(n, RpcError("wrong key"))
            case admin.AssignedPartitionStatusRequest():
                return admin.AssignedPartitionStatusResponse(n, dict(self.status))
            case admin.LastSessionInfoRequest():
                self.asked.append(message.partition_id)
                info = self.other_sessions.get(message.partition_id, self.session)
                if info is None:
                    return admin.FailureResponse(n, RpcError("damaged"))
                return admin.LastSessionInfoResponse(n, message.partition_id, info)
            case admin.RecordListRequest():
                found = [r for r in self.records if r.transaction_id >= message.transaction_id]
                return admin.RecordListResponse(n, message.partition_id, tuple(found[: message.max_count]))
            case admin.NodeReportRequest() if self.asks is not None:
                self.asks.set()
                return None
            case admin.NodeReportRequest():
                return admin.NodeReportResponse(n, self.report or json.dumps(self.changes()))
            case admin.MetricsRequest():
                return admin.MetricsResponse(n, json.dumps(self.metrics()))
            case admin.PartitionAssignmentRequest():
                self.orders.append(message)
                for p in message.partitions or ():
                    if not message.assigned and p in self.refuses_removal:
                        refusal = self.refuses_removal[p]
                        if refusal is None:
                            raise ProtocolError("it is gone")
                        return admin.FailureResponse(n, RpcError(refusal))
                    if message.assigned:
                        self.status.setdefault(p, True)
                    else:
                        self.status.pop(p, None)
            case admin.PartitionAvailableRequest():
                self.orders.append(message)
                self.status.update(dict.fromkeys(message.partitions or (), message.available))
        return admin.SuccessResponse(n)

    def changes(self) -> dict[str, Any]:
        """A node report that holds everything."""
        states = {}
        for p, available in self.status.items():
            info = self.other_sessions.get(p, self.session)
            states[str(p)] = info and [*info, 4 + available, int(available), 11, 99, info.session_id]
        return {"partitions": states, "gone": [], "disk": {"disk-full": False}}

    def metrics(self) -> dict[str, Any]:
        gauges: dict[str, Any] = {"waltz-storage.waltz-storage-partition-ids": {"value": sorted(self.status)}}
        for p, available in self.status.items():
            prefix = f"waltz-storage.partition-{p}"
            info = self.other_sessions.get(p) or self.session
            gauges[f"{prefix}.session-id"] = {"value": info.session_id}
            gauges[f"{prefix}.low-water-mark"] = {"value": info.low_water_mark}
            gauges[f"{prefix}.local-low-water-mark"] = {"value": info.local_low_water_mark}
            gauges[f"{prefix}.flags"] = {"value": 4 + available}
        return {"gauges": gauges}

    def answer_storage(self, message: Any) -> Any:
        ids = (message.session_id, message.seq_num, message.partition_id)
        if self.refuse_storage and not isinstance(message, storage.OpenRequest):
            return storage.FailureResponse(*ids, RpcError(self.refuse_storage))
        match message:
            case storage.MaxTransactionIdRequest():
                return storage.MaxTransactionIdResponse(*ids, len(self.records) - 1)
            case storage.RecordHeaderListRequest() if self.hides_headers:
                return storage.FailureResponse(*ids, RpcError(self.hides_headers))
            case storage.RecordHeaderListRequest():
                self.read_in.append(message.session_id)
                found = [r for r in self.records if r.transaction_id >= message.transaction_id]
                if self.hides_headers is not None:
                    found = []
                headers = [RecordHeader(r.transaction_id, r.req_id, r.header) for r in found]
                return storage.RecordHeaderListResponse(*ids, tuple(headers[: message.max_count]))
            case storage.TruncateRequest():
                del self.records[message.transaction_id + 1 :]
                return storage.MaxTransactionIdResponse(*ids, len(self.records) - 1)
            case storage.AppendRequest():
                self.records += message.records
            case storage.SetLowWaterMarkRequest():
                self.session = SessionInfo(message.session_id, message.low_water_mark, len(self.records) - 1)
        return storage.SuccessResponse(*ids)

    @asynccontextmanager
    async def running(self) -> AsyncIterator["FakeNode"]:
        async with (
            listening(
                ADMIN, self.answer_admin, None if self.reports else (0,), self.process_id
            ) as self.admin_port,
            listening(STORAGE, self.answer_storage, None, self.process_id) as self.storage_port,
        ):
            yield self


@dataclass
class FakeServer:
    """A server: what it believes to have, to reach, and to be."""

    partitions: tuple[int, ...] = ()
    connectivity: dict[str, bool] = field(default_factory=dict)
    health: dict[int, bool] = field(default_factory=dict)
    preferred: set[int] = field(default_factory=set)
    silent: bool = False
    versions: tuple[int, ...] | None = None
    report: str | None = None
    """None: it knows no such question and closes the connection, as release 0.13.2 does."""
    req_ids: list[Any] = field(default_factory=list)
    parts: list[int] = field(default_factory=list)
    """Of the reports that were asked for."""
    reports_late: bool = False
    port: int = 0

    @property
    def endpoint(self) -> Endpoint:
        return Endpoint("127.0.0.1", self.port)

    def answer(self, message: Any) -> Any:
        self.req_ids.append(message.req_id)
        if isinstance(message, client.ServerReportRequest):
            self.parts.append(message.parts)
            if self.reports_late:
                return None
        if self.silent:
            return None
        match message:
            case client.CheckStorageConnectivityRequest():
                return client.CheckStorageConnectivityResponse(message.req_id, self.connectivity)
            case client.ServerPartitionsAssignmentRequest():
                return client.ServerPartitionsAssignmentResponse(message.req_id, self.partitions)
            case client.ServerPartitionsHealthStatRequest():
                return client.ServerPartitionsHealthStatResponse(message.req_id, self.health)
            case client.ServerReportRequest() if self.report is not None:
                return client.ServerReportResponse(message.req_id, self.report)
            case client.ServerReportRequest():
                raise ProtocolError("message type 120 is unknown")
            case client.AddPreferredPartitionRequest():
                self.preferred.update(message.partitions)
                return client.AddPreferredPartitionResponse(message.req_id, 3 not in message.partitions)
            case client.RemovePreferredPartitionRequest():
                self.preferred.difference_update(message.partitions)
                return client.RemovePreferredPartitionResponse(message.req_id, True)
        return None

    @asynccontextmanager
    async def running(self) -> AsyncIterator["FakeServer"]:
        async with listening(CLIENT, self.answer, self.versions) as self.port:
            yield self
