"""A journal is released when the files hold all that it held: what a crash in between leaves, and a directory
that needs a journal which was released."""

from __future__ import annotations

import contextlib
import copy
import random
import struct
from collections.abc import Iterator

import pytest

from waltz_storage.engine.errors import JournalLostError, StorageStartError
from waltz_storage.engine.inspect import inspect_control_file
from waltz_storage.engine.journal.directory import JOURNAL_DIRECTORY, dependence, settle_directory
from waltz_storage.engine.journal.layout import FileHeader
from waltz_storage.engine.layout import CONTROL_FILE_NAME, HEADER_SIZE, wire_to_disk
from waltz_storage.engine.storage_manager import StorageManager
from waltz_testkit.faulty_disk import CrashError, CrashMode, FaultyDisk

from .support import (
    JOURNAL,
    KEY,
    ROOT,
    append,
    assert_holds,
    empty_disk,
    open_manager,
    opens_in_release_0_13_2,
    refusal,
    stopped_in_release,
    wire_record,
)
from .test_journal_lost_files import put_back, taken_away
from .test_shared_journal import SHARED, two_directories, with_shared_journal

ACKNOWLEDGED = 10


def replaced() -> FaultyDisk:
    """Transactions 4 to 7 of partition 0 were truncated and others acknowledged in their place; power was
    lost. That is in the oldest file of the journal, and two fences, in both slots of the witness, in the
    newest one."""
    disk = empty_disk()
    manager = open_manager(disk, journal=JOURNAL)
    for partition_id in (0, 2):
        partition = manager.assign(partition_id)
        partition.raise_fence(1)
        partition.set_low_water_mark(1, -1)
        append(partition, 0, 4)
    others = wire_to_disk(b"".join(wire_record(txid, b"A" * 40) for txid in range(4, 8)), 0, 4)
    assert manager.get(0).append([others.batch]) == [None]
    manager.commit()
    manager.close()
    manager = open_manager(disk, journal=JOURNAL)
    partition = manager.get(0)
    partition.truncate(3)
    append(partition, 4, 4)
    manager.commit()
    number = 4
    while epochs(disk)[1] == 0:
        append(manager.get(2), number, 4, 200)
        manager.commit()
        number += 4
    for session in (2, 3):
        partition.raise_fence(session)
        manager.commit()
    append(partition, 8, 2)
    manager.commit()
    disk.restart(CrashMode.LOSE)
    assert epochs(disk) == [1, 2, 0]
    return disk


def epochs(disk: FaultyDisk, place: str = f"{ROOT}/{JOURNAL_DIRECTORY}") -> list[int]:
    headers = [FileHeader.from_bytes(disk.content(f"{place}/journal-{n}.jnl")) for n in range(JOURNAL.files)]
    return [header.epoch for header in headers if header is not None]


@pytest.mark.parametrize("mode", list(CrashMode))
def test_safety_c7_what_a_replay_had_to_leave_out_stays_noted_when_its_end_is_interrupted(
    mode: CrashMode,
) -> None:
    """A directory is away during the replay, which is ended anywhere; then it is back."""
    killed = replaced()
    lacking = whole = 0
    for calls in range(1000):
        disk = copy.deepcopy(killed)
        files = taken_away(disk, f"{ROOT}/0")
        disk.crash_before = len(disk.calls) + calls
        try:
            settle_directory(disk, ROOT, None)
        except CrashError:
            disk.restart(mode, random.Random(calls))
        else:
            break
        put_back(disk, files)
        manager = open_manager(disk)
        if 0 in manager.damaged:
            assert "lacks records" in manager.damaged[0], calls
            lacking += 1
        else:
            assert manager.get(0).max_txid == ACKNOWLEDGED - 1, calls
            assert_holds(manager.get(0), ACKNOWLEDGED)
            whole += 1
        assert manager.get(2).max_txid > 4
        manager.close()
    assert whole > 10
    assert lacking > 3


def lived(rounds: int = 40) -> tuple[FaultyDisk, StorageManager]:
    """A node that has used all files of its journal, with its last commit."""
    disk = empty_disk()
    manager = open_manager(disk, journal=JOURNAL)
    manager.assign(0).raise_fence(1)
    manager.get(0).set_low_water_mark(1, -1)
    for number in range(rounds):
        append(manager.get(0), number * 4, 4, 200)
        manager.commit()
    return disk, manager


def header(disk: FaultyDisk) -> bytes:
    return disk.content(f"{ROOT}/{CONTROL_FILE_NAME}")[:HEADER_SIZE]


