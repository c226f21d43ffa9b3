"""The requests a server answers for itself: connectivity, assignment, health, preferred partitions.

Client-server protocol, admin messages. Two owner tasks do what takes time, so that no connection waits for another
request (weakness 13.14): one checks the storage nodes, once for everybody who asked meanwhile; one changes the preferred
partitions, in the order of the requests.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol

import structlog

from waltz_protocol.codec import CLIENT
from waltz_protocol.errors import ProtocolError
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
)
from waltz_protocol.types import ReqId
from waltz_server.partition.client import Client
from waltz_server.registry import PartitionRegistry

log = structlog.get_logger(__name__)

ADMIN_TYPES = frozenset(
    (
        CheckStorageConnectivityRequest.TYPE,
        ServerPartitionsAssignmentRequest.TYPE,
        AddPreferredPartitionRequest.TYPE,
        RemovePreferredPartitionRequest.TYPE,
        ServerPartitionsHealthStatRequest.TYPE,
    )
)
MAX_WAITING = 1000

Preference = AddPreferredPartitionRequest | RemovePreferredPartitionRequest


class Preferences(Protocol):
    """The part of the server's registration that keeps preferred partitions."""

    async def add_preferred(self, partitions: Sequence[int]) -> None: ...

    async def remove_preferred(self, partitions: Sequence[int]) -> None: ...


class AdminDesk:
    """Owner of the admin requests of one server. `preferences` is set once the server is registered."""

    def __init__(
        self, registry: PartitionRegistry, check_connectivity: Callable[[], Awaitable[dict[str, bool]]]
    ) -> None:
        self.preferences: Preferences | None = None
        self._registry = registry
        self._check_connectivity = check_connectivity
        self._checks: list[tuple[Client, ReqId]] = []
        self._check_wanted = asyncio.Event()
        self._changes: asyncio.Queue[tuple[Client, Preference]] = asyncio.Queue(MAX_WAITING)

    def handle(self, client: Client, body: memoryview) -> None:
        """One admin message; answered now or by an owner task. ProtocolError as for every message."""
        message = CLIENT.decode(body, client.version)
        version = client.version
        if isinstance(message, CheckStorageConnectivityRequest):
            if len(self._checks) >= MAX_WAITING:
                client.close("too many connectivity checks are waiting")
                return
            self._checks.append((client, message.req_id))
            self._check_wanted.set()
        elif isinstance(message, ServerPartitionsAssignmentRequest):
            owned = ServerPartitionsAssignmentResponse(message.req_id, tuple(self._registry.owned_ids()))
            client.send(CLIENT.encode(owned, version))
        elif isinstance(message, ServerPartitionsHealthStatRequest):
            health = {partition_id: healthy for partition_id, (healthy, _) in self._registry.health().items()}
            client.send(CLIENT.encode(ServerPartitionsHealthStatResponse(message.req_id, health), version))
        elif isinstance(message, AddPreferredPartitionRequest | RemovePreferredPartitionRequest):
            self._change_preferred(client, message)
        else:
            raise ProtocolError(f"{type(message).__name__} is not for servers")

    def _change_preferred(self, client: Client, message: Preference) -> None:
        """Ids that do not exist, negative ones included, or none at all: false, nothing changed (weakness 13.18)."""
        known = range(self._registry.num_partitions)
        if not message.partitions or any(partition_id not in known for partition_id in message.partitions):
            self._answer_preference(client, message, False)
        elif self._changes.full():
            client.close("too many changes of preferred partitions are waiting")
        else:
            self._changes.put_nowait((client, message))

    async def run(self) -> None:
        """Owner tasks, until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._run_checks())
            tasks.create_task(self._run_changes())

    async def _run_checks(self) -> None:
        while True:
            await self._check_wanted.wait()
            self._check_wanted.clear()
            asking, self._checks = self._checks, []
            connectivity = await self._check_connectivity()
            for client, req_id in asking:
                client.send(
                    CLIENT.encode(CheckStorageConnectivityResponse(req_id, connectivity), client.version)
                )

    async def _run_changes(self) -> None:
        while True:
            client, message = await self._changes.get()
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
