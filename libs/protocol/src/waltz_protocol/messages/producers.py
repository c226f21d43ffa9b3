"""Messages of version 5 of named producers: their mount, and for clients that do not see ZooKeeper what a
server does with the record of a producer there (docs/protocol.md, named producers over servers).

The server's side of the latter is `waltz_server.producers`, the client's
`waltz_client._internal.directory.producers`.
"""

from dataclasses import dataclass
from enum import IntEnum
from typing import ClassVar

from waltz_protocol.messages.fields import Checkpoints, Int, Long, Message, Text, WireReqId


class ProducerCode(IntEnum):
    """What has become of a request about a producer."""

    DONE = 0
    ABSENT = 1
    """There is no producer of this name."""
    OTHER_EPOCH = 2
    """Nothing was done: the record has the epoch of the answer."""
    LATER = 3
    """Not known now; another server, or the same one later, may do it."""
    REFUSED = 4
    """No server does that."""


@dataclass(frozen=True, slots=True)
class ProducerMountRequest:
    """A mount request of a named producer, with the epoch of this instance of it (from 1 on)."""

    TYPE: ClassVar[int] = 43
    SINCE: ClassVar[int] = 5
    req_id: WireReqId
    client_high_water_mark: Long
    connection_seq_num: Long
    epoch: Int


@dataclass(frozen=True, slots=True)
class ProducerFindRequest:
    """Ask for the record of a producer."""

    TYPE: ClassVar[int] = 44
    SINCE: ClassVar[int] = 5
    req_id: WireReqId
    name: Text


@dataclass(frozen=True, slots=True)
class ProducerCreateRequest:
    """Keep a new producer with this client id and epoch 0, unless there is one of that name."""

    TYPE: ClassVar[int] = 45
    SINCE: ClassVar[int] = 5
    req_id: WireReqId
    name: Text
    client_id: Int
    checkpoints: Checkpoints


@dataclass(frozen=True, slots=True)
class ProducerEpochRequest:
    """Raise the epoch to this one, if the record has the one right before it: sent twice, it is done once."""

    TYPE: ClassVar[int] = 46
    SINCE: ClassVar[int] = 5
    req_id: WireReqId
    name: Text
    epoch: Int


@dataclass(frozen=True, slots=True)
class ProducerWatchRequest:
    """Ask for the epoch now, and for another answer when it changes."""

    TYPE: ClassVar[int] = 47
    SINCE: ClassVar[int] = 5
    req_id: WireReqId
    name: Text


@dataclass(frozen=True, slots=True)
class ProducerCheckpointsRequest:
    """Write the checkpoints of the instance with this epoch where they are further than those of the
    record."""

    TYPE: ClassVar[int] = 48
    SINCE: ClassVar[int] = 5
    req_id: WireReqId
    name: Text
    epoch: Int
    checkpoints: Checkpoints


@dataclass(frozen=True, slots=True)
class ProducerResponse:
    """The answer to each of these: a `ProducerCode`, what is known of the record, and a sentence."""

    TYPE: ClassVar[int] = 49
    SINCE: ClassVar[int] = 5
    req_id: WireReqId
    code: Int
    client_id: Int
    epoch: Int
    checkpoints: Checkpoints
    text: Text


ProducerRequest = (
    ProducerFindRequest
    | ProducerCreateRequest
    | ProducerEpochRequest
    | ProducerWatchRequest
    | ProducerCheckpointsRequest
)
REQUESTS: tuple[type[ProducerRequest], ...] = (
    ProducerFindRequest,
    ProducerCreateRequest,
    ProducerEpochRequest,
    ProducerWatchRequest,
    ProducerCheckpointsRequest,
)
MESSAGES: tuple[type[Message], ...] = (ProducerMountRequest, *REQUESTS, ProducerResponse)
