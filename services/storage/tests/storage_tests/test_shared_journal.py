"""A directory for journals that more than one node is configured with: nobody overwrites what another one
needs, and what nobody needs any longer is free."""

from __future__ import annotations

import errno
import itertools
import os
import random
from pathlib import Path
from uuid import UUID

import pytest

from waltz_storage.engine.errors import StorageStartError
from waltz_storage.engine.journal.directory import JOURNAL_DIRECTORY, dependence
from waltz_storage.engine.journal.layout import FileHeader
from waltz_storage.engine.journal.log import JournalTakenError
from waltz_storage.engine.layout import CONTROL_FILE_NAME, HEADER_SIZE
from waltz_storage.engine.restore_reset import reset_for_restore
from waltz_storage.engine.storage_manager import StorageManager
from waltz_storage.settings import StorageSettings
from waltz_testkit.faulty_disk import CrashError, CrashMode, FaultyDisk, FaultyFile

from .support import JOURNAL, KEY, ROOT, append, assert_holds, empty_disk, refusal

SHARED = "/journals"


def with_shared_journal(disk: FaultyDisk, directory: str, number: int) -> StorageManager:
    """A node whose journal is in a directory that another one may mean too."""
    manager = StorageManager.open(
        directory,
        cluster_key=KEY,
        num_partitions=4,
        now_ms=lambda: 0,
        fs=disk,
        journal=JOURNAL._replace(directory=SHARED),
        journal_id=UUID(int=number),
        journal_directory=SHARED,
    )
    manager.assign(0)
    manager.commit()
    return manager


def two_directories() -> FaultyDisk:
    disk = empty_disk()
    disk.make_dir("/other")
    disk.sync_dir("/")
    return disk


@pytest.mark.parametrize("end", ["running", *CrashMode])
def test_safety_c7_the_journal_that_another_directory_needs_is_not_overwritten(end: str | CrashMode) -> None:
    disk = two_directories()
    first = with_shared_journal(disk, ROOT, 1)
    append(first.get(0), 0, 4)
    first.commit()
    if isinstance(end, CrashMode):
        disk.restart(end, random.Random(1))
    before = {name: raw for name, raw in disk.files().items() if name.startswith(SHARED)}
    error = refusal(lambda: with_shared_journal(disk, "/other", 2))
    assert isinstance(error, StorageStartError)
    assert "storage.journal.directory of its own" in str(error)
    assert {name: raw for name, raw in disk.files().items() if name.startswith(SHARED)} == before
    if end == "running":
        first.close()
        with_shared_journal(disk, "/other", 2).close()
    first = with_shared_journal(disk, ROOT, 3)
    assert_holds(first.get(0), 4)


def test_safety_c7_the_journal_of_a_running_node_is_not_taken_through_a_link() -> None:
    """`waltz-journal` of two directories leads to one place, by a link or a mount."""
    disk = two_directories()
    first = own_journal(disk, ROOT, 1)
    append(first.get(0), 0, 4)
    first.commit()
    for names in (disk._names, disk._platter_names):
        names[f"/other/{JOURNAL_DIRECTORY}"] = names[f"{ROOT}/{JOURNAL_DIRECTORY}"]
    for number in (2, 3):
        error = refusal(lambda: own_journal(disk, "/other", number))  # noqa: B023
        assert isinstance(error, JournalTakenError)
        assert f"/other/{JOURNAL_DIRECTORY} is, or leads to, the journal of a running node" in str(error)
    append(first.get(0), 4, 4)
    first.commit()
    disk.restart(CrashMode.KEEP)
    first = own_journal(disk, ROOT, 4)
    assert_holds(first.get(0), 8)
    first.close()
    own_journal(disk, "/other", 5).close()


def own_journal(disk: FaultyDisk, directory: str, number: int) -> StorageManager:
    """A node with its journal inside its directory."""
    manager = StorageManager.open(
        directory,
        cluster_key=KEY,
        num_partitions=4,
        now_ms=lambda: 0,
        fs=disk,
        journal=JOURNAL,
        journal_id=UUID(int=number),
    )
    manager.assign(0)
    manager.commit()
    return manager


