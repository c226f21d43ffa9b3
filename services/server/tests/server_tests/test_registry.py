"""Partitions that come, go, come back and fail."""

import asyncio

import pytest

from server_tests.registry_on_nodes import registry_on
from server_tests.store.fakes import PARTITION, Cluster
from waltz_protocol.aio.turns import SLICE_UNITS, TURN_UNITS
from waltz_protocol.backoff import Backoff
from waltz_protocol.messages.client import MountResponse, MountState, TransactionDataResponse
from waltz_protocol.types import ReqId
from waltz_server import registry as registry_module
from waltz_server.partition.owned_partition import Partition
from waltz_testkit.client_peers import FakeClient
from waltz_testkit.loopback_server import LoopbackServer


async def test_adopting_creates_raises_and_closes() -> None:
    async with LoopbackServer({0: 1, 1: 1}) as server:
        registry = server.registry
        await asyncio.sleep(0)
        first, second = registry.partitions[0], registry.partitions[1]
        registry.adopt({1: 4, 2: 1})
        assert first.closed
        assert registry.owned_ids() == [1, 2]
        assert registry.partitions[1] is second
        assert second.generation == 4
        assert server.backend.stores[1].generation == 4
        registry.adopt({1: 3})
        assert second.generation == 4
        assert list(registry.partitions) == [1]


async def test_safety_d8_empty_assignment_closes_everything_before_it_returns() -> None:
    async with LoopbackServer({0: 1, 1: 1}) as server:
        await asyncio.sleep(0)
        partitions = list(server.registry.partitions.values())
        server.registry.adopt({})
        assert all(partition.closed for partition in partitions)
        assert server.registry.health() == {}


