"""Named producers of clients that are given servers in place of ZooKeeper: the same records by the same rules
(ADR 38), whatever becomes of a request and its answer."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from client_tests.test_directory import directory, endpoint, settings, until
from waltz_client import Committed, ConfigError, ProducerFencedError, SequenceInUseError, WaltzClient
from waltz_client._internal.directory import discovery as discovery_module
from waltz_client._internal.directory import producers as producers_module
from waltz_client._internal.directory.discovery import DirectoryDiscovery
from waltz_client._internal.producer_start import checkpoint_ms
from waltz_client.errors import ConnectError
from waltz_client.settings import ClientSettings
from waltz_cluster.memory_store import MemoryZooKeeper
from waltz_cluster.paths import ClusterPaths
from waltz_cluster.producers import ZooKeeperProducers
from waltz_cluster.serializers import Checkpoint, ProducerRecord
from waltz_protocol.aio.tasks import spawn
from waltz_protocol.messages.producers import ProducerEpochRequest
from waltz_server import producers as server_producers
from waltz_testkit.loopback_server import LoopbackServer


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(discovery_module, "LEAVE_SECONDS", 0.05)
    monkeypatch.setattr(discovery_module, "RECHECK_SECONDS", (0.05, 0.1))


@asynccontextmanager
async def two_servers() -> AsyncIterator[list[LoopbackServer]]:
    """The first owns partition 0, the second partition 1; one ZooKeeper for both."""
    zookeeper = MemoryZooKeeper()
    async with (
        LoopbackServer({0: 1}, zookeeper=zookeeper) as one,
        LoopbackServer({1: 1}, zookeeper=zookeeper) as two,
    ):
        for server in (one, two):
            server.directory.update(directory(1, (one, {0: 1}), (two, {1: 1})))
        yield [one, two]


def orders(server: LoopbackServer, **more: object) -> WaltzClient:
    return WaltzClient.connect(settings(endpoint(server), **more), producer="orders")


def in_zookeeper(server: LoopbackServer) -> ZooKeeperProducers:
    """What a client with a connection to ZooKeeper has."""
    return ZooKeeperProducers(server.zookeeper, ClusterPaths("/loopback"), random.Random(1))


def watching_at(servers: list[LoopbackServer]) -> int:
    """Which server pushes the epoch."""
    return next(
        (
            number
            for number, one in enumerate(servers)
            if any(w.watchers for w in one.producers._watched.values())
        ),
        -1,
    )


async def test_an_instance_continues_where_the_one_before_it_ended() -> None:
    async with two_servers() as servers:
        async with orders(servers[0]) as first:
            assert (first.producer_epoch, await first.last_sequence(0)) == (1, -1)
            assert await first.append(partition=0, data=b"0", sequence=0) == Committed(0, 0)
            own = first.client_id
        async with orders(servers[1]) as second:
            assert (second.client_id, second.producer_epoch) == (own, 2)
            assert await second.last_sequence(0) == 0
            assert await second.append(partition=0, data=b"0", sequence=0) == Committed(0, 0)
            with pytest.raises(SequenceInUseError):
                await second.append(partition=0, data=b"1", sequence=0)


async def test_instances_of_servers_and_of_zookeeper_are_instances_of_one_producer() -> None:
    async with two_servers() as servers:
        direct = in_zookeeper(servers[0])
        await direct.create("orders", ProducerRecord(77, 0, {0: Checkpoint(-1, -1)}))
        await direct.raise_epoch("orders")
        async with orders(servers[0]) as older:
            assert (older.client_id, older.producer_epoch) == (77, 2)
            await older.append(partition=0, data=b"0", sequence=0)
            await until(lambda: watching_at(servers) >= 0)
            assert (await direct.raise_epoch("orders")).epoch == 3
            await until(lambda: older._open.producer is not None and older._open.producer.fenced)
            with pytest.raises(ProducerFencedError) as caught:
                await older.append(partition=0, data=b"1", sequence=1)
            assert caught.value.newer_epoch == 3


async def test_the_fence_is_pushed_by_the_next_server_when_one_is_gone() -> None:
    async with two_servers() as servers, orders(servers[0]) as older:
        await until(lambda: watching_at(servers) >= 0)
        first = watching_at(servers)
        discovery = older._open._discovery
        assert isinstance(discovery, DirectoryDiscovery)
        while watching_at(servers) == first:
            if discovery._session is not None:
                discovery._session.close("planted")
            await asyncio.sleep(0.05)
        await until(lambda: watching_at(servers) >= 0)
        async with orders(servers[first]) as newer:
            assert newer.producer_epoch == 2
            await until(lambda: older._open.producer is not None and older._open.producer.fenced)


@pytest.mark.parametrize(("wanted", "used"), [(1, 1000), (1000, 1000), (10_000, 10_000)])
def test_checkpoints_come_no_more_often_than_servers_take_requests(wanted: int, used: int) -> None:
    interval = {"client.producerCheckpointInterval": wanted}
    servers = ClientSettings.model_validate({"servers": ["localhost:1"], **interval})
    keys = {"zookeeper.connectString": "a:1", "zookeeper.sessionTimeout": 1000, "cluster.root": "/c"}
    zookeeper = ClientSettings.model_validate({**keys, **interval})
    assert checkpoint_ms(servers) == used
    assert checkpoint_ms(zookeeper) == wanted


async def test_checkpoints_are_written_by_a_server() -> None:
    async with two_servers() as servers, orders(servers[0], client_producerCheckpointInterval=50) as client:
        await client.append(partition=0, data=b"0", sequence=0)
        producer = client._open.producer
        assert producer is not None
        for number in range(6_000):  # there is something to write down
            producer.marks_of(0).received(number)
        direct = in_zookeeper(servers[0])

        async def written() -> int:
            record = await direct.find("orders")
            assert record is not None
            return record.checkpoints[0].mark

        async with asyncio.timeout(10):
            while await written() < 0:
                await asyncio.sleep(0.01)
        assert not producer.fenced


Carry = Callable[[Any], Awaitable[None]]


def around(server: LoopbackServer, wrap: Callable[[Carry, Any], Awaitable[None]]) -> None:
    """Carry requests out as this does."""
    carry_out: Carry = server.producers._carry_out

    async def wrapped(job: Any) -> None:
        await wrap(carry_out, job)

    server.producers._carry_out = wrapped  # type: ignore[method-assign]


async def test_safety_e8_an_answer_that_is_lost_costs_an_epoch_and_fences_nobody_else() -> None:
    """A server dies when it has raised the epoch, and nobody hears of it."""

    async def die(carry_out: Carry, job: Any) -> None:
        if isinstance(job.request, ProducerEpochRequest):
            job.client.dismiss("planted")
        await carry_out(job)
        if isinstance(job.request, ProducerEpochRequest):
            assert job.client.closed

    async with two_servers() as servers:
        around(servers[0], die)
        async with orders(servers[0]) as client:
            assert client.producer_epoch == 2
            await client.append(partition=0, data=b"0", sequence=0)
            record = await in_zookeeper(servers[0]).find("orders")
            assert record is not None
            assert record.epoch == 2


async def test_safety_e8_a_request_that_is_carried_out_late_does_not_fence_its_own_instance(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A server is frozen with a request for an epoch; the client gets one from another server, and the first
    one thaws."""
    monkeypatch.setattr(discovery_module, "ASK_SECONDS", 0.3)
    thaw, late = asyncio.Event(), asyncio.Event()

    async def freeze(carry_out: Carry, job: Any) -> None:
        if not isinstance(job.request, ProducerEpochRequest):
            await carry_out(job)
            return
        await thaw.wait()
        await carry_out(job)
        late.set()

    async with two_servers() as servers:
        around(servers[0], freeze)
        async with orders(servers[0]) as client:
            assert client.producer_epoch == 1
            await client.append(partition=0, data=b"0", sequence=0)
            thaw.set()
            await late.wait()
            record = await in_zookeeper(servers[0]).find("orders")
            assert record is not None
            assert record.epoch == 1
            assert await client.append(partition=0, data=b"1", sequence=1) == Committed(0, 1)


