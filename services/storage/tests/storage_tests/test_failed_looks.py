"""A disk that cannot say whether a file is there: that is an error, and never an answer."""

from __future__ import annotations

import contextlib
import errno
import os
from pathlib import Path

import pytest

from waltz_storage.engine.errors import StorageError, StorageStartError
from waltz_storage.engine.files import OsFileSystem
from waltz_storage.engine.journal.log import JournalSettings
from waltz_storage.engine.layout import WITNESS_NAME
from waltz_testkit.faulty_disk import CrashMode, FaultyDisk

from .support import (
    JOURNAL,
    ROOT,
    append,
    assert_holds,
    empty_disk,
    open_manager,
    path,
    payload,
    refusal,
    segment_path,
    wire_record,
)
from .test_journaled_directory import opened


def filled(disk: FaultyDisk, partition_ids: tuple[int, ...] = (0, 2)) -> None:
    manager = open_manager(disk, threshold=300)
    for partition_id in partition_ids:
        manager.assign(partition_id).raise_fence(1)
        manager.get(partition_id).set_low_water_mark(1, -1)
        for txid in range(12):
            append(manager.get(partition_id), txid)
    manager.close()


def test_only_a_missing_name_is_not_there(tmp_path: Path) -> None:
    """A name that is too long is refused by every file system, also for root."""
    fs = OsFileSystem()
    (tmp_path / "file").write_bytes(b"")
    (tmp_path / "link").symlink_to("nowhere")
    (tmp_path / "to").symlink_to(tmp_path)
    for name, there, directory in [
        ("file", True, False),
        ("link", True, False),
        ("to", True, True),
        ("", True, True),
        ("missing", False, False),
        ("missing/inside", False, False),
        ("file/inside", False, False),
    ]:
        assert fs.exists(str(tmp_path / name)) is there, name
        assert fs.is_dir(str(tmp_path / name)) is directory, name
    for look in (fs.exists, fs.is_dir):
        with pytest.raises(OSError, match="x") as raised:
            look(str(tmp_path / ("x" * 300)))
        assert raised.value.errno == errno.ENAMETOOLONG


def test_safety_c4_a_cut_segment_is_deleted_without_a_look(monkeypatch: pytest.MonkeyPatch) -> None:
    """One failed look would leave it, and its records would come back after a restart."""
    disk = empty_disk()
    filled(disk, (0,))
    manager = open_manager(disk, threshold=300)
    cut = max(name for name in disk.files() if name.endswith(".seg"))
    first = int(Path(cut).stem)
    disk.fail_look = cut
    assert manager.get(0).truncate(first - 2) == first - 2
    disk.fail_look = None
    assert cut not in disk.files()
    append(manager.get(0), first - 1)
    disk.restart(CrashMode.KEEP)
    manager = open_manager(disk, threshold=300)
    assert manager.get(0).max_txid == first - 1
    manager.close()


@pytest.mark.parametrize("what", ["directory", "side file", "segment", "index"])
def test_safety_c6_a_partition_that_cannot_be_looked_at_is_not_called_lost(what: str) -> None:
    """Whoever reads that its files are missing deletes the rest of them."""
    disk = empty_disk()
    filled(disk)
    files = {"side file": path(0, "waltz-fence"), "segment": segment_path(0, 0)}
    disk.fail_look = {"directory": f"{ROOT}/0", "index": segment_path(0, 0, ".idx"), **files}[what]
    before = disk.files()
    manager = open_manager(disk, threshold=300)
    if what == "directory":
        assert os.strerror(errno.EIO) in manager.damaged[0]
        assert "remove-partition" not in manager.damaged[0]
        assert isinstance(refusal(lambda: manager.unassign(0, delete_files=True)), StorageError)
    assert_holds(manager.get(2), 12)
    manager.close()
    disk.fail_look = None
    assert {name for name in before if name.startswith(f"{ROOT}/0/")} <= disk.files().keys()
    manager = open_manager(disk, threshold=300)
    assert_holds(manager.get(0), 12)
    manager.close()


