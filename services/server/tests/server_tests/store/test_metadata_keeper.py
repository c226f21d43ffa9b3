"""Session ids and replica states in ZooKeeper: conflicts, lost answers, bytes that are no metadata."""

from __future__ import annotations

import random

import pytest

from server_tests.store.fakes import PARTITION, ROOT
from waltz_cluster.errors import ConnectionLostError, VersionConflictError
from waltz_cluster.memory_store import Fault, MemoryStore, MemoryZooKeeper
from waltz_cluster.partition_metadata import StoreMetadata
from waltz_cluster.serializers import PartitionMetadata, ReplicaState
from waltz_protocol.types import UNRESOLVED, PartitionId, SessionInfo
from waltz_server.store.metadata_keeper import (
    GenerationMismatchError,
    MetadataFaultError,
    MetadataKeeper,
    SessionSupersededError,
)
from waltz_server.store.recovery import Recovery

pytestmark = pytest.mark.looptime

PATH = f"{ROOT}/store/partition/{PARTITION}"


class Rivals(StoreMetadata):
    """Somebody else writes first, as often as `left` says."""

    left = 0

    async def write_partition(self, partition_id: int, metadata: PartitionMetadata, version: int) -> int:
        if self.left:
            self.left -= 1
            raise VersionConflictError("somebody else was faster")
        return await super().write_partition(partition_id, metadata, version)


@pytest.fixture
async def zk() -> MemoryStore:
    store = MemoryZooKeeper().session()
    await store.create(f"{ROOT}/store/partition", None, make_parents=True)
    return store


def keeper_of(metadata: StoreMetadata) -> MetadataKeeper:
    return MetadataKeeper(metadata, PARTITION, random.Random(1))


async def take(keeper: MetadataKeeper, generation: int) -> PartitionMetadata:
    """Take a session id, however often it takes."""
    while True:
        recorded, version = await keeper.recorded(generation)
        taken = await keeper.take(generation, recorded, version, 0)
        if taken is not None:
            return taken


def recovered(metadata: PartitionMetadata) -> Recovery:
    """A first session that every replica answered for."""
    recovery = Recovery(
        partition_id=PARTITION, session_id=metadata.session_id, replicas=["a:1"], metadata=metadata
    )
    recovery.answered("a:1", SessionInfo(-1, -1, -1), -1)
    recovery.low_water_mark_set("a:1")
    return recovery


async def test_states_are_written_again_after_a_conflict(zk: MemoryStore) -> None:
    metadata = Rivals(zk, ROOT)
    keeper = keeper_of(metadata)
    taken = await take(keeper, 1)
    metadata.left = 3
    written = await keeper.write_states(recovered(taken))
    assert written.replicas["a:1"].closing_high_water_mark == UNRESOLVED
    assert (await metadata.read_partition(PARTITION))[0] == written


async def test_states_that_are_there_already_are_not_written_again(zk: MemoryStore) -> None:
    keeper = keeper_of(StoreMetadata(zk, ROOT))
    taken = await take(keeper, 1)
    first = await keeper.write_states(recovered(taken))
    _, stat = await zk.get(PATH)
    assert await keeper.write_states(recovered(taken)) == first
    assert (await zk.get(PATH))[1].version == stat.version


async def test_metadata_that_vanishes_in_a_session_is_a_fault(zk: MemoryStore) -> None:
    keeper = keeper_of(StoreMetadata(zk, ROOT))
    taken = await take(keeper, 1)
    await zk.delete(PATH)
    with pytest.raises(MetadataFaultError, match="vanished"):
        await keeper.check(taken.session_id)


async def test_unreadable_metadata_is_a_fault(zk: MemoryStore) -> None:
    keeper = keeper_of(StoreMetadata(zk, ROOT))
    taken = await take(keeper, 1)
    await zk.set(PATH, b"\x01\x00")
    for ask in (keeper.check(taken.session_id), take(keeper, 2)):
        with pytest.raises(MetadataFaultError, match="unreadable"):
            await ask


