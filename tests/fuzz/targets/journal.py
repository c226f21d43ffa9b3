"""The node journal. First byte even: a real journal, changed at one place; three bytes say where, the rest
what is written there. At most the last commit may be missed without a word, or the last two if the change
is across both, and nothing else is ever given out. First byte odd: the rest is what a valid frame holds, and
it is replayed: nothing outside of the directory changes, and a second replay changes nothing more.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from uuid import UUID

from tests.fuzz.target import Target
from waltz_storage.engine.errors import OutOfResourcesError
from waltz_storage.engine.journal.layout import (
    Change,
    Cut,
    JournalDamagedError,
    Name,
    Write,
    changes_of,
    create_change,
    cut_change,
    make_dir_change,
    name_change,
    unlink_change,
    write_head,
)
from waltz_storage.engine.journal.log import Journal, JournalSettings, file_name, read_journal
from waltz_storage.engine.journal.replay import Replay
from waltz_testkit.faulty_disk import FaultyDisk

PLACE, ROOT, OUTSIDE = "/j", "/d", "/d2"
ID = UUID(int=7)
SETTINGS = JournalSettings(file_bytes=1 << 10, files=3)
MOST_BYTES = 8
"""Written over at one place; more could take several commits at once, which nobody can miss."""
MOST_OFFSET = 1 << 14


@cache
def whole() -> tuple[dict[str, bytes], list[list[Change]]]:
    """The files of a journal, and what its commits hold that are still in it, without the names."""
    disk = FaultyDisk()
    disk.add_dir(PLACE)
    journal = Journal.create(disk, PLACE, ID, SETTINGS)
    journal.begin()
    for number in range(24):
        for file in journal.unsettled():
            file.settled = True
        journal.write("0/x", number * 10, bytes([number]) * 10)
        if number % 3 == 0:
            journal.cut("0/y", number)
        journal.commit()
    journal.close()
    files = disk.files()
    commits: list[list[Change]] = []
    for change in _found(files):
        if isinstance(change, Write):
            commits.append([])
        commits[-1].append(change)
    assert len(commits) > 12
    return files, commits


def _found(files: dict[str, bytes]) -> list[Change]:
    disk = FaultyDisk()
    disk.add_dir(PLACE)
    for name, raw in files.items():
        disk.put(name, raw)
    changes = read_journal(disk, PLACE, ID, SETTINGS.files)
    return [change for change in changes if not isinstance(change, Name)]


def check(data: bytes) -> None:
    if data and data[0] & 1:
        _check_replay(data[1:])
    elif len(data) > 4:
        _check_reading(int.from_bytes(data[1:4], "big"), data[4 : 4 + MOST_BYTES])


def _check_reading(position: int, new: bytes) -> None:
    files, commits = whole()
    changed = dict(files)
    name = f"{PLACE}/{file_name(position % SETTINGS.files)}"
    start = position // SETTINGS.files % SETTINGS.file_bytes
    raw = bytearray(changed[name])
    raw[start : start + len(new)] = new
    changed[name] = bytes(raw[: SETTINGS.file_bytes])
    try:
        found = _found(changed)
    except JournalDamagedError:
        assert changed != files, "a journal that nobody changed is damaged"
        return
    missed = 1 if len(new) == 1 else 2
    left = [commits[: len(commits) - fewer] for fewer in range(missed + 1)]
    assert found in [[change for commit in some for change in commit] for some in left], (
        f"{len(found)} changes are left of it"
    )


def _check_replay(raw: bytes) -> None:
    disk = FaultyDisk()
    for directory in (ROOT, f"{ROOT}/0", OUTSIDE):
        disk.add_dir(directory)
    disk.put(f"{ROOT}/0/x", b"0123456789")
    disk.put(f"{OUTSIDE}/x", b"outside")
    try:
        changes = list(changes_of(raw))
        if any(_far(change) for change in changes):
            return  # a sparse file of that size is a matter of the file system
        Replay(disk, ROOT, {}).run(changes)
    except (JournalDamagedError, OSError, OutOfResourcesError):
        assert disk.files()[f"{OUTSIDE}/x"] == b"outside"
        return
    once, directories = disk.files(), disk.directories()
    assert once[f"{OUTSIDE}/x"] == b"outside"
    assert all(name.startswith((f"{ROOT}/", f"{OUTSIDE}/x")) for name in once)
    Replay(disk, ROOT, {}).run(changes)
    assert disk.files() == once
    assert disk.directories() == directories


def _far(change: Change) -> bool:
    match change:
        case Write():
            return not 0 <= change.offset < MOST_OFFSET
        case Cut():
            return not 0 <= change.size < MOST_OFFSET
    return False


def seeds() -> Iterator[bytes]:
    yield b"\0\0\0\0\0"
    yield b"\0\0\3\1" + b"\xff" * 8
    yield b"\0\6\0\5" + bytes(8)
    name = name_change(0, "0/x")
    yield b"\1" + name + write_head(0, 4, 3) + b"abc" + cut_change(0, 6)
    yield b"\1" + name + unlink_change(0) + write_head(0, 0, 1) + b"z" + create_change(0)
    yield b"\1" + name_change(1, "1") + make_dir_change(1) + name_change(2, "1/y") + create_change(2)
    yield b"\1" + name_change(0, "../d2/x") + cut_change(0, 0)
    yield b"\1" + name_change(0, "/d2/x") + unlink_change(0)


TARGET = Target(check, seeds, memory_bytes=4 << 20)
