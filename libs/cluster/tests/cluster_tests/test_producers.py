"""Named producers: the record, on both stores; what an uncertain write, a race and an older instance do."""

import asyncio
import random
from collections.abc import Callable
from typing import cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cluster_tests.conftest import NewSession
from waltz_cluster.errors import ConfigError, IdsExhaustedError, NoNodeError, SerializationError
from waltz_cluster.memory_store import Fault, MemoryStore, MemoryZooKeeper
from waltz_cluster.paths import ClusterPaths
from waltz_cluster.producers import (
    EpochWentBackError,
    NewerEpochError,
    ProducerGoneError,
    ZooKeeperProducers,
    check_name,
)
from waltz_cluster.serializers import MAX_ID, Checkpoint, ProducerRecord
from waltz_cluster.store import Watch, ZnodeStat, ZooKeeperStore

ROOT = "/waltz/producers-of"
NEW = ProducerRecord(7, 0, {0: Checkpoint(41, 41), 1: Checkpoint(-1, -1)})


def producers(store: ZooKeeperStore, root: str = ROOT) -> ZooKeeperProducers:
    return ZooKeeperProducers(store, ClusterPaths(root), random.Random(0))


def memory() -> MemoryStore:
    return MemoryZooKeeper().session()


async def test_instances_of_one_name_share_the_client_id_and_have_epochs_of_their_own(
    new_session: NewSession, root: str
) -> None:
    first, second = [producers(await new_session(), root) for _ in range(2)]
    assert await first.find("orders") is None
    await first.create("orders", NEW)
    await second.create("orders", ProducerRecord(8, 0))  # it was second
    assert await second.find("orders") == NEW
    assert await first.raise_epoch("orders") == ProducerRecord(7, 1, NEW.checkpoints)
    assert (await second.raise_epoch("orders")).epoch == 2
    assert await first.find("invoices") is None


async def test_the_older_instance_is_informed_and_its_checkpoint_refused(
    new_session: NewSession, root: str
) -> None:
    first, second = [producers(await new_session(), root) for _ in range(2)]
    await first.create("orders", NEW)
    await first.raise_epoch("orders")
    changed = asyncio.Event()
    assert await first.newest_epoch("orders", changed.set) == 1
    await first.write_checkpoints("orders", 1, {0: Checkpoint(41, 50, 3)})
    await second.raise_epoch("orders")
    async with asyncio.timeout(5):
        await changed.wait()
    assert await first.newest_epoch("orders", changed.set) == 2
    with pytest.raises(NewerEpochError, match="epoch 2"):
        await first.write_checkpoints("orders", 1, {0: Checkpoint(41, 60, 4)})
    await second.write_checkpoints("orders", 2, {0: Checkpoint(99, 40, 9), 1: Checkpoint(-1, 5, 0)})
    found = await second.find("orders")
    assert found is not None
    assert found.checkpoints == {0: Checkpoint(41, 50, 3), 1: Checkpoint(-1, 5, 0)}, "a mark only grows"


async def test_a_record_of_an_older_copy_is_not_taken_for_a_newer_instance() -> None:
    store = memory()
    await producers(store).create("orders", ProducerRecord(7, 3))
    with pytest.raises(EpochWentBackError, match="has the epoch 3, below the epoch 5 of this instance"):
        await producers(store).write_checkpoints("orders", 5, {0: Checkpoint(-1, 5, 0)})


@pytest.mark.parametrize("fault", [Fault.LOSE_REPLY, Fault.LOSE_REQUEST])
async def test_an_epoch_whose_write_has_no_certain_outcome_is_not_used(fault: Fault) -> None:
    zookeeper = MemoryZooKeeper()
    store = zookeeper.session()
    await producers(store).create("orders", NEW)
    lost = [fault]
    store.fault = lambda operation, _: lost.pop() if operation == "set" and lost else None
    epoch = (await producers(store).raise_epoch("orders")).epoch
    assert epoch == (2 if fault is Fault.LOSE_REPLY else 1)
    assert (await producers(zookeeper.session()).raise_epoch("orders")).epoch == epoch + 1


class Behind:
    """A session at a member of the ensemble that is behind until it is asked to catch up."""

    def __init__(self, store: MemoryStore) -> None:
        self._store = store
        self._old: dict[str, tuple[bytes | None, ZnodeStat] | None] = {}
        """None: the znode is not there yet."""

    async def fall_behind(self, path: str) -> None:
        try:
            self._old[path] = await self._store.get(path)
        except NoNodeError:
            self._old[path] = None

    async def sync(self, path: str) -> None:
        await self._store.sync(path)
        self._old.pop(path, None)

    async def get(self, path: str, watch: Watch | None = None) -> tuple[bytes | None, ZnodeStat]:
        if path not in self._old:
            return await self._store.get(path, watch)
        if (old := self._old[path]) is None:
            raise NoNodeError(path)
        return old

    def __getattr__(self, name: str) -> object:
        return getattr(self._store, name)