@pytest.mark.parametrize("known", [True, False])
def test_a_journal_elsewhere_that_is_given_up_is_free_again(known: bool) -> None:
    """Who does not say where it is has to delete it."""
    disk = two_directories()
    work_shared = with_shared_journal(disk, ROOT, 1)
    append(work_shared.get(0), 0, 4)
    work_shared.commit()
    disk.restart(CrashMode.KEEP)
    disk.remove(f"{SHARED}/journal-1.jnl")
    assert reset_for_restore(ROOT, fs=disk, journal_directory=SHARED if known else None) == [0]
    if not known:
        assert f"delete {SHARED}/*.jnl" in str(refusal(lambda: with_shared_journal(disk, ROOT, 2)))
        for name in [name for name in disk.files() if name.startswith(SHARED)]:
            disk.remove(name)
    with_shared_journal(disk, ROOT, 2).close()


def test_a_journal_whose_files_were_exchanged_can_be_given_up() -> None:
    """The header of a file names another number than its name does, one that no file has now."""
    disk = two_directories()
    with_shared_journal(disk, ROOT, 1)
    disk.restart(CrashMode.KEEP)
    disk.overwrite(f"{SHARED}/journal-1.jnl", 0, FileHeader(UUID(int=1), 5, 9).to_bytes())
    assert "belongs to another journal" in str(refusal(lambda: with_shared_journal(disk, ROOT, 2)))
    assert reset_for_restore(ROOT, fs=disk, journal_directory=SHARED) == [0]
    with_shared_journal(disk, ROOT, 2).close()


def test_a_journal_of_fewer_files_does_not_take_the_rest_of_a_needed_one() -> None:
    disk = two_directories()
    with_shared_journal(disk, ROOT, 1)
    disk.restart(CrashMode.KEEP)
    for name in sorted(name for name in disk.files() if name.startswith(SHARED))[:2]:
        disk.remove(name)  # what is needed is in the last file, which a journal of two files would delete
    raw = FileHeader(UUID(int=1), 1, 2).to_bytes()
    disk.overwrite(f"{SHARED}/journal-2.jnl", 0, raw)
    error = refusal(
        lambda: StorageManager.open(
            "/other",
            cluster_key=KEY,
            num_partitions=4,
            now_ms=lambda: 0,
            fs=disk,
            journal=JOURNAL._replace(directory=SHARED, files=2),
            journal_id=UUID(int=2),
        )
    )
    assert "storage.journal.directory of its own" in str(error)


def test_safety_c7_an_end_that_is_cut_short_leaves_a_journal_or_none() -> None:
    """Also while the files of the journal are released, one after another."""
    total = 0
    for boundary in itertools.count():
        disk = two_directories()
        manager = with_shared_journal(disk, ROOT, 1)
        for number in range(40):
            append(manager.get(0), number * 4, 4, 200)
            manager.commit()
        disk.crash_before = len(disk.calls) + boundary
        try:
            manager.close()
        except CrashError:
            total += 1
        else:
            break
        disk.restart(CrashMode.SOME, random.Random(boundary))
        again = with_shared_journal(disk, ROOT, 2)
        assert_holds(again.get(0), 160, 200)
        again.close()
        with_shared_journal(disk, "/other", 3).close()
    assert total > 10


