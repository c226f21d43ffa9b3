"""Of the yardstick: the forms of its frames, and a protocol that reads them."""

from __future__ import annotations

import asyncio
import struct
from typing import cast

HEADER = struct.Struct(">BHI")
APPEND_HEAD = struct.Struct(">BHIB16sqiiiii")  # frame header, type, req id, hwm, 3 x no locks, header, length
FEED = struct.Struct(">BHIB16sqi")
STORAGE_HEAD = struct.Struct(">BHIBqqii")
STORAGE_PARTITION_COUNT = struct.Struct(">ii")
LENGTH = struct.Struct(">i")
CHECKSUM = struct.Struct(">I")
REQ_ID = struct.Struct(">iiii")
RECORD_PREFIX = bytes(8)  # where the transaction id goes
REQ_ID_AT = 8
TAIL_AT = 44  # the record's tail (header, length, data, checksum) in an APPEND_REQUEST without locks
BUFFER_BYTES = 512 * 1024


class Framed(asyncio.BufferedProtocol):
    """Reads into one buffer; `frames(view, starts)` gets all complete frames of one socket read."""

    def __init__(self) -> None:
        self._buffer = bytearray(BUFFER_BYTES)
        self._view = memoryview(self._buffer)
        self._end = 0
        self.transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)  # uvloop's own classes, alike

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._view[self._end :]

    def buffer_updated(self, nbytes: int) -> None:
        end = self._end + nbytes
        start = 0
        bounds: list[tuple[int, int]] = []
        unpack_from = HEADER.unpack_from
        buffer = self._buffer
        while end - start >= 7:
            after = start + 7 + unpack_from(buffer, start)[2]
            if after > end:
                break
            bounds.append((start, after))
            start = after
        if bounds:
            self.frames(buffer, bounds)
        if start:
            self._view[: end - start] = self._view[start:end]
        self._end = end - start

    def frames(self, buffer: bytearray, bounds: list[tuple[int, int]]) -> None:
        raise NotImplementedError
