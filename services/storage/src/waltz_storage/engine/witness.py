"""The witness of a storage directory: what must lie in each partition's directory (safety: lost files), and
its fence again.

A directory does not show that files of it are missing. So one small file `waltz-witness` in the directory
above, unknown to release 0.13.2, says it for each partition: two slots at byte 1024 x partition, each in a
sector of its own: `i32 magic | i32 partition | i64 counter | i64 session id | i32 sequence | i64 fence | i64
newest | u32 crc`. *Newest* is the first TXID of the newest segment; -1 says that what belongs there is not
known, -2 that the files lack changes of a journal which is gone (`Witness.note_lacking`).

Invariants:

* A slot speaks of one state of the control entry: session id and sequence are those of the entry. Another
  state was written by 0.13.2 or by an earlier release of ours, which adds and deletes files without a word
  here: then files are not compared. The fence counts always, it only rises (but by
  `Witness.lower_fence`, on a stopped node).
* Files are compared for copies that completed a session: rule A1 keeps the others from voting.
* The side file says that there is a slot, so a lost witness is missed; and the witness, that there is a side
  file.
* A write takes the slot that does not count for the entry as it is, and is durable when it returns. So it
  comes before the change of the entry (`Witness.carry`), and whichever entry a crash leaves has its
  slot.
* What a slot demands is on the disk before: a new segment is created first, an old one deleted afterwards.

Owner: the control file, under which it is opened and closed. Thread safe; each partition's slots are written
by its job.
"""

from __future__ import annotations

import struct
import threading
from collections.abc import Mapping
from typing import NamedTuple, NoReturn

from waltz_protocol.checksum import crc32
from waltz_storage.engine import layout
from waltz_storage.engine.errors import (
    DiskWriteError,
    OutOfResourcesError,
    PartitionDamagedError,
    PartitionFailedError,
)
from waltz_storage.engine.files import OUT_OF_RESOURCES, File, FileSystem, join, write_fully
from waltz_storage.engine.free_space import NO_SPACE
from waltz_storage.engine.partition_info import PartitionInfo
from waltz_storage.engine.segment import file_size
from waltz_storage.engine.shared_sync import PartitionLocks, SharedSync
from waltz_storage.engine.sidecar import SIDECAR_SIZE, is_witnessed

UNKNOWN_FILES = -1
LACKING_FILES = -2
REGION_SIZE = 1024
SLOT_SIZE = 512
REFILL = "let its peers refill it: `waltz storage remove-partition` with --delete-storage-files, then `add-partition`"
_SLOT = struct.Struct(">iiqqiqq")
_CHECKSUM = struct.Struct(">I")
_MAGIC = 0x575A5731  # "WZW1"
_HIGHEST_COUNTER = (1 << 63) - 1  # never reached by counting
_CHUNK_SIZE = 1 << 20


class Facts(NamedTuple):
    """What one slot says. See the module."""

    session_id: int
    sequence: int
    fence: int
    newest_txid: int

    def speak_of(self, info: PartitionInfo | None) -> bool:
        """True when they belong to this state of the control entry."""
        return info is not None and (self.session_id, self.sequence) == (info.session_id, info.sequence)


class _Slot(NamedTuple):
    counter: int
    facts: Facts


_Slots = tuple[_Slot | None, _Slot | None]


