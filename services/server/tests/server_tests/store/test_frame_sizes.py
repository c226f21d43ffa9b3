"""A storage node refuses frames above its limit by closing the connection, which carries all partitions."""

from __future__ import annotations

from server_tests.store.fakes import entries
from waltz_protocol.frame import DEFAULT_MAX_FRAME_BYTES, FRAME_HEADER_SIZE
from waltz_protocol.frames.append import encode_append, parse_append
from waltz_protocol.frames.storage import storage_append_parts
from waltz_server.server import MAX_CLIENT_FRAME_BYTES
from waltz_server.store.api import AppendEntry
from waltz_server.store.frames import Frame, FrameQueue

LIMIT = 1000


def frames_of(batch: list[AppendEntry]) -> list[Frame]:
    queue = FrameQueue(next_txid=0, max_frame_bytes=LIMIT, max_frame_records=100)
    queue.add(batch)
    frames = []
    while queue.waiting:
        frames.append(queue.build())
    return frames


def test_a_large_record_behind_small_ones_gets_a_frame_of_its_own() -> None:
    frames = frames_of([*entries(5), *entries(1, 5 * LIMIT), *entries(5)])
    assert [(frame.first, frame.last) for frame in frames] == [(0, 4), (5, 5), (6, 10)]
    assert all(len(frame.records.wire) <= LIMIT or frame.count == 1 for frame in frames)


def test_frames_are_filled_up_to_the_limit() -> None:
    [first, second] = frames_of(entries(11, 64))
    assert first.count == 10
    assert len(first.records.wire) == LIMIT
    assert second.first == 10


def test_the_largest_append_a_client_can_send_fits_into_a_storage_frame() -> None:
    """With the shortest head there is: an append of protocol version 0 without locks."""
    data = bytes(MAX_CLIENT_FRAME_BYTES - 41)
    framed = encode_append(b"\0" * 16, -1, (), (), (), 0, data, 0)
    assert len(framed) == FRAME_HEADER_SIZE + MAX_CLIENT_FRAME_BYTES
    append = parse_append(memoryview(framed)[FRAME_HEADER_SIZE:], 0)
    assert append is not None
    [frame] = frames_of([AppendEntry(append.req_id, append.generation, append.tail)])
    parts = storage_append_parts(0, 1, 1, 1, 1, frame.records.wire)
    assert sum(len(part) for part in parts) <= FRAME_HEADER_SIZE + DEFAULT_MAX_FRAME_BYTES
