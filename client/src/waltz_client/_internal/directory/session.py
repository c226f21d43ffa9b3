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
    CloseCode,
    CloseNotice,
    ServerPartitionsAssignmentRequest,
    ServerPartitionsAssignmentResponse,
)
from waltz_protocol.messages.directory import ClientIdResponse, DirectoryPart, DirectoryRequest
from waltz_protocol.messages.fields import Message
from waltz_protocol.messages.producers import ProducerResponse
from waltz_protocol.types import ReqId

_REQ_ID = ReqId(-1, 0, 0, 1)
"""Of the directory and of pings: a connection has no client id."""
Make = Callable[[ReqId], Message]
"""Makes a request with this request id."""


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
        self.misunderstood = False
        """The server has ended the connection because of what it was sent."""
        self._asked: dict[int, asyncio.Future[Message | None]] = {}
        """Requests without an answer, by the sequence numbers of their request ids."""
        self._next = _REQ_ID.seq_num + 1
        self._watch: tuple[int, Callable[[], None]] | None = None
        """Sequence number of the request that watches a producer, and whom its next answer concerns."""

    def watch(self, channel: Channel) -> bool:
        """Ask for directories, on a channel that is ready; False when the server is too old."""
        self._channel = channel
        if channel.version < FIRST_VERSION:
            return False
        channel.send(CLIENT.encode(DirectoryRequest(_REQ_ID), channel.version))
        return True

    async def request(self, make: Make) -> Message | None:
        """What the server answers; None when the connection ended before."""
        return await self._answer_to(self._take_number(), make)

    async def watch_producer(self, make: Make, changed: Callable[[], None]) -> Message | None:
        """The same; `changed` is called once, when the server answers again or the connection ends. It takes
        the place of an earlier one."""
        number = self._take_number()
        self._watch = number, changed
        return await self._answer_to(number, make)

    def _take_number(self) -> int:
        self._next += 1
        return self._next - 1

    async def _answer_to(self, number: int, make: Make) -> Message | None:
        channel = self._channel
        if channel is None or self.closed.is_set():
            return None
        answer: asyncio.Future[Message | None] = asyncio.get_running_loop().create_future()
        self._asked[number] = answer
        try:
            channel.send(CLIENT.encode(make(_REQ_ID._replace(seq_num=number)), channel.version))
            return await answer
        finally:
            self._asked.pop(number, None)

    def _answered(self, response: ClientIdResponse | ProducerResponse) -> None:
        number = response.req_id.seq_num
        asked = self._asked.pop(number, None)
        if asked is not None:
            if not asked.done():
                asked.set_result(response)
        elif self._watch is not None and self._watch[0] == number:
            self._end_watch()

    def _end_watch(self) -> None:
        watch, self._watch = self._watch, None
        if watch is not None:
            watch[1]()

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
            case ClientIdResponse() | ProducerResponse() as response:
                self._answered(response)
            case ServerPartitionsAssignmentResponse():
                pass  # the answer to a ping
            case CloseNotice() as notice:
                self.misunderstood = notice.code == CloseCode.PROTOCOL_ERROR
                close_noticed(channel, notice)
            case message:
                raise ProtocolError(f"unexpected {type(message).__name__} on a directory connection")

    def frames_ended(self, channel: Channel) -> None:
        """Everything was handled as it came."""

    def writable_changed(self, channel: Channel, writable: bool) -> None:
        """Few requests are sent, one at a time."""

    def channel_closed(self, channel: Channel, reason: str) -> None:
        """Who watches asks another server."""
        self.close_reason = reason
        self.closed.set()
        self._on_closed()
        for asked in self._asked.values():
            if not asked.done():
                asked.set_result(None)
        self._end_watch()
