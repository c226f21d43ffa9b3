"""A file of the faulty disk: what programs see, what the platter holds, and the changes in between.

A change is *pending* until a sync takes it; the changes of a sync that has begun are *in flight* until it
lands. A crash may leave any of both on the platter, writes sector by sector, but nothing of what was done
after it.

Times decide, not the order of the calls: where code of several threads runs ahead of its time (the
simulator), a change may be known here that another thread's earlier sync must not take along.
"""

from __future__ import annotations

import enum
import random
from dataclasses import dataclass, field

SECTOR_SIZE = 512


class CrashMode(enum.Enum):
    """What becomes of unsynced changes."""

    KEEP = "keep"  # only the process died: everything written is there
    LOSE = "lose"  # nothing unsynced survives
    SOME = "some"  # any subset of sectors, cuts and names, by the given random numbers


@dataclass(slots=True)
class Write:
    """Bytes at an offset; `at`: when, in seconds of the disk's clock."""

    offset: int
    data: bytes
    at: float = 0.0


@dataclass(slots=True)
class Cut:
    """A new size."""

    size: int
    at: float = 0.0


Change = Write | Cut


def apply(target: bytearray, change: Change) -> None:
    """Carry out a change."""
    if isinstance(change, Cut):
        if change.size < len(target):
            del target[change.size :]
        else:
            target.extend(bytes(change.size - len(target)))
        return
    if len(target) < change.offset:
        target.extend(bytes(change.offset - len(target)))
    target[change.offset : change.offset + len(change.data)] = change.data


def sectors(write: Write) -> list[Write]:
    """The pieces that reach the platter one by one."""
    pieces: list[Write] = []
    position, end = write.offset, write.offset + len(write.data)
    while position < end:
        stop = min(end, position - position % SECTOR_SIZE + SECTOR_SIZE)
        pieces.append(Write(position, write.data[position - write.offset : stop - write.offset], write.at))
        position = stop
    return pieces


@dataclass(slots=True, eq=False)
class Flight:
    """A sync that has begun at `began`, with the changes that it takes along."""

    began: float
    changes: list[Change]


@dataclass(slots=True)
class Inode:
    """A file without its name."""

    seen: bytearray = field(default_factory=bytearray)
    platter: bytearray = field(default_factory=bytearray)
    pending: list[Change] = field(default_factory=list)
    flights: list[Flight] = field(default_factory=list)
    locked_by: object | None = None
    failures: int = 0
    """How often changes were thrown away because they could not be written."""

    @property
    def unsynced(self) -> bool:
        """A crash could lose something."""
        return bool(self.pending or self.flights)

    def change(self, change: Change) -> None:
        """Programs see it at once."""
        apply(self.seen, change)
        self.pending.append(change)

    def begin_sync(self, now: float) -> Flight:
        """What was changed by `now` is on its way."""
        flight = Flight(now, self._take_pending(now))
        self.flights.append(flight)
        return flight

    def _take_pending(self, now: float) -> list[Change]:
        taken = [change for change in self.pending if change.at <= now]
        self.pending = [change for change in self.pending if change.at > now]
        return taken

    def land(self, flight: Flight) -> None:
        """A sync is done: its changes, and those of all that began before it, are on the platter."""
        if flight not in self.flights:
            return
        number = self.flights.index(flight)
        begun = [
            one
            for position, one in enumerate(self.flights)
            if (one.began, position) <= (flight.began, number)
        ]
        for one in sorted(begun, key=lambda one: one.began):
            self.flights.remove(one)
            for change in one.changes:
                apply(self.platter, change)

    def lose_sector(self, chance: random.Random, now: float) -> int | None:
        """One sector of the changes pending `now` will not reach the platter, whatever a sync returns: it
        keeps what it held, or zeros.

        Returns its first byte; `None` when nothing is pending. Programs see the new content until
        `forget_page`.
        """
        starts = [
            piece.offset - piece.offset % SECTOR_SIZE
            for change in self.pending
            if isinstance(change, Write) and change.at <= now
            for piece in sectors(change)
        ]
        if not starts:
            return None
        lost = chance.choice(starts)
        kept: list[Change] = []
        for change in self.pending:
            if isinstance(change, Cut) or change.at > now:
                kept.append(change)
                continue
            kept += [piece for piece in sectors(change) if piece.offset - piece.offset % SECTOR_SIZE != lost]
            # The file grows all the same.
            kept.append(Write(change.offset + len(change.data), b"", change.at))
        self.pending = kept
        return lost

    def forget_page(self, start: int) -> None:
        """Programs see of a sector what the platter has."""
        end = min(start + SECTOR_SIZE, len(self.seen))
        self.seen[start:end] = bytes(self.platter[start:end]).ljust(max(0, end - start), b"\0")

    def write_back(self, keep: int, now: float) -> None:
        """All but the newest `keep` changes pending `now` reach the platter."""
        for flight in [one for one in self.flights if one.began <= now]:
            self.land(flight)
        taken = self._take_pending(now)
        count = max(0, len(taken) - keep)
        for change in taken[:count]:
            apply(self.platter, change)
        self.pending = taken[count:] + self.pending

    def fail_sync(self, *, drop_pages: bool, now: float) -> None:
        """The changes pending `now` will never be written. Programs see them still, or what the platter
        has: then sizes stay, they are not in those pages."""
        lost = self._take_pending(now)
        self.failures += 1
        for change in lost if drop_pages else ():
            if isinstance(change, Write):
                end = min(change.offset + len(change.data), len(self.seen))
                old = bytes(memoryview(self.platter)[change.offset : end])
                self.seen[change.offset : end] = old.ljust(max(0, end - change.offset), b"\0")

    def crash(self, mode: CrashMode, chance: random.Random, share: float, now: float) -> None:
        """Locks are gone; what programs see from here on is what reached the platter by `now`."""
        self.locked_by = None
        if mode is CrashMode.KEEP:
            return  # the page cache lives on, pending writes included
        if mode is CrashMode.SOME:
            for changes in (*(flight.changes for flight in self.flights), self.pending):
                for change in changes:
                    if change.at <= now:
                        self._reach_partly(change, chance, share)
        self.flights.clear()
        self.pending.clear()
        self.seen = bytearray(self.platter)

    def _reach_partly(self, change: Change, chance: random.Random, share: float) -> None:
        for piece in sectors(change) if isinstance(change, Write) else [change]:
            grows = isinstance(piece, Cut) and piece.size > len(self.platter)
            if not grows and chance.random() < share:  # a cut of bytes that never arrived changes nothing
                apply(self.platter, piece)
