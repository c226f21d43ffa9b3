"""`waltz disk settle`: what a killed node leaves, brought to where release 0.13.2 can open it."""

from __future__ import annotations

import pytest

from waltz_storage.engine.control_file import ControlFile
from waltz_storage.engine.errors import DirectoryLockedError, StorageStartError
from waltz_storage.engine.journal.log import JournalSettings
from waltz_storage.engine.layout import INDEX_SUFFIX
from waltz_storage.engine.settling import put_in_order
from waltz_testkit.faulty_disk import CrashMode, FaultyDisk

from . import test_journal_crashes, test_safety_c5_crashes
from .support import (
    JOURNAL,
    KEY,
    ROOT,
    append,
    assert_holds,
    empty_disk,
    now_ms,
    open_manager,
    opens_in_release_0_13_2,
    refusal,
    segment_path,
)
from .test_safety_c5_crashes import SCENARIOS, Acknowledged, Step

KILLED = ["create", "roll", "truncate_rolled", "truncate", "marks"]


def run_until_kill(disk: FaultyDisk, steps: list[Step], journal: JournalSettings | None) -> Acknowledged:
    if journal is None:
        return test_safety_c5_crashes.run_until_crash(disk, steps, 700)
    return test_journal_crashes.run_until_crash(disk, steps, 700)


def assert_as_0_13_2_expects(disk: FaultyDisk, promised: Acknowledged) -> None:
    """Acknowledged transactions are there, each segment is whole, and the next one can be made."""
    control = ControlFile.open_existing(disk, ROOT)
    info = control.info(0)
    control.close()
    assert info.assigned or not promised.assigned
    if not info.assigned:
        return
    newest = opens_in_release_0_13_2(disk, 0, info.local_low_water_mark)
    assert promised.count <= newest + 1 <= promised.at_most
    files = disk.files()
    stems = [{name[:-4] for name in files if name.endswith(suffix)} for suffix in (".seg", INDEX_SUFFIX)]
    assert stems[0] == stems[1]


@pytest.mark.parametrize("journal", [None, JOURNAL])
@pytest.mark.parametrize("name", KILLED)
def test_release_0_13_2_opens_what_a_killed_node_has_left_once_it_is_settled(
    name: str, journal: JournalSettings | None
) -> None:
    """Killed before each call that changes a file: also between the two files of a segment."""
    disk = empty_disk()
    run_until_kill(disk, SCENARIOS[name], journal)
    calls = len(disk.calls)
    assert calls > 20
    for boundary in range(calls + 1):
        disk = empty_disk()
        disk.crash_before = boundary
        promised = run_until_kill(disk, SCENARIOS[name], journal)
        disk.restart(CrashMode.KEEP)
        try:
            settled = put_in_order(ROOT, now_ms=now_ms, fs=disk)
        except StorageStartError:  # it was being made: it holds nothing
            assert not promised.assigned
            continue
        assert not settled.damaged
        assert_as_0_13_2_expects(disk, promised)
        before = disk.files()
        put_in_order(ROOT, now_ms=now_ms, fs=disk)
        after = disk.files()
        assert {n: raw for n, raw in after.items() if n.endswith(("seg", "idx"))} == {
            n: raw for n, raw in before.items() if n.endswith(("seg", "idx"))
        }


def test_a_directory_in_use_is_not_settled() -> None:
    disk = empty_disk()
    manager = open_manager(disk)
    manager.assign(0)
    assert isinstance(refusal(lambda: put_in_order(ROOT, now_ms=now_ms, fs=disk)), DirectoryLockedError)
    manager.close()
    assert put_in_order(ROOT, now_ms=now_ms, fs=disk).closed == (0,)


def test_a_damaged_copy_is_named_and_stays_as_it_is() -> None:
    disk = empty_disk()
    manager = open_manager(disk, threshold=700)
    for partition_id in (0, 2):
        manager.assign(partition_id).set_low_water_mark(1, -1)
        for number in range(5):
            append(manager.get(partition_id), number * 4, 4, 100)
    manager.close()
    disk.remove(segment_path(0, 5))
    before = {name: raw for name, raw in disk.files().items() if name.startswith(f"{ROOT}/0/")}
    settled = put_in_order(ROOT, now_ms=now_ms, fs=disk)
    assert settled.closed == (2,)
    assert settled.lacking == ()
    assert list(settled.damaged) == [0]
    after = disk.files()
    assert {name: raw for name, raw in after.items() if name.startswith(f"{ROOT}/0/")} == before
    manager = open_manager(disk, key=KEY)
    assert_holds(manager.get(2), 20, 100)
    manager.close()


def test_a_disk_that_fails_meanwhile_ends_with_a_reason() -> None:
    disk = empty_disk()
    manager = open_manager(disk)
    append(manager.assign(0), 0, 3)
    disk.restart(CrashMode.KEEP)
    disk.fail_sync_once = segment_path(0, 0)
    assert "sync failed" in put_in_order(ROOT, now_ms=now_ms, fs=disk).damaged[0]
    assert put_in_order(ROOT, now_ms=now_ms, fs=disk).damaged == {}
