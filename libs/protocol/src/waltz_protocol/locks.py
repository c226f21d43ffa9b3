"""Locks: the hash that travels on the wire, and the table in which a server keeps what they protect.

A client names locks by (name, id) and sends 32-bit hashes (docs/protocol.md, clients and servers). The server
maps each hash to three slots of a fixed table per partition. Two locks may share slots: that costs a needless
lock failure, never a missed conflict, because a lock counts as old only when *one of its* slots is old, and
every commit raises *all* of its slots. The slots are not on the wire; the reference takes them from one
linear congruential chain whose values hang together, we take them from three differently seeded mixes.

`LockTable` invariants (one writer: the partition's append path):
* a slot holds at least the id of the last committed transaction that wrote or appended a lock on it, and at
  least the high-water mark with which the table was made, or the floor.
* `recent` has every commit above `floor` that raised slots, in order. So a table that is made from both holds
  in each slot at least what this one does: what the next owner of a partition is handed over.

Appends in flight are not in the table: the append path knows their locks by hash, and lets an append that
names one of them wait.
"""

from collections import deque
from collections.abc import Collection, Iterable, Sequence
from operator import index
from typing import NamedTuple, Self

from waltz_protocol.keys import key_hash

Slots = tuple[int, ...]

_MASK_64 = 0xFFFFFFFFFFFFFFFF
_SEEDS = (0x9E3779B97F4A7C15, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9)
SLOT_SCHEME = 1
"""A number of its own for each way from a lock to its slots (`slots_of`): tables go from server to
server."""
MEMO_LIMIT = 65536
"""Hashes whose slots are remembered; beyond it the memory of slots is emptied and fills again."""

MAX_RECENT_COMMITS = 2048
MAX_RECENT_SLOTS = 3 * MAX_RECENT_COMMITS
"""Of these commits together; what is older is under the floor."""


class LockId(NamedTuple):
    """A lock as applications name it; `hash` is the signed i32 sent on the wire."""

    name: str
    id: int

    @classmethod
    def of(cls, name: str, key: str | bytes) -> Self:
        """The lock that represents what has a text for its key: `LockId.of("account", "alice")`. The id is
        `key_hash` as a signed 64-bit number. Two keys with one id cost a needless conflict, never a missed
        one."""
        number = key_hash(key)
        return cls(name, number - ((number >> 63) << 64))

    @property
    def hash(self) -> int:
        """`s[0]*31^(n-1) + … + s[n-1]` over UTF-16 code units, xor the folded 64-bit id; signed i32."""
        h = 0
        units = self.name.encode("utf-16-be", "surrogatepass")
        for i in range(0, len(units), 2):
            h = (31 * h + (units[i] << 8) + units[i + 1]) & 0xFFFFFFFF
        unsigned = index(self.id) & _MASK_64  # those of other libraries have widths of their own
        h ^= (unsigned ^ (unsigned >> 32)) & 0xFFFFFFFF
        return h - ((h & 0x80000000) << 1)


def _mix(x: int) -> int:
    """The finalizer of splitmix64: every input bit changes every output bit about half of the time."""
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & _MASK_64
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & _MASK_64
    return x ^ (x >> 31)


def slots_of(lock_hash: int, size: int) -> tuple[int, int, int]:
    """The three slots of one lock hash in a table of `size` slots."""
    unsigned = lock_hash & 0xFFFFFFFF
    a, b, c = (_mix((unsigned + seed) & _MASK_64) * size >> 64 for seed in _SEEDS)
    return a, b, c