@pytest.mark.parametrize("name", [ROOT, WITNESS_NAME])
def test_a_directory_that_cannot_be_looked_at_is_refused_in_one_line(name: str) -> None:
    disk = empty_disk()
    filled(disk)
    disk.fail_look = name
    error = refusal(lambda: open_manager(disk))
    assert isinstance(error, StorageStartError)
    assert os.strerror(errno.EIO) in str(error)
    disk.fail_look = None
    manager = open_manager(disk)
    assert_holds(manager.get(0), 12)
    manager.close()


class OneFailingLook(FaultyDisk):
    """The look with the number `failing`, from 0, fails."""

    def __init__(self) -> None:
        super().__init__()
        self.looks, self.failing = 0, -1
        self.add_dir(ROOT)

    def _look(self, path: str) -> None:
        super()._look(path)
        self.looks += 1
        if self.looks == self.failing + 1:
            raise OSError(errno.EIO, os.strerror(errno.EIO), path)


def life(disk: FaultyDisk, journal: JournalSettings | None) -> tuple[int, bool]:
    """Twelve transactions, all from 6 on cut, two others in their place. Returns how many of them were
    acknowledged and whether the cut was."""
    acknowledged, cut = 0, False
    with contextlib.suppress(StorageError):
        manager = open_manager(disk, threshold=300, journal=journal)
        partition = manager.assign(0)
        partition.raise_fence(1)
        partition.set_low_water_mark(1, -1)
        for number in range(12):
            append(partition, number)
            manager.commit()
            acknowledged = number + 1
        partition.truncate(5)
        manager.commit()
        acknowledged, cut = 6, True
        for number in (6, 7):
            append(partition, number, 1, 60)
            manager.commit()
            acknowledged = number + 1
        manager.settle()
    return acknowledged, cut


@pytest.mark.parametrize("mode", [CrashMode.KEEP, CrashMode.LOSE])
@pytest.mark.parametrize("journal", [None, JOURNAL])
def test_safety_c4_whichever_look_fails_nothing_is_lost_and_nothing_returns(
    journal: JournalSettings | None, mode: CrashMode
) -> None:
    """In a life, then in the start after a crash, which may be refused and is repeated."""
    whole = OneFailingLook()
    assert life(whole, journal) == (8, True)
    in_life = whole.looks
    assert in_life
    for failing in range(in_life + 20):
        disk = OneFailingLook()
        disk.failing = failing
        acknowledged, cut = life(disk, journal)
        disk.restart(mode)
        with contextlib.suppress(StorageStartError):
            open_manager(disk, threshold=300)
            disk.restart(mode)
        disk.failing = -1
        manager = open_manager(disk, threshold=300)
        if not acknowledged and 0 not in manager.partitions:
            continue
        partition = manager.get(0)
        assert partition.max_txid + 1 >= (acknowledged if cut else min(acknowledged, 6)), failing
        first = partition.read(0, 100, 1 << 20)
        for number, record in enumerate(first):
            new = number > 5 and cut
            assert record == wire_record(number, payload(number, 60 if new else 40)), failing
        manager.close()


def test_safety_c7_a_directory_that_cannot_be_looked_at_is_not_settled() -> None:
    """Names in it may not be durable yet."""
    disk = empty_disk()
    manager = opened(disk, threshold=1_000_000)
    number = 0
    while not manager.settle_due:
        append(manager.get(0), number, 1)
        manager.commit()
        number += 1
    disk.fail_look = f"{ROOT}/0"
    assert not manager.settle()
    assert set(manager.problems()) == {0, 2}
    with contextlib.suppress(StorageError):
        manager.close()
    disk.restart(CrashMode.LOSE)
    disk.fail_look = None
    manager = open_manager(disk)
    assert_holds(manager.get(0), number)
    manager.close()


def test_only_partition_directories_are_synced_at_the_beginning() -> None:
    """A file system has a directory of its own, `lost+found`, where it is mounted: only root may open it."""
    disk = empty_disk()
    opened(disk).close()
    disk.add_dir(f"{ROOT}/lost+found")
    disk.fail_sync = f"{ROOT}/lost+found"
    opened(disk).close()
    disk.fail_sync = f"{ROOT}/2/"
    error = refusal(lambda: opened(disk))
    assert isinstance(error, StorageStartError)
    assert f"the journal cannot be made: {ROOT}/2: Input/output error" in str(error)
