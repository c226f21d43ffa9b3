"""Directories of version 5, as a client puts them together: whatever the bytes are, a ProtocolError, or a
directory that is the same when it is sent again. The input is frames back to back."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from uuid import UUID

from tests.fuzz.target import Target
from waltz_protocol.codec import CLIENT
from waltz_protocol.directory import FIRST_VERSION, Directory, DirectoryParts, encode_directory
from waltz_protocol.errors import ProtocolError
from waltz_protocol.frame import FRAME_HEADER_SIZE
from waltz_protocol.messages.directory import DirectoryPart
from waltz_protocol.types import Endpoint, Generation, PartitionId


def check(data: bytes) -> None:
    """Each frame begins with the two last bytes of its length."""
    parts = DirectoryParts()
    try:
        for body in _bodies(data):
            message = CLIENT.decode(body, FIRST_VERSION)
            whole = parts.add(message) if isinstance(message, DirectoryPart) else None
            if whole is not None:
                placed = [p for owned in whole.servers.values() for p in owned]
                assert len(placed) == len(set(placed)) <= whole.num_partitions
                assert _again(encode_directory(whole)) == whole
    except ProtocolError:
        return


def _bodies(data: bytes) -> Iterator[bytes]:
    offset = 0
    while offset < len(data):
        size = int.from_bytes(data[offset : offset + 2], "big")
        yield data[offset + 2 : offset + 2 + size]
        offset += 2 + size


def _again(frames: Iterable[bytes]) -> Directory | None:
    parts, whole = DirectoryParts(), None
    for frame in frames:
        message = CLIENT.decode(frame[FRAME_HEADER_SIZE:], FIRST_VERSION)
        assert isinstance(message, DirectoryPart)
        whole = parts.add(message)
    return whole


def seeds() -> Iterator[bytes]:
    key = UUID(int=1)
    small = {
        Endpoint("server-1", 55180): {PartitionId(0): Generation(3), PartitionId(2): Generation(1)},
        Endpoint("é", 1): {},
    }
    large = {Endpoint("s", 2): {PartitionId(number): Generation(number) for number in range(2500)}}
    for directory in (
        Directory(7 << 32 | 3, "demo", key, 3, small),
        Directory(0, "", key, 1, {}, in_contact=False),
        Directory(9, "large", key, 2500, large),
    ):
        yield b"".join(
            (len(frame) - FRAME_HEADER_SIZE).to_bytes(2, "big") + frame[FRAME_HEADER_SIZE:]
            for frame in encode_directory(directory)
        )


TARGET = Target(check, seeds)
