"""The node journal: its bytes, and what is found in its files after a crash."""

from __future__ import annotations

import struct
import zlib
from uuid import UUID

import pytest

from waltz_storage.engine.journal import layout
from waltz_storage.engine.journal.directory import JOURNAL_DIRECTORY
from waltz_storage.engine.journal.layout import (
    END,
    FRAME_HEADER_SIZE,
    LAST,
    SECTOR_SIZE,
    Change,
    Create,
    Cut,
    FileHeader,
    JournalDamagedError,
    MakeDir,
    Name,
    Unlink,
    Write,
    changes_of,
    create_change,
    cut_change,
    frame,
    later_commit,
    make_dir_change,
    name_change,
    read_frame,
    salt,
    unlink_change,
    write_head,
)
from waltz_storage.engine.journal.log import Journal, JournalSettings, file_name, read_journal
from waltz_storage.engine.journal.replay import Replay
from waltz_testkit.faulty_disk import FaultyDisk

from .support import (
    JOURNAL,
    ROOT,
    empty_disk,
)

ID = UUID("00112233-4455-6677-8899-aabbccddeeff")
PLACE = f"{ROOT}/{JOURNAL_DIRECTORY}"
CHANGES: list[Change] = [
    Name(0, "3/a"),
    MakeDir(0),
    Create(0),
    Write(0, 7, b"abc"),
    Cut(0, 2),
    Unlink(0),
]
RAW_CHANGES = (
    name_change(0, "3/a")
    + make_dir_change(0)
    + create_change(0)
    + write_head(0, 7, 3)
    + b"abc"
    + cut_change(0, 2)
    + unlink_change(0)
)


def test_the_bytes_of_a_frame() -> None:
    raw = frame(salt(ID, 5), 9, 1, LAST, RAW_CHANGES)
    assert raw.hex() == (
        "575a4a31" "0000000000000009" "00000001" "00000001" "0000003a" "efcec2e3"
        "01" "00000000" "0003" "332f61"
        "06" "00000000"
        "04" "00000000"
        "02" "00000000" "0000000000000007" "00000003" "616263"
        "03" "00000000" "0000000000000002"
        "05" "00000000"
    )  # fmt: skip
    found = read_frame(raw, 0, salt(ID, 5))
    assert found is not None
    assert found[:3] == (9, 1, LAST)
    assert found.end == len(raw)
    assert list(changes_of(found.changes)) == CHANGES


