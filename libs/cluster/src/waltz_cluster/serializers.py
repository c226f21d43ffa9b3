"""The bytes of every znode (docs/zookeeper-layout.md), each as one frozen dataclass.

`to_bytes` writes maps in the order they have, so bytes that were read are written back unchanged.
`from_bytes` takes what ZooKeeper gave (None for a znode without data) and raises SerializationError for
everything that is not the layout. Pure.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple, Self, TypeVar
from uuid import UUID

from waltz_cluster.errors import SerializationError
from waltz_cluster.znode_bytes import ZnodeReader, ZnodeWriter
from waltz_protocol.types import UNRESOLVED, Endpoint, Generation, PartitionId

CLUSTER_MAGIC = 0xB4E87347 - (1 << 32)
MAX_ID = 2**31 - 1

_K = TypeVar("_K")
_V = TypeVar("_V")


def _unique(pairs: Iterable[tuple[_K, _V]], kind: str) -> dict[_K, _V]:
    result: dict[_K, _V] = {}
    for key, value in pairs:
        if key in result:
            raise SerializationError(f"{kind}: {key} is listed twice")
        result[key] = value
    return result


@dataclass(frozen=True, slots=True)
class ClusterParams:
    """Data of the cluster root."""

    name: str
    num_partitions: int

    def to_bytes(self) -> bytes:
        return ZnodeWriter().i32(CLUSTER_MAGIC).i8(1).java_text(self.name).i32(self.num_partitions).bytes()

    @classmethod
    def from_bytes(cls, data: bytes | None) -> Self:
        reader = ZnodeReader(data, "cluster parameters")
        if reader.i32() != CLUSTER_MAGIC:
            raise reader.error("not the root of a Waltz cluster")
        reader.version(1)
        return cls(reader.java_text(), reader.i32())


@dataclass(frozen=True, slots=True)
class Counter:
    """Data of `ids/client` and `ids/server`: the last id given out."""

    value: int = 0

    def to_bytes(self) -> bytes:
        return ZnodeWriter().i32(self.value).bytes()

    @classmethod
    def from_bytes(cls, data: bytes | None) -> Self:
        return cls(ZnodeReader(data, "id counter").i32())


@dataclass(frozen=True, slots=True)
class ServerDescriptor:
    """One server: its id, where clients reach it, and the partitions it prefers, in order."""

    server_id: int
    endpoint: Endpoint
    preferred: tuple[PartitionId, ...] = ()

    def to_bytes(self) -> bytes:
        writer = ZnodeWriter().i8(1).i32(self.server_id)
        writer.java_text(self.endpoint.host).i32(self.endpoint.port).i32(len(self.preferred))
        for partition_id in self.preferred:
            writer.i32(partition_id)
        return writer.bytes()

    @classmethod
    def from_bytes(cls, data: bytes | None) -> Self:
        reader = ZnodeReader(data, "server descriptor")
        reader.version(1)
        server_id = reader.i32()
        endpoint = Endpoint(reader.java_text(), reader.i32())
        return cls(server_id, endpoint, tuple(PartitionId(reader.i32()) for _ in range(reader.count(4))))


@dataclass(frozen=True, slots=True)
class PartitionAssignment:
    """Data of `serverDescriptors`: who serves which partition in which generation, for one child
    version."""

    cversion: int = -1
    num_partitions: int = 0
    servers: Mapping[int, tuple[tuple[PartitionId, Generation], ...]] = field(default_factory=dict)

    def to_bytes(self) -> bytes:
        writer = ZnodeWriter().i8(3).i32(self.cversion).i32(self.num_partitions).i32(len(self.servers))
        for server_id, partitions in self.servers.items():
            writer.i32(server_id).i32(len(partitions))
            for partition_id, generation in partitions:
                writer.i32(partition_id).i32(generation)
        return writer.bytes()

    @classmethod
    def from_bytes(cls, data: bytes | None) -> Self:
        reader = ZnodeReader(data, "partition assignment")
        reader.version(3)
        cversion, num_partitions = reader.i32(), reader.i32()

        def one_server() -> tuple[int, tuple[tuple[PartitionId, Generation], ...]]:
            server_id = reader.i32()
            count = reader.count(8)
            return server_id, tuple(
                (PartitionId(reader.i32()), Generation(reader.i32())) for _ in range(count)
            )

        servers = _unique((one_server() for _ in range(reader.count(8))), "partition assignment")
        return cls(cversion, num_partitions, servers)

    def partitions_of(self, server_id: int) -> dict[PartitionId, Generation]:
        return dict(self.servers.get(server_id, ()))


@dataclass(frozen=True, slots=True)
class StoreParams:
    """Data of `store`: the key every storage node of the cluster carries, and the number of partitions."""

    cluster_key: UUID
    num_partitions: int

    def to_bytes(self) -> bytes:
        return ZnodeWriter().i8(1).uuid(self.cluster_key).i32(self.num_partitions).bytes()

    @classmethod
    def from_bytes(cls, data: bytes | None) -> Self:
        reader = ZnodeReader(data, "store parameters")
        reader.version(1)
        return cls(reader.uuid(), reader.i32())


@dataclass(frozen=True, slots=True)
class ReplicaAssignments:
    """Data of `store/assignment`: the partitions of every storage node, by connect string."""

    nodes: Mapping[str, tuple[PartitionId, ...]] = field(default_factory=dict)
    """Not to be changed."""
    _replicas: dict[int, tuple[str, ...]] = field(default_factory=dict, init=False, repr=False, compare=False)
    """The same by partition, from the first question on."""

    def to_bytes(self) -> bytes:
        writer = ZnodeWriter().i8(1).i32(len(self.nodes))
        for connect_string, partitions in self.nodes.items():
            writer.java_text(connect_string).i32(len(partitions))
            for partition_id in partitions:
                writer.i32(partition_id)
        return writer.bytes()

    @classmethod
    def from_bytes(cls, data: bytes | None) -> Self:
        reader = ZnodeReader(data, "replica assignments")
        reader.version(1)

        def one_node() -> tuple[str, tuple[PartitionId, ...]]:
            connect_string = reader.java_text()
            return connect_string, tuple(PartitionId(reader.i32()) for _ in range(reader.count(4)))

        return cls(_unique((one_node() for _ in range(reader.count(6))), "replica assignments"))

    def replicas_of(self, partition_id: int) -> tuple[str, ...]:
        """Connect strings of the nodes that hold the partition, in the order of the map. All nodes are
        searched once, not for each partition."""
        replicas = self._replicas
        if not replicas:
            for node, partitions in self.nodes.items():
                for each in set(partitions):
                    replicas[each] = (*replicas.get(each, ()), node)
        return replicas.get(partition_id, ())


def _write_int_map(values: Mapping[str, int]) -> bytes:
    writer = ZnodeWriter().i8(1).i32(len(values))
    for connect_string, value in values.items():
        writer.java_text(connect_string).i32(value)
    return writer.bytes()


def _read_int_map(data: bytes | None, kind: str) -> dict[str, int]:
    reader = ZnodeReader(data, kind)
    reader.version(1)
    return _unique(((reader.java_text(), reader.i32()) for _ in range(reader.count(6))), kind)


@dataclass(frozen=True, slots=True)
class GroupDescriptor:
    """Data of `store/group`: the group (one full copy of the data) of every storage node."""

    groups: Mapping[str, int] = field(default_factory=dict)

    def to_bytes(self) -> bytes:
        return _write_int_map(self.groups)

    @classmethod
    def from_bytes(cls, data: bytes | None) -> Self:
        return cls(_read_int_map(data, "group descriptor"))


@dataclass(frozen=True, slots=True)
class ConnectionMetadata:
    """Data of `store/connection`: the admin port of every storage node; its host is that of the connect
    string."""

    admin_ports: Mapping[str, int] = field(default_factory=dict)

    def to_bytes(self) -> bytes:
        return _write_int_map(self.admin_ports)

    @classmethod
    def from_bytes(cls, data: bytes | None) -> Self:
        return cls(_read_int_map(data, "connection metadata"))


@dataclass(frozen=True, slots=True)
class ReplicaId:
    """One copy of one partition."""

    partition_id: PartitionId
    connect_string: str

    def write(self, writer: ZnodeWriter) -> None:
        writer.i8(1).i32(self.partition_id).java_text(self.connect_string)

    @classmethod
    def read(cls, reader: ZnodeReader) -> Self:
        reader.version(1)
        return cls(PartitionId(reader.i32()), reader.java_text())

    def to_bytes(self) -> bytes:
        writer = ZnodeWriter()
        self.write(writer)
        return writer.bytes()

    @classmethod
    def from_bytes(cls, data: bytes | None) -> Self:
        return cls.read(ZnodeReader(data, "replica id"))


@dataclass(frozen=True, slots=True)
class ReplicaState:
    """What the last store session knew of a replica: (s, UNRESOLVED) = took part; (s, h) = dropped out, good
    up to h; (-1, h) = never took part."""

    partition_id: PartitionId
    connect_string: str
    session_id: int
    closing_high_water_mark: int = UNRESOLVED

    @property
    def resolved(self) -> bool:
        return self.closing_high_water_mark != UNRESOLVED

    def write(self, writer: ZnodeWriter) -> None:
        writer.i8(1)
        ReplicaId(self.partition_id, self.connect_string).write(writer)
        writer.i64(self.session_id).i64(self.closing_high_water_mark)

    @classmethod
    def read(cls, reader: ZnodeReader) -> Self:
        reader.version(1)
        replica_id = ReplicaId.read(reader)
        return cls(replica_id.partition_id, replica_id.connect_string, reader.i64(), reader.i64())

    def to_bytes(self) -> bytes:
        writer = ZnodeWriter()
        self.write(writer)
        return writer.bytes()

    @classmethod
    def from_bytes(cls, data: bytes | None) -> Self:
        return cls.read(ZnodeReader(data, "replica state"))


@dataclass(frozen=True, slots=True)
class PartitionMetadata:
    """Data of `store/partition/<id>`: the store session of the partition and the states of its replicas."""

    generation: int = -1
    session_id: int = -1
    replicas: Mapping[str, ReplicaState] = field(default_factory=dict)

    def to_bytes(self) -> bytes:
        writer = ZnodeWriter().i8(1).i32(self.generation).i64(self.session_id).i32(len(self.replicas))
        for state in self.replicas.values():
            state.write(writer)
        return writer.bytes()

    @classmethod
    def from_bytes(cls, data: bytes | None) -> Self:
        reader = ZnodeReader(data, "partition metadata")
        reader.version(1)
        generation, session_id = reader.i32(), reader.i64()
        states = [ReplicaState.read(reader) for _ in range(reader.count(24))]
        if len({state.partition_id for state in states}) > 1:
            raise reader.error("replica states of different partitions")
        return cls(
            generation, session_id, _unique(((s.connect_string, s) for s in states), "partition metadata")
        )


@dataclass(frozen=True, slots=True)
class Preferences:
    """Ours: data of `preferredPartitions/<endpoint>`, the preferred partitions of a server across its
    restarts."""

    partitions: tuple[PartitionId, ...] = ()

    def to_bytes(self) -> bytes:
        writer = ZnodeWriter().i8(1).i32(len(self.partitions))
        for partition_id in self.partitions:
            writer.i32(partition_id)
        return writer.bytes()

    @classmethod
    def from_bytes(cls, data: bytes | None) -> Self:
        reader = ZnodeReader(data, "preferred partitions")
        reader.version(1)
        return cls(tuple(PartitionId(reader.i32()) for _ in range(reader.count(4))))


_CHECKPOINT_BYTES = 24
NO_SEQUENCE = -1
"""Nothing was appended under a sequence number."""


class Checkpoint(NamedTuple):
    """Of one partition. No transaction at or below `origin` is of the producer; of those at or below `mark`
    the highest sequence number is `sequence`, -1 for none."""

    origin: int
    mark: int
    sequence: int = NO_SEQUENCE


@dataclass(frozen=True, slots=True)
class ProducerRecord:
    """Data of `producers/<name>`."""

    client_id: int
    epoch: int
    checkpoints: Mapping[int, Checkpoint] = field(default_factory=dict)
    """By partition."""

    def to_bytes(self) -> bytes:
        writer = ZnodeWriter().i8(1).i32(self.client_id).i32(self.epoch).i32(len(self.checkpoints))
        for partition_id, (origin, mark, sequence) in sorted(self.checkpoints.items()):
            writer.i32(partition_id).i64(origin).i64(mark).i32(sequence)
        return writer.bytes()

    @classmethod
    def from_bytes(cls, data: bytes | None) -> Self:
        reader = ZnodeReader(data, "producer")
        reader.version(1)
        client_id, epoch = reader.i32(), reader.i32()
        checkpoints = {
            reader.i32(): Checkpoint(reader.i64(), reader.i64(), reader.i32())
            for _ in range(reader.count(_CHECKPOINT_BYTES))
        }
        return cls(client_id, epoch, checkpoints)

    def with_checkpoints(self, newer: Mapping[int, Checkpoint]) -> Self:
        """With these where they are further than its own."""
        merged = dict(self.checkpoints)
        for partition_id, checkpoint in newer.items():
            known = merged.get(partition_id)
            if known is None:
                merged[partition_id] = checkpoint
            elif checkpoint.mark > known.mark:
                merged[partition_id] = checkpoint._replace(origin=max(known.origin, checkpoint.origin))
        return replace(self, checkpoints=merged)
