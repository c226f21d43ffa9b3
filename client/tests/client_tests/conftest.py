"""Fixtures: a fake cluster, and clients of it that are closed at the end."""

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack

import pytest

from client_tests.helpers import settings_for
from waltz_client import WaltzClient, WaltzClientCallbacks
from waltz_testkit.fake_cluster import FakeCluster

ConnectClient = Callable[..., Awaitable[WaltzClient]]


@pytest.fixture
async def cluster() -> AsyncIterator[FakeCluster]:
    """Two partitions, two servers, everything on the first one, no TLS."""
    fake = FakeCluster(2)
    await fake.start(2)
    yield fake
    await fake.close()


@pytest.fixture
async def connect(cluster: FakeCluster) -> AsyncIterator[ConnectClient]:
    """``await connect(callbacks, **settings)``: a client of the fake cluster."""
    async with AsyncExitStack() as stack:

        async def make(callbacks: WaltzClientCallbacks | None = None, **settings: object) -> WaltzClient:
            client = WaltzClient.connect(
                settings_for(cluster, **settings), callbacks, store=cluster.session(), random=random.Random(7)
            )
            return await stack.enter_async_context(client)

        yield make
        # Whatever a test does, its client must be closable in time.
        async with asyncio.timeout(10):
            await stack.aclose()
