"""The bytes of every kind of znode. First byte: the kind."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Protocol, Self

from tests.fuzz.target import Target
from tests.interop.recordings import GOLDEN
from waltz_cluster.errors import SerializationError
from waltz_cluster.serializers import (
    ClusterParams,
    ConnectionMetadata,
    Counter,
    GroupDescriptor,
    PartitionAssignment,
    PartitionMetadata,
    Preferences,
    ReplicaAssignments,
    ReplicaId,
    ReplicaState,
    ServerDescriptor,
    StoreParams,
)
from waltz_protocol.types import Endpoint, Generation, PartitionId


class _Znode(Protocol):
    def to_bytes(self) -> bytes: ...

    @classmethod
    def from_bytes(cls, data: bytes | None) -> Self: ...


KINDS: tuple[type[_Znode], ...] = (
    ClusterParams,
    Counter,
    ServerDescriptor,
    PartitionAssignment,
    StoreParams,
    ReplicaAssignments,
    GroupDescriptor,
    ConnectionMetadata,
    ReplicaId,
    ReplicaState,
    PartitionMetadata,
    Preferences,
)


def check(data: bytes) -> None:
    if not data:
        return
    kind = KINDS[data[0] % len(KINDS)]
    try:
        value = kind.from_bytes(data[1:])
    except SerializationError as error:
        text = str(error)
        assert len(text) < 70_000
        return
    encoded = value.to_bytes()
    again = kind.from_bytes(encoded)
    assert again == value
    assert again.to_bytes() == encoded


def seeds() -> Iterator[bytes]:
    stored: set[bytes] = set()
    for file in sorted((GOLDEN / "zk").glob("*.json")):
        stored.update(bytes.fromhex(znode["hex"] or "") for znode in json.loads(file.read_text()).values())
    for raw in sorted(stored):
        for number, kind in enumerate(KINDS):
            try:
                same = kind.from_bytes(raw).to_bytes() == raw
            except SerializationError:
                continue
            if same:
                yield bytes((number,)) + raw
    state = ReplicaState(PartitionId(1), "höst\0:1\U0001f600", 4, 5)
    for value in (
        ReplicaId(PartitionId(1), "a:1"),
        state,
        PartitionMetadata(1, 2, {state.connect_string: state}),
        Preferences((PartitionId(1), PartitionId(2))),
        ServerDescriptor(1, Endpoint("h", 2), (PartitionId(3),)),
        PartitionAssignment(5, 4, {1: ((PartitionId(0), Generation(2)),), 2: ()}),
    ):
        yield bytes((KINDS.index(type(value)),)) + value.to_bytes()


TARGET = Target(check, seeds)
