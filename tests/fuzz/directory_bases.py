"""Storage directories to start from: made by the engine, and one of release 0.13.2."""

from __future__ import annotations

from functools import cache

from tests.fuzz.disk_form import KEY, record
from tests.interop.recordings import GOLDEN
from waltz_storage.engine.layout import RecordBatch, disk_to_wire, wire_to_disk
from waltz_storage.engine.partition import EngineSettings
from waltz_storage.engine.storage_manager import StorageManager
from waltz_testkit.faulty_disk import CrashMode, FaultyDisk

ROOT = "/d"
PARTITIONS = 4
Files = dict[str, bytes]


def batch(first_txid: int, count: int, size_bytes: int = 20) -> RecordBatch:
    """Consecutive records with distinct data."""
    disk_records = b"".join(
        record(txid, (b"%d." % txid) + b"x" * (size_bytes * (txid % 3)))
        for txid in range(first_txid, first_txid + count)
    )
    wire = b"".join(disk_to_wire(disk_records, first_txid))
    return wire_to_disk(wire, 0, count).batch


def _made(steps: dict[int, list[int]], *, threshold: int, session: bool, closed: bool) -> Files:
    """A directory whose partitions (by id) got appends of the given counts."""
    disk = FaultyDisk()
    disk.add_dir(ROOT)
    manager = StorageManager.open(
        ROOT,
        cluster_key=KEY,
        num_partitions=PARTITIONS,
        now_ms=lambda: 1,
        settings=EngineSettings(threshold, 2),
        fs=disk,
    )
    for partition_id, counts in steps.items():
        partition = manager.assign(partition_id)
        for number, count in enumerate(counts):
            assert partition.append([batch(partition.max_txid + 1, count)]) == [None]
            if session and number == 0:
                partition.set_low_water_mark(3, partition.max_txid)
                partition.raise_fence(4)
    if closed:
        manager.close()
    disk.restart(CrashMode.KEEP)
    return disk.files()


@cache
def bases() -> tuple[Files, ...]:
    """All of them; made once per process."""
    recorded = {
        f"{ROOT}/{file.relative_to(GOLDEN / 'storage' / 'node1')}": file.read_bytes()
        for file in sorted((GOLDEN / "storage" / "node1").rglob("*"))
        if file.is_file() and (file.parent.name in ("0", "2") or file.suffix == ".ctl")
    }
    return (
        _made({}, threshold=1000, session=False, closed=True),
        _made({0: [], 2: [1]}, threshold=1000, session=False, closed=False),
        _made({0: [4, 5, 1]}, threshold=100_000, session=True, closed=False),
        _made({0: [3, 3, 3, 3], 1: [2, 40]}, threshold=200, session=True, closed=True),
        _made({0: [995, 3, 1, 1, 1, 2]}, threshold=10**6, session=True, closed=False),
        recorded,
    )
