"""Appends above the limit of their server's frames, from the application to the server and back."""

import asyncio
import random

import pytest

from client_tests.helpers import settings_for
from client_tests.test_shared_ids import OneId
from waltz_client import Append, TransactionTooLargeError, WaltzClient
from waltz_client.errors import Outcome
from waltz_protocol.types import Endpoint
from waltz_testkit.fake_cluster import FakeCluster
from waltz_testkit.loopback_server import LoopbackServer


async def test_an_append_above_the_servers_limit_ends_and_no_other_append_waits_for_it() -> None:
    async with LoopbackServer({0: 1, 1: 1}) as server:
        keys = settings_for(FakeCluster(1), answeredAppends=True)
        discovery = OneId(Endpoint("127.0.0.1", server.listener.port))
        async with WaltzClient.connect(keys, discovery=discovery, random=random.Random(1)) as client:
            first = await client.append(partition=1, data=b"first")
            connections = server.listener.channels
            with pytest.raises(TransactionTooLargeError) as caught:
                await client.append(partition=0, data=bytes(1 << 20))
            assert caught.value.outcome is Outcome.FAILED
            said = f"has {(1 << 20) + 49} bytes, and the server takes {1 << 20} (server.maxFrameBytes)"
            assert said in str(caught.value)
            async with asyncio.timeout(30):
                many = await client.append_many(
                    [Append(0, b"a"), Append(0, bytes(1 << 20)), Append(0, b"b"), Append(1, b"c")]
                )
            kinds = [type(one).__name__ for one in many]
            assert kinds == ["Committed", "TransactionTooLargeError", "Committed", "Committed"]
            last = await client.append(partition=1, data=b"last")
            assert last.transaction_id == first.transaction_id + 2
            assert server.listener.channels == connections
