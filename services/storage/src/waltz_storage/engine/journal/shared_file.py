"""What the handles of one path share while the journal runs: the file below, and the writes it waits for."""

from __future__ import annotations

from waltz_storage.engine.files import File, write_fully


class SharedFile:
    """One path. Owner: the thread that runs jobs; `users` and `below` change under the lock of its files."""

    __slots__ = (
        "_newest",
        "below",
        "dirty",
        "handles",
        "of_directory",
        "path",
        "pending",
        "read_only",
        "relative",
        "unsynced",
        "unsynced_bytes",
        "users",
    )

    def __init__(self, path: str, relative: str, below: File, read_only: bool) -> None:
        self.path, self.relative = path, relative
        self.below: File | None = below
        self.dirty = False
        """The file below was changed since its last sync there. The kernel reports what it could not write
        only to a descriptor that was open at the time, so it is synced before it is closed."""
        self.read_only = read_only
        self.of_directory = "/" not in relative
        """Not of one partition: control file and witness, by which everything else is found."""
        self.users = 0
        """Handles, and who makes or syncs what was written."""
        self.handles = 0
        self.pending: list[tuple[int, bytes]] = []
        """Writes that are not made below yet, in order; without bytes: one that a later one covers."""
        self._newest: dict[int, int] = {}  # offset -> position in `pending` of the last write there
        self.unsynced: dict[int, bytes] = {}
        """Writes that are not in the journal, by offset, in order of the last write there."""
        self.unsynced_bytes = 0

    def write(self, offset: int, raw: bytes) -> None:
        """Keep a write for the file below and for the journal. One that is shorter than a write at the same
        offset that is not in the journal needs that one to be taken first."""
        pending, newest = self.pending, self._newest
        before = newest.get(offset)
        if before is not None and len(pending[before][1]) <= len(raw):
            pending[before] = (offset, b"")
        newest[offset] = len(pending)
        pending.append((offset, raw))
        self.unsynced_bytes += len(raw) - len(self.unsynced.pop(offset, b""))
        self.unsynced[offset] = raw

    def covers(self, offset: int, raw: bytes) -> bool:
        """A write is at least as long as the one at the same offset that is not in the journal."""
        return len(self.unsynced.get(offset, b"")) <= len(raw)

    def take_unsynced(self) -> dict[int, bytes]:
        """The writes for the journal, which are not kept any longer."""
        writes, self.unsynced, self.unsynced_bytes = self.unsynced, {}, 0
        return writes

    def hold_back(self) -> dict[int, bytes]:
        """The same, and the file below does not get them yet."""
        for offset, raw in self.unsynced.items():
            place = self._newest.pop(offset, None)
            if place is not None and self.pending[place][1] is raw:
                self.pending[place] = (offset, b"")
        return self.take_unsynced()

    def cut_unsynced(self, size: int) -> None:
        """Forget what was written behind `size` bytes and is not in the journal."""
        kept = {offset: raw[: size - offset] for offset, raw in self.unsynced.items() if offset < size}
        self.unsynced, self.unsynced_bytes = kept, sum(map(len, kept.values()))

    def cut_below(self, size: int) -> None:
        """Forget what waits for a place behind `size` bytes, and cut the file below. One that is shorter
        stays so where what waits leads up to `size`: it would show zeros in place of that. `OSError`."""
        self.pending = [(offset, raw[: size - offset]) for offset, raw in self.pending if offset < size]
        self._newest.clear()
        if self.below is not None and (self.end_of_pending() < size or self.below.size() > size):
            try:
                self.below.truncate(size)
            finally:
                self.dirty = True

    def sync_below(self) -> None:
        """Changes made by now are durable below. `OSError`: they may be lost, and no later sync says so."""
        below = self.below
        if below is not None:
            self.dirty = False  # before the sync: it may not cover what another thread writes meanwhile
            below.sync()

    def overlay(self, found: bytes, size: int, offset: int) -> bytes:
        """What a reader of `size` bytes at `offset` sees, where the file below has `found`."""
        if not self.pending:
            return found
        view = bytearray(found)
        for start, data in self.pending:
            first, end = max(start, offset), min(start + len(data), offset + size)
            if first < end:
                if len(view) < end - offset:
                    view.extend(bytes(end - offset - len(view)))
                view[first - offset : end - offset] = data[first - start : end - start]
        return bytes(view)

    def end_of_pending(self) -> int:
        """The size that the file below has at least when all writes are made; 0 without one."""
        return max((offset + len(data) for offset, data in self.pending if data), default=0)

    def forget(self) -> None:
        """Nothing of what was written waits any longer."""
        self.pending.clear()
        self._newest.clear()
        self.unsynced.clear()
        self.unsynced_bytes = 0

    def write_below(self) -> None:
        """Make the writes in the file below, neighbours as one. `OSError`: the rest waits on."""
        pending, self.pending = [write for write in self.pending if write[1]], []
        self._newest.clear()
        start = place = 0
        try:
            while place < len(pending):
                start, run = place, [pending[place][1]]
                offset = pending[place][0]
                end = offset + len(run[0])
                place += 1
                while place < len(pending) and pending[place][0] == end:
                    run.append(pending[place][1])
                    end += len(run[-1])
                    place += 1
                if self.below is not None:
                    write_fully(self.below, run[0] if len(run) == 1 else b"".join(run), offset)
        except BaseException:
            self.pending = pending[start:]
            raise
        finally:
            self.dirty = self.dirty or bool(pending)
