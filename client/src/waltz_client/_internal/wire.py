"""Moved to `waltz_protocol.frames`."""

from waltz_protocol.frames.data import (
    TRANSACTION_DATA_RESPONSE,
    DataResponse,
    pack_data_request,
    parse_data_response,
)
from waltz_protocol.frames.feed import FEED_DATA, FEED_DATA_BODY_BYTES, unpack_feed_data
from waltz_protocol.types import pack_req_id

__all__ = [
    "FEED_DATA",
    "FEED_DATA_BODY_BYTES",
    "TRANSACTION_DATA_RESPONSE",
    "DataResponse",
    "pack_data_request",
    "pack_req_id",
    "parse_data_response",
    "unpack_feed_data",
]
