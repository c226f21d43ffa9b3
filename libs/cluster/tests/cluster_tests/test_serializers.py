"""Bytes of every znode: the vectors of the layout, recorded trees, round trips, and bytes that are
anything."""

from collections.abc import Iterator
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cluster_tests import golden
from waltz_cluster import serializers as s
from waltz_cluster.errors import SerializationError
from waltz_protocol.types import UNRESOLVED, Endpoint, Generation, PartitionId

H1 = "h1:6000"


def p(*ids: int) -> tuple[PartitionId, ...]:
    return tuple(PartitionId(i) for i in ids)


def g(*pairs: tuple[int, int]) -> tuple[tuple[PartitionId, Generation], ...]:
    return tuple((PartitionId(a), Generation(b)) for a, b in pairs)


UNRESOLVED_STATE = s.ReplicaState(PartitionId(3), H1, 5)
VECTORS: list[tuple[Any, str]] = [
    (s.ClusterParams("demo", 4), "b4e87347 01 0004 64656d6f 00000004"),
    (s.Counter(), "00000000"),
    (s.Counter(2), "00000002"),
    (s.ServerDescriptor(1, Endpoint("h9", 8000)), "01 00000001 0002 6839 00001f40 00000000"),
    (
        s.ServerDescriptor(1, Endpoint("h9", 8000), p(3, 0)),
        "01 00000001 0002 6839 00001f40 00000002 00000003 00000000",
    ),
    (s.PartitionAssignment(), "03 ffffffff 00000000 00000000"),
    (
        s.PartitionAssignment(6, 3, {1: g((0, 1), (2, 3)), 2: g((1, 2))}),
        (
            "03 00000006 00000003 00000002 00000001 00000002 00000000 00000001 00000002 00000003"
            " 00000002 00000001 00000001 00000002"
        ),
    ),
    (
        s.StoreParams(UUID("00112233-4455-6677-8899-aabbccddeeff"), 4),
        "01 00112233445566778899aabbccddeeff 00000004",
    ),
    (s.ReplicaAssignments({H1: p(0, 2)}), "01 00000001 0007 68313a36303030 00000002 00000000 00000002"),
    (s.ReplicaAssignments(), "01 00000000"),
    (s.GroupDescriptor({H1: 1}), "01 00000001 0007 68313a36303030 00000001"),
    (s.ConnectionMetadata({H1: 6001}), "01 00000001 0007 68313a36303030 00001771"),
    (s.ReplicaId(PartitionId(3), H1), "01 00000003 0007 68313a36303030"),
    (UNRESOLVED_STATE, "01 01 00000003 0007 68313a36303030 0000000000000005 8000000000000000"),
    (
        s.ReplicaState(PartitionId(3), H1, 4, 41),
        "01 01 00000003 0007 68313a36303030 0000000000000004 0000000000000029",
    ),
    (s.PartitionMetadata(), "01 ffffffff ffffffffffffffff 00000000"),
    (
        s.PartitionMetadata(2, 5, {H1: UNRESOLVED_STATE}),
        (
            "01 00000002 0000000000000005 00000001"
            " 01 01 00000003 0007 68313a36303030 0000000000000005 8000000000000000"
        ),
    ),
    (s.Preferences(p(3, 0)), "01 00000002 00000003 00000000"),
]
CLASSES = sorted({type(value) for value, _ in VECTORS}, key=lambda cls: cls.__name__)


@pytest.mark.parametrize(("value", "text"), VECTORS)
def test_vectors(value: Any, text: str) -> None:
    data = bytes.fromhex(text)
    assert value.to_bytes() == data
    assert type(value).from_bytes(data) == value
    assert type(value).from_bytes(data + b"ignored") == value


@pytest.mark.parametrize(("value", "text"), VECTORS)
def test_every_shortage_is_an_error(value: Any, text: str) -> None:
    data = bytes.fromhex(text)
    for size in range(len(data)):
        with pytest.raises(SerializationError):
            type(value).from_bytes(data[:size])
    with pytest.raises(SerializationError, match="no data"):
        type(value).from_bytes(None)


@pytest.mark.parametrize("cls", [cls for cls in CLASSES if cls is not s.Counter])
def test_unknown_versions_are_refused(cls: Any) -> None:
    data = bytearray(next(value for value, _ in VECTORS if type(value) is cls).to_bytes())
    data[4 if cls is s.ClusterParams else 0] = 9
    with pytest.raises(SerializationError, match="version 9"):
        cls.from_bytes(bytes(data))


def test_counts_are_bounded_by_the_bytes_left() -> None:
    for cls in (s.ReplicaAssignments, s.GroupDescriptor, s.Preferences):
        for count in ("7fffffff", "ffffffff", "00000001"):
            with pytest.raises(SerializationError, match="do not fit"):
                cls.from_bytes(bytes.fromhex("01" + count))


def test_double_entries_are_refused() -> None:
    twice = bytes.fromhex("01 00000002" + "0007 68313a36303030 00000001" * 2)
    with pytest.raises(SerializationError, match="listed twice"):
        s.GroupDescriptor.from_bytes(twice)


@given(st.sampled_from(CLASSES), st.binary(max_size=200))
def test_random_bytes_never_do_more_than_a_serialization_error(cls: Any, data: bytes) -> None:
    try:
        cls.from_bytes(data)
    except SerializationError:
        return


