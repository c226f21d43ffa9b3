"""Of the yardstick: a disk process, with a file for each partition or with one journal for all."""

from __future__ import annotations

import asyncio
import os
import zlib
from concurrent.futures import ThreadPoolExecutor

from bench.limit_frames import CHECKSUM, LENGTH, STORAGE_HEAD, STORAGE_PARTITION_COUNT, Framed

JOURNAL_BYTES = 128 << 20
PAGE_BYTES = 4096


class DiskJournal:
    """One file of blocks that are there already, used from its beginning again when its end is reached."""

    def __init__(self, path: str) -> None:
        self._fd = os.open(path, os.O_CREAT | os.O_RDWR, 0o600)
        self._position = 0
        zeros = bytes(PAGE_BYTES)
        for start in range(0, JOURNAL_BYTES, PAGE_BYTES):
            os.pwrite(self._fd, zeros, start)
        os.fsync(self._fd)

    def store(self, raw: bytes) -> None:
        """One write, one sync."""
        if self._position + len(raw) > JOURNAL_BYTES:
            self._position = 0
        os.pwrite(self._fd, raw, self._position)
        os.fdatasync(self._fd)
        self._position += len(raw)


class DiskProtocol(Framed):
    """One connection from the relay: what arrived in this turn is written, synced once per file, answered.

    Inline, the sync blocks the loop and the next turn finds what came meanwhile; with a thread the loop takes
    in the next frames while the sync runs.
    """

    def __init__(
        self, files: list[int], journal: DiskJournal | None, pool: ThreadPoolExecutor | None, checked: bool
    ) -> None:
        super().__init__()
        self._files = files
        self._journal = journal
        self._pool = pool
        self._checked = checked
        self._loop = asyncio.get_running_loop()
        self._records: dict[int, list[bytearray]] = {}
        self._replies: list[bytes] = []
        self._busy = False

    def frames(self, buffer: bytearray, bounds: list[tuple[int, int]]) -> None:
        records = self._records
        for start, after in bounds:
            body = buffer[start + STORAGE_HEAD.size : after - 1]
            partition, count = STORAGE_PARTITION_COUNT.unpack_from(buffer, start + 24)
            if self._checked:
                _check_records(body, count)
            records.setdefault(partition % max(1, len(self._files)), []).append(body)
        self._replies += [_success(buffer, a) for a, _ in bounds]
        if not self._busy:
            self._next()

    def _next(self) -> None:
        records, self._records = self._records, {}
        replies, self._replies = b"".join(self._replies), []
        if self._pool is None:
            self._store(records)
            self.transport.write(replies)
        else:
            self._busy = True
            self._pool.submit(self._job, records, replies)

    def _job(self, records: dict[int, list[bytearray]], replies: bytes) -> None:
        self._store(records)
        self._loop.call_soon_threadsafe(self._synced, replies)

    def _synced(self, replies: bytes) -> None:
        self._busy = False
        self.transport.write(replies)
        if self._records:
            self._next()

    def _store(self, records: dict[int, list[bytearray]]) -> None:
        if self._journal is not None:
            self._journal.store(b"".join(part for parts in records.values() for part in parts))
            return
        for partition, parts in records.items():
            os.write(self._files[partition], b"".join(parts))
        for partition in records:
            os.fdatasync(self._files[partition])


def _check_records(body: bytearray, count: int) -> None:
    """Walk the records of an Append and compare every checksum."""
    view = memoryview(body)
    at = 0
    for _ in range(count):
        end = at + 32 + LENGTH.unpack_from(body, at + 28)[0]
        if zlib.crc32(view[at + 32 : end]) != CHECKSUM.unpack_from(body, end)[0]:
            raise ValueError("a record does not match its checksum")
        at = end + 4


def _success(buffer: bytearray, at: int) -> bytes:
    """The Success frame for the Append at `at`: same session, sequence number and partition."""
    return b"S\x00\x00\x00\x00\x00\x15\x07" + buffer[at + 8 : at + 28]
