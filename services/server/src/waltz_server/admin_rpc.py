"""The requests a server answers for itself: connectivity, assignment, health, preferred partitions,
reports (`report`).

Client-server protocol, admin messages. Two owner tasks do what takes time, so that no connection waits for
another request (weakness 13.14): one checks the storage nodes, once for everybody who asked meanwhile; one
changes the preferred partitions, in the order of the requests. A connection may have `MAX_WAITING_PER_CLIENT`
such requests waiting (0.13.2 has one of each kind).

Lists of partitions are put into words once per turn of the loop for everybody who asks in it.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol

import structlog

from waltz_protocol.codec import CLIENT
from waltz_protocol.errors import ProtocolError
from waltz_protocol.frame import frame_header
from waltz_protocol.messages.client import (
    AddPreferredPartitionRequest,
    AddPreferredPartitionResponse,
    CheckStorageConnectivityRequest,
    CheckStorageConnectivityResponse,
    RemovePreferredPartitionRequest,
    RemovePreferredPartitionResponse,
    ServerPartitionsAssignmentRequest,
    ServerPartitionsAssignmentResponse,
    ServerPartitionsHealthStatRequest,
    ServerPartitionsHealthStatResponse,
    ServerReportRequest,
)
from waltz_protocol.messages.fields import Message
from waltz_protocol.types import ReqId
from waltz_runtime.instruments import Rates
from waltz_server.partition.client import Client
from waltz_server.registry import PartitionRegistry
from waltz_server.report import ReportDesk

log = structlog.get_logger(__name__)

ADMIN_TYPES = frozenset(
    (
        CheckStorageConnectivityRequest.TYPE,
        ServerPartitionsAssignmentRequest.TYPE,
        AddPreferredPartitionRequest.TYPE,
        RemovePreferredPartitionRequest.TYPE,
        ServerPartitionsHealthStatRequest.TYPE,
        ServerReportRequest.TYPE,
    )
)
MAX_WAITING = 1000
MAX_WAITING_PER_CLIENT = 16
_HEAD_BYTES = 17
"""Type and ReqId: what differs between two answers to one question."""

Preference = AddPreferredPartitionRequest | RemovePreferredPartitionRequest


class Preferences(Protocol):
    """The part of the server's registration that keeps preferred partitions."""

    async def add_preferred(self, partitions: Sequence[int]) -> None: ...

    async def remove_preferred(self, partitions: Sequence[int]) -> None: ...


