"""Data of transactions without message objects: requests, and responses with the data or the reason.

Pure. A server passes the bytes of a stored record on; a client handles them by the hundred thousand.
"""

import struct
from typing import NamedTuple

from waltz_protocol.checksum import crc32
from waltz_protocol.errors import ProtocolError
from waltz_protocol.frame import Magic
from waltz_protocol.frames.blocks import data_parts
from waltz_protocol.messages.client import TransactionDataRequest, TransactionDataResponse

TRANSACTION_DATA_RESPONSE = TransactionDataResponse.TYPE
MAX_ERROR_TEXT_BYTES = 4096

_MAGIC = Magic.CLIENT
_DATA_REQUEST_TYPE = TransactionDataRequest.TYPE
_DATA_REQUEST = struct.Struct(">bhibiiiiq")
_DATA_REQUEST_BODY_BYTES = 25
_RESPONSE_HEAD = struct.Struct(">iiiiqbi")  # ReqId, transaction id, whether there is data, length
_RESPONSE_HEAD_BYTES = 1 + _RESPONSE_HEAD.size
_RESPONSE_FRAME = struct.Struct(">bhib16sq?")  # up to where the length begins
_I32 = struct.Struct(">i")


def pack_data_request(
    version: int, client_id: int, generation: int, partition_id: int, seq_num: int, txid: int
) -> bytes:
    """A whole TRANSACTION_DATA_REQUEST frame."""
    return _DATA_REQUEST.pack(
        _MAGIC,
        version,
        _DATA_REQUEST_BODY_BYTES,
        _DATA_REQUEST_TYPE,
        client_id,
        generation,
        partition_id,
        seq_num,
        txid,
    )


def data_response(
    version: int, req_id: bytes, transaction_id: int, record: bytes
) -> tuple[bytes, bytes, memoryview, bytes]:
    """TRANSACTION_DATA_RESPONSE in parts, with the data of a stored record (see `blocks`)."""
    length, data, checksum = data_parts(record)
    size = _RESPONSE_HEAD_BYTES + len(data) + len(checksum)
    head = _RESPONSE_FRAME.pack(
        _MAGIC, version, size, TRANSACTION_DATA_RESPONSE, req_id, transaction_id, True
    )
    return head, length, data, checksum


def data_failure(version: int, req_id: bytes, transaction_id: int, text: str) -> bytes:
    """TRANSACTION_DATA_RESPONSE that carries an error text instead of data (clients treat it as opaque)."""
    raw = text.encode()[:MAX_ERROR_TEXT_BYTES]
    head = _RESPONSE_FRAME.pack(
        _MAGIC,
        version,
        _RESPONSE_HEAD_BYTES + len(raw),
        TRANSACTION_DATA_RESPONSE,
        req_id,
        transaction_id,
        False,
    )
    return b"".join((head, len(raw).to_bytes(4, "big"), raw))


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
    if crc32(data) != checksum & 0xFFFFFFFF:
        raise ProtocolError(
            f"checksum of transaction {txid} of partition {partition_id} does not match its data"
        )
    return DataResponse(partition_id, seq_num, txid, data, None, checksum)
