"""What the stream side needs of the client around it (`partitions`)."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, Protocol


class Application(Protocol):
    """Who applies the transactions of a partition."""

    applied: int | None
    """The last one that was applied; None while that is not known."""


class ReaderHost(Protocol):
    """What the readers of a partition need."""

    async def server_high_water_mark(self, partition_id: int) -> int:
        """The server's high-water mark now (RPC)."""
        ...

    def mark_named(self, partition_id: int, mark: int) -> None:
        """A server has named this mark: the log reaches it."""
        ...

    def spawn(self, coro: Coroutine[Any, Any, None], name: str) -> asyncio.Task[None]:
        """Run a coroutine that ends with the client."""
        ...


class PartitionHost(ReaderHost, Protocol):
    """What a partition needs of the client around it."""

    async def start_mark(self, partition_id: int) -> int:
        """Where the first mount begins. Raises while that cannot be known yet; asked again with back-off."""
        ...

    def need_ticks(self) -> None:
        """Call `on_tick` from now on, as long as `needs_ticks`."""
        ...
