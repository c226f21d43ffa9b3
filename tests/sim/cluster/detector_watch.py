"""Watches what the detector of servers does, from outside (rules G1 to G6 of docs/safety.md).

* `evicted`, `eviction_pace`, `eviction_rest`: `checkers.evictions` judges.
* `registered`: a steady server is registered, and one that is not registered serves nothing.
* `replaced`: a server whose process is gone, or stands still, loses its registration in time, where the
  others are steady and hear each other.
"""

from __future__ import annotations

import asyncio
import itertools
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tests.sim.checkers.evictions import Eviction, check_evictions
from tests.sim.cluster.server_role import CLUSTER_ROOT, ServerRole
from tests.sim.cluster.shape import peer_timeout_seconds
from tests.sim.kernel.zookeeper import HOST as ZOOKEEPER
from waltz_cluster.paths import ClusterPaths
from waltz_cluster.store import SessionState

if TYPE_CHECKING:
    from tests.sim.cluster.world import World

POLL_SECONDS = 0.1
REGISTERED_SECONDS = 15.0
"""A server that is steady for so long is registered."""
SERVES_UNREGISTERED_SECONDS = 1.0
"""So long may a steady server take to learn that it has been evicted."""
ACQUAINTED_SECONDS = 8.0
"""After so long servers have heard from each other."""
GONE_TIMEOUTS, SILENT_TIMEOUTS = 0.3, 1.5
"""A process that is gone, or stands still, is replaced within so many timeouts and the following seconds."""
REPLACED_SECONDS = 0.4
NEVER = float("inf")
DISTURBED = ("zookeeper-", "blackout")
"""Kinds of faults, by how they begin, while which nobody has to reach ZooKeeper."""


@dataclass(slots=True)
class _Seen:
    """What is known of one server. Times in seconds."""

    incarnation: int = 0
    session_id: int = 0
    steady_since: float = NEVER
    unregistered_since: float = NEVER
    down: str = ""
    """How it is down, if it is."""
    down_since: float = NEVER
    """NEVER also where nothing has to follow from it."""
    fresh: bool = True
    """Nobody can have suspected it of silence yet: no rest holds up its eviction."""


