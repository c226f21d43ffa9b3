"""TLS to a server with a self-signed certificate: only by an explicit setting."""

import asyncio
from typing import Any

import pytest

from client_tests.helpers import settings_for
from waltz_client import Append, Committed, DeadlineExceededError, WaltzClient
from waltz_client.settings import ClientSettings
from waltz_protocol.aio.channel import Channel
from waltz_protocol.aio.connector import connect
from waltz_protocol.aio.tls import TlsSettings, server_context
from waltz_testkit.fake_cluster import fake_cluster


async def test_append_and_read_over_tls() -> None:
    async with fake_cluster(1, tls=server_context(TlsSettings())) as cluster:
        settings = {
            **settings_for(cluster, maxConcurrentTransactions=100),
            "client.ssl.enabled": True,
            "client.ssl.allowUnverified": True,
        }
        async with asyncio.timeout(20), WaltzClient.connect(settings, store=cluster.session()) as client:
            results = await client.append_many([Append(0, b"%d" % i) for i in range(500)])
            assert results == [Committed(0, i) for i in range(500)]
            got = [t.data async for t in client.feed(0, until=499)]
            assert got == [b"%d" % i for i in range(500)]


async def test_a_plaintext_client_of_a_tls_server_is_told_why() -> None:
    async with fake_cluster(1, tls=server_context(TlsSettings())) as cluster:
        settings = {**settings_for(cluster), "client.connectTimeout": 300}
        async with WaltzClient.connect(settings, store=cluster.session()) as client:
            with pytest.raises(DeadlineExceededError, match="cannot connect to 127"):
                await client.append(partition=0, data=b"x", deadline_seconds=1.5)


async def test_a_client_that_is_closed_has_no_connections_left() -> None:
    """TLS says good-bye, and the server takes its time to answer: with `asyncio.run` the loop ends then."""
    made: list[Channel] = []

    async def connector(*arguments: Any, **named: Any) -> Channel:
        made.append(await connect(*arguments, **named))
        return made[-1]

    async with fake_cluster(1, tls=server_context(TlsSettings())) as cluster:
        settings = {
            **settings_for(cluster),
            "client.ssl.enabled": True,
            "client.ssl.allowUnverified": True,
        }
        client = WaltzClient(ClientSettings.load(settings), store=cluster.session(), connector=connector)
        async with asyncio.timeout(20), client:
            await client.append(partition=0, data=b"x")
            for connection in cluster.servers[0].connections:
                assert connection.channel is not None
                connection.channel.pause_reading()
                asyncio.get_running_loop().call_later(0.2, connection.channel.resume_reading)
        assert len(made) == 2
        assert [one.extra("socket") for one in made] == [None, None]
