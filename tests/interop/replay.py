"""Plays one side of a recorded session over real sockets, in the order of the recording.

`Replayer` is the connecting side: it sends the recorded client frames and takes as many frames back as were
recorded before the next one, so that whatever happened before a frame has happened here too. What comes back
is kept per connection; what of it is determined is for the tests to say. `listening` is the listening side:
whole frames in and out.
"""

import asyncio
import struct
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from tests.interop.recordings import RecordedFrame, frame_of

SECONDS = 20.0
_HEAD = struct.Struct(">bhi")


class Wire:
    """Whole frames over one plaintext connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer

    @classmethod
    async def open(cls, port: int) -> "Wire":
        return cls(*await asyncio.open_connection("127.0.0.1", port))

    def send(self, raw: bytes) -> None:
        """Nothing, once the connection is gone."""
        if not self._writer.is_closing():
            self._writer.write(raw)

    async def frame(self) -> bytes | None:
        """The next frame that is not a keep-alive; None when the peer has closed."""
        while True:
            try:
                head = await self._reader.readexactly(_HEAD.size)
                body = await self._reader.readexactly(_HEAD.unpack(head)[2])
            except (asyncio.IncompleteReadError, ConnectionError):
                return None
            if body:
                return head + body

    async def finish(self) -> list[bytes]:
        """Send the end of the stream; what the peer still had to say."""
        rest: list[bytes] = []
        try:
            self._writer.write_eof()
            while (raw := await self.frame()) is not None:
                rest.append(raw)
        except OSError:
            pass
        await self.close()
        return rest

    def abort(self) -> None:
        self._writer.transport.abort()

    async def close(self) -> None:
        self._writer.close()
        try:
            await self._writer.wait_closed()
        except OSError:
            pass


@dataclass
class Replayer:
    """Owner of the connections of one replay.

    `dial` opens a connection to the listening side a link names. `rewrite` may change a frame before it is
    sent (None: leave it out), `phase` is awaited at each phase line. `expected` and `received` hold, per
    recorded connection, the listening side's frames of the recording and ours; `closed_by_peer` the
    connections whose end came from there.
    """

    dial: Callable[[str], Awaitable[Wire]]
    rewrite: Callable[[RecordedFrame], bytes | None] = lambda frame: frame.raw
    phase: Callable[[str], Awaitable[None]] | None = None
    stays_open: frozenset[int] = frozenset()
    expected: dict[int, list[RecordedFrame]] = field(default_factory=dict)
    received: dict[int, list[bytes]] = field(default_factory=dict)
    closed_by_peer: set[int] = field(default_factory=set)
    _wires: dict[int, Wire] = field(default_factory=dict)

    async def play(self, lines: Iterable[Mapping[str, Any]]) -> None:
        try:
            for line in lines:
                async with asyncio.timeout(SECONDS):
                    await self._step(line)
        except TimeoutError:
            raise AssertionError(f"no answer within {SECONDS:g} s: {dict(line)}") from None
        finally:
            for wire in self._wires.values():
                await wire.close()

    async def _step(self, line: Mapping[str, Any]) -> None:
        if line.get("event") == "phase":
            if self.phase is not None:
                await self.phase(line["phase"])
            return
        conn = line["conn"]
        if line.get("event") == "open":
            self._wires[conn] = await self.dial(line["link"])
            self.expected[conn], self.received[conn] = [], []
        elif line.get("event") == "close":
            await self._close(conn, by_peer=line["dir"] == "s2c")
        else:
            frame = frame_of(line)
            if frame.from_client:
                raw = self.rewrite(frame)
                if raw is not None:
                    self._wires[conn].send(raw)
            elif frame.body:
                self.expected[conn].append(frame)
                answer = await self._wires[conn].frame()
                assert answer is not None, f"connection {conn} was closed instead of: {frame.name}"
                self.received[conn].append(answer)

    async def _close(self, conn: int, *, by_peer: bool) -> None:
        wire = self._wires.pop(conn, None)
        if wire is None:
            return
        if by_peer and conn not in self.stays_open:
            answer = await wire.frame()
            assert answer is None, f"connection {conn} was not closed but answered {answer!r}"
            self.closed_by_peer.add(conn)
            await wire.close()
        else:
            self.received[conn] += await wire.finish()


Answer = Callable[[bytes], Iterable[bytes]]


@asynccontextmanager
async def listening(make_answer: Callable[[], Answer]) -> AsyncIterator[int]:
    """A listening side: each connection gets its own `make_answer()`, called with every frame. Gives the
    port.

    An error of an `answer` ends its connection and is raised on leaving.
    """
    tasks: set[asyncio.Task[None]] = set()
    wires: set[Wire] = set()
    errors: list[Exception] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        wire, answer = Wire(reader, writer), make_answer()
        tasks.add(task)
        wires.add(wire)
        try:
            while (raw := await wire.frame()) is not None:
                for reply in answer(raw):
                    wire.send(reply)
        except Exception as error:
            errors.append(error)
        finally:
            wires.discard(wire)
            await wire.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()
        for wire in list(wires):
            wire.abort()
        await asyncio.gather(*tasks)
        await server.wait_closed()
        if errors:
            raise errors[0]