class DetectorWatch:
    """Owner: the world."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._timeout = peer_timeout_seconds(world.shape)
        self._paths = ClusterPaths(CLUSTER_ROOT)
        self._seen = {name: _Seen() for name in world.servers}
        self._owners: dict[int, str] = {}
        """Session -> server."""
        self._connected_since = NEVER
        """No link between two servers is cut since then."""
        self._acquainted_at = -NEVER
        """When all servers were acquainted last."""
        self._evictions: list[Eviction] = []
        self._said: set[str] = set()
        world.zookeeper.on_deleted = self._deleted

    async def run(self, end: float) -> None:
        """Until the faults are over."""
        while self._world.loop.time() < end:
            self._look()
            await asyncio.sleep(POLL_SECONDS)
        self._world.zookeeper.on_deleted = None

    # -- evictions

    def _deleted(self, owners: dict[str, int], by: int) -> None:
        now, start = self._world.loop.now, self._paths.server_descriptor("")
        for path, owner in owners.items():
            name = self._owners.get(owner)
            if name is None or owner == by or not path.startswith(start):
                continue
            role, seen = self._world.servers[name], self._seen[name]
            self._look_at(name, role)
            last = seen.session_id == owner
            steady = now - seen.steady_since if last and seen.steady_since != NEVER else 0.0
            silent = last and (role.alive or not role.host.up)
            self._evictions.append(Eviction(now, by, name, steady, silent))
        for violation in check_evictions(self._evictions, self._timeout):
            self._report(violation.invariant, violation.text)

    def _report(self, invariant: str, text: str) -> None:
        if text not in self._said:
            self._said.add(text)
            self._world.violation(invariant, text)

    # -- polls

    def _look(self) -> None:
        world, registered = self._world, self._registered()
        for name, role in world.servers.items():
            self._look_at(name, role)
            self._check_registered(name, role, registered)
        self._look_at_links()
        for name, role in world.servers.items():
            self._check_replaced(name, role, registered)

    def _registered(self) -> set[int]:
        """Sessions of the descriptors."""
        tree = self._world.zookeeper
        parent = tree.find(self._paths.server_descriptors)
        names = parent.children if parent is not None else ()
        nodes = [tree.find(self._paths.server_descriptor(name)) for name in names]
        return {node.owner for node in nodes if node is not None}

    def _look_at(self, name: str, role: ServerRole) -> None:
        seen, session = self._seen[name], role.session
        if not self._is_steady(name, role) or session is None:
            seen.steady_since = NEVER
        elif (role.incarnation, session.session_id) != (seen.incarnation, seen.session_id):
            seen.incarnation, seen.session_id = role.incarnation, session.session_id
            self._owners[session.session_id] = name
            seen.steady_since = self._world.loop.now
        else:
            seen.steady_since = min(seen.steady_since, self._world.loop.now)

    def _is_steady(self, name: str, role: ServerRole) -> bool:
        world, session = self._world, role.session
        return (
            role.alive
            and not role.leaving
            and not _stands_still(role)
            and session is not None
            and session.state is SessionState.CONNECTED
            and name not in world.losses
            and not world.blocked[name, ZOOKEEPER]
            and not world.blocked[ZOOKEEPER, name]
            and not any(kind.startswith(DISTURBED) for kind in +world.under_way)
        )

    def _check_registered(self, name: str, role: ServerRole, registered: set[int]) -> None:
        seen, now = self._seen[name], self._world.loop.now
        if seen.steady_since == NEVER or seen.session_id in registered:
            seen.unregistered_since = NEVER
            return
        seen.unregistered_since = min(seen.unregistered_since, now)
        seconds = now - seen.unregistered_since
        since = f"since {seen.unregistered_since:.3f}"
        if seconds > REGISTERED_SECONDS:
            self._report("registered", f"{name} runs, reaches ZooKeeper, and is not registered {since}")
        if seconds > SERVES_UNREGISTERED_SECONDS and role.served():
            self._report("registered", f"{name} is not registered {since}, and serves partitions")

    # -- who is gone

    def _look_at_links(self) -> None:
        now, blocked = self._world.loop.now, self._world.blocked
        cut = [pair for pair in itertools.permutations(self._seen, 2) if blocked[pair]]
        for name in itertools.chain.from_iterable(cut):
            self._seen[name].fresh = False
        self._connected_since = NEVER if cut else min(self._connected_since, now)
        since = max(self._connected_since, *(seen.steady_since for seen in self._seen.values()))
        if now - since > ACQUAINTED_SECONDS:
            self._acquainted_at = now

    def _check_replaced(self, name: str, role: ServerRole, registered: set[int]) -> None:
        seen, now = self._seen[name], self._world.loop.now
        down = self._how_down(role)
        if down != seen.down:
            expected = down in ("gone", "still") and not seen.down and not self._world.shape.old_servers
            acquainted = now - self._acquainted_at <= 2 * POLL_SECONDS
            judged = expected and acquainted and (down == "gone" or seen.fresh)
            seen.down, seen.down_since = down, now if judged else NEVER
        seen.fresh = seen.fresh and down not in ("still", "dark")
        others = (other for key, other in self._seen.items() if key != name)
        if self._connected_since == NEVER or any(other.steady_since == NEVER for other in others):
            seen.down_since = NEVER
        timeouts = GONE_TIMEOUTS if down == "gone" else SILENT_TIMEOUTS
        limit = timeouts * self._timeout + REPLACED_SECONDS
        if now - seen.down_since > limit and seen.session_id in registered:
            self._report("replaced", f"{name} is registered, though it is {down} since {seen.down_since:.3f}")

    @staticmethod
    def _how_down(role: ServerRole) -> str:
        if not role.host.up:
            return "dark"
        if not role.alive:
            return "gone"
        if _stands_still(role):
            return "still"
        return "leaving" if role.leaving else ""


def _stands_still(role: ServerRole) -> bool:
    process = role.process
    return process is not None and (process.paused or role.host.suspended_at is not None)
