"""Bit rot of each kind meets what it says, and the engine notices or repairs it."""

from __future__ import annotations

import asyncio
import random
import struct
import zlib
from uuid import UUID

import pytest

from tests.sim.kernel.disk import DATA_DIRECTORY, SimDisk
from tests.sim.kernel.loop import SimLoop
from tests.sim.kernel.rot import Rot, flip
from waltz_storage.engine.errors import RecordDamagedError, StorageStartError
from waltz_storage.engine.layout import wire_to_disk
from waltz_storage.engine.storage_manager import StorageManager

KEY = UUID(int=7)
RECORDS = 20


def wire_record(txid: int) -> bytes:
    data = bytes([txid]) * (10 + txid)
    return (
        struct.pack(">qiiiiii", txid, 7, 1, 1, txid + 1, 5, len(data))
        + data
        + struct.pack(">I", zlib.crc32(data))
    )


def opened(loop: SimLoop, disk: SimDisk) -> StorageManager:
    host = loop.host("storage-1")
    process = loop.spawn_process("storage-1", host, lambda: asyncio.sleep(1e9))
    return StorageManager.open(
        DATA_DIRECTORY, cluster_key=KEY, num_partitions=2, now_ms=process.wall_ms, fs=disk.mount(process)
    )


def written(loop: SimLoop, disk: SimDisk) -> None:
    manager = opened(loop, disk)
    partition = manager.assign(1)
    body = b"".join(wire_record(txid) for txid in range(RECORDS))
    assert partition.append([wire_to_disk(body, 0, RECORDS).batch]) == [None]
    partition.raise_fence(3)
    manager.close()
    loop.host("storage-1").power_off()
    loop.host("storage-1").power_on()


@pytest.mark.parametrize("kind", list(Rot))
@pytest.mark.parametrize("seed", range(5))
def test_a_flipped_bit_is_never_read_as_data(kind: Rot, seed: int) -> None:
    """The node says so, or reads what was written; it never shows anything else."""
    loop = SimLoop(seed)

    async def main() -> None:
        disk = SimDisk(loop.rng("disk"))
        written(loop, disk)
        before = disk.files()
        said = flip(disk, kind, 1, random.Random(seed))
        assert said is not None
        assert said.startswith(kind.value)
        changed = [path for path, data in disk.files().items() if before[path] != data]
        assert len(changed) == 1
        try:
            manager = opened(loop, disk)
        except StorageStartError:
            assert kind is Rot.CONTROL_HEADER
            return
        partition = manager.partitions.get(1)
        if partition is None:
            assert 1 in manager.problems() or kind is Rot.CONTROL_ENTRY
            return
        assert partition.max_txid == RECORDS - 1
        try:
            records = partition.read(0, RECORDS, 1 << 20)
        except RecordDamagedError:
            return
        assert records == [wire_record(txid) for txid in range(len(records))]

    loop.run(main())


def test_nothing_to_flip() -> None:
    loop = SimLoop(1)
    disk = SimDisk(loop.rng("disk"))
    assert [flip(disk, kind, 1, random.Random(0)) for kind in Rot] == [None] * len(Rot)
    loop.close()


@pytest.mark.parametrize("cut", range(1, 200, 7))
def test_what_a_cut_took_away_is_not_looked_for(cut: int) -> None:
    """The cut is not synced yet: there is more on the platter than programs see."""
    loop = SimLoop(1)

    async def main() -> None:
        disk = SimDisk(loop.rng("disk"))
        written(loop, disk)
        path = next(path for path in disk.files() if path.endswith(".seg"))
        host = loop.host("storage-1")
        file = disk.mount(loop.spawn_process("storage-1", host, lambda: asyncio.sleep(1e9))).open(path)
        file.truncate(disk.durable_size(path) - cut)
        assert len(disk.content(path)) < disk.durable_size(path)
        assert flip(disk, Rot.RECORD_DATA, 1, random.Random(cut)) is not None

    loop.run(main())
