"""Helpers for channel tests: a recording handler, and raw peers that can say anything."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from typing import Any

from waltz_protocol.aio.channel import Channel, ChannelSettings
from waltz_protocol.aio.connector import connect
from waltz_protocol.aio.listener import Listener
from waltz_protocol.codec import CLIENT
from waltz_protocol.frame import FRAME_HEADER_SIZE
from waltz_protocol.handshake import encode_hello
from waltz_protocol.types import Endpoint

HOST = "127.0.0.1"
VERSIONS = (0, 1, 2, 3, 4)
"""What both sides speak in these tests; how frames travel is the same in every version."""


def settings(**changes: Any) -> ChannelSettings:
    values: dict[str, Any] = {
        "magic": CLIENT.magic,
        "versions": VERSIONS,
        "hello_text": "test",
        "handshake_timeout_seconds": 5.0,
    }
    return ChannelSettings(**(values | changes))


class Recorder:
    """A handler that keeps what it is told; `on_frame` may do something with each frame."""

    def __init__(self, on_frame: Callable[[Channel, bytes], None] | None = None) -> None:
        self.on_frame = on_frame
        self.events: list[Any] = []
        self.bodies: list[bytes] = []
        self.batches: list[int] = []
        self.writable: list[bool] = []
        self.reasons: list[str] = []
        self.channel: Channel | None = None
        self._changed = asyncio.Event()

    def _add(self, event: Any) -> None:
        self.events.append(event)
        self._changed.set()

    async def until(self, condition: Callable[[], bool], seconds: float = 10.0) -> None:
        """Wait until an event makes `condition` true."""
        async with asyncio.timeout(seconds):
            while not condition():
                self._changed.clear()
                await self._changed.wait()

    async def until_closed(self) -> str:
        await self.until(lambda: bool(self.reasons))
        return self.reasons[0]

    def channel_ready(self, channel: Channel) -> None:
        self.channel = channel
        self._add("ready")

    def frame_received(self, channel: Channel, body: memoryview) -> None:
        data = bytes(body)
        self.bodies.append(data)
        self._add("frame")
        if self.on_frame is not None:
            self.on_frame(channel, data)

    def frames_ended(self, channel: Channel) -> None:
        self.batches.append(len(self.bodies))
        self._add("ended")

    def writable_changed(self, channel: Channel, writable: bool) -> None:
        self.writable.append(writable)
        self._add("writable" if writable else "full")

    def channel_closed(self, channel: Channel, reason: str) -> None:
        self.reasons.append(reason)
        self._add("closed")


@contextlib.asynccontextmanager
async def listening(
    handler: Callable[[], Any], channel_settings: ChannelSettings | None = None, **options: Any
) -> AsyncIterator[Listener]:
    async with Listener() as listener:
        await listener.start(
            HOST, 0, channel_settings or settings(), handler, options.pop("tls", None), **options
        )
        yield listener


@contextlib.asynccontextmanager
async def connected(
    server: Recorder, client: Recorder, server_settings: Any = None, client_settings: Any = None
) -> AsyncIterator[tuple[Channel, Channel]]:
    """(server's channel, client's channel), both ready."""
    async with listening(lambda: server, server_settings) as listener:
        channel = await connect(
            Endpoint(HOST, listener.port), client_settings or settings(), client, None, 5.0
        )
        await server.until(lambda: server.channel is not None)
        if server.channel is None:
            raise RuntimeError("not ready")
        yield server.channel, channel
        channel.close("the test is over")
        await channel.wait_closed()
        await server.until_closed()


class RawPeer:
    """A socket that says exactly what a test wants."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    @classmethod
    async def to(cls, port: int) -> "RawPeer":
        return cls(*await asyncio.open_connection(HOST, port))

    def say(self, data: bytes) -> None:
        self.writer.write(data)

    def hello(self, *versions: int) -> None:
        self.say(encode_hello(versions or VERSIONS, "raw"))

    async def frame(self) -> bytes:
        """One whole frame, header included."""
        async with asyncio.timeout(10):
            head = await self.reader.readexactly(FRAME_HEADER_SIZE)
            return head + await self.reader.readexactly(int.from_bytes(head[3:], "big"))

    async def rest(self) -> bytes:
        """What comes until the other side closes."""
        async with asyncio.timeout(10):
            try:
                return await self.reader.read()
            except ConnectionError:
                return b""

    async def close(self) -> None:
        self.writer.close()
        with contextlib.suppress(ConnectionError):
            await self.writer.wait_closed()


@contextlib.asynccontextmanager
async def raw_peer(port: int) -> AsyncIterator[RawPeer]:
    peer = await RawPeer.to(port)
    try:
        yield peer
    finally:
        await peer.close()


@contextlib.asynccontextmanager
async def raw_server() -> AsyncIterator[tuple[int, "asyncio.Queue[RawPeer]"]]:
    """A listening port whose accepted peers a test drives by hand."""
    peers: asyncio.Queue[RawPeer] = asyncio.Queue()
    made: list[RawPeer] = []

    def accepted(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        made.append(RawPeer(reader, writer))
        peers.put_nowait(made[-1])

    server = await asyncio.start_server(accepted, HOST, 0)
    try:
        yield server.sockets[0].getsockname()[1], peers
    finally:
        server.close()
        for peer in made:
            await peer.close()
        await server.wait_closed()
