"""Which partitions go to which server so that the busiest one has less to do. Pure.

A step takes a partition from the busiest server, or exchanges one of its partitions for one that costs less,
whichever leaves the busier one of the two servers with least. It counts only if that is lower than before by
a stated part, so the sum of the squares of all loads falls with each step: under a load that does not change
the steps end, and no assignment comes back. Numbers of partitions stay what the servers' own policy keeps: a
partition moves alone only to a server that has fewer, and is exchanged otherwise.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection, Iterator, Mapping
from typing import NamedTuple

from waltz_cluster.moving import ServerMove


class Step(NamedTuple):
    """What would be done, and the load of the busier one of the two servers after it. The order is the order
    of preference."""

    larger: float
    moves: tuple[ServerMove, ...]


def choose(
    owners: Mapping[int, int],
    loads: Mapping[int, float],
    servers: Collection[int],
    fixed: Collection[int],
    *,
    minimum: float,
    improvement: float,
    limit: int,
) -> tuple[ServerMove, ...]:
    """The moves to be made now, at most `limit`, each partition once.

    `owners`: partition → server. `loads`: partition → load, 0 where it is missing, in any one unit; `minimum`
    in the same: while the busiest server has less, nothing moves. `fixed`: partitions that stay. Of equal
    choices the one with the lowest numbers is taken.
    """
    held: dict[int, list[int]] = {server: [] for server in sorted(servers)}
    for partition, server in sorted(owners.items()):
        held[server].append(partition)
    stay, chosen = set(fixed), list[ServerMove]()
    while True:
        totals = {server: sum(loads.get(one, 0.0) for one in had) for server, had in held.items()}
        busiest = min(totals, key=lambda server: (-totals[server], server), default=None)
        if busiest is None or totals[busiest] < minimum:
            return tuple(chosen)
        most = totals[busiest] * (1 - improvement)
        steps = _steps(busiest, held, loads, totals, stay)
        good = [one for one in steps if one.larger <= most and len(chosen) + len(one.moves) <= limit]
        if not good:
            return tuple(chosen)
        for move in min(good).moves:
            held[move.source].remove(move.partition)
            held[move.target].append(move.partition)
            stay.add(move.partition)
            chosen.append(move)


def _steps(
    busiest: int,
    held: Mapping[int, list[int]],
    loads: Mapping[int, float],
    totals: Mapping[int, float],
    stay: Collection[int],
) -> Iterator[Step]:
    """For each partition of the busiest server and each other server the best of each kind."""
    own = [one for one in held[busiest] if one not in stay]
    for server in held:
        if server == busiest or totals[server] >= totals[busiest]:
            continue
        spread = (totals[busiest] - totals[server]) / 2
        theirs = sorted((loads.get(one, 0.0), one) for one in held[server] if one not in stay)
        for partition in own:
            load = loads.get(partition, 0.0)
            move = ServerMove(partition, busiest, server)
            if len(held[busiest]) > len(held[server]):
                yield Step(max(totals[busiest] - load, totals[server] + load), (move,))
            # the best exchange is with one of the two next to what would make both alike
            at = bisect_left(theirs, (load - spread, -1))
            for other, partner in theirs[max(at - 1, 0) : at + 1]:
                larger = max(totals[busiest] - load + other, totals[server] + load - other)
                yield Step(larger, (move, ServerMove(partner, server, busiest)))
