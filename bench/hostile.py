"""What hostile peers cost: memory of the attacked process, and the latency of a bystander against its own
without them.

The attacks are those of the tests (`tests/integration/hostile`), each against every port it is meant for.
They run in a process of their own that yields to others, on the same processors as everybody else.
"""

from __future__ import annotations

from pathlib import Path

from tests.integration.hostile.catalogue import ALL, Attack
from tests.integration.hostile.stage import MIB, Damage, stage

from bench.figures import Figure
from bench.plan import HOSTILE_MEMORY_TARGET, HOSTILE_P99_TARGET, Plan, group_name
from waltz_tools.local import LocalCluster, LocalSettings

_FILLED_BYTES = 20 * MIB


async def measure_hostile(directory: Path, plan: Plan, tls: bool) -> list[Figure]:
    """Two figures for each attack and port: first all about memory, then all about latency."""
    figures: list[tuple[Figure, Figure]] = []
    settings = LocalSettings(directory, partitions=2, servers=1, tls=tls)
    async with LocalCluster(settings) as cluster, stage(cluster, _FILLED_BYTES) as attacked:
        for attack, kind in _attacks(plan, tls):
            damage = await attacked.suffer(
                attack, kind, calm_seconds=plan.hostile_seconds, at_least_seconds=plan.hostile_seconds
            )
            figures.append(_figures(f"{attack.name.replace('_', ' ')}, {_port(kind)}", damage, tls))
        await attacked.is_unharmed()
    return [figure for kind in zip(*figures, strict=True) for figure in kind]


def _attacks(plan: Plan, tls: bool) -> list[tuple[Attack, str]]:
    """Which attacks, each with the port it is tried on; one light attack on each unless thorough."""
    found: list[tuple[Attack, str]] = []
    attacked: set[str] = set()
    for attack in ALL:
        if attack.needs_tls not in (None, tls) or (attack.heavy and not plan.hostile_thorough):
            continue
        kinds = (*attack.kinds, "server-http") if attack.kinds == ("http",) else attack.kinds
        if not plan.hostile_thorough:
            kinds = tuple(kind for kind in kinds[:1] if kind not in attacked)
            attacked.update(kinds)
        found += [(attack, kind) for kind in kinds]
    return found


def _port(kind: str) -> str:
    return {"http": "HTTP of a storage node", "server-http": "HTTP of a server"}.get(kind, f"{kind} port")


def _figures(name: str, damage: Damage, tls: bool) -> tuple[Figure, Figure]:
    load = "1 writer meanwhile"
    note = f"p99 {damage.calm_p99_ms:.1f} ms before, {damage.attacked_p99_ms:.1f} ms in {damage.seconds:.0f} s of attack"
    return (
        Figure(
            group_name("memory taken by hostile peers", tls),
            name,
            damage.memory_mib,
            "MiB",
            HOSTILE_MEMORY_TARGET,
            load,
        ),
        Figure(
            group_name("p99 of a bystander under attack / before", tls),
            name,
            damage.ratio,
            "",
            HOSTILE_P99_TARGET,
            load,
            note,
        ),
    )
