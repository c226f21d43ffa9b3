"""Shared by the storage tests: records, directories on a faulty disk, and 0.13.2's opening rules."""

from __future__ import annotations

import itertools
import struct
import zlib
from collections.abc import Callable
from functools import lru_cache
from uuid import UUID

from waltz_storage.engine import layout
from waltz_storage.engine.errors import StorageError
from waltz_storage.engine.journal.log import JournalSettings
from waltz_storage.engine.layout import RecordBatch, wire_to_disk
from waltz_storage.engine.partition import EngineSettings, Partition
from waltz_storage.engine.storage_manager import StorageManager
from waltz_testkit.faulty_disk import CrashError, CrashMode, FaultyDisk

KEY = UUID("00112233-4455-6677-8899-aabbccddeeff")
OTHER_KEY = UUID("ffeeddcc-bbaa-9988-7766-554433221100")
NOW_MS = 1_600_000_000_000
ROOT = "/data"
JOURNAL = JournalSettings(file_bytes=16 << 10, files=3)
"""Small: it rotates within a test."""
JOURNAL_IDS = (UUID(int=number) for number in itertools.count(1))


def now_ms() -> int:
    return NOW_MS


@lru_cache(maxsize=16384)
def payload(txid: int, size: int = 40) -> bytes:
    """Data of a test record, different for each transaction."""
    return (b"%d:" % txid + bytes((txid * 31 + i) % 251 + 1 for i in range(size)))[:size]


@lru_cache(maxsize=16384)
def wire_record(txid: int, data: bytes | None = None, *, header: int = 1234, partition_id: int = 3) -> bytes:
    raw = payload(txid) if data is None else data
    head = struct.pack(">qiiiiii", txid, 7, 1, partition_id, txid + 1, header, len(raw))
    return head + raw + struct.pack(">I", zlib.crc32(raw))


def wire_records(first: int, count: int, size: int = 40) -> bytes:
    return b"".join(wire_record(t, payload(t, size)) for t in range(first, first + count))


@lru_cache(maxsize=4096)
def batch(first: int, count: int = 1, size: int = 40) -> RecordBatch:
    converted = wire_to_disk(wire_records(first, count, size), 0, count)
    assert converted.problem is None
    return converted.batch


def append(partition: Partition, first: int, count: int = 1, size: int = 40) -> None:
    for result in partition.append([batch(first, count, size)]):
        if result is not None:
            raise result


def empty_disk() -> FaultyDisk:
    disk = FaultyDisk()
    disk.add_dir(ROOT)
    return disk


def open_manager(
    disk: FaultyDisk,
    *,
    key: UUID = KEY,
    num_partitions: int = 4,
    threshold: int = 1_000_000_000,
    cache: int = 5,
    journal: JournalSettings | None = None,
) -> StorageManager:
    return StorageManager.open(
        ROOT,
        cluster_key=key,
        num_partitions=num_partitions,
        now_ms=now_ms,
        settings=EngineSettings(threshold, cache),
        fs=disk,
        journal=journal,
        journal_id=None if journal is None else next(JOURNAL_IDS),
    )


def stopped_in_release(disk: FaultyDisk, action: Callable[[], object], released: int) -> None:
    """The process is killed during `action` when so many files of the journal are released."""
    call, done = disk.call, 0

    def stop(*what: object) -> None:
        nonlocal done
        if what[0] == "pwrite" and str(what[1]).endswith(".jnl") and what[2:] == (0, 512):
            if done == released:
                raise CrashError("killed")
            done += 1
        call(*what)

    disk.call = stop  # type: ignore[method-assign]
    try:
        action()
    except CrashError:
        disk.restart(CrashMode.KEEP)
    else:
        raise AssertionError("nothing was released")
    finally:
        del disk.call


def forget_our_files(disk: FaultyDisk, partition_id: int = 0) -> None:
    """As a directory of 0.13.2: no side file and no witness, so only local mark and index checkpoints are
    certain."""
    for name in (path(partition_id, layout.SIDECAR_NAME), f"{ROOT}/{layout.WITNESS_NAME}"):
        disk.remove(name)


def path(partition_id: int, name: str) -> str:
    return f"{ROOT}/{partition_id}/{name}"


def segment_path(partition_id: int, first: int, suffix: str = ".seg") -> str:
    return path(partition_id, layout.segment_name(first) + suffix)


def assert_holds(partition: Partition, count: int, size: int = 40) -> None:
    """Transactions 0 .. count-1 are there, in order, with their bytes."""
    txid = 0
    while txid < count:
        records = partition.read(txid, 1000, 1 << 20)
        assert records, f"transaction {txid} is not there"
        for record in records:
            assert record == wire_record(txid, payload(txid, size))
            txid += 1


def refusal(action: Callable[[], object]) -> StorageError:
    """The error an action ends with."""
    try:
        action()
    except StorageError as error:
        return error
    raise AssertionError("it was not refused")


def opens_in_release_0_13_2(disk: FaultyDisk, partition_id: int, local_low_water_mark: int) -> int:
    """Open a partition by the reference's rules, written from its description; returns the highest TXID.

    Raises AssertionError where the reference node would not start.
    """
    files = disk.files()
    prefix = f"{ROOT}/{partition_id}/"
    firsts: list[tuple[int, str]] = []
    for name in files:
        if name.startswith(prefix) and name.endswith(".seg"):
            assert len(files[name]) >= 128, f"{name} has no header"
            firsts.append((struct.unpack_from(">q", files[name], 32)[0], name))
    next_txid = 0
    for first, name in sorted(firsts):
        data, index = files[name], files[name[:-4] + ".idx"]
        for head in (data, index):
            assert head[12:28] == KEY.bytes
            assert struct.unpack_from(">i", head, 28)[0] == partition_id
        next_txid = _reference_scan(data, index, first, local_low_water_mark)
    return next_txid - 1


def _reference_scan(data: bytes, index: bytes, first: int, local_low_water_mark: int) -> int:
    newest = first + (len(index) - 128) // 8 - 1
    start = newest
    if newest > local_low_water_mark:
        start = max((newest - 1) // 1000 * 1000, local_low_water_mark)
    offset, expected = 128, first
    if start > first:
        offset = struct.unpack_from(">q", index, 128 + 8 * (start - first))[0]
        end = _reference_record(data, offset, start)
        assert end > 0, f"no valid record {start} at its index entry"
        offset, expected = end, start + 1
    while (end := _reference_record(data, offset, expected)) > 0:
        offset, expected = end, expected + 1
    return expected


def _reference_record(data: bytes, offset: int, txid: int) -> int:
    if offset < 0 or offset + 40 > len(data):
        return -1
    found, length = struct.unpack_from(">q20xi", data, offset)
    end: int = offset + 40 + length
    if found != txid or length < 0 or end > len(data):
        return -1
    stored = struct.unpack_from(">I", data, end - 4)[0]
    return end if zlib.crc32(data[offset : end - 4]) == stored else -1
