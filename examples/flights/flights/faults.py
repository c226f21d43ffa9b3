"""What goes wrong during the demo, by plan: one storage node and one server are killed and come back, under
load."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from waltz_tools.local import LocalCluster

_DOWN_SECONDS = 0.5
STORAGE_KILL_AT = 0.5
SERVER_KILL_AT = 0.65


@dataclass(frozen=True, slots=True)
class Fault:
    """A role, and when it was killed and was back (`time.monotonic()` seconds)."""

    role: str
    killed_seconds: float
    back_seconds: float


class FaultPlan:
    """SIGKILLs to a storage node when half of the load is committed, and to a server later, each brought back
    at once.

    The server is not killed before the storage node's process is there again (it may still be catching up),
    so a majority of replicas is always alive.
    """

    def __init__(
        self,
        cluster: LocalCluster,
        reached: Callable[[float], Awaitable[None]],
        announce: Callable[[str], None],
    ) -> None:
        """`reached(share)` waits until that share of the load is committed."""
        self._cluster = cluster
        self._reached = reached
        self._announce = announce

    async def run(self) -> list[Fault]:
        """Both faults, until both processes answer again."""
        storage_started = asyncio.Event()
        async with asyncio.TaskGroup() as group:
            storage = group.create_task(
                self._fault(STORAGE_KILL_AT, self._cluster.storage_roles[-1], storage_started)
            )
            await storage_started.wait()
            server = group.create_task(
                self._fault(SERVER_KILL_AT, self._cluster.server_roles[0], asyncio.Event())
            )
        return [storage.result(), server.result()]

    async def _fault(self, share: float, role: str, started: asyncio.Event) -> Fault:
        await self._reached(share)
        self._announce(f"SIGKILL to {role} at {share:.0%}")
        killed = time.monotonic()
        await self._cluster.kill_role(role)
        await asyncio.sleep(_DOWN_SECONDS)
        await self._cluster.start_role(role, wait=False)
        started.set()
        await self._cluster.wait_ready(role)
        self._announce(f"{role} is back after {time.monotonic() - killed:.1f} s")
        return Fault(role, killed, time.monotonic())
