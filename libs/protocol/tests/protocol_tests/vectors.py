"""Frames of every message in every version that changes it, with the message each one stands for."""

from typing import NamedTuple
from uuid import UUID

from waltz_protocol.codec import ADMIN, CLIENT, STORAGE, Protocol
from waltz_protocol.messages import admin, client, directory, producers, storage
from waltz_protocol.messages.client import MountState
from waltz_protocol.messages.fields import CheckpointEntry, Message, RpcError, ServerEntry, StackElement
from waltz_protocol.types import Record, RecordHeader, ReqId, SessionInfo


class Vector(NamedTuple):
    protocol: Protocol
    version: int
    message: Message
    frame: bytes


R = ReqId(1, 2, 3, 4)
ADMIN_R = ReqId(1, 0, 0, 0)
PREFERRED_R = ReqId(1, 0, 3, 0)
ACCT, USER, HELLO_CRC = 0x002D9814, 0x0036EBCB, 0x3610A686
KEY = UUID("00112233-4455-6677-8899-aabbccddeeff")
RECORD = Record(42, ReqId(7, 1, 3, 1), 1234, b"hello", HELLO_CRC)
RECORD_HEADER = RecordHeader(42, ReqId(7, 1, 3, 1), 1234)
INFO = SessionInfo(4, 41, 40)

CLIENT_HELLO = bytes.fromhex(
    "48 0000 0000001E  00000005 0000 0001 0002 0003 0004  0000000C 57616C747A20436C69656E74"
)
SERVER_HELLO = bytes.fromhex(
    "48 0000 0000001E  00000005 0000 0001 0002 0003 0004  0000000C 57616C747A20536572766572"
)
STORAGE_CLIENT_HELLO = bytes.fromhex(
    "48 0000 0000001e  00000001 0000  00000014 57616c747a2053746f7261676520436c69656e74"
)
CLIENT_KEEP_ALIVE = bytes.fromhex("4C 0004 00000000")
STORAGE_KEEP_ALIVE = bytes.fromhex("53 0000 00000000")


def _client(hex_text: str, message: Message) -> Vector:
    frame = bytes.fromhex(hex_text)
    return Vector(CLIENT, frame[2], message, frame)


def _append(read: tuple[int, ...] = (), append: tuple[int, ...] = (), header: int = 0x10) -> Message:
    return client.AppendRequest(R, 99, (ACCT,), read, append, header, b"hello", HELLO_CRC)


_ID = "00000001000000020000000300000004"
_A = "00000001000000000000000000000000"
_P = "00000001000000000000000300000000"
_99 = "0000000000000063"
_100 = "0000000000000064"

STORED_RECORD = bytes.fromhex(
    "000000000000002A  00000007 00000001 00000003 00000001  00000010  00000005 3610A686 68656C6C6F AA38B52E"
)
"""Transaction 42 with the data "hello", as a segment file holds it."""

_ORDERS = "00000006 6F7264657273"
_MARKS = "00000001 00000003 0000000000000029 0000000000000032 00000005"
MARKS = (CheckpointEntry(3, 41, 50, 5),)

