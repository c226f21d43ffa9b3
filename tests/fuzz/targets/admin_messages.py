"""All messages on the admin port of storage nodes."""

from __future__ import annotations

from collections.abc import Iterator
from uuid import UUID

from tests.fuzz.codec_properties import decoded, recorded_bodies
from tests.fuzz.target import Target
from waltz_protocol.codec import ADMIN
from waltz_protocol.frame import Magic
from waltz_protocol.messages import admin
from waltz_protocol.messages.fields import RpcError, StackElement
from waltz_protocol.types import Record, ReqId, SessionInfo, data_checksum


def check(data: bytes) -> None:
    decoded(ADMIN, data, 0)


def seeds() -> Iterator[bytes]:
    for _, body in recorded_bodies(Magic.ADMIN):
        yield body
    record = Record(7, ReqId(1, 2, 3, 4), -5, b"data", data_checksum(b"data"))
    for message in (
        admin.SuccessResponse(1),
        admin.FailureResponse(2, RpcError("no", (StackElement("C", "m", None, 3),))),
        admin.OpenRequest(-1, UUID(int=5), 4),
        admin.PartitionAvailableRequest(3, (1, 2), True),
        admin.PartitionAssignmentRequest(4, None, False, True),
        admin.RecordListRequest(5, 0, 9, 10),
        admin.RecordListResponse(6, 0, (record, record)),
        admin.LastSessionInfoRequest(7, 1),
        admin.LastSessionInfoResponse(8, 1, SessionInfo(1, 2, 3)),
        admin.MetricsRequest(9),
        admin.MetricsResponse(10, '{"a": 1}'),
        admin.AssignedPartitionStatusRequest(11),
        admin.AssignedPartitionStatusResponse(12, {0: True, 3: False}),
    ):
        yield ADMIN.encode_body(message, 0)


TARGET = Target(check, seeds)
