"""Hypothesis strategies for messages, made from the same annotations the codec reads."""

import dataclasses
import zlib
from collections.abc import Mapping
from typing import Any, get_args, get_origin, get_type_hints
from uuid import UUID

from hypothesis import strategies as st

from waltz_protocol.messages.client import AppendRequest, MountState, TransactionDataResponse
from waltz_protocol.messages.fields import (
    CheckpointEntry,
    Int,
    Long,
    Message,
    RpcError,
    ServerEntry,
    StackElement,
)
from waltz_protocol.types import Record, RecordHeader, ReqId, SessionInfo

I32 = st.integers(-(2**31), 2**31 - 1)
I64 = st.integers(-(2**63), 2**63 - 1)
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
DATA = st.binary(max_size=100)
REQ_IDS = st.builds(ReqId, I32, I32, I32, I32)
RECORDS = st.builds(Record, I64, REQ_IDS, I32, DATA, I32)
HEADERS = st.builds(RecordHeader, I64, REQ_IDS, I32)

_BY_TYPE: dict[Any, st.SearchStrategy[Any]] = {
    bool: st.booleans(),
    UUID: st.uuids(),
    ReqId: REQ_IDS,
    MountState: st.sampled_from(MountState),
    SessionInfo: st.builds(SessionInfo, I64, I64, I64),
    RpcError: st.builds(
        RpcError,
        st.none() | TEXT,
        st.lists(st.builds(StackElement, TEXT, TEXT, st.none() | TEXT, I32), max_size=3).map(tuple),
    ),
    str | None: st.none() | TEXT,
    bytes | None: DATA,
    Record | None: st.none() | RECORDS,
    RecordHeader | None: st.none() | HEADERS,
    tuple[Record, ...]: st.lists(RECORDS, max_size=3).map(tuple),
    tuple[RecordHeader, ...]: st.lists(HEADERS, max_size=3).map(tuple),
    bytes: DATA,
    tuple[tuple[int, int], ...]: st.lists(st.tuples(I32, I32), max_size=5).map(tuple),
    tuple[ServerEntry, ...]: st.lists(
        st.builds(ServerEntry, TEXT, I32, st.lists(st.tuples(I32, I32), max_size=3).map(tuple)), max_size=3
    ).map(tuple),
    tuple[CheckpointEntry, ...]: st.lists(st.builds(CheckpointEntry, I32, I64, I64, I32), max_size=3).map(
        tuple
    ),
    tuple[int, ...]: st.lists(I32, max_size=5).map(tuple),
    tuple[int, ...] | None: st.none() | st.lists(I32, max_size=5).map(tuple),
    Mapping[str, bool]: st.dictionaries(TEXT, st.booleans(), max_size=4),
    Mapping[int, bool]: st.dictionaries(I32, st.booleans(), max_size=4),
}
_WIRE_OF = {get_args(Int)[1]: I32, get_args(Long)[1]: I64}


def _field(hint: Any) -> st.SearchStrategy[Any]:
    args = get_args(hint) if get_origin(hint) is not None else ()
    for metadata in getattr(hint, "__metadata__", ()):
        if metadata in _WIRE_OF:
            return _WIRE_OF[metadata]
    return _BY_TYPE[args[0] if hasattr(hint, "__metadata__") else hint]


def _crc(data: bytes) -> int:
    return int.from_bytes(zlib.crc32(data).to_bytes(4, "big"), "big", signed=True)


def messages(cls: type[Message]) -> st.SearchStrategy[Message]:
    """Any valid message of a class, as the newest version can carry it."""
    if cls is TransactionDataResponse:
        good = st.tuples(REQ_IDS, I64, DATA).map(lambda t: TransactionDataResponse(*t, checksum=_crc(t[2])))
        bad = st.tuples(REQ_IDS, I64, TEXT).map(lambda t: TransactionDataResponse(*t[:2], None, error=t[2]))
        return good | bad
    hints = get_type_hints(cls, include_extras=True)
    built: st.SearchStrategy[Any] = st.builds(
        cls, **{f.name: _field(hints[f.name]) for f in dataclasses.fields(cls)}
    )
    if cls is AppendRequest:
        return built.map(lambda m: dataclasses.replace(m, checksum=_crc(m.data)))
    return built
