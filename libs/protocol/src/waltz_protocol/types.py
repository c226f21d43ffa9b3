"""The values every part of Waltz talks about: ids, request ids, records, end points.

They are plain integers and named tuples, because they are made once per transaction on the hot path. All
integers are signed, as they are on the wire (big-endian, two's complement). The bytes of a record are in
`records`, the messages around it in `messages`.
"""

import struct
from typing import NamedTuple, NewType, Self

from waltz_protocol.checksum import crc32

PartitionId = NewType("PartitionId", int)
Generation = NewType("Generation", int)

UNRESOLVED = -(2**63)
"""The closing high-water mark of a replica whose content is not settled yet (the smallest i64)."""

_REQ_ID = struct.Struct(">iiii")
REQ_ID_SIZE = _REQ_ID.size
pack_req_id = _REQ_ID.pack
"""`ReqId.pack` of four numbers, without the tuple."""


class ReqId(NamedTuple):
    """Identity of one append: four i32, 16 bytes on the wire (docs/protocol.md, clients and servers)."""

    client_id: int
    generation: int
    partition_id: int
    seq_num: int

    def pack(self) -> bytes:
        """The 16 bytes; raises struct.error when a part does not fit an i32."""
        return _REQ_ID.pack(*self)

    @classmethod
    def unpack(cls, buf: bytes | bytearray | memoryview, offset: int = 0) -> Self:
        """Read 16 bytes at `offset`; raises struct.error when they are not there."""
        return cls._make(_REQ_ID.unpack_from(buf, offset))

    def __str__(self) -> str:
        return f"{self.client_id}:{self.generation}:{self.partition_id}:{self.seq_num}"


class Record(NamedTuple):
    """One transaction as stored: `checksum` is the CRC-32 of `data` as a signed i32, as on the wire."""

    transaction_id: int
    req_id: ReqId
    header: int
    data: bytes
    checksum: int


class RecordHeader(NamedTuple):
    """A record without its data."""

    transaction_id: int
    req_id: ReqId
    header: int


class SessionInfo(NamedTuple):
    """What a storage node remembers of the last store session that set a low-water mark."""

    session_id: int
    low_water_mark: int
    local_low_water_mark: int


class ShownCertificate(NamedTuple):
    """What a peer shows of itself: `serial` in hexadecimal, `not_after` in seconds since the epoch."""

    serial: str
    not_after: float


MAX_HOST_CHARACTERS = 255


class Endpoint(NamedTuple):
    """A TCP address. `str()` gives the "host:port" form used in ZooKeeper and in configuration."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"

    @property
    def system_host(self) -> str:
        """The host as the system takes it: an IPv6 address without the brackets that it has in texts."""
        host = self.host
        return host[1:-1] if host.startswith("[") and host.endswith("]") else host

    @property
    def valid(self) -> bool:
        """Whether it can be an address at all: what a directory carries and what is connected to."""
        host = self.host
        return 0 < self.port < 65536 and 0 < len(host) <= MAX_HOST_CHARACTERS and host.isprintable()

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parse "host:port" (the last colon separates); ValueError with one clear line otherwise."""
        host, colon, port_text = text.strip().rpartition(":")
        if not colon or not host:
            raise ValueError(f"'{text}' is not an address of the form host:port")
        if not (port_text.isascii() and port_text.isdigit()) or not 0 < int(port_text) < 65536:
            raise ValueError(f"'{port_text}' in '{text}' is not a port (1 to 65535)")
        return cls(host, int(port_text))


def can_be_host(name: str) -> bool:
    """Whether the system can be asked for it at all: an address, or what the codec of host names takes."""
    try:
        return bool(name.encode("idna")) and " " not in name and name.isprintable()
    except UnicodeError:
        return False


def data_checksum(data: bytes | bytearray | memoryview) -> int:
    """CRC-32 (IEEE, zlib) of `data` as a signed i32."""
    crc = crc32(data)
    return crc - ((crc & 0x80000000) << 1)
