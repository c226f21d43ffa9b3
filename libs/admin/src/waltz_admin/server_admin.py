"""Questions and orders to servers, over their client port (docs/protocol.md) and their HTTP port.

One connection, one question at a time, answers matched by their type. Nothing here takes a client id from
ZooKeeper: the ReqId of such a question has client id -1.
"""

import asyncio
import json
import urllib.error
import urllib.request
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from waltz_admin.errors import AdminError, UnreachableError, no_connection
from waltz_cluster.cluster_params import read_params
from waltz_cluster.membership import MembershipReader
from waltz_cluster.paths import ClusterPaths
from waltz_cluster.serializers import ServerDescriptor
from waltz_cluster.store import ZooKeeperStore
from waltz_protocol.aio.channel import Channel, ChannelSettings
from waltz_protocol.aio.connector import connect
from waltz_protocol.aio.tls import TlsSettings, client_context, shown_certificate
from waltz_protocol.codec import CLIENT
from waltz_protocol.errors import ConnectError, WaltzProtocolError
from waltz_protocol.frame import Magic
from waltz_protocol.messages.fields import Message
from waltz_protocol.server_requests import AdminRequests
from waltz_protocol.types import Endpoint, ReqId, ShownCertificate

DEFAULT_TIMEOUT_SECONDS = 10.0

_SETTINGS = ChannelSettings(magic=Magic.CLIENT, versions=CLIENT.versions, hello_text="waltz-admin")
_T = TypeVar("_T")


class _AnswerHandler:
    """Puts the one awaited answer into its future; everything else a server sends is not for us."""

    def __init__(self) -> None:
        self.waiting: tuple[type[Any], asyncio.Future[Any]] | None = None
        self._closed: str | None = None

    def expect(self, kind: type[_T]) -> "asyncio.Future[_T]":
        future: asyncio.Future[_T] = asyncio.get_running_loop().create_future()
        if self._closed is not None:
            future.set_exception(UnreachableError(self._closed))
        self.waiting = (kind, future)
        return future

    def channel_ready(self, channel: Channel) -> None:
        """Nothing to do: the question follows."""

    def frame_received(self, channel: Channel, body: memoryview) -> None:
        message = CLIENT.decode(body, channel.version)
        if self.waiting is not None and isinstance(message, self.waiting[0]) and not self.waiting[1].done():
            self.waiting[1].set_result(message)

    def frames_ended(self, channel: Channel) -> None:
        """Batches mean nothing here."""

    def writable_changed(self, channel: Channel, writable: bool) -> None:
        """Questions are small."""

    def channel_closed(self, channel: Channel, reason: str) -> None:
        self._closed = f"server {channel.peer} closed the connection: {reason}"
        if self.waiting is not None and not self.waiting[1].done():
            self.waiting[1].set_exception(UnreachableError(self._closed))


class ServerAdminConnection(AdminRequests):
    """`async with ServerAdminConnection(endpoint, tls) as server`; UnreachableError when anything fails."""

    def __init__(
        self, endpoint: Endpoint, tls: TlsSettings, *, timeout_seconds: float = DEFAULT_TIMEOUT_SECONDS
    ) -> None:
        self._endpoint = endpoint
        self._tls = tls
        self._timeout_seconds = timeout_seconds
        self._handler = _AnswerHandler()
        self._channel: Channel | None = None

    async def __aenter__(self) -> "ServerAdminConnection":
        try:
            self._channel = await connect(
                self._endpoint,
                _SETTINGS,
                self._handler,
                client_context(self._tls),
                connect_timeout_seconds=self._timeout_seconds,
            )
        except ConnectError as error:
            reason = str(error).replace(f"cannot connect to {self._endpoint}: ", "cannot connect: ")
            raise no_connection(f"server {self._endpoint}: {reason}", error) from error
        return self

    async def __aexit__(self, *_: object) -> None:
        self.end()
        await self.wait_closed()

    @property
    def closed(self) -> bool:
        """True once the connection is of no use any longer."""
        return self._channel is None or self._channel.closed

    def end(self) -> None:
        """Close without waiting for the peer; harmless when it is closed."""
        if self._channel is not None:
            self._channel.close("done")

    async def wait_closed(self) -> None:
        """Wait until the connection that was ended is gone."""
        if self._channel is not None:
            await self._channel.wait_closed()

    @property
    def certificate(self) -> ShownCertificate | None:
        """The certificate of the server, where it is verified."""
        return shown_certificate(self._channel.extra("peercert")) if self._channel is not None else None

    async def ask(
        self, make_request: Callable[[ReqId], Message], response_type: type[_T], partition_id: int
    ) -> _T:
        """The answer to one request; UnreachableError."""
        if self._channel is None:
            raise UnreachableError(f"server {self._endpoint}: not connected")
        try:
            request = make_request(ReqId(-1, 0, partition_id, 0))
            frame = CLIENT.encode(request, self._channel.version)
        except WaltzProtocolError as error:
            raise UnreachableError(
                f"server {self._endpoint} is too old for this question: {error}"
            ) from error
        answer = self._handler.expect(response_type)
        self._channel.send(frame)
        try:
            async with asyncio.timeout(self._timeout_seconds):
                return await answer
        except TimeoutError:
            raise UnreachableError(
                f"server {self._endpoint} did not answer within {self._timeout_seconds:g} s"
            ) from None


