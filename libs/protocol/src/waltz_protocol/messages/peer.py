"""Messages between servers of one cluster that watch each other (magic 'L', version `PEER_VERSION`).

Every body is the type byte, then the fields in the order given here. A server offers this version in its
Hello next to those of clients; a peer that does not (a server of release 0.13.2, any client) never gets one
of these."""

from dataclasses import dataclass
from typing import ClassVar

from waltz_protocol.messages.fields import Long, Message, Text, TextBoolMap

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


MESSAGES: tuple[type[Message], ...] = (PeerPing, PeerPong)
