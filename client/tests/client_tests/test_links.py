"""Connections that cannot be made, or that end at a bad moment."""

import asyncio
import random
from dataclasses import replace
from typing import cast
from unittest.mock import AsyncMock, Mock

import pytest

from client_tests.conftest import ConnectClient
from waltz_client import Append, Committed, UsageError
from waltz_client._internal.link import Connector, Link, LinkSettings
from waltz_client._internal.rpc.session import RpcSession
from waltz_protocol.aio.channel import Channel, ChannelSettings
from waltz_protocol.aio.tasks import spawn
from waltz_protocol.frame import Magic
from waltz_protocol.types import Endpoint
from waltz_testkit.fake_cluster import FakeCluster


async def test_a_host_name_that_is_none_does_not_end_a_link() -> None:
    """Discovery may hold anything; such a server stays unreachable, with a reason, and is tried again."""
    settings = LinkSettings(
        ChannelSettings(Magic.CLIENT, (4,), "test"), None, 1.0, initial_backoff_seconds=0.01
    )
    endpoint = Endpoint("a..b", 7)
    link = Link(
        endpoint, settings, lambda: RpcSession(endpoint, lambda s: None, lambda s, r: None), random.Random(1)
    )
    task = spawn(link.run(), "link")
    await asyncio.sleep(0.1)
    assert not task.done()
    assert link.last_error == "cannot connect to a..b:7: that is no host name"
    task.cancel()
    await asyncio.wait([task])


async def test_a_connection_that_cannot_be_used_does_not_end_a_link() -> None:
    """Everything that waits for this server would wait permanently."""

    class Unusable(RpcSession):
        def established(self, channel: Channel) -> None:
            if len(tried) < 3:
                tried.append(channel)
                raise RuntimeError("a defect")
            usable.set()

    tried: list[Channel] = []
    usable = asyncio.Event()
    settings = LinkSettings(
        ChannelSettings(Magic.CLIENT, (4,), "test"), None, 1.0, initial_backoff_seconds=0.01
    )

    async def connect(*_: object) -> Channel:
        return cast(Channel, Mock(wait_closed=AsyncMock(side_effect=asyncio.Event().wait)))

    endpoint = Endpoint("localhost", 7)
    link = Link(
        endpoint,
        replace(settings, connect=cast(Connector, connect)),
        lambda: Unusable(endpoint, lambda s: None, lambda s, r: None),
        random.Random(1),
    )
    task = spawn(link.run(), "link")
    async with asyncio.timeout(5):
        await usable.wait()
    assert all(cast(Mock, channel).close.called for channel in tried)
    task.cancel()
    await asyncio.wait([task])


async def test_an_unforeseen_error_of_a_connector_does_not_end_a_link(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """It is logged with its stack trace, once, and tried again."""
    connected = asyncio.Event()
    channel = cast(Channel, Mock(wait_closed=AsyncMock(side_effect=asyncio.Event().wait)))
    connect = AsyncMock(side_effect=[RuntimeError("a defect"), RuntimeError("a defect"), channel])
    settings = LinkSettings(
        ChannelSettings(Magic.CLIENT, (4,), "test"),
        None,
        1.0,
        initial_backoff_seconds=0.01,
        connect=cast(Connector, connect),
    )
    endpoint = Endpoint("localhost", 7)
    link = Link(
        endpoint,
        settings,
        lambda: RpcSession(endpoint, lambda s: connected.set(), lambda s, r: None),
        random.Random(1),
    )
    task = spawn(link.run(), "link")
    async with asyncio.timeout(5):
        await connected.wait()
    told = [record for record in caplog.records if record.exc_info is not None]
    assert [record.getMessage() for record in told] == ["server localhost:7: a defect; trying again"]
    task.cancel()
    await asyncio.wait([task])


async def test_as_of_beyond_any_transaction_is_a_usage_error(
    cluster: FakeCluster, connect: ConnectClient
) -> None:
    client = await connect()
    with pytest.raises(UsageError):
        await client.append(partition=0, data=b"x", as_of=2**63, deadline_seconds=2)


async def test_an_append_that_meets_a_closing_connection_waits_for_the_next_one(
    cluster: FakeCluster, connect: ConnectClient
) -> None:
    """Between the close of a channel and the news of it the partition looks mounted."""
    client = await connect()
    await client.append(partition=0, data=b"0")
    session = client._open.partitions.streams[0].session
    assert session is not None
    session.abort("test")
    result = await client.append_many([Append(0, b"1")], deadline_seconds=5)
    assert result == [Committed(0, 1)]


async def test_a_feed_neither_skips_nor_doubles_over_cuts_moves_and_slow_reading(
    cluster: FakeCluster, connect: ConnectClient
) -> None:
    """Readers of every speed, a writer, and a connection that is cut or a partition that moves every few
    transactions."""
    rng = random.Random(11)
    client = await connect(feedBufferTransactions=1024, maxConcurrentTransactions=50, prefetchTransactions=64)
    partition = cluster.partitions[0]
    partition.fill(3000)
    total = 6000
    seen: dict[str, list[int]] = {"fast": [], "slow": [], "late": [], "data": []}

    async def read(name: str, pause: float, with_data: bool) -> None:
        async for batch in client.feed(0, until=total - 1, headers_only=not with_data).batches():
            for transaction in batch:
                seen[name].append(transaction.transaction_id)
                if with_data:
                    assert transaction.data == partition.log[transaction.transaction_id].data
            await asyncio.sleep(pause * rng.random())

    async def disturb() -> None:
        while partition.high_water_mark < total - 1:
            await asyncio.sleep(0.03 * rng.random())
            partition.fill(min(rng.randrange(150), total - 1 - partition.high_water_mark))
            what = rng.randrange(6)
            if what == 0:
                cluster.servers[rng.randrange(2)].cut_connections()
            elif what == 1:
                await cluster.move(0, cluster.servers[rng.randrange(2)])

    async with asyncio.timeout(60), asyncio.TaskGroup() as group:
        group.create_task(read("fast", 0, False))
        group.create_task(read("slow", 0.05, False))
        group.create_task(read("data", 0.01, True))
        group.create_task(disturb())
        await asyncio.sleep(0.3)
        group.create_task(read("late", 0.001, False))
    for name, ids in seen.items():
        assert ids == list(range(total)), name