@dataclass(frozen=True, slots=True)
class ServerInspection:
    """A complete answer of one server. `certificate`: the one it uses; None without TLS."""

    partitions: frozenset[int]
    healthy: Mapping[int, bool]
    reaches: Mapping[str, bool]
    certificate: ShownCertificate | None = None


async def inspect_server(
    endpoint: Endpoint, tls: TlsSettings, *, timeout_seconds: float = DEFAULT_TIMEOUT_SECONDS
) -> ServerInspection:
    """Everything a server reports about itself, over one connection; UnreachableError when any part of it is
    missing."""
    async with ServerAdminConnection(endpoint, tls, timeout_seconds=timeout_seconds) as server:
        return await inspect_over(server)


async def inspect_over(server: ServerAdminConnection) -> ServerInspection:
    """The same over a connection that somebody keeps."""
    partitions = frozenset(await server.partitions())
    healthy = await server.health()
    reaches = await server.storage_connectivity()
    return ServerInspection(partitions, healthy, reaches, server.certificate)


async def change_preferred(
    store: ZooKeeperStore,
    root: str,
    endpoint: Endpoint,
    partitions: Iterable[int],
    *,
    preferred: bool,
    tls: TlsSettings,
    timeout_seconds: float = 40.0,
) -> None:
    """Make a server prefer these partitions, or no longer prefer them; AdminError when it refuses."""
    _, params = await read_params(store, root)
    chosen = tuple(sorted(set(partitions)))
    if not chosen:
        raise AdminError("name at least one partition")
    for partition_id in chosen:
        if not 0 <= partition_id < params.num_partitions:
            raise AdminError(f"there is no partition {partition_id}: the cluster has {params.num_partitions}")
    async with ServerAdminConnection(endpoint, tls, timeout_seconds=timeout_seconds) as server:
        done = await (server.add_preferred(chosen) if preferred else server.remove_preferred(chosen))
    if not done:
        raise AdminError(f"server {endpoint} refused to change its preferred partitions")


async def registered_servers(store: ZooKeeperStore, root: str) -> list[ServerDescriptor]:
    """The servers that are registered now, by ascending id."""
    snapshot = await MembershipReader(store, ClusterPaths(root), lambda: None).snapshot(watch=False)
    return [snapshot.members[server_id] for server_id in sorted(snapshot.members)]


async def check_connectivity(
    store: ZooKeeperStore,
    root: str,
    *,
    tls: TlsSettings,
    timeout_seconds: float = DEFAULT_TIMEOUT_SECONDS,
) -> dict[Endpoint, dict[str, bool] | str]:
    """For each registered server: which storage nodes it reaches, or why it does not answer itself."""
    await read_params(store, root)
    servers = await registered_servers(store, root)

    async def one(endpoint: Endpoint) -> dict[str, bool] | str:
        try:
            async with ServerAdminConnection(endpoint, tls, timeout_seconds=timeout_seconds) as server:
                return await server.storage_connectivity()
        except UnreachableError as error:
            return str(error)

    answers = await asyncio.gather(*(one(server.endpoint) for server in servers))
    return {server.endpoint: answer for server, answer in zip(servers, answers, strict=True)}


async def http_metrics(
    endpoint: Endpoint, *, timeout_seconds: float = DEFAULT_TIMEOUT_SECONDS
) -> dict[str, Any]:
    """The metrics a server or storage node shows on its HTTP port, as JSON; UnreachableError."""

    def fetch() -> Any:
        request = urllib.request.Request(f"http://{endpoint}/metrics", headers={"Accept": "application/json"})
        with urllib.request.urlopen(request, timeout=timeout_seconds) as response:
            return json.load(response)

    try:
        metrics = await asyncio.to_thread(fetch)
    except urllib.error.URLError as error:  # its text is that of a program; the reason is inside
        reason = getattr(error.reason, "strerror", None) or error.reason
        raise UnreachableError(f"{endpoint}: no metrics: {reason}") from error
    except (OSError, ValueError, RecursionError) as error:
        raise UnreachableError(f"{endpoint}: no metrics: {error}") from error
    if not isinstance(metrics, dict):
        raise UnreachableError(f"{endpoint}: its metrics are not an object")
    return metrics


async def list_server(
    endpoint: Endpoint, *, timeout_seconds: float = DEFAULT_TIMEOUT_SECONDS
) -> tuple[int, Any]:
    """Number of partitions a server has and the storage nodes of each, from its metrics."""
    gauges = (await http_metrics(endpoint, timeout_seconds=timeout_seconds)).get("gauges", {})
    try:
        count = gauges["waltz-server.waltz-server-num-partitions"]["value"]
        replicas = gauges.get("waltz-server.replica-info", {}).get("value")
    except (KeyError, TypeError, AttributeError):
        raise UnreachableError(f"{endpoint} is not the HTTP port of a server") from None
    return int(count), replicas
