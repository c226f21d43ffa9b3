"""Messages of version 5 between clients and servers: who serves what, and an id for a client.

What they carry is put together in `waltz_protocol.directory`.
"""

from dataclasses import dataclass
from typing import ClassVar

from waltz_protocol.messages.fields import Int, Key, Long, Message, Servers, Text, WireReqId


@dataclass(frozen=True, slots=True)
class DirectoryRequest:
    """Ask for the directory of the cluster, now and whenever it changes."""

    TYPE: ClassVar[int] = 39
    SINCE: ClassVar[int] = 5
    req_id: WireReqId


@dataclass(frozen=True, slots=True)
class DirectoryPart:
    """Part number `part` (from 0) of `parts` of the directory of this version."""

    TYPE: ClassVar[int] = 40
    SINCE: ClassVar[int] = 5
    req_id: WireReqId
    version: Long
    flags: Int
    part: Int
    parts: Int
    cluster_name: Text
    cluster_key: Key
    num_partitions: Int
    servers: Servers


@dataclass(frozen=True, slots=True)
class ClientIdRequest:
    """Ask for an id that no client ever had."""

    TYPE: ClassVar[int] = 41
    SINCE: ClassVar[int] = 5
    req_id: WireReqId


@dataclass(frozen=True, slots=True)
class ClientIdResponse:
    """The id, or -1 and a sentence why there is none."""

    TYPE: ClassVar[int] = 42
    SINCE: ClassVar[int] = 5
    req_id: WireReqId
    client_id: Int
    text: Text


MESSAGES: tuple[type[Message], ...] = (DirectoryRequest, DirectoryPart, ClientIdRequest, ClientIdResponse)
