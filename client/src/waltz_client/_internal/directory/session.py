"""One connection on which a client watches the directory of a server (channel handler)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from waltz_client._internal.link import close_noticed
from waltz_protocol.aio.channel import Channel
from waltz_protocol.codec import CLIENT
from waltz_protocol.directory import FIRST_VERSION, Directory, DirectoryParts
from waltz_protocol.errors import ProtocolError
from waltz_protocol.messages.client import (
    CloseNotice,
    ServerPartitionsAssignmentRequest,
    ServerPartitionsAssignmentResponse,
)
from waltz_protocol.messages.directory import (
    ClientIdRequest,
    ClientIdResponse,
    DirectoryPart,
    DirectoryRequest,
)
from waltz_protocol.types import ReqId

_REQ_ID = ReqId(-1, 0, 0, 1)
"""Of all requests: a connection asks for one thing of a kind at a time, and has no client id at first."""


class DirectorySession:
    """See the module. `on_directory` is called with each directory, `on_closed` at the end, on the loop."""

    def __init__(self, on_directory: Callable[[Directory], None], on_closed: Callable[[], None]) -> None:
        self.closed = asyncio.Event()
        self.close_reason = ""
        self.heard = True
        """Since the last `ping`."""
        self._on_directory = on_directory
        self._on_closed = on_closed
        self._parts = DirectoryParts()
        self._channel: Channel | None = None
        self._client_id: asyncio.Future[ClientIdResponse | None] | None = None

    def watch(self, channel: Channel) -> bool:
        """Ask for directories, on a channel that is ready; False when the server is too old."""
        self._channel = channel
        if channel.version < FIRST_VERSION:
            return False
        channel.send(CLIENT.encode(DirectoryRequest(_REQ_ID), channel.version))
        return True

    async def new_client_id(self) -> ClientIdResponse | None:
        """What the server answers; None when the connection ended before."""
        channel = self._channel
        if channel is None or self.closed.is_set():
            return None
        self._client_id = asyncio.get_running_loop().create_future()
        channel.send(CLIENT.encode(ClientIdRequest(_REQ_ID), channel.version))
        return await self._client_id

    def ping(self) -> None:
        """Ask for something small that every server answers at once: a sign of life."""
        channel = self._channel
        if channel is not None and not channel.closed:
            self.heard = False
            channel.send(CLIENT.encode(ServerPartitionsAssignmentRequest(_REQ_ID), channel.version))

    def close(self, reason: str) -> None:
        """End the connection."""
        if self._channel is not None:
            self._channel.close(reason)

    # -- channel handler -------------------------------------------------------------------------------------

    def channel_ready(self, channel: Channel) -> None:
        """Nothing yet: who has connected calls `watch`."""

    def frame_received(self, channel: Channel, body: memoryview) -> None:
        """One message."""
        self.heard = True
        match CLIENT.decode(body, channel.version):
            case DirectoryPart() as part:
                whole = self._parts.add(part)
                if whole is not None:
                    self._on_directory(whole)
            case ClientIdResponse() as response:
                if self._client_id is not None and not self._client_id.done():
                    self._client_id.set_result(response)
            case ServerPartitionsAssignmentResponse():
                pass  # the answer to a ping
            case CloseNotice() as notice:
                close_noticed(channel, notice)
            case message:
                raise ProtocolError(f"unexpected {type(message).__name__} on a directory connection")

    def frames_ended(self, channel: Channel) -> None:
        """Everything was handled as it came."""

    def writable_changed(self, channel: Channel, writable: bool) -> None:
        """Two small requests are all that is sent."""

    def channel_closed(self, channel: Channel, reason: str) -> None:
        """Who watches asks another server."""
        self.close_reason = reason
        self.closed.set()
        self._on_closed()
        if self._client_id is not None and not self._client_id.done():
            self._client_id.set_result(None)
