"""Transactions above `client.maxFrameBytes`: who reads them hears of it, and nobody else does."""

import asyncio
import random

import pytest

from client_tests.helpers import settings_for
from client_tests.test_shared_ids import OneId
from waltz_client import WaltzClient
from waltz_client.errors import ConfigError
from waltz_protocol.types import Endpoint
from waltz_testkit.fake_cluster import FakeCluster
from waltz_testkit.loopback_server import LoopbackServer

LARGE = bytes(100_000)


@pytest.mark.parametrize("answered", [False, True])
async def test_a_transaction_above_the_limit_ends_its_reader_and_no_other(answered: bool) -> None:
    async with LoopbackServer({0: 1, 1: 1}) as server:
        discovery = OneId(Endpoint("127.0.0.1", server.listener.port))

        def connect(seed: int, **more: object) -> WaltzClient:
            keys = settings_for(FakeCluster(1), answeredAppends=answered, **more)
            return WaltzClient.connect(keys, discovery=discovery, random=random.Random(seed))

        async with connect(1) as writer:
            await writer.append(partition=0, data=b"before")
            await writer.append(partition=0, data=LARGE)
            await writer.append(partition=1, data=b"other")
        said = r"partition 0: the answer has 100\d{3} bytes, and client\.maxFrameBytes is 50000"
        async with connect(2, maxFrameBytes=50_000) as reader, asyncio.timeout(30):
            other = aiter(reader.feed(1, after=-1))
            assert (await anext(other)).data == b"other"
            found = []
            with pytest.raises(ConfigError, match=said):
                async for transaction in reader.feed(0, after=-1):
                    found.append(transaction.data)
            assert found in ([], [b"before"])  # it may be in one block with the large one
            with pytest.raises(ConfigError, match=said):
                await reader.get_data(0, 1)
            assert await reader.get_data(0, 0) == b"before"
            await reader.append(partition=1, data=b"more")
            assert (await anext(other)).data == b"more"
