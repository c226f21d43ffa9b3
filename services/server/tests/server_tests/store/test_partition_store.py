"""The partition store on in-memory nodes and an in-memory ZooKeeper, on virtual time."""

from __future__ import annotations

import asyncio

import pytest

from server_tests.store.fakes import Cluster, entries, until
from waltz_protocol.types import UNRESOLVED
from waltz_server.store.api import StoreNotOpenError, StoreState

pytestmark = pytest.mark.looptime


async def test_first_session_appends_and_reads() -> None:
    async with Cluster() as cluster:
        server = cluster.server()
        await server.opened()
        assert server.store.session_id == 0
        assert server.listener.events == ["opened -1"]
        batch = entries(10)
        await server.append(batch)
        assert [e.transaction_id for e in batch] == list(range(10))
        assert server.store.high_water_mark == 9
        assert server.store.pending == 0
        assert server.store.pending_bytes == 0
        records = await server.store.read(3, 4)
        assert [int.from_bytes(r[:8], "big") for r in records] == [3, 4, 5, 6]
        assert await server.store.read(10, 5) == []
        await until(lambda: all(n.max_txid == 9 for n in cluster.nodes.values()))
        stored = await cluster.stored()
        assert {s.session_id for s in stored.replicas.values()} == {0}
        assert {s.closing_high_water_mark for s in stored.replicas.values()} == {UNRESOLVED}
        await server.store.confirm_current()
        assert server.store.healthy


async def test_close_ends_run_cleanly() -> None:
    async with Cluster() as cluster:
        server = cluster.server()
        await server.opened()
        server.store.close()
        assert server.task is not None
        await asyncio.wait_for(server.task, 5)
        assert server.store.state is StoreState.CLOSED
        with pytest.raises(StoreNotOpenError):
            server.store.append(entries(1))