@pytest.mark.parametrize("mode", list(CrashMode))
def test_safety_c7_an_orderly_end_and_the_start_after_it_may_be_interrupted_anywhere(mode: CrashMode) -> None:
    """Until the end no other release opens the directory; where the header says that the files lack nothing,
    it is complete without its journal."""
    versions: dict[int, int] = {}
    for calls in range(1000):
        disk, manager = lived()
        disk.crash_before = len(disk.calls) + calls
        try:
            manager.close()
        except CrashError:
            disk.restart(mode, random.Random(calls))
        else:
            break
        found = dependence(header(disk))
        version = 0 if found is None else found.version
        versions[version] = versions.get(version, 0) + 1
        assert inspect_control_file(ROOT, fs=disk)[0].version == version
        if found is not None:
            assert header(disk)[12:28] != KEY.bytes, "0.13.2 compares the key"
            assert header(disk)[:4] == struct.pack(">i", version), "earlier releases of ours the version"
        if version == 3:
            without = copy.deepcopy(disk)
            without.remove_dir(f"{ROOT}/{JOURNAL_DIRECTORY}")
            holds(without, journal=False)
        for again in range(calls % 3, 60, 3):
            disk.crash_before = len(disk.calls) + again
            try:
                settle_directory(disk, ROOT, None)
            except CrashError:
                disk.restart(mode, random.Random(again))
            else:
                break
        disk.crash_before = None
        holds(disk, journal=calls % 2 == 0)
    assert versions.keys() >= {1, 3}
    assert versions[3] >= 4


def holds(disk: FaultyDisk, *, journal: bool) -> None:
    manager = open_manager(disk, journal=JOURNAL if journal else None)
    assert manager.damaged == {}
    assert_holds(manager.get(0), 160, 200)
    manager.close()
    assert dependence(header(disk)) is None
    assert opens_in_release_0_13_2(disk, 0, -1) == 159


@pytest.mark.parametrize("life", ["an end", "a replay"])
def test_safety_c7_power_is_lost_after_a_failed_sync_of_the_word_that_files_lack_nothing(life: str) -> None:
    """The page looks clean, and is not on the disk: it is written again before a file is released."""
    for calls in range(20):
        disk, manager = lived()
        if life == "a replay":
            disk.restart(CrashMode.KEEP)
        with _failing_header(disk), contextlib.suppress(StorageStartError):
            manager.close() if life == "an end" else settle_directory(disk, ROOT, None)
        disk.restart(CrashMode.KEEP)
        found = dependence(header(disk))
        assert found is not None
        assert found.releasing
        disk.crash_before = calls
        with contextlib.suppress(CrashError):
            settle_directory(disk, ROOT, None)
        disk.restart(CrashMode.LOSE)
        holds(disk, journal=calls % 2 == 0)


@contextlib.contextmanager
def _failing_header(disk: FaultyDisk) -> Iterator[None]:
    """The sync after the next write of a header fails."""
    call = disk.call

    def fail(*what: object) -> None:
        if what == ("pwrite", f"{ROOT}/{CONTROL_FILE_NAME}", 0, HEADER_SIZE):
            disk.fail_sync_once = CONTROL_FILE_NAME
        call(*what)

    disk.call = fail  # type: ignore[method-assign]
    try:
        yield
    finally:
        del disk.call


@pytest.mark.parametrize("released_by", ["replay", "end", "half a replay"])
def test_safety_c7_a_copy_of_the_directory_is_not_opened_with_a_journal_that_was_released(
    released_by: str,
) -> None:
    """The journal is on a device of its own. The directory was copied while it needed the journal; then the
    original was brought into order."""
    disk = two_directories()
    manager = with_shared_journal(disk, ROOT, 1)
    manager.get(0).raise_fence(1)
    manager.get(0).set_low_water_mark(1, -1)
    for number in range(30):
        append(manager.get(0), number * 4, 4, 200)
        manager.commit()
    if released_by != "end":
        disk.restart(CrashMode.KEEP)
    copied = {name: raw for name, raw in disk.files().items() if name.startswith(ROOT)}
    if released_by == "replay":
        settle_directory(disk, ROOT, SHARED)
    elif released_by == "end":
        manager.close()
    else:
        stopped_in_release(disk, lambda: settle_directory(disk, ROOT, SHARED), 1)
    original = {name: raw for name, raw in disk.files().items() if name.startswith(ROOT)}
    for name, raw in copied.items():
        disk.put(name, raw)
    before = disk.files()
    for action in (
        lambda: with_shared_journal(disk, ROOT, 2),
        lambda: settle_directory(disk, ROOT, SHARED),
        lambda: with_shared_journal(disk, ROOT, 2),
    ):
        error = refusal(action)
        assert isinstance(error, JournalLostError)
        assert f"{SHARED}/journal-0.jnl was released, and another copy of this directory has" in str(error)
        assert "use that copy in place of this one, or give the copy up" in str(error)
    assert disk.files() == before
    for name, raw in original.items():
        disk.put(name, raw)
    manager = with_shared_journal(disk, ROOT, 2)
    assert_holds(manager.get(0), 120, 200)
    manager.close()


@pytest.mark.parametrize("released", range(4))
def test_what_a_release_before_this_one_has_released_does_not_count_as_such(released: int) -> None:
    """It was killed before it wrote the plain header, and gave files that it released epoch 0."""
    disk, manager = lived()
    manager.make()
    disk.restart(CrashMode.KEEP)
    found = dependence(header(disk))
    assert found is not None
    oldest = sorted(range(JOURNAL.files), key=lambda number: epochs(disk)[number])
    for number in oldest[:released]:
        raw = FileHeader(found.journal_id, 0, number).to_bytes()
        disk.overwrite(f"{ROOT}/{JOURNAL_DIRECTORY}/journal-{number}.jnl", 0, raw)
    holds(disk, journal=released % 2 == 0)
