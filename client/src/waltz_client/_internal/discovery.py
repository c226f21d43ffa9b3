"""What a client needs of discovery."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol
from uuid import UUID

from waltz_cluster.producers import ProducerRegistry
from waltz_protocol.types import Endpoint, Generation, PartitionId


class ClusterInfo(Protocol):
    """What discovery says about the cluster."""

    @property
    def name(self) -> str:
        """Name of the cluster."""
        ...

    @property
    def num_partitions(self) -> int:
        """How many partitions it has."""
        ...


class Discovery(Protocol):
    """The part of `waltz_cluster.manager.ClusterManager` a client uses."""

    @property
    def cluster_params(self) -> ClusterInfo:
        """Name and number of partitions."""
        ...

    @property
    def cluster_key(self) -> UUID | None:
        """The key that the storage nodes carry; None where discovery does not say it."""
        ...

    @property
    def producers(self) -> ProducerRegistry:
        """The named producers of the cluster."""
        ...

    async def new_client_id(self) -> int:
        """An id no client ever had."""
        ...

    def add_endpoints_listener(
        self, listener: Callable[[dict[Endpoint, dict[PartitionId, Generation]]], None]
    ) -> Callable[[], None]:
        """Call the listener now and on every change; returns a function that removes it."""
        ...
