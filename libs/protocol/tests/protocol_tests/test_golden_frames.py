"""Every known frame decodes to its message and encodes back, fed whole, byte by byte and in pieces."""

import random

import pytest

from protocol_tests.vectors import (
    CLIENT_HELLO,
    CLIENT_KEEP_ALIVE,
    CLIENT_VECTORS,
    SERVER_HELLO,
    STORAGE_CLIENT_HELLO,
    STORAGE_KEEP_ALIVE,
    VECTORS,
    Vector,
)
from waltz_protocol.codec import ADMIN, CLIENT, STORAGE
from waltz_protocol.errors import EncodeError
from waltz_protocol.frame import FRAME_HEADER_SIZE, FrameSplitter, keep_alive_frame
from waltz_protocol.handshake import Hello, decode_hello, encode_hello
from waltz_protocol.messages import client
from waltz_protocol.messages.client import MountState

_IDS = [f"{v.protocol.name}-{v.version}-{type(v.message).__name__}" for v in VECTORS]


@pytest.mark.parametrize("vector", VECTORS, ids=_IDS)
def test_a_known_frame_decodes_and_encodes(vector: Vector) -> None:
    assert vector.protocol.decode(vector.frame[FRAME_HEADER_SIZE:], vector.version) == vector.message
    assert vector.protocol.encode(vector.message, vector.version) == vector.frame


def test_every_message_has_a_vector() -> None:
    covered = {(v.protocol.name, type(v.message)) for v in VECTORS}
    for protocol in (CLIENT, STORAGE, ADMIN):
        for cls in protocol.messages:
            assert (protocol.name, cls) in covered


@pytest.mark.parametrize("version", CLIENT.versions)
def test_messages_that_did_not_change_have_the_same_body_in_every_version(version: int) -> None:
    changed = (client.MountResponse, client.AppendRequest)
    for vector in CLIENT_VECTORS:
        if isinstance(vector.message, changed) or version < vector.message.SINCE:
            continue
        stamped = vector.frame[:1] + version.to_bytes(2, "big") + vector.frame[3:]
        assert CLIENT.encode(vector.message, version) == stamped
        assert CLIENT.decode(stamped[FRAME_HEADER_SIZE:], version) == vector.message


def _chunks(data: bytes, how: str) -> list[bytes]:
    if how == "whole":
        return [data]
    if how == "bytes":
        return [data[i : i + 1] for i in range(len(data))]
    rng = random.Random(how)
    cuts = sorted(rng.sample(range(1, len(data)), min(len(data) - 1, 40)))
    return [data[a:b] for a, b in zip([0, *cuts], [*cuts, len(data)], strict=True)]


@pytest.mark.parametrize("how", ["whole", "bytes", *(f"pieces {i}" for i in range(20))])
def test_a_stream_of_all_frames_splits_the_same_however_it_arrives(how: str) -> None:
    stream = b"".join(keep_alive_frame(v.protocol.magic, v.version) + v.frame for v in VECTORS)
    splitter = FrameSplitter(initial_bytes=64)
    messages = []
    for chunk in _chunks(stream, how):
        fed = 0
        while fed < len(chunk):
            room = splitter.get_buffer()
            n = min(len(room), len(chunk) - fed)
            room[:n] = chunk[fed : fed + n]
            fed += n
            for magic, version, body in splitter.buffer_updated(n):
                protocol = {p.magic: p for p in (CLIENT, STORAGE, ADMIN)}[magic]
                messages.append(protocol.decode(body, version))
    assert messages == [v.message for v in VECTORS]
    assert splitter.buffered_bytes == 0


@pytest.mark.parametrize(
    ("frame", "hello"),
    [
        (CLIENT_HELLO, Hello((0, 1, 2, 3, 4), "Waltz Client")),
        (SERVER_HELLO, Hello((0, 1, 2, 3, 4), "Waltz Server")),
        (STORAGE_CLIENT_HELLO, Hello((0,), "Waltz Storage Client")),
    ],
)
def test_the_known_hellos(frame: bytes, hello: Hello) -> None:
    assert decode_hello(frame[FRAME_HEADER_SIZE:]) == hello
    assert encode_hello(hello.versions, hello.text) == frame


def test_the_known_keep_alives() -> None:
    assert keep_alive_frame(CLIENT.magic, 4) == CLIENT_KEEP_ALIVE
    assert keep_alive_frame(STORAGE.magic, 0) == STORAGE_KEEP_ALIVE


def test_client_server_13_03_client_ahead_is_not_ready_before_version_3() -> None:
    ahead = client.MountResponse(CLIENT_VECTORS[0].message.req_id, MountState.CLIENT_AHEAD)  # type: ignore[attr-defined]
    for version in range(3):
        decoded = CLIENT.decode(CLIENT.encode_body(ahead, version), version)
        assert isinstance(decoded, client.MountResponse)
        assert decoded.state is MountState.NOT_READY


@pytest.mark.parametrize("version", [0, 1])
def test_locks_a_version_lacks_cannot_be_encoded(version: int) -> None:
    req_id = CLIENT_VECTORS[0].message.req_id  # type: ignore[attr-defined]
    read = client.AppendRequest(req_id, 1, (), (5,), (), 0, b"", 0)
    append = client.AppendRequest(req_id, 1, (), (), (5,), 0, b"", 0)
    with pytest.raises(EncodeError, match="append_locks"):
        CLIENT.encode(append, version)
    if version == 0:
        with pytest.raises(EncodeError, match="read_locks"):
            CLIENT.encode(read, version)


@pytest.mark.parametrize("vector", CLIENT_VECTORS, ids=_IDS[: len(CLIENT_VECTORS)])
def test_a_message_newer_than_the_version_cannot_be_encoded(vector: Vector) -> None:
    for version in range(vector.message.SINCE):
        with pytest.raises(EncodeError, match="version"):
            CLIENT.encode(vector.message, version)