async def test_an_epoch_of_another_session_is_not_taken_for_an_older_copy() -> None:
    """An instance asks one server for its epoch and another one for its checkpoints."""
    zookeeper, path = MemoryZooKeeper(), f"{ROOT}/producers/orders"
    one, behind = producers(zookeeper.session()), Behind(zookeeper.session())
    other = producers(cast("ZooKeeperStore", behind))
    await one.create("orders", NEW)
    await behind.fall_behind(path)
    await one.raise_epoch("orders")
    await other.write_checkpoints("orders", 1, {0: Checkpoint(41, 50, 3)})
    await behind.fall_behind(path)
    await one.raise_epoch("orders")
    assert (await other.raise_epoch("orders", 3)).epoch == 3
    assert await other.count() == 1


async def test_a_producer_that_a_follower_does_not_show_yet_is_not_called_deleted() -> None:
    """The fence would hit the newest instance."""
    zookeeper, path = MemoryZooKeeper(), f"{ROOT}/producers/orders"
    one, behind = producers(zookeeper.session()), Behind(zookeeper.session())
    await behind.fall_behind(path)
    await one.create("orders", NEW)
    await one.raise_epoch("orders")
    changed = asyncio.Event()
    assert await producers(cast("ZooKeeperStore", behind)).newest_epoch("orders", changed.set) == 1
    await one.raise_epoch("orders")
    async with asyncio.timeout(5):
        await changed.wait()


@pytest.mark.parametrize("to", [1, 2, 4])
async def test_safety_e8_an_epoch_that_is_asked_for_by_its_number_follows_the_one_before_it(to: int) -> None:
    store = memory()
    await producers(store).create("orders", ProducerRecord(7, 2))
    assert await producers(store).count() == 1
    with pytest.raises(NewerEpochError if to < 3 else EpochWentBackError) as caught:
        await producers(store).raise_epoch("orders", to)
    assert isinstance(caught.value, NewerEpochError | EpochWentBackError)
    assert caught.value.epoch == 2
    assert (await producers(store).raise_epoch("orders", 3)).epoch == 3


async def test_many_at_once_get_epochs_of_their_own() -> None:
    zookeeper = MemoryZooKeeper()
    await producers(zookeeper.session()).create("orders", NEW)
    begun = await asyncio.gather(*(producers(zookeeper.session()).raise_epoch("orders") for _ in range(10)))
    assert sorted(record.epoch for record in begun) == list(range(1, 11))


async def test_a_record_that_was_deleted_ends_its_instances() -> None:
    store = memory()
    await producers(store).create("orders", NEW)
    await store.delete(f"{ROOT}/producers/orders")
    calls: list[Callable[[], object]] = [
        lambda: producers(store).raise_epoch("orders"),
        lambda: producers(store).newest_epoch("orders", lambda: None),
        lambda: producers(store).write_checkpoints("orders", 1, {}),
    ]
    for call in calls:
        with pytest.raises(ProducerGoneError, match="was deleted"):
            await call()  # type: ignore[misc]


async def test_epochs_end_instead_of_wrapping_round() -> None:
    store = memory()
    await producers(store).create("orders", ProducerRecord(7, MAX_ID))
    with pytest.raises(IdsExhaustedError):
        await producers(store).raise_epoch("orders")


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "-a", "a b", "é", "a" * 101])
def test_a_name_that_no_znode_can_have_is_refused(name: str) -> None:
    with pytest.raises(ConfigError, match="name of a producer"):
        check_name(name)


@pytest.mark.parametrize("name", ["a", "orders", "orders.eu-west_1", "0" * 100])
def test_names(name: str) -> None:
    assert check_name(name) == name


I32, I64 = st.integers(-(2**31), 2**31 - 1), st.integers(-(2**63), 2**63 - 1)


@given(st.builds(ProducerRecord, I32, I32, st.dictionaries(I32, st.builds(Checkpoint, I64, I64, I32))))
def test_the_record_as_bytes(record: ProducerRecord) -> None:
    data = record.to_bytes()
    assert ProducerRecord.from_bytes(data) == record
    assert ProducerRecord.from_bytes(data + b"of a later release") == record
    with pytest.raises(SerializationError):
        ProducerRecord.from_bytes(data[:-1])


def test_golden_bytes() -> None:
    assert ProducerRecord(7, 2, {3: Checkpoint(41, 50, 9)}).to_bytes() == bytes.fromhex(
        "01 00000007 00000002 00000001 00000003 0000000000000029 0000000000000032 00000009"
    )
