"""Administrative requests to single servers, over the RPC connection."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeVar

from waltz_client._internal.arguments import call_deadline
from waltz_client._internal.partitions import Partitions
from waltz_client._internal.rpc.client import RpcClient
from waltz_client.errors import UsageError
from waltz_protocol.messages.fields import Message
from waltz_protocol.server_requests import AdminRequests
from waltz_protocol.types import Endpoint, ReqId

M = TypeVar("M")


class ServerRequests:
    """Requests to one server at a time. Each has its own request id: concurrent calls never share an answer.

    A server is an Endpoint, or the text of one, `host:port`.

    Errors: RequestDeadlineError, ServerRequestError (the connection broke, or its version does not know the
    request), ClientClosedError (nothing was sent).
    """

    def __init__(self, partitions: Partitions, rpc: RpcClient, client_id: int, deadline_ms: int) -> None:
        """`deadline_ms`: of calls that give none."""
        self._partitions = partitions
        self._rpc = rpc
        self._client_id = client_id
        self._deadline_ms = deadline_ms

    def endpoints(self) -> list[Endpoint]:
        """The servers known now."""
        return sorted(self._partitions.servers)

    async def storage_connectivity(
        self, server: Endpoint | str, *, deadline_seconds: float | None = None
    ) -> dict[str, bool]:
        """Which storage nodes the server reaches."""
        return await self._one(server, deadline_seconds).storage_connectivity()

    async def partitions(self, server: Endpoint | str, *, deadline_seconds: float | None = None) -> list[int]:
        """The partitions the server holds."""
        return await self._one(server, deadline_seconds).partitions()

    async def health(
        self, server: Endpoint | str, *, deadline_seconds: float | None = None
    ) -> dict[int, bool]:
        """Health of each partition the server holds."""
        return await self._one(server, deadline_seconds).health()

    async def add_preferred(
        self, server: Endpoint, partitions: Iterable[int], *, deadline_seconds: float | None = None
    ) -> bool:
        """Ask the server to prefer these partitions; false when it refuses."""
        ids = self._checked(partitions)
        return await self._one(server, deadline_seconds).add_preferred(ids)

    async def remove_preferred(
        self, server: Endpoint, partitions: Iterable[int], *, deadline_seconds: float | None = None
    ) -> bool:
        """Ask the server no longer to prefer these partitions; false when it refuses."""
        ids = self._checked(partitions)
        return await self._one(server, deadline_seconds).remove_preferred(ids)

    def _checked(self, partitions: Iterable[int]) -> tuple[int, ...]:
        ids = tuple(map(self._partitions.check, partitions))
        if not ids:
            raise UsageError(
                "name at least one partition"
            )  # an empty list makes some servers close the connection
        return ids

    def _one(self, server: Endpoint | str, deadline_seconds: float | None) -> AdminRequests:
        seconds = call_deadline(deadline_seconds, self._deadline_ms)
        return _OneServer(self._rpc, _endpoint(server), self._client_id, seconds)


def _endpoint(server: Endpoint | str) -> Endpoint:
    if isinstance(server, str):
        try:
            return Endpoint.parse(server)
        except ValueError as error:
            raise UsageError(str(error)) from None
    if not isinstance(server, Endpoint):
        raise UsageError(f"a server is an Endpoint or its text, host:port, not {server!r}")
    return server


class _OneServer(AdminRequests):
    def __init__(self, rpc: RpcClient, server: Endpoint, client_id: int, deadline_seconds: float) -> None:
        self._rpc = rpc
        self._server = server
        self._client_id = client_id
        self._deadline_seconds = deadline_seconds

    async def ask(
        self, make_request: Callable[[ReqId], Message], response_type: type[M], partition_id: int
    ) -> M:
        return await self._rpc.admin(
            self._server,
            make_request,
            response_type,
            routing_partition=partition_id,
            client_id=self._client_id,
            deadline_seconds=self._deadline_seconds,
        )
