"""How a message class says what its fields look like on the wire: `Annotated` types.

A field is `name: Long`, where `Long` is `Annotated[int, Wire(...)]`; `Since(n)` beside it says that older
protocol versions lack the field. The codec reads these annotations once, at import.
"""

import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, NamedTuple, Protocol
from uuid import UUID

from waltz_protocol.buffer import MAX_LIST_INTEGERS, Reader, Writer
from waltz_protocol.errors import EncodeError, ProtocolError
from waltz_protocol.records import (
    RECORD_HEADER_SIZE,
    RECORD_OVERHEAD,
    pack_record,
    pack_record_header,
    unpack_record,
    unpack_record_header,
)
from waltz_protocol.types import REQ_ID_SIZE, Record, RecordHeader, ReqId, SessionInfo


class Message(Protocol):
    """What the codec needs of a message class (a dataclass)."""

    TYPE: ClassVar[int]
    SINCE: ClassVar[int]
    __dataclass_fields__: ClassVar[dict[str, Any]]


@dataclass(frozen=True, slots=True)
class Wire:
    """The wire form of one field; both functions get the protocol version."""

    write: Callable[[Writer, Any, int], None]
    read: Callable[[Reader, int], Any]


@dataclass(frozen=True, slots=True)
class Since:
    """The first protocol version that carries the field.

    In older versions it decodes to `default`, and only an empty value can be encoded (by leaving it out).
    """

    version: int
    default: Any = ()


class StackElement(NamedTuple):
    """One line of a remote stack trace; informative only."""

    class_name: str
    method_name: str
    file_name: str | None
    line_number: int


class RpcError(NamedTuple):
    """A failure as storage nodes report it: a text for people and a stack, often empty."""

    message: str | None
    stack: tuple[StackElement, ...] = ()


def _write_req_id(w: Writer, value: ReqId, _version: int) -> None:
    for part in value:
        w.i32(part)


def _read_req_id(r: Reader, _version: int) -> ReqId:
    return ReqId.unpack(r.raw(REQ_ID_SIZE))


def _write_int_list(w: Writer, values: tuple[int, ...] | None, _version: int) -> None:
    if values is None:
        raise EncodeError("a list of partition ids must not be null")
    w.i32_array(values)


def _read_int_list(r: Reader, _version: int) -> tuple[int, ...]:
    values = r.i32_array()
    if values is None:
        raise ProtocolError("a list has a negative count")
    return values


def _write_text_map(w: Writer, values: Mapping[str, bool], _version: int) -> None:
    w.i32(len(values))
    for key, value in values.items():
        w.text(key)
        w.boolean(value)


def _read_text_map(r: Reader, _version: int) -> dict[str, bool]:
    return {r.text() or "": r.boolean() for _ in range(r.count(5))}


def _write_int_map(w: Writer, values: Mapping[int, bool], _version: int) -> None:
    w.i32(len(values))
    for key, value in values.items():
        w.i32(key)
        w.boolean(value)


def _read_int_map(r: Reader, _version: int) -> dict[int, bool]:
    return {r.i32(): r.boolean() for _ in range(r.count(5))}


def _write_record(w: Writer, value: Record | None, _version: int) -> None:
    w.boolean(value is not None)
    if value is not None:
        w.raw(pack_record(value))


def _read_one_record(r: Reader) -> Record:
    record, r.offset = unpack_record(r.buf, r.offset)
    return record


def _read_record(r: Reader, _version: int) -> Record | None:
    return _read_one_record(r) if r.boolean() else None


def _write_record_list(w: Writer, values: tuple[Record, ...], _version: int) -> None:
    w.i32(len(values))
    for record in values:
        w.raw(pack_record(record))


def _read_record_list(r: Reader, _version: int) -> tuple[Record, ...]:
    return tuple([_read_one_record(r) for _ in range(r.count(RECORD_OVERHEAD))])


def _write_header(w: Writer, value: RecordHeader | None, _version: int) -> None:
    w.boolean(value is not None)
    if value is not None:
        w.raw(pack_record_header(value))


def _read_one_header(r: Reader) -> RecordHeader:
    header, r.offset = unpack_record_header(r.buf, r.offset)
    return header


def _read_header(r: Reader, _version: int) -> RecordHeader | None:
    return _read_one_header(r) if r.boolean() else None


def _write_header_list(w: Writer, values: tuple[RecordHeader, ...], _version: int) -> None:
    w.i32(len(values))
    for header in values:
        w.raw(pack_record_header(header))


def _read_header_list(r: Reader, _version: int) -> tuple[RecordHeader, ...]:
    return tuple([_read_one_header(r) for _ in range(r.count(RECORD_HEADER_SIZE))])


def _write_session_info(w: Writer, value: SessionInfo, _version: int) -> None:
    for part in value:
        w.i64(part)


def _write_rpc_error(w: Writer, value: RpcError, _version: int) -> None:
    w.text(value.message)
    w.i32(len(value.stack))
    for element in value.stack:
        w.text(element.class_name)
        w.text(element.method_name)
        w.text(element.file_name)
        w.i32(element.line_number)


def _read_stack_element(r: Reader) -> StackElement:
    class_name, method_name = r.text(), r.text()
    if class_name is None or method_name is None:
        raise ProtocolError("a stack element without a class or method name")
    return StackElement(class_name, method_name, r.text(), r.i32())


def _read_rpc_error(r: Reader, _version: int) -> RpcError:
    message = r.text()
    return RpcError(message, tuple([_read_stack_element(r) for _ in range(r.count(16))]))


MAX_RANGES = 64
"""In one list of ranges."""