def test_safety_c7_no_other_bytes_are_a_frame() -> None:
    """Not one with another bit, not one of another epoch or journal."""
    raw = frame(salt(ID, 5), 9, 1, LAST, RAW_CHANGES)
    for bit in range(len(raw) * 8):
        changed = bytearray(raw)
        changed[bit // 8] ^= 1 << bit % 8
        assert read_frame(bytes(changed), 0, salt(ID, 5)) is None
    assert read_frame(raw, 0, salt(ID, 6)) is None
    assert read_frame(raw, 0, salt(UUID(int=1), 5)) is None
    assert all(read_frame(raw[:size], 0, salt(ID, 5)) is None for size in range(len(raw)))


def test_the_header_of_a_file() -> None:
    header = FileHeader(ID, 5, 2)
    raw = header.to_bytes()
    assert len(raw) == SECTOR_SIZE
    assert FileHeader.from_bytes(raw) == header
    for bit in range(40 * 8):
        changed = bytearray(raw)
        changed[bit // 8] ^= 1 << bit % 8
        assert FileHeader.from_bytes(bytes(changed)) is None


@pytest.mark.parametrize("raw", [b"\x09\0\0\0\0", write_head(0, 0, 3) + b"ab", b"\x02\0", b"\0"])
def test_changes_that_are_none_are_damage(raw: bytes) -> None:
    with pytest.raises(JournalDamagedError):
        list(changes_of(raw))


@pytest.mark.parametrize("path", ["/etc/x", "../x", "0/../../x"])
def test_a_journal_changes_nothing_outside_of_its_directory(path: str) -> None:
    replay = Replay(empty_disk(), ROOT, {})
    with pytest.raises(JournalDamagedError, match="not in the directory"):
        replay.run([Name(0, path), Create(0)])


# -- what a crash left of it ---------------------------------------------------------------------------------


def written(commits: int, *, size: int = 100, settings: JournalSettings = JOURNAL) -> FaultyDisk:
    """A journal with commits of one write each, all its files settled as soon as they are full."""
    disk = empty_disk()
    journal = Journal.create(disk, PLACE, ID, settings)
    journal.begin()
    for number in range(commits):
        journal.write("f", number, b"%d" % number + b"x" * size)
        journal.commit()
        for file in journal.unsettled():
            file.settled = True
    return disk


def commits_of(disk: FaultyDisk, settings: JournalSettings = JOURNAL) -> list[int]:
    changes = read_journal(disk, PLACE, ID, settings.files)
    return [change.offset for change in changes if isinstance(change, Write)]


def frames_in(raw: bytes, epoch: int) -> list[int]:
    """Offsets of the frames of a journal file, and of the byte after the last."""
    offsets = [SECTOR_SIZE]
    while (found := read_frame(raw, offsets[-1], salt(ID, epoch))) is not None:
        offsets.append(found.end)
    return offsets


def test_all_commits_are_found_again() -> None:
    assert commits_of(written(0)) == []
    assert commits_of(written(20)) == list(range(20))


def test_of_files_that_were_used_again_the_newest_commits_are_left() -> None:
    found = commits_of(written(500))
    assert found == list(range(found[0], 500))
    assert found[0] > 0


@pytest.mark.parametrize("lost", [1, 5, 29, 30, 60])
def test_the_last_commit_may_be_torn_anywhere(lost: int) -> None:
    disk = written(20)
    path = f"{PLACE}/{file_name(0)}"
    raw = bytearray(disk.files()[path])
    end = frames_in(bytes(raw), 1)[-1]
    raw[end - lost : end] = bytes(lost)
    disk.put(path, bytes(raw))
    assert commits_of(disk) == list(range(19))


def test_safety_c7_a_broken_commit_before_another_is_damage() -> None:
    path = f"{PLACE}/{file_name(0)}"
    for number in range(19):
        disk = written(20)
        raw = bytearray(disk.files()[path])
        raw[frames_in(bytes(raw), 1)[number] + 40] ^= 1
        disk.put(path, bytes(raw))
        with pytest.raises(JournalDamagedError, match="a later commit follows"):
            commits_of(disk)


def test_a_file_that_is_not_the_newest_ends_with_its_mark() -> None:
    disk = written(200)
    lives = {FileHeader.from_bytes(raw): path for path, raw in disk.files().items() if raw[:4] == b"WZJF"}
    before, newest = sorted(header for header in lives if header is not None and header.epoch)[-2:]
    assert newest.epoch == before.epoch + 1
    raw = bytearray(disk.files()[lives[before]])
    raw[frames_in(bytes(raw), before.epoch)[-2] + 5] ^= 1
    disk.put(lives[before], bytes(raw))
    with pytest.raises(JournalDamagedError, match="continues in another file"):
        commits_of(disk)


def test_safety_c7_a_header_that_was_not_written_is_missed() -> None:
    """A file shows the epoch of its life before: the disk has lost the write of its header."""
    disk = written(500)
    lives = {FileHeader.from_bytes(raw): path for path, raw in disk.files().items() if raw[:4] == b"WZJF"}
    _, middle, _ = sorted(header for header in lives if header is not None)
    older = FileHeader(ID, middle.epoch - JOURNAL.files, middle.number)
    disk.put(lives[middle], older.to_bytes() + disk.files()[lives[middle]][SECTOR_SIZE:])
    with pytest.raises(JournalDamagedError, match=f"none has {older.epoch + 1}"):
        commits_of(disk)


@pytest.mark.parametrize("number", range(JOURNAL.files))
def test_a_journal_that_lacks_a_file_is_damaged(number: int) -> None:
    disk = written(200)
    disk.remove(f"{PLACE}/{file_name(number)}")
    with pytest.raises(JournalDamagedError, match="is missing"):
        commits_of(disk)


@pytest.mark.parametrize("number", range(JOURNAL.files))
def test_a_file_of_another_journal_is_refused(number: int) -> None:
    disk = written(200)
    path = f"{PLACE}/{file_name(number)}"
    raw = FileHeader(UUID(int=8), 1, number).to_bytes()
    disk.put(path, raw + disk.files()[path][SECTOR_SIZE:])
    with pytest.raises(JournalDamagedError, match="another journal"):
        commits_of(disk)


def test_a_commit_larger_than_a_file_goes_through_several() -> None:
    settings = JournalSettings(file_bytes=4096, files=8)
    disk = empty_disk()
    journal = Journal.create(disk, PLACE, ID, settings)
    journal.begin()
    for number in range(20):
        journal.write("f", number, bytes(900))
    journal.commit()
    assert commits_of(disk, settings) == list(range(20))


# -- what clients have written there -------------------------------------------------------------------------


def like_frames(size: int, *, flags: int = LAST) -> bytes:
    """Data full of what looks like the head of a frame of a later commit, each with another length that
    fits."""
    heads = (struct.pack(">Iqiii", 0x575A4A31, 1 << 40, 0, flags, size // 2 - n) for n in range(size // 48))
    return b"".join(heads).ljust(size, b"x")


@pytest.mark.parametrize("flags", [0, LAST, END])
def test_what_looks_like_frames_costs_no_more_than_the_file_is_large(
    monkeypatch: pytest.MonkeyPatch, flags: int
) -> None:
    total, real = 0, zlib.crc32

    def crc32(data: bytes, value: int = 0) -> int:
        nonlocal total
        total += len(data)
        return real(data, value)

    monkeypatch.setattr(layout, "crc32", crc32)
    raw = bytes(SECTOR_SIZE) + like_frames(1 << 18, flags=flags)
    assert later_commit(raw, SECTOR_SIZE, salt(ID, 5), 9) == -1
    assert total < 16 * len(raw)


@pytest.mark.parametrize("size", [0, 1, 255, 256, 4_095, 4_096, 70_000, (1 << 24) + 5])
@pytest.mark.parametrize("at", [0, 1, 229, 5_000])
def test_safety_c7_no_frame_of_a_later_commit_hides_among_what_looks_like_one(size: int, at: int) -> None:
    salted = salt(ID, 5)
    changes = bytes(range(1, 251)) * (size // 250 + 1)
    hidden = frame(salted, 10, 2, END, changes[:size])
    raw = bytes(SECTOR_SIZE) + like_frames(6_000)[:at] + hidden + like_frames(6_000)
    place = SECTOR_SIZE + at
    assert later_commit(raw, SECTOR_SIZE, salted, 9) == place
    assert later_commit(raw, place, salted, 9) == place
    assert later_commit(raw, place + 1, salted, 9) == -1
    assert later_commit(raw, SECTOR_SIZE, salted, 10) == -1
    assert later_commit(raw, SECTOR_SIZE, salt(ID, 6), 9) == -1
    whole = raw[: place + len(hidden)]
    assert later_commit(whole, SECTOR_SIZE, salted, 9) == place
    assert later_commit(whole[:-1], SECTOR_SIZE, salted, 9) == -1
    changed = bytearray(raw)
    changed[place + (FRAME_HEADER_SIZE + size // 2 if size else 27)] ^= 1
    assert later_commit(bytes(changed), SECTOR_SIZE, salted, 9) == -1
