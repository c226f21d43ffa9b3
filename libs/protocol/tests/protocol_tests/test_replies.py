"""The packed answers are the bytes of the protocol's catalogue, and those of the general codec, in every
version."""

from types import SimpleNamespace

import pytest

from waltz_protocol.codec import CLIENT
from waltz_protocol.frames import data, replies
from waltz_protocol.frames.blocks import stored_of_entry
from waltz_protocol.frames.feed import frames_of_entries, frames_of_records
from waltz_protocol.messages.client import (
    FeedData,
    FeedSuspended,
    FlushResponse,
    HighWaterMarkResponse,
    LockFailure,
    MountResponse,
    MountState,
    TransactionDataResponse,
)
from waltz_protocol.types import ReqId, data_checksum

R = ReqId(1, 2, 3, 4)
RAW = R.pack()
TAIL = bytes.fromhex("00000010 00000005 68656C6C6F 3610A686")
RH = "00000001000000020000000300000004"


def test_catalogue_hex() -> None:
    assert replies.mount_response(4, RAW, MountState.READY) == bytes.fromhex(
        f"4C 0004 00000015 01 {RH} 00000000"
    )
    assert replies.mount_response(4, RAW, MountState.NOT_READY) == bytes.fromhex(
        f"4C 0004 00000015 01 {RH} 00000001"
    )
    assert replies.mount_response(4, RAW, MountState.CLIENT_AHEAD) == bytes.fromhex(
        f"4C 0004 00000015 01 {RH} 00000002"
    )
    assert replies.mount_response(2, RAW, MountState.READY) == bytes.fromhex(f"4C 0002 00000012 01 {RH} 01")
    assert replies.mount_response(2, RAW, MountState.NOT_READY) == bytes.fromhex(
        f"4C 0002 00000012 01 {RH} 00"
    )
    assert replies.feed_suspended(4, RAW) == bytes.fromhex(f"4C 0004 00000011 05 {RH}")
    assert replies.flush_response(4, RAW, 100) == bytes.fromhex(f"4C 0004 00000019 09 {RH} 0000000000000064")
    assert replies.lock_failure(4, RAW, 100) == bytes.fromhex(f"4C 0004 00000019 0A {RH} 0000000000000064")
    assert replies.high_water_mark_response(4, RAW, 100) == bytes.fromhex(
        f"4C 0004 00000019 0C {RH} 0000000000000064"
    )
    assert b"".join(data.data_response(4, RAW, 100, stored_of_entry(100, RAW, TAIL))) == bytes.fromhex(
        f"4C 0004 00000027 07 {RH} 0000000000000064 01 00000005 68656C6C6F 3610A686"
    )
    assert data.data_failure(4, RAW, 100, "partition not ready") == bytes.fromhex(
        f"4C 0004 00000031 07 {RH} 0000000000000064 00 00000013 706172746974696F6E206E6F74207265616479"
    )
    entries = [SimpleNamespace(req_id=RAW, transaction_id=100 + n, tail=TAIL) for n in range(2)]
    assert frames_of_entries(entries) == bytes.fromhex(
        f"4C 0004 0000001D 04 {RH} 0000000000000064 00000010 4C 0004 0000001D 04 {RH} 0000000000000065 00000010"
    )


def test_client_server_13_03_client_ahead_is_not_ready_before_version_3() -> None:
    for version in (0, 1, 2):
        assert replies.mount_response(version, RAW, MountState.CLIENT_AHEAD)[-1:] == b"\0"


@pytest.mark.parametrize("version", range(5))
def test_same_bytes_as_the_codec(version: int) -> None:
    for state in MountState:
        assert replies.mount_response(version, RAW, state) == CLIENT.encode(MountResponse(R, state), version)
    assert replies.feed_suspended(version, RAW) == CLIENT.encode(FeedSuspended(R), version)
    assert replies.flush_response(version, RAW, -1) == CLIENT.encode(FlushResponse(R, -1), version)
    assert replies.lock_failure(version, RAW, 2**40) == CLIENT.encode(LockFailure(R, 2**40), version)
    assert replies.high_water_mark_response(version, RAW, 7) == CLIENT.encode(
        HighWaterMarkResponse(R, 7), version
    )
    success = TransactionDataResponse(R, 9, b"hello", data_checksum(b"hello"))
    assert b"".join(data.data_response(version, RAW, 9, stored_of_entry(9, RAW, TAIL))) == CLIENT.encode(
        success, version
    )
    failure = TransactionDataResponse(R, 9, None, 0, "no")
    assert data.data_failure(version, RAW, 9, "no") == CLIENT.encode(failure, version)


def test_feed_frames_from_wire_records() -> None:
    records = [n.to_bytes(8, "big") + RAW + TAIL for n in (5, 6)]
    expected = b"".join(CLIENT.encode(FeedData(R, n, 0x10), 4) for n in (5, 6))
    assert frames_of_records(records) == expected
