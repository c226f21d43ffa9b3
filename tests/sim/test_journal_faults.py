"""Every way in which the simulator damages a journal is one that a node must notice."""

from __future__ import annotations

import random
from uuid import UUID

import pytest

from tests.sim.faults.file_faults import journal_makes
from tests.sim.faults.journal_faults import WAYS, damage_journal
from tests.sim.kernel.disk import DATA_DIRECTORY
from waltz_storage.engine.errors import StorageStartError
from waltz_storage.engine.journal.log import JournalSettings
from waltz_storage.engine.layout import WITNESS_NAME
from waltz_storage.engine.storage_manager import StorageManager
from waltz_testkit.faulty_disk import CrashMode, FaultyDisk

KEY = UUID(int=7)


def opened(disk: FaultyDisk, journal_id: int) -> StorageManager:
    return StorageManager.open(
        DATA_DIRECTORY,
        cluster_key=KEY,
        num_partitions=2,
        now_ms=lambda: 0,
        fs=disk,
        journal=JournalSettings(None, 8 << 10, 3),
        journal_id=UUID(int=journal_id),
    )


@pytest.mark.parametrize("way", sorted(set(WAYS)))
@pytest.mark.parametrize("seed", range(3))
def test_a_node_refuses_its_damaged_journal(way: str, seed: int) -> None:
    disk = FaultyDisk()
    disk.add_dir(DATA_DIRECTORY)
    manager = opened(disk, 1)
    manager.assign(1)
    manager.commit()
    for session in range(1, 60):
        manager.get(1).raise_fence(session)
        manager.commit()
    disk.restart(CrashMode.LOSE)
    assert damage_journal(disk, way, random.Random(seed)) is not None
    with pytest.raises(StorageStartError, match="needs its journal"):
        opened(disk, 2)


def test_there_is_nothing_to_damage_after_an_orderly_end() -> None:
    disk = FaultyDisk()
    disk.add_dir(DATA_DIRECTORY)
    opened(disk, 1).close()
    assert damage_journal(disk, "one file", random.Random(0)) is None


def test_a_journal_makes_the_files_again_whose_making_it_holds() -> None:
    disk = FaultyDisk()
    disk.add_dir(DATA_DIRECTORY)
    manager = opened(disk, 1)
    manager.assign(1)
    manager.get(1).raise_fence(1)
    manager.commit()
    disk.restart(CrashMode.KEEP)
    assert journal_makes(disk, WITNESS_NAME)
    assert not journal_makes(disk, "no-such-file")
    opened(disk, 2).close()
    assert not journal_makes(disk, WITNESS_NAME)  # nothing depends on it
    manager = opened(disk, 3)
    manager.get(1).raise_fence(2)
    manager.commit()
    disk.restart(CrashMode.KEEP)
    assert not journal_makes(disk, WITNESS_NAME)  # it was there
