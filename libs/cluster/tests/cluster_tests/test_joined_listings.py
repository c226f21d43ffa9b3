"""Listings that many share: one request, and no answer that is older than its question."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from waltz_cluster.errors import ConnectionLostError
from waltz_cluster.joined_listings import JoinedListings
from waltz_cluster.memory_store import Fault, MemoryZooKeeper
from waltz_cluster.partition_metadata import StoreMetadata
from waltz_cluster.paths import ClusterPaths
from waltz_cluster.serializers import PartitionMetadata
from waltz_cluster.store import ZnodeStat
from waltz_protocol.aio.tasks import spawn

STAT: Any = object()
OLD = (frozenset({"0"}), STAT)
NEW = (frozenset({"0", "1"}), STAT)


class Slow:
    """A ZooKeeper that has decided an answer when it is asked, and gives it when `release` lets it."""

    def __init__(self) -> None:
        self.names = ["0"]
        self.gates: list[asyncio.Event] = []

    async def get_children(self, path: str, watch: object = None) -> tuple[list[str], ZnodeStat]:
        assert path == "/w"
        names, gate = sorted(self.names), asyncio.Event()
        self.gates.append(gate)
        await gate.wait()
        if names == ["lost"]:
            raise ConnectionLostError("a test")
        return names, STAT

    async def until_asked(self, count: int) -> None:
        async with asyncio.timeout(5.0):
            while len(self.gates) < count:
                await asyncio.sleep(0)


def slow() -> tuple[Slow, Callable[[], Coroutine[Any, Any, tuple[frozenset[str], ZnodeStat]]]]:
    zookeeper: Any = Slow()
    return zookeeper, JoinedListings(zookeeper, "/w").get


async def test_all_who_ask_in_one_turn_share_one_listing() -> None:
    """A server that starts ten thousand partitions for the first time."""
    store = MemoryZooKeeper().session()
    await store.create(ClusterPaths("/w").partitions, None, make_parents=True)
    metadata = StoreMetadata(store, "/w")
    await metadata.create_partition(7, PartitionMetadata())
    operations: list[str] = []
    store.fault = lambda operation, _path: operations.append(operation)
    found = await asyncio.gather(*map(metadata.never_started, range(100)))
    assert [number for number, never in enumerate(found) if not never] == [7]
    assert operations == ["get_children"]
    assert await metadata.never_started(8)
    assert len(operations) == 2


async def test_safety_a2_no_answer_is_older_than_its_question() -> None:
    """The znode of a partition that was created meanwhile is seen."""
    zookeeper, names = slow()
    early = spawn(names(), "question")
    await zookeeper.until_asked(1)
    zookeeper.names.append("1")
    late = []
    for _ in range(5):
        late.append(spawn(names(), "question"))
        await asyncio.sleep(0)
    zookeeper.gates[0].set()
    assert await early == OLD
    await zookeeper.until_asked(2)
    zookeeper.gates[1].set()
    assert await asyncio.gather(*late) == [NEW] * 5
    assert len(zookeeper.gates) == 2, "those who wait for one in flight share the next"


async def test_who_gives_up_takes_the_answer_from_nobody() -> None:
    zookeeper, names = slow()
    first, second, third = (spawn(names(), "question") for _ in range(3))
    await zookeeper.until_asked(1)
    first.cancel()
    waits = spawn(names(), "question")
    await asyncio.sleep(0)
    waits.cancel()
    await asyncio.sleep(0)
    zookeeper.gates[0].set()
    assert await second == await third == OLD
    again = spawn(names(), "question")
    await zookeeper.until_asked(2)
    zookeeper.gates[1].set()
    assert await again == OLD


async def test_an_error_is_that_of_all_who_shared_the_listing_and_of_nobody_else() -> None:
    zookeeper, names = slow()
    zookeeper.names = ["lost"]
    shared = [spawn(names(), "question") for _ in range(2)]
    await zookeeper.until_asked(1)
    zookeeper.names = ["0"]
    later = spawn(names(), "question")
    await asyncio.sleep(0)
    zookeeper.gates[0].set()
    for each in await asyncio.gather(*shared, return_exceptions=True):
        assert isinstance(each, ConnectionLostError)
    await zookeeper.until_asked(2)
    zookeeper.gates[1].set()
    assert await later == OLD


async def test_a_lost_reply_is_not_taken_for_a_partition_that_was_never_started() -> None:
    store = MemoryZooKeeper().session()
    await store.create(ClusterPaths("/w").partitions, None, make_parents=True)
    metadata = StoreMetadata(store, "/w")
    faults = [Fault.LOSE_REPLY]
    store.fault = lambda _operation, _path: faults.pop() if faults else None
    with pytest.raises(ConnectionLostError):
        await metadata.never_started(0)
    assert await metadata.never_started(0)
