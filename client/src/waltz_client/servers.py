"""Administrative requests to single servers, over the RPC connection (client-server protocol, messages 13 to
22)."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, TypeVar

from waltz_client.errors import UsageError
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
from waltz_protocol.messages.fields import Message
from waltz_protocol.types import Endpoint, ReqId

if TYPE_CHECKING:
    from waltz_client._internal.core import ClientCore

M = TypeVar("M")


class ServerRequests:
    """Requests to one server at a time. Each has its own request id: concurrent calls never share an answer.

    Errors: RequestDeadlineError, ServerRequestError (the connection broke, or its version does not know the
    request).
    """

    def __init__(self, core: ClientCore) -> None:
        self._core = core

    def endpoints(self) -> list[Endpoint]:
        """The servers known now."""
        return sorted(self._core.servers)

    async def storage_connectivity(
        self, server: Endpoint, *, deadline_seconds: float | None = None
    ) -> dict[str, bool]:
        """Which storage nodes the server reaches."""
        response = await self._request(
            server, CheckStorageConnectivityRequest, CheckStorageConnectivityResponse, deadline_seconds
        )
        return dict(response.connectivity)

    async def partitions(self, server: Endpoint, *, deadline_seconds: float | None = None) -> list[int]:
        """The partitions the server holds."""
        response = await self._request(
            server, ServerPartitionsAssignmentRequest, ServerPartitionsAssignmentResponse, deadline_seconds
        )
        return sorted(response.partitions)

    async def health(self, server: Endpoint, *, deadline_seconds: float | None = None) -> dict[int, bool]:
        """Health of each partition the server holds."""
        response = await self._request(
            server, ServerPartitionsHealthStatRequest, ServerPartitionsHealthStatResponse, deadline_seconds
        )
        return dict(response.health)

    async def add_preferred(
        self, server: Endpoint, partitions: Iterable[int], *, deadline_seconds: float | None = None
    ) -> bool:
        """Ask the server to prefer these partitions; false when it refuses."""
        ids = self._checked(partitions)
        response = await self._request(
            server,
            lambda req_id: AddPreferredPartitionRequest(req_id, ids),
            AddPreferredPartitionResponse,
            deadline_seconds,
            routing_partition=ids[0],
        )
        return response.result

    async def remove_preferred(
        self, server: Endpoint, partitions: Iterable[int], *, deadline_seconds: float | None = None
    ) -> bool:
        """Ask the server to prefer these partitions no more; false when it refuses."""
        ids = self._checked(partitions)
        response = await self._request(
            server,
            lambda req_id: RemovePreferredPartitionRequest(req_id, ids),
            RemovePreferredPartitionResponse,
            deadline_seconds,
            routing_partition=ids[0],
        )
        return response.result

    def _checked(self, partitions: Iterable[int]) -> tuple[int, ...]:
        ids = tuple(partitions)
        if not ids:
            raise UsageError(
                "name at least one partition"
            )  # an empty list makes some servers close the connection
        for partition_id in ids:
            self._core.check_partition(partition_id)
        return ids

    async def _request(
        self,
        server: Endpoint,
        make_request: Callable[[ReqId], Message],
        response_type: type[M],
        deadline_seconds: float | None,
        *,
        routing_partition: int = 0,
    ) -> M:
        seconds = (
            self._core.settings.request_deadline_ms / 1000 if deadline_seconds is None else deadline_seconds
        )
        return await self._core.rpc.admin(
            server,
            make_request,
            response_type,
            routing_partition=routing_partition,
            client_id=self._core.client_id,
            deadline_seconds=seconds,
        )
