"""What a workload sees of the cluster, and what the world sees of a workload.

Nothing else passes between the two: a workload never reaches into servers, disks or faults, and the world
knows no workload by name.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Coroutine
from typing import Any, Protocol

from tests.sim.checkers.history import History
from waltz_client import WaltzClient, WaltzClientCallbacks

Main = Callable[[], Coroutine[Any, Any, None]]
"""What a process runs. After a kill it is called again: what must survive lives in an object outside of
it."""


MEETING_SECONDS = 2.0
"""At multiples of this many virtual seconds workloads like to act all at once, and faults like to strike: an
idle cluster survives everything."""


READ_LOCKS_SINCE = 1
APPEND_LOCKS_SINCE = 2
"""Versions of the client protocol that carry these locks."""


class Flag(Protocol):
    """An event that is set once and lasts; of no loop and no process, so it may outlive a kill."""

    def is_set(self) -> bool:
        """Whether it has happened."""
        ...

    async def wait(self) -> object:
        """Return once it has happened."""
        ...


class ClusterAccess(Protocol):
    """A workload's way to the cluster."""

    history: History
    """Where everything that was seen is recorded; survives every kill."""

    @property
    def partitions(self) -> int:
        """Number of partitions: ids 0 to this - 1."""
        ...

    @property
    def stopping(self) -> Flag:
        """Set when the workloads are over: finish what is under way and return. Faults are over by then."""
        ...

    def new_client(
        self,
        name: str,
        callbacks: WaltzClientCallbacks | None = None,
        *,
        least_version: int = 0,
        **setting_overrides: object,
    ) -> WaltzClient:
        """A client to be entered with `async with`, inside a process of a workload.

        `name` names its random stream (call again with the same name after a restart: it gets a new
        stream). The protocol version is drawn, from `least_version` on (read locks need 1, append locks 2).
        Overrides are field names of ClientSettings (`append_deadline_ms=5_000`). `producer=` names one; its
        client speaks the newest version.
        """
        ...

    def rng(self, name: str) -> random.Random:
        """A random stream of this seed; the same name gives a fresh stream with the same numbers."""
        ...

    def time(self) -> float:
        """Virtual seconds since the beginning."""
        ...


class Workload(Protocol):
    """Something that uses the cluster and writes down what it saw."""

    name: str

    def processes(self, access: ClusterAccess) -> list[tuple[str, Main]]:
        """Its processes as (name, main); each gets a host of its own, some are killed and started again."""
        ...