class Witness:
    """The witness file of one storage directory. See the module for the invariants. Made at the first
    write."""

    def __init__(self, fs: FileSystem, directory: str) -> None:
        self._fs = fs
        self._directory = directory
        self._file: File | None = None
        self._name_durable = False
        self._slots: dict[int, _Slots] = {}
        self._locks = PartitionLocks()
        self._making = threading.Lock()
        self._syncs = SharedSync(self._sync)

    @classmethod
    def open(cls, fs: FileSystem, directory: str, num_partitions: int) -> Witness:
        """Load it; what is there is durable when this returns. `OSError`."""
        witness = cls(fs, directory)
        path = join(directory, layout.WITNESS_NAME)
        if fs.exists(path):
            witness._file = fs.open(path)
            try:
                witness._load(witness._file, num_partitions)
            except BaseException:
                witness.close()
                raise
        return witness

    def _load(self, file: File, num_partitions: int) -> None:
        size = min(file.size(), REGION_SIZE * num_partitions)
        for start in range(0, size, _CHUNK_SIZE):
            raw = file.pread(min(_CHUNK_SIZE, size - start), start)
            if not raw.strip(b"\0"):
                continue
            for offset in range(0, len(raw), REGION_SIZE):
                partition_id = (start + offset) // REGION_SIZE
                slots = read_slots(raw[offset : offset + REGION_SIZE], partition_id)
                if slots != (None, None):
                    self._slots[partition_id] = slots
            # The same bytes once more: only a fresh write makes the sync mean something after one that
            # failed. But for the holes, which have no blocks: the disk may be full.
            for first, end in _written(raw):
                write_fully(file, raw[first:end], start + first)
        file.sync()
        self._fs.sync_dir(self._directory)
        self._name_durable = True

    @property
    def exists(self) -> bool:
        """There is a file."""
        return self._file is not None

    def knows(self, partition_id: int) -> bool:
        """It has a word of the partition, in whatever state of the control entry."""
        return partition_id in self._slots

    def facts(self, partition_id: int, info: PartitionInfo | None) -> Facts | None:
        """What the slot says that counts for this state of the control entry; `None` when none speaks of
        it."""
        return _facts(self._slots.get(partition_id, (None, None)), info)

    def expected(self, partition_id: int, info: PartitionInfo) -> Facts | None:
        """What must be in the partition's directory; `None` when nothing is known of it.

        `PartitionDamagedError` when that is no longer known.
        """
        facts = self.facts(partition_id, info) if info.session_id >= 0 else None
        if facts is not None and facts.newest_txid <= UNKNOWN_FILES:
            refuse_unknown(partition_id, facts.newest_txid)
        return facts

    def fence(self, partition_id: int) -> int:
        """The highest fence of the partition, -1 without one."""
        return max((slot.facts.fence for slot in self._slots.get(partition_id, ()) if slot), default=-1)

    def write(self, partition_id: int, info: PartitionInfo | None, facts: Facts) -> None:
        """Make the facts durable, in the slot that does not count for `info`.

        `DiskWriteError`, `OutOfResourcesError`: no slot that counts has changed, it may be
        tried again. `PartitionFailedError`: a sync failed.
        """
        with self._locks.of(partition_id):
            slots = self._slots.get(partition_id, (None, None))
            counting = _counting(slots, info)
            place = counting if slots[counting] is None else 1 - counting
            counter = 1 + max((slot.counter for slot in slots if slot), default=0)
            raw = _SLOT.pack(_MAGIC, partition_id, counter, *facts)
            self._write(partition_id, REGION_SIZE * partition_id + SLOT_SIZE * place, raw)
            slot = _Slot(counter, facts)
            self._slots[partition_id] = (slot, slots[1]) if place == 0 else (slots[0], slot)

    def carry(self, partition_id: int, info: PartitionInfo, changed: PartitionInfo) -> None:
        """Before the control entry changes: what is said of it now is said of what it is going to be. Errors
        of `write`."""
        facts = self.facts(partition_id, info)
        if facts is not None and changed.session_id >= 0:
            facts = facts._replace(session_id=changed.session_id, sequence=changed.sequence)
            self.write(partition_id, info, facts)

    def give_up(self, partition_id: int, info: PartitionInfo | None, fence: int, directory: str) -> None:
        """Before a copy that is not open is given up: a higher fence, durably. Nothing is written where there
        is none.

        The copy that was complete stays so until its entry is reset; one that was not is never taken for
        complete, whatever is made in its `directory` meanwhile. Errors of `write`, `OSError`.
        """
        fence = max(fence, self.fence(partition_id))
        if fence < 0:
            return
        facts = self.facts(partition_id, info)
        never_told = facts is None and not is_witnessed(self._fs, directory, partition_id)
        if info is None or never_told or (facts is None and self.knows(partition_id)):
            facts = Facts(-1, -1, fence, UNKNOWN_FILES)  # speaks of no entry that has a session
        elif facts is None or _missing(self._fs, directory, facts):
            facts = Facts(info.session_id, info.sequence, fence, UNKNOWN_FILES)
        self.write(partition_id, info, facts._replace(fence=fence))

    def note_lacking(self, partition_id: int, info: PartitionInfo) -> None:
        """Before a journal is released that holds changes of files which are not there: the copy is refused,
        also if they are put back. One without a session does not vote (rule A1). Errors of `write`."""
        if info.session_id >= 0:
            facts = Facts(info.session_id, info.sequence, self.fence(partition_id), LACKING_FILES)
            self.write(partition_id, info, facts)

    def lower_fence(self, partition_id: int, info: PartitionInfo, fence: int) -> None:
        """Put the fence down in both slots, one after the other: a crash in between leaves the higher one.
        Errors of `write`."""
        for _ in range(2):
            slots = self._slots.get(partition_id, (None, None))
            slot = slots[_counting(slots, info)]
            if slot is not None:
                self.write(partition_id, info, slot.facts._replace(fence=min(slot.facts.fence, fence)))

    def close(self) -> None:
        """Close without syncing."""
        file, self._file = self._file, None
        if file is not None:
            file.close()

    def _made(self) -> File:
        with self._making:
            if self._file is None:
                self._file = self._fs.open(join(self._directory, layout.WITNESS_NAME), create=True)
            return self._file

    def _sync(self) -> None:
        self._made().sync()

    def _write(self, partition_id: int, offset: int, raw: bytes) -> None:
        what = f"partition {partition_id}: {layout.WITNESS_NAME}"
        try:
            with self._syncs.durable():
                try:
                    write_fully(self._made(), raw + _CHECKSUM.pack(crc32(raw)), offset)
                except OSError as error:
                    if error.errno in NO_SPACE:
                        raise DiskWriteError(f"{what}: {error.strerror}") from error
                    if error.errno in OUT_OF_RESOURCES:
                        raise OutOfResourcesError(f"{what}: {error.strerror}") from error
                    raise
            if not self._name_durable:
                self._fs.sync_dir(self._directory)
                self._name_durable = True
        except OSError as error:
            raise PartitionFailedError(f"{what}: {error.strerror}") from error


