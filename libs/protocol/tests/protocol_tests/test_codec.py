"""The codec as a whole: round trips of any message, and nothing but ProtocolError for any bytes."""

from dataclasses import dataclass
from typing import Any, ClassVar

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from protocol_tests.strategies import messages
from protocol_tests.vectors import VECTORS, Vector
from waltz_protocol.codec import (
    ADMIN,
    CLIENT,
    NEWEST_CLIENT_VERSION,
    NEWEST_OF_0_13_2,
    STORAGE,
    Protocol,
    client_versions,
)
from waltz_protocol.errors import EncodeError, FrameTooLargeError, ProtocolError
from waltz_protocol.frame import FRAME_HEADER_SIZE, FrameSplitter, frame
from waltz_protocol.frames.append import parse_append
from waltz_protocol.frames.blocks import cut_stored, parse_block
from waltz_protocol.frames.data import parse_data_response
from waltz_protocol.frames.storage import parse_prefix, parse_record_list
from waltz_protocol.handshake import decode_hello
from waltz_protocol.messages import client
from waltz_protocol.messages.client import FeedBlock
from waltz_protocol.messages.fields import Long, Message
from waltz_protocol.messages.storage import StoredAppendRequest, StoredRangeResponse
from waltz_protocol.records import split_records, unpack_record, verify_record
from waltz_protocol.types import ReqId

PROTOCOLS = (CLIENT, STORAGE, ADMIN)
_CASES = [(p, cls) for p in PROTOCOLS for cls in p.messages]


@pytest.mark.parametrize(("protocol", "cls"), _CASES, ids=lambda v: getattr(v, "__name__", ""))
@settings(max_examples=30)
@given(data=st.data())
def test_any_message_survives_the_wire(protocol: Protocol, cls: type[Message], data: st.DataObject) -> None:
    message = data.draw(messages(cls))
    version = protocol.versions[-1]
    encoded = protocol.encode(message, version)
    assert protocol.decode(encoded[FRAME_HEADER_SIZE:], version) == message


@settings(max_examples=400)
@given(body=st.binary(max_size=200), code=st.integers(0, 25), version=st.integers(0, 4))
def test_random_bytes_do_no_more_than_protocol_error(body: bytes, code: int, version: int) -> None:
    for protocol in PROTOCOLS:
        for candidate in (body, bytes((code,)) + body):
            try:
                protocol.decode(candidate, min(version, protocol.versions[-1]))
            except ProtocolError:
                pass


@settings(max_examples=300)
@given(
    vector=st.sampled_from(VECTORS),
    changes=st.lists(st.tuples(st.integers(0, 10_000), st.integers(0, 255)), min_size=1, max_size=4),
    cut=st.integers(0, 60),
)
def test_damaged_messages_do_no_more_than_protocol_error(
    vector: Vector, changes: list[tuple[int, int]], cut: int
) -> None:
    body = bytearray(vector.frame[FRAME_HEADER_SIZE:])
    for place, value in changes:
        body[place % len(body)] = value
    del body[len(body) - cut % len(body) :]
    parsers: list[Any] = [
        lambda b: vector.protocol.decode(b, vector.version),
        lambda b: parse_append(b, vector.version),
        parse_data_response,
        parse_prefix,
        parse_record_list,
        lambda b: split_records(parse_record_list(b)[1], parse_record_list(b)[0]),
        lambda b: unpack_record(b, 25),
        verify_record,
        decode_hello,
    ]
    for parse in parsers:
        try:
            parse(memoryview(bytes(body)))
        except ProtocolError:
            pass


@settings(max_examples=200)
@given(stream=st.binary(max_size=300), limit=st.integers(0, 200), initial=st.integers(7, 64))
def test_a_random_stream_does_no_more_than_protocol_error(stream: bytes, limit: int, initial: int) -> None:
    splitter = FrameSplitter(max_frame_bytes=limit, initial_bytes=initial)
    fed = 0
    try:
        while fed < len(stream):
            room = splitter.get_buffer()
            n = min(len(room), len(stream) - fed)
            room[:n] = stream[fed : fed + n]
            fed += n
            for _, _, body in splitter.buffer_updated(n):
                assert 0 < len(body) <= limit
    except (ProtocolError, FrameTooLargeError):
        pass


def test_a_claimed_list_length_costs_nothing() -> None:
    huge = bytes.fromhex("10" + "00" * 16 + "7fffffff")
    with pytest.raises(ProtocolError):
        CLIENT.decode(huge, 4)
    with pytest.raises(ProtocolError):
        CLIENT.decode(bytes.fromhex("0e" + "00" * 16 + "7fffffff"), 4)


