"""Messages between servers of one cluster that watch each other, and hand partitions over (magic 'L', version
`PEER_VERSION`).

Every body is the type byte, then the fields in the order given here. A server offers this version in its
Hello next to those of clients; a peer that does not (a server of release 0.13.2, any client) never gets one
of these."""

from dataclasses import dataclass
from typing import ClassVar

from waltz_protocol.messages.fields import Int, Key, Long, Message, Octets, Text, TextBoolMap

PEER_VERSION = 1000
"""Far above the versions of clients: the highest common version of two servers that both watch."""


@dataclass(frozen=True, slots=True)
class PeerPing:
    """A sign of life that asks for one. `name` is the sender's descriptor, `suspects` the descriptors of
    those it does not hear from (true: nobody listens at its address)."""

    TYPE: ClassVar[int] = 1
    SINCE: ClassVar[int] = 0
    number: Long
    name: Text
    suspects: TextBoolMap


@dataclass(frozen=True, slots=True)
class PeerPong:
    """The answer. `name` is the descriptor of the process that answers, empty before it is registered."""

    TYPE: ClassVar[int] = 2
    SINCE: ClassVar[int] = 0
    number: Long
    name: Text


@dataclass(frozen=True, slots=True)
class HandOverRequest:
    """The new owner of a partition asks the old one for its lock table. `generation` is the new owner's,
    `cluster` the key of its cluster; see `HandOver` for `slot_scheme`."""

    TYPE: ClassVar[int] = 3
    SINCE: ClassVar[int] = 0
    partition_id: Int
    generation: Int
    cluster: Key
    slot_scheme: Int


@dataclass(frozen=True, slots=True)
class HandOver:
    """The answer: everything that the old owner had handed to storage nodes in the store session `session_id`
    is committed or failed, and the log ends at `high_water_mark`. Commits above `floor` that raised slots of
    the lock table are in `commits`: u32 count, then for each i64 transaction id and u16 number of slots, then
    the slots of all, u32 each. `slot_scheme` is 1: which slots a lock has (`waltz_protocol.locks`).
    `checksum` is the CRC-32 of all other fields as they are sent."""

    TYPE: ClassVar[int] = 4
    SINCE: ClassVar[int] = 0
    partition_id: Int
    generation: Int
    cluster: Key
    slot_scheme: Int
    session_id: Long
    high_water_mark: Long
    table_size: Int
    floor: Long
    commits: Octets
    checksum: Long


@dataclass(frozen=True, slots=True)
class NoHandOver:
    """The answer of a server that does not give this partition up, or cannot settle it in time."""

    TYPE: ClassVar[int] = 5
    SINCE: ClassVar[int] = 0
    partition_id: Int


MESSAGES: tuple[type[Message], ...] = (PeerPing, PeerPong, HandOverRequest, HandOver, NoHandOver)
