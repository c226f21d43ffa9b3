"""Fast paths for the two messages a reading client handles by the hundred thousand. Pure.

Everything else goes through ``waltz_protocol.codec``. Byte layouts: client-server protocol, messages
FEED_DATA (4), TRANSACTION_DATA_REQUEST (6) and TRANSACTION_DATA_RESPONSE (7).
"""

from __future__ import annotations

import struct
import zlib
from typing import NamedTuple

from waltz_protocol.errors import ProtocolError

FEED_DATA = 4
FEED_DATA_BODY_BYTES = 29
TRANSACTION_DATA_RESPONSE = 7

unpack_feed_data = struct.Struct(">iiiiqi").unpack_from
"""``unpack_feed_data(body, 1)`` -> (client id, generation, partition id, seq num, transaction id, header)."""

pack_req_id = struct.Struct(">iiii").pack

_DATA_REQUEST = struct.Struct(">bhibiiiiq")
_MAGIC = 0x4C
_DATA_REQUEST_BODY_BYTES = 25

_RESPONSE_HEAD = struct.Struct(">iiiiqbi")
_RESPONSE_HEAD_BYTES = 1 + _RESPONSE_HEAD.size
_I32 = struct.Struct(">i")


def pack_data_request(
    version: int, client_id: int, generation: int, partition_id: int, seq_num: int, txid: int
) -> bytes:
    """A whole TRANSACTION_DATA_REQUEST frame."""
    return _DATA_REQUEST.pack(
        _MAGIC, version, _DATA_REQUEST_BODY_BYTES, 6, client_id, generation, partition_id, seq_num, txid
    )


class DataResponse(NamedTuple):
    """A decoded TRANSACTION_DATA_RESPONSE: data, or the server's text when it could not read."""

    partition_id: int
    seq_num: int
    transaction_id: int
    data: bytes | None
    error: str | None
    checksum: int
    """CRC-32 of the data as the signed number on the wire; 0 without data."""


def parse_data_response(body: memoryview) -> DataResponse:
    """Decode a TRANSACTION_DATA_RESPONSE body. ProtocolError when truncated, over-long or with a wrong
    checksum."""
    try:
        _, _, partition_id, seq_num, txid, ok, length = _RESPONSE_HEAD.unpack_from(body, 1)
    except struct.error as error:
        raise ProtocolError("truncated transaction data response") from error
    end = _RESPONSE_HEAD_BYTES + max(length, 0)
    if ok != 1:
        if len(body) != end:
            raise ProtocolError("transaction data response has a wrong length")
        text = bytes(body[_RESPONSE_HEAD_BYTES:end]).decode("utf-8", "replace")
        return DataResponse(partition_id, seq_num, txid, None, text, 0)
    if length < 0 or len(body) != end + 4:
        raise ProtocolError("transaction data response has a wrong length")
    data = bytes(body[_RESPONSE_HEAD_BYTES:end])
    checksum: int = _I32.unpack_from(body, end)[0]
    if zlib.crc32(data) != checksum & 0xFFFFFFFF:
        raise ProtocolError(
            f"checksum of transaction {txid} of partition {partition_id} does not match its data"
        )
    return DataResponse(partition_id, seq_num, txid, data, None, checksum)
