"""The directory of a cluster: who serves which partition, as a server of version 5 reports it. Pure.

Bytes: docs/protocol.md, version 5, directory. A directory travels whole, in frames of a bounded size, so that
a receiver needs nothing of what it had before: `encode_directory` cuts it, `DirectoryParts` puts it together
again. The server's side is `waltz_server.directory`, the client's `waltz_client._internal.directory`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from uuid import UUID

from waltz_protocol.buffer import MAX_LIST_INTEGERS
from waltz_protocol.codec import CLIENT
from waltz_protocol.errors import ProtocolError
from waltz_protocol.messages.directory import DirectoryPart
from waltz_protocol.messages.fields import PART_BYTES, ServerEntry
from waltz_protocol.types import Endpoint, Generation, PartitionId, ReqId

FIRST_VERSION = DirectoryPart.SINCE
MAX_PARTS = 1024
MAX_SERVERS = 10_000
EVERYBODY = ReqId(-1, -1, -1, -1)
"""The request id of a directory: the same bytes go to everybody who watches it."""
OUT_OF_CONTACT = 1
"""Flag: the server does not reach ZooKeeper, there may be a newer directory."""

_ENTRY_BYTES = 12
_PARTITION_BYTES = 8

Placement = Mapping[Endpoint, Mapping[PartitionId, Generation]]


@dataclass(frozen=True, slots=True)
class Directory:
    """What a server knows of its cluster. Of two with the same key the one with the larger `version` is the
    newer one, whichever servers they come from; with equal versions they have the same servers."""

    version: int
    cluster_name: str
    cluster_key: UUID
    num_partitions: int
    servers: Placement
    in_contact: bool = True
    """Whether the server that says it reaches ZooKeeper."""


def encode_directory(directory: Directory, version: int = FIRST_VERSION) -> tuple[bytes, ...]:
    """The frames of a directory, at least one. Servers that are no valid entry are left out: whoever receives
    one refuses the whole directory (`not_listed`)."""
    parts = list(_parts(directory.servers))
    flags = 0 if directory.in_contact else OUT_OF_CONTACT
    return tuple(
        CLIENT.encode(
            DirectoryPart(
                EVERYBODY,
                directory.version,
                flags,
                number,
                len(parts),
                None if number else directory.cluster_name,
                directory.cluster_key,
                directory.num_partitions,
                servers,
            ),
            version,
        )
        for number, servers in enumerate(parts)
    )


def not_listed(servers: Placement) -> tuple[Endpoint, ...]:
    """Servers that `encode_directory` leaves out: nobody can connect to such an address."""
    return tuple(endpoint for endpoint in servers if not endpoint.valid)


def _parts(servers: Placement) -> Iterator[tuple[ServerEntry, ...]]:
    """The servers in portions of `PART_BYTES`; one with many partitions is in several of them."""
    part: list[ServerEntry] = []
    left = PART_BYTES
    for endpoint, owned in servers.items():
        if not endpoint.valid:
            continue
        head = _ENTRY_BYTES + len(endpoint.host.encode("utf-8", "replace"))
        waiting = [(int(partition_id), int(generation)) for partition_id, generation in owned.items()]
        while True:
            if part and left < head + _PARTITION_BYTES:
                yield tuple(part)
                part, left = [], PART_BYTES
            count = max(1, (left - head) // _PARTITION_BYTES)
            taken, waiting = waiting[:count], waiting[count:]
            part.append(ServerEntry(endpoint.host, endpoint.port, tuple(taken)))
            left -= head + _PARTITION_BYTES * len(taken)
            if not waiting:
                break
    yield tuple(part)


class DirectoryParts:
    """Puts the parts from one server together. Holds at most one directory that is not complete.

    Invariant: whatever is returned has each partition once, in a range that `num_partitions` gives.
    """

    def __init__(self) -> None:
        self._first: DirectoryPart | None = None
        self._received = 0
        self._servers: dict[Endpoint, dict[PartitionId, Generation]] = {}
        self._placed: set[int] = set()

    def add(self, part: DirectoryPart) -> Directory | None:
        """The directory when this was its last part. ProtocolError when the parts are not of one directory,
        or no cluster can be so."""
        if part.part == 0:
            self._begin(part)
        first = self._first
        if first is None or part.part != self._received or _head(part) != _head(first):
            raise ProtocolError(f"part {part.part} of {part.parts} of a directory is out of order")
        self._received += 1
        for entry in part.servers:
            self._take(entry, first.num_partitions)
        if self._received < first.parts:
            return None
        directory = Directory(
            first.version,
            first.cluster_name or "",
            first.cluster_key,
            first.num_partitions,
            self._servers,
            not first.flags & OUT_OF_CONTACT,
        )
        self._first = None
        return directory

    def _begin(self, part: DirectoryPart) -> None:
        if not 0 < part.parts <= MAX_PARTS:
            raise ProtocolError(f"a directory in {part.parts} parts")
        if not 0 < part.num_partitions <= MAX_LIST_INTEGERS:
            raise ProtocolError(f"a directory of {part.num_partitions} partitions")
        if part.version < 0 or part.flags & ~OUT_OF_CONTACT:
            raise ProtocolError(f"a directory with version {part.version} and flags {part.flags}")
        self._first, self._received = part, 0
        self._servers, self._placed = {}, set()

    def _take(self, entry: ServerEntry, num_partitions: int) -> None:
        endpoint = Endpoint(entry.host, entry.port)
        if not endpoint.valid:
            raise ProtocolError(f"a directory with a server at {entry.host!r}:{entry.port}")
        owned = self._servers.setdefault(endpoint, {})
        if len(self._servers) > MAX_SERVERS:
            raise ProtocolError(f"a directory of more than {MAX_SERVERS} servers")
        for partition_id, generation in entry.partitions:
            if partition_id in self._placed or not 0 <= partition_id < num_partitions or generation < 0:
                raise ProtocolError(f"a directory with partition {partition_id} in generation {generation}")
            self._placed.add(partition_id)
            owned[PartitionId(partition_id)] = Generation(generation)


def _head(part: DirectoryPart) -> tuple[object, ...]:
    return part.version, part.flags, part.parts, part.cluster_key, part.num_partitions