class AdminDesk:
    """Owner of the admin requests of one server. `preferences` is set once the server is registered."""

    def __init__(
        self,
        registry: PartitionRegistry,
        check_connectivity: Callable[[], Awaitable[dict[str, bool]]],
        cpu: Rates,
    ) -> None:
        """`cpu`: what the process uses of the processor, milliseconds per second."""
        self.preferences: Preferences | None = None
        self._registry = registry
        self._reports = ReportDesk(registry, cpu)
        self._check_connectivity = check_connectivity
        self._checks: list[tuple[Client, ReqId]] = []
        self._check_wanted = asyncio.Event()
        self._changes: asyncio.Queue[tuple[Client, Preference]] = asyncio.Queue(MAX_WAITING)
        self._waiting: Counter[Client] = Counter()
        self._lists: dict[tuple[int, int], tuple[bytes, bytes]] = {}

    def handle(self, client: Client, body: memoryview) -> None:
        """One admin message; answered now or by an owner task. ProtocolError as for every message."""
        fields = self._lists.get((body[0], client.version))
        if fields is None or len(body) != _HEAD_BYTES:
            fields = self._put_into_words(client, body)
        if fields is not None:
            kind, rest = fields
            head = frame_header(CLIENT.magic, client.version, _HEAD_BYTES + len(rest))
            client.send(head, kind, bytes(body[1:_HEAD_BYTES]), rest)

    def _put_into_words(self, client: Client, body: memoryview) -> tuple[bytes, bytes] | None:
        """What answers this question in this turn: type and fields. None for a request that has to wait."""
        message = CLIENT.decode(body, client.version)
        answer: ServerPartitionsAssignmentResponse | ServerPartitionsHealthStatResponse
        if isinstance(message, ServerPartitionsAssignmentRequest):
            answer = ServerPartitionsAssignmentResponse(message.req_id, tuple(self._registry.owned_ids()))
        elif isinstance(message, ServerPartitionsHealthStatRequest):
            answer = ServerPartitionsHealthStatResponse(message.req_id, self._registry.healthy())
        else:
            self._wait(client, message)
            return None
        encoded = CLIENT.encode_body(answer, client.version)
        if not self._lists:
            asyncio.get_running_loop().call_soon(self._lists.clear)
        fields = self._lists[body[0], client.version] = encoded[:1], encoded[_HEAD_BYTES:]
        return fields

    def _wait(self, client: Client, message: Message) -> None:
        if isinstance(message, CheckStorageConnectivityRequest):
            if len(self._checks) >= MAX_WAITING or not self._has_room(client):
                client.close("too many connectivity checks are waiting")
                return
            self._waiting[client] += 1
            self._checks.append((client, message.req_id))
            self._check_wanted.set()
        elif isinstance(message, ServerReportRequest):
            self._reports.ask(client, message)
        elif isinstance(message, AddPreferredPartitionRequest | RemovePreferredPartitionRequest):
            self._change_preferred(client, message)
        else:
            raise ProtocolError(f"{type(message).__name__} is not for servers")

    def _has_room(self, client: Client) -> bool:
        return self._waiting[client] < MAX_WAITING_PER_CLIENT

    def _done(self, client: Client) -> None:
        self._waiting[client] -= 1
        if not self._waiting[client]:
            del self._waiting[client]

    def _change_preferred(self, client: Client, message: Preference) -> None:
        """Ids that do not exist, negative ones included, or none at all: false, nothing changed (weakness
        13.18)."""
        known = range(self._registry.num_partitions)
        if not message.partitions or any(partition_id not in known for partition_id in message.partitions):
            self._answer_preference(client, message, False)
        elif self._changes.full() or not self._has_room(client):
            client.close("too many changes of preferred partitions are waiting")
        else:
            self._waiting[client] += 1
            self._changes.put_nowait((client, message))

    async def run(self) -> None:
        """Owner tasks, until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._run_checks())
            tasks.create_task(self._run_changes())
            tasks.create_task(self._reports.run())

    async def _run_checks(self) -> None:
        while True:
            await self._check_wanted.wait()
            self._check_wanted.clear()
            asking, self._checks = self._checks, []
            connectivity = await self._check_connectivity()
            for client, req_id in asking:
                self._done(client)
                client.send(
                    CLIENT.encode(CheckStorageConnectivityResponse(req_id, connectivity), client.version)
                )

    async def _run_changes(self) -> None:
        while True:
            client, message = await self._changes.get()
            self._done(client)
            try:
                await self._apply(message)
            except Exception as error:
                # ZooKeeper may be away; 0.13.2 closes the connection here, and its tools count on that
                log.warning("preferred partitions could not be changed", reason=str(error))
                client.close("the preferred partitions could not be changed now")
            else:
                self._answer_preference(client, message, True)

    async def _apply(self, message: Preference) -> None:
        if self.preferences is None:
            raise RuntimeError("this server is not registered")
        if isinstance(message, AddPreferredPartitionRequest):
            await self.preferences.add_preferred(message.partitions)
        else:
            await self.preferences.remove_preferred(message.partitions)

    def _answer_preference(self, client: Client, message: Preference, result: bool) -> None:
        response: AddPreferredPartitionResponse | RemovePreferredPartitionResponse
        if isinstance(message, AddPreferredPartitionRequest):
            response = AddPreferredPartitionResponse(message.req_id, result)
        else:
            response = RemovePreferredPartitionResponse(message.req_id, result)
        client.send(CLIENT.encode(response, client.version))
