"""What tests of named producers share."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from typing import Any, TypeVar

from waltz_client import (
    WaltzClient,
)
from waltz_client.testing import InProcessLog
from waltz_protocol.aio.tasks import spawn

T = TypeVar("T")


def orders(log: InProcessLog, **settings: object) -> WaltzClient:
    keys = {f"client.{key}": value for key, value in settings.items()}
    return WaltzClient.connect({"client.mockDriver": log, **keys}, producer="orders")


@asynccontextmanager
async def crashing(log: InProcessLog) -> AsyncIterator[WaltzClient]:
    """An application that does not come to its last checkpoint."""
    async with orders(log) as client:
        yield client
        core = client._core
        assert core is not None
        assert core.producer is not None
        core.producer._marks.clear()


def under_way(call: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
    return spawn(call, "append")


def numbers(log: InProcessLog, partition: int = 0) -> list[int]:
    return [one.req_id.seq_num for one in log.partition(partition).transactions]
