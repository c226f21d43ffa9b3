"""A directory that loses files, for the tests of safety rule C6."""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator
from itertools import chain, combinations

from waltz_storage.engine.layout import CONTROL_FILE_NAME, SIDECAR_NAME, WITNESS_NAME
from waltz_storage.engine.storage_manager import StorageManager
from waltz_testkit.faulty_disk import CrashMode, FaultyDisk

from .support import ROOT, append, assert_holds, empty_disk, open_manager, path

THRESHOLD = 300
RECORDS = 8  # in segments of three, three and two
NEWEST = 6  # its first transaction; there is room for one more
WITNESS = f"{ROOT}/{WITNESS_NAME}"
CONTROL = f"{ROOT}/{CONTROL_FILE_NAME}"
SIDECAR = path(0, SIDECAR_NAME)


def filled(partition_ids: Iterable[int] = (0,), mode: CrashMode = CrashMode.KEEP) -> FaultyDisk:
    """Session 7 began on an empty log, eight records were acknowledged, session 9 has asked; then the node
    ended."""
    disk = empty_disk()
    manager = open_manager(disk, threshold=THRESHOLD)
    for partition_id in partition_ids:
        partition = manager.assign(partition_id)
        partition.raise_fence(7)
        partition.set_low_water_mark(7, -1)
        append(partition, 0, 6)
        append(partition, NEWEST, 2)
        partition.raise_fence(9)
        assert partition.num_segments == 3
    disk.restart(mode, random.Random(f"{mode}"))
    return disk


def opened(disk: FaultyDisk) -> StorageManager:
    return open_manager(disk, threshold=THRESHOLD)


def subsets(names: Iterable[str]) -> Iterator[tuple[str, ...]]:
    listed = sorted(names)
    return chain.from_iterable(combinations(listed, size) for size in range(1, len(listed) + 1))


def lose(disk: FaultyDisk, names: Iterable[str]) -> None:
    for name in names:
        disk.remove(name)


def assert_whole(manager: StorageManager) -> None:
    partition = manager.get(0)
    assert partition.max_txid == RECORDS - 1
    assert_holds(partition, RECORDS)
    assert partition.durable_fence == 9
    assert partition.info[:3] == (7, -1, -1)
