"""What the client-facing half needs of the replication core, in one place.

`StoreBackend` is the seam `WaltzServer` is built on; `QuorumBackend` ties it to the real core, tests and
benchmarks use one of their own.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from waltz_server.store.api import PartitionStore, StoreListener


class StoreBackend(Protocol):
    """Stores of partitions on the storage nodes of one cluster. Owner: the server."""

    def make_store(self, partition_id: int, generation: int, listener: StoreListener) -> PartitionStore:
        """A store that does nothing before its `run`."""

    def replicas_of(self, partition_id: int) -> tuple[str, ...]:
        """Storage nodes ("host:port") assigned to the partition, as far as known."""

    async def check_connectivity(self) -> dict[str, bool]:
        """Storage node -> whether a connection could be opened just now, and the node answers."""

    async def start(self, on_replicas_changed: Callable[[], None]) -> None:
        """Learn the replica assignments; call back on every change. Raises what keeps the server from
        starting."""

    async def run(self) -> None:
        """Follow the assignments and ask idle storage nodes whether they answer, until cancelled."""

    async def close(self) -> None:
        """Close all connections to storage nodes."""
