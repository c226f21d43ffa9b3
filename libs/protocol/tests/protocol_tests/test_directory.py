"""The directory of a cluster: cut into frames, put together again, and what is refused."""

from __future__ import annotations

import dataclasses
from typing import cast
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from waltz_protocol.codec import CLIENT
from waltz_protocol.directory import Directory, DirectoryParts, encode_directory, not_listed
from waltz_protocol.errors import ProtocolError
from waltz_protocol.frame import FRAME_HEADER_SIZE
from waltz_protocol.messages.directory import DirectoryPart
from waltz_protocol.messages.fields import PART_BYTES, ServerEntry
from waltz_protocol.types import Endpoint, Generation, PartitionId

KEY = UUID(int=7)
HOSTS = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=30).filter(str.isprintable)


@st.composite
def directories(draw: st.DrawFn) -> Directory:
    count = draw(st.integers(1, 9_000))
    servers: dict[Endpoint, dict[PartitionId, Generation]] = {
        endpoint: {}
        for endpoint in draw(
            st.lists(st.builds(Endpoint, HOSTS, st.integers(1, 65535)), max_size=8, unique=True)
        )
    }
    if servers:
        owners = list(servers.values())
        step = draw(st.integers(1, 7))
        for number in range(0, count, draw(st.integers(1, 3))):
            owners[number // step % len(owners)][PartitionId(number)] = Generation(number % 5)
    return Directory(
        draw(st.integers(0, 2**63 - 1)), draw(HOSTS), draw(st.uuids()), count, servers, draw(st.booleans())
    )


def sent(directory: Directory) -> list[DirectoryPart]:
    return [
        cast("DirectoryPart", CLIENT.decode(frame[FRAME_HEADER_SIZE:], 5))
        for frame in encode_directory(directory)
    ]


def received(parts: list[DirectoryPart]) -> Directory | None:
    whole, assembly = None, DirectoryParts()
    for part in parts:
        assert whole is None
        whole = assembly.add(part)
    return whole


@given(directories())
def test_a_directory_arrives_as_it_was_in_frames_of_a_bounded_size(directory: Directory) -> None:
    parts = sent(directory)
    assert received(parts) == directory
    assert all(len(frame) < PART_BYTES + 300 for frame in encode_directory(directory))


@given(directories(), directories(), st.data())
def test_a_directory_that_is_cut_off_by_the_next_one_is_forgotten(
    directory: Directory, other: Directory, data: st.DataObject
) -> None:
    first = sent(directory)
    cut = first[: data.draw(st.integers(0, len(first) - 1))]
    assert received([*cut, *sent(other)]) == other


def _part(**changes: object) -> DirectoryPart:
    entry = ServerEntry("a", 1, ((0, 3),))
    (part,) = sent(Directory(5, "c", KEY, 4, {Endpoint("a", 1): {PartitionId(0): Generation(3)}}))
    assert part.servers == (entry,)
    return dataclasses.replace(part, **changes)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "parts",
    [
        [_part(part=1)],
        [_part(part=-1)],
        [_part(parts=0)],
        [_part(parts=1025)],
        [_part(num_partitions=0)],
        [_part(num_partitions=131_073)],
        [_part(version=-1)],
        [_part(flags=2)],
        [_part(parts=2), _part(parts=2, part=1, version=6)],
        [_part(parts=2), _part(parts=2, part=1, cluster_key=UUID(int=8), servers=())],
        [_part(parts=2), _part(parts=2, part=1, flags=1, servers=())],
        [_part(parts=2), _part(parts=2, part=1)],  # partition 0 twice
        [_part(parts=3), _part(parts=3, part=2, servers=())],
        [_part(servers=(ServerEntry("", 1, ()),))],
        [_part(servers=(ServerEntry("a", 0, ()),))],
        [_part(servers=(ServerEntry("a\0b", 1, ()),))],
        [_part(servers=(ServerEntry("a" * 256, 1, ()),))],
        [_part(servers=(ServerEntry("a", 65536, ()),))],
        [_part(servers=(ServerEntry("a", 1, ((4, 0),)),))],
        [_part(servers=(ServerEntry("a", 1, ((-1, 0),)),))],
        [_part(servers=(ServerEntry("a", 1, ((1, -1),)),))],
        [_part(servers=(ServerEntry("a", 1, ((1, 1),)), ServerEntry("b", 1, ((1, 2),))))],
        [_part(servers=tuple(ServerEntry("a", port, ()) for port in range(1, 10_002)))],
    ],
)
def test_what_is_no_directory_is_refused(parts: list[DirectoryPart]) -> None:
    with pytest.raises(ProtocolError):
        received(parts)


@pytest.mark.parametrize("count", ["7FFFFFFF", "00000002", "FFFFFFFF"])
def test_a_count_beyond_the_bytes_is_refused_before_anything_is_made(count: str) -> None:
    (frame,) = encode_directory(Directory(5, "c", KEY, 4, {}))
    body = frame[FRAME_HEADER_SIZE:-4] + bytes.fromhex(count)
    with pytest.raises(ProtocolError):
        CLIENT.decode(body, 5)


@pytest.mark.parametrize(
    "wrong", [Endpoint("", 1), Endpoint("a\0b", 1), Endpoint("b", 0), Endpoint("b", 70000)]
)
def test_one_wrong_descriptor_does_not_make_the_directory_useless(wrong: Endpoint) -> None:
    good = {Endpoint("a", 1): {PartitionId(0): Generation(3)}}
    directory = Directory(5, "c", KEY, 4, {**good, wrong: {PartitionId(1): Generation(1)}})
    assert not_listed(directory.servers) == (wrong,)
    assert received(sent(directory)) == dataclasses.replace(directory, servers=good)


@pytest.mark.parametrize(
    "entry",
    [
        ServerEntry("a", 1, tuple((number, 0) for number in range(PART_BYTES // 8))),
        ServerEntry("a" * PART_BYTES, 1, ()),
    ],
)
def test_a_part_with_more_than_its_bytes_is_refused_before_anything_is_made(entry: ServerEntry) -> None:
    frame = CLIENT.encode(_part(servers=(entry,)), 5)
    with pytest.raises(ProtocolError, match="bytes of servers, more than 16384"):
        CLIENT.decode(memoryview(frame)[FRAME_HEADER_SIZE:], 5)
