"""The lock table of a partition on its way to the next owner, and whether it may be used there. Pure.

Without it a new owner knows no lock: its table starts at the end of the log, and every append whose view is
older is refused, though nothing may have touched its locks. What the old owner hands over (`LockHandOver`)
says more, but only for the very log that the new owner has recovered. It is used only if

* it is of this cluster and partition, and of a table of the same size in which a lock has the same slots,
* it is of the store session right before our own: ids are given out once, so nobody wrote in between,
* the recovered log ends exactly where the old owner's did when nothing of it was in flight: whatever came
  later, or was added by the recovery, makes the log longer.

Then the log is, record by record, what the old owner had committed, and its table is exact. In every other
case the table starts at the mark, as it does without (safety D12).
"""

from __future__ import annotations

import struct
from collections.abc import Collection
from dataclasses import dataclass
from itertools import chain
from uuid import UUID

import structlog

from waltz_protocol.checksum import crc32
from waltz_protocol.errors import ProtocolError
from waltz_protocol.locks import MAX_RECENT_COMMITS, MAX_RECENT_SLOTS, SLOT_SCHEME, LockTable
from waltz_protocol.messages.peer import HandOver

log = structlog.get_logger(__name__)

HAND_OVER_SECONDS = 0.2
"""How long a take-over waits for what the old owner hands over, from when the session id is taken; and how
long a partition that has another owner may settle before it is closed."""

_FIELDS = struct.Struct(">ii16siqqiq")
_Fields = tuple[int, int, UUID, int, int, int, int, int]
_COUNT = struct.Struct(">I")
_COMMIT = struct.Struct(">qH")


@dataclass(frozen=True, slots=True)
class LockHandOver:
    """What a server that has settled a partition knows of its locks; see `LockTable` for `floor` and
    `commits`. `generation` and `session_id` are its own, the log ended at `high_water_mark`."""

    partition_id: int
    generation: int
    session_id: int
    high_water_mark: int
    table_size: int
    floor: int
    commits: tuple[tuple[int, Collection[int]], ...]

    def unfit(self, partition_id: int, session_id: int, high_water_mark: int, table_size: int) -> str:
        """Why the owner of this session, whose recovered log ends at this mark, must not use it; empty if it
        may."""
        if self.partition_id != partition_id:
            return f"it is of partition {self.partition_id}"
        if self.session_id + 1 != session_id:
            return f"it is of session {self.session_id}, and ours is {session_id}"
        if self.high_water_mark != high_water_mark:
            return f"it ends at {self.high_water_mark}, and the log at {high_water_mark}"
        if self.table_size != table_size:
            return f"its table has {self.table_size} slots, and ours {table_size}"
        return ""

    def table(self) -> LockTable:
        """A table that conflicts with all that the old owner's did."""
        table = LockTable(self.table_size, self.floor)
        for transaction_id, slots in self.commits:
            table.commit(slots, transaction_id)
        return table


def hand_over_of(
    table: LockTable, partition_id: int, generation: int, session_id: int, high_water_mark: int
) -> LockHandOver:
    """Of a partition of which nothing is in flight."""
    return LockHandOver(
        partition_id, generation, session_id, high_water_mark, table.size, table.floor, tuple(table.recent)
    )


def first_table(
    handed_over: LockHandOver | None, partition_id: int, session_id: int, high_water_mark: int, size: int
) -> LockTable:
    """The table with which a session begins whose log has transactions that this server did not number."""
    if handed_over is not None:
        unfit = handed_over.unfit(partition_id, session_id, high_water_mark, size)
        if not unfit:
            log.info("lock table taken over", partition=partition_id, high_water_mark=high_water_mark)
            return handed_over.table()
        log.info("lock table that was handed over is not used", partition=partition_id, reason=unfit)
    return LockTable(size, high_water_mark)


# -- bytes


def message_of(handed_over: LockHandOver, cluster: UUID) -> HandOver:
    """As it is sent by a server of this cluster."""
    one, commits = handed_over, handed_over.commits
    slots = list(chain.from_iterable(slots for _, slots in commits))
    heads = chain.from_iterable((transaction_id, len(slots)) for transaction_id, slots in commits)
    body = b"".join(
        (
            _COUNT.pack(len(commits)),
            struct.pack(">" + "qH" * len(commits), *heads),
            struct.pack(f">{len(slots)}I", *slots),
        )
    )
    fields = (
        one.partition_id, one.generation, cluster, SLOT_SCHEME,
        one.session_id, one.high_water_mark, one.table_size, one.floor,
    )  # fmt: skip
    return HandOver(*fields, body, _checksum(fields, body))


def parse(message: HandOver, cluster: UUID) -> LockHandOver:
    """ProtocolError unless it is of this cluster, whole and consistent in itself."""
    body = message.commits or b""
    fields = (
        message.partition_id, message.generation, message.cluster, message.slot_scheme,
        message.session_id, message.high_water_mark, message.table_size, message.floor,
    )  # fmt: skip
    if message.checksum != _checksum(fields, body):
        raise ProtocolError("a lock table with a wrong checksum")
    if message.cluster != cluster:
        raise ProtocolError("a lock table of another cluster")
    if message.slot_scheme != SLOT_SCHEME:
        raise ProtocolError(f"a lock table of slot scheme {message.slot_scheme}")
    try:
        commits = _commits_of(body)
    except struct.error as error:
        raise ProtocolError(f"a lock table of {len(body)} bytes: {error}") from None
    previous = message.floor
    for transaction_id, slots in commits:
        if not previous < transaction_id <= message.high_water_mark:
            raise ProtocolError(f"a lock table with transaction {transaction_id} behind {previous}")
        if slots and max(slots) >= message.table_size:
            raise ProtocolError("a lock table with a slot beyond its size")
        previous = transaction_id
    if message.table_size < 1 or message.floor > message.high_water_mark:
        raise ProtocolError("a lock table that cannot be")
    return LockHandOver(
        message.partition_id, message.generation, message.session_id, message.high_water_mark,
        message.table_size, message.floor, commits,
    )  # fmt: skip


def _commits_of(body: bytes) -> tuple[tuple[int, tuple[int, ...]], ...]:
    (count,) = _COUNT.unpack_from(body)
    if count > MAX_RECENT_COMMITS:
        raise ProtocolError(f"a lock table of {count} commits")
    start = _COUNT.size + count * _COMMIT.size
    heads = list(_COMMIT.iter_unpack(memoryview(body)[_COUNT.size : start]))
    total = sum(number for _, number in heads)
    if total > MAX_RECENT_SLOTS or len(body) != start + 4 * total:
        raise ProtocolError(f"a lock table of {count} commits and {total} slots in {len(body)} bytes")
    slots = struct.unpack_from(f">{total}I", body, start)
    commits, place = [], 0
    for transaction_id, number in heads:
        commits.append((transaction_id, slots[place : place + number]))
        place += number
    return tuple(commits)


def _checksum(fields: _Fields, body: bytes) -> int:
    partition_id, generation, cluster, *others = fields
    return crc32(body, crc32(_FIELDS.pack(partition_id, generation, cluster.bytes, *others)))
