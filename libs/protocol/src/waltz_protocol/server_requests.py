"""The administrative requests to a server (messages 13 to 22, 120, 121), and what is taken of their answers.

Pure. How a request reaches its server, and which error says that it did not, is the subclass's: tools open a
connection for a few questions, clients have one already.
"""

from collections.abc import Callable
from typing import TypeVar

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
    ServerReportResponse,
)
from waltz_protocol.messages.fields import Message
from waltz_protocol.types import ReqId

M = TypeVar("M")


class AdminRequests:
    """Requests to one server."""

    async def ask(
        self, make_request: Callable[[ReqId], Message], response_type: type[M], partition_id: int
    ) -> M:
        """Send one request and wait for its answer; `partition_id` is that of the ReqId."""
        raise NotImplementedError

    async def storage_connectivity(self) -> dict[str, bool]:
        """Which storage nodes the server reaches."""
        response = await self.ask(CheckStorageConnectivityRequest, CheckStorageConnectivityResponse, 0)
        return dict(response.connectivity)

    async def partitions(self) -> list[int]:
        """The partitions the server holds, ascending."""
        response = await self.ask(ServerPartitionsAssignmentRequest, ServerPartitionsAssignmentResponse, 0)
        return sorted(response.partitions)

    async def health(self) -> dict[int, bool]:
        """Health of each partition the server holds."""
        response = await self.ask(ServerPartitionsHealthStatRequest, ServerPartitionsHealthStatResponse, 0)
        return dict(response.health)

    async def report(self, parts: int, partition_id: int = -1) -> str:
        """The server's report about one partition, or about all (-1), as JSON text. A server of release
        0.13.2 closes the connection instead."""
        response = await self.ask(
            lambda req_id: ServerReportRequest(req_id, parts), ServerReportResponse, partition_id
        )
        return response.json or ""

    async def add_preferred(self, partitions: tuple[int, ...]) -> bool:
        """Ask the server to prefer these partitions, at least one; False when it refuses."""
        response = await self.ask(
            lambda req_id: AddPreferredPartitionRequest(req_id, partitions),
            AddPreferredPartitionResponse,
            partitions[0],
        )
        return response.result

    async def remove_preferred(self, partitions: tuple[int, ...]) -> bool:
        """Ask the server to no longer prefer these partitions (at least one); False when it refuses."""
        response = await self.ask(
            lambda req_id: RemovePreferredPartitionRequest(req_id, partitions),
            RemovePreferredPartitionResponse,
            partitions[0],
        )
        return response.result
