"""The sidecar of a partition: durable session fence and synced mark (safety: fence, disk).

One small file `waltz-fence` in the partition directory, unknown to release 0.13.2, which reads only
`.seg` and `.idx` there. Slots, each in a sector of its own, so that an unsynced write of one can never
tear another:

* offsets 0 and 512, fence: `i32 magic | i32 partition | i64 counter | i64 session id | u32 crc`
* offset 2048, `i32 magic | i32 partition | u32 crc`: the witness of the storage directory speaks of the
  partition
* offsets 1024 and 1536, mark: `i32 magic | i32 partition | i64 counter | i64 session id | i32 sequence |
  i64 synced TXID | u32 crc`; session id and sequence are those of the control entry at that time

Invariants:

* The valid slot with the larger counter counts; writes alternate, so the older one survives a torn write.
* A write that finds no room on the disk (`DiskWriteError`) changes no slot that counts; it may be
  tried again.
* The fence only rises, but by `lower_fence` on a stopped node; `raise_fence` returns after its
  sync.
* The mark is written after the sync it speaks of, is not synced itself, and holds only while session and
  sequence are those of the control entry: 0.13.2 may have run in between. Before a truncation it is lowered
  *and* synced.

One owner: the partition, on the disk thread that runs the partition's job.
"""

from __future__ import annotations

import struct

from waltz_protocol.checksum import crc32
from waltz_storage.engine import layout
from waltz_storage.engine.errors import DiskWriteError
from waltz_storage.engine.files import File, FileSystem, join, write_fully
from waltz_storage.engine.free_space import NO_SPACE

_FENCE = struct.Struct(">iiqq")
_MARK = struct.Struct(">iiqqiq")
_WITNESSED = struct.Struct(">ii")
_CHECKSUM = struct.Struct(">I")
_FENCE_MAGIC = 0x575A4631  # "WZF1"
_MARK_MAGIC = 0x575A4D31  # "WZM1"
_WITNESSED_MAGIC = 0x575A5731  # "WZW1"
_FENCE_OFFSETS = (0, 512)
_MARK_OFFSETS = (1024, 1536)
_WITNESSED_OFFSET = 2048
_WHOLE_SIZE = 2560
SIDECAR_SIZE = 2048
_HIGHEST_COUNTER = (1 << 63) - 1  # never reached by counting
_HIGHEST_SESSION = (1 << 63) - 1