class LockTable:
    """The optimistic lock table of one partition; synchronous and pure.

    The order of an append: `estimate` against the client's high-water mark; when it is committed, `commit`
    with its `slots_to_raise`.
    """

    __slots__ = ("_memo", "_recent_slots", "_size", "_table", "floor", "recent")

    def __init__(self, size: int, initial_high_water_mark: int) -> None:
        """`initial_high_water_mark`: the partition's, after settlement, before the first check."""
        if size < 1:
            raise ValueError(f"a lock table needs at least one slot, not {size}")
        self._size = size
        self._table = [initial_high_water_mark] * size
        self._memo: dict[int, tuple[int, int, int]] = {}
        self.floor = initial_high_water_mark
        self.recent: deque[tuple[int, Collection[int]]] = deque()
        """Transaction id and slots."""
        self._recent_slots = 0

    @property
    def size(self) -> int:
        """Number of slots."""
        return self._size

    def _slots(self, lock_hash: int) -> tuple[int, int, int]:
        slots = self._memo.get(lock_hash)
        if slots is None:
            if len(self._memo) >= MEMO_LIMIT:
                self._memo.clear()
            slots = self._memo[lock_hash] = slots_of(lock_hash, self._size)
        return slots

    def slots_to_raise(self, write_locks: Sequence[int], append_locks: Sequence[int]) -> Slots:
        """The slots of these locks, each once: what `commit` raises. Read locks raise none."""
        if not append_locks and len(write_locks) == 1:
            return self._slots(write_locks[0])
        return tuple(
            {slot for locks in (write_locks, append_locks) for h in locks for slot in self._slots(h)}
        )

    def estimate(self, write_locks: Iterable[int], read_locks: Iterable[int]) -> int:
        """An upper bound of the last committed transaction that conflicts with these locks; -1 without locks.

        A client whose high-water mark is below it must fail; equal passes. Append locks do not count.
        """
        table = self._table
        highest = -1
        for locks in (write_locks, read_locks):
            for lock_hash in locks:
                a, b, c = self._slots(lock_hash)
                lowest = min(table[a], table[b], table[c])
                highest = max(highest, lowest)
        return highest

    def commit(self, slots: Collection[int], transaction_id: int) -> None:
        """An append with these slots, which never change afterwards, is committed as `transaction_id`; slots
        never go down, and ids only rise from call to call."""
        table = self._table
        for slot in slots:
            if table[slot] < transaction_id:
                table[slot] = transaction_id
        recent = self.recent
        recent.append((transaction_id, slots))
        self._recent_slots += len(slots)
        while self._recent_slots > MAX_RECENT_SLOTS or len(recent) > MAX_RECENT_COMMITS:
            self.floor, oldest = recent.popleft()
            self._recent_slots -= len(oldest)


class LockCheck:
    """The look-ups of one append with many locks, a slice at a time; what comes out is what `LockTable` says
    at once.

    Right only while no append is admitted that writes or appends one of these locks, and `table` is the
    partition's: whoever slices sees to that.
    """

    __slots__ = ("_locks", "_place", "_read_from", "_read_to", "conflict", "conflict_lock", "slots", "table")

    def __init__(self, table: LockTable, write_locks: Slots, read_locks: Slots, append_locks: Slots) -> None:
        self.table = table
        self.conflict = -1
        """As `LockTable.estimate`, once it is done."""
        self.conflict_lock = 0
        """The first write or read lock that gave `conflict`; 0 while that is -1."""
        self.slots: set[int] = set()
        """Those to be raised by the commit: at most as many as the table has."""
        self._locks = write_locks + read_locks + append_locks
        self._read_from = len(write_locks)
        self._read_to = self._read_from + len(read_locks)
        self._place = 0

    @property
    def done(self) -> bool:
        """Nothing is left to look up."""
        return self._place == len(self._locks)

    def advance(self, count: int) -> int:
        """Look up at most so many more locks; returns how many."""
        start = self._place
        end = self._place = min(start + count, len(self._locks))
        values, size, slots = self.table._table, self.table.size, self.slots
        conflict, conflict_lock = self.conflict, self.conflict_lock
        read_from, read_to = self._read_from, self._read_to
        for place in range(start, end):
            lock_hash = self._locks[place]
            a, b, c = slots_of(lock_hash, size)
            if place < read_to:
                lowest = min(values[a], values[b], values[c])
                if lowest > conflict:
                    conflict, conflict_lock = lowest, lock_hash
            if place < read_from or place >= read_to:
                slots.update((a, b, c))
        self.conflict, self.conflict_lock = conflict, conflict_lock
        return end - start
