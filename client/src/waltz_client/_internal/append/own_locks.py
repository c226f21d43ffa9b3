"""Which transactions of one client, in one partition, wait for each other's locks.

Of two transactions under one lock that are on their way at the same time the second one loses: it was decided
without what the first one commits. The server can only refuse it, and until then it holds up all that its
client sends (safety D6). So the second one is not sent: it waits *here* until the first one has an outcome,
and is decided again then. Each lock has a line in the order of arrival, so everybody's turn comes, and
transactions under other locks pass.

Nothing but work depends on these lines: the server checks every lock as ever. Who has the turn and does not
come within `TURN_SECONDS`, because its decision takes that long, is passed by: when it comes it is sent if
nobody is on the way under its locks, whoever waits.

Everybody joins the lines of all its locks at once, and whoever is put in front of others has its turn
already, so nobody waits in a circle.

Owner: `contexts.Submissions`, on the loop; a timer for each turn.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import Generic, TypeVar

TURN_SECONDS = 1.0
MAX_LOCKS = 64
"""Who has more is sent without regard to others: what they cost here grows with their number."""

T = TypeVar("T", bound=Hashable)


class _Entry(Generic[T]):
    """One transaction on its way, or in the lines of all its `locks`. It must not be sent while another one
    that `marks` a lock which it has `checked` is on its way. `turn`: the timer of its turn, if it has it."""

    __slots__ = ("checked", "item", "locks", "marks", "turn")

    def __init__(self, item: T, write: Sequence[int], read: Sequence[int], append: Sequence[int]) -> None:
        self.item = item
        self.checked = tuple(dict.fromkeys((*write, *read)))
        self.marks = tuple(dict.fromkeys((*write, *append)))
        self.locks = tuple(dict.fromkeys((*write, *read, *append)))
        self.turn: asyncio.TimerHandle | None = None


class OwnLocks(Generic[T]):
    """See the module. `on_turn(item, mark)`: an item that waited may `enter` now; what it waited for is in
    the log up to `mark`, if at all."""

    def __init__(self, on_turn: Callable[[T, int], object]) -> None:
        self._on_turn = on_turn
        self._sent: dict[T, _Entry[T]] = {}
        self._marked: dict[int, int] = {}  # lock -> by how many of those that were sent
        self._waiting: dict[T, _Entry[T]] = {}
        self._lines: dict[int, deque[_Entry[T]]] = {}
        self._passed_by: set[T] = set()  # and have not come yet
        self._mark = -1
        self._dissolved = False

    def enter(
        self,
        item: T,
        write: Sequence[int],
        read: Sequence[int],
        append: Sequence[int],
        most: int | None = None,
    ) -> bool:
        """Whether it may be sent now, under these locks; it is here until it is `settled`, `lost` or
        `withdrawn`. Otherwise it waits, and is to be decided again when its turn comes. Where `most` wait
        already, a newcomer is sent without regard to others."""
        before, late = self._waiting.get(item), item in self._passed_by
        self._passed_by.discard(item)
        entry = _Entry(item, write, read, append)
        if self._dissolved or not entry.locks or len(entry.locks) > MAX_LOCKS:
            self.withdraw(item)
            return True
        free = self._marked.keys().isdisjoint(entry.checked)
        own = before.locks if before is not None and before.turn is not None else ()
        if free and (late or self._lines.keys().isdisjoint(set(entry.locks).difference(own))):
            self._sent[item] = entry
            for lock in entry.marks:
                self._marked[lock] = self._marked.get(lock, 0) + 1
        elif before is None and most is not None and len(self._waiting) >= most:
            return True
        else:
            self._waiting[item] = entry
            for lock in entry.locks:
                self._lines.setdefault(lock, deque()).append(entry)
        if before is not None:
            self._leave_lines(before)
        return item in self._sent

    def settled(self, item: T, mark: int = -1) -> None:
        """It has an outcome; `mark`: its id in the log, or -1."""
        entry = self._sent.pop(item, None)
        if entry is None:
            return
        self._mark = max(self._mark, mark)
        for lock in entry.marks:
            self._marked[lock] -= 1
            if not self._marked[lock]:
                del self._marked[lock]
        self._next(entry.marks)

    def lost(self, item: T) -> bool:
        """It was refused for a transaction of somebody else, and is decided again at once: its turn stays.
        False when it was sent without regard to others."""
        entry = self._sent.get(item)
        if entry is not None:
            self._waiting[item] = entry
            for lock in entry.locks:
                self._lines.setdefault(lock, deque()).appendleft(entry)
            self._give_turn(entry)
        self.settled(item)
        return entry is not None

    def withdraw(self, item: T) -> None:
        """It comes to its end; harmless when it is not here."""
        self._passed_by.discard(item)
        entry = self._waiting.pop(item, None)
        if entry is not None:
            self._leave_lines(entry)
        self.settled(item)

    def give_up(self, item: T) -> bool:
        """Withdraw it if it waits for its turn; whether it did."""
        entry = self._waiting.get(item)
        if entry is None or entry.turn is not None:
            return False
        self.withdraw(item)
        return True

    def dissolve(self) -> list[T]:
        """Who waits for its turn; nobody waits after it, also who is decided meanwhile."""
        self._dissolved = True
        waiting = [item for item, entry in self._waiting.items() if entry.turn is None]
        for entry in self._waiting.values():
            if entry.turn is not None:
                entry.turn.cancel()
        self._waiting.clear()
        self._lines.clear()
        return waiting

    def _leave_lines(self, entry: _Entry[T]) -> None:
        if self._waiting.get(entry.item) is entry:
            del self._waiting[entry.item]
        if entry.turn is not None:
            entry.turn.cancel()
            entry.turn = None
        for lock in entry.locks:
            line = self._lines[lock]
            line.remove(entry)
            if not line:
                del self._lines[lock]
        self._next(entry.locks)

    def _next(self, locks: Iterable[int]) -> None:
        """Give their turn to those who are the first in the lines of these locks, and may be sent."""
        for lock in locks:
            line = self._lines.get(lock)
            if line is None:
                continue
            first = line[0]
            if (
                first.turn is None
                and self._marked.keys().isdisjoint(first.checked)
                and all(self._lines[one][0] is first for one in first.locks)
            ):
                self._give_turn(first)
                self._on_turn(first.item, self._mark)

    def _give_turn(self, entry: _Entry[T]) -> None:
        loop = asyncio.get_running_loop()
        entry.turn = loop.call_later(TURN_SECONDS, self._pass_by, entry)

    def _pass_by(self, entry: _Entry[T]) -> None:
        """It has not come."""
        if self._waiting.get(entry.item) is entry:
            self._passed_by.add(entry.item)
            self._leave_lines(entry)
