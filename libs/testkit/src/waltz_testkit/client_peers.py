"""Clients for tests of the server: one without a network, one that speaks raw frames over a socket."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable
from typing import Protocol, TypeVar

from waltz_protocol.codec import CLIENT
from waltz_protocol.frame import FRAME_HEADER_SIZE
from waltz_protocol.frames.append import Append, encode_append, parse_append
from waltz_protocol.frames.append_batch import APPEND_ANSWERS_TYPE, FIRST_VERSION, Answer, parse_answers
from waltz_protocol.handshake import encode_hello
from waltz_protocol.messages.client import FeedData
from waltz_protocol.messages.fields import Message
from waltz_protocol.types import ReqId
from waltz_server.partition.append_answers import AppendAnswers
from waltz_server.store.callbacks import Callbacks

M = TypeVar("M")


def make_append(
    req_id: ReqId,
    *,
    client_high_water_mark: int = -1,
    write: tuple[int, ...] = (),
    read: tuple[int, ...] = (),
    append: tuple[int, ...] = (),
    header: int = 0,
    data: bytes = b"data",
) -> Append:
    """An append request as the server sees it after parsing."""
    frame = encode_append(req_id.pack(), client_high_water_mark, write, read, append, header, data, 4)
    parsed = parse_append(memoryview(frame)[FRAME_HEADER_SIZE:], 4)
    if parsed is None:
        raise ValueError("the append was refused by the parser")
    return parsed


def split_frames(stream: bytes) -> list[tuple[int, bytes]]:
    """(version, body) of every whole frame; ValueError when bytes are left over."""
    frames = []
    while stream:
        size = int.from_bytes(stream[3:7], "big")
        if len(stream) < FRAME_HEADER_SIZE + size:
            raise ValueError("an incomplete frame at the end")
        frames.append(
            (int.from_bytes(stream[1:3], "big"), stream[FRAME_HEADER_SIZE : FRAME_HEADER_SIZE + size])
        )
        stream = stream[FRAME_HEADER_SIZE + size :]
    return frames


class _Parked(Protocol):
    def client_writable(self, client: FakeClient) -> None: ...


class FakeClient:
    """The face of a connection for the partition layer; keeps what was sent.

    `buffer_bytes` makes it slow: it becomes unwritable when that many bytes wait, until `drain`.
    """

    def __init__(
        self, client_id: int = 1, *, seq_num: int = 0, version: int = 4, buffer_bytes: int | None = None
    ) -> None:
        self.client_id = client_id
        self.connection_seq_num = seq_num
        self.version = version
        self.writable = True
        self.closed = False
        self.close_reason = ""
        self.misdeeds: list[str] = []
        self.withdrawn: list[int] = []
        self.stream = b""
        self.waiting_bytes = 0
        self.most_waiting_bytes = 0
        self.mounts: dict[int, tuple[object, bytes]] = {}
        self.answers: AppendAnswers | None = None
        if version >= FIRST_VERSION:
            self.answers = AppendAnswers(self, Callbacks(lambda error: self.close(repr(error))))
        self._buffer_bytes = buffer_bytes
        self._parked: list[_Parked] = []

    def send(self, *parts: bytes | memoryview) -> None:
        if self.closed:
            return
        for part in parts:
            self.stream += bytes(part)
            self.waiting_bytes += len(part)
        self.most_waiting_bytes = max(self.most_waiting_bytes, self.waiting_bytes)
        if self._buffer_bytes is not None and self.waiting_bytes > self._buffer_bytes:
            self.writable = False

    def drain(self) -> None:
        """The network took everything that was waiting."""
        self.waiting_bytes = 0
        if not self.writable:
            self.writable = True
            parked, self._parked = self._parked, []
            for waiting in parked:
                waiting.client_writable(self)

    def close(self, reason: str) -> None:
        self.closed, self.close_reason = True, reason

    def misbehaved(self, what: str) -> None:
        self.misdeeds.append(what)

    def park(self, parked: _Parked) -> None:
        self._parked.append(parked)

    def withdraw_mount(self, partition_id: int) -> None:
        self.mounts.pop(partition_id, None)
        self.withdrawn.append(partition_id)

    def note_mount(self, partition_id: int, incarnation: object, req_id: bytes) -> None:
        self.mounts[partition_id] = (incarnation, req_id)

    def answered(self) -> list[Answer]:
        """All answers to appends of version 5 so far."""
        answers = []
        for _, body in split_frames(self.stream):
            if body[0] == APPEND_ANSWERS_TYPE:
                client_id, some = parse_answers(body)
                if client_id != self.client_id:
                    raise ValueError(f"answers for client {client_id}")
                answers += some
        return answers

    def messages(self) -> list[Message]:
        """Everything sent so far, decoded, but answers to appends."""
        decoded = []
        for version, body in split_frames(self.stream):
            if body[0] == APPEND_ANSWERS_TYPE:
                continue
            if version != self.version:
                raise ValueError(f"a frame of version {version} on a connection of version {self.version}")
            decoded.append(CLIENT.decode(body, version))
        return decoded

    def of(self, kind: type[M]) -> list[M]:
        """The messages of one class."""
        return [message for message in self.messages() if isinstance(message, kind)]

    def fed(self) -> list[int]:
        """Transaction ids of all FEED_DATA, in the order sent."""
        return [message.transaction_id for message in self.of(FeedData)]

    def clear(self) -> None:
        """Forget what was sent."""
        self.stream = b""


class RawPeer:
    """A client that writes the bytes it is given; `await RawPeer.open(...)` does the Hello."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, version: int) -> None:
        self.version = version
        self._reader = reader
        self._writer = writer

    @classmethod
    async def open(
        cls, port: int, *, version: int = 4, tls: ssl.SSLContext | None = None, host: str = "127.0.0.1"
    ) -> RawPeer:
        """Connect and exchange Hellos, offering exactly one version."""
        reader, writer = await asyncio.open_connection(
            host, port, ssl=tls, server_hostname="localhost" if tls is not None else None
        )
        peer = cls(reader, writer, version)
        peer.write(encode_hello((version,), "Waltz Client"))
        magic, _, _ = await peer.read_frame()
        if magic != 0x48:
            raise ValueError(f"the first frame has magic {magic:#x}")
        return peer

    def write(self, *frames: bytes) -> None:
        """Write whole frames."""
        self._writer.writelines(frames)

    def send(self, message: Message) -> None:
        """Encode and write one message."""
        self.write(CLIENT.encode(message, self.version))

    def append(
        self, req_id: ReqId, client_high_water_mark: int = -1, *, data: bytes = b"data", header: int = 0
    ) -> None:
        """Write an append without locks."""
        self.write(
            encode_append(req_id.pack(), client_high_water_mark, (), (), (), header, data, self.version)
        )

    async def read_frame(self) -> tuple[int, int, bytes]:
        """(magic, version, body); asyncio.IncompleteReadError at the end of the connection."""
        async with asyncio.timeout(10.0):
            head = await self._reader.readexactly(FRAME_HEADER_SIZE)
            size = int.from_bytes(head[3:7], "big")
            return head[0], int.from_bytes(head[1:3], "big"), await self._reader.readexactly(size)

    async def read(self) -> Message:
        """The next message."""
        _, version, body = await self.read_frame()
        return CLIENT.decode(body, version)

    async def read_until(self, wanted: Callable[[Message], bool]) -> list[Message]:
        """All messages up to and including the first one wanted."""
        messages = [await self.read()]
        while not wanted(messages[-1]):
            messages.append(await self.read())
        return messages

    async def read_frame_bytes(self) -> bytes:
        """The next frame, header included."""
        magic, version, body = await self.read_frame()
        return bytes([magic]) + version.to_bytes(2, "big") + len(body).to_bytes(4, "big") + body

    async def closed_by_server(self) -> bool:
        """True when nothing more comes and the server has closed."""
        async with asyncio.timeout(10.0):
            return not await self._reader.read(1)

    async def close(self) -> None:
        """Close our side."""
        self._writer.close()
        try:
            await self._writer.wait_closed()
        except (ConnectionError, ssl.SSLError):
            pass  # the server was quicker
