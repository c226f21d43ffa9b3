"""All messages between clients and servers, in all versions. First byte: the version."""

from __future__ import annotations

from collections.abc import Iterator

from tests.fuzz.codec_properties import decoded, recorded_bodies
from tests.fuzz.target import Target
from waltz_protocol.codec import CLIENT
from waltz_protocol.frame import Magic


def check(data: bytes) -> None:
    if data:
        decoded(CLIENT, data[1:], data[0] % len(CLIENT.versions))


def seeds() -> Iterator[bytes]:
    for version, body in recorded_bodies(Magic.CLIENT):
        yield bytes((version,)) + body


TARGET = Target(check, seeds)
