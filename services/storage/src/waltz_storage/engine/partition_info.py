"""One partition's entry of the control file: two alternating structs (docs/storage-files.md), pure.

Invariants:

* The struct with the larger sequence number among the valid ones is current. Sequence numbers wrap at 32 bits
  and are compared by their difference, so the reference's signed overflow cannot turn the order round.
* An update fills the other struct; so the current one survives a torn write.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

from waltz_protocol.checksum import crc32
from waltz_storage.engine.errors import PartitionDamagedError
from waltz_storage.engine.layout import ENTRY_PREFIX_SIZE, ENTRY_SIZE, INFO_SIZE

FLAG_AVAILABLE = 1
FLAG_ASSIGNED = 4

_INFO = struct.Struct(">qqqii")
_CHECKSUM = struct.Struct(">I")
_ID = struct.Struct(">i")


class PartitionInfo(NamedTuple):
    """The persisted marks and flags of a partition."""

    session_id: int
    low_water_mark: int
    local_low_water_mark: int
    flags: int
    sequence: int

    @property
    def available(self) -> bool:
        """The one flag of 0.13.2 that covers reading and writing."""
        return bool(self.flags & FLAG_AVAILABLE)

    @property
    def assigned(self) -> bool:
        """True when this node serves the partition."""
        return bool(self.flags & FLAG_ASSIGNED)

    def to_bytes(self) -> bytes:
        """36 bytes with checksum."""
        raw = _INFO.pack(*self)
        return raw + _CHECKSUM.pack(crc32(raw))

    @classmethod
    def from_bytes(cls, raw: bytes) -> PartitionInfo | None:
        """Decode 36 bytes; `None` when the checksum does not match."""
        if len(raw) < INFO_SIZE or crc32(raw[:32]) != _CHECKSUM.unpack_from(raw, 32)[0]:
            return None
        return cls(*_INFO.unpack_from(raw))


class Shown(NamedTuple):
    """What readers and servers are shown of a partition, and rely on being durable."""

    max_txid: int
    fence: int
    info: PartitionInfo


def virgin(sequence: int) -> PartitionInfo:
    """Never used: no session, no marks, available, not assigned."""
    return PartitionInfo(-1, -1, -1, FLAG_AVAILABLE, sequence)


def entry_id(partition_id: int) -> bytes:
    """The bytes of an entry before its structs: whose it is. -1 is nobody's."""
    return _ID.pack(partition_id)


def virgin_entry(partition_id: int) -> bytes:
    """The 76 bytes of an entry at initialisation."""
    return entry_id(partition_id) + virgin(-1).to_bytes() + virgin(0).to_bytes()


def next_sequence(sequence: int) -> int:
    """Signed 32-bit successor."""
    return _wrap(sequence + 1)


def newer(left: int, right: int) -> bool:
    """True when sequence `left` comes after `right`, also across the 32-bit wrap."""
    return _wrap(left - right) > 0


def read_entry(partition_id: int, raw: bytes) -> tuple[PartitionInfo, int]:
    """Current struct of an entry and its place (0 or 1).

    Raises `PartitionDamagedError` when neither struct is valid, when two valid ones of equal sequence
    differ, or when the entry belongs to another partition. Two *equal* structs (a reset of 0.13.2 that was
    interrupted) say the same thing and are accepted.
    """
    if len(raw) < ENTRY_SIZE:
        raise PartitionDamagedError(f"partition {partition_id}: the control file ends inside its entry")
    stored_id = _ID.unpack_from(raw)[0]
    if stored_id != partition_id:
        raise PartitionDamagedError(
            f"partition {partition_id}: its control entry names partition {stored_id}"
        )
    first = PartitionInfo.from_bytes(raw[ENTRY_PREFIX_SIZE : ENTRY_PREFIX_SIZE + INFO_SIZE])
    second = PartitionInfo.from_bytes(raw[ENTRY_PREFIX_SIZE + INFO_SIZE : ENTRY_SIZE])
    if first is None:
        if second is None:
            raise PartitionDamagedError(
                f"partition {partition_id}: both copies of its control entry are damaged"
            )
        return second, 1
    if second is None:
        return first, 0
    if first.sequence == second.sequence and first != second:
        raise PartitionDamagedError(
            f"partition {partition_id}: its control entry has two different newest copies"
        )
    return (first, 0) if newer(first.sequence, second.sequence) else (second, 1)


def _wrap(value: int) -> int:
    return (value + 2**31) % 2**32 - 2**31
