"""Messages about named producers, as a server takes them: whatever the bytes are, a ProtocolError, a refusal,
or a record that ZooKeeper can keep."""

from __future__ import annotations

from collections.abc import Iterator

from tests.fuzz.codec_properties import decoded
from tests.fuzz.target import Target
from waltz_cluster.errors import ConfigError
from waltz_cluster.serializers import ProducerRecord
from waltz_protocol.codec import CLIENT
from waltz_protocol.messages.fields import CheckpointEntry, Message
from waltz_protocol.messages.producers import (
    REQUESTS,
    ProducerCheckpointsRequest,
    ProducerCode,
    ProducerCreateRequest,
    ProducerEpochRequest,
    ProducerFindRequest,
    ProducerResponse,
    ProducerWatchRequest,
)
from waltz_protocol.types import ReqId
from waltz_server.producers import check_fields, checkpoints_of

PARTITIONS = 8
_ID = ReqId(-1, 0, 0, 2)
_MARKS = (CheckpointEntry(0, -1, 9, 3), CheckpointEntry(7, 41, 50, -1))
_MESSAGES: tuple[Message, ...] = (
    ProducerFindRequest(_ID, "orders"),
    ProducerCreateRequest(_ID, "orders", 9, _MARKS),
    ProducerEpochRequest(_ID, "orders", 4),
    ProducerWatchRequest(_ID, "orders"),
    ProducerCheckpointsRequest(_ID, "orders", 4, _MARKS),
    ProducerResponse(_ID, ProducerCode.DONE, 9, 4, _MARKS, None),
    ProducerResponse(_ID, ProducerCode.LATER, -1, -1, (), "é"),
)


def check(data: bytes) -> None:
    message = decoded(CLIENT, data, ProducerFindRequest.SINCE)
    if not isinstance(message, REQUESTS):
        return
    try:
        check_fields(message, PARTITIONS)
    except ConfigError:
        return
    if isinstance(message, ProducerCreateRequest):
        record = ProducerRecord(message.client_id, 0, checkpoints_of(message.checkpoints))
        assert len(record.checkpoints) == len(message.checkpoints) <= PARTITIONS
        assert ProducerRecord.from_bytes(record.to_bytes()) == record


def seeds() -> Iterator[bytes]:
    for message in _MESSAGES:
        yield CLIENT.encode_body(message, ProducerFindRequest.SINCE)


TARGET = Target(check, seeds)