@pytest.mark.parametrize("wrong", ["missing", "empty", "one file less", "of another node", "read-only"])
def test_safety_c7_a_second_device_that_is_not_as_it_was_is_said_and_costs_nothing(
    wrong: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The node does not start, nothing is changed, and with the right device everything is there."""
    disk = two_directories()
    first = with_shared_journal(disk, ROOT, 1)
    append(first.get(0), 0, 4)
    first.commit()
    disk.restart(CrashMode.LOSE)
    right = {name: raw for name, raw in disk.files().items() if name.startswith(SHARED)}
    said = {
        "missing": "set storage.journal.directory to that directory",
        "empty": "journal-0.jnl is missing",
        "one file less": "journal-2.jnl is missing",
        "of another node": "belongs to another journal",
        "read-only": "its journal cannot be replayed: /journals/journal-0.jnl: Read-only file system",
    }[wrong]
    if wrong == "missing":
        disk.remove_dir(SHARED)
    elif wrong == "empty":
        for name in right:
            disk.remove(name)
    elif wrong == "one file less":
        disk.remove(f"{SHARED}/journal-2.jnl")
    elif wrong == "of another node":
        for number, name in enumerate(sorted(right)):
            disk.overwrite(name, 0, FileHeader(UUID(int=9), 1 + number, number).to_bytes())
    else:
        _make_read_only(monkeypatch, SHARED)
    error = refusal(lambda: with_shared_journal(disk, ROOT, 2))
    assert isinstance(error, StorageStartError)
    assert said in str(error)
    monkeypatch.undo()
    if wrong == "missing":
        disk.add_dir(SHARED)
    for name, raw in right.items():
        disk.put(name, raw)
    first = with_shared_journal(disk, ROOT, 3)
    assert_holds(first.get(0), 4)
    first.close()


def _make_read_only(monkeypatch: pytest.MonkeyPatch, directory: str) -> None:
    opened = FaultyDisk.open

    def open_file(
        disk: FaultyDisk, path: str, *, create: bool = False, read_only: bool = False
    ) -> FaultyFile:
        if path.startswith(directory) and not read_only:
            raise OSError(errno.EROFS, os.strerror(errno.EROFS), path)
        return opened(disk, path, create=create, read_only=read_only)

    monkeypatch.setattr(FaultyDisk, "open", open_file)


def test_a_second_device_without_space_is_said_and_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    disk = two_directories()
    write = FaultyFile.pwrite

    def pwrite(file: FaultyFile, data: bytes | memoryview, offset: int) -> int:
        if file.path.startswith(SHARED) and offset >= 4096:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), file.path)
        return write(file, data, offset)

    monkeypatch.setattr(FaultyFile, "pwrite", pwrite)
    error = refusal(lambda: with_shared_journal(disk, ROOT, 1))
    assert f"{SHARED}: the journal cannot be made: {SHARED}/journal-0.jnl: No space left on device" in str(
        error
    )
    assert dependence(disk.files()[f"{ROOT}/{CONTROL_FILE_NAME}"][:HEADER_SIZE]) is None
    monkeypatch.undo()
    with_shared_journal(disk, ROOT, 2).close()


def test_safety_c7_a_full_disk_during_a_replay_is_said_with_the_next_step(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    disk = two_directories()
    first = with_shared_journal(disk, ROOT, 1)
    append(first.get(0), 0, 4)
    first.commit()
    disk.restart(CrashMode.LOSE)

    def pwrite(file: FaultyFile, data: bytes | memoryview, offset: int) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(FaultyFile, "pwrite", pwrite)
    assert str(refusal(lambda: with_shared_journal(disk, ROOT, 2))) == (
        f"{ROOT}: its journal cannot be replayed: No space left on device; free disk space and start again: until then "
        "the journal keeps everything"
    )
    monkeypatch.undo()
    again = with_shared_journal(disk, ROOT, 3)
    assert_holds(again.get(0), 4)
    again.close()


def test_on_off_on_with_crashes_between() -> None:
    """Each start may change the setting; a directory that a journal was never on is taken as it is."""
    disk = two_directories()
    held = 0
    for number, journal in enumerate((False, True, False, True, True, False, False, True)):
        if journal:
            manager = with_shared_journal(disk, ROOT, number + 1)
        else:
            manager = StorageManager.open(
                ROOT, cluster_key=KEY, num_partitions=4, now_ms=lambda: 0, fs=disk, journal_directory=SHARED
            )
            manager.assign(0)
        assert_holds(manager.get(0), held)
        append(manager.get(0), held, 5)
        manager.commit()
        held += 5
        append(manager.get(0), held, 2)  # nobody was answered, if there is a journal
        disk.restart(CrashMode.LOSE)
        held += 0 if journal else 2


@pytest.mark.parametrize("given", ["journal", "./journal/", "{}/journal/"])
def test_the_directory_of_a_journal_is_absolute(
    given: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    values: dict[str, object] = {
        "zookeeper.connectString": "h:1",
        "zookeeper.sessionTimeout": 1000,
        "storage.ssl.allowUnverified": True,
        "cluster.root": "/waltz",
        "storage.directory": "data",
        "storage.port": 1,
        "storage.admin.port": 2,
        "storage.journal.directory": given.format(tmp_path),
    }
    assert StorageSettings.from_mapping(values).journal_directory == str(tmp_path / "journal")
