"""A process of a workload: an application with the shipped client in it."""

from __future__ import annotations

import asyncio

from tests.sim.cluster.access import Main
from tests.sim.cluster.role import Role, Unexpected
from tests.sim.kernel.loop import SimLoop
from waltz_cluster.errors import ClusterError


class ClientRole(Role):
    """One process of a workload. It is finished when its main returns."""

    def __init__(self, loop: SimLoop, name: str, unexpected: Unexpected, main: Main) -> None:
        super().__init__(loop, name, unexpected)
        self._main = main

    async def main(self, stop: asyncio.Event) -> None:
        """One life of the application."""
        self.stop = None  # applications are killed, not asked
        await self._main()
        self.finished = True

    def foreseen(self, error: BaseException) -> bool:
        """ZooKeeper may be away when a client is opened."""
        return isinstance(error, ClusterError) or super().foreseen(error)
