"""All messages between servers and storage nodes."""

from __future__ import annotations

from collections.abc import Iterator

from tests.fuzz.codec_properties import decoded, recorded_bodies
from tests.fuzz.target import Target
from waltz_protocol.codec import STORAGE
from waltz_protocol.frame import Magic
from waltz_protocol.frames.storage import parse_prefix


def check(data: bytes) -> None:
    message = decoded(STORAGE, data, 0)
    if message is not None:
        prefix = parse_prefix(data)
        assert prefix.type == message.TYPE
        for name in ("session_id", "seq_num", "partition_id"):
            assert getattr(message, name) == getattr(prefix, name)


def seeds() -> Iterator[bytes]:
    for _, body in recorded_bodies(Magic.STORAGE):
        yield body


TARGET = Target(check, seeds)