@pytest.mark.parametrize("vector", VECTORS)
def test_surplus_and_missing_bytes_are_errors(vector: Vector) -> None:
    body = vector.frame[FRAME_HEADER_SIZE:]

    def decoded(changed: bytes) -> object:
        if isinstance(vector.message, FeedBlock):  # what its records are is looked at by its own parser
            return parse_block(memoryview(changed))
        message = vector.protocol.decode(changed, vector.version)
        if isinstance(message, StoredRangeResponse | StoredAppendRequest):
            last = message.first + message.count - 1
            starts = cut_stored(message.records, 0, 3, message.first, last, message.count)
            if starts[-1] != len(message.records):
                raise ProtocolError("bytes follow the last record")
        return message

    assert decoded(body)
    with pytest.raises(ProtocolError):
        decoded(body + b"\0")
    with pytest.raises(ProtocolError):
        decoded(body[:-1])


@pytest.mark.parametrize(
    ("protocol", "version", "code"),
    [
        (CLIENT, 4, 23),
        (CLIENT, 4, 255),
        (CLIENT, 3, 21),
        (CLIENT, 1, 15),
        (CLIENT, 0, 13),
        (STORAGE, 0, 19),
        (STORAGE, 0, 0),
        (ADMIN, 0, 5),
        (ADMIN, 0, 15),
    ],
)
def test_an_unknown_type_is_an_error(protocol: Protocol, version: int, code: int) -> None:
    with pytest.raises(ProtocolError, match="unknown message type"):
        protocol.decode(bytes((code,)) + bytes(40), version)


def test_only_one_is_true() -> None:
    body = bytes.fromhex("12" + "00" * 16)
    assert CLIENT.decode(body + b"\x01", 4) == client.AddPreferredPartitionResponse(ReqId(0, 0, 0, 0), True)
    for byte in (0, 2, 255):
        message = CLIENT.decode(body + bytes((byte,)), 4)
        assert message == client.AddPreferredPartitionResponse(ReqId(0, 0, 0, 0), False)


def test_an_unknown_mount_state_is_an_error() -> None:
    with pytest.raises(ProtocolError, match="mount state 4"):
        CLIENT.decode(bytes.fromhex("01" + "00" * 16 + "00000004"), 4)


def test_text_that_is_not_utf8_is_replaced_not_refused() -> None:
    body = bytes.fromhex("07" + "00" * 24 + "00" + "00000002" + "ff41")
    message = CLIENT.decode(body, 4)
    assert isinstance(message, client.TransactionDataResponse)
    assert message.error == "\ufffdA"


def test_values_that_do_not_fit_are_encode_errors() -> None:
    with pytest.raises(EncodeError):
        CLIENT.encode(client.FeedData(ReqId(0, 0, 0, 0), 2**63, 0), 4)
    with pytest.raises(EncodeError):
        CLIENT.encode(client.FeedData(ReqId(2**31, 0, 0, 0), 0, 0), 4)
    with pytest.raises(EncodeError):
        CLIENT.encode(client.AddPreferredPartitionRequest(ReqId(0, 0, 0, 0), (2**31,)), 4)
    with pytest.raises(EncodeError):
        frame(CLIENT.magic, 2**15, b"")
    with pytest.raises(EncodeError, match="no message of the storage"):
        STORAGE.encode(client.FeedSuspended(ReqId(0, 0, 0, 0)), 0)


def test_a_type_used_twice_is_rejected_when_the_protocol_is_made() -> None:
    with pytest.raises(TypeError, match="both have type 3"):
        Protocol("broken", 1, (0,), (client.FeedRequest, client.FeedRequest))


@dataclass(frozen=True)
class _NoWireForm:
    TYPE: ClassVar[int] = 1
    SINCE: ClassVar[int] = 0
    a: Long
    b: int


def test_a_field_without_a_wire_form_is_rejected_when_the_protocol_is_made() -> None:
    with pytest.raises(TypeError, match=r"_NoWireForm\.b"):
        Protocol("broken", 1, (0,), (_NoWireForm,))


def test_a_side_can_leave_out_what_is_newer_than_0_13_2() -> None:
    assert client_versions(NEWEST_OF_0_13_2) == (0, 1, 2, 3, 4)
    assert client_versions(NEWEST_CLIENT_VERSION) == CLIENT.versions == (0, 1, 2, 3, 4, 5)
