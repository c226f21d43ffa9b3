"""Every frame that release 0.13.2 sent is read by our codec, and written again byte for byte."""

import pytest

from tests.interop.recordings import SESSIONS, RecordedFrame, frames
from waltz_protocol.codec import ADMIN, CLIENT, STORAGE
from waltz_protocol.errors import ProtocolError
from waltz_protocol.frame import FrameSplitter
from waltz_protocol.frames.append import parse_append
from waltz_protocol.handshake import decode_hello, encode_hello

PROTOCOLS = {"L": CLIENT, "S": STORAGE, "A": ADMIN}
DELIBERATELY_WRONG = {"bad crc", "unknown type 99", "trailing bytes", "wrong frame version"}


def split_wrong(session: str) -> tuple[list[RecordedFrame], list[RecordedFrame]]:
    """Frames that decode, and frames that were sent to be refused (only the raw session has such)."""
    right: list[RecordedFrame] = []
    wrong: list[RecordedFrame] = []
    for frame in frames(session):
        if frame.magic == "H" or not frame.body:
            continue
        try:
            PROTOCOLS[frame.magic].decode(frame.body, frame.version)
        except ProtocolError:
            wrong.append(frame)
        else:
            right.append(frame)
    return right, wrong


@pytest.mark.parametrize("session", SESSIONS)
def test_every_frame_is_decoded_and_encoded_again(session: str) -> None:
    right, wrong = split_wrong(session)
    for frame in right:
        protocol = PROTOCOLS[frame.magic]
        assert protocol.encode(protocol.decode(frame.body, frame.version), frame.version) == frame.raw, (
            frame.name
        )
    assert len(right) > 10
    assert len(wrong) <= (len(DELIBERATELY_WRONG) if session == "client-raw-all-versions" else 0)


@pytest.mark.parametrize("session", SESSIONS)
def test_every_hello_is_read_and_written_again(session: str) -> None:
    versions = {"client-admin-cli": (0, 1, 2, 3, 4), "client-workload": (0, 1, 2, 3, 4)}
    seen = 0
    for frame in frames(session):
        if frame.magic != "H":
            continue
        hello = decode_hello(frame.body)
        seen += 1
        order = versions.get(session) or tuple(sorted(hello.versions))
        assert hello.text is not None
        assert encode_hello(order, hello.text) == frame.raw
    assert seen


@pytest.mark.parametrize("session", ["client-workload", "client-raw-all-versions"])
def test_appends_are_parsed_alike_on_the_hot_path(session: str) -> None:
    seen = 0
    right, _wrong = split_wrong(session)
    for frame in right:
        if frame.name != "APPEND_REQUEST":
            continue
        message = CLIENT.decode(frame.body, frame.version)
        append = parse_append(memoryview(frame.body), frame.version)
        assert append is not None
        assert append.req_id == message.req_id.pack()  # type: ignore[attr-defined]
        assert append.write_locks == tuple(message.write_locks)  # type: ignore[attr-defined]
        seen += 1
    assert seen >= 5


@pytest.mark.parametrize("size", [1, 7, 100, 65536])
def test_streams_are_cut_alike_in_pieces_of_any_size(size: int) -> None:
    streams: dict[tuple[int, bool], list[bytes]] = {}
    for frame in frames("client-workload"):
        streams.setdefault((frame.conn, frame.from_client), []).append(frame.raw)
    for sent in streams.values():
        splitter = FrameSplitter()
        stream = b"".join(sent)
        got: list[bytes] = []
        for start in range(0, len(stream), size):
            piece = memoryview(stream)[start : start + size]
            while piece:
                room = splitter.get_buffer(len(piece))
                count = min(len(room), len(piece))
                room[:count] = piece[:count]
                got.extend(bytes(body) for _magic, _version, body in splitter.buffer_updated(count))
                piece = piece[count:]
        assert got == [raw[7:] for raw in sent]