def _counting(slots: _Slots, info: PartitionInfo | None) -> int:
    """Place of the slot that counts: of those that speak of this state of the control entry, if there are
    any, the last one."""

    def rank(place: int) -> tuple[bool, int]:
        slot = slots[place]
        return (False, -1) if slot is None else (slot.facts.speak_of(info), slot.counter)

    return max((0, 1), key=rank)


def _facts(slots: _Slots, info: PartitionInfo | None) -> Facts | None:
    slot = slots[_counting(slots, info)]
    return slot.facts if slot is not None and slot.facts.speak_of(info) else None


def _written(raw: bytes) -> list[tuple[int, int]]:
    """First and last byte, exclusive, of the regions that are not all zeros, neighbours as one."""
    found: list[tuple[int, int]] = []
    for first in range(0, len(raw), REGION_SIZE):
        end = min(first + REGION_SIZE, len(raw))
        if raw[first:end].strip(b"\0"):
            start = found.pop()[0] if found and found[-1][1] == first else first
            found.append((start, end))
    return found


def read_slots(raw: bytes, partition_id: int) -> _Slots:
    """The valid slots of a partition's region."""
    first, second = (_read_slot(raw[start : start + SLOT_SIZE], partition_id) for start in (0, SLOT_SIZE))
    return first, second