async def test_safety_d8_a_partition_that_cannot_be_closed_keeps_no_other_open(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The session of ZooKeeper is over, and nobody calls again before there is another one."""
    async with asyncio.timeout(10), LoopbackServer({0: 1, 1: 1, 2: 1}) as server:
        await asyncio.sleep(0)
        first, *others = server.registry.partitions.values()
        task = server.registry._owned[0].task
        assert task is not None

        def no_memory() -> None:
            monkeypatch.undo()
            raise MemoryError

        monkeypatch.setattr(first, "close", no_memory)
        with pytest.raises(MemoryError):
            server.registry.adopt({})
        assert all(partition.closed for partition in others)
        assert server.registry.owned_ids() == []
        await asyncio.wait([task], timeout=5.0)
        assert task.cancelled()


async def test_a_partition_that_returns_waits_for_its_predecessor_to_end() -> None:
    async with LoopbackServer({0: 1}) as server:
        await asyncio.sleep(0)
        old = server.backend.stores[0]
        ended: list[str] = []
        finish = old.close

        def slow_close() -> None:
            def later() -> None:
                ended.append("old")
                finish()

            asyncio.get_running_loop().call_later(0.02, later)

        old.close = slow_close  # type: ignore[method-assign]
        server.registry.adopt({})
        server.registry.adopt({0: 2})
        new = server.backend.stores[0]
        assert new is not old
        async with asyncio.timeout(30):
            while new.problem:
                await asyncio.sleep(0.001)
        assert ended == ["old"]


async def test_many_partitions_are_opened_in_bounded_turns() -> None:
    """Who gains a thousand answers its peers, and ZooKeeper, meanwhile."""
    most = 1 + (TURN_UNITS + SLICE_UNITS) // registry_module.OPEN_UNITS
    async with LoopbackServer({}, num_partitions=1000) as server:
        registry = server.registry
        registry.adopt(dict.fromkeys(range(1000), 1))
        assert registry.owned_ids() == list(range(1000))
        assert registry.health()[999] == (False, "starting")
        opened = 0
        async with asyncio.timeout(30):
            while opened < 1000:
                before, opened = opened, len(registry.partitions)
                assert opened - before <= most
                await asyncio.sleep(0)
        assert len(server.backend.stores) == 1000


async def test_a_partition_that_waits_to_be_opened_may_leave_and_return() -> None:
    async with LoopbackServer({}, num_partitions=1000) as server:
        registry = server.registry
        registry.adopt(dict.fromkeys(range(1000), 1))
        assert 998 not in registry.partitions
        registry.adopt({997: 1, 998: 2, 999: 1})
        registry.adopt({997: 3, 998: 2})
        registry.adopt({997: 3, 998: 2, 999: 4})
        assert registry.owned_ids() == [997, 998, 999]
        async with asyncio.timeout(30):
            while not all(healthy for healthy, _ in registry.health().values()):
                await asyncio.sleep(0.001)
        found = {partition_id: each.generation for partition_id, each in registry.partitions.items()}
        assert found == {997: 3, 998: 2, 999: 4}
        assert 996 not in server.backend.stores


async def test_what_waits_to_be_opened_stays_closed_when_the_server_leaves() -> None:
    async with LoopbackServer({}, num_partitions=1000) as server:
        server.registry.adopt(dict.fromkeys(range(1000), 1))
        opened = len(server.backend.stores)
        server.registry.begin_leaving()
        await asyncio.sleep(0.05)
        assert len(server.backend.stores) == opened < 1000


async def test_client_server_13_12_failed_partition_starts_over(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry_module, "FIRST_RESTART_SECONDS", 0.02)
    async with LoopbackServer({0: 1}) as server:
        await asyncio.sleep(0)
        registry, first = server.registry, server.registry.partitions[0]
        first._fail("something impossible")
        async with asyncio.timeout(30):
            while registry.health() == {0: (False, "fault: something impossible")}:
                await asyncio.sleep(0)
            healthy, reason = registry.health()[0]
            assert (healthy, reason) == (False, "restarting: something impossible")
            while not registry.health()[0][0]:
                await asyncio.sleep(0.001)
        assert registry.partitions[0] is not first
        assert registry.owned_ids() == [0]


async def test_client_server_13_12_store_that_raises_is_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry_module, "FIRST_RESTART_SECONDS", 0.01)
    async with LoopbackServer({}) as server:
        make = server.backend.make_store
        failures = 2

        def failing(*args: object) -> object:
            nonlocal failures
            store = make(*args)  # type: ignore[arg-type]
            if failures:
                failures -= 1

                async def run() -> None:
                    raise OSError("broken")

                store.run = run  # type: ignore[method-assign]
            return store

        server.backend.make_store = failing  # type: ignore[method-assign, assignment]
        server.registry.adopt({0: 1})
        async with asyncio.timeout(30):
            while not server.registry.health()[0][0]:
                await asyncio.sleep(0.001)
        assert failures == 0


@pytest.mark.parametrize("failures", [1, 3])
async def test_a_partition_that_cannot_be_made_is_tried_again_and_holds_up_no_other(
    failures: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(registry_module, "FIRST_RESTART_SECONDS", 0.01)
    async with LoopbackServer({}) as server:
        registry = server.registry
        make, left = registry._make_partition, failures

        def failing(partition_id: int, generation: int) -> Partition:
            nonlocal left
            if partition_id == 1 and left:
                left -= 1
                raise MemoryError("no memory")
            return make(partition_id, generation)

        registry._make_partition = failing
        registry.adopt({0: 1, 1: 1, 2: 1})
        assert registry.owned_ids() == [0, 1, 2]
        async with asyncio.timeout(30):
            while len(registry.partitions) < 2:
                await asyncio.sleep(0)
            assert list(registry.partitions) == [0, 2]
            assert registry.health()[1] == (False, "restarting after: no memory")
            while not all(healthy for healthy, _ in registry.health().values()):
                await asyncio.sleep(0.001)
        assert left == 0


async def test_a_partition_that_cannot_be_made_may_leave(monkeypatch: pytest.MonkeyPatch) -> None:
    async with LoopbackServer({}) as server:

        def failing(partition_id: int, generation: int) -> Partition:
            raise MemoryError("no memory")

        server.registry._make_partition = failing
        server.registry.adopt({0: 1})
        await asyncio.sleep(0)
        server.registry.adopt({})
        assert server.registry.health() == {}


async def test_release_during_the_pause_before_a_restart_ends_it() -> None:
    async with LoopbackServer({0: 1}) as server:
        await asyncio.sleep(0)
        server.registry.partitions[0]._fail("something impossible")
        while 0 in server.registry.partitions:
            await asyncio.sleep(0)
        server.registry.adopt({})
        assert server.registry.health() == {}
        assert not [name for name in server.metrics.metrics if "partition-0" in name]


@pytest.mark.looptime
async def test_safety_d8_a_release_in_the_turn_in_which_the_pause_ends_wins(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A process that was suspended for longer than its ZooKeeper session."""
    monkeypatch.setattr(Backoff, "next_seconds", lambda _: 0.25)
    async with Cluster() as cluster, registry_on(cluster, 1) as registry:
        registry.adopt({PARTITION: 1})
        await asyncio.sleep(1)
        registry.partitions[PARTITION]._fail("something impossible")
        while PARTITION in registry.partitions:
            await asyncio.sleep(0)
        asyncio.get_running_loop().call_later(0.25, registry.adopt, {})
        await asyncio.sleep(1)
        assert registry.partitions == {}


async def test_held_mounts_are_refused_when_the_server_leaves() -> None:
    async with LoopbackServer({}) as server:
        client = FakeClient()
        first, second = ReqId(1, 1, 4, 1), ReqId(1, 1, 4, 2)
        server.registry.hold_mount(client, 4, first.pack(), 1, -1)
        server.registry.hold_mount(client, 4, second.pack(), 1, -1)
        assert client.messages() == [MountResponse(first, MountState.NOT_READY)]
        server.registry.close()
        assert client.messages()[1:] == [MountResponse(second, MountState.NOT_READY)]


async def test_held_reads_are_refused_when_the_server_leaves() -> None:
    async with LoopbackServer({}) as server:
        client, gone = FakeClient(), FakeClient()
        held, late, nowhere = (ReqId(1, 1, 4, number).pack() for number in range(3))
        server.registry.hold_read(client, 4, held, 7)
        server.registry.hold_read(gone, 4, held, 7)
        server.registry.connection_closed(gone)  # type: ignore[arg-type]
        assert client.stream == b""
        server.registry.hold_read(client, 99, nowhere, 7)  # there is no such partition
        server.registry.close()
        server.registry.hold_read(client, 4, late, 7)
        answers = client.of(TransactionDataResponse)
        assert [answer.req_id.pack() for answer in answers] == [nowhere, held, late]
        assert {answer.error for answer in answers} == {"partition not ready"}
        assert gone.stream == b""


async def test_drain_returns_when_nothing_is_undecided_and_nobody_takes_over() -> None:
    async with LoopbackServer({0: 1}) as server:
        await asyncio.sleep(0)
        server.registry.begin_leaving()
        async with asyncio.timeout(30):
            await server.registry.drain(3600.0, wait_for_successor=False)


async def test_drain_closes_a_partition_when_its_successor_takes_the_session() -> None:
    async with LoopbackServer({0: 1}) as server:
        await asyncio.sleep(0)
        partition = server.registry.partitions[0]
        server.registry.begin_leaving()
        server.registry.adopt({})
        assert not partition.closed
        asyncio.get_running_loop().call_later(0.05, server.backend.stores[0].lose_session, "fenced")
        async with asyncio.timeout(30):
            await server.registry.drain(3600.0, wait_for_successor=True)
        assert partition.closed
