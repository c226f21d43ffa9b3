"""Who waits for a lock: a line per lock and one per client. Pure.

An append that meets a marked lock leaves the partition's queue for the lines of all its locks, and of its
client; a mount or a flush that comes behind it joins the line of its client alone. Whoever is first in all
its lines, with no mark on its locks, is `ready`. So

* two appends that share a lock keep the order in which they came, and nobody who came later overtakes on a
  lock that somebody waits for: a wait ends after those before it in its lines, each of which is admitted,
  refused or dropped when its turn comes;
* everything of one client keeps its order, mounts and flushes included;
* all others pass.

Everybody joins all lines at once, in the order of arrival, so nobody waits in a circle.

Who was first and is refused, because what it waited for has committed, may keep its *turn*: its position in
the lines of its locks is kept for what its client sends next (`hold`, `come_back`), while everything else of
the client passes. So of all who wait for one lock only the first is refused by each commit, it comes back
with what it has read meanwhile, and everybody's turn comes. Without turns a commit refuses all who wait, they
all come back, and whoever is nearest wins again and again.

Owner: the append queue of one partition. The marks are its own: it sets one only for whom `leave` is called
next, and for appends that share no lock with a line (`concern`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Set
from heapq import nlargest
from typing import Generic, TypeVar

T = TypeVar("T")


class Waiter(Generic[T]):
    """One who waits, or the turn of one who was refused. `blocked`: in how many of its lines it is not first,
    or waits for a mark."""

    __slots__ = ("blocked", "client_id", "item", "locks")

    def __init__(self, item: T, client_id: int, locks: tuple[int, ...]) -> None:
        self.item, self.client_id, self.locks = item, client_id, locks
        self.blocked = 0


class LockLines(Generic[T]):
    """See the module. `marked`: the locks of appends in flight; a live view."""

    def __init__(self, marked: Set[int]) -> None:
        self.ready: deque[Waiter[T]] = deque()
        """Those that need to wait no longer; they are in their lines until they `leave`."""
        self._marked = marked
        self._locks: dict[int, deque[Waiter[T]]] = {}
        self._clients: dict[int, deque[Waiter[T]]] = {}
        self.turns: dict[int, Waiter[T]] = {}
        """By client, the longest kept first."""
        self.waiting = 0
        """How many they are, those who are ready and turns that are kept included."""

    def concern(self, client_id: int, *locks: Iterable[int]) -> bool:
        """Whether somebody of this client waits, or somebody for one of these locks."""
        if client_id in self._clients:
            return True
        known = self._locks.keys()
        return not all(known.isdisjoint(some) for some in locks)

    def join(self, item: T, client_id: int, locks: Iterable[int] = (), *, held: bool = False) -> Waiter[T]:
        """At the end of the line of the client and of each lock; `held`: it is not ready before `release`."""
        waiter = Waiter(item, client_id, tuple(dict.fromkeys(locks)))
        waiter.blocked += held
        self.waiting += 1
        for lines, key in (
            (self._clients, client_id),
            *((self._locks, lock) for lock in waiter.locks),
        ):
            line = lines.get(key)
            if line is None:
                lines[key] = deque((waiter,))
                waiter.blocked += lines is self._locks and key in self._marked
            else:
                line.append(waiter)
                waiter.blocked += 1
        if not waiter.blocked:
            self.ready.append(waiter)
        return waiter

    def release(self, waiter: Waiter[T]) -> None:
        """It is held no longer; it has not been dissolved meanwhile."""
        self._unblock(waiter)

    def leave(self, waiter: Waiter[T]) -> None:
        """It was ready, and is admitted (its marks are set by now), refused or dropped."""
        self._leave_client(waiter)
        self._leave_locks(waiter)

    def _leave_client(self, waiter: Waiter[T]) -> None:
        line = self._clients[waiter.client_id]
        line.popleft()
        if line:
            self._unblock(line[0])
        else:
            del self._clients[waiter.client_id]

    def _leave_locks(self, waiter: Waiter[T]) -> None:
        self.waiting -= 1
        for lock in waiter.locks:
            line = self._locks[lock]
            line.popleft()
            if not line:
                del self._locks[lock]
            elif lock not in self._marked:
                self._unblock(line[0])

    # -- turns -----------------------------------------------------------------------------------------------

    def alone(self, waiter: Waiter[T]) -> bool:
        """Whether nothing else of its client waits."""
        return len(self._clients[waiter.client_id]) == 1

    def hold(self, waiter: Waiter[T]) -> None:
        """It was ready, and is refused: it keeps its turn, one per client."""
        self._leave_client(waiter)
        self.give_up(waiter.client_id)
        self.turns[waiter.client_id] = waiter

    def come_back(self, item: T, client_id: int, locks: tuple[int, ...]) -> bool:
        """Whether `item` takes the turn of its client, and is ready. A turn that it cannot take (it has other
        locks, or waits for something of its client) ends."""
        waiter = self.turns.get(client_id)
        if waiter is None:
            return False
        if not locks or client_id in self._clients or not set(locks).issubset(waiter.locks):
            self.give_up(client_id)
            return False
        del self.turns[client_id]
        waiter.item = item
        self._clients[client_id] = deque((waiter,))
        self.ready.append(waiter)
        return True

    def give_up(self, client_id: int) -> None:
        """The client does not use its turn: those behind it are next."""
        waiter = self.turns.pop(client_id, None)
        if waiter is not None:
            self._leave_locks(waiter)

    def has(self, lock: int) -> bool:
        """Whether somebody is in the line of this lock."""
        return lock in self._locks

    def longest(self, limit: int) -> list[tuple[int, deque[Waiter[T]]]]:
        """The longest lines of locks; live views."""
        return nlargest(limit, self._locks.items(), key=lambda one: len(one[1]))

    def unmarked(self, locks: Iterable[int]) -> None:
        """The marks of these locks, each named once, have gone."""
        for lock in locks:
            line = self._locks.get(lock)
            if line is not None:
                self._unblock(line[0])

    def _unblock(self, waiter: Waiter[T]) -> None:
        waiter.blocked -= 1
        if not waiter.blocked:
            self.ready.append(waiter)

    def everybody(self) -> list[T]:
        """Who waits, in any order."""
        return [waiter.item for line in self._clients.values() for waiter in line]

    def dissolve(self) -> list[T]:
        """Everybody who waits, in any order; the lines are empty after it."""
        everybody = self.everybody()
        self._locks.clear()
        self._clients.clear()
        self.ready.clear()
        self.turns.clear()
        self.waiting = 0
        return everybody