CLIENT_VECTORS = [
    _client(f"4C 0004 00000021  00 {_ID}  {_99}  0000000000000000", client.MountRequest(R, 99, 0)),
    _client(f"4C 0004 00000015  01 {_ID}  00000000", client.MountResponse(R, MountState.READY)),
    _client(f"4C 0004 00000015  01 {_ID}  00000001", client.MountResponse(R, MountState.NOT_READY)),
    _client(f"4C 0004 00000015  01 {_ID}  00000002", client.MountResponse(R, MountState.CLIENT_AHEAD)),
    _client(f"4C 0002 00000012  01 {_ID}  01", client.MountResponse(R, MountState.READY)),
    _client(f"4C 0002 00000012  01 {_ID}  00", client.MountResponse(R, MountState.NOT_READY)),
    _client(
        f"4C 0004 0000003A  02 {_ID}  {_99} 00000001 002D9814   00000000   00000000"
        "00000010   00000005 68656C6C6F   3610A686",
        _append(),
    ),
    _client(
        f"4C 0004 00000046  02 {_ID}  {_99} 00000001 002D9814   00000001 0036EBCB"
        "00000002 002D9814 0036EBCB   FFFFFFFF   00000005 68656C6C6F   3610A686",
        _append((USER,), (ACCT, USER), -1),
    ),
    _client(
        f"4C 0001 00000036  02 {_ID}  {_99} 00000001 002D9814 00000000 00000010 00000005 68656C6C6F 3610A686",
        _append(),
    ),
    _client(
        f"4C 0000 00000032  02 {_ID}  {_99} 00000001 002D9814   00000010   00000005 68656C6C6F   3610A686",
        _append(),
    ),
    _client(f"4C 0004 00000019  03 {_ID}  {_99}", client.FeedRequest(R, 99)),
    _client(f"4C 0004 0000001D  04 {_ID}  {_100}  00000010", client.FeedData(R, 100, 0x10)),
    _client(f"4C 0004 00000011  05 {_ID}", client.FeedSuspended(R)),
    _client(f"4C 0004 00000019  06 {_ID}  {_100}", client.TransactionDataRequest(R, 100)),
    _client(
        f"4C 0004 00000027  07 {_ID}  {_100}  01 00000005 68656C6C6F 3610A686",
        client.TransactionDataResponse(R, 100, b"hello", HELLO_CRC),
    ),
    _client(
        f"4C 0004 00000031  07 {_ID}  {_100}  00 00000013 706172746974696F6E206E6F74207265616479",
        client.TransactionDataResponse(R, 100, None, error="partition not ready"),
    ),
    _client(f"4C 0004 00000011  08 {_ID}", client.FlushRequest(R)),
    _client(f"4C 0004 00000019  09 {_ID}  {_100}", client.FlushResponse(R, 100)),
    _client(f"4C 0004 00000019  0A {_ID}  {_100}", client.LockFailure(R, 100)),
    _client(f"4C 0004 00000011  0B {_ID}", client.HighWaterMarkRequest(R)),
    _client(f"4C 0004 00000019  0C {_ID}  {_100}", client.HighWaterMarkResponse(R, 100)),
    _client(f"4C 0004 00000011  0D {_A}", client.CheckStorageConnectivityRequest(ADMIN_R)),
    _client(
        f"4C 0004 00000023  0E {_A}  00000001  00000009 7374313A3535323830 01",
        client.CheckStorageConnectivityResponse(ADMIN_R, {"st1:55280": True}),
    ),
    _client(f"4C 0004 00000011  0F {_A}", client.ServerPartitionsAssignmentRequest(ADMIN_R)),
    _client(
        f"4C 0004 0000001D  10 {_A}  00000002 00000000 00000003",
        client.ServerPartitionsAssignmentResponse(ADMIN_R, (0, 3)),
    ),
    _client(
        f"4C 0004 0000001D  11 {_P}  00000002 00000003 00000005",
        client.AddPreferredPartitionRequest(PREFERRED_R, (3, 5)),
    ),
    _client(f"4C 0004 00000012  12 {_P}  01", client.AddPreferredPartitionResponse(PREFERRED_R, True)),
    _client(
        f"4C 0004 00000019  13 {_P}  00000001 00000003",
        client.RemovePreferredPartitionRequest(PREFERRED_R, (3,)),
    ),
    _client(f"4C 0004 00000012  14 {_P}  00", client.RemovePreferredPartitionResponse(PREFERRED_R, False)),
    _client(f"4C 0004 00000011  15 {_A}", client.ServerPartitionsHealthStatRequest(ADMIN_R)),
    _client(
        f"4C 0004 0000001F  16 {_A}  00000002  00000000 01  00000003 00",
        client.ServerPartitionsHealthStatResponse(ADMIN_R, {0: True, 3: False}),
    ),
    _client(
        f"4C 0005 0000003D  20 {_ID}  0000000000000029 FFFFFFFFFFFFFFFF 00000064 0000000000010000 00000000"
        "00000001 00000010 0000001F",
        client.BlockFeedRequest(R, 41, client.WITHOUT_END, 100, 65536, 0, ((16, 31),)),
    ),
    _client(
        f"4C 0005 00000056  21 {_ID}  000000000000002A 000000000000002A 00000001 00000001 {STORED_RECORD.hex()}",
        client.FeedBlock(R, 42, 42, 1, 1, STORED_RECORD),
    ),
    _client(f"4C 0005 0000001D  22 {_ID}  00000032 0000000000001000", client.BlockCredit(R, 50, 4096)),
    _client(f"4C 0005 00000011  23 {_ID}", client.BlockFeedEnd(R)),
    _client(f"4C 0005 0000001D  24 {_ID}  00000001 00000004 676F6E65", client.BlockFailure(R, 1, "gone")),
    _client(f"4C 0005 0000001D  25 {_ID}  00000002 00000004 676F6E65", client.CloseNotice(R, 2, "gone")),
    _client(f"4C 0005 00000011  26 {_ID}", client.UnmountRequest(R)),
    _client(f"4C 0005 00000011  27 {_ID}", directory.DirectoryRequest(R)),
    _client(
        f"4C 0005 0000006F  28 {_ID}  0000000700000003 00000001 00000000 00000001  00000002 6331"
        "00112233445566778899AABBCCDDEEFF 00000004  00000002"
        "00000002 7331 0000D78C 00000002 00000000 00000005 00000003 00000006  00000002 7332 0000D78C 00000000",
        directory.DirectoryPart(
            R,
            7 << 32 | 3,
            1,
            0,
            1,
            "c1",
            KEY,
            4,
            (ServerEntry("s1", 55180, ((0, 5), (3, 6))), ServerEntry("s2", 55180, ())),
        ),
    ),
    _client(f"4C 0005 00000011  29 {_ID}", directory.ClientIdRequest(R)),
    _client(f"4C 0005 00000019  2A {_ID}  00000009 FFFFFFFF", directory.ClientIdResponse(R, 9, None)),
    _client(
        f"4C 0005 00000025  2B {_ID}  0000000000000009 0000000000000007 00000003",
        producers.ProducerMountRequest(R, 9, 7, 3),
    ),
    _client(f"4C 0005 0000001B  2C {_ID}  {_ORDERS}", producers.ProducerFindRequest(R, "orders")),
    _client(
        f"4C 0005 0000003B  2D {_ID}  {_ORDERS} 00000009 {_MARKS}",
        producers.ProducerCreateRequest(R, "orders", 9, MARKS),
    ),
    _client(
        f"4C 0005 0000001F  2E {_ID}  {_ORDERS} 00000004", producers.ProducerEpochRequest(R, "orders", 4)
    ),
    _client(f"4C 0005 0000001B  2F {_ID}  {_ORDERS}", producers.ProducerWatchRequest(R, "orders")),
    _client(
        f"4C 0005 0000003B  30 {_ID}  {_ORDERS} 00000004 {_MARKS}",
        producers.ProducerCheckpointsRequest(R, "orders", 4, MARKS),
    ),
    _client(
        f"4C 0005 0000003D  31 {_ID}  00000000 00000009 00000004 {_MARKS} FFFFFFFF",
        producers.ProducerResponse(R, 0, 9, 4, MARKS, None),
    ),
    _client(
        f"4C 0005 00000029  31 {_ID}  00000003 FFFFFFFF FFFFFFFF 00000000 00000004 676F6E65",
        producers.ProducerResponse(R, 3, -1, -1, (), "gone"),
    ),
    _client(f"4C 0004 00000015  78 {_A}  00000005", client.ServerReportRequest(ADMIN_R, 5)),
    _client(f"4C 0004 00000017  79 {_A}  00000002 7B7D", client.ServerReportResponse(ADMIN_R, "{}")),
]