def _write_ranges(w: Writer, values: tuple[tuple[int, int], ...], _version: int) -> None:
    if len(values) > MAX_RANGES:
        raise EncodeError(f"a list of {len(values)} ranges, more than {MAX_RANGES}")
    w.i32(len(values))
    for first, last in values:
        w.i32(first)
        w.i32(last)


def _read_ranges(r: Reader, _version: int) -> tuple[tuple[int, int], ...]:
    count = r.count(8)
    if count > MAX_RANGES:
        raise ProtocolError(f"a list of {count} ranges, more than {MAX_RANGES}")
    return tuple([(r.i32(), r.i32()) for _ in range(count)])


PART_BYTES = 16 * 1024
"""Of the servers in one part of a directory; the whole frame is a little larger."""


class ServerEntry(NamedTuple):
    """One server in a directory: where clients reach it, and partition and generation of what it owns."""

    host: str
    port: int
    partitions: tuple[tuple[int, int], ...]


def _write_servers(w: Writer, values: tuple[ServerEntry, ...], _version: int) -> None:
    w.i32(len(values))
    for host, port, partitions in values:
        w.text(host).i32(port).i32(len(partitions))
        for partition_id, generation in partitions:
            w.i32(partition_id).i32(generation)


def _read_servers(r: Reader, _version: int) -> tuple[ServerEntry, ...]:
    size = len(r.buf) - r.offset - 4
    if size > PART_BYTES:  # before anything is made of it
        raise ProtocolError(f"part of a directory with {size} bytes of servers, more than {PART_BYTES}")
    entries = []
    for _ in range(r.count(12)):
        host, port = r.text() or "", r.i32()
        entries.append(ServerEntry(host, port, tuple([(r.i32(), r.i32()) for _ in range(r.count(8))])))
    return tuple(entries)


class CheckpointEntry(NamedTuple):
    """What a named producer knows of one partition: see `waltz_cluster.serializers.Checkpoint`."""

    partition_id: int
    origin: int
    mark: int
    sequence: int


_CHECKPOINT = struct.Struct(">iqqi")
CHECKPOINT_BYTES = _CHECKPOINT.size


def _write_checkpoints(w: Writer, values: tuple[CheckpointEntry, ...], _version: int) -> None:
    if len(values) > MAX_LIST_INTEGERS:
        raise EncodeError(f"a list of {len(values)} checkpoints, more than {MAX_LIST_INTEGERS}")
    w.i32(len(values))
    for partition_id, origin, mark, sequence in values:
        w.i32(partition_id).i64(origin).i64(mark).i32(sequence)


def _read_checkpoints(r: Reader, _version: int) -> tuple[CheckpointEntry, ...]:
    count = r.count(_CHECKPOINT.size)
    if count > MAX_LIST_INTEGERS:
        raise ProtocolError(f"a list of {count} checkpoints, more than {MAX_LIST_INTEGERS}")
    entries = _CHECKPOINT.iter_unpack(r.raw(count * _CHECKPOINT.size))
    return tuple([CheckpointEntry(*entry) for entry in entries])


Int = Annotated[int, Wire(lambda w, v, _: w.i32(v), lambda r, _: r.i32())]
Long = Annotated[int, Wire(lambda w, v, _: w.i64(v), lambda r, _: r.i64())]
Bool = Annotated[bool, Wire(lambda w, v, _: w.boolean(v), lambda r, _: r.boolean())]
Text = Annotated[str | None, Wire(lambda w, v, _: w.text(v), lambda r, _: r.text())]
Octets = Annotated[bytes | None, Wire(lambda w, v, _: w.octets(v), lambda r, _: r.octets())]
Ints = Annotated[tuple[int, ...] | None, Wire(lambda w, v, _: w.i32_array(v), lambda r, _: r.i32_array())]
"""A nullable i32 array (null = count -1)."""
IntList = Annotated[tuple[int, ...], Wire(_write_int_list, _read_int_list)]
"""The same bytes, but null is not allowed."""
Ranges = Annotated[tuple[tuple[int, int], ...], Wire(_write_ranges, _read_ranges)]
"""Pairs of the first and the last number of a range."""
Servers = Annotated[tuple[ServerEntry, ...], Wire(_write_servers, _read_servers)]
Checkpoints = Annotated[tuple[CheckpointEntry, ...], Wire(_write_checkpoints, _read_checkpoints)]
Rest = Annotated[bytes, Wire(lambda w, v, _: w.raw(v), lambda r, _: bytes(r.raw(len(r.buf) - r.offset)))]
"""The bytes up to the end of the body."""
Key = Annotated[UUID, Wire(lambda w, v, _: w.uuid(v), lambda r, _: r.uuid())]
WireReqId = Annotated[ReqId, Wire(_write_req_id, _read_req_id)]
TextBoolMap = Annotated[Mapping[str, bool], Wire(_write_text_map, _read_text_map)]
IntBoolMap = Annotated[Mapping[int, bool], Wire(_write_int_map, _read_int_map)]
FoundRecord = Annotated[Record | None, Wire(_write_record, _read_record)]
RecordList = Annotated[tuple[Record, ...], Wire(_write_record_list, _read_record_list)]
FoundHeader = Annotated[RecordHeader | None, Wire(_write_header, _read_header)]
HeaderList = Annotated[tuple[RecordHeader, ...], Wire(_write_header_list, _read_header_list)]
Session = Annotated[
    SessionInfo, Wire(_write_session_info, lambda r, _: SessionInfo(r.i64(), r.i64(), r.i64()))
]
Error = Annotated[RpcError, Wire(_write_rpc_error, _read_rpc_error)]
