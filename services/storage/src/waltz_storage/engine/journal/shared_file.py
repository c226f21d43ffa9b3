"""What the handles of one path share while the journal runs: the file below, and the writes it waits for."""

from __future__ import annotations

from waltz_storage.engine.files import File, write_fully


class SharedFile:
    """One path. Owner: the thread that runs jobs; `users` and `below` change under the lock of its files."""

    __slots__ = ("below", "path", "pending", "read_only", "relative", "unsynced", "unsynced_bytes", "users")

    def __init__(self, path: str, relative: str, below: File, read_only: bool) -> None:
        self.path, self.relative = path, relative
        self.below: File | None = below
        self.read_only = read_only
        self.users = 0
        self.pending: list[tuple[int, bytes]] = []
        """Writes that are not made below yet, in order."""
        self.unsynced: dict[int, bytes] = {}
        """Writes that are not in the journal, by offset, in order of the last write there."""
        self.unsynced_bytes = 0

    def write(self, offset: int, raw: bytes) -> None:
        """Keep a write for the file below and for the journal."""
        self.pending.append((offset, raw))
        before = self.unsynced.pop(offset, None)
        if before is not None:
            self.unsynced_bytes -= len(before)
            if len(before) > len(raw):
                raw += before[len(raw) :]
        self.unsynced[offset] = raw
        self.unsynced_bytes += len(raw)

    def take_unsynced(self) -> dict[int, bytes]:
        """The writes for the journal, which are not kept any longer."""
        writes, self.unsynced, self.unsynced_bytes = self.unsynced, {}, 0
        return writes

    def cut_unsynced(self, size: int) -> None:
        """Forget what was written behind `size` bytes and is not in the journal."""
        kept = {offset: raw[: size - offset] for offset, raw in self.unsynced.items() if offset < size}
        self.unsynced, self.unsynced_bytes = kept, sum(map(len, kept.values()))

    def cut_below(self, size: int) -> None:
        """Forget what waits for a place behind `size` bytes, and cut the file below. `OSError`."""
        self.pending = [(offset, raw[: size - offset]) for offset, raw in self.pending if offset < size]
        if self.below is not None:
            self.below.truncate(size)

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
        return max((offset + len(data) for offset, data in self.pending), default=0)

    def write_below(self) -> None:
        """Make the writes in the file below, neighbours as one. `OSError`: the rest waits on."""
        pending, self.pending = self.pending, []
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
