"""Two servers of the small world: which of them has which partition, and what it costs them."""

from __future__ import annotations

from typing import NamedTuple

from waltz_admin.load import WINDOWS_MINUTES, PartitionRates, ServerLoad
from waltz_cluster.serializers import PartitionAssignment, ServerDescriptor
from waltz_operator.model.desired import BalanceLimits
from waltz_operator.model.snapshot import ServerView, Unknown
from waltz_protocol.types import Endpoint, Generation, PartitionId

SERVER_IDS = (1, 2)
CVERSION = 1
LIMITS = BalanceLimits(
    window_minutes=5, minimum_cores=0.3, improvement=0.15, cooldown_seconds=3600.0, moves=2
)


class Shares(NamedTuple):
    """Which of two servers has which partition, in a universe with loads; `served` False while a server comes
    or goes. `load`: which of the loads there is. `measured`: the servers have had them for a window. Seen by
    nobody but the judges: `warm`, what moved by load within the cool-down, and `window`, how many did since
    the window began."""

    owners: tuple[int, ...]
    load: int = 0
    measured: bool = False
    served: bool = True
    warm: frozenset[int] = frozenset()
    window: int = 0


def registered_servers(
    servers: bool, owners: tuple[int, ...] | None
) -> tuple[dict[int, str], dict[int, int], dict[int, ServerDescriptor], PartitionAssignment | None]:
    """Servers, who has what, descriptors, assignment. Without `owners` nobody asks who has what."""
    if not servers or owners is None:
        return ({1: "h:1"} if servers else {}), {}, {}, None
    present = {one: ServerDescriptor(one, Endpoint("h", one), ()) for one in SERVER_IDS}
    listed = {
        server: tuple((PartitionId(p), Generation(1)) for p, owner in enumerate(owners) if owner == server)
        for server in SERVER_IDS
    }
    assignment = PartitionAssignment(CVERSION, len(owners), listed)
    return {one: f"h:{one}" for one in SERVER_IDS}, dict(enumerate(owners)), present, assignment


def server_views(shares: Shares, loads: tuple[float, ...], now: float) -> dict[int, ServerView | Unknown]:
    """What the servers say."""
    if not shares.served:
        return dict.fromkeys(SERVER_IDS, Unknown("it restarts"))
    found: dict[int, ServerView | Unknown] = {}
    for server in SERVER_IDS:
        had = frozenset(p for p, owner in enumerate(shares.owners) if owner == server)
        rates = {p: (PartitionRates(loads[p]),) * len(WINDOWS_MINUTES) for p in had}
        measured = LIMITS.window_seconds if shares.measured else 0.0
        load = ServerLoad(measured, (sum(loads[p] for p in had),) * len(WINDOWS_MINUTES), rates)
        found[server] = ServerView(had, dict.fromkeys(had, True), {}, now, None, load)
    return found