_STACK = RpcError("boom", (StackElement("a.B", "m", "B.java", 9), StackElement("a.C", "n", None, -2)))
_PREFIX_1 = "0000000000000005 0000000000000006 00000003"
_STORAGE_1: list[tuple[Message, str]] = [
    (
        storage.StoredRangeRequest(5, 6, 3, 42, 141, 90, 65536, storage.UNRESOLVED),
        f"53 0001 00000035 20 {_PREFIX_1} 000000000000002A 000000000000008D 000000000000005A 00010000 00000001",
    ),
    (
        storage.StoredRangeResponse(5, 6, 3, 42, 1, STORED_RECORD),
        f"53 0001 0000004E  21 {_PREFIX_1}  000000000000002A 00000001 {STORED_RECORD.hex()}",
    ),
    (
        storage.StoredAppendRequest(5, 6, 3, 41, 42, 1, STORED_RECORD),
        f"53 0001 00000056  22 {_PREFIX_1}  0000000000000029 000000000000002A 00000001 {STORED_RECORD.hex()}",
    ),
]

_STORAGE: list[tuple[Message, str]] = [
    (
        storage.OpenRequest(-1, -1, -1, KEY, 4),
        "5300000000002901ffffffffffffffffffffffffffffffffffffffff00112233445566778899aabbccddeeff00000004",
    ),
    (
        storage.LastSessionInfoRequest(5, 0, 3),
        "5300000000001602000000000000000500000000000000000000000300",
    ),
    (
        storage.LastSessionInfoResponse(5, 0, 3, INFO),
        "5300000000002d030000000000000005000000000000000000000003000000000000000400000000000000290000000000000028",
    ),
    (
        storage.SetLowWaterMarkRequest(5, 1, 3, 41),
        "5300000000001e040000000000000005000000000000000100000003000000000000002900",
    ),
    (
        storage.TruncateRequest(5, 2, 3, 41, True),
        "5300000000001e050000000000000005000000000000000200000003000000000000002901",
    ),
    (
        storage.AppendRequest(5, 3, 3, (RECORD,)),
        "5300000000004306000000000000000500000000000000030000000300000001000000000000002a00000007000000010000000300000001000004d20000000568656c6c6f3610a68600",
    ),
    (storage.SuccessResponse(5, 3, 3), "53000000000015070000000000000005000000000000000300000003"),
    (
        storage.FailureResponse(5, 3, 3, _STACK),
        "5300000000004f08000000000000000500000000000000030000000300000004626f6f6d0000000200000003612e42000000016d00000006422e6a6176610000000900000003612e43000000016efffffffffffffffe",
    ),
    (
        storage.FailureResponse(5, 3, 3, RpcError("boom")),
        "5300000000002108000000000000000500000000000000030000000300000004626f6f6d00000000",
    ),
    (
        storage.RecordHeaderRequest(5, 4, 3, 42),
        "5300000000001d090000000000000005000000000000000400000003000000000000002a",
    ),
    (
        storage.RecordHeaderResponse(5, 4, 3, RECORD_HEADER),
        "530000000000320a000000000000000500000000000000040000000301000000000000002a00000007000000010000000300000001000004d2",
    ),
    (
        storage.RecordHeaderResponse(5, 4, 3, None),
        "530000000000160a000000000000000500000000000000040000000300",
    ),
    (
        storage.RecordRequest(5, 5, 3, 42),
        "5300000000001d0b0000000000000005000000000000000500000003000000000000002a",
    ),
    (
        storage.RecordResponse(5, 5, 3, RECORD),
        "5300000000003f0c000000000000000500000000000000050000000301000000000000002a00000007000000010000000300000001000004d20000000568656c6c6f3610a686",
    ),
    (storage.RecordResponse(5, 5, 3, None), "530000000000160c000000000000000500000000000000050000000300"),
    (
        storage.MaxTransactionIdRequest(5, 6, 3),
        "530000000000160d000000000000000500000000000000060000000300",
    ),
    (
        storage.MaxTransactionIdResponse(5, 6, 3, 42),
        "5300000000001d0e0000000000000005000000000000000600000003000000000000002a",
    ),
    (
        storage.RecordHeaderListRequest(5, 7, 3, 42, 20),
        "530000000000210f0000000000000005000000000000000700000003000000000000002a00000014",
    ),
    (
        storage.RecordHeaderListResponse(5, 7, 3, (RECORD_HEADER,)),
        "5300000000003510000000000000000500000000000000070000000300000001000000000000002a00000007000000010000000300000001000004d2",
    ),
    (
        storage.RecordListRequest(5, 8, 3, 42, 20),
        "53000000000021110000000000000005000000000000000800000003000000000000002a00000014",
    ),
    (
        storage.RecordListResponse(5, 8, 3, (RECORD,)),
        "5300000000004212000000000000000500000000000000080000000300000001000000000000002a00000007000000010000000300000001000004d20000000568656c6c6f3610a686",
    ),
]

