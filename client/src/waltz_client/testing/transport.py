"""A wire without a network: two transports, each handing what is written to the other's protocol in a later
turn of the loop.

Works on any event loop, also one on virtual time, and always in the same order.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Any


class MemoryTransport(asyncio.Transport):
    """One end. The protocol is a BufferedProtocol, as channels are.

    Invariants: bytes arrive once, in order, before the end of the stream; `connection_lost` is called
    exactly once.
    """

    def __init__(self, protocol: asyncio.BufferedProtocol) -> None:
        super().__init__({"peername": ("in-process", 0)})
        self._protocol = protocol
        self._loop = asyncio.get_running_loop()
        self._peer: MemoryTransport | None = None
        self._inbox: deque[bytes] = deque()
        self._inbox_bytes = 0
        self._end_of_stream = False
        self._closing = False
        self._reading = True
        self._scheduled = False
        self._high = 64 * 1024
        self._low = 16 * 1024
        self._write_paused = False

    @staticmethod
    def join(one: MemoryTransport, other: MemoryTransport) -> None:
        """Make the two one connection and inform both protocols."""
        one._peer, other._peer = other, one
        one._protocol.connection_made(one)
        other._protocol.connection_made(other)

    # -- writing ---------------------------------------------------------------------------------------------

    def write(self, data: bytes | bytearray | memoryview[Any]) -> None:
        """Hand over; dropped when either end is closed."""
        peer = self._peer
        if self._closing or peer is None or not data:
            return
        peer._inbox.append(bytes(data))
        peer._inbox_bytes += len(data)
        peer._schedule()
        if not self._write_paused and peer._inbox_bytes > self._high:
            self._write_paused = True
            self._protocol.pause_writing()

    def get_write_buffer_size(self) -> int:
        """Bytes the other end has not taken."""
        return 0 if self._peer is None else self._peer._inbox_bytes

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """As of any transport."""
        self._high = 64 * 1024 if high is None else high
        self._low = self._high // 4 if low is None else low

    # -- reading ---------------------------------------------------------------------------------------------

    def pause_reading(self) -> None:
        """Keep what arrives."""
        self._reading = False

    def resume_reading(self) -> None:
        """Deliver again."""
        self._reading = True
        self._schedule()

    def is_reading(self) -> bool:
        """Whether what arrives is delivered."""
        return self._reading and not self._closing

    def _schedule(self) -> None:
        if not self._scheduled and not self._closing and (self._inbox or self._end_of_stream):
            self._scheduled = True
            self._loop.call_soon(self._deliver)

    def _deliver(self) -> None:
        self._scheduled = False
        while self._inbox and self.is_reading():
            data = memoryview(self._inbox.popleft())
            self._inbox_bytes -= len(data)
            while data and not self._closing:
                buffer = memoryview(self._protocol.get_buffer(len(data)))
                size = min(len(buffer), len(data))
                buffer[:size] = data[:size]
                self._protocol.buffer_updated(size)
                data = data[size:]
        if self._peer is not None:
            self._peer._drained(self._inbox_bytes)
        if self._end_of_stream and self.is_reading() and not self._inbox:
            self._protocol.eof_received()
            self.abort()

    def _drained(self, left: int) -> None:
        if self._write_paused and left <= self._low and not self._closing:
            self._write_paused = False
            self._protocol.resume_writing()

    # -- end -------------------------------------------------------------------------------------------------

    def is_closing(self) -> bool:
        """Whether this end is closed."""
        return self._closing

    def close(self) -> None:
        """End the stream after what was written."""
        self.abort()

    def abort(self) -> None:
        """End the stream; what was handed over before still arrives at the other end, what waits at this one
        does not."""
        if self._closing:
            return
        self._closing = True
        self._inbox.clear()
        self._inbox_bytes = 0
        peer, self._peer = self._peer, None
        if peer is not None:
            peer._end_of_stream = True
            peer._schedule()
        self._loop.call_soon(self._protocol.connection_lost, None)