async def test_many_instances_at_once_get_epochs_of_their_own() -> None:
    async with two_servers() as servers:
        clients = [orders(servers[number % 2]) for number in range(6)]
        try:
            await asyncio.gather(*(client.__aenter__() for client in clients))
            assert sorted(client.producer_epoch or 0 for client in clients) == list(range(1, 7))
        finally:
            for client in clients:
                await client.close()


async def test_a_frozen_zookeeper_is_an_error_with_a_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_producers, "ANSWER_SECONDS", 0.2)
    monkeypatch.setattr(discovery_module, "ASK_SECONDS", 0.5)
    async with two_servers() as servers:
        for server in servers:

            async def never(name: str) -> None:
                await asyncio.Event().wait()

            monkeypatch.setattr(server.producers._store, "find", never)
        with pytest.raises(
            ConnectError, match=r"record of the producer orders: .*ZooKeeper did not answer within"
        ):
            async with orders(servers[0]):
                pass


async def test_an_epoch_that_is_not_known_now_is_asked_for_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_producers, "ANSWER_SECONDS", 0.1)
    monkeypatch.setattr(producers_module, "WATCH_SECONDS", 0.5)
    asked = 0
    async with two_servers() as servers:
        for server in servers:
            newest = server.producers._store.newest_epoch

            async def often_not(name: str, changed: Any, newest: Any = newest) -> int:
                nonlocal asked
                asked += 1
                if asked % 3:
                    await asyncio.Event().wait()
                return await newest(name, changed)  # type: ignore[no-any-return]

            monkeypatch.setattr(server.producers._store, "newest_epoch", often_not)
        async with orders(servers[0]) as older:
            async with asyncio.timeout(10):
                while asked < 3:
                    await asyncio.sleep(0.01)
            await in_zookeeper(servers[0]).raise_epoch("orders")
            await until(lambda: older._open.producer is not None and older._open.producer.fenced)


async def test_a_server_of_an_earlier_release_is_named_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(discovery_module, "ASK_SECONDS", 0.5)
    monkeypatch.setattr("waltz_server.connection.PRODUCER_TYPES", frozenset())
    async with two_servers() as servers:
        with pytest.raises(
            ConnectError,
            match="a server knows nothing of a record of the producer orders, it is of an earlier",
        ):
            async with orders(servers[0]):
                pass


async def test_what_no_server_does_is_said_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_producers, "MAX_PRODUCERS", 1)
    async with two_servers() as servers:
        async with orders(servers[0]):
            pass
        async with orders(servers[0]):  # one that is there is no new one
            pass
        with pytest.raises(
            ConfigError, match="the cluster has 1 named producers, and no server makes another"
        ):
            async with WaltzClient.connect(settings(endpoint(servers[0])), producer="invoices"):
                pass


async def test_cancelling_leaves_nothing_behind() -> None:
    async with two_servers() as servers:
        for wait in (0.0, 0.001, 0.005, 0.02, 0.05):
            entering = spawn(orders(servers[0]).__aenter__(), "entering")
            await asyncio.sleep(wait)
            entering.cancel()
            done = await asyncio.gather(entering, return_exceptions=True)
            if isinstance(done[0], WaltzClient):
                await done[0].close()
        await until(lambda: not servers[0].producers._askers and not servers[1].producers._askers)
        async with orders(servers[0]) as client:
            await client.append(partition=0, data=b"0", sequence=0)
