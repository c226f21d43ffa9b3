"""What a node reports about itself: marks of many partitions are asked for together, a bounded number at a
time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest

from waltz_admin import storage_admin
from waltz_admin.storage_admin import inspect_node
from waltz_cluster.serializers import StoreParams
from waltz_protocol.aio.tls import TlsSettings
from waltz_protocol.errors import RequestFailedError
from waltz_protocol.types import Endpoint, PartitionId

PARTITIONS = 100
WITHOUT_MARK, REFUSED, ANOTHER = PartitionId(3), PartitionId(4), PartitionId(5)


class Node:
    """Answers a request for a record when nobody asks any longer."""

    certificate = None
    reports = False

    def __init__(self) -> None:
        self.in_flight = self.most = self.rounds = 0
        self._turn: asyncio.Future[None] | None = None

    async def metrics(self) -> dict[str, Any]:
        gauges: dict[str, Any] = {
            "waltz-storage.waltz-storage-partition-ids": {"value": [*range(PARTITIONS)]}
        }
        for number in range(PARTITIONS):
            of = f"waltz-storage.partition-{number}"
            values = {"session-id": 1, "low-water-mark": 7, "local-low-water-mark": 7, "flags": 3}
            if number == WITHOUT_MARK:
                values["low-water-mark"] = -1
            gauges |= {f"{of}.{name}": {"value": value} for name, value in values.items()}
        return {"gauges": gauges}

    async def partition_status(self) -> dict[int, bool]:
        return dict.fromkeys(range(PARTITIONS), True)

    async def record_list(self, partition_id: int, first: int, _count: int) -> list[SimpleNamespace]:
        self.in_flight += 1
        self.most = max(self.most, self.in_flight)
        if self._turn is None:
            self._turn = asyncio.get_running_loop().create_future()
            asyncio.get_running_loop().call_later(0.01, self._answer)
        await self._turn
        self.in_flight -= 1
        if partition_id == REFUSED:
            raise RequestFailedError("no")
        return [SimpleNamespace(transaction_id=first + (partition_id == ANOTHER))]

    def _answer(self) -> None:
        assert self._turn is not None
        turn, self._turn = self._turn, None
        self.rounds += 1
        turn.set_result(None)


async def test_many_marks_take_few_round_trips(monkeypatch: pytest.MonkeyPatch) -> None:
    node = Node()

    @asynccontextmanager
    async def connected(*_: object, reports: bool) -> AsyncIterator[Node]:
        assert reports
        yield node

    monkeypatch.setattr(storage_admin, "admin_connection", connected)
    found = await inspect_node(
        Endpoint("n", 1), StoreParams(UUID(int=1), PARTITIONS), TlsSettings(enabled=False)
    )
    assert found.holds_mark == frozenset(map(PartitionId, range(PARTITIONS))) - {REFUSED, ANOTHER}
    assert (node.rounds, node.most) == (4, 32)