class Sidecar:
    """Fence and synced mark of one partition. See the module for the invariants."""

    def __init__(self, file: File, partition_id: int) -> None:
        self._file = file
        self._partition_id = partition_id
        self._fence_counter = self._mark_counter = 0
        self.fence_session_id = -1
        self.witnessed = False
        """The witness of the directory speaks of the partition, or did when it was lost."""
        self._mark: tuple[int, int, int] | None = None  # session, sequence, txid

    @classmethod
    def open(cls, fs: FileSystem, directory: str, partition_id: int) -> Sidecar:
        """Open or create it; what is there is durable when this returns (also its name)."""
        file = fs.open(join(directory, layout.SIDECAR_NAME), create=True)
        try:
            sidecar = cls(file, partition_id)
            sidecar._load()
            # Written again with the same bytes: a sync that failed before a restart leaves pages that look
            # clean but never reached the disk, and only a fresh write makes the next sync mean something.
            write_fully(file, file.pread(_WHOLE_SIZE, 0).ljust(SIDECAR_SIZE, b"\0"), 0)
            file.sync()
            fs.sync_dir(directory)
        except BaseException:
            file.close()
            raise
        return sidecar

    def _load(self) -> None:
        raw = self._file.pread(_WHOLE_SIZE, 0).ljust(_WHOLE_SIZE, b"\0")
        for offset in _FENCE_OFFSETS:
            fields = self._slot(raw, offset, _FENCE, _FENCE_MAGIC)
            if fields is not None and fields[2] > self._fence_counter:
                self._fence_counter = fields[2]
            if fields is not None:
                # The fence only ever rises: the larger of two valid slots is the newer one.
                self.fence_session_id = max(self.fence_session_id, fields[3])
        for offset in _MARK_OFFSETS:
            fields = self._slot(raw, offset, _MARK, _MARK_MAGIC)
            # No writer counts that far; believing such a mark would leave no number for the next one.
            if fields is not None and self._mark_counter < fields[2] < _HIGHEST_COUNTER:
                self._mark_counter = fields[2]
                self._mark = (fields[3], fields[4], fields[5])
        self.witnessed = self._slot(raw, _WITNESSED_OFFSET, _WITNESSED, _WITNESSED_MAGIC) is not None

    def _slot(self, raw: bytes, offset: int, form: struct.Struct, magic: int) -> tuple[int, ...] | None:
        end = offset + form.size
        if crc32(raw[offset:end]) != _CHECKSUM.unpack_from(raw, end)[0]:
            return None
        fields = form.unpack_from(raw, offset)
        return fields if fields[0] == magic and fields[1] == self._partition_id else None

    def raise_fence(self, session_id: int) -> None:
        """Make a higher fence durable. Lower or equal values change nothing. `OSError` when it failed."""
        if session_id <= self.fence_session_id:
            return
        counter = self._fence_counter % _HIGHEST_COUNTER + 1
        self._write(
            _FENCE_OFFSETS[counter & 1], _FENCE.pack(_FENCE_MAGIC, self._partition_id, counter, session_id)
        )
        self._file.sync()
        self._fence_counter = counter
        self.fence_session_id = session_id

    def note_witness(self) -> None:
        """Say that the witness speaks of the partition, durably. `OSError` when it failed."""
        if not self.witnessed:
            self._write(_WITNESSED_OFFSET, _WITNESSED.pack(_WITNESSED_MAGIC, self._partition_id))
            self._file.sync()
            self.witnessed = True

    def lower_fence(self, session_id: int) -> None:
        """Put the fence back from where no session comes. For a stopped node, and only by the word of
        ZooKeeper and all nodes.

        Both slots are written, one after the other, each synced: a crash in between leaves the higher one,
        which counts.
        """
        for _ in range(2):
            counter = self._fence_counter % _HIGHEST_COUNTER + 1
            self._write(
                _FENCE_OFFSETS[counter & 1],
                _FENCE.pack(_FENCE_MAGIC, self._partition_id, counter, session_id),
            )
            self._file.sync()
            self._fence_counter = counter
        self.fence_session_id = session_id

    def synced_txid(self, session_id: int, sequence: int) -> int:
        """The mark if it belongs to this state of the control entry, else -1."""
        if self._mark is None or self._mark[:2] != (session_id, sequence):
            return -1
        return self._mark[2]

    def write_mark(self, session_id: int, sequence: int, txid: int) -> None:
        """Note that everything up to `txid` is synced. Not synced itself."""
        counter = self._mark_counter + 1
        self._write(
            _MARK_OFFSETS[counter & 1],
            _MARK.pack(_MARK_MAGIC, self._partition_id, counter, session_id, sequence, txid),
        )
        self._mark_counter = counter
        self._mark = (session_id, sequence, txid)

    def sync(self) -> None:
        """Make the last mark durable."""
        self._file.sync()

    def close(self) -> None:
        """Close without syncing."""
        self._file.close()

    def _write(self, offset: int, raw: bytes) -> None:
        try:
            write_fully(self._file, raw + _CHECKSUM.pack(crc32(raw)), offset)
        except OSError as error:
            if error.errno not in NO_SPACE:
                raise
            # The other slot of the pair is whole and stays the one that counts.
            raise DiskWriteError(f"{layout.SIDECAR_NAME}: {error.strerror}") from error


def is_witnessed(fs: FileSystem, directory: str, partition_id: int) -> bool:
    """What `Sidecar.witnessed` would be; nothing is made or changed. `OSError`."""
    path = join(directory, layout.SIDECAR_NAME)
    if not fs.exists(path):
        return False
    file = fs.open(path, read_only=True)
    try:
        sidecar = Sidecar(file, partition_id)
        sidecar._load()
        return sidecar.witnessed
    finally:
        file.close()


def fence_past(session_id: int) -> int:
    """The fence of a copy that is given up, by its persisted session (-1: it had none).

    That session counts the copy among those that hold the log, and must not continue with an empty one in its
    place.
    """
    return min(session_id + 1, _HIGHEST_SESSION) if session_id >= 0 else -1