@given(st.sampled_from(VECTORS), st.data())
def test_damaged_bytes_never_do_more_than_a_serialization_error(vector: Any, data: st.DataObject) -> None:
    good = bytearray(vector[0].to_bytes())
    place = data.draw(st.integers(0, len(good) - 1))
    good[place] = data.draw(st.integers(0, 255))
    try:
        type(vector[0]).from_bytes(bytes(good))
    except SerializationError:
        return


I32 = st.integers(-(2**31), 2**31 - 1)
I64 = st.integers(-(2**63), 2**63 - 1)
TEXT = st.text(max_size=20)
IDS = st.lists(I32.map(PartitionId), max_size=5).map(tuple)


@given(TEXT, I32)
def test_round_trip_of_texts(name: str, count: int) -> None:
    params = s.ClusterParams(name, count)
    assert s.ClusterParams.from_bytes(params.to_bytes()) == params


def test_modified_utf8_differs_from_utf8_for_nul_and_beyond_the_bmp() -> None:
    data = s.ClusterParams("\0é€𝄞", 1).to_bytes()
    assert data[5:-4] == bytes.fromhex("000d c080 c3a9 e282ac eda0b4 edb49e")


def test_what_does_not_fit_is_refused() -> None:
    with pytest.raises(SerializationError, match="too long"):
        s.ClusterParams("x" * 65536, 1).to_bytes()
    with pytest.raises(SerializationError, match="does not fit"):
        s.Counter(2**31).to_bytes()


@given(st.dictionaries(TEXT, IDS, max_size=4))
def test_round_trip_keeps_the_order_of_maps(nodes: dict[str, tuple[PartitionId, ...]]) -> None:
    value = s.ReplicaAssignments(nodes)
    again = s.ReplicaAssignments.from_bytes(value.to_bytes())
    assert list(again.nodes.items()) == list(nodes.items())


@given(
    st.dictionaries(TEXT, IDS | st.lists(st.integers(0, 5).map(PartitionId)).map(tuple), max_size=4),
    st.integers(0, 5),
)
def test_the_replicas_of_a_partition_are_the_nodes_that_list_it(
    nodes: dict[str, tuple[PartitionId, ...]], partition_id: int
) -> None:
    value = s.ReplicaAssignments(nodes)
    for asked in (partition_id, *(each for ids in nodes.values() for each in ids)):
        assert value.replicas_of(asked) == tuple(node for node, ids in nodes.items() if asked in ids)
    assert value == s.ReplicaAssignments(nodes)
    assert value.to_bytes() == s.ReplicaAssignments(nodes).to_bytes()


class _Counted(tuple[PartitionId, ...]):
    """How often it is searched."""

    searched = 0

    def __contains__(self, key: object) -> bool:
        _Counted.searched += 1
        return super().__contains__(key)

    def __iter__(self) -> Iterator[PartitionId]:
        _Counted.searched += 1
        return super().__iter__()


def test_the_nodes_are_searched_once_whatever_the_number_of_partitions() -> None:
    """A server asks for each of its partitions, in one turn of its event loop, whenever they change."""
    ids = _Counted(p(*range(1000)))
    value = s.ReplicaAssignments({"a:1": ids, "b:1": ids, "c:1": ids})
    assert {value.replicas_of(partition_id) for partition_id in range(1000)} == {("a:1", "b:1", "c:1")}
    assert _Counted.searched <= 3


@given(I32, I64, I32.map(PartitionId), st.dictionaries(TEXT, st.tuples(I64, I64), max_size=4))
def test_round_trip_of_metadata(
    generation: int, session: int, pid: PartitionId, states: dict[str, tuple[int, int]]
) -> None:
    value = s.PartitionMetadata(
        generation, session, {node: s.ReplicaState(pid, node, *state) for node, state in states.items()}
    )
    assert s.PartitionMetadata.from_bytes(value.to_bytes()) == value


def test_unresolved_is_the_smallest_number() -> None:
    assert UNRESOLVED_STATE.closing_high_water_mark == UNRESOLVED == -(2**63)
    assert not UNRESOLVED_STATE.resolved


def _class_of(path: str, root: str) -> Any:
    below = path.removeprefix(root)
    fixed = {
        "": s.ClusterParams,
        "/ids/client": s.Counter,
        "/ids/server": s.Counter,
        "/serverDescriptors": s.PartitionAssignment,
        "/store": s.StoreParams,
        "/store/assignment": s.ReplicaAssignments,
        "/store/group": s.GroupDescriptor,
        "/store/connection": s.ConnectionMetadata,
    }
    if below.startswith("/serverDescriptors/"):
        return s.ServerDescriptor
    if below.startswith("/store/partition/"):
        return s.PartitionMetadata
    return fixed.get(below)


@pytest.mark.parametrize("name", golden.names())
def test_recorded_trees_round_trip(name: str) -> None:
    seen = 0
    for path, entry in golden.tree(name).items():
        cls = _class_of(path, "/waltz_gold")
        if cls is None:
            assert entry["hex"] is None
            continue
        data = golden.data(entry)
        assert cls.from_bytes(data).to_bytes() == data
        seen += 1
    assert seen >= 8