def _read_slot(raw: bytes, partition_id: int) -> _Slot | None:
    if len(raw) < _SLOT.size + _CHECKSUM.size:
        return None
    if crc32(raw[: _SLOT.size]) != _CHECKSUM.unpack_from(raw, _SLOT.size)[0]:
        return None
    magic, owner, counter, *fields = _SLOT.unpack_from(raw)
    if magic != _MAGIC or owner != partition_id or not 0 < counter < _HIGHEST_COUNTER:
        return None
    return _Slot(counter, Facts(*fields))


def refuse_unknown(partition_id: int, newest_txid: int = UNKNOWN_FILES) -> NoReturn:
    """`PartitionDamagedError`: the witness has lost its word of the partition, or says that files lack
    something."""
    why = (
        "files of it were missing when what the journal held was brought into them, so it lacks records, also if these files "
        "are there again"
        if newest_txid == LACKING_FILES
        else f"{layout.WITNESS_NAME} of the storage directory no longer says anything of it, so files of it may be missing too"
    )
    raise PartitionDamagedError(f"partition {partition_id} is damaged: {why}; {REFILL}")


def check_files(fs: FileSystem, directory: str, partition_id: int, facts: Facts) -> None:
    """`PartitionDamagedError` with the names of the files that must be in a partition's directory and
    are not.

    Older segments are not looked at here: each must begin where the one before ends, which opening the log
    sees to.
    """
    missing = _missing(fs, directory, facts)
    if missing:
        text = f"{' and '.join(missing)} missing or cut short in {directory}"
        raise PartitionDamagedError(f"partition {partition_id} is damaged: {text}; {REFILL}")


def _missing(fs: FileSystem, directory: str, facts: Facts) -> list[str]:
    if facts.newest_txid <= UNKNOWN_FILES or not fs.is_dir(directory):
        return ["all files"]
    stem = layout.segment_name(facts.newest_txid)
    data_names = [stem + suffix for suffix in layout.DATA_SUFFIXES]
    expected = {SIDECAR_SIZE: [layout.SIDECAR_NAME], layout.HEADER_SIZE: data_names}
    return [
        names[0]
        for size, names in expected.items()
        if max(file_size(fs, join(directory, name)) for name in names) < size
    ]


def is_missed(fs: FileSystem, directory: str, infos: Mapping[int, PartitionInfo]) -> bool:
    """Whether the witness is gone and a side file says that there was one. `infos`: the control entries of
    all assigned partitions."""
    if fs.exists(join(directory, layout.WITNESS_NAME)):
        return False
    return any(
        info.session_id >= 0 and _is_witnessed(fs, join(directory, str(partition_id)), partition_id)
        for partition_id, info in infos.items()
    )


def _is_witnessed(fs: FileSystem, directory: str, partition_id: int) -> bool:
    try:
        return is_witnessed(fs, directory, partition_id)
    except OSError:  # said by the partition, when it is opened
        return False


def inspect_files(fs: FileSystem, directory: str, partition_id: int, info: PartitionInfo) -> str | None:
    """What is missing of a partition according to the witness, for tools; `None` when nothing is, or nobody
    knows.

    Nothing is changed. A running node may change it between two looks: then nothing is said. `OSError`.
    """

    def look() -> Facts | None:
        path = join(directory, layout.WITNESS_NAME)
        if info.session_id < 0 or not fs.exists(path):
            return None
        file = fs.open(path, read_only=True)
        try:
            slots = read_slots(file.pread(REGION_SIZE, REGION_SIZE * partition_id), partition_id)
        finally:
            file.close()
        return _facts(slots, info)

    facts = look()
    if facts is None:
        return None
    try:
        if facts.newest_txid <= UNKNOWN_FILES:
            refuse_unknown(partition_id, facts.newest_txid)
        check_files(fs, join(directory, str(partition_id)), partition_id, facts)
    except PartitionDamagedError as error:
        return str(error) if look() == facts else None
    return None