async def test_a_newer_generation_and_a_later_session_are_respected(zk: MemoryStore) -> None:
    ours, theirs = keeper_of(StoreMetadata(zk, ROOT)), keeper_of(StoreMetadata(zk, ROOT))
    taken = await take(ours, 1)
    assert (await take(theirs, 2)).session_id == taken.session_id + 1
    with pytest.raises(SessionSupersededError, match="session 1 has replaced session 0"):
        await ours.check(taken.session_id)
    with pytest.raises(GenerationMismatchError):
        await take(ours, 1)


@pytest.mark.parametrize("fault", list(Fault))
async def test_metadata_is_made_once_whatever_becomes_of_the_answer(zk: MemoryStore, fault: Fault) -> None:
    keeper = keeper_of(StoreMetadata(zk, ROOT))
    operations: list[str] = []

    def lose_the_first_create(operation: str, _path: str) -> Fault | None:
        operations.append(operation)
        return fault if operation == "create" and operations.count("create") == 1 else None

    zk.fault = lose_the_first_create
    assert (await take(keeper, 1)).session_id == 0
    assert operations.count("create") == (1 if fault is Fault.LOSE_REPLY else 2)


async def test_metadata_made_by_somebody_else_in_the_meantime_is_used(zk: MemoryStore) -> None:
    """Between the first look and the proof that nothing was ever there."""
    made = PartitionMetadata(0, 7)

    class Busy(StoreMetadata):
        async def never_started(self, partition_id: int) -> bool:
            await self.create_partition(partition_id, made)
            return await super().never_started(partition_id)

    keeper = keeper_of(Busy(zk, ROOT))
    assert (await take(keeper, 1)).session_id == 8


@pytest.mark.parametrize("fault", list(Fault))
async def test_states_with_an_uncertain_answer_are_settled_by_reading(zk: MemoryStore, fault: Fault) -> None:
    """Written or not: what ZooKeeper has is ours, and no reason to give the session up."""
    keeper = keeper_of(StoreMetadata(zk, ROOT))
    taken = await take(keeper, 1)
    faults = [fault]

    def lose_the_first_write(operation: str, _path: str) -> Fault | None:
        return faults.pop() if operation in ("set", "set_data") and faults else None

    zk.fault = lose_the_first_write
    with pytest.raises(ConnectionLostError):
        await keeper.write_states(recovered(taken))
    assert not faults
    written = await keeper.write_states(recovered(taken))
    assert written.replicas["a:1"].closing_high_water_mark == UNRESOLVED
    assert (await keeper.check(taken.session_id))[0] == written


async def test_states_are_written_over_the_session_id_without_another_look(zk: MemoryStore) -> None:
    """One way to ZooKeeper less for each partition that is taken over; the version says enough."""
    keeper = keeper_of(StoreMetadata(zk, ROOT))
    taken = await take(keeper, 1)
    operations: list[str] = []
    zk.fault = lambda operation, _path: operations.append(operation)
    await keeper.write_states(recovered(taken))
    assert operations == ["set"]


async def test_safety_a3_states_are_not_written_over_what_somebody_else_wrote_since(zk: MemoryStore) -> None:
    metadata = StoreMetadata(zk, ROOT)
    keeper = keeper_of(metadata)
    taken = await take(keeper, 1)
    _, version = await metadata.read_partition(PARTITION)
    theirs = PartitionMetadata(
        taken.generation, taken.session_id, {"b:1": ReplicaState(PartitionId(PARTITION), "b:1", 0, 7)}
    )
    await metadata.write_partition(PARTITION, theirs, version)
    with pytest.raises(SessionSupersededError, match="changed by someone else"):
        await keeper.write_states(recovered(taken))
    assert (await metadata.read_partition(PARTITION))[0] == theirs
