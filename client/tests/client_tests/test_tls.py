"""TLS to a server with a self-signed certificate: only by an explicit setting."""

import asyncio

import pytest

from client_tests.helpers import settings_for
from waltz_client import Append, Committed, DeadlineExceededError, WaltzClient
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