_ADMIN: list[tuple[Message, str]] = [
    (admin.SuccessResponse(1), "41000000000009010000000000000001"),
    (admin.FailureResponse(1, RpcError("boom")), "4100000000001502000000000000000100000004626f6f6d00000000"),
    (
        admin.OpenRequest(-1, KEY, 4),
        "4100000000001d03ffffffffffffffff00112233445566778899aabbccddeeff00000004",
    ),
    (
        admin.PartitionAvailableRequest(1, (0, 3), True),
        "4100000000001604000000000000000100000002000000000000000301",
    ),
    (
        admin.PartitionAssignmentRequest(1, (0, 3), False, True),
        "410000000000170600000000000000010000000200000000000000030001",
    ),
    (
        admin.RecordListRequest(1, 3, 42, 20),
        "4100000000001907000000000000000100000003000000000000002a00000014",
    ),
    (
        admin.RecordListResponse(1, 3, (RECORD,)),
        "4100000000003a0800000000000000010000000300000001000000000000002a00000007000000010000000300000001000004d20000000568656c6c6f3610a686",
    ),
    (admin.LastSessionInfoRequest(1, 3), "4100000000000d09000000000000000100000003"),
    (
        admin.LastSessionInfoResponse(1, 3, INFO),
        "410000000000250a000000000000000100000003000000000000000400000000000000290000000000000028",
    ),
    (admin.MetricsRequest(1), "410000000000090b0000000000000001"),
    (admin.MetricsResponse(1, "{}"), "4100000000000f0c0000000000000001000000027b7d"),
    (admin.AssignedPartitionStatusRequest(1), "410000000000090d0000000000000001"),
    (
        admin.AssignedPartitionStatusResponse(1, {0: True, 3: False}),
        "410000000000170e00000000000000010000000200000000010000000300",
    ),
]
_ADMIN_1: list[tuple[Message, str]] = [
    (admin.NodeReportRequest(1, True), "4100010000000a0f000000000000000101"),
    (admin.NodeReportResponse(1, "{}"), "4100010000000f100000000000000001000000027b7d"),
]

VECTORS = [
    *CLIENT_VECTORS,
    *(Vector(STORAGE, 0, message, bytes.fromhex(text)) for message, text in _STORAGE),
    *(Vector(STORAGE, 1, message, bytes.fromhex(text)) for message, text in _STORAGE_1),
    *(Vector(ADMIN, 0, message, bytes.fromhex(text)) for message, text in _ADMIN),
    *(Vector(ADMIN, 1, message, bytes.fromhex(text)) for message, text in _ADMIN_1),
]
